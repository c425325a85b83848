"""Record batches as a broker's log cleaner writes them: the rest of a batch when records of it go.

A batch whose records all stay is copied by its owner; here are those that must be built again. Everything
that a reader could miss stays as it was: base and last offset, timestamps, producer fields, base sequence,
leader epoch, and of every record the bytes of key, value and headers. Source: ``MemoryRecords.filterTo`` and
``buildRetainedRecordsInto``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from crc32c import crc32c

from coordinator_core.log.batch import iter_batch_records, java_long, records_section
from coordinator_core.log.compressing import compress
from coordinator_core.log.layout import CODEC_BITS, DELETE_HORIZON_BIT, HEADER_BYTES, LOG_APPEND_TIME_BIT
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Batch, Codec, Record

__all__ = [
    "BatchHeader",
    "empty_batch",
    "encode_batch",
    "encode_message",
    "encode_record",
    "keys_of_batch",
    "rebuild_batch",
    "recoded_batch",
]

NO_TIMESTAMP = -1
_NEVER_SET = 0x80
_LIMITS = Limits()

_PREFIX = struct.Struct(">qiibI")
_BODY = struct.Struct(">HiqqqhiI")
_LEGACY_ENTRY = struct.Struct(">qi")
_LONG = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """Fields of a v2 batch. ``base_timestamp_ms`` is the delete horizon when the attributes say so."""

    base_offset: int
    last_offset: int
    attributes: int = 0
    base_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_ms: int = NO_TIMESTAMP
    partition_leader_epoch: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1

    @classmethod
    def of(cls, batch: Batch) -> BatchHeader:
        """The header of a batch of any format; format 0 becomes CreateTime without a timestamp."""
        return cls(
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            attributes=batch.attributes & ~_NEVER_SET,
            base_timestamp_ms=batch.base_timestamp_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            partition_leader_epoch=batch.partition_leader_epoch,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )


def encode_batch(header: BatchHeader, section: bytes | memoryview, count: int) -> bytes:
    """A v2 batch around ``section``, its records as they go into the file (compressed as the attributes
    say)."""
    body = _BODY.pack(
        header.attributes,
        header.last_offset - header.base_offset,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    ) + bytes(section)
    length = HEADER_BYTES - 12 + len(section)
    return _PREFIX.pack(header.base_offset, length, header.partition_leader_epoch, 2, crc32c(body)) + body


def encode_record(record: Record, *, base_offset: int, base_timestamp_ms: int) -> bytes:
    """One record of a v2 batch."""
    tail = bytearray()
    for part in (record.key, record.value):
        tail += _varint(-1) if part is None else _varint(len(part)) + part
    tail += _varint(len(record.headers))
    for name, value in record.headers:
        encoded = name.encode("utf-8", "surrogateescape")
        tail += _varint(len(encoded)) + encoded
        tail += _varint(-1) if value is None else _varint(len(value)) + value
    return _record(record.timestamp_ms - base_timestamp_ms, record.offset - base_offset, tail)


def encode_message(record: Record, magic: int) -> bytes:
    """A record without headers as a message of format 0 or 1, uncompressed."""
    return _message(record.offset, magic, 0, record.timestamp_ms, record.key, record.value)


def keys_of_batch(batch: Batch, *, path: str) -> bytes:
    """The batch as a plain v2 batch with the offsets and keys of its records, and a value where they have
    one.

    For code that looks at nothing else, and knows one layout. Raises ``DamagedInputError``, as
    :func:`~coordinator_core.log.batch.batch_records` does.
    """
    records = [
        replace(record, timestamp_ms=0, value=None if record.value is None else b"", headers=())
        for record in iter_batch_records(batch, path=path)
    ]
    base = records[0].offset if batch.magic < 2 and records else batch.base_offset
    header = BatchHeader.of(batch)
    plain = replace(header, base_offset=base, attributes=header.attributes & ~CODEC_BITS)
    section = b"".join(encode_record(record, base_offset=base, base_timestamp_ms=0) for record in records)
    return encode_batch(plain, section, len(records))


def rebuild_batch(
    batch: Batch,
    keeps: Callable[[int], bool],
    *,
    path: str,
    delete_horizon_ms: int | None = None,
    convert: bool = False,
    first_offset: int | None = None,
) -> bytes:
    """Bytes of ``batch`` with only those records whose offset ``keeps``; at least one must stay.

    ``delete_horizon_ms`` (epoch milliseconds) is set unless the batch has one already. Messages of formats 0
    and 1 stay in their format, and have no horizon, unless ``convert`` asks for v2. With ``first_offset`` the
    records of a v2 batch are numbered from there on consecutively. Raises ``DamagedInputError`` for records
    that cannot be read.
    """
    if batch.magic < 2:
        records = [record for record in iter_batch_records(batch, path=path) if keeps(record.offset)]
        if not convert:
            return _legacy(batch, records)
        if first_offset is not None:
            records = [replace(record, offset=first_offset + index) for index, record in enumerate(records)]
        return _converted(batch, records, delete_horizon_ms)
    # Read once as records, for the checks; the bytes that stay are copied, so that nothing in them is lost.
    for _ in iter_batch_records(batch, path=path):
        pass
    kept = [item for item in _spans(batch) if keeps(batch.base_offset + item.offset_delta)]
    append_time = batch.max_timestamp_ms if batch.attributes & LOG_APPEND_TIME_BIT else None
    timestamps = [
        java_long(batch.base_timestamp_ms + item.timestamp_delta) if append_time is None else append_time
        for item in kept
    ]
    horizon = batch.delete_horizon_ms if batch.delete_horizon_ms is not None else delete_horizon_ms
    base_timestamp = timestamps[0] if horizon is None else horizon
    header = BatchHeader.of(batch)
    header = replace(
        header,
        attributes=header.attributes if horizon is None else header.attributes | DELETE_HORIZON_BIT,
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max(timestamps),
    )
    deltas = [item.offset_delta for item in kept]
    if first_offset is not None:
        deltas = list(range(len(kept)))
        header = replace(header, base_offset=first_offset, last_offset=first_offset + len(kept) - 1)
    section = b"".join(
        _record(timestamp - base_timestamp, delta, item.tail)
        for item, delta, timestamp in zip(kept, deltas, timestamps, strict=True)
    )
    return encode_batch(header, compress(Codec(batch.codec_id), section), len(kept))


def recoded_batch(batch: Batch, codec: Codec) -> bytes:
    """``batch`` with its records compressed by another codec, bytes for bytes the same records.

    Messages of formats 0 and 1, control batches and empty ones stay as they are. Raises ``CompressionError``
    for records that cannot be decompressed.
    """
    if batch.magic < 2 or batch.is_control or not batch.record_count or batch.codec_id == codec:
        return bytes(batch.data)
    header = BatchHeader.of(batch)
    header = replace(header, attributes=header.attributes & ~CODEC_BITS | codec)
    return encode_batch(header, compress(codec, bytes(records_section(batch, _LIMITS))), batch.record_count)


def empty_batch(batch: Batch, *, one_offset: bool = False) -> bytes:
    """The 61 bytes that stay of a batch for its producer fields and last offset (``writeEmptyHeader``); with
    ``one_offset`` it takes its base offset alone."""
    header = BatchHeader.of(batch)
    header = replace(
        header,
        last_offset=header.base_offset if one_offset else header.last_offset,
        attributes=header.attributes & ~(CODEC_BITS | DELETE_HORIZON_BIT),
        base_timestamp_ms=NO_TIMESTAMP,
    )
    return encode_batch(header, b"", 0)


def _converted(batch: Batch, records: Sequence[Record], delete_horizon_ms: int | None) -> bytes:
    """Messages of an old format as a v2 batch, as the cleaner of Kafka 4.0 and later writes them."""
    base = records[0].offset
    has_tombstone = any(record.value is None for record in records)
    horizon = delete_horizon_ms if has_tombstone else None
    base_timestamp = records[0].timestamp_ms if horizon is None else horizon
    section = b"".join(encode_record(record, base_offset=base, base_timestamp_ms=base_timestamp) for record in records)
    attributes = batch.attributes & (CODEC_BITS | LOG_APPEND_TIME_BIT)
    if batch.magic == 0:
        attributes &= CODEC_BITS
    header = BatchHeader(
        base,
        records[-1].offset,
        attributes if horizon is None else attributes | DELETE_HORIZON_BIT,
        base_timestamp,
        max(record.timestamp_ms for record in records),
    )
    return encode_batch(header, compress(Codec(batch.codec_id), section), len(records))


def _legacy(batch: Batch, records: Sequence[Record]) -> bytes:
    """A message, or a wrapper around its records that stay, in the format that it has (``LegacyRecord``).

    Offsets inside a wrapper of format 1 count from the first message that stays.
    """
    if batch.codec_id == Codec.NONE:
        return bytes(batch.data)
    base = records[0].offset if batch.magic == 1 else 0
    inner = b"".join(
        _message(
            record.offset - base,
            batch.magic,
            batch.attributes & LOG_APPEND_TIME_BIT,
            record.timestamp_ms,
            record.key,
            record.value,
        )
        for record in records
    )
    is_append_time = batch.magic == 1 and batch.attributes & LOG_APPEND_TIME_BIT
    timestamp = batch.max_timestamp_ms if is_append_time else max(record.timestamp_ms for record in records)
    value = compress(Codec(batch.codec_id), inner, magic=batch.magic)
    return _message(records[-1].offset, batch.magic, batch.attributes, timestamp, None, value)


def _message(
    offset: int, magic: int, attributes: int, timestamp_ms: int, key: bytes | None, value: bytes | None
) -> bytes:
    body = struct.pack(">bB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp_ms)
    for part in (key, value):
        body += struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part
    body = zlib.crc32(body).to_bytes(4, "big") + body
    return _LEGACY_ENTRY.pack(offset, len(body)) + body


@dataclass(frozen=True, slots=True)
class _Span:
    """A record of a v2 batch that was checked: its deltas, and its bytes from the key length on."""

    timestamp_delta: int
    offset_delta: int
    tail: bytes


def _spans(batch: Batch) -> Iterator[_Span]:
    section = bytes(records_section(batch, _LIMITS))
    position = 0
    for _ in range(batch.record_count or 0):
        length, at = _read_varint(section, position)
        position = at + length
        timestamp_delta, at = _read_varint(section, at + 1)
        offset_delta, at = _read_varint(section, at)
        yield _Span(timestamp_delta, offset_delta, section[at:position])


def _record(timestamp_delta: int, offset_delta: int, tail: Iterable[int]) -> bytes:
    body = b"\x00" + _varint(timestamp_delta) + _varint(offset_delta) + bytes(tail)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    """Zigzag varint; Java's ``long`` arithmetic, for timestamps that overflow it."""
    word = ((value << 1) ^ -((value >> 63) & 1)) & _LONG
    out = bytearray()
    while word > 0x7F:
        out.append(word & 0x7F | 0x80)
        word >>= 7
    out.append(word)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    word = shift = 0
    while True:
        byte = data[position]
        position += 1
        word |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (word >> 1) ^ -(word & 1), position
        shift += 7
