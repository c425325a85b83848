"""Offsets that somebody outside sets over those of the group itself: syncs between clusters, jobs that reset.

A coordinator takes such requests while the group has no members only, so they come between the times in which it lives.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from coordinator_core.durations import HOUR_MS
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import EndKind, GroupHistory, OriginKind, Version
from coordinator_core.history.origins import REGULAR, WITH_EPOCHS
from coordinator_core.history.signs import Rivals, name_of
from coordinator_core.investigate.model import Event, Explanation
from coordinator_core.investigate.steps import step
from coordinator_core.investigate.words import consumer_groups, count, from_file, moment, span
from coordinator_core.rules.model import Severity

_SHOWN = 8
_AGAIN = 3
"""Moments from which on it is no person's command."""
_CLIENTS = (OriginKind.CONNECT, OriginKind.FLINK, OriginKind.SPARK, OriginKind.STREAMS)
"""Clients that commit for themselves while their group has no members."""
ONE_WAY = (
    "Let the sync run in one direction: the cluster where a group runs is no target for it. There set "
    "sync.group.offsets.enabled=false, or leave the group out (groups.exclude of MirrorCheckpointConnector)."
)


class _Takeover(NamedTuple):
    """``own`` is a value of the group itself, ``put`` the one that was set over it from outside."""

    key: OffsetKey
    own: Version
    put: Version

    @property
    def records(self) -> int:
        return self.put.first.committed_offset - self.own.last.committed_offset

    @property
    def name(self) -> str:
        return f"{self.key.topic}-{self.key.partition}"


@dataclass(frozen=True, slots=True)
class Syncs:
    """Values set from outside over those of a group, and what stands for it; ``puts`` are the values."""

    explanations: Sequence[Explanation] = ()
    puts: Collection[int] = ()
    """Identities of versions."""
    keys: Collection[OffsetKey] = ()


def explain_syncs(group: GroupHistory) -> Syncs:
    """Explanations of values that are set from outside again and again, and of resets that such a sync undid."""
    found, puts = _takeovers(group)
    moments = sorted({one.put.place.timestamp_ms for one in found})
    below = [one for one in found if one.records < 0 and one.put.commits >= REGULAR]
    if len(moments) >= _AGAIN or below:
        return Syncs([_synced_over(group, found, moments)], puts, {one.key for one in found})
    if undone := list(_undone(group, puts)):
        return Syncs([_reset_undone(group, undone)], {id(one.put) for one in undone}, {one.key for one in undone})
    return Syncs()


def _takeovers(group: GroupHistory) -> tuple[list[_Takeover], set[int]]:
    found, puts = [], set()
    for key, versions in group.versions.items():
        puts |= {id(one) for one in versions if _is_put(group, one)}
        for own, put in pairwise(versions):
            goes_on = own.end is not None and own.end.kind is EndKind.NEWER_VALUE
            moved = put.first.committed_offset != own.last.committed_offset
            if goes_on and moved and id(put) in puts and id(own) not in puts:
                found.append(_Takeover(key, own, put))
    return sorted(found, key=lambda one: one.put.place.record_offset), puts


def _is_put(group: GroupHistory, version: Version) -> bool:
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


def _undone(group: GroupHistory, puts: Collection[int]) -> Iterator[_Takeover]:
    """Values that were set over those of a regular sync, and left by its next one: in one step it is where it was."""
    for key, versions in group.versions.items():
        for before, put in pairwise(versions):
            back = before.last.committed_offset - put.first.committed_offset
            if before.commits >= REGULAR and {id(before), id(put)} <= set(puts) and put.largest_step >= back > 0:
                yield _Takeover(key, before, put)


def _who(version: Version) -> str:
    return "the group itself" if version.member is None else name_of(version.member)


def _events(found: Sequence[_Takeover]) -> list[Event]:
    return [
        event
        for one in found[: _SHOWN // 2]
        for event in (
            Event(one.own.last_place, f"{one.name}: {one.own.last.committed_offset}, by {_who(one.own)}"),
            Event(one.put.place, f"{one.name}: {one.put.first.committed_offset}, set from outside"),
        )
    ]


def _synced_over(group: GroupHistory, found: Sequence[_Takeover], moments: Sequence[int]) -> Explanation:
    first = found[0]
    keys = {one.key for one in found}
    steps = [after - before for before, after in pairwise(moments)]
    is_job = len(steps) > 1 and min(steps) >= HOUR_MS and all(one.put.commits == 1 for one in found)
    back = -sum(one.records for one in found if one.records < 0)
    ahead = sum(one.records for one in found if one.records > 0)
    verdict = (
        f"Somebody outside sets offsets of {group.group_id} over those that the group itself commits, "
        f"{count(len(moments), 'time')} from {moment(moments[0])} on, whenever it has no members: first {first.name} "
        f"from {first.own.last.committed_offset} (record {first.own.last.record_offset}, by {_who(first.own)}) to "
        f"{first.put.first.committed_offset} (record {first.put.first.record_offset})."
    )
    if back:
        verdict += f" {back:,} records are read again."
    if ahead:
        verdict += f" {ahead:,} records are skipped."
    verdict += (
        f" About every {span(median(steps))}: a job that resets offsets."
        if is_job
        else " This is what a sync of group offsets from another cluster writes (MirrorMaker, "
        "sync.group.offsets.enabled)."
    )
    newest = {one.key: one.own.last.committed_offset for one in found}
    restore = {
        key: committed
        for key, committed in newest.items()
        if (last := group.versions[key][-1]).end is None and last.last.committed_offset < committed
    }
    put_back = [f"Stop the consumers and put the group's own offsets back: {from_file(group.group_id)}"]
    sequence = [*map(step, group.changes[-4:]), *_events(found)]
    return Explanation(
        "offsets-set-again-and-again" if is_job else "synced-over-own-commits",
        Severity.WARNING,
        verdict,
        moments[0],
        group.group_id,
        group.offsets_partition,
        events=sorted(sequence, key=lambda event: event.place.record_offset),
        evidence=_events(found),
        not_this=[
            f"It is no single reset: {count(len(found), 'value')} of {count(len(keys), 'partition')} were set.",
            "No consumer committed them: the group had no members, and the values have no leader epochs.",
        ],
        now=[
            "Find the job (cron, a pipeline, a start script) that runs kafka-consumer-groups.sh --reset-offsets or "
            "alterConsumerGroupOffsets for this group."
            if is_job
            else ONE_WAY,
            *(put_back if restore else []),
            f"See what stands now: {consumer_groups(group.group_id, '--describe', '--offsets')}",
        ],
        capture=["Copy the offsets topic now: the cleaner removes all but the newest commit of each partition."],
        restore=restore,
    )


def _reset_undone(group: GroupHistory, found: Sequence[_Takeover]) -> Explanation:
    first = found[0]
    put = first.put
    return Explanation(
        "reset-undone-by-sync",
        Severity.WARNING,
        f"A reset of {group.group_id} did not last: {first.name} was set from {first.own.last.committed_offset} to "
        f"{put.first.committed_offset} at {moment(put.place.timestamp_ms)}, and is at {put.last.committed_offset} "
        f"again, by a step of {put.largest_step:,}: what sets these offsets all the time set them once more, as "
        f"MirrorMaker does (sync.group.offsets.enabled). {count(len({one.key for one in found}), 'partition')}.",
        put.place.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        events=[
            Event(first.own.last_place, f"{first.name}: {first.own.last.committed_offset}, before"),
            Event(put.place, f"{first.name}: {put.first.committed_offset}, the reset"),
        ],
        evidence=[
            Event(put.place, f"{first.name}: {put.first.committed_offset}, the reset"),
            Event(put.last_place, f"{first.name}: {put.last.committed_offset}, set again"),
        ],
        not_this=["The reset did not fail: its values are in the log.", "No consumer read on: the group is empty."],
        now=[
            f"Leave the group out of the sync (groups.exclude), then reset again: {from_file(group.group_id)}",
            ONE_WAY,
        ],
        restore={one.key: one.put.first.committed_offset for one in found},
    )


def of_two_syncs(found: Sequence[Rivals], group: GroupHistory) -> bool:
    """Whether both sequences that take turns are set from outside."""
    return all(_is_put(group, turn.version) for rivals in found for turn in rivals.turns)


TWO_SYNCS = (
    " Both are set from outside, without members and leader epochs: syncs of group offsets from two clusters, or there "
    "and back between two (MirrorMaker, sync.group.offsets.enabled)."
)
