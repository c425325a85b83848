"""The run before a run: which one that is, and which ones are passed over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coordinator_core.errors import UsageError
from coordinator_core.releases import profile_for_release
from coordinator_core.rules import previous
from coordinator_core.rules.previous import check_previous, newest_run, previous_run
from coordinator_core.runs import read
from coordinator_core.runs.place import RunPlace, beside
from coordinator_core.runs.publish import RunWriter
from coordinator_core.runs.read import Run, open_run
from tests.runs.test_publish import FACTS


def published(output: Path, window: str, run_id: str, now_ms: int, cluster: str = "c") -> Run:
    place = RunPlace(str(output), cluster, window, run_id)
    profile = profile_for_release("4.3.1")
    with RunWriter(place, sources=[]) as writer:
        writer.commit({**FACTS, "now_ms": now_ms, "profile": profile.label}, seconds=0, steps={})
    return open_run(place.path)


def test_it_is_the_newest_run_that_judges_by_an_earlier_time(tmp_path: Path) -> None:
    first = published(tmp_path, "2026-01-01", "a", 1_000)
    second = published(tmp_path, "2026-01-02", "a", 2_000)
    again = published(tmp_path, "2026-01-02", "b", 2_000)
    third = published(tmp_path, "2026-01-03", "a", 3_000)
    assert previous_run(third) == again
    assert previous_run(again) == previous_run(second) == first
    assert previous_run(first) is None


def test_windows_of_any_name_are_looked_at(tmp_path: Path) -> None:
    """`run-10` sorts before `run-9`, and an incident of January behind the nights."""
    tenth = published(tmp_path, "run-10", "a", 10_000)
    published(tmp_path, "run-9", "a", 9_000)
    published(tmp_path, "2026-01-01T02-30-00Z", "a", 11_000)
    night = published(tmp_path, "2026-01-02T02-30-00Z", "a", 12_000)
    by_hand = published(tmp_path, "2026-01-02", "a", 13_000)
    published(tmp_path, "incident-42", "a", 1_000)
    last = published(tmp_path, "2026-01-03T02-30-00Z", "a", 14_000)
    assert previous_run(published(tmp_path, "run-11", "a", 10_500)) == tenth
    assert previous_run(last) == by_hand
    assert previous_run(by_hand) == night
    assert newest_run(str(tmp_path), "c") == last
    assert newest_run(str(tmp_path), "not-loaded-yet") is None


def test_a_window_may_be_the_start_of_a_long_interval(tmp_path: Path) -> None:
    by_hand = published(tmp_path, "2026-11-25T09-00-00Z", "a", 25_000)
    weekly = published(tmp_path, "2026-11-20T00-00-00Z", "a", 27_000)
    next_week = published(tmp_path, "2026-11-27T00-00-00Z", "a", 34_000)
    assert previous_run(next_week) == weekly
    assert previous_run(weekly) == by_hand


def test_few_manifests_of_earlier_days_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [published(tmp_path, f"2026-01-0{day}", "a", day) for day in range(1, 5)]
    opened: list[str] = []

    def noted(path: str) -> Run:
        opened.append(path)
        return open_run(path)

    monkeypatch.setattr(previous, "open_run", noted)
    monkeypatch.setattr(previous, "_FURTHER", 1)
    assert previous_run(runs[3]) == runs[2]
    assert opened == [runs[3].path, runs[2].path, runs[1].path]


def test_a_run_of_another_cluster_or_a_newer_one_is_no_run_before(tmp_path: Path) -> None:
    run = published(tmp_path, "w", "a", 2_000)
    check_previous(run, published(tmp_path, "w", "b", 2_000))
    with pytest.raises(UsageError, match=r"is a run of cluster 'other', not of 'c', so not the run before$"):
        check_previous(run, published(tmp_path, "w", "a", 1_000, cluster="other"))
    with pytest.raises(UsageError, match=r"^the now of .+/w/c, 2001, is later than 2000, that of .+/w/a$"):
        check_previous(run, published(tmp_path, "w", "c", 2_001))
    # A snapshot is of no cluster.
    check_previous(published(tmp_path, "now", "replayed", 2_000, cluster="snapshot"), run)


def test_what_is_no_run_or_of_another_version_is_passed_over(tmp_path: Path) -> None:
    first = published(tmp_path, "2026-01-01", "a", 1_000)
    old = published(tmp_path, "2026-01-02", "a", 2_000)
    manifest = Path(old.path) / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "schema_version": 1}))
    (tmp_path / "c" / "2026-01-02" / "staged").mkdir()
    (tmp_path / "c" / "_pins" / "2026-01-02").mkdir(parents=True)
    assert previous_run(published(tmp_path, "2026-01-03", "a", 3_000)) == first


def test_what_is_deleted_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ``regroup prune``: a window between listings, the manifest of a run before it is read."""
    first = published(tmp_path, "2026-01-01", "a", 1_000)
    pruned = published(tmp_path, "2026-01-02", "a", 2_000)
    window = Path(published(tmp_path, "2026-01-03", "a", 3_000).path).parent
    last = published(tmp_path, "2026-01-04", "a", 4_000)
    directories, exists = previous.directories_of, read.is_run

    def listed(path: str) -> list[str]:
        found = directories(path)
        if str(window) in found:
            shutil.rmtree(window)
        return found

    def looked_at(path: str) -> bool:
        found = exists(path)
        if path == pruned.path:
            Path(path, "manifest.json").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(previous, "directories_of", listed)
    monkeypatch.setattr(read, "is_run", looked_at)
    assert previous_run(last) == first
    assert not window.exists()
    assert not read.is_run(pruned.path)


def test_it_is_found_by_any_name_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = published(tmp_path / "runs", "2026-01-01", "a", 1_000)
    run = published(tmp_path / "runs", "2026-01-02", "a", 2_000).path
    (tmp_path / "newest").symlink_to(run)
    monkeypatch.chdir(run)
    for name in (".", f"{run}/.", "../a", f"{run}/", str(tmp_path / "newest"), f"file://{run}", f"file://{run}/."):
        named = open_run(name)
        before = previous_run(named)
        assert before is not None, name
        assert before.now_ms == first.now_ms
        published_findings = Path(beside(named.path, "_findings", "id").removeprefix("file://"))
        assert published_findings == tmp_path / "runs/c/2026-01-02/_findings/a/id", name
    # What ends in the names of the run stays as it was given, so that links to outputs are left alone.
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert open_run(f"{tmp_path}/link/c/2026-01-02/a").path == f"{tmp_path}/link/c/2026-01-02/a"
