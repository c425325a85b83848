"""``regroup`` in a process of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.common.capture import connection_properties

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parent.parent.parent

# docs/cli.md: another attempt with the same arguments and the same bytes ends the same way.
FINAL_EXIT_CODES = {
    2: "the request cannot be carried out",
    3: "the input is damaged",
    4: "the proof failed, or the disk does not take the output",
}


def regroup(*arguments: str, connection: str | None = None, done: Collection[int] = (0, 1)) -> int:
    """One command, its output in the log; its exit code. One that is not ``done`` is an error, 5 one that is retried.

    ``connection`` names the Airflow connection of its cluster. Its values go through a pipe: nothing of it is
    among the arguments or on a disk.
    """
    from coordinator_core.properties import properties_text
    from coordinator_core.untrusted import visible

    properties = ""
    if connection is not None:
        server, found = connection_properties(connection)
        properties = properties_text(found)
        arguments = (*arguments, "--bootstrap-server", server, "--command-config", "/dev/stdin")
    done_with = subprocess.run(
        [sys.executable, "-m", "coordinator_core", *arguments],
        input=properties,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    for line in (done_with.stdout + done_with.stderr).split("\n"):
        log.info("%s", visible(line))
    if done_with.returncode in done:
        return done_with.returncode
    raise ended(f"regroup {arguments[0]}", done_with.returncode, done_with.stderr or done_with.stdout)


def environment() -> dict[str, str]:
    """Environment of a process that runs a module of ours: a checkout that is not installed is found, too."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def ended(program: str, exit_code: int, said: str) -> AirflowException:
    """The error of a process that has ended with ``exit_code``, with what it ``said``."""
    from coordinator_core.untrusted import visible_lines

    text = f"{program}: exit code {exit_code}: {visible_lines(said.strip())}"
    return AirflowFailException(f"{text} (no retry)") if exit_code in FINAL_EXIT_CODES else AirflowException(text)
