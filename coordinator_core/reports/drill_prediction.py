"""Text of ``regroup drill predict``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from coordinator_core.drill.model import (
    Assigned,
    Band,
    GroupPrediction,
    PartitionPrediction,
    PhaseName,
    Prediction,
)
from coordinator_core.drill.verdict import lost_of, lost_offsets, undone_of
from coordinator_core.durations import is_or_are, numbered
from coordinator_core.groups.model import GroupType
from coordinator_core.reports.text_table import text_table
from coordinator_core.untrusted import visible


def prediction_text(prediction: Prediction) -> str:
    """Summary and verdict, then the moves of each step: partitions, groups, answers, offsets."""
    lines = list(_summary(prediction))
    for step in prediction.steps:
        lines += ["", f"step {step.number}: {step.what}"]
        partitions = [one for one in prediction.partitions if one.step == step.number and one.moved]
        groups = [one for one in prediction.groups if one.step == step.number and one.phases]
        if not partitions:
            lines.append("nothing moves")
            continue
        lines += ["", *_partitions(partitions)]
        if groups:
            lines += ["", *_groups(groups), "", *_answers(groups)]
        served = list(_served(groups))
        if served:
            header = "GROUP TYPE STATE EPOCH ASSIGNMENT-EPOCH TOPOLOGY-EPOCH MEMBERS ASSIGNED STANDBY START-OFFSETS"
            lines += ["", *text_table(header, served)]
        offsets = [row for group in groups for row in _offset_rows(group)]
        if offsets:
            lines += ["", *text_table("GROUP TOPIC PARTITION OFFSET NEW-OFFSET WHAT", offsets)]
    return "\n".join(map(visible, lines))


def _summary(prediction: Prediction) -> Iterator[str]:
    totals, rate, asked = prediction.totals, prediction.calibration, prediction.objectives
    yield f"scenario:     {prediction.scenario}"
    if prediction.cluster is not None:
        yield f"cluster:      {prediction.cluster}"
    yield f"coordinator:  {prediction.profile}"
    yield (
        f"load rate:    {rate.base_ms:g} ms and {rate.us_per_record:g} us a record, by {rate.method}"
        + (f" ({rate.samples} loads)" if rate.samples else "")
    )
    yield (
        f"partitions:   {totals.partitions_moved} of {totals.partitions} move, "
        f"{totals.partitions_without_leader} are left without leader"
    )
    yield (
        f"groups:       {totals.groups_moved} of {totals.groups} move, {totals.groups_without_coordinator} "
        f"are left without coordinator, {totals.groups_rebalancing} rebalance"
    )
    undone = undone_of(prediction.groups)
    undone_text = f"{numbered(undone, 'change')} {is_or_are(undone)} undone, " if undone else ""
    yield (
        f"offsets:      {totals.offsets_regressed} go back, {totals.offsets_vanished} vanish, {undone_text}"
        f"{numbered(totals.records_read_again, 'record')} {is_or_are(totals.records_read_again)} read again"
    )
    if totals.hanging_transactions:
        yield f"transactions: {totals.hanging_transactions} stay open for ever"
    lost = lost_offsets(totals, prediction.groups)
    yield f"lost:         {'not known' if totals.lost_ms is None else lost_of(lost, totals.lost_ms)}"
    yield f"outage:       {_band(totals.worst_outage_ms)} ms at worst"
    wanted = [
        f"{name} {value} ms" for name, value in (("RTO", asked.rto_ms), ("RPO", asked.rpo_ms)) if value is not None
    ]
    yield f"verdict:      {prediction.verdict}" + (f" ({', '.join(wanted)})" if wanted else "")
    for reason in prediction.reasons:
        yield f"              {reason}"


def _partitions(rows: Sequence[PartitionPrediction]) -> list[str]:
    return text_table(
        "OFFSETS-PARTITION LEADER NEW-LEADER UNCLEAN GROUPS OFFSETS RECORDS LOAD-MS SERVED-MS LOST",
        [
            (
                row.offsets_partition,
                row.leader_before,
                row.leader_after,
                "yes" if row.unclean else "no",
                row.groups,
                row.offsets,
                row.records_to_load,
                _band(row.load_ms),
                _band(row.available_ms),
                row.lost_records,
            )
            for row in rows
        ],
    )


def _groups(rows: Sequence[GroupPrediction]) -> list[str]:
    return text_table(
        "GROUP TYPE MEMBERS OFFSETS-PARTITION COORDINATOR NEW-COORDINATOR OUTAGE-MS REBALANCES WHY",
        [
            (
                row.group_id,
                row.type,
                row.members,
                row.offsets_partition,
                row.coordinator_before,
                row.coordinator_after,
                _band(row.outage_ms),
                {True: "yes", False: "no", None: "?"}[row.rebalances],
                row.reason,
            )
            for row in rows
        ],
    )


def _answers(groups: Sequence[GroupPrediction]) -> list[str]:
    """Groups that are answered alike in a phase make one row."""
    alike: Counter[tuple[PhaseName, str, str]] = Counter()
    for group in groups:
        for phase in group.phases:
            answers = ", ".join(f"{api} {error}" for api, error in phase.answers.items())
            alike[phase.name, group.type, answers] += 1
    rows = [(name, type_, count, answers) for (name, type_, answers), count in alike.items()]
    order = list(PhaseName)
    rows.sort(key=lambda row: (order.index(row[0]), row[1], row[3]))
    return text_table("PHASE TYPE GROUPS ANSWERS", rows)


def _served(groups: Sequence[GroupPrediction]) -> Iterator[tuple[object, ...]]:
    """Share and streams groups as they are served, with numbers of share-partitions or tasks."""
    for group in groups:
        served = group.served
        if served is None:
            continue
        start_offsets = {True: "stay", None: "?"}[group.start_offsets_stay] if group.type is GroupType.SHARE else None
        yield (
            group.group_id,
            group.type,
            served.state,
            served.group_epoch,
            served.assignment_epoch,
            served.topology_epoch,
            len(served.members),
            sum(_count(member.assigned) for member in served.members),
            sum(_count(member.standby) for member in served.members),
            start_offsets,
        )


def _count(assigned: Assigned) -> int:
    return sum(map(len, assigned.values()))


def _offset_rows(group: GroupPrediction) -> Iterator[tuple[object, ...]]:
    kinds = (("goes back", group.regressed), ("vanishes", group.vanished), ("change is undone", group.undone))
    for what, changes in kinds:
        for change in changes:
            yield group.group_id, change.topic, change.partition, change.before, change.after, what


def _band(band: Band | None) -> str | None:
    return None if band is None else f"{band.low}..{'' if band.high is None else band.high}"
