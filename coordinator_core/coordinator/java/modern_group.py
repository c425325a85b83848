"""Common behaviour of consumer, share and streams groups at request time (``ModernGroup``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.maps import TopicId
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.replies import DescribedAssignment, NamedTopicPartitions

Member = TypeVar("Member")


class HasId(Protocol):
    """A member of any type of group."""

    @property
    def member_id(self) -> str: ...


StaticMember = TypeVar("StaticMember", bound=HasId)


def member_of(group_id: str, members: Mapping[str, Member], member_id: str) -> Member:
    """The member of that id; ``ApiError`` with ``UNKNOWN_MEMBER_ID`` when the group has none."""
    member = members.get(member_id)
    if member is None:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")
    return member


def known_static(member: StaticMember | None, member_id: str, instance_id: str) -> StaticMember:
    """``member``, which the group has by ``instance_id``; raises :class:`ApiError` unless it is ``member_id``."""
    if member is None:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise ApiError(
            Errors.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def unreleased_instance_id(owner: HasId, member_id: str, instance_id: str) -> ApiError:
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


def may_assign(assigned_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether a target assignment is due: the first one at once, others ``group.*.assignment.interval.ms`` apart.

    ``assigned_ms`` is when the target was computed, in epoch milliseconds, 0 for never.
    """
    return 0 in (assigned_ms, interval_ms) or now_ms >= assigned_ms + interval_ms


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
