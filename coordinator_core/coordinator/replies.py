"""Answers as dicts with Kafka's field names; :mod:`.protocol` leaves out what a version does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.requests import MemberIdentity
from coordinator_core.groups.model import CommittedOffset

Reply = dict[str, Any]
Respond = Callable[[Reply], None]


def join_reply(
    error: Errors,
    member_id: str = "",
    *,
    generation: int = -1,
    protocol_type: str | None = None,
    protocol_name: str | None = None,
    leader: str | None = "",
    skip_assignment: bool = False,
    members: Iterable[Reply] = (),
) -> Reply:
    return {
        "errorCode": error,
        "generationId": generation,
        "protocolType": protocol_type,
        "protocolName": protocol_name,
        "leader": leader or "",
        "skipAssignment": skip_assignment,
        "memberId": member_id,
        "members": list(members),
    }


def sync_reply(
    error: Errors,
    assignment: bytes = b"",
    protocol_type: str | None = None,
    protocol_name: str | None = None,
) -> Reply:
    return {
        "errorCode": error,
        "protocolType": protocol_type,
        "protocolName": protocol_name,
        "assignment": assignment,
    }


def leave_reply(error: Errors, members: Iterable[Reply] = ()) -> Reply:
    return {"errorCode": error, "members": list(members)}


def leave_member_reply(identity: MemberIdentity, error: Errors) -> Reply:
    return {
        "memberId": identity.member_id,
        "groupInstanceId": identity.instance_id,
        "errorCode": error,
    }


def described_group(group_id: str, error: Errors = Errors.NONE, **fields: Any) -> Reply:
    """An entry of DescribeGroups; fields that are not given are empty."""
    return {
        "errorCode": error,
        "errorMessage": None,
        "groupId": group_id,
        "groupState": "",
        "protocolType": "",
        "protocolData": "",
        "members": [],
    } | fields


def described_consumer_group(group_id: str, error: Errors = Errors.NONE, message: str | None = None) -> Reply:
    """An entry of ConsumerGroupDescribe, empty but for these."""
    return {
        "errorCode": error,
        "errorMessage": message,
        "groupId": group_id,
        "groupState": "",
        "groupEpoch": 0,
        "assignmentEpoch": 0,
        "assignorName": "",
        "members": [],
    }


def fetched_offset(partition: int, committed: CommittedOffset | None, error: Errors = Errors.NONE) -> Reply:
    """A partition of an OffsetFetch."""
    leader_epoch = None if committed is None else committed.leader_epoch
    return {
        "partitionIndex": partition,
        "committedOffset": -1 if committed is None else committed.committed_offset,
        "committedLeaderEpoch": -1 if leader_epoch is None else leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "errorCode": error,
    }


def topic_results(
    topics: Iterable[Reply], error_of: Callable[[Reply, Reply], Errors], partitions: str = "partitions"
) -> list[Reply]:
    """Per topic and partition of a request, the error that ``error_of`` gives."""
    return [
        topic_of(topic)
        | {
            "partitions": [
                {"partitionIndex": partition["partitionIndex"], "errorCode": error_of(topic, partition)}
                for partition in topic[partitions]
            ]
        }
        for topic in topics
    ]


def topic_of(topic: Reply) -> Reply:
    """What names a topic in an answer: whatever named it in the request."""
    return {key: topic[key] for key in ("name", "topicId") if key in topic}
