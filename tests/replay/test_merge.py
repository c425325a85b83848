"""Folds spliced together: short histories, cut before every batch, against the sequential replay."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.groups.model import OffsetKey, PartitionState, TransactionOutcome
from coordinator_core.log.batch import parse_batch
from coordinator_core.log.types import Batch, ControlType
from coordinator_core.merge.partition import merge_columns
from coordinator_core.releases import Profile, profile_for_release
from tests.fold.parity import PROFILES, differences, fold_batches, merge_folds
from tests.replay.histories import OFFSET_KEY, History, encoded_key, offset_value

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
OTHER_OFFSET_KEY = OffsetKey("g", "t", 1)
JAVA, SCALA = "4.3.1", "3.9.2 classic"


def batches(history: History) -> list[Batch]:
    return [parse_batch(memoryview(data), 0) for data in history.batches]


def fold(part: list[Batch], profile: Profile) -> SegmentFold:
    return fold_batches(part, rules=FoldRules.of(profile), offsets_partition=0)


def merged(history: History, profile: Profile, cut: int) -> PartitionState:
    whole = batches(history)
    parts = [part for part in (whole[:cut], whole[cut:]) if part]
    return merge_folds([fold(part, profile) for part in parts], profile, 0)


# What the offset key holds afterwards, by the Java (4.3.1) and the Scala (3.9.2) coordinator.
HISTORIES: dict[str, tuple[History, int | None, int | None]] = {
    "last plain commit wins": (History().commit(1).commit(2), 2, 2),
    "tombstone removes": (History().commit(1).tombstone(), None, None),
    "commit after tombstone": (History().commit(1).tombstone().commit(2), 2, 2),
    "commit applied by a later marker": (
        History().commit(1).commit(2, producer_id=7).marker(COMMIT, 7),
        2,
        2,
    ),
    "aborted": (History().commit(1).commit(2, producer_id=7).marker(ABORT, 7), 1, 1),
    "still open": (History().commit(1).commit(2, producer_id=7), 1, 1),
    "newer plain commit survives the marker": (
        History().commit(2, producer_id=7).commit(3).marker(COMMIT, 7),
        3,
        3,
    ),
    "plain tombstone in an open transaction": (
        History().commit(1).commit(2, producer_id=7).tombstone().marker(COMMIT, 7),
        None,
        2,
    ),
    "plain tombstone, commit, marker": (
        History().commit(2, producer_id=7).tombstone().commit(3).marker(COMMIT, 7),
        3,
        3,
    ),
    "tombstone of a marker's value": (
        History().commit(2, producer_id=7).marker(COMMIT, 7).tombstone(),
        None,
        None,
    ),
    "tombstone between markers": (
        History().commit(2, producer_id=7).commit(3, producer_id=8).marker(COMMIT, 8).tombstone().marker(COMMIT, 7),
        None,
        2,
    ),
    "two transactions, the older marker last": (
        History().commit(2, producer_id=7).commit(3, producer_id=8).marker(COMMIT, 8).marker(COMMIT, 7),
        3,
        3,
    ),
    "two transactions behind one tombstone": (
        History().commit(2, producer_id=7).commit(3, producer_id=8).tombstone().marker(COMMIT, 8).marker(COMMIT, 7),
        None,
        3,
    ),
    "transactional tombstone": (
        History().commit(1).commit(2, producer_id=7).tombstone(producer_id=7).marker(COMMIT, 7),
        None,
        1,
    ),
    "transactional tombstone, then aborted": (
        History().commit(1).tombstone(producer_id=7).marker(ABORT, 7),
        None,
        1,
    ),
    "one transaction after another": (
        History().commit(2, producer_id=7).marker(ABORT, 7).commit(3, producer_id=7).marker(COMMIT, 7),
        3,
        3,
    ),
    "value replaced inside a transaction": (
        History().commit(2, producer_id=7).commit(3, producer_id=7).marker(COMMIT, 7),
        3,
        3,
    ),
    "unknown control type": (
        History().commit(1).commit(2, producer_id=7).marker(77, 7).marker(COMMIT, 7),
        2,
        1,
    ),
    "emptied control batch": (
        History().commit(1).commit(2, producer_id=7).empty_control(7).marker(COMMIT, 7),
        2,
        2,
    ),
    "producer without the transactional bit": (
        History().records((encoded_key(), offset_value(2)), producer_id=7, transactional=False),
        None,
        2,
    ),
    "transactional bit without producer": (
        History().records((encoded_key(), offset_value(2)), transactional=True).marker(COMMIT, -1),
        2,
        2,
    ),
    "key types 0 and 1 are one slot": (
        History().commit(1).records((encoded_key(key_type=0), offset_value(2, version=0))),
        2,
        2,
    ),
}


@pytest.mark.parametrize("profile_name", PROFILES)
@pytest.mark.parametrize("name", HISTORIES)
def test_cut_before_every_batch(name: str, profile_name: str) -> None:
    history, java, scala = HISTORIES[name]
    profile = PROFILES[profile_name]
    expected = history.replay(profile)
    if profile_name in (JAVA, SCALA):
        held = expected.offsets.get(OFFSET_KEY)
        assert (held and held.committed_offset) == (java if profile_name == JAVA else scala)
    for cut in range(len(history.batches)):
        assert not differences(expected, merged(history, profile, cut)), cut


def test_a_batch_a_fold() -> None:
    profile = PROFILES[JAVA]
    for history, _, _ in HISTORIES.values():
        folds = [fold([batch], profile) for batch in batches(history)]
        assert not differences(history.replay(profile), merge_folds(folds, profile, 0))


def test_nothing_folded() -> None:
    state = merge_folds([], PROFILES[JAVA], 3)
    assert state == PartitionState(3)


@pytest.mark.parametrize("cut", range(6))
def test_a_commit_recreates_a_deleted_group_only_after_it_was_deleted(cut: int) -> None:
    history = History().commit(1).group("m").commit(2).group_tombstone().commit(3, OTHER_OFFSET_KEY).tombstone()
    profile = PROFILES[JAVA]
    state = merged(history, profile, cut)
    assert not differences(history.replay(profile), state)
    group = state.groups["g"]
    assert group.record_offset is None


@pytest.mark.parametrize("cut", range(4))
def test_a_group_tombstone_after_the_last_commit(cut: int) -> None:
    history = History().commit(1).commit(2).group_tombstone().tombstone(OTHER_OFFSET_KEY)
    assert merged(history, PROFILES[JAVA], cut).groups == {}
    assert list(merged(history, PROFILES[SCALA], cut).groups) == ["g"]


@pytest.mark.parametrize("cut", range(7))
def test_a_transaction_over_segments_is_one_row(cut: int) -> None:
    history = (
        History()
        .commit(1, producer_id=7)
        .commit(2, OTHER_OFFSET_KEY, producer_id=7)
        .commit(3, OffsetKey("h", "t", 0), producer_id=7)
        .commit(4, producer_id=7)
        .commit(5, producer_id=8)
        .marker(ABORT, 7)
        .commit(6, producer_id=7)
    )
    transactions = merged(history, PROFILES[JAVA], cut).transactions
    rows = [
        (
            item.producer_id,
            item.first_record_offset,
            item.last_record_offset,
            item.keys,
            item.groups,
            item.outcome,
            item.end_marker_offset,
        )
        for item in transactions
    ]
    assert rows == [
        (7, 0, 3, 3, ("g", "h"), TransactionOutcome.ABORTED, 5),
        (8, 4, 4, 1, ("g",), TransactionOutcome.OPEN, None),
        (7, 6, 6, 1, ("g",), TransactionOutcome.OPEN, None),
    ]


def test_folds_of_other_rules_are_refused() -> None:
    part = fold(batches(History().commit(1)), PROFILES[SCALA])
    with pytest.raises(ValueError, match="other rules"):
        merge_folds([part], PROFILES[JAVA], 0)


def test_profiles_that_fold_alike_share_rules() -> None:
    assert FoldRules.of(profile_for_release("4.3.1")) == FoldRules.of(profile_for_release("4.2.0"))
    assert FoldRules.of(profile_for_release("4.3.1")) != FoldRules.of(profile_for_release("4.0.1"))


def test_a_fold_can_be_sent() -> None:
    history = HISTORIES["tombstone between markers"][0].group("m")
    made = fold(batches(history), PROFILES[JAVA])
    assert SegmentFold.from_ipc(made.to_ipc()) == made
    sink = pa.BufferOutputStream()
    made.write_ipc(sink, compression="lz4")
    read = SegmentFold.read_ipc_lazily(pa.BufferReader(sink.getvalue()), path="elsewhere")
    assert read.path == "elsewhere"
    assert replace(made, path="elsewhere") == pickle.loads(pickle.dumps(read))
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("cut", [0, 1, 10, 100, 1000])
def test_half_a_fold_is_refused(cut: int) -> None:
    data = fold(batches(History().commit(1)), PROFILES[JAVA]).to_ipc()
    with pytest.raises(ValueError, match="fold"):
        SegmentFold.from_ipc(data[:cut])


def test_another_arrow_stream_is_refused() -> None:
    sink = pa.BufferOutputStream()
    table = pa.table({"a": [1]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ValueError, match="not a fold"):
        SegmentFold.from_ipc(sink.getvalue())


def test_group_stats_count_every_record_once() -> None:
    history = History().commit(1).tombstone().commit(2, producer_id=7).group("m").group_tombstone()
    profile = PROFILES[JAVA]
    expected = [("g", 1, 3, 1), ("g", 2, 2, 1)]
    for cut in range(5):
        whole = batches(history)
        folds = [fold(part, profile) for part in (whole[:cut], whole[cut:]) if part]
        stats = merge_columns(folds, profile, 0).group_stats.sort_by("key_type").to_pylist()
        assert [(row["group_id"], row["key_type"], row["records"], row["tombstones"]) for row in stats] == expected
        # 61 bytes of header per batch are not the group's.
        assert sum(row["size_bytes"] for row in stats) == sum(batch.size - 61 for batch in whole)
