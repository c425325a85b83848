"""The journal of a drill, or of a restore: what was expected, done and seen, a JSON line each, on disk before the next.

The writer may be killed at any line. Whole lines count: a last line that is cut off is left out by
readers, and taken away by the next writer.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from coordinator_core import storage
from coordinator_core.durations import clock_ms
from coordinator_core.errors import Damage, DamagedInputError, ExitCode, RegroupError, UsageError, not_written
from coordinator_core.jsontext import parse_json, reader
from coordinator_core.untrusted import INT64_END

JOURNAL = "journal.jsonl"
JOURNAL_VERSION = 1

Shapes = Mapping[str, Any]
"""Type of an event by its kind, with its ``stage`` behind it where it has several; other kinds are not looked at."""

_ANY: Shapes = {}

_READS = 16
"""Portions of a journal in object storage that are read at once."""

Event = dict[str, Any]
"""``at_ms`` (epoch milliseconds), ``event``, and the fields that ``docs/drill.md`` lists for that kind of event."""


class JournalBusyError(RegroupError):
    """Another process writes to the journal. It ends: trying again helps."""

    exit_code = ExitCode.INTERNAL


class JournalWriteError(RegroupError):
    """An event is not in the journal, which is as it was: the disk is full, say."""

    exit_code = ExitCode.APPLY_FAILED


class JournalTakenError(JournalWriteError):
    """Another process has taken the journal over, and goes on alone."""


class Journal:
    """Appends events to a local file that is ours alone while it is open. Safe in several threads.

    ``JournalBusyError`` while another process writes to it; the error of ``not_written`` when it cannot be opened.
    """

    def __init__(self, path: str | Path, writer: str = "a drill") -> None:
        self.path: str | Path = path
        self._lock = threading.Lock()
        try:
            self._file = os.open(storage.local_path(str(path)), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise not_written(str(path), error) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise JournalBusyError(f"{path}: {writer} is writing to it") from None
        self._cut_torn_line()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def _cut_torn_line(self) -> None:
        content = bytes(storage.read(str(self.path)))
        if content and not content.endswith(b"\n"):
            os.ftruncate(self._file, content.rfind(b"\n") + 1)

    def write(self, event: str, *, at_ms: int | None = None, **values: Any) -> None:
        """Write one event, or raise :class:`JournalWriteError`.

        It survives the end of this process; unless it is a probe, also a crash of the machine.
        """
        row = {"at_ms": clock_ms() if at_ms is None else at_ms, "event": event, **values}
        line = (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
        self._append(event, line)

    def _append(self, event: str, line: bytes) -> None:
        with self._lock:
            end = os.fstat(self._file).st_size
            try:
                written = os.write(self._file, line)
                if written < len(line):
                    # A second try tells why: a full disk takes the part that fits.
                    os.write(self._file, line[written:])
                if event != "probe":
                    os.fsync(self._file)
            except OSError as error:
                # Half a line would swallow the next one.
                os.ftruncate(self._file, end)
                raise JournalWriteError(f"{self.path}: the event {event} cannot be written: {error.strerror}") from None


def read_journal(path: str | Path, first_event: str = "drill", shapes: Shapes = _ANY) -> list[Event]:
    """The whole events of a journal, which begins with ``first_event``.

    ``DamagedInputError`` names the byte where it is none, or where an event is not as ``shapes`` say; ``UsageError``
    for a journal of another version.
    """
    content = journal_bytes(path)
    events: list[Event] = []
    position = 0
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        events.append(_event(line, str(path), position, shapes))
        if events[0]["event"] != first_event:
            # One of another kind, a restore's for a drill's, has events of the same names.
            break
        position += len(line)
    first: Event = events[0] if events else {}
    if first.get("event") != first_event:
        raise _damage(str(path), 0, f"a journal begins with the event {first_event}")
    if first.get("journal_version") != JOURNAL_VERSION:
        version = first.get("journal_version")
        raise UsageError(f"{path}: a journal of version {version}, this is for {JOURNAL_VERSION}")
    return events


def journal_bytes(path: str | Path) -> bytes:
    """The lines of a journal: of a file, or of the portions that ``shared_journal`` writes, one behind the other."""
    place = str(path)
    found = None if storage.is_local(place) else storage.stat(place)
    if found is None or not found.is_directory:
        return bytes(storage.read(place))
    portions = [entry.path for entry in storage.list_directory(place) if entry.name.endswith(".jsonl")]
    with ThreadPoolExecutor(_READS) as threads:
        return b"".join(threads.map(storage.read, portions))


def of_kind(events: Iterable[Event], kind: str, **values: Any) -> list[Event]:
    """Events of a kind that have all of these values."""
    return [
        event
        for event in events
        if event["event"] == kind and all(event.get(name) == value for name, value in values.items())
    ]


def _event(line: bytes, path: str, position: int, shapes: Shapes) -> Event:
    try:
        event: Any = parse_json(line.decode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise _damage(path, position, f"not JSON: {error}") from None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise _damage(path, position, "not an event")
    at_ms = event.get("at_ms")
    if type(at_ms) is not int or not 0 <= at_ms < INT64_END:
        raise _damage(path, position, "an event without its time")
    kind = event["event"]
    shape = shapes.get(kind, shapes.get(f"{kind} {event.get('stage')}"))
    if shape is not None and event.get("journal_version", JOURNAL_VERSION) == JOURNAL_VERSION:
        try:
            reader(shape)(event)
        except ValueError as error:
            raise _damage(path, position, f"not an event {kind}: {error}") from None
    return event


def _damage(path: str, position: int, detail: str) -> DamagedInputError:
    return DamagedInputError(Damage(path, position, None, "journal", detail))
