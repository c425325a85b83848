"""What Spark's Python workers do: fold segments, merge partitions.

Damaged input is an answer, not an exception: Spark would retry the task and bury the position in a traceback.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from coordinator_core.runs.publish import StagedTables, TableFile
from coordinator_core.runs.state_hash import TableDigests

CHUNK_BYTES = 8 << 20
"""Largest piece of a fold in one row: Spark holds rows whole, in the JVM and on their way there and back."""

FOLDED = pa.schema(
    [
        pa.field("merge_task", pa.int32(), nullable=False),
        pa.field("offsets_partition", pa.int32(), nullable=False),
        pa.field("fold_task", pa.int32(), nullable=False),
        pa.field("chunk", pa.int32(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)
"""Pieces of what a :class:`FoldTask` gave: a pickled list of :class:`SegmentResult`, or :class:`Damage`."""

MERGED = pa.schema([pa.field("data", pa.binary(), nullable=False)])
"""What a merge task gave: a pickled :class:`MergedTask`."""

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class MergedTask:
    """The partitions that one task merged, their rows staged in ``files``.

    ``damage`` has the first damage of each partition that could not be merged for it.
    """

    facts: dict[int, PartitionFacts]
    damage: dict[int, Damage]
    files: list[TableFile]
    digests: TableDigests


def folder(
    tasks: Sequence[FoldTask], runs: Sequence[range], merge_task_of: Mapping[int, int], rules: FoldRules
) -> Callable[[Batches], Batches]:
    """For ``mapInArrow`` over rows whose ``id`` counts ``runs`` of ``tasks``: rows of :data:`FOLDED`.

    ``merge_task_of`` tells by offsets partition which task will merge it.
    """

    def fold(batches: Batches) -> Batches:
        for batch in batches:
            for run in batch.column("id").to_pylist():
                for number in runs[run]:
                    task = tasks[number]
                    yield from _fold_rows(number, task, merge_task_of[task.log.offsets_partition], rules)

    return fold


def _fold_rows(number: int, task: FoldTask, merge_task: int, rules: FoldRules) -> Batches:
    found: list[SegmentResult] | Damage
    try:
        found = list(run_fold_task(task, rules))
    except DamagedInputError as error:
        found = error.damage
    data = pickle.dumps(found, protocol=5)
    for chunk, start in enumerate(range(0, len(data), CHUNK_BYTES)):
        piece = data[start : start + CHUNK_BYTES]
        yield _batch(FOLDED, merge_task, task.log.offsets_partition, number, chunk, piece)


def _batch(schema: pa.Schema, *row: object) -> pa.RecordBatch:
    """A batch of one row."""
    columns = [pa.array([value], field.type) for value, field in zip(row, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def merger(profile: Profile, now_ms: int, staging_path: str) -> Callable[[Batches], Batches]:
    """For ``mapInArrow`` over whole partitions of :data:`FOLDED`, sorted: a row of :data:`MERGED`."""

    def merge(batches: Batches) -> Batches:
        merged = _merged(_rows(batches), profile, now_ms, staging_path)
        yield _batch(MERGED, pickle.dumps(merged, protocol=5))

    return merge


def _rows(batches: Batches) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _merged(rows: Iterator[dict[str, Any]], profile: Profile, now_ms: int, staging_path: str) -> MergedTask:
    staged = StagedTables(staging_path)
    facts: dict[int, PartitionFacts] = {}
    damage: dict[int, Damage] = {}
    for offsets_partition, of_partition in groupby(rows, key=itemgetter("offsets_partition")):
        found: list[Damage] = []
        tables, told = merge_partition(
            offsets_partition, _results(of_partition, found), profile, now_ms=now_ms
        )
        if found:
            damage[offsets_partition] = found[0]
        else:
            facts[offsets_partition] = told
            staged.write_tables(tables)
    return MergedTask(facts, damage, *staged.close())


def _results(rows: Iterable[dict[str, Any]], damage: list[Damage]) -> Iterator[SegmentResult]:
    """Results of a partition's fold tasks, up to the first that is damage."""
    for _, pieces in groupby(rows, key=itemgetter("fold_task")):
        found = pickle.loads(b"".join(piece["data"] for piece in pieces))
        if isinstance(found, Damage):
            damage.append(found)
        elif not damage:
            yield from found
