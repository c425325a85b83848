"""Names of C types for kernels that run uncompiled; ``compiled.pyx`` declares them for compiled ones."""

from __future__ import annotations

from typing import Any

Int = int
"""A signed 64-bit number."""
Word = int
"""An unsigned 64-bit number."""
Bytes = Any
"""Read-only bytes."""
MutableBytes = Any
Int64s = Any
"""A vector of int64."""
Rows = Any
"""Rows of a :class:`~coordinator_core.kernels.layout.Struct`."""
