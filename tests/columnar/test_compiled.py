"""The compiled helpers by themselves, and how compiled code is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import crc32c
import numba
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator_core.columnar import bytestrings, compiling, intrinsics

pytestmark = pytest.mark.filterwarnings("error::coordinator_core.columnar.compiling.KernelCacheWarning")

u8 = numba.types.Array(numba.types.uint8, 1, "C", readonly=True)
i64 = numba.types.int64


def compiled(function: Any, result: Any, *parameters: Any) -> Any:
    """``function(data, *parameters)`` as a function of ``bytes``."""
    names = ", ".join(f"p{number}" for number in range(len(parameters)))
    scope: dict[str, Any] = {"function": function}
    exec(f"def call(data, {names}):\n    return function(data, {names})", scope)
    call = numba.njit(result(u8, *parameters))(scope["call"])
    return lambda data, *arguments: call(np.frombuffer(data or b"\0", np.uint8), *arguments)


pair = numba.types.UniTuple(i64, 2)
crc_by_tables = compiled(intrinsics.crc32c_by_tables, i64, i64, i64)
crc_chosen = compiled(intrinsics.crc32c, i64, i64, i64)
is_plain_utf8 = compiled(bytestrings.is_plain_utf8, numba.types.boolean, i64, i64)
varint = compiled(bytestrings.varint, pair, i64, i64)
varlong = compiled(bytestrings.varlong, pair, i64, i64)
hash_bytes = compiled(bytestrings.hash_bytes, i64, i64, i64)


@given(st.binary(max_size=100), st.integers(0, 20))
@example(b"123456789", 0)
def test_crc_of_any_run_of_bytes(data: bytes, start: int) -> None:
    start = min(start, len(data))
    expected = crc32c.crc32c(data[start:])
    assert crc_by_tables(data, start, len(data)) == expected
    assert crc_chosen(data, start, len(data)) == expected


def test_the_crc_vector_of_the_standard() -> None:
    assert crc_by_tables(b"123456789", 0, 9) == crc_chosen(b"123456789", 0, 9) == 0xE3069283


def is_plain(data: bytes) -> bool:
    try:
        return "\ufffd" not in data.decode()
    except UnicodeDecodeError:
        return False


@settings(max_examples=400)
@given(
    st.one_of(
        st.binary(max_size=12), st.text(max_size=12).map(lambda text: text.encode("utf-8", "surrogatepass"))
    )
)
@example("\ufffd".encode())
@example(b"\xed\xa0\x80")
@example(b"\xf4\x90\x80\x80")
@example(b"\xe0\x80\x80")
@example(b"plain text beyond eight bytes \xc3")
def test_utf8(data: bytes) -> None:
    assert is_plain_utf8(data, 0, len(data)) == is_plain(data)


def test_utf8_of_every_pair_of_bytes() -> None:
    wrong = [
        (first, second)
        for first in range(256)
        for second in range(256)
        if is_plain_utf8(bytes((first, second)), 0, 2) != is_plain(bytes((first, second)))
    ]
    assert wrong == []


def zigzag(value: int, bits: int) -> bytes:
    number = ((value << 1) ^ (value >> (bits - 1))) & ((1 << bits) - 1)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=2))
@example(-(1 << 31), b"")
def test_varint(value: int, rest: bytes) -> None:
    data = zigzag(value, 32)
    assert varint(data + rest, 0, len(data + rest)) == (value, len(data))
    for cut in range(len(data)):
        assert varint(data, 0, cut)[1] == bytestrings.INVALID


@given(st.integers(-(1 << 63), (1 << 63) - 1))
@example(-(1 << 63))
def test_varlong(value: int) -> None:
    data = zigzag(value, 64)
    assert varlong(data, 0, len(data)) == (value, len(data))
    for cut in range(len(data)):
        assert varlong(data, 0, cut)[1] == bytestrings.INVALID


def test_varints_that_never_end() -> None:
    assert varint(b"\x80" * 6, 0, 6)[1] == bytestrings.INVALID
    assert varlong(b"\x80" * 11, 0, 11)[1] == bytestrings.INVALID


def test_hashes_differ_in_length_and_every_byte() -> None:
    seen = {hash_bytes(bytes(size), 0, size) for size in range(1, 40)}
    assert len(seen) == 39
    for size in (3, 8, 13, 21):
        changed = {hash_bytes(bytes(at) + b"\1" + bytes(size - at - 1), 0, size) for at in range(size)}
        assert len(changed | {hash_bytes(bytes(size), 0, size)}) == size + 1


FOLD = """
import sys, warnings
from coordinator_core.columnar.kernels import rebuild_index
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    compiled = rebuild_index.compile()
print(sum(compiled.stats.cache_hits.values()), sum(compiled.stats.cache_misses.values()))
for warning in caught:
    print(warning.category.__name__, warning.message)
"""


def in_new_process(cache: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", FOLD],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_second_process_starts_warm(tmp_path: Path) -> None:
    assert in_new_process(tmp_path) == ["0 1"]
    assert in_new_process(tmp_path) == ["1 0"]


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("in the way")
    lines = in_new_process(occupied)
    assert lines[0] == "0 1"
    assert lines[1].startswith("KernelCacheWarning compiled kernels cannot be kept (")
    assert "set NUMBA_CACHE_DIR to a writable directory" in lines[1]
    assert len(lines) == 2


def test_all_compiled_sources_name_the_cache() -> None:
    package = Path(compiling.__file__).parent
    made = {
        path.stem
        for path in package.glob("*.py")
        if "@kernel" in path.read_text() or "@inlined" in path.read_text() or "@called" in path.read_text()
    }
    assert made | {"tables", "compiling", "intrinsics"} == set(compiling._COMPILED_MODULES)
