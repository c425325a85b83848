"""LZ4 in the subset of its frame format that Kafka has."""

from __future__ import annotations

import struct
from functools import lru_cache

import lz4.block
import lz4.frame

from coordinator_core.log.compression.errors import CompressionError, DecompressedTooLargeError
from coordinator_core.log.types import Codec

MAGIC = 0x184D2204
_BLOCK_MAX = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_STORED = 0x80000000
_WORD = struct.Struct("<I")


def decompress(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """Kafka's ``Lz4BlockInputStream``: one frame of independent blocks; what follows it is ignored.

    Block checksums are verified, the content checksum is skipped. Raises :class:`CompressionError`.
    """
    if len(data) < 7:
        raise CompressionError("lz4: stream ends in the header")
    position = 15 if data[4] & 0x08 else 7
    block_max = _block_max(bytes(data[:position]), position, magic > 0)
    if not data[4] & 0x10 and position + 8 <= len(data):
        (size,) = _WORD.unpack_from(data, position)
        end = position + 4 + size
        if 0 < size <= block_max and end + 4 <= len(data) and _WORD.unpack_from(data, end) == (0,):
            plain = _block(data[position + 4 : end], block_max)
            if len(plain) <= max_bytes:
                return plain
    return _blocks(data, position, block_max, max_bytes)


@lru_cache(maxsize=256)  # Writers use one or two headers for every batch they write.
def _block_max(header: bytes, size: int, check: bool) -> int:
    """The most bytes in a block under ``header``, which should have ``size`` bytes."""
    if int.from_bytes(header[:4], "little") != MAGIC:
        raise CompressionError("lz4: not a frame")
    flags, block_descriptor = header[4], header[5]
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20:
        raise CompressionError(f"lz4: unsupported frame flags 0x{flags:02x}")
    block_max = _BLOCK_MAX.get(block_descriptor >> 4)
    if block_max is None or block_descriptor & 0x0F:
        raise CompressionError(f"lz4: unsupported block descriptor 0x{block_descriptor:02x}")
    if len(header) < size:
        raise CompressionError("lz4: stream ends in the header")
    if check and header[-1] != header_checksum(header[4:-1]):
        raise CompressionError("lz4: header checksum does not match")
    return block_max


def _blocks(data: memoryview, position: int, block_max: int, max_bytes: int) -> bytearray:
    """The blocks from ``position`` on."""
    flags, block_descriptor = data[4], data[5]
    block_checksums = bool(flags & 0x10)
    out = bytearray()
    while True:
        if position + 4 > len(data):
            raise CompressionError("lz4: stream ends without an end mark")
        word = int.from_bytes(data[position : position + 4], "little")
        position += 4
        size = word & ~_STORED
        if size == 0:
            return out
        if size > block_max:
            raise CompressionError(f"lz4: block of {size} bytes exceeds the maximum of {block_max}")
        end = position + size + (4 if block_checksums else 0)
        if end > len(data):
            raise CompressionError("lz4: stream ends in a block")
        block = data[position : position + size]
        if block_checksums:
            out += _checked_block(block_descriptor, data[position - 4 : end])
        elif word & _STORED:
            out += block
        else:
            out += _block(block, block_max)
        if len(out) > max_bytes:
            raise DecompressedTooLargeError(Codec.LZ4, max_bytes)
        position = end


def _block(block: memoryview, block_max: int) -> bytes:
    try:
        plain: bytes = lz4.block.decompress(block, uncompressed_size=min(block_max, 255 * len(block)))
    except lz4.block.LZ4BlockError as error:
        raise CompressionError(f"lz4: {error}") from None
    return plain


def _checked_block(block_descriptor: int, sized_block: memoryview) -> bytes:
    """One block with its size and checksum, verified by the package as a frame of its own."""
    descriptor = bytes((0x70, block_descriptor))
    header = MAGIC.to_bytes(4, "little") + descriptor + bytes((header_checksum(descriptor),))
    try:
        plain: bytes = lz4.frame.LZ4FrameDecompressor().decompress(header + sized_block + bytes(4))
    except RuntimeError as error:
        raise CompressionError(f"lz4: {error}") from None
    return plain


def header_checksum(descriptor: bytes) -> int:
    """HC byte of an LZ4 frame: the second byte of XXH32 (seed 0) of the descriptor, 2 to 15 bytes."""
    mask = 0xFFFFFFFF
    value = (374761393 + len(descriptor)) & mask
    whole = len(descriptor) & ~3
    for start in range(0, whole, 4):
        lane = int.from_bytes(descriptor[start : start + 4], "little")
        value = (value + lane * 3266489917) & mask
        value = (((value << 17) | (value >> 15)) & mask) * 668265263 & mask
    for byte in descriptor[whole:]:
        value = (value + byte * 374761393) & mask
        value = (((value << 11) | (value >> 21)) & mask) * 2654435761 & mask
    value = (value ^ (value >> 15)) * 2246822519 & mask
    value = (value ^ (value >> 13)) * 3266489917 & mask
    value ^= value >> 16
    return (value >> 8) & 0xFF
