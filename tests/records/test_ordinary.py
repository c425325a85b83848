"""Compiled decoders agree with the ones that know all of Kafka's rules, or leave the bytes to them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.records.codec import (
    RecordDecodeError,
    decode_key,
    decode_record,
    encode_key,
    encode_value,
)
from coordinator_core.records.codec_closures import struct_decoder, struct_encoder
from coordinator_core.records.ordinary import ordinary_decoder
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import Schema
from coordinator_core.records.wire import Reader
from tests.examples import examples
from tests.records.strategies import data_for, ordinary_data_for

EXAMPLES = examples(20)
_BEFORE = b"\x00\x00"

_SCHEMAS = [
    pytest.param(schema, version, id=f"{number}-{part}-v{version}")
    for number, record_type in RECORD_TYPES.items()
    for part, schema in {
        "key": record_type.key,
        "value": record_type.value,
        **record_type.other_layouts,
    }.items()
    for version in schema.versions
]


def encoded(schema: Schema, version: int, data: dict[str, Any]) -> bytes:
    out = bytearray(_BEFORE)
    struct_encoder(schema.struct, version, schema.is_flexible(version))(out, data)
    return bytes(out)


@pytest.mark.parametrize(("schema", "version"), _SCHEMAS)
@EXAMPLES
@given(draw=st.data(), trailing=st.binary(max_size=4))
def test_ordinary_bytes_are_decoded(schema: Schema, version: int, draw: st.DataObject, trailing: bytes) -> None:
    data = draw.draw(ordinary_data_for(schema, version))
    raw = encoded(schema, version, data)
    parts = schema.struct, version, schema.is_flexible(version)
    found = ordinary_decoder(*parts)(raw + trailing, len(_BEFORE))
    assert found == (data, len(raw))
    assert list(found[0]) == list(struct_decoder(*parts)(Reader(raw, len(_BEFORE))))


@pytest.mark.parametrize(("schema", "version"), _SCHEMAS)
@EXAMPLES
@given(draw=st.data())
def test_other_bytes_are_decoded_alike_or_left(schema: Schema, version: int, draw: st.DataObject) -> None:
    raw = bytearray(encoded(schema, version, draw.draw(data_for(schema, version))))
    if len(raw) > len(_BEFORE):
        for _ in range(draw.draw(st.integers(0, 3))):
            at = draw.draw(st.integers(len(_BEFORE), len(raw) - 1))
            raw[at] = draw.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, raw[at] ^ 1]))
        del raw[draw.draw(st.integers(len(_BEFORE), len(raw))) :]
    parts = schema.struct, version, schema.is_flexible(version)
    found = ordinary_decoder(*parts)(bytes(raw), len(_BEFORE))
    if found is not None:
        reader = Reader(bytes(raw), len(_BEFORE))
        assert found == (struct_decoder(*parts)(reader), reader.position)


def test_what_is_left_is_decoded_by_the_other() -> None:
    """Malformed text is no error to Java, a string cut short is."""
    schema = RECORD_TYPES[3].key
    ordinary = ordinary_decoder(schema.struct, 0, False)
    assert ordinary(b"\x00\x01a", 0) == ({"groupId": "a"}, 3)
    assert ordinary(b"\x00\x01\xff", 0) is None
    assert struct_decoder(schema.struct, 0, False)(Reader(b"\x00\x01\xff")) == {"groupId": "\ufffd"}
    assert ordinary(b"\x00\x02a", 0) is None
    with pytest.raises(RecordDecodeError):
        struct_decoder(schema.struct, 0, False)(Reader(b"\x00\x02a"))


@EXAMPLES
@given(draw=st.data(), trailing=st.binary(max_size=2))
def test_a_record_is_decoded_as_its_key_and_value_are(draw: st.DataObject, trailing: bytes) -> None:
    key_type = draw.draw(st.sampled_from(sorted(RECORD_TYPES)))
    record_type = RECORD_TYPES[key_type]
    version = draw.draw(st.sampled_from(record_type.value.versions))
    key = encode_key(key_type, draw.draw(ordinary_data_for(record_type.key, 0)))
    fields = draw.draw(ordinary_data_for(record_type.value, version))
    value = encode_value(key_type, version, fields) + trailing
    found = decode_record(key, value)
    assert found == (None if trailing else (key_type, version, decode_key(key).data, fields))


@pytest.mark.parametrize("part", [b"", b"\x00", b"\x7f\xff", b"\xff\xff"])
def test_what_is_no_record_of_a_known_version_is_left(part: bytes) -> None:
    key, value = encode_key(2, {"group": "g"}), encode_value(3, 0, {"epoch": 1, "metadataHash": 0})
    assert decode_record(part, value) is None
    assert decode_record(key, part) is None
