"""Names of C types for kernels that run uncompiled; ``compiled.pyx`` declares them for compiled ones."""

from __future__ import annotations

from typing import Any

Int = int
"""A signed 64-bit number."""
Word = int
"""An unsigned 64-bit number."""
Bytes = Int64s = Int32s = Any
"""Vectors that are read."""
MutableBytes = MutableInt64s = Any
"""Vectors that are written, too."""


def __getattr__(name: str) -> Any:
    """``…Rows``: a vector of that :class:`~coordinator_core.kernels.layout.Struct`."""
    if name.endswith("Rows"):
        return Any
    raise AttributeError(name)
