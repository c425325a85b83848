"""Fixtures that the log tests share."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_core.log.types import PartitionLog, SegmentFile
from tests.log.builders import segment_name


@pytest.fixture
def partition(tmp_path: Path) -> Callable[..., PartitionLog]:
    """Writes ``{base offset: bytes}`` and returns it as a partition log."""

    def build(segments: dict[int, bytes], **fields: object) -> PartitionLog:
        files = []
        for base_offset, data in sorted(segments.items()):
            path = tmp_path / segment_name(base_offset)
            path.write_bytes(data)
            files.append(SegmentFile(str(path), 0, base_offset, len(data)))
        options: dict[str, object] = {"log_start_offset": None, "clean_shutdown": False} | fields
        return PartitionLog(0, str(tmp_path), tuple(files), **options)  # type: ignore[arg-type]

    return build


@pytest.fixture
def peak_memory() -> Callable[[Callable[[], object]], int]:
    """Runs a function and returns the most bytes that Python objects took meanwhile."""

    def measure(action: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            action()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    return measure
