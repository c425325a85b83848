from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.fold.tasks import FoldTask, packed
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog, SegmentFile
from spark_apps.packing import (
    MAX_TASK_BYTES,
    MIB,
    MIN_TASK_BYTES,
    divided,
    fold_task_bytes,
    share_out,
    task_bytes,
)


@given(st.lists(st.integers(0, 50)), st.integers(1, 100))
def test_every_item_is_in_one_run_in_order(sizes: list[int], limit: int) -> None:
    runs = packed(sizes, limit)
    assert [index for run in runs for index in run] == list(range(len(sizes)))
    for run in runs:
        assert len(run) == 1 or sum(sizes[index] for index in run) <= limit
    for one, other in pairwise(runs):
        assert sum(sizes[index] for index in one) + sizes[other[0]] > limit


@pytest.mark.parametrize(
    "sizes, parallelism, expected",
    [
        ([10] * 5, 2, MIN_TASK_BYTES),
        ([16 * MIB], 2, 2 * MIB),
        ([100 * MIB] * 50, 8, MAX_TASK_BYTES),
        ([], 4, MIN_TASK_BYTES),
    ],
)
def test_task_size_follows_input_and_cores(sizes: list[int], parallelism: int, expected: int) -> None:
    assert task_bytes(sizes, parallelism) == expected


def test_what_is_larger_than_the_limit_is_alone() -> None:
    sizes = [1, 100 * MIB, 1, 1, 100 * MIB]
    assert packed(sizes, MIB) == [range(1), range(1, 2), range(2, 4), range(4, 5)]


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 8))
def test_parts_are_about_as_large_as_each_other(sizes: list[int], parts: int) -> None:
    runs = divided(sizes, parts)
    assert [index for run in runs for index in run] == list(range(len(sizes)))
    assert len(runs) <= parts
    assert all(runs)
    for run in runs:
        assert sum(sizes[index] for index in run) <= sum(sizes) / parts + max(sizes)


def test_equal_partitions_stay_whole_and_a_single_one_is_shared_out() -> None:
    segment = 100 * MIB
    for partitions, expected in (
        ([[segment] * 10], [(3, False), (3, False), (2, False), (2, False)]),
        ([[segment] * 10] * 4, [(10, True)] * 4),
    ):
        tasks = fold_tasks(*partitions)
        works = share_out(tasks, fold_task_bytes([task.size for task in tasks], 2))
        assert [(len(work.tasks), work.whole) for work in works] == expected


def fold_tasks(*partitions: list[int]) -> list[FoldTask]:
    """A task for each segment of the given sizes."""
    tasks = []
    for number, sizes in enumerate(partitions):
        segments = tuple(SegmentFile(f"{number}/{at}", number, at, size) for at, size in enumerate(sizes))
        log = PartitionLog(number, str(number), segments, None, False)
        tasks += [FoldTask(log, ((segment, None),), {}, OnDamage.FAIL) for segment in segments]
    return tasks


def test_small_partitions_are_merged_where_they_are_folded() -> None:
    works = share_out(fold_tasks([1, 2], [3], [4, 4]), 10)
    assert [(work.place, work.size, work.whole) for work in works] == [((2, 0), 8, True), ((0, 0), 6, True)]


def test_a_large_partition_is_taken_apart_and_the_largest_comes_first() -> None:
    works = share_out(fold_tasks([1], [5, 2, 2, 20], [30]), 9)
    assert [(work.place, work.size, work.whole) for work in works] == [
        ((2, 0), 30, True),
        ((1, 3), 20, False),
        ((1, 0), 9, False),
        ((0, 0), 1, True),
    ]


@given(st.lists(st.lists(st.integers(0, 50), min_size=1), max_size=8), st.integers(1, 100))
def test_every_segment_is_in_one_work_and_in_order(partitions: list[list[int]], limit: int) -> None:
    tasks = fold_tasks(*partitions)
    works = sorted(share_out(tasks, limit), key=lambda work: work.place)
    assert [task for work in works for task in work.tasks] == tasks
    for work in works:
        numbers = {task.log.offsets_partition for task in work.tasks}
        segments = sum(len(partitions[number]) for number in numbers)
        assert work.whole == (segments == len(work.tasks))
