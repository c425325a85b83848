"""``regroup drill observe`` and ``regroup drill recover``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from coordinator_core import storage
from coordinator_core.cli.options import ExistingFile, F, Finite, Whole, client_options, note
from coordinator_core.drill.journal import JOURNAL, of_kind, read_journal
from coordinator_core.drill.model import Prediction
from coordinator_core.durations import numbered
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.jsontext import parse_json
from coordinator_core.untrusted import INT32_END, whole_number


def read_prediction(path: str) -> Prediction:
    """The prediction that ``drill predict --format json`` printed."""
    try:
        document = parse_json(storage.read_utf8(path))
    except ValueError as error:
        raise UsageError(f"{path}: not a prediction: {error}") from None
    return Prediction.from_json(document)


def _seconds(name: str, default: float, what: str, *, least: float = 1) -> Callable[[F], F]:
    """An option in seconds, ``least`` or more, whose help is ``what``."""
    return click.option(name, type=Finite(min=least), default=default, show_default=True, help=what)


@click.command("observe")
@client_options
@click.option(
    "--prediction",
    required=True,
    metavar="FILE",
    type=ExistingFile(),
    help="Output of drill predict --format json.",
)
@click.option("--fault-command", metavar="CMD", help="Command that breaks the cluster; run by /bin/sh.")
@click.option("--pid", "pids", multiple=True, type=Whole(min=1), metavar="PID", help="Or: SIGKILL to this process.")
@click.option("--recover-command", required=True, metavar="CMD", help="Command that mends it; always run afterwards.")
@click.option("--output", required=True, metavar="DIR", help="Where the journal goes.")
@_seconds("--observe-seconds", 30.0, "How long to observe after the fault, at least.", least=0)
@_seconds(
    "--limit-seconds",
    300.0,
    "How long to wait for a steady state, for all to be served again, and for replicas in sync.",
)
@_seconds("--command-seconds", 600.0, "After so long a command is killed and has failed.")
@click.option(
    "--interval-ms",
    type=click.IntRange(min=50, max=3_600_000),
    default=500,
    show_default=True,
    help="Pause between two rounds of probes.",
)
@click.option(
    "--server-log",
    "server_logs",
    multiple=True,
    metavar="BROKER=FILE",
    help="The log of a broker, for the load times that it writes (repeatable).",
)
@click.option("--allow-under-replicated", is_flag=True, help="Begin although not all replicas are in sync.")
def observe_command(
    bootstrap_server: str,
    command_config: str | None,
    prediction: str,
    output: str,
    interval_ms: int,
    server_logs: tuple[str, ...],
    **given: Any,
) -> int:
    """Do a drill on a real cluster and write down what happens, as a journal.

    The cluster must be in the state that the prediction begins with; else nothing is done (exit code 4). Exit
    code 1 when a committed offset went back or vanished.
    """
    from coordinator_core.cluster.drill_run import DrillOptions, observe
    from coordinator_core.cluster.settings import read_settings
    from coordinator_core.drill.events import Outcome

    options = DrillOptions(interval_seconds=interval_ms / 1000, server_logs=_server_logs(server_logs), **given)
    settings = read_settings(bootstrap_server, command_config)
    outcome, reason, recovered = observe(settings, read_prediction(prediction), output, options)
    journal = storage.join(output, JOURNAL)
    note(f"regroup: {outcome.value}{f': {reason}' if reason else ''}; the journal is {journal}")
    if not recovered:
        note(f"regroup: error: the cluster is not as it was; see the journal, then: drill recover {journal}")
    if outcome is not Outcome.OBSERVED or not recovered:
        return ExitCode.APPLY_FAILED
    backwards = of_kind(read_journal(journal), "backwards")
    if backwards:
        note(f"regroup: warning: {numbered(len(backwards), 'committed offset')} went back or vanished")
    return ExitCode.FINDINGS if backwards else ExitCode.CLEAN


def _server_logs(values: tuple[str, ...]) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for value in values:
        broker, _, path = value.partition("=")
        broker_id = whole_number(broker, INT32_END)
        if broker_id is None or not Path(path).is_file():
            raise UsageError(f"--server-log: expected BROKER=FILE, found {value!r}")
        if broker_id in found:
            raise UsageError(f"--server-log {value}: broker {broker_id} has {found[broker_id]} already")
        found[broker_id] = Path(path)
    return found


@click.command("recover")
@click.argument("journal", metavar="JOURNAL", type=ExistingFile())
@click.option("--command-config", metavar="FILE", help="Kafka client properties, as for drill observe.")
@_seconds("--limit-seconds", 300.0, "How long to wait for replicas in sync.")
def recover_command(journal: str, command_config: str | None, limit_seconds: float) -> int:
    """End the drill of a JOURNAL: run its recover command, unless that was done.

    For a drill that was killed; one that goes on gets SIGTERM and recovers by itself. Where JOURNAL is a URI it may go
    on elsewhere, and is waited for. Exit code 4 when the cluster is not as it was before.
    """
    from coordinator_core.cluster.drill_recover import recover
    from coordinator_core.cluster.settings import read_settings

    outcome, recovered = recover(
        journal, lambda servers: read_settings(servers, command_config), limit_seconds=limit_seconds
    )
    state = "as it was" if recovered else "NOT as it was"
    note(f"regroup: the drill was {outcome.value}; the cluster is {state}")
    return ExitCode.CLEAN if recovered else ExitCode.APPLY_FAILED
