"""Compiled last part of compaction: what is left of each batch, written in order."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from coordinator_core.columnar import types
from coordinator_core.columnar.batches import Stop
from coordinator_core.columnar.bytestrings import copy_bytes, varint, varlong
from coordinator_core.columnar.compiling import called, inlined, kernel
from coordinator_core.columnar.intrinsics import be32, be64, crc32c
from coordinator_core.columnar.tables import BYTES_TYPE, MUTABLE_BYTES_TYPE, Int
from coordinator_core.log.layout import CODEC_BITS, DELETE_HORIZON_BIT, HEADER_BYTES, LOG_APPEND_TIME_BIT

_LOWEST = -(1 << 63)


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
