"""Compiled code: bytes and tables in, bytes and tables out.

Each module is Python that Cython compiles; ``compiled.pyx`` puts them into one extension module. They know
neither files nor profiles, import nothing above ``log.layout``, and run without the interpreter lock. Start
reading at ``layout`` (rows and numbers), then ``primitives``, ``framing`` and ``key_table``.

Callers import the entry points from here: compiled ones, or the same Python with one warning
(:mod:`~coordinator_core.kernels.mode`).
"""

from coordinator_core.kernels.mode import IS_COMPILED

if IS_COMPILED:
    from coordinator_core.kernels.compiled import (
        BatchFilter,
        BatchIndex,
        Bounds,
        FoldTables,
        GroupRecords,
        KeyTable,
        NewestTable,
        SizeTable,
        TextWriter,
        add_record_sizes,
        compact_arena,
        decode_commits,
        enter_newest,
        filter_batches,
        fold_chunk,
        fold_split,
        gather,
        gather_headers,
        index_batches,
        list_batches,
        merge_newest,
        number_keys,
        pass_known,
        spread,
        unpack,
    )
else:
    from coordinator_core.kernels.uncompiled import (
        BatchFilter,
        BatchIndex,
        Bounds,
        FoldTables,
        GroupRecords,
        KeyTable,
        NewestTable,
        SizeTable,
        TextWriter,
        add_record_sizes,
        compact_arena,
        decode_commits,
        enter_newest,
        filter_batches,
        fold_chunk,
        fold_split,
        gather,
        gather_headers,
        index_batches,
        list_batches,
        merge_newest,
        number_keys,
        pass_known,
        spread,
        unpack,
    )

__all__ = [
    "BatchFilter",
    "BatchIndex",
    "Bounds",
    "FoldTables",
    "GroupRecords",
    "KeyTable",
    "NewestTable",
    "SizeTable",
    "TextWriter",
    "add_record_sizes",
    "compact_arena",
    "decode_commits",
    "enter_newest",
    "filter_batches",
    "fold_chunk",
    "fold_split",
    "gather",
    "gather_headers",
    "index_batches",
    "list_batches",
    "merge_newest",
    "number_keys",
    "pass_known",
    "spread",
    "unpack",
]
