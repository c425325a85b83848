"""Messages of formats 0 and 1, plain and in wrappers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.errors import DamagedInputError
from coordinator_core.log.batch import batch_records
from coordinator_core.log.legacy import parse_message
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Batch, Codec, Record
from tests.examples import examples
from tests.log.builders import NOW_MS, build_message, build_wrapper, compress

PATH = "segment.log"
WRAPPING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
FORMATS = pytest.mark.parametrize("magic", [0, 1])
CODECS = pytest.mark.parametrize("codec", WRAPPING)


def parse(data: bytes) -> Batch:
    return parse_message(memoryview(data), 0)


def records(data: bytes) -> list[Record]:
    return batch_records(parse(data), path=PATH)


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in records(data)]


def failure(data: bytes) -> str:
    with pytest.raises(DamagedInputError) as caught:
        records(data)
    return str(caught.value)


def wrapper_of(inner: bytes, *, offset: int, magic: int = 1, codec: Codec = Codec.GZIP) -> bytes:
    return build_message(offset, None, compress(codec, inner, magic=magic), magic=magic, attributes=int(codec))


class TestPlain:
    def test_format_0_has_no_timestamp(self) -> None:
        batch = parse(build_message(7, b"k", b"v", magic=0))
        assert (batch.base_offset, batch.last_offset, batch.record_count) == (7, 7, 1)
        assert batch.timestamp_type == "NoTimestampType"
        assert batch.max_timestamp_ms == -1
        (record,) = batch_records(batch, path=PATH)
        assert (record.offset, record.timestamp_ms, record.key, record.value) == (7, -1, b"k", b"v")
        assert record.crc == batch.crc
        assert record.crc_valid

    @pytest.mark.parametrize("attributes, name", [(0, "CreateTime"), (8, "LogAppendTime")])
    def test_format_1_has_one(self, attributes: int, name: str) -> None:
        batch = parse(build_message(7, b"k", b"v", timestamp=55, attributes=attributes))
        assert batch.timestamp_type == name
        assert records(bytes(batch.data))[0].timestamp_ms == 55

    @FORMATS
    def test_never_transactional_nor_control(self, magic: int) -> None:
        batch = parse(build_message(7, b"k", b"v", magic=magic, attributes=0x30))
        assert not batch.is_transactional
        assert not batch.is_control
        assert batch.delete_horizon_ms is None
        assert (batch.producer_id, batch.partition_leader_epoch, batch.last_sequence) == (-1, -1, -1)

    @FORMATS
    @pytest.mark.parametrize("key, value", [(None, b""), (b"", None), (None, None)])
    def test_null_and_empty_differ(self, magic: int, key: bytes | None, value: bytes | None) -> None:
        (record,) = records(build_message(7, key, value, magic=magic))
        assert (record.key, record.value) == (key, value)

    @FORMATS
    def test_the_crc_covers_everything_behind_it(self, magic: int) -> None:
        data = build_message(7, b"key", b"value", magic=magic)
        assert parse(data).crc_valid
        for byte in range(16, len(data)):
            flipped = bytearray(data)
            flipped[byte] ^= 0x40
            assert not parse(bytes(flipped)).crc_valid

    @FORMATS
    @pytest.mark.parametrize("cut", [1, 5, 9])
    def test_fields_past_the_end(self, magic: int, cut: int) -> None:
        assert "bad_records" in failure(build_message(7, b"k", b"value", magic=magic)[:-cut])


class TestWrappers:
    @FORMATS
    @CODECS
    def test_offsets(self, magic: int, codec: Codec) -> None:
        data = build_wrapper(100, [(b"a", b"1"), (b"b", None), (b"c", b"3")], codec=codec, magic=magic)
        batch = parse(data)
        assert batch.last_offset == 102
        assert batch.record_count is None
        assert [(record.offset, record.key, record.value) for record in records(data)] == [
            (100, b"a", b"1"),
            (101, b"b", None),
            (102, b"c", b"3"),
        ]
        assert all(record.crc_valid for record in records(data))

    @FORMATS
    def test_gaps_that_compaction_left(self, magic: int) -> None:
        data = build_wrapper(100, [(b"a", b"", None, 2), (b"b", b"", None, 5)], codec=Codec.GZIP, magic=magic)
        assert parse(data).last_offset == 105
        assert offsets(data) == [102, 105]

    def test_wrapper_offset_0_means_that_inner_offsets_are_absolute(self) -> None:
        data = build_wrapper(0, [(b"a", b""), (b"b", b""), (b"c", b"")], codec=Codec.GZIP, wrapper_offset=0)
        assert offsets(data) == [0, 1, 2]

    def test_wrapper_offset_below_the_last_inner_offset(self) -> None:
        data = build_wrapper(0, [(b"a", b""), (b"b", b""), (b"c", b"")], codec=Codec.GZIP, wrapper_offset=1)
        assert "below its last inner offset 2" in failure(data)

    def test_format_0_wrapper_that_is_not_at_its_last_inner_offset(self) -> None:
        data = build_wrapper(5, [(b"a", b""), (b"b", b"")], codec=Codec.GZIP, magic=0, wrapper_offset=9)
        assert "is not its last inner offset 6" in failure(data)

    def test_create_time_is_that_of_each_message(self) -> None:
        data = build_wrapper(0, [(b"a", b"", 11), (b"b", b"", 22)], codec=Codec.GZIP)
        assert [record.timestamp_ms for record in records(data)] == [11, 22]
        assert parse(data).max_timestamp_ms == 22

    def test_log_append_time_is_that_of_the_wrapper(self) -> None:
        data = build_wrapper(0, [(b"a", b"", 11), (b"b", b"", 22)], codec=Codec.GZIP, log_append_time=99)
        assert [record.timestamp_ms for record in records(data)] == [99, 99]

    def test_format_0_messages_in_a_format_1_wrapper_have_no_timestamp(self) -> None:
        inner = build_message(0, b"a", b"", magic=0)
        data = build_message(3, None, compress(Codec.GZIP, inner), timestamp=99, attributes=0x08 | Codec.GZIP)
        assert [(record.offset, record.timestamp_ms) for record in records(data)] == [(3, -1)]

    @pytest.mark.parametrize("cut", [1, 10, 30])
    def test_partial_entry_at_the_end_is_ignored(self, cut: int) -> None:
        inner = build_message(0, b"a", b"1" * 20) + build_message(1, b"b", b"2" * 20)
        assert offsets(wrapper_of(inner[:-cut], offset=50)) == [50]

    def test_wrapper_of_nothing(self) -> None:
        assert "no inner messages" in failure(wrapper_of(b"", offset=50))

    def test_null_value(self) -> None:
        assert "null value" in failure(build_message(50, None, None, attributes=Codec.GZIP))

    def test_wrapper_inside_a_wrapper(self) -> None:
        inner = build_wrapper(0, [(b"a", b"")], codec=Codec.GZIP)
        assert "inside a wrapper" in failure(wrapper_of(inner, offset=50))

    def test_inner_size_below_the_smallest_message(self) -> None:
        inner = bytearray(build_message(0, b"a", b"1"))
        inner[8:12] = (13).to_bytes(4, "big")
        assert "inner message of 13 bytes" in failure(wrapper_of(bytes(inner), offset=50))

    def test_inner_message_of_another_format(self) -> None:
        inner = bytearray(build_message(0, b"a", b"1"))
        inner[16] = 2
        assert "inner message of format 2" in failure(wrapper_of(bytes(inner), offset=50))

    def test_inner_offsets_that_go_backwards(self) -> None:
        inner = build_message(1, b"a", b"1") + build_message(0, b"b", b"2") + build_message(2, b"c", b"3")
        assert "inner offset 48 after 49" in failure(wrapper_of(inner, offset=50))

    @FORMATS
    def test_zstd_is_illegal(self, magic: int) -> None:
        data = build_wrapper(0, [(b"a", b"")], codec=Codec.ZSTD, magic=magic)
        assert "bad_compression" in failure(data)

    def test_wrong_lz4_header_checksum_is_legal_in_format_0_only(self) -> None:
        frame = compress(Codec.LZ4, build_message(0, b"a", b"1", magic=0), magic=0)
        assert offsets(build_message(0, None, frame, magic=0, attributes=Codec.LZ4)) == [0]
        assert "header checksum" in failure(build_message(0, None, frame, magic=1, attributes=Codec.LZ4))

    def test_more_inner_messages_than_the_limit(self) -> None:
        batch = parse(build_wrapper(0, [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], codec=Codec.GZIP))
        assert len(batch_records(batch, path=PATH, limits=Limits(max_records=3))) == 3
        with pytest.raises(DamagedInputError) as caught:
            batch_records(batch, path=PATH, limits=Limits(max_records=2))
        assert (caught.value.damage.kind, caught.value.damage.record_offset) == ("limit_exceeded", 2)

    def test_crc_of_an_inner_message_is_reported_not_enforced(self) -> None:
        inner = bytearray(build_message(0, b"a", b"1"))
        inner[-1] ^= 1
        (record,) = records(wrapper_of(bytes(inner), offset=50))
        assert record.crc_valid is False


@examples(150)
@given(
    items=st.lists(
        st.tuples(
            st.none() | st.binary(max_size=30),
            st.none() | st.binary(max_size=30),
            st.integers(-1, NOW_MS),
        ),
        min_size=1,
        max_size=8,
    ),
    codec=st.sampled_from(WRAPPING),
    magic=st.sampled_from([0, 1]),
    first=st.integers(0, 1 << 40),
)
def test_what_was_wrapped_is_read(
    items: list[tuple[bytes | None, bytes | None, int]], codec: Codec, magic: int, first: int
) -> None:
    data = build_wrapper(first, items, codec=codec, magic=magic)
    assert [(record.offset, record.key, record.value, record.timestamp_ms) for record in records(data)] == [
        (first + index, key, value, timestamp if magic == 1 else -1)
        for index, (key, value, timestamp) in enumerate(items)
    ]
