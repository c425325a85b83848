"""Schemas compiled to closures, once per (struct, version, flexible).

A decoder takes a :class:`~coordinator_core.records.wire.Reader` and returns a ``dict`` of the struct's
fields in schema order; an encoder appends a struct's bytes to a ``bytearray``.  Tags that the schema does
not know are kept under :data:`UNKNOWN_TAGGED_FIELDS` as ``[(tag, payload), …]`` in the order read; the key
is absent when there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from coordinator_core.records import wire
from coordinator_core.records.types import ArrayOf, Field, FieldType, Primitive, Struct
from coordinator_core.records.wire import Reader, RecordDecodeError

UNKNOWN_TAGGED_FIELDS: Final = "_unknownTaggedFields"

Decode = Callable[[Reader], Any]
Encode = Callable[[bytearray, Any], None]
StructDecode = Callable[[Reader], dict[str, Any]]
StructEncode = Callable[[bytearray, dict[str, Any]], None]

_FIXED_READERS: Final[dict[Primitive, Decode]] = {
    Primitive.INT8: Reader.int8,
    Primitive.INT16: Reader.int16,
    Primitive.UINT16: Reader.uint16,
    Primitive.INT32: Reader.int32,
    Primitive.INT64: Reader.int64,
    Primitive.UUID: Reader.uuid,
}
_FIXED_WRITERS: Final[dict[Primitive, Encode]] = {
    Primitive.INT8: wire.write_int8,
    Primitive.INT16: wire.write_int16,
    Primitive.UINT16: wire.write_uint16,
    Primitive.INT32: wire.write_int32,
    Primitive.INT64: wire.write_int64,
    Primitive.UUID: wire.write_uuid,
}


@cache
def struct_decoder(struct: Struct, version: int, flexible: bool) -> StructDecode:
    """Decoder of ``struct`` in ``version``, with its tag section when ``flexible``."""
    fields = tuple(struct.fields_in_version(version))
    untagged = tuple(
        (field.name, _decoder(field.type, version, flexible, field.nullable, field.name))
        for field in fields
        if field.tag is None
    )
    if not flexible:

        def decode_plain(reader: Reader) -> dict[str, Any]:
            return {name: decode(reader) for name, decode in untagged}

        return decode_plain

    tagged = tuple(field for field in fields if field.tag is not None)
    tag_decoders = {field.tag: (field.name, _tag_decoder(field, version)) for field in tagged}

    def decode_flexible(reader: Reader) -> dict[str, Any]:
        data = {name: decode(reader) for name, decode in untagged}
        for field in tagged:
            data[field.name] = field.default_value(version)
        count = reader.uvarint()
        unknown: list[tuple[int, bytes]] = []
        for _ in range(count):
            tag = reader.uvarint()
            size = reader.uvarint()
            known = tag_decoders.get(tag)
            if known is None:
                unknown.append((tag, reader.raw(size)))
            else:
                name, decode = known
                data[name] = decode(reader)
        if unknown:
            data[UNKNOWN_TAGGED_FIELDS] = unknown
        return data

    return decode_flexible


def _decoder(type_: FieldType, version: int, flexible: bool, nullable: bool, name: str) -> Decode:
    if isinstance(type_, Struct):
        return _struct_field_decoder(type_, version, flexible, nullable)
    if isinstance(type_, ArrayOf):
        return _array_decoder(type_, version, flexible, nullable, name)
    if type_ is Primitive.STRING:
        return _string_decoder(flexible, nullable, name)
    if type_ is Primitive.BYTES:
        return _sized_decoder(Reader.int32, flexible, nullable, name, Reader.raw)
    return _FIXED_READERS[type_]


def _struct_field_decoder(struct: Struct, version: int, flexible: bool, nullable: bool) -> Decode:
    decode = struct_decoder(struct, version, flexible)
    if not nullable:
        return decode

    def decode_nullable(reader: Reader) -> dict[str, Any] | None:
        return None if reader.int8() < 0 else decode(reader)

    return decode_nullable


def _tag_decoder(field: Field, version: int) -> Decode:
    """Decoder of a known tag's payload, which Kafka parses without regard to the declared size."""
    if isinstance(field.type, Struct) and field.nullable:
        decode = struct_decoder(field.type, version, True)

        def decode_nullable(reader: Reader) -> dict[str, Any] | None:
            return None if reader.uvarint() <= 0 else decode(reader)

        return decode_nullable
    return _decoder(field.type, version, True, field.nullable, field.name)


def _compact_length(reader: Reader) -> int:
    length = reader.uvarint() - 1
    # Java subtracts in 32 bits, where the smallest int32 wraps around to the largest.
    return length if length >= -0x80000000 else 0x7FFFFFFF


def _sized_decoder(
    plain_length: Decode, flexible: bool, nullable: bool, name: str, read: Callable[[Reader, int], Any]
) -> Decode:
    """Decoder of a field that begins with its length, ``read`` by reader and length; a negative one stands for null."""
    read_length = _compact_length if flexible else plain_length

    def decode(reader: Reader) -> Any:
        length = read_length(reader)
        if length >= 0:
            return read(reader, length)
        if not nullable:
            text = f"non-nullable field {name} was serialized as null"
            raise RecordDecodeError(reader.position, text, text)
        return None

    return decode


def _string_decoder(flexible: bool, nullable: bool, name: str) -> Decode:
    def read(reader: Reader, length: int) -> str:
        if length > wire.MAX_STRING_BYTES:
            text = f"string field {name} had invalid length {length}"
            raise RecordDecodeError(reader.position, text, text)
        return reader.text(length)

    return _sized_decoder(Reader.int16, flexible, nullable, name, read)


def _array_decoder(array: ArrayOf, version: int, flexible: bool, nullable: bool, name: str) -> Decode:
    element = _decoder(array.element, version, flexible, False, f"{name} element")

    def read(reader: Reader, length: int) -> list[Any]:
        if length > reader.remaining:
            left = reader.remaining
            text = f"Tried to allocate a collection of size {length}, but there are only {left} bytes remaining."
            raise RecordDecodeError(reader.position, text, text)
        reader.begin_array(length)
        return [element(reader) for _ in range(length)]

    return _sized_decoder(Reader.int32, flexible, nullable, name, read)


@cache
def struct_encoder(struct: Struct, version: int, flexible: bool) -> StructEncode:
    """Encoder of ``struct`` in ``version``; ``ValueError`` for a value its type cannot hold.

    A field missing from the data is written with its default; a name that the version does not have is
    refused, since it would be dropped.
    """
    fields = tuple(struct.fields_in_version(version))
    untagged = tuple(
        (field, _encoder(field.type, version, flexible, field.nullable, field.name))
        for field in fields
        if field.tag is None
    )
    tagged = tuple((field, _tag_encoder(field, version)) for field in fields if field.tag is not None)
    names = {field.name for field in fields} | ({UNKNOWN_TAGGED_FIELDS} if flexible else set())

    def encode(out: bytearray, data: dict[str, Any]) -> None:
        if not data.keys() <= names:
            raise ValueError(f"{struct.name} version {version} has no {sorted(data.keys() - names)}")
        for field, encode_field in untagged:
            encode_field(out, data[field.name] if field.name in data else field.default_value(version))
        if not flexible:
            return
        sections: list[tuple[int, bytes]] = list(data.get(UNKNOWN_TAGGED_FIELDS, ()))
        for field, encode_field in tagged:
            assert field.tag is not None
            default = field.default_value(version)
            value = data.get(field.name, default)
            if value != default:
                payload = bytearray()
                encode_field(payload, value)
                sections.append((field.tag, bytes(payload)))
        sections.sort(key=lambda section: section[0])
        wire.write_uvarint(out, len(sections))
        for tag, section in sections:
            wire.write_uvarint(out, tag)
            wire.write_uvarint(out, len(section))
            out += section

    return encode


def _encoder(type_: FieldType, version: int, flexible: bool, nullable: bool, name: str) -> Encode:
    if isinstance(type_, Struct):
        return _struct_field_encoder(type_, version, flexible, nullable, name)
    if isinstance(type_, ArrayOf):
        return _array_encoder(type_, version, flexible, nullable, name)
    if type_ is Primitive.STRING:
        return _string_encoder(flexible, nullable, name)
    if type_ is Primitive.BYTES:
        return _bytes_encoder(flexible, nullable, name)
    write = _FIXED_WRITERS[type_]

    def encode(out: bytearray, value: Any) -> None:
        try:
            write(out, value)
        except (wire.StructError, TypeError) as error:
            raise ValueError(f"{name} cannot be {value!r}: {error}") from error

    return encode


def _refuse_null(nullable: bool, name: str) -> None:
    if not nullable:
        raise ValueError(f"{name} must not be null")


def _struct_field_encoder(struct: Struct, version: int, flexible: bool, nullable: bool, name: str) -> Encode:
    encode_struct = struct_encoder(struct, version, flexible)

    def encode(out: bytearray, value: dict[str, Any] | None) -> None:
        if value is None:
            _refuse_null(nullable, name)
            wire.write_int8(out, -1)
            return
        if nullable:
            wire.write_int8(out, 1)
        encode_struct(out, value)

    return encode


def _tag_encoder(field: Field, version: int) -> Encode:
    if not (isinstance(field.type, Struct) and field.nullable):
        return _encoder(field.type, version, True, field.nullable, field.name)
    encode_struct = struct_encoder(field.type, version, True)

    def encode(out: bytearray, value: dict[str, Any] | None) -> None:
        if value is None:
            wire.write_uvarint(out, 0)
            return
        wire.write_uvarint(out, 1)
        encode_struct(out, value)

    return encode


def _sized_encoder(
    plain_length: Encode, flexible: bool, nullable: bool, name: str, write: Callable[[bytearray, Any, Encode], None]
) -> Encode:
    """Encoder of a field that begins with its length (-1 for null): ``write`` takes output, value and the length's
    writer."""

    def write_compact(out: bytearray, length: int) -> None:
        wire.write_uvarint(out, length + 1)

    write_length = write_compact if flexible else plain_length

    def encode(out: bytearray, value: Any) -> None:
        if value is None:
            _refuse_null(nullable, name)
            write_length(out, -1)
        else:
            write(out, value, write_length)

    return encode


def _string_encoder(flexible: bool, nullable: bool, name: str) -> Encode:
    def write(out: bytearray, value: str, write_length: Encode) -> None:
        data = wire.encode_utf8(value)
        if len(data) > wire.MAX_STRING_BYTES:
            raise ValueError(f"{name} is {len(data)} bytes long, at most {wire.MAX_STRING_BYTES} are legal")
        write_length(out, len(data))
        out += data

    return _sized_encoder(wire.write_int16, flexible, nullable, name, write)


def _bytes_encoder(flexible: bool, nullable: bool, name: str) -> Encode:
    def write(out: bytearray, value: bytes, write_length: Encode) -> None:
        write_length(out, len(value))
        out += value

    return _sized_encoder(wire.write_int32, flexible, nullable, name, write)


def _array_encoder(array: ArrayOf, version: int, flexible: bool, nullable: bool, name: str) -> Encode:
    element = _encoder(array.element, version, flexible, False, f"{name} element")

    def write(out: bytearray, value: list[Any], write_length: Encode) -> None:
        write_length(out, len(value))
        for item in value:
            element(out, item)

    return _sized_encoder(wire.write_int32, flexible, nullable, name, write)
