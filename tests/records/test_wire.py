"""Primitives: bounds, varints, text and uuids, as Kafka's readers and ``java.lang.String`` have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator_core.records.wire import (
    Reader,
    RecordDecodeError,
    decode_utf8,
    encode_utf8,
    uuid_bytes,
    uuid_text,
    write_uvarint,
)

# Decoded by java.lang.String of OpenJDK 17, as UTF-16 code units.
MALFORMED = {
    "80": "fffd",
    "c0 80": "fffd fffd",
    "c3 28": "fffd 0028",
    "c3": "fffd",
    "e2 82": "fffd",
    "e2 82 28": "fffd 0028",
    "e2 28 a1": "fffd 0028 fffd",
    "e0 80 80": "fffd fffd fffd",
    "ed a0 80": "fffd",
    "ed a0": "fffd",
    "ed a0 41": "fffd 0041",
    "ed bf bf ed a0 80": "fffd fffd",
    "ed 9f bf": "d7ff",
    "f0 9f 98": "fffd",
    "f0 9f 41": "fffd 0041",
    "f0 80 80 80": "fffd fffd fffd fffd",
    "f4 90 80 80": "fffd fffd fffd fffd",
    "f5 80 80 80": "fffd fffd fffd fffd",
    "f8 88 80 80 80": "fffd fffd fffd fffd fffd",
    "f0 9f 98 80 ff": "d83d de00 fffd",
}


@pytest.mark.parametrize("data", MALFORMED)
def test_malformed_utf8_is_replaced_as_java_does(data: str) -> None:
    assert decode_utf8(bytes.fromhex(data)) == bytes.fromhex(MALFORMED[data]).decode("utf-16-be")


def test_lone_surrogates_are_written_as_java_does() -> None:
    assert encode_utf8("a\ud800b") == b"a?b"


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("7f", 127),
        ("8001", 128),
        ("ffff03", 65535),
        ("ffffffff07", (1 << 31) - 1),
        ("8080808008", -(1 << 31)),
        ("ffffffff0f", -1),
        ("ffffffff7f", -1),
        ("8000", 0),
    ],
)
def test_uvarint(data: str, value: int) -> None:
    reader = Reader(bytes.fromhex(data) + b"\x01")
    assert reader.uvarint() == value
    assert reader.remaining == 1


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, (1 << 31) - 1, -1, -(1 << 31)])
def test_uvarint_round_trip(value: int) -> None:
    out = bytearray()
    write_uvarint(out, value)
    assert Reader(bytes(out)).uvarint() == value
    assert len(out) <= 5


@pytest.mark.parametrize(
    ("data", "read"),
    [
        ("", Reader.int8),
        ("00", Reader.int16),
        ("00", Reader.uint16),
        ("000000", Reader.int32),
        ("00000000000000", Reader.int64),
        ("00" * 15, Reader.uuid),
        ("", Reader.uvarint),
        ("80", Reader.uvarint),
        ("ffffffff8f", Reader.uvarint),
    ],
)
def test_read_past_the_end(data: str, read: Callable[[Reader], Any]) -> None:
    with pytest.raises(RecordDecodeError):
        read(Reader(bytes.fromhex(data)))


@pytest.mark.parametrize("length", [5, (1 << 31) - 1, -1])
def test_raw_checks_the_length_first(length: int) -> None:
    reader = Reader(b"abcd", 1)
    with pytest.raises(RecordDecodeError) as raised:
        reader.raw(length)
    assert raised.value.position == 1
    assert reader.raw(3) == b"bcd"


def test_integers() -> None:
    reader = Reader(bytes.fromhex("ff 8000 ffff 80000000 8000000000000000"))
    read = [reader.int8(), reader.int16(), reader.uint16(), reader.int32(), reader.int64()]
    assert read == [-1, -(1 << 15), 65535, -(1 << 31), -(1 << 63)]
    assert reader.remaining == 0


def test_uuid() -> None:
    data = bytes.fromhex("fbff0000000000000000000000000010")
    assert uuid_text(data) == "-_8AAAAAAAAAAAAAAAAAEA"
    assert uuid_bytes("-_8AAAAAAAAAAAAAAAAAEA") == data


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "A" * 24])
def test_no_uuid(text: str) -> None:
    with pytest.raises(ValueError, match=r"uuid|base64|padding"):
        uuid_bytes(text)
