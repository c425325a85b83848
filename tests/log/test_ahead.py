"""Segments read ahead are those that are asked for, whatever is asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator_core.errors import UsageError
from coordinator_core.log.ahead import ReadAhead
from coordinator_core.log.types import PartitionLog, SegmentFile
from tests.log.builders import segment_name


def test_segments_in_order_and_out_of_it(tmp_path: Path) -> None:
    segments = []
    for number in range(5):
        path = tmp_path / segment_name(number)
        path.write_bytes(bytes([number]) * (number + 1))
        segments.append(SegmentFile(str(path), 0, number, number + 1))
    log = PartitionLog(0, str(tmp_path), tuple(segments), None, True)
    for order in ((0, 1, 2, 3, 4), (1, 3, 2), (0, 0, 4)):
        with ThreadPoolExecutor(1) as thread:
            reads = ReadAhead(log, thread)
            assert [bytes(reads(segments[one])) for one in order] == [bytes([one]) * (one + 1) for one in order]


def test_a_segment_that_has_gone_is_said_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / segment_name(0)
    path.write_bytes(b"first")
    segments = (SegmentFile(str(path), 0, 0, 5), SegmentFile(str(tmp_path / segment_name(5)), 0, 5, 5))
    with ThreadPoolExecutor(1) as thread:
        reads = ReadAhead(PartitionLog(0, str(tmp_path), segments, None, True), thread)
        assert bytes(reads(segments[0])) == b"first"
        with pytest.raises(UsageError, match="cannot be read"):
            reads(segments[1])
