"""Messages of formats 0 and 1 (``org.apache.kafka.common.record.LegacyRecord`` and
``AbstractLegacyRecordBatch``), plain and compressed wrappers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from coordinator_core.log.compression import decompress
from coordinator_core.log.layout import CODEC_BITS
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Batch, Codec, Record

LOG_OVERHEAD = 12
"""Bytes of the int64 offset and int32 size in front of every entry."""
MIN_MESSAGE_BYTES = 14
"""Smallest message body: format 0 with null key and null value."""

_NO_TIMESTAMP = -1
_PREFIX = struct.Struct(">qiIbb")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")


class InvalidRecordError(Exception):
    """The content of a batch contradicts the format."""


class TooManyRecordsError(InvalidRecordError):
    """A batch holds more records and headers than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} records and headers in one batch")


def parse_message(data: memoryview, position: int) -> Batch:
    """Parse the message that is ``data`` (offset, size and body, at least 26 bytes), plain or wrapper."""
    offset, _size, crc, magic, attributes = _PREFIX.unpack_from(data)
    timestamp = _NO_TIMESTAMP
    if magic == 1 and len(data) >= LOG_OVERHEAD + MIN_MESSAGE_BYTES:
        (timestamp,) = _LONG.unpack_from(data, 18)
    attributes &= 0xFF
    return Batch(
        position=position,
        data=data,
        base_offset=offset,
        last_offset=offset,
        magic=magic,
        attributes=attributes,
        crc=crc,
        crc_valid=zlib.crc32(data[16:]) == crc,
        partition_leader_epoch=-1,
        base_timestamp_ms=timestamp,
        max_timestamp_ms=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=None if attributes & CODEC_BITS else 1,
    )


def legacy_records(batch: Batch, limits: Limits) -> Iterator[Record]:
    """Records of a plain message (one) or of a wrapper.

    Raises :class:`InvalidRecordError`, ``TooManyRecordsError`` and ``CompressionError``.  The CRC of an inner message
    is reported in the record, not enforced: no Kafka reader does.
    """
    if batch.codec_id == Codec.NONE:
        key, value = _key_and_value(batch.data, batch.magic)
        yield Record(batch.last_offset, batch.base_timestamp_ms, key, value, crc=batch.crc, crc_valid=batch.crc_valid)
        return

    content = wrapper_content(batch, limits)
    last_inner = None
    for start, _ in _spans(memoryview(content)):
        last_inner = start
    if last_inner is None:
        raise InvalidRecordError("compressed wrapper with no inner messages")

    base = 0
    if batch.magic == 1 and batch.last_offset != 0:
        # Offset 0 on the wrapper of several messages came from old librdkafka and means base 0.
        (last_relative,) = _LONG.unpack_from(content, last_inner)
        base = batch.last_offset - last_relative
        if base < 0:
            raise InvalidRecordError(
                f"wrapper offset {batch.last_offset} is below its last inner offset {last_relative}"
            )
    elif batch.magic == 0:
        (last_absolute,) = _LONG.unpack_from(content, last_inner)
        if last_absolute != batch.last_offset:
            raise InvalidRecordError(f"wrapper offset {batch.last_offset} is not its last inner offset {last_absolute}")
    append_time = batch.max_timestamp_ms if batch.timestamp_type == "LogAppendTime" else None
    previous = -1
    for index, inner in enumerate(_inner_entries(memoryview(content))):
        if index == limits.max_records:
            raise TooManyRecordsError(limits.max_records)
        if inner.codec_id != Codec.NONE:
            raise InvalidRecordError("compressed message inside a wrapper")
        offset = base + inner.last_offset
        if offset <= previous:
            raise InvalidRecordError(f"inner offset {offset} after {previous}")
        previous = offset
        key, value = _key_and_value(inner.data, inner.magic)
        timestamp = inner.base_timestamp_ms if append_time is None or inner.magic == 0 else append_time
        yield Record(offset, timestamp, key, value, crc=inner.crc, crc_valid=inner.crc_valid)


def wrapper_content(batch: Batch, limits: Limits) -> bytes | bytearray:
    """The messages in a wrapper; raises :class:`InvalidRecordError` and ``CompressionError``."""
    _, value_position = _sized(batch.data, _key_position(batch.magic))
    compressed, _ = _sized(batch.data, value_position)
    if compressed is None:
        raise InvalidRecordError("compressed wrapper with a null value")
    allowance = limits.decompressed_allowance(len(compressed))
    return decompress(batch.codec_id, compressed, magic=batch.magic, max_bytes=allowance)


def _spans(content: memoryview) -> Iterator[tuple[int, int]]:
    """Start and end of each inner entry; a partial one at the end is no entry."""
    position = 0
    while position + LOG_OVERHEAD <= len(content):
        (size,) = _INT.unpack_from(content, position + 8)
        if size < MIN_MESSAGE_BYTES:
            raise InvalidRecordError(f"inner message of {size} bytes")
        end = position + LOG_OVERHEAD + size
        if end > len(content):
            return
        yield position, end
        position = end


def _inner_entries(content: memoryview) -> Iterator[Batch]:
    for start, end in _spans(content):
        magic = content[start + 16]
        if magic > 1:
            raise InvalidRecordError(f"inner message of format {magic}")
        yield parse_message(content[start:end], start)


def _key_and_value(data: memoryview, magic: int) -> tuple[bytes | None, bytes | None]:
    key, position = _sized(data, _key_position(magic))
    value, _ = _sized(data, position)
    return None if key is None else bytes(key), None if value is None else bytes(value)


def _key_position(magic: int) -> int:
    return 18 if magic == 0 else 26


def _sized(data: memoryview, position: int) -> tuple[memoryview | None, int]:
    if position + 4 > len(data):
        raise InvalidRecordError("message ends in a length")
    (size,) = _INT.unpack_from(data, position)
    position += 4
    if size < 0:
        return None, position
    if position + size > len(data):
        raise InvalidRecordError(f"field of {size} bytes runs past the end of its message")
    return data[position : position + size], position + size
