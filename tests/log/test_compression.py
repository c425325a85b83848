"""Codecs in Kafka's framings, and what hostile compressed data may cost."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.log.compression import (
    CompressionError,
    DecompressedTooLargeError,
    decompress,
)
from coordinator_core.log.compression.lz4 import header_checksum
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Codec
from tests.log.builders import compress, lz4_frame, uvarint, xerial

TEXT = b"".join(b"group-%d topic-%d " % (n % 7, n) for n in range(20_000))
ROOM = 64 << 20
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


def plain(codec: int, data: bytes, *, magic: int = 2, max_bytes: int = ROOM) -> bytes:
    return bytes(decompress(codec, memoryview(data), magic=magic, max_bytes=max_bytes))


@pytest.mark.parametrize("codec", list(Codec))
@given(data=st.binary(max_size=2000))
def test_what_kafka_compresses_comes_back(codec: Codec, data: bytes) -> None:
    assert plain(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", COMPRESSING)
def test_many_blocks(codec: Codec) -> None:
    assert plain(codec, compress(codec, TEXT)) == TEXT


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_truncation_is_an_error_or_a_prefix(codec: Codec) -> None:
    data = compress(codec, TEXT[:3000])
    for length in range(len(data)):
        try:
            got = plain(codec, data[:length])
        except CompressionError:
            continue
        # snappy-java takes the end of the input between blocks for the end of the stream, and zstd no input
        # for no content.
        assert TEXT[:3000].startswith(got)
        assert codec is Codec.SNAPPY or length == 0


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_codec_ids_without_a_codec(codec_id: int) -> None:
    with pytest.raises(CompressionError, match=f"unknown compression codec {codec_id}"):
        plain(codec_id, b"x")


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_illegal_below_format_2(magic: int) -> None:
    with pytest.raises(CompressionError, match="illegal"):
        plain(Codec.ZSTD, compress(Codec.ZSTD, TEXT), magic=magic)


class TestGzip:
    def test_concatenated_members(self) -> None:
        assert plain(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"

    def test_other_bytes_behind_the_last_member_are_ignored(self) -> None:
        assert plain(Codec.GZIP, gzip.compress(b"one") + bytes(9)) == b"one"

    @pytest.mark.parametrize(
        "behind",
        [
            b"\x1f\x8b",
            b"\x1f\x8b\x07" + bytes(30),
            b"\x1f\x8b\x08\x08" + b"n" * 30,
            b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff" + bytes(30),
            b"\x1f\x8b\x08\x02" + bytes(36),
            gzip.compress(b"two")[:14],
        ],
        ids=["magic", "method", "name", "extra", "header crc", "cut"],
    )
    def test_a_header_that_java_cannot_read_ends_the_stream(self, behind: bytes) -> None:
        assert plain(Codec.GZIP, gzip.compress(b"one") + behind) == b"one"

    def test_members_with_all_fields_of_a_header_go_on(self) -> None:
        header = b"\x1f\x8b\x08\x1e" + bytes(6) + b"\x02\0ab" + b"name\0" + b"comment\0"
        header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
        assert plain(Codec.GZIP, gzip.compress(b"one ") + header + gzip.compress(b"two")[10:]) == b"one two"

    def test_content_checksum_is_verified(self) -> None:
        data = bytearray(gzip.compress(TEXT))
        data[-8] ^= 1
        with pytest.raises(CompressionError, match="gzip"):
            plain(Codec.GZIP, bytes(data))

    def test_very_many_members_cost_no_more_than_their_bytes(self) -> None:
        member = gzip.compress(b"")
        assert plain(Codec.GZIP, member * 20_000 + gzip.compress(b"end")) == b"end"


class TestSnappy:
    def test_without_the_header_it_is_one_raw_block(self) -> None:
        assert plain(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT

    def test_raw_block_shorter_than_a_header(self) -> None:
        assert plain(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc"))) == b"abc"

    def test_second_header_in_the_middle(self) -> None:
        assert plain(Codec.SNAPPY, xerial(b"one ") + xerial(b"two ") + xerial(b"three")) == b"one two three"

    def test_up_to_three_bytes_behind_the_last_block_are_the_end(self) -> None:
        assert plain(Codec.SNAPPY, xerial(b"one") + b"\x00\x00\x00") == b"one"

    @pytest.mark.parametrize(
        "data",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"\x82SNAPPY\x00" + struct.pack(">ii", 0, 1), id="version 0"),
            pytest.param(xerial(b"one") + struct.pack(">i", 99) + b"x", id="block past the end"),
            pytest.param(xerial(b"one") + struct.pack(">i", -1), id="negative block size"),
            pytest.param(xerial(b"one") + xerial(b"two")[:11], id="half a second header"),
            pytest.param(xerial(b"")[:16] + struct.pack(">i", 6) + b"\xff" * 6, id="length of six bytes"),
            pytest.param(xerial(b"")[:16] + struct.pack(">i", 3) + b"\x05\x00a", id="short block"),
        ],
    )
    def test_what_snappy_java_refuses(self, data: bytes) -> None:
        with pytest.raises(CompressionError, match="snappy"):
            plain(Codec.SNAPPY, data)


class TestLz4:
    def test_wrong_header_checksum_is_accepted_in_format_0_only(self) -> None:
        data = lz4_frame(TEXT, magic=0)
        assert data[:7].hex() == "04224d1860401a"
        assert plain(Codec.LZ4, data, magic=0) == TEXT
        for magic in (1, 2):
            with pytest.raises(CompressionError, match="header checksum"):
                plain(Codec.LZ4, data, magic=magic)

    def test_header_checksum_covers_the_content_size(self) -> None:
        data = lz4.frame.compress(TEXT, block_linked=False, store_size=True)
        assert data[14] == header_checksum(data[4:14])
        assert plain(Codec.LZ4, data) == TEXT

    @pytest.mark.parametrize("block_size", [4, 5, 6, 7])
    def test_block_sizes_and_stored_blocks(self, block_size: int) -> None:
        noise = bytes(zlib.crc32(n.to_bytes(4, "big")) & 0xFF for n in range(70_000))
        data = lz4.frame.compress(noise + TEXT, block_size=block_size, block_linked=False)
        assert plain(Codec.LZ4, data) == noise + TEXT

    def test_content_checksum_is_not_verified(self) -> None:
        data = bytearray(lz4.frame.compress(TEXT, block_linked=False, content_checksum=True))
        data[-1] ^= 1
        assert plain(Codec.LZ4, bytes(data)) == TEXT

    @pytest.mark.parametrize("content", [TEXT, bytes(range(256))], ids=["compressed", "stored"])
    def test_block_checksums_are_verified(self, content: bytes) -> None:
        data = bytearray(lz4.frame.compress(content, block_linked=False, block_checksum=True))
        assert plain(Codec.LZ4, bytes(data)) == content
        data[-5] ^= 1
        with pytest.raises(CompressionError, match="lz4"):
            plain(Codec.LZ4, bytes(data))

    def test_bytes_behind_the_end_mark_are_ignored(self) -> None:
        assert plain(Codec.LZ4, lz4_frame(b"one") + b"rest") == b"one"

    @pytest.mark.parametrize(
        "position, value, message",
        [
            (0, 0x05, "not a frame"),
            (4, 0xA0, "flags"),
            (4, 0x40, "flags"),
            (4, 0x61, "flags"),
            (5, 0x30, "block descriptor"),
            (5, 0x41, "block descriptor"),
            (10, 0x7F, "exceeds the maximum"),
        ],
    )
    def test_frames_that_kafka_does_not_read(self, position: int, value: int, message: str) -> None:
        data = bytearray(lz4_frame(TEXT))
        data[position] = value
        with pytest.raises(CompressionError, match=message):
            plain(Codec.LZ4, bytes(data), magic=0)


class TestZstd:
    def test_frames_with_and_without_a_content_size(self) -> None:
        sized = zstandard.ZstdCompressor(write_content_size=True).compress(b"one ")
        assert plain(Codec.ZSTD, sized + compress(Codec.ZSTD, b"two ") + sized) == b"one two one "

    def test_bytes_behind_the_last_frame_are_no_frame(self) -> None:
        with pytest.raises(CompressionError, match="zstd"):
            plain(Codec.ZSTD, compress(Codec.ZSTD, b"one") + b"rest")


def bomb(codec: Codec, size: int) -> bytes:
    return compress(codec, bytes(size))


class TestLimits:
    @pytest.mark.parametrize("codec", COMPRESSING)
    def test_a_bomb_stops_at_the_limit(self, codec: Codec, peak_memory: Callable[[Callable[[], object]], int]) -> None:
        data = bomb(codec, 96 << 20)
        limit = 2 << 20

        def explode() -> None:
            with pytest.raises(DecompressedTooLargeError, match=f"{codec.name.lower()} .* limit of {limit}"):
                plain(codec, data, max_bytes=limit)

        # One LZ4 block is at most 4 MiB, and one piece of zstd input may go past the limit by 8 MiB.
        assert peak_memory(explode) < 16 << 20

    @pytest.mark.parametrize("codec", COMPRESSING)
    def test_exactly_the_limit_passes(self, codec: Codec) -> None:
        data = compress(codec, TEXT)
        assert plain(codec, data, max_bytes=len(TEXT)) == TEXT
        with pytest.raises(DecompressedTooLargeError):
            plain(codec, data, max_bytes=len(TEXT) - 1)

    @pytest.mark.parametrize(
        "codec, data",
        [
            pytest.param(Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + bytes(40), id="snappy raw block"),
            pytest.param(
                Codec.SNAPPY, xerial(b"")[:16] + b"\x00\x00\x00\x08\xff\xff\xff\xff\x07abc", id="snappy block"
            ),
            pytest.param(Codec.SNAPPY, xerial(b"")[:16] + struct.pack(">i", 0x7FFFFFFF), id="snappy compressed size"),
            pytest.param(
                Codec.LZ4,
                b"\x04\x22\x4d\x18\x68\x70"
                + struct.pack("<Q", 1 << 31)
                + bytes((header_checksum(b"\x68\x70" + struct.pack("<Q", 1 << 31)),))
                + struct.pack("<I", 0x7FFFFFFF),
                id="lz4 content and block size",
            ),
            pytest.param(Codec.ZSTD, b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 1 << 31) + b"\x01\x00\x00", id="zstd"),
            pytest.param(Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00", id="zstd window"),
        ],
    )
    def test_declared_sizes_of_two_gib_allocate_nothing(
        self, codec: Codec, data: bytes, peak_memory: Callable[[Callable[[], object]], int]
    ) -> None:
        def read() -> None:
            with pytest.raises(CompressionError):
                plain(codec, data)

        assert peak_memory(read) < 1 << 20

    def test_snappy_lengths_within_the_limit_that_cannot_be_true_allocate_nothing(
        self, peak_memory: Callable[[Callable[[], object]], int]
    ) -> None:
        declared = uvarint(30 << 20)

        def read() -> None:
            with pytest.raises(CompressionError, match="cannot become"):
                plain(Codec.SNAPPY, declared + b"\x00a")

        assert peak_memory(read) < 1 << 20

    def test_small_batches_may_have_any_ratio_large_ones_not(self) -> None:
        limits = Limits()
        assert limits.decompressed_allowance(100) == 32 << 20
        assert limits.decompressed_allowance(1 << 20) == 32 << 20
        assert limits.decompressed_allowance(10 << 20) == 80 << 20
        assert limits.decompressed_allowance(100 << 20) == 512 << 20
