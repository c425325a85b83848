"""Compiled code: bytes and tables in, bytes and tables out.

Each module is Python that Cython compiles; ``compiled.pyx`` puts them into one extension module. They know
neither files nor profiles, import nothing above ``log.layout``, and run without the interpreter lock (but
``values``, which makes Python's objects). Start
reading at ``layout`` (rows and numbers), then ``primitives``, ``framing`` and ``key_table``.

A function or method with ``@cython.cfunc`` is a C function. ``setup.py`` makes each of them ``inline`` and
``nogil``, which Cython wants as two more decorators. It raises nothing, unless ``@cython.exceptval(-1)`` says
that it passes on a ``MemoryError`` of a table that cannot grow.

Callers import the entry points from here (``uncompiled`` lists them): compiled ones, or the same Python with
one warning (:mod:`~coordinator_core.kernels.mode`).
"""

from coordinator_core.kernels.mode import IS_COMPILED

if IS_COMPILED:
    from coordinator_core.kernels.compiled import *
else:
    from coordinator_core.kernels.uncompiled import *
