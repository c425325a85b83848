"""Recovery of a cluster whose drill was killed, from the journal that it left."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

from coordinator_core import storage
from coordinator_core.cluster.client import Client
from coordinator_core.cluster.drill_commands import interruptible, undisturbed
from coordinator_core.cluster.drill_restore import clean_up, recover_cluster
from coordinator_core.cluster.drill_states import note_states
from coordinator_core.cluster.settings import ClientSettings
from coordinator_core.drill.canaries import PREFIX
from coordinator_core.drill.events import RECOVERED, Outcome
from coordinator_core.drill.journal import (
    Event,
    Journal,
    JournalBusyError,
    JournalWriteError,
    journal_bytes,
    of_kind,
    read_journal,
)
from coordinator_core.drill.shared_journal import open_journal
from coordinator_core.errors import RegroupError, UsageError

_LOOK_SECONDS = 0.2


def recover(
    journal: str | Path,
    settings: Callable[[str], ClientSettings],
    *,
    command: str | None = None,
    command_seconds: float = 600.0,
    limit_seconds: float = 300.0,
) -> tuple[Outcome, bool]:
    """Ends the drill of a journal: runs its recover command if that is still to be done.

    A drill that is still going on gets SIGTERM and recovers by itself; one whose journal is a URI, and may be that of
    another machine, is waited for. ``command`` is run instead of the journal's, where whoever may write to the journal
    is not to choose it. ``settings`` makes the settings from the bootstrap servers of the journal. Returns
    how the drill ended, and whether the cluster is as it was. Doing it again does nothing.
    """
    if not storage.exists(str(journal)):
        raise UsageError(f"{journal}: there is no journal, so nobody knows whether the cluster is as it was")
    if not journal_bytes(journal):
        # Killed before its first line: nothing was done, and nothing will be once the journal was ours.
        with open_journal(journal):
            pass
        if not journal_bytes(journal):
            return Outcome.KILLED, True
    with interruptible(), _taken(journal, command_seconds + limit_seconds) as opened:
        events = read_journal(journal, shapes=RECOVERED)
        verdicts = of_kind(events, "verdict")
        if verdicts and (verdicts[-1]["recovered"] or not of_kind(events, "method")):
            return Outcome(verdicts[-1]["outcome"]), True
        outcome = Outcome(verdicts[-1]["outcome"]) if verdicts else Outcome.KILLED
        with undisturbed():
            recovered = _recover(opened, events, settings, command, command_seconds, limit_seconds)
            reason = f"the drill was killed; last in its journal is {events[-1]['event']!r}"
            opened.write(
                "verdict",
                outcome=outcome.value,
                reason=verdicts[-1]["reason"] if verdicts else reason,
                recovered=recovered,
            )
        return outcome, recovered


def _taken(journal: str | Path, seconds: float) -> Journal:
    """The journal, once the drill that writes to it has ended."""
    read_journal(journal, shapes=RECOVERED)
    deadline = time.monotonic() + seconds
    told = not storage.is_local(str(journal))
    while True:
        try:
            return open_journal(journal)
        except JournalBusyError:
            if time.monotonic() > deadline:
                raise
        begin = read_journal(journal, shapes=RECOVERED)[0]
        if not told and begin["host"] == socket.gethostname():
            # The process that holds the lock is the drill: no other has its process id meanwhile.
            with suppress(ProcessLookupError):
                os.kill(begin["pid"], signal.SIGTERM)
            told = True
        time.sleep(_LOOK_SECONDS)


def _recover(
    journal: Journal,
    events: list[Event],
    settings: Callable[[str], ClientSettings],
    command: str | None,
    command_seconds: float,
    limit: float,
) -> bool:
    begin = events[0]
    in_sync = {event["offsets_partition"]: set(event["isr"]) for event in of_kind(events, "partition", phase="before")}
    given = settings(begin["bootstrap_server"])
    with ExitStack() as stack:
        connect = cache(lambda: stack.enter_context(Client(given)))
        # The command first: of a drill that was killed there may be no broker that answers.
        recovered = not of_kind(events, "method") or recover_cluster(
            connect,
            journal.write,
            begin["recover_command"] if command is None else command,
            in_sync_before=in_sync,
            command_seconds=command_seconds,
            limit_seconds=limit,
            by="regroup drill recover",
        )
        groups = [each["group_id"] for each in begin["canaries"]]
        try:
            clean_up(connect(), journal.write, [group for group in groups if group.startswith(PREFIX)])
            if recovered:
                note_states(connect(), journal.write, "recovered")
        except JournalWriteError:
            raise
        except RegroupError as error:
            journal.write("trouble", text=f"after the recovery: {error}")
    return recovered
