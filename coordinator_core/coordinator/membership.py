"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups, in the order of the coordinators' checks.

Sources: ``GroupCoordinator.handleJoinGroup`` and its siblings (Scala);
``GroupMetadataManager.classicGroupJoinToClassicGroup`` and its siblings (Java).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from coordinator_core.coordinator.classic import EMPTY_ASSIGNMENT, LiveClassicGroup, Member
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.rebalance import Rebalances
from coordinator_core.coordinator.replies import JoinGroupReply, LeaveGroupReply, LeaveMember, Respond
from coordinator_core.coordinator.requests import Heartbeat, JoinGroup, MemberIdentity, SyncGroup
from coordinator_core.coordinator.validation import validate_member
from coordinator_core.groups.model import GroupState

MemberIds = Callable[[str], str]
"""Makes the id of a new member from its prefix (client id or group instance id)."""


class Client(NamedTuple):
    """Sender of a request: the client id of its header, its address, the version of the API it uses."""

    client_id: str
    host: str
    version: int


class Membership:
    """Requests of members of classic groups; group lookup and load state are the coordinators' business."""

    def __init__(self, rebalances: Rebalances, new_member_id: MemberIds) -> None:
        self.rebalances = rebalances
        self.rules = rebalances.rules
        self.settings = rebalances.settings
        self._new_member_id = new_member_id

    # JoinGroup

    def accepts(self, group: LiveClassicGroup, member_id: str) -> bool:
        """Whether ``group.max.size`` lets the member in (``acceptJoiningMember``)."""
        if group.is_in(GroupState.EMPTY, GroupState.DEAD):
            return True
        member = group.members.get(member_id)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            joined = member is not None and member.awaiting_join is not None
            return joined or group.num_awaiting_join < self.settings.group_max_size
        return member is not None or len(group.members) < self.settings.group_max_size

    def join(self, group: LiveClassicGroup, client: Client, request: JoinGroup, respond: Respond) -> None:
        member_id = request.member_id
        if not self.accepts(group, member_id):
            group.remove(member_id)
            respond(JoinGroupReply(Errors.GROUP_MAX_SIZE_REACHED))
        else:
            try:
                self._join_accepted(group, client, request, respond)
            except ApiError as error:
                respond(JoinGroupReply(error.error, member_id=member_id))
        if self.rules.purgatory:
            self.rebalances.maybe_complete_join(group)

    def _join_accepted(self, group: LiveClassicGroup, client: Client, request: JoinGroup, respond: Respond) -> None:
        if group.is_in(GroupState.DEAD):
            raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
        if not group.supports(request.protocol_type, request.protocol_names):
            raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
        join = self._join_known if request.member_id else self._join_new
        join(group, client, request, respond)

    def _join_new(self, group: LiveClassicGroup, client: Client, request: JoinGroup, respond: Respond) -> None:
        instance_id = request.group_instance_id
        new_id = self._new_member_id(client.client_id if instance_id is None else instance_id)
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is not None:
                self._rejoin_static(group, client, request, instance_id, old_id, new_id, respond)
                return
        elif client.version >= 4:
            self.rebalances.await_pending_member(group, new_id, request.session_timeout_ms)
            respond(JoinGroupReply(Errors.MEMBER_ID_REQUIRED, member_id=new_id))
            return
        self._add(group, client, request, new_id, respond)

    def _add(
        self, group: LiveClassicGroup, client: Client, request: JoinGroup, member_id: str, respond: Respond
    ) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=client.client_id,
            client_host=client.host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            awaiting_join=respond,
        )
        self.rebalances.add_member(group, member)

    def _join_known(self, group: LiveClassicGroup, client: Client, request: JoinGroup, respond: Respond) -> None:
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.group_instance_id is not None:
                # Both coordinators throw an IllegalStateException here.
                respond(JoinGroupReply(Errors.UNKNOWN_SERVER_ERROR))
                return
            self._add(group, client, request, member_id, respond)
            return
        validate_member(group, member_id, request.group_instance_id)
        member = group.members[member_id]
        if self._changes_nothing(group, member, request):
            respond(self.rebalances.joined(group, member_id))
        elif group.is_in(GroupState.EMPTY):
            raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        else:
            _update(member, request, respond)
            self.rebalances.maybe_prepare_rebalance(group)

    @staticmethod
    def _changes_nothing(group: LiveClassicGroup, member: Member, request: JoinGroup) -> bool:
        """A repeated join is answered with the generation there is; a Stable group's leader asks for more."""
        same = member.protocols == request.protocols
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            return same
        return group.is_in(GroupState.STABLE) and same and group.leader != member.member_id

    def _rejoin_static(
        self,
        group: LiveClassicGroup,
        client: Client,
        request: JoinGroup,
        instance_id: str,
        old_id: str,
        new_id: str,
        respond: Respond,
    ) -> None:
        """A static member comes back under a new id (``updateStaticMemberAndRebalance``)."""
        old_leader = group.leader
        member = group.replace_static_member(instance_id, old_id, new_id)
        self.rebalances.restart_session(group, member)
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        _update(member, request, respond)
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.rebalances.prepare_rebalance(group)
        elif not group.is_in(GroupState.STABLE):
            if not self.rules.purgatory:
                self.rebalances.maybe_complete_join(group)
        elif group.select_protocol() != group.protocol_name:
            self.rebalances.maybe_prepare_rebalance(group)
        else:

            def stored(error: Errors) -> None:
                if error is not Errors.NONE:
                    member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
                    member.awaiting_join = None
                    group.replace_static_member(instance_id, new_id, old_id)
                    self.rebalances.restart_session(group, member)
                    reply = self.rebalances.joined(group, "", as_follower=True)
                    respond(replace(reply, error_code=error, leader=old_leader or ""))
                    return
                member.awaiting_join = None
                respond(self._rejoined(group, client, member, old_leader))

            self.rebalances.store.store_group(group, group.assignments(), stored)

    def _rejoined(
        self, group: LiveClassicGroup, client: Client, member: Member, old_leader: str | None
    ) -> JoinGroupReply:
        """From version 9 on a leader is told to skip the assignment; before, it is made to be a follower."""
        if client.version >= 9:
            reply = self.rebalances.joined(group, member.member_id)
            return replace(reply, skip_assignment=group.leader == member.member_id)
        reply = self.rebalances.joined(group, member.member_id, as_follower=True)
        return replace(reply, leader=old_leader or "")

    # SyncGroup

    def sync(self, group: LiveClassicGroup, request: SyncGroup, respond: Respond) -> None:
        """Raises :class:`ApiError` for a refused request."""
        self._validate_sync(group, request)
        if group.is_in(GroupState.EMPTY):
            raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            raise ApiError(Errors.REBALANCE_IN_PROGRESS)
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self._sync_completing(group, request, respond)
        else:
            member = group.members[request.member_id]
            self.rebalances.synced(group, member.member_id)
            respond(self.rebalances.synced_reply(group, member))
            if self.rules.sync_restarts_session:
                self.rebalances.restart_session(group, member)

    def _validate_sync(self, group: LiveClassicGroup, request: SyncGroup) -> None:
        _validate_generation(group, request)
        asked = request.protocol_type, request.protocol_name
        for given, known in zip(asked, (group.protocol_type, group.protocol_name), strict=True):
            unset = known is None and self.rules.unset_protocol_matches
            if given is not None and given != known and not unset:
                raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)

    def _sync_completing(self, group: LiveClassicGroup, request: SyncGroup, respond: Respond) -> None:
        member_id = request.member_id
        group.members[member_id].awaiting_sync = respond
        self.rebalances.synced(group, member_id)
        if group.leader != member_id:
            return
        given = {one.member_id: one.assignment for one in request.assignments}
        assignment = {member: given.get(member, EMPTY_ASSIGNMENT) for member in group.members}
        generation = group.generation

        def stored(error: Errors) -> None:
            # Another rebalance may have begun while the record was written: then it decides.
            if not group.is_in(GroupState.COMPLETING_REBALANCE) or generation != group.generation:
                return
            if error is not Errors.NONE:
                self.rebalances.set_assignment(group, {}, error)
                self.rebalances.maybe_prepare_rebalance(group)
            else:
                self.rebalances.set_assignment(group, assignment)
                group.transition(GroupState.STABLE, self.rebalances.clock.now_ms)

        self.rebalances.store.store_group(group, assignment, stored)

    # Heartbeat

    def heartbeat(self, group: LiveClassicGroup, request: Heartbeat) -> Errors:
        """Raises :class:`ApiError` for a refused request."""
        _validate_generation(group, request)
        if group.is_in(GroupState.EMPTY):
            raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        self.rebalances.restart_session(group, group.members[request.member_id])
        return Errors.REBALANCE_IN_PROGRESS if group.is_in(GroupState.PREPARING_REBALANCE) else Errors.NONE

    # LeaveGroup

    def leave(self, group: LiveClassicGroup, identities: Sequence[MemberIdentity]) -> LeaveGroupReply:
        if group.is_in(GroupState.DEAD):
            return LeaveGroupReply(Errors.COORDINATOR_NOT_AVAILABLE)
        errors = []
        for identity in identities:
            try:
                self._leave_one(group, identity)
                errors.append(Errors.NONE)
            except ApiError as error:
                errors.append(error.error)
        if not self.rules.leaves_one_by_one and Errors.NONE in errors:
            if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
                self.rebalances.maybe_prepare_rebalance(group)
            else:
                self.rebalances.maybe_complete_join(group)
        left = (LeaveMember(*identity, error) for identity, error in zip(identities, errors, strict=True))
        return LeaveGroupReply(Errors.NONE, tuple(left))

    def _leave_one(self, group: LiveClassicGroup, identity: MemberIdentity) -> None:
        member_id, instance_id = identity
        if not member_id:
            current = group.static_members.get(instance_id) if instance_id is not None else None
            if current is None:
                raise ApiError(Errors.UNKNOWN_MEMBER_ID)
            member_id = current
        elif member_id in group.pending_join:
            self.rebalances.end_session(group, member_id)
            if self.rules.leaves_one_by_one:
                self.rebalances.remove_pending_member(group, member_id)
            else:
                group.remove(member_id)
            return
        else:
            validate_member(group, member_id, instance_id)
        self.rebalances.end_session(group, member_id)
        if self.rules.leaves_one_by_one:
            self.rebalances.remove_member(group, group.members[member_id])
        else:
            self.rebalances.drop_member(group, group.members[member_id])


def _validate_generation(group: LiveClassicGroup, request: SyncGroup | Heartbeat) -> None:
    if group.is_in(GroupState.DEAD):
        raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
    validate_member(group, request.member_id, request.group_instance_id)
    if request.generation_id != group.generation:
        raise ApiError(Errors.ILLEGAL_GENERATION)


def _update(member: Member, request: JoinGroup, respond: Respond) -> None:
    member.protocols = request.protocols
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    # A join that still waits is forgotten, never answered (``updateMember`` sets the new callback).
    member.awaiting_join = respond
