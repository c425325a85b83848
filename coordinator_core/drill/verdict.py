"""Totals of a prediction, and whether it meets the limits that were asked for."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator_core.drill.model import (
    Band,
    GroupPrediction,
    Objectives,
    PartitionPrediction,
    Prediction,
    Totals,
    Verdict,
)
from coordinator_core.durations import is_or_are, numbered

_NAMED = 20
"""Partitions that are named."""


def totals(partitions: Sequence[PartitionPrediction], groups: Sequence[GroupPrediction]) -> Totals:
    """Over all steps; a partition or group counts once."""

    def distinct(rows: Sequence[GroupPrediction]) -> int:
        return len({row.group_id for row in rows})

    unled = [row for row in partitions if row.leader_after is None]
    moved = [row for row in groups if row.coordinator_before != row.coordinator_after]
    losses = [row.lost_ms for row in partitions]
    return Totals(
        partitions=len({row.offsets_partition for row in partitions}),
        partitions_moved=len({row.offsets_partition for row in partitions if row.moved}),
        partitions_without_leader=len({row.offsets_partition for row in unled}),
        groups=distinct(groups),
        groups_moved=distinct(moved),
        groups_without_coordinator=distinct([row for row in groups if row.coordinator_after is None]),
        groups_rebalancing=distinct([row for row in groups if row.rebalances]),
        offsets_regressed=sum(len(row.regressed) for row in groups),
        offsets_vanished=sum(len(row.vanished) for row in groups),
        hanging_transactions=len({one for row in groups for one in row.hanging_transactions}),
        records_read_again=sum(row.records_read_again for row in groups),
        worst_outage_ms=worst([row.outage_ms for row in groups]),
        lost_ms=None if None in losses else max((one for one in losses if one is not None), default=0),
    )


def worst(bands: Sequence[Band]) -> Band:
    """The longest of the times, from below and from above."""
    highs = [band.high for band in bands]
    high = None if None in highs else max((one for one in highs if one is not None), default=0)
    return Band(max((band.low for band in bands), default=0), high)


def undone_of(groups: Sequence[GroupPrediction]) -> int:
    """Resets and deletions that are lost: the offsets from before them are committed again."""
    return sum(len(row.undone) for row in groups)


def lost_offsets(found: Totals, groups: Sequence[GroupPrediction]) -> int:
    """Offsets of which the newest commit, reset or deletion is lost."""
    return found.offsets_regressed + found.offsets_vanished + undone_of(groups)


def hypothesis(prediction: Prediction) -> str:
    """What is predicted, in a sentence."""
    found = prediction.totals
    lost = lost_offsets(found, prediction.groups)
    return (
        f"{prediction.scenario}: {found.partitions_moved} of {numbered(found.partitions, 'offsets partition')} to "
        f"move, {found.groups_rebalancing} of {numbered(found.groups, 'group')} to rebalance, commits of "
        f"{numbered(lost, 'offset')} to be lost"
    )


def lost_of(offsets: int, lost_ms: int) -> str:
    """What is lost of so many milliseconds, with that of so many ``offsets``."""
    if lost_ms:
        return f"commits of the last {lost_ms} ms"
    return "commits of one moment" if offsets else "nothing"


def judged(
    found: Totals, partitions: Sequence[PartitionPrediction], groups: Sequence[GroupPrediction], objectives: Objectives
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict, and a sentence for each thing that stands against it.

    Without objectives, commits that are lost and groups without coordinator still miss it.
    """
    missed, unknown = [], []
    if found.partitions_without_leader:
        missed.append(
            f"without leader: {numbered(found.partitions_without_leader, 'offsets partition')}; without coordinator: "
            f"{numbered(found.groups_without_coordinator, 'group')}"
        )
    rto_ms = objectives.rto_ms
    if rto_ms is not None:
        led = [row for row in groups if row.coordinator_after is not None]
        late = [row for row in led if row.outage_ms.low > rto_ms]
        perhaps = [row for row in led if row.outage_ms.high is None or row.outage_ms.high > rto_ms]
        if late:
            missed.append(f"not served within {rto_ms} ms: {numbered(len(late), 'group')}")
        elif perhaps:
            unknown.append(f"perhaps not served within {rto_ms} ms: {numbered(len(perhaps), 'group')}")
    lost, undone = lost_offsets(found, groups), undone_of(groups)
    lost_ms = max((row.lost_ms for row in partitions if row.lost_ms is not None), default=0)
    # What is lost may be as old as what is left: no time passed, and yet it is lost.
    if lost and (lost_ms > (objectives.rpo_ms or 0) or not objectives.rpo_ms):
        what = []
        if gone := lost - undone:
            what.append("1 offset goes back or vanishes" if gone == 1 else f"{gone} offsets go back or vanish")
        if undone:
            what.append(f"{numbered(undone, 'change')} {is_or_are(undone)} undone")
        missed.append(f"{', '.join(what)}: {lost_of(lost, lost_ms)} are lost")
    if found.lost_ms is None:
        unknown.append("records that a leader out of sync lacks are not known: its copy is not given")
    unread = {
        row.offsets_partition: None
        for row in partitions
        if row.moved and row.leader_after is not None and row.load_ms is None
    }
    if unread:
        more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
        named = ", ".join(map(str, [*unread][:_NAMED]))
        unknown.append(
            f"the logs of offsets partitions that move are not given, so their groups are not known: {named}{more}"
        )
    if found.hanging_transactions:
        hanging = found.hanging_transactions
        missed.append(f"{numbered(hanging, 'transaction')} {'stays' if hanging == 1 else 'stay'} open for ever")
    if missed:
        return Verdict.MISSED, (*missed, *unknown)
    return (Verdict.UNKNOWN, tuple(unknown)) if unknown else (Verdict.MET, ())
