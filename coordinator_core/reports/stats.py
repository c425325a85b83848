"""Output of ``regroup stats``: origin of the bytes of an offsets log, and what blocks its cleaning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from coordinator_core.lifecycle.forensics import PartitionForensics, Total
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.untrusted import visible

Json = dict[str, Any]
_MISSING = "-"


def stats_document(
    partitions: Sequence[PartitionForensics], *, profile: str, now_ms: int, group_ids: Collection[str] | None
) -> Json:
    """The JSON of ``regroup stats``. ``groups``, ``topics`` and ``clients`` come heaviest first, of the given
    groups only where ``group_ids`` is set."""

    def wanted(group_id: str | None) -> bool:
        return group_ids is None or group_id in group_ids

    return {
        "profile": profile,
        "now_ms": now_ms,
        "partitions": [_partition(item) for item in partitions],
        "groups": _heaviest(
            {"offsets_partition": item.offsets_partition, "group_id": group_id} | _total(total)
            for item in partitions
            for group_id, total in item.totals.groups.items()
            if wanted(group_id)
        ),
        "topics": _heaviest(
            {"offsets_partition": item.offsets_partition, "group_id": group_id, "topic": topic} | _total(total)
            for item in partitions
            for (group_id, topic), total in item.totals.topics.items()
            if wanted(group_id)
        ),
        "clients": _heaviest(
            {"offsets_partition": item.offsets_partition, "group_id": group_id, "client_id": client_id} | _total(total)
            for item in partitions
            for (group_id, client_id), total in item.totals.clients.items()
            if wanted(group_id)
        ),
        "record_types": [
            {"offsets_partition": item.offsets_partition, "key_type": key_type, "name": _type_name(key_type)}
            | _total(total)
            for item in partitions
            for key_type, total in sorted(item.totals.types.items(), key=lambda pair: _rank(pair[0]))
        ],
    }


def _partition(item: PartitionForensics) -> Json:
    cleaner = item.cleaner
    return {
        "offsets_partition": item.offsets_partition,
        "log_start_offset": item.log_start_offset,
        "log_end_offset": item.log_end_offset,
        "last_stable_offset": item.last_stable_offset,
        **asdict(item.size),
        "compacted": asdict(item.compacted),
        "cleaner": {
            "first_dirty_offset": cleaner.first_dirty_offset,
            "first_uncleanable_offset": cleaner.first_uncleanable_offset,
            "clean_bytes": cleaner.clean_bytes,
            "cleanable_bytes": cleaner.cleanable_bytes,
            "dirty_ratio": round(cleaner.dirty_ratio, 6),
            "blockers": [asdict(blocker) | {"kind": str(blocker.kind)} for blocker in cleaner.blockers],
            "cleaned": asdict(item.cleaned),
        },
    }


def _total(total: Total) -> Json:
    rate = total.commits_per_second
    return {
        "records": total.records,
        "tombstones": total.tombstones,
        "commits": total.commits,
        "size_bytes": total.size_bytes,
        "dead_records": total.dead_records,
        "dead_bytes": total.dead_bytes,
        "commits_per_second": None if rate is None else round(rate, 3),
        "first_timestamp_ms": total.first_timestamp_ms,
        "last_timestamp_ms": total.last_timestamp_ms,
    }


def _heaviest(rows: Iterable[Json]) -> list[Json]:
    names = ("group_id", "topic", "client_id")
    return sorted(
        rows,
        key=lambda row: (
            -row["size_bytes"],
            row["offsets_partition"],
            *((row.get(name) is not None, row.get(name) or "") for name in names),
        ),
    )


def _rank(key_type: int | None) -> int:
    return -1 if key_type is None else key_type


def _type_name(key_type: int | None) -> str | None:
    known = None if key_type is None else RECORD_TYPES.get(key_type)
    return None if known is None else known.name


def stats_text(document: Json, *, top: int) -> str:
    """The partitions, what blocks their cleaning, and the ``top`` heaviest groups, topics and clients."""
    parts = [
        _table(
            "PARTITION BYTES RECORDS COMPACTED CLEANED DIRTY-RATIO LAST-STABLE LOG-END",
            [
                [
                    row["offsets_partition"],
                    row["size_bytes"],
                    row["records"],
                    f"{row['compacted']['size_bytes']} ({_share(row['compacted'], row)})",
                    f"{row['cleaner']['cleaned']['size_bytes']} ({_share(row['cleaner']['cleaned'], row)})",
                    f"{row['cleaner']['dirty_ratio']:.3f}",
                    row["last_stable_offset"],
                    row["log_end_offset"],
                ]
                for row in document["partitions"]
            ],
        )
    ]
    blockers = [
        [row["offsets_partition"], blocker["kind"], blocker["held_bytes"], blocker["detail"]]
        for row in document["partitions"]
        for blocker in row["cleaner"]["blockers"]
        # Every partition has an active segment; it is worth a line when nothing else is there to clean.
        if blocker["kind"] != "active_segment" or row["cleaner"]["cleanable_bytes"] == 0
    ]
    if blockers:
        parts += ["", _table("PARTITION BLOCKED-BY HELD-BYTES WHY", blockers)]
    for name, columns in (("groups", ()), ("topics", ("topic",)), ("clients", ("client_id",))):
        rows = document[name][:top]
        more = len(document[name]) - len(rows)
        header = ["GROUP", *(column.upper().replace("_", "-") for column in columns)]
        header += ["PARTITION", "RECORDS", "TOMBSTONES", "BYTES", "DEAD-BYTES", "COMMITS/S"]
        parts += ["", f"Heaviest {name}:" + (f" (and {more} more)" if more else "")]
        parts.append(
            _table(
                " ".join(header),
                [
                    [
                        _text(row["group_id"]),
                        *(_text(row[column]) for column in columns),
                        row["offsets_partition"],
                        row["records"],
                        row["tombstones"],
                        row["size_bytes"],
                        f"{row['dead_bytes']} ({_percent(row['dead_bytes'], row['size_bytes'])})",
                        _text(row["commits_per_second"]),
                    ]
                    for row in rows
                ],
            )
        )
    return "\n".join(parts)


def _share(part: Json, whole: Json) -> str:
    return _percent(part["size_bytes"], whole["size_bytes"])


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else _MISSING


def _text(value: object) -> str:
    return _MISSING if value is None else str(value)


def _table(header: str, rows: Sequence[Sequence[object]]) -> str:
    lines = [header.split(), *([visible(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(lines[0]))]
    return "\n".join(
        " ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
