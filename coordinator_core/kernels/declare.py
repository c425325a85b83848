"""Names that kernels have when they run uncompiled; ``compiled.pyx`` declares the same to Cython.

C types, and the rows and numbers of both modules ``layout``.
"""

from __future__ import annotations

from typing import Any

from coordinator_core.kernels.layout import *
from coordinator_core.kernels.layout import Struct
from coordinator_core.log.layout import *

Int = int  # A signed 64-bit number.
Word = int  # An unsigned 64-bit number.
Bytes = Int64s = Int32s = Any  # Vectors that are read.
MutableBytes = MutableInt64s = Any  # Vectors that are written, too.

# ``…Rows``: a vector of that struct.
globals().update({f"{struct.__name__}Rows": Any for struct in Struct.__subclasses__()})
