"""Snappy in the stream format of snappy-java."""

from __future__ import annotations

import cramjam

from coordinator_core.log.compression.errors import CompressionError, DecompressedTooLargeError
from coordinator_core.log.types import Codec

MAGIC = b"\x82SNAPPY\x00"
_HEADER_BYTES = 16
_CONCATENATED = 0x82534E41
_MAX_EXPANSION = 64
"""A snappy copy element of two bytes yields at most 64 bytes, so a larger declared length is a lie."""


def decompress(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """snappy-java's ``SnappyInputStream``: header, then length-prefixed raw blocks; further headers may
    follow (concatenated streams); data without the header is one raw block. Raises :class:`CompressionError`."""
    if not len(data):
        raise CompressionError("snappy: empty input")
    if len(data) < _HEADER_BYTES or data[:8] != MAGIC:
        return _block(data, max_bytes)
    _check_version(data, 0)
    position = _HEADER_BYTES
    if int.from_bytes(data[position : position + 4], "big") == len(data) - position - 4:
        return _block(data[position + 4 :], max_bytes)
    out = bytearray()
    # Fewer than four bytes at the end are the end of the stream for snappy-java.
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        if size == _CONCATENATED:
            if position + _HEADER_BYTES > len(data):
                raise CompressionError(f"snappy: header at {position} runs past the end")
            if data[position : position + 8] != MAGIC:
                return out
            _check_version(data, position)
            position += _HEADER_BYTES
            continue
        position += 4
        if size >= 1 << 31 or position + size > len(data):
            raise CompressionError(f"snappy: block of {size} bytes at {position} runs past the end")
        out += _block(data[position : position + size], max_bytes - len(out), max_bytes)
        position += size
    return out


def _check_version(data: memoryview, position: int) -> None:
    version = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    if version < 1:
        raise CompressionError(f"snappy: unsupported stream version {version}")


def _block(block: memoryview, max_bytes: int, limit: int | None = None) -> bytearray:
    declared = shift = 0
    for byte in block[:5]:
        declared |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise CompressionError("snappy: block without a length")
    if declared > len(block) * _MAX_EXPANSION:
        raise CompressionError(f"snappy: {len(block)} bytes cannot become the declared {declared}")
    if declared > max_bytes:
        raise DecompressedTooLargeError(Codec.SNAPPY, max_bytes if limit is None else limit)
    out = bytearray(declared)
    try:
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy: {error}") from None
    if written != declared:
        raise CompressionError(f"snappy: block holds {written} bytes instead of the declared {declared}")
    return out
