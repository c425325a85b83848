"""A classic group at request time: states, members, pending and static members.

Sources: ``GroupMetadata`` and ``MemberMetadata`` (Scala), ``ClassicGroup`` and ``ClassicGroupMember`` (Java).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.replies import JoinGroupReply, JoinMember, Respond, SyncGroupReply
from coordinator_core.coordinator.requests import Protocols
from coordinator_core.coordinator.rules import ReleaseRules
from coordinator_core.groups.classic import stops_reading
from coordinator_core.groups.model import ClassicGroup, ClassicMember, GroupState, GroupType
from coordinator_core.lifecycle.subscriptions import known_topics
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE
from coordinator_core.records.codec import RecordDecodeError

EMPTY_ASSIGNMENT = b""


VALID_PREVIOUS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""From which states a group may go to each (``validPreviousStates``)."""


class NoGenerationError(Exception):
    """A broker's code throws an exception while it begins a generation, and nobody catches it.

    The group goes on waiting for members that have joined.
    """


class Ageing(NamedTuple):
    """Time from which the retention of a group's offsets counts; ``None``: that of their commits."""

    since_ms: int | None


@dataclass(slots=True, eq=False)
class Member:
    """A member of a classic group. A waiting JoinGroup or SyncGroup is the function that answers it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = EMPTY_ASSIGNMENT
    is_new: bool = False
    awaiting_join: Respond | None = None
    awaiting_sync: Respond | None = None

    def answer_join(self, reply: JoinGroupReply) -> None:
        """Answer the JoinGroup that waits, if one does."""
        respond, self.awaiting_join = self.awaiting_join, None
        if respond is not None:
            respond(reply)

    def answer_sync(self, reply: SyncGroupReply) -> None:
        """Answer the SyncGroup that waits, if one does."""
        respond, self.awaiting_sync = self.awaiting_sync, None
        if respond is not None:
            respond(reply)

    def has_satisfied_heartbeat(self) -> bool:
        """Whether a session that runs out now is no reason to remove the member."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        return dict(reversed(self.protocols))[protocol]

    def vote(self, candidates: set[str]) -> str:
        """The first of the candidates that the member supports; :class:`NoGenerationError` without one."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise NoGenerationError


class LiveClassicGroup:
    """A classic group. Its maps iterate as those of the release do: their order decides leaders."""

    type = GroupType.CLASSIC

    def __init__(self, group_id: str, rules: ReleaseRules, now_ms: int) -> None:
        self.group_id = group_id
        self.rules = rules
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms: int | None = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, Member] = rules.member_map()
        self.static_members: dict[str, str] = {}
        self.pending_join: set[str] = set()
        self.pending_sync: set[str] = set()
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self.is_stuck = False
        """Nothing ends the rebalance under way any more."""

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_simple(self) -> bool:
        """Offsets only (``ClassicGroup.isSimpleGroup``)."""
        return self.protocol_type is None and self.is_empty and not self.pending_join

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def transition(self, state: GroupState, now_ms: int) -> None:
        if self.state not in VALID_PREVIOUS[state]:
            raise ValueError(f"group {self.group_id!r} cannot go from {self.state} to {state}")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def can_rebalance(self) -> bool:
        return self.state in VALID_PREVIOUS[GroupState.PREPARING_REBALANCE]

    def add(self, member: Member) -> None:
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)

    def elect_joined_leader(self) -> bool:
        """Keep a leader that has joined, else take the first member that has. Returns whether there is a leader."""
        if self.leader is None:
            return False
        if self.members[self.leader].awaiting_join is not None:
            return True
        for member in self.members.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def replace_static_member(self, instance_id: str, old_id: str, new_id: str) -> Member:
        """Hand the membership of ``old_id`` to ``new_id``; requests that wait under the old id are fenced."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        if self.rules.replaced_static_member_forgets_newness:
            member.is_new = False
        self.members[new_id] = member
        if self.leader == old_id:
            self.leader = new_id
        self.static_members[instance_id] = new_id
        member.answer_join(JoinGroupReply(Errors.FENCED_INSTANCE_ID, member_id=old_id))
        member.answer_sync(SyncGroupReply(Errors.FENCED_INSTANCE_ID))
        return member

    @property
    def num_awaiting_join(self) -> int:
        return sum(member.awaiting_join is not None for member in self.members.values())

    def has_all_members_joined(self) -> bool:
        return len(self.members) == self.num_awaiting_join and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, names: set[str]) -> bool:
        """Whether a member of ``protocol_type`` with protocols ``names`` fits in (``supportsProtocols``)."""
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and bool(names & self._supported_by_all(names))

    def _supported_by_all(self, names: set[str]) -> set[str]:
        return {name for name in names if self._supporters(name) == len(self.members)}

    def _supporters(self, name: str) -> int:
        return sum(protocol == name for member in self.members.values() for protocol, _ in member.protocols)

    def select_protocol(self) -> str:
        """The protocol that all support and most vote for; the release decides a tie by its map's order.

        A protocol that a member names twice counts as often, and is then supported by more members than there are.
        """
        known = {name for member in self.members.values() for name, _ in member.protocols}
        candidates = self._supported_by_all(known)
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.vote(candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(self.rules.vote_order(votes), key=lambda name: votes[name])

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Topics of all members, ``None`` when unknown: no ``consumer`` group, or an unreadable blob.

        Raises :class:`NoGenerationError` for a blob at which generated code throws another exception (KAFKA-20570).
        """
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            subscription = member.metadata(self.protocol_name)
            if stops_reading(subscription, self.rules.subscription_reading):
                raise NoGenerationError
            try:
                topics.update(known_topics(subscription))
            except RecordDecodeError:
                return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """An unknown subscription counts as one to every topic."""
        if self.subscribed_topics is None:
            return self.rules.unknown_subscription_is_all or self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def ageing(self) -> Ageing | None:
        """``ClassicGroup.offsetExpirationCondition``; ``removeExpiredOffsets`` since KIP-211 and KAFKA-13636."""
        if self.protocol_type is None:
            return Ageing(None)
        if self.is_empty:
            return Ageing(self.state_timestamp_ms)
        known = self.uses_consumer_protocol and self.subscribed_topics is not None
        return Ageing(None) if known and self.is_in(GroupState.STABLE) else None

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)
        self.pending_sync.clear()

    def join_members(self) -> tuple[JoinMember, ...]:
        """The members as the leader's JoinGroup answer lists them."""
        name = self.protocol_name
        assert name is not None
        return tuple(JoinMember(one.member_id, one.instance_id, one.metadata(name)) for one in self.members.values())

    def assignments(self) -> dict[str, bytes]:
        return {member.member_id: member.assignment for member in self.members.values()}

    # Fields of a group in its record

    def restored(self, loaded: ClassicGroup) -> Self:
        """This new group with what a record says: Stable with members, else Empty; as it is where no record made it."""
        if loaded.record_offset is None:
            return self
        self.protocol_type = loaded.protocol_type
        self.protocol_name = loaded.protocol
        self.generation = loaded.generation
        self.leader = loaded.leader
        for member in loaded.members:
            self.add(
                Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    protocol_type=loaded.protocol_type or "",
                    protocols=((loaded.protocol or "", member.subscription),),
                    assignment=member.assignment,
                )
            )
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.state_timestamp_ms = loaded.state_timestamp_ms
        self.subscribed_topics = self.compute_subscribed_topics()
        return self

    def recorded(self, assignment: Mapping[str, bytes]) -> ClassicGroup:
        """The group as its record will have it, with the members' parts of ``assignment``."""
        members = tuple(
            ClassicMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                subscription=member.metadata(self.protocol_name or ""),
                assignment=assignment[member.member_id],
            )
            for member in self.members.values()
        )
        return ClassicGroup(
            group_id=self.group_id,
            state=GroupState.STABLE if members else GroupState.EMPTY,
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=members,
        )
