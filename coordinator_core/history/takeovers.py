"""Values that somebody outside sets over those of a group: syncs between clusters, jobs that reset.

A coordinator takes such requests while the group has no members only, so they come between the times in which it lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import EndKind, GroupHistory, OriginKind, Version
from coordinator_core.history.origins import REGULAR, WITH_EPOCHS

_AGAIN = 3
"""Moments from which on it is no person's command."""
_CLIENTS = (OriginKind.CONNECT, OriginKind.FLINK, OriginKind.SPARK, OriginKind.STREAMS)
"""Clients that commit for themselves while their group has no members."""


class Takeover(NamedTuple):
    """``own`` is a value of the group itself, ``put`` the one that was set over it from outside."""

    key: OffsetKey
    own: Version
    put: Version

    @property
    def records(self) -> int:
        return self.put.first.committed_offset - self.own.last.committed_offset

    @property
    def name(self) -> str:
        return self.key.topic_partition


@dataclass(frozen=True, slots=True)
class Takeovers:
    """``again`` are values that were set over the group's own, at several ``moments`` (epoch ms) or by somebody who
    goes on; ``undone`` are resets that a regular sync has left. ``puts`` are the values that were set."""

    again: Sequence[Takeover] = ()
    undone: Sequence[Takeover] = ()
    moments: Sequence[int] = ()
    puts: Collection[int] = ()
    """Identities of versions."""

    @property
    def keys(self) -> set[OffsetKey]:
        return {one.key for one in (*self.again, *self.undone)}


def takeovers_of(group: GroupHistory) -> Takeovers:
    """Values that are set from outside again and again, and resets that such a sync undid; one of both."""
    found, puts = _takeovers(group)
    moments = _moments(found)
    goes_on = (one for one in found if one.records < 0 and one.put.commits >= REGULAR)
    below = [one for one in goes_on if not is_taken_back(one.own, one.put)]
    if len(moments) >= _AGAIN or below:
        return Takeovers(found, (), moments, puts)
    undone = list(_undone(group, puts))
    return Takeovers((), undone, (), {id(one.put) for one in undone})


def _moments(found: Sequence[Takeover]) -> list[int]:
    known = {one.put.place.timestamp_ms for one in found} - {-1}
    # Of unknown times there are as many as values of one partition.
    unknown = Counter(one.key for one in found if one.put.place.timestamp_ms < 0)
    return [-1] * max(unknown.values(), default=0) + sorted(known)


def _takeovers(group: GroupHistory) -> tuple[list[Takeover], set[int]]:
    found, puts = [], set()
    for key, versions in group.versions.items():
        of_key = {id(one) for one in versions if is_put(group, one)}
        if not of_key:
            continue
        puts |= of_key
        for own, put in pairwise(versions):
            goes_on = own.end is not None and own.end.kind is EndKind.NEWER_VALUE
            moved = put.first.committed_offset != own.last.committed_offset
            if goes_on and moved and id(put) in puts and id(own) not in puts:
                found.append(Takeover(key, own, put))
    return sorted(found, key=lambda one: one.put.place.record_offset), puts


def is_put(group: GroupHistory, version: Version) -> bool:
    """Whether an Admin client set a value: without members, generation and leader epoch, outside transactions."""
    last = version.last
    is_cleaned = bool(group.changes) and version.last_place.record_offset < group.cleaned_to
    own = version.origin is not None and version.origin.kind in _CLIENTS
    return not (
        version.had_members
        or is_cleaned
        or own
        or last.leader_epoch is not None
        or last.producer_id is not None
        or last.value_version < WITH_EPOCHS
    )


def is_taken_back(own: Version, put: Version) -> bool:
    """Whether who set an offset back to ``put`` set it to what it had been in one step: a reset that was undone."""
    value = own.last.committed_offset
    in_one_step = put.largest_step >= value - put.first.committed_offset
    return in_one_step and value in (put.second, put.last.committed_offset)


def _undone(group: GroupHistory, puts: Collection[int]) -> Iterator[Takeover]:
    """Values that were set over those of a regular sync, and left by its next one: in one step it is where it was."""
    for key, versions in group.versions.items():
        for before, put in pairwise(versions):
            back = before.last.committed_offset - put.first.committed_offset
            is_regular = before.commits >= REGULAR and before.largest_step < back
            if is_regular and {id(before), id(put)} <= set(puts) and put.largest_step >= back > 0:
                yield Takeover(key, before, put)
