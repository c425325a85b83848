"""Compression of record batches and legacy wrappers, framed as Kafka's own writers frame each codec."""

from __future__ import annotations

import gzip

import cramjam
import lz4.frame
import zstandard

from coordinator_core.log.compression.snappy import MAGIC as SNAPPY_MAGIC
from coordinator_core.log.types import Codec

_SNAPPY_BLOCK = 32 * 1024
_SNAPPY_VERSIONS = bytes((0, 0, 0, 1)) * 2
_LZ4_MAGIC_0_CHECKSUM = 0x1A
"""Header checksum of Kafka's only LZ4 frame header as format 0 has it, computed over the frame's magic
too."""


def compress(codec: Codec, data: bytes, *, magic: int = 2) -> bytes:
    """``data`` as the records section of a v2 batch or the value of a wrapper of format ``magic``.

    Sources: ``Compression.wrapForOutput``, ``Lz4BlockOutputStream``, snappy-java's ``SnappyOutputStream``.
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return gzip.compress(data, mtime=0)
        case Codec.SNAPPY:
            return _snappy(data)
        case Codec.LZ4:
            return _lz4(data, magic)
        case Codec.ZSTD:
            # Like zstd-jni's stream, which does not know how much will come: no content size.
            stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
            return stream.compress(data) + stream.flush()


def _snappy(data: bytes) -> bytes:
    out = bytearray(SNAPPY_MAGIC + _SNAPPY_VERSIONS)
    for start in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK]))
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)


def _lz4(data: bytes, magic: int) -> bytes:
    frame = bytearray(
        lz4.frame.compress(
            data,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            content_checksum=False,
            store_size=False,
        )
    )
    if magic == 0:
        frame[6] = _LZ4_MAGIC_0_CHECKSUM
    return bytes(frame)
