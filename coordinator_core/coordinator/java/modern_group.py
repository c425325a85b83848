"""Common behaviour of consumer, share and streams groups at request time (``ModernGroup``)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Generic, TypeVar

from coordinator_core.coordinator.classic import Ageing
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.group import accept_any
from coordinator_core.coordinator.java.offsets import Validate
from coordinator_core.coordinator.java.streams_member import LiveStreamsMember
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import TopicId
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.replies import (
    DescribedAssignment,
    HeartbeatAssignment,
    NamedTopicPartitions,
    TopicPartitions,
)
from coordinator_core.coordinator.requests import Committer
from coordinator_core.groups.model import ConsumerMember, ModernMember

NEVER_MS = 1 << 62
"""A time that does not come."""


RevokingMember = ConsumerMember | LiveStreamsMember
"""A member that gives up revoked partitions or tasks within a time."""

Member = TypeVar("Member", bound=ModernMember)
StaticMember = TypeVar("StaticMember", ConsumerMember, LiveStreamsMember)

_TIMERS = ("session", "rebalance", "consumer-join", "consumer-sync")


def timer_keys(group_id: str, member_id: str) -> list[tuple[str, ...]]:
    """Keys of all timers that a member of some type of group may have."""
    return [(timer, group_id, member_id) for timer in _TIMERS]


class ModernGroup(Generic[Member]):
    """A group whose members speak the heartbeat of its type."""

    __slots__ = ()

    group_id: str
    members: dict[str, Member]
    group_epoch: int
    assignment_timestamp_ms: int
    metadata_deadline_ms: int
    metadata_deadline_epoch: int

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> Member:
        """The member of that id; ``ApiError`` with ``UNKNOWN_MEMBER_ID`` when the group has none."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def metadata_expired(self, now_ms: int) -> bool:
        """Whether the next heartbeat looks at the group's topics again."""
        return now_ms >= self.metadata_deadline_ms or self.group_epoch < self.metadata_deadline_epoch

    def may_assign(self, interval_ms: int, now_ms: int) -> bool:
        """Whether a target assignment is due: the first at once, others ``group.*.assignment.interval.ms`` apart."""
        # 0 stands for a group that has none yet.
        assigned_ms = self.assignment_timestamp_ms
        return 0 in (assigned_ms, interval_ms) or now_ms >= assigned_ms + interval_ms

    def validate_delete(self) -> None:
        if self.members:
            raise ApiError(Errors.NON_EMPTY_GROUP)

    def timer_keys(self) -> list[tuple[str, ...]]:
        return [key for member_id in self.members for key in timer_keys(self.group_id, member_id)]


class CommittingModernGroup(ModernGroup[Member]):
    """A consumer or streams group: its members commit offsets, with their epoch as generation."""

    __slots__ = ()

    static_members: dict[str, str]

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.member(member_id)

    def known_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that a request names; raises :class:`ApiError` unless the group knows both ids as one member."""
        if instance_id is None:
            return self.member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise ApiError(
                Errors.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    @abstractmethod
    def target(self, member_id: str) -> Any:
        """Partitions or tasks of a member in the target assignment."""

    def ageing(self) -> Ageing | None:
        return Ageing(None)

    def speaks_classic(self, member: Member) -> bool:
        """Whether the member takes part by JoinGroup and SyncGroup (KIP-848, migration)."""
        return False

    def stale(self, member: Member) -> ApiError:
        """The error for an epoch that is not the member's."""
        return ApiError(Errors.ILLEGAL_GENERATION if self.speaks_classic(member) else Errors.STALE_MEMBER_EPOCH)

    def validate_offset_commit(self, who: Committer, version: int) -> Validate:
        generation = who.generation
        if generation < 0 and not self.members:
            return accept_any
        if who.transactional and generation == -1 and not who.names_a_member:
            return accept_any
        member = self.member(who.member_id)
        if not who.transactional and version < 9 and not self.speaks_classic(member):
            raise ApiError(Errors.UNSUPPORTED_VERSION)
        if generation == member.member_epoch:
            return accept_any
        if generation > member.member_epoch:
            raise self.stale(member)
        return self.validate_past_epoch(member, generation)

    @abstractmethod
    def validate_past_epoch(self, member: Member, epoch: int) -> Validate:
        """Accept commits of an older epoch for partitions that the member owned then (KIP-1251)."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None:
            if member_epoch < 0:
                return
            # The broker looks the id up in a map that takes no null.
            raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
        member = self.member(member_id)
        if member_epoch != member.member_epoch:
            raise self.stale(member)

    def validate_offset_delete(self) -> None:
        """Refuse nothing: an OffsetDelete is checked topic by topic."""


def replacement(
    records: ModuleType,
    group: CommittingModernGroup[StaticMember],
    old: StaticMember,
    member_id: str,
    out: list[Record],
) -> StaticMember:
    """A static member that comes back under a new id, with the target of the old one.

    ``records`` is the module that makes the records of the group's type; ``out`` gets those of the change.
    """
    group_id = group.group_id
    new = replace(old, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    out += records.removal(group_id, old.member_id)
    out.append(records.member(group_id, new))
    out.append(records.target(group_id, member_id, group.target(old.member_id)))
    out.append(records.current(group_id, new))
    return new


def unreleased_instance_id(owner: ModernMember, member_id: str, instance_id: str | None) -> ApiError:
    """The error for a static member that joins while ``owner`` has not left."""
    return ApiError(
        Errors.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
        f"instance id is owned by {owner.member_id} member.",
    )


def fenced_epoch(group_type: str, epoch: int, member_epoch: int) -> ApiError:
    """The error for a heartbeat with another ``epoch`` than that of the member."""
    size = "greater" if epoch > member_epoch else "smaller"
    return ApiError(
        Errors.FENCED_MEMBER_EPOCH,
        f"The {group_type} group member has a {size} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def validate_epoch(group_type: str, member: ModernMember, epoch: int, *, owns_subset: bool) -> None:
    """Raise :class:`ApiError` for another epoch than that of the member.

    The previous epoch will do when the answer got lost, which the member shows: it ``owns_subset`` of its assignment.
    """
    if epoch == member.member_epoch:
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and owns_subset:
        return
    raise fenced_epoch(group_type, epoch, member.member_epoch)


def invalid_request(text: str) -> ApiError:
    return ApiError(Errors.INVALID_REQUEST, text)


def refuse_blank(**fields: str | None) -> None:
    """Raise :class:`ApiError` for the first of these fields of a request that is given and blank."""
    for name, value in fields.items():
        if value is not None and not value.strip():
            raise invalid_request(f"{name} can't be empty.")


def assigned(partitions: Mapping[str, Iterable[int]]) -> HeartbeatAssignment:
    """Partitions by topic id as the reply to a heartbeat shows them."""
    return HeartbeatAssignment(
        tuple(TopicPartitions(topic_id, tuple(sorted(found))) for topic_id, found in partitions.items())
    )


def described(
    image: MetadataImage, assignment: Mapping[str, Iterable[int]] | Mapping[TopicId, list[int]]
) -> DescribedAssignment:
    """Partitions by topic id as a describe shows them; topics that are gone are left out."""
    topics = ((image.by_id(topic_id), partitions) for topic_id, partitions in assignment.items())
    return DescribedAssignment(
        tuple(
            NamedTopicPartitions(topic.topic_id, topic.name, tuple(partitions))
            for topic, partitions in topics
            if topic is not None
        )
    )
