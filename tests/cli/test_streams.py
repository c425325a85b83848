"""Standard streams that are closed, full or without a reader, and signals: one line, a documented exit code, no trace.

The commands and what they are given are those of ``test_untrusted.py``.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType

import pytest

import coordinator_core
from coordinator_core.cli import app
from coordinator_core.errors import ExitCode
from tests.cli.commands import leaves
from tests.cli.test_damaged_input import write_segment
from tests.cli.test_untrusted import TEXTS, given
from tests.examples import one_in
from tests.log.builders import build_batch

DONE = {ExitCode.CLEAN, ExitCode.FINDINGS}
COMMANDS = {
    leaf: words
    for leaf in leaves(app.cli)
    for words in list(TEXTS.values())[::-1]
    if words[: len(leaf.split())] == leaf.split()
} | {"import-records": TEXTS["import records"]}
QUIET = {"report", "history"}
"""Commands without a result on standard output."""
PRODUCT = str(Path(coordinator_core.__file__).parent)

Begin = Callable[[], None]


def full(*numbers: int) -> None:
    for number in numbers:
        os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def closed(*numbers: int) -> None:
    for number in numbers:
        os.close(number)


def gone(*numbers: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for number in numbers:
        os.dup2(writing, number)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return given(tmp_path_factory)


class Ended:
    """What a process of the command line left: ``code`` is negative for a signal."""

    def __init__(self, command: str | list[str], places: dict[str, str], place: Path, begin: Begin) -> None:
        out = str(place / "out")
        self.temporary = place / "tmp"
        self.temporary.mkdir()
        given = COMMANDS[command] if isinstance(command, str) else command
        words = [places.get(word, word.replace("OUT/", f"{out}/").replace("OUT", out)) for word in given]
        child = os.fork()
        if child == 0:
            try:
                for number, name in enumerate(("stdout", "stderr"), 1):
                    os.dup2(os.open(place / name, os.O_WRONLY | os.O_CREAT), number)
                tempfile.tempdir = str(self.temporary)
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
                begin()
                _as_at_the_start()
                app.main(words)
            finally:
                os._exit(99)
        self.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        self.out, self.err = ((place / name).read_text() for name in ("stdout", "stderr"))
        assert "Traceback" not in self.err, self.err
        assert list(self.temporary.iterdir()) == []


def _as_at_the_start() -> None:
    """Streams as a starting interpreter has them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            file = io.FileIO(number, "w" if number else "r", closefd=False)
        except OSError:
            setattr(sys, name, None)
        else:
            setattr(sys, name, io.TextIOWrapper(io.BufferedWriter(file) if number else io.BufferedReader(file)))


@pytest.mark.parametrize("command", one_in(3, list(COMMANDS)))
@pytest.mark.parametrize("how", [closed, pytest.param(full, marks=pytest.mark.full)], ids=lambda how: how.__name__)
def test_a_result_that_nobody_takes(
    command: str, how: Callable[[int], None], places: dict[str, str], tmp_path: Path
) -> None:
    ended = Ended(command, places, tmp_path, lambda: how(1))
    if command in QUIET:
        assert ended.code in DONE
    else:
        assert ended.code == ExitCode.APPLY_FAILED
        reason = "Bad file descriptor" if how is closed else "No space left on device"
        assert ended.err.splitlines()[-1] == f"regroup: error: output: cannot be written: {reason}"


@pytest.mark.parametrize("command", one_in(3, list(COMMANDS)))
def test_messages_that_nobody_takes(command: str, places: dict[str, str], tmp_path: Path) -> None:
    """The result and the exit code are what they are without them."""
    ended = Ended(command, places, tmp_path, lambda: full(2))
    assert ended.code in DONE
    assert bool(ended.out) is (command not in QUIET)


@pytest.mark.parametrize(
    ("begin", "code"),
    [
        (lambda: closed(0, 1, 2), ExitCode.APPLY_FAILED),
        (lambda: closed(0), ExitCode.FINDINGS),
        (lambda: closed(2), ExitCode.FINDINGS),
        (lambda: gone(2), ExitCode.FINDINGS),
        (lambda: gone(1), ExitCode.FINDINGS),
    ],
    ids=["all closed", "stdin closed", "stderr closed", "stderr gone", "stdout gone"],
)
def test_other_streams(begin: Begin, code: int, places: dict[str, str], tmp_path: Path) -> None:
    assert Ended("loads", places, tmp_path, begin).code == code


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["verify", "DAMAGED"], ExitCode.DAMAGED_INPUT),
        (["verify", "DAMAGED", "--format", "json"], ExitCode.DAMAGED_INPUT),
        (["loads", "STUCK"], ExitCode.FINDINGS),
        (["dump", "DAMAGED", "--kafka-version", "4.3.1"], ExitCode.CLEAN),
        (["dump", "DAMAGED", "--format", "jsonl"], ExitCode.CLEAN),
        (["list", "DAMAGED"], ExitCode.DAMAGED_INPUT),
        (["--help"], ExitCode.CLEAN),
        (["verify", "--help"], ExitCode.CLEAN),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_a_reader_that_has_left_changes_no_exit_code(
    words: list[str], code: ExitCode, places: dict[str, str], tmp_path: Path
) -> None:
    """But for ``dump``, which ends with its reader: here at a first batch that is longer than all buffers."""
    whole = build_batch(0, [(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\1" * 100)] * 1000)
    write_segment(tmp_path, whole + build_batch(1000, [(b"k", b"v")])[:-1] + b"?")
    given = places | {"DAMAGED": str(tmp_path)}
    ended = Ended([given.get(word, word) for word in words], places, tmp_path, lambda: gone(1))
    assert (ended.code, ended.out) == (code, "")
    assert "error" not in ended.err or code is ExitCode.DAMAGED_INPUT


@pytest.mark.parametrize("output", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_an_output_that_is_standard_output(output: str, places: dict[str, str], tmp_path: Path) -> None:
    """Redirected to a file, it has the output, and behind it the result."""
    given = [places.get(word, word) for word in TEXTS["plan csv"]]
    ended = Ended([*given, "--output", output], places, tmp_path, lambda: None)
    plan, *rows = ended.out.splitlines()
    assert json.loads(plan)["kind"] == "restore"
    (tmp_path / "alone").mkdir()
    assert rows == Ended(given, places, tmp_path / "alone", lambda: None).out.splitlines()


def test_an_interpreter_without_streams(tmp_path: Path) -> None:
    """No file that is opened becomes a stream."""
    done = subprocess.run(
        [sys.executable, "-m", "coordinator_core", "rules"],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: closed(0, 1),
        text=True,
        check=False,
    )
    error = "regroup: error: output: cannot be written: Bad file descriptor\n"
    assert (done.returncode, done.stderr) == (ExitCode.APPLY_FAILED, error)


def test_a_home_that_cannot_be_written(places: dict[str, str], tmp_path: Path) -> None:
    """Figures are drawn all the same, without a word and without a directory that stays."""
    home = tmp_path / "home"
    home.write_text("no directory")
    words = [places.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in TEXTS["investigation"]]
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("XDG_", "MPL"))}
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "coordinator_core", *words],
        env=kept | {"HOME": str(home), "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    page = tmp_path / "out/investigation.html"
    assert (done.returncode, done.stderr) == (ExitCode.FINDINGS, f"regroup: the page is {page}\n")
    assert "<svg" in page.read_text()
    assert list((tmp_path / "tmp").iterdir()) == []


# Signals


def _at(event: int, how: signal.Signals) -> Begin:
    """Have the process send itself that signal at a counted event of the product's code.

    Not within a generator: Python ignores what is raised in one that it closes as it deletes it.
    """
    counted = itertools.count(1)

    def look(frame: FrameType, _: str, __: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(PRODUCT) and not code.co_flags & CO_GENERATOR and next(counted) == event:
            sys.setprofile(None)
            signal.pthread_kill(threading.get_ident(), how)

    return lambda: sys.setprofile(look)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "command, event",
    [
        pytest.param(command, event, marks=() if event == 2000 else pytest.mark.full)
        for command, last in {"compact": 4000, "reconcile": 5000, "replay": 2200, "rescue": 5000}.items()
        for event in (500, 2000, last)
    ],
)
def test_a_command_that_is_interrupted(
    command: str, event: int, how: signal.Signals, places: dict[str, str], tmp_path: Path
) -> None:
    """It says so, and what it has in the temporary directory goes with it."""
    ended = Ended(command, places | {"RUN": places["LOG"]}, tmp_path, _at(event, how))
    assert ended.code == ExitCode.INTERNAL
    assert ended.err.splitlines()[-2:] == ["", "regroup: error: interrupted"]
