"""The bytes of whole segments, and reading the next one ahead."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import pairwise

import numpy as np

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
    """The bytes of segments, as :data:`Reads`: a ``thread`` reads the next one of a log while one is in use.

    Memory of a segment that nobody looks at any more has the next one: to clear new pages takes longer than to read.
    """

    def __init__(self, log: PartitionLog, thread: Executor) -> None:
        self._thread = thread
        self._next = dict(pairwise(log.segments))
        self._read: tuple[SegmentFile, Future[memoryview]] | None = None
        self._most = max((one.size for one in log.segments if one.size <= _MOST_AHEAD), default=0)
        self._spare: deque[memoryview] = deque()

    def __call__(self, segment: SegmentFile) -> memoryview:
        read, self._read = self._read, None
        data = read[1].result() if read is not None and read[0] is segment else self._bytes(segment)
        following = self._next.get(segment)
        if following is not None and following.size <= _MOST_AHEAD:
            self._read = following, self._thread.submit(self._bytes, following)
        return data

    def _bytes(self, segment: SegmentFile) -> memoryview:
        if segment.size > self._most or not storage.is_local(segment.path):
            return segment_bytes(segment)
        memory = self._spare.pop() if self._spare else storage.memory(self._most)
        # Every view of the bytes holds on to this array.
        array = np.asarray(memory)[: storage.read_into(segment.path, memory[: segment.size])]
        weakref.finalize(array, self._spare.append, memory)
        return memoryview(array)
