"""Limits of a process, on its address space and on open files: a result, or one line and a documented exit code.

The commands and what they are given are those of ``test_streams.py``; each has an interpreter of its own.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode
from tests.cli.test_streams import COMMANDS
from tests.cli.test_untrusted import given

DONE = {ExitCode.CLEAN, ExitCode.FINDINGS}
FEW = {("describe", 120), ("describe", 180), ("reconcile", 180), ("compact", 120)}
"""Commands, and the MiB that they have, in the tier *real*; everything else is *full*."""
FEW_FILES = 6
"""With four an interpreter does not start."""
NEED_MORE = {"audit export", "audit verify", "history", "replay"}
"""Commands that fail with so few; the others need no more."""
LOADER = 127
"""Exit code of the C library's loader, which ends a process for whose libraries it has no memory."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return given(tmp_path_factory)


def limited(command: str, places: dict[str, str], place: Path, which: int, limit: int) -> tuple[int, list[str]]:
    """Exit code and lines on standard error."""
    out = str(place / "out")
    words = [places.get(word, word.replace("OUT/", f"{out}/").replace("OUT", out)) for word in COMMANDS[command]]
    done = subprocess.run(
        [sys.executable, "-m", "coordinator_core", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(which, (limit, limit)),
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("command", "mib"),
    [
        pytest.param(command, mib, marks=pytest.mark.real if (command, mib) in FEW else pytest.mark.full)
        for command in COMMANDS
        for mib in (120, 180)
    ],
)
def test_little_memory(command: str, mib: int, places: dict[str, str], tmp_path: Path) -> None:
    """Too little for the libraries of most commands."""
    code, said = limited(command, places, tmp_path, resource.RLIMIT_AS, mib << 20)
    if code == LOADER:
        assert said[-1].startswith("cannot allocate memory")
    elif code == -signal.SIGABRT:
        # Arrow's libraries abort while they are loaded: where memory ends depends on where the kernel puts them.
        assert said[-1].endswith("std::bad_alloc")
    elif code not in DONE:
        assert code == ExitCode.INTERNAL
        # Extensions in C may fail without an error of their own where they cannot allocate.
        assert said[-1].startswith(("regroup: error: not enough memory", "regroup: error: internal error: SystemError"))
        assert len(said) <= 2


@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=pytest.mark.real if one in NEED_MORE else pytest.mark.full) for one in COMMANDS]
)
def test_few_open_files(command: str, places: dict[str, str], tmp_path: Path) -> None:
    code, said = limited(command, places, tmp_path, resource.RLIMIT_NOFILE, FEW_FILES)
    assert command not in NEED_MORE or code not in DONE
    if code not in DONE:
        assert code in (ExitCode.USAGE, ExitCode.INTERNAL)
        assert said[-1].startswith("regroup: error: ")
        assert said[-1].lower().endswith("too many open files")
