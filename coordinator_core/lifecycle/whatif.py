"""Effects of a change on groups and committed offsets, said beforehand: one function a change.

Each takes the state that a coordinator has loaded and gives :class:`Effect` values, one for each group or committed
offset that does not stay as it is, with the record that holds it. Members are taken to stay as the log has them.
Sources are named where a rule is; ``tests/live/test_whatif.py`` compares with a broker after the change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import Final

from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import (
    ClassicGroup,
    Group,
    GroupState,
    GroupType,
    OffsetKey,
    PartitionState,
    ShareGroup,
)
from coordinator_core.lifecycle.plan import ExpiryPlan, Tombstone, TombstoneKind
from coordinator_core.lifecycle.subscriptions import subscribed_topics
from coordinator_core.records.blobs import (
    CONSUMER_PROTOCOL_TYPE,
    decode_consumer_assignment,
    decode_consumer_subscription,
)
from coordinator_core.records.codec import RecordDecodeError
from coordinator_core.releases import Deleter, Loader, Profile

_METADATA_KEY_TYPES: Final = {GroupType.CONSUMER: 3, GroupType.SHARE: 11, GroupType.STREAMS: 17}


class Outcome(StrEnum):
    """Outcomes for a group or a committed offset."""

    CONVERTED = "converted"
    """Group: the first member of the new protocol makes it one of the other type; committed offsets stay."""

    REFUSED = "refused"
    """Group: the broker answers the request with an error, and nothing changes."""

    REMOVED = "removed"
    """A tombstone removes it: at once, or in the sweep at ``at_ms``."""

    UNREACHABLE = "unreachable"
    """The coordinator looks for the group in the offsets partition ``moved_to``, where the log does not have it."""

    REBALANCES = "rebalances"
    """Group: its members lose partitions that they are assigned."""

    EARLIER = "earlier"
    """It expires at ``at_ms`` instead of ``was_ms`` (``None``: never)."""

    LATER = "later"
    """It expires at ``at_ms`` (``None``: never) instead of ``was_ms``."""

    STAYS = "stays"
    """Committed offset: the coordinator of this release keeps it, although the change speaks for its removal."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect on a group (``topic`` is ``None``) or a committed offset.

    ``record_offset`` is that of the record that holds it today, ``None`` where no record does. ``epoch`` is the group
    epoch that a converted group begins with. ``at_ms`` is when it happens, ``None`` for at once; times are epoch
    milliseconds.
    """

    offsets_partition: int
    group_id: str
    outcome: Outcome
    topic: str | None = None
    partition: int | None = None
    record_offset: int | None = None
    committed_offset: int | None = None
    at_ms: int | None = None
    was_ms: int | None = None
    moved_to: int | None = None
    epoch: int | None = None
    detail: str | None = None

    @property
    def is_loss(self) -> bool:
        """Whether somebody has to act: an offset goes or is not found, or the broker refuses."""
        gone = self.topic is not None and self.outcome in (Outcome.REMOVED, Outcome.UNREACHABLE)
        return gone or self.outcome is Outcome.REFUSED


def migrated(
    state: PartitionState,
    profile: Profile,
    to: GroupType,
    *,
    upgrades: bool = True,
    groups: Collection[str] | None = None,
) -> list[Effect]:
    """A member of the protocol of ``to`` joins each of the ``groups`` (``None``: all) that is of another type.

    ``upgrades``: ``group.consumer.migration.policy`` allows upgrades. Sources: ``getOrMaybeCreateConsumerGroup``,
    ``getOrMaybeCreateStreamsGroup``, ``getOrMaybeCreateShareGroup``, ``validateOnlineUpgrade``,
    ``convertToConsumerGroup`` of ``GroupMetadataManager`` (Java).
    """
    found = []
    for group_id, group in _chosen(state, groups):
        if group.type is not to:
            refusal = _refused_migration(group, profile, to, upgrades)
            effect = Effect(state.offsets_partition, group_id, Outcome.REFUSED, record_offset=group.record_offset)
            if refusal is None:
                epoch = group.generation if isinstance(group, ClassicGroup) and group.members else None
                effect = replace(effect, outcome=Outcome.CONVERTED, epoch=epoch)
            found.append(replace(effect, detail=refusal or _risk(group, profile, to)))
    return found


def _refused_migration(group: Group, profile: Profile, to: GroupType, upgrades: bool) -> str | None:
    if profile.loader is not Loader.JAVA or _METADATA_KEY_TYPES[to] not in profile.known_key_types:
        return f"{profile.label} has no {to} groups"
    if not profile.converts_groups:
        return f"{profile.label} makes no group one of another type"
    if not isinstance(group, ClassicGroup):
        return f"a {group.type} group becomes no {to} group: delete it first"
    if to is GroupType.SHARE:
        return "a classic group becomes no share group: delete it first, its committed offsets go with it"
    if not group.members:
        return None
    if to is GroupType.STREAMS:
        return "a group with members becomes no streams group: stop them first"
    if not upgrades:
        return "group.consumer.migration.policy does not allow upgrades of groups with members"
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return f"its protocol type is {group.protocol_type!r}, not {CONSUMER_PROTOCOL_TYPE!r}"
    return _refused_blobs(group)


def _refused_blobs(group: ClassicGroup) -> str | None:
    owners: dict[tuple[str, int], str] = {}
    for member in group.members:
        try:
            decode_consumer_subscription(member.subscription)
            assignment = decode_consumer_assignment(member.assignment) if member.assignment else {}
        except RecordDecodeError:
            return f"subscription or assignment of member {member.member_id} cannot be read"
        if assignment.get("userData"):
            return f"the assignment of member {member.member_id} has user data: a custom assignor made it"
        for row in assignment.get("assignedPartitions", ()):
            for partition in row["partitions"]:
                owner = owners.setdefault((row["topic"], partition), member.member_id)
                if owner != member.member_id:
                    return f"{row['topic']}-{partition} is assigned to {owner} and {member.member_id}"
    return None


def _risk(group: Group, profile: Profile, to: GroupType) -> str | None:
    """The tombstone of a group without a record goes with the cleaner: the loader then finds a group in the way."""
    replaces = profile.consumer_replaces_simple if to is GroupType.CONSUMER else profile.streams_replaces_simple
    if group.record_offset is not None or replaces:
        return None
    issue = " (KAFKA-20254)" if to is GroupType.STREAMS else ""
    return f"this release does not load the partition once the cleaner has removed the group's tombstone{issue}"


def repartitioned(state: PartitionState, num_partitions: int) -> list[Effect]:
    """A cluster loads the log whose offsets topic has ``num_partitions`` (``GroupMetadataManager.partitionFor``)."""
    found = []
    offset_keys = _by_group(state.offsets)
    for group_id, group in _chosen(state, None):
        home = partition_for(group_id, num_partitions)
        if home != state.offsets_partition:
            lost = Effect(
                state.offsets_partition, group_id, Outcome.UNREACHABLE, record_offset=group.record_offset, moved_to=home
            )
            found += [lost, *(_of_offset(state, key, lost) for key in offset_keys.get(group_id, ()))]
    return found


def retained(state: PartitionState, today: ExpiryPlan, then: ExpiryPlan) -> list[Effect]:
    """Another ``offsets.retention.minutes``: plans of ``state`` at the same time under both (``plan_expiry``)."""
    was, will = _times(today), _times(then)
    found = []
    for what in sorted(was.keys() | will.keys()):
        before, after = was.get(what), will.get(what)
        was_ms = None if before is None else before.expires_at_ms
        at_ms = None if after is None else after.expires_at_ms
        if was_ms != at_ms and not (_is_due(was_ms, then) and _is_due(at_ms, then)):
            tombstone = after or before
            assert tombstone is not None
            offset = None if tombstone.offset_key is None else state.offsets[tombstone.offset_key]
            is_earlier = was_ms is None or (at_ms is not None and at_ms < was_ms)
            soonest = Outcome.REMOVED if _is_due(at_ms, then) else Outcome.EARLIER
            found.append(
                Effect(
                    then.offsets_partition,
                    tombstone.group_id,
                    soonest if is_earlier else Outcome.LATER,
                    tombstone.topic,
                    tombstone.partition,
                    tombstone.record_offset,
                    None if offset is None else offset.committed_offset,
                    at_ms=at_ms,
                    was_ms=was_ms,
                    detail=tombstone.reason,
                )
            )
    return found


def _times(plan: ExpiryPlan) -> dict[tuple[str, bool, OffsetKey | None], Tombstone]:
    """Tombstones of offsets and groups, by the key that they delete; groups behind their offsets."""
    return {
        (one.group_id, one.offset_key is None, one.offset_key): one
        for one in (*plan.tombstones, *plan.forecast)
        if one.kind in (TombstoneKind.OFFSET, TombstoneKind.GROUP)
    }


def _is_due(at_ms: int | None, plan: ExpiryPlan) -> bool:
    return at_ms is not None and at_ms <= plan.now_ms


def groups_deleted(state: PartitionState, profile: Profile, groups: Collection[str]) -> list[Effect]:
    """DeleteGroups of ``groups`` (``GroupCoordinatorShard.deleteGroups``, ``validateDeleteGroup``; Scala
    ``GroupCoordinator.handleDeleteGroups``): an Empty group goes with its offsets, and those in open transactions."""
    found = []
    offset_keys, pending = _by_group(state.offsets), _by_group(_pending_only(state, profile))
    for group_id, group in _chosen(state, groups):
        refusal = None
        if Deleter.DELETE_GROUPS not in profile.deleters:
            refusal = f"{profile.label} has no DeleteGroups"
        elif group.state is not GroupState.EMPTY:
            refusal = "NON_EMPTY_GROUP: it has members"
        outcome = Outcome.REMOVED if refusal is None else Outcome.REFUSED
        of_group = Effect(state.offsets_partition, group_id, outcome, record_offset=group.record_offset, detail=refusal)
        found.append(of_group)
        if refusal is None:
            found += [_of_offset(state, key, of_group) for key in offset_keys.get(group_id, ())]
            found += [_of_pending(state, key, of_group) for key in pending.get(group_id, ())]
    return found


def topics_deleted(
    state: PartitionState, profile: Profile, topics: Collection[str], *, today: ExpiryPlan, then: ExpiryPlan
) -> list[Effect]:
    """DeleteTopics of ``topics`` (``GroupCoordinatorShard.onPartitionsDeleted``, Scala ``handleDeletedPartitions``).

    ``today`` and ``then`` are the next sweep's plans without and with it (of :func:`without_topics`): an Empty group
    that has nothing left goes.
    """
    removes = Deleter.TOPIC_DELETION in profile.deleters
    found = []
    for key in [*sorted(state.offsets), *_pending_only(state, profile)]:
        if key.topic in topics:
            cause = Effect(state.offsets_partition, key.group_id, Outcome.REMOVED if removes else Outcome.STAYS)
            if key not in state.offsets:
                found.append(_of_pending(state, key, cause))
            elif removes or key.group_id in state.groups:
                found.append(_of_offset(state, key, cause))
    gone = then.deleted_groups() - today.deleted_groups()
    for group_id, group in _chosen(state, None):
        if group_id in gone:
            went = Effect(state.offsets_partition, group_id, Outcome.REMOVED, record_offset=group.record_offset)
            found.append(replace(went, at_ms=then.now_ms, detail="nothing_left"))
        elif not _topics_of(group).isdisjoint(topics):
            found.append(
                Effect(state.offsets_partition, group_id, Outcome.REBALANCES, record_offset=group.record_offset)
            )
    return sorted(found, key=lambda one: (one.group_id, one.topic is not None, one.topic or "", one.partition or 0))


def _topics_of(group: Group) -> frozenset[str]:
    """Topics whose deletion bumps the group epoch; share groups, which no sweep asks, included."""
    if isinstance(group, ShareGroup):
        return frozenset(topic for member in group.members.values() for topic in member.subscribed_topics)
    return subscribed_topics(group) or frozenset()


def without_topics(state: PartitionState, topics: Collection[str]) -> PartitionState:
    """The state after the deletion of ``topics``."""
    return replace(
        state,
        offsets={key: offset for key, offset in state.offsets.items() if key.topic not in topics},
        pending={
            producer_id: {key: offset for key, offset in commits.items() if key.topic not in topics}
            for producer_id, commits in state.pending.items()
        },
    )


def _chosen(state: PartitionState, groups: Collection[str] | None) -> Iterator[tuple[str, Group]]:
    """Groups that a broker lists, by id."""
    for group_id in sorted(state.groups):
        group = state.groups[group_id]
        if (groups is None or group_id in groups) and group.state is not GroupState.DEAD:
            yield group_id, group


def _by_group(keys: Iterable[OffsetKey]) -> dict[str, list[OffsetKey]]:
    return {group_id: list(found) for group_id, found in groupby(sorted(keys), attrgetter("group_id"))}


def _pending_only(state: PartitionState, profile: Profile) -> list[OffsetKey]:
    """Keys that only open transactions have: the Java coordinator writes tombstones for them, too
    (``OffsetMetadataManager.deleteAllOffsets``)."""
    if profile.loader is not Loader.JAVA:
        return []
    return sorted({key for commits in state.pending.values() for key in commits if key not in state.offsets})


def _of_offset(state: PartitionState, key: OffsetKey, cause: Effect) -> Effect:
    offset = state.offsets[key]
    return replace(
        cause,
        topic=key.topic,
        partition=key.partition,
        record_offset=offset.record_offset,
        committed_offset=offset.committed_offset,
    )


def _of_pending(state: PartitionState, key: OffsetKey, cause: Effect) -> Effect:
    record_offset = max(commits[key].record_offset for commits in state.pending.values() if key in commits)
    detail = "only in an open transaction"
    return replace(cause, topic=key.topic, partition=key.partition, record_offset=record_offset, detail=detail)
