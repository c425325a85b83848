"""Decompression of record batches and legacy wrappers, as Kafka frames each codec.

The codecs come from packages; framing that these do not know (snappy-java's stream, Kafka's subset of LZ4 frames) is
done here. Each codec tries one call of its package first, which suffices for small batches, then reads piece by piece
by all rules. No size that the input declares is allocated: output grows with the data, up to ``max_bytes``. May import
``log.types`` alone. Start reading at :func:`decompress`, then ``lz4``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Protocol

from coordinator_core.log.compression.errors import CompressionError, DecompressedTooLargeError
from coordinator_core.log.types import Codec

__all__ = ["CompressionError", "DecompressedTooLargeError", "decompress"]


class _Decompress(Protocol):
    def __call__(self, data: memoryview, magic: int, max_bytes: int, /) -> bytes | bytearray: ...


def decompress(codec_id: int, data: memoryview, *, magic: int, max_bytes: int) -> bytes | bytearray:
    """Decompress the records section of a v2 batch or the value of a legacy wrapper.

    ``magic`` is that of the batch or wrapper: in format 0 the LZ4 header checksum is not verified, since
    clients of that time computed it over the wrong bytes, and zstd is illegal below format 2.  Raises
    :class:`CompressionError`.
    """
    if codec_id == Codec.NONE:
        return bytes(data)
    return _decompressor(codec_id)(data, magic, max_bytes)


@cache
def _decompressor(codec_id: int) -> _Decompress:
    """The codec's own, loaded when a log needs it: most are plain, and the packages take long to load."""
    try:
        codec = Codec(codec_id)
    except ValueError:
        raise CompressionError(f"unknown compression codec {codec_id}") from None
    found: _Decompress = import_module(f"{__name__}.{codec.name.lower()}").decompress
    return found
