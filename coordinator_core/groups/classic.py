"""Classic groups from GroupMetadata records (key type 2), and what their members' blobs say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator_core.groups.model import ClassicGroup, ClassicMember, GroupState
from coordinator_core.records.blobs import (
    CONSUMER_PROTOCOL_TYPE,
    decode_consumer_assignment,
    decode_consumer_subscription,
)
from coordinator_core.records.codec import RecordDecodeError
from coordinator_core.records.wire import Reader
from coordinator_core.releases import SubscriptionReading


def classic_group_from_record(
    group_id: str,
    value_version: int,
    value: dict[str, Any],
    record_offset: int,
    *,
    state_timestamp_versions: frozenset[int],
    empty_group_keeps_protocol_type: bool,
    no_timeout: int | None,
) -> ClassicGroup:
    """The group that a coordinator builds from a GroupMetadata value.

    Only the selected protocol's metadata is stored, so every member supports exactly that protocol. A group
    with members is Stable however long ago they were seen; the rest of its life is not in the log. ``no_timeout`` is a
    rebalance timeout that stands for the session timeout, as does the absent one of version 0.
    """
    members: dict[str, ClassicMember] = {}
    for member in value["members"]:
        session_timeout = member["sessionTimeout"]
        rebalance_timeout = member.get("rebalanceTimeout")
        members[member["memberId"]] = ClassicMember(
            member_id=member["memberId"],
            instance_id=member.get("groupInstanceId"),
            client_id=member["clientId"],
            client_host=member["clientHost"],
            session_timeout_ms=session_timeout,
            rebalance_timeout_ms=session_timeout if rebalance_timeout in (None, no_timeout) else rebalance_timeout,
            subscription=member["subscription"],
            assignment=member["assignment"],
        )
    protocol_type: str | None = value["protocolType"] or None
    if not members and not empty_group_keeps_protocol_type:
        protocol_type = None
    leader = value["leader"]
    if leader is None and members:
        leader = next(iter(members))
    timestamp = value.get("currentStateTimestamp", -1)
    if value_version not in state_timestamp_versions or timestamp == -1:
        timestamp = None
    return ClassicGroup(
        group_id=group_id,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        protocol_type=protocol_type,
        generation=value["generation"],
        protocol=value["protocol"],
        leader=leader,
        state_timestamp_ms=timestamp,
        members=tuple(members.values()),
        record_offset=record_offset,
    )


def duplicate_instance_id(group: ClassicGroup) -> str | None:
    """A group instance id that two members share."""
    seen: set[str] = set()
    for member in group.members:
        if member.instance_id is not None:
            if member.instance_id in seen:
                return member.instance_id
            seen.add(member.instance_id)
    return None


_DEFAULT_HEAP_TOPICS = 1 << 28
"""So many references fill the gigabyte of heap that a broker has by default."""


def stopping_member(group: ClassicGroup, reading: SubscriptionReading) -> str | None:
    """The first member whose subscription stops a load.

    Java ends quietly at a subscription that is only cut, and which member it comes to first is not in the log.
    """
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol is None:
        return None
    found = (member.member_id for member in group.members if stops_reading(member.subscription, reading))
    return next(found, None)


def stops_reading(data: bytes, reading: SubscriptionReading) -> bool:
    """Whether the first version of ``ConsumerProtocolSubscription`` ends otherwise than with an underflow."""
    if reading is SubscriptionReading.HARMLESS:
        return False
    validates = reading is SubscriptionReading.VALIDATED
    reader = Reader(data)
    try:
        reader.int16()
        topics = reader.int32()
        if topics < 0 or topics > (reader.remaining if validates else _DEFAULT_HEAP_TOPICS):
            return True
        for _ in range(topics):
            length = reader.int16()
            if length < 0 or length > reader.remaining:
                return length < 0 or validates
            reader.raw(length)
        return reader.int32() > reader.remaining
    except RecordDecodeError:
        return False


def owned_at_join(subscription: bytes) -> Iterator[tuple[str, int]]:
    """Topics and partitions that a consumer had when it joined, by its subscription: none before version 1."""
    try:
        owned = decode_consumer_subscription(subscription).get("ownedPartitions", ())
    except RecordDecodeError:
        return
    for entry in owned:
        yield from ((entry["topic"], partition) for partition in entry["partitions"])


def consumer_subscription(member: ClassicMember) -> tuple[list[str] | None, str | None]:
    """Subscribed topics, sorted, and rack of a ``consumer`` member; no topics (``None``) in a broken blob."""
    try:
        subscription = decode_consumer_subscription(member.subscription)
    except RecordDecodeError:
        return None, None
    return sorted(subscription["topics"]), subscription.get("rackId")


def consumer_assignment(member: ClassicMember) -> list[tuple[str, list[int]]] | None:
    """Topics and partitions, sorted, assigned to a ``consumer`` member; ``None`` in a broken blob.

    A member that the leader left out of its assignment has a blob of no bytes.
    """
    if not member.assignment:
        return []
    try:
        assignment = decode_consumer_assignment(member.assignment)
    except RecordDecodeError:
        return None
    return sorted((entry["topic"], sorted(entry["partitions"])) for entry in assignment["assignedPartitions"])
