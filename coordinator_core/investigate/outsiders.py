"""Clients that commit for groups without members, and have stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from coordinator_core.durations import elapsed, span
from coordinator_core.history.model import GroupHistory, Origin, OriginKind, PartitionHistory, Version
from coordinator_core.history.signs import rounds_of
from coordinator_core.investigate.cutoffs import cut_off_of
from coordinator_core.investigate.model import USUAL, Case, Event, Explanation, is_overdue
from coordinator_core.investigate.uses import OUTSIDE, is_left_to_outsiders
from coordinator_core.investigate.words import described, moment
from coordinator_core.log.types import PartitionLog
from coordinator_core.rules.model import Severity

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
