"""Versions on their way to the table ``history``: in a temporary file, from which they come back group by group."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.packed import cuts

Rows = npt.NDArray[Any]
"""Rows of ``kernels.layout.ClosedVersion``."""

_BUCKETS = 256
_WHOLE_BYTES = 256 << 20
"""Metadata up to this size are read at once; of larger ones a table has as many as go into a block."""


def in_order(rows: Rows, order: Int64s) -> Rows:
    """A copy of ``rows`` in an order. (Of a structured array numpy would copy field after field.)"""
    words = rows.view(np.int64).reshape(len(rows), -1)
    found: Rows = words.take(order, axis=0, mode="clip").view(rows.dtype).reshape(-1)
    return found


class Texts:
    """Metadata of versions: ``lengths`` (int64, bytes), one a version.

    They lie one behind the other in ``stretches`` of the spilled file, each from a place to another, with the lengths
    of the versions in it.
    """

    def __init__(self, file: IO[bytes], stretches: Sequence[tuple[int, int, Int64s]]) -> None:
        self.lengths = np.concatenate([lengths for *_, lengths in stretches])
        self._file = file
        self._whole = self._places = None
        size = sum(stop - start for start, stop, _ in stretches)
        if 0 < size <= _WHOLE_BYTES:
            data = b"".join(self._read(start, stop - start) for start, stop, _ in stretches)
            buffers = pa.py_buffer(_bounds(self.lengths)), pa.py_buffer(data)
            self._whole = pa.LargeStringArray.from_buffers(len(self.lengths), *buffers)
        elif size:
            self._places = np.concatenate([start + _bounds(lengths)[:-1] for start, _, lengths in stretches])

    def take(self, order: Int64s) -> Iterator[tuple[slice, pa.Array]]:
        """Texts (string) of the versions in an order, so many at a time as go into a block, with their range in it."""
        lengths = self.lengths[order]
        for part in cuts(lengths):
            yield part, self._taken(order[part], lengths[part])

    def _taken(self, rows: Int64s, lengths: Int64s) -> pa.Array:
        if self._whole is not None:
            return self._whole.take(pa.array(rows)).cast(pa.string())
        data = b""  # Most logs have none.
        if self._places is not None:
            data = b"".join(map(self._read, self._places[rows].tolist(), lengths.tolist()))
        bounds = _bounds(lengths).astype(np.int32)
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(bounds), pa.py_buffer(data))

    def _read(self, place: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, place)


def _bounds(lengths: Int64s) -> Int64s:
    """Where each of the items that lie one behind the other begins, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


class Spilled(NamedTuple):
    """Versions, all of some groups in the order in which they ended, and their metadata."""

    rows: Rows
    texts: Texts


class Spill:
    """Versions in files, in buckets of groups. They lie where temporary files do, and go with the process."""

    def __init__(self) -> None:
        self._rows, self._texts = _temporary(), _temporary()
        self._ends = np.zeros((1, 2), np.int64)
        self._bounds: list[Int64s] = []
        """By :meth:`add`: where the buckets begin in both files, and where the last one ends."""
        self._kind: np.dtype[Any] | None = None
        self.rows = np.zeros(_BUCKETS, np.int64)
        """Versions by bucket."""

    def add(self, rows: Rows, texts: pa.Array) -> None:
        """Take versions, whose ``metadata`` are numbers of ``texts``."""
        bucket = (rows["group"] % _BUCKETS).astype(np.uint8)
        rows = in_order(rows, np.argsort(bucket, kind="stable"))
        counts = np.bincount(bucket, minlength=_BUCKETS)
        first = np.concatenate(([0], np.cumsum(counts)))
        # Number 0 is the empty text.
        if rows["metadata"].any():
            lengths = np.diff(np.frombuffer(texts.buffers()[1], np.int64))[rows["metadata"]]
            for part in cuts(lengths):
                of_rows = texts.take(pa.array(rows["metadata"][part]))
                self._texts.write(memoryview(of_rows.buffers()[2])[: lengths[part].sum()])
            rows["metadata"] = lengths
        bounds = _bounds(rows["metadata"])
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
        parts, stretches = [], []
        for bounds in self._bounds:
            begin, end = bounds[first].tolist(), bounds[stop].tolist()
            part = np.frombuffer(os.pread(self._rows.fileno(), end[0] - begin[0], begin[0]), self._kind)
            parts.append(part)
            stretches.append((begin[1], end[1], part["metadata"].astype(np.int64)))
        return Spilled(np.concatenate(parts), Texts(self._texts, stretches))

    def close(self) -> None:
        """Give the files back."""
        self._rows.close()
        self._texts.close()


def _temporary() -> IO[bytes]:
    return tempfile.TemporaryFile()
