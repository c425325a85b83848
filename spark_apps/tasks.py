"""Tasks of Spark's Python workers: fold segments, merge partitions.

A task writes its results into files of the run's staging directory and answers with their names. Another attempt of
the task writes other files; only the files in the answer that Spark took count. So folds pass neither through the JVM
nor through a shuffle, and outlive the executor that made them.

Damaged input is an answer, not an exception: Spark would retry the task and bury the position in a traceback.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from typing import TypeVar

import pyarrow as pa

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.cache import cache_of_environment
from coordinator_core.fold.schema import NO_ROWS, FoldRules, SegmentFold
from coordinator_core.fold.tasks import FoldTask, SegmentResult, run_fold_task
from coordinator_core.merge.partition import merge_shard
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.merge.shards import MergedShard, combine_shards, shard_folds
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.process.interpreter import start_light
from coordinator_core.releases import Profile
from coordinator_core.runs.manifest import PartitionFacts
from coordinator_core.runs.merging import merge_partition
from coordinator_core.runs.publish import StagedTables, TableFile
from coordinator_core.runs.state_hash import TableDigests
from spark_apps.packing import Work

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True)
class FileRange:
    """Bytes of a file."""

    path: str
    position: int
    size: int

    def read(self) -> pa.Buffer:
        system, inner = storage.filesystem(self.path)
        with system.open_input_file(inner) as file:
            file.seek(self.position)
            return file.read_buffer(self.size)


@dataclass(frozen=True)
class StagedFold:
    """A result with a fold that is left without rows: they are in ``parts``, one a shard."""

    result: SegmentResult
    parts: tuple[FileRange, ...]

    @property
    def offsets_partition(self) -> int:
        return self.result.segment.offsets_partition

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.size for part in self.parts)

    def of_shard(self, shard: int) -> SegmentResult:
        """The result with the fold of one shard."""
        if self.result.fold is None:
            return self.result
        return replace(self.result, fold=SegmentFold.from_ipc(self.parts[shard].read()))


@dataclass
class Answer:
    """Answer of a task, by offsets partition.

    For partitions that it merged: ``facts``, the ``files`` with their rows, the ``digests`` of the rows. For a
    partition of which it folded a part: ``folds``. ``damage``: the first damage of each partition that could
    not be read.
    """

    facts: dict[int, PartitionFacts] = field(default_factory=dict)
    files: list[TableFile] = field(default_factory=list)
    digests: TableDigests = field(default_factory=dict)
    folds: list[StagedFold] = field(default_factory=list)
    damage: dict[int, Damage] = field(default_factory=dict)


@dataclass(frozen=True)
class ReplayTask:
    """Arguments that all tasks of a replay share."""

    profile: Profile
    now_ms: int
    staging_path: str


def lightly(function: Callable[[T], A], item: T) -> A:
    """``function`` of ``item`` in a worker, which nothing here has started unless the master is local."""
    _prepare()
    return function(item)


@cache
def _prepare() -> None:
    start_light()
    keep_freed_memory()


def fold(work: Work, rules: ReplayTask) -> Answer:
    """Fold segments and, where they are whole partitions, merge them."""
    answer = Answer()
    staged = StagedTables(rules.staging_path)
    for offsets_partition, tasks in groupby(work.tasks, key=lambda task: task.log.offsets_partition):
        try:
            results = _folded(tasks, FoldRules.of(rules.profile))
            if work.whole:
                _merge(offsets_partition, results, rules, staged, answer)
            else:
                answer.folds += [_staged(result, rules.staging_path) for result in results]
        except DamagedInputError as error:
            answer.damage[offsets_partition] = error.damage
    answer.files, answer.digests = staged.close()
    return answer


def split(folds: Sequence[StagedFold], shards: int, rules: ReplayTask) -> list[StagedFold]:
    """``folds``, each cut into ``shards``."""
    return [_staged(staged.of_shard(0), rules.staging_path, shards) for staged in folds]


def merge(folds: Sequence[StagedFold], rules: ReplayTask) -> Answer:
    """Merge the folds of one partition, given in log order."""
    answer = Answer()
    staged = StagedTables(rules.staging_path)
    results = (fold.of_shard(0) for fold in folds)
    _merge(folds[0].offsets_partition, results, rules, staged, answer)
    answer.files, answer.digests = staged.close()
    return answer


def merge_one_shard(shard: int, folds: Sequence[StagedFold], rules: ReplayTask) -> MergedShard:
    """Merge one shard of the folds of one partition, given in log order; its offsets are staged."""
    parts = (fold.of_shard(shard).fold for fold in folds)
    merged = merge_shard((part for part in parts if part is not None), rules.profile, folds[0].offsets_partition)
    return merged.stored(_new_path(rules.staging_path, "shard"))


def combine(partition: tuple[Sequence[StagedFold], Sequence[MergedShard]], rules: ReplayTask) -> Answer:
    """Combine the merged shards of one partition; its facts come from the folds."""
    folds, shards = partition
    answer = Answer()
    staged = StagedTables(rules.staging_path)
    results = (fold.result for fold in folds)
    _merge(folds[0].offsets_partition, results, rules, staged, answer, merged=lambda _: combine_shards(shards))
    answer.files, answer.digests = staged.close()
    return answer


def _folded(tasks: Iterable[FoldTask], rules: FoldRules) -> Iterator[SegmentResult]:
    cache = cache_of_environment()
    for task in tasks:
        yield from run_fold_task(task, rules, cache)


def _merge(
    offsets_partition: int,
    results: Iterator[SegmentResult],
    rules: ReplayTask,
    staged: StagedTables,
    answer: Answer,
    merged: Callable[[Iterable[SegmentFold]], MergedPartition] | None = None,
) -> None:
    tables, answer.facts[offsets_partition] = merge_partition(
        offsets_partition, results, rules.profile, now_ms=rules.now_ms, merged=merged
    )
    staged.write_tables(tables)


def _staged(result: SegmentResult, staging_path: str, shards: int = 1) -> StagedFold:
    fold = result.fold
    if fold is None:
        return StagedFold(result, ())
    parts = []
    path = _new_path(staging_path, "fold")
    system, inner = storage.filesystem(path)
    with system.open_output_stream(inner) as file:
        for part in [fold] if shards == 1 else shard_folds(fold, shards):
            position = file.tell()
            part.write_ipc(file)
            parts.append(FileRange(path, position, file.tell() - position))
    return StagedFold(replace(result, fold=replace(fold, **NO_ROWS)), tuple(parts))


def _new_path(staging_path: str, kind: str) -> str:
    return storage.join(staging_path, f"{kind}-{secrets.token_hex(8)}.arrows")
