"""Compiled second pass of compaction: the newest record of every raw key.

What a record means is not known here: keys are bytes, as they are to the broker's cleaner
(``Cleaner.buildOffsetMap``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from coordinator_core.columnar import types
from coordinator_core.columnar.batches import Stop, delete_horizon
from coordinator_core.columnar.bytestrings import (
    INVALID,
    copy_bytes,
    find,
    hash_bytes,
    index_entry,
    likely_row,
    varint,
    varlong,
)
from coordinator_core.columnar.compiling import called, inlined, kernel
from coordinator_core.columnar.intrinsics import be32, be64, prefetch
from coordinator_core.columnar.tables import BYTES_TYPE, MUTABLE_BYTES_TYPE, Bytes, Int, Int64s, Interned
from coordinator_core.log.layout import CODEC_BITS, CONTROL_BIT, HEADER_BYTES, MIN_RECORD_BYTES

_RECORDS_AT_A_TIME = 128


class KeyState(IntEnum):
    """Positions in ``KeyTables.state``."""

    ROWS = 0
    KEY_BYTES = 1
    UNKEYED = 2
    POSITION = 3
    ABORTED = 4
    """First of ``aborted`` not yet passed."""
    NEED_RECORDS = 5
    NEED_BYTES = 6
    RECORDS = 7
    SIZE = 8


class KeyRow(IntEnum):
    """Columns of ``KeyTables.rows``, after those of ``Interned``: record offsets, -1 for none."""

    NEWEST = 3
    """The newest record of the key that no abort undid."""
    TOMBSTONE = 4
    """Whether that has no value."""
    HORIZON = 5
    """Delete horizon of its batch."""
    VALUE = 6
    """The newest record with a value that no abort undid."""
    ABORTED = 7
    """The newest record with a value that an abort undid."""
    WIDTH = 8


class _Scratch(IntEnum):
    OFFSET = 0
    KEY = 1
    KEY_BYTES = 2
    TOMBSTONE = 3
    HORIZON = 4
    ABORTED = 5
    HASH = 6
    WIDTH = 7


class KeyTables(NamedTuple):
    """The newest records by key. ``unkeyed`` are the offsets of records without a key."""

    state: Int64s
    scratch: Int64s
    places: Int64s
    rows: Int64s
    keys: Bytes
    unkeyed: Int64s


_VECTOR = types.Array(types.int64, 1)
_TABLE = types.Array(types.int64, 2)
_KEY_TABLES = types.NamedTuple((_VECTOR, _TABLE, _VECTOR, _TABLE, MUTABLE_BYTES_TYPE, _VECTOR), KeyTables)


@inlined
def _split(data: Any, batch: Int, stop: Int, first: Int, count: Int, aborted: Int, scratch: Any) -> Any:
    """Split the records of a batch into ``scratch`` from ``first`` on; False if one of them is unusual."""
    base_offset = be64(data, batch)
    last_offset_delta = be32(data, batch + 23)
    horizon = delete_horizon(data, batch)
    previous_delta = -1
    at = batch + HEADER_BYTES
    for index in range(first, first + count):
        length, at = varint(data, at, stop)
        if at == INVALID or length < 0 or at + length > stop:
            return False
        end = at + length
        _, at = varlong(data, at + 1, end)
        if at == INVALID:
            return False
        offset_delta, at = varint(data, at, end)
        if at == INVALID or offset_delta <= previous_delta or offset_delta > last_offset_delta:
            return False
        previous_delta = offset_delta
        key_bytes, key = varint(data, at, end)
        if key == INVALID or key + max(key_bytes, 0) > end:
            return False
        value_bytes, value = varint(data, key + max(key_bytes, 0), end)
        if value == INVALID:
            return False
        at = value + max(value_bytes, 0)
        if at + 1 != end or data[at] != 0:
            return False
        at = end
        scratch[index, _Scratch.OFFSET] = base_offset + offset_delta
        scratch[index, _Scratch.KEY] = key
        scratch[index, _Scratch.KEY_BYTES] = max(key_bytes, -1)
        scratch[index, _Scratch.TOMBSTONE] = 1 if value_bytes < 0 else 0
        scratch[index, _Scratch.HORIZON] = horizon
        scratch[index, _Scratch.ABORTED] = aborted
    return at == stop


@inlined
def _put_keys(data: Any, count: Int, tables: Any) -> None:
    """Enter the records in ``scratch``. What the look-up will touch is fetched beforehand."""
    scratch, index, rows, state = tables.scratch, tables.places, tables.rows, tables.state
    for record in range(count):
        if scratch[record, _Scratch.KEY_BYTES] >= 0:
            hashed = hash_bytes(data, scratch[record, _Scratch.KEY], scratch[record, _Scratch.KEY_BYTES])
            scratch[record, _Scratch.HASH] = hashed
            prefetch(index, hashed & (len(index) - 1))
    for record in range(count):
        if scratch[record, _Scratch.KEY_BYTES] >= 0:
            row = likely_row(scratch[record, _Scratch.HASH], index)
            if row >= 0:
                prefetch(rows, row * KeyRow.WIDTH)
    for record in range(count):
        if scratch[record, _Scratch.KEY_BYTES] >= 0:
            row = likely_row(scratch[record, _Scratch.HASH], index)
            if row >= 0:
                prefetch(tables.keys, rows[row, Interned.BODY])
                prefetch(tables.keys, rows[row, Interned.BODY] + 64)
    for record in range(count):
        offset = scratch[record, _Scratch.OFFSET]
        if scratch[record, _Scratch.KEY_BYTES] < 0:
            tables.unkeyed[state[KeyState.UNKEYED]] = offset
            state[KeyState.UNKEYED] += 1
            continue
        row = _key_row(
            data,
            scratch[record, _Scratch.KEY],
            scratch[record, _Scratch.KEY_BYTES],
            scratch[record, _Scratch.HASH],
            tables,
        )
        if scratch[record, _Scratch.ABORTED] != 0:
            if scratch[record, _Scratch.TOMBSTONE] == 0:
                rows[row, KeyRow.ABORTED] = offset
            continue
        rows[row, KeyRow.NEWEST] = offset
        rows[row, KeyRow.TOMBSTONE] = scratch[record, _Scratch.TOMBSTONE]
        rows[row, KeyRow.HORIZON] = scratch[record, _Scratch.HORIZON]
        if scratch[record, _Scratch.TOMBSTONE] == 0:
            rows[row, KeyRow.VALUE] = offset
    state[KeyState.RECORDS] += count


@inlined
def _key_row(data: Any, key: Int, key_bytes: Int, hashed: Int, tables: Any) -> Int:
    rows, state = tables.rows, tables.state
    row, place = find(data, key, key_bytes, hashed, tables.places, rows, tables.keys)
    if row >= 0:
        return row
    stored = state[KeyState.KEY_BYTES]
    copy_bytes(data, key, tables.keys, stored, key_bytes)
    state[KeyState.KEY_BYTES] = stored + key_bytes
    row = state[KeyState.ROWS]
    state[KeyState.ROWS] = row + 1
    tables.places[place] = index_entry(hashed, row)
    rows[row, Interned.HASH] = hashed
    rows[row, Interned.BODY] = stored
    rows[row, Interned.BODY_BYTES] = key_bytes
    rows[row, KeyRow.NEWEST] = -1
    rows[row, KeyRow.TOMBSTONE] = 0
    rows[row, KeyRow.HORIZON] = -1
    rows[row, KeyRow.VALUE] = -1
    rows[row, KeyRow.ABORTED] = -1
    return row


@called
def _has_room(count: Int, size: Int, tables: Any) -> bool:
    """Whether ``count`` records in ``size`` bytes surely have room."""
    state = tables.state
    if (
        count <= len(tables.scratch)
        and state[KeyState.ROWS] + count <= min(len(tables.rows), len(tables.places) // 2)
        and state[KeyState.KEY_BYTES] + size <= len(tables.keys)
        and state[KeyState.UNKEYED] + count <= len(tables.unkeyed)
    ):
        return True
    state[KeyState.NEED_RECORDS] = count
    state[KeyState.NEED_BYTES] = size
    return False


@kernel(types.int64(BYTES_TYPE, types.int64, types.int64, types.int64, types.int64, _VECTOR, _KEY_TABLES))
def newest_keys(
    data: Any, start: Int, stop: Int, start_offset: Int, end_offset: Int, aborted: Any, tables: Any
) -> Int:
    """Enter the records of the checked batches in ``data[start:stop]`` that lie in the given offsets.

    ``aborted`` are the base offsets, ascending, of batches whose transactions were aborted.
    """
    state = tables.state
    position = start
    status = Stop.END
    while status == Stop.END and position < stop:
        records, first = 0, position
        while position < stop and records < _RECORDS_AT_A_TIME:
            if data[position + 16] != 2:
                status = Stop.ODD
                break
            size = be32(data, position + 8) + 12
            base_offset = be64(data, position)
            if base_offset >= end_offset:
                stop = position
                break
            attributes = np.int64(data[position + 22])
            count = be32(data, position + 57)
            if (
                attributes & CONTROL_BIT != 0
                or count == 0
                or base_offset + be32(data, position + 23) < start_offset
            ):
                position += size
                continue
            if attributes & CODEC_BITS != 0 or count * MIN_RECORD_BYTES > size - HEADER_BYTES:
                status = Stop.ODD
                break
            if not _has_room(records + count, position + size - first, tables):
                status = Stop.GROW
                break
            while state[KeyState.ABORTED] < len(aborted) and aborted[state[KeyState.ABORTED]] < base_offset:
                state[KeyState.ABORTED] += 1
            is_aborted = (
                1
                if state[KeyState.ABORTED] < len(aborted) and aborted[state[KeyState.ABORTED]] == base_offset
                else 0
            )
            if not _split(data, position, position + size, records, count, is_aborted, tables.scratch):
                status = Stop.ODD
                break
            records += count
            position += size
        _put_keys(data, records, tables)
    state[KeyState.POSITION] = position
    return status


@kernel(types.int64(_KEY_TABLES, types.int64, _KEY_TABLES))
def merge_keys(later: Any, start: Int, tables: Any) -> Int:
    """Enter the rows of ``later`` from ``start`` on into ``tables``, which hold an earlier part of the log.

    Returns the row at which it stopped for want of room.
    """
    rows = tables.rows
    for source in range(start, later.state[KeyState.ROWS]):
        if not _has_room(1, later.rows[source, Interned.BODY_BYTES], tables):
            return source
        row = _key_row(
            later.keys,
            later.rows[source, Interned.BODY],
            later.rows[source, Interned.BODY_BYTES],
            later.rows[source, Interned.HASH],
            tables,
        )
        if later.rows[source, KeyRow.NEWEST] >= 0:
            for column in range(KeyRow.NEWEST, KeyRow.VALUE):
                rows[row, column] = later.rows[source, column]
        rows[row, KeyRow.VALUE] = max(rows[row, KeyRow.VALUE], later.rows[source, KeyRow.VALUE])
        rows[row, KeyRow.ABORTED] = max(rows[row, KeyRow.ABORTED], later.rows[source, KeyRow.ABORTED])
    return later.state[KeyState.ROWS]
