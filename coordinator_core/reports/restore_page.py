"""A restore plan as one HTML page, for the person who approves it: objections first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from coordinator_core.investigate.words import count
from coordinator_core.reports.drawing import COLOURS, SERIES, figure
from coordinator_core.reports.pages import cut_name, number_text, page
from coordinator_core.reports.restore import Records, records_of, united, worst_first, worst_group_first
from coordinator_core.restore.model import Action, GroupPlan, Plan, Row
from coordinator_core.untrusted import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROWS = 200
"""Offsets and groups that the page has rows of; rows left out are counted, and in the plan."""

DRAWN = 14
"""Groups that the picture has bars of."""

_BAR = 26


def restore_page(plan: Plan, digest: str) -> str:
    """The page of a plan with this digest."""
    groups = sorted(plan.groups, key=worst_group_first)
    rows = sorted((row for row in plan.rows() if row.action is not Action.KEEP), key=worst_first)
    warnings = [(_of(subjects), visible(text)) for text, subjects in united(_warnings(plan, groups)).items()]
    found = records_of(rows)
    style, word = _verdict(plan, found, warnings)
    writing = sum(len(list(group.writes())) for group in plan.groups)
    counts = [f"{number_text(number)} {action}" for action, number in plan.counts().items() if number]
    return page(
        "restore.html",
        plan=plan,
        digest=digest,
        word=word,
        style_of_verdict=style,
        obstacle=plan.obstacle(),
        offsets=writing,
        groups_written=len(plan.writing()),
        found=found,
        counts=", ".join(counts),
        sections=[
            *([("warnings", "Warnings")] if warnings else []),
            ("groups", "Groups"),
            ("offsets", "Offsets"),
            ("provenance", "Provenance"),
        ],
        warnings=warnings[:ROWS],
        warnings_left_out=max(len(warnings) - ROWS, 0),
        picture=_picture(groups),
        groups=[_group(group) for group in groups[:ROWS]],
        groups_left_out=max(len(groups) - ROWS, 0),
        rows=[_row(row) for row in rows[:ROWS]],
        rows_left_out=max(len(rows) - ROWS, 0),
    )


def _verdict(plan: Plan, found: Records, warnings: Sequence[object]) -> tuple[str, str]:
    if plan.obstacle() is not None:
        return "critical", "Blocked: nothing of it is applied"
    if not plan.writing():
        return "clean", "Nothing is to be written"
    if warnings or found.skipped or found.unknown or plan.counts()[Action.DELETE]:
        return "warning", "Look at it before you approve"
    return "clean", "Nothing speaks against it"


def _warnings(plan: Plan, groups: Sequence[GroupPlan]) -> Iterator[tuple[str, str]]:
    """Warnings, and their subjects."""
    for text in plan.warnings:
        yield "the plan", text
    for group in groups:
        for text in group.warnings:
            yield group.group_id, text
        for row in group.rows:
            for text in row.warnings:
                yield f"{group.group_id}, {row.topic}-{row.partition}", text


def _of(subjects: Sequence[str]) -> str:
    first, *more = subjects
    return visible(first) + (f" and {number_text(len(more))} more" if more else "")


def _group(group: GroupPlan) -> tuple[str, ...]:
    found = records_of(group.rows)
    return (
        visible(group.group_id),
        group.action.value,
        f"{group.type}, {group.state or 'absent'}",
        number_text(len(list(group.writes()))),
        number_text(found.skipped),
        number_text(found.read_again),
        number_text(found.unknown),
    )


def _row(row: Row) -> tuple[str, ...]:
    return (
        visible(row.group_id),
        visible(f"{row.topic}-{row.partition}"),
        row.action.value,
        "nothing" if row.before is None else str(row.before.offset),
        "nothing" if row.after is None else str(row.after.offset),
        _records(row, row.skipped),
        _records(row, row.read_again),
        "; ".join(map(visible, (row.reason, *row.warnings))),
    )


def _records(row: Row, number: int | None) -> str:
    """A number of records; nothing where the offset is made or deleted, which has no place to come from or go to."""
    if row.before is None or row.after is None:
        return "-"
    return "not known" if number is None else number_text(number)


def _picture(groups: Sequence[GroupPlan]) -> str:
    """Bars of the groups: records that each skips to the right, records that it reads again to the left."""
    told = [(visible(group.group_id), records_of(group.rows)) for group in groups]
    moving = [(name, found) for name, found in told if found.skipped or found.read_again]
    if not moving:
        return ""
    drawn = moving[:DRAWN]
    most = max(max(found.skipped, found.read_again) for _, found in drawn)

    def draw(axes: Sequence[Axes], is_wide: bool) -> None:
        (plot,) = axes
        for at, (_, found) in enumerate(drawn):
            for value, side, colour in ((found.skipped, 1, COLOURS["critical"]), (found.read_again, -1, SERIES[0])):
                if value:
                    plot.barh(at, side * value, color=colour, height=0.6)
                    place, align = (side * value, at), "left" if side > 0 else "right"
                    plot.annotate(
                        number_text(value), place, (4 * side, 0), textcoords="offset points", ha=align, va="center"
                    )
        plot.spines["left"].set_visible(False)
        plot.axvline(0, color=COLOURS["line"], linewidth=1)
        # Room for the numbers at the ends of the bars.
        room = 1.25 if is_wide else 1.9
        plot.set_xlim(-room * most, room * most)
        plot.set_xticks([])
        plot.set_ylim(len(drawn) - 0.4, -0.6)
        plot.set_yticks(range(len(drawn)), [cut_name(name, 18 if is_wide else 9) for name, _ in drawn])
        plot.tick_params(axis="y", length=0)
        plot.set_title("\N{LEFTWARDS ARROW} read again", loc="left", fontsize=12)
        plot.set_title("skipped \N{RIGHTWARDS ARROW}", loc="right", fontsize=12)

    more = f"; {count(len(moving) - len(drawn), 'group')} more not drawn" if len(moving) > len(drawn) else ""
    read = "; ".join(f"{name}: {found.skipped} skipped, {found.read_again} read again" for name, found in drawn)
    return figure(
        f"Records that groups skip or read again, at most{more}", read, [_BAR * len(drawn)], draw, timed=False
    )
