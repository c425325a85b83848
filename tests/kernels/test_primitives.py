"""Primitives of the kernels by themselves, compiled and as the Python that they are written in."""

from __future__ import annotations

import importlib
import zlib
from types import ModuleType
from typing import Any

import crc32c
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator_core.kernels.layout import INVALID, Unusual
from tests.examples import examples

COMPILED = importlib.import_module("coordinator_core.kernels.compiled")
PLAIN = importlib.import_module("coordinator_core.kernels.primitives")

both = pytest.mark.parametrize("kernels", [COMPILED, PLAIN], ids=["compiled", "uncompiled"])


def view(data: bytes) -> Any:
    return memoryview(data or b"\0")


@given(st.binary(min_size=1, max_size=100), st.integers(0, 20))
@example(b"123456789", 0)
def test_crc_of_any_run_of_bytes(data: bytes, start: int) -> None:
    start = min(start, len(data) - 1)
    expected = crc32c.crc32c(data[start:])
    assert COMPILED.crc32c(data, start, len(data)) == expected
    assert COMPILED.crc32c_by_tables(data, start, len(data)) == expected
    assert COMPILED.crc32(data, start, len(data)) == zlib.crc32(data[start:])


def test_crc_of_long_runs() -> None:
    data = bytes(value * value % 251 for value in range(4_000))
    for start in (0, 3):
        for stop in (*range(760, 780), 1535, 1536, 1544, 2304, len(data)):
            expected = crc32c.crc32c(data[start:stop])
            assert COMPILED.crc32c(data, start, stop) == expected
            assert COMPILED.crc32c_by_tables(data, start, stop) == expected


def test_the_crc_vector_of_the_standard() -> None:
    assert COMPILED.crc32c(b"123456789", 0, 9) == COMPILED.crc32c_by_tables(b"123456789", 0, 9) == 0xE3069283


@both
def test_copies_of_every_length(kernels: ModuleType) -> None:
    data = bytes(range(200))
    for length in range(120):
        out = bytearray(140)
        kernels.copy_bytes(data, 5, out, 8, length)
        assert out == bytes(8) + data[5 : 5 + length] + bytes(132 - length)


def is_plain(data: bytes) -> bool:
    try:
        return "\ufffd" not in data.decode()
    except UnicodeDecodeError:
        return False


@both
@examples(400)
@given(
    data=st.one_of(st.binary(max_size=12), st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass")))
)
@example(data="\ufffd".encode())
@example(data=b"\xed\xa0\x80")
@example(data=b"\xf4\x90\x80\x80")
@example(data=b"\xe0\x80\x80")
@example(data=b"plain text beyond eight bytes \xc3")
def test_utf8(kernels: ModuleType, data: bytes) -> None:
    assert bool(kernels.is_plain_utf8(view(data), 0, len(data))) == is_plain(data)


def test_utf8_of_every_pair_of_bytes() -> None:
    pairs = [bytes((first, second)) for first in range(256) for second in range(256)]
    assert [pair for pair in pairs if bool(COMPILED.is_plain_utf8(pair, 0, 2)) != is_plain(pair)] == []


def zigzag(value: int, bits: int) -> bytes:
    number = ((value << 1) ^ (value >> (bits - 1))) & ((1 << bits) - 1)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


@both
@given(value=st.integers(-(1 << 31), (1 << 31) - 1), rest=st.binary(max_size=2))
@example(value=-(1 << 31), rest=b"")
def test_varint(kernels: ModuleType, value: int, rest: bytes) -> None:
    data = zigzag(value, 32)
    assert kernels.varint(data + rest, 0, len(data + rest)) == (value, len(data))
    for cut in range(len(data)):
        assert kernels.varint(data, 0, cut)[1] == INVALID


@both
@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
@example(value=-(1 << 63))
def test_varlong(kernels: ModuleType, value: int) -> None:
    data = zigzag(value, 64)
    assert kernels.varlong(data, 0, len(data)) == (value, len(data))
    for cut in range(len(data)):
        assert kernels.varlong(data, 0, cut)[1] == INVALID


@both
def test_varints_that_never_end(kernels: ModuleType) -> None:
    assert kernels.varint(b"\x80" * 6, 0, 6)[1] == INVALID
    assert kernels.varlong(b"\x80" * 11, 0, 11)[1] == INVALID
    assert kernels.uvarint(b"\x80" * 5, 0, 5)[1] == INVALID


@given(st.binary(min_size=8, max_size=40))
def test_loads(data: bytes) -> None:
    for at in range(len(data) - 7):
        for name, size, order in (("be64", 8, "big"), ("be32", 4, "big"), ("be16", 2, "big")):
            expected = int.from_bytes(data[at : at + size], order, signed=True)  # type: ignore[arg-type]
            assert getattr(COMPILED, name)(data, at) == getattr(PLAIN, name)(data, at) == expected
        expected = int.from_bytes(data[at : at + 8], "little")
        assert COMPILED.le64(data, at) == PLAIN.le64(data, at) == expected


@given(st.binary(max_size=60))
def test_hashes_are_the_same_uncompiled(data: bytes) -> None:
    assert COMPILED.hash_bytes(view(data), 0, len(data)) == PLAIN.hash_bytes(view(data), 0, len(data))
    array = np.frombuffer(data or b"\0", np.uint8)
    assert PLAIN.hash_bytes(array, 0, len(data)) == PLAIN.hash_bytes(view(data), 0, len(data))


def test_hashes_differ_in_length_and_every_byte() -> None:
    seen = {COMPILED.hash_bytes(bytes(size), 0, size) for size in range(1, 40)}
    assert len(seen) == 39
    for size in (3, 8, 13, 21):
        changed = {COMPILED.hash_bytes(bytes(at) + b"\1" + bytes(size - at - 1), 0, size) for at in range(size)}
        assert len(changed | {COMPILED.hash_bytes(bytes(size), 0, size)}) == size + 1


def record(body: bytes, length: int | None = None) -> bytes:
    return zigzag(len(body) if length is None else length, 32) + body


SOUND = b"\0" + zigzag(-5, 64) + zigzag(7, 32) + zigzag(3, 32) + b"key" + zigzag(2, 32) + b"vv" + b"\0"


def framed(data: bytes, stop: int | None = None) -> dict[str, int]:
    found: dict[str, int] = COMPILED.next_record(data, 0, len(data) if stop is None else stop)
    return found


def test_a_sound_record() -> None:
    data = record(SOUND)
    found = framed(data)
    assert found["unusual"] == Unusual.NONE
    assert found["end"] == len(data)
    assert (found["timestamp_delta"], found["offset_delta"]) == (-5, 7)
    assert data[found["key"] :][: found["key_bytes"]] == b"key"
    assert data[found["value"] :][: found["value_bytes"]] == b"vv"
    assert data[found["tail"] :] == SOUND[3:]


@pytest.mark.parametrize(
    ("body", "unusual"),
    [
        (b"\0\0\0" + zigzag(-1, 32) + zigzag(1, 32) + b"v\0", Unusual.NO_KEY),
        (b"\0\0\0" + zigzag(1, 32) + b"k" + zigzag(-1, 32) + b"\0", Unusual.NONE),
        (b"\0\0\0" + zigzag(9, 32) + b"k" + zigzag(-1, 32) + b"\0", Unusual.KEY),
        (b"\0\0\0" + zigzag(1, 32) + b"k" + zigzag(9, 32) + b"v\0", Unusual.VALUE | Unusual.HEADERS),
        (b"\0\0\0" + zigzag(1, 32) + b"k" + zigzag(1, 32) + b"v" + b"\2\0\0", Unusual.HEADERS),
        (b"\0\0\0" + zigzag(1, 32) + b"k", Unusual.VALUE),
        (b"\0\0\0", Unusual.KEY),
        (b"\0\x80", Unusual.FRAMING),
    ],
)
def test_unusual_records(body: bytes, unusual: int) -> None:
    assert framed(record(body))["unusual"] == unusual


def test_every_cut_record_is_seen() -> None:
    data = record(SOUND)
    for stop in range(len(data)):
        assert framed(data, stop)["unusual"] == Unusual.FRAMING
    for length in range(len(SOUND)):
        assert framed(record(SOUND, length))["unusual"] != Unusual.NONE


def test_arguments_are_checked() -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        COMPILED.crc32c(np.zeros(3, np.int64), 0, 1)
    with pytest.raises((TypeError, ValueError, BufferError)):
        COMPILED.copy_bytes(b"abc", 0, b"read-only", 0, 3)
