"""Times and durations in milliseconds, and as people say them; numbers of things."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


def noun(number: int, name: str) -> str:
    """``offset`` after 1, else ``offsets``; ``batches``."""
    if number == 1:
        return name
    return f"{name}es" if name.endswith("ch") else f"{name}s"


def numbered(number: int, name: str) -> str:
    """``1 offset``, ``1234 offsets``."""
    return f"{number} {noun(number, name)}"


def is_or_are(number: int) -> str:
    """``is`` for 1, else ``are``."""
    return "is" if number == 1 else "are"


def was_or_were(number: int) -> str:
    """``was`` for 1, else ``were``."""
    return "was" if number == 1 else "were"


def has_or_have(number: int) -> str:
    """``has`` for 1, else ``have``."""
    return "has" if number == 1 else "have"


def elapsed(earlier_ms: int, later_ms: int) -> int:
    """Milliseconds from one time to a later one; -1 where one of them is not known (-1), or the clock went back."""
    return later_ms - earlier_ms if 0 <= earlier_ms <= later_ms else -1


def are_close(one_ms: int, other_ms: int, within_ms: float) -> bool:
    """Whether both times are known and no farther apart."""
    return min(one_ms, other_ms) >= 0 and abs(one_ms - other_ms) <= within_ms


def span(milliseconds: float) -> str:
    """``7 d``, ``2.5 h``, ``40 s``; ``an unknown time`` below 0."""
    if milliseconds < 0:
        return "an unknown time"
    for name, size in (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS)):
        if milliseconds >= size:
            return f"{milliseconds / size:.1f}".removesuffix(".0") + f" {name}"
    return f"{milliseconds / SECOND_MS:.1f}".removesuffix(".0") + " s"


def clock_ms() -> int:
    """Now, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def utc_text(epoch_ms: int, form: str) -> str | None:
    """The time in UTC, as ``strftime`` has it in ``form``; ``None`` below 0, which is no time to Kafka, and beyond the
    year 9999."""
    if epoch_ms < 0:
        return None
    try:
        return f"{datetime.fromtimestamp(epoch_ms / SECOND_MS, UTC):{form}}"
    except (OverflowError, ValueError, OSError):
        return None
