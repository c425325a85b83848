"""Airflow as its users run it: PostgreSQL, LocalExecutor; Celery workers that share nothing but a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from coordinator_core import storage
from coordinator_core.runs.read import open_run
from tests.cases import case
from tests.dags.airflow_home import AirflowApi, AirflowHome, kill_all_of, processes_of
from tests.dags.published import local_engine
from tests.dags.services import postgres, redis
from tests.log.object_store import ObjectStore, object_store

SPARK = {"AIRFLOW_CONN_REGROUP_SPARK": json.dumps({"conn_type": "spark", "host": "local[2]"})}


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture(scope="module")
def farm(bucket: ObjectStore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowHome]:
    """An Airflow on PostgreSQL whose clusters have everything in the bucket."""
    place = tmp_path_factory.mktemp("farm")
    source = bucket.copy(case("k431-mixed").paths[0], "snapshots/mixed")
    clusters = place / "clusters.yaml"
    mixed = {"source": source, "kafka_version": "4.3.1", "compaction": {}}
    document = {"retries": 2, "retry_delay_seconds": 1, "defaults": {"output": bucket.uri("runs")}}
    clusters.write_text(json.dumps({**document, "clusters": {"mixed": mixed}}))
    with postgres() as database:
        yield AirflowHome(
            place / "home",
            clusters,
            DATABASE__SQL_ALCHEMY_CONN=f"postgresql+psycopg2://{database}",
            CELERY__RESULT_BACKEND=f"db+postgresql://{database}",
            # A task whose worker is gone is found within seconds.
            SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC="2",
            SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT="15",
            SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL="2",
        )


def published(bucket: ObjectStore) -> set[str]:
    """Runs of the cluster, as ``<window>/<run id>``."""
    found = storage.find_files(bucket.uri("runs/mixed"), "manifest.json")
    return {"/".join(path.split("/")[-3:-1]) for path in found}


def test_load_and_reconcile_with_the_local_executor(farm: AirflowHome, bucket: ObjectStore, tmp_path: Path) -> None:
    with farm.running(**SPARK, **bucket.environment) as api:
        loaded, checked = load_and_reconcile(api)
    run = open_run(loaded["run"])
    assert run.state_hash == local_engine(case("k431-mixed"), run, tmp_path)["state_hash"]
    assert (checked["run"], checked["failed"]) == (loaded["run"], False)


def load_and_reconcile(api: AirflowApi) -> tuple[dict[str, Any], dict[str, Any]]:
    for dag_id in ("offsets_load", "offsets_reconcile_mixed"):
        api.wait_for_dag(dag_id)
    run_id = api.trigger("offsets_load", {"cluster": "mixed"})
    assert api.finished("offsets_load", run_id) == "success", api.logs()
    loaded = api.xcom("offsets_load", run_id, "summary")
    [reconciliation] = api.wait_for("it", lambda: api.get("/dags/offsets_reconcile_mixed/dagRuns")["dag_runs"])
    run_id = reconciliation["dag_run_id"]
    assert api.finished("offsets_reconcile_mixed", run_id) == "success", api.logs()
    [checked] = api.xcom("offsets_reconcile_mixed", run_id, "gate")
    return loaded, checked


def test_celery_workers_that_share_nothing_but_the_bucket(
    farm: AirflowHome, bucket: ObjectStore, tmp_path: Path
) -> None:
    """Each app loses its worker while it runs; another worker does it again, and the gate lets the run through."""
    before = {event["dag_run_id"] for event in []}
    environment = {**SPARK, **bucket.environment, "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor"}
    with ExitStack() as stack:
        broker = stack.enter_context(redis(tmp_path))
        environment["AIRFLOW__CELERY__BROKER_URL"] = broker
        names = iter(range(100))

        def another() -> Path:
            home = tmp_path / f"worker-{next(names)}"
            stack.enter_context(farm.worker(home, **environment))
            return home

        workers = [another(), another()]
        with farm.running(**environment) as api:
            run_id = api.trigger("offsets_load", {"cluster": "mixed"})
            lost = api.wait_for("a worker to replay", lambda: runs_app("replay", workers))
            kill_all_of(lost)
            workers.remove(lost)
            workers.append(another())
            assert api.finished("offsets_load", run_id) == "success", api.logs()
            assert api.tasks("offsets_load", run_id)["replay"]["try_number"] == 2


def runs_app(app: str, workers: list[Path]) -> Path | None:
    """The worker on which an app of Spark has begun."""
    for home in workers:
        if any(f"/{app}.py " in command and "org.apache.spark" in command for _, command in processes_of(home)):
            return home
    return None
