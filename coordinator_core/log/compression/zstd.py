"""Zstandard frames, one behind the other."""

from __future__ import annotations

import threading

import zstandard

from coordinator_core.log.compression.errors import CompressionError, DecompressedTooLargeError
from coordinator_core.log.types import Codec

_BLOCK_MAX = 1 << 17
_MIN_BLOCK = 4
"""An RLE block of four bytes yields 128 KiB: the most that input of a given size can become."""

_of_thread = threading.local()


def _decompressor() -> zstandard.ZstdDecompressor:
    """One context a thread: making one costs more than decompressing a batch with it."""
    found: zstandard.ZstdDecompressor | None = getattr(_of_thread, "zstd", None)
    if found is None:
        found = _of_thread.zstd = zstandard.ZstdDecompressor()
    return found


def decompress(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """Concatenated frames, with or without a content size; :class:`CompressionError` for other bytes."""
    if magic < 2:
        raise CompressionError(f"codec zstd is illegal in message format {magic}")
    if len(data) <= _piece(max_bytes):
        frame = _decompressor().decompressobj()
        try:
            plain = frame.decompress(data)
            if frame.eof and not frame.unused_data and len(plain) <= max_bytes:
                return plain
        except zstandard.ZstdError:
            pass  # said properly below
    return _frames(data, max_bytes)


def _piece(room: int) -> int:
    """Bytes of input that cannot become much more than ``room``."""
    return max(64, (room + 1) // (_BLOCK_MAX // _MIN_BLOCK))


def _frames(data: memoryview, max_bytes: int) -> bytearray:
    out = bytearray()
    rest: memoryview = data
    while len(rest):
        frame = _decompressor().decompressobj()
        position = 0
        while not frame.eof:
            if position == len(rest):
                raise CompressionError("zstd: stream ends in the middle of a frame")
            piece = _piece(max_bytes - len(out))
            try:
                out += frame.decompress(rest[position : position + piece])
            except zstandard.ZstdError as error:
                raise CompressionError(f"zstd: {error}") from None
            if len(out) > max_bytes:
                raise DecompressedTooLargeError(Codec.ZSTD, max_bytes)
            position = min(position + piece, len(rest))
        rest = rest[position - len(frame.unused_data) :]
    return out
