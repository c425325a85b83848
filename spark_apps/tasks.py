"""Tasks of Spark's Python workers: fold segments, merge partitions.

A task writes its results into files of a staging directory and answers with their names; tables it moves to where they
belong as the last it does. Another attempt of the task writes other files; only the files in the answer
that Spark took count. So folds and rows pass neither through the JVM nor through a shuffle, and outlive the executor
that made them. A task is sent its own input and no more: its size does not grow with the number of segments.

Damaged input is an answer, not an exception: Spark would retry the task and bury the position in a traceback.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, groupby
from typing import ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError, ExitCode, RegroupError, WriteError, not_written
from coordinator_core.file_ranges import FileRange
from coordinator_core.fold.cache import cache_of_environment
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.fold.tasks import FoldTask, SegmentResult, in_runs, run_fold_task
from coordinator_core.log.limits import MIB, Limits
from coordinator_core.merge.cuts import CutFolds, cut_folds, folds_in
from coordinator_core.merge.partition import merge_shard
from coordinator_core.merge.shards import StoredShard, combine_shards
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.process.interpreter import start_light
from coordinator_core.releases import Profile
from coordinator_core.runs.merging import Merge
from coordinator_core.runs.table_directory import message_path
from spark_apps.packing import MAX_FOLD_BYTES, Work

LIMITS = Limits(fold_bytes=128 * MIB)
"""Of a larger segment a task makes several folds, one after the other; smaller ones it folds together, as long as that
holds no more: docs/sizing.md has the memory that it takes."""

MAX_READ_BYTES = 8 * MIB
"""Folds that stand one behind the other in a file are read together up to this size."""

MAX_HELD_BYTES = 64 * MIB
"""Folds of a whole partition that are merged by the task that made them; more are merged by other tasks."""

T = TypeVar("T")
A = TypeVar("A")
F = TypeVar("F")
W = TypeVar("W")
F_co = TypeVar("F_co", covariant=True)
W_co = TypeVar("W_co", covariant=True)


@dataclass(frozen=True)
class StagedFold:
    """The result of a segment, whose fold is in a file; nothing that grows with the segment."""

    result: SegmentResult
    place: FileRange | None
    """``None``: there is no fold."""

    @property
    def offsets_partition(self) -> int:
        return self.result.segment.offsets_partition

    @property
    def size(self) -> int:
        """Bytes."""
        return 0 if self.place is None else self.place.size


@dataclass
class Answer(Generic[F, W]):
    """Answer of a task, by offsets partition.

    For partitions that it merged: ``facts``, and what it has ``written``. For a partition of which it folded a part:
    ``folds``. ``damage``: the first damage of each partition that could not be read.
    """

    facts: dict[int, F] = field(default_factory=dict)
    written: W | None = None
    folds: list[StagedFold] = field(default_factory=list)
    damage: dict[int, Damage] = field(default_factory=dict)


class Taker(Protocol[F_co, W_co]):
    """Takes the partitions that a task merges, and puts them where they belong."""

    def take(self, offsets_partition: int, results: Iterable[SegmentResult], merged: Merge | None) -> F_co:
        """Facts of a partition; arguments as for ``runs.merging.merge_results``."""

    def close(self) -> W_co:
        """What the task has written."""


@dataclass(frozen=True)
class MergeTask(ABC, Generic[F, W]):
    """Arguments that all tasks share which fold and merge; ``directory`` is that of the result.

    ``columns`` of committed offsets are all that the taker asks for, in any order; ``None``: whole rows in their order.
    """

    columns: ClassVar[Sequence[str] | None] = None

    profile: Profile
    directory: str

    @abstractmethod
    def taker(self, first_partition: int) -> Taker[F, W]:
        """The taker of a task, whose first offsets partition this is."""


def attempted(function: Callable[[T], A], item: T) -> A | RegroupError:
    """``function`` of ``item`` in a worker, which nothing here has started unless the master is local.

    An error that would come again is an answer: of an exception Spark would repeat the task, and keep only the text.
    """
    _prepare()
    try:
        return function(item)
    except RegroupError as error:
        if error.exit_code == ExitCode.INTERNAL:
            raise
        return error
    except OSError as error:
        # What a task writes is output. EIO may be that of a read, and be gone on another machine.
        if error.errno != errno.EIO and isinstance(failure := not_written("output", error), WriteError):
            return failure
        raise


def taken(answer: A | RegroupError) -> A:
    """The answer of a task; raises the error that it is."""
    if isinstance(answer, RegroupError):
        raise answer
    return answer


@cache
def _prepare() -> None:
    start_light()
    keep_freed_memory()


def _forget_folds() -> None:
    """Give back what folding has left in this process: with merges on top it would exceed 1 GiB."""
    from coordinator_core.fold.segments import forget_folds

    forget_folds()


def fold(work: Work, rules: MergeTask[F, W]) -> Answer[F, W]:
    """Fold segments and, where they are whole partitions, merge them."""
    answer: Answer[F, W] = Answer()
    taker = rules.taker(work.tasks[0].log.offsets_partition)
    for offsets_partition, tasks in groupby(work.tasks, key=lambda task: task.log.offsets_partition):
        try:
            results = _folded(tasks, FoldRules.of(rules.profile))
            held, are_all = _held(results, MAX_HELD_BYTES if work.whole else 0)
            if work.whole and are_all:
                answer.facts[offsets_partition] = taker.take(offsets_partition, iter(held), None)
            else:
                answer.folds += _staged(chain(held, results), rules)
        except DamagedInputError as error:
            answer.damage[offsets_partition] = error.damage
    answer.written = taker.close()
    return answer


def _held(results: Iterator[SegmentResult], most_bytes: int) -> tuple[list[SegmentResult], bool]:
    """The first results, until their folds have more than ``most_bytes``, and whether these are all."""
    held, size = [], 0
    for result in results:
        held.append(result)
        # Of most folds there are no rows, and asking each empty column for its size takes long.
        size += result.fold.nbytes if result.fold is not None and result.fold.has_rows else 0
        if size > most_bytes:
            return held, False
    return held, True


def cut(work: tuple[Sequence[StagedFold], int], rules: MergeTask[F, W]) -> CutFolds:
    """Cut folds of one partition into so many shards; all of them are in memory together."""
    _forget_folds()
    folds, shards = work
    contents = (content for _, content in _read(folds) if content is not None)
    return cut_folds(folds[0].offsets_partition, contents, shards, message_path(rules.directory, "shards"))


def merge_one_shard(work: tuple[int, Sequence[FileRange]], rules: MergeTask[F, W]) -> StoredShard:
    """Merge one shard of a partition, whose folds stand in these places in log order."""
    _forget_folds()
    offsets_partition, places = work
    merged = merge_shard(folds_in(places), rules.profile, offsets_partition)
    return merged.stored(message_path(rules.directory, "merged"), rules.columns)


@dataclass(frozen=True)
class WholePartition:
    """Folds of a partition in log order. Of one that was cut: the ``cuts``, in log order, and the merged ``shards``."""

    folds: Sequence[StagedFold]
    cuts: Sequence[CutFolds] = ()
    shards: Sequence[StoredShard] = ()


def merge(partition: WholePartition, rules: MergeTask[F, W]) -> Answer[F, W]:
    """Merge the folds of one partition, or combine its shards; its facts then come from the heads of the folds."""
    _forget_folds()
    number = partition.folds[0].offsets_partition
    if not partition.shards:
        whole = (
            result if content is None else replace(result, fold=SegmentFold.from_ipc(content))
            for result, content in _read(partition.folds)
        )
        return _merged(number, whole, rules)
    combined = combine_shards([shard.read(rules.profile) for shard in partition.shards])
    heads = folds_in((cut.heads for cut in partition.cuts), SegmentFold.read_ipc_lazily)
    results = (
        fold.result if fold.place is None else replace(fold.result, fold=next(heads)) for fold in partition.folds
    )
    return _merged(number, results, rules, merged=lambda _: combined)


def _read(folds: Sequence[StagedFold]) -> Iterator[tuple[SegmentResult, pa.Buffer | None]]:
    """The results, each with the bytes of its fold. On an object store a read is two requests, whatever its size."""
    together: list[StagedFold] = []
    place: FileRange | None = None
    for staged in folds:
        if staged.place is not None:
            longer = staged.place if place is None else place.joined(staged.place, MAX_READ_BYTES)
            if longer is None:
                yield from _read_together(together, place)
                together, longer = [], staged.place
            place = longer
        together.append(staged)
    yield from _read_together(together, place)


def _read_together(
    folds: Iterable[StagedFold], place: FileRange | None
) -> Iterator[tuple[SegmentResult, pa.Buffer | None]]:
    """The same of folds that are all in ``place``; ``None``: there are none."""
    content, begin = (pa.py_buffer(b""), 0) if place is None else (place.read(), place.position)
    for staged in folds:
        own = staged.place
        yield staged.result, None if own is None else content.slice(own.position - begin, own.size)


def _folded(tasks: Iterable[FoldTask], rules: FoldRules) -> Iterator[SegmentResult]:
    cache = cache_of_environment()
    for task in in_runs(tasks, lambda _: MAX_FOLD_BYTES, cache):
        yield from run_fold_task(task, rules, cache, limits=LIMITS)


def _merged(
    offsets_partition: int, results: Iterator[SegmentResult], rules: MergeTask[F, W], merged: Merge | None = None
) -> Answer[F, W]:
    """Answer of a task that merges one partition."""
    taker = rules.taker(offsets_partition)
    facts = taker.take(offsets_partition, results, merged)
    return Answer({offsets_partition: facts}, taker.close())


def _staged(results: Iterable[SegmentResult], rules: MergeTask[F, W]) -> Iterator[StagedFold]:
    """The results, with their folds in one file."""
    path = message_path(rules.directory, "fold")
    with storage.output_file(path) as file:
        for result in results:
            place = None
            if result.fold is not None:
                position = file.tell()
                result.fold.write_ipc(file)
                place = FileRange(path, position, file.tell() - position)
            yield StagedFold(replace(result, fold=None), place)
