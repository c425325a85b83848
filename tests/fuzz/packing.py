"""Compressed records: as writers make them, and frames that lie about what is in them."""

from __future__ import annotations

import lz4.block
import zstandard

from coordinator_core.log.compression.lz4 import header_checksum
from coordinator_core.log.types import Codec
from tests.fuzz.hostile import Hostile
from tests.log.builders import compress

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_UNSIZED = zstandard.ZstdCompressor(write_content_size=False)
_CHECKED = zstandard.ZstdCompressor(write_checksum=True)
_RLE_ROOM = 1 << 17


def packed(hostile: Hostile, codec: int, plain: bytes, magic: int = 2) -> bytes:
    """``plain`` as the records of a batch with that codec, 5 to 7 among them."""
    if codec == Codec.NONE or codec > Codec.ZSTD:
        return hostile.broken(plain)
    kind = Codec(codec)
    if hostile.strikes():
        plain = _enlarged(hostile, plain)
    if hostile.strikes():
        plain = compress(hostile.pick((Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)), plain)
    if not hostile.strikes() or magic < 2:
        return hostile.broken(compress(kind, plain, magic=magic))
    match kind:
        case Codec.LZ4:
            return hostile.broken(_lz4(hostile, plain))
        case Codec.ZSTD:
            return hostile.broken(_zstd(hostile, plain))
        case _:
            return hostile.broken(compress(kind, plain)) + hostile.random.randbytes(3)


def _enlarged(hostile: Hostile, plain: bytes) -> bytes:
    """Something that takes little room compressed; seldom very much."""
    if hostile.chance(0.9):
        return plain + bytes(hostile.pick((1, 61, 4096, 70_000)))
    return plain + bytes(hostile.pick((1 << 18, 1 << 20)))


def _lz4(hostile: Hostile, plain: bytes) -> bytes:
    """A frame with any flags, whose header checksum is mostly right, of blocks with any size."""
    flags = hostile.pick((0x60, 0x60, 0x60, 0x68, 0x70, 0x64, 0x40, 0x61, 0x62, 0xE0, 0x6C))
    largest = hostile.pick((0x40, 0x40, 0x50, 0x70, 0x30, 0x80, 0x41, 0xF0))
    descriptor = bytes((flags, largest))
    if flags & 0x08:
        descriptor += hostile.number(len(plain), 64).to_bytes(8, "little", signed=True)
    out = _LZ4_MAGIC + descriptor
    out += bytes((header_checksum(descriptor) if hostile.chance(0.9) else hostile.random.randrange(256),))
    pieces = [plain]
    if hostile.chance(0.4):
        cut = hostile.random.randrange(len(plain) + 1)
        pieces = [plain[:cut], plain[cut:]]
    for piece in pieces:
        stored = hostile.chance(0.3)
        block = piece if stored else lz4.block.compress(piece, store_size=False)
        size = hostile.number(len(block), 32) & 0x7FFFFFFF
        out += (size | (0x80000000 if stored else 0)).to_bytes(4, "little") + hostile.broken(block)
        if flags & 0x10:
            out += hostile.random.randbytes(4)
    out += bytes(4) if hostile.chance(0.8) else hostile.random.randbytes(hostile.random.randrange(5))
    return out + (hostile.random.randbytes(4) if flags & 0x04 else b"")


def _zstd(hostile: Hostile, plain: bytes) -> bytes:
    """Frames without a size, with a wrong one, several, skippable ones, windows of any size, bombs."""
    match hostile.random.randrange(6):
        case 0:
            return _UNSIZED.compress(plain)
        case 1:
            return _CHECKED.compress(plain)
        case 2:
            return compress(Codec.ZSTD, plain[:7]) + compress(Codec.ZSTD, plain[7:])
        case 3:
            skippable = b"\x50\x2a\x4d\x18" + hostile.integer(3, 32)[::-1] + b"abc"
            return skippable + compress(Codec.ZSTD, plain)
        case 4:
            return _zstd_by_hand(hostile, plain)
        case _:
            frame = bytearray(compress(Codec.ZSTD, plain))
            frame[4] = hostile.random.randrange(256)
            return bytes(frame)


def _zstd_by_hand(hostile: Hostile, plain: bytes) -> bytes:
    """A frame of stored and run-length blocks behind a header with any sizes."""
    single = hostile.chance(0.5)
    size_flag = hostile.random.randrange(4)
    out = _ZSTD_MAGIC + bytes((size_flag << 6 | single << 5,))
    if not single:
        out += bytes((hostile.random.randrange(256),))
    size_bytes = (1 if single else 0, 2, 4, 8)[size_flag]
    size = hostile.number(len(plain), 64) & ((1 << 8 * size_bytes) - 1)
    out += size.to_bytes(size_bytes, "little")
    for kind in (0, 1) if hostile.chance(0.3) else (0,):
        length = hostile.number(len(plain) if kind == 0 else _RLE_ROOM, 22) & 0x1FFFFF
        out += (length << 3 | kind << 1).to_bytes(3, "little") + (plain if kind == 0 else b"\0")
    return out + (1).to_bytes(3, "little")
