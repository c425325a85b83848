"""Processes that kill themselves at a counted event, however fast the machine is, or are begun in some way."""

from __future__ import annotations

import io
import itertools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection
from types import FrameType
from typing import NoReturn


def killed_at(event: int, files: Collection[str | None], work: Callable[[], object]) -> bool:
    """Do ``work`` in a child that sends itself SIGKILL at that event, from 1; whether the work came so far.

    Events are calls and returns in the code of these ``files``, and of what is built in from there.
    """
    child = os.fork()
    if child == 0:
        counted = itertools.count(1)

        def look(frame: FrameType, _: str, __: object) -> None:
            if frame.f_code.co_filename in files and next(counted) == event:
                os.kill(os.getpid(), signal.SIGKILL)

        threading.setprofile(look)
        sys.setprofile(look)
        _do(work)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), "the work failed"
    return code != 0


def _do(work: Callable[[], object], then: Callable[[], object] = lambda: None) -> NoReturn:
    """Do it, and end the child: with 1 where it fails, as standard error says."""
    try:
        work()
        sys.setprofile(None)
        then()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def events_of(files: Collection[str | None], work: Callable[[], object], *, threads: bool = True) -> int:
    """How many events :func:`killed_at` counts until ``work`` is done, which is done in a child; without ``threads``
    :func:`interrupted_at`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        counted = itertools.count(1)
        last = [0]

        def look(frame: FrameType, _: str, __: object) -> None:
            if frame.f_code.co_filename in files:
                last[0] = next(counted)

        if threads:
            threading.setprofile(look)
        sys.setprofile(look)
        _do(work, lambda: os.write(writing, str(last[0]).encode()))
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0, "the work failed"
    return int(text)


def interrupted_at(
    event: int, files: Collection[str | None], how: signal.Signals, errors: str, work: Callable[[], object]
) -> int:
    """Exit code of ``work`` in a child that sends itself the signal at that event of the main thread, as
    :func:`killed_at` counts them; what it writes to standard error goes to the file ``errors``. 99 when it returns."""
    child = os.fork()
    if child == 0:
        counted = itertools.count(1)

        def look(frame: FrameType, _: str, __: object) -> None:
            if frame.f_code.co_filename in files and next(counted) == event:
                sys.setprofile(None)
                signal.pthread_kill(threading.get_ident(), how)

        try:
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stderr, sys.stdout = (os.fdopen(number, "w", closefd=False) for number in (2, 1))
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)
            sys.setprofile(look)
            work()
        except SystemExit as end:
            # A command that leaves its threads to the interpreter; they go with the child.
            sys.stderr.flush()
            os._exit(int(end.code or 0))
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_child(begin: Callable[[], None], work: Callable[[], int]) -> tuple[int, str]:
    """Exit code and standard error of work in a process that is begun in that way."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.dup2(writing, 2)
            sys.stderr = os.fdopen(2, "w")
            sys.stdout = io.TextIOWrapper(io.BytesIO())
            begin()
            code = work()
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as file:
        error = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), error
