"""Records of consumer groups (``GroupCoordinatorRecordHelpers``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator_core.coordinator.log import Record
from coordinator_core.groups.model import MemberState

if TYPE_CHECKING:
    from coordinator_core.coordinator.java.consumer_group import (
        ConsumerMember,
        Epochs,
        Partitions,
        ResolvedRegex,
    )

GROUP, PARTITION_METADATA, MEMBER, TARGET_METADATA, TARGET_MEMBER, CURRENT, REGEX = 3, 4, 5, 6, 7, 8, 16

STATE_NUMBERS = {
    MemberState.STABLE: 0,
    MemberState.UNREVOKED_PARTITIONS: 1,
    MemberState.UNRELEASED_PARTITIONS: 2,
    MemberState.UNKNOWN: 127,
}


def _member_key(group_id: str, member_id: str) -> dict[str, Any]:
    return {"groupId": group_id, "memberId": member_id}


def member(group_id: str, one: ConsumerMember) -> Record:
    classic = one.classic
    value = {
        "instanceId": one.instance_id,
        "rackId": one.rack_id,
        "clientId": one.client_id,
        "clientHost": one.client_host,
        "subscribedTopicNames": sorted(one.subscribed_topics),
        "subscribedTopicRegex": one.subscribed_regex,
        "rebalanceTimeoutMs": one.rebalance_timeout_ms,
        "serverAssignor": one.server_assignor,
        "classicMemberMetadata": None
        if classic is None
        else {
            "sessionTimeoutMs": classic.session_timeout_ms,
            "supportedProtocols": [{"name": name, "metadata": blob} for name, blob in classic.protocols],
        },
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
            {"topicId": str(topic_id), "partitions": sorted(assigned)}
            for topic_id, assigned in partitions.items()
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
        "state": STATE_NUMBERS[one.state],
        "assignedPartitions": _with_epochs(one.assigned),
        "partitionsPendingRevocation": _with_epochs(one.pending_revocation),
    }
    return Record(CURRENT, _member_key(group_id, one.member_id), 0, value)


def _with_epochs(assignment: Epochs) -> list[dict[str, Any]]:
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
