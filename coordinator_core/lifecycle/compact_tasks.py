"""Work on one offsets partition as tasks: who calls them, how much each takes, and folds that pass between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from coordinator_core import storage
from coordinator_core.file_ranges import FileRange
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.segments import fold_segment, forget_folds
from coordinator_core.fold.tasks import Range, packed
from coordinator_core.lifecycle.compact_scan import ranges_to_scan
from coordinator_core.lifecycle.compact_states import Alike, merged_shards
from coordinator_core.log.types import PartitionLog
from coordinator_core.merge.cuts import CutFolds, cut_folds, folds_in
from coordinator_core.merge.shards import MergedShard, store_rows
from coordinator_core.releases import Profile
from coordinator_core.runs.table_directory import message_path

T = TypeVar("T")
R = TypeVar("R")


class Run(Protocol):
    """Calls a function for each item, anywhere; raises the error of the first item that has one."""

    def __call__(self, function: Callable[[T], R], items: Sequence[T], /) -> list[R]: ...


@dataclass(frozen=True)
class PartSizes:
    """Bytes that one task takes: of segments that it reads, of stored newest records, and of folds that it merges."""

    segments: int = 64 << 20
    newest: int = 96 << 20
    folds: int = 96 << 20


@dataclass(frozen=True)
class Tasks:
    """Where the steps of one offsets partition are done, and how much each takes; ``directory`` is that of the output,
    in which messages between tasks are staged."""

    offsets_partition: int
    directory: str
    run: Run
    sizes: PartSizes

    def parts_of(self, log: PartitionLog) -> list[list[Range]]:
        """The segments of a log, some for each task."""
        ranges = ranges_to_scan(log)
        parts = packed([segment.size for segment, _ in ranges], self.sizes.segments)
        return [ranges[part.start : part.stop] for part in parts]

    def folds(self, log: PartitionLog, rules: FoldRules, *, check_crc: bool) -> list[StoredFold]:
        """Folds of all segments, in log order. Raises :class:`DamagedInputError`."""
        head = replace(log, segments=())
        fold = partial(_fold, log=head, rules=rules, check_crc=check_crc, directory=self.directory)
        return [stored for answer in self.run(fold, self.parts_of(log)) for stored in answer]

    def shards_for(self, folds: Sequence[StoredFold]) -> int:
        """The number of shards in which these folds are merged."""
        return max(1, -(-sum(fold.place.size for fold in folds) // self.sizes.folds))

    def cut(self, folds: Sequence[StoredFold], shards: int) -> list[list[FileRange]]:
        """Where the parts of each shard are."""
        parts = packed([fold.place.size for fold in folds], self.sizes.folds)
        cut = partial(_cut, offsets_partition=self.offsets_partition, shards=shards, directory=self.directory)
        cuts = self.run(cut, [[fold.place for fold in folds[part.start : part.stop]] for part in parts])
        return [[one.shards[number] for one in cuts] for number in range(shards)]


@dataclass(frozen=True)
class StoredFold:
    """A fold in a file, and the key types and value versions of its commits."""

    place: FileRange
    versions: frozenset[tuple[int, int | None]]


def _fold(
    ranges: Sequence[Range], log: PartitionLog, rules: FoldRules, check_crc: bool, directory: str
) -> list[StoredFold]:
    path = message_path(directory, "fold")
    start = log.log_start_offset or 0
    stored = []
    with storage.output_file(path) as file:
        for segment, end in ranges:
            for fold in fold_segment(segment, rules=rules, start_offset=start, end_offset=end, check_crc=check_crc):
                position = file.tell()
                fold.write_ipc(file)
                place = FileRange(path, position, file.tell() - position)
                stored.append(StoredFold(place, frozenset(fold.counts.commits)))
    return stored


def _cut(places: Sequence[FileRange], offsets_partition: int, shards: int, directory: str) -> CutFolds:
    forget_folds()
    contents = (place.read() for place in places)
    return cut_folds(offsets_partition, contents, shards, message_path(directory, "shards"))


def merged_in_files(
    places: Iterable[FileRange],
    members: Sequence[Alike],
    main: Profile,
    offsets_partition: int,
    allowance: int,
    directory: str,
) -> dict[Alike, MergedShard]:
    """The same as ``compact_states.merged_shards`` of the folds in these places, with committed offsets in a file: of
    two sides that are compared, those of one are in memory at a time."""
    forget_folds()
    shards = merged_shards(folds_in(places), members, main, offsets_partition, allowance)
    first = shards[members[0]]
    offsets = store_rows(first.offsets, message_path(directory, "offsets"))
    return shards | {members[0]: replace(first, offsets=offsets)}
