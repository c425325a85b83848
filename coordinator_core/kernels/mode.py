"""Build of the kernels that runs, if any."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

UNCOMPILED = "REGROUP_UNCOMPILED_KERNELS"
"""Environment variable: when set, kernels run as the Python that they are written in."""

CHECKED = "REGROUP_CHECKED_KERNELS"
"""Environment variable: when set, kernels run with bounds checks and sanitizers (``make check-kernels``)."""

if os.environ.get(CHECKED):
    _package = Path(__file__).parent
    _build = _package.parents[1] / "build" / "checked" / _package.relative_to(_package.parents[1])
    if not any(_build.glob("compiled.*")):
        raise ImportError(f"{CHECKED} is set, but {_build} has no kernels: run make check-kernels")
    sys.modules[__package__].__path__.insert(0, str(_build))

IS_COMPILED = not os.environ.get(UNCOMPILED) and find_spec(f"{__package__}.compiled") is not None
