"""How much work goes into one Spark task."""

from __future__ import annotations

from collections.abc import Sequence

MIB = 1 << 20
MAX_TASK_BYTES = 32 * MIB
"""Segments are put together up to this size. A segment is never cut; Kafka's default makes them 100 MiB."""

MIN_TASK_BYTES = MIB
"""A task costs more than reading this much."""

TASKS_PER_CORE = 4
"""Enough that a core which is done early finds another task."""


def task_bytes(sizes: Sequence[int], parallelism: int) -> int:
    """Size up to which neighbours share a task, when ``parallelism`` tasks run at a time."""
    return min(MAX_TASK_BYTES, max(MIN_TASK_BYTES, sum(sizes) // (TASKS_PER_CORE * parallelism)))


def packed(sizes: Sequence[int], limit: int) -> list[range]:
    """Runs of neighbours, each of at most ``limit`` bytes in all or of one item."""
    runs: list[range] = []
    first, total = 0, 0
    for index, size in enumerate(sizes):
        if index > first and total + size > limit:
            runs.append(range(first, index))
            first, total = index, 0
        total += size
    if first < len(sizes):
        runs.append(range(first, len(sizes)))
    return runs
