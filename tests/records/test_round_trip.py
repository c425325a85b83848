"""Whatever a schema can hold is encoded and decoded without loss, in every type, version and layout."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.records.codec import (
    PREVIEW_3_7,
    SHARE_4_0,
    Layouts,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from coordinator_core.records.schemas import RECORD_TYPES
from tests.examples import examples
from tests.records.layouts import SHARE_3_9
from tests.records.reencoding import key_reencodes_exactly, reencodes_exactly
from tests.records.strategies import data_for

EXAMPLES = examples(50)

_CHOICES = {"preview-3.7": PREVIEW_3_7, "share-3.9": SHARE_3_9, "share-4.0": SHARE_4_0}
_CURRENT = [
    pytest.param(number, version, id=f"{record_type.name}-v{version}")
    for number, record_type in RECORD_TYPES.items()
    for version in record_type.value.versions
]
_OTHERS = [
    pytest.param(number, _CHOICES[layout], layout, id=f"{record_type.name}-{layout}")
    for number, record_type in RECORD_TYPES.items()
    for layout in record_type.other_layouts
]


@pytest.mark.parametrize("key_type", RECORD_TYPES)
@EXAMPLES
@given(draw=st.data(), trailing=st.binary(max_size=4))
def test_key(key_type: int, draw: st.DataObject, trailing: bytes) -> None:
    data: dict[str, Any] = draw.draw(data_for(RECORD_TYPES[key_type].key, 0))
    raw = encode_key(key_type, data) + trailing
    key = decode_key(raw)
    assert (key.type, key.data, key.trailing) == (key_type, data, trailing)
    assert key_reencodes_exactly(key, raw)


@pytest.mark.parametrize(("key_type", "version"), _CURRENT)
@EXAMPLES
@given(draw=st.data())
def test_value(key_type: int, version: int, draw: st.DataObject) -> None:
    data: dict[str, Any] = draw.draw(data_for(RECORD_TYPES[key_type].value, version))
    raw = encode_value(key_type, version, data)
    value = decode_value(key_type, raw)
    assert (value.version, value.data, value.layout, value.trailing) == (version, data, "current", b"")
    assert list(value.data or ()) == [name for name in _field_names(key_type, version) if name in data], (
        "fields stand in schema order"
    )
    assert reencodes_exactly(key_type, value, raw)


def _field_names(key_type: int, version: int) -> list[str]:
    fields = list(RECORD_TYPES[key_type].value.struct.fields_in_version(version))
    untagged = [field.name for field in fields if field.tag is None]
    return [*untagged, *(field.name for field in fields if field.tag is not None), "_unknownTaggedFields"]


@pytest.mark.parametrize(("key_type", "layouts", "layout"), _OTHERS)
@EXAMPLES
@given(draw=st.data(), trailing=st.binary(max_size=4))
def test_other_layout(key_type: int, layouts: Layouts, layout: str, draw: st.DataObject, trailing: bytes) -> None:
    data: dict[str, Any] = draw.draw(data_for(RECORD_TYPES[key_type].other_layouts[layout], 0))
    raw = encode_value(key_type, 0, data, layout) + trailing
    value = decode_value(key_type, raw, layouts)
    assert (value.version, value.data, value.layout, value.trailing) == (0, data, layout, trailing)
    assert reencodes_exactly(key_type, value, raw)


@EXAMPLES
@given(draw=st.data(), trailing=st.binary(min_size=1, max_size=4))
def test_trailing_bytes_are_kept(draw: st.DataObject, trailing: bytes) -> None:
    key_type = draw.draw(st.sampled_from([1, 2, 3, 6, 16, 20, 23]))
    schema = RECORD_TYPES[key_type].value
    version = draw.draw(st.sampled_from(schema.versions))
    data: dict[str, Any] = draw.draw(data_for(schema, version))
    raw = encode_value(key_type, version, data) + trailing
    value = decode_value(key_type, raw)
    assert (value.data, value.trailing) == (data, trailing)
    assert reencodes_exactly(key_type, value, raw)


@EXAMPLES
@given(draw=st.data())
def test_absent_fields_take_their_defaults(draw: st.DataObject) -> None:
    key_type = draw.draw(st.sampled_from(sorted(RECORD_TYPES)))
    schema = RECORD_TYPES[key_type].value
    version = draw.draw(st.sampled_from(schema.versions))
    value = decode_value(key_type, encode_value(key_type, version, {}))
    fields = schema.struct.fields_in_version(version)
    assert value.data == {field.name: field.default_value(version) for field in fields}
