"""Output of ``regroup expire``: a document, a text for people, rows for spreadsheets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from coordinator_core.durations import numbered, utc_text
from coordinator_core.jsontext import fields_of
from coordinator_core.lifecycle.plan import ExpiryPlan, Tombstone, kept_by_reason
from coordinator_core.reports.text_table import text_table

Json = dict[str, Any]

CSV_COLUMNS = (
    "status",
    "kind",
    "group_id",
    "topic",
    "partition",
    "reason",
    "base_timestamp_ms",
    "expires_at_ms",
    "offsets_partition",
    "record_offset",
    "key_hex",
)


def expiry_document(
    plans: Sequence[ExpiryPlan],
    *,
    profile: str,
    now_ms: int,
    offsets_retention_ms: int,
    partial: bool,
    group_ids: Collection[str] | None,
) -> Json:
    """The JSON of ``regroup expire``, of the given groups only where ``group_ids`` is set.

    ``tombstones`` by offsets partition, then in the order of writing; ``forecast`` by time.
    """
    forecast = [tombstone_row(item) for plan in plans for item in _chosen(plan.forecast, group_ids)]
    return {
        "profile": profile,
        "now_ms": now_ms,
        "offsets_retention_ms": offsets_retention_ms,
        "partial": partial,
        "tombstones": [tombstone_row(item) for plan in plans for item in _chosen(plan.tombstones, group_ids)],
        "forecast": sorted(forecast, key=lambda row: row["expires_at_ms"]),
        "kept": kept_by_reason(plans, group_ids),
        "failures": [
            {"offsets_partition": plan.offsets_partition, "detail": plan.failure}
            for plan in plans
            if plan.failure is not None
        ],
    }


def _chosen(tombstones: Iterable[Tombstone], group_ids: Collection[str] | None) -> Iterable[Tombstone]:
    return (item for item in tombstones if group_ids is None or item.group_id in group_ids)


def tombstone_row(tombstone: Tombstone) -> Json:
    """A tombstone as the JSON of ``regroup expire`` has it."""
    return {
        "kind": str(tombstone.kind),
        **fields_of(tombstone, "group_id", "topic", "partition"),
        "reason": str(tombstone.reason),
        **fields_of(tombstone, "base_timestamp_ms", "expires_at_ms", "offsets_partition", "record_offset"),
        "key_hex": tombstone.key.hex(),
    }


def expiry_rows(document: Json) -> list[Json]:
    """Rows with :data:`CSV_COLUMNS`: rows that are due, then rows to come."""
    return [
        {"status": status} | row
        for status, name in (("due", "tombstones"), ("forecast", "forecast"))
        for row in document[name]
    ]


def expiry_text(document: Json) -> str:
    """Two tables, of due offsets and of later ones, and how many are kept and why."""
    now_ms = document["now_ms"]
    parts = [
        f"Due at {time_text(now_ms)}, with a retention of {_span(document['offsets_retention_ms'])}: "
        f"{numbered(len(document['tombstones']), 'tombstone')}",
        *_table(document["tombstones"], now_ms),
        "",
        f"Later, if nothing else happens: {numbered(len(document['forecast']), 'tombstone')}",
        *_table(document["forecast"], now_ms),
        "",
        "Kept, offsets and groups:" if document["kept"] else "Kept: nothing else",
        *(f"  {count:>9}  {reason}" for reason, count in document["kept"].items()),
    ]
    return "\n".join(parts)


def _table(rows: Sequence[Json], now_ms: int) -> list[str]:
    if not rows:
        return []
    shown = ("offsets_partition", "group_id", "kind", "topic", "partition", "reason")
    return text_table(
        "OFFSETS-PARTITION GROUP KIND TOPIC PARTITION REASON SINCE EXPIRES ",
        (
            [
                *(row[name] for name in shown),
                None if row["base_timestamp_ms"] is None else time_text(row["base_timestamp_ms"]),
                time_text(row["expires_at_ms"]),
                _relative(row["expires_at_ms"] - now_ms),
            ]
            for row in rows
        ),
    )


def time_text(time_ms: int) -> str:
    """UTC to the second; the number itself where no calendar has it."""
    return utc_text(time_ms, "%Y-%m-%dT%H:%M:%SZ") or str(time_ms)


def _relative(span_ms: int) -> str:
    return f"in {_span(span_ms)}" if span_ms > 0 else f"{_span(-span_ms)} ago" if span_ms < 0 else "now"


def _span(span_ms: int) -> str:
    """The two largest units that matter."""
    seconds = span_ms // 1000
    units = [("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60)]
    units.append(("s", seconds % 60))
    first = next((index for index, (_, value) in enumerate(units) if value), len(units) - 1)
    return " ".join(f"{value} {unit}" for unit, value in units[first : first + 2] if value) or f"{span_ms} ms"
