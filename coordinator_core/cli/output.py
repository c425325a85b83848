"""Standard output and standard error of commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class ReaderGoneError(Exception):
    """The reader of the results (head, less) has closed the pipe, which is no error."""


def write(data: bytes | memoryview) -> None:
    """Bytes of a result, on standard output."""
    rest = memoryview(data)
    while rest:
        rest = rest[_tried(partial(sys.stdout.buffer.write, rest)) :]


def flush() -> None:
    """Have all of the result read, as far as it is asked for."""
    _tried(sys.stdout.flush)


def discard() -> None:
    """Discard output that is still to be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tried(action: Callable[[], T]) -> T:
    # Nothing else that breaks a pipe, a socket say, may pass for this.
    try:
        return action()
    except BrokenPipeError as error:
        raise ReaderGoneError from error
