"""A run that takes folds from the cache gives what a run without one gives, whatever became of the cache."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from multiprocessing import get_context
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold import cache as fold_cache
from coordinator_core.fold import tasks as folding
from coordinator_core.fold.cache import Digests, FoldCache, FoldCacheWarning, cache_of_environment
from coordinator_core.fold.pin import Pin
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.tasks import CacheUse, SegmentResult, fold_tasks, run_fold_task
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import SegmentFile, Snapshot
from coordinator_core.log.windows import SegmentWindows
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import merged_partitions, replay_snapshot, replay_to_run
from coordinator_core.runs.place import RunPlace, new_run_id
from coordinator_core.runs.publish import Manifest
from coordinator_core.runs.read import open_run
from tests.fold.random_logs import encoded_key, offset_value
from tests.kills import killed_at
from tests.log.builders import build_batch

from ..cases import TORN, Case, case, cross_section
from .logs import KINDS, copy_log, name, snapshot

PROFILE = profile_for_release("4.3.1")
RULES = FoldRules.of(PROFILE)


def replay(source: Snapshot | Pin, output: Path, cache: FoldCache | None, release: str = "4.3.1") -> Manifest:
    place = RunPlace(str(output), "c", "w", new_run_id())
    return replay_to_run(source, place, profile=profile_for_release(release), now_ms=0, cache=cache)


def entries(cache: FoldCache) -> list[Path]:
    return sorted(Path(cache.directory).glob("*.fold"))


def counts(hits: int, misses: int, corrupt: int = 0) -> dict[str, int]:
    return {"hits": hits, "misses": misses, "corrupt": corrupt}


@pytest.mark.parametrize("item", cross_section(KINDS, ("k0102-codecs/plain", "k241/cleaned", "k440/before")))
def test_runs_with_and_without_are_the_same(item: Case, tmp_path: Path, cache: FoldCache) -> None:
    profile = profile_for_release(item.release, item.coordinator)
    tables = []
    for used in (None, cache, cache):
        place = RunPlace(str(tmp_path / "out"), "c", "w", new_run_id())
        manifest = replay_to_run(snapshot(item), place, profile=profile, now_ms=0, cache=used)
        read = open_run(place.path)
        tables.append({table: read.table(table) for table in manifest["tables"]})
    assert manifest["fold_cache"] == counts(len(manifest["inputs"]), 0)
    assert tables[0] == tables[1] == tables[2]


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files for settled as soon as they are written."""
    monkeypatch.setattr(fold_cache, "_SETTLED_NS", -1)


def test_a_file_that_is_as_it_was_is_not_read_again(
    tmp_path: Path, cache: FoldCache, log: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    first = replay(log, tmp_path / "out", cache)
    read: list[str] = []

    def noted(segment: SegmentFile) -> SegmentWindows:
        read.append(segment.path)
        return SegmentWindows(segment)

    monkeypatch.setattr(folding, "SegmentWindows", noted)
    second = replay(log, tmp_path / "out", cache)
    assert read == []
    assert second["fold_cache"] == counts(len(log.segments), 0)
    assert second["state_hash"] == first["state_hash"]
    assert second["inputs"] == first["inputs"]
    replay(log, tmp_path / "out", None)
    assert len(read) == len(log.segments)


def test_a_file_that_was_written_to_is_read_again(
    tmp_path: Path, cache: FoldCache, log: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    replay(log, tmp_path / "out", cache)
    changed = Path(log.segments[0].path)
    content, status = bytearray(changed.read_bytes()), changed.stat()
    content[-1] ^= 1
    changed.write_bytes(content)
    os.utime(changed, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(DamagedInputError):
        replay(log, tmp_path / "out", cache)


def test_the_first_change_since_the_pin_is_told_also_when_a_later_one_is_known_without_reading(
    tmp_path: Path, cache: FoldCache, log: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    replay(log, tmp_path / "out", cache)
    first, last = log.segments[0].path, log.segments[-1].path
    os.utime(first)
    pin = Pin(log)
    changed = replace(pin, fingerprints={**pin.fingerprints, first: "00" * 32, last: "00" * 32})
    with pytest.raises(DamagedInputError) as caught:
        replay(changed, tmp_path / "out", cache)
    assert (caught.value.damage.kind, caught.value.damage.path) == ("changed_since_pin", first)


def test_a_file_that_was_written_to_just_now_is_not_taken_for_settled(
    cache: FoldCache, log: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(log.segments[0].path).touch()
    fresh = cache.seen(log.segments[0])
    assert fresh is not None
    cache.note(fresh, Digests("ab" * 32, "cd" * 32))
    assert cache.digests(fresh) is None
    settle(monkeypatch)
    settled = cache.seen(log.segments[0])
    assert settled is not None
    cache.note(settled, Digests("ab" * 32, "cd" * 32))
    assert cache.digests(settled) == Digests("ab" * 32, "cd" * 32)


def test_only_what_is_new_is_folded(tmp_path: Path, cache: FoldCache, log: Snapshot) -> None:
    newest = max(log.segments, key=lambda segment: segment.base_offset)
    aside = Path(newest.path).rename(tmp_path / "aside")
    first = replay(discover(list(log.sources)), tmp_path / "out", cache)
    assert first["fold_cache"] == counts(0, len(log.segments) - 1)
    aside.rename(newest.path)
    second = replay(log, tmp_path / "out", cache)
    assert second["fold_cache"] == counts(len(log.segments) - 1, 1)
    assert second["state_hash"] == replay(log, tmp_path / "out", None)["state_hash"] != first["state_hash"]


def test_a_copy_elsewhere_is_known_and_keeps_its_paths(tmp_path: Path, cache: FoldCache) -> None:
    replay(discover([str(copy_log("k431-txn", tmp_path / "monday"))]), tmp_path / "out", cache)
    tuesday = discover([str(copy_log("k431-txn", tmp_path / "tuesday"))])
    manifest = replay(tuesday, tmp_path / "out", cache)
    assert manifest["fold_cache"] == counts(len(tuesday.segments), 0)
    (result,) = run_fold_task(fold_tasks(tuesday, OnDamage.FAIL)[0], RULES, cache)
    assert result.fold is not None
    assert (result.fold.path, result.cache_use) == (tuesday.segments[0].path, CacheUse.HIT)


def flipped(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def test_corrupt_entries_are_found_counted_and_made_anew(tmp_path: Path, cache: FoldCache, log: Snapshot) -> None:
    expected = replay(log, tmp_path / "out", cache)["state_hash"]
    # Not all entries are folds: a damaged state of a merge is not counted.
    damaged = [Path(cache.directory, f"{result.cache_key}.fold") for result in results(log, cache)[:6]]
    for number, path in enumerate(damaged[:4]):
        flipped(path, (0, 1000, -20, -1)[number])
    os.truncate(damaged[4], damaged[4].stat().st_size - 1)
    os.truncate(damaged[5], 0)
    segments = len(log.segments)
    repaired = replay(log, tmp_path / "out", cache)
    assert (repaired["fold_cache"], repaired["state_hash"]) == (counts(segments - 6, 0, 6), expected)
    assert replay(log, tmp_path / "out", cache)["fold_cache"] == counts(segments, 0)


def test_a_changed_byte_is_never_hidden_by_the_cache(tmp_path: Path, cache: FoldCache, log: Snapshot) -> None:
    replay(log, tmp_path / "out", cache)
    segment = log.segments[2]
    flipped(Path(segment.path), segment.size // 2)
    damage: list[Damage] = []
    replay_snapshot(log, PROFILE, on_damage=OnDamage.SALVAGE, damage=damage, cache=cache)
    assert [found.path for found in damage] == [segment.path]


def results(source: Snapshot, cache: FoldCache, rules: FoldRules = RULES) -> list[SegmentResult]:
    tasks = fold_tasks(source, OnDamage.SALVAGE)
    return [result for task in tasks for result in run_fold_task(task, rules, cache)]


def uses(found: Iterable[SegmentResult]) -> set[CacheUse]:
    return {result.cache_use for result in found}


def test_what_a_fold_depends_on(cache: FoldCache, log: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    assert uses(results(log, cache)) == {CacheUse.MISS}
    assert uses(results(log, cache)) == {CacheUse.HIT}
    assert uses(results(log, cache, replace(RULES, tombstone_drops_pending=False))) == {CacheUse.MISS}
    monkeypatch.setattr(fold_cache, "source_digest", lambda: "another release")
    assert uses(results(log, cache)) == {CacheUse.MISS}


def test_the_code_counts_wherever_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(Path(fold_cache.__file__).parent.parent, tmp_path / "code")
    monkeypatch.setattr("importlib.resources.files", lambda name: tmp_path / "code" / name.rpartition(".")[2])
    digest = fold_cache.source_digest.__wrapped__
    found = [digest(), digest()]
    for module in ("log/batch.py", "log/compression/lz4.py", f"kernels/compiled{EXTENSION_SUFFIXES[0]}"):
        with (tmp_path / "code" / module).open("a") as source:
            source.write("#")
        found.append(digest())
    monkeypatch.setattr(fold_cache, "__version__", "another")
    found.append(digest())
    assert found[0] == found[1]
    assert len(set(found)) == 5


def test_where_the_log_starts_in_a_segment_counts(tmp_path: Path, cache: FoldCache) -> None:
    items = [(encoded_key(b"g", b"t", 0), offset_value(3, 1, b""))]
    directory = tmp_path / "log" / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(build_batch(0, items) + build_batch(1, items))
    (partition,) = discover([str(tmp_path / "log")]).partitions
    records = []
    for start in (0, 1, 1, 0):
        log = replace(partition, log_start_offset=start)
        (result,) = results(Snapshot((), (log,), (), (), {}), cache)
        assert result.fold is not None
        records.append((result.fold.counts.records, result.cache_use))
    assert records == [(2, CacheUse.MISS), (1, CacheUse.MISS), (1, CacheUse.HIT), (2, CacheUse.HIT)]


def test_an_overlap_with_the_next_segment_is_still_damage(tmp_path: Path, cache: FoldCache) -> None:
    items = [(encoded_key(b"g", b"t", 0), offset_value(3, 1, b""))] * 3
    directory = tmp_path / "log" / "__consumer_offsets-0"
    directory.mkdir(parents=True)
    (directory / f"{0:020d}.log").write_bytes(build_batch(0, items))
    assert uses(results(discover([str(tmp_path / "log")]), cache)) == {CacheUse.MISS}
    (directory / f"{2:020d}.log").write_bytes(build_batch(2, items))
    found = results(discover([str(tmp_path / "log")]), cache)
    assert [damage.kind for damage in found[0].damage] == ["offset_range"]


@pytest.mark.parametrize("item", TORN, ids=name)
def test_damaged_segments_are_not_kept(item: Case, cache: FoldCache) -> None:
    for _ in range(2):
        for result in results(snapshot(item), cache):
            assert (result.cache_use is CacheUse.NONE) == bool(result.damage)
    assert len(entries(cache)) == sum(not result.damage for result in results(snapshot(item), cache))


def test_a_broker_s_recovery_asks_no_cache(cache: FoldCache, log: Snapshot) -> None:
    replay_snapshot(log, PROFILE, on_damage=OnDamage.RECOVER, damage=[], cache=cache)
    assert entries(cache) == []


def test_small_segments_are_not_kept(tmp_path: Path, log: Snapshot) -> None:
    cache = FoldCache(str(tmp_path / "folds"))
    assert replay(log, tmp_path / "out", cache)["fold_cache"] == counts(0, 0)
    assert entries(cache) == []


def test_the_oldest_use_goes_first(tmp_path: Path, cache: FoldCache, log: Snapshot) -> None:
    replay(log, tmp_path / "out", cache)
    kept, now = entries(cache), time.time()
    for age, path in enumerate(kept):
        os.utime(path, (now - age, now - age))
    size = sum(path.stat().st_size for path in kept[:3])
    bounded = FoldCache(cache.directory, max_bytes=size, min_segment_bytes=0)
    bounded.trim()
    assert entries(cache) == sorted(kept[:3])


def test_a_cache_keeps_within_its_bound(tmp_path: Path, log: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_cache, "_TRIM_BYTES", 1)
    bounded = FoldCache(str(tmp_path / "folds"), max_bytes=100_000, min_segment_bytes=0)
    replay(log, tmp_path / "out", bounded)
    assert 0 < sum(path.stat().st_size for path in entries(bounded)) <= 100_000


def test_leftovers_go(cache: FoldCache, log: Snapshot) -> None:
    results(log, cache)
    unused, fresh = entries(cache)[:2]
    directory = Path(cache.directory)
    killed, writing = directory / ".fold-killed.tmp", directory / ".fold-writing.tmp"
    for path in (killed, writing):
        path.write_bytes(b"half")
    for path, age in ((killed, 7200), (unused, 100 * 24 * 3600)):
        os.utime(path, (time.time() - age, time.time() - age))
    cache.trim()
    assert not killed.exists()
    assert not unused.exists()
    assert writing.exists()
    assert fresh.exists()


def test_files_of_others_stay_in_a_directory_that_becomes_a_cache(cache: FoldCache, log: Snapshot) -> None:
    others = [Path(cache.directory, name) for name in ("notes.txt", "mine.fold", ".swap.tmp", "kept")]
    others[-1].mkdir(0o700, parents=True)
    for path in others[:-1]:
        path.write_text("somebody's")
    for path in others:
        os.utime(path, (0, 0))
    # The first entry that a process writes makes room.
    results(log, cache)
    assert all(path.exists() for path in others)
    assert len(entries(cache)) > 1


def test_a_cache_that_cannot_be_written_is_said_once(tmp_path: Path, log: Snapshot) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = FoldCache(str(tmp_path / "file"), min_segment_bytes=0)
    with pytest.warns(FoldCacheWarning, match="folds cannot be kept") as caught:
        found = results(log, cache)
    assert len(caught) == 1
    assert uses(found) == {CacheUse.MISS}


def in_another_process(sources: tuple[str, ...], directory: str) -> dict[str, int]:
    cache = FoldCache(directory, min_segment_bytes=0)
    found = uses(results(discover(list(sources)), cache))
    return {use.value: 1 for use in found}


def test_processes_share_a_cache(tmp_path: Path, cache: FoldCache, log: Snapshot) -> None:
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        running = [processes.submit(in_another_process, log.sources, cache.directory) for _ in range(2)]
        found = [future.result() for future in running]
    assert all("corrupt" not in told for told in found)
    assert len(entries(cache)) == len(log.segments)
    assert list(Path(cache.directory).glob(".*")) == []
    assert uses(results(log, cache)) == {CacheUse.HIT}


def test_the_command_line_keeps_folds_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_cache, "_MIN_SEGMENT_BYTES", 0)
    monkeypatch.setattr(FoldCache.__init__, "__kwdefaults__", {"max_bytes": None, "min_segment_bytes": 0})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("REGROUP_FOLD_CACHE", raising=False)
    arguments = ["list", *case("k431-txn").command_line()]

    def kept(place: str) -> int:
        found = len(list((tmp_path / place).glob("*.fold")))
        shutil.rmtree(tmp_path / place, ignore_errors=True)
        return found

    assert run(arguments) == 0
    assert kept("home/regroup/folds") > 0
    assert run([*arguments, "--fold-cache", str(tmp_path / "named")]) == 0
    assert kept("named") > 0
    monkeypatch.setenv("REGROUP_FOLD_CACHE", str(tmp_path / "environment"))
    assert run([*arguments, "--no-fold-cache"]) == 0
    assert run(arguments) == 0
    assert kept("environment") > 0
    monkeypatch.setenv("REGROUP_FOLD_CACHE", "")
    assert run(arguments) == 0
    assert cache_of_environment() is None
    assert kept("home/regroup/folds") == 0


@pytest.mark.parametrize("times", [8, pytest.param(50, marks=pytest.mark.full)])
def test_a_killed_run_leaves_whole_entries(log: Snapshot, tmp_path: Path, cache: FoldCache, times: int) -> None:
    (partition,) = log.partitions
    earlier = replace(partition, segments=partition.segments[: len(partition.segments) // 2])
    replay_snapshot(replace(log, partitions=(earlier,)), PROFILE, damage=[], cache=cache)
    before = {path.name: path.read_bytes() for path in entries(cache)}
    assert before
    expected = replay_snapshot(log, PROFILE, damage=[])
    moments = random.Random(20261123)
    kills = 0
    for number in range(times):
        copy = FoldCache(str(shutil.copytree(cache.directory, tmp_path / f"copy{number}")), min_segment_bytes=0)
        event = moments.randint(1, 40 * len(partition.segments))
        kills += killed_at(event, {fold_cache.__file__}, partial(replay_snapshot, log, PROFILE, damage=[], cache=copy))
        assert before.items() <= {path.name: path.read_bytes() for path in entries(copy)}.items()
        ((merged, facts),) = merged_partitions(log, PROFILE, cache=copy)
        assert [merged.to_state()] == expected
        assert facts.cache_uses[CacheUse.CORRUPT] == 0
    # The others came to their end before that event.
    assert kills > times / 2
