"""Checks whether bytes are a value of its schema, without decoding them.

A shape is a schema as steps (:class:`~coordinator_core.kernels.layout.ShapeStep`,
``merge.record_shapes``). Bytes that follow a shape to the last one are read by ``records.codec`` to data of that
schema; the converse does not hold: over-long varints, sizes of tags that do not fit, and other things that no
broker writes are left to that.
"""

import cython

from coordinator_core.kernels.arrays import grown, new_bytes, new_rows

if not cython.compiled:
    from coordinator_core.kernels.declare import *
    from coordinator_core.kernels.primitives import *

_FIRST_MARKS = 256


@cython.final
@cython.cclass
class Shapes:
    """Shapes of values, which are in ``data``.

    ``marks``, ``used`` of them, are the marked fields that :meth:`behind` came past, ``elements`` those of all arrays.
    """

    data = cython.declare(MutableBytes, visibility="public")
    steps = cython.declare(ShapeStepRows, visibility="public")
    marks = cython.declare(MarkRows, visibility="public")
    used = cython.declare(Int, visibility="public")
    elements = cython.declare(Int)

    def __init__(self, steps: ShapeStepRows) -> None:
        self.data = new_bytes(0)
        self.steps = steps
        self.marks = new_rows("Mark", _FIRST_MARKS)
        self.used = 0
        self.elements = 0

    @cython.cfunc
    @cython.exceptval(-1)
    def behind(self, step: Int, last: Int, at: Int, stop: Int) -> Int:
        """Position behind what the steps before ``last`` say; ``INVALID``: ``data[at:stop]`` is otherwise."""
        while step < last:
            start = at
            kind = self.steps[step].kind
            length = self.steps[step].size
            if kind == ShapeKind.SIZED or kind == ShapeKind.ARRAY:
                length, at = self._length(step, at, stop)
                if at == INVALID:
                    return INVALID
            if self.steps[step].mark != 0:
                self._mark(self.steps[step].mark, start, at, length)
            if kind == ShapeKind.FIXED:
                if length > stop - at:
                    return INVALID
                at += length
            elif kind == ShapeKind.SIZED:
                at += max(length, 0)
            elif kind == ShapeKind.ARRAY:
                at = self._elements(step, length, at, stop)
            elif kind == ShapeKind.OPTIONAL:
                at = self._optional(step, at, stop)
            else:
                at = self._tags(step, at, stop)
            if at == INVALID:
                return INVALID
            step = self.steps[step].behind
        return at

    @cython.cfunc
    def _length(self, step: Int, at: Int, stop: Int) -> tuple[Int, Int]:
        """Length at ``at``, -1 for a null that may be, and the position behind it, or ``INVALID``."""
        length: Int = 0
        prefix: Int = self.steps[step].prefix
        if prefix == Prefix.COMPACT:
            length, at = uvarint(self.data, at, stop)
            if at == INVALID:
                return 0, INVALID
            length -= 1
        elif prefix == Prefix.INT16:
            if stop - at < 2:
                return 0, INVALID
            length = be16(self.data, at)
            at += 2
        else:
            if stop - at < 4:
                return 0, INVALID
            length = be32(self.data, at)
            at += 4
        if length < 0:
            return -1, at if self.steps[step].is_nullable else INVALID
        # An element of an array takes at least a byte, too.
        if length > stop - at or length > self.steps[step].size:
            return 0, INVALID
        return length, at

    @cython.cfunc
    @cython.exceptval(-1)
    def _elements(self, step: Int, count: Int, at: Int, stop: Int) -> Int:
        body: Int = step + 1
        last: Int = self.steps[step].behind
        self.elements += max(count, 0)
        if last == body + 1 and self.steps[body].kind == ShapeKind.FIXED:
            at += max(count, 0) * self.steps[body].size
            return at if at <= stop else INVALID
        for _ in range(count):
            at = self.behind(body, last, at, stop)
            if at == INVALID:
                return INVALID
        return at

    @cython.cfunc
    @cython.exceptval(-1)
    def _optional(self, step: Int, at: Int, stop: Int) -> Int:
        sign: Int = 0
        if self.steps[step].prefix == Prefix.COMPACT:
            sign, at = uvarint(self.data, at, stop)
            if at == INVALID:
                return INVALID
            sign -= 1
        else:
            if at >= stop:
                return INVALID
            sign = -1 if self.data[at] > 0x7F else 1
            at += 1
        return at if sign < 0 else self.behind(step + 1, self.steps[step].behind, at, stop)

    @cython.cfunc
    @cython.exceptval(-1)
    def _tags(self, step: Int, at: Int, stop: Int) -> Int:
        count: Int
        tag: Int
        size: Int
        last: Int = self.steps[step].behind
        count, at = uvarint(self.data, at, stop)
        if at == INVALID:
            return INVALID
        for _ in range(count):
            tag, at = uvarint(self.data, at, stop)
            if at == INVALID:
                return INVALID
            size, at = uvarint(self.data, at, stop)
            if at == INVALID or size > stop - at:
                return INVALID
            known = step + 1
            while known < last and self.steps[known].size != tag:
                known = self.steps[known].behind
            if known < last and self.behind(known + 1, self.steps[known].behind, at, at + size) != at + size:
                return INVALID
            at += size
        return at

    @cython.cfunc
    @cython.exceptval(-1)
    def _mark(self, field: Int, start: Int, at: Int, length: Int) -> cython.int:
        if self.used == len(self.marks):
            with cython.gil:
                self.marks = grown(self.marks, self.used, self.used + 1)
        self.marks[self.used].field = field
        self.marks[self.used].start = start
        self.marks[self.used].at = at
        self.marks[self.used].length = length
        self.used += 1
        return 0
