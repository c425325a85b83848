"""A journal in object storage, for workers that share nothing else: portions of lines, and claims of who may write.

``journal.jsonl/`` holds ``<term>-<token>-<number>.jsonl``: in the order of their names they are, one behind the other,
what the local file would be. ``journal.jsonl/writers/`` holds the claims of its writers (``coordinator_core.claims``).

Object stores cannot append. A writer looks for a newer claim behind each put, and goes on only where there is none. So
whoever claims the journal reads all that the writer before it has acted on, and that one is told.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from coordinator_core import storage
from coordinator_core.claims import Claim
from coordinator_core.drill.journal import Journal, JournalBusyError, JournalTakenError, JournalWriteError
from coordinator_core.errors import RegroupError

_WRITERS = "writers"
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
    is there with the next one, or when the claim is renewed. An event that raised may be there nevertheless.
    """

    def __init__(self, path: str, writer: str = "a drill") -> None:
        self.path = self._place = path
        self._portion = _Portion()
        self._lock, self._putting = threading.Lock(), threading.Lock()
        self._number = 0
        try:
            self._claim = Claim(
                storage.join(path, _WRITERS), writer, JournalBusyError, lambda: self._put(self._portion)
            )
        except JournalBusyError as error:
            raise JournalBusyError(f"{path}: {error}") from None

    def __exit__(self, *_: object) -> None:
        with self._claim:
            self._claim.stop_renewing()
            self._put(self._portion)

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
                part = storage.join(self._place, f"{self._claim.name}-{self._number:09d}.jsonl")
                try:
                    storage.write_atomic(part, b"".join(portion.lines))
                    if (other := self._claim.taken_by()) is not None:
                        portion.error = JournalTakenError(f"taken over: {other}")
                except (RegroupError, OSError) as error:
                    portion.error = error
                portion.is_put = True
        if isinstance(portion.error, JournalTakenError):
            raise JournalTakenError(f"{self.path}: the event {event} does not count: {portion.error}")
        if portion.error is not None:
            raise JournalWriteError(f"{self.path}: the event {event} cannot be written: {portion.error}")
