"""Segments that unpack to much are folded in parts, and no more than one of them is held."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import event, given

from coordinator_core.errors import Damage
from coordinator_core.fold import unpacking
from coordinator_core.fold.cache import FoldCache
from coordinator_core.fold.fingerprint import RunningFingerprint
from coordinator_core.fold.pin import segment_fingerprint
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.segments import Piece, fold_partition, fold_run
from coordinator_core.fold.tasks import CacheUse, fold_tasks, in_runs, run_fold_task
from coordinator_core.log.limits import MIB, Limits
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, ControlType, Snapshot
from coordinator_core.log.windows import SegmentWindows
from coordinator_core.runs.merging import merge_partition
from tests.examples import examples
from tests.fold.parity import PROFILES, assert_merges, every_profile, sequential_outcome, write_log
from tests.fold.random_logs import Item, Log, encoded_key, logs, offset_value
from tests.launched import launched
from tests.log.builders import build_batch, build_control_batch, build_message

PROFILE = PROFILES["4.3.1"]
RULES = FoldRules.of(PROFILE)


@every_profile
@examples(20)
@given(log=logs)
def test_parts_give_the_sequential_state(name: str, log: Log) -> None:
    """With a part for each batch, by every way of reading."""
    profile = PROFILES[name]
    limits = Limits(kept_floor_bytes=0, kept_ratio=0, fold_bytes=1)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "_CHUNK_BYTES", 1)
        whole = write_log(Path(directory), log)
        for on_damage in OnDamage:
            expected, expected_damage = sequential_outcome(whole, profile, on_damage)
            damage: list[Damage] = []
            rules = FoldRules.of(profile)
            folds = list(fold_partition(whole, rules=rules, limits=limits, on_damage=on_damage, damage=damage))
            assert not isinstance(expected, Damage)
            assert damage == expected_damage
            assert_merges(expected, folds, profile)


def test_a_part_does_not_end_with_a_batch_that_the_next_one_refutes(tmp_path: Path) -> None:
    """Its offset leaves a hole that the next batch fills: the reader leaves it out, whatever was folded before."""
    items: list[Item] = [(b"\0\2\0\1g", bytes(100))]
    batches = [build_batch(offset, items, codec=Codec.ZSTD) for offset in (0, 50, 1)]
    log = write_log(tmp_path, Log(tuple(batches), (0, 50, 1), 51))
    expected, expected_damage = sequential_outcome(log, PROFILE, OnDamage.SALVAGE)
    assert not isinstance(expected, Damage)
    limits = Limits(kept_floor_bytes=0, kept_ratio=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "_CHUNK_BYTES", 1)
        damage: list[Damage] = []
        folds = list(fold_partition(log, rules=RULES, limits=limits, on_damage=OnDamage.SALVAGE, damage=damage))
    assert [found.kind for found in damage] == ["offset_order"]
    assert damage == expected_damage
    assert_merges(expected, folds, PROFILE)


def test_a_segment_has_one_row_of_any_number_of_parts(tmp_path: Path) -> None:
    """Also where a part has no timestamps, or nothing but control records, whose time does not count."""
    first, second = ((encoded_key(b"g", b"t", number), offset_value(3, 5, b"")) for number in range(2))
    marker = build_control_batch(1, ControlType.COMMIT, producer_id=9)
    by_name = {
        "format 0 first": [build_message(0, *first, magic=0), build_batch(1, [second])],
        "format 0 last": [build_batch(0, [first]), build_message(1, *second, magic=0)],
        "a marker last": [build_batch(0, [first], producer_id=9, transactional=True), marker],
    }
    for name, batches in by_name.items():
        (tmp_path / name).mkdir()
        log = write_log(tmp_path / name, Log(tuple(batches), (0,), 2))
        (task,) = fold_tasks(Snapshot((), (log,), (), (), {}), OnDamage.FAIL)
        rows = []
        for limits in (Limits(), Limits(fold_bytes=1)):
            results = list(run_fold_task(task, RULES, limits=limits))
            rows.append(merge_partition(0, iter(results), PROFILE, now_ms=0)[0]["segments"].to_pylist())
        assert len(results) >= 2, name
        assert rows[0] == rows[1], name
        assert (rows[0][0]["first_timestamp_ms"] is None) == name.startswith("format 0"), name


@every_profile
@examples(20)
@given(log=logs)
def test_long_segments_are_folded_in_parts(name: str, log: Log) -> None:
    """With a part for each batch; the fingerprint, of all bytes, comes with the last one, and no cache is asked."""
    profile = PROFILES[name]
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunningFingerprint.advance, "__defaults__", (1,))
        whole = write_log(Path(directory), log, (len(log.batches) // 2,))
        expected, _ = sequential_outcome(whole, profile, OnDamage.SALVAGE)
        tasks = fold_tasks(Snapshot((directory,), (whole,), (), (), {}), OnDamage.SALVAGE)
        cache = FoldCache(str(Path(directory, "cache")), min_segment_bytes=0)
        limits = Limits(fold_bytes=1)
        results = [one for task in tasks for one in run_fold_task(task, FoldRules.of(profile), cache, limits=limits)]
        assert not isinstance(expected, Damage)
        assert_merges(expected, [one.fold for one in results if one.fold is not None], profile)
        assert len(results) >= min(len(log.batches), len(whole.segments))
        last = [one for one in results if one.is_last]
        assert [one.segment for one in last] == list(whole.segments)
        assert [one.fingerprint for one in last] == [segment_fingerprint(segment) for segment in whole.segments]
        assert {one.cache_use for one in results} == {CacheUse.NONE}
        event("several parts" if len(results) > len(last) else "one part")


@every_profile
@examples(20)
@given(log=logs)
def test_runs_that_end_where_they_hold_much_give_the_sequential_state(name: str, log: Log) -> None:
    """Whatever they may hold: nothing besides a segment, or more."""
    profile = PROFILES[name]
    with tempfile.TemporaryDirectory() as directory:
        whole = write_log(Path(directory), log, range(len(log.batches)))
        expected, _ = sequential_outcome(whole, profile, OnDamage.SALVAGE)
        assert not isinstance(expected, Damage)
        tasks = in_runs(fold_tasks(Snapshot((directory,), (whole,), (), (), {}), OnDamage.SALVAGE), lambda _: MIB)
        largest = max(segment.size for segment in whole.segments)
        for most in (largest + 1, 2 * largest, 8 * largest):
            limits = Limits(fold_bytes=most)
            results = [one for task in tasks for one in run_fold_task(task, FoldRules.of(profile), limits=limits)]
            assert [one.segment for one in results] == list(whole.segments)
            assert_merges(expected, [one.fold for one in results if one.fold is not None], profile)


def runs_of(directory: Path, partitions: Callable[[int], range]) -> int:
    """Number of runs of sixteen segments of ten commits, of which segment n is of ``partitions(n)``."""
    directory.mkdir()
    batches = []
    for number in range(16):
        items: list[Item] = [(encoded_key(b"g", b"t", key), offset_value(3, 1, b"")) for key in partitions(number)]
        batches.append(build_batch(10 * number, items))
    log = write_log(directory, Log(tuple(batches), tuple(range(0, 160, 10)), 160), range(16))
    pieces = iter([Piece(segment, SegmentWindows(segment)) for segment in log.segments])
    limits = Limits(fold_bytes=8 * log.segments[0].size)
    runs = 0
    while fold_run(pieces, rules=RULES, limits=limits) is not None:
        runs += 1
    return runs


def test_a_run_takes_no_more_than_it_may_hold(tmp_path: Path) -> None:
    """One run where segments are about the same keys, several where each has its own."""
    assert runs_of(tmp_path / "same", lambda _: range(10)) == 1
    assert runs_of(tmp_path / "others", lambda number: range(10 * number, 10 * number + 10)) > 1


def superseded(batches: int, size: int) -> Log:
    """One group's record again and again, ``size`` bytes of zeroes each time."""
    items: list[Item] = [(b"\0\2\0\1g", bytes(size))]
    made = tuple(build_batch(number, items, codec=Codec.ZSTD) for number in range(batches))
    return Log(made, tuple(range(batches)), batches)


@pytest.mark.parametrize("on_damage", OnDamage)
def test_a_part_holds_what_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_damage: OnDamage) -> None:
    monkeypatch.setattr(unpacking, "_MOST_PLAIN_BYTES", MIB)
    monkeypatch.setattr("coordinator_core.fold.arena._KEPT_BYTES", MIB)
    limits = Limits(kept_floor_bytes=4 * MIB)
    log = write_log(tmp_path, superseded(64, MIB // 2))
    folds = list(fold_partition(log, rules=RULES, limits=limits, on_damage=on_damage))
    sizes = [fold.group_records.nbytes for fold in folds]
    assert sum(sizes) > 32 * MIB
    assert max(sizes) < 6 * MIB
    pieces = [Piece(segment, SegmentWindows(segment)) for segment in log.segments]
    assert fold_run(pieces, rules=RULES, limits=limits) is None
    expected, _ = sequential_outcome(log, PROFILE, on_damage)
    assert not isinstance(expected, Damage)
    assert_merges(expected, folds, PROFILE)


@pytest.mark.full
@pytest.mark.parametrize("command", ["describe", "compact", "stats"])
def test_commands_do_not_hold_what_is_superseded(tmp_path: Path, command: str) -> None:
    """50 KB that unpack to 1.5 GB, all but 30 MB of it superseded.

    Held whole they took 5.6 GB and more. Peaks of one command differ by half a gigabyte, with what glibc keeps.
    """
    directory = tmp_path / "logs" / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(b"".join(superseded(50, 30 * MIB).batches))
    output = ["--output", str(tmp_path / "compacted")] if command == "compact" else []
    arguments = [command, str(directory.parent), "--kafka-version", "4.3.1", "--now-ms", "1", *output]
    done = launched([sys.executable, "-m", "coordinator_core", *arguments])
    assert done.code == 0, done.stderr
    assert done.peak_bytes < 3 << 30
