"""Record batches of message format 2 (``org.apache.kafka.common.record.DefaultRecordBatch``), and the
records of a batch of any format."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.compression import CompressionError, DecompressedTooLargeError, decompress
from coordinator_core.log.layout import HEADER_BYTES, MIN_RECORD_BYTES
from coordinator_core.log.legacy import InvalidRecordError, TooManyRecordsError, legacy_records
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Batch, Codec, ControlType, Record

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC_START = 21
_MAX_INT = 0x7FFFFFFF
_MOST_LONG = 1 << 63


def parse_batch(data: memoryview, position: int) -> Batch:
    """Parse the header of the v2 batch that is ``data``, at least 61 bytes; verifies no more than the CRC."""
    (
        base_offset,
        _length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEADER.unpack_from(data)
    return Batch(
        position=position,
        data=data,
        base_offset=base_offset,
        last_offset=java_long(base_offset + last_offset_delta),
        magic=magic,
        attributes=attributes & 0xFF,
        crc=crc,
        crc_valid=_crc32c()(data[_CRC_START:]) == crc,
        partition_leader_epoch=leader_epoch,
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )


@cache
def _crc32c() -> Callable[[memoryview], int]:
    """Loaded when it is needed: kernels check what they walk, and the package takes long to load."""
    from crc32c import crc32c

    return crc32c


def batch_records(batch: Batch, *, path: str, limits: Limits | None = None) -> list[Record]:
    """All records of a batch of any message format, in offset order as written.

    ``path`` names the file in errors.  Raises :class:`DamagedInputError` when the content is not valid;
    its record offset is that of the first record that cannot be read.
    """
    return list(iter_batch_records(batch, path=path, limits=limits))


def iter_batch_records(batch: Batch, *, path: str, limits: Limits | None = None) -> Iterator[Record]:
    """Like :func:`batch_records`, one record at a time."""
    limits = Limits() if limits is None else limits
    next_offset = batch.base_offset
    records = _default_records(batch, limits) if batch.magic >= 2 else legacy_records(batch, limits)
    try:
        for record in records:
            yield record
            next_offset = record.offset + 1
    except (DecompressedTooLargeError, TooManyRecordsError) as error:
        raise _damaged(batch, path, next_offset, "limit_exceeded", str(error)) from None
    except CompressionError as error:
        raise _damaged(batch, path, next_offset, "bad_compression", str(error)) from None
    except InvalidRecordError as error:
        raise _damaged(batch, path, next_offset, "bad_records", str(error)) from None


def _damaged(batch: Batch, path: str, record_offset: int, kind: str, detail: str) -> DamagedInputError:
    return DamagedInputError(Damage(path, batch.position, record_offset, kind, detail))


def records_section(batch: Batch, limits: Limits) -> memoryview:
    """The records of a v2 batch as plain bytes, decompressed when needed; raises ``CompressionError``."""
    section = batch.data[HEADER_BYTES:]
    if batch.codec_id == Codec.NONE:
        return section
    allowance = limits.decompressed_allowance(len(section))
    return memoryview(decompress(batch.codec_id, section, magic=2, max_bytes=allowance))


def _default_records(batch: Batch, limits: Limits) -> Iterator[Record]:
    count = batch.record_count
    assert count is not None
    if count < 0:
        raise InvalidRecordError(f"batch declares {count} records")
    if count == 0:
        # Kafka looks at nothing else of such a batch.
        return
    section = bytes(records_section(batch, limits))
    if count * MIN_RECORD_BYTES > len(section):
        raise InvalidRecordError(f"{len(section)} bytes cannot hold the declared {count} records")

    room = limits.max_records - count
    if room < 0:
        raise TooManyRecordsError(limits.max_records)
    append_time = batch.max_timestamp_ms if batch.timestamp_type == "LogAppendTime" else None
    base_sequence, base_timestamp = batch.base_sequence, batch.base_timestamp_ms
    base_offset, last_offset = batch.base_offset, batch.last_offset
    last_offset_delta = _int(last_offset - base_offset)
    previous_delta = -1
    position = 0
    for index in range(count):
        try:
            length, body = _varint(section, position)
            end = body + length
            if length < 0 or end > len(section):
                raise InvalidRecordError(f"record {index} of {length} bytes runs past the end of its batch")
            timestamp_delta, at = _varlong(section, body + 1)
            offset_delta, at = _varint(section, at)
            key, at = _sized(section, at, end)
            value, at = _sized(section, at, end)
            headers: tuple[tuple[str, bytes | None], ...] = ()
            if at + 1 == end and section[at] == 0:
                at = end
            else:
                headers, at = _headers(section, at, end, room)
                room -= len(headers)
        except IndexError:
            raise InvalidRecordError(f"record {index} runs past the end of its batch") from None
        if at != end:
            raise InvalidRecordError(f"record {index} takes {at - body} bytes instead of {length}")
        if not previous_delta < offset_delta <= last_offset_delta:
            raise InvalidRecordError(
                f"record {index} has offset delta {offset_delta}, after {previous_delta} and"
                f" with the batch's last being {last_offset_delta}"
            )
        previous_delta = offset_delta
        position = end
        if base_sequence < 0:
            sequence = -1
        elif base_sequence > _MAX_INT - offset_delta:
            sequence = offset_delta - (_MAX_INT - base_sequence) - 1
        else:
            sequence = base_sequence + offset_delta
        timestamp = append_time
        if timestamp is None:
            timestamp = base_timestamp + timestamp_delta
            if not -_MOST_LONG <= timestamp < _MOST_LONG:
                timestamp = java_long(timestamp)
        offset = base_offset + offset_delta
        if offset > last_offset:
            offset = java_long(offset)
        yield Record(offset, timestamp, key, value, headers, sequence)
    if position != len(section):
        raise InvalidRecordError(f"{len(section) - position} bytes remain after {count} records")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Zigzag int32 of at most five bytes; returns it and the position behind it."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return (value >> 1) ^ -(value & 1), position
    raise InvalidRecordError("varint of more than five bytes")


def _varlong(data: bytes, position: int) -> tuple[int, int]:
    """Zigzag int64 of at most ten bytes."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), position
    raise InvalidRecordError("varlong of more than ten bytes")


def _sized(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size = data[position]
    if size < 0x80:
        size, position = (size >> 1) ^ -(size & 1), position + 1
    else:
        size, position = _varint(data, position)
    if size < 0:
        return None, position
    if position + size > end:
        raise InvalidRecordError(f"field of {size} bytes runs past the end of its record")
    return data[position : position + size], position + size


def _headers(data: bytes, position: int, end: int, room: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = _varint(data, position)
    if count == 0:
        return (), position
    if count < 0 or count > end - position:
        raise InvalidRecordError(f"record declares {count} headers")
    if count > room:
        raise TooManyRecordsError(room)
    headers = []
    for _ in range(count):
        name, position = _sized(data, position, end)
        if name is None:
            raise InvalidRecordError("header without a name")
        value, position = _sized(data, position, end)
        headers.append((name.decode("utf-8", "replace"), value))
    return tuple(headers), position


def _int(value: int) -> int:
    """The ``int`` of the lower 32 bits."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def java_long(value: int) -> int:
    """Java's ``long`` arithmetic, for timestamps and offsets that overflow it."""
    return value if -(1 << 63) <= value < 1 << 63 else (value + (1 << 63)) % (1 << 64) - (1 << 63)


def control_type(record: Record) -> ControlType:
    """Type of a control record by its key (``ControlRecordType.parse``): any version from 0 up is read by
    the layout of version 0; ``UNKNOWN`` for types that this code does not know.

    Raises ``ValueError`` when the key is no control key.
    """
    if record.key is None or len(record.key) < 4:
        raise ValueError(f"control record at record offset {record.offset} has no key of at least 4 bytes")
    version, number = struct.unpack_from(">hh", record.key)
    if version < 0:
        raise ValueError(f"control record at record offset {record.offset} has key version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def marker_type(record: Record) -> ControlType | None:
    """Type of a control record; ``None`` where its key is unreadable: the replay counts it among the records that
    cannot be read."""
    try:
        return control_type(record)
    except ValueError:
        return None
