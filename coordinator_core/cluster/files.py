"""The segment files of one captured partition, as a broker lays them out, and their properties."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from coordinator_core.cluster.chunks import Chunk, Column, DamagedBatchError, split
from coordinator_core.errors import UsageError
from coordinator_core.fold.pin import segment_fingerprint
from coordinator_core.log.segments import DEFAULT_SEGMENT_BYTES, segment_name
from coordinator_core.log.types import SegmentFile
from coordinator_core.untrusted import whole_number

_SCAN_BYTES = 16 << 20


@dataclass
class Segment:
    """A segment file: base offset, bytes, the offset behind its last batch, and its fingerprint."""

    base_offset: int
    size: int
    next_offset: int
    fingerprint: str | None = None

    @property
    def name(self) -> str:
        return segment_name(self.base_offset)


@dataclass(frozen=True, slots=True)
class Sample:
    """A batch that is held: file, position and size in bytes, base offset and the offset behind it."""

    name: str
    position: int
    size: int
    base_offset: int
    end_offset: int


class PartitionFiles:
    """Appends batches to the last segment of a partition directory, and cuts segments.

    The files of an earlier capture are read again, every CRC checked, up to the first byte that is not a whole batch:
    from there on the files are cut, however that capture ended.
    """

    def __init__(self, directory: Path, segment_bytes: int = DEFAULT_SEGMENT_BYTES) -> None:
        self.directory = directory
        self._segment_bytes = segment_bytes
        self._file: BinaryIO | None = None
        self._forget()
        directory.mkdir(parents=True, exist_ok=True)
        self._scan()

    def _forget(self) -> None:
        self.segments: list[Segment] = []
        self.epochs: list[tuple[int, int]] = []
        """Leader epochs and the base offset of the first batch of each, ascending."""
        self.batches = self.records = self.bytes = 0
        self.removed = 0
        """Offsets between the first and the last batch that no record has: the log cleaner removed them."""
        self._first: list[Sample] = []
        self._last: Sample | None = None

    @property
    def next_offset(self) -> int | None:
        """The offset behind the last batch held; ``None`` when none is."""
        return self.segments[-1].next_offset if self.batches else None

    @property
    def samples(self) -> list[Sample]:
        """Batches all over the files: the first of each piece that was added, and the last of all."""
        last = [self._last] if self._last is not None and self._last not in self._first else []
        return [*self._first, *last]

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last batch, -1 when it has none."""
        return self.epochs[-1][0] if self.epochs else -1

    def read(self, sample: Sample) -> bytes:
        with (self.directory / sample.name).open("rb") as file:
            return os.pread(file.fileno(), sample.size, sample.position)

    def append(self, chunk: Chunk, position: int) -> None:
        """Write a chunk that continues the files; ``position`` is the offset at which it was asked for."""
        while len(chunk):
            if self._file is None or self.segments[-1].size >= self._segment_bytes:
                # The header of a compressed message of format 0 or 1 lacks its first offset.
                has_first = chunk.rows[0, Column.RECORDS] >= 0
                self._roll(int(chunk.rows[0, Column.BASE_OFFSET]) if has_first else position)
            assert self._file is not None
            room = self._segment_bytes - self.segments[-1].size
            # The batch that crosses the limit still belongs to the segment.
            stop = int(np.searchsorted(np.cumsum(chunk.rows[:, Column.SIZE]), room, side="left")) + 1
            part, chunk = chunk.part(0, min(stop, len(chunk))), chunk.part(min(stop, len(chunk)), len(chunk))
            self._file.write(part.data)
            self._note(part)
            position = part.next_offset

    def check(self, base_offset: int, size: int, fingerprint: str) -> bool:
        """Whether the first ``size`` bytes of a segment are unchanged; a missing one is not."""
        for segment in self.segments:
            if segment.base_offset == base_offset and segment.size >= size:
                found = self._fingerprint(segment, size)
                if segment.size == size:
                    segment.fingerprint = found
                return found == fingerprint
        return False

    def seal(self) -> None:
        """Bring everything to the disk, and know every segment by its fingerprint."""
        self.flush()
        for segment in self.segments:
            if segment.fingerprint is None:
                segment.fingerprint = self._fingerprint(segment, segment.size)

    def _fingerprint(self, segment: Segment, size: int) -> str:
        path = str(self.directory / segment.name)
        return segment_fingerprint(SegmentFile(path, 0, segment.base_offset, size))

    def start_at(self, base_offset: int) -> None:
        """Have an empty segment where there is no batch at all, as a broker has."""
        if not self.segments:
            self._roll(base_offset)

    def _roll(self, base_offset: int) -> None:
        self.flush()
        if self.segments and self.segments[-1].size < self._segment_bytes and self.segments[-1].size:
            # Left by an earlier capture, and not full.
            self._file = (self.directory / self.segments[-1].name).open("ab")
            return
        if self.segments and not self.segments[-1].size:
            (self.directory / self.segments.pop().name).unlink()
        segment = Segment(base_offset, 0, base_offset)
        self._file = (self.directory / segment.name).open("wb")
        self.segments.append(segment)

    def _note(self, chunk: Chunk) -> None:
        rows, segment = chunk.rows, self.segments[-1]
        before = self.next_offset
        starts = segment.size + np.concatenate(([0], np.cumsum(rows[:, Column.SIZE])))
        first, self._last = (
            Sample(
                segment.name,
                int(starts[row]),
                int(rows[row, Column.SIZE]),
                int(rows[row, Column.BASE_OFFSET]),
                int(rows[row, Column.NEXT_OFFSET]),
            )
            for row in (0, len(rows) - 1)
        )
        self._first.append(first)
        known = rows[rows[:, Column.EPOCH] > self.last_epoch]
        epochs, places = np.unique(known[:, Column.EPOCH], return_index=True)
        self.epochs += [
            (int(epoch), int(known[at, Column.BASE_OFFSET])) for epoch, at in zip(epochs, places, strict=True)
        ]
        expected = int(rows[0, Column.BASE_OFFSET]) if before is None else before
        counts = rows[:, Column.RECORDS]
        spans = np.diff(rows[:, Column.NEXT_OFFSET], prepend=expected)
        self.removed += int((spans - counts)[counts >= 0].sum())
        self.batches += len(rows)
        self.records += int(counts[counts >= 0].sum())
        self.bytes += len(chunk.data)
        segment.size += len(chunk.data)
        segment.fingerprint = None
        segment.next_offset = chunk.next_offset

    def flush(self) -> None:
        """Bring everything written so far to the disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
        sync_directory(self.directory)

    def clear(self) -> None:
        """Forget everything held."""
        self.flush()
        for path in self.directory.glob("*.log"):
            path.unlink()
        self._forget()

    def cut(self, *, first_offset: int | None = None, end_offset: int | None = None) -> None:
        """Remove batches from ``end_offset`` on, and whole segments that end at or below ``first_offset``."""
        self.flush()
        if end_offset is not None:
            for segment in self.segments:
                path = self.directory / segment.name
                if segment.base_offset >= end_offset:
                    path.unlink()
                elif segment.next_offset > end_offset:
                    keep = sum(len(part.data) for part in _below(path, end_offset))
                    os.truncate(path, keep)
        if first_offset is not None:
            for segment in self.segments:
                path = self.directory / segment.name
                if segment.next_offset <= first_offset and path.exists():
                    path.unlink()
        self._forget()
        self._scan()

    def _scan(self) -> None:
        paths = sorted(self.directory.glob("*.log"))
        for index, path in enumerate(paths):
            base = whole_number(path.stem)
            if base is None or len(path.stem) != 20:
                raise UsageError(f"{path}: not a segment of a capture")
            if self.segments and base < self.segments[-1].next_offset:
                self._drop(paths[index:])
                return
            self.segments.append(Segment(base, 0, base))
            for part in _pieces(path):
                if part.rows[0, Column.BASE_OFFSET] < self.segments[-1].next_offset:
                    break
                self._note(part)
            if self.segments[-1].size < path.stat().st_size:
                os.truncate(path, self.segments[-1].size)
                self._drop(paths[index + 1 :])
                break
        if self.segments and not self.segments[-1].size and len(self.segments) > 1:
            (self.directory / self.segments.pop().name).unlink()

    @staticmethod
    def _drop(paths: list[Path]) -> None:
        for path in paths:
            path.unlink()


def _pieces(path: Path) -> Iterator[Chunk]:
    """The whole, sound batches from the beginning of a file, some megabytes at a time."""
    with path.open("rb") as file:
        position, size = 0, _SCAN_BYTES
        while True:
            data = os.pread(file.fileno(), size, position)
            try:
                chunk = split(memoryview(data))
            except DamagedBatchError as error:
                chunk = split(memoryview(data)[: error.byte_position])
            if len(chunk):
                yield chunk
                position += len(chunk.data)
                size = _SCAN_BYTES
            elif len(data) < size:
                return
            else:
                size *= 2


def _below(path: Path, end_offset: int) -> Iterator[Chunk]:
    for chunk in _pieces(path):
        stop = int(np.searchsorted(chunk.rows[:, Column.BASE_OFFSET], end_offset, side="left"))
        if stop:
            yield chunk.part(0, stop)
        if stop < len(chunk):
            return


def sync_directory(directory: Path) -> None:
    """Make created, renamed and removed names of a directory durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
