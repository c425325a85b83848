"""Output of ``regroup expire``: a document, a text for people, rows for spreadsheets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.jsontext import fields_of
from coordinator_core.lifecycle.expiring import REASONS, Tombstones
from coordinator_core.lifecycle.plan import ExpiryPlan, Tombstone, TombstoneKind
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
    kept: Counter[str] = Counter()
    for plan in plans:
        for group_id, counts in plan.kept.items():
            if group_ids is None or group_id in group_ids:
                kept.update({str(reason): count for reason, count in counts.items()})
    forecast = [tombstone_row(item) for plan in plans for item in _chosen(plan.forecast, group_ids)]
    return {
        "profile": profile,
        "now_ms": now_ms,
        "offsets_retention_ms": offsets_retention_ms,
        "partial": partial,
        "tombstones": [tombstone_row(item) for plan in plans for item in _chosen(plan.tombstones, group_ids)],
        "forecast": sorted(forecast, key=lambda row: row["expires_at_ms"]),
        "kept": dict(sorted(kept.items())),
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


def tombstone_lines(block: Tombstones) -> pa.Buffer:
    """JSON lines of the :func:`tombstone_row` of each, as ``json.dumps`` writes it."""
    head = '{"kind": ' + _json(str(TombstoneKind.OFFSET)) + ', "group_id": '
    place = f', "offsets_partition": {block.offsets_partition}, "record_offset": '
    reasons = pa.array([f', "reason": {_json(str(one))}, "base_timestamp_ms": ' for one in REASONS], pa.string())
    group_id, topic = map(_of_each_json, block.names)
    names = pc.binary_join_element_wise(
        *(_bytes(head), group_id, _bytes(', "topic": '), topic, _bytes(', "partition": '), _bytes(""))
    )
    keys = pc.binary_join_element_wise(_bytes(', "key_hex": "'), _hex(block.key_names()), _bytes(""))
    lines = pc.binary_join_element_wise(
        block.of_names(names),
        _digits(block.partition),
        reasons.cast(pa.binary()).take(pa.array(block.reason)),
        pc.if_else(pa.array(block.has_base), _digits(block.base_ms), _bytes("null")),
        _bytes(', "expires_at_ms": '),
        _digits(block.expires_at_ms),
        _bytes(place),
        _digits(block.record_offset),
        block.of_names(keys),
        _hex(block.key_partitions()),
        _bytes('"}\n'),
        _bytes(""),
    )
    found = block.in_order(lines, [(_json(tombstone_row(one)) + "\n").encode() for one in block.others])
    _, offsets, data = found.buffers()
    begin, end = np.frombuffer(offsets, np.int32)[[found.offset, found.offset + len(found)]].tolist()
    return data.slice(begin, end - begin)


_json = json.dumps
_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)], "S2").view(np.uint16)


def _bytes(text: str) -> pa.Scalar:
    return pa.scalar(text.encode(), pa.binary())


def _of_each_json(texts: pa.Array) -> pa.Array:
    """JSON of each text (binary), of which some may come often."""
    different = texts.dictionary_encode()
    found = [_json(text).encode() for text in different.dictionary.to_pylist()]
    return pa.array(found, pa.binary()).take(different.indices)


def _digits(numbers: Any) -> pa.Array:
    return pa.array(numbers).cast(pa.string()).cast(pa.binary())


def _hex(values: pa.Array) -> pa.Array:
    """Hexadecimal digits of each value (binary)."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    digits = _HEX[np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]] if len(values) else _HEX[:0]
    moved = ((ends - ends[0]) * 2).astype(np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(moved), pa.py_buffer(digits)])


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
        f"{_count(document['tombstones'], 'tombstone')}",
        *_table(document["tombstones"], now_ms),
        "",
        f"Later, if nothing else happens: {_count(document['forecast'], 'tombstone')}",
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


def _count(rows: Sequence[Json], what: str) -> str:
    return f"{len(rows)} {what}{'' if len(rows) == 1 else 's'}"


def time_text(time_ms: int) -> str:
    """UTC to the second; the number itself where no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def _relative(span_ms: int) -> str:
    return f"in {_span(span_ms)}" if span_ms > 0 else f"{_span(-span_ms)} ago" if span_ms < 0 else "now"


def _span(span_ms: int) -> str:
    """The two largest units that matter."""
    seconds = span_ms // 1000
    units = [("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60)]
    units.append(("s", seconds % 60))
    first = next((index for index, (_, value) in enumerate(units) if value), len(units) - 1)
    return " ".join(f"{value} {unit}" for unit, value in units[first : first + 2] if value) or f"{span_ms} ms"
