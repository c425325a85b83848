"""What an apply leaves and finds in its directory, without a cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator_core.cluster import restore_apply
from coordinator_core.cluster.restore_apply import PLAN, ApplyOptions, apply_plan
from coordinator_core.cluster.restore_verify import read_apply
from coordinator_core.cluster.snapshot import CaptureBusyError, CaptureDirectory
from coordinator_core.drill.journal import JOURNAL, JournalBusyError, JournalWriteError
from coordinator_core.drill.shared_journal import open_journal
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.restore.model import Plan, read_plan, write_plan

CLIENT: Any = SimpleNamespace(cluster_id="c", max_version=lambda _: 8, patience_seconds=0.0)


def planned(path: Path, at_ms: int) -> Path:
    write_plan(str(path), Plan("rollback", "c", "t", "s", {}, at_ms, ()))
    return path


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that refuses nothing, and has nothing to capture."""
    monkeypatch.setattr(restore_apply, "standing", lambda *_: [])
    monkeypatch.setattr(restore_apply, "capture", lambda *_: {"topics": [{"partitions": []}]})


@pytest.mark.usefixtures("quiet")
def test_one_that_was_killed_before_its_first_event_does_not_keep_its_plan(tmp_path: Path) -> None:
    """The next attempt of a rollback plans again: at another time, so that the digest is another."""
    directory = tmp_path / "rolled-back"
    directory.mkdir()
    planned(directory / PLAN, 1)
    (directory / JOURNAL).touch()
    digest, _ = apply_plan(CLIENT, planned(tmp_path / "again.json", 2), directory, ApplyOptions())
    plan, events = read_apply(str(directory))
    assert (plan.created_at_ms, events[0]["plan_digest"]) == (2, digest)


@pytest.mark.usefixtures("quiet")
def test_the_plan_of_one_that_has_begun_stays(tmp_path: Path) -> None:
    path, directory = planned(tmp_path / "plan.json", 1), tmp_path / "applied"
    digest, _ = apply_plan(CLIENT, path, directory, ApplyOptions())
    with pytest.raises(UsageError, match="holds the apply of another plan"):
        apply_plan(CLIENT, planned(path, 2), directory, ApplyOptions())
    assert read_plan(directory / PLAN)[1] == digest


def test_one_that_finds_another_at_work_may_try_again(tmp_path: Path) -> None:
    path = planned(tmp_path / "plan.json", 1)
    with open_journal(tmp_path / JOURNAL), pytest.raises(JournalBusyError, match="another apply is writing") as busy:
        apply_plan(CLIENT, path, tmp_path, ApplyOptions())
    assert busy.value.exit_code is ExitCode.INTERNAL
    # Not the error of one that was taken over, which must not go on.
    assert not isinstance(busy.value, JournalWriteError)


def test_of_two_captures_the_second_may_try_again(tmp_path: Path) -> None:
    with CaptureDirectory.opened(tmp_path), pytest.raises(CaptureBusyError) as busy:
        CaptureDirectory.opened(tmp_path).__enter__()
    assert busy.value.exit_code is ExitCode.INTERNAL
    assert not isinstance(busy.value, UsageError)
