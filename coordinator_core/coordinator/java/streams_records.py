"""Records of streams groups (``StreamsCoordinatorRecordHelpers``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator_core.coordinator.java.streams_member import LiveStreamsMember
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.record_data import (
    ConsumerGroupKey,
    ConsumerMemberKey,
    Endpoint,
    KeyValue,
    StreamsCurrentAssignmentValue,
    StreamsGroupMetadataValue,
    StreamsMemberValue,
    StreamsTargetAssignmentValue,
    StreamsTopology,
    TargetAssignmentMetadataValue,
    TaskIds,
)
from coordinator_core.groups.model import StreamsMember, TaskAssignment, Tasks
from coordinator_core.groups.modern import STREAMS_MEMBER_STATES, StreamsRecords

GROUP, MEMBER, TOPOLOGY = StreamsRecords.metadata, StreamsRecords.member, StreamsRecords.topology
TARGET_METADATA, TARGET_MEMBER = StreamsRecords.target_metadata, StreamsRecords.target_member
CURRENT = StreamsRecords.current_assignment

_STATE_NUMBERS = {state: number for number, state in STREAMS_MEMBER_STATES.items()}


def member(group_id: str, one: StreamsMember) -> Record:
    value = StreamsMemberValue(
        instance_id=one.instance_id,
        rack_id=one.rack_id,
        client_id=one.client_id,
        client_host=one.client_host,
        rebalance_timeout_ms=one.rebalance_timeout_ms,
        topology_epoch=one.topology_epoch,
        process_id=one.process_id,
        user_endpoint=None if one.user_endpoint is None else Endpoint(*one.user_endpoint),
        client_tags=key_values(dict(one.client_tags)),
    )
    return Record(MEMBER, ConsumerMemberKey(group_id, one.member_id), 0, value)


def key_values(entries: Mapping[str, str]) -> tuple[KeyValue, ...]:
    return tuple(KeyValue(*entry) for entry in sorted(entries.items()))


def member_tombstones(key_type: int, group_id: str, member_ids: Iterable[str]) -> list[Record]:
    """Tombstones of the members' records of one type."""
    return [Record(key_type, ConsumerMemberKey(group_id, member_id)) for member_id in member_ids]


def group_tombstone(key_type: int, group_id: str) -> Record:
    """Tombstone of a record of the group as a whole."""
    return Record(key_type, ConsumerGroupKey(group_id))


def epoch(
    group_id: str, group_epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> Record:
    value = StreamsGroupMetadataValue(group_epoch, metadata_hash, validated_topology_epoch, key_values(configs))
    return Record(GROUP, ConsumerGroupKey(group_id), 0, value)


def topology(group_id: str, value: StreamsTopology) -> Record:
    return Record(TOPOLOGY, ConsumerGroupKey(group_id), 0, value)


def target(group_id: str, member_id: str, tasks: TaskAssignment) -> Record:
    value = StreamsTargetAssignmentValue(_ids(tasks.active), _ids(tasks.standby), _ids(tasks.warmup))
    return Record(TARGET_MEMBER, ConsumerMemberKey(group_id, member_id), 0, value)


def target_metadata(group_id: str, assignment_epoch: int, timestamp_ms: int) -> Record:
    value = TargetAssignmentMetadataValue(assignment_epoch, timestamp_ms)
    return Record(TARGET_METADATA, ConsumerGroupKey(group_id), 0, value)


def current(group_id: str, one: LiveStreamsMember) -> Record:
    value = StreamsCurrentAssignmentValue(
        one.member_epoch,
        one.previous_member_epoch,
        _STATE_NUMBERS.get(one.state, 127),
        _ids(one.assigned.active, one.active_epochs),
        _ids(one.assigned.standby),
        _ids(one.assigned.warmup),
        _ids(one.pending_revocation.active, one.revoking_epochs),
        _ids(one.pending_revocation.standby),
        _ids(one.pending_revocation.warmup),
    )
    return Record(CURRENT, ConsumerMemberKey(group_id, one.member_id), 0, value)


def _ids(tasks: Tasks, epochs: Tasks | None = None) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology, partitions, None if epochs is None else epochs[subtopology])
        for subtopology, partitions in sorted(tasks.items())
    )
