"""The second half of a replay: the folds of one offsets partition to its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from coordinator_core.errors import Damage
from coordinator_core.fold.cache import FoldCache
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.fold.tasks import CacheUse, SegmentResult
from coordinator_core.groups.hashing import placement_divisor
from coordinator_core.groups.model import ConsumerGroup
from coordinator_core.jsontext import fields_of
from coordinator_core.merge.cache import merge_with_cache
from coordinator_core.merge.partition import merge_columns
from coordinator_core.merge.schema import MergedPartition, RowBlocks
from coordinator_core.releases import Profile
from coordinator_core.runs.manifest import PartitionFacts
from coordinator_core.runs.place import absolute
from coordinator_core.runs.schemas import SEGMENTS
from coordinator_core.runs.tables import OffsetTable, Row, Tables, merged_tables

Merge = Callable[[Iterable[SegmentFold]], MergedPartition]


def merge_results(
    offsets_partition: int,
    results: Iterable[SegmentResult],
    profile: Profile,
    merged: Merge | None = None,
    cache: FoldCache | None = None,
    kept: int = 0,
    allowance: int | None = None,
) -> tuple[MergedPartition, pa.Table, PartitionFacts]:
    """State of a partition, its rows of ``segments``, and facts; ``results`` must come in log order.

    ``merged`` makes the state of the folds, where that is not all to be done here; else a ``cache`` may know
    the state that most of them make, of which the first ``kept`` are there already. ``allowance`` is
    that of ``merge.partition.PartitionMerge``.
    """
    rows: list[Row] = []
    fingerprints: dict[str, str] = {}
    next_offsets: dict[str, int] = {}
    damage: list[Damage] = []
    cache_uses: Counter[CacheUse] = Counter()

    def with_folds() -> Iterator[SegmentResult]:
        for result in results:
            segment, fold = result.segment, result.fold
            row = _segment_row(result)
            rows.append(_joined(rows.pop(), row) if rows and rows[-1]["path"] == row["path"] else row)
            fingerprints[segment.path] = result.fingerprint
            damage.extend(result.damage)
            cache_uses[result.cache_use] += result.is_last
            if fold is not None:
                if fold.next_offset is not None:
                    next_offsets[segment.path] = fold.next_offset
                yield result

    # The merge may stop at a fold that a loader would not get past; damage behind it is listed all the same.
    remaining = with_folds()
    folds = (result.fold for result in remaining if result.fold is not None)
    if merged is not None:
        state = merged(folds)
    elif cache is not None:
        state = merge_with_cache(remaining, profile, offsets_partition, cache, kept, allowance)
    else:
        state = merge_columns(folds, profile, offsets_partition, allowance)
    for _ in remaining:
        pass
    facts = PartitionFacts(
        fingerprints=fingerprints,
        next_offsets=next_offsets,
        damage=damage,
        load_failures=len(state.load_failures),
        carried_records=len(state.carried),
        cache_uses=cache_uses,
    )
    return state, pa.Table.from_pylist(rows, schema=SEGMENTS.arrow), facts


def merge_partition(
    offsets_partition: int,
    results: Iterable[SegmentResult],
    profile: Profile,
    *,
    now_ms: int,
    merged: Merge | None = None,
) -> tuple[dict[str, pa.Table | RowBlocks], PartitionFacts]:
    """All tables of a partition, and its facts; arguments as for :func:`merge_results`."""
    state, segments, facts = merge_results(offsets_partition, results, profile, merged)
    tables, facts = group_tables(state, facts, now_ms=now_ms)
    return {"offsets": OffsetTable(state), **tables, SEGMENTS.name: segments}, facts


def group_tables(merged: MergedPartition, facts: PartitionFacts, *, now_ms: int) -> tuple[Tables, PartitionFacts]:
    """The tables of a merged partition, all but ``offsets`` and ``segments``; its facts with those of the groups: how
    many offsets partitions there are, and names of topics."""
    tables = merged_tables(merged, now_ms=now_ms)
    consumer_groups = (group for group in merged.groups.values() if isinstance(group, ConsumerGroup))
    names = {topic_id: name for group in consumer_groups for topic_id, name in group.topic_names.items()}
    placement = placement_divisor(tables["groups"]["group_id"].to_pylist(), merged.offsets_partition)
    return tables, replace(facts, placement=placement, topic_names=names)


def _segment_row(result: SegmentResult) -> Row:
    segment, fold = result.segment, result.fold
    row: Row = {
        "offsets_partition": segment.offsets_partition,
        "path": absolute(segment.path),
        "base_offset": segment.base_offset,
        "size_bytes": segment.size,
        "fingerprint": result.fingerprint,
        "crc_errors": sum(found.kind == "bad_crc" for found in result.damage),
        "damaged_places": sum(found.kind != "not_read" for found in result.damage),
    }
    if fold is None:
        return row | {"batches": 0, "records": 0, "control_records": 0, "codecs": [], "formats": []}
    counts = fold.counts
    return row | {
        "record_offset": fold.first_offset,
        "next_offset": fold.next_offset,
        **fields_of(counts, "batches", "records", "control_records"),
        "first_timestamp_ms": _timestamp(counts.min_timestamp_ms),
        "last_timestamp_ms": _timestamp(counts.max_timestamp_ms),
        "codecs": sorted(counts.codecs),
        "formats": sorted(counts.formats),
    }


def _joined(row: Row, later: Row) -> Row:
    """The row of a segment of which ``later`` tells the rest."""
    parts = [part for part in (row, later) if part["records"] > part["control_records"]]
    first, last = ([part[name] for part in parts] for name in ("first_timestamp_ms", "last_timestamp_ms"))
    return later | {
        **{name: row[name] + later[name] for name in ("batches", "records", "control_records")},
        **{name: sorted({*row[name], *later[name]}) for name in ("codecs", "formats")},
        "record_offset": row.get("record_offset"),
        "next_offset": later.get("next_offset") or row.get("next_offset"),
        "first_timestamp_ms": None if None in first else min(first, default=None),
        "last_timestamp_ms": max((time for time in last if time is not None), default=None),
    }


def _timestamp(timestamp_ms: int | None) -> int | None:
    """Message format 0 has no timestamps, which reads as -1."""
    return None if timestamp_ms is None or timestamp_ms < 0 else timestamp_ms
