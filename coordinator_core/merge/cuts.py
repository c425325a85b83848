"""Folds of a partition in files, cut into shards (see :mod:`~merge.shards`) by one task for others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from coordinator_core import storage
from coordinator_core.file_ranges import FileRange
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.merge.shards import shard_folds


@dataclass(frozen=True)
class CutFolds:
    """Folds of one partition, cut into shards: the heads of the folds, then the parts of each shard together; all in
    log order."""

    offsets_partition: int
    path: str
    ends: tuple[int, ...]
    """End of the heads and of each shard, in bytes."""

    @property
    def heads(self) -> FileRange:
        return FileRange(self.path, 0, self.ends[0])

    @property
    def shards(self) -> list[FileRange]:
        return [FileRange(self.path, begin, end - begin) for begin, end in pairwise(self.ends)]


def cut_folds(offsets_partition: int, contents: Iterable[pa.Buffer], shards: int, path: str) -> CutFolds:
    """Cut folds into so many shards, in a file at ``path``; all of them are in memory together."""
    heads: list[pa.Buffer] = []
    parts: list[list[pa.Buffer]] = [[] for _ in range(shards)]
    for content in contents:
        source = pa.BufferReader(content)
        SegmentFold.read_ipc_lazily(source)
        heads.append(content.slice(0, source.tell()))
        for of_shard, part in zip(parts, shard_folds(SegmentFold.from_ipc(content), shards), strict=True):
            of_shard.append(part.to_ipc())
    ends = []
    with storage.output_file(path) as file:
        for buffers in (heads, *parts):
            for buffer in buffers:
                file.write(buffer)
            ends.append(file.tell())
    return CutFolds(offsets_partition, path, tuple(ends))


def folds_in(
    places: Iterable[FileRange], read: Callable[[pa.NativeFile], SegmentFold] = SegmentFold.read_ipc
) -> Iterator[SegmentFold]:
    """The folds, or parts of folds, that stand in these places."""
    for place in places:
        source = pa.BufferReader(place.read())
        while source.tell() < place.size:
            yield read(source)
