"""How a Spark app ends: its exit code, and one line that says why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from coordinator_core.errors import ExitCode, RegroupError


def exit_code(
    program: str, execute: Callable[[argparse.Namespace], None], arguments: argparse.Namespace
) -> int:
    """Execute the app; the exit code of what it ended with."""
    try:
        execute(arguments)
    except RegroupError as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        print(f"{program}: internal error: {type(error).__name__}: {last_line(error)}", file=sys.stderr)
        return ExitCode.INTERNAL
    return ExitCode.CLEAN


def last_line(error: Exception) -> str:
    """What a task's exception said: Spark puts Python's traceback and Java's around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    around = ("at ", "File ", "...", "Caused by: ", "JVM stacktrace", "SQLSTATE: ")
    python = [line for line in lines if not line.startswith(around)]
    return python[-1] if python else ""
