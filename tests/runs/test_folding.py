"""Segments are folded together, and each is told of as if it had been folded alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.fold.cache import FoldCache
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.tasks import FoldTask, fold_tasks, in_runs, most_run_bytes
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, PartitionLog, SegmentFile, Snapshot
from coordinator_core.records.codec import encode_key
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.folding import Run
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import open_run
from tests.fold.random_logs import encoded_key, offset_value
from tests.log.builders import build_batch
from tests.replay.histories import group_value

from ..cases import Case, cross_section
from .logs import KINDS, cut_into_batches


def tasks(*partitions: list[int], root: str = "/log", log_start_offset: int | None = None) -> list[FoldTask]:
    """Tasks for segments of these sizes."""
    logs = [
        PartitionLog(
            number,
            "",
            tuple(SegmentFile(f"{root}/{number}/{at:020d}.log", number, at, size) for at, size in enumerate(sizes)),
            log_start_offset,
            clean_shutdown=False,
        )
        for number, sizes in enumerate(partitions)
    ]
    return fold_tasks(Snapshot(("",), tuple(logs), (), (), {}), OnDamage.FAIL)


def in_long_runs(*partitions: list[int], **about: Any) -> list[FoldTask]:
    return in_runs(tasks(*partitions, **about), lambda _: 1 << 30)


def lengths(runs: list[FoldTask]) -> list[tuple[int, int]]:
    return [(run.log.offsets_partition, len(run.segments)) for run in runs]


def test_neighbours_go_together_and_stay_in_their_partition() -> None:
    assert lengths(in_long_runs([100] * 12, [100] * 4)) == [(0, 12), (1, 4)]


def test_a_run_has_a_largest_size() -> None:
    assert {size for _, size in lengths(in_long_runs([1 << 29] * 64))} == {2}


def test_runs_are_short_where_group_records_are_many(tmp_path: Path) -> None:
    rules = FoldRules.of(profile_for_release("4.0.0"))
    commit = offset_value(3, 1, b"")
    for groups, most in ((0, 1 << 30), (1, 1 << 28)):
        items = [(encoded_key(b"g", b"t", number), commit) for number in range(20)]
        items += [(encode_key(2, {"group": "g"}), group_value())] * groups
        path = tmp_path / f"{groups}.log"
        path.write_bytes(build_batch(0, items))
        (task,) = in_long_runs([path.stat().st_size])
        segment = replace(task.segments[0], path=str(path), size=1 << 29)
        assert most_run_bytes([segment], rules) == most


def test_the_largest_size_is_asked_of_all_segments_of_a_partition() -> None:
    asked: list[list[int]] = []

    def most_bytes(segments: Sequence[SegmentFile]) -> int:
        asked.append([segment.size for segment in segments])
        return 200

    assert lengths(in_runs(tasks([100] * 3, [70] * 2), most_bytes)) == [(0, 2), (0, 1), (1, 2)]
    assert asked == [[100] * 3, [70] * 2]


def test_what_is_not_mapped_stays_alone() -> None:
    assert lengths(in_long_runs([1, 1, 1, 1], root="s3://bucket")) == [(0, 1)] * 4


def test_what_a_cache_keeps_stays_alone() -> None:
    """How long runs may be is asked of the others."""
    asked: list[list[int]] = []

    def most_bytes(segments: Sequence[SegmentFile]) -> int:
        asked.append([segment.size for segment in segments])
        return 200

    found = in_runs(tasks([99, 99, 100, 99, 99, 99], [100, 100]), most_bytes, FoldCache("", min_segment_bytes=100))
    assert lengths(found) == [(0, 2), (0, 1), (0, 2), (0, 1), (1, 1), (1, 1)]
    assert asked == [[99] * 5]


def test_what_is_no_part_of_the_log_stays_alone() -> None:
    # A segment ends where the next one begins: only of the first two does nothing lie above the log start.
    assert lengths(in_long_runs([1] * 5, log_start_offset=2)) == [(0, 1), (0, 1), (0, 3)]


def test_what_is_split_off_a_run_comes_behind_it() -> None:
    (task,) = in_long_runs([100] * 10)
    run = Run(task, task.ranges)
    taken = iter(run)
    begun = [next(taken)]
    last, middle = run.split(), run.split()
    assert last is not None
    assert middle is not None
    assert [len(part) for part in (run, middle, last)] == [2, 2, 5]
    assert (run.rest, middle.rest, last.rest) == (middle, last, None)
    assert [*begun, *taken, *middle, *last] == list(task.ranges)


def test_the_last_segment_of_a_run_is_not_split_off() -> None:
    (task,) = in_long_runs([100] * 2)
    run = Run(task, task.ranges)
    next(iter(run))
    assert run.split() is None


@pytest.mark.parametrize(
    ("codec", "sizes", "given"),
    [
        (Codec.NONE, [100, 45], []),
        (Codec.LZ4, [100, 45], [45]),
        (Codec.LZ4, [100, 20], []),
        (Codec.LZ4, [100, 100, 20], [100, 20]),
        (Codec.NONE, [100, 100, 20], [100, 20]),
        (Codec.NONE, [20, 100, 20, 100, 20], [100, 20]),
    ],
)
def test_a_run_is_split_by_bytes_and_a_compressed_segment_is_worth_it(
    codec: Codec, sizes: list[int], given: list[int], tmp_path: Path
) -> None:
    (task,) = in_long_runs([size << 20 for size in sizes], root=str(tmp_path))
    for segment in task.segments:
        Path(segment.path).parent.mkdir(exist_ok=True)
        items = [(encoded_key(b"g", b"t", number), offset_value(3, 1, b"")) for number in range(20)]
        Path(segment.path).write_bytes(build_batch(0, items, codec=codec))
    run = Run(task, task.ranges)
    next(iter(run))
    other = run.split()
    assert [segment.size >> 20 for segment, _ in other or ()] == given
    assert 1 + len(run) + len(given) == len(sizes)


@pytest.mark.parametrize("item", cross_section(KINDS, ("k241/cleaned",)))
def test_segments_folded_together_are_told_of_one_by_one(item: Case, tmp_path: Path) -> None:
    snapshot = cut_into_batches(item, tmp_path / "log")
    profile = profile_for_release(item.release, item.coordinator)

    def tables(run_id: str, cache: FoldCache | None) -> dict[str, object]:
        place = RunPlace(str(tmp_path / "runs"), "c", "w", run_id)
        replay_to_run(snapshot, place, profile=profile, now_ms=0, cache=cache)
        run = open_run(place.path)
        return {table: run.table(table) for table in ("segments", "offsets", "group_stats", "record_counts")}

    # With a cache every segment is folded alone.
    assert tables("together", None) == tables("alone", FoldCache(str(tmp_path / "cache")))
