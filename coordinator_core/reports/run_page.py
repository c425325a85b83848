"""The report of a run as one HTML page that needs nothing else: no script, no font, no request."""

from __future__ import annotations

from itertools import dropwhile
from typing import Any

from coordinator_core.durations import DAY_MS, MINUTE_MS, utc_text
from coordinator_core.releases import how_inferred
from coordinator_core.reports.charts import bar_chart
from coordinator_core.reports.findings import counts_text
from coordinator_core.reports.pages import byte_text, duration_text, number_text, page, time_text
from coordinator_core.reports.run_report import Document
from coordinator_core.rules.differences import ADDED, REMOVED, alone
from coordinator_core.untrusted import visible

WORDS = {
    "clean": "No findings",
    "info": "Notes only",
    "warning": "Warnings",
    "critical": "Critical findings",
}
"""The verdict in words."""

PARTITIONS = 25
"""Offsets partitions that the page shows."""

_SECTIONS = (
    ("changes", "Changes"),
    ("findings", "Findings"),
    ("lag", "Lag"),
    ("expiry", "Expiry"),
    ("weight", "Heaviest groups"),
    ("load", "Load"),
    ("activity", "Commits"),
    ("transactions", "Open transactions"),
    ("provenance", "Provenance"),
)


def run_page(report: Document) -> str:
    """The page of a document that :func:`run_report` made."""
    partitions = sorted(report["partitions"], key=lambda one: (-one["bytes"], one["offsets_partition"]))
    return page(
        "run.html",
        report=report,
        word=WORDS[report["verdict"]],
        inferred=how_inferred(is_told=report["scope"]["records"] > 0),
        counts=counts_text(report["counts"]),
        sections=_SECTIONS,
        finding_rows=_finding_rows,
        not_evaluated=[*report["not_evaluated"].items(), *report["not_applicable"].items()],
        mutes=_mutes(report),
        charts=_charts(report, partitions[:PARTITIONS]),
        expires=any(one["offsets"] for one in report["expiry"]["days"] or []) or report["expiry"]["soonest"],
        partitions=[
            (
                one["offsets_partition"],
                byte_text(one["bytes"]),
                number_text(one["records"]),
                one["load_seconds"],
            )
            for one in partitions[:PARTITIONS]
        ],
        **_change_rows(report["changes"]),
        **_group_rows(report),
    )


def _finding_rows(rule: Document) -> list[tuple[Any, ...]]:
    return [
        (
            visible(row["message"]) + (f" (muted: {visible(row['muted'])})" if row["muted"] else ""),
            _or_dash(row["group_id"]),
            _or_dash(row["offsets_partition"]),
            _or_dash(row["record_offset"]),
        )
        for row in rule["examples"]
    ]


def _mutes(report: Document) -> list[tuple[str, ...]]:
    over = [mute["rule"] + mute["until"] for mute in report["mutes_over"]]
    return [
        (
            mute["rule"],
            " ".join(f"{name} {visible(mute[name])}" for name in ("group", "topic") if mute[name]) or "all",
            visible(mute["reason"]),
            mute["until"] + (" (over)" if mute["rule"] + mute["until"] in over else ""),
        )
        for mute in report["settings"]["mutes"]
    ]


def alone_texts(changes: Document) -> list[str]:
    """What is said of offsets partitions that one of both runs has no log of."""
    before = f"run {visible(changes['previous_run_id'])}"
    sides = (("only_before", before, REMOVED), ("only_after", "this run", ADDED))
    return [alone(changes[name], run, change) for name, run, change in sides if changes[name]]


def _change_rows(changes: Document | None) -> dict[str, Any]:
    if changes is None:
        return {"change_rows": [], "changed_groups": [], "alone": []}
    kinds = ("added", "removed", "changed", "identical")
    return {
        "change_rows": [
            (name.capitalize(), *(number_text(counts[kind]) for kind in kinds))
            for name, counts in changes["counts"].items()
        ],
        "changed_groups": [
            (one["change"], visible(one["group_id"]), ", ".join(one["columns"])) for one in changes["groups"]
        ],
        "alone": alone_texts(changes),
    }


def _group_rows(report: Document) -> dict[str, Any]:
    lag = report["lag"]
    return {
        "lag_rows": []
        if lag is None
        else [
            (
                visible(one["group_id"]),
                one["status"].replace("_", " "),
                "-" if one["lag"] is None else number_text(one["lag"]),
                "-" if one["max_lag"] is None else number_text(one["max_lag"]),
                "-" if one["share_of_log"] is None else f"{one['share_of_log']:.0%}",
            )
            for one in lag["largest"]
        ],
        "soonest": [(visible(one["group_id"]), time_text(one["expires_at_ms"])) for one in report["expiry"]["soonest"]],
        "heaviest": [
            (
                visible(one["group_id"]),
                byte_text(one["bytes"]),
                byte_text(one["dead_bytes"]),
                *(number_text(one[name]) for name in ("records", "tombstones", "committed_offsets")),
            )
            for one in report["groups"]["heaviest"]
        ],
        "transactions": [
            (
                one["offsets_partition"],
                one["record_offset"],
                one["producer_id"],
                duration_text(one["age_ms"] or 0),
                number_text(one["keys"]),
                ", ".join(map(visible, one["groups"])),
            )
            for one in report["open_transactions"]
        ],
    }


def _charts(report: Document, partitions: list[Document]) -> dict[str, str]:
    days = report["expiry"]["days"] or []
    rate = report["commit_rate"]
    lagging = [one for one in (report["lag"] or {"largest": []})["largest"] if one["lag"]]
    heaviest = report["groups"]["heaviest"]
    loading = [one for one in partitions if one["load_seconds"]]
    active = list(dropwhile(lambda one: not one["committed_offsets"], report["activity"]))
    return {
        "lag": bar_chart(
            "Groups that are behind, by records",
            [(visible(one["group_id"]), one["lag"], number_text(one["lag"])) for one in lagging],
        ),
        "weight": bar_chart(
            "Bytes in the log by group; the darker end is dead",
            [(visible(one["group_id"]), one["bytes"], byte_text(one["bytes"])) for one in heaviest],
            [one["dead_bytes"] for one in heaviest],
        ),
        "expiry": bar_chart(
            "Committed offsets that expire, by day",
            [(one["day"], one["offsets"], number_text(one["offsets"])) for one in days],
        ),
        "partitions": bar_chart(
            "Seconds to load, by offsets partition",
            [
                (f"partition {one['offsets_partition']}", one["load_seconds"], f"{one['load_seconds']:g} s")
                for one in loading
            ],
        ),
        "rate": bar_chart(
            f"Commits a second, each bar {duration_text(rate['bucket_ms'] or 0)}, UTC",
            [
                (
                    _moment(one["at_ms"], rate["bucket_ms"]),
                    one["per_second"],
                    f"{one['per_second']:.3g}" if one["per_second"] else "0",
                )
                for one in rate["buckets"]
            ],
        ),
        "activity": bar_chart(
            "Committed offsets by the day of their commit",
            [
                (
                    ("to " if one["and_earlier"] else "") + one["day"],
                    one["committed_offsets"],
                    number_text(one["committed_offsets"]),
                )
                for one in active
            ],
        ),
    }


def _or_dash(value: Any) -> Any:
    return "-" if value is None else visible(value) if isinstance(value, str) else value


def _moment(value_ms: int, precision_ms: int) -> str:
    """A time as short as bars of ``precision_ms`` allow, in fourteen days."""
    form = "%m-%d" if precision_ms >= DAY_MS else "%m-%d %H:%M" if precision_ms >= MINUTE_MS else "%H:%M:%S"
    return utc_text(value_ms, form) or f"{value_ms} ms"
