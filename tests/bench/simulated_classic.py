"""A classic group, generation after generation, as a coordinator of 4.3.1 writes it.

A rebalance is one record, written when the leader's SyncGroup ends CompletingRebalance. Source:
``GroupMetadataManager`` (``classicGroupJoin…``, ``classicGroupSync…``, ``completeClassicGroupJoin``).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from tests.bench import group_bytes as bytes_of
from tests.bench.group_bytes import Layout, Record
from tests.bench.group_truth import ABSENT, GroupTruth, Kind, Member
from tests.bench.simulated import Clients, Step, balanced

RANGE, COOPERATIVE = "range", "cooperative-sticky"


class _Client(NamedTuple):
    """``head`` is the member in the group's record up to its subscription, which follows with its length."""

    client_id: str
    host: str
    head: bytes
    subscription: bytes


class SimulatedClassicGroup:
    """A classic group. ``is_simple`` when offsets were committed before it had a member."""

    def __init__(self, layout: Layout, most_members: int, random: Random, *, is_simple: bool) -> None:
        self.now_ms = 0
        self._layout = layout
        self._most_members = most_members
        self._random = random
        self._clients = Clients(layout.group_id, random)
        self._protocol = RANGE if random.random() < 0.7 else COOPERATIVE
        self._key = bytes_of.key(bytes_of.CLASSIC_GROUP, layout.group_id)
        self._subscription = bytes_of.sized(bytes_of.subscription(layout))
        self._exists = is_simple
        self._is_recorded = False
        self._generation = 0
        self._state_ms = 0
        self._leader: str | None = None
        self._members: dict[str, Member] = {}
        self._client_of: dict[str, _Client] = {}

    @property
    def truth(self) -> GroupTruth:
        if not self._is_recorded:
            return ABSENT
        kind = Kind.CLASSIC if self._generation else Kind.SIMPLE
        return GroupTruth.of(kind, self._members.values(), self._generation)

    def rebalance(self) -> Iterator[Step]:
        if not self._exists:
            # The first JoinGroup makes the group; the record after it is that of its first generation.
            self._exists = True
            self._state_ms = self.now_ms
            yield self._step(self._record(""))
        if self._members:
            yield from self._changed()
        elif self._is_recorded and self._generation and self._clients.chance(0.5):
            yield self._end()
        else:
            yield from self._joined(self._random.randint(1, self._most_members))

    # Why a group rebalances

    def _changed(self) -> Iterator[Step]:
        cause, size = self._random.random(), len(self._members)
        if cause < 0.3 and size < self._most_members:
            yield from self._joined(self._random.randint(1, min(2, self._most_members - size)))
        elif cause < 0.55 and size > 1:
            yield from self._left()
        elif cause < 0.85:
            yield from self._rolling_restart()
        else:
            for _ in range(size - 1):
                yield from self._left()
            yield self._emptied()

    def _rolling_restart(self) -> Iterator[Step]:
        for member_id in list(self._members):
            if self._clients.is_static:
                yield self._replaced(member_id)
            elif member_id in self._members and len(self._members) > 1:
                yield from self._left(member_id)
                yield from self._joined(1)

    def _joined(self, count: int) -> Iterator[Step]:
        for _ in range(count):
            instance_id = self._clients.new_instance_id()
            client_id = self._clients.client_id()
            member_id = self._clients.classic_member_id(client_id, instance_id)
            self._add(Member(member_id, instance_id), client_id, self._clients.host(), self._subscription)
        yield from self._generations()

    def _add(self, member: Member, client_id: str, host: str, subscription: bytes) -> None:
        head = bytes_of.classic_member(member.member_id, member.instance_id, client_id, host)
        self._members[member.member_id] = member
        self._client_of[member.member_id] = _Client(client_id, host, head, subscription)

    def _left(self, member_id: str | None = None) -> Iterator[Step]:
        """A member leaves, or its session expires."""
        self._drop(member_id or self._random.choice(list(self._members)))
        yield from self._generations()

    def _replaced(self, member_id: str) -> Step:
        """A static member comes back under a new id: the same generation, written again."""
        old, client, was_leader = self._members[member_id], self._client_of[member_id], self._leader
        new_id = self._clients.classic_member_id(client.client_id, old.instance_id)
        self._drop(member_id)
        # The client id and the host stay those of the first one.
        self._add(old._replace(member_id=new_id), client.client_id, client.host, client.subscription)
        if was_leader == member_id:
            self._leader = new_id
        return self._step(self._record("consumer"))

    def _emptied(self) -> Step:
        """The last member is gone."""
        for member_id in list(self._members):
            self._drop(member_id)
        self._generation += 1
        self._state_ms = self.now_ms
        return self._step(self._record("consumer"))

    def _end(self) -> Step:
        """An Empty group is deleted."""
        self._exists = self._is_recorded = False
        self._generation = 0
        return Step([(self._key, None)], self.now_ms + self._clients.pause_ms(), ends=True)

    def _drop(self, member_id: str) -> None:
        del self._members[member_id], self._client_of[member_id]
        if self._leader == member_id:
            self._leader = None

    # Generations

    def _generations(self) -> Iterator[Step]:
        """The generations until everybody has what the assignor wants."""
        if self._clients.chance(0.05):
            # Nobody synced: the next generation began before this one had a record.
            self._generation += 1
        if self._clients.chance(0.08):
            # A leader without metadata of its topics gives nobody anything, and rejoins.
            yield self._generation_of({})
        targets = self._targets()
        if self._protocol == COOPERATIVE:
            first = self._without_moves(targets)
            if first != targets:
                yield self._generation_of(first)
        yield self._generation_of(targets)

    def _targets(self) -> dict[str, frozenset[int]]:
        if self._protocol == COOPERATIVE:
            held = {one.member_id: frozenset(one.assigned) for one in self._members.values()}
            return balanced(held, self._layout.all_places)
        # Topic by topic, in ranges, to members in the order of their ids.
        found: dict[str, list[int]] = {member_id: [] for member_id in sorted(self._members)}
        for _, places in self._layout.by_topic(self._layout.all_places):
            least, one_more = divmod(len(places), len(found))
            first = 0
            for index, mine in enumerate(found.values()):
                after = first + least + (index < one_more)
                mine += places[first:after]
                first = after
        return {member_id: frozenset(found[member_id]) for member_id in self._members}

    def _without_moves(self, targets: dict[str, frozenset[int]]) -> dict[str, frozenset[int]]:
        """Partitions that move are given to nobody at first, so that their owner gives them up."""
        held = {place: one.member_id for one in self._members.values() for place in one.assigned}
        return {
            member_id: frozenset(place for place in places if held.get(place, member_id) == member_id)
            for member_id, places in targets.items()
        }

    def _generation_of(self, assigned: dict[str, frozenset[int]]) -> Step:
        """The next generation; members that the leader leaves out have an assignment of no bytes."""
        if self._protocol == COOPERATIVE:
            for one in self._members.values():
                if one.assigned:
                    blob = bytes_of.subscription(self._layout, one.assigned, self._generation)
                    client = self._client_of[one.member_id]
                    self._client_of[one.member_id] = client._replace(subscription=bytes_of.sized(blob))
        self._generation += 1
        self._state_ms = self.now_ms
        self._leader = self._leader or next(iter(self._members))
        for member_id, one in self._members.items():
            self._members[member_id] = one._replace(
                assigned=dict.fromkeys(assigned.get(member_id, ()), self._generation)
            )
        return self._step(self._record("consumer", is_left_out=not assigned))

    def _record(self, protocol_type: str, *, is_left_out: bool = False) -> Record:
        self._is_recorded = True
        members = [
            client.head
            + client.subscription
            + bytes_of.sized(b"" if is_left_out else bytes_of.assignment(self._layout, one.assigned))
            for one, client in zip(self._members.values(), self._client_of.values(), strict=True)
        ]
        protocol = self._protocol if members else None
        leader = self._leader if members else None
        return self._key, bytes_of.classic_group(
            protocol_type, self._generation, protocol, leader, self._state_ms, members
        )

    def _step(self, record: Record) -> Step:
        return Step([record], self.now_ms + self._clients.pause_ms())
