"""Conversion of a fold's tables to the Arrow columns of :class:`SegmentFold`; decodes surviving names only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.fold import schema as fold
from coordinator_core.fold.arrow import column
from coordinator_core.fold.gathering import SegmentBytes, binary, spread_columns, text
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentCounts, SegmentFold
from coordinator_core.kernels import FoldTables, KeyTable
from coordinator_core.kernels.arrays import Bytes, Int64s, array_of
from coordinator_core.kernels.layout import (
    COMMIT_VERSIONS,
    CONTROL_KEY,
    KEY_TYPES,
    NO_KEY_TYPE,
    OrderingOffset,
    PendingKind,
    Phase,
)
from coordinator_core.log.types import Codec, SegmentFile
from coordinator_core.log.windows import Windows

_Mask = npt.NDArray[np.bool_]

_BATCH_ORDERS = frozenset((OrderingOffset.BATCH_FIRST_RECORD, OrderingOffset.BATCH_HEADER))
_KERNEL_FIELDS = frozenset(("next", "pending", "key_type", "unused", "unused_16", "ordering_offset"))


def counted(segment: SegmentFile, rules: FoldRules, tables: FoldTables, *, stopped: bool) -> SegmentFold:
    """Counts in ``tables`` of ``segment``, the last that was folded, as a fold without rows."""
    empty = tables.batches == 0
    return SegmentFold(
        path=segment.path,
        offsets_partition=segment.offsets_partition,
        base_offset=segment.base_offset,
        rules=rules,
        first_offset=None if empty else tables.first_offset,
        next_offset=None if empty else tables.next_offset,
        stopped=stopped,
        counts=_counts(tables),
        **fold.NO_ROWS,
    )


def with_rows(counts: SegmentFold, tables: FoldTables, segments: Sequence[Windows], arena: Bytes) -> SegmentFold:
    """The fold in ``tables`` of all ``segments``; ``counts`` is the result of :func:`counted` for the last one."""
    source = SegmentBytes(segments, arena)
    tables.end_group_block(0, 0, 0)
    found = replace(
        counts,
        groups=_names(tables.group_ids),
        topics=_names(tables.topics),
        offset_keys=_offset_keys(tables, source),
        pending=_pending(tables, source),
        producers=_producers(tables),
        transactions=_transactions(tables),
        group_records=_group_records(tables),
        implicit_group_creations=_implicit_group_creations(tables),
        group_stats=_group_stats(tables),
    )
    source.fill()
    return found


def _used(rows: Any, count: int) -> npt.NDArray[Any]:
    """The rows of a table that are in use. A fold must hold copies: they change with the next segment."""
    return array_of(rows)[:count]


def _names(table: KeyTable) -> pa.Array:
    """Interned names, without their length prefix."""
    rows = _used(table.keys, table.used)
    source = SegmentBytes([Windows(memoryview(table.data))])
    return text(source.binary(rows["start"] + 2, rows["length"] - 2))


def _values(
    positions: Int64s,
    lengths: Int64s,
    record_offsets: Mapping[str, Int64s],
    producers: tuple[Int64s, npt.NDArray[np.int16], _Mask],
    source: SegmentBytes,
) -> dict[str, pa.Array]:
    """The columns of ``fold.VALUES``; the values are at ``positions``."""
    producer_ids, producer_epochs, has_producer = producers
    return {
        **{name: column(numbers) for name, numbers in record_offsets.items()},
        "value": source.binary(positions, lengths),
        "producer_id": column(producer_ids, ~has_producer),
        "producer_epoch": column(producer_epochs, ~has_producer),
    }


def _table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _offset_keys(tables: FoldTables, source: SegmentBytes) -> pa.Table:
    used = tables.keys.used
    # An event that is ordered by its record needs no other offset.
    order = "ordering_offset" if tables.ordering in _BATCH_ORDERS else "record_offset"
    events = spread_columns(_used(tables.events, used), without=_KERNEL_FIELDS - {order})
    keys = spread_columns(_used(tables.key_states, used))
    values = _values(
        events["value"],
        events["value_bytes"].astype(np.int64),
        {"record_offset": events["record_offset"], "ordering_offset": events[order]},
        (keys["producer_id"], events["producer_epoch"], events["is_committed"].view(np.bool_)),
        source,
    )
    return _table(
        fold.OFFSET_KEYS,
        {
            **{name: column(events[name]) for name in ("group", "topic", "partition", "kind", "sequence")},
            "last_tombstone": column(keys["last_tombstone"]),
            **values,
        },
    )


def _pending(tables: FoldTables, source: SegmentBytes) -> pa.Table:
    used = _used(tables.pending, tables.pending_used)
    rows = spread_columns(used[used["phase"] != Phase.FREE])
    is_open = rows["phase"] == Phase.OPEN
    is_value = is_open & (rows["kind"] == PendingKind.VALUE)
    producer_ids = array_of(tables.producers)["producer_id"][rows["producer"]]
    values = _values(
        rows["value"],
        rows["value_bytes"] * is_value,
        {"record_offset": rows["record_offset"] * is_value, "ordering_offset": rows["ordering_offset"] * is_value},
        (producer_ids * is_value, (rows["producer_epoch"] * is_value).astype(np.int16), is_value),
        source,
    )
    return _table(
        fold.PENDING,
        {
            "key": column(rows["key"].astype(np.int32)),
            "producer": column(rows["producer"].astype(np.int32)),
            "kind": column(rows["kind"].astype(np.int8)),
            "open": column(is_open),
            **values,
        },
    )


def _producers(tables: FoldTables) -> pa.Table:
    rows = spread_columns(_used(tables.producers, tables.producer_ids.used))
    is_open = rows["is_open"] != 0
    open_only = {
        name: np.where(is_open, rows[name], 0)
        for name in ("producer_epoch", "first_offset", "last_offset", "timestamp")
    }
    return _table(
        fold.PRODUCERS,
        {
            "producer_id": column(rows["producer_id"]),
            "first_marker": column(rows["first_marker"]),
            "first_marker_offset": column(rows["first_marker_offset"]),
            "first_marker_commits": column(rows["first_marker_commits"] != 0),
            "open": column(is_open),
            "producer_epoch": column(open_only["producer_epoch"].astype(np.int16)),
            "first_record_offset": column(open_only["first_offset"]),
            "last_record_offset": column(open_only["last_offset"]),
            "timestamp_ms": column(open_only["timestamp"]),
        },
    )


def _transactions(tables: FoldTables) -> pa.Table:
    rows = spread_columns(_used(tables.fragments, tables.fragments_used))
    # Groups were appended fragment by fragment.
    groups = spread_columns(_used(tables.fragment_groups, tables.fragment_groups_used))
    starts = np.searchsorted(groups["fragment"], np.arange(tables.fragments_used + 1))
    lists = pa.LargeListArray.from_arrays(column(starts.astype(np.int64)), column(groups["group"].astype(np.int32)))
    return _table(
        fold.TRANSACTIONS,
        {
            "producer_id": column(rows["producer_id"]),
            "producer_epoch": column(rows["producer_epoch"].astype(np.int16)),
            "first_record_offset": column(rows["first_offset"]),
            "last_record_offset": column(rows["last_offset"]),
            "timestamp_ms": column(rows["timestamp"]),
            "end_marker_offset": column(rows["marker_offset"]),
            "committed": column(rows["committed"] != 0),
            "keys": column(rows["keys"]),
            "first": column(rows["first"] != 0),
            "groups": lists.cast(fold.TRANSACTIONS.field("groups").type),
        },
    )


def _group_records(tables: FoldTables) -> pa.Table:
    """A table with a chunk for each block."""
    batches = []
    for block, keys, values in tables.group_blocks:
        rows = spread_columns(block)
        columns = {
            "sequence": column(rows["sequence"]),
            "record_offset": column(rows["record_offset"]),
            "key": binary(keys, rows["key_bytes"]),
            "value": binary(values, rows["value_bytes"]),
            "timestamp_ms": column(rows["timestamp"]),
            "size_bytes": column(rows["size_bytes"]),
            "group": column(rows["group"].astype(np.int32), rows["group"] < 0),
            "control": column(rows["key_type"] == CONTROL_KEY),
        }
        arrays = [columns[name] for name in fold.GROUP_RECORDS.names]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=fold.GROUP_RECORDS))
    return pa.Table.from_batches(batches, fold.GROUP_RECORDS)


def _implicit_group_creations(tables: FoldTables) -> pa.Table:
    rows = spread_columns(_used(tables.creations, tables.creations_used))
    return _table(
        fold.IMPLICIT_GROUP_CREATIONS,
        {
            "sequence": column(rows["sequence"]),
            "record_offset": column(rows["record_offset"]),
            "group": column(rows["group"].astype(np.int32)),
        },
    )


_STATISTICS = ("records", "tombstones", "size_bytes", "first_timestamp", "last_timestamp")


def _group_stats(tables: FoldTables) -> pa.Table:
    """Statistics of commits as the kernel kept them, of group records from their rows."""
    groups = _used(tables.statistics, KEY_TYPES * tables.group_ids.used)
    parts: list[tuple[Int64s, ...]] = []
    for key_type in range(KEY_TYPES):
        rows = groups[key_type::KEY_TYPES]
        seen = np.flatnonzero(rows["records"])
        columns = [rows[name][seen] for name in _STATISTICS]
        parts.append((seen, np.full(len(seen), key_type, np.int64), *columns))
    if tables.group_blocks:
        parts.append(_group_record_stats([rows for rows, *_ in tables.group_blocks]))
    group, key_type_of, *statistics = (np.concatenate(column) for column in zip(*parts, strict=True))
    names = fold.GROUP_STATS.names[2:]
    return _table(
        fold.GROUP_STATS,
        {
            **{name: column(array) for name, array in zip(names, statistics, strict=True)},
            "group": column(group.astype(np.int32)),
            "key_type": column(key_type_of.astype(np.int16)),
        },
    )


def _group_record_stats(blocks: Sequence[npt.NDArray[Any]]) -> tuple[Int64s, ...]:
    """The columns of statistics that group records make, in the order of groups and key types."""
    names = ("group", "key_type", "value_bytes", "size_bytes", "timestamp")
    group, key_type, value_bytes, size_bytes, timestamp = (
        np.concatenate([rows[name] for rows in blocks]) for name in names
    )
    counted = np.flatnonzero((group >= 0) & (key_type > NO_KEY_TYPE))
    pairs = (group[counted] << 16) | (key_type[counted] & 0xFFFF)
    order = np.argsort(pairs, kind="stable")
    starts = np.flatnonzero(np.diff(pairs[order], prepend=-1))
    rows = counted[order]
    first, last = rows[starts], rows[np.append(starts[1:], len(rows))[: len(starts)] - 1]
    # ``reduceat`` wants a row.
    is_tombstone, sizes = (value_bytes[rows] < 0).astype(np.int64), size_bytes[rows]
    return (
        group[first],
        key_type[first],
        np.diff(starts, append=len(rows)),
        *(np.add.reduceat(numbers, starts) if len(rows) else numbers for numbers in (is_tombstone, sizes)),
        timestamp[first],
        timestamp[last],
    )


def _counts(tables: FoldTables) -> SegmentCounts:
    messages = array_of(tables.messages).tolist()
    formats = [*messages, tables.batches - sum(messages)]
    by_codec = array_of(tables.codecs)
    by_version = array_of(tables.commits).reshape(KEY_TYPES, COMMIT_VERSIONS)
    records = tables.sequence - tables.segment_sequence
    has_records = records > tables.control_records
    return SegmentCounts(
        batches=tables.batches,
        records=records,
        control_records=tables.control_records,
        min_timestamp_ms=tables.min_timestamp if has_records else None,
        max_timestamp_ms=tables.max_timestamp if has_records else None,
        codecs={codec.name.lower(): int(by_codec[codec]) for codec in Codec if by_codec[codec]},
        formats={magic: batches for magic, batches in enumerate(formats) if batches},
        commits={
            (int(key_type), int(place) - 1 if place else None): int(by_version[key_type, place])
            for key_type, place in zip(*np.nonzero(by_version), strict=True)
        },
    )
