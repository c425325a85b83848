"""Batches that are built again: byte for byte those of independent builders, and of brokers' cleaners."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from coordinator_core.log.batch import batch_records, parse_batch
from coordinator_core.log.discovery import discover
from coordinator_core.log.legacy import parse_message
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import parse_entry_batch, read_partition
from coordinator_core.log.segments import SegmentWriter, leader_epoch_text
from coordinator_core.log.types import Batch, Codec, ControlType, Record
from coordinator_core.log.writer import (
    BatchHeader,
    empty_batch,
    encode_batch,
    encode_message,
    encode_record,
    keys_of_batch,
    rebuild_batch,
)
from tests.cases import CORPUS
from tests.log.builders import (
    NOW_MS,
    NewRecord,
    build_batch,
    build_control_batch,
    build_empty_batch,
    build_message,
    build_wrapper,
    write_partition,
)

LIMITS = Limits()
HORIZON = NOW_MS + 86_400_000
RECORDS = [
    NewRecord(b"a", b"1", NOW_MS, 0),
    NewRecord(b"b", None, NOW_MS - 70, 1),
    NewRecord(b"c", b"x" * 300, NOW_MS + 9000, 3, (("h", b"v"), ("n", None))),
    NewRecord(None, b"", NOW_MS + 5, 4),
]


def parsed(data: bytes) -> Batch:
    return parse_batch(memoryview(data), 0)


def rebuilt(batch: Batch, *keep: int, horizon: int | None = None, **options: object) -> bytes:
    return rebuild_batch(batch, set(keep).__contains__, path="p", delete_horizon_ms=horizon, **options)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("append_time", [None, NOW_MS + 77])
def test_what_stays_is_written_like_a_new_batch_with_holes(codec: Codec, append_time: int | None) -> None:
    common = {
        "codec": codec,
        "last_offset_delta": 6,
        "producer_id": 9,
        "producer_epoch": 3,
        "base_sequence": 5,
        "transactional": True,
        "leader_epoch": 8,
        "log_append_time": append_time,
    }
    batch = parsed(build_batch(100, RECORDS, **common))
    stays = [RECORDS[2], RECORDS[3]]
    if append_time is not None:
        stays = [NewRecord(r.key, r.value, append_time, r.offset_delta, r.headers) for r in stays]
    assert rebuilt(batch, 103, 104) == build_batch(100, stays, **common)
    with_horizon = rebuilt(batch, 103, 104, horizon=HORIZON)
    assert with_horizon == build_batch(100, stays, delete_horizon=HORIZON, **common)
    # A horizon that is set stays, and timestamps count from it.
    again = rebuilt(parsed(with_horizon), 104, horizon=HORIZON + 1)
    assert again == build_batch(100, stays[1:], delete_horizon=HORIZON, **common)


def test_numbering_anew_leaves_no_holes() -> None:
    batch = parsed(build_batch(100, RECORDS, last_offset_delta=6))
    stays = [NewRecord(RECORDS[index].key, RECORDS[index].value, RECORDS[index].timestamp) for index in (1, 3)]
    assert rebuilt(batch, 101, 104, first_offset=40) == build_batch(40, stays)


def test_an_emptied_batch_keeps_its_producer_and_its_offsets() -> None:
    batch = parsed(
        build_batch(
            7,
            RECORDS,
            codec=Codec.ZSTD,
            producer_id=4,
            producer_epoch=1,
            transactional=True,
            last_offset_delta=9,
            delete_horizon=HORIZON,
        )
    )
    emptied = parsed(empty_batch(batch))
    assert (emptied.size, emptied.record_count, emptied.crc_valid) == (61, 0, True)
    assert (emptied.base_offset, emptied.last_offset, emptied.max_timestamp_ms) == (7, 16, NOW_MS + 9000)
    assert (emptied.producer_id, emptied.producer_epoch, emptied.base_sequence) == (4, 1, 0)
    assert (emptied.attributes, emptied.base_timestamp_ms) == (0x10, -1)
    marker = parsed(build_control_batch(3, ControlType.COMMIT, producer_id=4, timestamp=NOW_MS))
    assert empty_batch(marker) == build_empty_batch(
        3, producer_id=4, producer_epoch=0, transactional=True, control=True
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_wrapper_stays_a_wrapper(magic: int, codec: Codec) -> None:
    records = [(b"a", b"1", NOW_MS), (b"b", b"2", NOW_MS + 1), (b"c", None, NOW_MS + 2)]
    batch = parse_message(memoryview(build_wrapper(50, records, codec=codec, magic=magic)), 0)
    timestamp = NOW_MS + 2 if magic else -1
    left = parse_message(memoryview(rebuilt(batch, 51, 52)), 0)
    assert (left.magic, left.codec_id, left.last_offset, left.crc_valid) == (magic, codec, 52, True)
    assert left.base_timestamp_ms == timestamp
    expected = batch_records(batch, path="p")[1:]
    assert [(r.offset, r.key, r.value, r.timestamp_ms) for r in batch_records(left, path="p")] == [
        (r.offset, r.key, r.value, r.timestamp_ms) for r in expected
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_become_a_v2_batch(magic: int) -> None:
    records = [(b"a", b"1", NOW_MS), (b"b", b"2", NOW_MS + 1), (b"c", None, NOW_MS + 2)]
    batch = parse_message(memoryview(build_wrapper(50, records, codec=Codec.LZ4, magic=magic)), 0)
    data = rebuilt(batch, 51, 52, horizon=HORIZON, convert=True)
    stamps = (NOW_MS + 1, NOW_MS + 2) if magic else (-1, -1)
    stays = [NewRecord(b"b", b"2", stamps[0], 0), NewRecord(b"c", None, stamps[1], 1)]
    assert data == build_batch(51, stays, codec=Codec.LZ4, delete_horizon=HORIZON, leader_epoch=-1)
    plain = parse_message(memoryview(build_message(9, b"k", b"v", magic=magic)), 0)
    assert rebuilt(plain, 9) == bytes(plain.data)


def test_new_records_and_messages() -> None:
    records = [Record(5, NOW_MS, b"k", None), Record(6, NOW_MS + 1, b"l", b"v", (("h", b"x"),))]
    section = b"".join(encode_record(item, base_offset=5, base_timestamp_ms=NOW_MS) for item in records)
    header = BatchHeader(5, 6, 0, NOW_MS, NOW_MS + 1, 2)
    assert encode_batch(header, section, 2) == build_batch(
        5,
        [NewRecord(b"k", None, NOW_MS), NewRecord(b"l", b"v", NOW_MS + 1, None, (("h", b"x"),))],
        leader_epoch=2,
    )
    for magic in (0, 1):
        assert encode_message(records[0], magic) == build_message(5, b"k", None, magic=magic)


def test_keys_of_any_batch_are_a_plain_batch_of_keys() -> None:
    batch = parsed(build_batch(100, RECORDS, codec=Codec.GZIP, last_offset_delta=6, producer_id=2))
    plain = parsed(keys_of_batch(batch, path="p"))
    assert (plain.codec_id, plain.last_offset, plain.producer_id) == (0, 106, 2)
    assert [(r.offset, r.key, r.value is None, r.headers) for r in batch_records(plain, path="p")] == [
        (r.offset, r.key, r.value is None, ()) for r in batch_records(batch, path="p")
    ]


CLEANED = {
    "k431-compacted/A-uncleaned": "k431-compacted/B-cleaned-default",
    "k431-compacted/C-cleaned-short-pass1": "k431-compacted/C-cleaned-short",
    "kmix-0102-241/mixed": "kmix-0102-241/cleaned",
}


@pytest.mark.parametrize(("before", "after"), CLEANED.items())
def test_batches_are_rebuilt_as_the_broker_rebuilt_them(before: str, after: str) -> None:
    """The originals of what a real cleaner rewrote, filtered to the records it kept, are its bytes."""
    originals: dict[tuple[int, int], Batch] = {}
    for log in discover([str(CORPUS / before / "log")]).partitions:
        originals |= {(log.offsets_partition, batch.base_offset): batch for _, batch in read_partition(log)}
    compared = 0
    for log in discover([str(CORPUS / after / "log")]).partitions:
        for _, batch in read_partition(log):
            original = originals.get((log.offsets_partition, batch.base_offset))
            if original is None or original.data == batch.data or original.magic < 2:
                continue
            compared += 1
            if not batch.record_count:
                assert empty_batch(original) == batch.data
                continue
            keep = {record.offset for record in batch_records(batch, path="p")}
            assert rebuilt(original, *keep, horizon=batch.delete_horizon_ms) == batch.data
    assert compared > 10 or before.startswith("kmix")


def test_segments_are_cut_between_batches(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "p", 0, 10, segment_bytes=250)
    batches = [build_batch(offset, [(b"k", b"v" * 30)]) for offset in (12, 13, 20, 21, 22)]
    for data in batches:
        writer.write(memoryview(data), *struct.unpack_from(">q", data) * 2)
    segments = writer.finish()
    assert [segment.base_offset for segment in segments] == [10, 20, 22]
    assert all(segment.size <= 250 for segment in segments)
    assert b"".join(Path(segment.path).read_bytes() for segment in segments) == b"".join(batches)
    assert SegmentWriter(tmp_path / "q", 0, 7, segment_bytes=250).finish()[0].size == 0
    assert (tmp_path / "q" / f"{7:020d}.log").exists()
    far = SegmentWriter(tmp_path / "r", 0, 0, segment_bytes=1 << 20)
    for data in (build_batch(5, [(b"k", b"v")]), build_batch(1 << 31, [(b"k", b"v")])):
        far.write(memoryview(data), *struct.unpack_from(">q", data) * 2)
    assert [segment.base_offset for segment in far.finish()] == [0, 1 << 31]
    # No segment may have a batch so far behind its name, the first one neither.
    farther = SegmentWriter(tmp_path / "s", 0, 0, segment_bytes=1 << 20)
    for offset in (1 << 31, (1 << 31) + 1):
        farther.write(memoryview(build_batch(offset, [(b"k", b"v")])), offset, offset)
    assert [segment.base_offset for segment in farther.finish()] == [1 << 31]
    with pytest.raises(FileNotFoundError):
        SegmentWriter(tmp_path / "missing" / "p", 0, 0, segment_bytes=1)


def test_leader_epochs_read_as_the_broker_wrote_them() -> None:
    path = CORPUS / "k431-compacted" / "B-cleaned-default" / "log" / "__consumer_offsets-0"
    text = (path / "leader-epoch-checkpoint").read_text()
    pairs = [tuple(map(int, line.split())) for line in text.splitlines()[2:]]
    assert leader_epoch_text([(epoch, start) for epoch, start in pairs]) == text


def test_a_built_batch_is_sound(tmp_path: Path) -> None:
    batch = parsed(build_batch(100, RECORDS, last_offset_delta=6))
    write_partition(tmp_path, {100: rebuilt(batch, 100)})
    data = memoryview((tmp_path / "__consumer_offsets-0" / f"{100:020d}.log").read_bytes())
    assert parse_entry_batch(data, 0, LIMITS) is not None
