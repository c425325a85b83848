"""Builds log bytes from plain records: batches of every message format, codec and framing.

    segment = build_batch(0, [(b"key", b"value"), (b"gone", None)], codec=Codec.LZ4)
    segment += build_control_batch(2, ControlType.COMMIT, producer_id=7, producer_epoch=1)

Independent of the reader on purpose: nothing here is imported from it but the names of codecs and
control types.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cramjam
import crc32c
import lz4.frame
import zstandard

from coordinator_core.log.types import Codec, ControlType

NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class NewRecord:
    """A record to write. Without ``offset_delta`` it takes its place in the list; without
    ``timestamp`` it takes the batch's."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    offset_delta: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


RecordLike = NewRecord | Sequence[object]
"""A :class:`NewRecord` or a tuple ``(key, value[, timestamp[, offset_delta[, headers]]])``."""


def _record(item: RecordLike) -> NewRecord:
    return item if isinstance(item, NewRecord) else NewRecord(*item)  # type: ignore[arg-type]


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(maxsize=4096)
def varint(value: int, bits: int = 64) -> bytes:
    """Zigzag LEB128, also of values that do not fit ``bits`` bits (they wrap)."""
    return uvarint(((value << 1) ^ (value >> (bits - 1))) & ((1 << bits) - 1))


def compress(codec: Codec, data: bytes, *, magic: int = 2) -> bytes:
    """Compress as Kafka's own writers do."""
    if codec is Codec.GZIP:
        return gzip.compress(data, mtime=0)
    if codec is Codec.SNAPPY:
        return xerial(data)
    if codec is Codec.LZ4:
        return lz4_frame(data, magic=magic)
    if codec is Codec.ZSTD:
        # Like zstd-jni's output stream: no content size in the frame header.
        compressor = zstandard.ZstdCompressor(write_content_size=False).compressobj()
        return compressor.compress(data) + compressor.flush()
    return data


def xerial(data: bytes, *, block: int = 32 * 1024) -> bytes:
    """snappy-java's stream: header, then blocks with an int32 length."""
    out = bytearray(b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1))
    for start in range(0, len(data), block):
        raw = bytes(cramjam.snappy.compress_raw(data[start : start + block]))
        out += struct.pack(">i", len(raw)) + raw
    return bytes(out)


def lz4_frame(data: bytes, *, magic: int = 2) -> bytes:
    """An LZ4 frame as Kafka writes it (64 KiB blocks, no checksums), with the wrong header checksum of
    message format 0."""
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
        assert frame[4:7] == b"\x60\x40\x82"
        frame[6] = 0x1A
    return bytes(frame)


def encode_record(record: RecordLike, *, offset_delta: int, base_timestamp: int, default_timestamp: int) -> bytes:
    """One record of a v2 batch."""
    item = _record(record)
    timestamp = default_timestamp if item.timestamp is None else item.timestamp
    delta = offset_delta if item.offset_delta is None else item.offset_delta
    body = bytearray(b"\x00" + varint(timestamp - base_timestamp) + varint(delta, 32))
    for part in (item.key, item.value):
        body += varint(-1, 32) if part is None else varint(len(part), 32) + part
    body += varint(len(item.headers), 32)
    for name, value in item.headers:
        encoded = name.encode()
        body += varint(len(encoded), 32) + encoded
        body += varint(-1, 32) if value is None else varint(len(value), 32) + value
    return varint(len(body), 32) + bytes(body)


def build_raw_batch(
    base_offset: int,
    records_section: bytes,
    *,
    count: int,
    last_offset_delta: int,
    attributes: int = 0,
    base_timestamp: int = NOW_MS,
    max_timestamp: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
    magic: int = 2,
) -> bytes:
    """A v2 batch around any bytes, with a correct length and CRC: for what a broker would not write."""
    body = struct.pack(
        ">HiqqqhiI",
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count & 0xFFFFFFFF,
    )
    body += records_section
    head = struct.pack(">qiibI", base_offset, 9 + len(body), leader_epoch, magic, crc32c.crc32c(body))
    return head + body


def build_batch(
    base_offset: int,
    records: Iterable[RecordLike],
    *,
    codec: Codec = Codec.NONE,
    timestamp: int = NOW_MS,
    producer_id: int = -1,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = 0,
    last_offset_delta: int | None = None,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
) -> bytes:
    """A v2 batch. Records may be ``(key, value[, timestamp[, offset_delta[, headers]]])``.

    ``last_offset_delta`` beyond the last record leaves a hole as the cleaner does; no records at all make
    an empty batch.  ``log_append_time`` sets the append time, ``delete_horizon`` the KIP-534 horizon.
    """
    items = [_record(item) for item in records]
    deltas = [index if item.offset_delta is None else item.offset_delta for index, item in enumerate(items)]
    timestamps = [timestamp if item.timestamp is None else item.timestamp for item in items]
    base_timestamp = timestamps[0] if timestamps else -1
    attributes = int(codec)
    if log_append_time is not None:
        attributes |= 0x08
    if transactional:
        attributes |= 0x10
    if control:
        attributes |= 0x20
    if delete_horizon is not None:
        attributes |= 0x40
        base_timestamp = delete_horizon
    section = b"".join(
        encode_record(item, offset_delta=delta, base_timestamp=base_timestamp, default_timestamp=timestamp)
        for item, delta in zip(items, deltas, strict=True)
    )
    if last_offset_delta is None:
        last_offset_delta = max(deltas, default=0)
    return build_raw_batch(
        base_offset,
        compress(codec, section) if items else b"",
        count=len(items),
        last_offset_delta=last_offset_delta,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamps, default=timestamp) if log_append_time is None else log_append_time,
        producer_id=producer_id,
        producer_epoch=(0 if producer_id >= 0 else -1) if producer_epoch is None else producer_epoch,
        base_sequence=(0 if transactional and not control else -1) if base_sequence is None else base_sequence,
        leader_epoch=leader_epoch,
    )


def build_empty_batch(
    base_offset: int,
    last_offset_delta: int = 0,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = NOW_MS,
    leader_epoch: int = 0,
) -> bytes:
    """The 61 bytes that the cleaner leaves of an emptied batch."""
    return build_batch(
        base_offset,
        [],
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=transactional,
        control=control,
        last_offset_delta=last_offset_delta,
        leader_epoch=leader_epoch,
    )


def build_control_batch(
    base_offset: int,
    control_type: ControlType | int,
    *,
    producer_id: int,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
    leader_epoch: int = 0,
) -> bytes:
    """A transaction marker (or a control record of any other type number)."""
    record = (struct.pack(">hh", 0, int(control_type)), struct.pack(">hi", 0, coordinator_epoch))
    return build_batch(
        base_offset,
        [record],
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def build_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int = 1,
    timestamp: int = NOW_MS,
    attributes: int = 0,
) -> bytes:
    """A message of format 0 or 1 with its offset and size."""
    body = struct.pack(">bB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", offset, len(body)) + body


def build_wrapper(
    first_offset: int,
    records: Iterable[RecordLike],
    *,
    codec: Codec,
    magic: int = 1,
    timestamp: int = NOW_MS,
    log_append_time: int | None = None,
    wrapper_offset: int | None = None,
) -> bytes:
    """A compressed wrapper. ``offset_delta`` of a record is its distance from ``first_offset``.

    Format 1 writes inner offsets relative to the first inner record kept by the original batch, format 0
    absolute ones; the wrapper carries the last absolute offset unless ``wrapper_offset`` is given.
    """
    items = [_record(item) for item in records]
    deltas = [index if item.offset_delta is None else item.offset_delta for index, item in enumerate(items)]
    stamps = [timestamp if item.timestamp is None else item.timestamp for item in items]
    inner = b"".join(
        build_message(delta if magic == 1 else first_offset + delta, item.key, item.value, magic=magic, timestamp=stamp)
        for item, delta, stamp in zip(items, deltas, stamps, strict=True)
    )
    return build_message(
        first_offset + deltas[-1] if wrapper_offset is None else wrapper_offset,
        None,
        compress(codec, inner, magic=magic),
        magic=magic,
        timestamp=max(stamps) if log_append_time is None else log_append_time,
        attributes=int(codec) | (0x08 if log_append_time is not None else 0),
    )


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}.log"


def write_partition(
    log_dir: Path, segments: dict[int, bytes], *, partition: int = 0, topic: str = "__consumer_offsets"
) -> Path:
    """Write ``{base offset: bytes}`` as the segments of one partition directory; returns that directory."""
    directory = log_dir / f"{topic}-{partition}"
    directory.mkdir(parents=True, exist_ok=True)
    for base_offset, data in segments.items():
        (directory / segment_name(base_offset)).write_bytes(data)
    return directory
