"""Records as the JSON text that Kafka's generated converters and Jackson print.

Fields stand in schema order, nulls are explicit, bytes are base64 with padding, uuids the 22-character
text, tagged fields are left out at their default and unknown ones always.  Non-ASCII text is printed raw;
control characters without a short escape as ``\\u00XX`` in upper-case hexadecimal.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

from coordinator_core.records.blobs import CONSUMER_ASSIGNMENT, CONSUMER_PROTOCOL_TYPE, CONSUMER_SUBSCRIPTION
from coordinator_core.records.codec import Key, Value
from coordinator_core.records.codec_closures import struct_decoder
from coordinator_core.records.schemas import CURRENT_LAYOUT, RECORD_TYPES
from coordinator_core.records.types import ArrayOf, Field, FieldType, Primitive, Schema, Struct
from coordinator_core.records.wire import Reader, RecordDecodeError
from coordinator_core.releases import Release

ToText = Callable[[Any], str]

GROUP_METADATA_TYPE: Final = 2

CONSUMER_BLOBS: Final = {"subscription": CONSUMER_SUBSCRIPTION, "assignment": CONSUMER_ASSIGNMENT}
"""Fields of a GroupMetadataValue's members that are objects where the protocol type is ``consumer``."""

_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\b"): "\\b",
    ord("\f"): "\\f",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_NEEDS_ESCAPE: Final = re.compile(r'["\\\x00-\x1f]')


def quote(text: str) -> str:
    """``text`` as a JSON string, escaped as Jackson does by default."""
    if _NEEDS_ESCAPE.search(text):
        text = text.translate(_ESCAPES)
    return f'"{text}"'


def key_start(key_type: int) -> str:
    """Beginning of a key's JSON, before its data; ``}`` ends it."""
    return f'{{"type":"{key_type}","data":'


def value_start(version: int) -> str:
    """Beginning of a value's JSON, before its data; ``}`` ends it."""
    return f'{{"version":"{version}","data":'


def key_json(key: Key) -> str:
    """``{"type":"1","data":{…}}`` of a key, as kafka-dump-log prints it from 3.8 on; ``ValueError``: unknown type."""
    if key.data is None:
        raise ValueError(f"unknown record type {key.type}")
    data = _struct_text(RECORD_TYPES[key.type].key.struct, 0, None)(key.data)
    return f"{key_start(key.type)}{data}}}"


def value_json(key_type: int, value: Value, release: Release | None = None) -> str:
    """``{"version":"3","data":{…}}`` of a value of a known version, as kafka-dump-log prints it from 3.8 on.

    Subscriptions and assignments of groups with protocol type ``consumer`` are printed as objects when
    they can be decoded, else as base64 like all other blobs.  With a ``release`` the tags that it does not
    know yet are left out.  Raises ``ValueError`` for an unknown version.
    """
    if value.data is None:
        raise ValueError(f"unknown version {value.version} of record type {key_type}")
    return f"{value_start(value.version)}{_value_text(key_type, value, release)}}}"


def _value_text(key_type: int, value: Value, release: Release | None) -> str:
    assert value.data is not None
    if key_type == GROUP_METADATA_TYPE and value.data["protocolType"] == CONSUMER_PROTOCOL_TYPE:
        to_text = _consumer_group_text(value.version)
    else:
        record_type = RECORD_TYPES[key_type]
        schema = record_type.value if value.layout == CURRENT_LAYOUT else record_type.other_layouts[value.layout]
        to_text = _struct_text(schema.struct, value.version, release)
    return to_text(value.data)


@cache
def _struct_text(struct: Struct, version: int, release: Release | None) -> ToText:
    fields = [
        (field, f'"{field.name}":', json_text(field.type, version, release))
        for field in struct.fields_in_version(version)
        if release is None or field.added_in is None or field.added_in <= release
    ]
    return _object_text(fields, version)


def _object_text(fields: list[tuple[Field, str, ToText]], version: int) -> ToText:
    compiled = [
        (field.name, label, to_text, field.tag is not None, field.default_value(version))
        for field, label, to_text in fields
    ]

    def object_text(data: dict[str, Any]) -> str:
        parts = []
        for name, label, to_text, tagged, default in compiled:
            value = data[name]
            if tagged and value == default:
                continue
            parts.append(label + ("null" if value is None else to_text(value)))
        return "{" + ",".join(parts) + "}"

    return object_text


def json_text(type_: FieldType, version: int, release: Release | None) -> ToText:
    """Writer of values of a type, other than null, as JSON."""
    if isinstance(type_, Struct):
        return _struct_text(type_, version, release)
    if isinstance(type_, ArrayOf):
        return _array_of(json_text(type_.element, version, release))
    if type_ in (Primitive.STRING, Primitive.UUID):
        return quote
    if type_ is Primitive.BYTES:
        return _base64_text
    return str


def _base64_text(data: bytes) -> str:
    return f'"{b64encode(data).decode("ascii")}"'


@cache
def _consumer_group_text(version: int) -> ToText:
    """Like the plain text of a GroupMetadataValue, with the members' blobs decoded."""
    blobs = {name: partial(_blob_text, blob) for name, blob in CONSUMER_BLOBS.items()}
    group = RECORD_TYPES[GROUP_METADATA_TYPE].value.struct
    fields: list[tuple[Field, str, ToText]] = []
    for field in group.fields_in_version(version):
        to_text = json_text(field.type, version, None)
        if field.name == "members":
            assert isinstance(field.type, ArrayOf)
            assert isinstance(field.type.element, Struct)
            member = [
                (inner, f'"{inner.name}":', blobs.get(inner.name) or json_text(inner.type, version, None))
                for inner in field.type.element.fields_in_version(version)
            ]
            to_text = _array_of(_object_text(member, version))
        fields.append((field, f'"{field.name}":', to_text))
    return _object_text(fields, version)


def _array_of(element: ToText) -> ToText:
    return lambda items: "[" + ",".join([element(item) for item in items]) + "]"


def _blob_text(schema: Schema, data: bytes) -> str:
    """A member's blob as an object, or as base64 where Kafka's generated reader fails.

    The tool hands the reader the blob's own version.  Above the newest one the reader goes on as with the
    newest until it meets a topic, which it refuses; below zero it reads version 0.
    """
    reader = Reader(data)
    try:
        blob_version = reader.int16()
        version = min(max(blob_version, 0), schema.last_version)
        fields = struct_decoder(schema.struct, version, False)(reader)
    except RecordDecodeError:
        return _base64_text(data)
    topics = fields.get("ownedPartitions") or fields.get("assignedPartitions")
    if blob_version > schema.last_version and topics:
        return _base64_text(data)
    return _struct_text(schema.struct, version, None)(fields)
