"""A Spark application in a process of its own, for commands with ``--engine spark``.

Imports little: a command that leaves its work to Spark starts the application first of all.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from coordinator_core.cli.options import ReplayOptions
from coordinator_core.errors import ExitCode, RegroupError
from coordinator_core.fold.cache import FOLD_CACHE_VARIABLE
from coordinator_core.log.reader import OnDamage
from coordinator_core.runs.place import RunPlace

DAMAGE_WORDS = {OnDamage.FAIL: (), OnDamage.RECOVER: ("--partial",), OnDamage.SALVAGE: ("--salvage",)}
"""Options for a reaction to damage, which commands and applications have in the same words."""

_GRACE_SECONDS = 60


def publish_with_spark(
    paths: Sequence[str], place: RunPlace, options: ReplayOptions, *, latest: bool = True
) -> dict[str, Any]:
    """Replay and publish in a Spark application of its own process; returns the summary it printed.

    ``latest``: the application lets ``latest.json`` name the run.
    """
    command: list[str] = []
    for path in paths:
        command += ["--snapshot", path]
    command += ["--output", place.output, "--cluster", place.cluster]
    command += ["--window", place.window, "--run-id", place.run_id, "--now-ms", str(options.now_ms)]
    if options.offsets_topic_num_partitions is not None:
        command += ["--offsets-topic-num-partitions", str(options.offsets_topic_num_partitions)]
    command += [*replay_words(options), *([] if latest else ["--no-latest"])]
    cache = "" if options.fold_cache is None else options.fold_cache.directory
    return run_spark_app("replay", options.master, command, {FOLD_CACHE_VARIABLE: cache})


def replay_words(options: ReplayOptions) -> list[str]:
    """Arguments of an application that say how it reads a log: by which rules, and its reaction to damage."""
    profile = options.profile
    rules = [] if profile is None else ["--kafka-version", str(profile.release), "--coordinator", profile.coordinator]
    return [*rules, *DAMAGE_WORDS[options.on_damage]]


def run_spark_app(
    app: str,
    master: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    done: Collection[int] = (ExitCode.CLEAN, ExitCode.FINDINGS),
) -> dict[str, Any]:
    """Run ``spark_apps.<app>`` in a process of its own; the document that it printed, in ASCII.

    Ends the command with the application's exit code when that is none of ``done``: it has said why. ``RegroupError``
    when a signal has ended it.
    """
    command = [sys.executable, "-m", f"spark_apps.{app}", "--master", master, *arguments]
    variables = os.environ | (environment or {})
    # Of a group of its own: a terminal would interrupt it, too, and twice is once too often.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables, process_group=0) as process:
        try:
            printed, _ = process.communicate()
        except BaseException:
            _interrupt(process)
            raise
    if process.returncode < 0:
        number = -process.returncode
        raise RegroupError(f"the Spark application was ended by signal {number} ({signal.strsignal(number)})")
    if process.returncode not in done:
        raise click.exceptions.Exit(process.returncode)
    lines = printed.strip().splitlines()
    if not lines:
        raise RegroupError("the Spark application printed no summary")
    summary: dict[str, Any] = json.loads(lines[-1])
    return summary


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Interrupt an application, and give it time to take away what it has written; another interrupt kills it."""
    process.send_signal(signal.SIGINT)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    finally:
        process.kill()
