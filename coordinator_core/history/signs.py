"""Signs of trouble in the history of a group, as values. Investigations tell them, rules count them.

A sign is what the records show; how bad it is and what to do is for those who read it.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from coordinator_core.durations import DAY_MS, HOUR_MS, are_close, elapsed
from coordinator_core.groups.model import OffsetKey, are_of_other_topics
from coordinator_core.history.model import (
    Change,
    ChangeKind,
    EndKind,
    GroupHistory,
    Member,
    OriginKind,
    Place,
    Removal,
    Version,
)
from coordinator_core.history.origins import WITH_EPOCHS
from coordinator_core.history.takeovers import is_taken_back
from coordinator_core.history.versions import BORING_STEPS, FEW_COMMITS, SMALL_STEP
from coordinator_core.releases import Clock, Profile

STORM = 20
"""Rebalances of a group in an hour."""
FLAPS = 5
"""Joins of one client in an hour."""
_FEW_FLAPS = 3
"""Joins of one client in an hour in which no other one joins: it is put out, or restarts."""
REPLACEMENTS = 3
"""Replacements of the member behind one group instance id in an hour."""
TURNS = 6
"""Times that the writer of an offset key changes, for two that take turns."""
AGAIN = 20
"""Commits of one value in a row, after the first."""
FAMILY = 50
"""Groups of one pattern, each of which lived once."""
_FLAPS_A_DAY = 8
"""Joins of one client in a day, where no other client joins nearly as often."""
_ALONE = 0.25
_EACH_IN_DEPLOY = 3
"""Rebalances that a member causes when a deployment restarts it, at most."""
_LIKE_STEPS = 10
_PAUSED = 20
"""Times the usual distance of commits without one."""
_ONE_LIFE_MS = DAY_MS


# Committed offsets that moved


class Move(NamedTuple):
    """A step of an offset key from ``before`` to ``after``; ``earlier`` had committed the same value long before."""

    key: OffsetKey
    before: Version
    after: Version
    earlier: Version | None

    @property
    def records(self) -> int:
        return self.after.first.committed_offset - self.before.last.committed_offset

    @property
    def origin(self) -> OriginKind | None:
        return None if self.after.origin is None else self.after.origin.kind

    @property
    def coordinator_epochs(self) -> tuple[int, int] | None:
        """Leader epochs of the offsets partition before and after, where they differ."""
        return _changed(self.before.last_place.leader_epoch, self.after.place.leader_epoch)

    @property
    def topic_epochs(self) -> tuple[int, int] | None:
        """Leader epochs of the topic's partition in the commits before and after, where both are known and differ."""
        return _changed(self.before.last.leader_epoch, self.after.last.leader_epoch)


def _changed(before: int | None, after: int | None) -> tuple[int, int] | None:
    return None if before is None or after is None or before == after else (before, after)


def pace_of(version: Version) -> float:
    """Records an hour that the commits of a version go on; 0 where they tell none."""
    took = elapsed(version.place.timestamp_ms, version.last_place.timestamp_ms)
    read = version.last.committed_offset - version.first.committed_offset
    return read * HOUR_MS / took if took > 0 else 0.0


def is_pause(move: Move) -> bool:
    """Whether the step is no larger than what is usual in that time, and much time passed without a commit."""
    before = move.before
    took = elapsed(before.place.timestamp_ms, before.last_place.timestamp_ms)
    quiet = elapsed(before.last_place.timestamp_ms, move.after.place.timestamp_ms)
    read = before.last.committed_offset - before.first.committed_offset
    return took > 0 and quiet >= _PAUSED * took / (before.commits - 1) and move.records * took <= 2 * read * quiet


def stop_between(group: GroupHistory, move: Move) -> Change | None:
    """The first time that the group had no members between both commits, where the coordinator moved at no other
    time: what was committed before the last member left is in the log, and nobody was there to commit the rest."""
    at = bisect_left(group.changes, move.before.last_place, key=lambda one: one.place)
    changes = list(itertools.takewhile(lambda one: one.place < move.after.place, group.changes[at:]))
    stops = [one for one in changes if not one.members]
    places = [*(one.place for one in changes), move.after.place]
    epoch, is_stopped = move.before.last_place.leader_epoch, False
    for change, place in zip([None, *changes], places, strict=True):
        is_stopped = change is not None and not change.members
        if place.leader_epoch != epoch and not is_stopped:
            return None
        epoch = place.leader_epoch
    return stops[0] if stops else None


class MoveKind(StrEnum):
    RESET = "reset"
    """Back, by an Admin client."""
    MIRROR = "mirror"
    """Back, by somebody who writes offsets of a group without members, again and again."""
    STALE = "stale"
    """Back after a rebalance, to a value that was committed before."""
    BACK = "back"
    NEGATIVE = "negative"
    """To a value below 0, which no partition has."""
    SKIPPED = "skipped"
    """Forward, by an Admin client."""
    JUMPED = "jumped"
    """Forward, by far more than ever before."""


def moves_of(group: GroupHistory, rivals: Sequence[Rivals] | None = None) -> dict[MoveKind, list[Move]]:
    """Steps back, and steps forward that are out of proportion; without offset keys that two writers share, commits
    of a member for another one's partition (``trespasses``): the owner did not go back, steps forward of a mirror,
    which goes as far as the group in the other cluster has read, and those that take back a step back. ``rivals`` are
    those of :func:`rivals_of`, where they are known."""
    shared = {one.key for one in (rivals_of(group) if rivals is None else rivals)}
    foreign = {(one.key, one.place.record_offset) for one in group.trespasses}
    found: dict[MoveKind, list[Move]] = {}
    for key, versions in group.versions.items():
        for move in _moves(key, versions) if key not in shared else ():
            is_mirrored = move.records > 0 and move.origin is OriginKind.MIRROR
            is_known = is_mirrored or (key, move.after.place.record_offset) in foreign
            if not is_known and not _was_read_before(versions, move):
                found.setdefault(_kind_of(move), []).append(move)
    return found


def with_steps_beside(group: GroupHistory, moves: Sequence[Move]) -> list[Move]:
    """``moves``, which are an Admin client's, and its other steps forward at the same times: what one request set
    belongs together, also where it is in proportion."""
    times = {move.after.place.timestamp_ms for move in moves} - {-1}
    known = {id(move.after) for move in moves}
    found = [*moves]
    for key, versions in group.versions.items() if times else ():
        for before, after in itertools.pairwise(versions):
            if after.place.timestamp_ms in times and id(after) not in known and _is_followed(before, after):
                move = Move(key, before, after, None)
                if move.records > 0 and move.origin is OriginKind.ADMIN:
                    found.append(move)
    return found


def _moves(key: OffsetKey, versions: Sequence[Version]) -> Iterator[Move]:
    for at, after in enumerate(versions[1:], 1):
        before = versions[at - 1]
        if not _is_followed(before, after) or is_left_over(versions, at - 1):
            continue
        step = after.first.committed_offset - before.last.committed_offset
        if step < 0:
            value = after.first.committed_offset
            earlier = next((one for one in reversed(versions[: at - 1]) if one.last.committed_offset == value), None)
            yield Move(key, before, after, earlier)
        elif _is_jump(versions, at):
            yield Move(key, before, after, None)


def _was_read_before(versions: Sequence[Version], move: Move) -> bool:
    """Whether a step forward leads no further than the group had read before it was set back: nothing is skipped."""
    if move.records < 0:
        return False
    at = bisect_left(versions, move.before.place.record_offset, key=lambda one: one.place.record_offset)
    while at and _is_followed(versions[at - 1], versions[at]) and not _is_jump(versions, at):
        at -= 1
        if versions[at].last.committed_offset >= move.after.first.committed_offset:
            return True
    return False


def _is_followed(before: Version, after: Version) -> bool:
    """Whether ``after`` replaced ``before``. The offsets of a topic that was made again begin again."""
    is_another = are_of_other_topics(before.last.topic_id, after.first.topic_id)
    return before.end is not None and before.end.kind is EndKind.NEWER_VALUE and not is_another


def is_left_over(versions: Sequence[Version], at: int) -> bool:
    """Whether ``versions[at]`` is a position in a topic that was deleted before: its members commit it once more, and
    begin anew in the topic that was made since."""
    before = versions[at - 1] if at else None
    if before is None or before.end is None or before.end.kind is not EndKind.TOPIC_DELETION or before.end.others:
        return False
    return versions[at].had_members and versions[at].first.committed_offset >= before.last.committed_offset


def _is_jump(versions: Sequence[Version], at: int) -> bool:
    """Whether the step forward to ``versions[at]`` is out of proportion to those before it, and to those after it: a
    consumer that catches up takes large steps one after the other. Of the last step that is known nobody can tell."""
    before, after = versions[at - 1], versions[at]
    if after.missing != before.missing:
        return False  # The cleaner has removed records between, perhaps commits of this key.
    if _waited(before, after):
        return False
    step = after.first.committed_offset - before.last.committed_offset
    usual = max(SMALL_STEP, BORING_STEPS * before.largest_step, _LIKE_STEPS * _next_step(versions, at))
    return before.commits >= FEW_COMMITS and step > usual


def _waited(before: Version, after: Version) -> bool:
    """Whether the member had nothing to read before, as it committed one value again and again: what comes then, it
    reads at once."""
    if before.member is None or after.member is None or before.generation != after.generation:
        return False
    return before.member.member_id == after.member.member_id and before.stood >= FEW_COMMITS


def _next_step(versions: Sequence[Version], at: int) -> int:
    """The largest step of ``versions[at]``; where it is a single commit of a member, that to the next commit."""
    after = versions[at]
    if after.commits == 1 and after.had_members and at + 1 < len(versions) and after.gone_ms is None:
        return versions[at + 1].first.committed_offset - after.last.committed_offset
    return after.largest_step


def has_reached(versions: Sequence[Version], record_offset: int, committed_offset: int) -> bool:
    """Whether the group has read up to ``committed_offset`` with the values committed from ``record_offset`` on; what
    it was set ahead of counts for nothing."""
    first = bisect_left(versions, record_offset, key=lambda one: one.place.record_offset)
    for at in range(first, len(versions)):
        if at > first and _is_jump(versions, at):
            return False
        if versions[at].last.committed_offset >= committed_offset:
            return not _is_set_twice(versions[at], committed_offset)
    return False


def _is_set_twice(version: Version, committed_offset: int) -> bool:
    """Whether two requests from outside look like a consumer that has read beyond ``committed_offset``: a reset back
    and another one to the end. Consumers have leader epochs, or come more often."""
    first, last = version.first.committed_offset, version.last.committed_offset
    is_outside = not version.had_members and version.last.producer_id is None
    is_set = version.last.leader_epoch is None and version.last.value_version >= WITH_EPOCHS
    is_far = last - first > SMALL_STEP and first < committed_offset < last
    return is_outside and is_set and version.commits == 2 and is_far


def read_to(versions: Sequence[Version], version: Version) -> Version:
    """``version``, or where an Admin client set it ahead and nobody went on from there, the one before that: up to its
    last value the group has read."""
    at = next(number for number, one in enumerate(versions) if one is version)
    while at and _is_set_ahead(versions, at):
        at -= 1
    return versions[at]


def _is_set_ahead(versions: Sequence[Version], at: int) -> bool:
    after = versions[at]
    is_of_admin = after.origin is not None and after.origin.kind is OriginKind.ADMIN
    return is_of_admin and after.commits == 1 and _is_followed(versions[at - 1], after) and _is_jump(versions, at)


def _is_undone(move: Move) -> bool:
    """Whether a step back from outside was taken back in one step, by somebody who has not read."""
    after = move.after
    return not after.had_members and after.last.leader_epoch is None and is_taken_back(move.before, after)


def _kind_of(move: Move) -> MoveKind:
    if move.records > 0:
        return MoveKind.SKIPPED if move.origin is OriginKind.ADMIN else MoveKind.JUMPED
    if move.after.first.committed_offset < 0:
        return MoveKind.NEGATIVE
    match move.origin:
        case OriginKind.ADMIN:
            return MoveKind.RESET
        case OriginKind.MIRROR | OriginKind.STANDALONE if _is_undone(move):
            return MoveKind.RESET
        case OriginKind.MIRROR:
            return MoveKind.MIRROR
    # A coordinator that has loaded an older state hands out older offsets, too: no client is to blame then.
    changed = move.after.generation != move.before.generation and move.coordinator_epochs is None
    return MoveKind.STALE if move.earlier is not None and changed else MoveKind.BACK


class Turn(NamedTuple):
    """A commit of one of two writers after one of the other."""

    committed: int
    place: Place
    version: Version


class Rivals(NamedTuple):
    """Two sequences of values that are committed for one offset key in turn; ``turns`` are commits at which one
    takes over from the other."""

    key: OffsetKey
    turns: tuple[Turn, ...]


def rivals_of(group: GroupHistory) -> list[Rivals]:
    """Offset keys that two writers share: each goes on where it was, and the other has been further or less far."""
    found = []
    for key, versions in group.versions.items():
        if 2 * len(versions) < TURNS:
            continue  # A version has two points at most.
        turns = tuple(_turns(versions))
        # Values that stand still are nobody's progress.
        go_on = (len({turn.committed for turn in half}) > 1 for half in (turns[::2], turns[1::2]))
        if len(turns) >= TURNS and all(go_on):
            found.append(Rivals(key, turns))
    return found


def _turns(versions: Sequence[Version]) -> Iterator[Turn]:
    points: list[tuple[int, Place, Version]] = []
    for version in versions:
        points.append((version.first.committed_offset, version.place, version))
        if version.commits > 1:
            points.append((version.last.committed_offset, version.last_place, version))
    found: list[tuple[int, Place, Version]] = []
    low = high = -1
    on_high = False
    for last, point in itertools.pairwise(points):
        before, value = last[0], point[0]
        if high < 0:
            if value < before:
                low, high, on_high = value, before, False
                found = [last, point]
            continue
        is_high = value >= high
        step = value - (high if is_high else low)
        if step < 0 or 2 * step >= high - low:
            # No writer was there: it is a step back like others, not a turn.
            if len(found) >= TURNS:
                break
            low, high, found = -1, -1, []
            if value < before:
                low, high, on_high = value, before, False
                found = [last, point]
            continue
        if is_high != on_high:
            found.append(point)
            on_high = is_high
        low, high = (low, value) if is_high else (value, high)
    yield from map(Turn._make, found)


# Members


def rounds_of(group: GroupHistory) -> list[Change]:
    """Rebalances: generations, epochs of KIP-848 groups, and the end of the last member."""
    return [one for one in group.changes if one.kind in (ChangeKind.GENERATION, ChangeKind.EPOCH, ChangeKind.EMPTY)]


def settled_of(group: GroupHistory) -> Change | None:
    """The newest rebalance with the assignments that it brought; ``None`` for a group without members, or one whose
    assignments are not in its records.

    The epoch of a KIP-848 group comes before the assignments: its place is that of the newest of them.
    """
    rounds = rounds_of(group)
    if not rounds or not rounds[-1].members or group.changes[-1].kind is ChangeKind.DELETED:
        return None
    last = rounds[-1]
    if last.kind is not ChangeKind.EPOCH:
        return last
    if group.assigned is None:
        return None
    return replace(last, members=group.members, place=max(last.place, group.assigned))


class Stand(NamedTuple):
    """An offset key whose value ``version`` was committed first at ``since``, and again and again up to the end."""

    key: OffsetKey
    version: Version
    since: Place

    @property
    def name(self) -> str:
        return self.key.topic_partition

    @property
    def lasted_ms(self) -> int:
        return elapsed(self.since.timestamp_ms, self.version.last_place.timestamp_ms)


def stands_of(group: GroupHistory, least_ms: int = HOUR_MS) -> list[Stand]:
    """Partitions with members that commit one value for ``least_ms`` and more, to the end; the oldest first.

    A quiet partition is committed like that, too.
    """
    last = settled_of(group)
    if last is None:
        return []
    held = group.standing
    newest_ms = max((one.last_place.timestamp_ms for one in held.values()), default=-1)
    owned = last.owned
    found = []
    for key, version in held.items():
        if version.still is None or version.stood < AGAIN or (key.topic, key.partition) not in owned:
            continue
        one = Stand(key, version, version.still)
        is_to_end = newest_ms - version.last_place.timestamp_ms <= AGAIN * one.lasted_ms / version.stood
        if is_to_end and one.lasted_ms >= least_ms:
            found.append(one)
    return sorted(found, key=lambda one: (one.since.timestamp_ms, one.key))


def _with_time(changes: Iterable[Change]) -> list[Change]:
    """Changes whose time the log tells."""
    return [one for one in changes if one.place.timestamp_ms >= 0]


class Storm(NamedTuple):
    """The hour with most rebalances. ``joins`` counts joins of each client; ``quiet`` are rebalances without a commit
    after them."""

    rounds: Sequence[Change]
    joins: Counter[str]
    quiet: int


def name_of(member: Member) -> str:
    """Instance id if it has one, client id and host."""
    known = f"{member.client_id} on {member.client_host}"
    return f"instance {member.instance_id} ({known})" if member.instance_id is not None else known


def busiest(changes: Sequence[Change], within_ms: int) -> Sequence[Change]:
    """The most of the changes within a time; of as many the first ones."""
    best: Sequence[Change] = ()
    first = 0
    for last, change in enumerate(changes):
        while change.place.timestamp_ms - changes[first].place.timestamp_ms > within_ms:
            first += 1
        if last - first + 1 > len(best):
            best = changes[first : last + 1]
    return best


def storm_of(group: GroupHistory) -> Storm | None:
    """The busiest hour of a group, if a deployment that restarts each member does not explain it."""
    best = busiest(_with_time(rounds_of(group)), HOUR_MS)
    if len(best) < max(STORM, _EACH_IN_DEPLOY * max((len(one.members) for one in best), default=0)):
        return None
    joins = Counter(name_of(member) for change in best for member in change.joined)
    commits = sorted(version.last_place.record_offset for _, version in group.all_versions())
    quiet = sum(
        not any(before.place.record_offset < commit < after.place.record_offset for commit in commits)
        for before, after in itertools.pairwise(best)
    )
    return Storm(best, joins, quiet)


class Flapping(NamedTuple):
    """A client that joins again and again: ``joins`` within an hour, or a day, the first ones."""

    name: str
    joins: Sequence[Change]


def flapping_of(group: GroupHistory, *, few: bool = False) -> list[Flapping]:
    """Clients that come and go, where as many of the same name at once do not explain it; with ``few`` also those that
    do so seldom, and alone."""
    joins: dict[str, list[Change]] = {}
    at_once: Counter[str] = Counter()
    for change in rounds_of(group):
        for name, count in Counter(map(name_of, change.members)).items():
            at_once[name] = max(at_once[name], count)
        # A group of which all members come and go lives so: a job that runs every few minutes.
        if len(change.members) > len(change.joined):
            for name in dict.fromkeys(map(name_of, change.joined)):
                joins.setdefault(name, []).append(change)
    found = []
    for name, changes in joins.items():
        close = _close(changes, max(FLAPS, 2 * at_once[name] + 1))
        others = max((len(joined) for other, joined in joins.items() if other != name), default=0)
        if not close and at_once[name] == 1 and others <= _ALONE * len(changes):
            close = _close(changes, _FLAPS_A_DAY, DAY_MS)
        if few and not close and at_once[name] == 1:
            close = _close(changes, _FEW_FLAPS)
            beside = (one for other, joined in joins.items() if other != name for one in joined)
            if close and any(close[0].place <= one.place <= close[-1].place for one in beside):
                close = ()
        if close:
            found.append(Flapping(name, close))
    return found


def _close(changes: Sequence[Change], count: int, within_ms: int = HOUR_MS) -> Sequence[Change]:
    """The first ``count`` of them within an hour, or ``within_ms``; nothing where there are none."""
    changes = _with_time(changes)
    for at, last in enumerate(changes[count - 1 :]):
        if last.place.timestamp_ms - changes[at].place.timestamp_ms <= within_ms:
            return changes[at : at + count]
    return ()


class Replaced(NamedTuple):
    """A group instance id whose member was replaced again and again; ``close`` are the ones within an hour.

    ``moves_on``: each replacement came from another host, and none came back, as pods do that are made anew.
    """

    instance_id: str
    changes: Sequence[Change]
    close: Sequence[Change]
    hosts: frozenset[str]
    moves_on: bool


def replaced_of(group: GroupHistory) -> list[Replaced]:
    """Group instance ids that several processes use, or one that restarts and restarts."""
    replaced: dict[str, list[Change]] = {}
    for change in rounds_of(group):
        instances = {member.member_id: member.instance_id for member in change.joined}
        for _, new in change.replaced:
            replaced.setdefault(instances[new] or "", []).append(change)
    found = []
    for instance, changes in replaced.items():
        hosts = frozenset(
            member.client_host for one in changes for member in one.joined if member.instance_id == instance
        )
        moves_on = 1 < len(hosts) == len(changes)
        close = _close(changes, FLAPS if moves_on else REPLACEMENTS)
        if close:
            found.append(Replaced(instance, changes, close, hosts, moves_on))
    return found


def disagree(subscriptions: Collection[frozenset[str]]) -> bool:
    """Whether two of the subscriptions of a group's members have no topic in common: two applications."""
    return any(one.isdisjoint(other) for one, other in itertools.combinations(set(subscriptions), 2))


# Groups


class Seen(NamedTuple):
    """A group as a family sees it: when its life began and ended (removals are none of it), its bytes, whether its
    members came only once, and whether they are there."""

    group_id: str
    first_ms: int
    last_ms: int
    size_bytes: int
    came_once: bool
    has_members: bool

    @property
    def is_once(self) -> bool:
        """Whether it lived once, and not for long: a group with a fixed id stays."""
        return self.came_once and not self.has_members and are_close(self.first_ms, self.last_ms, _ONE_LIFE_MS)


class Family(NamedTuple):
    """Groups whose ids differ in a number or a random part, in the order of their birth."""

    pattern: str
    groups: Sequence[Seen]
    born_per_hour: float
    size_bytes: int


_VARIABLE = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?<![0-9A-Za-z])[0-9a-fA-F]{16,}(?![0-9A-Za-z])|\d{3,}"
)


def pattern_of(group_id: str) -> str:
    """The group id with a star for a number or a random part."""
    return _VARIABLE.sub("*", group_id)


def families(groups: Iterable[Seen]) -> list[Family]:
    """Families of at least :data:`FAMILY` groups that lived once."""
    found: dict[str, list[Seen]] = {}
    for group in groups:
        pattern = pattern_of(group.group_id)
        if pattern != group.group_id:
            found.setdefault(pattern, []).append(group)
    made = []
    for pattern, members in sorted(found.items()):
        if sum(group.is_once for group in members) < FAMILY:
            continue
        born = sorted(members, key=lambda group: (group.first_ms, group.group_id))
        times = [group.first_ms for group in born if group.first_ms >= 0]
        hours = max(1.0, (times[-1] - times[0]) / HOUR_MS)
        made.append(Family(pattern, born, len(times) / hours, sum(group.size_bytes for group in members)))
    return made


# Committed offsets that are gone


def is_lost_while_alive(removal: Removal, profile: Profile) -> bool:
    """Whether an offset expired that its group still needed: by commit age while members read the topic, or during a
    rebalance. A tombstone without a time does not tell it from the deletion of the topic."""
    end = removal.end
    if end is None or end.kind is not EndKind.EXPIRY or (end.others and removal.place.timestamp_ms < 0):
        return False
    return end.bug is not None or (
        removal.had_members and (removal.subscribed or profile.expiry.clock is not Clock.GROUP)
    )
