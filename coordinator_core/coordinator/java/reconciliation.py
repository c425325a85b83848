"""A member on its way to its target assignment: revoke, then acknowledge, then assign.

Source: ``CurrentAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.consumer_group import with_assignment
from coordinator_core.coordinator.maps import Partitions, TopicId
from coordinator_core.coordinator.requests import Owned
from coordinator_core.groups.model import ConsumerMember, MemberState, PartitionEpochs


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    *,
    is_owned: Callable[[str, int], bool],
    subscribed_topic_ids: set[str],
    subscription_changed: bool,
    owned: Owned,
) -> ConsumerMember:
    """The member after this heartbeat; the same object when nothing changes.

    ``is_owned`` says whether any member has a partition now. Raises ``ApiError`` where Kafka does.
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


def _owns(owned: Owned, revoked: Mapping[str, Collection[int]]) -> bool:
    """Silence counts as still owning."""
    if owned is None:
        return True
    return any(partition in revoked.get(entry.topic_id, ()) for entry in owned for partition in entry.partitions)


def _unsubscribed(member: ConsumerMember, subscribed: set[str], owned: Owned) -> ConsumerMember:
    """Take away topics that the member no longer subscribes to (``updateCurrentAssignment``)."""
    assigned, revoked = member.assigned_since(), member.pending_revocation_since()
    kept = {topic_id: epochs for topic_id, epochs in assigned.items() if topic_id in subscribed}
    if len(kept) == len(assigned) and (subscribed or revoked):
        return member
    advanced = replace(with_assignment(member, kept, revoked), previous_member_epoch=member.member_epoch)
    for topic_id, epochs in assigned.items():
        if topic_id not in subscribed:
            revoked[topic_id] = revoked.get(topic_id, {}) | epochs
    if revoked and _owns(owned, revoked):
        return replace(with_assignment(advanced, kept, revoked), state=MemberState.UNREVOKED_PARTITIONS)
    return advanced


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    is_owned: Callable[[str, int], bool],
    subscribed: set[str],
    owned: Owned,
) -> ConsumerMember:
    """``computeNextAssignment``."""
    assigned: PartitionEpochs = {}
    revoked: PartitionEpochs = {}
    added: PartitionEpochs = {}
    unreleased = False
    owned_since = member.assigned_since()
    for topic_id in dict.fromkeys([*target, *member.assigned]):
        wanted = target.get(TopicId(topic_id), frozenset()) if topic_id in subscribed else frozenset()
        current = owned_since.get(topic_id, {})
        kept = {partition: since for partition, since in current.items() if partition in wanted}
        lost = {partition: since for partition, since in current.items() if partition not in wanted}
        revoking = member.pending_revocation.get(topic_id, ())
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
            with_assignment(member, assigned, revoked),
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            member_epoch=epoch,
        )
    for topic_id, epochs in added.items():
        assigned[topic_id] = assigned.get(topic_id, {}) | epochs
    return replace(
        with_assignment(member, assigned, {}),
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        previous_member_epoch=member.member_epoch,
        member_epoch=target_epoch,
    )
