"""Plans, applies and proofs as text: worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from coordinator_core.groups.model import OffsetKey
from coordinator_core.investigate.words import count
from coordinator_core.restore.model import Action, Plan, Row
from coordinator_core.restore.proof import Proof
from coordinator_core.untrusted import visible

_ROWS_SHOWN = 40
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
    """Lines for a terminal: blocked rows first, then rows that skip most records, then rows that read most again."""
    counts = plan.counts()
    yield f"plan:       {digest}"
    yield f"kind:       {plan.kind}, {visible(plan.source)} to {visible(plan.target)} (cluster {plan.cluster_id})"
    yield "offsets:    " + ", ".join(f"{counts[action]} {action}" for action in Action if counts[action])
    changing = [row for row in plan.rows() if row.action is not Action.KEEP]
    skipped, again, unknown = records_of(changing)
    yield (
        f"records:    at most {skipped:,} are skipped, at most {again:,} are read again"
        + (f"; of {count(unknown, 'offset')} it is not known" if unknown else "")
    )
    for warning in plan.warnings:
        yield f"warning:    {visible(warning)}"
    for group in plan.groups:
        for warning in group.warnings:
            yield f"warning:    group {visible(group.group_id)}: {visible(warning)}"
    changing.sort(key=worst_first)
    yield from (_row(row) for row in changing[:_ROWS_SHOWN])
    if len(changing) > _ROWS_SHOWN:
        yield f"and {count(len(changing) - _ROWS_SHOWN, 'offset')} more: the plan has all"


def worst_first(row: Row) -> tuple[int, int, int, OffsetKey]:
    """Order of rows that change something: blocked, deleted, updated, created; most skipped, then most read again."""
    skipped, again = row.skipped or 0, row.read_again or 0
    return _WORST_FIRST.index(row.action), -skipped, -again, row.key


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
    yield f"groups:     {proof.groups}, with {proof.offset_keys} offsets that the plan changes"
    yield f"records:    {len(proof.records)} of them are in the log, each once"
    yield from _some("problem:   ", proof.problems)


def _some(title: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_ROWS_SHOWN]:
        yield f"{title} {visible(line)}"
    if len(lines) > _ROWS_SHOWN:
        yield f"{title} and {len(lines) - _ROWS_SHOWN} more"
