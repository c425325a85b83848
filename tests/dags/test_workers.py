"""Airflow as its users run it: PostgreSQL, LocalExecutor; Celery workers that share nothing but a bucket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
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
    document = {"retries": 4, "retry_delay_seconds": 1, "defaults": {"output": bucket.uri("runs")}}
    clusters.write_text(json.dumps({**document, "clusters": {"mixed": mixed}}))
    with postgres() as database:
        yield AirflowHome(
            place / "home",
            clusters,
            DATABASE__SQL_ALCHEMY_CONN=f"postgresql+psycopg2://{database}",
            CELERY__RESULT_BACKEND=f"db+postgresql://{database}",
            # On a machine that does other things, too, an answer takes as long as it takes,
            WORKERS__EXECUTION_API_TIMEOUT="60",
            # but a task whose worker is gone is found within seconds.
            WORKERS__MIN_HEARTBEAT_INTERVAL="2",
            SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT="30",
            SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL="2",
        )


def test_load_and_reconcile_with_the_local_executor(farm: AirflowHome, bucket: ObjectStore, tmp_path: Path) -> None:
    with farm.running(**SPARK, **bucket.environment) as api:
        loaded = load(api, "offsets_load")
        checked = reconciled(api, set())
    run = open_run(loaded["run"])
    assert run.state_hash == local_engine(case("k431-mixed"), run, tmp_path)["state_hash"]
    assert (checked["run"], checked["failed"]) == (loaded["run"], False)


def test_celery_workers_that_share_nothing_but_the_bucket(
    farm: AirflowHome, bucket: ObjectStore, tmp_path: Path
) -> None:
    """Each DAG loses a worker at its app; another worker does it again, and the gate lets the run through."""
    environment = {**SPARK, **bucket.environment, "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor"}
    with ExitStack() as stack:
        environment["AIRFLOW__CELERY__BROKER_URL"] = stack.enter_context(redis(tmp_path))
        workers = [tmp_path / "worker-0", tmp_path / "worker-1"]
        for home in workers:
            stack.enter_context(farm.worker(home, **environment))
        api = stack.enter_context(farm.running(**environment))
        before = reconciliations(api)

        def lose_worker_of(app: str) -> None:
            lost = api.wait_for(f"a worker to run {app}", lambda: worker_of(app, workers))
            assert kill_all_of(lost)
            workers[:] = [home for home in workers if home != lost]
            workers.append(tmp_path / f"{lost.name}-again")
            stack.enter_context(farm.worker(workers[-1], **environment))

        loaded = load(api, "offsets_load", lambda: lose_worker_of("replay"))
        checked = reconciled(api, before, lambda: lose_worker_of("reconcile"))
    run = open_run(loaded["run"])
    assert run.state_hash == local_engine(case("k431-mixed"), run, tmp_path)["state_hash"]
    assert (checked["run"], checked["failed"]) == (loaded["run"], False)
    assert json.loads(bytes(storage.read(bucket.uri("runs/mixed/latest.json"))))["run_id"] == loaded["run_id"]


def load(api: AirflowApi, dag_id: str, meanwhile: Callable[[], None] | None = None) -> dict[str, Any]:
    """A run of ``offsets_load``; what it has loaded. ``replay`` is done again where something happens meanwhile."""
    api.wait_for_dag("offsets_reconcile_mixed")
    api.wait_for_dag(dag_id)
    run_id = api.trigger(dag_id, {"cluster": "mixed"})
    if meanwhile is not None:
        meanwhile()
    assert api.finished(dag_id, run_id) == "success", api.logs()
    assert meanwhile is None or api.tasks(dag_id, run_id)["replay"]["try_number"] > 1
    return dict(api.xcom(dag_id, run_id, "summary"))


def reconciliations(api: AirflowApi) -> set[str]:
    return {run["dag_run_id"] for run in api.get("/dags/offsets_reconcile_mixed/dagRuns")["dag_runs"]}


def reconciled(api: AirflowApi, before: set[str], meanwhile: Callable[[], None] | None = None) -> dict[str, Any]:
    """The run of ``offsets_reconcile`` that the new run has started; what its gate has let through."""
    [run_id] = api.wait_for("the DAG that follows the asset", lambda: reconciliations(api) - before)
    if meanwhile is not None:
        meanwhile()
    assert api.finished("offsets_reconcile_mixed", run_id) == "success", api.logs()
    assert meanwhile is None or api.tasks("offsets_reconcile_mixed", run_id)["rules"]["try_number"] > 1
    return dict(api.xcom("offsets_reconcile_mixed", run_id, "gate", map_index=0))


def worker_of(app: str, workers: Sequence[Path]) -> Path | None:
    """Home of the worker on which an app of Spark has begun: its driver."""
    for home in workers:
        if any(f"/{app}.py " in command and "SparkSubmit" in command for _, command in processes_of(home)):
            return home
    return None
