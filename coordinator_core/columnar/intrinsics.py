"""Single machine instructions that numba has no Python spelling for: unaligned loads and CRC-32C.

None of these checks bounds; the kernels do, once per batch or record.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from coordinator_core.columnar.compiling import config, inlined

_CRC32C_POLYNOMIAL = 0x82F63B78


def instruction(function: Any) -> Any:
    """:func:`numba.extending.intrinsic`, whose result is called with other arguments than it declares."""
    return intrinsic(function)


def _load(context: Any, builder: Any, array_type: Any, arguments: Any, bits: int) -> Any:
    array = context.make_array(array_type)(context, builder, arguments[0])
    pointer = builder.gep(array.data, [arguments[1]])
    value = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
    value.align = 1
    return value


def _call(builder: Any, name: str, result: Any, parameters: list[Any], arguments: Any) -> Any:
    kind = ir.FunctionType(result, parameters)
    function = cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]
    return builder.call(function, arguments)


@instruction
def le64(typing_context: Any, array: Any, position: Any) -> Any:
    """Eight bytes at ``position`` in machine order, as uint64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(context, builder, signature.args[0], arguments, 64)

    return types.uint64(array, types.int64), generate


@instruction
def be64(typing_context: Any, array: Any, position: Any) -> Any:
    """Big-endian int64 at ``position``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bswap(_load(context, builder, signature.args[0], arguments, 64))

    return types.int64(array, types.int64), generate


@instruction
def be32(typing_context: Any, array: Any, position: Any) -> Any:
    """Big-endian int32 at ``position``, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.bswap(_load(context, builder, signature.args[0], arguments, 32))
        return builder.sext(value, ir.IntType(64))

    return types.int64(array, types.int64), generate


@instruction
def be16(typing_context: Any, array: Any, position: Any) -> Any:
    """Big-endian int16 at ``position``, as int64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = builder.bswap(_load(context, builder, signature.args[0], arguments, 16))
        return builder.sext(value, ir.IntType(64))

    return types.int64(array, types.int64), generate


@instruction
def prefetch(typing_context: Any, array: Any, position: Any) -> Any:
    """Have the cache line of element ``position`` of a C-ordered array, counted flat, fetched meanwhile."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        pointer = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
        # For reading, to be kept in all levels, data.
        hints = [ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)]
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), [byte, word, word, word], [pointer, *hints])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


@instruction
def _crc32_8_bytes(typing_context: Any, crc: Any, data: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        return _call(builder, "llvm.x86.sse42.crc32.64.64", word, [word, word], arguments)

    return types.uint64(types.uint64, types.uint64), generate


@instruction
def _crc32_1_byte(typing_context: Any, crc: Any, data: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, byte = ir.IntType(32), ir.IntType(8)
        return _call(builder, "llvm.x86.sse42.crc32.32.8", word, [word, byte], arguments)

    return types.uint32(types.uint32, types.uint8), generate


def _has_crc_instruction() -> bool:
    if config.CPU_NAME or config.CPU_FEATURES:  # compiling for another machine than this one
        return False
    try:
        return bool(llvm.get_host_cpu_features().get("sse4.2", False))
    except RuntimeError:
        return False


HAS_CRC_INSTRUCTION = _has_crc_instruction()


def _crc_tables() -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_CRC32C_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for distance in range(1, 8):
        previous = tables[distance - 1]
        tables[distance] = (previous >> np.uint32(8)) ^ tables[0][previous & np.uint32(0xFF)]
    return tables


_TABLES = _crc_tables()


@inlined
def crc32c_by_instruction(data: Any, start: Any, stop: Any) -> Any:
    """CRC-32C of ``data[start:stop]`` with the processor's instruction."""
    word = np.uint64(0xFFFFFFFF)
    position = start
    while position + 8 <= stop:
        word = _crc32_8_bytes(word, le64(data, position))
        position += 8
    crc = np.uint32(word)
    while position < stop:
        crc = _crc32_1_byte(crc, data[position])
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


crc32c = crc32c_by_instruction if HAS_CRC_INSTRUCTION else crc32c_by_tables
