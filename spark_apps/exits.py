"""Begin and end of a Spark app: a light process, its exit code, one line that says why, and both in a file."""

from __future__ import annotations

import argparse
import io
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any, NoReturn

from coordinator_core import files, storage
from coordinator_core.errors import ExitCode, RegroupError, WriteError, not_written
from coordinator_core.process.interpreter import start_light
from coordinator_core.process.leaving import leave
from coordinator_core.untrusted import visible, visible_lines
from spark_apps.session import Session


@dataclass(frozen=True)
class App:
    """A Spark app: its name in messages, the parser of its arguments, its work."""

    program: str
    parse_arguments: Callable[[Sequence[str] | None], argparse.Namespace]
    execute: Callable[[argparse.Namespace], None]

    def main(self) -> NoReturn:
        """Run the app and leave the process with its exit code."""
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # As SIGINT: what the app has written goes with it.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            start_light()
            exit_code = self.run()
        except KeyboardInterrupt:
            print(f"{self.program}: interrupted", file=sys.stderr)
            exit_code = ExitCode.INTERNAL
        leave(exit_code)

    def run(self, argv: Sequence[str] | None = None) -> int:
        """Run the app; returns the exit code instead of leaving, but for arguments that are not usable.

        ``--outcome FILE`` (path or URI), which every app takes, gets ``{"exit_code", "error", "application_id"}``: of
        an app whose driver runs in the cluster nobody else sees them.
        """
        option = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        option.add_argument("--outcome")
        known, rest = option.parse_known_args(argv)
        exit_code, error, said = int(ExitCode.USAGE), "", io.StringIO()
        try:
            try:
                with redirect_stderr(said):
                    arguments = self.parse_arguments(rest)
            finally:
                # argparse says why it ends the process, and nobody else knows.
                print(said.getvalue(), end="", file=sys.stderr)
                error = visible(said.getvalue().rstrip("\n").rpartition("\n")[2])
            # What an interrupt leaves: another attempt may end well.
            exit_code, error = int(ExitCode.INTERNAL), f"{self.program}: interrupted"
            exit_code, error = self._run(arguments)
        finally:
            if known.outcome:
                outcome = {"exit_code": exit_code, "error": error, "application_id": Session.application_id}
                self._leave(known.outcome, outcome)
        if error:
            print(error, file=sys.stderr)
        return exit_code

    def _leave(self, path: str, outcome: dict[str, object]) -> None:
        try:
            files.write_json(path, outcome)
        except RegroupError as error:
            print(f"{self.program}: error: {visible_lines(str(error))}", file=sys.stderr)

    def _run(self, arguments: argparse.Namespace) -> tuple[int, str]:
        """Exit code, and a line that says why it is not 0."""
        try:
            self.execute(arguments)
        except RegroupError as error:
            return error.exit_code, f"{self.program}: error: {visible_lines(str(error))}"
        except Exception as error:
            if isinstance(error, OSError) and isinstance(failure := not_written("output", error), WriteError):
                return failure.exit_code, f"{self.program}: error: {failure}"
            said = last_line(error)
            name, _, of_task = said.partition(": ")
            if name.startswith(f"{RegroupError.__module__}."):
                # Of a task that Spark has tried again: storage that does not answer.
                return ExitCode.INTERNAL, f"{self.program}: error: {visible(of_task)}"
            what = f"{type(error).__name__}: {said}"
            return ExitCode.INTERNAL, f"{self.program}: internal error: {visible(what)}"
        return ExitCode.CLEAN, ""


def tell(document: Mapping[str, Any], path: str | None = None) -> None:
    """Print the document of an app, as one line of ASCII, which no name in it can split; and write it to ``path``."""
    line = json.dumps(document)
    if path is not None:
        storage.make_directory(storage.split(path)[0])
        storage.write_atomic(path, line.encode())
    print(line, flush=True)


def last_line(error: Exception) -> str:
    """Message of a task's exception, without the tracebacks of Python and Java that Spark puts around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    around = ("at ", "File ", "...", "Caused by: ", "JVM stacktrace", "SQLSTATE: ")
    python = [line for line in lines if not line.startswith(around)]
    return python[-1] if python else ""
