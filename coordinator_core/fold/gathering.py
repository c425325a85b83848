"""Bytes that survive, copied together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.kernels import gather, spread
from coordinator_core.kernels.arrays import Bytes, Int64s
from coordinator_core.kernels.layout import ARENA, SEGMENT
from coordinator_core.records.wire import decode_utf8

_ALIGNMENT = 64
_NO_BYTES: Bytes = np.empty(0, np.uint8)


class SegmentBytes:
    """Where surviving bytes are read from: positions say in which of ``segments``, or in the ``arena``."""

    def __init__(self, segments: Sequence[Bytes], arena: Bytes = _NO_BYTES) -> None:
        self._places = [(number * SEGMENT, data) for number, data in enumerate(segments)]
        self._places.append((ARENA, arena))

    def binary(self, positions: Int64s, lengths: Int64s, *, nulls: bool = False) -> pa.Array:
        """The runs of bytes as ``large_binary``; with ``nulls`` negative lengths are null."""
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(np.maximum(lengths, 0), out=starts[1:])
        out = np.empty(starts[-1], np.uint8)
        positions, lengths = np.ascontiguousarray(positions), np.ascontiguousarray(lengths)
        for tag, data in self._places:
            if gather(data, tag, positions, lengths, starts, out) < len(positions):
                raise ValueError("a value lies outside the bytes that it was read from")
        validity = None
        if nulls and (lengths < 0).any():
            validity = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
        buffers = [validity, pa.py_buffer(starts), pa.py_buffer(out)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lengths), buffers)


def text(binary: pa.Array) -> pa.Array:
    """Bytes as ``large_string``, decoded as Java does."""
    try:
        return binary.cast(pa.large_string())
    except pa.ArrowInvalid:
        texts = [None if data is None else decode_utf8(data) for data in binary.to_pylist()]
        return pa.array(texts, pa.large_string())


def spread_columns(
    rows: npt.NDArray[Any], narrower: Mapping[str, npt.DTypeLike] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Fields of a structured array, each a contiguous column; ``narrower`` gives some of them other types.

    All lie in one block: large memory is had in large pages.
    """
    fields = {name: (kind, at) for name, (kind, at, *_) in (rows.dtype.fields or {}).items()}
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
