from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from coordinator_core.groups.model import PartitionState
from coordinator_core.runs.schemas import TABLES
from coordinator_core.runs.states import partition_states
from tests.examples import examples
from tests.runs.state_tables import state_tables

from .states import offset_states, rich_states


def in_parts(tables: dict[str, pa.Table]) -> dict[str, list[pa.Table]]:
    """Every table as one row and the rest."""
    return {name: [table[:1], table[1:]] for name, table in tables.items()}


def test_states_survive_their_tables() -> None:
    assert partition_states(in_parts(state_tables(rich_states(), now_ms=0))) == rich_states()


@examples(50)
@given(offset_states())
def test_offsets_survive_their_table(states: list[PartitionState]) -> None:
    assert partition_states(in_parts(state_tables(states, now_ms=0))) == states


OF_FOLDS = {"segments", "group_stats"}
"""Tables that tell of the log, not of the state: only a replay of segments fills them."""


@pytest.mark.parametrize("name", sorted(TABLES.keys() - OF_FOLDS))
def test_the_rich_states_fill_table(name: str) -> None:
    table = state_tables(rich_states(), now_ms=0)[name]
    assert table.schema.equals(TABLES[name].arrow)
    assert [column for column in table.column_names if table[column].null_count == table.num_rows] == []


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_documented(name: str) -> None:
    for field in TABLES[name].arrow:
        assert field.metadata[b"comment"]


@pytest.mark.parametrize("name", TABLES)
def test_keys_identify_rows(name: str) -> None:
    table = state_tables(rich_states(), now_ms=0)[name]
    keys = table.select(list(TABLES[name].key))
    assert keys.group_by(keys.column_names).aggregate([]).num_rows == table.num_rows


def test_ages_are_measured_from_now() -> None:
    tables = state_tables(rich_states(), now_ms=5_000)
    assert tables["pending_offsets"]["age_ms"].to_pylist() == [4_000] * 3
    assert tables["transactions"]["age_ms"].to_pylist() == [None, 4_100, 4_100]


def test_no_states_give_empty_tables() -> None:
    tables = state_tables([], now_ms=0)
    assert {name: table.num_rows for name, table in tables.items()} == dict.fromkeys(TABLES, 0)
    assert all(isinstance(table, pa.Table) for table in tables.values())
    assert partition_states(in_parts(tables)) == []


def test_classic_consumers_show_what_their_blobs_say() -> None:
    rows = state_tables(rich_states(), now_ms=0)["members"].to_pylist()
    shown = {row["member_id"]: (row["subscribed_topics"], row["assignment"]) for row in rows[:3]}
    assert shown == {"m-2": (None, []), "m-1": (None, None), "w": (None, None)}
