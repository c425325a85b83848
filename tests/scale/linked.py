"""A log of 50 uneven offsets partitions that takes a fraction of its size on the disk: partitions share segments.

Segments of two kinds are generated. Those of ``busy`` are of usual traffic: 5 000 groups commit 176 000 offset keys
again and again, a tenth in transactions. In those of ``alive`` no committed offset is superseded: their folds alone
are so large that their partition is a giant one. The giant partition has all segments of both; each other one has a
run of neighbours of ``busy``, as hard links. Its log then begins as one whose first segments were deleted, and may
end in the middle of transactions. The groups are not those that a coordinator would place there, which a replay does
not mind.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from coordinator_core.log.types import OFFSETS_TOPIC
from tests.bench.generator import generate
from tests.bench.workload import Workload

PARTITIONS = 50
GIANT = 17
"""Neither the first partition nor the last."""
SMALLEST = 1
"""Segments of the smallest partition."""

ALIVE = Workload("alive", 900_000_000, groups=40_000, offset_keys=9_500_000, in_turn=True)
BUSY = Workload("busy", 2_100_000_000, transactional=0.1, tombstones=0.02, first_offset=20_000_000, seed=8)


@dataclass(frozen=True)
class LinkedLog:
    """A log directory; ``distinct_bytes`` are on the disk, ``sizes`` are those of the offsets partitions."""

    path: Path
    sizes: dict[int, int]
    segments: int
    distinct_bytes: int

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def linked_log(directory: Path, gigabytes: float) -> LinkedLog:
    """Write a log of about so many GB, at least 2.5, below ``directory``; segments have 100 MiB from 10 GB on."""
    segment_bytes = round(min(gigabytes / 10, 1) * BUSY.segment_bytes)
    # All of it is in the giant partition; something is to be left for the others.
    busy_bytes = min(BUSY.target_bytes, round(gigabytes / 12 * 1e9))
    alive = _segments(replace(ALIVE, segment_bytes=segment_bytes), directory)
    busy = _segments(replace(BUSY, segment_bytes=segment_bytes, target_bytes=busy_bytes), directory)
    log = directory / "log"
    runs = _runs(round(gigabytes * 1e9 / segment_bytes) - len(alive) - len(busy), len(busy))
    of_partitions = {GIANT: [*alive, *busy]}
    others = (number for number in range(PARTITIONS) if number != GIANT)
    of_partitions |= {number: busy[run.start : run.stop] for number, run in zip(others, runs, strict=True)}
    for number, segments in of_partitions.items():
        partition = log / f"{OFFSETS_TOPIC}-{number}"
        partition.mkdir(parents=True)
        for segment in segments:
            os.link(segment, partition / segment.name)
    return LinkedLog(
        log,
        {number: _size(segments) for number, segments in of_partitions.items()},
        sum(map(len, of_partitions.values())),
        _size([*alive, *busy]),
    )


def _segments(workload: Workload, directory: Path) -> list[Path]:
    generate(workload, directory / workload.name)
    return sorted(directory.glob(f"{workload.name}/*/*.log"))


def _runs(total: int, most: int) -> list[range]:
    """Neighbours of ``most`` segments for each partition but the giant one, about ``total`` in all. Partitions grow
    evenly from the smallest to the largest, and begin at different segments."""
    count = PARTITIONS - 1
    growth = 2 * (total / count - SMALLEST) / (count - 1)
    runs = []
    for number in range(count):
        size = min(most, max(SMALLEST, round(SMALLEST + number * growth)))
        first = number * 7 % (most - size + 1)
        runs.append(range(first, first + size))
    return runs


def _size(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
