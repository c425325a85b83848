"""The bytes of batches that cannot be folded where they lie: decompressed, or rewritten record by record."""

from __future__ import annotations

import numpy as np

from coordinator_core.columnar.finishing import compact_arena
from coordinator_core.columnar.tables import Bytes, Tables, used_rows

_FIRST_BYTES = 1 << 12
_KEPT_BYTES = 16 << 20


class Arena:
    """A growing byte array. What no table names any more goes when :meth:`tidy` finds it worth the copy."""

    def __init__(self) -> None:
        self.data: Bytes
        self._view: memoryview
        self._set(np.empty(_FIRST_BYTES, np.uint8))
        self.used = 0
        self._tidy_at = _KEPT_BYTES

    def append(self, *parts: bytes | bytearray | memoryview) -> int:
        """Position of the parts, one behind the other."""
        start = self.reserve(sum(map(len, parts)))
        at = start
        for part in parts:
            self._view[at : at + len(part)] = part
            at += len(part)
        return start

    def reserve(self, size: int, *, tail: bytes | bytearray | memoryview = b"") -> int:
        """Position of ``size`` bytes to be filled in, with ``tail`` behind them."""
        start = self.used
        stop = start + size + len(tail)
        if stop > len(self.data):
            bigger = np.empty(max(stop, 2 * len(self.data)), np.uint8)
            bigger[:start] = self.data[:start]
            self._set(bigger)
        if tail:
            self._view[start + size : stop] = tail
        self.used = stop
        return start

    def _set(self, data: Bytes) -> None:
        self.data = data
        self._view = data.data

    def tidy(self, tables: Tables) -> None:
        """Drop bytes of lost values, when many bytes came in since the last time; positions change."""
        if self.used < self._tidy_at:
            return
        kept = np.empty(self.used, np.uint8)
        used = compact_arena(
            self.data,
            kept,
            used_rows(tables, "slots"),
            used_rows(tables, "pending"),
            used_rows(tables, "others"),
        )
        self._set(kept[: max(used, _FIRST_BYTES)].copy())
        self.used = used
        self._tidy_at = max(_KEPT_BYTES, 2 * used)
