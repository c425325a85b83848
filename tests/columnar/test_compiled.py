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

from coordinator_core.columnar import bytestrings, compiling, intrinsics, lowering, objects
from coordinator_core.columnar.compiling import inlined
from tests.columnar.argument_kernel import Pair, take_everything

pytestmark = pytest.mark.filterwarnings("error::coordinator_core.columnar.objects.KernelCacheWarning")

u8 = numba.types.Array(numba.types.uint8, 1, "C", readonly=True)
i64 = numba.types.int64


def compiled(function: Any, result: Any, *parameters: Any) -> Any:
    """``function(data, *parameters)`` as a function of ``bytes``."""
    lowering.register_helpers()
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


def test_crc_of_long_runs() -> None:
    data = bytes(value * value % 251 for value in range(4_000))
    for start in (0, 3):
        for stop in (*range(760, 780), 1535, 1536, 1544, 2304, len(data)):
            expected = crc32c.crc32c(data[start:stop])
            assert crc_chosen(data, start, stop) == crc_by_tables(data, start, stop) == expected


@inlined
def copied(data: Any, position: Any, length: Any) -> Any:
    out = np.zeros(64, np.uint8)
    bytestrings.copy_bytes(data, position, out, 8, length)
    return out


copy_bytes = compiled(copied, numba.types.Array(numba.types.uint8, 1, "C"), i64, i64)


def test_copies_of_every_length() -> None:
    data = bytes(range(100))
    for length in range(48):
        expected = bytes(8) + data[5 : 5 + length] + bytes(56 - length)
        assert copy_bytes(data, 5, length).tobytes() == expected


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


@given(st.binary(min_size=8, max_size=40))
def test_instructions_do_what_their_functions_say(data: bytes) -> None:
    array = np.frombuffer(data, np.uint8)
    for position in range(len(data) - 7):
        loads = [function(array, position) for function in LOADS]
        assert loads == [load(data, position) for load in compiled_loads]
    if objects.host_has("sse4.2"):
        expected = intrinsics.crc32_1_byte(intrinsics.crc32_8_bytes(7, intrinsics.le64(array, 0)), 9)
        assert two_crcs(data) == expected


LOADS = (intrinsics.le64, intrinsics.be64, intrinsics.be32, intrinsics.be16)
compiled_loads = [
    compiled(function, kind, i64)
    for function, kind in zip(LOADS, (numba.types.uint64, i64, i64, i64), strict=True)
]


@inlined
def crc_of_nine(data: Any) -> Any:
    return intrinsics.crc32_1_byte(intrinsics.crc32_8_bytes(7, intrinsics.le64(data, 0)), 9)


two_crcs = compiled(crc_of_nine, numba.types.uint32) if objects.host_has("sse4.2") else None


def test_every_kind_of_argument() -> None:
    numbers = np.arange(3, dtype=np.int32)
    for negative in (False, True):
        pair = Pair(np.zeros(3, np.int32), np.ones((2, 5), np.int64))
        assert take_everything(numbers, negative, pair, 7) == (-70 if negative else 70)
        assert pair.numbers.tolist() == [0, 1, 2]
        assert pair.rows.tolist() == [[0] * 5, [1] * 5]


def test_arguments_are_checked() -> None:
    numbers, rows = np.zeros(3, np.int32), np.zeros((2, 5), np.int64)
    fixed = numbers.copy()
    fixed.flags.writeable = False
    for wrong in (
        (numbers.astype(np.int64), False, Pair(numbers, rows), 1),
        (numbers[::2], False, Pair(numbers, rows), 1),
        (numbers, False, Pair(numbers, rows[0]), 1),
        (numbers, False, Pair(numbers, rows.T), 1),
        (fixed, False, Pair(numbers, rows), 1),
    ):
        with pytest.raises(TypeError, match="a kernel takes"):
            take_everything(*wrong)
    with pytest.raises(ValueError, match="zip"):
        take_everything(numbers)


PROCESS = """
import sys, warnings
from coordinator_core.columnar.kernels import rebuild_index
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    rebuild_index.compile()
print("compiled" if "numba" in sys.modules else "loaded")
for warning in caught:
    print(warning.category.__name__, warning.message)
"""


def started(cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS],
        env=os.environ | {"REGROUP_KERNEL_CACHE": str(cache)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate()
    assert process.returncode == 0
    return out.splitlines()


def test_a_second_process_starts_warm_and_damage_is_mended(tmp_path: Path) -> None:
    assert lines_of(started(tmp_path)) == ["compiled"]
    assert lines_of(started(tmp_path)) == ["loaded"]
    (entry,) = tmp_path.glob("*.o")
    whole = entry.read_bytes()
    for broken in (whole[:-1] + bytes([whole[-1] ^ 1]), whole[: len(whole) // 2], b""):
        entry.write_bytes(broken)
        assert objects.cached_code(entry) is None
    assert lines_of(started(tmp_path)) == ["compiled"]
    assert lines_of(started(tmp_path)) == ["loaded"]


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    processes = [started(tmp_path) for _ in range(3)]
    assert sorted(lines_of(process) for process in processes) == [["compiled"], ["loaded"], ["loaded"]]


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("in the way")
    lines = lines_of(started(occupied))
    assert lines[0] == "compiled"
    assert lines[1].startswith("KernelCacheWarning compiled kernels cannot be kept (")
    assert "set REGROUP_KERNEL_CACHE to a writable directory" in lines[1]
    assert len(lines) == 2


def test_entries_nobody_uses_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGROUP_KERNEL_CACHE", str(tmp_path))
    objects.usable_cache_directory.cache_clear()
    old, used = tmp_path / "old.o", tmp_path / "used.o"
    for path in (old, used):
        path.write_bytes(b"")
        os.utime(path, (0, 0))
    assert objects.cached("used", "", lambda: b"code") == b"code"
    objects.usable_cache_directory.cache_clear()
    assert not old.exists()


def test_a_kernel_depends_on_all_that_it_is_made_from() -> None:
    names = ("bytestrings", "compiling", "intrinsics", "kernels", "lowering", "objects", "tables", "types")
    found = compiling.sources("coordinator_core.columnar.kernels")
    columnar = {f"coordinator_core.columnar.{name}" for name in names}
    assert found.keys() == columnar | {"coordinator_core.log.layout"}
    assert all(found.values())


def test_code_of_another_processor_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    here = objects.environment_digest()
    for other in (("another", objects.host()[1]), (objects.host()[0], "+sse2")):
        monkeypatch.setattr(objects, "host", lambda other=other: other)
        assert objects.environment_digest() != here
