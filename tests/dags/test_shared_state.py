"""Tasks of DAGs on workers that share a bucket and nothing else: what one leaves, the next one finds."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coordinator_core import storage
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot, replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run, open_run
from tests.cases import case
from tests.live.broker import Broker, Kafka
from tests.log.object_store import ObjectStore, object_store
from tests.restore.kit import Place, offsets_of, started
from tests.workers import DAG_RUN, TASK, Worker, workers_of

FORM = {
    **dict.fromkeys(("source", "window", "profile", "kafka_version", "coordinator", "expire", "run")),
    "cluster": "c",
    "partial": False,
    # A month behind the log.
    "now_ms": 1_795_260_000_000 + 30 * 86_400_000,
}

_KILLED_MOVING = """
import itertools, os, signal
from coordinator_core import files
move, counted = files.move, itertools.count(1)
def moving(*arguments):
    move(*arguments)
    if next(counted) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
files.move = moving
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


def known(workers: list[Worker], cluster: dict[str, Any], directory: Path, **more: str) -> list[Worker]:
    """The workers with a cluster file of this one cluster."""
    file = directory / "clusters.yaml"
    file.write_text(json.dumps({"clusters": {"c": {"kafka_version": "4.3.1", **cluster}}}))
    return [replace(one, more={"REGROUP_CLUSTERS": str(file), "REGROUP_FOLD_CACHE": "", **more}) for one in workers]


def content(place: str) -> dict[str, bytes]:
    return {name: bytes(storage.read(entry.path)) for name, entry in storage.files_below(place)}


def test_a_compaction_is_planned_carried_out_and_published_by_others(bucket: ObjectStore, tmp_path: Path) -> None:
    root = bucket.uri(tmp_path.name)
    log = bucket.copy(case("k431-txn").paths[0], f"{tmp_path.name}/log")
    before = content(log)
    cluster = {"source": log, "output": f"{root}/runs", "state": f"{root}/state"}
    planning, compacting, publishing = known(workers_of(tmp_path, bucket), cluster, tmp_path)
    pinned = planning.task("compact", "pin", FORM, DAG_RUN, 1)
    app = (sys.executable, "-m", "spark_apps.forecast", "--master", "local[2]")
    compacting.run(*pinned["forecast_args"], "--run-id", "forecast", program=app)
    # Of the forecast another worker makes the plan and the page of the approval.
    planned = publishing.task("compact", "plan", pinned, {"run_id": "forecast", "seconds": 1.0}, FORM, DAG_RUN)
    assert planned["plan"].startswith(f"{root}/state/c/_compacted/_plans/")
    assert planned["expires"] > 0
    listed = re.search(r"every record, now \(`due`\) and later: `(\S+)`", planned["body"])[1]  # type: ignore[index]
    system, inner = storage.filesystem(listed)
    assert pq.read_table(inner, filesystem=system)["due"].to_pylist().count(True) == planned["expires"]

    app = (sys.executable, "-m", "spark_apps.compact", "--master", "local[2]")
    compacting.run(*planned["compact_args"], "--run-id", "one", program=app)
    assert not storage.exists(f"{root}/state/c/_compacted/latest.json")
    proved = publishing.task("compact", "prove", planned, {"run_id": "one", "seconds": 1.0})
    process = publishing.begin(
        *("compact", "publish", json.dumps(planned), json.dumps(proved)),
        program=(sys.executable, "-c", _KILLED_MOVING + TASK),
    )
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    published = planning.task("compact", "publish", planned, proved)
    assert json.loads(storage.read_text(f"{root}/state/c/_compacted/latest.json"))["plan_sha256"] == planned["digest"]
    assert storage.list_directory(f"{root}/state/c/_compacted/_staging", missing_ok=True) == []
    assert content(log) == before
    report = json.loads(storage.read_text(storage.join(published["log"], "compaction.json")))
    assert report["output"] == published["log"]

    profile = profile_for_release("4.3.1")
    left = replay_snapshot(discover([published["log"]]), profile, damage=[])
    held = replay_snapshot(discover([log]), profile, damage=[])
    offsets, expired = sum(len(state.offsets) for state in held), published["expired_offsets"]
    assert (sum(len(state.offsets) for state in left), expired > 0) == (offsets - expired, True)
    assert own_files(planning, compacting, publishing) == []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    broker = Broker(Kafka.fetch(), tmp_path / "broker", {"offsets.topic.num.partitions": "3"})
    try:
        broker.start()
        place = started(broker)
        yield place
        place.close()
    finally:
        broker.kill()


def test_a_cluster_is_captured_and_replayed_by_others(bucket: ObjectStore, place: Place, tmp_path: Path) -> None:
    root = bucket.uri(tmp_path.name)
    host, _, port = place.broker.bootstrap.partition(":")
    connection = json.dumps({"conn_type": "kafka", "host": host, "port": int(port)})
    cluster = {"source": "kafka://live", "output": f"{root}/runs", "state": f"{root}/state"}
    first, second, third = known(workers_of(tmp_path, bucket), cluster, tmp_path, AIRFLOW_CONN_LIVE=connection)
    place.commit("group", offsets_of(1))
    earlier = first.task("load", "pin", FORM, DAG_RUN, 1)
    place.commit("group", offsets_of(2))
    pinned = second.task("load", "pin", FORM, DAG_RUN, 1)
    captured = f"{root}/state/c/_captures/live"
    [topic] = json.loads(storage.read_text(f"{captured}/capture.json"))["topics"]
    kept, fetched = (sum(row[name] for row in topic["partitions"]) for name in ("kept_bytes", "fetched_bytes"))
    # What the first had fetched comes from the bucket.
    assert (kept > 0, fetched > 0, pinned["pin"] == earlier["pin"]) == (True, True, False), (kept, fetched)

    # A pin stays good when the capture has grown.
    runs = []
    for worker, made in ((third, pinned), (second, earlier)):
        replay = (sys.executable, "-m", "spark_apps.replay", "--master", "local[1]")
        out, _ = worker.run(*made["replay_args"], "--run-id", Path(made["pin"]).stem, program=replay)
        runs.append(open_run(f"{made['runs']}/{json.loads(out)['run_id']}"))
    now, before = runs
    assert (now.state_hash, before.state_hash == now.state_hash) == (hash_of_broker(place, tmp_path, now), False)
    assert own_files(first, second, third) == []


def hash_of_broker(place: Place, directory: Path, run: Run) -> str:
    """State hash of the broker's own files, by the time and rules of ``run``."""
    copy = place.broker.copy_log(directory / "copy")
    manifest = replay_to_run(
        discover([str(copy)]),
        RunPlace(str(directory / "local"), "c", "window", "run"),
        profile=profile_for_release("4.3.1"),
        now_ms=run.now_ms,
        offsets_topic_num_partitions=run.manifest["offsets_topic_num_partitions"],
    )
    return str(manifest["state_hash"])


def own_files(*workers: Worker) -> list[str]:
    """What workers keep to themselves, but for Airflow's home and caches."""
    return [file for worker in workers for file in worker.left() if "/home/" not in file]
