"""Gzip as Kafka writes and reads it."""

from __future__ import annotations

import zlib

from coordinator_core.log.compression.errors import CompressionError, DecompressedTooLargeError
from coordinator_core.log.types import Codec

_PIECE = 1 << 12
"""Many tiny members must not each see the whole input, for zlib copies what it did not use; and a piece
becomes at most 1032 times as much."""


def decompress(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """Concatenated gzip members; bytes after the last member that start no further member are ignored,
    as ``java.util.zip.GZIPInputStream`` does."""
    member = zlib.decompressobj(wbits=31)
    try:
        plain = member.decompress(data, max_bytes + 1)
        if member.eof and not member.unused_data and len(plain) <= max_bytes:
            return plain
    except zlib.error:
        pass  # said properly below
    return _members(data, max_bytes)


def _members(data: memoryview, max_bytes: int) -> bytearray:
    out = bytearray()
    position = 0
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if position == len(data):
                raise CompressionError("gzip: stream ends in the middle of a member")
            piece = data[position : position + _PIECE]
            try:
                out += member.decompress(piece, max_bytes + 1 - len(out))
            except zlib.error as error:
                raise CompressionError(f"gzip: {error}") from None
            if len(out) > max_bytes:
                raise DecompressedTooLargeError(Codec.GZIP, max_bytes)
            position += len(piece)
        position -= len(member.unused_data)
        if bytes(data[position : position + 2]) != b"\x1f\x8b":
            return out
