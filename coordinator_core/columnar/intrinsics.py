"""What Python has no spelling for: single machine instructions (unaligned loads, CRC-32C, prefetching), and
calls of C functions by their address.

The functions say what the instructions do; in compiled code they are those instructions (``lowering``), none
of which checks bounds. The kernels do, once per batch or record.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from coordinator_core.columnar.compiling import inlined
from coordinator_core.columnar.objects import host_has

_CRC32C_POLYNOMIAL = 0x82F63B78


def le64(array: Any, position: Any) -> Any:
    """Eight bytes at ``position`` in machine order, as uint64."""
    return np.uint64(int.from_bytes(bytes(array[position : position + 8]), "little"))


def be64(array: Any, position: Any) -> Any:
    """Big-endian int64 at ``position``."""
    return int.from_bytes(bytes(array[position : position + 8]), "big", signed=True)


def be32(array: Any, position: Any) -> Any:
    """Big-endian int32 at ``position``, as int64."""
    return int.from_bytes(bytes(array[position : position + 4]), "big", signed=True)


def be16(array: Any, position: Any) -> Any:
    """Big-endian int16 at ``position``, as int64."""
    return int.from_bytes(bytes(array[position : position + 2]), "big", signed=True)


def put64(array: Any, position: Any, word: Any) -> None:
    """Store the eight bytes of a uint64 at ``position`` in machine order."""
    array[position : position + 8] = np.frombuffer(int(word).to_bytes(8, "little"), np.uint8)


def prefetch(array: Any, position: Any) -> None:
    """Have the cache line of element ``position`` of a C-ordered array, counted flat, fetched meanwhile."""


def address_of(array: Any, position: Any) -> Any:
    """Address of the byte at ``position``."""
    return array.ctypes.data + position


_INT, _SIZE, _POINTER = ctypes.c_int, ctypes.c_ssize_t, ctypes.c_void_p


def lz4_decompress_safe(function: Any, source: Any, target: Any, size: Any, room: Any) -> Any:
    """Call ``LZ4_decompress_safe``, which is at the address ``function``: bytes written, or negative."""
    return ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _INT, _INT)(function)(source, target, size, room)


def zstd_frame_size(function: Any, source: Any, size: Any) -> Any:
    """Call ``ZSTD_findFrameCompressedSize``: bytes of the frame that begins at ``source``, or an error."""
    return ctypes.CFUNCTYPE(_SIZE, _POINTER, _SIZE)(function)(source, size)


def zstd_decompress(function: Any, context: Any, target: Any, room: Any, source: Any, size: Any) -> Any:
    """Call ``ZSTD_decompressDCtx``: bytes written, or negative."""
    kind = ctypes.CFUNCTYPE(_SIZE, _POINTER, _POINTER, _SIZE, _POINTER, _SIZE)
    return kind(function)(context, target, room, source, size)


def crc32_1_byte(crc: Any, byte: Any) -> Any:
    """The CRC register after one byte more, as uint32."""
    register = int(crc) ^ int(byte)
    for _ in range(8):
        register = (register >> 1) ^ (_CRC32C_POLYNOMIAL if register & 1 else 0)
    return np.uint32(register)


def crc32_8_bytes(crc: Any, word: Any) -> Any:
    """The CRC register after eight bytes more, as uint64."""
    for byte in int(word).to_bytes(8, "little"):
        crc = crc32_1_byte(crc, byte)
    return np.uint64(crc)


def _crc_tables() -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    tables = np.zeros((8, 256), np.uint32)
    tables[0] = [crc32_1_byte(0, byte) for byte in range(256)]
    for distance in range(1, 8):
        previous = tables[distance - 1]
        tables[distance] = (previous >> np.uint32(8)) ^ tables[0][previous & np.uint32(0xFF)]
    return tables


_TABLES = _crc_tables()


@inlined
def _after(tables: Any, crc: Any) -> Any:
    """The register ``crc`` after the zero bytes that ``tables`` stand for, one of which is for each byte."""
    return (
        tables[0, crc & 0xFF]
        ^ tables[1, (crc >> 8) & 0xFF]
        ^ tables[2, (crc >> 16) & 0xFF]
        ^ tables[3, crc >> 24]
    )


def _zeroes_tables() -> Any:
    registers = np.arange(256, dtype=np.uint32) << np.array([[0], [8], [16], [24]], np.uint32)
    tables = (registers >> np.uint32(8)) ^ _TABLES[0][registers & 0xFF]
    for _ in range(_STRETCH_BYTES.bit_length() - 1):
        tables = _after(tables, tables)
    return tables


_STRETCH_BYTES = 256
_ZEROES = _zeroes_tables()
"""What ``_STRETCH_BYTES`` zero bytes make of a register, see ``_after``."""


@inlined
def crc32c_by_instruction(data: Any, start: Any, stop: Any) -> Any:
    """CRC-32C of ``data[start:stop]`` with the processor's instruction."""
    word = np.uint64(0xFFFFFFFF)
    position = start
    # The instruction can be begun each cycle and takes three: three stretches are done side by side.
    while position + 3 * _STRETCH_BYTES <= stop:
        second, third = np.uint64(0), np.uint64(0)
        for at in range(position, position + _STRETCH_BYTES, 8):
            word = crc32_8_bytes(word, le64(data, at))
            second = crc32_8_bytes(second, le64(data, at + _STRETCH_BYTES))
            third = crc32_8_bytes(third, le64(data, at + 2 * _STRETCH_BYTES))
        word = np.uint64(_after(_ZEROES, np.int64(word))) ^ second
        word = np.uint64(_after(_ZEROES, np.int64(word))) ^ third
        position += 3 * _STRETCH_BYTES
    while position + 8 <= stop:
        word = crc32_8_bytes(word, le64(data, position))
        position += 8
    crc = np.uint32(word)
    while position < stop:
        crc = crc32_1_byte(crc, data[position])
        position += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))


@inlined
def crc32c_by_tables(data: Any, start: Any, stop: Any) -> Any:
    """CRC-32C of ``data[start:stop]``, eight bytes at a time by table look-up."""
    low = np.uint64(0xFF)
    crc = np.uint64(0xFFFFFFFF)
    position = start
    while position + 8 <= stop:
        word = le64(data, position) ^ crc
        crc = np.uint64(
            _TABLES[7, word & low]
            ^ _TABLES[6, (word >> np.uint64(8)) & low]
            ^ _TABLES[5, (word >> np.uint64(16)) & low]
            ^ _TABLES[4, (word >> np.uint64(24)) & low]
            ^ _TABLES[3, (word >> np.uint64(32)) & low]
            ^ _TABLES[2, (word >> np.uint64(40)) & low]
            ^ _TABLES[1, (word >> np.uint64(48)) & low]
            ^ _TABLES[0, (word >> np.uint64(56)) & low]
        )
        position += 8
    while position < stop:
        crc = np.uint64(_TABLES[0, (crc ^ np.uint64(data[position])) & low]) ^ (crc >> np.uint64(8))
        position += 1
    return np.int64(crc ^ np.uint64(0xFFFFFFFF))


crc32c = crc32c_by_instruction if host_has("sse4.2") else crc32c_by_tables
