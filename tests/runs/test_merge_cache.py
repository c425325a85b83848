"""A merge that goes on from a kept state gives what a merge of all folds gives."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_core.fold import cache as fold_cache
from coordinator_core.fold.cache import FoldCache
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import SegmentFile, Snapshot
from coordinator_core.merge import cache as merge_cache
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.runs.state_hash import all_digests, state_hash
from tests.runs.state_tables import state_tables

from ..cases import Case, case, cross_section
from .logs import KINDS, cut_into_batches


@pytest.fixture
def merged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the folds that were merged."""
    paths: list[str] = []
    take = merge_cache._State.take

    def taken(self: merge_cache._State, fold: SegmentFold) -> None:
        paths.append(fold.path)
        take(self, fold)

    monkeypatch.setattr(merge_cache._State, "take", taken)
    monkeypatch.setattr(merge_cache, "_LEAST_FOLDS", 1)
    return paths


def hash_of(source: Snapshot, item: Case, cache: FoldCache | None) -> str:
    profile = profile_for_release(item.release, item.coordinator)
    states = replay_snapshot(source, profile, damage=[], cache=cache)
    return state_hash(all_digests(state_tables(states, now_ms=0)))


def first_segments(log: Snapshot, part: float) -> Snapshot:
    """The log as it was when each partition had but the first of its segments."""
    paths = []
    for partition in log.partitions:
        paths += [segment.path for segment in partition.segments[: int(part * len(partition.segments)) + 1]]
    return discover(paths)


@pytest.mark.parametrize("files", ["known", "copied"])
@pytest.mark.parametrize("item", cross_section(KINDS, ("k241/cleaned",)))
def test_a_log_that_grows(
    item: Case,
    files: str,
    tmp_path: Path,
    cache: FoldCache,
    merged: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its files are known by the look of them, or have to be read, as in a new copy of the log."""
    monkeypatch.setattr(merge_cache, "_EVERY", 2)
    monkeypatch.setattr(fold_cache, "_SETTLED_NS", -(10**18) if files == "known" else 10**18)
    log = cut_into_batches(item, tmp_path / "log", most_segments=20)
    grown = first_segments(log, 0.6)
    assert hash_of(grown, item, cache) == hash_of(grown, item, None)
    merged.clear()
    assert hash_of(log, item, cache) == hash_of(log, item, None)
    assert len(merged) < 0.8 * len(log.segments) + 2 * len(log.partitions)


def test_again_merges_the_last_fold_only(log: Snapshot, cache: FoldCache, merged: list[str]) -> None:
    item = case("k431-txn")
    expected = hash_of(log, item, cache)
    assert merged == [segment.path for segment in log.segments]
    merged.clear()
    assert hash_of(log, item, cache) == expected
    assert merged == [log.segments[-1].path]


def without(log: Snapshot, missing: SegmentFile) -> Snapshot:
    return discover([segment.path for segment in log.segments if segment != missing])


def test_a_state_stands_for_its_folds_only(log: Snapshot, cache: FoldCache, merged: list[str]) -> None:
    item = case("k431-txn")
    hash_of(log, item, cache)
    for missing in (log.segments[0], log.segments[3], log.segments[-2]):
        merged.clear()
        cut = without(log, missing)
        assert hash_of(cut, item, cache) == hash_of(cut, item, None)
        assert len(merged) == len(cut.segments)


def test_a_corrupt_state_is_made_anew(log: Snapshot, cache: FoldCache, merged: list[str]) -> None:
    item = case("k431-txn")
    expected = hash_of(log, item, cache)
    for path in Path(cache.directory).glob("*.fold"):
        data = bytearray(path.read_bytes())
        # States begin so; folds are Arrow streams.
        if data[:4] == b"rgp1":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
    merged.clear()
    assert hash_of(log, item, cache) == expected
    assert len(merged) == len(log.segments)
    merged.clear()
    assert hash_of(log, item, cache) == expected
    assert len(merged) == 1


def test_other_rules_are_another_state(log: Snapshot, cache: FoldCache, merged: list[str]) -> None:
    item = case("k431-txn")
    hash_of(log, item, cache)
    merged.clear()
    older = profile_for_release("4.2.0")
    replay_snapshot(log, older, damage=[], cache=cache)
    assert len(merged) == len(log.segments)


def test_every_process_names_a_state_alike() -> None:
    code = (
        "from coordinator_core.merge.cache import state_name; from coordinator_core.releases import every_profile;"
        "print([state_name(profile, 7) for profile in every_profile()])"
    )
    found = {
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    }
    assert len(found) == 1
    names = ast.literal_eval(found.pop())
    assert len({*names}) == len(names)


def test_a_state_that_lacks_few_folds_is_not_written_anew(
    log: Snapshot, cache: FoldCache, merged: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_cache, "_LEAST_FOLDS", 3)
    item = case("k431-txn")

    def with_segments(count: int) -> Snapshot:
        return discover([segment.path for segment in log.segments[:count]])

    merges = []
    for count in (8, 9, 10, 11, 12):
        merged.clear()
        hash_of(with_segments(count), item, cache)
        merges.append(len(merged))
    # The states of 7 and of 10 folds were kept, and none of those between.
    assert merges == [8, 2, 3, 4, 2]
