"""The bytes of batches that cannot stay where they are folded: values of decompressed ones, and rewritten ones."""

from __future__ import annotations

import numpy as np

from coordinator_core.kernels import FoldTables, compact_arena, fold_chunk
from coordinator_core.kernels.arrays import Bytes, viewed
from coordinator_core.kernels.layout import COPIED

_FIRST_BYTES = 1 << 12
_KEPT_BYTES = 20 << 20
_NOTHING: Bytes = np.empty(0, np.uint8)


class Arena:
    """A growing byte array. :meth:`tidy` removes the bytes that no table names, when that is worth the copy."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_FIRST_BYTES, np.uint8)
        self.used = 0
        self._tidy_at = _KEPT_BYTES

    def append(self, *parts: bytes | bytearray | memoryview) -> int:
        """Append the parts, one behind the other; returns the position of the first."""
        start = at = self.used
        self._reserve(sum(map(len, parts)))
        view = self.data.data
        for part in parts:
            view[at : at + len(part)] = part
            at += len(part)
        self.used = at
        return start

    def fold(self, data: Bytes, start: int, stop: int, tables: FoldTables) -> int:
        """Fold unpacked batches, of which the arena keeps the values (``kernels.fold_chunk``); returns a ``Stop``."""
        self._reserve(stop - start)
        tables.arena, tables.arena_used = viewed(self.data), self.used
        status: int = fold_chunk(data, start, stop, COPIED, True, tables)
        self.used = tables.arena_used
        # Spare tables must not hold on to it.
        tables.arena = viewed(_NOTHING)
        return status

    def _reserve(self, size: int) -> None:
        if self.used + size > len(self.data):
            # Unused pages of it take no memory.
            bigger = np.empty(max(self.used + size, 2 * len(self.data), _KEPT_BYTES * 5 // 4), np.uint8)
            bigger[: self.used] = self.data[: self.used]
            self.data = bigger

    def tidy(self, tables: FoldTables) -> None:
        """Remove the bytes of replaced values once many were appended. Changes positions in ``tables``."""
        if self.used < self._tidy_at:
            return
        kept = np.empty(self.used, np.uint8)
        used = compact_arena(self.data, kept, tables)
        self.data[:used] = kept[:used]
        self.used = used
        self._tidy_at = max(_KEPT_BYTES, 2 * used)
