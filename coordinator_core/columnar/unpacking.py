"""Batches made plain many at a time: compressed ones decompressed, without the interpreter lock.

The kernel calls the C functions of lz4 and zstd inside the extension modules of their packages, as far as
those show them. It does what writers write; a batch that it leaves, be it damaged, odd or of another codec,
goes to ``log.compression``, which knows every rule and says what is wrong.
"""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from coordinator_core.columnar import types
from coordinator_core.columnar.bytestrings import copy_bytes
from coordinator_core.columnar.compiling import inlined, kernel
from coordinator_core.columnar.intrinsics import (
    address_of,
    be32,
    be64,
    lz4_decompress_safe,
    zstd_decompress,
    zstd_frame_size,
)
from coordinator_core.columnar.kernels import sound_size
from coordinator_core.columnar.tables import BYTES_TYPE, MUTABLE_BYTES_TYPE, Bytes, Int, Int64s
from coordinator_core.log.compression import decompress
from coordinator_core.log.layout import CODEC_BITS, HEADER_BYTES
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Codec

_RUN_BATCHES, _RUN_BYTES = 8192, 1 << 20
_MOST_PLAIN_BYTES = 1 << 25
"""A run of more ends early: small batches may become very large."""
_ROOM, _USUAL_RATIO = 1 << 18, 12
_LZ4, _ZSTD, _ZSTD_FRAME_SIZE, _ZSTD_CONTEXT = int(Codec.LZ4), int(Codec.ZSTD), 5, 6
"""Where the addresses of C functions are: those that decompress at the number of the codec."""
_ZSTD_NAMES = "ZSTD_decompressDCtx", "ZSTD_findFrameCompressedSize", "ZSTD_createDCtx", "ZSTD_freeDCtx"
_BATCH_LENGTH = struct.Struct(">i")

_VECTOR, _TABLE = types.Array(types.int64, 1), types.Array(types.int64, 2)


class Row(IntEnum):
    """Columns of ``Run.batches``."""

    POSITION = 0
    SIZE = 1
    CODEC = 2
    """0 also of a batch without records: nothing of it is compressed then."""
    NEXT_OFFSET = 3
    PLAIN_SIZE = 4
    WIDTH = 5


class Run(NamedTuple):
    """Sound batches that follow each other, and all of them end to end in ``data``, with plain records.

    ``data`` is overwritten when the run after the next one is asked for.
    """

    batches: Int64s
    data: Bytes


@kernel(types.int64(BYTES_TYPE, types.int64, types.int64, types.int64, types.int64, _TABLE, _VECTOR))
def survey(data: Any, start: Int, stop: Int, expected: Int, max_bytes: Int, rows: Any, rules: Any) -> Int:
    """List sound batches from ``start`` on, whose offsets begin at ``expected``, into ``rows``.

    Stops at the first unsound one, when ``rows`` is full, or with ``max_bytes``. Returns how many.
    """
    position = start
    batches = 0
    while position < stop and batches < len(rows) and position - start < max_bytes:
        size = sound_size(data, position, stop, expected, False, rules)
        if size == 0:
            break
        expected = be64(data, position) + be32(data, position + 23) + 1
        rows[batches, Row.POSITION] = position
        rows[batches, Row.SIZE] = size
        rows[batches, Row.CODEC] = data[position + 22] & CODEC_BITS if be32(data, position + 57) != 0 else 0
        rows[batches, Row.NEXT_OFFSET] = expected
        batches += 1
        position += size
    return batches


@kernel(types.int64(BYTES_TYPE, _TABLE, MUTABLE_BYTES_TYPE, types.int64, types.int64, _VECTOR))
def unpack(data: Any, rows: Any, out: Any, at: Int, max_bytes: Int, functions: Any) -> Int:
    """Put the batches ``rows`` into ``out`` from ``at`` on, and their sizes there into ``rows``.

    Returns the first row that it leaves: ``out`` is full, its records would exceed ``max_bytes``, or they are
    not compressed as writers do.
    """
    for row in range(len(rows)):
        start, size, codec = rows[row, Row.POSITION], rows[row, Row.SIZE], rows[row, Row.CODEC]
        section = at + HEADER_BYTES
        room = min(len(out) - section, max_bytes)
        plain = -1
        if codec == 0:
            if at + size <= len(out):
                plain = size - HEADER_BYTES
                copy_bytes(data, start + HEADER_BYTES, out, section, plain)
        elif room > 0 and functions[codec] != 0:
            if codec == _LZ4:
                plain = _lz4(data, start + HEADER_BYTES, start + size, out, section, room, functions)
            elif codec == _ZSTD:
                plain = _zstd(data, start + HEADER_BYTES, start + size, out, section, room, functions)
        if plain < 0:
            return row
        copy_bytes(data, start, out, at, HEADER_BYTES)
        length = HEADER_BYTES - 12 + plain
        for byte in range(4):
            out[at + 8 + byte] = (length >> (24 - 8 * byte)) & 0xFF
        rows[row, Row.PLAIN_SIZE] = HEADER_BYTES + plain
        at += HEADER_BYTES + plain
    return len(rows)


@inlined
def _le32(data: Any, position: Int) -> Int:
    return (
        np.int64(data[position])
        | np.int64(data[position + 1]) << 8
        | np.int64(data[position + 2]) << 16
        | np.int64(data[position + 3]) << 24
    )


@inlined
def _lz4(data: Any, start: Int, stop: Int, out: Any, at: Int, room: Int, functions: Any) -> Int:
    """Bytes that the frame in ``data[start:stop]`` becomes in ``out`` from ``at`` on, or -1.

    Without block checksums; content size and content checksum are skipped (``log.compression``).
    """
    if stop - start < 15 or _le32(data, start) != 0x184D2204:
        return -1
    flags, largest = np.int64(data[start + 4]), np.int64(data[start + 5])
    if flags & 0xF3 != 0x60 or largest & 0x0F or not 0x40 <= largest <= 0x70:
        return -1
    block_max = 1 << (2 * (largest >> 4) + 8)
    position = start + (14 if flags & 0x08 else 6)
    if data[position] != _lz4_header_checksum(data, start + 4, position):
        return -1
    position += 1
    written = 0
    while position + 4 <= stop:
        word = _le32(data, position)
        size = word & 0x7FFFFFFF
        position += 4
        if size == 0:
            return written
        if size > block_max or position + size > stop:
            return -1
        left = room - written
        if word != size:
            if size > left:
                return -1
            copy_bytes(data, position, out, at + written, size)
            written += size
        else:
            source, target = address_of(data, position), address_of(out, at + written)
            got = lz4_decompress_safe(functions[_LZ4], source, target, size, min(left, block_max))
            if got < 0:
                return -1
            written += got
        position += size
    return -1


@inlined
def _lz4_header_checksum(data: Any, start: Int, stop: Int) -> Int:
    """``log.compression.lz4.header_checksum`` of ``data[start:stop]``."""
    mask = 0xFFFFFFFF
    value = 374761393 + stop - start
    at = start
    while at + 4 <= stop:
        value = (value + _le32(data, at) * 3266489917) & mask
        value = (((value << 17) | (value >> 15)) & mask) * 668265263 & mask
        at += 4
    while at < stop:
        value = (value + np.int64(data[at]) * 374761393) & mask
        value = (((value << 11) | (value >> 21)) & mask) * 2654435761 & mask
        at += 1
    value = (value ^ (value >> 15)) * 2246822519 & mask
    value = (value ^ (value >> 13)) * 3266489917 & mask
    value ^= value >> 16
    return (value >> 8) & 0xFF


@inlined
def _zstd(data: Any, start: Int, stop: Int, out: Any, at: Int, room: Int, functions: Any) -> Int:
    """Bytes that the one frame in ``data[start:stop]`` becomes in ``out`` from ``at`` on, or -1."""
    if stop - start < 6 or _le32(data, start) != 0xFD2FB528:
        return -1
    # Windows of 128 MiB and more are refused by those who read piece by piece, Kafka among them; a frame of
    # a single segment has none, and what it becomes has room here.
    if data[start + 4] & 0x20 == 0 and data[start + 5] >> 3 > 16:
        return -1
    source = address_of(data, start)
    if zstd_frame_size(functions[_ZSTD_FRAME_SIZE], source, stop - start) != stop - start:
        return -1
    return zstd_decompress(
        functions[_ZSTD], functions[_ZSTD_CONTEXT], address_of(out, at), room, source, stop - start
    )


def runs(
    data: memoryview, start: int, next_offset: int, rules: Int64s, limits: Limits
) -> Generator[Run, None, None]:
    """Runs of sound batches from ``start`` on, as long as there are compressed ones in them.

    The first record offset is at least ``next_offset``. While a run is in use a thread unpacks the next one.
    Raises :class:`~coordinator_core.log.compression.CompressionError`.
    """
    unpacker = _Unpacker(data, rules, limits)
    with ThreadPoolExecutor(1) as thread:
        run = unpacker.run(start, next_offset)
        while run.batches[:, Row.CODEC].any():
            position, size, _, next_offset, _ = run.batches[-1].tolist()
            following = thread.submit(unpacker.run, position + size, next_offset)
            yield run
            run = following.result()


class _Unpacker:
    """One run at a time, into two buffers in turn."""

    def __init__(self, data: memoryview, rules: Int64s, limits: Limits) -> None:
        self._data = data
        self._array = np.frombuffer(data, np.uint8)
        self._rules = rules
        self._limits = limits
        # What any batch may become, however small.
        self._max_bytes = limits.decompressed_allowance(0)
        self._functions = c_functions()
        self._out: Bytes = np.empty(0, np.uint8)
        self._other: Bytes = self._out

    def run(self, start: int, next_offset: int) -> Run:
        """The run from ``start`` on, or one without batches; raises ``CompressionError``."""
        self._out, self._other = self._other, self._out
        rows = np.empty((_RUN_BATCHES, Row.WIDTH), np.int64)
        count = survey(self._array, start, len(self._array), next_offset, _RUN_BYTES, rows, self._rules)
        row = used = 0
        while row < count and used < _MOST_PLAIN_BYTES:
            compressed = int(rows[row:count, Row.SIZE].sum())
            self._make_room(used, _ROOM + min(_USUAL_RATIO * compressed, _MOST_PLAIN_BYTES))
            given = rows[row:count]
            done = unpack(self._array, given, self._out, used, self._max_bytes, self._functions)
            used += int(given[:done, Row.PLAIN_SIZE].sum())
            row += done
            # What it has left, and those behind that it would leave too.
            first_left = row
            while row < count and used < _MOST_PLAIN_BYTES:
                position, size, codec = rows[row, : Row.NEXT_OFFSET].tolist()
                if row > first_left and self._functions[codec] != 0:
                    break
                plain_size = self._unpack_one(self._data[position : position + size], codec, used)
                rows[row, Row.PLAIN_SIZE] = plain_size
                used += plain_size
                row += 1
        return Run(rows[:row], self._out[:used])

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
        _BATCH_LENGTH.pack_into(out, at + 8, size - 12)
        return size

    def _make_room(self, used: int, wanted: int) -> None:
        if used + wanted > len(self._out):
            bigger = np.empty(max(used + wanted, 2 * used), np.uint8)
            bigger[:used] = self._out[:used]
            self._out = bigger


def c_functions() -> Int64s:
    """Addresses of C functions as ``unpack`` takes them, 0 for a codec whose package shows none.

    With them comes a context, which lives as long as this array and is for one thread at a time.
    """
    functions = np.zeros(8, np.int64)
    functions[_LZ4] = _address("lz4.block._block", "LZ4_decompress_safe")
    zstd = [_address("zstandard._cffi", name) for name in _ZSTD_NAMES]
    if all(zstd):
        functions[_ZSTD], functions[_ZSTD_FRAME_SIZE], create, free = zstd
        context = ctypes.CFUNCTYPE(ctypes.c_void_p)(create)()
        weakref.finalize(functions, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free), context)
        functions[_ZSTD_CONTEXT] = context
    return functions


@cache
def _address(module: str, name: str) -> int:
    """Address of a C function in an extension module, 0 if that does not show it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return 0
    try:
        function = getattr(ctypes.CDLL(spec.origin), name)
    except (OSError, AttributeError):
        return 0
    return ctypes.cast(function, ctypes.c_void_p).value or 0
