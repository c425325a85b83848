"""States over time as inline SVG: a row for each subject, bars of states, marks across all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from coordinator_core.reports.charts import LABEL, ROW, WIDTH

_EDGE = 8
_MARK_ROOM = 16


@dataclass(frozen=True, slots=True)
class Lane:
    """One row. ``stretches`` are CSS class, begin and end; ``expected`` is drawn below them: begin and end.

    ``text`` is read out.
    """

    label: str
    stretches: Sequence[tuple[str, float, float]]
    expected: tuple[float, float] | None
    text: str


def timeline(title: str, lanes: Sequence[Lane], marks: Sequence[tuple[str, float]]) -> str:
    """Lanes over time, all times in seconds; ``marks`` are names and times, numbered in the drawing."""
    times = [at for lane in lanes for _, *span in lane.stretches for at in span] + [at for _, at in marks]
    first, last = min(times, default=0.0), max(times, default=1.0)
    room = WIDTH - LABEL - _EDGE
    scale = room / (last - first or 1.0)

    def x(at: float) -> float:
        return round(LABEL + (min(max(at, first), last) - first) * scale, 1)

    def wide(begin: float, end: float) -> float:
        return round(max(x(end) - x(begin), 1), 1)

    height = ROW * max(len(lanes), 1) + _MARK_ROOM + 4
    parts = []
    for number, lane in enumerate(lanes):
        top = _MARK_ROOM + number * ROW
        parts.append(f'<text x="{LABEL - 8}" y="{top + 14}" text-anchor="end">{escape(lane.label)}</text>')
        parts += [
            f'<rect class="{kind}" x="{x(begin)}" y="{top + 3}" width="{wide(begin, end)}" height="{ROW - 9}"/>'
            for kind, begin, end in lane.stretches
        ]
        if lane.expected is not None:
            begin, end = lane.expected
            place = f'x="{x(begin)}" y="{top + ROW - 5}" width="{wide(begin, end)}" height="3"'
            parts.append(f'<rect class="bar" {place}/>')
    for number, (_, at) in enumerate(marks, 1):
        parts.append(
            f'<line class="mark" x1="{x(at)}" x2="{x(at)}" y1="{_MARK_ROOM - 2}" y2="{height}"/>'
            f'<text x="{x(at)}" y="12" text-anchor="middle">{number}</text>'
        )
    legend = "; ".join(f"{number}: {name}, {at:.1f} s" for number, (name, at) in enumerate(marks, 1))
    read = ". ".join(lane.text for lane in lanes)
    return (
        f"<figure><figcaption>{escape(title)}{escape(f' ({legend})' if legend else '')}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(f"{title}. {read}")}">'
        f"{''.join(parts)}</svg></figure>"
    )
