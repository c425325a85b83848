"""Airflow as its users run it: PostgreSQL, LocalExecutor; Celery workers that share nothing but a bucket."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient
from pyarrow.fs import S3FileSystem

from coordinator_core import storage
from coordinator_core.drill.journal import JOURNAL, of_kind, read_journal
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.runs.place import is_run
from coordinator_core.runs.read import open_run
from tests.cases import case
from tests.dags.airflow_home import AirflowApi, AirflowHome, kill_all_of, processes_of
from tests.dags.published import local_engine
from tests.dags.services import postgres, redis
from tests.drill.kit import Operator
from tests.live.broker import Broker, Kafka
from tests.log.object_store import ObjectStore, object_store
from tests.restore.kit import PARTITIONS, TOPIC, Place, offsets_of, started
from tests.rules.logs import HEALTHY, one

SPARK = {"AIRFLOW_CONN_REGROUP_SPARK": json.dumps({"conn_type": "spark", "host": "local[2]"})}
# A month behind the log.
LATER_MS = 1_795_260_000_000 + 30 * 86_400_000
AGED_RUNS = 4


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    """Everything in it is three days old, so that it may be pruned."""
    with object_store(age_days=3) as store:
        yield store


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("farm")


@pytest.fixture(scope="module")
def farm(bucket: ObjectStore, place: Path) -> Iterator[AirflowHome]:
    """An Airflow on PostgreSQL whose clusters have everything in the bucket."""
    source = bucket.copy(case("k431-mixed").paths[0], "snapshots/mixed")
    entries = {
        "mixed": {"source": source, "compaction": {}},
        "bloated": {"source": bucket.copy(case("k431-compacted/A-uncleaned").paths[0], "snapshots/bloated")},
        "aged": {"source": source, "output": f"s3://{aged_bucket(bucket)}/runs"},
        "restored": {"source": "kafka://restored", "restore": {"connection": "restored", "approval_hours": 1}},
        "drilled": {
            "source": "kafka://drilled",
            "drill": {
                "connection": "drilled",
                "fault_command": f"sh {place}/fault.sh",
                "recover_command": f"sh {place}/recover.sh",
                "observe_seconds": 1,
                "approval_hours": 1,
            },
        },
    }
    clusters = place / "clusters.yaml"
    defaults = {"output": bucket.uri("runs"), "state": bucket.uri("state"), "kafka_version": "4.3.1"}
    document = {"retries": 4, "retry_delay_seconds": 1, "defaults": defaults, "clusters": entries}
    clusters.write_text(json.dumps(document))
    with postgres() as database:
        yield AirflowHome(
            place / "home",
            clusters,
            CORE__PARALLELISM="8",
            DATABASE__SQL_ALCHEMY_CONN=f"postgresql+psycopg2://{database}",
            CELERY__RESULT_BACKEND=f"db+postgresql://{database}",
            # A task whose worker is gone is found within seconds,
            WORKERS__MIN_HEARTBEAT_INTERVAL="2",
            SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT="30",
            SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL="2",
            # and one that it had taken, and not begun, within minutes.
            SCHEDULER__TASK_QUEUED_TIMEOUT="240",
            SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL="5",
        )


def aged_bucket(bucket: ObjectStore) -> str:
    """A bucket of its own: what deletes many objects at once does not name them in the request's path."""
    return f"aged-{bucket.bucket}"


def test_load_and_reconcile_with_the_local_executor(farm: AirflowHome, bucket: ObjectStore, tmp_path: Path) -> None:
    with farm.running(**SPARK, **bucket.environment) as api:
        loaded = load(api, "offsets_load")
        checked = reconciled(api, set())
    run = open_run(loaded["run"])
    assert run.state_hash == local_engine(case("k431-mixed"), run, tmp_path)["state_hash"]
    assert (checked["run"], checked["failed"]) == (loaded["run"], False)


@pytest.fixture(scope="module")
def brokers(place: Path) -> Iterator[dict[str, Place]]:
    """One for restores; one that is drilled on."""
    with ExitStack() as stack:
        made = {}
        for name in ("restored", "drilled"):
            broker = Broker(Kafka.fetch(), place / name, {"offsets.topic.num.partitions": "3"})
            stack.callback(broker.kill)
            broker.start()
            made[name] = started(broker)
            stack.callback(made[name].admin.close)
        yield made


@dataclass
class Celery:
    """Celery workers, each with a machine of its own; whoever is lost is replaced."""

    api: AirflowApi
    begin: Callable[[Path], Any]
    place: Path
    homes: list[Path] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def add(self) -> None:
        self.homes.append(self.place / f"worker-{next(self._numbers)}")
        self.begin(self.homes[-1])

    def lose(self, home: Path) -> None:
        assert kill_all_of(home)
        self.homes.remove(home)
        self.add()

    def lose_that_of(self, what: str, is_there: Callable[[str], bool]) -> None:
        """Loses the worker that has such a process, by its command line, once there is one."""

        def found() -> Path | None:
            held = (home for home in self.homes if any(is_there(command) for _, command in processes_of(home)))
            return next(held, None)

        self.lose(self.api.wait_for(f"a worker to run {what}", found))

    def lose_that_of_app(self, app: str) -> None:
        self.lose_that_of(app, lambda command: f"/{app}.py " in command and "SparkSubmit" in command)

    def lose_that_of_task(self, dag_id: str, run_id: str, task_id: str) -> None:
        # Of each attempt Airflow makes another one.
        def runs(command: str) -> bool:
            return str(self.api.tasks(dag_id, run_id)[task_id]["id"]) in command

        self.lose_that_of(task_id, lambda command: command.startswith("airflow worker") and runs(command))


@pytest.fixture(scope="module")
def celery(
    farm: AirflowHome, bucket: ObjectStore, brokers: dict[str, Place], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Celery]:
    place = tmp_path_factory.mktemp("celery")
    environment = {**SPARK, **bucket.environment, "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor"}
    for name, at in brokers.items():
        host, _, port = at.broker.bootstrap.partition(":")
        connection = {"conn_type": "kafka", "host": host, "port": int(port)}
        environment[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(connection)
    with ExitStack() as stack:
        environment["AIRFLOW__CELERY__BROKER_URL"] = stack.enter_context(redis(place))
        workers = stack.enter_context(ExitStack())
        api = stack.enter_context(farm.running(**environment))
        made = Celery(api, lambda home: workers.enter_context(farm.worker(home, **environment)), place)
        made.add()
        made.add()
        yield made


def test_load_and_reconcile_on_celery_workers_of_which_some_are_lost(
    celery: Celery, bucket: ObjectStore, tmp_path: Path
) -> None:
    """Each DAG loses a worker at its app; another worker does it again, and the gate lets the run through."""
    api = celery.api
    api.wait_for_dag("offsets_reconcile_mixed")
    before = reconciliations(api)
    loaded = load(api, "offsets_load", lambda: celery.lose_that_of_app("replay"))
    checked = reconciled(api, before, lambda: celery.lose_that_of_app("reconcile"))
    run = open_run(loaded["run"])
    assert run.state_hash == local_engine(case("k431-mixed"), run, tmp_path)["state_hash"]
    assert (checked["run"], checked["failed"]) == (loaded["run"], False)
    assert json.loads(bytes(storage.read(bucket.uri("runs/mixed/latest.json"))))["run_id"] == loaded["run_id"]


def test_what_a_person_approves_is_done_whatever_worker_is_lost(
    celery: Celery, bucket: ObjectStore, brokers: dict[str, Place], place: Path, tmp_path: Path
) -> None:
    """Compaction, maintenance, restore and drill, all under way at once; each loses the worker that has begun to write.

    What has written half of it, and what is not yet there, is looked at in between: nothing looks done.
    """
    api, store = celery.api, aged_bucket(bucket)
    runs = aged_runs(bucket, tmp_path)
    restored, drilled = brokers["restored"], brokers["drilled"]
    groups = ("lost-0", "lost-1")
    for number, group in enumerate(groups):
        restored.commit(group, offsets_of(number))
    drilled.commit("watched", offsets_of(1))

    forms: dict[str, dict[str, Any]] = {
        "offsets_compact": {"cluster": "bloated", "now_ms": LATER_MS},
        "offsets_maintain": {"cluster": "aged", "keep": 1, "keep_days": None},
        "offsets_restore": {"cluster": "restored", "groups": "\n".join(groups), "move": "to-earliest"},
        "failover_drill": {"cluster": "drilled", "scenario": "rolling-restart", "rto_seconds": 600, "execute": True},
    }
    for dag_id in forms:
        api.wait_for_dag(dag_id)
    ids = {dag_id: api.trigger(dag_id, form) for dag_id, form in forms.items()}
    for dag_id, run_id in ids.items():
        api.asked(dag_id, run_id, "approve")

    planned = api.xcom("offsets_compact", ids["offsets_compact"], "plan")
    listed = api.xcom("offsets_maintain", ids["offsets_maintain"], "find")
    assert listed["count"] == AGED_RUNS - 1
    plan = api.xcom("offsets_restore", ids["offsets_restore"], "plan")
    # Where each is when its worker is lost: a partition of two is published; one manifest is deleted, its run not yet;
    # the offsets of one group are written, which the journal does not say yet.
    compacted = f"{bucket.uri('state')}/bloated/_compacted"
    held = {
        "offsets_maintain": ("remove", rf"^POST /{store}/?\?delete"),
        "offsets_restore": ("apply", r"^PUT .*/applied/journal\.jsonl/\d+-\w+-0+4\.jsonl"),
        "offsets_compact": ("publish", r"^PUT .*/_compacted/\d[^/]*/[^/]*/__consumer_offsets-1/"),
    }
    for dag_id, (_, request) in held.items():
        bucket.hold(dag_id, request)
        api.answer(dag_id, ids[dag_id], "approve", "Approve")
    for dag_id, (task_id, _) in held.items():
        api.wait_for(f"{task_id} to write", lambda dag_id=dag_id: bucket.held(dag_id), pause_seconds=0.05)
        celery.lose_that_of_task(dag_id, ids[dag_id], task_id)
        if dag_id == "offsets_maintain":
            assert sorted(map(is_run, runs)) == [False, True, True, True]
        if dag_id == "offsets_compact":
            assert not storage.exists(f"{compacted}/latest.json")
            [window] = [one for one in storage.list_directory(compacted) if not one.name.startswith("_")]
            [half] = storage.list_directory(window.path)
            assert [entry.name for entry in storage.list_directory(half.path)] == ["__consumer_offsets-0"]
        bucket.release(dag_id)

    operator = Operator(tmp_path / "operator", {"stop": drilled.broker.kill, "start": drilled.broker.start})
    try:
        reached = tmp_path / "reached"
        (place / "fault.sh").write_text(f"({operator.command('stop')}); touch {reached}; sleep 3600")
        (place / "recover.sh").write_text(operator.command("start"))
        api.answer("failover_drill", ids["failover_drill"], "approve", "Approve")
        api.wait_for("the fault", reached.exists)
        celery.lose_that_of_task("failover_drill", ids["failover_drill"], "fault_and_observe")
        ended = {dag_id: api.finished(dag_id, run_id) for dag_id, run_id in ids.items()}
    finally:
        operator.stop()
    assert ended == dict.fromkeys(ids, "success") | {"failover_drill": "failed"}, api.logs()
    tasks = {dag_id: api.tasks(dag_id, run_id) for dag_id, run_id in ids.items()}
    states = {dag_id: {name: one["state"] for name, one in found.items()} for dag_id, found in tasks.items()}
    for dag_id, (task_id, _) in held.items():
        assert set(states[dag_id].values()) == {"success"}, states
        assert tasks[dag_id][task_id]["try_number"] > 1

    # One run is left (of those of one second, any), and nothing of the others.
    assert sorted(bool(list(storage.files_below(run))) for run in runs) == [False] * (AGED_RUNS - 1) + [True]
    assert list(map(is_run, runs)).count(True) == 1
    removed = api.xcom("offsets_maintain", ids["offsets_maintain"], "remove")
    assert removed == {"deleted": AGED_RUNS - 1, "kept": 0}

    offsets = {key: held[0] for group in restored.held(*groups).values() for key, held in group.items()}
    assert offsets == {(TOPIC, number): 0 for number in range(PARTITIONS)}
    assert read_journal(f"{plan['directory']}/applied/{JOURNAL}", "restore")

    published = api.xcom("offsets_compact", ids["offsets_compact"], "publish")
    latest = json.loads(storage.read_text(f"{compacted}/latest.json"))
    assert (f"{compacted}/{latest['path']}", latest["plan_sha256"]) == (published["log"], planned["digest"])
    assert list(storage.files_below(planned["staging"])) == []
    assert committed(published["log"]) == committed(bucket.uri("snapshots/bloated")) - published["expired_offsets"]
    assert published["expired_offsets"] > 0

    # The worker that broke the cluster is gone; another one has mended it, and says so.
    failed = dict.fromkeys(("fault_and_observe", "report"), "failed")
    assert states["failover_drill"] == dict.fromkeys(states["failover_drill"], "success") | failed
    directory = api.xcom("failover_drill", ids["failover_drill"], "predict")["directory"]
    journal = read_journal(f"{directory}/{JOURNAL}")
    assert [event["by"] for event in of_kind(journal, "rollback", stage="begins")] == ["regroup drill recover"]
    compared = api.xcom("failover_drill", ids["failover_drill"], "compare")
    assert (compared["headline"], compared["recovered"]) == ("Killed half-way, recovered", True)
    assert storage.exists(compared["page"])
    with closing(KafkaAdminClient(bootstrap_servers=drilled.broker.bootstrap)) as admin:
        served = replace(drilled, admin=admin).held("watched")["watched"]
    assert served.keys() == {(TOPIC, number) for number in range(PARTITIONS)}


def aged_runs(bucket: ObjectStore, directory: Path) -> list[str]:
    """Paths of runs of the cluster ``aged``."""
    store = aged_bucket(bucket)
    S3FileSystem(allow_bucket_creation=True, endpoint_override=bucket.environment["AWS_ENDPOINT_URL"]).create_dir(store)
    made = Path(one(*HEALTHY).publish(directory / "made").path)
    runs = [f"s3://{store}/runs/aged/w{number}/r" for number in range(AGED_RUNS)]
    for run in runs:
        storage.upload(made, run)
    return runs


def committed(log: str) -> int:
    """Number of committed offsets."""
    states = replay_snapshot(discover([log]), profile_for_release("4.3.1"), damage=[])
    return sum(len(state.offsets) for state in states)


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
