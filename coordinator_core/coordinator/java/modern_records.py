"""Records that consumer, share and streams groups have alike, each under key types of its own.

Source: ``GroupCoordinatorRecordHelpers``, ``StreamsCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import Partitions
from coordinator_core.coordinator.record_data import (
    ConsumerGroupKey,
    ConsumerGroupMetadataValue,
    ConsumerMemberKey,
    RecordValue,
    TargetAssignmentMetadataValue,
    TargetAssignmentValue,
    TargetPartitions,
)
from coordinator_core.groups.modern import ModernRecords

T = TypeVar("T", bound=str)


def of_group(key_type: int, group_id: str, value: RecordValue | None = None) -> Record:
    """A record of the group as a whole; its tombstone without ``value``."""
    return Record(key_type, ConsumerGroupKey(group_id), 0, value)


def of_member(key_type: int, group_id: str, member_id: str, value: RecordValue | None = None) -> Record:
    """A record of one member; its tombstone without ``value``."""
    return Record(key_type, ConsumerMemberKey(group_id, member_id), 0, value)


def removal(types: type[ModernRecords], group_id: str, member_id: str) -> list[Record]:
    """The end of a member: tombstones of its assignments, then of itself."""
    return [
        of_member(one, group_id, member_id) for one in (types.current_assignment, types.target_member, types.member)
    ]


def end_of_members(types: type[ModernRecords], group_id: str, member_ids: Collection[str]) -> list[Record]:
    """The end of all members of a group: tombstones of their assignments, then of themselves."""
    current, targets, members = (
        [of_member(one, group_id, member_id) for member_id in member_ids]
        for one in (types.current_assignment, types.target_member, types.member)
    )
    return [*current, *targets, of_group(types.target_metadata, group_id), *members]


def epoch(types: type[ModernRecords], group_id: str, group_epoch: int, metadata_hash: int) -> Record:
    return of_group(types.metadata, group_id, ConsumerGroupMetadataValue(group_epoch, metadata_hash))


def target_metadata(types: type[ModernRecords], group_id: str, assignment_epoch: int, timestamp_ms: int) -> Record:
    return of_group(types.target_metadata, group_id, TargetAssignmentMetadataValue(assignment_epoch, timestamp_ms))


def target(types: type[ModernRecords], group_id: str, member_id: str, partitions: Partitions) -> Record:
    value = TargetAssignmentValue(target_partitions(partitions))
    return of_member(types.target_member, group_id, member_id, value)


def target_partitions(assignment: Mapping[T, Iterable[int]]) -> tuple[TargetPartitions, ...]:
    """Partitions by topic id as values hold them, in the order of ``assignment``."""
    return tuple(TargetPartitions(str(topic_id), tuple(sorted(found))) for topic_id, found in assignment.items())
