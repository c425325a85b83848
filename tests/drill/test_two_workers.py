"""Workers that share a bucket and nothing else: what one begins, another finds, ends and compares."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_core import storage
from coordinator_core.drill.journal import JOURNAL, of_kind, read_journal
from coordinator_core.errors import ExitCode
from tests.drill.kit import signalling
from tests.live.broker import Broker, Kafka
from tests.log.object_store import ObjectStore, object_store
from tests.restore.kit import PARTITIONS, TOPIC, Place, offsets_of, started
from tests.workers import DAG_RUN, Worker, workers_of

PARAMS = {"cluster": "c", "scenario": "rolling-restart", "rto_seconds": 600, "rpo_seconds": None, "execute": True}


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    settings = {"offsets.topic.num.partitions": "3"}
    broker = Broker(Kafka.fetch(), tmp_path_factory.mktemp("workers") / "broker", settings)
    try:
        broker.start()
        place = started(broker)
        yield place
        place.close()
    finally:
        broker.kill()


@pytest.fixture
def workers(tmp_path: Path, bucket: ObjectStore) -> list[Worker]:
    return workers_of(tmp_path, bucket)


@pytest.fixture
def predicted(place: Place, workers: list[Worker], bucket: ObjectStore, tmp_path: Path) -> str:
    """Where a prediction lies that one worker made."""
    drill = bucket.uri(f"{tmp_path.name}/drill")
    place.commit("watched", offsets_of(1))
    workers[0].regroup("capture", *place.server, "--output", f"{drill}/capture")
    log = (f"{drill}/capture", "--topology", f"{drill}/capture/topology.json", "--kafka-version", "4.3.1")
    predict = ("drill", "predict", *log, "--scenario", "rolling-restart", "--output", f"{drill}/prediction.json")
    # Nobody leads while the only broker is away.
    workers[0].regroup(*predict, "--no-fold-cache", code=ExitCode.FINDINGS)
    return drill


def observe(worker: Worker, place: Place, drill: str, fault: str, recover: str) -> subprocess.Popen[str]:
    return worker.begin(
        *("drill", "observe", *place.server, "--prediction", f"{drill}/prediction.json", "--output", drill),
        *("--fault-command", fault, "--recover-command", recover, "--observe-seconds", "0"),
    )


def test_a_killed_drill_is_recovered_elsewhere(place: Place, workers: list[Worker], predicted: str) -> None:
    drilling, recovering, comparing = workers
    journal = f"{predicted}/{JOURNAL}"
    process = observe(drilling, place, predicted, "kill -9 $PPID", "echo mended > mended")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert [event["stage"] for event in of_kind(read_journal(journal), "method")] == ["begins"]
    assert drilling.left() == []
    _, said = recovering.regroup("drill", "recover", journal)
    assert said == "regroup: the drill was killed; the cluster is as it was\n"
    assert recovering.left() == [str(recovering.directory / "work/mended")]
    # Again, and elsewhere: it is done.
    comparing.regroup("drill", "recover", journal)
    compare = ("drill", "compare", f"{predicted}/prediction.json", journal, "--output", predicted)
    document = json.loads(comparing.regroup(*compare, "--format", "json", code=ExitCode.APPLY_FAILED)[0])
    assert document["headline"] == "Killed half-way, recovered"
    assert comparing.left() == []
    assert json.loads(storage.read_text(f"{predicted}/drill.json")) == document
    _, said = comparing.regroup("drill", "recover", f"{predicted}/elsewhere/{JOURNAL}", code=ExitCode.USAGE)
    assert "there is no journal, so nobody knows whether the cluster is as it was" in said


def test_a_drill_that_was_taken_over_while_it_stood_still_is_told(
    place: Place, workers: list[Worker], predicted: str, tmp_path: Path
) -> None:
    drilling, recovering, _ = workers
    journal, pid = f"{predicted}/{JOURNAL}", tmp_path / "pid"
    fault = f"echo $PPID > {shlex.quote(str(pid))}; kill -STOP $PPID"
    process = observe(drilling, place, predicted, fault, "echo again >> mended")
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        recovering.regroup("drill", "recover", journal)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    _, said = process.communicate()
    assert process.returncode == ExitCode.APPLY_FAILED
    assert "taken over: process" in said
    verdicts = of_kind(read_journal(journal), "verdict")
    assert [(verdict["outcome"], verdict["recovered"]) for verdict in verdicts][-1] == ("killed", True)


def test_the_tasks_of_the_dag_on_three_workers(
    place: Place, workers: list[Worker], bucket: ObjectStore, tmp_path: Path
) -> None:
    section = {"connection": "k", "fault_command": "kill -9 $PPID", "recover_command": "touch mended"}
    state = bucket.uri(f"{tmp_path.name}/state")
    entry = {"source": "kafka://k", "output": bucket.uri(f"{tmp_path.name}/runs"), "state": state, "drill": section}
    file = tmp_path / "clusters.yaml"
    written = json.dumps({"clusters": {"c": entry | {"kafka_version": "4.3.1"}}})
    file.write_text(written)
    host, _, port = place.broker.bootstrap.partition(":")
    connection = json.dumps({"conn_type": "kafka", "host": host, "port": int(port)})
    more = {"REGROUP_CLUSTERS": str(file), "AIRFLOW_CONN_K": connection, "REGROUP_FOLD_CACHE": ""}
    predicting, drilling, recovering = (replace(worker, more=more) for worker in workers)
    predicted = predicting.task("drill", "predict", PARAMS, DAG_RUN, 1)
    assert predicted["directory"].startswith(f"{state}/c/_drills/")
    said = recovering.task("drill", "recover", predicted, PARAMS, code=1)
    assert "nobody knows whether the cluster is as it was" in said
    drilling.task("drill", "steady_state", predicted, PARAMS)
    drilling.task("drill", "fault_and_observe", predicted, PARAMS, code=-signal.SIGKILL)
    # The command is that of the cluster file, not of the journal, to which others may write.
    file.write_text(written.replace("touch mended", "touch as-the-cluster-file-says"))
    recovering.task("drill", "recover", predicted, PARAMS)
    assert [path.name for path in (recovering.directory / "work").iterdir()] == ["as-the-cluster-file-says"]
    compared = predicting.task("drill", "compare", predicted)
    assert (compared["headline"], compared["recovered"]) == ("Killed half-way, recovered", True)
    assert storage.exists(compared["page"])


def test_a_killed_restore_goes_on_elsewhere(
    place: Place, workers: list[Worker], bucket: ObjectStore, tmp_path: Path
) -> None:
    planning, applying, proving = workers
    root = bucket.uri(f"{tmp_path.name}/restore")
    groups = [f"moved-{number}" for number in range(6)]
    for number, group in enumerate(groups):
        place.commit(group, offsets_of(number))
    before = place.held(*groups)
    wanted = [word for group in groups for word in ("--group", group)]
    plan = ("restore", "plan", *wanted, "--to-earliest", "--capture", f"{root}/capture")
    planning.regroup(*plan, *place.server, "--output", f"{root}/plan.json")
    apply = ("restore", "apply", f"{root}/plan.json", *place.server, "--execute", "--output", f"{root}/applied")
    # Its plan, its capture, the first group, and the beginning of the second.
    killed = planning.begin(*apply, "--parallel", "1", program=signalling(5, "after", signal.SIGKILL))
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert [event["event"] for event in read_journal(f"{root}/applied/{JOURNAL}", "restore")][-1] == "begin"
    out, _ = applying.regroup(*apply)
    assert out.splitlines()[0].startswith("applied:    6 groups")
    assert {key: held[0] for group in place.held(*groups).values() for key, held in group.items()} == {
        (TOPIC, number): 0 for number in range(PARTITIONS)
    }
    verify = ("restore", "verify", f"{root}/applied", *place.server, "--format", "json")
    proof = json.loads(proving.regroup(*verify)[0])
    assert proof["verified"]
    assert len(proof["records"]) == len(groups) * PARTITIONS
    proving.regroup("restore", "rollback", f"{root}/applied", *place.server, "--output", f"{root}/back.json")
    undo = ("restore", "apply", f"{root}/back.json", *place.server, "--execute", "--output", f"{root}/undone")
    applying.regroup(*undo)
    assert place.held(*groups) == before
    assert [file for worker in workers for file in worker.left() if "/home/" not in file] == []
