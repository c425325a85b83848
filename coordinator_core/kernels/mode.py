"""Whether the kernels run compiled."""

from __future__ import annotations

import os
from importlib.util import find_spec

UNCOMPILED = "REGROUP_UNCOMPILED_KERNELS"
"""Environment variable: when set, kernels run as the Python that they are written in."""

IS_COMPILED = not os.environ.get(UNCOMPILED) and find_spec(f"{__package__}.compiled") is not None
