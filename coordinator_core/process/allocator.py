"""Settings of the memory allocators of a process (``allocator`` of ``REGROUP_PLAIN``).

CPU of the kernel in ``regroup replay`` of 500 MB with 3.8 million committed offsets: 2.9 s with those of
:func:`keep_freed_memory`, 4.0 s without, of 6 to 7 s in all. Where committed offsets are few (1 GB, 176,000) they make
no difference. :func:`share_allocator` saves that replay 0.08 of 2.07 s of CPU, and 35 of 307 MiB.
"""

from __future__ import annotations

import os
import sys

from coordinator_core.process.plain import is_plain

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
"""Numbers of glibc's malloc.h."""
_MALLOC_PARAMETERS = {_M_TRIM_THRESHOLD: -1, _M_TOP_PAD: 1 << 26, _M_MMAP_MAX: 0, _M_ARENA_MAX: 1}


def share_allocator() -> None:
    """Have Arrow, which is not imported yet, take its memory from the C library.

    Its own allocators hold several megabytes for each thread, and those that it makes for encoding stay with them
    whatever :func:`pyarrow.set_memory_pool` says later.
    """
    if not is_plain("allocator"):
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def keep_freed_memory() -> None:
    """Have the C library hand out freed memory again, instead of giving it back to the kernel.

    A fold frees as much as the next one asks for, in blocks so large that each comes as fresh pages, which
    the kernel clears. One arena, since memory that one thread frees the other can use. With another C library than
    glibc nothing happens. To be called before there are threads, by processes that fold segments; a process that
    fetches them stays smaller without it.
    """
    if is_plain("allocator"):
        return
    share_allocator()
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        # Its own allocators give memory back too, and hold memory that others could use.
        pa.set_memory_pool(pa.system_memory_pool())
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC_PARAMETERS.items():
            mallopt(parameter, value)


def give_back_freed_memory() -> None:
    """Give free memory back to the kernel, after values that are much larger than those of ordinary logs.

    Memory that is kept serves the next fold well where it is like the one before. Of blocks of all sizes, tens of
    megabytes each, the heap becomes several times as large as the memory in use.
    """
    import ctypes

    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
