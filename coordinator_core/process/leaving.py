"""The end of a process without the interpreter's (``exit`` of ``REGROUP_PLAIN``).

It spares every command 0.05 to 0.1 s of CPU; a replay of some kilobytes takes 1.0 s of it.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

from coordinator_core.process.plain import is_plain


def leave(code: int) -> NoReturn:
    """End the process and leave its memory to the kernel; where threads are left, leave it to the interpreter.

    The interpreter takes every object apart first. So the work at the end of a command stands in the command, not in a
    finalizer.
    """
    others = set(threading.enumerate()) - {threading.current_thread()}
    # Idle threads of a pool that nobody closed, as pyiceberg's, are ended by the interpreter alone.
    if is_plain("exit") or not all(thread.daemon for thread in others):
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)
