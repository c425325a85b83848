"""Claims: which process may write to a place in object storage, which has no locks.

A directory holds a claim ``<term>-<token>`` of each writer, ``.renewed`` behind it while it goes on, and ``.ended``
when it is done. A claim itself is never replaced: where that is a deletion and a renaming (HDFS), it would be missing.

Claims rely on listings that show every earlier put (S3, GCS, ABFS, HDFS). They need no conditional put, which not all
stores have. A claim is made only when the newest one has ended, or was not renewed for :data:`QUIET_SECONDS` by the
clock of the process that looks. A writer that was taken over finds the newer claim (:meth:`Claim.taken_by`): it looks
behind each put, and before it acts on it.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from coordinator_core import storage
from coordinator_core.errors import RegroupError

RENEW_SECONDS = 3.0
QUIET_SECONDS = 30.0

_RENEWED, _ENDED = ".renewed", ".ended"


class Claim:
    """A claim to a place, ours until it is ended or taken over. A context manager, which ends it.

    ``directory`` is that of the place's claims, ``what`` is the word for writers in messages. Raises ``busy`` while
    another process has the place. ``at_renewal`` is called in a thread each time that the claim was renewed.
    """

    def __init__(
        self, directory: str, what: str, busy: type[RegroupError], at_renewal: Callable[[], None] = lambda: None
    ) -> None:
        self._directory, self._at_renewal = directory, at_renewal
        self._token = secrets.token_hex(8)
        self._closed = threading.Event()
        before = self._newest()
        if (other := self._going_on(before)) is not None:
            raise busy(f"{what} is writing to it: {other}")
        self._term = _term(before[0]) + 1 if before else 1
        self.name = f"{self._term:06d}-{self._token}"
        self._say(0)
        others = [name for name in self._newest() if name != self.name]
        if others:
            # Two claims at once: whoever sees both gives up.
            self._end()
            raise busy(f"{what} begins to write to it: {self._about(others[0])}")
        self._renewing = threading.Thread(target=self._renew, daemon=True)
        self._renewing.start()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_renewing()
        self._end()

    def stop_renewing(self) -> None:
        self._closed.set()
        self._renewing.join()

    def taken_by(self) -> str | None:
        """The process that has taken the place over meanwhile."""
        newer = [name for name in self._newest() if _term(name) > self._term]
        return self._about(newer[0]) if newer else None

    def forget_earlier(self) -> None:
        """Delete the claims of earlier writers, of a place that is written to for ever."""
        for name in self._names():
            if _term(name) < self._term:
                storage.delete(self._path(name))

    def _path(self, name: str) -> str:
        return storage.join(self._directory, name)

    def _newest(self) -> list[str]:
        """Claims of the newest term."""
        claims = [name for name in self._names() if "." not in name]
        return [name for name in claims if _term(name) == _term(claims[-1])]

    def _names(self) -> list[str]:
        names = (entry.name for entry in storage.list_directory(self._directory, missing_ok=True))
        # Where files are renamed into place, a writer that was killed leaves one that begins with a dot.
        return [name for name in names if not name.startswith(".")]

    def _going_on(self, claims: list[str]) -> str | None:
        """One of these writers that goes on; looks for :data:`QUIET_SECONDS` where they do not say that they ended."""

        def renewed() -> list[str]:
            ended = self._names() if claims else []
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

    def _about(self, name: str) -> str:
        for each in (f"{name}{_RENEWED}", name):
            with suppress(RegroupError):
                return bytes(storage.read(self._path(each))).decode("utf-8", "replace")
        # A later writer has deleted it.
        return "a process that has ended meanwhile"

    def _say(self, renewals: int) -> None:
        about = f"process {os.getpid()} on host {socket.gethostname()}, renewed {renewals} times"
        storage.write_atomic(self._path(self.name + (_RENEWED if renewals else "")), about.encode())

    def _end(self) -> None:
        storage.write_atomic(self._path(f"{self.name}{_ENDED}"), b"")

    def _renew(self) -> None:
        renewals = 0
        while not self._closed.wait(RENEW_SECONDS):
            renewals += 1
            try:
                self._say(renewals)
                self._at_renewal()
            except (RegroupError, OSError):
                # The next put finds the same, and says so.
                continue


def _term(name: str) -> int:
    return int(name.partition("-")[0])
