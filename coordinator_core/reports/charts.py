"""Bar charts as inline SVG: plain markup, coloured by the page's style, read out by screen readers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from coordinator_core.reports.pages import cut_name

WIDTH, ROW, LABEL, NUMBER = 360, 20, 112, 82
LETTERS = 14
"""Sizes in pixels, and how many letters a label has room for. ``WIDTH`` is a phone's: there text has the size of the
style, on wider screens a little more."""


def bar_chart(title: str, rows: Sequence[tuple[str, float, str]], dead: Sequence[float] = ()) -> str:
    """Horizontal bars; ``rows`` are label, value and the value as it is written beside the bar.

    ``dead`` is how much of each value is drawn as dead, at the end of its bar. Without rows there is no chart.
    """
    if not rows:
        return ""
    height = ROW * len(rows) + 4
    most = max(value for _, value, _ in rows) or 1
    room = WIDTH - LABEL - NUMBER
    parts = []
    for number, (label, value, text) in enumerate(rows):
        top = number * ROW
        length = round(room * value / most, 1)
        gone = round(room * dead[number] / most, 1) if dead else 0.0
        over = f'<rect class="dead" x="{LABEL + length - gone:g}" y="{top + 3}" width="{gone}" height="{ROW - 6}"/>'
        parts.append(
            f'<text x="{LABEL - 8}" y="{top + 15}" text-anchor="end">{escape(cut_name(label, LETTERS))}</text>'
            f'<rect class="bar" x="{LABEL}" y="{top + 3}" width="{length}" height="{ROW - 6}"/>'
            f"{over if gone else ''}"
            f'<text x="{LABEL + length + 6}" y="{top + 15}">{escape(text)}</text>'
        )
    read = "; ".join(f"{label}: {text}" for label, _, text in rows)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(f"{title}. {read}")}">{"".join(parts)}</svg></figure>'
    )
