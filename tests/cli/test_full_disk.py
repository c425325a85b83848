"""Writers on a disk that takes no more, and writers that are killed: whole output or none, one line, what was stays."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode, RegroupError, not_written
from tests.cli.test_changing_files import batches
from tests.cli.test_damaged_input import write_segment

RELEASE = ["--kafka-version", "4.3.1", "--now-ms", "1700000000000"]
SEED = 20261123


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


def content(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


class Writers:
    """Commands that write below ``root``, and what the earlier of their outputs are."""

    def __init__(self, root: Path) -> None:
        self.root, self.log, self.out = root, root / "log", root / "out"
        self.log.mkdir()
        self.out.mkdir()
        write_segment(self.log, batches(0, 3000, 1))
        assert self.words("replay", "first").wait() == 0
        self.run = self.out / "runs/c/w/first"
        self.before = content(self.out)

    def words(self, what: str, name: str, limit: int | None = None) -> subprocess.Popen[str]:
        place = {"compact": self.out / name, "report": self.out / name}.get(what, self.out / "runs")
        if what == "report":
            return regroup("report", self.run, "--output", place, limit=limit)
        given: list[object] = [self.log, "--output", place, *RELEASE]
        if what == "replay":
            given += ["--cluster", "c", "--window", "w", "--run-id", name]
        return regroup(what, *given, limit=limit)


@pytest.fixture(scope="module")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Writers:
    return Writers(tmp_path_factory.mktemp("writers"))


@pytest.mark.parametrize("limit", [0, 100, 700])
@pytest.mark.parametrize("what", ["replay", "compact", "report"])
def test_a_full_disk_takes_one_line_and_keeps_nothing(writers: Writers, what: str, limit: int) -> None:
    process = writers.words(what, "second", limit)
    _, err = process.communicate()
    assert process.returncode == ExitCode.APPLY_FAILED, err
    assert err.startswith("regroup: error: ")
    assert err.endswith("File too large\n")
    assert err.count("\n") == 1
    assert content(writers.out) == writers.before


def test_a_full_disk_below_the_fold_cache_is_a_warning(tmp_path: Path) -> None:
    write_segment(tmp_path, batches(0, 3000, 1))
    process = regroup("describe", tmp_path, *RELEASE, "--fold-cache", tmp_path / "cache", limit=700)
    _, err = process.communicate()
    assert process.returncode == 0
    assert err.splitlines()[0].startswith("regroup: warning: folds cannot be kept")
    assert "Traceback" not in err
    assert "cache.py" not in err
    assert content(tmp_path / "cache") == {}


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


@pytest.mark.parametrize("times", [pytest.param(4, marks=pytest.mark.real), pytest.param(50, marks=pytest.mark.full)])
@pytest.mark.parametrize("what", ["replay", "compact", "report"])
def test_a_killed_writer_leaves_the_whole_or_nothing(tmp_path: Path, what: str, times: int) -> None:
    writers = Writers(tmp_path)
    began = time.monotonic()
    whole = writers.words(what, "whole")
    assert whole.wait() == 0
    seconds = time.monotonic() - began
    moments = random.Random(SEED)
    for number in range(times):
        process = writers.words(what, f"n{number}")
        time.sleep(moments.uniform(0, 1.1 * seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
        kept = content(writers.out)
        assert kept.items() >= {name: data for name, data in writers.before.items() if "latest" not in name}.items()
        latest = json.loads((writers.out / "runs/c/latest.json").read_text())["path"]
        assert regroup("describe", writers.out / "runs/c" / latest).wait() == 0
        made = writers.out / {"replay": f"runs/c/w/n{number}", "report": f"n{number}/report.html"}.get(
            what, f"n{number}"
        )
        if what == "replay" and not (made / "manifest.json").exists():
            continue
        if made.exists():
            check = {"replay": ["verify", made], "compact": ["verify", made]}.get(what)
            assert check is None or regroup(*check).wait() == 0
            assert what != "report" or made.read_text().rstrip().endswith("</html>")
    again = writers.words(what, "again")
    assert again.wait() == 0
    if what == "compact":
        expected = {name: data for name, data in content(writers.out / "whole").items() if name.endswith(".log")}
        assert {
            name: data for name, data in content(writers.out / "again").items() if name.endswith(".log")
        } == expected
