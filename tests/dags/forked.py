"""Scripts that need Airflow, each in a process of its own that is forked from one that has imported Airflow.

An import takes seconds, and most of these scripts no time at all.
"""

from __future__ import annotations

import os
import sys
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.dags.airflow_home import PATIENCE_SECONDS

_CONTEXT = get_context("forkserver")


class Done(NamedTuple):
    returncode: int | None
    stdout: str
    stderr: str


class Script:
    """A process that runs ``text`` with ``environment``; what it says goes into files of ``directory``."""

    def __init__(self, text: str, environment: dict[str, str], directory: Path, *arguments: str) -> None:
        self._said = directory / "stdout", directory / "stderr"
        self._process: ForkServerProcess = _CONTEXT.Process(
            target=_run, args=(text, environment, arguments, *map(str, self._said))
        )
        self._process.start()

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def end(self) -> Done:
        """Waits for its end."""
        self._process.join(PATIENCE_SECONDS)
        assert self._process.exitcode is not None, "it comes to no end"
        return Done(self._process.exitcode, *(path.read_text() for path in self._said))


def _run(text: str, environment: dict[str, str], arguments: tuple[str, ...], stdout: str, stderr: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in ((1, stdout), (2, stderr)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, descriptor)
        os.close(file)
    sys.argv = ["script", *arguments]
    exec(compile(text, "script", "exec"), {"__name__": "__main__"})


def import_beforehand(environment: dict[str, str], *modules: str) -> None:
    """Has scripts begin with these modules imported, under ``environment``."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        _CONTEXT.set_forkserver_preload(["tests.dags.forked", *modules])
        forkserver.ensure_running()
