"""Decompression of many batches at a time, without the interpreter lock."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from coordinator_core.kernels import Bounds, list_batches, unpack
from coordinator_core.kernels.arrays import Bytes, Int64s, dtype
from coordinator_core.kernels.layout import CodecFunction
from coordinator_core.log.compression import decompress
from coordinator_core.log.compression.libraries import function_address
from coordinator_core.log.layout import HEADER_BYTES, LENGTH_END, BatchField
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Codec

_CHUNK_BATCHES, _CHUNK_BYTES = 8192, 1 << 19
_MOST_PLAIN_BYTES = 1 << 25
"""A chunk of more ends early: small batches may become very large."""
_ROOM, _USUAL_RATIO = 1 << 18, 12
_BATCH_LENGTH = struct.Struct(">i")


class Chunk(NamedTuple):
    """Sound batches that follow each other, and all of them end to end in ``data``, with plain records.

    ``batches`` are rows of ``PackedBatch``. ``data`` is overwritten when the chunk after the next one is
    asked for.
    """

    batches: npt.NDArray[Any]
    data: Bytes

    @property
    def end(self) -> int:
        """Position behind the last batch."""
        return int(self.batches["position"][-1] + self.batches["size"][-1])


def chunks(
    data: memoryview, start: int, next_offset: int, bounds: Bounds, limits: Limits
) -> Generator[Chunk, None, None]:
    """Chunks of sound batches from ``start`` on, as long as there are compressed ones in them.

    The first record offset is at least ``next_offset``. While a chunk is in use a thread unpacks the next
    one. Raises :class:`~coordinator_core.log.compression.CompressionError`.
    """
    unpacker = _Unpacker(data, bounds, limits)
    with ThreadPoolExecutor(1) as thread:
        chunk = unpacker.chunk(start, next_offset)
        while chunk.batches["codec"].any():
            last = chunk.batches[-1]
            end = int(last["position"] + last["size"])
            following = thread.submit(unpacker.chunk, end, int(last["next_offset"]))
            yield chunk
            chunk = following.result()


class _Unpacker:
    """Unpacks one chunk at a time, into two buffers in turn."""

    def __init__(self, data: memoryview, bounds: Bounds, limits: Limits) -> None:
        self._data = data
        self._array = np.frombuffer(data, np.uint8)
        self._bounds = bounds
        self._limits = limits
        # Any batch may become this, however small.
        self._max_bytes = limits.decompressed_allowance(0)
        self._functions = codec_functions()
        self._out: Bytes = np.empty(0, np.uint8)
        self._other: Bytes = self._out

    def chunk(self, start: int, next_offset: int) -> Chunk:
        """The chunk from ``start`` on, or one without batches; raises ``CompressionError``."""
        self._out, self._other = self._other, self._out
        rows = np.empty(_CHUNK_BATCHES, dtype("PackedBatch"))
        count = list_batches(self._array, start, len(self._array), next_offset, _CHUNK_BYTES, rows, self._bounds)
        row = used = 0
        while row < count and used < _MOST_PLAIN_BYTES:
            compressed = int(rows["size"][row:count].sum())
            self._make_room(used, _ROOM + min(_USUAL_RATIO * compressed, _MOST_PLAIN_BYTES))
            given = rows[row:count]
            done = unpack(self._array, given, self._out, used, self._max_bytes, self._functions)
            used += int(given["plain_size"][:done].sum())
            row += done
            # The batch that the kernel left, and those behind it that it would leave too.
            first_left = row
            while row < count and used < _MOST_PLAIN_BYTES:
                codec = int(rows["codec"][row])
                if row > first_left and self._functions[codec] != 0:
                    break
                position = int(rows["position"][row])
                batch = self._data[position : position + int(rows["size"][row])]
                rows["plain_size"][row] = plain_size = self._unpack_one(batch, codec, used)
                used += plain_size
                row += 1
        return Chunk(rows[:row], self._out[:used])

    def _unpack_one(self, batch: memoryview, codec: int, at: int) -> int:
        """Put one batch into the buffer; its size there."""
        section: memoryview | bytes | bytearray = batch[HEADER_BYTES:]
        if codec != Codec.NONE:
            allowance = self._limits.decompressed_allowance(len(section))
            section = decompress(codec, batch[HEADER_BYTES:], magic=2, max_bytes=allowance)
        size = HEADER_BYTES + len(section)
        self._make_room(at, size)
        out = self._out.data
        out[at : at + HEADER_BYTES] = batch[:HEADER_BYTES]
        out[at + HEADER_BYTES : at + size] = section
        _BATCH_LENGTH.pack_into(out, at + BatchField.LENGTH, size - LENGTH_END)
        return size

    def _make_room(self, used: int, wanted: int) -> None:
        if used + wanted > len(self._out):
            bigger = np.empty(max(used + wanted, 2 * used), np.uint8)
            bigger[:used] = self._out[:used]
            self._out = bigger


def codec_functions() -> Int64s:
    """Addresses by ``CodecFunction``, 0 for a codec whose library is missing.

    With them comes a decompression context, which lives as long as this array.
    """
    functions = np.zeros(8, np.int64)
    functions[CodecFunction.LZ4] = function_address("lz4", "LZ4_decompress_safe")
    decompressor, frame_size, create, free = (
        function_address("zstd", name)
        for name in ("ZSTD_decompressDCtx", "ZSTD_findFrameCompressedSize", "ZSTD_createDCtx", "ZSTD_freeDCtx")
    )
    if decompressor and frame_size and create and free:
        context = ctypes.CFUNCTYPE(ctypes.c_void_p)(create)()
        weakref.finalize(functions, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free), context)
        functions[CodecFunction.ZSTD] = decompressor
        functions[CodecFunction.ZSTD_FRAME_SIZE] = frame_size
        functions[CodecFunction.ZSTD_CONTEXT] = context
    return functions
