"""Record batches of message format 2: fields, records, and every rule that makes one invalid."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.errors import DamagedInputError
from coordinator_core.log.batch import batch_records, control_type, iter_batch_records, parse_batch
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Batch, Codec, ControlType, Record
from tests.examples import examples
from tests.log.builders import (
    NOW_MS,
    NewRecord,
    build_batch,
    build_control_batch,
    build_empty_batch,
    build_raw_batch,
    compress,
    encode_record,
    uvarint,
    varint,
)

PATH = str(Path("some") / "segment.log")


def parse(data: bytes, position: int = 0) -> Batch:
    return parse_batch(memoryview(data), position)


def records(data: bytes) -> list[Record]:
    return batch_records(parse(data), path=PATH)


def failure(data: bytes, position: int = 0) -> DamagedInputError:
    with pytest.raises(DamagedInputError) as caught:
        batch_records(parse(data, position), path=PATH)
    assert caught.value.damage.path == PATH
    assert caught.value.damage.byte_position == position
    return caught.value


def section(*items: NewRecord) -> bytes:
    return b"".join(
        encode_record(item, offset_delta=index, base_timestamp=NOW_MS, default_timestamp=NOW_MS)
        for index, item in enumerate(items)
    )


class TestVectors:
    """Batches whose bytes were computed elsewhere."""

    KEY = bytes.fromhex("00010002673100017400000000")
    VALUE = bytes.fromhex("0003000000000000002a0000000700016d0000018bcfe56800")
    TIME = 0x18BCFE56800

    def test_tombstone(self) -> None:
        data = bytes.fromhex(
            "00000000000000640000004500000003024c9615620000000000000000018bcfe568000000018bcfe56800ffffffff"
            "ffffffffffffffffffff00000001260000001a000100026731000174000000000100"
        )
        batch = parse(data)

        assert (batch.base_offset, batch.last_offset, batch.next_offset) == (100, 100, 101)
        assert batch.crc_valid
        assert batch.partition_leader_epoch == 3
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
        assert not batch.is_transactional
        assert not batch.is_control
        assert records(data) == [Record(100, self.TIME, self.KEY, None)]

    def test_transactional_commit(self) -> None:
        data = bytes.fromhex(
            "00000000000000680000005e00000003022701a2410010000000000000018bcfe568000000018bcfe568000000000000"
            "00000900010000000000000001580000001a00010002673100017400000000320003000000000000002a000000070001"
            "6d0000018bcfe5680000"
        )
        batch = parse(data)

        assert batch.crc_valid
        assert batch.is_transactional
        assert not batch.is_control
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 1, 0)
        assert records(data) == [Record(104, self.TIME, self.KEY, self.VALUE, sequence=0)]

    def test_commit_marker(self) -> None:
        data = bytes.fromhex(
            "00000000000000690000004200000003022b1b272c0030000000000000018bcfe568000000018bcfe568000000000000"
            "0000090002ffffffff000000012000000008000000010c00000000000500"
        )
        batch = parse(data)
        (marker,) = records(data)

        assert batch.crc_valid
        assert batch.is_transactional
        assert batch.is_control
        assert (batch.producer_id, batch.producer_epoch) == (9, 2)
        assert control_type(marker) is ControlType.COMMIT
        assert marker.value == bytes.fromhex("000000000005")

    def test_empty_batch_left_by_the_cleaner(self) -> None:
        data = bytes.fromhex(
            "0000000000000064000000310000000302dc43157a001000000004ffffffffffffffff0000018bcfe568000000000000"
            "00000900010000000000000000"
        )
        batch = parse(data)

        assert batch.crc_valid
        assert (batch.base_offset, batch.last_offset, batch.record_count) == (100, 104, 0)
        assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (-1, self.TIME)
        assert batch.last_sequence == 4
        assert records(data) == []


class TestFields:
    def test_log_append_time_is_that_of_every_record(self) -> None:
        data = build_batch(5, [(b"a", b"1", 10), (b"b", b"2", 20)], log_append_time=99)
        assert parse(data).timestamp_type == "LogAppendTime"
        assert [record.timestamp_ms for record in records(data)] == [99, 99]

    def test_delete_horizon_leaves_record_times_as_they_are(self) -> None:
        data = build_batch(5, [(b"a", None, 1000), (b"b", b"2", 5000)], delete_horizon=4000)
        assert parse(data).delete_horizon_ms == 4000
        assert [record.timestamp_ms for record in records(data)] == [1000, 5000]

    def test_without_a_horizon_there_is_none(self) -> None:
        assert parse(build_batch(5, [(b"a", b"1")])).delete_horizon_ms is None

    @pytest.mark.parametrize("delta", [1 << 31, -(1 << 31) - 1, 1 << 40, -(1 << 62)])
    def test_timestamp_deltas_beyond_31_bits(self, delta: int) -> None:
        data = build_batch(5, [(b"a", b"1", 7), (b"b", b"2", 7 + delta)])
        assert [record.timestamp_ms for record in records(data)] == [7, 7 + delta]

    def test_timestamps_wrap_like_a_java_long(self) -> None:
        raw = build_raw_batch(
            0,
            encode_record((b"a", b""), offset_delta=0, base_timestamp=0, default_timestamp=5),
            count=1,
            last_offset_delta=0,
            base_timestamp=(1 << 63) - 1,
        )
        assert records(raw)[0].timestamp_ms == -(1 << 63) + 4

    def test_sequences_wrap_to_zero(self) -> None:
        data = build_batch(0, [(b"a", b""), (b"b", b""), (b"c", b"")], producer_id=1, base_sequence=0x7FFFFFFE)
        assert [record.sequence for record in records(data)] == [0x7FFFFFFE, 0x7FFFFFFF, 0]
        assert parse(data).last_sequence == 0

    def test_holes_that_the_cleaner_left(self) -> None:
        data = build_batch(100, [(b"a", b"", None, 3), (b"b", b"", None, 7)], last_offset_delta=9)
        assert [record.offset for record in records(data)] == [103, 107]
        assert parse(data).next_offset == 110

    def test_headers(self) -> None:
        headers = (("h", b"v"), ("", b""), ("ü", None))
        data = build_batch(0, [NewRecord(b"k", b"v", headers=headers)])
        assert records(data)[0].headers == headers

    def test_null_and_empty_keys_and_values_differ(self) -> None:
        data = build_batch(0, [(None, b""), (b"", None)])
        assert [(record.key, record.value) for record in records(data)] == [(None, b""), (b"", None)]

    def test_only_the_low_byte_of_the_attributes_counts(self) -> None:
        raw = build_raw_batch(0, section(NewRecord(b"k", b"v")), count=1, last_offset_delta=0, attributes=0x7F00)
        assert parse(raw).attributes == 0
        assert len(records(raw)) == 1

    @pytest.mark.parametrize("byte", range(21, 81))
    def test_the_crc_covers_everything_from_the_attributes_on(self, byte: int) -> None:
        data = bytearray(build_batch(0, [(b"key of it", b"value of it")]))
        data[byte] ^= 0x10
        assert not parse(bytes(data)).crc_valid


class TestControlRecords:
    @pytest.mark.parametrize("type_number", range(7))
    def test_types_that_kafka_knows(self, type_number: int) -> None:
        (record,) = records(build_control_batch(0, type_number, producer_id=1))
        assert control_type(record) == ControlType(type_number)

    def test_other_types_are_unknown(self) -> None:
        (record,) = records(build_control_batch(0, 77, producer_id=1))
        assert control_type(record) is ControlType.UNKNOWN

    def test_later_key_versions_are_read_by_the_first_layout(self) -> None:
        assert control_type(Record(0, 0, b"\x00\x05\x00\x01 and more", None)) is ControlType.COMMIT

    @pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
    def test_keys_that_are_none(self, key: bytes | None) -> None:
        with pytest.raises(ValueError, match="record offset 9"):
            control_type(Record(9, 0, key, None))

    def test_empty_control_batch(self) -> None:
        data = build_empty_batch(4, producer_id=1, transactional=True, control=True)
        assert len(data) == 61
        assert parse(data).is_control
        assert records(data) == []


def one(body: bytes) -> bytes:
    return varint(len(body), 32) + body


BODY = b"\x00\x00\x00" + varint(1, 32) + b"k" + varint(1, 32) + b"v" + b"\x00"
BROKEN_SECTIONS = {
    "nothing": (b"", 1),
    "fewer records than declared": (one(BODY), 2),
    "more records than declared": (one(BODY) + one(BODY), 1),
    "one byte behind the last record": (one(BODY) + b"\x00", 1),
    "record past the end": (varint(50, 32) + BODY, 1),
    "negative record length": (varint(-3, 32) + BODY, 1),
    "record longer than its fields": (varint(len(BODY) + 1, 32) + BODY + b"\x00", 1),
    "record shorter than its fields": (varint(len(BODY) - 1, 32) + BODY, 1),
    "key past the end": (one(b"\x00\x00\x00" + varint(9, 32) + b"k\x01\x00"), 1),
    "value past the end": (one(b"\x00\x00\x00" + varint(1, 32) + b"k" + varint(9, 32) + b"\x00"), 1),
    "negative header count": (one(BODY[:-1] + varint(-1, 32)), 1),
    "more headers than bytes": (one(BODY[:-1] + varint(9, 32)), 1),
    "header without a name": (one(BODY[:-1] + varint(1, 32) + varint(-1, 32) + varint(-1, 32)), 1),
    "varint of six bytes": (one(b"\x00\x00" + b"\x80" * 5 + b"\x00" + BODY[3:]), 1),
    "varlong of eleven bytes": (one(b"\x00" + b"\x80" * 10 + b"\x00" + BODY[2:]), 1),
    "varint cut off": (b"\x80\x80\x80\x80\x80\x80\x80", 1),
    "same offset twice": (one(BODY) + one(BODY), 2),
    "offset delta beyond the last": (one(b"\x00\x00" + varint(5, 32) + BODY[3:]), 1),
    "negative offset delta": (one(b"\x00\x00" + varint(-1, 32) + BODY[3:]), 1),
    "negative count": (one(BODY), -1),
    "two billion records": (one(BODY), 0x7FFFFFFF),
}


class TestInvalidRecords:
    @pytest.mark.parametrize("name", BROKEN_SECTIONS)
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
    def test_content_that_contradicts_the_format(self, name: str, codec: Codec) -> None:
        content, count = BROKEN_SECTIONS[name]
        raw = build_raw_batch(40, compress(codec, content), count=count, last_offset_delta=1, attributes=int(codec))
        damage = failure(raw, position=1234).damage
        assert damage.kind == "bad_records"
        assert damage.record_offset in (40, 41)

    def test_the_position_is_that_of_the_first_record_that_cannot_be_read(self) -> None:
        content = section(NewRecord(b"a", b""), NewRecord(b"b", b"")) + b"\x7f" * 9
        raw = build_raw_batch(40, content, count=3, last_offset_delta=2)
        damage = failure(raw).damage
        assert damage.record_offset == 42

    @pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
    def test_content_that_does_not_decompress(self, codec: Codec) -> None:
        good = compress(codec, section(NewRecord(b"a", b"1" * 100)))
        raw = build_raw_batch(40, good[:-6], count=1, last_offset_delta=0, attributes=int(codec))
        assert failure(raw).damage.kind == "bad_compression"

    def test_codec_that_does_not_exist(self) -> None:
        raw = build_raw_batch(0, section(NewRecord(b"a", b"")), count=1, last_offset_delta=0, attributes=6)
        assert failure(raw).damage.kind == "bad_compression"

    def test_content_beyond_the_limit(self) -> None:
        data = build_batch(3, [(b"k", bytes(5000))], codec=Codec.GZIP)
        limits = Limits(decompressed_floor_bytes=1000, max_ratio=2)
        with pytest.raises(DamagedInputError, match="limit of 1000 bytes") as caught:
            batch_records(parse(data), path=PATH, limits=limits)
        assert caught.value.damage.kind == "limit_exceeded"
        assert caught.value.damage.record_offset == 3

    @pytest.mark.parametrize(
        "codec",
        [
            pytest.param(Codec.GZIP, marks=pytest.mark.full),
            Codec.SNAPPY,
            pytest.param(Codec.LZ4, marks=pytest.mark.full),
            Codec.ZSTD,
        ],
    )
    def test_what_compresses_very_well_is_within_the_limits(self, codec: Codec) -> None:
        # A commit of forty thousand partitions, or the metadata of a group with as many members.
        one_group = encode_record(
            (b"\x00\x01" + b"g" * 40, b"m" * 4096), offset_delta=0, base_timestamp=0, default_timestamp=0
        )
        big_value = encode_record(
            (b"\x00\x02g", bytes(20 << 20)), offset_delta=0, base_timestamp=0, default_timestamp=0
        )
        many = b"".join(
            encode_record((b"\x00\x01group", b"%d" % n), offset_delta=n, base_timestamp=0, default_timestamp=0)
            for n in range(40_000)
        )
        for content, count in ((one_group, 1), (big_value, 1), (many, 40_000)):
            raw = build_raw_batch(
                0, compress(codec, content), count=count, last_offset_delta=count - 1, attributes=int(codec)
            )
            assert len(records(raw)) == count

    def test_more_records_and_headers_than_the_limit(self) -> None:
        items = [NewRecord(b"k", b"v", headers=(("a", b""), ("b", None))), NewRecord(b"k", b"v")]
        batch = parse(build_batch(3, items))
        assert len(batch_records(batch, path=PATH, limits=Limits(max_records=4))) == 2
        for most, offset in ((3, 3), (1, 3)):
            with pytest.raises(DamagedInputError) as caught:
                batch_records(batch, path=PATH, limits=Limits(max_records=most))
            assert (caught.value.damage.kind, caught.value.damage.record_offset) == ("limit_exceeded", offset)

    def test_batch_without_records_is_not_looked_into(self) -> None:
        raw = build_raw_batch(0, b"whatever", count=0, last_offset_delta=3, attributes=Codec.ZSTD)
        assert records(raw) == []

    def test_negative_lengths_are_null(self) -> None:
        content = one(b"\x00\x00\x00" + varint(-7, 32) + varint(-2, 32) + b"\x00")
        (record,) = records(build_raw_batch(0, content, count=1, last_offset_delta=0))
        assert (record.key, record.value) == (None, None)

    def test_varints_need_not_be_the_shortest(self) -> None:
        content = one(b"\x00\x80\x80\x00\x80\x00" + BODY[3:])
        (record,) = records(build_raw_batch(0, content, count=1, last_offset_delta=0))
        assert (record.offset, record.key) == (0, b"k")

    def test_high_bits_of_the_fifth_byte_are_dropped(self) -> None:
        content = one(b"\x00\x00" + b"\x80\x80\x80\x80\x70" + BODY[3:])
        assert records(build_raw_batch(0, content, count=1, last_offset_delta=0))[0].offset == 0
        assert uvarint(0) == b"\x00"

    def test_records_come_one_by_one(self) -> None:
        content = section(NewRecord(b"a", b""), NewRecord(b"b", b"")) + b"\x7f" * 9
        raw = build_raw_batch(40, content, count=3, last_offset_delta=2)
        iterator = iter_batch_records(parse(raw), path=PATH)
        assert [next(iterator).key, next(iterator).key] == [b"a", b"b"]
        with pytest.raises(DamagedInputError):
            next(iterator)


TIMES = st.integers(-(1 << 62), 1 << 62)
BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[NewRecord], dict[str, object]]:
    deltas = sorted(draw(st.sets(st.integers(0, 1000), max_size=12)))
    items = [NewRecord(draw(BYTES), draw(BYTES), draw(TIMES), delta, draw(HEADERS)) for delta in deltas]
    options: dict[str, object] = {
        "codec": draw(st.sampled_from(list(Codec))),
        "producer_id": draw(st.sampled_from([-1, 0, 1 << 62])),
        "base_sequence": draw(st.sampled_from([-1, 0, 0x7FFFFFFF])),
        "transactional": draw(st.booleans()),
        "control": draw(st.booleans()),
        "leader_epoch": draw(st.integers(-1, 0x7FFFFFFF)),
        "last_offset_delta": draw(st.integers(deltas[-1] if deltas else 0, 1100)),
        "log_append_time": draw(st.none() | st.integers(-1, 1 << 62)),
        "delete_horizon": draw(st.none() | st.integers(0, 1 << 62)),
    }
    return items, options


@examples(150)
@given(batch=batches(), base_offset=st.integers(0, 1 << 62))
def test_what_was_built_is_read(batch: tuple[list[NewRecord], dict[str, object]], base_offset: int) -> None:
    items, options = batch
    data = build_batch(base_offset, items, **options)  # type: ignore[arg-type]
    got = parse(data)

    assert got.crc_valid
    assert got.base_offset == base_offset
    assert got.last_offset - base_offset == options["last_offset_delta"]
    assert got.record_count == len(items)
    assert got.partition_leader_epoch == options["leader_epoch"]
    assert got.producer_id == options["producer_id"]
    assert got.is_transactional == options["transactional"]
    assert got.is_control == options["control"]
    assert got.codec_id == options["codec"]
    append_time = options["log_append_time"]
    expected = [
        (
            base_offset + (item.offset_delta or 0),
            item.timestamp if append_time is None else append_time,
            item.key,
            item.value,
            item.headers,
        )
        for item in items
    ]
    assert [
        (record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        for record in batch_records(got, path=PATH)
    ] == expected
