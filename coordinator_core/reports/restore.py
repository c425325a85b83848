"""Plans, applies and proofs as text: worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinator_core.durations import numbered
from coordinator_core.groups.model import OffsetKey
from coordinator_core.investigate.words import count
from coordinator_core.restore.model import Action, GroupPlan, Plan, Row
from coordinator_core.restore.proof import Proof
from coordinator_core.untrusted import visible

_ROWS_SHOWN = 40
_WARNINGS_SHOWN = 20
_WORST_FIRST = (Action.BLOCKED, Action.DELETE, Action.UPDATE, Action.CREATE)


class Records(NamedTuple):
    """Offsets of topics' logs that rows skip and read again, and of how many rows that is not known."""

    skipped: int
    read_again: int
    unknown: int


def records_of(rows: Iterable[Row]) -> Records:
    """Effect of the rows that change something on the records that consumers read."""
    changing = [row for row in rows if row.action is not Action.KEEP]
    return Records(
        sum(row.skipped or 0 for row in changing),
        sum(row.read_again or 0 for row in changing),
        sum(row.left is None for row in changing if row.action is not Action.DELETE),
    )


def plan_text(plan: Plan, digest: str) -> Iterator[str]:
    """Lines for a terminal, and for whoever approves the plan: at most some warnings and rows, the worst ones, and how
    many more there are."""
    counts = plan.counts()
    yield f"plan:       {digest}"
    cluster = "" if plan.cluster_id is None else f" (cluster {visible(plan.cluster_id)})"
    yield f"kind:       {plan.kind}, {visible(plan.source)} to {visible(plan.target)}{cluster}"
    yield "offsets:    " + (", ".join(f"{counts[action]} {action}" for action in Action if counts[action]) or "none")
    changing = [row for row in plan.rows() if row.action is not Action.KEEP]
    skipped, again, unknown = records_of(changing)
    yield (
        f"records:    at most {skipped:,} are skipped, at most {again:,} are read again"
        + (f"; of {count(unknown, 'offset')} it is not known" if unknown else "")
    )
    groups = sorted(plan.groups, key=worst_group_first)
    of_groups = united((group.group_id, text) for group in groups for text in group.warnings)
    warnings = [*plan.warnings, *(f"{_groups(group_ids)}: {text}" for text, group_ids in of_groups.items())]
    yield from (f"warning:    {visible(warning)}" for warning in warnings[:_WARNINGS_SHOWN])
    if len(warnings) > _WARNINGS_SHOWN:
        yield f"and {count(len(warnings) - _WARNINGS_SHOWN, 'warning')} more: the plan has all"
    changing.sort(key=worst_first)
    yield from (_row(row) for row in changing[:_ROWS_SHOWN])
    if len(changing) > _ROWS_SHOWN:
        yield f"and {count(len(changing) - _ROWS_SHOWN, 'offset')} more: the plan has all"


def worst_first(row: Row) -> tuple[int, int, int, OffsetKey]:
    """Order of rows that change something: blocked, deleted, updated, created; most skipped, then most read again."""
    skipped, again = row.skipped or 0, row.read_again or 0
    return _WORST_FIRST.index(row.action), -skipped, -again, row.key


def worst_group_first(group: GroupPlan) -> tuple[Any, ...]:
    """Order of groups: blocked, with warnings, others; of each those that skip most, then that read most again."""
    found = records_of(group.rows)
    unwarned = not group.warnings and not any(row.warnings for row in group.rows)
    return group.action is not Action.BLOCKED, unwarned, -found.skipped, -found.read_again, group.group_id


def united(warnings: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Subjects of each warning, in their order, of subjects with a warning each: many groups may have the same one."""
    found: dict[str, list[str]] = {}
    for subject, text in warnings:
        found.setdefault(text, []).append(subject)
    return found


def _groups(group_ids: Sequence[str]) -> str:
    first, *more = group_ids
    return f"{count(len(group_ids), 'group')}, first {first}" if more else f"group {first}"


def _row(row: Row) -> str:
    name = f"{visible(row.group_id)} {visible(row.topic)}-{row.partition}"
    before = "nothing" if row.before is None else str(row.before.offset)
    after = "nothing" if row.after is None else str(row.after.offset)
    what = ""
    if row.skipped:
        what = f", skips {row.skipped:,}"
    elif row.read_again:
        what = f", reads {row.read_again:,} again"
    warnings = "".join(f"; warning: {visible(warning)}" for warning in row.warnings)
    return f"{row.action:<8} {name}: {before} to {after}{what} ({visible(row.reason)}){warnings}"


def proof_text(proof: Proof) -> Iterator[str]:
    """Lines for a terminal."""
    yield f"verified:   {'no' if proof.problems else 'yes'}"
    yield f"groups:     {proof.groups}, with {numbered(proof.offset_keys, 'offset')} that the plan changes"
    yield f"records:    {len(proof.records)} of them are in the log, each once"
    if proof.start_offsets:
        yield f"            {proof.start_offsets} of them are start offsets of share groups, which have no record there"
    yield from _some("problem:   ", proof.problems)


def _some(title: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_ROWS_SHOWN]:
        yield f"{title} {visible(line)}"
    if len(lines) > _ROWS_SHOWN:
        yield f"{title} and {len(lines) - _ROWS_SHOWN} more"
