"""Compiled code: bytes and tables in, bytes and tables out.

Each module is Python that Cython compiles; ``compiled.pyx`` puts them into one extension module. They know
neither files nor profiles, import nothing above ``log.layout``, and run without the interpreter lock. Start
reading at ``layout`` (rows and numbers), then ``primitives``, ``framing`` and ``key_table``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator_core.kernels.mode import IS_COMPILED

if TYPE_CHECKING or not IS_COMPILED:
    from coordinator_core.kernels.framing import Bounds
    from coordinator_core.kernels.text import TextWriter
else:
    from coordinator_core.kernels.compiled import Bounds, TextWriter

__all__ = ["Bounds", "TextWriter"]
