"""Records of share groups (``GroupCoordinatorRecordHelpers``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from coordinator_core.coordinator.java import modern_records
from coordinator_core.coordinator.java.modern_records import of_group, of_member, target_partitions
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.record_data import (
    ShareCurrentAssignmentValue,
    ShareMemberValue,
    ShareStateValue,
    ShareTopicName,
    ShareTopicPartitions,
)
from coordinator_core.groups.model import ShareMember, ShareTopic
from coordinator_core.groups.modern import ShareRecords

epoch = partial(modern_records.epoch, ShareRecords)
target_metadata = partial(modern_records.target_metadata, ShareRecords)
removal = partial(modern_records.removal, ShareRecords)
target = partial(modern_records.target, ShareRecords)

_STABLE = 0
"""``MemberState`` of share members: there is nothing to revoke or to wait for."""


@dataclass(slots=True)
class StateTopics:
    """Share-partitions of a group by topic id (``ShareGroupStatePartitionMetadataInfo``).

    ``initializing`` are asked of the share coordinator, ``initialized`` have their state there, ``deleting`` lose it.
    """

    names: dict[str, str] = field(default_factory=dict)
    initializing: dict[str, frozenset[int]] = field(default_factory=dict)
    initialized: dict[str, frozenset[int]] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, topics: Iterable[ShareTopic]) -> StateTopics:
        """Share-partitions as the group's last record has them."""
        found = cls()
        for topic in topics:
            found.names[topic.topic_id] = topic.topic
            if topic.partitions is None:
                found.deleting.add(topic.topic_id)
            else:
                getattr(found, topic.status)[topic.topic_id] = frozenset(topic.partitions)
        return found

    def _partitions(self, topics: Mapping[str, frozenset[int]]) -> tuple[ShareTopicPartitions, ...]:
        return tuple(
            ShareTopicPartitions(topic_id, self.names[topic_id], tuple(sorted(partitions)))
            for topic_id, partitions in topics.items()
        )

    def record(self, group_id: str) -> Record:
        value = ShareStateValue(
            self._partitions(self.initializing),
            self._partitions(self.initialized),
            tuple(ShareTopicName(topic_id, self.names[topic_id]) for topic_id in sorted(self.deleting)),
        )
        return of_group(ShareRecords.state_metadata, group_id, value)


def member(group_id: str, one: ShareMember) -> Record:
    value = ShareMemberValue(one.rack_id, one.client_id, one.client_host, tuple(sorted(one.subscribed_topics)))
    return of_member(ShareRecords.member, group_id, one.member_id, value)


def current(group_id: str, one: ShareMember) -> Record:
    value = ShareCurrentAssignmentValue(
        one.member_epoch, one.previous_member_epoch, _STABLE, target_partitions(one.assigned)
    )
    return of_member(ShareRecords.current_assignment, group_id, one.member_id, value)
