"""A function called in several processes: one process runs Python on one core."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import active_children, current_process, get_context
from typing import TypeVar

from coordinator_core.errors import RegroupError
from coordinator_core.process.interpreter import start_light

LARGE_BYTES = 32 << 20
"""Logs of more bytes gain by processes side by side: each takes half a second to start."""
_MOST = 8
"""Processes at most: each holds what it works on."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def most_workers() -> int:
    """Processes that work side by side here: one where this one may start none, as a task of Celery."""
    return 1 if current_process().daemon else min(os.cpu_count() or 1, _MOST)


def in_workers(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """Results of ``function`` for the items, in their order, from so many processes; from this one with one worker, or
    where no others can be started.

    Function, items and results are pickled. Raises what the function raises, and :class:`RegroupError` when a process
    was killed.
    """
    workers = min(workers, len(items))
    with ExitStack() as stack:
        futures: deque[Future[Result]] = deque()
        if workers > 1:
            try:
                pool = stack.enter_context(_pool(workers))
                # Futures, not ``map``, which would cancel them: a pool whose processes are ended trips over those.
                futures += [pool.submit(function, item) for item in items]
            except OSError:
                # Processes, memory or open files are limited.
                stack.close()
        if not futures:
            yield from map(function, items)
        try:
            while futures:
                yield futures.popleft().result()
        except BrokenProcessPool:
            raise RegroupError("a worker process was killed: perhaps there was not enough memory") from None


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are ended in the end, whatever they do: nobody waits for it."""
    others = active_children()
    # A fork would copy locks that threads of this process hold.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin)
    try:
        yield pool
    finally:
        for child in active_children():
            if child not in others:
                child.terminate()
        pool.shutdown()


def _begin() -> None:
    start_light()
    # The process that waits for this one is interrupted, and ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
