"""What an app leaves when it ends."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordinator_core.cli import spark_app
from coordinator_core.cli.spark_app import run_spark_app
from coordinator_core.errors import ExitCode, RegroupError, StorageError
from coordinator_core.log.discovery import discover
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from spark_apps import compact, forecast, history, replay, session
from spark_apps.exits import App
from tests.live.broker import wait_for
from tests.log.builders import write_partition
from tests.runs.logs import copy_log


def taken(words: Sequence[str] | None) -> argparse.Namespace:
    return argparse.ArgumentParser().parse_args(words)


def interrupted(_: argparse.Namespace) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_is_no_fault_of_the_arguments(tmp_path: Path) -> None:
    """The task of an app that leaves the exit code of usage is not tried again."""
    outcome = tmp_path / "outcome.json"
    with pytest.raises(KeyboardInterrupt):
        App("app", taken, interrupted).run(["--outcome", str(outcome)])
    left = json.loads(outcome.read_text())
    assert (left["exit_code"], left["error"]) == (ExitCode.INTERNAL, "app: interrupted")


def test_arguments_that_are_not_taken_are_a_fault(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = tmp_path / "outcome.json"
    with pytest.raises(SystemExit):
        App("app", taken, interrupted).run(["--outcome", str(outcome), "--unknown"])
    left = json.loads(outcome.read_text())
    assert left["exit_code"] == ExitCode.USAGE
    assert left["error"].endswith("error: unrecognized arguments: --unknown")
    assert capfd.readouterr().err.splitlines()[-1] == left["error"]


@pytest.mark.parametrize("app", [compact.APP, forecast.APP, history.APP, replay.APP], ids=lambda app: app.program)
def test_segments_that_are_not_read_are_told_before_damage(
    app: App, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be why the log seems to have a gap."""
    monkeypatch.setattr(session, "Session", NoSpark)
    write_partition(tmp_path / "log", {0: b""})
    (tmp_path / "log/records.json").write_text("{}")
    packed = tmp_path / "log/__consumer_offsets-0/00000000000000000007.log.gz"
    packed.write_bytes(b"")
    more = ["--cluster", "c"] if app is replay.APP else []
    code = app.run(["--snapshot", str(tmp_path / "log"), "--output", str(tmp_path / "out"), *more])
    first, second, *others = capfd.readouterr().err.splitlines()
    assert first == f"{app.program}: warning: compressed segments are not read (1, such as {packed}): unpack them"
    assert second == f"{app.program}: warning: {tmp_path / 'log'} holds no record: nothing is known of any group"
    assert (code, len(others)) == (ExitCode.DAMAGED_INPUT, 1)


@pytest.mark.parametrize("app", [compact.APP, forecast.APP, history.APP, replay.APP], ids=lambda app: app.program)
def test_a_run_in_the_place_of_a_log_is_told_as_by_the_command(
    app: App, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    place = RunPlace(str(tmp_path / "runs"), "c", "w", "r")
    replay_to_run(discover([str(log)]), place, profile=None, now_ms=0)
    more = ["--cluster", "c"] if app is replay.APP else []
    assert app.run(["--snapshot", place.path, "--output", str(tmp_path / "out"), *more]) == ExitCode.USAGE
    why = f"{place.path} is a run: name the log that it was made of, {log}"
    assert capfd.readouterr().err == f"{app.program}: error: {why}\n"


class NoSpark:
    """A session that an app may begin, as long as it is given no task."""

    application_id = None

    def __init__(self, *_: object) -> None: ...
    def __enter__(self) -> NoSpark:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize("code, expected", [(errno.ENOSPC, ExitCode.APPLY_FAILED), (errno.ENOENT, ExitCode.INTERNAL)])
def test_a_disk_that_is_full_is_told_as_by_the_command(
    code: int, expected: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: argparse.Namespace) -> None:
        raise OSError(code, os.strerror(code))

    assert App("app", taken, fails).run([]) == expected
    assert os.strerror(code) in capsys.readouterr().err


def test_an_error_of_a_task_is_no_internal_one(capsys: pytest.CaptureFixture[str]) -> None:
    def fails(_: argparse.Namespace) -> None:
        raise RuntimeError(
            f"An error occurred.\n\tat Executor.run\n{StorageError.__module__}.StorageError: s3://b: gone"
        )

    assert App("app", taken, fails).run([]) == ExitCode.INTERNAL
    assert capsys.readouterr().err == "app: error: s3://b: gone\n"


def test_an_app_that_a_signal_ended_is_an_internal_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -9 $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(RegroupError, match=r"ended by signal 9 \(Killed\)") as raised:
        run_spark_app("replay", "local", [])
    assert raised.value.exit_code == ExitCode.INTERNAL


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_app_that_is_interrupted_ends_well(number: str) -> None:
    app = f"""
import argparse, os, signal
from spark_apps import compact, forecast, history, replay, session
from spark_apps.exits import App
def execute(arguments):
    try:
        os.kill(os.getpid(), signal.{number})
    finally:
        print("what was written is gone")
App("app", lambda words: argparse.Namespace(), execute).main()
"""
    done = subprocess.run([sys.executable, "-c", app], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (ExitCode.INTERNAL, "what was written is gone\n")
    assert done.stderr == "app: interrupted\n"


@pytest.mark.parametrize(("at_interrupt", "is_gone"), [("sleep 0.5; : > gone; exit 5", True), ("", False)])
def test_an_interrupted_command_lets_its_app_take_away_what_it_has_written(
    at_interrupt: str, is_gone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not end is killed, and the command was interrupted all the same."""
    python, began = tmp_path / "python", tmp_path / "began"
    python.write_text(f"#!/bin/sh\ntrap '{at_interrupt}' INT\n: > {began}\nwhile :; do sleep 0.1; done\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.chdir(tmp_path)
    if not is_gone:
        monkeypatch.setattr(spark_app, "_GRACE_SECONDS", 0.1)
    waits, communicate = threading.Event(), subprocess.Popen.communicate

    def waiting(process: subprocess.Popen[str]) -> tuple[str, str]:
        waits.set()
        return communicate(process)

    monkeypatch.setattr(subprocess.Popen, "communicate", waiting)

    def interrupt() -> None:
        # The app may be faster than the command that has begun it.
        wait_for("the command to wait for its app", lambda: waits.is_set() and began.exists())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run_spark_app("replay", "local", [])
    finally:
        thread.join()
    assert (tmp_path / "gone").exists() is is_gone
