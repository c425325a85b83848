"""Standard streams that are closed, are full, or have no reader any more."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_OPENED = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""Modes in which the null device replaces a closed stream. Lost output is an error: writing to 1 is refused."""


class _Messages(io.FileIO):
    """Standard error: a message that nobody takes decides nothing about the result."""

    def write(self, data: object) -> int:
        with suppress(OSError):
            super().write(data)  # type: ignore[arg-type]
        return len(memoryview(data))  # type: ignore[arg-type]


class _Results(io.FileIO):
    """Standard output. A reader (head, less) that leaves early is no error: the rest goes to the null device."""

    has_reader = True

    def write(self, data: object) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            self.has_reader = False
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, _STANDARD_OUTPUT)
            os.close(null)
            return len(memoryview(data))  # type: ignore[arg-type]


def has_reader() -> bool:
    """Whether the reader of standard output has stayed, as far as the last write to it could tell."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return not isinstance(raw, _Results) or raw.has_reader


def open_streams() -> None:
    """Put the null device where a standard stream is closed, so that no file which is opened becomes one.

    From then on no write to them fails because the reader has left.
    """
    for descriptor, mode in enumerate(_OPENED):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one.
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    results = io.BufferedWriter(_Results(_STANDARD_OUTPUT, "w", closefd=False))
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(results, "utf-8")
    else:
        old = sys.stdout
        sys.stdout = io.TextIOWrapper(results, old.encoding, old.errors, line_buffering=results.isatty())
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    buffer = io.BufferedWriter(_Messages(_STANDARD_ERROR, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=True)
