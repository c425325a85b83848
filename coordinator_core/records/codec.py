"""Keys and values of ``__consumer_offsets`` records: bytes to typed data and back.

Data dicts have Kafka's own camelCase field names in schema order; bytes fields are ``bytes``, uuids the
22-character text Kafka prints, nulls ``None``; unknown tagged fields are kept under
``_unknownTaggedFields``.  A decoded record is encoded to the same bytes, except where the writer used another spelling
than Kafka's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from coordinator_core.records.codec_closures import StructDecode, StructEncode, struct_decoder, struct_encoder
from coordinator_core.records.ordinary import (
    OrdinaryDecode,
    OrdinaryRecordDecode,
    ordinary_decoder,
    ordinary_record_decoder,
)
from coordinator_core.records.schemas import (
    CURRENT_LAYOUT,
    PREVIEW_3_7_LAYOUT,
    RECORD_TYPES,
    SHARE_3_9_LAYOUT,
    SHARE_4_0_LAYOUT,
)
from coordinator_core.records.types import Schema
from coordinator_core.records.wire import Reader
from coordinator_core.records.wire import RecordDecodeError as RecordDecodeError

_INT16 = struct.Struct(">h")


@dataclass(frozen=True, slots=True, eq=False)
class Layouts:
    """Layouts to try for the record types that had several under one version; one of the constants
    of this module.

    ``names`` are tried in order; a layout that a type does not have means its current one.  With ``trial``
    the first layout that consumes the value exactly is taken; when none does, the first that can be read
    at all, and its leftover bytes are kept.
    """

    name: str
    names: tuple[str, ...]
    trial: bool = False


CURRENT: Final = Layouts("current", (CURRENT_LAYOUT,))
PREVIEW_3_7: Final = Layouts("preview-3.7", (PREVIEW_3_7_LAYOUT,))
SHARE_4_0: Final = Layouts("share-4.0", (SHARE_4_0_LAYOUT,))
AUTO: Final = Layouts("auto", (CURRENT_LAYOUT, SHARE_4_0_LAYOUT, SHARE_3_9_LAYOUT, PREVIEW_3_7_LAYOUT), trial=True)


class Key(NamedTuple):
    """A decoded key. ``name`` and ``data`` are ``None`` for an unknown record type.

    ``trailing`` holds bytes after the last field, which Kafka ignores; for an unknown type, the whole body.
    """

    type: int
    name: str | None
    data: dict[str, Any] | None
    trailing: bytes = b""


class Value(NamedTuple):
    """A decoded value. ``data`` is ``None`` when the type or the version is unknown.

    ``layout`` names the layout that was read; ``trailing`` as in :class:`Key`.
    """

    version: int
    data: dict[str, Any] | None
    layout: str = CURRENT_LAYOUT
    trailing: bytes = b""


def decode_key(data: bytes) -> Key:
    """Decode a record key: int16 record type, then the key's fields.

    Raises :class:`RecordDecodeError` for fewer than two bytes and for a malformed body of a known type.
    """
    if len(data) < 2:
        raise _no_version("key")
    number: int = _INT16.unpack_from(data)[0]
    record_type = RECORD_TYPES.get(number)
    if record_type is None:
        return Key(number, None, None, data[2:])
    ordinary, decode = _key_decoders(number)
    found = ordinary(data, 2)
    if found is not None:
        return Key(number, record_type.name, found[0], data[found[1] :])
    reader = Reader(data, 2)
    fields = decode(reader)
    return Key(number, record_type.name, fields, data[reader.position :])


def decode_value(key_type: int, data: bytes, layouts: Layouts = AUTO) -> Value:
    """Decode the value of a record of ``key_type``: int16 version, then the fields.

    A tombstone has no value and must not be passed.  Raises :class:`RecordDecodeError` for fewer than two
    bytes and for a malformed body of a known version.
    """
    if len(data) < 2:
        raise _no_version("value")
    version: int = _INT16.unpack_from(data)[0]
    candidates = _value_decoders(key_type, version, layouts)
    if not candidates:
        return Value(version, None, CURRENT_LAYOUT, data[2:])
    first_error: RecordDecodeError | None = None
    readable: Value | None = None
    for layout, ordinary, decode in candidates:
        found = ordinary(data, 2)
        if found is not None and found[1] == len(data):
            return Value(version, found[0], layout)
        reader = Reader(data, 2)
        try:
            fields = decode(reader)
        except RecordDecodeError as error:
            first_error = first_error or error
            continue
        if reader.position == len(data):
            return Value(version, fields, layout)
        readable = readable or Value(version, fields, layout, data[reader.position :])
    if readable is not None:
        return readable
    assert first_error is not None
    raise first_error


def decode_record(key: bytes, value: bytes) -> tuple[int, int, dict[str, Any], dict[str, Any]] | None:
    """Record type, value version, fields of the key and of the value, when both are ordinary.

    The same as :func:`decode_key` and :func:`decode_value` say, in half the time; ``None`` leaves it to them.
    """
    known = _record_decoder(key[:2], value[:2])
    if known is None:
        return None
    key_type, version, decode = known
    found = decode(key, value)
    return None if found is None else (key_type, version, *found)


def count_elements(data: dict[str, Any]) -> int:
    """Elements of all arrays in decoded fields."""
    found, fields = 0, [*data.values()]
    while fields:
        field = fields.pop()
        if isinstance(field, dict):
            fields += field.values()
        elif isinstance(field, list):
            found += len(field)
            if field and isinstance(field[0], dict):
                fields += field
    return found


def encode_key(key_type: int, data: dict[str, Any]) -> bytes:
    """Bytes of a key; ``ValueError`` for an unknown type or values it cannot hold."""
    record_type = RECORD_TYPES.get(key_type)
    if record_type is None:
        raise ValueError(f"unknown record type {key_type}")
    out = bytearray(_INT16.pack(key_type))
    struct_encoder(record_type.key.struct, 0, False)(out, data)
    return bytes(out)


def encode_value(key_type: int, version: int, data: dict[str, Any], layout: str = CURRENT_LAYOUT) -> bytes:
    """Bytes of a value; ``ValueError`` for an unknown type, version or layout, or values it cannot hold."""
    encode = _value_encoder(key_type, version, layout)
    if encode is None:
        raise ValueError(f"record type {key_type} has no value version {version} in layout {layout}")
    out = bytearray(_INT16.pack(version))
    encode(out, data)
    return bytes(out)


def _no_version(what: str) -> RecordDecodeError:
    text = f"Could not read version from {what}'s buffer."
    return RecordDecodeError(0, text, text)


@cache
def _key_decoders(key_type: int) -> tuple[OrdinaryDecode, StructDecode]:
    struct_ = RECORD_TYPES[key_type].key.struct
    return ordinary_decoder(struct_, 0, False), struct_decoder(struct_, 0, False)


@lru_cache(maxsize=256)
def _record_decoder(key_prefix: bytes, value_prefix: bytes) -> tuple[int, int, OrdinaryRecordDecode] | None:
    key_type, version = (int.from_bytes(prefix, "big", signed=True) for prefix in (key_prefix, value_prefix))
    schema = _value_schema(key_type, CURRENT_LAYOUT)
    if len(key_prefix + value_prefix) < 2 * _INT16.size or schema is None or version not in schema.versions:
        return None
    return key_type, version, ordinary_record_decoder(RECORD_TYPES[key_type].key, schema, version)


def _value_schema(key_type: int, layout: str) -> Schema | None:
    record_type = RECORD_TYPES.get(key_type)
    if record_type is None:
        return None
    return record_type.value if layout == CURRENT_LAYOUT else record_type.other_layouts.get(layout)


@cache
def _value_decoders(
    key_type: int, version: int, layouts: Layouts
) -> tuple[tuple[str, OrdinaryDecode, StructDecode], ...]:
    """Layouts to try, in order: name, decoder of ordinary bytes, decoder of any bytes."""
    found: list[tuple[str, OrdinaryDecode, StructDecode]] = []
    names = layouts.names if layouts.trial else (*layouts.names, CURRENT_LAYOUT)
    for name in names:
        schema = _value_schema(key_type, name)
        if schema is not None and version in schema.versions:
            parts = schema.struct, version, schema.is_flexible(version)
            found.append((name, ordinary_decoder(*parts), struct_decoder(*parts)))
    return tuple(found if layouts.trial else found[:1])


@cache
def _value_encoder(key_type: int, version: int, layout: str) -> StructEncode | None:
    schema = _value_schema(key_type, layout)
    if schema is None or version not in schema.versions:
        return None
    return struct_encoder(schema.struct, version, schema.is_flexible(version))
