"""How records of consumer groups change the groups (``GroupMetadataManager.replay``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordinator_core.coordinator.java import consumer_records as types
from coordinator_core.coordinator.java.consumer_group import (
    LEAVE_EPOCH,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    Epochs,
    ResolvedRegex,
)
from coordinator_core.coordinator.java.group import Group, JavaClassicGroup
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap, TopicId
from coordinator_core.groups.loaders import LoadError
from coordinator_core.groups.model import MemberState

_STATES = {number: state for state, number in types.STATE_NUMBERS.items()}


def replay_consumer_record(groups: dict[str, Group], record: Record) -> None:
    """Apply a record of type 3 to 8 or 16. :class:`LoadError` where the coordinator would stop loading."""
    group_id, value = record.key["groupId"], record.value
    group = _persisted(groups, group_id, create=value is not None)
    if group is None:
        return
    if record.type == types.GROUP:
        if value is not None:
            group.group_epoch, group.metadata_hash = value["epoch"], value["metadataHash"]
        elif group.members or group.target or group.assignment_epoch != -1:
            raise LoadError(f"tombstone for group {group_id!r}, which is not empty")
        else:
            del groups[group_id]
    elif record.type == types.PARTITION_METADATA:
        group.has_partition_metadata_record = value is not None
    elif record.type == types.TARGET_METADATA:
        epoch, timestamp = (
            (-1, 0) if value is None else (value["assignmentEpoch"], value["assignmentTimestamp"])
        )
        group.assignment_epoch, group.assignment_timestamp_ms = epoch, timestamp
    elif record.type == types.REGEX:
        _regex(group, record.key["regularExpression"], value)
    else:
        _MEMBER_RECORDS[record.type](group, record.key["memberId"], value)


def _persisted(groups: dict[str, Group], group_id: str, *, create: bool) -> ConsumerGroup | None:
    group = groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if group is None and not create:
        return None
    if group is not None and not (isinstance(group, JavaClassicGroup) and group.is_simple):
        raise LoadError(f"group {group_id!r} is not a consumer group")
    created = groups[group_id] = ConsumerGroup(group_id)
    return created


def _regex(group: ConsumerGroup, expression: str, value: dict[str, Any] | None) -> None:
    group.regexes.pop(expression, None)
    if value is not None:
        group.regexes[expression] = ResolvedRegex(
            frozenset(value["topics"]), value["version"], value["timestamp"]
        )


def _member(group: ConsumerGroup, member_id: str, value: dict[str, Any] | None) -> None:
    if value is None:
        group.remove_member(member_id)
        return
    classic = value["classicMemberMetadata"]
    group.put_member(
        replace(
            group.members.get(member_id) or ConsumerMember(member_id),
            instance_id=value["instanceId"],
            rack_id=value["rackId"],
            client_id=value["clientId"],
            client_host=value["clientHost"],
            subscribed_topics=frozenset(value["subscribedTopicNames"]),
            subscribed_regex=value["subscribedTopicRegex"] or "",
            rebalance_timeout_ms=value["rebalanceTimeoutMs"],
            server_assignor=value["serverAssignor"],
            classic=classic
            and ClassicMetadata(
                classic["sessionTimeoutMs"],
                tuple((one["name"], one["metadata"]) for one in classic["supportedProtocols"]),
            ),
        )
    )


def _target(group: ConsumerGroup, member_id: str, value: dict[str, Any] | None) -> None:
    if value is None:
        group.target.pop(member_id, None)
        return
    group.target[member_id] = JavaHashMap(
        (TopicId(entry["topicId"]), frozenset(entry["partitions"])) for entry in value["topicPartitions"]
    )


def _current(group: ConsumerGroup, member_id: str, value: dict[str, Any] | None) -> None:
    old = group.members.get(member_id)
    if value is None:
        if old is not None:
            group.put_member(
                replace(
                    old,
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned={},
                    pending_revocation={},
                )
            )
        return
    epoch = value["memberEpoch"]
    group.put_member(
        replace(
            old or ConsumerMember(member_id),
            member_epoch=epoch,
            previous_member_epoch=value["previousMemberEpoch"],
            state=_STATES.get(value.get("state", 0), MemberState.UNKNOWN),
            assigned=_epochs(value["assignedPartitions"], epoch),
            pending_revocation=_epochs(value["partitionsPendingRevocation"], epoch),
        )
    )


def _epochs(entries: list[dict[str, Any]], member_epoch: int) -> Epochs:
    """Records from before 4.3 have no epochs: then it is the member's."""
    found: Epochs = {}
    for entry in entries:
        partitions, epochs = entry["partitions"], entry.get("assignmentEpochs")
        if epochs is None or len(epochs) != len(partitions):
            epochs = [max(member_epoch, 0)] * len(partitions)
        found[TopicId(entry["topicId"])] = dict(zip(partitions, epochs, strict=True))
    return found


_MEMBER_RECORDS = {types.MEMBER: _member, types.TARGET_MEMBER: _target, types.CURRENT: _current}
