"""What Spark's Python workers do: fold segments, merge partitions.

Damaged input is an answer, not an exception: Spark would retry the task and bury the position in a traceback.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.replay.fold import FoldRules
from coordinator_core.replay.profiles import Profile
from coordinator_core.runs.folding import FoldTask, SegmentResult, run_fold_task
from coordinator_core.runs.manifest import PartitionFacts
from coordinator_core.runs.merging import merge_partition
from coordinator_core.runs.publish import TableFile, write_staged
from coordinator_core.runs.state_hash import TableDigests

CHUNK_BYTES = 8 << 20
"""Largest piece of a fold in one row: Spark holds rows whole, in the JVM and on their way there and back."""

FOLDED = pa.schema(
    [
        pa.field("offsets_partition", pa.int32(), nullable=False),
        pa.field("task", pa.int64(), nullable=False),
        pa.field("chunk", pa.int32(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""Pieces of what a fold task found: a pickled list of :class:`SegmentResult`, or :class:`Damage`."""

MERGED = pa.schema(
    [
        pa.field("offsets_partition", pa.int32(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""What became of a partition: a pickled :class:`MergedPartition`, or :class:`Damage`."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class MergedPartition:
    """A merged partition whose rows are staged."""

    facts: PartitionFacts
    files: list[TableFile]
    digests: TableDigests


def folder(tasks: Sequence[FoldTask], rules: FoldRules) -> Callable[[Batches], Batches]:
    """For ``mapInArrow`` over rows whose ``id`` counts ``tasks``: rows of ``FOLDED``."""

    def fold(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield from _fold_rows(number, tasks[number], rules)

    return fold


def _fold_rows(number: int, task: FoldTask, rules: FoldRules) -> Batches:
    found: list[SegmentResult] | Damage
    try:
        found = list(run_fold_task(task, rules))
    except DamagedInputError as error:
        found = error.damage
    data = pickle.dumps(found, protocol=5)
    for chunk, start in enumerate(range(0, len(data), CHUNK_BYTES)):
        piece = data[start : start + CHUNK_BYTES]
        row = [task.log.offsets_partition], [number], [chunk], [piece]
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(row, FOLDED, strict=True)], schema=FOLDED
        )


def merger(profile: Profile, now_ms: int, staging_path: str) -> Callable[[Batches], Batches]:
    """For ``mapInArrow`` over rows of ``FOLDED``, sorted, whole partitions: rows of ``MERGED``."""

    def merge(batches: Batches) -> Batches:
        for offsets_partition, rows in groupby(_rows(batches), key=itemgetter("offsets_partition")):
            merged = _merge_rows(offsets_partition, rows, profile, now_ms, staging_path)
            yield pa.RecordBatch.from_arrays(
                [pa.array([offsets_partition], pa.int32()), pa.array([pickle.dumps(merged)], pa.binary())],
                schema=MERGED,
            )

    return merge


def _rows(batches: Batches) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _merge_rows(
    offsets_partition: int,
    rows: Iterable[dict[str, Any]],
    profile: Profile,
    now_ms: int,
    staging_path: str,
) -> MergedPartition | Damage:
    damage: list[Damage] = []

    def results() -> Iterator[SegmentResult]:
        for _, pieces in groupby(rows, key=itemgetter("task")):
            found = pickle.loads(b"".join(piece["data"] for piece in pieces))
            if isinstance(found, Damage):
                damage.append(found)
            elif not damage:
                yield from found

    tables, facts = merge_partition(offsets_partition, results(), profile, now_ms=now_ms)
    if damage:
        return damage[0]
    files, digests = write_staged(staging_path, tables)
    return MergedPartition(facts, files, digests)
