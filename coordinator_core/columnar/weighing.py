"""Compiled part of forensics: how many records and bytes each raw key has in a log, and what of it lives.

As the other kernels this one handles what a healthy log consists of, uncompressed v2 batches that were
checked before, and stops at anything else, which its caller brings into that form.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from coordinator_core.columnar import types
from coordinator_core.columnar.batches import Stop
from coordinator_core.columnar.bytestrings import (
    INVALID,
    copy_bytes,
    find,
    hash_bytes,
    index_entry,
    varint,
    varlong,
)
from coordinator_core.columnar.compiling import inlined, kernel
from coordinator_core.columnar.intrinsics import be32, be64
from coordinator_core.columnar.tables import (
    BYTES_TYPE,
    MUTABLE_BYTES_TYPE,
    Bytes,
    Int,
    Int64s,
    Interned,
)
from coordinator_core.log.layout import CODEC_BITS, CONTROL_BIT, HEADER_BYTES, LOG_APPEND_TIME_BIT


class Weighed(IntEnum):
    """Positions in ``WeightTables.state``."""

    ROWS = 0
    KEY_BYTES = 1
    POSITION = 2
    KEPT = 3
    """First of ``kept`` not yet passed."""
    SIZE = 4


class WeightRow(IntEnum):
    """Columns of ``WeightTables.rows``, after those of ``Interned``."""

    RECORDS = 3
    TOMBSTONES = 4
    SIZE_BYTES = 5
    LIVE_RECORDS = 6
    LIVE_BYTES = 7
    FIRST_TIMESTAMP = 8
    LAST_TIMESTAMP = 9
    WIDTH = 10


class WeightTables(NamedTuple):
    """The weight of each raw key; records without a key have the empty one."""

    state: Int64s
    places: Int64s
    rows: Int64s
    keys: Bytes


_VECTOR = types.Array(types.int64, 1)
_TABLE = types.Array(types.int64, 2)
_TABLES = types.NamedTuple((_VECTOR, _VECTOR, _TABLE, MUTABLE_BYTES_TYPE), WeightTables)


@inlined
def _is_plain(data: Any, at: Int, end: Int, count: Int) -> Any:
    """Whether ``count`` records take the bytes from ``at`` to ``end``, each as far as its value's length."""
    for _ in range(count):
        length, at = varint(data, at, end)
        if at == INVALID or length < 0 or at + length > end:
            return False
        following = at + length
        _, at = varlong(data, at + 1, following)
        if at == INVALID:
            return False
        _, at = varint(data, at, following)
        if at == INVALID:
            return False
        key_bytes, at = varint(data, at, following)
        if at == INVALID or at + max(key_bytes, 0) > following:
            return False
        _, at = varint(data, at + max(key_bytes, 0), following)
        if at == INVALID:
            return False
        at = following
    return at == end


@inlined
def _row(data: Any, key: Int, key_bytes: Int, tables: Any) -> Int:
    hashed = hash_bytes(data, key, key_bytes)
    row, place = find(data, key, key_bytes, hashed, tables.places, tables.rows, tables.keys)
    if row >= 0:
        return row
    state, rows = tables.state, tables.rows
    stored = state[Weighed.KEY_BYTES]
    copy_bytes(data, key, tables.keys, stored, key_bytes)
    state[Weighed.KEY_BYTES] = stored + key_bytes
    row = state[Weighed.ROWS]
    state[Weighed.ROWS] = row + 1
    tables.places[place] = index_entry(hashed, row)
    rows[row, Interned.HASH] = hashed
    rows[row, Interned.BODY] = stored
    rows[row, Interned.BODY_BYTES] = key_bytes
    for column in range(WeightRow.RECORDS, WeightRow.WIDTH):
        rows[row, column] = 0
    return row


@kernel(
    types.int64(BYTES_TYPE, types.int64, types.int64, types.int64, types.int64, _VECTOR, _VECTOR, _TABLES)
)
def weigh_batches(
    data: Any, start: Int, stop: Int, start_offset: Int, end_offset: Int, kept: Any, sizes: Any, tables: Any
) -> Int:
    """Add the records of the batches in ``data[start:stop]``, from ``start_offset`` on.

    A record lives when its offset is among ``kept`` (ascending), or is ``end_offset`` or above. ``sizes`` are
    those of the records of the one batch there is; without them, a record's size is what it takes there.
    """
    state, rows = tables.state, tables.rows
    position = start
    status = Stop.END
    while position < stop:
        if data[position + 16] != 2:
            status = Stop.ODD
            break
        size = be32(data, position + 8) + 12
        base_offset = be64(data, position)
        attributes = np.int64(data[position + 22])
        count = be32(data, position + 57)
        if attributes & CONTROL_BIT != 0 or base_offset + be32(data, position + 23) < start_offset:
            position += size
            continue
        if attributes & CODEC_BITS != 0 and count != 0:
            status = Stop.ODD
            break
        if state[Weighed.ROWS] + count > min(len(rows), len(tables.places) // 2) or state[
            Weighed.KEY_BYTES
        ] + size > len(tables.keys):
            status = Stop.GROW
            break
        end = position + size
        if not _is_plain(data, position + HEADER_BYTES, end, count):
            status = Stop.ODD
            break
        base_timestamp = be64(data, position + 27)
        append_time = be64(data, position + 35)
        at = position + HEADER_BYTES
        for index in range(count):
            first = at
            length, at = varint(data, at, end)
            following = at + length
            delta, at = varlong(data, at + 1, end)
            offset_delta, at = varint(data, at, end)
            key_bytes, key = varint(data, at, end)
            value_bytes, at = varint(data, key + max(key_bytes, 0), end)
            at = following
            offset = base_offset + offset_delta
            if offset < start_offset:
                continue
            row = _row(data, key, max(key_bytes, 0), tables)
            weight = sizes[index] if len(sizes) != 0 else following - first
            timestamp = append_time if attributes & LOG_APPEND_TIME_BIT != 0 else base_timestamp + delta
            if rows[row, WeightRow.RECORDS] == 0:
                rows[row, WeightRow.FIRST_TIMESTAMP] = timestamp
            rows[row, WeightRow.LAST_TIMESTAMP] = timestamp
            rows[row, WeightRow.RECORDS] += 1
            rows[row, WeightRow.SIZE_BYTES] += weight
            if value_bytes < 0:
                rows[row, WeightRow.TOMBSTONES] += 1
            while state[Weighed.KEPT] < len(kept) and kept[state[Weighed.KEPT]] < offset:
                state[Weighed.KEPT] += 1
            if offset >= end_offset or (
                state[Weighed.KEPT] < len(kept) and kept[state[Weighed.KEPT]] == offset
            ):
                rows[row, WeightRow.LIVE_RECORDS] += 1
                rows[row, WeightRow.LIVE_BYTES] += weight
        position = end
    state[Weighed.POSITION] = position
    return status
