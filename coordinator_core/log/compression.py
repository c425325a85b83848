"""Decompression of record batches and legacy wrappers, as Kafka frames each codec.

The codecs themselves come from packages; the framing is done here where the packages do not know it
(snappy-java's stream, Kafka's LZ4 frame subset).  No function allocates on the word of a size that the
input declares: output grows with what was really decompressed, up to ``max_bytes``.

An offsets log holds very many small batches, so each codec first does what suffices for one of them, with one
call of its package; what that cannot do is left to the code that reads piece by piece and knows every rule.
"""

from __future__ import annotations

import struct
import threading
import zlib
from functools import lru_cache
from typing import Protocol

import cramjam
import lz4.block
import lz4.frame
import zstandard

from coordinator_core.log.types import Codec

_GZIP_PIECE = 1 << 12
"""Many tiny members must not each see the whole input, for zlib copies what it did not use; and a piece
becomes at most 1032 times as much."""

SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = 16
_SNAPPY_CONCATENATED = 0x82534E41
_SNAPPY_MAX_EXPANSION = 64
"""A snappy copy element of two bytes yields at most 64 bytes, so a larger declared length is a lie."""

LZ4_MAGIC = 0x184D2204
_LZ4_BLOCK_MAX = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_STORED = 0x80000000
_LZ4_WORD = struct.Struct("<I")

_ZSTD_BLOCK_MAX = 1 << 17
_ZSTD_MIN_BLOCK = 4
"""An RLE block of four bytes yields 128 KiB: the most that input of a given size can become."""


class CompressionError(Exception):
    """The compressed bytes are not what the codec's framing allows."""


class DecompressedTooLargeError(CompressionError):
    """The output would exceed the limit."""

    def __init__(self, codec: Codec, max_bytes: int) -> None:
        super().__init__(
            f"{codec.name.lower()} data decompresses to more than the limit of {max_bytes} bytes"
        )


class Decompressor(Protocol):
    def __call__(self, data: memoryview, magic: int, max_bytes: int, /) -> bytes | bytearray: ...


def decompress(codec_id: int, data: memoryview, *, magic: int, max_bytes: int) -> bytes | bytearray:
    """Decompress the records section of a v2 batch or the value of a legacy wrapper.

    ``magic`` is that of the batch or wrapper: in format 0 the LZ4 header checksum is not verified, since
    clients of that time computed it over the wrong bytes, and zstd is illegal below format 2.  Raises
    :class:`CompressionError`.
    """
    decompressor = _DECOMPRESSORS.get(codec_id)
    if decompressor is None:
        raise CompressionError(f"unknown compression codec {codec_id}")
    return decompressor(data, magic, max_bytes)


def _none(data: memoryview, magic: int, max_bytes: int) -> bytes:
    return bytes(data)


def _gzip(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """Concatenated gzip members; bytes after the last member that start no further member are ignored,
    as ``java.util.zip.GZIPInputStream`` does."""
    member = zlib.decompressobj(wbits=31)
    try:
        plain = member.decompress(data, max_bytes + 1)
        if member.eof and not member.unused_data and len(plain) <= max_bytes:
            return plain
    except zlib.error:
        pass  # said properly below
    return _gzip_members(data, max_bytes)


def _gzip_members(data: memoryview, max_bytes: int) -> bytearray:
    out = bytearray()
    position = 0
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if position == len(data):
                raise CompressionError("gzip: stream ends in the middle of a member")
            piece = data[position : position + _GZIP_PIECE]
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


def _snappy(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """snappy-java's ``SnappyInputStream``: header, then length-prefixed raw blocks; further headers may
    follow (concatenated streams); data without the header is one raw block."""
    if not len(data):
        raise CompressionError("snappy: empty input")
    if len(data) < _SNAPPY_HEADER_BYTES or data[:8] != SNAPPY_MAGIC:
        return _snappy_block(data, max_bytes)
    _check_snappy_version(data, 0)
    position = _SNAPPY_HEADER_BYTES
    if int.from_bytes(data[position : position + 4], "big") == len(data) - position - 4:
        return _snappy_block(data[position + 4 :], max_bytes)
    out = bytearray()
    # Fewer than four bytes at the end are the end of the stream for snappy-java.
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        if size == _SNAPPY_CONCATENATED:
            if position + _SNAPPY_HEADER_BYTES > len(data):
                raise CompressionError(f"snappy: header at {position} runs past the end")
            if data[position : position + 8] != SNAPPY_MAGIC:
                return out
            _check_snappy_version(data, position)
            position += _SNAPPY_HEADER_BYTES
            continue
        position += 4
        if size >= 1 << 31 or position + size > len(data):
            raise CompressionError(f"snappy: block of {size} bytes at {position} runs past the end")
        out += _snappy_block(data[position : position + size], max_bytes - len(out), max_bytes)
        position += size
    return out


def _check_snappy_version(data: memoryview, position: int) -> None:
    version = int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
    if version < 1:
        raise CompressionError(f"snappy: unsupported stream version {version}")


def _snappy_block(block: memoryview, max_bytes: int, limit: int | None = None) -> bytearray:
    declared = shift = 0
    for byte in block[:5]:
        declared |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise CompressionError("snappy: block without a length")
    if declared > len(block) * _SNAPPY_MAX_EXPANSION:
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


def _lz4(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """Kafka's ``Lz4BlockInputStream``: one frame of independent blocks; what follows it is ignored.

    Block checksums are verified, the content checksum is skipped.
    """
    if len(data) < 7:
        raise CompressionError("lz4: stream ends in the header")
    position = 15 if data[4] & 0x08 else 7
    block_max = _lz4_block_max(bytes(data[:position]), position, magic > 0)
    if not data[4] & 0x10 and position + 8 <= len(data):
        (size,) = _LZ4_WORD.unpack_from(data, position)
        end = position + 4 + size
        if 0 < size <= block_max and end + 4 <= len(data) and _LZ4_WORD.unpack_from(data, end) == (0,):
            plain = _lz4_block(data[position + 4 : end], block_max)
            if len(plain) <= max_bytes:
                return plain
    return _lz4_blocks(data, position, block_max, max_bytes)


@lru_cache(maxsize=256)  # Writers use one or two headers for every batch they write.
def _lz4_block_max(header: bytes, size: int, check: bool) -> int:
    """The most bytes in a block under ``header``, which should have ``size`` bytes."""
    if int.from_bytes(header[:4], "little") != LZ4_MAGIC:
        raise CompressionError("lz4: not a frame")
    flags, block_descriptor = header[4], header[5]
    if flags >> 6 != 1 or flags & 0x03 or not flags & 0x20:
        raise CompressionError(f"lz4: unsupported frame flags 0x{flags:02x}")
    block_max = _LZ4_BLOCK_MAX.get(block_descriptor >> 4)
    if block_max is None or block_descriptor & 0x0F:
        raise CompressionError(f"lz4: unsupported block descriptor 0x{block_descriptor:02x}")
    if len(header) < size:
        raise CompressionError("lz4: stream ends in the header")
    if check and header[-1] != lz4_header_checksum(header[4:-1]):
        raise CompressionError("lz4: header checksum does not match")
    return block_max


def _lz4_blocks(data: memoryview, position: int, block_max: int, max_bytes: int) -> bytearray:
    """The blocks from ``position`` on."""
    flags, block_descriptor = data[4], data[5]
    block_checksums = bool(flags & 0x10)
    out = bytearray()
    while True:
        if position + 4 > len(data):
            raise CompressionError("lz4: stream ends without an end mark")
        word = int.from_bytes(data[position : position + 4], "little")
        position += 4
        size = word & ~_LZ4_STORED
        if size == 0:
            return out
        if size > block_max:
            raise CompressionError(f"lz4: block of {size} bytes exceeds the maximum of {block_max}")
        end = position + size + (4 if block_checksums else 0)
        if end > len(data):
            raise CompressionError("lz4: stream ends in a block")
        block = data[position : position + size]
        if block_checksums:
            out += _lz4_checked_block(block_descriptor, data[position - 4 : end])
        elif word & _LZ4_STORED:
            out += block
        else:
            out += _lz4_block(block, block_max)
        if len(out) > max_bytes:
            raise DecompressedTooLargeError(Codec.LZ4, max_bytes)
        position = end


def _lz4_block(block: memoryview, block_max: int) -> bytes:
    try:
        plain: bytes = lz4.block.decompress(block, uncompressed_size=min(block_max, 255 * len(block)))
    except lz4.block.LZ4BlockError as error:
        raise CompressionError(f"lz4: {error}") from None
    return plain


def _lz4_checked_block(block_descriptor: int, sized_block: memoryview) -> bytes:
    """One block with its size and checksum, verified by the package as a frame of its own."""
    descriptor = bytes((0x70, block_descriptor))
    header = LZ4_MAGIC.to_bytes(4, "little") + descriptor + bytes((lz4_header_checksum(descriptor),))
    try:
        plain: bytes = lz4.frame.LZ4FrameDecompressor().decompress(header + sized_block + bytes(4))
    except RuntimeError as error:
        raise CompressionError(f"lz4: {error}") from None
    return plain


def lz4_header_checksum(descriptor: bytes) -> int:
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


_of_thread = threading.local()


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    """One context a thread: making one costs more than decompressing a batch with it."""
    found: zstandard.ZstdDecompressor | None = getattr(_of_thread, "zstd", None)
    if found is None:
        found = _of_thread.zstd = zstandard.ZstdDecompressor()
    return found


def _zstd(data: memoryview, magic: int, max_bytes: int) -> bytes | bytearray:
    """Concatenated frames, with or without a content size."""
    if magic < 2:
        raise CompressionError(f"codec zstd is illegal in message format {magic}")
    if len(data) <= _zstd_piece(max_bytes):
        frame = _zstd_decompressor().decompressobj()
        try:
            plain = frame.decompress(data)
            if frame.eof and not frame.unused_data and len(plain) <= max_bytes:
                return plain
        except zstandard.ZstdError:
            pass  # said properly below
    return _zstd_frames(data, max_bytes)


def _zstd_piece(room: int) -> int:
    """Bytes of input that cannot become much more than ``room``."""
    return max(64, (room + 1) // (_ZSTD_BLOCK_MAX // _ZSTD_MIN_BLOCK))


def _zstd_frames(data: memoryview, max_bytes: int) -> bytearray:
    out = bytearray()
    rest: memoryview = data
    while len(rest):
        frame = _zstd_decompressor().decompressobj()
        position = 0
        while not frame.eof:
            if position == len(rest):
                raise CompressionError("zstd: stream ends in the middle of a frame")
            piece = _zstd_piece(max_bytes - len(out))
            try:
                out += frame.decompress(rest[position : position + piece])
            except zstandard.ZstdError as error:
                raise CompressionError(f"zstd: {error}") from None
            if len(out) > max_bytes:
                raise DecompressedTooLargeError(Codec.ZSTD, max_bytes)
            position = min(position + piece, len(rest))
        rest = rest[position - len(frame.unused_data) :]
    return out


_DECOMPRESSORS: dict[int, Decompressor] = {
    Codec.NONE: _none,
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
