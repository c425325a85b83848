"""Records of consumer groups (``GroupCoordinatorRecordHelpers``)."""

from __future__ import annotations

from typing import Any

from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import Partitions
from coordinator_core.groups.model import ConsumerMember, MemberState, PartitionEpochs, ResolvedRegex
from coordinator_core.groups.modern import MEMBER_STATES, ConsumerRecords

GROUP, MEMBER = ConsumerRecords.metadata, ConsumerRecords.member
TARGET_METADATA, TARGET_MEMBER = ConsumerRecords.target_metadata, ConsumerRecords.target_member
CURRENT = ConsumerRecords.current_assignment
PARTITION_METADATA, REGEX = ConsumerRecords.partition_metadata, ConsumerRecords.regex

_STATE_NUMBERS = {state: number for number, state in MEMBER_STATES.items()} | {MemberState.UNKNOWN: 127}


def _member_key(group_id: str, member_id: str) -> dict[str, Any]:
    return {"groupId": group_id, "memberId": member_id}


def member(group_id: str, one: ConsumerMember) -> Record:
    classic = None
    if one.classic_protocols is not None:
        classic = {
            "sessionTimeoutMs": one.classic_session_timeout_ms,
            "supportedProtocols": [{"name": name, "metadata": blob} for name, blob in one.classic_protocols],
        }
    value = {
        "instanceId": one.instance_id,
        "rackId": one.rack_id,
        "clientId": one.client_id,
        "clientHost": one.client_host,
        "subscribedTopicNames": sorted(one.subscribed_topics),
        "subscribedTopicRegex": one.subscribed_regex or "",
        "rebalanceTimeoutMs": one.rebalance_timeout_ms,
        "serverAssignor": one.server_assignor,
        "classicMemberMetadata": classic,
    }
    return Record(MEMBER, _member_key(group_id, one.member_id), 0, value)


def member_tombstone(group_id: str, member_id: str) -> Record:
    return Record(MEMBER, _member_key(group_id, member_id))


def epoch(group_id: str, group_epoch: int, metadata_hash: int) -> Record:
    return Record(GROUP, {"groupId": group_id}, 0, {"epoch": group_epoch, "metadataHash": metadata_hash})


def epoch_tombstone(group_id: str) -> Record:
    return Record(GROUP, {"groupId": group_id})


def partition_metadata_tombstone(group_id: str) -> Record:
    return Record(PARTITION_METADATA, {"groupId": group_id})


def target(group_id: str, member_id: str, partitions: Partitions) -> Record:
    value = {
        "topicPartitions": [
            {"topicId": str(topic_id), "partitions": sorted(assigned)} for topic_id, assigned in partitions.items()
        ]
    }
    return Record(TARGET_MEMBER, _member_key(group_id, member_id), 0, value)


def target_tombstone(group_id: str, member_id: str) -> Record:
    return Record(TARGET_MEMBER, _member_key(group_id, member_id))


def target_metadata(group_id: str, assignment_epoch: int, timestamp_ms: int) -> Record:
    value = {"assignmentEpoch": assignment_epoch, "assignmentTimestamp": timestamp_ms}
    return Record(TARGET_METADATA, {"groupId": group_id}, 0, value)


def target_metadata_tombstone(group_id: str) -> Record:
    return Record(TARGET_METADATA, {"groupId": group_id})


def current(group_id: str, one: ConsumerMember) -> Record:
    value = {
        "memberEpoch": one.member_epoch,
        "previousMemberEpoch": one.previous_member_epoch,
        "state": _STATE_NUMBERS[one.state],
        "assignedPartitions": _with_epochs(one.assigned_since()),
        "partitionsPendingRevocation": _with_epochs(one.pending_revocation_since()),
    }
    return Record(CURRENT, _member_key(group_id, one.member_id), 0, value)


def _with_epochs(assignment: PartitionEpochs) -> list[dict[str, Any]]:
    return [
        {
            "topicId": str(topic_id),
            "partitions": sorted(epochs),
            "assignmentEpochs": [epochs[partition] for partition in sorted(epochs)],
        }
        for topic_id, epochs in assignment.items()
    ]


def current_tombstone(group_id: str, member_id: str) -> Record:
    return Record(CURRENT, _member_key(group_id, member_id))


def regex(group_id: str, expression: str, resolved: ResolvedRegex) -> Record:
    value = {
        "topics": sorted(resolved.topics),
        "version": resolved.version,
        "timestamp": resolved.timestamp_ms,
    }
    return Record(REGEX, {"groupId": group_id, "regularExpression": expression}, 0, value)


def regex_tombstone(group_id: str, expression: str) -> Record:
    return Record(REGEX, {"groupId": group_id, "regularExpression": expression})
