"""Records of consumer groups (``GroupCoordinatorRecordHelpers``)."""

from __future__ import annotations

from functools import partial

from coordinator_core.coordinator.java import modern_records
from coordinator_core.coordinator.java.modern_records import of_member
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.record_data import (
    AssignedPartitions,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerMemberValue,
    CurrentAssignmentValue,
    RegularExpressionKey,
    RegularExpressionValue,
)
from coordinator_core.groups.model import ConsumerMember, MemberState, PartitionEpochs, ResolvedRegex
from coordinator_core.groups.modern import MEMBER_STATES, ConsumerRecords

epoch = partial(modern_records.epoch, ConsumerRecords)
target_metadata = partial(modern_records.target_metadata, ConsumerRecords)
removal = partial(modern_records.removal, ConsumerRecords)
target = partial(modern_records.target, ConsumerRecords)

_STATE_NUMBERS = {state: number for number, state in MEMBER_STATES.items()} | {MemberState.UNKNOWN: 127}


def member(group_id: str, one: ConsumerMember) -> Record:
    classic = None
    if one.classic_protocols is not None:
        assert one.classic_session_timeout_ms is not None
        protocols = tuple(ClassicProtocol(*protocol) for protocol in one.classic_protocols)
        classic = ClassicMemberMetadata(one.classic_session_timeout_ms, protocols)
    value = ConsumerMemberValue(
        instance_id=one.instance_id,
        rack_id=one.rack_id,
        client_id=one.client_id,
        client_host=one.client_host,
        subscribed_topic_names=tuple(sorted(one.subscribed_topics)),
        subscribed_topic_regex=one.subscribed_regex or "",
        rebalance_timeout_ms=one.rebalance_timeout_ms,
        server_assignor=one.server_assignor,
        classic_member_metadata=classic,
    )
    return of_member(ConsumerRecords.member, group_id, one.member_id, value)


def current(group_id: str, one: ConsumerMember) -> Record:
    value = CurrentAssignmentValue(
        member_epoch=one.member_epoch,
        previous_member_epoch=one.previous_member_epoch,
        state=_STATE_NUMBERS[one.state],
        assigned_partitions=_with_epochs(one.assigned_since()),
        partitions_pending_revocation=_with_epochs(one.pending_revocation_since()),
    )
    return of_member(ConsumerRecords.current_assignment, group_id, one.member_id, value)


def _with_epochs(assignment: PartitionEpochs) -> tuple[AssignedPartitions, ...]:
    return tuple(
        AssignedPartitions(str(topic_id), tuple(sorted(epochs)), tuple(epochs[one] for one in sorted(epochs)))
        for topic_id, epochs in assignment.items()
    )


def regex(group_id: str, expression: str, resolved: ResolvedRegex) -> Record:
    value = RegularExpressionValue(tuple(sorted(resolved.topics)), resolved.version, resolved.timestamp_ms)
    return Record(ConsumerRecords.regex, RegularExpressionKey(group_id, expression), 0, value)


def regex_tombstone(group_id: str, expression: str) -> Record:
    return Record(ConsumerRecords.regex, RegularExpressionKey(group_id, expression))
