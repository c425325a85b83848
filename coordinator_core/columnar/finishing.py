"""Compiled steps around the walk: the arena filled and kept small, surviving bytes to columns, slots numbered
across folds."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coordinator_core.columnar import types
from coordinator_core.columnar.bytestrings import copy_bytes, hash_bytes, uvarint
from coordinator_core.columnar.compiling import called, inlined, kernel
from coordinator_core.columnar.intrinsics import be16, be32, be64, prefetch
from coordinator_core.columnar.kernels import event_kind
from coordinator_core.columnar.tables import (
    ARENA,
    BYTES_TYPE,
    MUTABLE_BYTES_TYPE,
    SEGMENT,
    EventRow,
    Flags,
    Int,
    OtherRow,
    PendingKind,
    PendingRow,
    Phase,
    SlotKind,
    SlotRow,
)

Array = npt.NDArray[Any]

_VECTOR = types.Array(types.int64, 1, "C")
_TABLE = types.Array(types.int64, 2, "C")
_INT64S = types.Array(types.int64, 1, "C", readonly=True)
_INT32S = types.Array(types.int32, 1, "C", readonly=True)


@kernel(types.void(_TABLE, _VECTOR, _TABLE))
def transpose(table: Any, wanted: Any, out: Any) -> None:
    """Put the ``wanted`` columns of ``table`` into the rows of ``out``."""
    for row in range(len(table)):
        for index in range(len(wanted)):
            out[index, row] = table[row, wanted[index]]


class SlotColumns(NamedTuple):
    """The last events of slots, as :func:`slot_columns` spreads them; zero where they do not apply."""

    group: Array
    topic: Array
    partition: Array
    kind: Array
    sequence: Array
    """-1 for a slot without an event."""
    last_tombstone: Array
    record_offset: Array
    merge_offset: Array
    committed: Array
    """Whether a transaction committed the event: else there is no producer."""
    producer_id: Array
    producer_epoch: Array
    value: Array
    """Position of the value, -1 where the event is none."""
    value_bytes: Array


SLOT_COLUMNS_TYPE = types.NamedTuple(
    tuple(
        types.Array(number, 1)
        for number in (
            *(types.int32, types.int32, types.int32, types.int8, types.int64, types.int64, types.int64),
            *(types.int64, types.uint8, types.int64, types.int16, types.int64, types.int64),
        )
    ),
    SlotColumns,
)


@kernel(types.void(_TABLE, _TABLE, SLOT_COLUMNS_TYPE))
def slot_columns(slots: Any, events: Any, out: Any) -> None:
    """Spread the rows of ``slots`` and ``events`` over the columns ``out``."""
    for row in range(len(events)):
        flags = events[row, EventRow.FLAGS]
        kind = event_kind(flags)
        is_value = kind == SlotKind.VALUE
        committed = is_value and flags & Flags.COMMITTED != 0
        out.group[row] = events[row, EventRow.NAMES] >> 32
        out.topic[row] = events[row, EventRow.NAMES]
        out.partition[row] = events[row, EventRow.LINK] >> 32
        out.kind[row] = kind
        out.sequence[row] = -1 if kind == SlotKind.NONE else events[row, EventRow.SEQUENCE]
        out.last_tombstone[row] = slots[row, SlotRow.LAST_TOMBSTONE]
        out.record_offset[row] = events[row, EventRow.RECORD_OFFSET] if is_value else 0
        out.merge_offset[row] = events[row, EventRow.MERGE_OFFSET] if is_value else 0
        out.committed[row] = committed
        out.producer_id[row] = slots[row, SlotRow.PRODUCER_ID] if committed else 0
        out.producer_epoch[row] = flags >> Flags.EPOCH_SHIFT if committed else 0
        out.value[row] = events[row, EventRow.VALUE] if is_value else -1
        out.value_bytes[row] = flags >> Flags.VALUE_BYTES_SHIFT if is_value else 0


class CommitColumns(NamedTuple):
    """Values of commits, as :func:`decode_commits` reads them."""

    version: Array
    committed_offset: Array
    leader_epoch: Array
    metadata: Array
    """Position."""
    metadata_bytes: Array
    commit_timestamp: Array
    expire_timestamp: Array
    topic_id: Array
    """Position of the 16 bytes, -1 for none."""


COMMIT_COLUMNS_TYPE = types.NamedTuple(
    tuple(types.Array(number, 1) for number in (types.int16, types.int64, types.int32, *[types.int64] * 5)),
    CommitColumns,
)


@inlined
def _decode_commit(data: Any, position: Int, row: Int, out: Any) -> None:
    version = be16(data, position)
    at = position + 10
    out.version[row] = version
    out.committed_offset[row] = be64(data, position + 2)
    leader_epoch, expire_timestamp, topic_id = np.int64(-1), np.int64(-1), np.int64(-1)
    if version >= 3:
        leader_epoch = be32(data, at)
        at += 4
    if version == 4:
        compact, at = uvarint(data, at, at + 4)
        metadata = compact - 1
    else:
        metadata = be16(data, at)
        at += 2
    out.metadata[row] = at
    out.metadata_bytes[row] = metadata
    at += metadata
    out.commit_timestamp[row] = be64(data, at)
    at += 8
    if version == 1:
        expire_timestamp = be64(data, at)
    elif version == 4 and data[at] == 1:
        topic_id = at + 3
    out.leader_epoch[row] = leader_epoch
    out.expire_timestamp[row] = expire_timestamp
    out.topic_id[row] = topic_id


@kernel(types.void(BYTES_TYPE, _INT64S, COMMIT_COLUMNS_TYPE))
def decode_commits(data: Any, positions: Any, out: Any) -> None:
    """Decode OffsetCommitValues that ``kernels.commit_version`` accepted into the columns ``out``."""
    for row in range(len(positions)):
        _decode_commit(data, positions[row], row, out)


_AHEAD = 16
"""Values lie all over the segment, so they are fetched some rows before they are copied."""


@kernel(types.void(BYTES_TYPE, types.int64, _VECTOR, _VECTOR, _VECTOR, MUTABLE_BYTES_TYPE))
def gather(data: Any, tag: Int, positions: Any, lengths: Any, starts: Any, out: Any) -> None:
    """Copy the runs at those ``positions`` that have this ``tag`` (``SEGMENT``s, ``ARENA``), from ``data``.

    A run is of ``lengths`` bytes, of none when that is negative, and goes to ``starts`` in ``out``.
    """
    for row in range(len(positions)):
        if row + _AHEAD < len(positions):
            ahead = positions[row + _AHEAD] - tag
            if 0 <= ahead < SEGMENT:
                prefetch(data, ahead)
                prefetch(data, ahead + lengths[row + _AHEAD])
        position = positions[row] - tag
        if 0 <= position < SEGMENT:
            copy_bytes(data, position, out, starts[row], lengths[row])


@inlined
def _moved(position: Int, length: Int, old: Any, new: Any, used: Int) -> Int:
    """``used`` after copying a run of the old arena behind it."""
    copy_bytes(old, position - ARENA, new, used, length)
    return used + max(length, 0)


@inlined
def _move_values(table: Any, row: Int, column: Int, length: Int, old: Any, new: Any, used: Int) -> Int:
    """Move the run of ``length`` bytes that ``column`` names, if it is in the arena."""
    if table[row, column] < ARENA:
        return used
    after = _moved(table[row, column], length, old, new, used)
    table[row, column] = used + ARENA
    return after


@kernel(types.int64(BYTES_TYPE, MUTABLE_BYTES_TYPE, _TABLE, _TABLE, _TABLE))
def compact_arena(old: Any, new: Any, events: Any, pending: Any, others: Any) -> Int:
    """Copy what the tables still name from the ``old`` arena to the ``new``; returns the bytes used there."""
    used = 0
    for row in range(len(events)):
        if row + _AHEAD < len(events):
            ahead = events[row + _AHEAD, EventRow.VALUE] - ARENA
            if ahead >= 0:
                prefetch(old, ahead)
                prefetch(old, ahead + 64)
        flags = events[row, EventRow.FLAGS]
        if event_kind(flags) == SlotKind.VALUE:
            length = flags >> Flags.VALUE_BYTES_SHIFT
            used = _move_values(events, row, EventRow.VALUE, length, old, new, used)
    for row in range(len(pending)):
        if (
            pending[row, PendingRow.PHASE] == Phase.OPEN
            and pending[row, PendingRow.KIND] == PendingKind.VALUE
        ):
            length = pending[row, PendingRow.VALUE_BYTES]
            used = _move_values(pending, row, PendingRow.VALUE, length, old, new, used)
    for row in range(len(others)):
        used = _move_values(others, row, OtherRow.KEY, others[row, OtherRow.KEY_BYTES], old, new, used)
        used = _move_values(others, row, OtherRow.VALUE, others[row, OtherRow.VALUE_BYTES], old, new, used)
    return used


class SlotKey(IntEnum):
    """Columns of a slot's key: group and topic in one number, the partition."""

    NAMES = 0
    PARTITION = 1
    WIDTH = 2


@inlined
def _place(names: Int, partition: Int, index: Any) -> Int:
    mixed = np.uint64(names) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32)) ^ np.uint64(partition)) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(len(index) - 1))


_KEYS_AHEAD = 8
"""Keys are fetched so many rows before they are compared, and entries of the index twice as many."""


@kernel(
    types.int64(
        _INT32S, _INT32S, _INT32S, _VECTOR, _VECTOR, types.int64, _TABLE, _VECTOR, types.int64, _VECTOR
    )
)
def number_slots(
    groups: Any,
    topics: Any,
    partitions: Any,
    group_of: Any,
    topic_of: Any,
    row: Int,
    keys: Any,
    index: Any,
    used: Int,
    numbers: Any,
) -> Int:
    """Put the numbers of a fold's slots, from ``row`` on, into ``numbers``; new keys go behind ``used``.

    ``group_of`` and ``topic_of`` number the names of the fold. An entry of ``index`` (a power of two long) is
    a number plus one. Returns the row that there was no room for in ``keys``, or how many rows there are.
    Folds name slots in much the same order, so the number behind the last one found is tried before the
    index.
    """
    mask = len(index) - 1
    last = np.int64(-1)
    while row < len(groups):
        ahead = row + 2 * _KEYS_AHEAD
        if ahead < len(groups):
            names = (group_of[groups[ahead]] << 32) | topic_of[topics[ahead]]
            prefetch(index, _place(names, np.int64(partitions[ahead]), index))
            ahead -= _KEYS_AHEAD
            names = (group_of[groups[ahead]] << 32) | topic_of[topics[ahead]]
            prefetch(keys, 2 * index[_place(names, np.int64(partitions[ahead]), index)])
        names = (group_of[groups[row]] << 32) | topic_of[topics[row]]
        partition = np.int64(partitions[row])
        number = last + 1
        if number >= used or keys[number, 0] != names or keys[number, 1] != partition:
            place = _place(names, partition, index)
            number = index[place] - 1
            while number >= 0 and (keys[number, 0] != names or keys[number, 1] != partition):
                place = (place + 1) & mask
                number = index[place] - 1
            if number < 0:
                if used == len(keys):
                    return row
                number = used
                keys[number, 0] = names
                keys[number, 1] = partition
                used += 1
                index[place] = used
        numbers[row] = number
        last = number
        row += 1
    return row


@kernel(types.void(_TABLE, types.int64, _VECTOR))
def index_slots(keys: Any, used: Int, index: Any) -> None:
    """Fill the empty ``index`` of :func:`number_slots` anew."""
    mask = len(index) - 1
    for number in range(used):
        place = _place(keys[number, 0], keys[number, 1], index)
        while index[place] != 0:
            place = (place + 1) & mask
        index[place] = number + 1


_NEWEST_PLAIN_GROUP_VERSION = 3
"""GroupMetadataValue has compact lengths and tags from version 4 on, which no broker writes by default."""


@inlined
def _behind_text(data: Any, at: Int, stop: Int, null: Int) -> Int:
    """Behind the string at ``at``, -1 if there is none; ``null`` is the shortest length, -1 or 0."""
    if at < 0 or at + 2 > stop:
        return -1
    length = be16(data, at)
    return at + 2 + max(length, 0) if length >= null and at + 2 + length <= stop else -1


@inlined
def _behind_bytes(data: Any, at: Int, stop: Int) -> Int:
    if at < 0 or at + 4 > stop:
        return -1
    length = be32(data, at)
    return at + 4 + length if length >= 0 and at + 4 + length <= stop else -1


@inlined
def _is_first(data: Any, at: Int, length: Int, stamp: Int, seen: Any) -> bool:
    """Whether the bytes' hash is new under ``stamp`` in ``seen``, where there must be room for it."""
    hashed = hash_bytes(data, at, length)
    place = hashed & (len(seen) - 1)
    while seen[place, 1] == stamp:
        if seen[place, 0] == hashed:
            return False
        place = (place + 1) & (len(seen) - 1)
    seen[place, 0] = hashed
    seen[place, 1] = stamp
    return True


@called
def _group_value_version(data: Any, at: Int, stop: Int, newest: Int, stamp: Int, seen: Any) -> Int:
    if at + 2 > stop:
        return -1
    version = be16(data, at)
    if version < 0 or version > min(newest, _NEWEST_PLAIN_GROUP_VERSION):
        return -1
    at = _behind_text(data, at + 2, stop, 0)
    if at < 0:
        return -1
    at = _behind_text(data, _behind_text(data, at + 4, stop, -1), stop, -1)
    if at < 0:
        return -1
    if version >= 2:
        at += 8
    if at + 4 > stop:
        return -1
    members = be32(data, at)
    if members < 0 or 2 * members > len(seen):
        return -1
    at += 4
    for _ in range(members):
        at = _behind_text(data, at, stop, 0)
        if version >= 3:
            instance = at
            at = _behind_text(data, at, stop, -1)
            if at > instance + 2 and not _is_first(data, instance + 2, at - instance - 2, stamp, seen):
                return -1
            if at == instance + 2 and be16(data, instance) == 0:
                return -1
        at = _behind_text(data, _behind_text(data, at, stop, 0), stop, 0)
        if at < 0:
            return -1
        at = _behind_bytes(data, _behind_bytes(data, at + (8 if version >= 1 else 4), stop), stop)
        if at < 0:
            return -1
    return version if at == stop else np.int64(-1)


@kernel(types.void(BYTES_TYPE, _INT64S, BYTES_TYPE, _INT64S, types.int64, _TABLE, _VECTOR))
def group_versions(
    keys: Any, key_starts: Any, values: Any, value_starts: Any, newest: Int, seen: Any, out: Any
) -> None:
    """Value versions of the records that set a classic group whole and are certain to load, else -1.

    Those are GroupMetadata values, not null, of a version up to ``newest``, that fill their bytes exactly and
    name no group instance id twice. ``seen`` is room to find that out, a power of two long.
    """
    for row in range(len(out)):
        out[row] = -1
        key, stop = key_starts[row], key_starts[row + 1]
        if key + 4 <= stop and be16(keys, key) == 2 and _behind_text(keys, key + 2, stop, 0) == stop:
            out[row] = _group_value_version(
                values, value_starts[row], value_starts[row + 1], newest, row + 1, seen
            )
