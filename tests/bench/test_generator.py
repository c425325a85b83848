"""The generator: the same seed, the same bytes, and a truth with which the reference replay agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import ClassicGroup
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import Codec, PartitionLog
from coordinator_core.records.codec import decode_key
from coordinator_core.releases import profile_for_release
from coordinator_core.replay.sequential import replay_partition
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from tests.bench.generator import Truth, Workload, generate
from tests.bench.truth import WrongAnswerError, check_truth

EVERYTHING = Workload(
    "everything",
    400_000,
    groups=40,
    slots=900,
    records_per_batch=100,
    smallest_batch=1,
    transactional=0.2,
    tombstones=0.03,
    metadata_every=5,
    segment_bytes=100_000,
    partitions=3,
    shuffled=True,
    group_skew=1.0,
    partition_skew=1.0,
    consumer_groups=0.25,
    members=4,
    members_of_first_group=30,
    value_versions=(1, 3, 4),
    legacy_slots=0.1,
    topics_per_group=3,
    commit_metadata=40,
    varied_names=True,
    producers=30,
)
PROFILE = profile_for_release("4.3.1")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Truth]]:
    log = tmp_path_factory.mktemp("generated") / "log"
    return log, generate(EVERYTHING, log)


def partitions(log: Path) -> list[PartitionLog]:
    return list(discover([str(log)]).partitions)


def assert_is_true(log: PartitionLog, truth: Truth) -> None:
    """The sequential replay, record after record, makes the truth of the log."""
    state = replay_partition(log, PROFILE, damage=[])
    live = np.flatnonzero(truth.committed >= 0).tolist()
    assert {
        (slot.group_id, slot.topic, slot.partition): commit.committed_offset
        for slot, commit in state.offsets.items()
    } == {
        (
            truth.groups[truth.group_of_slot[slot]],
            truth.topics[truth.topic_of_slot[slot]],
            truth.partition_of_slot[slot],
        ): truth.committed[slot]
        for slot in live
    }
    recorded = {
        truth.groups[group]: (truth.members[group], truth.epochs[group])
        for group in np.flatnonzero(truth.epochs >= 0).tolist()
    }
    found = {
        group_id: (
            len(group.members),
            group.generation if isinstance(group, ClassicGroup) else group.group_epoch,
        )
        for group_id, group in state.groups.items()
    }
    assert {group_id: found[group_id] for group_id in recorded} == recorded
    assert not state.pending
    assert not state.load_failures


def test_the_truth_is_what_the_reference_replay_makes(everything: tuple[Path, list[Truth]]) -> None:
    log, truths = everything
    logs = partitions(log)
    assert [truth.offsets_partition for truth in truths] == [each.offsets_partition for each in logs]
    for each, truth in zip(logs, truths, strict=True):
        assert_is_true(each, truth)


@pytest.mark.parametrize("codec", list(Codec))
def test_compression_changes_the_bytes_and_nothing_else(codec: Codec, tmp_path: Path) -> None:
    workload = replace(EVERYTHING, target_bytes=60_000, partitions=1, codec=codec)
    (truth,) = generate(workload, tmp_path)
    (log,) = partitions(tmp_path)
    assert_is_true(log, truth)
    codecs = {batch.codec_id for _, batch, _ in read_records(log, damage=[]) if not batch.is_control}
    assert codecs == {codec}
    assert (truth.bytes < 40_000) is (codec is not Codec.NONE)


def test_the_log_holds_what_was_asked_for(everything: tuple[Path, list[Truth]]) -> None:
    log, truths = everything
    kinds: Counter[tuple[int, int | None]] = Counter()
    sizes, unordered, transactional, markers = set(), 0, 0, 0
    for each, truth in zip(partitions(log), truths, strict=True):
        records = batches = 0
        for _, batch, contents in read_records(each, damage=[]):
            batches += 1
            records += len(contents)
            if batch.is_control:
                markers += 1
                continue
            transactional += batch.is_transactional
            keys = [decode_key(record.key or b"") for record in contents]
            for key, record in zip(keys, contents, strict=True):
                version = None if record.value is None else int.from_bytes(record.value[:2], "big")
                kinds[key.type, version] += 1
            if keys[0].type < 2:
                places = [(key.data["topic"], key.data["partition"]) for key in keys if key.data]
                assert len(set(places)) == len(places)
                sizes.add(len(places))
                unordered += places != sorted(places)
        assert (truth.records, truth.batches) == (records, batches)
        assert truth.bytes == sum(segment.size for segment in each.segments)
        assert all(partition_for(group, len(truths)) == truth.offsets_partition for group in truth.groups)
    offsets = {(0, 0), (0, None), (1, 1), (1, 3), (1, 4), (1, None)}
    assert set(kinds) == offsets | {(2, 3), (3, 0), (5, 0), (6, 0), (7, 0), (8, 0)}
    assert min(sizes) == 1
    assert max(sizes) > 50
    assert unordered > 100
    assert transactional == markers > 30
    assert truths[0].members[0] == 30
    assert [round(truth.bytes, -5) for truth in truths] == [400_000, 200_000, 100_000]


def test_segments_roll_like_a_brokers(everything: tuple[Path, list[Truth]]) -> None:
    log, _ = everything
    (first, *_) = partitions(log)
    assert len(first.segments) == 5
    assert all(segment.size <= EVERYTHING.segment_bytes for segment in first.segments)


def test_in_turn_no_slot_comes_twice_before_all_came_once(tmp_path: Path) -> None:
    workload = Workload("nothing-dead", 100_000, groups=10, slots=5_000, in_turn=True)
    (truth,) = generate(workload, tmp_path / "dead")
    (log,) = partitions(tmp_path / "dead")
    keys = [
        record.key
        for _, _, records in read_records(log, damage=[])
        for record in records
        if record.key and record.key[1] == 1
    ]
    assert len(set(keys)) == len(keys) == truth.live_slots < 5_000
    (truth,) = generate(replace(workload, slots=500), tmp_path / "alive")
    assert truth.live_slots == 500


def test_the_seed_makes_the_bytes(everything: tuple[Path, list[Truth]], tmp_path: Path) -> None:
    def contents(directory: Path) -> dict[str, bytes]:
        return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in directory.glob("*/*.log")}

    log, _ = everything
    generate(EVERYTHING, tmp_path / "again")
    generate(replace(EVERYTHING, seed=8), tmp_path / "other")
    assert contents(tmp_path / "again") == contents(log)
    assert contents(tmp_path / "other") != contents(log)


def test_a_producer_has_one_transaction_at_a_time() -> None:
    with pytest.raises(ValueError, match="producer"):
        Workload("w", 1, producers=5)


@pytest.fixture(scope="module")
def run(everything: tuple[Path, list[Truth]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = RunPlace(str(tmp_path_factory.mktemp("run")), "bench", "w", "r")
    replay_to_run(discover([str(everything[0])]), place, profile=PROFILE, now_ms=0)
    return Path(place.path)


def changed(values: np.ndarray, at: int, value: int) -> np.ndarray:
    copy = values.copy()
    copy[at] = value
    return copy


def wrong_offset(truth: Truth) -> Truth:
    return replace(truth, committed=changed(truth.committed, int(truth.committed.argmax()), 1))


def missing_offset(truth: Truth) -> Truth:
    return replace(truth, committed=changed(truth.committed, int(truth.committed.argmin()), 1))


def wrong_topic(truth: Truth) -> Truth:
    slot = int(truth.committed.argmax())
    topics = changed(truth.topic_of_slot, slot, truth.topic_of_slot[slot] ^ 1)
    return replace(truth, topic_of_slot=topics)


def wrong_group(truth: Truth) -> Truth:
    return replace(truth, groups=["other", *truth.groups[1:]])


def wrong_members(truth: Truth) -> Truth:
    return replace(truth, members=changed(truth.members, 0, 29))


def wrong_generation(truth: Truth) -> Truth:
    return replace(truth, epochs=changed(truth.epochs, 0, 999))


def test_a_run_that_is_true_passes(everything: tuple[Path, list[Truth]], run: Path) -> None:
    check_truth(run, everything[1])


@pytest.mark.parametrize(
    "other", [wrong_offset, missing_offset, wrong_topic, wrong_group, wrong_members, wrong_generation]
)
def test_a_run_that_is_not_true_is_told(
    everything: tuple[Path, list[Truth]], run: Path, other: Callable[[Truth], Truth]
) -> None:
    first, *rest = everything[1]
    with pytest.raises(WrongAnswerError):
        check_truth(run, [other(first), *rest])


def test_a_partition_that_was_not_generated_is_told(everything: tuple[Path, list[Truth]], run: Path) -> None:
    with pytest.raises(WrongAnswerError):
        check_truth(run, everything[1][1:])
