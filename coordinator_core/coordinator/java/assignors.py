"""The server-side assignors by name, and ``range``.

Sources: ``RangeAssignor``, ``TargetAssignmentBuilder``. The order in which members and topics are visited is
that of Kafka's maps.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator_core.coordinator.java.group_spec import Assignment, GroupSpec
from coordinator_core.coordinator.java.uniform import assign_uniform
from coordinator_core.coordinator.maps import JavaHashMap, TopicId, capacity_for

DEFAULT_ASSIGNOR = "uniform"


def assign_range(group: GroupSpec) -> Assignment:
    """Consecutive partitions of each topic, members by instance id, then by member id."""
    ordered = sorted(
        group.members,
        key=lambda one: (group.members[one].instance_id is None, _utf16(group.members[one].instance_id or one)),
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
