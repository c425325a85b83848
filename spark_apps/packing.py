"""Segments packed into Spark tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from coordinator_core.fold.tasks import FoldTask, packed

MIB = 1 << 20
MAX_TASK_BYTES = 32 * MIB
"""Partitions are put together up to this size."""

MIN_TASK_BYTES = MIB
"""A task costs more than reading this much."""

TASKS_PER_CORE = 4
"""Enough that a core which is done early finds another task."""

MAX_FOLD_BYTES, FOLD_TASKS_PER_CORE = 1024 * MIB, 2
"""The same for segments that are folded: an offset key takes its place once for all of a task, so that fewer tasks do
less. A task that is lost is done again."""


@dataclass(frozen=True)
class Work:
    """Segments of one task. ``whole``: all of some partitions, which it merges too; else a part of one."""

    tasks: tuple[FoldTask, ...]
    whole: bool

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the order of partitions and segments."""
        first = self.tasks[0]
        return first.log.offsets_partition, first.segments[0].base_offset

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(task.size for task in self.tasks)


def task_bytes(sizes: Sequence[int], parallelism: int) -> int:
    """Size up to which neighbours share a task, when ``parallelism`` tasks run at a time."""
    return min(MAX_TASK_BYTES, max(MIN_TASK_BYTES, sum(sizes) // (TASKS_PER_CORE * parallelism)))


def fold_task_bytes(sizes: Sequence[int], parallelism: int) -> int:
    """The same for segments that are folded."""
    return min(MAX_FOLD_BYTES, max(MIN_TASK_BYTES, sum(sizes) // (FOLD_TASKS_PER_CORE * parallelism)))


def divided(sizes: Sequence[int], parts: int) -> list[range]:
    """At most so many runs of neighbours, about as large as each other."""
    total = max(sum(sizes), 1)
    # A part has the items whose middles lie in it.
    numbers = [
        min((2 * end - size) * parts // (2 * total), parts - 1)
        for size, end in zip(sizes, accumulate(sizes), strict=True)
    ]
    bounds = [0, *(at for at in range(1, len(sizes)) if numbers[at] > numbers[at - 1]), len(sizes)]
    return [range(first, stop) for first, stop in pairwise(bounds)]


def share_out(tasks: Sequence[FoldTask], limit: int) -> list[Work]:
    """``tasks``, which come partition by partition, as work for Spark tasks of about ``limit`` bytes.

    Small partitions are put together; only one that is nearer to twice ``limit`` than to it, or larger, and has several
    tasks is taken apart. The largest come first, so that no core is left alone with one at the end.
    """
    by_partition: dict[int, list[FoldTask]] = {}
    for task in tasks:
        by_partition.setdefault(task.log.offsets_partition, []).append(task)
    partitions = list(by_partition.values())
    works = []
    for run in packed([sum(task.size for task in of_partition) for of_partition in partitions], limit):
        together = tuple(task for index in run for task in partitions[index])
        sizes = [task.size for task in together]
        parts = divided(sizes, max(1, round(sum(sizes) / limit))) if len(run) == 1 else []
        if len(parts) > 1:
            works += [Work(together[part.start : part.stop], whole=False) for part in parts]
        else:
            works.append(Work(together, whole=True))
    return sorted(works, key=lambda work: -work.size)
