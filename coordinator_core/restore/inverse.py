"""The way back: the changes that an apply has begun, read from its journal, as a plan of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from coordinator_core.drill.journal import Event, of_kind
from coordinator_core.groups.model import GroupType
from coordinator_core.restore.decide import changed_row, group_plan
from coordinator_core.restore.model import Action, GroupPlan, Plan, Row, value_of
from coordinator_core.restore.target import LogRange, Target, TargetGroup

FIRST_EVENT = "restore"


def begun(plan: Plan, events: Iterable[Event]) -> list[GroupPlan]:
    """The groups of a plan that an apply has begun to write, in the order of the plan."""
    group_ids = {event["group_id"] for event in of_kind(events, "begin")}
    return [group for group in plan.groups if group.group_id in group_ids]


def inverse(groups: Sequence[GroupPlan], target: Target) -> list[GroupPlan]:
    """A plan that gives ``groups`` back their earlier offsets, from their present ones in ``target``.

    Offsets that were made are deleted, and groups that were made, unless others have committed in them since.
    A key that holds neither the value written nor the one before is blocked: somebody else has committed.
    """
    return [_inverse(group, target.group(group.group_id), target) for group in groups]


def _inverse(group: GroupPlan, now: TargetGroup, target: Target) -> GroupPlan:
    if now.state is None and group.type == GroupType.SHARE:
        now = replace(now, type=group.type)
    rows = [_back(row, now, target.log(row.topic, row.partition)) for row in group.rows]
    known = {row.key[1:] for row in group.rows}
    others = [
        Row(group.group_id, *key, Action.KEEP, held, held, "committed since, by others")
        for key, held in sorted(now.offsets.items())
        if key not in known
    ]
    made = group.action is Action.CREATE
    empty = all(row.after is None for row in rows) and not others
    warnings = []
    if made and now.state is not None and not empty:
        warnings.append("the group was made by the restore, and stays: others have committed in it since")
    rows = sorted([*rows, *others], key=lambda row: row.key)
    return group_plan(now, target, rows, warnings, delete=made and empty and now.state is not None)


def _back(row: Row, now: TargetGroup, log: LogRange) -> Row:
    key = row.key
    held = now.offsets.get(key[1:])
    after = row.before
    if value_of(held) == value_of(after):
        return changed_row(key, held, held, log, "it is as it was before")
    if value_of(held) != value_of(row.after):
        found = "nothing is committed" if held is None else f"offset {held.offset} is committed"
        why = f"somebody else has committed since: {found}, which is neither the value written nor the one before"
        return replace(changed_row(key, held, after, log, why), action=Action.BLOCKED)
    return changed_row(key, held, after, log, "it was made by the restore" if after is None else "it was so before")
