"""Rebalances of classic groups: who is waited for, when a join phase ends, and what its end brings.

Sources: ``GroupCoordinator`` with ``DelayedJoin``, ``InitialDelayedJoin`` and ``DelayedSync`` (Scala);
``GroupMetadataManager.prepareRebalance``, ``completeClassicGroupJoin``, ``expirePendingSync`` (Java).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from coordinator_core.coordinator.classic import EMPTY_ASSIGNMENT, LiveClassicGroup, Member, NoGenerationError
from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.replies import JoinGroupReply, SyncGroupReply
from coordinator_core.coordinator.rules import ReleaseRules
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock, Timers
from coordinator_core.groups.model import GroupState

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class GroupStore(Protocol):
    """Writer of a group's metadata."""

    def store_group(
        self, group: LiveClassicGroup, assignment: dict[str, bytes], done: Callable[[Errors], None]
    ) -> None:
        """Append the group's record and call ``done`` with ``NONE`` or the translated append error."""

    def has_group(self, group: LiveClassicGroup) -> bool:
        """Whether ``group`` is still the one of its id."""


@dataclass(frozen=True)
class Rebalances:
    """The rebalance machinery of one coordinator's classic groups."""

    settings: BrokerSettings
    rules: ReleaseRules
    clock: Clock
    timers: Timers
    store: GroupStore

    # Sessions

    def restart_session(self, group: LiveClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
        """Start the member's session again (``completeAndScheduleNextHeartbeatExpiration``)."""
        member_id = member.member_id
        self._schedule(
            ("heartbeat", group.group_id, member_id),
            member.session_timeout_ms if timeout_ms is None else timeout_ms,
            lambda: self._session_expired(group, member_id),
        )

    def await_pending_member(self, group: LiveClassicGroup, member_id: str, timeout_ms: int) -> None:
        group.pending_join.add(member_id)
        self._schedule(
            ("heartbeat", group.group_id, member_id), timeout_ms, lambda: self._session_expired(group, member_id)
        )

    def end_session(self, group: LiveClassicGroup, member_id: str) -> None:
        self.timers.cancel(("heartbeat", group.group_id, member_id))

    def _session_expired(self, group: LiveClassicGroup, member_id: str) -> None:
        if group.is_in(GroupState.DEAD) or not self.store.has_group(group):
            return
        if member_id in group.pending_join:
            self.remove_pending_member(group, member_id)
            return
        member = group.members.get(member_id)
        if member is not None and not member.has_satisfied_heartbeat():
            self.remove_member(group, member)

    def _schedule(self, key: tuple[str, ...], delay_ms: int, action: Callable[[], None]) -> None:
        def quietly() -> None:
            with suppress(NoGenerationError):
                action()

        self.timers.schedule(key, delay_ms, quietly)

    # Members

    def add_member(self, group: LiveClassicGroup, member: Member) -> None:
        """Take a new member in and start a rebalance, or let it join the one under way."""
        member.is_new = True
        initial = group.generation == 0 if self.rules.purgatory else group.previous_state is GroupState.EMPTY
        if group.is_in(GroupState.PREPARING_REBALANCE) and initial:
            group.new_member_added = True
        group.add(member)
        self.restart_session(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.maybe_prepare_rebalance(group)

    def remove_member(self, group: LiveClassicGroup, member: Member) -> None:
        """Remove a member; a rebalance follows, or the one under way is done with waiting for it."""
        self.drop_member(group, member)
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.maybe_prepare_rebalance(group)
        else:
            self._complete_join_if_all_came(group)

    def drop_member(self, group: LiveClassicGroup, member: Member) -> None:
        """Remove a member, nothing else; its waiting JoinGroup is answered, a waiting SyncGroup never."""
        member.answer_join(JoinGroupReply(Errors.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def remove_pending_member(self, group: LiveClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        self._complete_join_if_all_came(group)

    def _complete_join_if_all_came(self, group: LiveClassicGroup) -> None:
        if not group.is_in(GroupState.PREPARING_REBALANCE) or not group.has_all_members_joined():
            return
        # Scala's InitialDelayedJoin cannot be completed before its time, whoever leaves.
        if self.rules.purgatory and self._is_initial(group):
            return
        self.complete_join(group)

    # The join phase

    def maybe_prepare_rebalance(self, group: LiveClassicGroup) -> None:
        if group.can_rebalance():
            self.prepare_rebalance(group)
        elif not self.rules.purgatory:
            self.maybe_complete_join(group)

    def prepare_rebalance(self, group: LiveClassicGroup) -> None:
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.set_assignment(group, {}, Errors.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self.timers.cancel(("sync", group.group_id))
        initial = group.is_empty
        group.transition(GroupState.PREPARING_REBALANCE, self.clock.now_ms)
        if initial:
            delay_ms = self.settings.group_initial_rebalance_delay_ms
            self._delay_initial_join(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            return
        if group.has_all_members_joined():
            self.complete_join(group)
        else:
            self._await_joins(group)

    def maybe_complete_join(self, group: LiveClassicGroup) -> None:
        """End the join phase when everyone came, unless it is the initial one, which takes its time."""
        preparing = group.is_in(GroupState.PREPARING_REBALANCE)
        if preparing and not self._is_initial(group) and group.has_all_members_joined():
            self.complete_join(group)

    def _is_initial(self, group: LiveClassicGroup) -> bool:
        if self.rules.purgatory:
            return self.timers.is_scheduled(("initial-join", group.group_id))
        return group.previous_state is GroupState.EMPTY

    def _await_joins(self, group: LiveClassicGroup) -> None:
        self._schedule(("join", group.group_id), group.rebalance_timeout_ms, lambda: self._join_due(group))

    def _delay_initial_join(self, group: LiveClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def due() -> None:
            if not self.store.has_group(group) or not group.is_in(GroupState.PREPARING_REBALANCE):
                return
            if group.new_member_added and remaining_ms != 0:
                group.new_member_added = False
                step_ms = min(self.settings.group_initial_rebalance_delay_ms, remaining_ms)
                self._delay_initial_join(group, step_ms, max(remaining_ms - delay_ms, 0))
            else:
                self.complete_join(group)

        self._schedule(("initial-join", group.group_id), delay_ms, due)

    def _join_due(self, group: LiveClassicGroup) -> None:
        if self.store.has_group(group) and group.is_in(GroupState.PREPARING_REBALANCE):
            self.complete_join(group)

    def complete_join(self, group: LiveClassicGroup) -> None:
        """The join phase is over: drop who did not come, elect a leader, begin the next generation.

        Raises :class:`NoGenerationError`, which the answer to a request shows and a timer does not.
        """
        if group.is_stuck:
            return
        self.timers.cancel(("join", group.group_id))
        self.timers.cancel(("initial-join", group.group_id))
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                group.remove(member.member_id)
                self.end_session(group, member.member_id)
        if group.is_in(GroupState.DEAD):
            return
        if not group.elect_joined_leader() and group.members:
            # Static members only, and none of them joined: wait once more.
            self._await_joins(group)
            return
        try:
            group.next_generation(self.clock.now_ms)
        except NoGenerationError:
            # A purgatory is done with the operation, whatever comes of it.
            group.is_stuck = self.rules.purgatory
            raise
        if group.is_empty:
            self.store.store_group(group, {}, lambda _error: None)
            return
        for member in group.members.values():
            member.answer_join(self.joined(group, member.member_id))
            self.restart_session(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        generation = group.generation
        self._schedule(("sync", group.group_id), group.rebalance_timeout_ms, lambda: self._sync_due(group, generation))

    def joined(self, group: LiveClassicGroup, member_id: str, *, as_follower: bool = False) -> JoinGroupReply:
        """The answer to a member of the current generation; only the leader learns who is in it."""
        leads = group.leader == member_id and not as_follower
        return JoinGroupReply(
            Errors.NONE,
            group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader or "",
            member_id=member_id,
            members=group.join_members() if leads else (),
        )

    # The sync phase

    def synced(self, group: LiveClassicGroup, member_id: str) -> None:
        """A member asked for its assignment; when all have, nobody is waited for any longer."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync or not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            self.timers.cancel(("sync", group.group_id))

    def _sync_due(self, group: LiveClassicGroup, generation: int) -> None:
        if not self.store.has_group(group) or generation != group.generation or not group.pending_sync:
            return
        if group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            for member_id in list(group.pending_sync):
                group.remove(member_id)
                self.end_session(group, member_id)
            self.prepare_rebalance(group)

    def set_assignment(
        self, group: LiveClassicGroup, assignment: Mapping[str, bytes], error: Errors = Errors.NONE
    ) -> None:
        """Give members their parts, empty ones where there are none, and answer who waits for them with ``error``."""
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, EMPTY_ASSIGNMENT)
        for member in group.members.values():
            if member.awaiting_sync is not None:
                member.answer_sync(self.synced_reply(group, member, error))
                self.restart_session(group, member)

    def synced_reply(self, group: LiveClassicGroup, member: Member, error: Errors = Errors.NONE) -> SyncGroupReply:
        if error is not Errors.NONE:
            return SyncGroupReply(error, assignment=member.assignment)
        return SyncGroupReply(error, group.protocol_type, group.protocol_name, member.assignment)

    # Load and unload

    def loaded(self, group: LiveClassicGroup) -> None:
        """Sessions of a loaded group begin now; one that is too large rebalances (``onGroupLoaded``)."""
        for member in group.members.values():
            self.restart_session(group, member)
        if len(group.members) > self.settings.group_max_size:
            self.prepare_rebalance(group)

    def unloaded(self, group: LiveClassicGroup) -> None:
        """The group is another coordinator's now: who waits is told so, and nothing is written."""
        group.transition(GroupState.DEAD, self.clock.now_ms)
        for member in group.members.values():
            member.answer_join(JoinGroupReply(Errors.NOT_COORDINATOR, member_id=member.member_id))
            member.answer_sync(SyncGroupReply(Errors.NOT_COORDINATOR))
            self.end_session(group, member.member_id)
        for timer in ("join", "initial-join", "sync"):
            self.timers.cancel((timer, group.group_id))
