"""The bytes of whole segments, and reading the next one ahead."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import pairwise

from coordinator_core import storage
from coordinator_core.log.types import PartitionLog, SegmentFile

Reads = Callable[[SegmentFile], memoryview]
"""Gives the bytes of a segment, fewer when the file is shorter. Raises ``UsageError`` when it cannot be read."""

_MOST_AHEAD = 1 << 27
"""Bytes of a segment that is read ahead: Kafka's default is 100 MiB."""


def segment_bytes(segment: SegmentFile) -> memoryview:
    """The bytes of a segment, as :data:`Reads`."""
    return storage.read(segment.path, segment.size)


class ReadAhead:
    """The bytes of segments, as :data:`Reads`: a ``thread`` reads the next one of a log while one is in use."""

    def __init__(self, log: PartitionLog, thread: Executor) -> None:
        self._thread = thread
        self._next = dict(pairwise(log.segments))
        self._read: tuple[SegmentFile, Future[memoryview]] | None = None

    def __call__(self, segment: SegmentFile) -> memoryview:
        read, self._read = self._read, None
        data = read[1].result() if read is not None and read[0] is segment else segment_bytes(segment)
        following = self._next.get(segment)
        if following is not None and following.size <= _MOST_AHEAD:
            self._read = following, self._thread.submit(segment_bytes, following)
        return data
