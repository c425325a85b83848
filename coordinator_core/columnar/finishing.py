"""Compiled steps around the walk: the arena filled and kept small, surviving bytes to columns."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from coordinator_core.columnar import types
from coordinator_core.columnar.bytestrings import uvarint
from coordinator_core.columnar.compiling import inlined, kernel
from coordinator_core.columnar.intrinsics import be16, be32, be64
from coordinator_core.columnar.tables import (
    ARENA,
    BYTES_TYPE,
    MUTABLE_BYTES_TYPE,
    Int,
    Interned,
    OtherRow,
    PendingKind,
    PendingRow,
    Phase,
    SlotKind,
    SlotRow,
)

_VECTOR = types.Array(types.int64, 1, "C")
_TABLE = types.Array(types.int64, 2, "C")


class Commit(IntEnum):
    """Columns that :func:`decode_commits` fills."""

    VERSION = 0
    COMMITTED_OFFSET = 1
    LEADER_EPOCH = 2
    METADATA = 3
    METADATA_BYTES = 4
    COMMIT_TIMESTAMP = 5
    EXPIRE_TIMESTAMP = 6
    TOPIC_ID = 7
    """Position of the 16 bytes, -1 for none."""
    WIDTH = 8


@inlined
def _decode_commit(data: Any, position: Int, tag: Int, length: Int, row: Int, out: Any) -> None:
    version = be16(data, position)
    stop = position + length
    at = position + 10
    out[row, Commit.VERSION] = version
    out[row, Commit.COMMITTED_OFFSET] = be64(data, position + 2)
    out[row, Commit.LEADER_EPOCH] = -1
    out[row, Commit.EXPIRE_TIMESTAMP] = -1
    out[row, Commit.TOPIC_ID] = -1
    if version >= 3:
        out[row, Commit.LEADER_EPOCH] = be32(data, at)
        at += 4
    if version == 4:
        compact, at = uvarint(data, at, stop)
        metadata = compact - 1
    else:
        metadata = be16(data, at)
        at += 2
    out[row, Commit.METADATA] = at + tag
    out[row, Commit.METADATA_BYTES] = metadata
    at += metadata
    out[row, Commit.COMMIT_TIMESTAMP] = be64(data, at)
    at += 8
    if version == 1:
        out[row, Commit.EXPIRE_TIMESTAMP] = be64(data, at)
    elif version == 4 and data[at] == 1:
        out[row, Commit.TOPIC_ID] = at + 3 + tag


@kernel(types.void(BYTES_TYPE, BYTES_TYPE, _VECTOR, _VECTOR, _TABLE))
def decode_commits(segment: Any, arena: Any, positions: Any, lengths: Any, out: Any) -> None:
    """Decode OffsetCommitValues that ``kernels.commit_version`` accepted into the columns of ``out``."""
    for row in range(len(positions)):
        position = positions[row]
        if position < ARENA:
            _decode_commit(segment, position, 0, lengths[row], row, out)
        else:
            _decode_commit(arena, position - ARENA, ARENA, lengths[row], row, out)


@kernel(types.void(BYTES_TYPE, BYTES_TYPE, _VECTOR, _VECTOR, _VECTOR, MUTABLE_BYTES_TYPE))
def gather(segment: Any, arena: Any, positions: Any, lengths: Any, starts: Any, out: Any) -> None:
    """Copy the runs at ``positions`` of ``lengths`` (none when negative) to ``starts`` in ``out``."""
    for row in range(len(positions)):
        position, target = positions[row], starts[row]
        if position < ARENA:
            for at in range(lengths[row]):
                out[target + at] = segment[position + at]
        else:
            position -= ARENA
            for at in range(lengths[row]):
                out[target + at] = arena[position + at]


@kernel(types.void(MUTABLE_BYTES_TYPE, _TABLE, types.Array(types.int32, 1, "C")))
def slot_partitions(keys: Any, slots: Any, out: Any) -> None:
    """Partition numbers, the last four bytes of each slot."""
    for row in range(len(slots)):
        stop = slots[row, Interned.BODY] + slots[row, Interned.BODY_BYTES]
        out[row] = be32(keys, stop - 4)


@kernel(types.void(BYTES_TYPE, MUTABLE_BYTES_TYPE, _TABLE, _VECTOR, _VECTOR))
def complete_batches(data: Any, arena: Any, found: Any, starts: Any, sections: Any) -> None:
    """Complete the copies, at ``starts`` in the arena, of the batches that ``kernels.survey`` found.

    Where ``sections`` is the size of records that were decompressed to behind the header, the header and its
    new length are put there; where it is negative the whole batch is copied.
    """
    for row in range(len(starts)):
        batch, start, section = found[row, 0], starts[row], sections[row]
        size = found[row, 1] if section < 0 else 61
        for at in range(size):
            arena[start + at] = data[batch + at]
        if section >= 0:
            length = section + 61 - 12
            for at in range(4):
                arena[start + 8 + at] = (length >> (24 - 8 * at)) & 0xFF


@inlined
def _moved(position: Int, length: Int, old: Any, new: Any, used: Int) -> Int:
    """``used`` after copying a run of the old arena behind it."""
    for at in range(length):
        new[used + at] = old[position - ARENA + at]
    return used + max(length, 0)


@inlined
def _move_values(table: Any, row: Int, column: Int, old: Any, new: Any, used: Int) -> Int:
    """Move the run that ``column`` and the one behind it name, if it is in the arena."""
    if table[row, column] < ARENA:
        return used
    after = _moved(table[row, column], table[row, column + 1], old, new, used)
    table[row, column] = used + ARENA
    return after


@kernel(types.int64(BYTES_TYPE, MUTABLE_BYTES_TYPE, _TABLE, _TABLE, _TABLE))
def compact_arena(old: Any, new: Any, slots: Any, pending: Any, others: Any) -> Int:
    """Copy what the tables still name from the ``old`` arena to the ``new``; returns the bytes used there."""
    used = 0
    for row in range(len(slots)):
        if slots[row, SlotRow.KIND] == SlotKind.VALUE:
            used = _move_values(slots, row, SlotRow.VALUE, old, new, used)
    for row in range(len(pending)):
        if (
            pending[row, PendingRow.PHASE] == Phase.OPEN
            and pending[row, PendingRow.KIND] == PendingKind.VALUE
        ):
            used = _move_values(pending, row, PendingRow.VALUE, old, new, used)
    for row in range(len(others)):
        used = _move_values(others, row, OtherRow.KEY, old, new, used)
        used = _move_values(others, row, OtherRow.VALUE, old, new, used)
    return used
