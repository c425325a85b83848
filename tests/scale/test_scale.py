"""Large logs, each in one way: the answer is checked, and that memory does not follow what should cost none.

``REGROUP_SCALE`` makes them larger.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from coordinator_core.log.reader import read_segment
from coordinator_core.log.types import SegmentFile
from tests.bench.generator import Truth, Workload, generate
from tests.bench.truth import check_truth
from tests.disk import on_disk
from tests.scale.replaying import MIB, SCALE, measured, replay, replay_and_check
from tests.scale.watching import Watch

BASE_OFFSET = np.dtype(">i8")


@pytest.fixture
def place() -> Iterator[Path]:
    with on_disk() as directory:
        yield directory


def test_a_partition_larger_than_memory(place: Path) -> None:
    workload = Workload("larger", SCALE * 800_000_000, groups=1_000, offset_keys=20_000, segment_bytes=16 << 20)
    truths = generate(workload, place / "log")
    limit = 352 * MIB
    assert truths[0].bytes > 2 * limit
    replay_and_check(place / "log", truths, place / "runs", data_bytes=limit)


def test_nothing_is_dead(place: Path) -> None:
    workload = Workload(
        "alive",
        SCALE * 150_000_000,
        groups=60_000 * SCALE,
        offset_keys=1_500_000 * SCALE,
        in_turn=True,
        segment_bytes=32 << 20,
    )
    truths = generate(workload, place / "log")
    assert truths[0].live_offset_keys > 0.97 * truths[0].records
    replayed = replay_and_check(place / "log", truths, place / "runs")
    assert replayed.peak_bytes < (512 + 1024 * SCALE) * MIB


def test_a_giant_partition_in_spark(place: Path) -> None:
    """A worker folds, cuts, merges and combines, and keeps nothing of one step in the next."""
    workload = Workload(
        "giant", SCALE * 400_000_000, groups=20_000 * SCALE, offset_keys=4_200_000 * SCALE, in_turn=True
    )
    truths = generate(workload, place / "log")
    watch = Watch()
    watch.start()
    replayed = replay(place / "log", place / "runs", engine="spark")
    worker = watch.stop()["Python worker"]
    check_truth(replayed.run, truths)
    assert worker.processes > 1
    assert worker.peak < 1024 * MIB


def test_many_segments_in_spark() -> None:
    """What tasks are sent, and the memory of driver, JVM, workers and local engine, follow the segments at most."""
    few, many = (_many_segments(SCALE * segments) for segments in (2_000, 10_000))
    assert few["is_as_local"]
    assert many["is_as_local"]
    assert (few["tasks"], many["tasks"]) == (SCALE * 200, SCALE * 1_000)
    assert many["most_task_bytes"] < 2_500
    # 3.3 kB a segment were measured.
    most_mib = SCALE * 8_000 * 8_192 // MIB
    for process in ("python", "worker", "local"):
        assert many[f"{process}_peak_mib"] - few[f"{process}_peak_mib"] < most_mib, process
    assert many["jvm_peak_mib"] < 400 + most_mib


def _many_segments(segments: int) -> dict[str, Any]:
    """What ``many_segments`` measures with ten segments a task."""
    command = [sys.executable, "-m", "tests.scale.many_segments", str(segments)]
    environment = {**os.environ, "REGROUP_SEGMENTS_PER_TASK": "10"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_report_of_a_large_run_has_a_part_of_it_in_memory(place: Path) -> None:
    """All columns of its committed offsets, as they were once held, are a gigabyte."""
    partitions = 6 * SCALE
    workload = Workload("report", 120_000_000, offset_keys=1_000_000, partitions=partitions, in_turn=True)
    truths = generate(workload, place / "log")
    replayed = replay_and_check(place / "log", truths, place / "runs")
    done = measured(["report", str(replayed.run), "--no-log", "--format", "json"], data_bytes=640 * MIB)
    assert json.loads(done.stdout)["scope"]["committed_offsets"] == sum(truth.live_offset_keys for truth in truths)


def test_two_hundred_thousand_groups(place: Path) -> None:
    groups = 200_000 * SCALE
    workload = Workload("groups", 170 * groups, groups=groups, offset_keys=groups, in_turn=True, metadata_every=20)
    truths = generate(workload, place / "log")
    replayed = replay_and_check(place / "log", truths, place / "runs")
    assert replayed.summary["rows"]["groups"] > 0.6 * groups


@pytest.mark.parametrize("consumer_groups", [0.0, 1.0], ids=["classic", "consumer"])
def test_a_group_of_five_thousand_members(place: Path, consumer_groups: float) -> None:
    members = 5_000 * SCALE
    workload = Workload(
        "members",
        40_000_000,
        groups=20,
        offset_keys=4_000,
        metadata_every=400,
        members=3,
        members_of_first_group=members,
        consumer_groups=consumer_groups,
    )
    truths = generate(workload, place / "log")
    assert truths[0].members[0] == members
    replayed = replay_and_check(place / "log", truths, place / "runs")
    rows = pq.read_table(replayed.run / "members", columns=["group_id", "member_id"])
    of_first = rows.filter(pc.field("group_id") == truths[0].groups[0])["member_id"].to_pylist()
    assert len(of_first) == len(set(of_first)) == members


def test_fifty_partitions_of_very_different_size(place: Path) -> None:
    workload = Workload("uneven", SCALE * 30_000_000, groups=500, offset_keys=10_000, partitions=50, partition_skew=1.0)
    truths = generate(workload, place / "log")
    assert max(truth.bytes for truth in truths) > 40 * min(truth.bytes for truth in truths)
    replayed = replay_and_check(place / "log", truths, place / "runs")
    assert replayed.summary["offsets_partitions"] == 50


def test_a_segment_of_a_gigabyte(place: Path) -> None:
    """One segment is written again and again, with other base offsets (no CRC covers them)."""
    workload = Workload("segment", 64 << 20, groups=1_000, offset_keys=20_000, segment_bytes=1 << 30)
    (truth,) = generate(workload, place / "log")
    (path,) = place.glob("log/*/*.log")
    repeat(path, truth, (1 << 30) // truth.bytes)
    assert path.stat().st_size > 0.9 * (1 << 30)
    replayed = replay_and_check(place / "log", [truth], place / "runs")
    assert replayed.peak_bytes < 1536 * MIB


def repeat(path: Path, truth: Truth, times: int) -> None:
    """Append the segment's batches to it until they are there so many times."""
    data = np.fromfile(path, np.uint8)
    segment = SegmentFile(str(path), 0, 0, len(data))
    starts = np.array([batch.position for batch in read_segment(segment, check_crc=False)])
    base_offsets = np.ascontiguousarray(data[starts[:, None] + np.arange(8)]).view(BASE_OFFSET).ravel()
    with path.open("ab") as file:
        for number in range(1, times):
            moved = (base_offsets + number * truth.records).astype(BASE_OFFSET)
            data[starts[:, None] + np.arange(8)] = moved.view(np.uint8).reshape(-1, 8)
            file.write(data.data)
