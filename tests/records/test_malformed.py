"""Bytes that Kafka would not write: refused with a position, or read without being taken for Kafka's own."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator_core.records.codec import CURRENT, Value, decode_key, decode_value, encode_key, encode_value
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.wire import RecordDecodeError
from tests.examples import examples
from tests.records.reencoding import key_reencodes_exactly, reencodes_exactly
from tests.records.strategies import data_for

HUGE = "ffffffff07"
EXAMPLES = examples(300)


@EXAMPLES
@given(st.binary(max_size=60))
@example(b"")
@example(b"\x00")
def test_any_bytes_as_key(data: bytes) -> None:
    with suppress(RecordDecodeError):
        key_reencodes_exactly(decode_key(data), data)


@EXAMPLES
@given(st.sampled_from(sorted(RECORD_TYPES)), st.sampled_from([0, 0, 1, 2, 3, 4]), st.binary(max_size=80))
def test_any_bytes_as_value(key_type: int, version: int, body: bytes) -> None:
    _decode_anything(key_type, bytes([0, version]) + body)


@EXAMPLES
@given(draw=st.data())
def test_changed_and_cut_values(draw: st.DataObject) -> None:
    key_type = draw.draw(st.sampled_from(sorted(RECORD_TYPES)))
    schema = RECORD_TYPES[key_type].value
    version = draw.draw(st.sampled_from(schema.versions))
    raw = bytearray(encode_value(key_type, version, draw.draw(data_for(schema, version))))
    for _ in range(draw.draw(st.integers(0, 3))):
        raw[draw.draw(st.integers(0, len(raw) - 1))] = draw.draw(st.integers(0, 255))
    _decode_anything(key_type, bytes(raw[: draw.draw(st.integers(0, len(raw)))]))


def _decode_anything(key_type: int, data: bytes) -> None:
    with suppress(RecordDecodeError):
        value = decode_value(key_type, data)
        if reencodes_exactly(key_type, value, data) and value.data is not None:
            assert encode_value(key_type, value.version, value.data, value.layout) + value.trailing == data


DECLARED = {
    "bytes": (2, f"0004 01 00000000 00 00 0000000000000000 02 01 00 01 01 00000000 00000000 {HUGE}"),
    "array of structs": (2, f"0004 01 00000000 00 00 0000000000000000 {HUGE}"),
    "array, not flexible": (2, "0003 0000 00000000 ffff ffff 0000000000000000 7fffffff"),
    "string": (1, f"0004 0000000000000001 00000000 {HUGE}"),
    "tag": (3, f"0000 00000001 01 09 {HUGE}"),
    "number of tags": (3, f"0000 00000001 {HUGE}"),
    "array of integers": (7, f"0000 02 {'00' * 16} {HUGE}"),
    "wrapped length": (7, "0000 8080808008"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declared_sizes_allocate_nothing(name: str) -> None:
    key_type, text = DECLARED[name]
    data = bytes.fromhex(text)
    with pytest.raises(RecordDecodeError):  # the first time compiles the decoders of the version
        decode_value(key_type, data, CURRENT)
    tracemalloc.start()
    try:
        with pytest.raises(RecordDecodeError):
            decode_value(key_type, data, CURRENT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


REFUSED = {
    "no version": (1, "00", 0, "Could not read version from value's buffer."),
    "empty": (1, "", 0, "Could not read version from value's buffer."),
    "null metadata": (
        1,
        "0000 000000000000002a ffff",
        12,
        "non-nullable field metadata was serialized as null",
    ),
    "null array": (7, "0000 00 00", 3, "non-nullable field topicPartitions was serialized as null"),
    "long string": (
        1,
        "0004 000000000000002a 00000007 818002" + "00" * 40000,
        17,
        "string field metadata had invalid length 32768",
    ),
    "underflow": (1, "0003 000000000000002a 0000", 10, None),
    "array element": (
        5,
        "0000 00 00 01 01 02 00",
        8,
        "non-nullable field subscribedTopicNames element was serialized as null",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_position_and_kafkas_words(name: str) -> None:
    key_type, text, position, java_message = REFUSED[name]
    with pytest.raises(RecordDecodeError) as raised:
        decode_value(key_type, bytes.fromhex(text), CURRENT)
    assert (raised.value.position, raised.value.java_message) == (position, java_message)


@pytest.mark.parametrize("text", ["", "00", "0001ffff", "00010005 6162", "0001 000161 000162 0000"])
def test_refused_keys(text: str) -> None:
    with pytest.raises(RecordDecodeError):
        decode_key(bytes.fromhex(text))


@pytest.mark.parametrize("key_type", [-1, 18, 24, 1000])
def test_unknown_type_is_carried(key_type: int) -> None:
    data = key_type.to_bytes(2, "big", signed=True) + b"\x01\x02body"
    key = decode_key(data)
    assert (key.type, key.name, key.data, key.trailing) == (key_type, None, None, b"\x01\x02body")
    assert key_reencodes_exactly(key, data)
    value = decode_value(key_type, b"\x00\x00rest")
    assert value == Value(0, None, trailing=b"rest")
    assert reencodes_exactly(key_type, value, b"\x00\x00rest")


@pytest.mark.parametrize(("key_type", "version"), [(0, 5), (1, 5), (2, 5), (2, -1), (3, 1), (23, 1)])
def test_unknown_version_is_carried(key_type: int, version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + b"rest"
    value = decode_value(key_type, data)
    assert value == Value(version, None, trailing=b"rest")
    assert reencodes_exactly(key_type, value, data)


NOT_KAFKAS = {
    "over-long varint": (3, "0000 00000001 8000"),
    "tag out of order": (17, "0000 00000001 0000000000000000 02 02 04 00000005 00 04 00000006"),
    "tag twice": (3, "0000 00000001 02 00 08 0000000000000001 00 08 0000000000000002"),
    "tag holding its default": (3, "0000 00000001 01 00 08 0000000000000000"),
    "size of a tag": (3, "0000 00000001 01 00 02 0000000000000005"),
    "malformed text": (1, "0000 000000000000002a 0002 c328 0000000000000001"),
    "another negative length": (2, "0000 0000 00000000 fffe ffff 00000000"),
    "another null struct": (19, "0000 00 00 01 01 00000001 00000002 01 f0 01 00"),
    "unknown tag out of order": (3, "0000 00000001 02 09 00 08 00"),
}


@pytest.mark.parametrize("name", NOT_KAFKAS)
def test_other_spellings_are_read_and_told(name: str) -> None:
    key_type, text = NOT_KAFKAS[name]
    data = bytes.fromhex(text)
    value = decode_value(key_type, data)
    assert value.data is not None
    assert not value.trailing
    assert not reencodes_exactly(key_type, value, data)


def test_replacement_can_outgrow_the_string() -> None:
    data = bytes.fromhex("0000 000000000000002a 7fff") + b"\xff" * 0x7FFF + bytes(8)
    value = decode_value(1, data)
    assert value.data is not None
    assert not reencodes_exactly(1, value, data)


CANNOT_HOLD: dict[str, tuple[int, int, dict[str, Any]]] = {
    "unknown field": (1, 0, {"leaderEpoch": 1}),
    "null": (1, 0, {"metadata": None}),
    "null array": (7, 0, {"topicPartitions": None}),
    "null bytes": (2, 0, {"members": [{"subscription": None}]}),
    "too large": (1, 0, {"offset": 1 << 63}),
    "no number": (3, 0, {"epoch": "7"}),
    "long string": (1, 3, {"metadata": "x" * 32768}),
    "no uuid": (1, 4, {"topicId": "short"}),
    "unknown tags without tags": (1, 3, {"_unknownTaggedFields": [(9, b"")]}),
    "version": (1, 5, {}),
    "type": (18, 0, {}),
}


@pytest.mark.parametrize("name", CANNOT_HOLD)
def test_encode_refuses(name: str) -> None:
    key_type, version, data = CANNOT_HOLD[name]
    with pytest.raises(ValueError, match=r".+"):
        encode_value(key_type, version, data)


def test_encode_refuses_unknown_key_and_layout() -> None:
    with pytest.raises(ValueError, match="18"):
        encode_key(18, {})
    with pytest.raises(ValueError, match="preview"):
        encode_value(1, 0, {}, "preview-3.7")


def test_an_exact_layout_is_preferred_to_leftovers() -> None:
    # The current layout of type 8 would read this and leave bytes over; that of 3.7 takes it whole.
    data = bytes.fromhex("0000 00000007 00000006 00010101 00 00 00")
    current = decode_value(8, data, CURRENT)
    assert current.trailing
    assert decode_value(8, data) == current, "no layout fits exactly: the first that can be read"
