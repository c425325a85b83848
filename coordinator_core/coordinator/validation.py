"""Checks of a commit to a classic group; the two coordinators agree."""

from __future__ import annotations

from coordinator_core.coordinator.classic import LiveClassicGroup
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.requests import Committer
from coordinator_core.groups.model import GroupState


def validate_member(group: LiveClassicGroup, member_id: str, instance_id: str | None) -> None:
    """``validateCurrentMember`` of 3.9, ``ClassicGroup.validateMember`` of 4.3; raises :class:`ApiError`."""
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is None:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        if current != member_id:
            raise ApiError(Errors.FENCED_INSTANCE_ID)
    if member_id not in group.members:
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)


def validate_commit(group: LiveClassicGroup, who: Committer) -> None:
    """``validateOffsetCommit``; raises :class:`ApiError`."""
    if group.is_in(GroupState.DEAD):
        raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
    if who.generation < 0 and group.is_in(GroupState.EMPTY):
        return
    if who.generation >= 0 or who.names_a_member:
        validate_member(group, who.member_id, who.group_instance_id)
        if who.generation != group.generation:
            raise ApiError(Errors.ILLEGAL_GENERATION)
    elif not who.transactional and not group.is_in(GroupState.EMPTY):
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)
