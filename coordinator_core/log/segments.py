"""Segment files as a broker loads them: ``.log`` files of bounded size, and the files that must lie beside them.

Indexes, time indexes, transaction indexes and producer snapshots are not written: a broker that misses them
reads the segment, checks every batch, and makes them (``LogLoader.recoverSegment``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from coordinator_core.log.reader import MAX_OFFSET_SPAN
from coordinator_core.log.types import OFFSETS_TOPIC, SegmentFile

LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
DEFAULT_SEGMENT_BYTES = 100 << 20
"""``offsets.topic.segment.bytes``."""


def segment_name(base_offset: int) -> str:
    """File name of a segment (``LogFileUtils.filenamePrefixFromOffset``)."""
    return f"{base_offset:020d}.log"


def partition_directory_name(offsets_partition: int) -> str:
    """Name of the directory of an offsets partition in a log directory."""
    return f"{OFFSETS_TOPIC}-{offsets_partition}"


def leader_epoch_text(epochs: Sequence[tuple[int, int]]) -> str:
    """Content of ``leader-epoch-checkpoint`` for (epoch, first offset) pairs
    (``LeaderEpochCheckpointFile``)."""
    return "".join(f"{line}\n" for line in (0, len(epochs), *(f"{epoch} {start}" for epoch, start in epochs)))


class SegmentWriter:
    """Writes batches, in offset order, into segments of at most ``segment_bytes`` (more for one larger
    batch).

    Makes ``directory``, whose parent must be there. The first segment is named ``base_offset`` unless its first batch
    is too far behind that.
    """

    def __init__(self, directory: Path, offsets_partition: int, base_offset: int, *, segment_bytes: int) -> None:
        self._directory = directory
        self._offsets_partition = offsets_partition
        self._segment_bytes = segment_bytes
        self._segments: list[SegmentFile] = []
        self._base_offset = base_offset
        self._size = 0
        self._file: BinaryIO | None = None
        directory.mkdir()

    def write(self, data: memoryview, base_offset: int, last_offset: int) -> None:
        """Append one or more whole batches that belong into the same segment."""
        if self._size and not self.has_room(len(data), last_offset):
            self._close()
            self._base_offset = base_offset
        if self._file is None:
            # Records of an old format may lie below the name of their segment: their wrapper has the last one's offset.
            self._base_offset = min(self._base_offset, base_offset)
            if last_offset - self._base_offset > MAX_OFFSET_SPAN:
                self._base_offset = base_offset
            self._file = (self._directory / segment_name(self._base_offset)).open("xb")
        self._file.write(data)
        self._size += len(data)

    def has_room(self, size: int, last_offset: int) -> bool:
        """Whether batches of ``size`` bytes, the last offset being ``last_offset``, fit the segment that is
        open."""
        return self._size + size <= self._segment_bytes and last_offset - self._base_offset <= MAX_OFFSET_SPAN

    def finish(self) -> tuple[SegmentFile, ...]:
        """Close the last segment; a log without any batch has one of no bytes."""
        if self._file is None:
            self._file = (self._directory / segment_name(self._base_offset)).open("xb")
        self._close()
        return tuple(self._segments)

    def _close(self) -> None:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        path = self._directory / segment_name(self._base_offset)
        self._segments.append(SegmentFile(str(path), self._offsets_partition, self._base_offset, self._size))
        self._file, self._size = None, 0
