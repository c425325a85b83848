"""Versions on their way to the table ``history``: packed in a temporary file, and back from there group by group."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from copy import copy
from io import BufferedRandom
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.kernels import gather, pack_versions, unpack_versions
from coordinator_core.kernels.arrays import Int64s, array_of, new_rows
from coordinator_core.kernels.layout import PACKED_VERSION_BYTES
from coordinator_core.merge.packed import cuts

Rows = npt.NDArray[Any]
"""Rows of ``kernels.layout.ClosedVersion``."""

BUCKETS = 256
_LOOKED_UP_TOGETHER = 32
_WHOLE_BYTES = 256 << 20
"""Metadata up to this size are read at once; of larger ones a table has as many as go into a block."""


class _Stretch(NamedTuple):
    """Some bytes of a file."""

    start: int
    size: int


class Texts:
    """Metadata of versions: ``lengths`` in bytes, and where each begins in the ``stretches`` of a file, end to end."""

    def __init__(self, file: BufferedRandom, starts: Int64s, lengths: Int64s, stretches: Sequence[_Stretch]) -> None:
        self._file = file
        self._starts = starts
        self._lengths = lengths
        self._size = sum(one.size for one in stretches)
        self._data: npt.NDArray[np.uint8] | None = None
        if 0 < self._size <= _WHOLE_BYTES:
            self._data = np.frombuffer(b"".join(self._read(*one) for one in stretches), np.uint8)
        elif self._size:
            begins = _bounds(np.array([one.size for one in stretches]))[:-1]
            of_each = np.searchsorted(begins, starts, "right") - 1
            self._starts = starts - begins[of_each] + np.array([one.start for one in stretches])[of_each]

    def blocks(self) -> Iterator[tuple[slice, pa.Array]]:
        """Texts (string) in their order, so many at a time as go into a block, with their range."""
        if not self._size:  # Most logs have none.
            none = pa.py_buffer(np.zeros(len(self._lengths) + 1, np.int32)), pa.py_buffer(b"")
            yield slice(0, len(self._lengths)), pa.StringArray.from_buffers(len(self._lengths), *none)
            return
        for part in cuts(self._lengths):
            yield part, self._block(self._starts[part], self._lengths[part])

    def take(self, order: Int64s) -> Texts:
        """The same texts in another order."""
        taken = copy(self)
        taken._starts, taken._lengths = self._starts[order], self._lengths[order]
        return taken

    def _block(self, starts: Int64s, lengths: Int64s) -> pa.Array:
        bounds = _bounds(lengths)
        if self._data is None:
            data: Any = b"".join(map(self._read, starts.tolist(), lengths.tolist()))
        else:
            data = np.empty(bounds[-1], np.uint8)
            gather(self._data, 0, starts, lengths, bounds, data)
        buffers = pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)
        return pa.StringArray.from_buffers(len(lengths), *buffers)

    def _read(self, place: int, size: int) -> bytes:
        return os.pread(self._file.fileno(), size, place)


def _bounds(lengths: npt.NDArray[Any]) -> Int64s:
    """Start of each of the items, which lie end to end, and the end of the last one."""
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


class _Portion(NamedTuple):
    """Versions that were put away together: where the buckets begin in both files, and where the last one ends.

    ``base`` is the one that all others differ from.
    """

    bounds: Int64s
    base: Rows


class Spill:
    """Versions in files, in buckets of groups. They lie where temporary files do, and go with the process."""

    def __init__(self) -> None:
        self._rows, self._texts = _temporary(), _temporary()
        self._ends = np.zeros(2, np.int64)
        self._portions: list[_Portion] = []
        self._room = np.empty(0, np.uint8)
        self.rows = np.zeros(BUCKETS, np.int64)
        """Versions by bucket."""

    def add(self, rows: Rows, texts: pa.Array) -> None:
        """Take versions, whose ``metadata`` are numbers of ``texts``."""
        count = len(rows)
        text_of = rows["metadata"].copy()
        # Number 0 is the empty text.
        has_texts = bool(text_of.any())
        if has_texts:
            rows["metadata"] = np.diff(np.frombuffer(texts.buffers()[1], np.int64))[text_of]
        turn, counts, starts = np.empty(count, np.int64), np.empty(BUCKETS, np.int64), np.empty(BUCKETS + 1, np.int64)
        if len(self._room) < count * PACKED_VERSION_BYTES:
            self._room = np.empty(count * PACKED_VERSION_BYTES, np.uint8)
        pack_versions(rows, count, turn, counts, starts, self._room)
        text_starts = np.zeros(BUCKETS + 1, np.int64)
        if has_texts:
            lengths = rows["metadata"][turn]
            for part in cuts(lengths):
                of_rows = texts.take(pa.array(text_of[turn[part]]))
                self._texts.write(memoryview(of_rows.buffers()[2])[: lengths[part].sum()])
            text_starts = _bounds(lengths)[_bounds(counts)]
        bounds = self._ends + np.stack((starts, text_starts), axis=1)
        self._portions.append(_Portion(bounds, rows[:1].copy()))
        self._ends = bounds[-1]
        self.rows += counts
        self._rows.write(self._room[: starts[-1]].data)

    def portions(self, most_rows: int) -> Iterator[range]:
        """Buckets with versions, so many together as have some ``most_rows``, unless one has more."""
        self._rows.flush()
        self._texts.flush()
        first = 0
        while first < BUCKETS:
            stop = max(first + 1, int(np.searchsorted(np.cumsum(self.rows[first:]), most_rows, "right")) + first)
            if self.rows[first:stop].any():
                yield range(first, stop)
            first = stop

    def read(self, buckets: range, places: Int64s, count: int) -> tuple[Rows, Texts]:
        """``count`` versions of the ``buckets``: from where ``places`` has their key on, in the order in which they
        ended, without those of keys whose place is negative. ``places`` go up."""
        rows, starts = array_of(new_rows("ClosedVersion", count)), np.zeros(count, np.int64)
        some = new_rows("ClosedVersion", _LOOKED_UP_TOGETHER)
        stretches: list[_Stretch] = []
        text = 0
        for portion in self._portions:
            (begin, text_begin), (end, text_end) = portion.bounds[[buckets.start, buckets.stop]].tolist()
            data = np.frombuffer(os.pread(self._rows.fileno(), end - begin, begin), np.uint8)
            text = unpack_versions(data, portion.base, places, text, rows, starts, some)
            if text_end > text_begin:
                stretches.append(_Stretch(text_begin, text_end - text_begin))
            if len(data) < end - begin or text != sum(one.size for one in stretches):
                raise OSError("a temporary file was changed")
        return rows, Texts(self._texts, starts, rows["metadata"].astype(np.int64), stretches)

    def close(self) -> None:
        """Give the files back."""
        self._rows.close()
        self._texts.close()


def _temporary() -> BufferedRandom:
    return tempfile.TemporaryFile()
