"""Durations in milliseconds, and as people say them."""

from __future__ import annotations

from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


def span(milliseconds: float) -> str:
    """``7 d``, ``2.5 h``, ``40 s``."""
    for name, size in (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS)):
        if milliseconds >= size:
            return f"{milliseconds / size:.1f}".removesuffix(".0") + f" {name}"
    return f"{milliseconds / SECOND_MS:.1f}".removesuffix(".0") + " s"
