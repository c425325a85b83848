"""A member on its way to its target assignment: revoke, then acknowledge, then assign.

Source: ``CurrentAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.consumer_group import ConsumerMember, Epochs, Partitions
from coordinator_core.coordinator.maps import TopicId
from coordinator_core.groups.model import MemberState

Owned = list[dict[str, Any]] | None
"""What the member says it owns (``topicId``, ``partitions``); ``None``: nothing new since its last word."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    *,
    is_owned: Callable[[TopicId, int], bool],
    subscribed_topic_ids: set[str],
    subscription_changed: bool,
    owned: Owned,
) -> ConsumerMember:
    """The member after this heartbeat; the same object when nothing changes.

    ``is_owned`` says whether any member has a partition now.
    """
    if member.state is MemberState.STABLE and member.member_epoch == target_epoch:
        return _unsubscribed(member, subscribed_topic_ids, owned) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _owns(owned, member.pending_revocation):
        return _unsubscribed(member, subscribed_topic_ids, owned) if subscription_changed else member
    epoch = member.member_epoch
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise ApiError(Errors.FENCED_MEMBER_EPOCH)
        epoch = target_epoch
    return _next(member, epoch, target_epoch, target, is_owned, subscribed_topic_ids, owned)


def _owns(owned: Owned, revoked: Epochs) -> bool:
    """Silence counts as still owning."""
    if owned is None:
        return True
    return any(
        partition in revoked.get(TopicId(entry["topicId"]), {})
        for entry in owned
        for partition in entry["partitions"]
    )


def _unsubscribed(member: ConsumerMember, subscribed: set[str], owned: Owned) -> ConsumerMember:
    """Take away topics that the member no longer subscribes to (``updateCurrentAssignment``)."""
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in subscribed}
    if len(kept) == len(member.assigned) and (subscribed or member.pending_revocation):
        return member
    revoked = {topic_id: dict(epochs) for topic_id, epochs in member.pending_revocation.items()}
    for topic_id, epochs in member.assigned.items():
        if topic_id not in subscribed:
            revoked[topic_id] = revoked.get(topic_id, {}) | epochs
    advanced = replace(member, previous_member_epoch=member.member_epoch, assigned=kept)
    if revoked and _owns(owned, revoked):
        return replace(advanced, state=MemberState.UNREVOKED_PARTITIONS, pending_revocation=revoked)
    return advanced


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[TopicId, int], bool],
    subscribed: set[str],
    owned: Owned,
) -> ConsumerMember:
    """``computeNextAssignment``."""
    assigned: Epochs = {}
    revoked: Epochs = {}
    added: Epochs = {}
    unreleased = False
    for topic_id in dict.fromkeys([*target, *member.assigned]):
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        current = member.assigned.get(topic_id, {})
        kept = {partition: since for partition, since in current.items() if partition in wanted}
        lost = {partition: since for partition, since in current.items() if partition not in wanted}
        revoking = member.pending_revocation.get(topic_id, {})
        missing = {partition for partition in wanted if partition not in kept}
        free = {one for one in missing if one in revoking or not is_owned(topic_id, one)}
        unreleased = unreleased or free != missing
        if kept:
            assigned[topic_id] = kept
        if lost:
            revoked[topic_id] = lost
        if free:
            added[topic_id] = dict.fromkeys(sorted(free), target_epoch)
    if revoked and _owns(owned, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            member_epoch=epoch,
            assigned=assigned,
            pending_revocation=revoked,
        )
    for topic_id, epochs in added.items():
        assigned[topic_id] = assigned.get(topic_id, {}) | epochs
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        previous_member_epoch=member.member_epoch,
        member_epoch=target_epoch,
        assigned=assigned,
        pending_revocation={},
    )
