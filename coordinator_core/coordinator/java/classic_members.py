"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup sent to a consumer group.

Source: ``GroupMetadataManager.classicGroupJoinToConsumerGroup`` and its siblings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from coordinator_core.coordinator.consumer_protocol import Subscription
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import consumer_records as records
from coordinator_core.coordinator.java import migration
from coordinator_core.coordinator.java.consumer import ConsumerGroups
from coordinator_core.coordinator.java.consumer_group import LiveConsumerGroup, partitions_of
from coordinator_core.coordinator.java.modern_group import replacement
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.membership import Client
from coordinator_core.coordinator.replies import JoinGroupReply, LeaveGroupReply, LeaveMember, Respond, SyncGroupReply
from coordinator_core.coordinator.requests import (
    Heartbeat,
    JoinGroup,
    MemberIdentity,
    Owned,
    OwnedPartitions,
    Protocols,
    SyncGroup,
)
from coordinator_core.groups.model import ConsumerMember, MemberState
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE, blob_version
from coordinator_core.records.codec import RecordDecodeError


class ClassicMembers:
    """Members of consumer groups that speak the classic protocol."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups
        self._manager = groups.manager

    # JoinGroup

    def join(self, group: LiveConsumerGroup, client: Client, request: JoinGroup, respond: Respond) -> None:
        """Raises :class:`ApiError` for a refused request."""
        settings = self._manager.settings
        if settings.group_consumer_migration_policy == "disabled":
            raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
        instance_id = request.group_instance_id
        unknown = not request.member_id
        member_id = request.member_id or self._groups.new_member_id("")
        self._groups.throw_if_full(group, member_id, instance_id)
        names = request.protocol_names
        if not group.supports_classic_protocols(request.protocol_type, names):
            raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
        if unknown and client.version >= 4 and instance_id is None:
            respond(JoinGroupReply(Errors.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        out: list[Record] = []
        member = self._member(group, member_id, instance_id, unknown, out)
        existing = group.static_member(instance_id)
        downgrade = existing is not None and self._may_downgrade(group, existing)
        updated, owned = self._updated(member, client, request)
        subscription_changed, topics_changed = self._groups.subscribed(group, member, updated, out)
        bump = subscription_changed or topics_changed
        group_epoch = group.group_epoch
        assignments = self._groups.assignments
        counts_anew = bump or group.metadata_expired(self._groups.now_ms)
        if counts_anew:
            group_epoch = assignments.bump_epoch(group, bump, member, updated, out)
        rebalance = downgrade and group.assignment_epoch < group_epoch
        if not rebalance:
            if downgrade:
                target = group.target_of(updated.member_id, updated.instance_id)
                target_epoch = group.assignment_epoch
            else:
                target_epoch, target = assignments.update_target(
                    group, group_epoch, member, updated, out, counts_anew=counts_anew
                )
            updated = assignments.reconcile(
                group,
                updated,
                target_epoch,
                target,
                subscription_changed=bump,
                owned=owned,
                out=out,
                on_rebalance_timeout=lambda _member: None,
            )
        if downgrade:
            migration.to_classic_group(self._groups, group, joining=updated, rebalance=rebalance, before=out)
        else:
            self._manager.write_group(group.group_id, out)
            self._manager.timers.cancel(("consumer-join", group.group_id, updated.member_id))
            timeout_ms = request.rebalance_timeout_ms
            self._groups.restart_session(group.group_id, updated.member_id, request.session_timeout_ms)
            self._groups.await_sync(group.group_id, updated.member_id, timeout_ms)
        respond(
            JoinGroupReply(
                Errors.NONE,
                updated.member_epoch,
                CONSUMER_PROTOCOL_TYPE,
                request.protocols[0].name,
                member_id=updated.member_id,
            )
        )

    def _member(
        self, group: LiveConsumerGroup, member_id: str, instance_id: str | None, unknown: bool, out: list[Record]
    ) -> ConsumerMember:
        if instance_id is not None and not unknown:
            return group.known_member(member_id, instance_id)
        existing = group.static_member(instance_id)
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        return replacement(records, group, existing, member_id, out)

    def _may_downgrade(self, group: LiveConsumerGroup, replaced: ConsumerMember) -> bool:
        settings = self._manager.settings
        return (
            not replaced.speaks_classic
            and group.all_classic_except([replaced])
            and settings.group_consumer_migration_policy in migration.DOWNGRADES
            and len(group.members) <= settings.group_max_size
        )

    def _updated(self, member: ConsumerMember, client: Client, request: JoinGroup) -> tuple[ConsumerMember, Owned]:
        """The member with its subscription, and the partitions that it says it owns."""
        try:
            subscription = Subscription.of(request.protocols[0].metadata)
        except RecordDecodeError:
            # ``deserializeSubscription`` throws an exception that nobody catches in Kafka.
            raise ApiError(Errors.UNKNOWN_SERVER_ERROR) from None
        image = self._groups.metadata()
        owned = []
        for name, partitions in subscription.owned_partitions:
            topic = image.topic(name)
            if topic is not None:
                owned.append(OwnedPartitions(topic.topic_id, partitions))
        timeout_ms = request.rebalance_timeout_ms
        instance_id = request.group_instance_id
        updated = replace(
            member,
            instance_id=member.instance_id if instance_id is None else instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            subscribed_topics=tuple(sorted(set(subscription.topics))),
            subscribed_regex=None,
            client_id=client.client_id,
            client_host=client.host,
            classic_session_timeout_ms=request.session_timeout_ms,
            classic_protocols=request.protocols,
        )
        return updated, tuple(owned)

    # SyncGroup, Heartbeat

    def _known(self, group: LiveConsumerGroup, request: SyncGroup | Heartbeat) -> tuple[ConsumerMember, Protocols]:
        """The member of a request and its protocols: it must speak the classic one, in its generation."""
        member = group.known_member(request.member_id, request.group_instance_id)
        if member.classic_protocols is None:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        if request.generation_id != member.member_epoch:
            raise ApiError(Errors.ILLEGAL_GENERATION)
        return member, member.classic_protocols

    def sync(self, group: LiveConsumerGroup, request: SyncGroup, respond: Respond) -> None:
        member, protocols = self._known(group, request)
        protocol_type, protocol_name = request.protocol_type, request.protocol_name
        if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol_name not in (None, protocols[0][0]):
            raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
        revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if group.assignment_epoch > member.member_epoch and not revoking:
            self._groups.await_join(group.group_id, member)
            raise ApiError(Errors.REBALANCE_IN_PROGRESS)
        self._manager.timers.cancel(("consumer-sync", group.group_id, member.member_id))
        self._groups.restart_session(group.group_id, member.member_id, member.classic_session_timeout_ms)
        partitions = partitions_of(member.assigned)
        version = blob_version(protocols[0][1])
        blob = migration.assignment_blob(partitions, version, self._groups.metadata())
        respond(SyncGroupReply(Errors.NONE, protocol_type, protocol_name, blob))

    def heartbeat(self, group: LiveConsumerGroup, request: Heartbeat) -> Errors:
        """REBALANCE_IN_PROGRESS tells the member to rejoin, with what there is to revoke or to take."""
        member, _ = self._known(group, request)
        self._groups.restart_session(group.group_id, member.member_id, member.classic_session_timeout_ms)
        released = member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_release(member)
        if member.member_epoch < group.assignment_epoch or member.state is MemberState.UNREVOKED_PARTITIONS or released:
            self._groups.await_join(group.group_id, member)
            return Errors.REBALANCE_IN_PROGRESS
        return Errors.NONE

    # LeaveGroup

    def leave(self, group: LiveConsumerGroup, identities: Iterable[MemberIdentity]) -> LeaveGroupReply:
        """Also a member of the consumer protocol can be made to leave."""
        left = []
        leaving: dict[str, ConsumerMember] = {}
        for identity in identities:
            error = Errors.NONE
            try:
                member = self._leaving(group, identity)
                leaving[member.member_id] = member
            except ApiError as failed:
                error = failed.error
            left.append(LeaveMember(*identity, error))
        self._groups.fence(group, list(leaving.values()))
        return LeaveGroupReply(Errors.NONE, tuple(left))

    def _leaving(self, group: LiveConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
        instance_id = identity.group_instance_id
        if instance_id is None or identity.member_id:
            return group.known_member(identity.member_id, instance_id)
        member = group.static_member(instance_id)
        if member is None:
            raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        return member
