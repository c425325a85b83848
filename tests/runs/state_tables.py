"""Tables of a run from the states of the reference replay, row by row: what the columns of the product must equal."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow as pa

from coordinator_core.groups.model import CommittedOffset, OffsetKey, PartitionState, TransactionOutcome
from coordinator_core.runs import schemas
from coordinator_core.runs.read import Run
from coordinator_core.runs.state_hash import all_digests, state_hash
from coordinator_core.runs.tables import Row, Tables, common_tables


def computed_state_hash(run: Run) -> str:
    """State hash of the rows of ``run`` as they are now, to be compared with what its manifest says."""
    return state_hash(all_digests(tables_of(run)))


def tables_of(run: Run, *, group_ids: Collection[str] | None = None) -> Tables:
    """All tables of a run."""
    return {name: run.table(name, group_ids=group_ids) for name in schemas.TABLES if run.has_table(name)}


def state_tables(states: Iterable[PartitionState], *, now_ms: int) -> Tables:
    """The tables that ``states`` fill, rows in their order; ``segments`` and ``group_stats`` stay empty."""
    filled = [_state_tables(state, now_ms) for state in states]
    return {
        name: pa.concat_tables([schemas.empty_table(table), *(tables[name] for tables in filled)])
        for name, table in schemas.TABLES.items()
    }


def _state_tables(state: PartitionState, now_ms: int) -> Tables:
    rows = {
        "offsets": [_offset_row(state, offset_key, offset) for offset_key, offset in state.offsets.items()],
        "pending_offsets": _pending_rows(state, now_ms),
        "transactions": _transaction_rows(state, now_ms),
    }
    return common_tables(state) | {
        name: pa.Table.from_pylist(of_table, schema=schemas.TABLES[name].arrow) for name, of_table in rows.items()
    }


def _offset_row(state: PartitionState, offset_key: OffsetKey, offset: CommittedOffset) -> Row:
    row = {
        "offsets_partition": state.offsets_partition,
        "group_id": offset_key.group_id,
        "topic": offset_key.topic,
        "partition": offset_key.partition,
    }
    return row | {name: getattr(offset, name) for name in schemas.OFFSETS.arrow.names if name not in row}


def _pending_rows(state: PartitionState, now_ms: int) -> list[Row]:
    return [
        _offset_row(state, offset_key, offset)
        | {"producer_id": producer_id, "age_ms": now_ms - offset.commit_timestamp_ms}
        for producer_id, offset_keys in state.pending.items()
        for offset_key, offset in offset_keys.items()
    ]


def _transaction_rows(state: PartitionState, now_ms: int) -> list[Row]:
    return [
        {
            "offsets_partition": state.offsets_partition,
            "record_offset": transaction.first_record_offset,
            "last_record_offset": transaction.last_record_offset,
            "end_marker_offset": transaction.end_marker_offset,
            "producer_id": transaction.producer_id,
            "producer_epoch": transaction.producer_epoch,
            "outcome": transaction.outcome.value,
            "groups": transaction.groups,
            "keys": transaction.keys,
            "timestamp_ms": transaction.timestamp_ms,
            "age_ms": now_ms - transaction.timestamp_ms if transaction.outcome is TransactionOutcome.OPEN else None,
        }
        for transaction in state.transactions
    ]
