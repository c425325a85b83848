"""Placement of groups, against values computed by Kafka."""

from __future__ import annotations

from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.groups.hashing import (
    java_string_hash,
    number_of_partitions,
    partition_for,
    partitions_for,
    placement_divisor,
)
from tests.cases import CASES


@pytest.mark.parametrize(
    "group_id, hashed, partition",
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("my-group", -1906497762, 12),
        ("console-consumer-12345", 158455506, 6),
        ("polygenelubricants", -2147483648, 0),
        ("group-ü", 293427502, 2),
        ("grp-😀", -1235730613, 13),
        ("test-consumer-group", -1793216381, 31),
    ],
)
def test_java_string_hash_and_partition(group_id: str, hashed: int, partition: int) -> None:
    assert java_string_hash(group_id) == hashed
    assert partition_for(group_id) == partition


@given(st.lists(st.text(st.characters(codec=None, exclude_categories=()), max_size=12)), st.integers(1, 64))
def test_many_groups_are_placed_as_each_of_them(group_ids: list[str], num_partitions: int) -> None:
    found = partitions_for([*group_ids, "polygenelubricants", "ä" * 300], num_partitions).tolist()
    alone = [partition_for(group_id, num_partitions) for group_id in group_ids]
    assert found == [*alone, 0, partition_for("ä" * 300, num_partitions)]


def test_testgroup_is_27_of_50() -> None:
    assert partition_for("testgroup", 50) == 27


@pytest.mark.parametrize("case", [case for case in CASES if case.is_modern], ids=lambda case: case.name)
def test_groups_lie_where_the_broker_put_them(case) -> None:  # type: ignore[no-untyped-def]
    for group_id, group in case.reloaded()["groups"].items():
        assert partition_for(group_id, case.offsets_partitions) == group["partition"], group_id


@given(st.lists(st.text(max_size=20), min_size=1, max_size=30), st.integers(1, 400))
def test_the_number_of_partitions_puts_every_group_where_it_is(groups: list[str], count: int) -> None:
    by_partition: dict[int, list[str]] = {}
    for group_id in groups:
        by_partition.setdefault(partition_for(group_id, count), []).append(group_id)
    divisor = gcd(*(placement_divisor(members, partition) for partition, members in by_partition.items()))
    found = number_of_partitions(divisor, max(by_partition) + 1)
    assert found is not None
    for partition, members in by_partition.items():
        assert {partition_for(group_id, found) for group_id in members} == {partition}


def test_many_groups_tell_the_number_of_partitions() -> None:
    groups = [f"group-{number}" for number in range(200)]
    for count in (1, 5, 16, 49, 50, 100):  # 25 would be 50: where groups fit both, the default is taken
        by_partition: dict[int, list[str]] = {}
        for group_id in groups:
            by_partition.setdefault(partition_for(group_id, count), []).append(group_id)
        divisor = gcd(*(placement_divisor(members, partition) for partition, members in by_partition.items()))
        assert number_of_partitions(divisor, max(by_partition) + 1) == count


def test_a_group_in_a_wrong_partition_leaves_no_number() -> None:
    groups = [f"group-{number}" for number in range(200)]
    assert number_of_partitions(placement_divisor(groups, 3), 50) is None
