"""Logs for tests: copies of the corpus that a test may cut or damage."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_segment
from coordinator_core.log.types import SegmentFile, Snapshot

from ..cases import CASES, FAST_CASES, TORN, Case, case

WHOLE = [item for item in CASES if item not in TORN]
"""Cases whose log is not damaged."""
KINDS = [item for item in WHOLE if item.name in FAST_CASES]
"""One of each kind, for tests of what does not look into records: caches, neighbours."""


def name(item: Case) -> str:
    """For the names of parametrized tests."""
    return item.name


def snapshot(item: Case) -> Snapshot:
    return discover([str(path) for path in item.paths])


def copy_log(name: str, target: Path) -> Path:
    """A copy of the log directory of the case ``name``."""
    (source,) = case(name).paths
    return Path(shutil.copytree(source, target))


def cut_into_batches(item: Case, target: Path, most_segments: int | None = None) -> Snapshot:
    """The log of a case with every batch in a segment of its own, or with at most so many a partition."""
    for log in snapshot(item).partitions:
        directory = target / f"__consumer_offsets-{log.offsets_partition}"
        directory.mkdir(parents=True)
        pieces = [piece for segment in log.segments for piece in _pieces(segment)]
        together = math.ceil(len(pieces) / (most_segments or len(pieces) or 1)) or 1
        for start in range(0, len(pieces), together):
            data = b"".join(data for _, data in pieces[start : start + together])
            (directory / f"{pieces[start][0]:020d}.log").write_bytes(data)
    return discover([str(target)])


def _pieces(segment: SegmentFile) -> Iterator[tuple[int, bytes]]:
    # A wrapper does not tell its first offset, so a piece is named after the end of the one before.
    base_offset = segment.base_offset
    for batch in read_segment(segment):
        yield base_offset, bytes(batch.data)
        base_offset = batch.next_offset
