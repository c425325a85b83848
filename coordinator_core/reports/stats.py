"""Output of ``regroup stats``: origin of the bytes of an offsets log, and obstacles to its cleaning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from coordinator_core.jsontext import fields_of
from coordinator_core.lifecycle.forensics import PartitionForensics, Total
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.reports.text_table import MISSING, text_table

Json = dict[str, Any]


def stats_document(
    partitions: Sequence[PartitionForensics], *, profile: str, now_ms: int, group_ids: Collection[str] | None
) -> Json:
    """The JSON of ``regroup stats``. ``groups``, ``topics`` and ``clients`` come heaviest first, of the given
    groups only where ``group_ids`` is set."""

    def heaviest(name: str, *columns: str) -> list[Json]:
        return _heaviest(
            {"offsets_partition": item.offsets_partition, **dict(zip(("group_id", *columns), key, strict=True))}
            | _total(total)
            for item in partitions
            for key, total in _by_tuple(getattr(item.totals, name))
            if group_ids is None or key[0] in group_ids
        )

    return {
        "profile": profile,
        "now_ms": now_ms,
        "partitions": [_partition(item) for item in partitions],
        "groups": heaviest("groups"),
        "topics": heaviest("topics", "topic"),
        "clients": heaviest("clients", "client_id"),
        "record_types": [
            {"offsets_partition": item.offsets_partition, "key_type": key_type, "name": _type_name(key_type)}
            | _total(total)
            for item in partitions
            for key_type, total in sorted(
                item.totals.types.items(), key=lambda pair: -1 if pair[0] is None else pair[0]
            )
        ],
    }


def _by_tuple(totals: Mapping[Any, Total]) -> Iterator[tuple[tuple[Any, ...], Total]]:
    return ((key if isinstance(key, tuple) else (key,), total) for key, total in totals.items())


def _partition(item: PartitionForensics) -> Json:
    cleaner = item.cleaner
    return {
        **fields_of(item, "offsets_partition", "log_start_offset", "log_end_offset", "last_stable_offset"),
        **asdict(item.size),
        "compacted": asdict(item.compacted),
        "cleaner": {
            **fields_of(cleaner, "first_dirty_offset", "first_uncleanable_offset", "clean_bytes", "cleanable_bytes"),
            "dirty_ratio": round(cleaner.dirty_ratio, 6),
            "blockers": [asdict(blocker) | {"kind": str(blocker.kind)} for blocker in cleaner.blockers],
            "cleaned": asdict(item.cleaned),
        },
    }


def _total(total: Total) -> Json:
    rate = total.commits_per_second
    return {
        **fields_of(total, "records", "tombstones", "commits", "size_bytes", "dead_records", "dead_bytes"),
        "commits_per_second": None if rate is None else round(rate, 3),
        **fields_of(total, "first_timestamp_ms", "last_timestamp_ms"),
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


def _type_name(key_type: int | None) -> str | None:
    known = None if key_type is None else RECORD_TYPES.get(key_type)
    return None if known is None else known.name


def stats_text(document: Json, *, top: int) -> str:
    """The partitions, obstacles to their cleaning, and the ``top`` heaviest groups, topics and clients."""
    header = "PARTITION BYTES RECORDS COMPACTED CLEANED DIRTY-RATIO LAST-STABLE LOG-END"
    lines = text_table(header, map(_partition_row, document["partitions"]))
    blockers = [
        [row["offsets_partition"], blocker["kind"], blocker["held_bytes"], blocker["detail"]]
        for row in document["partitions"]
        for blocker in row["cleaner"]["blockers"]
        # Every partition has an active segment; it is worth a line when nothing else is there to clean.
        if blocker["kind"] != "active_segment" or row["cleaner"]["cleanable_bytes"] == 0
    ]
    if blockers:
        lines += ["", *text_table("PARTITION BLOCKED-BY HELD-BYTES WHY", blockers)]
    for name, columns in (("groups", ()), ("topics", ("topic",)), ("clients", ("client_id",))):
        rows = document[name][:top]
        more = len(document[name]) - len(rows)
        header = " ".join(["GROUP", *(column.upper().replace("_", "-") for column in columns)])
        lines += ["", f"Heaviest {name}:" + (f" (and {more} more)" if more else "")]
        shown = ("group_id", *columns, "offsets_partition", "records", "tombstones", "size_bytes")
        lines += text_table(
            f"{header} PARTITION RECORDS TOMBSTONES BYTES DEAD-BYTES COMMITS/S",
            (
                [
                    *(row[column] for column in shown),
                    f"{row['dead_bytes']} ({_percent(row['dead_bytes'], row['size_bytes'])})",
                    row["commits_per_second"],
                ]
                for row in rows
            ),
        )
    return "\n".join(lines)


def _partition_row(row: Json) -> list[object]:
    cleaner = row["cleaner"]
    return [
        *(row[name] for name in ("offsets_partition", "size_bytes", "records")),
        *(
            f"{part['size_bytes']} ({_percent(part['size_bytes'], row['size_bytes'])})"
            for part in (row["compacted"], cleaner["cleaned"])
        ),
        f"{cleaner['dirty_ratio']:.3f}",
        *(row[name] for name in ("last_stable_offset", "log_end_offset")),
    ]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else MISSING
