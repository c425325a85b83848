"""What an app leaves when it ends."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode
from spark_apps.exits import App


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


def test_arguments_that_are_not_taken_are_a_fault(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    with pytest.raises(SystemExit):
        App("app", taken, interrupted).run(["--outcome", str(outcome), "--unknown"])
    assert json.loads(outcome.read_text())["exit_code"] == ExitCode.USAGE
