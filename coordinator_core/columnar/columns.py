"""The finished tables of a fold as the Arrow columns of :class:`SegmentFold`; only survivors are decoded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.columnar.arrow import column
from coordinator_core.columnar.finishing import (
    SLOT_COLUMNS_TYPE,
    SlotColumns,
    slot_columns,
    transpose,
)
from coordinator_core.columnar.source import Source, text
from coordinator_core.columnar.tables import (
    CONTROL_KEY,
    NO_KEY_TYPE,
    Bytes,
    FragmentGroupRow,
    FragmentRow,
    GroupRow,
    Int64s,
    Interned,
    OtherRow,
    PendingKind,
    PendingRow,
    Phase,
    ProducerRow,
    State,
    Statistic,
    Tables,
    TouchRow,
    used_rows,
)
from coordinator_core.log.types import Codec, SegmentFile
from coordinator_core.replay import fold
from coordinator_core.replay.fold import FoldRules, SegmentCounts, SegmentFold

_ALIGNMENT = 64
_VALUE_NAMES = {field.name for field in fold.VALUE_FIELDS}
_Mask = npt.NDArray[np.bool_]


def counted(
    segment: SegmentFile,
    rules: FoldRules,
    tables: Tables,
    *,
    stopped: bool,
    legacy_formats: Mapping[int, int],
) -> SegmentFold:
    """What ``tables`` have counted of ``segment``, the last that was folded, as a fold without rows."""
    state = tables.state
    empty = state[State.BATCHES] == 0
    return SegmentFold(
        path=segment.path,
        offsets_partition=segment.offsets_partition,
        base_offset=segment.base_offset,
        rules=rules,
        first_offset=None if empty else int(state[State.FIRST_OFFSET]),
        next_offset=None if empty else int(state[State.NEXT_OFFSET]),
        stopped=stopped,
        counts=_counts(tables, legacy_formats),
        **fold.NO_ROWS,
    )


def with_rows(counts: SegmentFold, tables: Tables, segments: Sequence[Bytes], arena: Bytes) -> SegmentFold:
    """The fold in ``tables`` of all ``segments``; ``counts`` is what was :func:`counted` of the last one."""
    source = Source(segments, arena)
    return replace(
        counts,
        groups=_names(tables, "groups"),
        topics=_names(tables, "topics"),
        slots=_slots(tables, source),
        pending=_pending(tables, source),
        producers=_producers(tables),
        transactions=_transactions(tables),
        others=_others(tables, source),
        touches=_touches(tables),
        group_stats=_group_stats(tables),
    )


def _slot_columns(rows: int) -> SlotColumns:
    """Uninitialised columns; those that a merge keeps lie apart, so that it does not keep the others."""
    dtypes = zip(SlotColumns._fields, (field.dtype.name for field in SLOT_COLUMNS_TYPE.fields), strict=True)
    kept: dict[str, np.dtype[Any]] = {}
    passing: dict[str, np.dtype[Any]] = {}
    for name, dtype in dtypes:
        (kept if name in _VALUE_NAMES else passing)[name] = np.dtype(dtype)
    return SlotColumns(**_side_by_side(kept, rows), **_side_by_side(passing, rows))


def _side_by_side(dtypes: Mapping[str, np.dtype[Any]], rows: int) -> dict[str, npt.NDArray[Any]]:
    """Uninitialised arrays of ``rows`` numbers in one block: large memory is had in large pages."""
    sizes = [-(rows * dtype.itemsize) % _ALIGNMENT + rows * dtype.itemsize for dtype in dtypes.values()]
    block = np.empty(sum(sizes), np.uint8)
    starts = np.cumsum([0, *sizes]).tolist()
    return {
        name: block[start : start + rows * dtype.itemsize].view(dtype)
        for start, (name, dtype) in zip(starts, dtypes.items(), strict=False)
    }


def _copied(tables: Tables, name: str) -> Int64s:
    """The rows of a working table. A fold must hold copies: the memory of the table will be used again."""
    return used_rows(tables, name).copy()


def _columns(table: Int64s, *wanted: int) -> Int64s:
    """Copies of columns of a working table, each contiguous."""
    out = np.empty((len(wanted), len(table)), np.int64)
    transpose(table, np.array(wanted, np.int64), out)
    return out


def _names(tables: Tables, name: str) -> pa.Array:
    """The interned names of ``groups`` or ``topics``, without their length prefix."""
    rows = used_rows(tables, name)
    source = Source([tables.keys])
    return text(source.binary(rows[:, Interned.BODY] + 2, rows[:, Interned.BODY_BYTES] - 2))


def _values(
    positions: Int64s,
    lengths: Int64s,
    record_offsets: Mapping[str, Int64s],
    producers: tuple[Int64s, npt.NDArray[np.int16], _Mask],
    source: Source,
) -> dict[str, pa.Array]:
    """The columns of ``fold.VALUE_FIELDS``; the values are at ``positions``."""
    producer_ids, producer_epochs, has_producer = producers
    return {
        **{name: column(numbers) for name, numbers in record_offsets.items()},
        "value": source.binary(positions, lengths),
        "producer_id": column(producer_ids, ~has_producer),
        "producer_epoch": column(producer_epochs, ~has_producer),
    }


def _table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _slots(tables: Tables, source: Source) -> pa.Table:
    events = used_rows(tables, "events")
    slots = _slot_columns(len(events))
    slot_columns(used_rows(tables, "slots"), events, slots)
    values = _values(
        slots.value,
        slots.value_bytes,
        {"record_offset": slots.record_offset, "merge_offset": slots.merge_offset},
        (slots.producer_id, slots.producer_epoch, slots.committed.view(np.bool_)),
        source,
    )
    return _table(
        fold.SLOTS,
        {
            "group": column(slots.group),
            "topic": column(slots.topic),
            "partition": column(slots.partition),
            "kind": column(slots.kind),
            "sequence": column(slots.sequence),
            "last_tombstone": column(slots.last_tombstone),
            **values,
        },
    )


def _pending(tables: Tables, source: Source) -> pa.Table:
    rows = used_rows(tables, "pending")
    rows = rows[rows[:, PendingRow.PHASE] != Phase.FREE]
    slots, producers, kinds, phases, positions, lengths, record_offsets, merge_offsets, epochs = _columns(
        rows,
        PendingRow.SLOT,
        PendingRow.PRODUCER,
        PendingRow.KIND,
        PendingRow.PHASE,
        PendingRow.VALUE,
        PendingRow.VALUE_BYTES,
        PendingRow.RECORD_OFFSET,
        PendingRow.MERGE_OFFSET,
        PendingRow.PRODUCER_EPOCH,
    )
    is_open = phases == Phase.OPEN
    is_value = is_open & (kinds == PendingKind.VALUE)
    producer_ids = used_rows(tables, "producers")[producers, ProducerRow.PRODUCER_ID]
    values = _values(
        positions,
        lengths * is_value,
        {"record_offset": record_offsets * is_value, "merge_offset": merge_offsets * is_value},
        (producer_ids * is_value, (epochs * is_value).astype(np.int16), is_value),
        source,
    )
    return _table(
        fold.PENDING,
        {
            "slot": column(slots.astype(np.int32)),
            "producer": column(producers.astype(np.int32)),
            "kind": column(kinds.astype(np.int8)),
            "open": column(is_open),
            **values,
        },
    )


def _producers(tables: Tables) -> pa.Table:
    rows = _copied(tables, "producers")
    is_open = rows[:, ProducerRow.OPEN] != 0
    has_marker = rows[:, ProducerRow.FIRST_MARKER] >= 0

    def where(condition: _Mask, column: int) -> Int64s:
        return np.where(condition, rows[:, column], 0)

    return _table(
        fold.PRODUCERS,
        {
            "producer_id": column(rows[:, ProducerRow.PRODUCER_ID]),
            "first_marker": column(rows[:, ProducerRow.FIRST_MARKER]),
            "first_marker_offset": column(where(has_marker, ProducerRow.FIRST_MARKER_OFFSET)),
            "first_marker_commits": column(where(has_marker, ProducerRow.FIRST_MARKER_COMMITS) != 0),
            "open": column(is_open),
            "producer_epoch": column(where(is_open, ProducerRow.EPOCH).astype(np.int16)),
            "first_record_offset": column(where(is_open, ProducerRow.FIRST_OFFSET)),
            "last_record_offset": column(where(is_open, ProducerRow.LAST_OFFSET)),
            "timestamp_ms": column(where(is_open, ProducerRow.TIMESTAMP)),
        },
    )


def _transactions(tables: Tables) -> pa.Table:
    rows = _copied(tables, "fragments")
    # Groups were appended fragment by fragment.
    groups = _copied(tables, "fragment_groups")
    starts = np.searchsorted(groups[:, FragmentGroupRow.FRAGMENT], np.arange(len(rows) + 1))
    lists = pa.LargeListArray.from_arrays(
        column(starts.astype(np.int64)), column(groups[:, FragmentGroupRow.GROUP].astype(np.int32))
    )
    return _table(
        fold.TRANSACTIONS,
        {
            "producer_id": column(rows[:, FragmentRow.PRODUCER_ID]),
            "producer_epoch": column(rows[:, FragmentRow.PRODUCER_EPOCH].astype(np.int16)),
            "first_record_offset": column(rows[:, FragmentRow.FIRST_OFFSET]),
            "last_record_offset": column(rows[:, FragmentRow.LAST_OFFSET]),
            "timestamp_ms": column(rows[:, FragmentRow.TIMESTAMP]),
            "end_marker_offset": column(rows[:, FragmentRow.MARKER_OFFSET]),
            "committed": column(rows[:, FragmentRow.COMMITTED] != 0),
            "keys": column(rows[:, FragmentRow.KEYS]),
            "first": column(rows[:, FragmentRow.FIRST] != 0),
            "groups": lists.cast(fold.TRANSACTIONS.field("groups").type),
        },
    )


def _others(tables: Tables, source: Source) -> pa.Table:
    rows = _copied(tables, "others")
    groups = rows[:, OtherRow.GROUP]
    return _table(
        fold.OTHERS,
        {
            "sequence": column(rows[:, OtherRow.SEQUENCE]),
            "record_offset": column(rows[:, OtherRow.RECORD_OFFSET]),
            "key": source.binary(rows[:, OtherRow.KEY], rows[:, OtherRow.KEY_BYTES], nulls=True),
            "value": source.binary(rows[:, OtherRow.VALUE], rows[:, OtherRow.VALUE_BYTES], nulls=True),
            "timestamp_ms": column(rows[:, OtherRow.TIMESTAMP]),
            "size_bytes": column(rows[:, OtherRow.SIZE_BYTES]),
            "group": column(groups.astype(np.int32), groups < 0),
            "control": column(rows[:, OtherRow.KEY_TYPE] == CONTROL_KEY),
        },
    )


def _touches(tables: Tables) -> pa.Table:
    rows = _copied(tables, "touches")
    return _table(
        fold.TOUCHES,
        {
            "sequence": column(rows[:, TouchRow.SEQUENCE]),
            "record_offset": column(rows[:, TouchRow.RECORD_OFFSET]),
            "group": column(rows[:, TouchRow.GROUP].astype(np.int32)),
        },
    )


def _group_stats(tables: Tables) -> pa.Table:
    """Statistics of commits as the kernel kept them, of other records from their rows."""
    groups = used_rows(tables, "groups")
    parts: list[tuple[Int64s, ...]] = []
    for key_type in (0, 1):
        first = GroupRow.STATISTICS + Statistic.WIDTH * key_type
        seen = np.flatnonzero(groups[:, first + Statistic.RECORDS])
        columns = [groups[seen, first + column] for column in range(Statistic.WIDTH)]
        parts.append((seen, np.full(len(seen), key_type, np.int64), *columns))
    parts.append(_other_stats(used_rows(tables, "others")))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    names = (
        "group",
        "key_type",
        "records",
        "tombstones",
        "size_bytes",
        "first_timestamp_ms",
        "last_timestamp_ms",
    )
    arrays = dict(zip(names, columns, strict=True))
    return _table(
        fold.GROUP_STATS,
        {
            **{name: column(array) for name, array in arrays.items()},
            "group": column(arrays["group"].astype(np.int32)),
            "key_type": column(arrays["key_type"].astype(np.int16)),
        },
    )


def _other_stats(others: Int64s) -> tuple[Int64s, ...]:
    rows = others[(others[:, OtherRow.GROUP] >= 0) & (others[:, OtherRow.KEY_TYPE] > NO_KEY_TYPE)]
    pairs = (rows[:, OtherRow.GROUP] << 16) | (rows[:, OtherRow.KEY_TYPE] & 0xFFFF)
    _, first, group_of, records = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    tombstones = np.bincount(group_of, rows[:, OtherRow.VALUE_BYTES] < 0, len(first)).astype(np.int64)
    sizes = np.zeros(len(first), np.int64)
    np.add.at(sizes, group_of, rows[:, OtherRow.SIZE_BYTES])
    last = np.zeros(len(first), np.int64)
    last[group_of] = np.arange(len(rows))
    return (
        rows[first, OtherRow.GROUP],
        rows[first, OtherRow.KEY_TYPE],
        records,
        tombstones,
        sizes,
        rows[first, OtherRow.TIMESTAMP],
        rows[last, OtherRow.TIMESTAMP],
    )


def _counts(tables: Tables, legacy_formats: Mapping[int, int]) -> SegmentCounts:
    state = tables.state
    batches = int(state[State.BATCHES])
    formats = Counter(legacy_formats)
    formats[2] = batches - formats.total()
    codecs = {}
    for codec in Codec:
        if state[State.CODECS + codec]:
            codecs[codec.name.lower()] = int(state[State.CODECS + codec])
    commits: dict[tuple[int, int | None], int] = {}
    for key_type in (0, 1):
        for version in range(-1, 5):
            records = int(state[State.COMMITS + 6 * key_type + 1 + version])
            if records:
                commits[key_type, None if version < 0 else version] = records
    records = int(state[State.SEQUENCE] - state[State.SEGMENT_SEQUENCE])
    control_records = int(state[State.CONTROL_RECORDS])
    has_records = records > control_records
    return SegmentCounts(
        batches=batches,
        records=records,
        control_records=control_records,
        min_timestamp_ms=int(state[State.MIN_TIMESTAMP]) if has_records else None,
        max_timestamp_ms=int(state[State.MAX_TIMESTAMP]) if has_records else None,
        codecs=codecs,
        formats={magic: formats[magic] for magic in sorted(formats) if formats[magic]},
        commits=commits,
    )
