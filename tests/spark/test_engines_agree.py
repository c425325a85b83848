"""Spark, local engine and reference replay: the same tables and the same state hash on every case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coordinator_core.fold.pin import read_pin, segment_fingerprint, write_pin
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.tasks import fold_tasks, run_fold_task
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run, open_run
from coordinator_core.runs.state_hash import canonical_rows
from spark_apps.engine import MAX_MERGE_BYTES, replay
from spark_apps.session import Session
from tests.runs.state_tables import computed_state_hash

from ..cases import FEW_CASES, TORN, Case, case, cross_section
from ..runs.logs import WHOLE, cut_into_batches, snapshot

EACH_ALONE = 1
"""Bytes per task that put every segment into a task of its own, so that folds are merged by other tasks."""

SEVERAL_TASKS = ("k011/plain", "k431-compacted/A-uncleaned")
"""Cases whose segments are spread over tasks, so that folds must find their way back into order."""


def spark_run(
    session: Session,
    item: Case,
    source: Snapshot,
    output: Path,
    *,
    on_damage: OnDamage = OnDamage.FAIL,
    bytes_per_task: int | None = None,
    bytes_per_merge: int = MAX_MERGE_BYTES,
) -> Run:
    place = RunPlace(str(output), "c", "w", "spark")
    profile = profile_for_release(item.release, item.coordinator)
    replay(
        session,
        source,
        place,
        profile=profile,
        now_ms=0,
        on_damage=on_damage,
        bytes_per_task=bytes_per_task,
        bytes_per_merge=bytes_per_merge,
    )
    return open_run(place.path)


def local_run(item: Case, source: Snapshot, output: Path, *, on_damage: OnDamage = OnDamage.FAIL) -> Run:
    place = RunPlace(str(output), "c", "w", "local")
    profile = profile_for_release(item.release, item.coordinator)
    replay_to_run(source, place, profile=profile, now_ms=0, on_damage=on_damage)
    return open_run(place.path)


def assert_same(one: Run, other: Run) -> None:
    assert one.state_hash == other.state_hash
    for table in one.manifest["tables"]:
        rows = [canonical_rows(table, run.table(table)) for run in (one, other)]
        assert rows[0].equals(rows[1]), table
    assert _comparable(one) == _comparable(other)


def _comparable(run: Run) -> dict[str, Any]:
    """The manifest without what must differ between two runs, and between engines."""
    told = {key: run.manifest[key] for key in run.manifest if key not in ("run_id", "engine", "seconds", "steps")}
    tables = run.manifest["tables"].items()
    told["tables"] = {name: (table["rows"], table["hash"]) for name, table in tables}
    return told


@pytest.mark.parametrize("item", cross_section(WHOLE, (*FEW_CASES, *SEVERAL_TASKS)))
def test_spark_equals_local(session: Session, item: Case, tmp_path: Path) -> None:
    alone = EACH_ALONE if item.name in SEVERAL_TASKS else None
    run = spark_run(session, item, snapshot(item), tmp_path, bytes_per_task=alone)
    assert_same(run, local_run(item, snapshot(item), tmp_path))
    assert computed_state_hash(run) == run.state_hash
    assert run.manifest["complete"]


DAMAGED = [
    *((item, OnDamage.RECOVER) for item in TORN),
    *((case(torn), OnDamage.SALVAGE) for torn in ("k431-torn/bitflip", "k431-torn/live-copy")),
]


@pytest.mark.parametrize("item, on_damage", DAMAGED, ids=[f"{item.name}-{policy.value}" for item, policy in DAMAGED])
def test_spark_equals_local_on_damaged_logs(session: Session, item: Case, on_damage: OnDamage, tmp_path: Path) -> None:
    run = spark_run(session, item, snapshot(item), tmp_path, on_damage=on_damage)
    assert_same(run, local_run(item, snapshot(item), tmp_path, on_damage=on_damage))


def test_one_batch_segments_give_the_same_hash(session: Session, tmp_path: Path) -> None:
    item = case("k431-txn")
    cut = cut_into_batches(item, tmp_path / "log")
    assert len(cut.segments) > 3 * len(snapshot(item).segments)
    size = sum(segment.size for segment in cut.segments)
    run = spark_run(session, item, cut, tmp_path / "out", bytes_per_task=size // 5)
    assert run.state_hash == local_run(item, snapshot(item), tmp_path / "out").state_hash


@pytest.mark.parametrize("shards", [2, 7])
def test_a_partition_merged_in_several_tasks(session: Session, shards: int, tmp_path: Path) -> None:
    item = case("k431-txn")
    cut = cut_into_batches(item, tmp_path / "log")
    largest = max(cut.partitions, key=lambda log: len(log.segments))
    cut = replace(cut, partitions=(largest,))
    assert len(largest.segments) > 3
    rules = FoldRules.of(profile_for_release(item.release, item.coordinator))
    results = [result for task in fold_tasks(cut, OnDamage.FAIL) for result in run_fold_task(task, rules)]
    size = sum(len(result.fold.to_ipc()) for result in results if result.fold is not None)
    run = spark_run(session, item, cut, tmp_path, bytes_per_task=EACH_ALONE, bytes_per_merge=-(-size // shards))
    assert_same(run, local_run(item, cut, tmp_path))


def test_spark_reads_what_it_published(session: Session, tmp_path: Path) -> None:
    """Names of staged files do not show, schemas and rows are those of the run."""
    item = case("k241/before")
    run = spark_run(session, item, snapshot(item), tmp_path, bytes_per_task=EACH_ALONE)
    spark = SparkSession(session.context)
    for table in ("groups", "offsets", "segments", "load_failures"):
        rows = spark.read.parquet(f"{run.path}/{table}").toArrow()
        assert rows.num_rows == run.manifest["tables"][table]["rows"]
        assert canonical_rows(table, rows).equals(canonical_rows(table, run.table(table)))
    assert {path.name for path in Path(run.path).iterdir()} == {"manifest.json", *run.manifest["tables"]}


def test_a_pinned_snapshot_is_read_as_pinned(session: Session, tmp_path: Path) -> None:
    item = case("k241/before")
    log = tmp_path / "log"
    cut = cut_into_batches(item, log)
    pin = write_pin(cut, str(tmp_path / "pin.json"))
    with open(cut.segments[-1].path, "ab") as file:
        file.write(b"more")
    (log / "__consumer_offsets-0" / "00000000000000999999.log").write_bytes(b"")
    place = RunPlace(str(tmp_path / "out"), "c", "w", "r")
    manifest = replay(
        session,
        read_pin(str(tmp_path / "pin.json")),
        place,
        profile=profile_for_release(item.release),
        now_ms=0,
    )
    assert manifest["state_hash"] == local_run(item, snapshot(item), tmp_path).state_hash
    found = {segment.path: segment_fingerprint(segment) for segment in pin.snapshot.segments}
    assert {entry["path"]: entry["fingerprint"] for entry in manifest["inputs"]} == found
    assert json.loads((Path(place.path) / "manifest.json").read_text()) == manifest
    assert len(discover([str(log)]).segments) == len(cut.segments) + 1
