"""Clients whose commits end when the coordinator moves: they did not find the new one."""

from __future__ import annotations

from collections.abc import Iterator

from coordinator_core.durations import elapsed, span
from coordinator_core.history.model import GroupHistory, LeaderChange, OriginKind, PartitionHistory, Version
from coordinator_core.history.signs import rounds_of
from coordinator_core.investigate.model import USUAL, Case, Event, Explanation, is_overdue, step
from coordinator_core.investigate.words import described, moment, when
from coordinator_core.rules.model import Severity

_STEPS = 3
"""Times the usual step between the last commit and the end of the old coordinator."""


def explain_cut_off(history: PartitionHistory, case: Case) -> Iterator[Explanation]:
    """Groups with regular commits up to a move of the coordinator, and none after it, while the partition goes on."""
    for _, group in sorted(history.groups.items()):
        if (found := cut_off_of(history, group)) is not None:
            yield _cut_off(history, group, *found, case)


def cut_off_of(history: PartitionHistory, group: GroupHistory) -> tuple[Version, float, LeaderChange] | None:
    """The newest value of such a group, its usual step (ms), and the move."""
    newest = max(group.standing.values(), key=lambda one: one.last_place.record_offset, default=None)
    if newest is None or newest.commits < USUAL:
        return None
    at = newest.last_place
    moved = next((one for one in history.leaders if one.place.record_offset > at.record_offset), None)
    changed = bool(group.changes) and group.changes[-1].place.record_offset > at.record_offset
    if moved is None or changed:
        return None
    usual, ended_ms = newest.usual_ms, moved.place.timestamp_ms - moved.pause_ms
    is_at_move = ended_ms - at.timestamp_ms <= _STEPS * usual
    quiet_ms = elapsed(moved.place.timestamp_ms, history.last_ms)
    return (newest, usual, moved) if is_at_move and is_overdue(usual, quiet_ms) else None


def _cut_off(
    history: PartitionHistory, group: GroupHistory, newest: Version, usual: float, moved: LeaderChange, case: Case
) -> Explanation:
    at, move = newest.last_place, moved.place
    since_ms = elapsed(move.timestamp_ms, history.last_ms)
    rounds = rounds_of(group)
    origin = newest.origin
    is_outside = not newest.had_members and origin is not None
    who = f", by {origin.kind.value}" if is_outside and origin is not None else ""
    return Explanation(
        "commits-end-with-coordinator",
        Severity.WARNING,
        f"{group.group_id} was committed every {span(usual)}{who} until {moment(at.timestamp_ms)} (record "
        f"{at.record_offset}), and not once since the coordinator of offsets partition {history.offsets_partition} "
        f"moved (leader epoch {moved.epoch_before} to {move.leader_epoch}, record {move.record_offset}, "
        f"{moment(move.timestamp_ms)}), while the partition goes on for {span(since_ms)}: "
        "so does a client that does not find the new coordinator. It may read on all the time; after a restart it "
        "reads from that last commit.",
        at.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        events=[step(one) for one in rounds[-2:]],
        evidence=[Event(at, "newest commit"), Event(move, f"first batch of leader epoch {move.leader_epoch}")],
        not_this=[
            "The coordinator takes commits: others of this offsets partition go on.",
            "No rebalance ended since, and no offset was lost.",
        ],
        now=[
            "Look at the client's log since then for commits that fail (NOT_COORDINATOR, 'Waiting for coordinator', "
            "'coordinator is not available', timeouts), and restart it: that finds the coordinator.",
            *when(
                origin is None or origin.kind is not OriginKind.MIRROR,
                "Upgrade it: clients with assign() asked never again (Java from 2.7.1 on, before 3.2: KAFKA-13563; "
                "librdkafka issue 2791)."
                if is_outside
                else "Upgrade it: librdkafka had this in 1.1 (issue 2630); other clients keep the coordinator, too.",
            ),
            "If it has done its work until now, what it has read since is done twice: commit its position by hand "
            f"before it starts again: {described(group, '--offsets')}",
        ],
        capture=[
            f"The {case.told_stay(group, group.standing)}."
            if is_outside
            else "Copy the client's log before it is restarted."
        ],
    )
