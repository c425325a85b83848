"""The generator: the same seed, the same bytes, and a truth with which the reference replay agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator_core.groups.classic import consumer_assignment
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import Assignment, ClassicGroup, ClassicMember, ConsumerGroup, Group
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import Codec, PartitionLog
from coordinator_core.records.codec import CURRENT, decode_key, decode_value
from coordinator_core.records.wire import uuid_text
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from tests.bench.generator import Truth, generate
from tests.bench.group_truth import Kind
from tests.bench.plans import QUICK
from tests.bench.truth import MemberRow, WrongAnswerError, check_truth, expected_members
from tests.bench.workload import TOPICS, Workload, topic_id, topic_name
from tests.records.reencoding import key_reencodes_exactly, reencodes_exactly
from tests.replay.reference import replay_partition

EVERYTHING = Workload(
    "everything",
    400_000,
    groups=40,
    offset_keys=900,
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
    legacy_offset_keys=0.1,
    topics_per_group=3,
    commit_metadata=40,
    varied_names=True,
    producers=30,
)
REBALANCES = next(plan for plan in QUICK if plan.name == "rebalances").scaled(0.04).workload
PROFILE = profile_for_release("4.3.1")
TOPIC_NAMES = {uuid_text(topic_id(topic).bytes): topic for topic in map(topic_name, range(TOPICS))}


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
        (offset_key.group_id, offset_key.topic, offset_key.partition): commit.committed_offset
        for offset_key, commit in state.offsets.items()
    } == {
        (
            truth.groups[truth.group_of_offset_key[offset_key]],
            truth.topics[truth.topic_of_offset_key[offset_key]],
            truth.partition_of_offset_key[offset_key],
        ): truth.committed[offset_key]
        for offset_key in live
    }
    assert {group_id: group_facts(group) for group_id, group in state.groups.items()} == {
        truth.groups[group]: (
            kind,
            0 if kind == Kind.SIMPLE else truth.members[group],
            0 if kind == Kind.SIMPLE else truth.epochs[group],
            truth.assignment_epochs[group],
        )
        for group, kind in enumerate(truth.kinds.tolist())
        if kind != Kind.ABSENT
    }
    known = {truth.groups[group] for group in truth.details}
    assert {
        place: row for place, row in member_rows(state.groups.values()).items() if place[0] in known
    } == expected_members(truth)
    assert not state.pending
    assert not state.load_failures


def group_facts(group: Group) -> tuple[Kind, int, int, int]:
    """Kind, members, generation or epoch, and epoch of the target assignment."""
    if isinstance(group, ClassicGroup):
        return Kind.SIMPLE if group.is_simple else Kind.CLASSIC, len(group.members), group.generation, -1
    assert isinstance(group, ConsumerGroup)
    return Kind.CONSUMER, len(group.members), group.group_epoch, group.assignment_epoch


def member_rows(groups: Iterable[Group]) -> dict[tuple[str, str], MemberRow]:
    """Members as :func:`expected_members` has them."""
    rows: dict[tuple[str, str], MemberRow] = {}
    for group in groups:
        for member in group.members if isinstance(group, ClassicGroup) else group.members.values():
            if isinstance(member, ClassicMember):
                owned = frozenset(
                    (topic, partition)
                    for topic, partitions in consumer_assignment(member) or ()
                    for partition in partitions
                )
                row = MemberRow(member.instance_id, None, None, None, owned, frozenset(), None)
            else:
                assert isinstance(group, ConsumerGroup)
                target = group.target_assignment.get(member.member_id)
                row = MemberRow(
                    member.instance_id,
                    member.member_epoch,
                    member.previous_member_epoch,
                    member.state,
                    named(member.assigned),
                    named(member.pending_revocation),
                    None if target is None else named(target),
                )
            rows[group.group_id, member.member_id] = row
    return rows


def named(assignment: Assignment) -> frozenset[tuple[str, int]]:
    return frozenset(
        (TOPIC_NAMES[topic], partition) for topic, partitions in assignment.items() for partition in partitions
    )


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


def test_in_turn_no_offset_key_comes_twice_before_all_came_once(tmp_path: Path) -> None:
    workload = Workload("nothing-dead", 100_000, groups=10, offset_keys=5_000, in_turn=True)
    (truth,) = generate(workload, tmp_path / "dead")
    (log,) = partitions(tmp_path / "dead")
    keys = [
        record.key
        for _, _, records in read_records(log, damage=[])
        for record in records
        if record.key and record.key[1] == 1
    ]
    assert len(set(keys)) == len(keys) == truth.live_offset_keys < 5_000
    (truth,) = generate(replace(workload, offset_keys=500), tmp_path / "alive")
    assert truth.live_offset_keys == 500


def test_the_seed_makes_the_bytes(everything: tuple[Path, list[Truth]], tmp_path: Path) -> None:
    def contents(directory: Path) -> dict[str, bytes]:
        return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in directory.glob("*/*.log")}

    log, _ = everything
    generate(EVERYTHING, tmp_path / "again")
    generate(replace(EVERYTHING, seed=8), tmp_path / "other")
    assert contents(tmp_path / "again") == contents(log)
    assert contents(tmp_path / "other") != contents(log)


def test_consumers_go_forward_by_steps(tmp_path: Path) -> None:
    workload = Workload("forward", 200_000, groups=10, offset_keys=300, steps=50)
    [truth] = generate(workload, tmp_path / "log")
    [log] = partitions(tmp_path / "log")
    assert_is_true(log, truth)
    values: dict[bytes | None, list[dict[str, Any]]] = {}
    for _, _, records in read_records(log, damage=[]):
        for record in records:
            if record.key is not None and record.key[:2] == b"\x00\x01" and record.value is not None:
                values.setdefault(record.key, []).append(decode_value(1, record.value, CURRENT).data or {})
    steps = [after["offset"] - before["offset"] for of_key in values.values() for before, after in pairwise(of_key)]
    assert len(steps) > 500
    assert set(steps) <= set(range(1, 51))
    assert all(len({one["leaderEpoch"] for one in of_key}) == 1 for of_key in values.values())


def test_a_producer_has_one_transaction_at_a_time() -> None:
    with pytest.raises(ValueError, match="producer"):
        Workload("w", 1, producers=5)


@pytest.fixture(scope="module")
def rebalances(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    log = tmp_path_factory.mktemp("rebalances") / "log"
    (truth,) = generate(REBALANCES, log)
    return log, truth


def test_groups_that_rebalance_load_as_the_truth_says(rebalances: tuple[Path, Truth]) -> None:
    log, truth = rebalances
    (partition,) = partitions(log)
    assert_is_true(partition, truth)
    assert set(truth.kinds.tolist()) >= {Kind.CLASSIC, Kind.CONSUMER}
    assert len(expected_members(truth)) > 2 * len(truth.groups)
    assert truth.epochs.max() > 30


@pytest.mark.parametrize("seed", range(3))
def test_groups_that_rebalance_are_true_with_everything_else(seed: int, tmp_path: Path) -> None:
    """Groups end while their offsets are in open transactions, and nothing of them comes back."""
    workload = replace(
        REBALANCES,
        seed=seed,
        target_bytes=700_000,
        groups=4,
        offset_keys=150,
        transactional=0.3,
        tombstones=0.02,
        codec=Codec.LZ4,
        group_skew=1.0,
        value_versions=(1, 3, 4),
        legacy_offset_keys=0.1,
        topics_per_group=3,
    )
    (truth,) = generate(workload, tmp_path)
    (log,) = partitions(tmp_path)
    assert_is_true(log, truth)


def test_a_log_of_rebalances_holds_what_was_asked_for(rebalances: tuple[Path, Truth]) -> None:
    log, truth = rebalances
    (partition,) = partitions(log)
    batches: Counter[str] = Counter()
    kinds: Counter[tuple[int, bool]] = Counter()
    sizes: Counter[int] = Counter()
    states: Counter[int] = Counter()
    with_metadata, commits, timestamps = 0, 0, []
    groups: set[str] = set()
    for _, batch, records in read_records(partition, damage=[]):
        timestamps.append(records[0].timestamp_ms)
        keys = [decode_key(record.key or b"") for record in records]
        of_groups = [key for key in keys if key.type > 1]
        group_ids = {(key.data or {}).get("groupId") or (key.data or {})["group"] for key in keys}
        assert len(group_ids) == 1
        if not of_groups:
            batches["commits" if records[0].value else "tombstones"] += 1
            assert len({record.value is None for record in records}) == 1
        elif len(of_groups) < len(keys):
            # The end of a group: its offsets go first.
            batches["ends"] += 1
            assert all(record.value is None for record in records)
            assert [key.type for key in keys] == sorted((key.type for key in keys), key=[1, 2, 6, 4, 3].index)
        else:
            batches["groups"] += 1
            sizes[len(keys)] += 1
            groups |= group_ids
        assert batch.base_sequence == 0
        for key, record in zip(keys, records, strict=True):
            kinds[key.type, record.value is None] += 1
            assert key_reencodes_exactly(key, record.key or b"")
            if record.value is None:
                continue
            value = decode_value(key.type, record.value, CURRENT)
            assert reencodes_exactly(key.type, value, record.value)
            assert not value.trailing
            assert value.data is not None
            if key.type == 1:
                commits += 1
                with_metadata += bool(value.data["metadata"])
            elif key.type == 8:
                states[value.data["state"]] += 1
    total = batches.total()
    assert (batches["groups"] + batches["ends"]) / total == pytest.approx(0.3, abs=0.02)
    sweeps = batches["tombstones"] / (batches["tombstones"] + batches["commits"])
    assert sweeps == pytest.approx(0.05, abs=0.01)
    assert with_metadata / commits == pytest.approx(0.2, abs=0.02)
    assert set(kinds) == {(1, False), (1, True), (2, False), (2, True), (4, True)} | {
        (key_type, is_tombstone) for key_type in (3, 5, 6, 7, 8) for is_tombstone in (False, True)
    }
    assert set(states) == {0, 1, 2}
    assert min(states.values()) > 50
    assert batches["ends"] > 5
    assert set(range(1, 10)) <= set(sizes)
    assert max(sizes) <= 5 + REBALANCES.members + 2
    # Most groups that came to an end came back.
    assert len(groups) - int((truth.kinds == Kind.ABSENT).sum()) > len(groups) // 2
    assert np.abs(np.diff(timestamps)).max() < 1_000


def test_a_group_that_rebalances_needs_members_to_commit() -> None:
    with pytest.raises(ValueError, match="members"):
        replace(REBALANCES, in_turn=True)


@pytest.fixture(scope="module")
def run(everything: tuple[Path, list[Truth]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = RunPlace(str(tmp_path_factory.mktemp("run")), "bench", "w", "r")
    replay_to_run(discover([str(everything[0])]), place, profile=PROFILE, now_ms=0)
    return Path(place.path)


@pytest.fixture(scope="module")
def run_of_rebalances(rebalances: tuple[Path, Truth], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = RunPlace(str(tmp_path_factory.mktemp("run")), "bench", "w", "r")
    replay_to_run(discover([str(rebalances[0])]), place, profile=PROFILE, now_ms=0)
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
    offset_key = int(truth.committed.argmax())
    topics = changed(truth.topic_of_offset_key, offset_key, truth.topic_of_offset_key[offset_key] ^ 1)
    return replace(truth, topic_of_offset_key=topics)


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


def test_a_run_of_rebalances_that_is_true_passes(rebalances: tuple[Path, Truth], run_of_rebalances: Path) -> None:
    check_truth(run_of_rebalances, [rebalances[1]])


def with_member(truth: Truth, kind: Kind, **changes: Any) -> Truth:
    """Another first member of the first group of its kind that has members."""
    group = next(group for group, facts in truth.details.items() if facts.kind is kind and facts.member_count > 1)
    facts = truth.details[group]
    first, *rest = facts.members or ()
    return replace(truth, details={**truth.details, group: facts._replace(members=(first._replace(**changes), *rest))})


def another_member(truth: Truth) -> Truth:
    return with_member(truth, Kind.CLASSIC, member_id="other")


def wrong_classic_assignment(truth: Truth) -> Truth:
    return with_member(truth, Kind.CLASSIC, assigned={})


def wrong_member_epoch(truth: Truth) -> Truth:
    return with_member(truth, Kind.CONSUMER, epoch=1)


def wrong_target(truth: Truth) -> Truth:
    return with_member(truth, Kind.CONSUMER, target=frozenset())


def wrong_revocation(truth: Truth) -> Truth:
    return with_member(truth, Kind.CONSUMER, revoking={0: 1})


def wrong_assignment_epoch(truth: Truth) -> Truth:
    group = int((truth.kinds == Kind.CONSUMER).argmax())
    return replace(truth, assignment_epochs=changed(truth.assignment_epochs, group, 1))


def a_group_too_few(truth: Truth) -> Truth:
    group = int((truth.kinds == Kind.CONSUMER).argmax())
    return replace(truth, kinds=changed(truth.kinds, group, Kind.ABSENT))


@pytest.mark.parametrize(
    "other",
    [
        another_member,
        wrong_classic_assignment,
        wrong_member_epoch,
        wrong_target,
        wrong_revocation,
        wrong_assignment_epoch,
        a_group_too_few,
    ],
)
def test_a_run_of_rebalances_that_is_not_true_is_told(
    rebalances: tuple[Path, Truth], run_of_rebalances: Path, other: Callable[[Truth], Truth]
) -> None:
    with pytest.raises(WrongAnswerError):
        check_truth(run_of_rebalances, [other(rebalances[1])])


def test_a_partition_that_was_not_generated_is_told(everything: tuple[Path, list[Truth]], run: Path) -> None:
    with pytest.raises(WrongAnswerError):
        check_truth(run, everything[1][1:])
