"""What kernels that walk over batches have in common.

As the fold's kernels they handle what a healthy log consists of and stop at the first batch that is anything
else, for the readers and writers of ``coordinator_core.log`` to deal with.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from coordinator_core.columnar.compiling import inlined
from coordinator_core.columnar.intrinsics import be64
from coordinator_core.columnar.tables import Int
from coordinator_core.log.layout import DELETE_HORIZON_BIT


class Stop(IntEnum):
    """Why a kernel returned."""

    END = 0
    GROW = 1
    """A table is too small, or ``out`` is full."""
    ODD = 2
    """The batch at the position is not for this kernel."""


@inlined
def delete_horizon(data: Any, position: Int) -> Int:
    """That of the batch at ``position``, in epoch milliseconds, -1 for none."""
    return be64(data, position + 27) if np.int64(data[position + 22]) & DELETE_HORIZON_BIT != 0 else -1
