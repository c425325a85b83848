"""Versions on their way to the table ``history``: in a temporary file, from which they come back group by group."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedRandom
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.fold.gathering import spread_columns
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.packed import cuts

Rows = npt.NDArray[Any]
"""Rows of ``kernels.layout.ClosedVersion``."""
Columns = Mapping[str, npt.NDArray[Any]]
"""Its fields, each an array."""

_BUCKETS = 256
_WHOLE_BYTES = 256 << 20
"""Metadata up to this size are read at once; of larger ones a table has as many as go into a block."""


class Texts:
    """Metadata of versions: ``lengths`` (int32, bytes), one a version.

    They lie one behind the other in ``stretches`` of the spilled file: each begins at a place, for so many versions.
    """

    def __init__(
        self, file: BufferedRandom, lengths: npt.NDArray[np.int32], stretches: Sequence[tuple[int, int]]
    ) -> None:
        self._lengths = lengths
        self._file = file
        self._whole = self._places = None
        self._size = int(lengths.sum(dtype=np.int64))
        ends = np.cumsum([count for _, count in stretches])
        parts = [_bounds(part) for part in np.split(lengths, ends[:-1])] if self._size else []
        if 0 < self._size <= _WHOLE_BYTES:
            data = b"".join(self._read(start, part[-1]) for (start, _), part in zip(stretches, parts, strict=True))
            buffers = pa.py_buffer(_bounds(lengths)), pa.py_buffer(data)
            self._whole = pa.LargeStringArray.from_buffers(len(lengths), *buffers)
        elif self._size:
            self._places = np.concatenate(
                [start + part[:-1] for (start, _), part in zip(stretches, parts, strict=True)]
            )

    def take(self, order: Int64s) -> Iterator[tuple[slice, pa.Array]]:
        """Texts (string) of the versions in an order, so many at a time as go into a block, with their range in it."""
        if not self._size:  # Most logs have none.
            none = pa.py_buffer(np.zeros(len(order) + 1, np.int32)), pa.py_buffer(b"")
            yield slice(0, len(order)), pa.StringArray.from_buffers(len(order), *none)
            return
        lengths = self._lengths[order].astype(np.int64)
        for part in cuts(lengths):
            yield part, self._taken(order[part], lengths[part])

    def _taken(self, rows: Int64s, lengths: Int64s) -> pa.Array:
        if self._whole is not None:
            return self._whole.take(pa.array(rows)).cast(pa.string())
        assert self._places is not None
        data = b"".join(map(self._read, self._places[rows].tolist(), lengths.tolist()))
        bounds = _bounds(lengths).astype(np.int32)
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(bounds), pa.py_buffer(data))

    def _read(self, place: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, place)


def _bounds(lengths: npt.NDArray[Any]) -> Int64s:
    """Where each of the items that lie one behind the other begins, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


class Spilled(NamedTuple):
    """Versions, all of some groups in the order in which they ended, and their metadata."""

    columns: Columns
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
        # Of a structured array numpy would copy field after field.
        words = rows.view(np.int64).reshape(len(rows), -1)
        rows = words.take(np.argsort(bucket, kind="stable"), axis=0).view(rows.dtype).reshape(-1)
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
        rows = np.empty(int(self.rows[first:stop].sum()), self._kind)
        data, used, stretches = rows.view(np.uint8).data, 0, []
        for bounds in self._bounds:
            (begin, text), (end, _) = bounds[first].tolist(), bounds[stop].tolist()
            self._rows.seek(begin)
            self._rows.readinto(data[used : used + end - begin])
            used += end - begin
            stretches.append((text, (end - begin) // rows.itemsize))
        columns = spread_columns(rows)
        return Spilled(columns, Texts(self._texts, columns["metadata"], stretches))

    def close(self) -> None:
        """Give the files back."""
        self._rows.close()
        self._texts.close()


def _temporary() -> BufferedRandom:
    return tempfile.TemporaryFile()
