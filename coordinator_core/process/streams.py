"""Standard streams that are closed, are full, or have no reader any more."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

_STANDARD_ERROR = 2
_OPENED = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
"""Modes in which the null device replaces a closed stream. Lost output is an error: writing to 1 is refused."""


class _Messages(io.FileIO):
    """Standard error: a message that nobody takes decides nothing about the result."""

    def write(self, data: object) -> int:
        with suppress(OSError):
            super().write(data)  # type: ignore[arg-type]
        return len(memoryview(data))  # type: ignore[arg-type]


def open_streams() -> None:
    """Put the null device where a standard stream is closed, so that no file which is opened becomes one."""
    for descriptor, mode in enumerate(_OPENED):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is this one.
            os.set_inheritable(os.open(os.devnull, mode), True)
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8")
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    buffer = io.BufferedWriter(_Messages(_STANDARD_ERROR, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=True)
