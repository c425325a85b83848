"""Airflow's view of the DAG files: tasks, form, schedules, and nothing heavy while it looks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dags.airflow_home import ROOT, AirflowHome

HEAVY = {
    "great_expectations",
    "matplotlib",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
}

CLUSTERS = ["mixed", "bitflip", "misfiled", "crippled", "live", "nightly", "bloated"]
CLUSTERS += ["restored", "restored-too", "drilled"]
"""Clusters of the tests' cluster file."""

PARSE = """
import json, os, sys
from airflow.dag_processing.dagbag import DagBag

def parse(folder, environment):
    os.environ.update(environment)
    bag = DagBag(dag_folder=folder)
    return {
        "errors": dict(bag.import_errors),
        "loaded": sorted({loaded(name) for name in sys.modules}),
        "files": sorted({dag.fileloc for dag in bag.dags.values()}),
        "dags": {dag.dag_id: described(dag) for dag in bag.dags.values()},
    }

def loaded(name):
    # A package; of the core a package in it.
    parts = name.split(".")
    return ".".join(parts[: 2 if parts[0] == "coordinator_core" else 1])

def described(dag):
    return {
        "tasks": {
            task.task_id: {
                "downstream": sorted(task.downstream_task_ids),
                "retries": task.retries,
                "delay": task.retry_delay.total_seconds(),
                "owner": task.owner,
                "outlets": [outlet.name for outlet in task.outlets],
                "operator": type(task).__name__,
            }
            for task in dag.tasks
        },
        "params": {name: dag.params.get_param(name).dump() for name in dag.params},
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "tags": sorted(dag.tags),
        "doc": dag.doc_md,
        "schedule": str(dag.schedule) if dag.schedule is not None else None,
        "start_date": dag.start_date.isoformat() if dag.start_date else None,
    }

print(json.dumps({name: parse(*how) for name, how in json.loads(sys.argv[1]).items()}))
"""


@pytest.fixture(scope="module")
def all_parsed(home: AirflowHome, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Result of a DAG processor for the DAGs, in an interpreter of its own, under several cluster files."""
    place = tmp_path_factory.mktemp("parsing")
    (place / "wrong.yaml").write_text("clusters: {blue: {source: s}}")
    (place / "other.yaml").write_text("clusters: {blue: {source: s, output: o}}")
    (place / "partly.yaml").write_text("clusters: {blue: {source: s}, green: {source: s, output: o}}")
    (place / "heavy").mkdir()
    (place / "heavy/heavy.py").write_text("from airflow.sdk import DAG\nimport pyarrow\ndag = DAG('heavy')\n")
    ours = str(ROOT / "dags")
    bags = {
        # First, so that only the DAGs themselves can have loaded what is loaded.
        "tests": (ours, {}),
        "bundled": (ours, {"REGROUP_CLUSTERS": str(ROOT / "dags/clusters.yaml")}),
        "wrong": (ours, {"REGROUP_CLUSTERS": str(place / "wrong.yaml")}),
        "partly": (ours, {"REGROUP_CLUSTERS": str(place / "partly.yaml")}),
        "variable": (
            ours,
            {"REGROUP_CLUSTERS": "", "AIRFLOW_VAR_REGROUP_CLUSTERS": str(place / "other.yaml")},
        ),
        "heavy": (str(place / "heavy"), {}),
    }
    done = subprocess.run(
        [sys.executable, "-c", PARSE, json.dumps(bags)],
        env=home.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def parsed(all_parsed: Any) -> Any:
    return all_parsed["tests"]


def test_every_dag_file_parses(parsed: Any) -> None:
    assert parsed["errors"] == {}
    files = ["failover_drill.py", "offsets_compact.py", "offsets_load.py"]
    files += ["offsets_maintain.py", "offsets_reconcile.py", "offsets_restore.py"]
    assert [Path(file).name for file in parsed["files"]] == files
    assert set(parsed["dags"]) == {
        "failover_drill",
        "offsets_compact",
        "offsets_compact_bloated",
        "offsets_load",
        "offsets_load_nightly",
        "offsets_maintain",
        "offsets_reconcile",
        *(f"offsets_reconcile_{name}" for name in CLUSTERS),
        "offsets_restore",
    }


def test_parsing_loads_nothing_heavy(parsed: Any) -> None:
    assert "airflow" in parsed["loaded"]
    assert HEAVY & set(parsed["loaded"]) == set()
    # The table of releases, by which the cluster file is checked.
    core = {name.partition(".")[2] for name in parsed["loaded"] if name.startswith("coordinator_core.")}
    assert core == {"durations", "errors", "releases"}


def test_a_heavy_import_would_be_seen(all_parsed: Any) -> None:
    assert list(all_parsed["heavy"]["dags"]) == ["heavy"]
    assert HEAVY & set(all_parsed["heavy"]["loaded"]) >= {"pyarrow"}


@pytest.mark.parametrize("dag_id", ["offsets_load", "offsets_load_nightly"])
def test_tasks(parsed: Any, dag_id: str) -> None:
    tasks = parsed["dags"][dag_id]["tasks"]
    assert {name: task["downstream"] for name, task in tasks.items()} == {
        "pin": ["replay", "summary"],
        "replay": ["summary"],
        "summary": [],
    }
    assert {name: task["outlets"] for name, task in tasks.items()} == {
        "pin": [],
        "replay": [],
        "summary": ["regroup-offsets"],
    }
    assert tasks["replay"]["operator"] == "SparkAppOperator"
    assert {(task["retries"], task["delay"], task["owner"]) for task in tasks.values()} == {(1, 1.0, "regroup")}


@pytest.mark.parametrize("dag_id", ["offsets_load", "offsets_load_nightly"])
def test_runs_follow_each_other(parsed: Any, dag_id: str) -> None:
    dag = parsed["dags"][dag_id]
    assert dag["catchup"] is False
    assert dag["max_active_runs"] == 1
    assert {"regroup", "offsets"} <= set(dag["tags"])
    assert "`pin`" in dag["doc"]


def test_only_clusters_with_a_schedule_have_a_dag_of_their_own(parsed: Any) -> None:
    on_request, nightly = parsed["dags"]["offsets_load"], parsed["dags"]["offsets_load_nightly"]
    assert (on_request["schedule"], on_request["start_date"]) == (None, None)
    assert nightly["start_date"] == "2026-01-01T00:00:00+00:00"
    # Whatever create_cron_data_intervals of the deployment is.
    assert nightly["schedule"].startswith("CronTriggerTimetable(expression='0 0 * * *', timezone='UTC', interval=")
    assert "timedelta(0)" in nightly["schedule"]
    assert on_request["params"]["cluster"]["schema"]["enum"] == CLUSTERS
    assert nightly["params"]["cluster"]["schema"]["enum"] == ["nightly"]


def test_reconciliation_follows_the_asset_of_its_cluster(parsed: Any) -> None:
    assert parsed["dags"]["offsets_reconcile"]["schedule"] is None
    for name in CLUSTERS:
        dag = parsed["dags"][f"offsets_reconcile_{name}"]
        assert f"regroup://{name}/offsets" in dag["schedule"]
        assert {task: found["downstream"] for task, found in dag["tasks"].items()} == {
            "find": ["expectations", "histories", "register", "report", "rules"],
            "rules": ["expectations"],
            "histories": ["history"],
            "history": [],
            "expectations": ["gate", "report"],
            "report": ["gate", "metrics"],
            "metrics": [],
            "register": [],
            "gate": [],
        }
        assert dag["params"]["cluster"]["value"] == name
        assert (dag["params"]["history"]["value"], dag["params"]["history_groups"]["value"]) == (False, None)
        assert dag["max_active_runs"] == 1


def test_compaction_asks_before_it_writes(parsed: Any) -> None:
    for dag_id in ("offsets_compact", "offsets_compact_bloated"):
        tasks = parsed["dags"][dag_id]["tasks"]
        assert {name: task["downstream"] for name, task in tasks.items()} == {
            "pin": ["forecast", "plan"],
            "forecast": ["plan"],
            "plan": ["approve", "compact", "proof", "publish"],
            "approve": ["compact"],
            "compact": ["proof"],
            "proof": ["publish"],
            "publish": [],
        }
        assert tasks["publish"]["outlets"] == ["regroup-compacted"]
        assert {task["retries"] for task in tasks.values()} == {1}
    assert parsed["dags"]["offsets_compact"]["max_active_runs"] == len(CLUSTERS) + 1
    assert parsed["dags"]["offsets_compact_bloated"]["max_active_runs"] == 1
    schedules = {name: parsed["dags"][name]["schedule"] for name in ("offsets_compact", dag_id)}
    assert schedules.pop("offsets_compact") is None
    assert "expression='0 0 * * 0'" in schedules.pop("offsets_compact_bloated")
    assert not schedules


def test_a_drill_asks_before_it_breaks_anything(parsed: Any) -> None:
    dag = parsed["dags"]["failover_drill"]
    assert {name: task["downstream"] for name, task in dag["tasks"].items()} == {
        "predict": ["approve", "compare", "fault_and_observe", "recover", "steady_state"],
        "approve": ["compare", "fault_and_observe", "steady_state"],
        "steady_state": ["fault_and_observe", "recover"],
        "fault_and_observe": ["recover"],
        "recover": ["compare"],
        "compare": ["report"],
        "report": [],
    }
    assert dag["tasks"]["fault_and_observe"]["retries"] == 0
    assert dag["params"]["cluster"]["schema"]["enum"] == ["drilled"]
    assert dag["params"]["execute"]["value"] is False
    assert (dag["schedule"], dag["max_active_runs"]) == (None, 2)


def test_a_restore_asks_before_it_writes(parsed: Any) -> None:
    dag = parsed["dags"]["offsets_restore"]
    assert {name: task["downstream"] for name, task in dag["tasks"].items()} == {
        "plan": ["apply", "approve", "check", "rollback", "verify"],
        "approve": ["apply", "check"],
        "check": ["apply", "rollback"],
        "apply": ["verify"],
        "verify": ["rollback"],
        "rollback": [],
    }
    assert dag["params"]["cluster"]["schema"]["enum"] == ["restored", "restored-too"]
    assert all(param["schema"]["title"] and param["description"] for param in dag["params"].values())
    assert (dag["schedule"], dag["max_active_runs"]) == (None, 3)


def test_the_form(parsed: Any) -> None:
    params = parsed["dags"]["offsets_load"]["params"]
    assert {name: param["value"] for name, param in params.items()} == {
        "cluster": "mixed",
        "source": None,
        "window": None,
        "now_ms": None,
        "profile": None,
        "kafka_version": None,
        "coordinator": None,
        "partial": False,
    }
    assert all(param["schema"]["title"] and param["description"] for param in params.values())
    assert params["now_ms"]["schema"]["type"] == ["null", "integer"]
    assert params["partial"]["schema"]["type"] == "boolean"
    assert params["coordinator"]["schema"]["enum"] == [None, "classic", "new"]


def test_the_bundled_cluster_file_parses(all_parsed: Any) -> None:
    assert all_parsed["bundled"]["errors"] == {}
    assert set(all_parsed["bundled"]["dags"]) == {
        "offsets_compact",
        "offsets_load",
        "offsets_maintain",
        "offsets_reconcile",
        "offsets_reconcile_demo",
    }


def test_the_cluster_file_may_be_named_by_an_airflow_variable(all_parsed: Any) -> None:
    dags = all_parsed["variable"]["dags"]
    on_request = {"offsets_compact", "offsets_load", "offsets_maintain", "offsets_reconcile"}
    assert set(dags) == on_request | {"offsets_reconcile_blue"}
    assert {tuple(dag["params"]["cluster"]["schema"]["enum"]) for dag in dags.values()} == {("blue",)}


def test_a_wrong_cluster_file_is_shown_as_import_error(all_parsed: Any) -> None:
    assert all_parsed["wrong"]["dags"] == {}
    errors = all_parsed["wrong"]["errors"].values()
    assert len(errors) == 7
    for error in errors:
        assert "ClusterFileError: cluster file" in error
        assert "wrong.yaml: clusters.blue.output: missing" in error


def test_a_wrong_cluster_is_shown_and_the_others_have_their_dags(all_parsed: Any) -> None:
    assert set(all_parsed["partly"]["dags"]) == {
        "offsets_compact",
        "offsets_load",
        "offsets_maintain",
        "offsets_reconcile",
        "offsets_reconcile_green",
    }
    [(file, error)] = all_parsed["partly"]["errors"].items()
    assert Path(file).name == "cluster_file.py"
    assert "partly.yaml: clusters.blue.output: missing" in error
