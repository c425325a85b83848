"""Offsets that somebody outside sets over those of the group itself: syncs between clusters, jobs that reset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from coordinator_core.durations import HOUR_MS, elapsed, span
from coordinator_core.history.model import GroupHistory, Version
from coordinator_core.history.signs import Rivals, name_of
from coordinator_core.history.takeovers import Takeover, Takeovers, is_put
from coordinator_core.investigate.model import SHOWN, Event, Explanation, step
from coordinator_core.investigate.shifts import COPY_NOW
from coordinator_core.investigate.words import are, count, described, from_file, moment, when
from coordinator_core.rules.model import Severity

ONE_WAY = (
    "Let the sync run in one direction: the cluster where a group runs is no target for it. There set "
    "sync.group.offsets.enabled=false, or leave the group out (groups.exclude of MirrorCheckpointConnector)."
)


def explain_takeovers(group: GroupHistory, found: Takeovers) -> Iterator[Explanation]:
    """Explanations of values that are set from outside again and again, and of resets that such a sync undid."""
    if found.again:
        yield _synced_over(group, found.again, found.moments)
    if found.undone:
        yield _reset_undone(group, found.undone)


def _who(version: Version) -> str:
    return "the group itself" if version.member is None else name_of(version.member)


def _events(found: Sequence[Takeover]) -> list[Event]:
    return [
        event
        for one in found[: SHOWN // 2]
        for event in (
            Event(one.own.last_place, f"{one.name}: {one.own.last.committed_offset}, by {_who(one.own)}"),
            Event(one.put.place, f"{one.name}: {one.put.first.committed_offset}, set from outside"),
        )
    ]


def _synced_over(group: GroupHistory, found: Sequence[Takeover], moments: Sequence[int]) -> Explanation:
    first = found[0]
    keys = {one.key for one in found}
    steps = [elapsed(*pair) for pair in pairwise(moments)]
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
        verdict += f" {are(back, 'record')} read again."
    if ahead:
        verdict += f" {are(ahead, 'record')} skipped."
    verdict += (
        f" About every {span(median(steps))}: a job that resets offsets."
        if is_job
        else " This is what a sync of group offsets from another cluster writes (MirrorMaker, "
        "sync.group.offsets.enabled)."
    )
    newest = {one.key: one.own.last.committed_offset for one in found}
    standing = group.standing
    restore = {
        key: committed
        for key, committed in newest.items()
        if key in standing and standing[key].last.committed_offset < committed
    }
    sequence = [*map(step, group.changes[-4:]), *_events(found)]
    return Explanation(
        "offsets-set-again-and-again" if is_job else "synced-over-own-commits",
        Severity.WARNING,
        verdict,
        moments[0],
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
            *when(restore, f"Stop the consumers and put the group's own offsets back: {from_file(group.group_id)}"),
            f"See what stands now: {described(group, '--offsets')}",
        ],
        capture=[COPY_NOW],
        restore=restore,
        until_ms=moments[-1],
    )


def _reset_undone(group: GroupHistory, found: Sequence[Takeover]) -> Explanation:
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
    return all(is_put(group, turn.version) for rivals in found for turn in rivals.turns)


TWO_SYNCS = (
    " Both are set from outside, without members and leader epochs: syncs of group offsets from two clusters, or there "
    "and back between two (MirrorMaker, sync.group.offsets.enabled)."
)
