"""The server-side assignors by name, their input, and ``range``.

Sources: ``RangeAssignor``, ``TargetAssignmentBuilder``. The order in which members and topics are visited is
that of Kafka's maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coordinator_core.coordinator.java.consumer_group import Partitions
from coordinator_core.coordinator.java.uniform import assign_uniform
from coordinator_core.coordinator.maps import JavaHashMap, TopicId, capacity_for

DEFAULT_ASSIGNOR = "uniform"

Assignment = dict[str, Partitions]


@dataclass(frozen=True, slots=True)
class Spec:
    """A member as an assignor sees it: topics that exist, instance id, target so far."""

    topic_ids: tuple[TopicId, ...]
    instance_id: str | None
    assignment: Partitions


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group as an assignor sees it: members in the order of their map, partition counts by topic."""

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
    assignment: Assignment = {}
    subscribers: dict[TopicId, list[str]] = {}
    for member_id in ordered:
        topic_ids = group.members[member_id].topic_ids
        assignment[member_id] = JavaHashMap.with_capacity(capacity_for(len(topic_ids)))
        for topic_id in topic_ids:
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


ASSIGNORS: dict[str, Callable[[GroupSpec], Assignment]] = {"uniform": assign_uniform, "range": assign_range}
