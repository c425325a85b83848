"""Members of a group at a moment of the log, whatever its type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coordinator_core.groups.classic import consumer_assignment, consumer_subscription
from coordinator_core.groups.model import (
    ClassicGroup,
    ClassicMember,
    ConsumerGroup,
    Group,
    ModernMember,
    OffsetKey,
    ShareGroup,
    StreamsGroup,
)
from coordinator_core.history.model import Member
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE


def members_of(group: Group | None, topic_names: Mapping[str, str]) -> tuple[Member, ...]:
    """Members with their subscriptions and partitions; ``topic_names`` names the topic ids of KIP-848 assignments."""
    match group:
        case None:
            return ()
        case ClassicGroup():
            return tuple(_classic(member, group.protocol_type) for member in group.members)
        case StreamsGroup():
            return tuple(_modern(one, one.instance_id, None, None) for one in group.members.values())
        case ConsumerGroup():
            return tuple(
                _modern(
                    one,
                    one.instance_id,
                    None if one.subscribed_regex else one.subscribed_topics,
                    _named(one.assigned, topic_names),
                )
                for one in group.members.values()
            )
        case ShareGroup():
            return tuple(
                _modern(one, None, one.subscribed_topics, _named(one.assigned, topic_names))
                for one in group.members.values()
            )


def generation_of(group: Group | None) -> int | None:
    """Generation of a classic group, epoch of others."""
    if group is None:
        return None
    return group.generation if isinstance(group, ClassicGroup) else group.group_epoch


def owner_of(members: Sequence[Member], key: OffsetKey) -> Member | None:
    """The member whose partition it is: the only one, or as far as assignments tell."""
    if len(members) == 1:
        return members[0]
    for member in members:
        if member.partitions is not None and (key.topic, key.partition) in member.partitions:
            return member
    return None


def succession(joined: Sequence[Member], left: Sequence[Member]) -> tuple[tuple[str, str], ...]:
    """Static members that came back under a new member id: the old id and the new one of each."""
    old = {member.instance_id: member.member_id for member in left if member.instance_id is not None}
    return tuple((old[member.instance_id], member.member_id) for member in joined if member.instance_id in old)


def _modern(
    one: ModernMember,
    instance_id: str | None,
    topics: Iterable[str] | None,
    partitions: frozenset[tuple[str, int]] | None,
) -> Member:
    topics = None if topics is None else tuple(sorted(topics))
    return Member(one.member_id, instance_id, one.client_id, one.client_host, topics, partitions)


def _classic(member: ClassicMember, protocol_type: str | None) -> Member:
    topics: tuple[str, ...] | None = None
    partitions: frozenset[tuple[str, int]] | None = None
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        subscribed, _ = consumer_subscription(member)
        topics = None if subscribed is None else tuple(subscribed)
        assigned = consumer_assignment(member)
        if assigned is not None:
            partitions = frozenset((topic, number) for topic, numbers in assigned for number in numbers)
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        topics,
        partitions,
        member.rebalance_timeout_ms,
    )


def _named(
    assigned: Mapping[str, tuple[int, ...]], topic_names: Mapping[str, str]
) -> frozenset[tuple[str, int]] | None:
    """``None`` where a topic id has no name in this log."""
    if any(topic_id not in topic_names for topic_id in assigned):
        return None
    return frozenset((topic_names[topic_id], number) for topic_id, numbers in assigned.items() for number in numbers)
