"""ShareGroupHeartbeat and ShareGroupDescribe (KIP-932), and what timers do to share groups.

Source: ``GroupMetadataManager`` (``shareGroupHeartbeat``, ``shareGroupLeave``, ``shareGroupFenceMember``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import share_records as records
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager, LiveShareRecords
from coordinator_core.coordinator.java.modern_group import (
    NEVER_MS,
    assigned,
    described,
    fenced_epoch,
    invalid_request,
    refuse_blank,
)
from coordinator_core.coordinator.java.modern_groups import Check, ModernGroups
from coordinator_core.coordinator.java.share_group import LiveShareGroup
from coordinator_core.coordinator.java.share_offsets import ShareOffsets
from coordinator_core.coordinator.java.simple import ShareSpec, assign_simple
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap, Partitions, java_set_order
from coordinator_core.coordinator.membership import Client
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.replies import DescribedShareGroup, DescribedShareMember, ShareGroupHeartbeatReply
from coordinator_core.coordinator.requests import ShareGroupHeartbeat
from coordinator_core.groups.model import LEAVE_GROUP_MEMBER_EPOCH, ShareMember
from coordinator_core.releases.requests import RequestRules

ASSIGNOR = "simple"


class ShareGroups(ModernGroups[LiveShareGroup]):
    """The share groups of one coordinator."""

    def __init__(
        self,
        manager: JavaGroupMetadataManager,
        metadata: Callable[[], MetadataImage],
        metadata_hash: Callable[[Iterable[str]], int],
        offsets: ShareOffsets,
        rules: RequestRules,
    ) -> None:
        super().__init__(manager, metadata, LiveShareGroup, "share")
        self._hash = metadata_hash
        self._offsets = offsets
        self._rules = rules

    @property
    def session_timeout_ms(self) -> int:
        return self.settings.group_share_session_timeout_ms

    def topics_of(self, group: LiveShareGroup) -> set[str]:
        return set(group.subscriptions())

    def loaded(self, group: LiveShareGroup) -> None:
        super().loaded(group)
        self._offsets.loaded(group.group_id)

    def topics_deleted(self, names: set[str]) -> None:
        self._offsets.topics_deleted(names)
        self.topics_changed(names)

    # Heartbeat

    def heartbeat(self, client: Client, request: ShareGroupHeartbeat, check: Check) -> ShareGroupHeartbeatReply:
        try:
            _validate_heartbeat(request)
            check(request.group_id)
            if request.member_epoch == LEAVE_GROUP_MEMBER_EPOCH:
                return self._leave(request)
            return self._heartbeat(client, request)
        except ApiError as error:
            return ShareGroupHeartbeatReply(error.error, error.message)

    def _heartbeat(self, client: Client, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatReply:
        group_id, epoch = request.group_id, request.member_epoch
        out: list[Record] = []
        group = self._group(group_id, create=epoch == 0)
        self.refuse_when_full(group, request.member_id, self.settings.group_share_max_size)
        member = _known(group, request.member_id, epoch)
        updated = _updated(member, client, request)
        if updated != member or request.member_id not in group.members:
            out.append(records.member(group_id, updated))
        subscribed = set(updated.subscribed_topics) != set(member.subscribed_topics)
        group_epoch = self._bump_epoch(group, subscribed, member, updated, out)
        target_epoch, target = self._update_target(group, group_epoch, member, updated, out)
        if subscribed or updated.member_epoch != target_epoch:
            reconciled = self._reconciled(updated, target_epoch, target)
            if reconciled != updated:
                out.append(records.current(group_id, reconciled))
            updated = reconciled
        topics = group.subscriptions([member], updated)
        initialize = self._offsets.to_initialize(group_id, topics, out)
        changed = updated.assigned != member.assigned
        self.manager.write_group(group_id, out)
        self.keep_deadline(group)
        self.restart_session(group_id, request.member_id)
        if initialize:
            self._offsets.initialize_later(group_id, initialize)
        shown = epoch == 0 or request.subscribed_topic_names is not None or changed
        return ShareGroupHeartbeatReply(
            Errors.NONE,
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self.settings.group_share_heartbeat_interval_ms,
            assignment=assigned(updated.assigned) if shown else None,
        )

    def _group(self, group_id: str, *, create: bool) -> LiveShareGroup:
        group = self.manager.get_group(group_id)
        if group is None and create:
            made: LiveShareGroup = LiveShareRecords({}, self.manager.profile).create(group_id)
            return made
        if group is None:
            raise self.not_found(group_id)
        return self.own(group_id, group)

    def _bump_epoch(
        self, group: LiveShareGroup, subscribed: bool, member: ShareMember, updated: ShareMember, out: list[Record]
    ) -> int:
        """The group's epoch: the next one after a change of subscriptions, topics or assignable partitions."""
        is_due = group.group_epoch > group.assignment_epoch
        bump = subscribed or (not is_due and self._offsets.assignment_pending(group))
        epoch = group.group_epoch
        if not bump and not group.metadata_expired(self.now_ms):
            return epoch
        metadata_hash = self._hash(group.subscriptions([member], updated))
        if bump or metadata_hash != group.metadata_hash:
            epoch += 1
            out.append(records.epoch(group.group_id, epoch, metadata_hash))
        group.metadata_deadline_ms, group.metadata_deadline_epoch = NEVER_MS, epoch
        return epoch

    # Assignment

    def _update_target(
        self, group: LiveShareGroup, group_epoch: int, member: ShareMember, updated: ShareMember, out: list[Record]
    ) -> tuple[int, Partitions]:
        """Epoch of the target assignment and the member's part of it, computed anew where that is due."""
        interval_ms = self.settings.group_share_assignment_interval_ms
        if group.assignment_epoch >= group_epoch or not group.may_assign(interval_ms, self.now_ms):
            return group.assignment_epoch, group.target(updated.member_id)
        topic_ids = self.metadata().topic_ids
        specs: dict[str, ShareSpec] = JavaHashMap()
        for member_id, one in group.members.items():
            specs[member_id] = ShareSpec(topic_ids(one.subscribed_topics), group.target(member_id))
        specs[updated.member_id] = ShareSpec(topic_ids(updated.subscribed_topics), group.target(updated.member_id))
        counts = group.subscriptions([member], updated)
        assignment = assign_simple(
            specs,
            self._offsets.assignable(group.group_id),
            homogeneous=all(count == len(specs) for count in counts.values()),
        )
        for member_id in specs:
            new: Partitions = assignment.get(member_id, {})
            if member_id not in group.target_assignment or new != group.target(member_id):
                out.append(records.target(group.group_id, member_id, new))
        out.append(records.target_metadata(group.group_id, group_epoch, self.now_ms))
        return group_epoch, assignment.get(updated.member_id, {})

    def _reconciled(self, member: ShareMember, target_epoch: int, target: Partitions) -> ShareMember:
        """The member with its target: share-partitions need no release by others (``ShareGroupAssignmentBuilder``)."""
        topic_ids = self.metadata().topic_ids(member.subscribed_topics)
        assigned = {str(one): tuple(sorted(found)) for one, found in target.items() if one in topic_ids}
        if member.member_epoch == target_epoch:
            return replace(member, assigned=assigned)
        return replace(member, member_epoch=target_epoch, previous_member_epoch=member.member_epoch, assigned=assigned)

    # Leaving and fencing

    def _leave(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatReply:
        self.remove(self.group(request.group_id), request.member_id)
        return ShareGroupHeartbeatReply(Errors.NONE, member_id=request.member_id, member_epoch=request.member_epoch)

    def remove(self, group: LiveShareGroup, member_id: str) -> None:
        group_id, member = group.group_id, group.member(member_id)
        out = records.removal(group_id, member_id)
        out.append(records.epoch(group_id, group.group_epoch + 1, self._hash(group.subscriptions([member]))))
        if self._rules.emptied_group_is_assigned and len(group.members) == 1:
            out.append(records.target_metadata(group_id, group.group_epoch + 1, 0))
        self.manager.write_group(group_id, out)
        self.cancel_timers(group_id, member_id)

    # Describe

    def describe(self, group_id: str, check: Check) -> DescribedShareGroup:
        """One group of a ShareGroupDescribe."""
        return self.describe_by(group_id, check, self._shown, DescribedShareGroup)

    def _shown(self, group: LiveShareGroup) -> DescribedShareGroup:
        return DescribedShareGroup(
            Errors.NONE,
            None,
            group.group_id,
            group_state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=tuple(self._described(member) for member in group.members.values()),
        )

    def _described(self, member: ShareMember) -> DescribedShareMember:
        return DescribedShareMember(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(java_set_order(sorted(member.subscribed_topics))),
            assignment=described(self.metadata(), member.assigned),
        )


def _known(group: LiveShareGroup, member_id: str, epoch: int) -> ShareMember:
    """The member; epoch 0 makes one, and the previous epoch will do when the answer got lost."""
    if epoch == 0:
        return group.members.get(member_id) or ShareMember(member_id)
    member = group.member(member_id)
    if epoch in (member.member_epoch, member.previous_member_epoch):
        return member
    raise fenced_epoch("share", epoch, member.member_epoch)


def _updated(member: ShareMember, client: Client, request: ShareGroupHeartbeat) -> ShareMember:
    """The member with the values of the request; null says nothing new."""
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        subscribed_topics=member.subscribed_topics if names is None else tuple(sorted(set(names))),
        client_id=client.client_id,
        client_host=client.host,
    )


def _validate_heartbeat(request: ShareGroupHeartbeat) -> None:
    """``throwIfShareGroupHeartbeatRequestIsInvalid``."""
    refuse_blank(MemberId=request.member_id, GroupId=request.group_id, RackId=request.rack_id)
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        raise invalid_request("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_GROUP_MEMBER_EPOCH:
        raise invalid_request("MemberEpoch is invalid.")
