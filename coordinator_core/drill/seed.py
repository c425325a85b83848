"""The records that would make a replayed group, so that the coordinator model can load it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator_core.coordinator.java.consumer_records import (
    CURRENT,
    GROUP,
    MEMBER,
    REGEX,
    STATE_NUMBERS,
    TARGET_MEMBER,
    TARGET_METADATA,
)
from coordinator_core.coordinator.log import OffsetsLog, Record
from coordinator_core.coordinator.records import group_metadata_of, offset_commit
from coordinator_core.groups.model import (
    Assignment,
    ClassicGroup,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    PartitionState,
    Slot,
)


def seed(log: OffsetsLog, state: PartitionState, group_id: str) -> None:
    """Append what ``state`` holds of a classic or consumer group, its open transactions last."""
    partition = state.offsets_partition
    group = state.groups.get(group_id)
    if isinstance(group, ClassicGroup) and group.record_offset is not None:
        members = [(member, member.subscription, member.assignment) for member in group.members]
        record = group_metadata_of(group, group.protocol, members)
        log.append(partition, [record], group.state_timestamp_ms or 0)
    elif isinstance(group, ConsumerGroup):
        log.append(partition, list(_consumer(group)), 0)
    for slot, committed in state.offsets.items():
        if slot.group_id == group_id:
            log.append(partition, [_commit(slot, committed)], committed.commit_timestamp_ms)
    for producer_id, pending in state.pending.items():
        for slot, committed in pending.items():
            if slot.group_id == group_id:
                log.append(
                    partition,
                    [_commit(slot, committed)],
                    committed.commit_timestamp_ms,
                    producer_id=producer_id,
                    producer_epoch=committed.producer_epoch or 0,
                )


def _commit(slot: Slot, committed: CommittedOffset) -> Record:
    return offset_commit(
        slot.group_id,
        slot.topic,
        slot.partition,
        offset=committed.committed_offset,
        leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp_ms=committed.commit_timestamp_ms,
        expire_timestamp_ms=committed.expire_timestamp_ms,
        version=3,
    )


def _consumer(group: ConsumerGroup) -> Iterator[Record]:
    """In an order that every loader takes: members before their target and current assignments."""
    key = {"groupId": group.group_id}
    for member in group.members.values():
        yield Record(MEMBER, key | {"memberId": member.member_id}, 0, _member(member))
    for expression, regex in group.regexes.items():
        value = {"topics": list(regex.topics), "version": regex.version, "timestamp": regex.timestamp_ms}
        yield Record(REGEX, key | {"regularExpression": expression}, 0, value)
    epoch = {"epoch": group.group_epoch, "metadataHash": group.metadata_hash}
    yield Record(GROUP, key, 0, epoch)
    for member_id, target in group.target_assignment.items():
        yield Record(TARGET_MEMBER, key | {"memberId": member_id}, 0, {"topicPartitions": _topics(target)})
    assigned = {
        "assignmentEpoch": group.assignment_epoch,
        "assignmentTimestamp": group.assignment_timestamp_ms,
    }
    yield Record(TARGET_METADATA, key, 0, assigned)
    for member in group.members.values():
        current = {
            "memberEpoch": member.member_epoch,
            "previousMemberEpoch": member.previous_member_epoch,
            "state": STATE_NUMBERS[member.state],
            "assignedPartitions": _topics(member.assigned),
            "partitionsPendingRevocation": _topics(member.pending_revocation),
        }
        yield Record(CURRENT, key | {"memberId": member.member_id}, 0, current)


def _member(member: ConsumerMember) -> dict[str, Any]:
    classic = None
    if member.classic_protocols is not None:
        classic = {
            "sessionTimeoutMs": member.classic_session_timeout_ms,
            "supportedProtocols": [
                {"name": name, "metadata": blob} for name, blob in member.classic_protocols
            ],
        }
    return {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "subscribedTopicNames": list(member.subscribed_topics),
        "subscribedTopicRegex": member.subscribed_regex,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.server_assignor,
        "classicMemberMetadata": classic,
    }


def _topics(assignment: Assignment) -> list[dict[str, Any]]:
    return [{"topicId": topic, "partitions": list(found)} for topic, found in assignment.items()]
