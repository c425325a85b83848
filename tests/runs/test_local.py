from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import pyarrow.compute as pc
import pytest

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.fold.fingerprint import fingerprint
from coordinator_core.groups.model import ConsumerGroup, PartitionState
from coordinator_core.log.batch import batch_records
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records, read_segment
from coordinator_core.log.types import SegmentFile
from coordinator_core.log.verify import verify
from coordinator_core.records.codec import decode_key
from coordinator_core.releases import profile_for_release
from coordinator_core.reports.describe import Selection, describe
from coordinator_core.runs.local import replay_snapshot, replay_to_run
from coordinator_core.runs.manifest import summary
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run, open_run
from coordinator_core.runs.state_hash import all_digests, state_hash
from spark_apps.engine import replay as spark_replay
from tests.replay.reference import replay_partition
from tests.runs.state_tables import state_tables

from ..cases import CASES, FEW_CASES, TORN, Case, cross_section
from .logs import WHOLE, copy_log, cut_into_batches, name, snapshot


def sequential(item: Case, on_damage: OnDamage = OnDamage.FAIL) -> list[PartitionState]:
    profile = profile_for_release(item.release, item.coordinator)
    damage: list[Damage] = []
    return [replay_partition(log, profile, on_damage=on_damage, damage=damage) for log in snapshot(item).partitions]


def hash_of(states: list[PartitionState]) -> str:
    return state_hash(all_digests(state_tables(states, now_ms=0)))


def without_partition_epochs(states: list[PartitionState]) -> dict[int, PartitionState]:
    """States by partition, without what a run does not hold."""
    for state in states:
        for group in state.groups.values():
            if isinstance(group, ConsumerGroup):
                group.partition_epochs = {}
    return {state.offsets_partition: state for state in states if state != PartitionState(state.offsets_partition)}


def run_of(item: Case, output: Path, on_damage: OnDamage = OnDamage.FAIL) -> Run:
    place = RunPlace(str(output), "c", "w", "r")
    profile = profile_for_release(item.release, item.coordinator)
    replay_to_run(snapshot(item), place, profile=profile, now_ms=0, on_damage=on_damage)
    return open_run(place.path)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Run]:
    """The run of a case that is not damaged, made once."""
    return cache(lambda item: run_of(item, tmp_path_factory.mktemp("runs")))


@pytest.mark.parametrize("item", cross_section(WHOLE, FEW_CASES))
def test_a_run_holds_what_the_reference_replay_finds(item: Case, published: Callable[[Case], Run]) -> None:
    run = published(item)
    reference = sequential(item)
    assert run.state_hash == hash_of(reference)
    assert without_partition_epochs(run.states()) == without_partition_epochs(reference)
    assert run.manifest["complete"]


@pytest.mark.parametrize("on_damage", [OnDamage.RECOVER, OnDamage.SALVAGE], ids=lambda value: value.name)
@pytest.mark.parametrize("item", TORN, ids=name)
def test_a_partial_run_holds_what_the_reference_replay_finds(item: Case, on_damage: OnDamage, tmp_path: Path) -> None:
    run = run_of(item, tmp_path, on_damage)
    reference = sequential(item, on_damage)
    assert without_partition_epochs(run.states()) == without_partition_epochs(reference)
    assert run.partial == bool(run.manifest["damage"])


@pytest.mark.parametrize("item", cross_section(WHOLE, FEW_CASES))
def test_one_batch_segments_give_the_same_hash(item: Case, tmp_path: Path) -> None:
    profile = profile_for_release(item.release, item.coordinator)
    cut = cut_into_batches(item, tmp_path / "log")
    assert hash_of(replay_snapshot(cut, profile, damage=[])) == hash_of(sequential(item))


@pytest.mark.parametrize("item", [item for item in TORN if "zerotail" not in item.name], ids=name)
def test_damage_publishes_nothing(item: Case, tmp_path: Path) -> None:
    if "clean-shutdown" not in item.name:
        assert item in CASES
    with pytest.raises(DamagedInputError) as caught:
        run_of(item, tmp_path)
    assert caught.value.damage.byte_position > 0
    assert not list(tmp_path.rglob("*.*"))


def test_the_first_damage_is_the_one_reported(tmp_path: Path) -> None:
    """Partitions are read side by side; which one is reported must not depend on who is first."""
    log = copy_log("k431-mixed", tmp_path / "log")
    segments = sorted(discover([str(log)]).segments, key=lambda segment: segment.offsets_partition)
    for segment in segments[::3]:
        with open(segment.path, "r+b") as file:
            file.truncate(segment.size - 1)
    profile = profile_for_release("4.3.1")
    for _ in range(5):
        with pytest.raises(DamagedInputError) as caught:
            replay_snapshot(discover([str(log)]), profile, damage=[])
        assert caught.value.damage.path == segments[0].path
    damage: list[Damage] = []
    replay_snapshot(discover([str(log)]), profile, on_damage=OnDamage.SALVAGE, damage=damage)
    assert [found.path for found in damage] == [segment.path for segment in segments[::3]]


def test_a_number_of_partitions_that_the_log_contradicts_is_refused(tmp_path: Path) -> None:
    """By it every group would lie in a wrong partition."""
    snapshot = discover([str(copy_log("k431-txn", tmp_path / "log"))])
    last = max(log.offsets_partition for log in snapshot.partitions)
    for count in (1, last):
        place = RunPlace(str(tmp_path / "runs"), "c", "w", "r")
        said = rf"^the offsets topic has more than {count} partitions?: the log has offsets partition {last}$"
        with pytest.raises(UsageError, match=said):
            replay_to_run(snapshot, place, profile=None, now_ms=0, offsets_topic_num_partitions=count)
        with pytest.raises(UsageError, match=said):
            # Before Spark is asked for anything.
            spark_replay(cast(Any, None), snapshot, place, profile=None, now_ms=0, offsets_topic_num_partitions=count)
    assert not (tmp_path / "runs").exists()
    replay_to_run(snapshot, place, profile=None, now_ms=0, offsets_topic_num_partitions=last + 1)


def test_output_in_the_snapshot_is_refused(tmp_path: Path) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    before = sorted(log.rglob("*"))
    for output in (log, log / "__consumer_offsets-1"):
        with pytest.raises(UsageError, match="lies inside the snapshot"):
            replay_to_run(discover([str(log)]), RunPlace(str(output), "c", "w", "r"), profile=None, now_ms=0)
    assert sorted(log.rglob("*")) == before


def test_the_manifest_says_what_was_done(tmp_path: Path) -> None:
    item = next(item for item in WHOLE if item.name == "k431-txn")
    manifest = run_of(item, tmp_path).manifest
    assert manifest["profile"] == "J3 (4.3.1, new coordinator)"
    assert not manifest["profile_inferred"]
    assert manifest["engine"] == "local"
    assert manifest["sources"] == [str(path) for path in item.paths]
    assert manifest["cut"].keys() == {str(log.offsets_partition) for log in snapshot(item).partitions}
    assert manifest["steps"].keys() == {"profile", "replay"}
    assert manifest["versions"]["regroup"]
    printed = summary(manifest, path="p", latest=True)
    assert printed["rows"]["groups"] == 24
    assert printed["latest"]
    assert printed["state_hash"] == manifest["state_hash"]


def record_timestamps(segment: SegmentFile) -> list[int]:
    """Timestamps of all records but control records; -1 where there is none."""
    return [
        record.timestamp_ms
        for batch in read_segment(segment)
        for record in batch_records(batch, path=segment.path)
        if not batch.is_control
    ]


@pytest.mark.parametrize("item", cross_section(WHOLE, FEW_CASES))
def test_segments_tell_what_verify_counts(item: Case, published: Callable[[Case], Run]) -> None:
    rows = {row["path"]: row for row in published(item).table("segments").to_pylist()}
    report = verify(snapshot(item))
    assert rows.keys() == {segment.path for segment in report.segments}
    for segment in report.segments:
        row = rows[segment.path]
        assert row["size_bytes"] == segment.bytes
        assert row["fingerprint"] == fingerprint(storage.read(segment.path)).digest
        assert (row["batches"], row["records"]) == (segment.batches, segment.records)
        assert row["next_offset"] == (None if segment.last_offset is None else segment.last_offset + 1)
        times = record_timestamps(SegmentFile(segment.path, 0, segment.base_offset, segment.bytes))
        assert row["first_timestamp_ms"] == (min(times) if times and min(times) >= 0 else None)
        assert row["last_timestamp_ms"] == (max(times) if times and max(times) >= 0 else None)
        assert (tuple(row["codecs"]), tuple(row["formats"])) == (segment.codecs, segment.magics)


@pytest.mark.parametrize("item", cross_section(WHOLE, FEW_CASES))
def test_group_stats_count_every_record_of_a_group(item: Case, published: Callable[[Case], Run]) -> None:
    expected: Counter[tuple[int, str, int]] = Counter()
    for log in snapshot(item).partitions:
        for _, batch, records in read_records(log):
            for record in [] if batch.is_control else records:
                assert record.key is not None
                key = decode_key(record.key)
                assert key.data is not None
                group_id = key.data.get("group") or key.data.get("groupId") or ""
                expected[log.offsets_partition, group_id, key.type] += 1
    rows = published(item).table("group_stats").to_pylist()
    counted = {(row["offsets_partition"], row["group_id"], row["key_type"]): row["records"] for row in rows}
    assert counted == expected


@pytest.mark.parametrize("item", cross_section(WHOLE, FEW_CASES))
def test_counts_of_records_carried_records_and_control_records_are_all(
    item: Case, published: Callable[[Case], Run]
) -> None:
    run = published(item)
    counts, segments = run.table("record_counts"), run.table("segments")
    counted = pc.sum(counts["records"], min_count=0).as_py() + run.rows("carried_records")
    assert pc.sum(segments["records"]).as_py() == counted + pc.sum(segments["control_records"]).as_py()
    # Control records are told apart from key types.
    assert not pc.any(pc.less(counts["key_type"], 0)).as_py()
    assert b"control" not in counts.schema.field("key_type").metadata[b"comment"]


@pytest.mark.parametrize("item", cross_section(WHOLE, FEW_CASES))
def test_a_run_is_described_like_its_snapshot(item: Case, published: Callable[[Case], Run]) -> None:
    run = published(item)
    profile = profile_for_release(item.release, item.coordinator)
    replayed = replay_snapshot(snapshot(item), profile, damage=[])
    from_snapshot, from_run = (
        describe(
            states,
            profile=profile,
            now_ms=0,
            partial=False,
            known_topic_names=names,
            selection=Selection(),
        )
        for states, names in ((replayed, snapshot(item).topic_names), (run.states(), run.topic_names))
    )
    assert from_run == from_snapshot
