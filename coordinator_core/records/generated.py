"""Decoders of ordinary bytes, as generated Python: several times as fast as the closures of ``compiled``.

Ordinary is what Kafka's own writer makes: no unknown tag, no malformed text, nothing cut short. Whatever else
the bytes are is left to :func:`~coordinator_core.records.codec_closures.struct_decoder`, which alone knows what
Kafka's reader says of it, and at which byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

from coordinator_core.records import wire
from coordinator_core.records.types import ArrayOf, Field, FieldType, Primitive, Schema, Struct

OrdinaryDecode = Callable[[bytes, int], tuple[dict[str, Any], int] | None]
"""Fields of the struct at a position of the bytes, and the position behind it; ``None``: not ordinary."""

OrdinaryRecordDecode = Callable[[bytes, bytes], tuple[dict[str, Any], dict[str, Any]] | None]
"""Fields of a key and of a value; ``None``: one of them is not ordinary."""

_FORMATS: Final = {
    Primitive.INT8: "b",
    Primitive.INT16: "h",
    Primitive.UINT16: "H",
    Primitive.INT32: "i",
    Primitive.INT64: "q",
}
_ONE_BYTE: Final = 0x80
"""A varint below this is one byte."""


class _UnusualError(ValueError):
    """Exceptions that generated code raises for bytes that it does not decode."""


_UNUSUAL: Final = (ValueError, IndexError, struct.error)
"""Malformed text is a ``ValueError``, too."""


@cache
def ordinary_decoder(struct_: Struct, version: int, flexible: bool) -> OrdinaryDecode:
    """Decoder of ``struct_`` in ``version``: the fields as ``compiled.struct_decoder`` gives them."""
    decode = _struct_function(struct_, version, flexible)

    def decode_ordinary(data: bytes, position: int) -> tuple[dict[str, Any], int] | None:
        try:
            return decode(data, position, len(data))
        except _UNUSUAL:
            return None

    return decode_ordinary


def ordinary_record_decoder(key: Schema, value: Schema, version: int) -> OrdinaryRecordDecode:
    """Decoder of a record's key and value, whose int16 prefixes it passes over.

    They are not ordinary with bytes behind the last field.
    """
    decode_key = _struct_function(key.struct, 0, key.is_flexible(0))
    decode_value = _struct_function(value.struct, version, value.is_flexible(version))

    def decode_ordinary(key: bytes, value: bytes) -> tuple[dict[str, Any], dict[str, Any]] | None:
        try:
            key_fields, key_end = decode_key(key, 2, len(key))
            fields, end = decode_value(value, 2, len(value))
        except _UNUSUAL:
            return None
        return (key_fields, fields) if key_end == len(key) and end == len(value) else None

    return decode_ordinary


@cache
def _struct_function(
    struct_: Struct, version: int, flexible: bool
) -> Callable[[bytes, int, int], tuple[dict[str, Any], int]]:
    """Decoder: takes data, position and end of the data, returns fields and the new position.

    The decoder raises for bytes that are not ordinary.
    """
    source = _Source(version, flexible)
    source.add_struct(struct_)
    names = source.names
    exec(compile("\n".join(source.lines), f"<{struct_.name} version {version}>", "exec"), names)
    found: Callable[[bytes, int, int], tuple[dict[str, Any], int]] = names["decode"]
    return found


class _Source:
    """Lines of one function. A field's value is in the variable ``f`` and its number."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.lines = ["def decode(data, p, end):"]
        self.names: dict[str, Any] = {
            "unpack_from": struct.unpack_from,
            "uuid": _uuid,
            "long_uvarint": _long_uvarint,
            "Unusual": _UnusualError,
        }
        self._version = version
        self._flexible = flexible
        self._depth = 1

    def add_struct(self, struct_: Struct) -> None:
        fields = list(struct_.fields_in_version(self._version))
        untagged = [field for field in fields if field.tag is None]
        tagged = [field for field in fields if field.tag is not None]
        variables = {field: f"f{number}" for number, field in enumerate([*untagged, *tagged])}
        fixed: list[Field] = []
        for field in untagged:
            if field.type in _FORMATS:
                fixed.append(field)
                continue
            self._add_fixed(fixed, variables)
            fixed = []
            self._add_value(variables[field], field.type, self._flexible, field.nullable)
        self._add_fixed(fixed, variables)
        if self._flexible:
            self._add_tags(tagged, variables)
        items = ", ".join(f"{field.name!r}: {variable}" for field, variable in variables.items())
        self._add(f"return {{{items}}}, p")

    def _add(self, line: str) -> None:
        self.lines.append("    " * self._depth + line)

    def _add_fixed(self, fields: list[Field], variables: dict[Field, str]) -> None:
        """Fixed fields that follow one another are unpacked at once."""
        if not fields:
            return
        layout = struct.Struct(">" + "".join(_FORMATS[_primitive(field.type)] for field in fields))
        name = f"unpack_{variables[fields[0]]}"
        self.names[name] = layout.unpack_from
        self._add(f"{''.join(f'{variables[field]}, ' for field in fields)}= {name}(data, p)")
        self._add(f"p += {layout.size}")

    def _add_value(self, variable: str, type_: FieldType, flexible: bool, nullable: bool) -> None:
        if type_ in _FORMATS:
            self._add(f"{variable}, = unpack_from('>{_FORMATS[_primitive(type_)]}', data, p)")
            self._add(f"p += {struct.calcsize('>' + _FORMATS[_primitive(type_)])}")
        elif type_ is Primitive.UUID:
            self._add(f"{variable} = uuid(data[p:p + 16])")
            self._add("p += 16")
        elif isinstance(type_, Struct):
            self._add_nested(variable, type_, flexible, "unpack_from('>b', data, p)[0] < 0" if nullable else None)
        else:
            self._add_length(flexible, 2 if type_ is Primitive.STRING else 4)
            self._add(f"if n < 0: {variable} = None" if nullable else "if n < 0: raise Unusual")
            if nullable:
                self._add("else:")
                self._depth += 1
            self._add_sized(variable, type_, flexible)
            if nullable:
                self._depth -= 1

    def _add_sized(self, variable: str, type_: FieldType, flexible: bool) -> None:
        """A string, bytes or an array of the length ``n``."""
        if isinstance(type_, ArrayOf):
            self._add_array(variable, type_, flexible)
            return
        limit = f" or n > {wire.MAX_STRING_BYTES}" if type_ is Primitive.STRING else ""
        self._add(f"if n > end - p{limit}: raise Unusual")
        self._add(f"{variable} = data[p:p + n]{'.decode()' if type_ is Primitive.STRING else ''}")
        self._add("p += n")

    def _add_array(self, variable: str, array: ArrayOf, flexible: bool) -> None:
        self._add("if n > end - p: raise Unusual")
        if array.element in _FORMATS:
            code = _FORMATS[_primitive(array.element)]
            self._add(f"{variable} = [*unpack_from(f'>{{n}}{code}', data, p)]")
            self._add(f"p += n * {struct.calcsize('>' + code)}")
            return
        self._add(f"{variable} = []")
        self._add("for _ in range(n):")
        self._depth += 1
        self._add_value(f"{variable}e", array.element, flexible, False)
        self._add(f"{variable}.append({variable}e)")
        self._depth -= 1

    def _add_nested(self, variable: str, struct_: Struct, flexible: bool, is_null: str | None) -> None:
        name = f"decode_{variable}"
        self.names[name] = _struct_function(struct_, self._version, flexible)
        if is_null is None:
            self._add(f"{variable}, p = {name}(data, p, end)")
            return
        self._add(f"if {is_null}: {variable}, p = None, p + 1")
        self._add(f"else: {variable}, p = {name}(data, p + 1, end)")

    def _add_length(self, flexible: bool, size: int) -> None:
        if not flexible:
            self._add(f"n, = unpack_from('>{'h' if size == 2 else 'i'}', data, p)")
            self._add(f"p += {size}")
            return
        self._add_uvarint("n")
        self._add("n -= 1")

    def _add_uvarint(self, variable: str) -> None:
        self._add(f"{variable} = data[p]")
        self._add("p += 1")
        self._add(f"if {variable} >= {_ONE_BYTE}: {variable}, p = long_uvarint(data, p - 1)")

    def _add_tags(self, tagged: list[Field], variables: dict[Field, str]) -> None:
        for field in tagged:
            self._add(f"{variables[field]} = {field.default_value(self._version)!r}")
        self._add("tags = data[p]")
        self._add("p += 1")
        self._add(f"if tags >= {_ONE_BYTE}: raise Unusual")
        self._add("for _ in range(tags):")
        self._depth += 1
        self._add("tag = data[p]")
        self._add("p += 1")
        # The declared size means nothing to Kafka where it knows the tag.
        self._add_uvarint("n")
        for field in tagged:
            self._add(f"if tag == {field.tag}:")
            self._depth += 1
            # In a tag a struct that may be null begins with a varint.
            if isinstance(field.type, Struct) and field.nullable:
                self._add(f"if data[p] >= {_ONE_BYTE}: raise Unusual")
                self._add_nested(variables[field], field.type, True, "data[p] == 0")
            else:
                self._add_value(variables[field], field.type, True, field.nullable)
            self._add("continue")
            self._depth -= 1
        self._add("raise Unusual")
        self._depth -= 1


def _primitive(type_: FieldType) -> Primitive:
    assert isinstance(type_, Primitive)
    return type_


@lru_cache(maxsize=1 << 14)
def _uuid(data: bytes) -> str:
    if len(data) < 16:
        raise _UnusualError
    return wire.uuid_text(data)


def _long_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of more than one byte, not negative as an int32."""
    value = 0
    for shift in (0, 7, 14, 21):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < _ONE_BYTE:
            return value, position
    raise _UnusualError
