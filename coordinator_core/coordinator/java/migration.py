"""Online migration between classic and consumer groups.

Sources: ``convertToConsumerGroup``, ``convertToClassicGroup``, ``ConsumerGroup.fromClassicGroup``,
``ClassicGroup.fromConsumerGroup``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from coordinator_core.coordinator import consumer_protocol
from coordinator_core.coordinator.classic import LiveClassicGroup, Member
from coordinator_core.coordinator.consumer_protocol import ConsumerAssignment, NamedPartitions, Subscription
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import consumer_records as records
from coordinator_core.coordinator.java.assignment import Assignments
from coordinator_core.coordinator.java.consumer_group import LiveConsumerGroup, partitions_of
from coordinator_core.coordinator.java.group import JavaClassicGroup
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap, Partitions, TimelineHashMap
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.records import group_metadata, group_tombstone
from coordinator_core.coordinator.replies import JoinGroupReply, SyncGroupReply
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.groups.loaders import LoadError
from coordinator_core.groups.model import ConsumerMember, GroupState
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE, blob_version
from coordinator_core.records.codec import RecordDecodeError

UPGRADES = frozenset({"bidirectional", "upgrade"})
DOWNGRADES = frozenset({"bidirectional", "downgrade"})


class ConsumerGroups(Protocol):
    """Consumer groups of a coordinator, as far as a migration needs them."""

    manager: JavaGroupMetadataManager
    metadata: Callable[[], MetadataImage]
    assignments: Assignments

    def restart_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None: ...
    def cancel_timers(self, group_id: str, member_id: str) -> None: ...


# Classic to consumer


def to_consumer_group(groups: ConsumerGroups, classic: JavaClassicGroup, out: list[Record]) -> LiveConsumerGroup:
    """Convert a live classic group at its first ConsumerGroupHeartbeat. Returns the group; its records go
    into ``out``. Raises ``ApiError`` for a group that cannot be converted."""
    settings = groups.manager.settings
    _validate_upgrade(settings, classic)
    for member in classic.members.values():
        member.answer_join(JoinGroupReply(Errors.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.answer_sync(SyncGroupReply(Errors.REBALANCE_IN_PROGRESS))
    image = groups.metadata()
    members: list[ConsumerMember] = []
    targets: dict[str, Partitions] = {}
    try:
        for member in classic.members.values():
            partitions = _assigned(classic.group_id, member.assignment, image)
            targets[member.member_id] = partitions
            members.append(_consumer_member(classic, member, partitions))
    except RecordDecodeError:
        raise ApiError(
            Errors.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {classic.group_id} to consumer group because the embedded "
            "consumer protocol is malformed.",
        ) from None
    topics = {topic for member in members for topic in member.subscribed_topics}
    metadata_hash = groups.assignments.metadata_hash(topics)
    try:
        group = groups.manager.new_consumer_group(
            classic.group_id, _creation(classic.group_id, classic.generation, metadata_hash, members, targets)
        )
    except LoadError:
        # Two members that the leader gave one partition: an exception that nobody catches in Kafka.
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR) from None
    # Kafka puts each member into its map once here, not once a record: that decides the order of records.
    group.members = TimelineHashMap((one.member_id, group.members[one.member_id]) for one in members)
    out.append(group_tombstone(group.group_id))
    ordered = list(group.members.values())
    out += _creation(group.group_id, classic.generation, metadata_hash, ordered, targets)
    for consumer in ordered:
        groups.restart_session(group.group_id, consumer.member_id, consumer.classic_session_timeout_ms)
    return group


def _validate_upgrade(settings: BrokerSettings, classic: LiveClassicGroup) -> None:
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
    assignment = ConsumerAssignment.of(blob)
    if assignment.user_data:
        raise ApiError(
            Errors.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because an unsupported custom "
            "assignor is in use. Please refer to the documentation or switch to a default assignor before "
            "re-attempting the upgrade.",
        )
    named = ((image.topic(name), partitions) for name, partitions in assignment.assigned_partitions)
    return partitions_of({topic.topic_id: partitions for topic, partitions in named if topic is not None})


def _consumer_member(classic: LiveClassicGroup, member: Member, partitions: Partitions) -> ConsumerMember:
    chosen = classic.protocol_name
    if chosen not in dict(member.protocols):
        # Joined after the choice, or there is none yet: an exception that nobody catches in Kafka.
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
    subscription = Subscription.of(member.metadata(chosen))
    generation = classic.generation
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=generation,
        previous_member_epoch=generation,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=tuple(sorted(set(subscription.topics))),
        assigned={topic_id: tuple(sorted(one)) for topic_id, one in partitions.items()},
        classic_session_timeout_ms=member.session_timeout_ms,
        classic_protocols=member.protocols,
    )


def _creation(
    group_id: str, epoch: int, metadata_hash: int, members: Sequence[ConsumerMember], targets: Mapping[str, Partitions]
) -> list[Record]:
    """``createConsumerGroupRecords``: group and assignment epoch are the generation."""
    return [
        *(records.member(group_id, member) for member in members),
        records.epoch(group_id, epoch, metadata_hash),
        *(records.target(group_id, one.member_id, targets[one.member_id]) for one in members),
        records.target_metadata(group_id, epoch, 0),
        *(records.current(group_id, member) for member in members),
    ]


# Consumer to classic


def may_downgrade(settings: BrokerSettings, group: LiveConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
    """Whether all members that stay speak the classic protocol (and the settings let them)."""
    left = len(group.members) - len(leaving)
    return (
        group.all_classic_except(leaving)
        and 0 < left <= settings.group_max_size
        and settings.group_consumer_migration_policy in DOWNGRADES
    )


def to_classic_group(
    groups: ConsumerGroups,
    group: LiveConsumerGroup,
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
    out = [*before, *group.tombstones(renamed), group_metadata(classic.recorded(classic.assignments()))]
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
    groups: ConsumerGroups, group: LiveConsumerGroup, leaving: Sequence[ConsumerMember], joining: ConsumerMember | None
) -> JavaClassicGroup:
    classic = groups.manager.new_group(group.group_id)
    classic.generation = group.group_epoch
    classic.protocol_type = CONSUMER_PROTOCOL_TYPE
    gone = {member.member_id for member in leaving}
    targets: dict[str, Partitions] = {}
    for member in group.members.values():
        replaced = joining is not None and joining.instance_id in (member.instance_id,)
        if member.member_id not in gone and not replaced:
            classic.add(_classic_member(member))
            targets[member.member_id] = group.target(member.member_id)
    if joining is not None:
        classic.add(_classic_member(joining))
        targets[joining.member_id] = group.target_of(joining.member_id, joining.instance_id)
    classic.state = GroupState.STABLE
    classic.protocol_name = classic.select_protocol()
    classic.subscribed_topics = classic.compute_subscribed_topics()
    image = groups.metadata()
    for one in classic.members.values():
        version = blob_version(one.metadata(classic.protocol_name))
        one.assignment = assignment_blob(targets[one.member_id], version, image)
    return classic


def _classic_member(member: ConsumerMember) -> Member:
    assert member.classic_protocols is not None
    assert member.classic_session_timeout_ms is not None
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic_session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=member.classic_protocols,
    )


def assignment_blob(partitions: Partitions, version: int, image: MetadataImage) -> bytes:
    """An assignment in the classic protocol's bytes, in the version of the member's subscription."""
    topics = [(image.by_id(topic_id), one) for topic_id, one in JavaHashMap(partitions).items()]
    assigned = (NamedPartitions(topic.name, tuple(sorted(one))) for topic, one in topics if topic is not None)
    return consumer_protocol.assignment_blob(min(max(version, 0), 3), assigned)
