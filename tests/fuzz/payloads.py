"""Keys and values of every record type and version, written field by field from the schemas."""

from __future__ import annotations

import struct

from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import ArrayOf, FieldType, Primitive, Schema, Struct
from tests.fuzz.hostile import Hostile

Item = tuple[bytes | None, bytes | None]

_BITS = {
    Primitive.INT8: 8,
    Primitive.INT16: 16,
    Primitive.UINT16: 16,
    Primitive.INT32: 32,
    Primitive.INT64: 64,
}
_GROUP_TYPES = tuple(sorted(set(RECORD_TYPES) - {0, 1}))
_MOST_DEPTH = 6


def item(hostile: Hostile) -> Item:
    """Key and value of a record."""
    key_type = 0 if hostile.chance(0.15) else 1
    if hostile.chance(hostile.group_share):
        key_type = hostile.pick(_GROUP_TYPES)
    if hostile.strikes():
        key_type = hostile.pick((-1, -32768, 9, 18, 24, 99, 32767, 0, 1, 2))
    if hostile.strikes():
        return hostile.pick((None, b"", b"\0", b"\0\1", hostile.random.randbytes(12))), value(hostile, key_type)
    return hostile.broken(_key(hostile, key_type)), None if hostile.chance(0.2) else value(hostile, key_type)


def _key(hostile: Hostile, key_type: int) -> bytes:
    out = struct.pack(">h", key_type)
    if key_type in (0, 1):
        out += hostile.int16_text(hostile.name()) + hostile.int16_text(hostile.name())
        return out + hostile.integer(hostile.random.randrange(3), 32)
    if key_type not in RECORD_TYPES:
        return out + hostile.int16_text(hostile.name())
    return out + _fields(hostile, RECORD_TYPES[key_type].key.struct, 0, flexible=False, depth=0)


def value(hostile: Hostile, key_type: int) -> bytes:
    """The value of a record with such a key."""
    if key_type in (0, 1) and not hostile.strikes():
        return hostile.broken(commit_value(hostile))
    if key_type not in RECORD_TYPES:
        return hostile.random.randbytes(hostile.random.randrange(20))
    known = RECORD_TYPES[key_type]
    layouts = [known.value, *known.other_layouts.values()]
    schema: Schema = hostile.pick(layouts)
    version = hostile.pick(schema.versions)
    body = _fields(hostile, schema.struct, version, flexible=schema.is_flexible(version), depth=0)
    return hostile.broken(hostile.integer(version, 16) + body)


def commit_value(hostile: Hostile) -> bytes:
    """An OffsetCommitValue of any version."""
    version = hostile.pick((3, 3, 3, 4, 4, 0, 1, 2))
    offset = hostile.random.randrange(100)
    metadata = hostile.name() if hostile.chance(0.3) else b""
    out = hostile.integer(version, 16) + hostile.integer(offset, 64)
    if version >= 3:
        out += hostile.integer(offset % 5 - 1, 32)
    if version == 4:
        out += hostile.uvarint(len(metadata) + 1) + metadata + hostile.integer(1_000, 64)
        topic_id = bytes(16) if hostile.chance(0.3) else bytes(range(16))
        return out + _tags(hostile, [(0, topic_id)] if hostile.chance(0.5) else [], depth=0)
    out += hostile.int16_text(metadata) + hostile.integer(1_000, 64)
    return out + hostile.integer(5_000, 64) if version == 1 else out


def _fields(hostile: Hostile, fields: Struct, version: int, *, flexible: bool, depth: int) -> bytes:
    out = bytearray()
    tags = []
    for field in fields.fields_in_version(version):
        null = field.nullable and hostile.chance(0.3)
        data = _value(hostile, field.type, version, flexible=flexible, null=null, depth=depth)
        if field.nullable and isinstance(field.type, Struct) and not null:
            data = b"\1" + data
        if field.tag is None:
            out += data
        elif hostile.chance(0.5):
            tags.append((field.tag, data))
    if flexible:
        out += _tags(hostile, tags, depth)
    return bytes(out)


def _tags(hostile: Hostile, tags: list[tuple[int, bytes]], depth: int) -> bytes:
    """A tag section: tags in order, or unknown ones, twice the same, of a wrong size, sections in them."""
    if hostile.strikes():
        unknown = hostile.random.randbytes(hostile.random.randrange(6))
        if depth < _MOST_DEPTH and hostile.chance(0.4):
            unknown = _tags(hostile, tags, depth + 1)
        tags = [*tags, (hostile.pick((0, 1, 7, 10, 0x7FFFFFFF, 0xFFFFFFFF)), unknown)]
        if hostile.chance(0.3):
            tags.reverse()
        if hostile.chance(0.3):
            tags = tags * 2
    out = hostile.uvarint(len(tags))
    for tag, data in tags:
        out += hostile.uvarint(tag) + hostile.uvarint(len(data)) + data
    return out


def _value(hostile: Hostile, kind: FieldType, version: int, *, flexible: bool, null: bool, depth: int) -> bytes:
    if isinstance(kind, Struct):
        return b"\xff" if null else _fields(hostile, kind, version, flexible=flexible, depth=depth + 1)
    if isinstance(kind, ArrayOf):
        count = 0 if null or depth > _MOST_DEPTH else hostile.pick((0, 1, 1, 2, 3))
        elements = [
            _value(hostile, kind.element, version, flexible=flexible, null=False, depth=depth + 1) for _ in range(count)
        ]
        if flexible:
            return hostile.uvarint(0 if null else count + 1) + b"".join(elements)
        return hostile.integer(-1 if null else count, 32) + b"".join(elements)
    if kind is Primitive.UUID:
        return bytes(range(16))
    if kind in _BITS:
        return hostile.integer(hostile.random.randrange(5), _BITS[kind])
    text = b"" if null else hostile.name() if kind is Primitive.STRING else hostile.random.randbytes(3)
    if flexible:
        return hostile.uvarint(0 if null else len(text) + 1) + text
    bits = 16 if kind is Primitive.STRING else 32
    return hostile.integer(-1 if null else len(text), bits) + text
