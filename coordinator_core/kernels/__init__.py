"""Compiled code: bytes and tables in, bytes and tables out.

Each module is Python that Cython compiles; ``compiled.pyx`` puts them into one extension module. They know
neither files nor profiles, import nothing above ``log.layout``, and run without the interpreter lock. Start
reading at ``layout`` (rows and numbers), then ``primitives``, ``framing`` and ``key_table``.
"""
