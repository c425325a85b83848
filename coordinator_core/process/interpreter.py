"""Settings of the interpreter for a command (``interpreter`` of ``REGROUP_PLAIN``).

``regroup replay`` of 700 MB with them and without, 25 pairs in turn on two busy cores, medians: 1.25 and 1.35 s user,
1.63 and 1.72 s CPU, 5.4 and 6.2 s elapsed.
"""

from __future__ import annotations

import gc
import os
import sys

from coordinator_core.process.allocator import share_allocator
from coordinator_core.process.no_pandas import keep_pandas_out
from coordinator_core.process.plain import is_plain

_GC_THRESHOLD = 1_000_000
_SWITCH_SECONDS = 0.0005


def start_light() -> None:
    """To be called before anything large is imported."""
    keep_pandas_out()
    share_allocator()
    if is_plain("interpreter"):
        return
    # Nothing here multiplies matrices; numpy would start threads for it all the same.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Objects of a command live in arrays or as long as the process; looking for cycles finds nothing.
    gc.set_threshold(_GC_THRESHOLD)
    # A thread that comes back from a kernel waits so long for one that is loading modules.
    sys.setswitchinterval(_SWITCH_SECONDS)
