"""The structure check and its document."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_core.log.discovery import discover
from coordinator_core.log.types import Codec, PartitionLog, Snapshot
from coordinator_core.log.verify import VerifyReport, verify
from tests.log.builders import build_batch, build_message, build_raw_batch, build_wrapper

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
Partition = Callable[..., PartitionLog]
CLEAN = sorted(
    str(path.parent.relative_to(CORPUS))
    for pattern in ("*/log", "*/*/log")
    for path in CORPUS.glob(pattern)
    if "k431-torn" not in path.parts
)

A = build_batch(0, [(b"k", b"v", 1000), (b"k", b"v", 3000)])
B = build_batch(2, [(b"k", b"v", 2000)], codec=Codec.LZ4)
C = build_batch(3, [(b"k", b"v", 9000)])


def check(log: PartitionLog) -> VerifyReport:
    return verify(Snapshot((log.directory,), (log,), (), (), {}))


@pytest.mark.parametrize("case", CLEAN)
def test_what_brokers_wrote_is_clean(case: str) -> None:
    report = verify(discover([str(CORPUS / case)]))
    assert report.status == "clean"
    assert report.damage == ()
    assert sum(segment.records for segment in report.segments) > 0
    assert all(segment.torn_bytes == segment.crc_errors == 0 for segment in report.segments)


@pytest.mark.parametrize(
    ("case", "kinds", "torn", "zeroes", "crc_errors"),
    [
        ("badlength", ["bad_length"], 0, 0, 0),
        ("bitflip", ["bad_crc"], 0, 0, 1),
        ("bitflip-clean-shutdown", ["bad_crc"], 0, 0, 1),
        ("live-copy", ["torn_tail"], 8052, 0, 0),
        ("truncated", ["torn_tail"], 286, 0, 0),
        ("zerotail", [], 0, 4096, 0),
    ],
)
def test_k431_torn(case: str, kinds: list[str], torn: int, zeroes: int, crc_errors: int) -> None:
    report = verify(discover([str(CORPUS / "k431-torn" / case)]))
    (segment,) = report.segments
    assert [found.kind for found in report.damage] == kinds
    assert report.status == ("damaged" if kinds else "clean")
    assert (segment.torn_bytes, segment.zero_bytes, segment.crc_errors) == (torn, zeroes, crc_errors)


def test_the_columns_of_a_segment(partition: Partition) -> None:
    log = partition({0: A + B, 3: C})
    first, second = check(log).segments
    assert (first.bytes, first.batches, first.records, first.last_offset) == (len(A + B), 2, 3, 2)
    assert (first.first_timestamp_ms, first.last_timestamp_ms) == (1000, 3000)
    assert (first.magics, first.codecs) == ((2,), ("lz4", "none"))
    assert first.sha256 == hashlib.sha256(A + B).hexdigest()
    assert (second.base_offset, second.batches, second.last_offset) == (3, 1, 3)


def test_old_formats(partition: Partition) -> None:
    data = build_message(0, b"k", b"v", magic=0) + build_wrapper(
        1, [(b"a", b"", 7), (b"b", b"", 8)], codec=Codec.SNAPPY
    )
    (segment,) = check(partition({0: data})).segments
    assert (segment.batches, segment.records, segment.last_offset) == (2, 3, 2)
    assert (segment.magics, segment.codecs) == ((0, 1), ("none", "snappy"))
    assert (segment.first_timestamp_ms, segment.last_timestamp_ms) == (7, 8)


def test_an_empty_segment(partition: Partition) -> None:
    (segment,) = check(partition({0: b""})).segments
    assert (segment.batches, segment.records, segment.last_offset) == (0, 0, None)
    assert segment.first_timestamp_ms is None
    assert segment.sha256 == hashlib.sha256(b"").hexdigest()


def test_every_damage_is_listed(partition: Partition) -> None:
    broken = build_raw_batch(2, b"\x7f" * 20, count=1, last_offset_delta=0)
    bad_crc = A[:-1] + bytes((A[-1] ^ 1,))
    segments = {
        0: bad_crc + broken + C,
        4: build_batch(2, [(b"k", b"")]),
        9: build_batch(9, [(b"k", b"")])[:-1],
    }
    report = check(partition(segments))
    assert Counter(found.kind for found in report.damage) == {
        "bad_crc": 1,
        "bad_records": 1,
        "offset_range": 1,
        "torn_tail": 1,
    }
    assert [segment.records for segment in report.segments] == [1, 0, 0]
    assert [segment.batches for segment in report.segments] == [2, 0, 0]


def test_segments_below_the_log_start_offset_are_checked_too(partition: Partition) -> None:
    report = check(partition({0: A[:-1], 2: B}, log_start_offset=2))
    assert [found.kind for found in report.damage] == ["torn_tail"]


def test_a_log_that_ends_before_its_start_offset(partition: Partition) -> None:
    report = check(partition({0: A}, log_start_offset=77))
    assert [(found.kind, found.record_offset) for found in report.damage] == [("log_start_offset", 2)]


def test_the_document(partition: Partition) -> None:
    log = partition({0: A + B[:-4]})
    document = json.loads(json.dumps(check(log).as_dict()))
    assert document["status"] == "damaged"
    (segment,) = document["segments"]
    assert {"path", "offsets_partition", "base_offset", "bytes", "batches", "records", "last_offset"} <= set(segment)
    assert document["damage"] == [
        {
            "path": log.segments[0].path,
            "byte_position": len(A),
            "record_offset": 2,
            "kind": "torn_tail",
            "detail": document["damage"][0]["detail"],
        }
    ]


def test_damage_of_the_directories_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "__consumer_offsets-0").mkdir()
    (tmp_path / "__consumer_offsets-0" / "00000000000000000000.log").write_bytes(A)
    (tmp_path / "log-start-offset-checkpoint").write_text("nonsense")
    report = verify(discover([str(tmp_path)]))
    assert [found.kind for found in report.damage] == ["bad_checkpoint"]
