"""Figures that matplotlib draws, as inline SVG: text stays text, colours are classes of the page's style.

A page's content policy lets no ``style`` attribute through, and light and dark need other colours. So figures are drawn
in the colours below, which stand for classes: ``stroke-<name>`` and ``fill-<name>`` of ``run.css``.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import re
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from coordinator_core.durations import DAY_MS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = ("text", "line", "critical", "warning", "info", "clean", "quiet", *(f"series{n}" for n in range(6)))
COLOURS = {name: f"#0102{number:02x}" for number, name in enumerate(NAMES, 1)}
SERIES = tuple(COLOURS[f"series{n}"] for n in range(6))
_CLASSES = {colour: name for name, colour in COLOURS.items()}
_SIZES = {"narrow": 360, "wide": 1080}
"""Widths in pixels: of a phone, where text keeps its size, and of a desktop."""
_CALENDAR_DAYS = (-700_000, 2_900_000)
"""Days since 1970 of which matplotlib makes dates: those of the years 1 to 9999, with room for ticks."""
_NAMESPACE = re.compile(r"^\{[^}]*\}")
_KEPT = ("stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "stroke-opacity", "text-anchor")
_CONFIGURATION = "MPLCONFIGDIR"
"""Variable in which matplotlib puts the directory that it makes for itself where it finds none."""


def figure(
    title: str,
    read: str,
    heights: Sequence[float],
    draw: Callable[[Sequence[Axes], bool], None],
    *,
    timed: bool = True,
) -> str:
    """A figure for phones and one for desktops, of which the page's style shows one.

    ``heights`` are those of the axes, one below the other, in pixels; ``timed``: with one axis of time. ``draw`` fills
    them, and is told whether there is room. ``read`` is the text for screen readers.
    """
    drawn = "".join(_svg(f"{title}. {read}", name, heights, draw, timed) for name in _SIZES)
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawn}</figure>"


def moment(at_ms: float) -> float:
    """A time on the axis of a figure."""
    return at_ms / DAY_MS


def _svg(
    read: str, name: str, heights: Sequence[float], draw: Callable[[Sequence[Axes], bool], None], timed: bool
) -> str:
    _load()
    import matplotlib
    from matplotlib.figure import Figure

    ink, line = COLOURS["text"], COLOURS["line"]
    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": f"{name} {read}",
        "font.size": 12,
        "text.color": ink,
        "text.parse_math": False,
        "axes.edgecolor": line,
        "axes.labelcolor": ink,
        "axes.linewidth": 1,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": line,
        "ytick.color": line,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
        "grid.color": line,
        "timezone": "UTC",
    }
    is_wide = name == "wide"
    room = 42
    with matplotlib.rc_context(settings):
        height = sum(heights) + 14 * len(heights) + room
        made: Figure = Figure(figsize=(_SIZES[name] / 72, height / 72))
        left = 150 if is_wide else 86
        grid = made.add_gridspec(
            len(heights),
            1,
            height_ratios=heights,
            left=left / _SIZES[name],
            right=1 - 14 / _SIZES[name],
            top=1 - 16 / height,
            bottom=room / height,
            hspace=14 / (sum(heights) / len(heights)),
        )
        axes = [made.add_subplot(grid[0])]
        axes += [made.add_subplot(grid[row], sharex=axes[0]) for row in range(1, len(heights))]
        draw(axes, is_wide)
        for one in axes[:-1]:
            one.tick_params(axis="x", labelbottom=False, length=0)
        if timed:
            _set_time_axis(axes[-1], 9 if is_wide else 4)
        return _inline(made, read, name)


@cache
def _load() -> None:
    """Import matplotlib, without its messages about fonts and its files in the temporary directory."""
    # Text stays text: a font of the reader may have characters that this machine's lacks.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    before = os.environ.get(_CONFIGURATION)
    importlib.import_module("matplotlib.figure")
    made = os.environ.get(_CONFIGURATION)
    if made is not None and made != before:
        # The home directory cannot be written. Processes that leave early would not take this one away.
        shutil.rmtree(made, ignore_errors=True)
        del os.environ[_CONFIGURATION]


def _set_time_axis(plot: Axes, most: int) -> None:
    from matplotlib import dates
    from matplotlib.ticker import MaxNLocator

    of: Any = dates
    first, last = plot.get_xlim()
    if first < _CALENDAR_DAYS[0] or last > _CALENDAR_DAYS[1]:
        plot.xaxis.set_major_locator(MaxNLocator(nbins=most))
        plot.xaxis.set_major_formatter(lambda value, _: f"{value * DAY_MS:.0f} ms")
        return
    locator = of.AutoDateLocator(tz=UTC, minticks=2, maxticks=most)
    plot.xaxis.set_major_locator(locator)
    plot.xaxis.set_major_formatter(of.ConciseDateFormatter(locator, tz=UTC))


def set_number_axis(plot: Axes) -> None:
    """A few whole numbers on the vertical axis, none in the form 1e6."""
    from matplotlib.ticker import MaxNLocator

    plot.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    plot.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}".replace(",", " "))


def _inline(made: Figure, read: str, name: str) -> str:
    import warnings

    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    # The text is matplotlib's own, made a moment ago: nobody else's XML is parsed here.
    root = ElementTree.fromstring(buffer.getvalue())
    inner = "".join(_element(child) for child in root)
    size = _attributes({"viewBox": root.get("viewBox", "")})
    return f'<svg {size} class="plot {name}" role="img" aria-label="{escape(read)}">{inner}</svg>'


def _element(element: Any) -> str:
    tag = _NAMESPACE.sub("", element.tag)
    if tag in ("metadata", "style"):
        return ""
    attributes = {_NAMESPACE.sub("", key): value for key, value in element.attrib.items()}
    classes = []
    for part in attributes.pop("style", "").split(";"):
        key, _, value = (text.strip() for text in part.partition(":"))
        if key in ("fill", "stroke") and value in _CLASSES:
            classes.append(f"{key}-{_CLASSES[value]}")
        elif key in _KEPT or (key in ("fill", "stroke") and value == "none"):
            attributes[key] = value
    if classes:
        attributes["class"] = " ".join(classes)
    inner = escape((element.text or "").strip()) + "".join(_element(child) for child in element)
    if not inner and tag in ("g", "defs", "text"):
        return ""
    if tag == "g":
        attributes.pop("id", None)
    return f"<{tag} {_attributes(attributes)}>{inner}</{tag}>"


def _attributes(attributes: dict[str, str]) -> str:
    return " ".join(f'{key}="{escape(value)}"' for key, value in attributes.items())
