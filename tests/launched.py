"""A command as a process of its own, with its CPU time and peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = Path(__file__).with_name("bench") / "launch.py"


@dataclass(frozen=True)
class Launched:
    """Exit code, output, CPU seconds of user and system, and the largest resident set."""

    code: int
    stdout: str
    stderr: str
    cpu_seconds: float
    peak_bytes: int


def through_launcher(report: Path | str, command: Sequence[str]) -> list[str]:
    """The command, started by a small process, which writes CPU time and peak memory into ``report``."""
    return [sys.executable, "-I", "-S", str(LAUNCHER), str(report), *command]


def launched(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, preexec_fn: Callable[[], None] | None = None
) -> Launched:
    """Run the command to its end. ``preexec_fn`` is that of ``subprocess``, for limits that the command inherits."""
    with tempfile.NamedTemporaryFile() as report:
        done = subprocess.run(
            through_launcher(report.name, command), env=env, preexec_fn=preexec_fn, capture_output=True, check=False
        )
        usage = json.load(report)
    text = done.stdout.decode(), done.stderr.decode()
    return Launched(done.returncode, *text, usage["cpu"], int(usage["peak_mib"] * (1 << 20)))
