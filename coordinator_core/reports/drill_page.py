"""The report of a drill as one HTML page."""

from __future__ import annotations

import json
from typing import Any

from coordinator_core.reports.pages import duration_text, page
from coordinator_core.reports.timeline import Lane, timeline
from coordinator_core.untrusted import visible

Document = dict[str, Any]

ROWS = 200
"""Claims of a kind that the page shows; rows left out are counted, and in the JSON."""

LANES = 50
"""Offsets partitions that the timeline shows, those that were disturbed first."""

_STYLES = {"as_predicted": "clean", "misses": "warning", "incomplete": "critical"}
_SECTIONS = (
    ("misses", "Misses"),
    ("timeline", "Timeline"),
    ("claims", "Claims"),
    ("offsets", "Offsets"),
    ("journal", "Journal"),
)


def drill_page(document: Document) -> str:
    """The page of a document that :func:`~coordinator_core.reports.drill_report.drill_report` made."""
    misses = [row for row in document["rows"] if row["match"] == "miss"]
    open_ = [row for row in document["rows"] if row["match"] == "not_compared"]
    return page(
        "drill.html",
        report=document,
        verdict_style=_STYLES[document["verdict"]],
        sections=_SECTIONS,
        misses=[_claim(row) for row in misses[:ROWS]],
        misses_left_out=max(len(misses) - ROWS, 0),
        not_compared=[_claim(row) for row in open_[:ROWS]],
        not_compared_left_out=max(len(open_) - ROWS, 0),
        claims=[
            (one["of"], _words(one["what"]), one["as_predicted"], one["miss"], one["not_compared"])
            for one in document["claims"]
        ],
        partitions=[_partition(one) for one in document["partitions"]],
        backwards=[
            (
                visible(one["group_id"]),
                visible(f"{one['topic']}-{one['partition']}"),
                one["before"],
                "gone" if one["after"] is None else one["after"],
            )
            for one in document["backwards"][:ROWS]
        ],
        behind_ms=max((round(one["behind_ms"]) for one in document["behind"]), default=None),
        chart=_timeline(document),
        span=_span,
    )


def _claim(row: Document) -> tuple[Any, ...]:
    return (
        row["of"],
        visible(str(row["name"])),
        _words(row["what"]),
        _said(row["predicted"]),
        _said(row["observed"]),
    )


def _words(what: str) -> str:
    return what.removesuffix("_ms").replace("_", " ")


def _said(value: Any) -> str:
    return "-" if value is None else visible(value if isinstance(value, str) else json.dumps(value))


def _span(band: Document | None) -> str:
    """A band of milliseconds in words."""
    if band is None:
        return "-"
    if band["high"] is None:
        return f"{duration_text(round(band['low']))} or more"
    if band["low"] == band["high"]:
        return duration_text(round(band["low"]))
    return f"{duration_text(round(band['low']))} to {duration_text(round(band['high']))}"


def _partition(one: Document) -> tuple[Any, ...]:
    slowest = one["slowest_commit_ms"]
    return (
        one["offsets_partition"],
        _said(one["leader_before"]),
        _said(one["leader_after"]),
        ", ".join(map(str, one["load_ms"])) or "-",
        _span(one["outage_ms"]),
        _span(one["predicted_available_ms"]),
        "-" if slowest is None else duration_text(round(slowest)),
        _said(one["lost_records"]),
    )


def _timeline(document: Document) -> str:
    times = document["times"]
    zero: int = times["fault_at_ms"] or times["begins_ms"]

    def seconds(at_ms: int) -> float:
        return (at_ms - zero) / 1000

    chosen = sorted(document["partitions"], key=lambda one: (not one["disturbed"], one["offsets_partition"]))
    lanes = []
    for one in chosen[:LANES]:
        expected = one["predicted_available_ms"]
        high = None if expected is None else expected["low"] if expected["high"] is None else expected["high"]
        lanes.append(
            Lane(
                label=f"partition {one['offsets_partition']}",
                stretches=[
                    (each["service"], seconds(each["begins_ms"]), seconds(each["ends_ms"])) for each in one["stretches"]
                ],
                expected=None if high is None else (0.0, high / 1000),
                text=f"Offsets partition {one['offsets_partition']}: outage {_span(one['outage_ms'])}",
            )
        )
    names = {"fault_at_ms": "fault", "rollback_at_ms": "recovery begins", "restored_at_ms": "in sync again"}
    marks = [(name, seconds(times[key])) for key, name in names.items() if times[key] is not None]
    return timeline("What the canary of each offsets partition met", lanes, marks)
