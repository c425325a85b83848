"""A KIP-848 group, heartbeat after heartbeat, as a coordinator of 4.3.1 writes it.

Sources: ``GroupMetadataManager`` (``consumerGroupHeartbeat``, ``consumerGroupLeave``, ``maybeReconcile``) and
``CurrentAssignmentBuilder``: a member revokes, acknowledges, and only then another one takes over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from tests.bench import group_bytes as bytes_of
from tests.bench.group_bytes import Layout, Record
from tests.bench.group_truth import ABSENT, NOTHING, GroupTruth, Kind, Member, State
from tests.bench.simulated import Clients, Step, balanced

INITIAL_EPOCH = 1
LEAVE_STATIC_EPOCH = -2
ASSIGNMENT_INTERVAL_MS = 1_000
"""``group.consumer.assignment.interval.ms``: a target assignment is as old before the next one is made."""
REBALANCE_TIMEOUTS_MS = (300_000, 300_001, 600_000)

Action = Callable[[], list[Record]]


class _Client(NamedTuple):
    """Keys of the three records of a member, and its type 5 value."""

    member: bytes
    target: bytes
    current: bytes
    described: bytes


class SimulatedConsumerGroup:
    """A KIP-848 group. ``is_simple`` when offsets were committed before it had a member."""

    def __init__(self, layout: Layout, most_members: int, random: Random, *, is_simple: bool) -> None:
        self.now_ms = 0
        self._layout = layout
        self._most_members = most_members
        self._random = random
        self._clients = Clients(layout.group_id, random)
        self._is_simple = is_simple
        group_id = layout.group_id
        self._group_key = bytes_of.key(bytes_of.GROUP, group_id)
        self._target_key = bytes_of.key(bytes_of.TARGET_METADATA, group_id)
        self._members: dict[str, Member] = {}
        self._client_of: dict[str, _Client] = {}
        self._forget()

    def _forget(self) -> None:
        """Set the group back to its beginning."""
        self._exists = False
        self._epoch = self._assignment_epoch = INITIAL_EPOCH
        self._assigned_ms: int | None = None
        self._hash = self._random.getrandbits(63) | 1
        self._owned: set[int] = set()

    @property
    def truth(self) -> GroupTruth:
        if not self._exists:
            return ABSENT
        return GroupTruth.of(Kind.CONSUMER, self._members.values(), self._epoch, self._assignment_epoch)

    def rebalance(self) -> Iterator[Step]:
        """The members heartbeat until all are reconciled; what else happens to the group comes in between."""
        actions = deque(self._cause())
        while True:
            action = None
            if actions and (self._is_settled() or self._clients.chance(0.3)):
                action = actions.popleft()
            records = self._any_heartbeat() if action is None else action()
            if action is None and not records:
                due_ms = self._targets_due_ms()
                if due_ms is not None:
                    yield Step((), due_ms)
                    continue
                if not actions:
                    return
                # All wait for a member that is away.
                action = actions.popleft()
                records = action()
            if records:
                yield Step(records, self.now_ms + self._clients.pause_ms(), action == self._end)

    # Why a group rebalances

    def _cause(self) -> list[Action]:
        random, size = self._random, len(self._members)
        if not size:
            if self._exists and random.random() < 0.6:
                return [self._end]
            return [self._join] * random.randint(1, self._most_members)
        cause = random.random()
        if cause < 0.25 and size < self._most_members:
            return [self._join] * random.randint(1, min(3, self._most_members - size))
        if cause < 0.45 and size > 1:
            return [self._leave] * random.randint(1, min(2, size - 1))
        if cause < 0.7:
            return self._rolling_restart()
        if cause < 0.8:
            return [self._topics_changed]
        if cause < 0.9:
            return [self._settings_changed]
        return [self._leave] * size

    def _rolling_restart(self) -> list[Action]:
        size = len(self._members)
        if self._clients.is_static:
            # Not all of them may be back in the end.
            return [self._restart_static] * self._random.randint(1, 2 * size)
        return [self._leave, self._join] * size

    # Requests

    def _join(self) -> list[Record]:
        out: list[Record] = []
        if len(self._members) >= self._most_members:
            return out
        if self._is_simple:
            # The heartbeat deletes the Empty classic group first, even if no record made it.
            out.append((bytes_of.key(bytes_of.CLASSIC_GROUP, self._layout.group_id), None))
            self._is_simple = False
        self._exists = True
        member = self._introduce(Member(self._clients.consumer_member_id(), self._clients.new_instance_id()))
        self._members[member.member_id] = member
        out.append(self._described(member.member_id))
        out.append(self._bumped())
        return out + self._heartbeat(member.member_id)

    def _introduce(self, member: Member) -> Member:
        """Give a member its keys, and a client that is described."""
        names = self._layout.group_id, member.member_id
        self._client_of[member.member_id] = _Client(
            bytes_of.key(bytes_of.MEMBER, *names),
            bytes_of.key(bytes_of.TARGET_MEMBER, *names),
            bytes_of.key(bytes_of.CURRENT, *names),
            self._description(member),
        )
        return member

    def _description(self, member: Member) -> bytes:
        client_id, host = self._clients.client_id(), self._clients.host()
        timeout_ms = self._random.choice(REBALANCE_TIMEOUTS_MS)
        return bytes_of.member(self._layout, member.instance_id, client_id, host, timeout_ms)

    def _leave(self) -> list[Record]:
        """Also when its session expires."""
        present = self._present()
        if not present:
            return []
        member_id = self._random.choice(present)
        out = self._removal(member_id)
        if not self._members:
            self._hash = 0
        return [*out, self._bumped()]

    def _restart_static(self) -> list[Record]:
        """A static member goes away for a while, or comes back under a new id."""
        away = [one for one in self._members.values() if one.epoch == LEAVE_STATIC_EPOCH]
        if away:
            return self._return(away[0])
        present = self._present()
        return self._go_away(self._members[self._random.choice(present)]) if present else []

    def _go_away(self, member: Member) -> list[Record]:
        left = member._replace(epoch=LEAVE_STATIC_EPOCH, assigned=dict.fromkeys(member.assigned, 0), revoking=NOTHING)
        return [self._put(left)]

    def _return(self, old: Member) -> list[Record]:
        """The new id has the target of the old one."""
        description = self._client_of[old.member_id].described
        out = self._removal(old.member_id)
        new = self._introduce(
            old._replace(
                member_id=self._clients.consumer_member_id(),
                epoch=0,
                previous_epoch=0,
                target=old.target or frozenset(),
            )
        )
        client = self._client_of[new.member_id]
        out += [
            (client.member, description),
            (client.target, bytes_of.target(self._layout, new.target or frozenset())),
            self._put(new),
        ]
        # Rarely at the same address as before.
        if client.described != description:
            out.append((client.member, client.described))
        return out + self._heartbeat(new.member_id)

    def _topics_changed(self) -> list[Record]:
        """Topics have other racks or replicas: new epochs, the same assignment."""
        present = self._present()
        if not present:
            return []
        self._hash = self._random.getrandbits(63) | 1
        return [self._bumped(), *self._heartbeat(self._random.choice(present))]

    def _settings_changed(self) -> list[Record]:
        """A member describes itself anew, with the same subscription: no rebalance."""
        present = self._present()
        if not present:
            return []
        member_id = self._random.choice(present)
        described = self._description(self._members[member_id])
        self._client_of[member_id] = self._client_of[member_id]._replace(described=described)
        return [self._described(member_id), *self._heartbeat(member_id)]

    def _end(self) -> list[Record]:
        """An Empty group is deleted."""
        if self._members:
            return []
        group_id = self._layout.group_id
        self._forget()
        return [
            (self._target_key, None),
            (bytes_of.key(bytes_of.PARTITION_METADATA, group_id), None),
            (self._group_key, None),
        ]

    # What a heartbeat makes of the group

    def _present(self) -> list[str]:
        return [one.member_id for one in self._members.values() if one.epoch != LEAVE_STATIC_EPOCH]

    def _is_reconciled(self, member: Member) -> bool:
        return member.state is State.STABLE and member.epoch == self._assignment_epoch

    def _is_settled(self) -> bool:
        if not self._members:
            return True
        return self._epoch == self._assignment_epoch and all(map(self._is_reconciled, self._members.values()))

    def _targets_due_ms(self) -> int | None:
        """Time at which the next target assignment may be made, if it is too early for one that the epoch asks for."""
        is_old = self._epoch > self._assignment_epoch
        if not is_old or self._assigned_ms is None or not self._present():
            return None
        return self._assigned_ms + ASSIGNMENT_INTERVAL_MS

    def _any_heartbeat(self) -> list[Record]:
        """The first one of those in any order that has something written; none when all wait."""
        if self._is_settled():
            return []
        present = self._present()
        self._random.shuffle(present)
        for member_id in present:
            records = self._heartbeat(member_id)
            if records:
                return records
        return []

    def _heartbeat(self, member_id: str) -> list[Record]:
        out: list[Record] = []
        due = self._assigned_ms is None or self.now_ms >= self._assigned_ms + ASSIGNMENT_INTERVAL_MS
        if self._assignment_epoch < self._epoch and due:
            out += self._new_targets()
        member = self._members[member_id]
        updated = self._next(member)
        if updated != member:
            out.append(self._put(updated))
        return out

    def _new_targets(self) -> list[Record]:
        out: list[Record] = []
        targets = balanced(
            {member_id: member.target or frozenset() for member_id, member in self._members.items()},
            self._layout.all_places,
        )
        for member_id, places in targets.items():
            member = self._members[member_id]
            if places != member.target:
                self._members[member_id] = member._replace(target=places)
                value = bytes_of.target(self._layout, places)
                out.append((self._client_of[member_id].target, value))
        self._assignment_epoch, self._assigned_ms = self._epoch, self.now_ms
        out.append((self._target_key, bytes_of.target_metadata(self._epoch, self.now_ms)))
        return out

    def _next(self, member: Member) -> Member:
        """The member after its heartbeat (``CurrentAssignmentBuilder``); one that revokes acknowledges it."""
        if self._is_reconciled(member):
            return member
        target = member.target or frozenset()
        kept = {place: since for place, since in member.assigned.items() if place in target}
        if len(kept) < len(member.assigned):
            lost = {place: since for place, since in member.assigned.items() if place not in kept}
            return member._replace(previous_epoch=member.epoch, state=State.UNREVOKED, assigned=kept, revoking=lost)
        missing = target.difference(kept)
        free = [place for place in missing if place in member.revoking or place not in self._owned]
        kept.update(dict.fromkeys(free, self._assignment_epoch))
        return member._replace(
            epoch=self._assignment_epoch,
            previous_epoch=member.epoch,
            state=State.STABLE if len(free) == len(missing) else State.UNRELEASED,
            assigned=kept,
            revoking=NOTHING,
        )

    # Records

    def _bumped(self) -> Record:
        self._epoch += 1
        if self._members and not self._hash:
            self._hash = self._random.getrandbits(63) | 1
        return self._group_key, bytes_of.group(self._epoch, self._hash)

    def _described(self, member_id: str) -> Record:
        client = self._client_of[member_id]
        return client.member, client.described

    def _put(self, member: Member) -> Record:
        """The member's current assignment, now in force."""
        self._disown(self._members.get(member.member_id))
        self._owned.update(member.assigned, member.revoking)
        self._members[member.member_id] = member
        return self._client_of[member.member_id].current, bytes_of.current(self._layout, member)

    def _disown(self, member: Member | None) -> None:
        if member is not None:
            self._owned.difference_update(member.assigned, member.revoking)

    def _removal(self, member_id: str) -> list[Record]:
        self._disown(self._members.pop(member_id))
        client = self._client_of.pop(member_id)
        return [(client.current, None), (client.target, None), (client.member, None)]
