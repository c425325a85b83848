"""Common parts of targets: bytes as files and arrays, and reports of wrong results."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import numpy as np

from coordinator_core import storage
from coordinator_core.kernels.arrays import Bytes
from coordinator_core.log.layout import LAST_OFFSET
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import PartitionLog, SegmentFile

LIMITS = Limits(
    max_batch_bytes=1 << 20,
    max_decompressed_bytes=1 << 20,
    decompressed_floor_bytes=1 << 17,
    kept_floor_bytes=1 << 10,
    kept_ratio=1,
)
"""Small ones, so that inputs meet them."""

PATH = "segment"


class WrongResultError(AssertionError):
    """A result is not what it must be."""


def require_equal(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise WrongResultError(f"{what}:\n  found    {found}\n  expected {expected}")


@contextmanager
def file_of(*versions: bytes) -> Iterator[None]:
    """Have every file hold these bytes, each time it is opened the next version, until the last."""
    left = list(versions)

    class File(storage.LocalFile):
        def __init__(self, path: str) -> None:
            del path
            self._data = left.pop(0) if len(left) > 1 else left[0]
            self.version = storage.Version(0, 0, len(self._data), 0)

        def __exit__(self, *_: object) -> None:
            pass

        def read_into(self, out: memoryview, position: int) -> int:
            part = self._data[position : position + len(out)]
            out[: len(part)] = part
            return len(part)

    real = storage.LocalFile
    storage.LocalFile = File  # type: ignore[misc]
    try:
        yield
    finally:
        storage.LocalFile = real  # type: ignore[misc]


def array_of(data: bytes) -> Bytes:
    """A copy in memory of its own, so that the sanitizer sees who reads beyond it."""
    return np.array(np.frombuffer(data, np.uint8))


def view_of(data: bytes) -> memoryview:
    return memoryview(array_of(data))


def base_offset(data: bytes, choices: Random) -> int:
    """Base offset of the segment: that of its first batch, or 0."""
    first = struct.unpack_from(">q", data)[0] if len(data) >= 8 else 0
    return int(first) if first > 0 and choices.random() < 0.5 else 0


def log_of(data: bytes, choices: Random) -> PartitionLog:
    """A partition with this one segment."""
    segment = SegmentFile(PATH, 0, base_offset(data, choices), len(data))
    start = choices.choice((None, None, None, min(segment.base_offset + 2, LAST_OFFSET)))
    return PartitionLog(0, "", (segment,), start, clean_shutdown=choices.random() < 0.5)
