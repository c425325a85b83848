"""Gzip as Kafka writes and reads it."""

from __future__ import annotations

import zlib

from coordinator_core.log.compression.errors import CompressionError, DecompressedTooLargeError
from coordinator_core.log.types import Codec

_PIECE = 1 << 12
"""Many tiny members must not each see the whole input, for zlib copies what it did not use; and a piece
becomes at most 1032 times as much."""

_FIXED_HEADER_BYTES, _TRAILER_BYTES = 10, 8
_HAS_CRC, _HAS_EXTRA, _HAS_NAME, _HAS_COMMENT = 2, 4, 8, 16


def decompress(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """Concatenated gzip members; bytes after the last member without the header of a further one are ignored,
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
        if not _has_header(data[position:]):
            return out


def _has_header(data: memoryview) -> bool:
    """Whether the bytes behind a member are another one: Java ends without a word where it cannot read a header, and
    looks for none in fewer bytes than an empty member has."""
    if len(data) <= _FIXED_HEADER_BYTES + _TRAILER_BYTES or bytes(data[:3]) != b"\x1f\x8b\x08":
        return False
    flags, end = data[3], _FIXED_HEADER_BYTES
    if flags & _HAS_EXTRA:
        end += 2 + int.from_bytes(data[end : end + 2], "little")
    for flag in (_HAS_NAME, _HAS_COMMENT):
        if flags & flag:
            length = bytes(data[end : end + _PIECE]).find(b"\0")
            if length < 0:
                return False
            end += length + 1
    if flags & _HAS_CRC:
        crc = zlib.crc32(data[:end]) & 0xFFFF
        end += 2
        if bytes(data[end - 2 : end]) != crc.to_bytes(2, "little"):
            return False
    return end <= len(data)
