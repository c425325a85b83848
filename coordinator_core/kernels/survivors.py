"""Result of a fold: copies surviving bytes end to end, and rows to columns."""

import cython

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.fold_tables import FoldTables
    from coordinator_core.kernels.primitives import *

_VALUES_AHEAD = cython.declare(Int, 16)
"""Values lie all over the segment, so they are fetched some rows before they are copied."""

_BLOCK_ROWS = cython.declare(Int, 256)
"""Rows that stay in the processor's cache while their fields are spread one after the other."""


@cython.cfunc
def _fetch_bytes(data: Bytes, at: Int) -> cython.void:
    if cython.compiled:
        if 0 <= at < len(data):
            fetch_ahead(cython.address(data[at]))


def gather(data: Bytes, tag: Int, positions: Int64s, lengths: Int64s, starts: Int64s, out: MutableBytes) -> Int:
    """Copy the runs of bytes at those ``positions`` that have this ``tag`` from ``data``.

    A run is of ``lengths`` bytes, of none when that is negative, and goes to ``starts`` in ``out``. Returns
    how many rows were passed: less than all of them at a run that lies outside ``data`` or ``out``.
    """
    row: Int = 0
    rows: Int = len(positions)
    length: Int
    with cython.nogil:
        while row < rows:
            if row + _VALUES_AHEAD < rows:
                _fetch_bytes(data, positions[row + _VALUES_AHEAD] - tag)
                _fetch_bytes(data, positions[row + _VALUES_AHEAD] - tag + lengths[row + _VALUES_AHEAD])
            position = positions[row] - tag
            length = lengths[row]
            if 0 <= position < SEGMENT and length > 0:
                if length > len(data) - position or starts[row] < 0 or length > len(out) - starts[row]:
                    break
                copy_bytes(data, position, out, starts[row], length)
            row += 1
    return row


def spread(rows: Bytes, row_bytes: Int, fields: Int64s, out: MutableBytes) -> None:
    """Copy fields of equally large ``rows`` to columns.

    ``fields`` are triples: position in the row, size (1, 2, 4 or 8 bytes), position of the column in ``out``.
    """
    count: Int = len(rows) // row_bytes
    block: Int = 0
    size: Int
    with cython.nogil:
        while block < count:
            for field in range(0, len(fields), 3):
                size = fields[field + 1]
                source = block * row_bytes + fields[field]
                target = fields[field + 2] + block * size
                taken = min(_BLOCK_ROWS, count - block)
                if cython.compiled:
                    copy_fields(cython.address(rows[source]), row_bytes, cython.address(out[target]), size, taken)
                else:
                    for row in range(taken):
                        copy_bytes(rows, source + row * row_bytes, out, target + row * size, size)
            block += _BLOCK_ROWS


@cython.cfunc
def _moved(at: Int, length: Int, old: Bytes, new: MutableBytes, used: Int) -> Int:
    """Position of a run after moving it behind the ``used`` bytes of the new arena, if it is in the old."""
    if at < ARENA:
        return at
    copy_bytes(old, at - ARENA, new, used, length)
    return used + ARENA


def compact_arena(old: Bytes, new: MutableBytes, tables: FoldTables) -> Int:
    """Copy what ``tables`` still name from the ``old`` arena to the ``new``; returns the bytes used there."""
    used: Int = 0
    length: Int
    at: Int
    with cython.nogil:
        for row in range(tables.keys.used):
            if row + _VALUES_AHEAD < tables.keys.used:
                _fetch_bytes(old, tables.events[row + _VALUES_AHEAD].value - ARENA)
                _fetch_bytes(old, tables.events[row + _VALUES_AHEAD].value - ARENA + 64)
            if tables.events[row].kind == EventKind.VALUE:
                at, length = tables.events[row].value, tables.events[row].value_bytes
                tables.events[row].value = _moved(at, length, old, new, used)
                used += length if at >= ARENA else 0
        for row in range(tables.pending_used):
            if tables.pending[row].phase == Phase.OPEN and tables.pending[row].kind == PendingKind.VALUE:
                at, length = tables.pending[row].value, tables.pending[row].value_bytes
                tables.pending[row].value = _moved(at, length, old, new, used)
                used += length if at >= ARENA else 0
    return used
