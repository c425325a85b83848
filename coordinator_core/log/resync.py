"""Finds the next valid batch behind bytes whose length cannot be trusted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Batch

_FIRST_WINDOW, _WINDOW = 1 << 8, 1 << 18
"""Junk is mostly short; a long search takes larger steps."""
_TO_MAGIC = 17
_MIN_SIZE = 14
CRC_BUDGET = 16
"""Candidates may make all searches of a file read this many times its size: hostile bytes can make every
position look like a long batch."""


def find_batch(
    view: memoryview,
    start: int,
    first_offset: int,
    end_offset: int,
    limits: Limits,
    budget: int,
    parse: Callable[[memoryview, int, Limits], Batch | None],
) -> tuple[int | None, int]:
    """Position of the first entry at or behind ``start`` that ``parse`` accepts and whose base offset is
    in ``[first_offset, end_offset)``, and what is left of ``budget``, the bytes that candidates may make
    the search read.  The position is ``None`` when there is no such entry, or the budget is used up."""
    total = len(view)
    window, step = start, _FIRST_WINDOW
    while window < total - _TO_MAGIC + 1:
        count = min(step, total - _TO_MAGIC + 1 - window)
        raw = np.frombuffer(view[window : window + count + _TO_MAGIC - 1], dtype=np.uint8)
        size = _big_endian(raw, 8, count)
        ends = np.arange(window + 12, window + 12 + count, dtype=np.int64) + size
        plausible = (
            (raw[16 : 16 + count] <= 2)
            & (size >= _MIN_SIZE)
            & (size <= limits.max_batch_bytes)
            & (ends <= total)
            & (raw[:count] < 0x80)
        )
        for index in np.flatnonzero(plausible):
            position = window + int(index)
            offset = int.from_bytes(view[position : position + 8], "big")
            if not first_offset <= offset < end_offset:
                continue
            budget -= int(size[index])
            if budget < 0:
                return None, 0
            batch = parse(view, position, limits)
            if batch is not None and batch.last_offset < end_offset:
                return position, budget
        window, step = window + count, min(2 * step, _WINDOW)
    return None, budget


def _big_endian(raw: np.ndarray, at: int, count: int) -> np.ndarray:
    value = raw[at : at + count].astype(np.int64)
    for byte in range(at + 1, at + 4):
        value = value << 8 | raw[byte : byte + count]
    return value
