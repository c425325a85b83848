"""Versions on their way to the table ``history``: in a temporary file, from which they come back group by group."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Rows = npt.NDArray[Any]
"""Rows of ``kernels.layout.ClosedVersion``."""

_BUCKETS = 256


class Spilled(NamedTuple):
    """Versions, all of some groups in the order in which they ended, and their metadata."""

    rows: Rows
    metadata: pa.Array


class Spill:
    """Versions in files, in buckets of groups. They lie where temporary files do, and go with the process."""

    def __init__(self) -> None:
        self._rows, self._texts = _temporary(), _temporary()
        self._ends = np.zeros((1, 2), np.int64)
        self._bounds: list[npt.NDArray[np.int64]] = []
        """By :meth:`add`: where the buckets begin in both files, and where the last one ends."""
        self._kind: np.dtype[Any] | None = None
        self.rows = np.zeros(_BUCKETS, np.int64)
        """Versions by bucket."""

    def add(self, rows: Rows, texts: pa.Array) -> None:
        """Take versions, whose ``metadata`` are numbers of ``texts``."""
        bucket = (rows["group"] % _BUCKETS).astype(np.uint8)
        rows = rows[np.argsort(bucket, kind="stable")]
        counts = np.bincount(bucket, minlength=_BUCKETS)
        first = np.concatenate(([0], np.cumsum(counts)))
        bounds = np.zeros(len(rows) + 1, np.int64)
        if rows["metadata"].any():
            of_rows = texts.take(pa.array(rows["metadata"])).cast(pa.large_binary())
            bounds = np.frombuffer(of_rows.buffers()[1], np.int64)[: len(rows) + 1]
            self._texts.write(memoryview(of_rows.buffers()[2])[: bounds[-1]])
        # Number 0 is the empty text.
        rows["metadata"] = np.diff(bounds)
        self._bounds.append(self._ends + np.stack((first * rows.itemsize, bounds[first]), axis=1))
        self._ends = self._bounds[-1][-1:]
        self._kind = rows.dtype
        self.rows += counts
        self._rows.write(rows.data)

    def portions(self, most_rows: int) -> Iterator[Spilled]:
        """All versions, some ``most_rows`` at a time, unless a bucket has more."""
        self._rows.flush()
        self._texts.flush()
        first = 0
        while first < _BUCKETS:
            stop = max(first + 1, int(np.searchsorted(np.cumsum(self.rows[first:]), most_rows, "right")) + first)
            if self.rows[first:stop].any():
                yield self._read(first, stop)
            first = stop

    def _read(self, first: int, stop: int) -> Spilled:
        rows, texts = (
            b"".join(
                os.pread(file.fileno(), int(bounds[stop, which] - bounds[first, which]), int(bounds[first, which]))
                for bounds in self._bounds
            )
            for which, file in enumerate((self._rows, self._texts))
        )
        found = np.frombuffer(rows, self._kind)
        bounds = np.concatenate(([0], np.cumsum(found["metadata"], dtype=np.int64)))
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(texts)]
        return Spilled(found, pa.LargeStringArray.from_buffers(len(found), *buffers[1:]))

    def close(self) -> None:
        """Give the files back."""
        self._rows.close()
        self._texts.close()


def _temporary() -> IO[bytes]:
    return tempfile.TemporaryFile()
