from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.groups.model import ClassicGroup, OffsetKey, PartitionState
from coordinator_core.runs import state_hash as module
from coordinator_core.runs.schemas import TABLES
from coordinator_core.runs.state_hash import (
    all_digests,
    canonical_rows,
    combined_hash,
    digests_of,
    state_hash,
)
from tests.examples import examples
from tests.runs.state_tables import state_tables

from .states import offset, offset_states, rich_states


def hash_of(states: list[PartitionState], now_ms: int = 0) -> str:
    return state_hash(all_digests(state_tables(states, now_ms=now_ms)))


@examples(50)
@given(offset_states(), st.randoms(use_true_random=False))
def test_row_order_chunks_and_grouping_do_not_matter(states: list[PartitionState], shuffle: random.Random) -> None:
    tables = state_tables(states, now_ms=0)
    rows = tables["offsets"].to_pylist()
    shuffle.shuffle(rows)
    schema = TABLES["offsets"].arrow
    chunks = [pa.Table.from_pylist([row], schema=schema) for row in rows]
    whole = all_digests(tables)
    assert digests_of("offsets", canonical_rows("offsets", pa.concat_tables(chunks))) == {
        key: digest for key, digest in whole.items() if key[0] == "offsets"
    }
    one_by_one: dict[tuple[str, int], str] = {}
    for state in states:
        one_by_one |= all_digests(state_tables([state], now_ms=0))
    assert one_by_one == whole


@examples(50)
@given(offset_states(), offset_states())
def test_equal_hashes_mean_equal_states(one: list[PartitionState], other: list[PartitionState]) -> None:
    assert (hash_of(one) == hash_of(other)) == (one == other)


def test_block_boundaries_are_part_of_the_scheme_not_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    state = PartitionState(0, offsets={OffsetKey("g", "t", n): offset(n) for n in range(10)})
    monkeypatch.setattr(module, "BLOCK_ROWS", 3)
    ordered = hash_of([state])
    state.offsets = dict(reversed(state.offsets.items()))
    assert hash_of([state]) == ordered


def test_null_and_empty_and_zero_differ() -> None:
    hashes = set()
    for metadata in ("", "\0", "\0\0"):
        for epoch in (None, 0):
            state = PartitionState(
                0, offsets={OffsetKey("g", "t", 0): offset(1, metadata=metadata, leader_epoch=epoch)}
            )
            hashes.add(hash_of([state]))
    assert len(hashes) == 6


def test_bytes_of_neighbouring_values_do_not_run_together() -> None:
    def both(one: str, other: str) -> str:
        offset_keys = {OffsetKey("g", one, 0): offset(1), OffsetKey("g", other, 0): offset(2)}
        return hash_of([PartitionState(0, offsets=offset_keys)])

    assert len({both("ab", "c"), both("a", "bc"), both("abc", "")}) == 3


def change_offset(states: list[PartitionState]) -> None:
    offset_key = next(iter(states[0].offsets))
    states[0].offsets[offset_key] = states[0].offsets[offset_key]._replace(committed_offset=11)


def change_member_order(states: list[PartitionState]) -> None:
    group = states[0].groups["g-live"]
    assert isinstance(group, ClassicGroup)
    states[0].groups["g-live"] = group._replace(members=group.members[::-1])


def drop_pending(states: list[PartitionState]) -> None:
    del states[0].pending[4_000]


def drop_load_failure(states: list[PartitionState]) -> None:
    states[0].load_failures.clear()


def move_partition(states: list[PartitionState]) -> None:
    states[1].offsets_partition += 1


def drop_group(states: list[PartitionState]) -> None:
    del states[1].groups["streams-new"]


@pytest.mark.parametrize(
    "change",
    [change_offset, change_member_order, drop_pending, drop_load_failure, move_partition, drop_group],
)
def test_state_changes_the_hash(change: Callable[[list[PartitionState]], None]) -> None:
    states = rich_states()
    change(states)
    assert hash_of(states) != hash_of(rich_states())


def no_transactions(states: list[PartitionState]) -> None:
    states[0].transactions.clear()


def no_carried_records(states: list[PartitionState]) -> None:
    states[0].carried.clear()


def other_counts(states: list[PartitionState]) -> None:
    states[0].record_counts[1, 4] += 1


def other_ordering_offset(states: list[PartitionState]) -> None:
    offset_key = next(iter(states[0].offsets))
    states[0].offsets[offset_key] = states[0].offsets[offset_key]._replace(ordering_offset=-5)


@pytest.mark.parametrize("change", [no_transactions, no_carried_records, other_counts, other_ordering_offset])
def test_what_is_no_state_does_not(change: Callable[[list[PartitionState]], None]) -> None:
    """A compacted log gives the same state, but has fewer records and transactions to tell of."""
    states = rich_states()
    change(states)
    assert hash_of(states) == hash_of(rich_states())
    assert hash_of(states, now_ms=99) == hash_of(rich_states(), now_ms=0)


@pytest.mark.parametrize("name", ["transactions", "carried_records", "record_counts"])
def test_other_tables_have_hashes_of_their_own(name: str) -> None:
    states = rich_states()
    full = all_digests(state_tables(states, now_ms=0))
    states[0].transactions, states[0].carried, states[0].record_counts = [], [], {}
    assert combined_hash(all_digests(state_tables(states, now_ms=0)), [name]) != combined_hash(full, [name])


def test_the_hash_is_pinned() -> None:
    """Changing the scheme means changing STATE_HASH_VERSION: runs of two versions are compared by it."""
    assert module.STATE_HASH_VERSION == 1
    assert hash_of(rich_states()) == "895d26f5c869069069acb37091c598e4739341c0e14bdcd7ca9a77eb8ef29f79"
