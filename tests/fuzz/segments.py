"""Segments: batches of every format with valid sizes and checksums around hostile contents."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from crc32c import crc32c

from coordinator_core.log.compression import CompressionError, decompress
from coordinator_core.log.layout import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchField,
)
from coordinator_core.log.types import Codec
from tests.fuzz import payloads
from tests.fuzz.hostile import Hostile, changed
from tests.fuzz.packing import packed
from tests.log.builders import NOW_MS

_LOGS = (Path(__file__).parents[1] / "corpus", Path(__file__).parents[1] / "reports" / "data")
_PIECE_BYTES = 1200
_PIECES_OF_A_LOG = 3
_MAX_OFFSET = (1 << 63) - 1
_RECODED = (Codec.LZ4, Codec.ZSTD)


def segment(hostile: Hostile) -> bytes:
    """The bytes of a segment, mostly some hundreds."""
    data = _real(hostile) if hostile.chance(0.3) else _made(hostile)
    if hostile.strikes():
        match hostile.random.randrange(4):
            case 0:
                return data[: hostile.random.randrange(len(data) + 1)]
            case 1:
                return data + bytes(hostile.random.randrange(70))
            case 2:
                return data + hostile.random.randbytes(hostile.random.randrange(70))
            case _:
                at = hostile.random.randrange(len(data) + 1)
                return data[:at] + bytes((hostile.random.randrange(256),)) + data[at + 1 :]
    return data


def segment_of_groups(hostile: Hostile) -> bytes:
    """Mostly records of groups."""
    hostile.group_share = 0.95
    return _made(hostile)


def packed_segment(hostile: Hostile) -> bytes:
    """Mostly compressed batches."""
    hostile.packed_share = 0.9
    return _made(hostile)


# Made from nothing


def _made(hostile: Hostile) -> bytes:
    offset = 0
    if hostile.strikes():
        offset = hostile.pick((1, 1 << 31, (1 << 31) - 2, _MAX_OFFSET - 5, _MAX_OFFSET, 1 << 62))
    batches = []
    for _ in range(hostile.pick((1, 1, 2, 2, 3, 5))):
        data, count = hostile.pick(_BATCHES)(hostile, offset)
        batches.append(data)
        offset += count + (hostile.random.randrange(4) if hostile.chance(0.2) else 0)
    if hostile.strikes():
        hostile.random.shuffle(batches)
    return b"".join(batches)


def _records(hostile: Hostile, items: list[payloads.Item]) -> tuple[bytes, int]:
    """Records of a v2 batch, and the last offset delta."""
    out = bytearray()
    delta = -1
    for key, value in items:
        delta += 1 + (hostile.random.randrange(3) if hostile.chance(0.1) else 0)
        body = hostile.integer(0, 8) + hostile.varint(delta, 64) + hostile.varint(delta)
        for part in (key, value):
            body += hostile.varint(-1) if part is None else hostile.varint(len(part)) + part
        if hostile.chance(0.03):
            name = hostile.name()
            body += hostile.varint(2) + (hostile.varint(len(name)) + name + hostile.varint(-1)) * 2
        else:
            body += hostile.varint(0)
        body = hostile.broken(body)
        out += hostile.varint(len(body)) + body
    return bytes(out), max(delta, 0)


def _batch(
    hostile: Hostile, offset: int, items: list[payloads.Item], attributes: int, producer_id: int
) -> tuple[bytes, int]:
    section, last_delta = _records(hostile, items)
    codec = 0
    if hostile.chance(hostile.packed_share):
        codec = hostile.pick((Codec.LZ4, Codec.LZ4, Codec.ZSTD, Codec.ZSTD, Codec.GZIP, Codec.SNAPPY))
        if hostile.strikes():
            codec = hostile.random.randrange(8)
        section = packed(hostile, codec, section)
    if hostile.strikes():
        attributes ^= hostile.pick((LOG_APPEND_TIME_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT, CONTROL_BIT))
    data = framed(
        hostile.integer(offset, 64),
        hostile.integer(0, 32),
        struct.pack(">H", attributes | codec)
        + hostile.integer(last_delta, 32)
        + hostile.integer(NOW_MS, 64)
        + hostile.integer(NOW_MS, 64)
        + hostile.integer(producer_id, 64)
        + hostile.integer(0 if producer_id >= 0 else -1, 16)
        + hostile.integer(-1, 32)
        + hostile.integer(len(items), 32)
        + section,
    )
    return _misdeclared(hostile, data), last_delta + 1


def framed(offset: bytes, leader_epoch: bytes, body: bytes) -> bytes:
    """A v2 batch from its attributes on, with the size and the CRC that it has."""
    size = len(body) + BatchField.ATTRIBUTES - LENGTH_END
    return offset + struct.pack(">i", size) + leader_epoch + b"\2" + struct.pack(">I", crc32c(body)) + body


def _misdeclared(hostile: Hostile, data: bytes) -> bytes:
    """A size, message format or CRC that is not the batch's, now and then."""
    if not hostile.strikes() or hostile.chance(0.7):
        return data
    out = bytearray(data)
    match hostile.random.randrange(3):
        case 0:
            out[8:12] = hostile.integer(len(data) - LENGTH_END, 32)
        case 1:
            out[BatchField.MAGIC] = hostile.random.randrange(5)
        case _:
            out[BatchField.CRC + 1] ^= 0x40
    return bytes(out)


def _data(hostile: Hostile, offset: int) -> tuple[bytes, int]:
    items = [payloads.item(hostile) for _ in range(hostile.pick((1, 1, 2, 3, 4)))]
    if hostile.strikes():
        items = items * hostile.pick((0, 2, 40, 150))
    transactional = hostile.chance(0.3)
    producer_id = hostile.pick((1, 1, 2, 3)) if transactional else -1
    return _batch(hostile, offset, items, TRANSACTIONAL_BIT if transactional else 0, producer_id)


def _control(hostile: Hostile, offset: int) -> tuple[bytes, int]:
    items: list[payloads.Item] = []
    for _ in range(hostile.pick((1, 1, 1, 1, 0, 2))):
        key = hostile.integer(0, 16) + hostile.integer(hostile.pick((1, 1, 0, 2, 77)), 16)
        items.append((hostile.broken(key), hostile.integer(0, 16) + hostile.integer(0, 32)))
    return _batch(hostile, offset, items, TRANSACTIONAL_BIT | CONTROL_BIT, hostile.pick((1, 1, 2, 3)))


def _empty(hostile: Hostile, offset: int) -> tuple[bytes, int]:
    return _batch(hostile, offset, [], hostile.pick((0, TRANSACTIONAL_BIT, CONTROL_BIT)), hostile.pick((-1, 1)))


def _legacy(hostile: Hostile, offset: int) -> tuple[bytes, int]:
    """Messages of format 0 or 1, or a wrapper around them, wrappers in it too."""
    magic = hostile.random.randrange(2)
    items = [payloads.item(hostile) for _ in range(hostile.pick((1, 2, 3)))]
    if hostile.chance(0.5):
        messages = (_message(hostile, offset + index, magic, 0, *item) for index, item in enumerate(items))
        return b"".join(messages), len(items)
    codec = hostile.pick((Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    first = 0 if magic else offset
    inner = b"".join(
        _message(hostile, first + index, hostile.number(magic, 2) & 1, 0, *item) for index, item in enumerate(items)
    )
    if hostile.strikes():
        inner = _message(hostile, first, magic, codec, None, packed(hostile, codec, inner, magic))
    value = packed(hostile, codec, inner, magic)
    return _message(hostile, offset + len(items) - 1, magic, codec, None, value), len(items)


def _message(
    hostile: Hostile, offset: int, magic: int, attributes: int, key: bytes | None, value: bytes | None
) -> bytes:
    body = bytes((magic, hostile.number(attributes, 8) & 0xFF))
    if magic == 1:
        body += hostile.integer(NOW_MS, 64)
    for part in (key, value):
        body += hostile.integer(-1, 32) if part is None else hostile.integer(len(part), 32) + part
    body = struct.pack(">I", zlib.crc32(body)) + body
    return hostile.integer(min(offset, _MAX_OFFSET), 64) + hostile.integer(len(body), 32) + body


_BATCHES: tuple[Callable[[Hostile, int], tuple[bytes, int]], ...] = (
    *(_data,) * 7,
    *(_control,) * 2,
    _empty,
    _legacy,
)


# Made from others


def variant(hostile: Hostile, data: bytes) -> bytes:
    """A segment like ``data``, with something in it changed; cheaper to make than a new one."""
    entries = list(entries_of(data))
    if not entries:
        return changed(data, hostile.random)
    hostile.rate = max(hostile.rate, 0.15)
    at = hostile.random.randrange(len(entries))
    match hostile.random.randrange(12):
        case 0:
            entries.insert(at, entries[hostile.random.randrange(len(entries))])
        case 1:
            del entries[at]
        case 2:
            entries[at] = changed(entries[at], hostile.random)
        case 3:
            whole = b"".join(entries)
            return whole[: hostile.random.randrange(len(whole) + 1)]
        case _:
            entries[at] = _inside(hostile, entries[at])
    return b"".join(entries)


def _inside(hostile: Hostile, entry: bytes) -> bytes:
    """The entry with its body changed; compressed records mostly before they are compressed."""
    attributes = entry[BatchField.ATTRIBUTES + 1] if len(entry) > HEADER_BYTES else 0
    codec = attributes & CODEC_BITS
    if entry[BatchField.MAGIC] != 2 or codec not in _RECODED or hostile.chance(0.3):
        return _mutated(hostile, entry)
    try:
        plain = decompress(codec, memoryview(entry)[HEADER_BYTES:], magic=2, max_bytes=1 << 16)
    except CompressionError:
        return _mutated(hostile, entry)
    whole = _mutated(hostile, entry[:HEADER_BYTES] + bytes(plain))
    return resealed(whole[:HEADER_BYTES] + packed(hostile, codec, whole[HEADER_BYTES:]))


# Made from what brokers wrote


@cache
def pieces() -> tuple[tuple[bytes, ...], ...]:
    """Some batches of each log in the corpora, in order."""
    found = []
    for root in _LOGS:
        for path in sorted(root.rglob("*.log")):
            entries = list(entries_of(path.read_bytes()))
            for start in range(0, len(entries), max(1, len(entries) // _PIECES_OF_A_LOG)):
                piece: list[bytes] = []
                for entry in entries[start : start + 6]:
                    if sum(map(len, piece)) + len(entry) > _PIECE_BYTES:
                        break
                    piece.append(entry)
                if piece:
                    found.append(tuple(piece))
    return tuple(dict.fromkeys(found))


def entries_of(data: bytes) -> Iterator[bytes]:
    """The entries of a segment, as far as their sizes lead."""
    position = 0
    while position + BatchField.MAGIC < len(data):
        size = LENGTH_END + max(struct.unpack_from(">i", data, position + BatchField.LENGTH)[0], 0)
        if size <= BatchField.MAGIC or position + size > len(data):
            break
        yield data[position : position + size]
        position += size


def _real(hostile: Hostile) -> bytes:
    entries = list(hostile.pick(pieces()))
    if hostile.strikes():
        entries += hostile.pick(pieces())
    first = struct.unpack_from(">q", entries[0])[0]
    return b"".join(_moved(_mutated(hostile, entry), first) for entry in entries)


def _moved(entry: bytes, first: int) -> bytes:
    """The entry with offsets that count from ``first``; no checksum covers them."""
    offset = struct.unpack_from(">q", entry)[0]
    moved = (offset - first + (1 << 63)) % (1 << 64) - (1 << 63)
    return struct.pack(">q", moved) + entry[8:]


def _mutated(hostile: Hostile, entry: bytes) -> bytes:
    """The entry with bytes of its body changed, put in or left out; size and checksum are right again."""
    body = bytearray(entry)
    while hostile.strikes() and len(body) > BatchField.ATTRIBUTES:
        at = hostile.random.randrange(BatchField.ATTRIBUTES, len(body) + 1)
        if hostile.chance(0.7):
            at = hostile.random.randrange(min(HEADER_BYTES, len(body)), len(body) + 1)
        match hostile.random.randrange(6):
            case 0:
                body[at : at + 1] = bytes((hostile.random.randrange(256),))
            case 1:
                body[at : at + 1] = bytes((body[at] ^ 1 << hostile.random.randrange(8),)) if at < len(body) else b""
            case 2:
                body[at:at] = hostile.random.randbytes(hostile.random.randint(1, 4))
            case 3:
                del body[at : at + hostile.random.randint(1, 8)]
            case 4:
                width = hostile.pick((2, 4, 8))
                body[at : at + width] = hostile.integer(0, 8 * width)
            case _:
                other = hostile.pick(hostile.pick(pieces()))
                start = hostile.random.randrange(len(other))
                body[at:at] = other[start : start + hostile.random.randrange(40)]
    return resealed(bytes(body))


def resealed(entry: bytes) -> bytes:
    """The entry with the size and the checksum that it has."""
    magic = entry[BatchField.MAGIC] if len(entry) > BatchField.ATTRIBUTES else 3
    if magic > 2:
        return entry
    sized = entry[:8] + struct.pack(">i", len(entry) - LENGTH_END) + entry[12:]
    if magic < 2:
        return sized[:12] + struct.pack(">I", zlib.crc32(sized[16:])) + sized[16:]
    crc = struct.pack(">I", crc32c(sized[BatchField.ATTRIBUTES :]))
    return sized[: BatchField.CRC] + crc + sized[BatchField.ATTRIBUTES :]
