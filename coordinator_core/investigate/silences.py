"""Times in which nothing at all was written to an offsets partition whose groups commit all the time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from coordinator_core.durations import HOUR_MS, MINUTE_MS, elapsed, span
from coordinator_core.history.model import ChangeKind, GroupHistory, LeaderChange, PartitionHistory, Place, Version
from coordinator_core.investigate.model import SHOWN, USUAL, Case, Event, Explanation, is_overdue
from coordinator_core.investigate.words import count, moment, some_of, when
from coordinator_core.rules.model import Severity

_AT_LEAST_TWO = 2


class _Rhythm(NamedTuple):
    group: GroupHistory
    last: Version
    usual_ms: float


def explain_silences(histories: Sequence[PartitionHistory], of: Collection[int], case: Case) -> Iterator[Explanation]:
    """Offsets partitions among ``of`` that end long before the newest record of all, or before the capture; and pauses
    up to a new coordinator.

    Of one group alone nothing tells whether it had something to commit; of several at once something does. Where most
    partitions end at different times, they were copied at different times.
    """
    newest_ms = max((history.last_ms for history in histories), default=-1)
    alive = {
        history.offsets_partition: found
        for history in histories
        if (found := [one for one in _rhythms(history, history.last_ms, 0) if not _has_left(one.group)])
    }
    early = {one.offsets_partition for one in histories if newest_ms - one.last_ms >= HOUR_MS} & alive.keys()
    is_copied_at_once = len(early) <= 1 or 2 * len(early) <= len(alive)
    for history in histories:
        number = history.offsets_partition
        if number not in of:
            continue
        until_ms = newest_ms if number in early else case.captured_ms
        quiet_ms = elapsed(history.last_ms, until_ms)
        stopped = [one for one in alive.get(number, ()) if is_overdue(one.usual_ms, quiet_ms)]
        if stopped and (is_copied_at_once or number not in early):
            yield _silent(history, stopped, until_ms, is_capture=number not in early)
        yield from _pauses(history)


def _pauses(history: PartitionHistory) -> Iterator[Explanation]:
    for leader in history.leaders:
        began_ms = leader.place.timestamp_ms - leader.pause_ms
        groups = _rhythms(history, began_ms, leader.pause_ms) if leader.pause_ms >= MINUTE_MS else []
        alive = [one for one in groups if not _has_left(one.group, leader.place)]
        if paused := [one for one in alive if leader.pause_ms >= USUAL * one.usual_ms]:
            yield _paused(history, leader, paused)


def _rhythms(history: PartitionHistory, at_ms: int, pause_ms: int) -> list[_Rhythm]:
    """Groups that committed regularly up to about ``at_ms``, at which a pause begins; by group id."""
    found = []
    for _, group in sorted(history.groups.items()):
        for versions in group.versions.values():
            before = [one for one in versions if one.place.timestamp_ms <= at_ms]
            if not before or before[-1].commits < USUAL:
                continue
            last = before[-1]
            # Commits behind the pause may go on in the same version.
            lasted_ms = elapsed(last.place.timestamp_ms, last.last_place.timestamp_ms)
            lasted_ms -= pause_ms if last.last_place.timestamp_ms > at_ms else 0
            usual_ms = lasted_ms / (last.commits - 1)
            if usual_ms >= 0 and min(at_ms, last.last_place.timestamp_ms) >= at_ms - USUAL * usual_ms:
                found.append(_Rhythm(group, last, usual_ms))
                break
    return found


def _has_left(group: GroupHistory, before: Place | None = None) -> bool:
    """Whether the group had no members any more at the end of the log, or ``before`` a record."""
    changes = [one for one in group.changes if before is None or one.place < before]
    return bool(changes) and changes[-1].kind in (ChangeKind.EMPTY, ChangeKind.DELETED)


def _names(groups: Sequence[_Rhythm]) -> str:
    return some_of([one.group.group_id for one in groups], SHOWN)


_NOW = (
    "kafka-topics.sh --bootstrap-server HOST:9092 --describe --topic __consumer_offsets --unavailable-partitions (and "
    "--under-min-isr-partitions): does that partition have a leader, and enough replicas in sync?"
)


def _silent(history: PartitionHistory, stopped: Sequence[_Rhythm], until_ms: int, *, is_capture: bool) -> Explanation:
    newest = max(stopped, key=lambda one: one.last.last_place)
    place = Place(history.offsets_partition, history.end_offset - 1, history.last_ms, "", 0, -1)
    # Logs may have been copied before the rest was captured.
    several = len(stopped) >= _AT_LEAST_TWO and not is_capture
    verdict = (
        f"Nothing was written to offsets partition {history.offsets_partition} after {moment(history.last_ms)} (record "
        f"{place.record_offset}), {span(until_ms - history.last_ms)} before "
        + ("it was captured" if is_capture else "the newest record of other offsets partitions")
        + f"; until then {_names(stopped)} committed about every {span(newest.usual_ms)}"
        + (", and all stopped at once: it is not the groups, no commit of theirs gets in." if several else ".")
    )
    return Explanation(
        "offsets-partition-silent",
        Severity.WARNING if several else Severity.INFO,
        verdict,
        history.last_ms,
        newest.group.group_id if len(stopped) == 1 else None,
        history.offsets_partition,
        evidence=[
            Event(place, "last record of the partition"),
            *(Event(one.last.last_place, f"newest commit of {one.group.group_id}") for one in stopped[:SHOWN]),
        ],
        not_this=["It is no rebalance and nobody left: that would be in the log.", "No committed offset was lost."],
        now=[
            _NOW,
            "Look at its coordinator, the leader: a load that does not end (COORDINATOR_LOAD_IN_PROGRESS), a full or "
            "read-only disk, NotEnoughReplicasException in its log.",
            *when(
                not several,
                "One group may have had nothing to commit: compare with the ends of its topics (capture)."
                if len(stopped) == 1
                else "Compare with the time at which the files of the log were copied.",
            ),
        ],
        capture=[
            "Capture once more, all partitions at one time: one that still ends at that record takes no commits, and "
            "one that does not was only copied earlier.",
        ],
    )


def _paused(history: PartitionHistory, leader: LeaderChange, paused: Sequence[_Rhythm]) -> Explanation:
    place = leader.place
    several = len(paused) >= _AT_LEAST_TWO
    return Explanation(
        "offsets-partition-paused",
        Severity.WARNING if several and leader.pause_ms >= HOUR_MS else Severity.INFO,
        f"Offsets partition {history.offsets_partition} has no record for {span(leader.pause_ms)}, from "
        f"{moment(place.timestamp_ms - leader.pause_ms)} until another coordinator took over (leader epoch "
        f"{leader.epoch_before} to {place.leader_epoch}, record {place.record_offset}); "
        f"no commit of that time is there of {count(len(paused), 'group')} that committed about every "
        f"{span(min(one.usual_ms for one in paused))} before: {_names(paused)}. Nobody could commit then, or the "
        "commits were lost with a leader that nobody had copied (an unclean election).",
        place.timestamp_ms - leader.pause_ms,
        group_id=None if several else paused[0].group.group_id,
        offsets_partition=history.offsets_partition,
        evidence=[Event(place, f"first batch of leader epoch {place.leader_epoch}")],
        not_this=["It was not the groups: several stopped and went on at the same time."] if several else [],
        now=[
            "Look at the controller's log for the leader of that partition in that time: offline, or a broker that was "
            "down with the only replica, or an unclean election. Replication factor 3 lets another one take over in "
            "seconds; keep unclean.leader.election.enable=false.",
            "What was processed then was committed late, or is processed twice by members that restarted in it.",
        ],
    )
