"""Online migration between classic and consumer groups.

Sources: ``convertToConsumerGroup``, ``convertToClassicGroup``, ``ConsumerGroup.fromClassicGroup``,
``ClassicGroup.fromConsumerGroup``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coordinator_core.coordinator.classic import ClassicGroup, Member, State
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import consumer_records as records
from coordinator_core.coordinator.java.consumer_group import (
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
    Partitions,
)
from coordinator_core.coordinator.java.group import JavaClassicGroup
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap, TopicId
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.records import group_metadata, group_tombstone
from coordinator_core.coordinator.replies import join_reply, sync_reply
from coordinator_core.coordinator.settings import Settings
from coordinator_core.groups.classic import CONSUMER_PROTOCOL_TYPE
from coordinator_core.records.blobs import (
    blob_version,
    decode_consumer_assignment,
    decode_consumer_subscription,
    encode_consumer_assignment,
)
from coordinator_core.records.codec import RecordDecodeError

if TYPE_CHECKING:
    from coordinator_core.coordinator.java.consumer import ConsumerGroups

UPGRADES = frozenset({"bidirectional", "upgrade"})
DOWNGRADES = frozenset({"bidirectional", "downgrade"})


# Classic to consumer


def to_consumer_group(groups: ConsumerGroups, classic: JavaClassicGroup, out: list[Record]) -> ConsumerGroup:
    """The group that a first ConsumerGroupHeartbeat makes of a live classic group, and its records."""
    settings = groups.manager.settings
    _validate_upgrade(settings, classic)
    for member in classic.members.values():
        if member.awaiting_join is not None:
            respond, member.awaiting_join = member.awaiting_join, None
            respond(join_reply(Errors.REBALANCE_IN_PROGRESS, member.member_id))
        if member.awaiting_sync is not None:
            respond, member.awaiting_sync = member.awaiting_sync, None
            respond(sync_reply(Errors.REBALANCE_IN_PROGRESS))
    group = ConsumerGroup(classic.group_id)
    group.group_epoch = group.assignment_epoch = classic.generation
    image = groups.metadata()
    try:
        for member in classic.members.values():
            partitions = _assigned(classic.group_id, member.assignment, image)
            group.target[member.member_id] = partitions
            group.put_member(_consumer_member(classic, member, partitions))
    except RecordDecodeError:
        raise ApiError(
            Errors.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {classic.group_id} to consumer group because the embedded "
            "consumer protocol is malformed.",
        ) from None
    group.metadata_hash = groups.assignments.metadata_hash(group.subscriptions())
    out.append(group_tombstone(group.group_id))
    out += _creation(group)
    for consumer in group.members.values():
        assert consumer.classic is not None
        groups.restart_session(group.group_id, consumer.member_id, consumer.classic.session_timeout_ms)
    return group


def _validate_upgrade(settings: Settings, classic: ClassicGroup) -> None:
    reason = None
    if settings.group_consumer_migration_policy not in UPGRADES:
        reason = "online upgrade is disabled"
    elif not classic.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > settings.group_consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise ApiError(
            Errors.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}.",
        )


def _assigned(group_id: str, blob: bytes, image: MetadataImage) -> Partitions:
    if not blob:
        return {}
    assignment = decode_consumer_assignment(blob)
    if assignment["userData"]:
        raise ApiError(
            Errors.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because an unsupported custom "
            "assignor is in use. Please refer to the documentation or switch to a default assignor before "
            "re-attempting the upgrade.",
        )
    found: dict[TopicId, frozenset[int]] = JavaHashMap()
    for entry in assignment["assignedPartitions"]:
        topic = image.topic(entry["topic"])
        if topic is not None:
            found[topic.topic_id] = frozenset(entry["partitions"])
    return found


def _consumer_member(classic: ClassicGroup, member: Member, partitions: Partitions) -> ConsumerMember:
    chosen = classic.protocol_name
    if chosen not in dict(member.protocols):
        # Joined after the choice, or there is none yet: an exception that nobody catches in Kafka.
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
    subscription = decode_consumer_subscription(member.metadata(chosen))
    generation = classic.generation
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=generation,
        previous_member_epoch=generation,
        instance_id=member.instance_id,
        rack_id=subscription.get("rackId") or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=frozenset(subscription["topics"]),
        assigned={topic_id: dict.fromkeys(sorted(one), generation) for topic_id, one in partitions.items()},
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def _creation(group: ConsumerGroup) -> list[Record]:
    """``createConsumerGroupRecords``."""
    group_id = group.group_id
    members = list(group.members.values())
    return [
        *(records.member(group_id, member) for member in members),
        records.epoch(group_id, group.group_epoch, group.metadata_hash),
        *(records.target(group_id, one.member_id, group.target[one.member_id]) for one in members),
        records.target_metadata(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(records.current(group_id, member) for member in members),
    ]


# Consumer to classic


def may_downgrade(settings: Settings, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
    """Whether all members that stay speak the classic protocol (and the settings let them)."""
    left = len(group.members) - len(leaving)
    return (
        group.all_classic_except(leaving)
        and 0 < left <= settings.group_max_size
        and settings.group_consumer_migration_policy in DOWNGRADES
    )


def to_classic_group(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    leaving: Sequence[ConsumerMember] = (),
    joining: ConsumerMember | None = None,
    *,
    rebalance: bool = True,
    before: Sequence[Record] = (),
) -> None:
    """Write and install the classic group; ``joining`` replaces the static member of its instance id."""
    manager = groups.manager
    replaced = group.static_member(joining.instance_id) if joining is not None else None
    renamed = {replaced.member_id: joining.member_id} if joining is not None and replaced is not None else {}
    classic = _classic_group(groups, group, leaving, joining)
    out = [*before, *group.tombstones(renamed), group_metadata(classic, classic.assignments())]
    manager.write(manager.partition_for(group.group_id), out, replay=False)
    for member_id in group.members:
        groups.cancel_timers(group.group_id, member_id)
    manager.groups.pop(group.group_id)
    manager.groups[group.group_id] = classic
    for member in classic.members.values():
        manager.rebalances.restart_session(classic, member)
    if rebalance:
        manager.rebalances.prepare_rebalance(classic)


def _classic_group(
    groups: ConsumerGroups,
    group: ConsumerGroup,
    leaving: Sequence[ConsumerMember],
    joining: ConsumerMember | None,
) -> JavaClassicGroup:
    classic = JavaClassicGroup(group.group_id, groups.manager.clock.now_ms)
    classic.generation = group.group_epoch
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    gone = {member.member_id for member in leaving}
    targets: dict[str, Partitions] = {}
    for member in group.members.values():
        replaced = joining is not None and joining.instance_id in (member.instance_id,)
        if member.member_id not in gone and not replaced:
            classic.add(_classic_member(member))
            targets[member.member_id] = group.target.get(member.member_id, {})
    if joining is not None:
        classic.add(_classic_member(joining))
        targets[joining.member_id] = group.target_of(joining.member_id, joining.instance_id)
    classic.state = State.STABLE
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.compute_subscribed_topics()
    image = groups.metadata()
    for one in classic.members.values():
        version = blob_version(one.metadata(classic.protocol_name))
        one.assignment = assignment_blob(targets[one.member_id], version, image)
    return classic


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=member.classic.protocols,
    )


def assignment_blob(partitions: Partitions, version: int, image: MetadataImage) -> bytes:
    """An assignment as the classic protocol carries it, in the version of the member's subscription."""
    topics = [(image.by_id(topic_id), one) for topic_id, one in JavaHashMap(partitions).items()]
    entries = [{"topic": topic.name, "partitions": sorted(one)} for topic, one in topics if topic is not None]
    return encode_consumer_assignment(
        min(max(version, 0), 3), {"assignedPartitions": entries, "userData": None}
    )
