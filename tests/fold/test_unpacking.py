"""The kernel unpacks what the codecs' packages unpack, and leaves the rest to them."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import crc32c
import lz4.frame
import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold import unpacking
from coordinator_core.fold.rules import FoldRules
from coordinator_core.kernels.arrays import dtype
from coordinator_core.log.compression import CompressionError, decompress
from coordinator_core.log.compression.libraries import function_address
from coordinator_core.log.compression.lz4 import header_checksum
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, SegmentFile
from tests.examples import strides
from tests.fold.parity import PROFILES, assert_merges, partition_log, sequential_outcome, whole_fold
from tests.fold.random_logs import Item, encoded_key, offset_value
from tests.log.builders import build_batch, compress
from tests.replay.reference import replay_partition

PROFILE = PROFILES["4.3.1"]
RULES = FoldRules.of(PROFILE)
HEADER = bytes(range(61))
TEXT = b"".join(b"group-%d topic-%d " % (number % 7, number) for number in range(20_000))
NOISE = random.Random(3).randbytes(100_000)
ROOM = 8 << 20


def unpacked(codec: Codec, section: bytes, *, room: int = ROOM, max_bytes: int = ROOM) -> bytes | None:
    """Bytes that the kernel makes of a section; ``None`` if it leaves it."""
    batch = HEADER + section
    rows = np.array([(0, len(batch), codec, 0, 0)], dtype("PackedBatch"))
    out = np.empty(61 + room, np.uint8)
    functions = unpacking.codec_functions()
    if unpacking.unpack(np.frombuffer(batch, np.uint8), rows, out, 0, max_bytes, functions) == 0:
        return None
    size = int(rows["plain_size"][0])
    assert out[:61].tobytes() == HEADER[:8] + (size - 12).to_bytes(4, "big") + HEADER[12:]
    return out[61:size].tobytes()


def by_package(codec: Codec, section: bytes) -> bytes | None:
    try:
        return bytes(decompress(codec, memoryview(section), magic=2, max_bytes=ROOM))
    except CompressionError:
        return None


def by_library(section: bytes) -> bytes | None:
    """Bytes that ``ZSTD_decompress`` makes of a frame. Its releases differ on damaged ones."""
    out = ctypes.create_string_buffer(ROOM)
    function = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)(
        function_address("zstd", "ZSTD_decompress")
    )
    size = function(ctypes.addressof(out), ROOM, section, len(section))
    return out.raw[:size] if size <= ROOM else None


def zstd(data: bytes, **options: object) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)  # type: ignore[arg-type]


def lz4_of(data: bytes, **options: object) -> bytes:
    return lz4.frame.compress(data, block_linked=False, **options)  # type: ignore[no-any-return]


def small_window(log: int) -> zstandard.ZstdCompressionParameters:
    return zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False)


FRAMES = {
    "lz4 of Kafka": (Codec.LZ4, compress(Codec.LZ4, TEXT[:3000])),
    "lz4 of Kafka, many blocks": (Codec.LZ4, compress(Codec.LZ4, TEXT + NOISE)),
    "lz4 with a content size": (Codec.LZ4, lz4_of(TEXT[:3000], store_size=True)),
    "lz4 with a content checksum": (Codec.LZ4, lz4_of(TEXT[:3000], content_checksum=True)),
    "lz4 in large blocks": (Codec.LZ4, lz4_of(TEXT + NOISE, block_size=7, store_size=False)),
    "zstd of Kafka": (Codec.ZSTD, compress(Codec.ZSTD, TEXT[:3000])),
    "zstd of Kafka, many blocks": (Codec.ZSTD, compress(Codec.ZSTD, TEXT + NOISE)),
    "zstd with a content size": (Codec.ZSTD, zstd(TEXT[:3000])),
    "zstd with a checksum": (Codec.ZSTD, zstd(TEXT[:3000], write_checksum=True)),
    "zstd with a window": (Codec.ZSTD, zstd(TEXT, compression_params=small_window(12))),
    "zstd of nothing": (Codec.ZSTD, zstd(b"")),
}
LEFT = {
    "lz4 of nothing": (Codec.LZ4, compress(Codec.LZ4, b"")),
    "lz4 with block checksums": (Codec.LZ4, lz4_of(TEXT[:3000], block_checksum=True)),
    "two zstd frames": (Codec.ZSTD, zstd(b"one") + zstd(b"two")),
    "skippable zstd frame": (Codec.ZSTD, b"\x50\x2a\x4d\x18\x01\x00\x00\x00x" + zstd(b"one")),
    "gzip": (Codec.GZIP, compress(Codec.GZIP, TEXT)),
    "snappy": (Codec.SNAPPY, compress(Codec.SNAPPY, TEXT)),
    "no zstd frame": (Codec.ZSTD, b""),
}


def test_the_libraries_are_found() -> None:
    """Else this is still right, but slow."""
    assert unpacking.codec_functions()[[3, 4, 5, 6]].all()


@pytest.mark.parametrize("name", FRAMES)
def test_unpacked(name: str) -> None:
    codec, section = FRAMES[name]
    expected = by_package(codec, section)
    assert expected is not None
    assert unpacked(codec, section) == expected
    for beyond in (section + b"\0", section + section):
        assert unpacked(codec, beyond) in (by_package(codec, beyond), None)


@pytest.mark.parametrize("name", LEFT)
def test_left(name: str) -> None:
    codec, section = LEFT[name]
    assert by_package(codec, section) is not None
    assert unpacked(codec, section) is None


@pytest.mark.parametrize("name", FRAMES)
def test_with_less_room_it_is_left(name: str) -> None:
    codec, section = FRAMES[name]
    size = len(by_package(codec, section) or b"")
    if size:
        assert unpacked(codec, section, room=size) is not None
        assert unpacked(codec, section, room=size - 1) is None
        assert unpacked(codec, section, max_bytes=size - 1) is None
        assert unpacked(codec, section, room=0) is None


@pytest.mark.parametrize("name", [name for name, (_, section) in FRAMES.items() if len(section) < 3000])
def test_of_damaged_frames_nothing_else_is_unpacked(name: str) -> None:
    codec, section = FRAMES[name]
    variants = [section[:stop] for stop in range(len(section))]
    for position in range(len(section)):
        for flip in (0x01, 0x08, 0x41, 0x80, 0xFF):
            changed = bytearray(section)
            changed[position] ^= flip
            variants.append(bytes(changed))
    left = 0
    for variant in variants:
        got = unpacked(codec, variant, room=1 << 20)
        left += got is None
        assert got in (None, by_package(codec, variant)) or (codec is Codec.ZSTD and got == by_library(variant))
    assert left > len(section)


def test_windows_that_nobody_reads() -> None:
    for window_log, accepted in ((26, True), (27, False), (28, False)):
        frame = bytearray(zstd(TEXT, compression_params=small_window(12)))
        frame[5] = (window_log - 10) << 3
        assert (unpacked(Codec.ZSTD, bytes(frame)) is not None) == accepted
        assert (by_package(Codec.ZSTD, bytes(frame)) is not None) == (window_log <= 27)


@given(size=st.integers(0, 1 << 62), right=st.booleans())
def test_checksums_of_headers_with_a_content_size(size: int, right: bool) -> None:
    frame = bytearray(compress(Codec.LZ4, TEXT[:50]))
    descriptor = b"\x68\x40" + size.to_bytes(8, "little")
    checksum = header_checksum(descriptor)
    frame[4:7] = descriptor + bytes((checksum if right else checksum ^ 1,))
    assert unpacked(Codec.LZ4, bytes(frame)) == (TEXT[:50] if right else None)
    assert by_package(Codec.LZ4, bytes(frame)) == (TEXT[:50] if right else None)


ITEMS: list[Item] = [
    (encoded_key(b"g", b"t", partition), offset_value(3, partition, b"m" * 30)) for partition in range(20)
]


@pytest.fixture(params=["with functions", "without functions"])
def sections(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Codecs of the sections that the packages are given, when they show their functions and when not."""
    given: list[int] = []

    def watched(codec: int, *rest: object, **limits: object) -> object:
        given.append(codec)
        return decompress(codec, *rest, **limits)  # type: ignore[arg-type]

    monkeypatch.setattr(unpacking, "decompress", watched)
    if request.param == "without functions":
        monkeypatch.setattr(unpacking, "function_address", lambda library, name: 0)
    return given


def segment(path: Path, data: bytes) -> SegmentFile:
    path.write_bytes(data)
    return SegmentFile(str(path), 0, 0, len(data))


@pytest.mark.parametrize("chunk_bytes", [1, 2_000, 1 << 18])
def test_chunks_of_many_codecs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: list[int], chunk_bytes: int
) -> None:
    """With stretches of all codecs, of one, and of none, whose batches are folded where they lie."""
    monkeypatch.setattr(unpacking, "_CHUNK_BYTES", chunk_bytes)
    order = random.Random(chunk_bytes)
    codecs = [order.choice(list(Codec)) for _ in range(100)]
    codecs += [Codec.LZ4] * 50 + [Codec.NONE] * 50 + [Codec.ZSTD] * 50 + [Codec.NONE]
    batches = []
    for number, codec in enumerate(codecs):
        items = [(key, offset_value(3, number, b"m" * (number % 90))) for key, _ in order.sample(ITEMS, 5)]
        batches.append(build_batch(5 * number, items, codec=codec))
    found = segment(tmp_path / "log", b"".join(batches))
    expected = replay_partition(partition_log([found]), PROFILE, damage=[])
    assert_merges(expected, [whole_fold(found, rules=RULES)], PROFILE)
    slow = {Codec.GZIP, Codec.SNAPPY}
    if not unpacking.codec_functions()[Codec.LZ4]:
        slow |= {Codec.LZ4, Codec.ZSTD}
    expected_sections = sorted(codec for codec in codecs if codec in slow)
    assert sorted(sections) == expected_sections


def outcome(found: SegmentFile) -> Damage | None:
    try:
        whole_fold(found, rules=RULES)
    except DamagedInputError as error:
        return error.damage
    return None


@pytest.mark.usefixtures("sections")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
@strides(3)
def test_damage_under_a_valid_crc(tmp_path: Path, codec: Codec, stride: int) -> None:
    """It is found in the same place whoever decompresses, also in the run that a thread unpacks ahead."""
    first = build_batch(0, ITEMS, codec=codec)
    kinds = set()
    for position in range(61, len(first), stride):
        changed = bytearray(build_batch(20, ITEMS, codec=codec))
        changed[position] ^= 0x41
        changed[17:21] = crc32c.crc32c(bytes(changed[21:])).to_bytes(4, "big")
        found = segment(tmp_path / "log", first + bytes(changed) + first)
        expected, _ = sequential_outcome(partition_log([found]), PROFILE, OnDamage.FAIL)
        got = outcome(found)
        assert got == (expected if isinstance(expected, Damage) else None)
        kinds.add(got and got.kind)
    assert "bad_compression" in kinds


@pytest.mark.usefixtures("sections")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_batches_that_become_very_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: Codec) -> None:
    """Room is made for them, and a run of several ends early."""
    monkeypatch.setattr(unpacking, "_ROOM", 100)
    monkeypatch.setattr(unpacking, "_MOST_PLAIN_BYTES", 100_000)
    batches = []
    for number in range(12):
        items = [(key, offset_value(3, number, b"m" * 4_000 * (number % 3))) for key, _ in ITEMS]
        batches.append(build_batch(20 * number, items, codec=codec))
    found = segment(tmp_path / "log", b"".join(batches))
    expected = replay_partition(partition_log([found]), PROFILE, damage=[])
    assert_merges(expected, [whole_fold(found, rules=RULES)], PROFILE)


def test_what_is_not_there_has_no_address() -> None:
    assert function_address("lz4", "LZ4_decompress_safe") != 0
    assert function_address("lz4", "no_such_function") == 0
