"""A disk that takes no more: what is not the fault of the path, and what is no error. Writers: ``test_writers.py``."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode, RegroupError, not_written
from tests.cli.test_changing_files import batches
from tests.cli.test_damaged_input import write_segment

RELEASE = ["--kafka-version", "4.3.1", "--now-ms", "1700000000000"]


def regroup(*words: object, limit: int | None = None, out: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "coordinator_core", *map(str, words)],
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
    )


def test_a_full_disk_below_the_fold_cache_is_a_warning(tmp_path: Path) -> None:
    write_segment(tmp_path, batches(0, 3000, 1))
    process = regroup("describe", tmp_path, *RELEASE, "--fold-cache", tmp_path / "cache", limit=700)
    _, err = process.communicate()
    assert process.returncode == 0
    assert err.splitlines()[0].startswith("regroup: warning: folds cannot be kept")
    assert "Traceback" not in err
    assert "cache.py" not in err
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize("limit", [100, 2000, 4000, 6000])
def test_a_run_for_which_there_is_no_room(tmp_path: Path, limit: int) -> None:
    """Nothing comes behind the line: Arrow tries again to write the end of a file that is forgotten."""
    (tmp_path / "log").mkdir()
    write_segment(tmp_path / "log", batches(0, 3000, 1))
    place = ["--output", tmp_path / "runs", "--cluster", "c"]
    process = regroup("replay", tmp_path / "log", *place, *RELEASE, "--no-fold-cache", limit=limit)
    _, err = process.communicate()
    assert process.returncode == ExitCode.APPLY_FAILED
    [line] = err.splitlines()
    assert line.startswith(f"regroup: error: {tmp_path / 'runs'}/c/")
    assert line.endswith(": cannot be written: File too large")
    assert not (tmp_path / "runs").exists()


def test_results_of_which_only_a_part_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a buffer the kernel takes what there is room for, and says so by a number."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    (tmp_path / "log").mkdir()
    write_segment(tmp_path / "log", batches(0, 3000, 1))
    with (tmp_path / "out").open("wb") as out:
        process = regroup("dump", tmp_path / "log", limit=1000, out=out.fileno())
        _, err = process.communicate()
    assert process.returncode == ExitCode.APPLY_FAILED
    assert err.splitlines()[-1] == "regroup: error: output: cannot be written: File too large"
    assert (tmp_path / "out").stat().st_size == 1000


def test_results_that_nobody_takes(tmp_path: Path) -> None:
    write_segment(tmp_path, batches(0, 3000, 1))
    with open("/dev/full", "wb") as full:
        process = regroup("dump", tmp_path, out=full.fileno())
        _, err = process.communicate()
    assert process.returncode == ExitCode.APPLY_FAILED
    assert err.splitlines()[-1] == "regroup: error: output: cannot be written: No space left on device"
    assert "Traceback" not in err


@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT", "EROFS", "EFBIG", "EIO"])
def test_what_the_disk_does_not_take_is_not_a_wrong_path(number: str) -> None:
    import errno

    code = getattr(errno, number)
    failure: RegroupError = not_written("p", OSError(code, "x"))
    assert (failure.exit_code, str(failure)) == (ExitCode.APPLY_FAILED, f"p: cannot be written: {os.strerror(code)}")
    assert not_written("p", OSError(errno.EACCES, "no")).exit_code is ExitCode.USAGE
