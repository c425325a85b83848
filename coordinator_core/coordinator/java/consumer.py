"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848), and what timers do to consumer groups.

Source: ``GroupMetadataManager`` (``consumerGroupHeartbeat``, ``consumerGroupLeave``,
``consumerGroupFenceMembers``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import consumer_records as records
from coordinator_core.coordinator.java import migration
from coordinator_core.coordinator.java.assignment import Assignments
from coordinator_core.coordinator.java.assignors import ASSIGNORS, DEFAULT_ASSIGNOR
from coordinator_core.coordinator.java.consumer_group import LiveConsumerGroup
from coordinator_core.coordinator.java.group import JavaClassicGroup
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager
from coordinator_core.coordinator.java.modern_group import (
    assigned,
    described,
    invalid_request,
    refuse_blank,
    replacement,
    unreleased_instance_id,
    validate_epoch,
)
from coordinator_core.coordinator.java.modern_groups import Check, ModernGroups
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap, java_set_order
from coordinator_core.coordinator.membership import Client
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.records import group_tombstone
from coordinator_core.coordinator.replies import ConsumerGroupHeartbeatReply, DescribedConsumer, DescribedConsumerGroup
from coordinator_core.coordinator.requests import ConsumerGroupHeartbeat, Owned
from coordinator_core.groups.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    ConsumerMember,
    GroupState,
)
from coordinator_core.releases.requests import RequestRules


class ConsumerGroups(ModernGroups[LiveConsumerGroup]):
    """The consumer groups of one coordinator."""

    def __init__(
        self,
        manager: JavaGroupMetadataManager,
        metadata: Callable[[], MetadataImage],
        new_member_id: Callable[[str], str],
        rules: RequestRules,
    ) -> None:
        super().__init__(manager, metadata, LiveConsumerGroup, "consumer")
        self._rules = rules
        self.new_member_id = new_member_id
        self.assignments = Assignments(manager, metadata)

    @property
    def session_timeout_ms(self) -> int:
        return self.settings.group_consumer_session_timeout_ms

    def topics_of(self, group: LiveConsumerGroup) -> set[str]:
        return set(group.subscriptions())

    # Heartbeat

    def heartbeat(self, client: Client, request: ConsumerGroupHeartbeat, check: Check) -> ConsumerGroupHeartbeatReply:
        try:
            _validate_heartbeat(request, client.version)
            check(request.group_id)
            if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
                return self._leave(request)
            return self._heartbeat(client, request)
        except ApiError as error:
            return ConsumerGroupHeartbeatReply(error.error, error.message)

    def _heartbeat(self, client: Client, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatReply:
        epoch = request.member_epoch
        out: list[Record] = []
        group = self._group(request.group_id, epoch == 0, out)
        self.throw_if_full(group, request.member_id, request.instance_id)
        member_id = request.member_id or self.new_member_id("")
        owned = request.topic_partitions
        member = self._member(group, member_id, epoch, request.instance_id, owned, out)
        updated = _updated(member, client, request)
        subscription_changed, topics_changed = self.subscribed(group, member, updated, out)
        group_epoch = group.group_epoch
        counts_anew = topics_changed or group.metadata_expired(self.now_ms)
        if counts_anew:
            group_epoch = self.assignments.bump_epoch(group, topics_changed, member, updated, out)
        target_epoch, target = self.assignments.update_target(
            group, group_epoch, member, updated, out, counts_anew=counts_anew
        )
        updated = self.assignments.reconcile(
            group,
            updated,
            target_epoch,
            target,
            subscription_changed=subscription_changed,
            owned=owned,
            out=out,
            on_rebalance_timeout=lambda one: self.schedule_rebalance_timeout(group.group_id, one),
        )
        assignment_changed = member.assigned != updated.assigned
        self.manager.write_group(group.group_id, out)
        self.keep_deadline(group)
        self.restart_session(group.group_id, member_id)
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        full = request.rebalance_timeout_ms != -1 and (names is not None or regex is not None) and owned is not None
        return ConsumerGroupHeartbeatReply(
            Errors.NONE,
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=self.settings.group_consumer_heartbeat_interval_ms,
            assignment=assigned(updated.assigned) if epoch == 0 or full or assignment_changed else None,
        )

    def _group(self, group_id: str, create: bool, out: list[Record]) -> LiveConsumerGroup:
        """``getOrMaybeCreateConsumerGroup``: a classic group is converted, an Empty one replaced."""
        group = self.manager.get_group(group_id)
        if group is None and not create:
            raise self.not_found(group_id)
        if group is None:
            return self.manager.new_consumer_group(group_id)
        if create and isinstance(group, JavaClassicGroup):
            if group.is_in(GroupState.EMPTY):
                out.append(group_tombstone(group_id))
                return self.manager.new_consumer_group(group_id)
            return migration.to_consumer_group(self, group, out)
        return self.own(group_id, group)

    def throw_if_full(self, group: LiveConsumerGroup, member_id: str, instance_id: str | None) -> None:
        comes_back = instance_id is not None and instance_id in group.static_members
        if not (self._rules.readmits_known_members and comes_back):
            self.refuse_when_full(group, member_id, self.settings.group_consumer_max_size)

    @staticmethod
    def _member(
        group: LiveConsumerGroup, member_id: str, epoch: int, instance_id: str | None, owned: Owned, out: list[Record]
    ) -> ConsumerMember:
        if epoch != 0:
            member = group.known_member(member_id, instance_id)
            validate_epoch("consumer", member, epoch, owns_subset=_owns_subset(owned, member))
            return member
        existing = group.static_member(instance_id)
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if not existing.speaks_classic and existing.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            raise unreleased_instance_id(existing, member_id, instance_id)
        return replacement(records, group, existing, member_id, out)

    def subscribed(
        self, group: LiveConsumerGroup, member: ConsumerMember, updated: ConsumerMember, out: list[Record]
    ) -> tuple[bool, bool]:
        """Write the changes of the member; whether its subscription did, and whether its topics did."""
        if updated != member:
            out.append(records.member(group.group_id, updated))
        names_changed = updated.subscribed_topics != member.subscribed_topics
        regex_changed, regex_resolved = self.assignments.update_regexes(group, member, updated, out)
        return names_changed or regex_changed, names_changed or regex_resolved

    # Leaving and fencing

    def _leave(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatReply:
        group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
        group = self.group(group_id)
        reply = ConsumerGroupHeartbeatReply(Errors.NONE, member_id=member_id, member_epoch=epoch)
        member = group.known_member(member_id, request.instance_id)
        if epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            self.fence(group, [member])
            return reply
        leaving = replace(
            member,
            member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
            pending_revocation={},
            assigned_epochs={topic_id: (0,) * len(found) for topic_id, found in member.assigned.items()},
        )
        self.manager.write_group(group_id, [records.current(group_id, leaving)])
        return reply

    def remove(self, group: LiveConsumerGroup, member_id: str) -> None:
        self.fence(group, [group.member(member_id)])

    def fence(self, group: LiveConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Remove members; the group becomes classic when none but classic members remain."""
        if not members:
            return
        if migration.may_downgrade(self.settings, group, members):
            migration.to_classic_group(self, group, members)
            return
        group_id = group.group_id
        out = [record for member in members for record in records.removal(group_id, member.member_id)]
        counts = group.regex_counts()
        leaving: JavaHashMap[str, int] = JavaHashMap()
        for member in members:
            if member.subscribed_regex:
                leaving.add(member.subscribed_regex, 1)
        out += [
            records.regex_tombstone(group_id, regex) for regex, count in leaving.items() if counts.get(regex) == count
        ]
        metadata_hash = self.assignments.metadata_hash(group.subscriptions(members))
        out.append(records.epoch(group_id, group.group_epoch + 1, metadata_hash))
        if self._rules.emptied_group_is_assigned and len(members) == len(group.members):
            out.append(records.target_metadata(group_id, group.group_epoch + 1, 0))
        self.manager.write_group(group_id, out)
        for member in members:
            self.cancel_timers(group_id, member.member_id)

    # Timers

    def await_join(self, group_id: str, member: ConsumerMember) -> None:
        """A classic member has to rejoin within its rebalance timeout."""
        self.manager.timers.schedule_if_absent(
            ("consumer-join", group_id, member.member_id),
            member.rebalance_timeout_ms,
            self.fence_later(group_id, member.member_id),
        )

    def await_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        self.manager.timers.schedule(
            ("consumer-sync", group_id, member_id), timeout_ms, self.fence_later(group_id, member_id)
        )

    # Describe

    def describe(self, group_id: str, check: Check) -> DescribedConsumerGroup:
        """One group of a ConsumerGroupDescribe."""
        return self.describe_by(group_id, check, self._shown, DescribedConsumerGroup)

    def _shown(self, group: LiveConsumerGroup) -> DescribedConsumerGroup:
        return DescribedConsumerGroup(
            Errors.NONE,
            None,
            group.group_id,
            group_state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor() or DEFAULT_ASSIGNOR,
            members=tuple(self._described(group, member) for member in group.members.values()),
        )

    def _described(self, group: LiveConsumerGroup, member: ConsumerMember) -> DescribedConsumer:
        owned: dict[str, list[int]] = {}
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                owned.setdefault(topic_id, []).extend(sorted(partitions))
        target = {topic_id: sorted(found) for topic_id, found in group.target(member.member_id).items()}
        return DescribedConsumer(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(java_set_order(sorted(member.subscribed_topics))),
            subscribed_topic_regex=member.subscribed_regex or "",
            assignment=described(self.metadata(), owned),
            target_assignment=described(self.metadata(), target),
            member_type=0 if member.speaks_classic else 1,
        )


def _updated(member: ConsumerMember, client: Client, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    """The member with the values of the request; null and -1 say nothing new."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_topics=member.subscribed_topics if names is None else tuple(sorted(set(names))),
        subscribed_regex=member.subscribed_regex if regex is None else regex or None,
        client_id=client.client_id,
        client_host=client.host,
        classic_session_timeout_ms=None,
        classic_protocols=None,
    )


def _owns_subset(owned: Owned, member: ConsumerMember) -> bool:
    return owned is not None and all(
        one.topic_id in member.assigned and set(one.partitions) <= set(member.assigned[one.topic_id]) for one in owned
    )


def _validate_heartbeat(request: ConsumerGroupHeartbeat, version: int) -> None:
    """``throwIfConsumerGroupHeartbeatRequestIsInvalid``."""
    epoch = request.member_epoch
    if version >= 1 or epoch > 0 or epoch == LEAVE_GROUP_MEMBER_EPOCH:
        refuse_blank(MemberId=request.member_id)
    refuse_blank(GroupId=request.group_id, InstanceId=request.instance_id, RackId=request.rack_id)
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise invalid_request("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise invalid_request(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        raise invalid_request("InstanceId can't be null.")
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise invalid_request("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise ApiError(
            Errors.UNSUPPORTED_ASSIGNOR, f"ServerAssignor {assignor} is not supported. Supported assignors: {known}."
        )
