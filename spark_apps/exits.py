"""Begin and end of a Spark app: a light process, its exit code, and one line that says why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator_core.errors import ExitCode, RegroupError
from coordinator_core.process.interpreter import start_light
from coordinator_core.untrusted import visible, visible_lines


@dataclass(frozen=True)
class App:
    """A Spark app: its name in messages, how it reads its arguments, what it does with them."""

    program: str
    parse_arguments: Callable[[Sequence[str] | None], argparse.Namespace]
    execute: Callable[[argparse.Namespace], None]

    def main(self) -> None:
        """Run the app and leave the process with its exit code."""
        start_light()
        sys.exit(self.run())

    def run(self, argv: Sequence[str] | None = None) -> int:
        """Run the app; returns the exit code instead of leaving, but for arguments that are not usable."""
        arguments = self.parse_arguments(argv)
        try:
            self.execute(arguments)
        except RegroupError as error:
            print(f"{self.program}: error: {visible_lines(str(error))}", file=sys.stderr)
            return error.exit_code
        except Exception as error:
            what = f"{type(error).__name__}: {last_line(error)}"
            print(f"{self.program}: internal error: {visible(what)}", file=sys.stderr)
            return ExitCode.INTERNAL
        return ExitCode.CLEAN


def last_line(error: Exception) -> str:
    """Message of a task's exception, without the tracebacks of Python and Java that Spark puts around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    around = ("at ", "File ", "...", "Caused by: ", "JVM stacktrace", "SQLSTATE: ")
    python = [line for line in lines if not line.startswith(around)]
    return python[-1] if python else ""
