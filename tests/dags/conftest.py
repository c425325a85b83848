"""One Airflow home for all DAG tests, with a cluster file over the corpus."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cases import case
from tests.dags.airflow_home import AirflowApi, AirflowHome
from tests.dags.forked import import_beforehand

# Whoever imports Airflow makes it a home; the tests that import it here must not do so in the user's.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-home-")
atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

WINDOWS = {"2026-03-01T00-00-00Z": "k0102/before", "2026-03-02T00-00-00Z": "k0102/after"}
"""Snapshot directory of cluster ``nightly``: a snapshot per day."""

CONSUMER = """
from airflow.sdk import DAG, Asset, task

LOADED = Asset(name="mixed-offsets", uri="regroup://mixed/offsets")

with DAG("sees_new_runs", schedule=[LOADED]):

    @task
    def look(*, triggering_asset_events):
        return [event.extra for event in triggering_asset_events[LOADED]]

    look()
"""


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="session")
def cluster_file(place: Path) -> Path:
    """Cluster file with corpus cases, an unreadable log dir, and a cluster with a schedule."""
    misfiled = place / "misfiled"
    shutil.copytree(case("k241/before").paths[0], misfiled)
    (misfiled / "log-start-offset-checkpoint").write_text("not a checkpoint\n")
    for window, name in WINDOWS.items():
        shutil.copytree(case(name).paths[0], place / "snapshots" / window)
    told = {"path": str(place / "told"), "subject": "of {{ dag_run.dag_id }}"}
    clusters = {
        "mixed": {
            "source": str(case("k431-mixed").paths[0]),
            "kafka_version": "4.3.1",
            "metrics": {"textfile": "textfile"},
            "lineage": True,
            "links": {"output": "https://reports.example/regroup/", "spark_history": "https://spark.example"},
            "notify": [{"notifier": "tests.dags.notifier.Teller", "arguments": told, "when": "success"}],
        },
        "bitflip": {
            "source": str(case("k431-torn/bitflip").paths[0]),
            "kafka_version": "4.3.1",
            "notify": [{"notifier": "tests.dags.notifier.Teller", "arguments": told}],
        },
        "misfiled": {"source": str(misfiled), "kafka_version": "2.4.1"},
        # A heap that no JVM starts with: spark-submit ends with 1 before there is an app.
        "crippled": {
            "source": str(case("k431-mixed").paths[0]),
            "kafka_version": "4.3.1",
            "spark": {"driver_memory": "1k"},
        },
        "live": {"source": "kafka://live", "kafka_version": "4.3.1", "offsets_topic_num_partitions": 3},
        "nightly": {
            "source": "snapshots/{window}",
            "kafka_version": "0.10.2.2",
            "offsets_topic_num_partitions": 4,
            "schedule": "@daily",
            "start_date": "2026-01-01T00:00:00+00:00",
        },
        "bloated": {
            "source": str(case("k431-compacted/A-uncleaned").paths[0]),
            "kafka_version": "4.3.1",
            "compaction": {"approval_hours": 1},
            "expectations": {"spark_from_offsets": 1},
        },
        "restored": {
            "source": "kafka://restored",
            "kafka_version": "4.3.1",
            "restore": {"connection": "restored", "approval_hours": 1},
        },
        # Another cluster to the DAG; the same brokers.
        "restored-too": {
            "source": "kafka://restored",
            "kafka_version": "4.3.1",
            "restore": {"connection": "restored", "approval_hours": 1},
        },
        # What its commands ask for is done by the test that drills.
        "drilled": {
            "source": "kafka://drilled",
            "kafka_version": "4.3.1",
            "offsets_topic_num_partitions": 3,
            "drill": {
                "connection": "drilled",
                "fault_command": f"sh {place}/drill/fault.sh {{brokers}}",
                "recover_command": f"sh {place}/drill/recover.sh",
                "observe_seconds": 5,
                "approval_hours": 1,
            },
        },
    }
    path = place / "clusters.yaml"
    document = {"retries": 1, "retry_delay_seconds": 1, "defaults": {"output": "runs"}, "clusters": clusters}
    # JSON is YAML; a date in it is text, which the loader does not take for a date.
    text = json.dumps(document, indent=1).replace('"2026-01-01T00:00:00+00:00"', "2026-01-01")
    path.write_text(text)
    return path


@pytest.fixture(scope="session")
def home(place: Path, cluster_file: Path) -> AirflowHome:
    consumers = place / "consumers"
    consumers.mkdir()
    (consumers / "sees_new_runs.py").write_text(CONSUMER)
    return AirflowHome(place / "home", cluster_file, {"consumers": consumers})


@pytest.fixture(scope="session")
def home_of_scripts(home: AirflowHome) -> AirflowHome:
    """The home, for tests that run a :class:`~tests.dags.forked.Script`."""
    import_beforehand(home.environment, "dags.common.spark")
    return home


@pytest.fixture(scope="package")
def api(home: AirflowHome) -> Iterator[AirflowApi]:
    """All components running, for the tests whose files come last; SQLite has one writer."""
    local_spark = json.dumps({"conn_type": "spark", "host": "local[2]"})
    with home.running(AIRFLOW_CONN_REGROUP_SPARK=local_spark) as running:
        for dag_id in ("offsets_load", "sees_new_runs", "offsets_reconcile_mixed", "offsets_compact"):
            running.wait_for_dag(dag_id)
        yield running
