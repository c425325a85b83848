"""The command group and the one place where errors become exit codes."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from coordinator_core import __version__
from coordinator_core.cli.lazy import LazyGroup, Place
from coordinator_core.errors import ExitCode, RegroupError, UsageError, WriteError, lack_behind, not_written
from coordinator_core.process.interpreter import start_light
from coordinator_core.process.leaving import leave
from coordinator_core.process.streams import open_streams
from coordinator_core.untrusted import is_utf8, visible, visible_lines

_COMMANDS = {
    "audit": Place("command_groups", "Evidence for auditors: who committed what, signed, and checked against the log."),
    "capture": Place("capture", "Fetch the offsets topic of a live cluster, byte for byte."),
    "compact": Place("compact", "Write a compacted log that a broker loads, with proof."),
    "describe": Place("describe", "Groups, members and committed offsets, as a broker describes them."),
    "diff": Place("diff", "Groups and committed offsets that differ between two runs."),
    "drill": Place("command_groups", "Failover drills: predict, observe, recover, compare."),
    "dump": Place("dump", "Every record in log order, as Kafka's dump tool prints it."),
    "expire": Place("expire", "Tombstones of the next expiry sweep, and the forecast."),
    "explain": Place("explain", "How the state of a group came to be, record by record."),
    "find-coordinator": Place("find_coordinator", "Offsets partition and coordinator of each group."),
    "history": Place("history", "Every value of every offset key: how long, by whom, what ended it."),
    "import-records": Place("import_records", "Make a log directory of records in Parquet."),
    "investigate": Place("investigate", "Causes of trouble of a group, or in the cluster, and remedies."),
    "list": Place("describe", "Groups with their type and state."),
    "loads": Place("loads", "Which Kafka releases load this log, and where others stop."),
    "prune": Place("prune", "Old runs and pins of a cluster that nothing refers to."),
    "reconcile": Place("reconcile", "Findings about the groups and offsets of a run."),
    "register": Place("register", "Add the tables of a run to those of an Apache Iceberg catalogue."),
    "replay": Place("replay", "Replay a snapshot and publish a run."),
    "report": Place("report", "One page about a published run."),
    "rescue": Place("rescue", "A partition that a coordinator does not load, and the ways out."),
    "restore": Place("command_groups", "Committed offsets put back: plan, apply, verify, rollback."),
    "rules": Place("rules", "The catalogue of reconciliation rules."),
    "simulate": Place("simulate", "Play recorded requests through the coordinator model."),
    "stats": Place("stats", "Records, bytes and dead bytes by group and record type."),
    "verify": Place("verify", "Check framing, checksums and offsets of every segment."),
    "whatif": Place("whatif", "Effects of a migration, another setting or a deletion."),
}


@click.group(
    cls=LazyGroup,
    places=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="regroup")
def cli() -> None:
    """Rebuild the state of Kafka consumer groups from copies of the __consumer_offsets log."""


def main(args: list[str] | None = None) -> NoReturn:
    """Run the command line and leave the process with the documented exit code."""
    try:
        start_light()
        open_streams()
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # As SIGINT: the temporary directories of a command go with it.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        warnings.showwarning = _warn
        leave(run(args))
    except KeyboardInterrupt:
        # Before the command begins, or once it has ended.
        leave(_fail("interrupted", ExitCode.INTERNAL))
    except (MemoryError, SystemError):
        # There was no memory for the error that ended the command, nor is there for the interpreter's end.
        os.write(2, b"regroup: error: not enough memory\n")
        os._exit(ExitCode.INTERNAL)


def run(args: list[str] | None = None) -> int:
    """Run the command line; returns the exit code instead of leaving."""
    try:
        words = sys.argv[1:] if args is None else args
        _require_text(words)
        result: Any = cli.main(args=words, prog_name="regroup", standalone_mode=False)
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _fail("interrupted", ExitCode.INTERNAL)
    except click.ClickException as error:
        error.show(sys.stderr)
        return ExitCode.USAGE
    except RegroupError as error:
        return _fail(str(error), error.exit_code)
    except OSError as error:
        if isinstance(failure := not_written("output", error), WriteError):
            return _fail(str(failure), failure.exit_code)
        return _internal(error)
    except Exception as error:
        return _internal(error)
    return int(result) if isinstance(result, int) else ExitCode.CLEAN


def _require_text(words: Sequence[str]) -> None:
    """No bytes of another encoding: names of Kafka are UTF-8, and so is each file that would name such a path."""
    for word in words:
        if "\0" in word or not is_utf8(word):
            raise UsageError(f"{word}: an argument that is not UTF-8")


def _internal(error: Exception) -> int:
    if os.environ.get("REGROUP_DEBUG"):
        raise error
    if (said := lack_behind(error)) is not None:
        return _fail(said, ExitCode.INTERNAL)
    reason = f"internal error: {type(error).__name__}: {error} (set REGROUP_DEBUG=1 for the trace)"
    return _fail(reason, ExitCode.INTERNAL)


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as one line; the line of code that it comes from tells an operator nothing."""
    click.echo(f"regroup: warning: {visible_lines(str(message))}", err=True)


def _fail(message: str, code: ExitCode) -> int:
    click.echo(f"regroup: error: {visible(message)}", err=True)
    return code
