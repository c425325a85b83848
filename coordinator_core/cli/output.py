"""Standard output of commands."""

from __future__ import annotations

import sys


def write(data: bytes | memoryview) -> None:
    """Bytes of a result, on standard output."""
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
