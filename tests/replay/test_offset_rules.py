"""The loaders' rules for commits, tombstones and transactions, one test a rule."""

from __future__ import annotations

import pytest

from coordinator_core.groups.model import ClassicGroup, GroupState, OffsetKey, TransactionOutcome
from coordinator_core.log.types import ControlType
from coordinator_core.records.codec import encode_key
from coordinator_core.releases import profile_for_release
from tests.replay.histories import GROUP, OFFSET_KEY, History, encoded_key, offset_value

JAVA = profile_for_release("4.3.1")
SCALA = profile_for_release("3.9.2", "classic")
BOTH = pytest.mark.parametrize("profile", [SCALA, JAVA], ids=["scala", "java"])
OTHER = OffsetKey(GROUP, "t", 1)


def committed(history: History, profile, offset_key: OffsetKey = OFFSET_KEY) -> int | None:  # type: ignore[no-untyped-def]
    offset = history.replay(profile).offsets.get(offset_key)
    return None if offset is None else offset.committed_offset


@BOTH
def test_the_last_plain_commit_wins(profile) -> None:  # type: ignore[no-untyped-def]
    assert committed(History().commit(7).commit(5), profile) == 5


@BOTH
def test_a_tombstone_removes_the_offset(profile) -> None:  # type: ignore[no-untyped-def]
    assert committed(History().commit(7).tombstone(), profile) is None


@BOTH
def test_key_types_0_and_1_share_a_offset_key(profile) -> None:  # type: ignore[no-untyped-def]
    old = (encoded_key(key_type=0), offset_value(1, version=0))
    assert committed(History().commit(7).records(old), profile) == 1


@BOTH
def test_a_commit_in_an_open_transaction_is_pending(profile) -> None:  # type: ignore[no-untyped-def]
    state = History().commit(1).commit(2, producer_id=9).replay(profile)
    assert state.offsets[OFFSET_KEY].committed_offset == 1
    assert state.pending[9][OFFSET_KEY].committed_offset == 2
    assert [t.outcome for t in state.transactions] == [TransactionOutcome.OPEN]


@BOTH
def test_commit_marker_applies_and_abort_marker_drops(profile) -> None:  # type: ignore[no-untyped-def]
    history = History().commit(2, producer_id=9)
    assert committed(History(history.next_offset, history.batches[:]).marker(ControlType.COMMIT, 9), profile) == 2
    assert committed(history.marker(ControlType.ABORT, 9), profile) is None


@BOTH
def test_age_is_decided_by_the_commit_not_by_the_marker(profile) -> None:  # type: ignore[no-untyped-def]
    history = History().commit(2, producer_id=9).commit(3).marker(ControlType.COMMIT, 9)
    assert committed(history, profile) == 3


def test_in_3_7_the_marker_always_wins() -> None:
    history = History().commit(2, producer_id=9).commit(3).marker(ControlType.COMMIT, 9)
    assert committed(history, profile_for_release("3.7.2", "new")) == 2


def test_a_plain_tombstone_leaves_pending_commits_to_scala_and_removes_them_for_java() -> None:
    history = History().commit(2, producer_id=9).tombstone().marker(ControlType.COMMIT, 9)
    assert committed(history, SCALA) == 2
    assert committed(history, JAVA) is None


def test_a_transactional_tombstone_removes_the_committed_offset_only_for_java() -> None:
    history = History().commit(1).commit(2, producer_id=9).tombstone(producer_id=9).marker(ControlType.COMMIT, 9)
    assert committed(history, SCALA) == 1
    assert committed(history, JAVA) is None


def test_an_unknown_control_type_ends_the_transaction_only_for_scala() -> None:
    history = History().commit(2, producer_id=9).marker(ControlType.LEADER_CHANGE, 9)
    assert history.replay(SCALA).pending == {}
    assert OFFSET_KEY in history.replay(JAVA).pending[9]


@BOTH
def test_an_emptied_control_batch_means_nothing(profile) -> None:  # type: ignore[no-untyped-def]
    state = History().commit(2, producer_id=9).empty_control(9).replay(profile)
    assert OFFSET_KEY in state.pending[9]


def test_scala_asks_the_transactional_bit_and_java_the_producer_id() -> None:
    history = History().records((encoded_key(), offset_value(2)), producer_id=9, transactional=False)
    assert history.replay(SCALA).offsets[OFFSET_KEY].committed_offset == 2
    assert history.replay(JAVA).pending[9][OFFSET_KEY].committed_offset == 2


def test_scala_compares_the_first_record_of_the_batch_java_the_record_itself() -> None:
    transactional = [(encoded_key(OTHER), offset_value(1)), (encoded_key(), offset_value(2))]
    plain = [(encoded_key(OTHER), offset_value(3)), (encoded_key(), offset_value(4))]
    history = History().records(*transactional, producer_id=9).records(*plain).marker(ControlType.COMMIT, 9)
    assert [history.replay(profile).offsets[OFFSET_KEY].ordering_offset for profile in (SCALA, JAVA)] == [2, 3]


def test_0_11_compares_the_header_of_the_batch() -> None:
    profile = profile_for_release("0.11.0.3")
    batch = [(encoded_key(OTHER), offset_value(1, version=1, expireTimestamp=-1))] * 2
    assert History(next_offset=40).records(*batch).replay(profile).offsets[OTHER].ordering_offset == 40


@BOTH
def test_unknown_key_types_are_carried_and_counted(profile) -> None:  # type: ignore[no-untyped-def]
    state = History().records((b"\x00\x18rest", b"\x00\x00")).commit(1).replay(profile)
    assert [(record.key_type, record.record_offset) for record in state.carried] == [(24, 0)]
    assert state.load_failures == []
    assert state.offsets[OFFSET_KEY].committed_offset == 1


def test_readers_before_kip_915_abort_at_unknown_key_types() -> None:
    state = History().records((b"\x00\x18rest", b"\x00\x00")).replay(profile_for_release("3.4.0"))
    assert [failure.record_offset for failure in state.load_failures] == [0]
    assert History().records((b"\x00\x18", None)).replay(profile_for_release("3.4.1")).load_failures == []


@BOTH
def test_an_unknown_value_version_and_a_null_key_fail_the_load_and_the_rest_is_read(profile) -> None:  # type: ignore[no-untyped-def]
    history = History().records((encoded_key(), b"\x00\x63")).records((None, b"x")).commit(1)
    state = history.replay(profile)
    assert [failure.record_offset for failure in state.load_failures] == [0, 1]
    assert state.offsets[OFFSET_KEY].committed_offset == 1


def test_an_explicit_expiry_of_minus_one_means_none_except_in_2_1() -> None:
    history = History().commit(1, version=1, expireTimestamp=-1)
    assert history.replay(SCALA).offsets[OFFSET_KEY].expire_timestamp_ms is None
    assert history.replay(profile_for_release("2.1.1")).offsets[OFFSET_KEY].expire_timestamp_ms == -1


@BOTH
def test_an_aborted_transaction_is_listed_with_its_groups(profile) -> None:  # type: ignore[no-untyped-def]
    history = History().commit(1, producer_id=9).commit(2, OTHER, producer_id=9).marker(ControlType.ABORT, 9)
    (transaction,) = history.replay(profile).transactions
    assert transaction.outcome is TransactionOutcome.ABORTED
    assert (transaction.first_record_offset, transaction.last_record_offset) == (0, 1)
    assert (transaction.end_marker_offset, transaction.groups, transaction.keys) == (2, (GROUP,), 2)


def test_offsets_without_a_group_record_make_a_simple_group() -> None:
    old = History().commit(1, version=1, expireTimestamp=-1)
    for profile in (SCALA, JAVA, profile_for_release("0.10.2.2")):
        group = old.replay(profile).groups[GROUP]
        assert isinstance(group, ClassicGroup)
        assert group.is_simple
        assert group.state is GroupState.EMPTY
    oldest = History().records((encoded_key(key_type=0), offset_value(1, version=0)))
    assert oldest.replay(profile_for_release("0.8.2.2")).groups[GROUP].state is None
    state = old.replay(profile_for_release("0.9.0.1"))
    assert (state.groups, list(state.orphaned())) == ({}, [OFFSET_KEY])


def test_java_leaves_a_ghost_group_where_scala_leaves_nothing() -> None:
    history = History().commit(1).tombstone()
    assert history.replay(JAVA).groups[GROUP].state is GroupState.EMPTY
    assert history.replay(SCALA).groups == {}


def test_a_group_tombstone_orphans_offsets_for_java_and_scala_resurrects_them() -> None:
    history = History().group("m").commit(1).group_tombstone()
    java = history.replay(JAVA)
    assert (java.groups, list(java.orphaned())) == ({}, [OFFSET_KEY])
    assert history.replay(SCALA).groups[GROUP].state is GroupState.EMPTY
    again = history.commit(2, OTHER).replay(JAVA)
    assert set(again.offsets) == {OFFSET_KEY, OTHER}
    assert not again.orphaned()


def test_releases_before_1_0_1_forget_the_protocol_type_of_an_empty_group() -> None:
    history = History().records(
        (
            encode_key(2, {"group": GROUP}),
            b"\x00\x01\x00\x08consumer\x00\x00\x00\x03\xff\xff\xff\xff\x00\x00\x00\x00",
        )
    )
    types = [
        history.replay(profile_for_release(release)).groups[GROUP].protocol_type  # type: ignore[union-attr]
        for release in ("0.11.0.3", "1.0.0", "1.0.1", "1.0.2", "1.1.0")
    ]
    assert types == [None, None, "consumer", "consumer", "consumer"]


def test_2_3_to_2_6_0_do_not_read_the_state_timestamp_of_version_3() -> None:
    history = History().group()
    stamps = [
        history.replay(profile_for_release(release)).groups[GROUP].state_timestamp_ms  # type: ignore[union-attr]
        for release in ("2.3.1", "2.4.1", "2.6.0", "2.6.1", "2.8.2")
    ]
    assert stamps == [None, None, None, 1_700_000_000_000, 1_700_000_000_000]
