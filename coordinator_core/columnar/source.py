"""Bytes that survive, copied together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from coordinator_core.columnar.finishing import gather
from coordinator_core.columnar.tables import ARENA, SEGMENT, Bytes, Int64s
from coordinator_core.records.wire import decode_utf8

_NO_BYTES: Bytes = np.empty(0, np.uint8)


class Source:
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
            gather(data, tag, positions, lengths, starts, out)
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
