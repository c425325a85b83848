"""Copies of surviving bytes, end to end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.kernels import gather, spread
from coordinator_core.kernels.arrays import Bytes, Int64s, array_of
from coordinator_core.kernels.layout import ARENA, SEGMENT
from coordinator_core.log.windows import Windows
from coordinator_core.records.wire import decode_utf8

_ALIGNMENT = 64
_NO_BYTES: Bytes = np.empty(0, np.uint8)


class SegmentBytes:
    """Source of surviving bytes: a position lies in one of ``segments``, or in the ``arena``.

    Segments that are not in memory are read once for all arrays: call :meth:`fill` after the last :meth:`binary`.
    """

    def __init__(self, segments: Sequence[Windows], arena: Bytes = _NO_BYTES) -> None:
        self._segments = segments
        self._arena = arena
        self._runs: list[_Runs] = []

    def binary(self, positions: Int64s, lengths: Int64s) -> pa.Array:
        """``large_binary`` of the bytes at ``positions``."""
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        out = np.empty(starts[-1], np.uint8)
        runs = _Runs(np.ascontiguousarray(positions), np.ascontiguousarray(lengths), starts, out)
        runs.copy(self._arena, ARENA)
        for number, windows in enumerate(self._segments):
            if windows.whole is not None:
                runs.copy(np.frombuffer(windows.whole, np.uint8), number * SEGMENT)
        self._runs.append(runs)
        return _array(starts, out)

    def fill(self) -> None:
        """Fill the arrays with the bytes of segments that are not in memory."""
        for number, windows in enumerate(self._segments):
            if windows.whole is None:
                _fill(windows, number * SEGMENT, [runs.of_segment(number) for runs in self._runs])
                windows.release()


class _Runs(NamedTuple):
    """Runs of ``lengths`` bytes at tagged ``positions``, and where in ``out`` they go; nothing for negative lengths."""

    positions: Int64s
    lengths: Int64s
    starts: Int64s
    out: npt.NDArray[np.uint8]

    def copy(self, data: Bytes, tag: int, rows: slice = slice(None)) -> None:
        """Copy those of ``rows`` that lie in ``data``."""
        positions = self.positions[rows]
        if gather(data, tag, positions, self.lengths[rows], self.starts[rows], self.out) < len(positions):
            raise ValueError("a value lies outside the bytes that it was read from")

    def of_segment(self, number: int) -> _Runs:
        """Runs that lie in a segment, in the order of the file."""
        tag = number * SEGMENT
        rows = np.flatnonzero((self.lengths > 0) & (self.positions >= tag) & (self.positions < tag + SEGMENT))
        positions = self.positions[rows]
        if (positions[1:] < positions[:-1]).any():
            order = np.argsort(positions, kind="stable")
            rows, positions = rows[order], positions[order]
        return _Runs(positions, self.lengths[rows], self.starts[rows], self.out)


def _fill(windows: Windows, tag: int, arrays: Sequence[_Runs]) -> None:
    """Copy runs of one segment, window after window."""
    left = [(runs, runs.positions + runs.lengths - tag, 0) for runs in arrays if len(runs.positions)]
    while left:
        first, _, row = min(left, key=lambda item: item[0].positions[item[2]])
        view, begin = windows.covering(int(first.positions[row]) - tag, int(first.lengths[row]))
        data = np.frombuffer(view, np.uint8)
        later = []
        for runs, ends, row in left:
            stop = int(np.searchsorted(ends, begin + len(view), "right"))
            if stop > row:
                runs.copy(data, tag + begin, slice(row, stop))
            if stop < len(ends):
                later.append((runs, ends, max(row, stop)))
        left = later


def binary(data: Any, lengths: Int64s) -> pa.Array:
    """``large_binary`` of runs of bytes that lie end to end in ``data``; those of negative ``lengths`` are null."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=starts[1:])
    return _array(starts, array_of(data)[: starts[-1]], lengths >= 0)


def _array(starts: Int64s, data: npt.NDArray[np.uint8], is_valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    validity = None
    if is_valid is not None and not is_valid.all():
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(starts), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


def text(binary: pa.Array) -> pa.Array:
    """``large_string`` of UTF-8 bytes; malformed bytes become U+FFFD, as in Java."""
    try:
        return binary.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [None if data is None else decode_utf8(data) for data in binary.to_pylist()]
        return pa.array(texts, pa.large_string())


def spread_columns(
    rows: npt.NDArray[Any],
    narrower: Mapping[str, npt.DTypeLike] | None = None,
    without: Collection[str] = (),
) -> dict[str, npt.NDArray[Any]]:
    """Fields of a structured array but those ``without``, each a contiguous column; ``narrower`` gives some of them
    other types.

    All lie in one block: large memory is had in large pages.
    """
    fields = {name: (kind, at) for name, (kind, at, *_) in (rows.dtype.fields or {}).items() if name not in without}
    sizes = [-(len(rows) * kind.itemsize) % _ALIGNMENT + len(rows) * kind.itemsize for kind, _ in fields.values()]
    starts = np.cumsum([0, *sizes]).tolist()
    block = np.empty(starts[-1], np.uint8)
    places = [
        number
        for start, (kind, at) in zip(starts, fields.values(), strict=False)
        for number in (at, kind.itemsize, start)
    ]
    spread(rows.view(np.uint8), rows.dtype.itemsize, np.array(places, np.int64), block)
    columns = {
        name: block[start : start + len(rows) * kind.itemsize].view(kind)
        for start, (name, (kind, _)) in zip(starts, fields.items(), strict=False)
    }
    for name, wanted in (narrower or {}).items():
        columns[name] = columns[name].astype(wanted)
    return columns
