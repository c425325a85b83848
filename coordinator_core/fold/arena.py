"""The bytes of batches that cannot be folded where they lie: decompressed, or rewritten record by record."""

from __future__ import annotations

import numpy as np

from coordinator_core.kernels import FoldTables, compact_arena
from coordinator_core.kernels.arrays import Bytes

_FIRST_BYTES = 1 << 12
_KEPT_BYTES = 20 << 20


class Arena:
    """A growing byte array. :meth:`tidy` removes the bytes that no table names, when that is worth the copy."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_FIRST_BYTES, np.uint8)
        self.used = 0
        self._tidy_at = _KEPT_BYTES

    def append(self, *parts: bytes | bytearray | memoryview) -> int:
        """Append the parts, one behind the other; returns the position of the first."""
        start = at = self.used
        self.used += sum(map(len, parts))
        if self.used > len(self.data):
            # Unused pages of it take no memory.
            bigger = np.empty(max(self.used, 2 * len(self.data), _KEPT_BYTES * 5 // 4), np.uint8)
            bigger[:start] = self.data[:start]
            self.data = bigger
        view = self.data.data
        for part in parts:
            view[at : at + len(part)] = part
            at += len(part)
        return start

    def tidy(self, tables: FoldTables) -> None:
        """Remove the bytes of replaced values once many were appended. Changes positions in ``tables``."""
        if self.used < self._tidy_at:
            return
        kept = np.empty(self.used, np.uint8)
        used = compact_arena(self.data, kept, tables)
        self.data[:used] = kept[:used]
        self.used = used
        self._tidy_at = max(_KEPT_BYTES, 2 * used)
