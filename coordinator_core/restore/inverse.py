"""The way back: the changes that an apply has begun, read from its journal, as a plan of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from coordinator_core.drill.journal import Event
from coordinator_core.groups.model import GroupType
from coordinator_core.restore.decide import changed_row, group_plan
from coordinator_core.restore.model import WRITES, Action, GroupPlan, Plan, Row, value_of
from coordinator_core.restore.target import LogRange, Target, TargetGroup

FIRST_EVENT = "restore"
_BY_OTHERS = "committed since, by others"


def begun(plan: Plan, events: Iterable[Event]) -> list[GroupPlan]:
    """The groups of a plan that an apply has begun to write, in the order of the plan. Rows that failed, and so were
    not written, are kept ones."""
    failed = _failed(events)
    return [
        replace(group, rows=tuple(_written(row, failed[group.group_id]) for row in group.rows))
        for group in plan.groups
        if group.group_id in failed
    ]


def _written(row: Row, failed: Collection[tuple[str | None, int | None]]) -> Row:
    return replace(row, action=Action.KEEP) if row.key[1:] in failed else row


def _failed(events: Iterable[Event]) -> dict[str, set[tuple[str | None, int | None]]]:
    """Topics and partitions that failed each time that their group was begun, of each group that was: they were never
    written. An attempt without an end, or with an error of the group as a whole, may have written all."""
    found: dict[str, set[tuple[str | None, int | None]]] = {}
    begun_now: set[str] = set()
    for event in events:
        group_id = event.get("group_id", "")
        if event["event"] == "begin":
            if group_id in begun_now:
                found[group_id] = set()
            begun_now.add(group_id)
        elif event["event"] == "end" and group_id in begun_now:
            begun_now.remove(group_id)
            errors = {(error["topic"], error["partition"]) for error in event["errors"]}
            failed = set() if (None, None) in errors else errors
            found[group_id] = found.get(group_id, failed) & failed
    return found | {group_id: set() for group_id in begun_now}


def inverse(groups: Sequence[GroupPlan], target: Target) -> list[GroupPlan]:
    """A plan that gives ``groups`` back their earlier offsets, from their present ones in ``target``.

    Offsets that were made are deleted, and share groups that were made, unless others have offsets in them since.
    A key that was written and holds neither that value nor the one before is blocked: somebody else has committed.
    One that was not written is kept as it is.
    """
    return [_inverse(group, target.group(group.group_id), target) for group in groups]


def _inverse(group: GroupPlan, now: TargetGroup, target: Target) -> GroupPlan:
    if now.state is None and group.type == GroupType.SHARE:
        now = replace(now, type=group.type)
    rows = [_back(row, now, target.log(row.topic, row.partition)) for row in group.rows]
    known = {row.key[1:] for row in group.rows}
    others = [
        Row(group.group_id, *key, Action.KEEP, held, held, _BY_OTHERS)
        for key, held in sorted(now.offsets.items())
        if key not in known
    ]
    made = group.action is Action.CREATE and any(group.writes())
    empty = all(row.after is None for row in rows) and not others
    warnings = []
    if made and now.state is not None and not empty:
        warnings.append("the group was made by the restore, and stays: others have committed in it since")
    rows = sorted([*rows, *others], key=lambda row: row.key)
    is_share = now.state is not None and now.type == GroupType.SHARE
    return group_plan(now, target, rows, warnings, delete=made and empty and is_share)


def _back(row: Row, now: TargetGroup, log: LogRange) -> Row:
    key = row.key
    held = now.offsets.get(key[1:])
    after = row.before
    if value_of(held) == value_of(after):
        return changed_row(key, held, held, log, "it is as it was before")
    if row.action not in WRITES:
        return changed_row(key, held, held, log, _BY_OTHERS)
    if value_of(held) != value_of(row.after):
        found = "nothing is committed" if held is None else f"offset {held.offset} is committed"
        why = f"somebody else has committed since: {found}, which is neither the value written nor the one before"
        return replace(changed_row(key, held, after, log, why), action=Action.BLOCKED)
    return changed_row(key, held, after, log, "it was made by the restore" if after is None else "it was so before")
