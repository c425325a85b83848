"""The server-side assignors ``range`` and ``uniform``, and how a target assignment is built with them.

Sources: ``RangeAssignor``, ``UniformAssignor``, ``UniformHomogeneousAssignmentBuilder``,
``TargetAssignmentBuilder``. The order in which members and topics are visited is that of Kafka's maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coordinator_core.coordinator.java.consumer_group import Partitions
from coordinator_core.coordinator.java.uniform import assign_heterogeneous
from coordinator_core.coordinator.maps import JavaHashMap, TopicId

DEFAULT_ASSIGNOR = "uniform"

Assignment = dict[str, Partitions]


@dataclass(frozen=True, slots=True)
class Spec:
    """What an assignor is told of a member: its topics that exist, its instance, its target so far."""

    topic_ids: tuple[TopicId, ...]
    instance_id: str | None
    assignment: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """Members in the order of their map; ``partitions`` counts those of each topic."""

    members: Mapping[str, Spec]
    partitions: Mapping[TopicId, int]
    homogeneous: bool
    is_assigned: Callable[[TopicId, int], bool]


def assign_range(group: GroupSpec) -> Assignment:
    """Consecutive partitions of each topic, members by instance id, then by member id."""
    ordered = sorted(
        group.members,
        key=lambda one: (
            group.members[one].instance_id is None,
            _utf16(group.members[one].instance_id or one),
        ),
    )
    assignment: Assignment = {member_id: {} for member_id in ordered}
    subscribers: dict[TopicId, list[str]] = {}
    for member_id in ordered:
        for topic_id in group.members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, member_ids in subscribers.items():
        quota, extra = divmod(group.partitions[topic_id], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + quota + (position < extra)
            if start < end:
                assignment[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return assignment


def _utf16(text: str) -> bytes:
    """``String.compareTo`` compares UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")


def assign_uniform(group: GroupSpec) -> Assignment:
    return _assign_homogeneous(group) if group.homogeneous else assign_heterogeneous(group)


ASSIGNORS: dict[str, Callable[[GroupSpec], Assignment]] = {"uniform": assign_uniform, "range": assign_range}


def _assign_homogeneous(group: GroupSpec) -> Assignment:
    """Equally many partitions for all; who has too many gives up the last ones, in the order of the map."""
    first = next(iter(group.members.values()))
    topic_ids = list(JavaHashMap((topic_id, None) for topic_id in first.topic_ids))
    if not topic_ids:
        return {}
    unassigned = [
        (topic_id, partition)
        for topic_id in topic_ids
        for partition in range(group.partitions[topic_id])
        if not group.is_assigned(topic_id, partition)
    ]
    total = sum(group.partitions[topic_id] for topic_id in topic_ids)
    minimum, extra = divmod(total, len(group.members))
    assignment: dict[str, dict[TopicId, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, spec) in enumerate(group.members.items()):
        quota, has_extra = minimum + (extra > 0), extra > 0
        kept: dict[TopicId, set[int]] = {}
        for topic_id, partitions in JavaHashMap(spec.assignment).items():
            if topic_id not in topic_ids:
                continue
            ordered = sorted(partitions)
            kept[topic_id] = set(ordered[: max(quota, 0)])
            unassigned += [(topic_id, partition) for partition in ordered[max(quota, 0) :]]
            quota -= len(kept[topic_id])
            if not kept[topic_id]:
                del kept[topic_id]
        assignment[member_id] = kept
        if quota > 0 and has_extra and len(group.members) - index > extra:
            quota, has_extra = quota - 1, False
        if quota > 0:
            unfilled.append((member_id, quota))
        if has_extra:
            extra -= 1
    free = iter(unassigned)
    for member_id, quota in unfilled:
        for _, (topic_id, partition) in zip(range(quota), free, strict=False):
            assignment[member_id].setdefault(topic_id, set()).add(partition)
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
        for member_id, topics in assignment.items()
    }
