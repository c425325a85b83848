"""The ``simple`` assignor of share groups: each partition to equally many members, members with equally many.

Sources: ``SimpleAssignor``, ``SimpleHomogeneousAssignmentBuilder``, ``SimpleHeterogeneousAssignmentBuilder``. Which
partition a member gives up depends on the order of Kafka's hash maps. ``tests/live/test_share_assignor.py``
compares with the real classes on random groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from coordinator_core.coordinator.java.group_spec import Assignment
from coordinator_core.coordinator.maps import (
    JavaHashMap,
    Partitions,
    SharePartition,
    TopicId,
    capacity_for,
    java_set_order,
)

P = TypeVar("P")


class ShareSpec(NamedTuple):
    """Assignor's view of a member: its topics that exist, its target so far."""

    topic_ids: tuple[TopicId, ...]
    assignment: Partitions


def assign_simple(
    members: Mapping[str, ShareSpec], partitions: Mapping[TopicId, frozenset[int]], *, homogeneous: bool
) -> Assignment:
    """Assign the ``partitions`` that have state to members, which are in the order of their map.

    ``homogeneous``: all members subscribe to the same topics. Then all partitions are shared out at once, else those
    of each topic among its subscribers. A topic of which a member keeps nothing stays with it as an empty set.
    """
    topic_ids = dict.fromkeys(topic_id for spec in members.values() for topic_id in spec.topic_ids)
    if not topic_ids:
        return {}
    share = _share_all if homogeneous else _share_by_topic
    found = share(list(members.values()), {one: sorted(partitions.get(one, ())) for one in topic_ids})
    return {
        member_id: JavaHashMap((topic_id, frozenset(numbers)) for topic_id, numbers in topics.items())
        for member_id, topics in zip(members, found, strict=True)
    }


Shares = list[dict[TopicId, set[int]]]
"""Partitions of topics by the index of a member."""


def _share_all(specs: list[ShareSpec], partitions: Mapping[TopicId, list[int]]) -> Shares:
    old = {
        index: [SharePartition(one, number) for one, had in spec.assignment.items() for number in sorted(had)]
        for index, spec in enumerate(specs)
    }
    target = [SharePartition(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers]
    found: Shares = [{one: set() for one in spec.assignment if one in partitions} for spec in specs]
    for index, shared in _shared_out(target, old, [one for had in old.values() for one in had]).items():
        for topic_id, number in shared:
            found[index].setdefault(topic_id, set()).add(number)
    return found


def _share_by_topic(specs: list[ShareSpec], partitions: Mapping[TopicId, list[int]]) -> Shares:
    """Topics to which nobody subscribes any more stay where they are."""
    found: Shares = [
        {one: set() if one in partitions else set(had) for one, had in spec.assignment.items()} for spec in specs
    ]
    for topic_id, numbers in partitions.items():
        old = {
            index: sorted(spec.assignment.get(topic_id, ()))
            for index, spec in enumerate(specs)
            if topic_id in spec.topic_ids
        }
        known = [number for spec in specs for number in sorted(spec.assignment.get(topic_id, ()))]
        for index, shared in _shared_out(numbers, old, known).items():
            if shared:
                found[index][topic_id] = set(shared)
    return found


def _shared_out(target: Sequence[P], old: Mapping[int, Iterable[P]], known: Iterable[P]) -> Mapping[int, Iterable[P]]:
    """Partitions by index of a member: those of its ``old`` ones of which neither it nor the partition has too many,
    then free ones. ``known`` partitions came into Kafka's map first, which decides its order."""
    if not target:
        return {}
    wanted = set(target)
    sharing = -(-len(old) // len(target))
    quotas = dict(zip(old, _quotas(sharing * len(target), len(old)), strict=True))
    new: dict[int, dict[P, None]] = {}
    holders: JavaHashMap[P, JavaHashMap[int, None]] = JavaHashMap.with_capacity(capacity_for(len(target) + 1))
    for one in (*(one for one in known if one in wanted), *target):
        holders.compute_if_absent(one, JavaHashMap)
    for index, partitions in old.items():
        had = [one for one in partitions if one in wanted]
        ordered = java_set_order(had)
        new[index] = dict.fromkeys(ordered[max(0, len(ordered) - quotas[index]) :])
        for one in had:
            holders[one][index] = None
    for one, held_by in holders.items():
        for index in list(held_by):
            if one not in new[index]:
                del held_by[index]
    for one, held_by in holders.items():
        for index in list(held_by)[: max(0, len(held_by) - sharing)]:
            del new[index][one]
            del held_by[index]
    _fill(new, quotas, holders, sharing)
    return new


def _quotas(places: int, members: int) -> list[int]:
    """Most of the ``places`` that each member may have (``desiredAssignmentCount``); its sums are doubles."""
    precise = places / members
    ends = [math.ceil(precise * (index + 1)) for index in range(members)]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def _fill(
    new: dict[int, dict[P, None]], quotas: Mapping[int, int], holders: Mapping[P, dict[int, None]], sharing: int
) -> None:
    """Give free places to members in turn, who have room."""
    indices = list(new)
    turn = 0
    for one, held_by in holders.items():
        passed_over = 0
        while len(held_by) < sharing and passed_over < len(indices):
            index = indices[turn % len(indices)]
            turn += 1
            if len(new[index]) < quotas[index] and index not in held_by:
                new[index][one] = None
                held_by[index] = None
                passed_over = 0
            else:
                passed_over += 1
