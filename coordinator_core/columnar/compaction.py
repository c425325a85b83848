"""Compiled part of compaction: the newest record of every raw key, and what is then left of each batch.

As the fold's kernels these handle what a healthy log consists of and stop at the first batch that is anything
else, for the readers and writers of ``coordinator_core.log`` to deal with. They do not know what a record
means: keys are bytes, as they are to the broker's cleaner (``Cleaner.buildOffsetMap``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from coordinator_core.columnar import types
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
from coordinator_core.columnar.intrinsics import be16, be32, be64, crc32c, prefetch
from coordinator_core.columnar.kernels import sound_size
from coordinator_core.columnar.tables import (
    BYTES_TYPE,
    MUTABLE_BYTES_TYPE,
    Bytes,
    Int,
    Int64s,
    Interned,
)
from coordinator_core.log.layout import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MIN_RECORD_BYTES,
)

_RECORDS_AT_A_TIME = 128
_LOWEST = -(1 << 63)
NOT_A_MARKER = -(1 << 15) - 1
"""``BatchRow.CONTROL_TYPE`` of a batch that is no control batch, or is empty."""
ASK = -(1 << 15) - 2
"""``BatchRow.CONTROL_TYPE`` of a control batch that takes more than a look."""


class Stop(IntEnum):
    """Why a kernel returned."""

    END = 0
    GROW = 1
    """A table is too small, or ``out`` is full."""
    ODD = 2
    """The batch at the position is not for this kernel."""


class Survey(IntEnum):
    """Positions in the state of :func:`survey_log`."""

    POSITION = 0
    EXPECTED = 1
    """Offset behind the last batch."""
    ROWS = 2
    BATCHES = 3
    RECORDS = 4
    LEADER_EPOCH = 5
    """Of the last batch; a batch with another one gets a row."""
    LAST_BASE_OFFSET = 6
    """Base offset of the last batch, -1 for none."""
    SIZE = 7


class BatchRow(IntEnum):
    """Columns of what :func:`survey_log` notes: batches with a producer id, control batches, new epochs."""

    BASE_OFFSET = 0
    LAST_OFFSET = 1
    ATTRIBUTES = 2
    RECORDS = 3
    PRODUCER_ID = 4
    PRODUCER_EPOCH = 5
    MAX_TIMESTAMP = 6
    HORIZON = 7
    """Delete horizon, -1 for none."""
    CONTROL_TYPE = 8
    LEADER_EPOCH = 9
    POSITION = 10
    """In its segment."""
    SEGMENT = 11
    """Filled in by the caller."""
    WIDTH = 12


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


class Action(IntEnum):
    """What becomes of a batch, where that does not follow from its records."""

    COPY = 1
    DROP = 2
    KEEP_EMPTY = 3
    """Keep it without records if none of them stays."""
    SET_HORIZON = 4
    """Keep all records and set the horizon."""


class ActionRow(IntEnum):
    """Columns of ``actions``, sorted by base offset."""

    BASE_OFFSET = 0
    ACTION = 1
    WIDTH = 2


class Filter(IntEnum):
    """Positions in the state of :func:`filter_batches`."""

    POSITION = 0
    KEPT = 1
    """First of ``kept`` not yet passed."""
    ACTION = 2
    """First of ``actions`` not yet passed."""
    OUT = 3
    """Bytes in ``out``."""
    WRITTEN = 4
    """Rows in ``written``."""
    NEXT_OFFSET = 5
    """Offset of the next record, when records are numbered anew."""
    SIZE = 6


class WrittenRow(IntEnum):
    """Columns of ``written``: batches in ``out``."""

    POSITION = 0
    BASE_OFFSET = 1
    LAST_OFFSET = 2
    RECORDS = 3
    SOURCE_BASE_OFFSET = 4
    WIDTH = 5


class Setting(IntEnum):
    """Positions in the settings of :func:`filter_batches`."""

    START_OFFSET = 0
    END_OFFSET = 1
    HORIZON = 2
    """Set on batches that keep tombstones and have none."""
    RENUMBER = 3
    SIZE = 4


_COPY, _DROP, _KEEP_EMPTY, _SET_HORIZON = map(int, Action)
_VECTOR = types.Array(types.int64, 1)
_TABLE = types.Array(types.int64, 2)
_KEY_TABLES = types.NamedTuple((_VECTOR, _TABLE, _VECTOR, _TABLE, MUTABLE_BYTES_TYPE, _VECTOR), KeyTables)


@inlined
def _control_type(data: Any, position: Int, stop: Int, count: Int, attributes: Int) -> Int:
    """Type of the one control record of a batch, ``ASK`` when it is not as plain as that."""
    if count != 1 or attributes & CODEC_BITS != 0:
        return ASK
    length, at = varint(data, position + HEADER_BYTES, stop)
    if at == INVALID or length < 0 or at + length != stop:
        return ASK
    _, at = varlong(data, at + 1, stop)
    if at == INVALID:
        return ASK
    _, at = varint(data, at, stop)
    if at == INVALID:
        return ASK
    key_bytes, at = varint(data, at, stop)
    if at == INVALID or key_bytes < 4 or at + key_bytes > stop or be16(data, at) < 0:
        return ASK
    return be16(data, at + 2)


@inlined
def _horizon(data: Any, position: Int) -> Int:
    return be64(data, position + 27) if np.int64(data[position + 22]) & DELETE_HORIZON_BIT != 0 else -1


@kernel(types.int64(BYTES_TYPE, types.int64, types.int64, _VECTOR, _VECTOR, _TABLE))
def survey_log(data: Any, start: Int, stop: Int, rules: Any, state: Any, rows: Any) -> Int:
    """Check the v2 batches in ``data[start:stop]`` and note in ``rows`` those that decide about others.

    Returns a :class:`Stop`; ``ODD`` at anything but a sound batch.
    """
    position = start
    status = Stop.END
    while position < stop:
        if state[Survey.ROWS] == len(rows):
            status = Stop.GROW
            break
        size = sound_size(data, position, stop, state[Survey.EXPECTED], False, rules)
        if size == 0:
            status = Stop.ODD
            break
        base_offset = be64(data, position)
        last_offset = base_offset + be32(data, position + 23)
        attributes = np.int64(data[position + 22])
        count = be32(data, position + 57)
        leader_epoch = be32(data, position + 12)
        producer_id = be64(data, position + 43)
        if producer_id != -1 or attributes & CONTROL_BIT != 0 or leader_epoch != state[Survey.LEADER_EPOCH]:
            row = state[Survey.ROWS]
            state[Survey.ROWS] = row + 1
            rows[row, BatchRow.BASE_OFFSET] = base_offset
            rows[row, BatchRow.LAST_OFFSET] = last_offset
            rows[row, BatchRow.ATTRIBUTES] = attributes
            rows[row, BatchRow.RECORDS] = count
            rows[row, BatchRow.PRODUCER_ID] = producer_id
            rows[row, BatchRow.PRODUCER_EPOCH] = be16(data, position + 51)
            rows[row, BatchRow.MAX_TIMESTAMP] = be64(data, position + 35)
            rows[row, BatchRow.HORIZON] = _horizon(data, position)
            rows[row, BatchRow.CONTROL_TYPE] = NOT_A_MARKER
            if attributes & CONTROL_BIT != 0 and count != 0:
                control = _control_type(data, position, position + size, count, attributes)
                rows[row, BatchRow.CONTROL_TYPE] = control
            rows[row, BatchRow.LEADER_EPOCH] = leader_epoch
            rows[row, BatchRow.POSITION] = position
        state[Survey.LEADER_EPOCH] = leader_epoch
        state[Survey.LAST_BASE_OFFSET] = base_offset
        state[Survey.EXPECTED] = last_offset + 1
        state[Survey.BATCHES] += 1
        state[Survey.RECORDS] += count
        position += size
    state[Survey.POSITION] = position
    return status


@inlined
def _split(data: Any, batch: Int, stop: Int, first: Int, count: Int, aborted: Int, scratch: Any) -> Any:
    """Split the records of a batch into ``scratch`` from ``first`` on; False if one of them is unusual."""
    base_offset = be64(data, batch)
    last_offset_delta = be32(data, batch + 23)
    horizon = _horizon(data, batch)
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


@inlined
def _put_be(out: Any, at: Int, value: Int, size: Int) -> None:
    for byte in range(size):
        out[at + byte] = (value >> (8 * (size - 1 - byte))) & 0xFF


@inlined
def _varint_bytes(value: Int) -> Int:
    word = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)
    size = 1
    while word > np.uint64(0x7F):
        word >>= np.uint64(7)
        size += 1
    return size


@inlined
def _put_varint(out: Any, at: Int, value: Int) -> Int:
    word = (np.uint64(value) << np.uint64(1)) ^ np.uint64(value >> 63)
    while word > np.uint64(0x7F):
        out[at] = np.int64(word & np.uint64(0x7F)) | 0x80
        word >>= np.uint64(7)
        at += 1
    out[at] = np.int64(word)
    return at + 1


@inlined
def _put_header(
    data: Any, batch: Int, out: Any, at: Int, end: Int, base_offset: Int, last_delta: Int, attributes: Int
) -> None:
    """The header of ``batch`` in ``out``, but for the timestamps and the number of records."""
    for byte in range(HEADER_BYTES):
        out[at + byte] = data[batch + byte]
    _put_be(out, at, base_offset, 8)
    _put_be(out, at + 8, end - at - 12, 4)
    out[at + 22] = attributes
    _put_be(out, at + 23, last_delta, 4)


@called
def _rebuild(
    data: Any,
    batch: Int,
    horizon: Int,
    keep_all: bool,
    first: Int,
    kept: Any,
    renumbered: Any,
    next_offset: Int,
    out: Any,
    at: Int,
) -> Int:
    """Write what stays of ``batch`` at ``at``: its records in ``kept`` from ``first`` on; returns the end.

    ``next_offset`` is -1, or the offset that the first record gets.
    """
    attributes = np.int64(data[batch + 22])
    base_offset = be64(data, batch)
    base_timestamp = be64(data, batch + 27)
    append_time = be64(data, batch + 35)
    count = be32(data, batch + 57)
    if attributes & DELETE_HORIZON_BIT != 0:
        horizon = base_timestamp
    new_base = horizon
    highest = _LOWEST
    written, place = 0, first
    position = batch + HEADER_BYTES
    end = batch + be32(data, batch + 8) + 12
    target = at + HEADER_BYTES
    for _ in range(count):
        length, position = varint(data, position, end)
        stop = position + length
        delta, position = varlong(data, position + 1, stop)
        offset_delta, position = varint(data, position, stop)
        if keep_all or (place < len(kept) and kept[place] == base_offset + offset_delta):
            timestamp = append_time if attributes & LOG_APPEND_TIME_BIT != 0 else base_timestamp + delta
            if written == 0 and new_base < 0:
                new_base = timestamp
            highest = max(highest, timestamp)
            new_delta = written if next_offset >= 0 else offset_delta
            if not keep_all:
                renumbered[place] = next_offset + written if next_offset >= 0 else kept[place]
            tail = stop - position
            body = 1 + _varint_bytes(timestamp - new_base) + _varint_bytes(new_delta) + tail
            target = _put_varint(out, target, body)
            out[target] = 0
            target = _put_varint(out, target + 1, timestamp - new_base)
            target = _put_varint(out, target, new_delta)
            copy_bytes(data, position, out, target, tail)
            target += tail
            written += 1
            place += 1
        position = stop
    if horizon >= 0:
        attributes |= DELETE_HORIZON_BIT
    last_delta = be32(data, batch + 23)
    if next_offset >= 0:
        base_offset, last_delta = next_offset, written - 1
    _put_header(data, batch, out, at, target, base_offset, last_delta, attributes)
    _put_be(out, at + 27, new_base, 8)
    _put_be(out, at + 35, highest, 8)
    _put_be(out, at + 57, written, 4)
    _put_be(out, at + 17, crc32c(out, at + 21, target), 4)
    return target


@called
def _put_empty(data: Any, batch: Int, next_offset: Int, out: Any, at: Int) -> Int:
    attributes = np.int64(data[batch + 22]) & ~(CODEC_BITS | DELETE_HORIZON_BIT)
    base_offset, last_delta = be64(data, batch), be32(data, batch + 23)
    if next_offset >= 0:
        base_offset, last_delta = next_offset, 0
    _put_header(data, batch, out, at, at + HEADER_BYTES, base_offset, last_delta, attributes)
    _put_be(out, at + 27, -1, 8)
    _put_be(out, at + 57, 0, 4)
    _put_be(out, at + 17, crc32c(out, at + 21, at + HEADER_BYTES), 4)
    return at + HEADER_BYTES


@inlined
def _note(
    written: Any, state: Any, position: Int, base_offset: Int, last_offset: Int, records: Int, source: Int
) -> None:
    row = state[Filter.WRITTEN]
    state[Filter.WRITTEN] = row + 1
    written[row, WrittenRow.POSITION] = position
    written[row, WrittenRow.BASE_OFFSET] = base_offset
    written[row, WrittenRow.LAST_OFFSET] = last_offset
    written[row, WrittenRow.RECORDS] = records
    written[row, WrittenRow.SOURCE_BASE_OFFSET] = source


@kernel(
    types.int64(
        BYTES_TYPE,
        types.int64,
        types.int64,
        _VECTOR,
        _VECTOR,
        MUTABLE_BYTES_TYPE,
        _VECTOR,
        _TABLE,
        MUTABLE_BYTES_TYPE,
        _TABLE,
        _VECTOR,
    )
)
def filter_batches(
    data: Any,
    start: Int,
    stop: Int,
    settings: Any,
    kept: Any,
    tombstones: Any,
    renumbered: Any,
    actions: Any,
    out: Any,
    written: Any,
    state: Any,
) -> Int:
    """Write what stays of the checked batches in ``data[start:stop]`` to ``out``.

    ``kept`` are the offsets of records that stay, ascending; ``tombstones`` tells which have no value;
    ``renumbered`` gets their offsets in ``out``. ``settings`` are those of :class:`Setting`. ``ODD`` is
    returned at batches whose records must be read or written otherwise.
    """
    position = start
    status = Stop.END
    renumber = settings[Setting.RENUMBER] != 0
    while position < stop:
        if data[position + 16] != 2:
            status = Stop.ODD
            break
        size = be32(data, position + 8) + 12
        base_offset = be64(data, position)
        last_offset = base_offset + be32(data, position + 23)
        if last_offset < settings[Setting.START_OFFSET]:
            position += size
            continue
        count = be32(data, position + 57)
        attributes = np.int64(data[position + 22])
        in_tail = base_offset >= settings[Setting.END_OFFSET]
        action = 0
        while (
            state[Filter.ACTION] < len(actions)
            and actions[state[Filter.ACTION], ActionRow.BASE_OFFSET] < base_offset
        ):
            state[Filter.ACTION] += 1
        if (
            state[Filter.ACTION] < len(actions)
            and actions[state[Filter.ACTION], ActionRow.BASE_OFFSET] == base_offset
        ):
            action = actions[state[Filter.ACTION], ActionRow.ACTION]
        if in_tail:
            action = _COPY
        first = state[Filter.KEPT]
        last = first
        has_tombstone = False
        while last < len(kept) and kept[last] <= last_offset:
            has_tombstone = has_tombstone or tombstones[last] != 0
            last += 1
        stays = last - first
        horizon = -1
        if action == _SET_HORIZON or (has_tombstone and attributes & DELETE_HORIZON_BIT == 0):
            horizon = settings[Setting.HORIZON]
        copied = action == _COPY or (
            stays == count
            and count > 0
            and horizon < 0
            and action != _SET_HORIZON
            and (not renumber or count == last_offset - base_offset + 1)
        )
        emptied = not copied and action == _KEEP_EMPTY and stays == 0
        dropped = not copied and not emptied and action != _SET_HORIZON and (stays == 0 or action == _DROP)
        if not dropped:
            if state[Filter.OUT] + size + 16 * count > len(out) or state[Filter.WRITTEN] == len(written):
                status = Stop.GROW
                break
            if not copied and not emptied and attributes & CODEC_BITS != 0:
                status = Stop.ODD
                break
            at = state[Filter.OUT]
            next_offset = state[Filter.NEXT_OFFSET] if renumber else -1
            if copied:
                copy_bytes(data, position, out, at, size)
                end = at + size
                if renumber:
                    _put_be(out, at, next_offset, 8)
                    for place in range(first, last):
                        renumbered[place] = next_offset + kept[place] - base_offset
            elif emptied:
                end = _put_empty(data, position, next_offset, out, at)
            else:
                keep_all = action == _SET_HORIZON
                end = _rebuild(
                    data, position, horizon, keep_all, first, kept, renumbered, next_offset, out, at
                )
            new_base = be64(out, at)
            new_last = new_base + be32(out, at + 23)
            _note(written, state, at, new_base, new_last, be32(out, at + 57), base_offset)
            state[Filter.OUT] = end
            state[Filter.NEXT_OFFSET] = new_last + 1
        state[Filter.KEPT] = last
        position += size
    state[Filter.POSITION] = position
    return status
