"""Bar charts as inline SVG: plain markup, coloured by the page's style, read out by screen readers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, ROW, LABEL, NUMBER = 360, 20, 98, 82
"""Sizes in pixels. ``WIDTH`` is a phone's: there text has the size of the style, on wider screens a little more."""


def bar_chart(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """Horizontal bars; ``rows`` are label, value and the value as it is written beside the bar."""
    height = ROW * max(len(rows), 1) + 4
    most = max((value for _, value, _ in rows), default=0) or 1
    room = WIDTH - LABEL - NUMBER
    parts = []
    for number, (label, value, text) in enumerate(rows):
        top = number * ROW
        length = round(room * value / most, 1)
        parts.append(
            f'<text x="{LABEL - 8}" y="{top + 15}" text-anchor="end">{escape(label)}</text>'
            f'<rect class="bar" x="{LABEL}" y="{top + 3}" width="{length}" height="{ROW - 6}"/>'
            f'<text x="{LABEL + length + 6}" y="{top + 15}">{escape(text)}</text>'
        )
    read = "; ".join(f"{label}: {text}" for label, _, text in rows)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(f"{title}. {read}")}">{"".join(parts)}</svg></figure>'
    )
