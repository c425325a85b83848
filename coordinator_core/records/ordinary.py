"""Decoders of ordinary bytes (``kernels.values``), made of the schemas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from coordinator_core.records import wire
from coordinator_core.records.types import ArrayOf, Field, FieldType, Primitive, Schema, Struct

if TYPE_CHECKING:
    from coordinator_core.kernels import ValueDecoder

OrdinaryDecode = Callable[[bytes, int], tuple[dict[str, Any], int] | None]
"""Fields of the struct at a position of the bytes, and the position behind it; ``None``: not ordinary."""

OrdinaryRecordDecode = Callable[[bytes, bytes], tuple[dict[str, Any], dict[str, Any]] | None]
"""Fields of a key and of a value; ``None``: one of them is not ordinary."""

_NUMBER_BYTES: Final[dict[FieldType, int]] = {
    Primitive.INT8: 1,
    Primitive.INT16: 2,
    Primitive.UINT16: 0,
    Primitive.INT32: 4,
    Primitive.INT64: 8,
}


@cache
def ordinary_decoder(struct_: Struct, version: int, flexible: bool) -> OrdinaryDecode:
    """Decoder of ``struct_`` in ``version``: the fields as ``codec_closures.struct_decoder`` gives them."""
    return cast("OrdinaryDecode", _decoder(struct_, version, flexible).decode)


def ordinary_record_decoder(key: Schema, value: Schema, version: int) -> OrdinaryRecordDecode:
    """Decoder of a record's key and value, whose int16 prefixes it passes over.

    They are not ordinary with bytes behind the last field.
    """
    decode_key = ordinary_decoder(key.struct, 0, key.is_flexible(0))
    decode_value = ordinary_decoder(value.struct, version, value.is_flexible(version))

    def decode_ordinary(key: bytes, value: bytes) -> tuple[dict[str, Any], dict[str, Any]] | None:
        of_key = decode_key(key, 2)
        if of_key is None or of_key[1] != len(key):
            return None
        of_value = decode_value(value, 2)
        return None if of_value is None or of_value[1] != len(value) else (of_key[0], of_value[0])

    return decode_ordinary


@lru_cache(maxsize=1 << 14)
def _uuid(data: bytes) -> str:
    return wire.uuid_text(data)


def _decoder(
    type_: FieldType, version: int, flexible: bool, *, nullable: bool = False, in_tag: bool = False
) -> ValueDecoder:
    # Loading the kernels takes time that a command need not take which decodes nothing.
    from coordinator_core.kernels import ValueDecoder
    from coordinator_core.kernels.layout import Form

    fields: list[Field] = []
    if type_ in _NUMBER_BYTES:
        form, size = Form.NUMBER, _NUMBER_BYTES[type_]
    elif isinstance(type_, Struct):
        form, size = Form.STRUCT, 0 if in_tag else 1
        fields = sorted(type_.fields_in_version(version), key=lambda field: field.tag is not None)
    elif isinstance(type_, ArrayOf):
        form, size = Form.ARRAY, 0 if flexible else 4
    elif type_ is Primitive.UUID:
        form, size = Form.UUID, 16
    elif type_ is Primitive.STRING:
        form, size = Form.STRING, 0 if flexible else 2
    else:
        form, size = Form.BYTES, 0 if flexible else 4
    parts = [
        _decoder(field.type, version, flexible, nullable=field.nullable, in_tag=field.tag is not None)
        for field in fields
    ]
    if isinstance(type_, ArrayOf):
        parts = [_decoder(type_.element, version, flexible)]
    tagged = [field for field in fields if field.tag is not None]
    return ValueDecoder(
        form,
        size,
        nullable,
        flexible,
        _uuid,
        [field.name for field in fields],
        parts,
        [field.tag for field in tagged],
        [field.default_maker(version) for field in tagged],
    )
