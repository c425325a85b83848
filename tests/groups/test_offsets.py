"""Committed and pending offsets: which fact of a coordinator decides what."""

from __future__ import annotations

import pytest

from coordinator_core.groups.model import CommittedOffset
from coordinator_core.groups.offsets import OffsetRules, Offsets, is_newer
from coordinator_core.releases import profile_for
from coordinator_core.replay.interpret import offset_rules

PRODUCER = 7


def offset(record_offset: int, producer_id: int | None = None) -> CommittedOffset:
    return CommittedOffset(
        committed_offset=record_offset * 10,
        leader_epoch=None,
        metadata="",
        commit_timestamp_ms=0,
        expire_timestamp_ms=None,
        topic_id=None,
        record_offset=record_offset,
        value_version=3,
        producer_id=producer_id,
        producer_epoch=None if producer_id is None else 0,
        ordering_offset=record_offset,
    )


def offsets(profile: str) -> Offsets[str]:
    return Offsets(offset_rules(profile_for(profile)), {}, {})


def test_age_is_that_of_the_commit_and_equal_is_not_newer() -> None:
    assert is_newer(offset(1), None)
    assert is_newer(offset(2), offset(1))
    assert not is_newer(offset(1), offset(1))
    assert not is_newer(offset(1), offset(2))


@pytest.mark.parametrize(("profile", "stands"), [("S4", 2), ("J0", 1), ("J1", 2), ("J3", 2)])
def test_a_marker_asks_for_age_except_in_the_first_java_coordinator(profile: str, stands: int) -> None:
    state = offsets(profile)
    state.commit("a", offset(1, PRODUCER))
    state.commit("a", offset(2))
    state.end_transaction(PRODUCER, commit=True)
    assert state.committed["a"].record_offset == stands
    assert state.pending == {}


def test_an_aborted_transaction_leaves_nothing() -> None:
    state = offsets("J3")
    state.commit("a", offset(1, PRODUCER))
    state.end_transaction(PRODUCER, commit=False)
    assert (state.committed, state.pending) == ({}, {})


@pytest.mark.parametrize(("profile", "comes_back"), [("S4", True), ("J0", True), ("J1", False), ("J3", False)])
def test_a_tombstone_outside_a_transaction(profile: str, comes_back: bool) -> None:
    state = offsets(profile)
    state.commit("a", offset(1, PRODUCER))
    state.commit("a", offset(2))
    state.remove("a", None)
    assert state.committed == {}
    state.end_transaction(PRODUCER, commit=True)
    assert ("a" in state.committed) is comes_back


@pytest.mark.parametrize(("profile", "waits"), [("S4", True), ("J0", False), ("J3", False)])
def test_a_tombstone_in_a_transaction(profile: str, waits: bool) -> None:
    state = offsets(profile)
    state.commit("a", offset(1))
    state.commit("b", offset(2, PRODUCER))
    state.remove("a", PRODUCER)
    state.remove("b", PRODUCER)
    assert ("a" in state.committed) is waits
    assert ("b" in state.pending[PRODUCER]) is (profile == "J0")


def test_maps_of_the_caller_are_used() -> None:
    class Map(dict[str, CommittedOffset]):
        pass

    committed = Map()
    rules = OffsetRules(tombstones_apply_at_once=True, tombstone_drops_pending=True, marker_always_wins=False)
    state: Offsets[str] = Offsets(rules, committed, {}, Map)
    state.commit("a", offset(1, PRODUCER))
    assert type(state.pending[PRODUCER]) is Map
    state.end_transaction(PRODUCER, commit=True)
    assert list(committed) == ["a"]
