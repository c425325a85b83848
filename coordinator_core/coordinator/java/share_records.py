"""Records of share groups (``GroupCoordinatorRecordHelpers``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import Partitions
from coordinator_core.coordinator.record_data import (
    ConsumerGroupKey,
    ConsumerGroupMetadataValue,
    ConsumerMemberKey,
    ShareCurrentAssignmentValue,
    ShareMemberValue,
    ShareStateValue,
    ShareTopicName,
    ShareTopicPartitions,
    TargetAssignmentMetadataValue,
    TargetAssignmentValue,
    TargetPartitions,
)
from coordinator_core.groups.model import ShareMember, ShareTopic
from coordinator_core.groups.modern import ShareRecords

GROUP, MEMBER = ShareRecords.metadata, ShareRecords.member
TARGET_METADATA, TARGET_MEMBER = ShareRecords.target_metadata, ShareRecords.target_member
T = TypeVar("T", bound=str)
CURRENT, STATE = ShareRecords.current_assignment, ShareRecords.state_metadata

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
        return Record(STATE, ConsumerGroupKey(group_id), 0, value)


def member(group_id: str, one: ShareMember) -> Record:
    value = ShareMemberValue(one.rack_id, one.client_id, one.client_host, tuple(sorted(one.subscribed_topics)))
    return Record(MEMBER, ConsumerMemberKey(group_id, one.member_id), 0, value)


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """The end of a member: of its assignments, then of itself."""
    return [Record(one, ConsumerMemberKey(group_id, member_id)) for one in (CURRENT, TARGET_MEMBER, MEMBER)]


def group_tombstones(group_id: str) -> list[Record]:
    """The end of a group without members."""
    return [Record(one, ConsumerGroupKey(group_id)) for one in (TARGET_METADATA, STATE, GROUP)]


def epoch(group_id: str, group_epoch: int, metadata_hash: int) -> Record:
    return Record(GROUP, ConsumerGroupKey(group_id), 0, ConsumerGroupMetadataValue(group_epoch, metadata_hash))


def target(group_id: str, member_id: str, partitions: Partitions) -> Record:
    value = TargetAssignmentValue(_topic_partitions(partitions))
    return Record(TARGET_MEMBER, ConsumerMemberKey(group_id, member_id), 0, value)


def target_metadata(group_id: str, assignment_epoch: int, timestamp_ms: int) -> Record:
    value = TargetAssignmentMetadataValue(assignment_epoch, timestamp_ms)
    return Record(TARGET_METADATA, ConsumerGroupKey(group_id), 0, value)


def current(group_id: str, one: ShareMember) -> Record:
    value = ShareCurrentAssignmentValue(
        one.member_epoch, one.previous_member_epoch, _STABLE, _topic_partitions(one.assigned)
    )
    return Record(CURRENT, ConsumerMemberKey(group_id, one.member_id), 0, value)


def _topic_partitions(assignment: Mapping[T, Iterable[int]]) -> tuple[TargetPartitions, ...]:
    return tuple(TargetPartitions(str(topic_id), tuple(sorted(found))) for topic_id, found in assignment.items())
