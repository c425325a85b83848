"""Commits that end while the offsets partition goes on: from outside, or of any client as the coordinator moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coordinator_core.durations import elapsed, span
from coordinator_core.history.model import GroupHistory, LeaderChange, Origin, OriginKind, PartitionHistory, Version
from coordinator_core.history.signs import rounds_of
from coordinator_core.investigate.model import USUAL, Case, Event, Explanation, is_overdue, step
from coordinator_core.investigate.uses import OUTSIDE, is_left_to_outsiders
from coordinator_core.investigate.words import described, moment, when
from coordinator_core.log.types import PartitionLog
from coordinator_core.rules.model import Severity

_STEPS = 3
"""Times the usual step between the last commit and the end of the old coordinator."""
_ENDED = frozenset({"commits-end-with-coordinator", "commits-from-outside-stopped"})


def explain_outsiders(history: PartitionHistory, case: Case) -> Iterator[Explanation]:
    """Groups without members whose regular commits end long before the offsets partition does."""
    for _, group in sorted(history.groups.items()):
        rounds = rounds_of(group)
        if not is_left_to_outsiders(group, rounds):
            continue
        newest = max(group.standing.values(), key=lambda one: one.last_place.record_offset)
        at = newest.last_place
        is_earlier = bool(rounds) and at.record_offset < rounds[-1].place.record_offset
        usual, quiet = newest.usual_ms, elapsed(at.timestamp_ms, history.last_ms)
        is_short = newest.commits < USUAL or not is_overdue(usual, quiet)
        if is_earlier or is_short or cut_off_of(history, group) is not None:
            continue
        if newest.origin is not None and newest.origin.kind not in (OriginKind.ADMIN, OriginKind.MEMBER):
            yield _stopped(group, newest, newest.origin, usual, quiet, case)


def without_uncertain(
    found: Sequence[Explanation], histories: Iterable[PartitionHistory], logs: Iterable[PartitionLog]
) -> list[Explanation]:
    """The explanations without those that say of a group that it has no members and is committed from outside, where
    others say that it was, until some time, or the record of its members may have gone with the start of the log."""
    left_out = {(one.offsets_partition, one.group_id) for one in found if one.code in _ENDED}
    for history, log in zip(histories, logs, strict=True):
        if log.start_offset:
            left_out |= {(log.offsets_partition, one.group_id) for one in history.groups.values() if not one.changes}
    return [one for one in found if one.code != OUTSIDE or (one.offsets_partition, one.group_id) not in left_out]


def _stopped(
    group: GroupHistory, newest: Version, origin: Origin, usual_ms: float, quiet_ms: int, case: Case
) -> Explanation:
    place, held = newest.last_place, group.standing
    is_mirror = origin.kind is OriginKind.MIRROR
    return Explanation(
        "commits-from-outside-stopped",
        Severity.INFO,
        f"{group.group_id} has no members; commits from outside, by {origin.kind.value} ({origin.certainty.value}: "
        f"{origin.why}), came every {span(usual_ms)} until {moment(place.timestamp_ms)} (record "
        f"{place.record_offset}), and none in the {span(quiet_ms)} since"
        + (
            ": the group stands still in the other cluster, or its offsets are translated no more. A failover would "
            "begin there."
            if is_mirror
            else ": that client was stopped, or hangs."
        )
        + f" Its {case.told_stay(group, held)}.",
        place.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        evidence=[Event(place, "newest commit")],
        not_this=["No member left: the group had none then.", "No committed offset was lost."],
        now=[
            f"Compare with the group in the other cluster: {described(group)}. If it goes "
            "on there, look at MirrorCheckpointConnector: a task that was restarted translates offsets only that are "
            "newer than its restart (before 3.7.1 and 3.8.0: KAFKA-15905); a group that is behind by more than that is "
            "synced again once it has caught up."
            if is_mirror
            else "Look whether that job runs: as it joins no group, nothing but its commits shows it here.",
            "Without --group: did commits of other groups from there stop at that time, too?",
        ],
    )


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
