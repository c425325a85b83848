"""Records of streams groups (``StreamsCoordinatorRecordHelpers``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from coordinator_core.coordinator.java import modern_records
from coordinator_core.coordinator.java.modern_records import of_group, of_member
from coordinator_core.coordinator.java.streams_member import LiveStreamsMember
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.record_data import (
    Endpoint,
    KeyValue,
    StreamsCurrentAssignmentValue,
    StreamsGroupMetadataValue,
    StreamsMemberValue,
    StreamsTargetAssignmentValue,
    StreamsTopology,
    TaskIds,
)
from coordinator_core.groups.model import StreamsMember, TaskAssignment, Tasks
from coordinator_core.groups.modern import STREAMS_MEMBER_STATES, StreamsRecords

target_metadata = partial(modern_records.target_metadata, StreamsRecords)
removal = partial(modern_records.removal, StreamsRecords)

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
    return of_member(StreamsRecords.member, group_id, one.member_id, value)


def key_values(entries: Mapping[str, str]) -> tuple[KeyValue, ...]:
    return tuple(KeyValue(*entry) for entry in sorted(entries.items()))


def epoch(
    group_id: str, group_epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> Record:
    value = StreamsGroupMetadataValue(group_epoch, metadata_hash, validated_topology_epoch, key_values(configs))
    return of_group(StreamsRecords.metadata, group_id, value)


def topology(group_id: str, value: StreamsTopology) -> Record:
    return of_group(StreamsRecords.topology, group_id, value)


def target(group_id: str, member_id: str, tasks: TaskAssignment) -> Record:
    value = StreamsTargetAssignmentValue(_ids(tasks.active), _ids(tasks.standby), _ids(tasks.warmup))
    return of_member(StreamsRecords.target_member, group_id, member_id, value)


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
    return of_member(StreamsRecords.current_assignment, group_id, one.member_id, value)


def _ids(tasks: Tasks, epochs: Tasks | None = None) -> tuple[TaskIds, ...]:
    return tuple(
        TaskIds(subtopology, partitions, None if epochs is None else epochs[subtopology])
        for subtopology, partitions in sorted(tasks.items())
    )
