from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_apps.packing import MAX_TASK_BYTES, MIB, MIN_TASK_BYTES, packed, task_bytes


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


def test_a_large_segment_has_a_task_of_its_own() -> None:
    sizes = [1, 100 * MIB, 1, 1, 100 * MIB]
    assert packed(sizes, MAX_TASK_BYTES) == [range(1), range(1, 2), range(2, 4), range(4, 5)]
