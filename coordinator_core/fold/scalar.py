"""The slow way into the fold, for records that are legal but unusual: read by the scalar code, then rewritten
in the spelling that the kernels know."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from coordinator_core.fold.arena import Arena
from coordinator_core.fold.rules import FoldRules
from coordinator_core.kernels import FoldTables, fold_split
from coordinator_core.kernels.layout import ARENA, CONTROL_KEY, NO_KEY_TYPE, Kind
from coordinator_core.log.batch import control_type
from coordinator_core.log.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from coordinator_core.log.types import Batch, Record
from coordinator_core.records.codec import Key, RecordDecodeError, decode_key, decode_value
from coordinator_core.records.wire import encode_utf8, uuid_bytes, write_uvarint

_KEY_TYPE = struct.Struct(">h")
_REPLACEMENT = "\ufffd".encode()


def split_scalar(batch: Batch, records: Sequence[Record], rules: FoldRules, scratch: Any, arena: Arena) -> int:
    """Put ``records`` into ``scratch`` (which has room for them) and their bytes into ``arena``.

    Returns the size of these bytes.
    """
    before = arena.used
    scratch["batch_records"][:1] = len(records)
    for index, record in enumerate(records):
        row = scratch[index]
        row["offset"] = record.offset
        row["timestamp"] = record.timestamp_ms
        row["size_bytes"] = _size_bytes(batch, record)
        row["kind"] = Kind.GROUP
        row["key_type"] = NO_KEY_TYPE
        row["index"], row["hash"] = index, -1
        body, value = b"", record.value
        if batch.is_control:
            _classify_control(record, row)
        else:
            body, value = _classify(record, rules, row)
        row["key"], row["key_bytes"] = _put(arena, record.key)
        row["value"], row["value_bytes"] = _put(arena, value)
        row["body"], row["body_bytes"] = _put(arena, body)
    return arena.used - before


def fold_scalar(batch: Batch, records: Sequence[Record], size: int, tables: FoldTables, arena: Arena) -> None:
    """Fold the records that :func:`split_scalar` put into the scratch of ``tables``."""
    attributes = batch.codec_id
    attributes |= TRANSACTIONAL_BIT if batch.is_transactional else 0
    attributes |= CONTROL_BIT if batch.is_control else 0
    fold_split(
        arena.data,
        ARENA,
        size,
        len(records),
        batch.base_offset if batch.magic >= 2 or not records else records[0].offset,
        batch.next_offset,
        attributes,
        batch.producer_id,
        batch.producer_epoch,
        tables,
    )


def _put(arena: Arena, data: bytes | None) -> tuple[int, int]:
    return (0, -1) if data is None else (arena.append(data), len(data))


def _classify_control(record: Record, row: Any) -> None:
    row["key_type"] = CONTROL_KEY
    try:
        row["detail"] = int(control_type(record))
        row["kind"] = Kind.CONTROL
    except ValueError:
        pass


def _classify(record: Record, rules: FoldRules, row: Any) -> tuple[bytes, bytes | None]:
    """Fill in the kind of the record; returns its offset key or group, and its value, as the kernels spell them.

    The rules are those of ``replay.interpret``: commits are folded, all other records are kept whole.
    """
    key = record.key
    if key is None or len(key) < _KEY_TYPE.size:
        return b"", record.value
    (key_type,) = _KEY_TYPE.unpack_from(key)
    row["key_type"] = key_type
    try:
        decoded = decode_key(key)
    except RecordDecodeError:
        return b"", record.value
    if decoded.data is None or key_type not in (0, 1):
        return _group_body(decoded), record.value
    body = _text(decoded.data["group"]) + _text(decoded.data["topic"])
    body += struct.pack(">i", decoded.data["partition"])
    if record.value is None:
        row["kind"], row["detail"] = Kind.TOMBSTONE, -1
        return body, None
    newest = rules.max_offset_value_version if key_type == 1 else rules.max_legacy_offset_value_version
    if len(record.value) < _KEY_TYPE.size:
        return b"", record.value
    (version,) = _KEY_TYPE.unpack_from(record.value)
    if not 0 <= version <= newest and not rules.reads_unknown_versions:
        return b"", record.value
    version = min(max(version, 0), newest)
    value = _KEY_TYPE.pack(version) + record.value[_KEY_TYPE.size :]
    try:
        data = decode_value(key_type, value).data
    except RecordDecodeError:
        return b"", record.value
    if data is None:
        return b"", record.value
    row["kind"], row["detail"] = Kind.VALUE, version
    # Before version 4 nothing but the length of the metadata can differ.
    return body, _plain_value(data) if version == 4 else value


def _group_body(key: Key) -> bytes:
    """The group id of a key of type 2 or above: its first field, whatever that is called."""
    return _text(next(iter(key.data.values()))) if key.data else b""


def _text(text: str) -> bytes:
    """A name with its length. U+FFFD becomes one byte that is not UTF-8, so that no name outgrows int16."""
    encoded = encode_utf8(text).replace(_REPLACEMENT, b"\xff")
    return struct.pack(">h", len(encoded)) + encoded


def _plain_value(data: dict[str, Any]) -> bytes:
    """An OffsetCommitValue of version 4 with the same content, nothing unusual in it."""
    out = bytearray(struct.pack(">hqi", 4, data["offset"], data["leaderEpoch"]))
    metadata = encode_utf8(data["metadata"])
    write_uvarint(out, len(metadata) + 1)
    out += metadata + struct.pack(">q", data["commitTimestamp"])
    topic_id = data.get("topicId")
    out += b"\0" if topic_id is None else b"\x01\x00\x10" + uuid_bytes(topic_id)
    return bytes(out)


def _size_bytes(batch: Batch, record: Record) -> int:
    """Bytes that the record takes in its (decompressed) batch, its own framing included."""
    parts = sum(len(part) for part in (record.key, record.value) if part is not None)
    if batch.magic < 2:
        return parts + (26 if batch.magic == 0 else 34)
    base_timestamp = batch.base_timestamp_ms
    timestamp = record.timestamp_ms if batch.timestamp_type == "CreateTime" else base_timestamp
    body = 1 + parts + _varint_bytes(timestamp - base_timestamp)
    body += _varint_bytes(record.offset - batch.base_offset) + _varint_bytes(len(record.headers))
    for part in (record.key, record.value):
        body += _varint_bytes(-1 if part is None else len(part))
    for name, value in record.headers:
        encoded = name.encode()
        body += _varint_bytes(len(encoded)) + len(encoded)
        body += _varint_bytes(-1 if value is None else len(value)) + len(value or b"")
    return _varint_bytes(body) + body


def _varint_bytes(value: int) -> int:
    """Bytes of the zigzag varint of ``value``."""
    zigzag = (value << 1) ^ (value >> 63)
    return max(1, (zigzag.bit_length() + 6) // 7)
