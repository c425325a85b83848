"""Settings of the command line's process for a fast start: imports left out, memory allocation, exit."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import NoReturn

_GC_THRESHOLD = 100_000
_SWITCH_SECONDS = 0.0005
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
"""Parameters of ``mallopt`` (glibc, malloc.h)."""
_MALLOC_PARAMETERS = {_M_TRIM_THRESHOLD: -1, _M_TOP_PAD: 1 << 26, _M_MMAP_MAX: 0, _M_ARENA_MAX: 1}


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is kept out of this process", name=fullname)


def keep_pandas_out() -> None:
    """Have Arrow find no pandas: its first ``pa.array`` imports it, which takes longer than to fold 100 MB.

    For processes of our own only: pandas is then missing for everybody.
    """
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


def keep_freed_memory() -> None:
    """Have the C library hand out again what was freed, instead of giving it back to the kernel.

    A fold frees as much as the next one asks for, in blocks so large that each comes as fresh pages, which
    the kernel clears: that was a fifth of a replay. One arena, since what one thread frees the other can
    use. With another C library than glibc nothing happens. To be called before there are threads, by what
    folds segments; a process that fetches them stays smaller without it.
    """
    import pyarrow as pa

    # Arrow's own allocators give memory back too, and hold what others could use.
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC_PARAMETERS.items():
            mallopt(parameter, value)


def start_light() -> None:
    """Settings of this process; call it before anything large is imported."""
    # Nothing here multiplies matrices; numpy would start threads for it all the same.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # What a command makes lives in arrays or as long as the process; looking for cycles took a tenth of it.
    gc.set_threshold(_GC_THRESHOLD)
    # A thread that comes back from a kernel waits so long for one that is loading modules.
    sys.setswitchinterval(_SWITCH_SECONDS)
    keep_pandas_out()


def leave(code: int) -> NoReturn:
    """End the process once its threads have ended, and leave its memory to the kernel.

    The interpreter would take every object apart first, which takes as long as to fold 50 MB. So what is to
    be done at the end of a command stands in the command, not in a finalizer.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)
