"""Hypothesis strategies derived from the schemas: data that a version of a struct can hold."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from coordinator_core.records.codec_closures import UNKNOWN_TAGGED_FIELDS
from coordinator_core.records.types import ArrayOf, Field, FieldType, Primitive, Schema, Struct
from coordinator_core.records.wire import uuid_text

_INTEGERS = {
    Primitive.INT8: st.integers(-(1 << 7), (1 << 7) - 1),
    Primitive.INT16: st.integers(-(1 << 15), (1 << 15) - 1),
    Primitive.UINT16: st.integers(0, (1 << 16) - 1),
    Primitive.INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    Primitive.INT64: st.integers(-(1 << 63), (1 << 63) - 1),
}
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200 // 8)
_FIRST_UNKNOWN_TAG = 10


def data_for(schema: Schema, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Data of the schema's top struct, with unknown tags in every struct of a flexible version."""
    return _struct(schema.struct, version, schema.is_flexible(version))


def ordinary_data_for(schema: Schema, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """The same without unknown tags."""
    return data_for(schema, version).map(_without_unknown_tags)


def _without_unknown_tags(data: Any) -> Any:
    if isinstance(data, list):
        return [_without_unknown_tags(item) for item in data]
    if not isinstance(data, dict):
        return data
    return {name: _without_unknown_tags(value) for name, value in data.items() if name != UNKNOWN_TAGGED_FIELDS}


def _struct(struct: Struct, version: int, flexible: bool) -> st.SearchStrategy[dict[str, Any]]:
    fields = {field.name: _field(field, version, flexible) for field in struct.fields_in_version(version)}
    if not flexible:
        return st.fixed_dictionaries(fields)
    return st.builds(_with_tags, st.fixed_dictionaries(fields), _unknown_tags())


def _with_tags(data: dict[str, Any], tags: dict[int, bytes]) -> dict[str, Any]:
    return data | {UNKNOWN_TAGGED_FIELDS: sorted(tags.items())} if tags else data


def _unknown_tags() -> st.SearchStrategy[dict[int, bytes]]:
    return st.dictionaries(st.integers(_FIRST_UNKNOWN_TAG, (1 << 31) - 1), st.binary(max_size=6), max_size=2)


def _field(field: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    value = _value(field.type, version, flexible)
    if field.tag is not None:
        value = st.one_of(st.builds(lambda: field.default_value(version)), value)
    return st.one_of(st.none(), value) if field.nullable else value


def _value(type_: FieldType, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if isinstance(type_, Struct):
        return _struct(type_, version, flexible)
    if isinstance(type_, ArrayOf):
        return st.lists(_value(type_.element, version, flexible), max_size=3)
    if type_ is Primitive.STRING:
        return _TEXT
    if type_ is Primitive.BYTES:
        return st.binary(max_size=20)
    if type_ is Primitive.UUID:
        return st.binary(min_size=16, max_size=16).map(uuid_text)
    return _INTEGERS[type_]
