"""The compiled helpers of the dump by themselves; what they print together is in ``tests/reports``."""

from __future__ import annotations

import base64
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator_core.columnar import intrinsics, lowering, text
from coordinator_core.records.jsontext import quote
from coordinator_core.records.wire import uuid_text

u8 = numba.types.Array(numba.types.uint8, 1, "C", readonly=True)
out8 = numba.types.Array(numba.types.uint8, 1, "C")
i64 = numba.types.int64


def compiled(function: Any, *parameters: Any, result: Any = i64) -> Any:
    lowering.register_helpers()
    names = ", ".join(f"p{number}" for number in range(len(parameters)))
    scope: dict[str, Any] = {"function": function}
    exec(f"def call({names}):\n    return function({names})", scope)
    return numba.njit(result(*parameters))(scope["call"])


put64 = compiled(intrinsics.put64, out8, i64, numba.types.uint64, result=numba.types.void)
put_number = compiled(text._put_number, out8, i64, i64)
put_base64 = compiled(text._put_base64, u8, i64, i64, numba.types.boolean, out8, i64)
copy_text = compiled(text._copy_text, u8, i64, i64, out8, i64)
copy_escaped = compiled(text._copy_escaped, u8, i64, i64, out8, i64)


def room(size: int = 200) -> Any:
    return np.full(size, ord("."), np.uint8)


@given(st.integers(0, (1 << 64) - 1), st.integers(0, 9))
def test_a_stored_word(word: int, position: int) -> None:
    out, expected = room(20), room(20)
    put64(out, position, word)
    intrinsics.put64(expected, position, word)
    assert out.tobytes() == expected.tobytes()
    assert intrinsics.le64(out, position) == word


def printed(value: int) -> str:
    out = room()
    return str(out[3 : put_number(out, 3, value)].tobytes().decode())


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(-(1 << 63))
@example((1 << 63) - 1)
@example(0)
def test_numbers(value: int) -> None:
    assert printed(value) == str(value)


@pytest.mark.parametrize("digits", range(1, 20))
def test_numbers_around_powers_of_ten(digits: int) -> None:
    for value in (10**digits - 1, 10 ** (digits - 1), -(10 ** (digits - 1))):
        if value < 1 << 63:
            assert printed(value) == str(value)


@given(st.binary(max_size=40))
def test_base64(data: bytes) -> None:
    out, array = room(), np.frombuffer(data + b"\0", np.uint8)
    stop = put_base64(array, 0, len(data), False, out, 1)
    assert out[1:stop].tobytes() == base64.b64encode(data)


@given(st.binary(min_size=16, max_size=16))
def test_uuids(data: bytes) -> None:
    out = room()
    stop = put_base64(np.frombuffer(data, np.uint8), 0, 16, True, out, 0)
    assert out[:stop].tobytes().decode() == uuid_text(data)


@given(st.text(max_size=24))
@example('\x00\x07\b\t\n\x0b\f\r\x1f "\\/\x7f')
def test_texts(written: str) -> None:
    data = written.encode("utf-8", "replace")
    array, out = np.frombuffer(b"x" + data + b'"', np.uint8), room()
    marks = copy_text(array, 1, len(data), out, 5)
    assert out[5 : 5 + len(data)].tobytes() == data
    plain = data.decode()
    assert bool(marks & text._NEEDS_ESCAPE) == (len(quote(plain)) > len(plain) + 2)
    assert bool(marks & text._NOT_ASCII) == (not plain.isascii())
    stop = copy_escaped(array, 1, len(data), out, 5)
    assert out[5:stop].tobytes().decode() == quote(plain)[1:-1]
