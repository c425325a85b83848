"""Pages that need nothing else: one template, one style, no script, no font, no request."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from coordinator_core.durations import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, noun, utc_text
from coordinator_core.untrusted import visible

_WORD = re.compile(r"\S+")


def page(template: str, **values: Any) -> str:
    """The template with ``values``, and with ``style`` and ``style_hash`` (for its content policy).

    ``page.html`` takes ``sections``, anchors and titles for its navigation, and of the template ``skip_to``,
    the anchor of the most important section.
    """
    style = files("coordinator_core.reports").joinpath("run.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return _environment().get_template(template).render(style=style, style_hash=f"sha256-{digest}", **values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("coordinator_core.reports", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "bytes": byte_text,
        "duration": duration_text,
        "number": number_text,
        "numbered": lambda value, name: f"{number_text(value)} {noun(value, name)}",
        "shortened": shortened,
        "time": time_text,
        "visible": visible,
    }
    return made


def shortened(value: object, most: int = 48) -> str:
    """A text with each word of more than ``most`` characters cut: its beginning and its end, ``…`` between."""
    return _WORD.sub(lambda word: cut_name(word[0], most), str(value))


def cut_name(name: str, most: int) -> str:
    """A name of at most ``most`` characters, which keeps its end: ids often differ there alone."""
    if len(name) <= most:
        return name
    end = (most - 1) // 3
    return f"{name[: most - 1 - end]}…{name[-end:] if end else ''}"


def number_text(value: int) -> str:
    """An integer with spaces between thousands."""
    return f"{value:,}".replace(",", " ")


def byte_text(value: float) -> str:
    """Bytes with three digits and a decimal unit: ``1.17 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.4g} TB"


def duration_text(value_ms: int) -> str:
    """Milliseconds with three digits, in the largest unit that is not above them."""
    for size, unit in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s")):
        if value_ms >= size:
            return f"{value_ms / size:.3g} {unit}"
    return f"{value_ms} ms"


def time_text(value_ms: int) -> str:
    """Epoch milliseconds as a time in UTC; the number itself where no calendar has it."""
    return utc_text(value_ms, "%Y-%m-%d %H:%M:%S UTC") or f"{value_ms} ms"
