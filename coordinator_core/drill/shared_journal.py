"""A journal in object storage, for workers that share nothing else: portions of lines, and claims of who may write.

``journal.jsonl/`` holds ``<term>-<token>-<number>.jsonl``: in the order of their names they are, one behind the other,
what the local file would be. ``journal.jsonl/writers/`` holds a claim ``<term>-<token>`` of each writer, which it
renews, and ``<term>-<token>.ended`` when it has closed the journal.

Object stores have no locks, and pyarrow no conditional put. What is relied on is that who lists after a put finds it
(S3, GCS, ABFS, HDFS): a writer looks for a newer claim behind each put, and goes on only where there is none. So
whoever claims the journal reads all that the writer before it has acted on, and that one is told. A claim is made only
when the newest one has ended, or was not renewed for :data:`QUIET_SECONDS` of the clock of who looks.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from coordinator_core import storage
from coordinator_core.drill.journal import Journal, JournalBusyError, JournalTakenError, JournalWriteError
from coordinator_core.errors import UsageError, WriteError

RENEW_SECONDS = 3.0
QUIET_SECONDS = 30.0

_WRITERS, _ENDED = "writers", ".ended"
_MOST_BYTES = 1 << 20
"""Of probes, which wait for the next portion."""


def open_journal(path: str | Path, writer: str = "a drill") -> Journal:
    """The journal at a local path or a URI, to write to; ``JournalBusyError`` while ``writer`` does."""
    return Journal(path, writer) if storage.is_local(str(path)) else SharedJournal(str(path), writer)


@dataclass
class _Portion:
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    is_put: bool = False
    error: Exception | None = None


class SharedJournal(Journal):
    """As :class:`~coordinator_core.drill.journal.Journal`, for a URI.

    An event is in the store when :meth:`write` returns, together with those that other threads write meanwhile; a probe
    is there with the next one, or after :data:`RENEW_SECONDS`. An event that raised may be there nevertheless.
    """

    def __init__(self, path: str, writer: str = "a drill") -> None:
        self.path = self._place = path
        self._portion = _Portion()
        self._lock, self._putting, self._closed = threading.Lock(), threading.Lock(), threading.Event()
        self._number = 0
        self._token = secrets.token_hex(8)
        self._claim(writer)
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._renewing.start()

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._renewing.join()
        try:
            self._put(self._portion)
        finally:
            self._end()

    # Who writes

    def _writer(self, name: str) -> str:
        return storage.join(self._place, _WRITERS, name)

    def _claim(self, writer: str) -> None:
        before = self._newest()
        if (other := self._going_on(before)) is not None:
            raise JournalBusyError(f"{self.path}: {writer} is writing to it: {other}")
        self._term = _term(before[0]) + 1 if before else 1
        self._name = f"{self._term:06d}-{self._token}"
        self._say(0)
        others = [name for name in self._newest() if name != self._name]
        if others:
            # Two claims at once: whoever sees both gives up.
            self._end()
            raise JournalBusyError(f"{self.path}: {writer} begins to write to it: {self._about(others[0])}")

    def _newest(self) -> list[str]:
        """Claims of the newest term."""
        claims = [name for name in self._writers() if not name.endswith(_ENDED)]
        return [name for name in claims if _term(name) == _term(claims[-1])]

    def _writers(self) -> list[str]:
        return [entry.name for entry in storage.list_directory(self._writer(""), missing_ok=True)]

    def _going_on(self, claims: list[str]) -> str | None:
        """One of these writers that goes on; looks for :data:`QUIET_SECONDS` where they do not say that they ended."""

        def renewed() -> list[str]:
            ended = self._writers() if claims else []
            return [self._about(name) for name in claims if f"{name}{_ENDED}" not in ended]

        first = renewed()
        deadline = time.monotonic() + QUIET_SECONDS
        while now := renewed():
            if now != first:
                return now[-1]
            if time.monotonic() > deadline:
                break
            time.sleep(min(RENEW_SECONDS, QUIET_SECONDS) / 3)
        return None

    def _about(self, claim: str) -> str:
        return bytes(storage.read(self._writer(claim))).decode("utf-8", "replace")

    def _say(self, renewals: int) -> None:
        about = f"process {os.getpid()} on host {socket.gethostname()}, renewed {renewals} times"
        storage.write_atomic(self._writer(self._name), about.encode())

    def _end(self) -> None:
        storage.write_atomic(self._writer(f"{self._name}{_ENDED}"), b"")

    def _renew(self) -> None:
        renewals = 0
        while not self._closed.wait(RENEW_SECONDS):
            renewals += 1
            try:
                self._say(renewals)
                self._put(self._portion)
            except (UsageError, WriteError, JournalWriteError, OSError):
                # The next event that has to be there finds the same, and says so.
                continue

    # What is written

    def _append(self, event: str, line: bytes) -> None:
        with self._lock:
            portion = self._portion
            portion.lines.append(line)
            portion.size += len(line)
            if event == "probe" and portion.size < _MOST_BYTES:
                return
        self._put(portion, event)

    def _put(self, portion: _Portion, event: str = "probe") -> None:
        """Have a portion in the store, with all that was added to it, unless another thread has done so."""
        with self._putting:
            if not portion.is_put and portion.lines:
                with self._lock:
                    if self._portion is portion:
                        self._portion = _Portion()
                # Never a number twice: a put that failed may be done late, and would replace the other.
                self._number += 1
                part = storage.join(self._place, f"{self._name}-{self._number:09d}.jsonl")
                try:
                    storage.write_atomic(part, b"".join(portion.lines))
                    newer = [name for name in self._newest() if _term(name) > self._term]
                    if newer:
                        portion.error = JournalTakenError(f"taken over: {self._about(newer[0])}")
                except (UsageError, WriteError, OSError) as error:
                    portion.error = error
                portion.is_put = True
        if isinstance(portion.error, JournalTakenError):
            raise JournalTakenError(f"{self.path}: the event {event} does not count: {portion.error}")
        if portion.error is not None:
            raise JournalWriteError(f"{self.path}: the event {event} cannot be written: {portion.error}")


def _term(claim: str) -> int:
    return int(claim.partition("-")[0])
