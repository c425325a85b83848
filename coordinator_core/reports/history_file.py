"""The table ``history`` as one Parquet file, written as its rows come."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core import storage
from coordinator_core.history.parts import ahead
from coordinator_core.history.table import HISTORY

_NUMBERS = sorted(field.name for field in HISTORY if field.type == pa.int64())
_SMALL_NUMBERS = ["generation", "offsets_partition", "partition"]
"""Most are as the one before, which compression finds sooner than a dictionary. Not so ``leader_epoch``."""
_VALUES_AT_ONCE = 1 << 14
_PIECE_BYTES = 1 << 20
_WITH_STATISTICS = ["group_id"]
"""Of others the range is nearly the same in each row group."""


def write_history(path: str, tables: Iterable[pa.Table]) -> int:
    """Write tables of the schema :data:`HISTORY`, a row group each; returns the number of rows.

    Readers see all of the file or nothing. Raises as :func:`~coordinator_core.storage.write_atomic` does.
    """
    rows = 0

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for table in tables:
            rows += table.num_rows
            yield table

    def pieces() -> Iterator[bytes]:
        found = counted()
        # The log is read for the first ones: an interrupt need not wait for that.
        first = list(islice(found, 1))
        with ThreadPoolExecutor(1) as thread:
            for of_table in ahead(parquet_pieces(chain(first, found)), thread):
                yield from of_table

    storage.write_atomic(path, pieces())
    return rows


def parquet_pieces(tables: Iterable[pa.Table]) -> Iterator[list[bytes]]:
    """The bytes of a file of such tables in pieces: those of each table, and the end of the file."""
    sink = _Sink()
    # Pages have some kilobytes: each alone would wait for the interpreter, which the thread that makes rows has.
    buffered = pa.output_stream(sink, compression=None, buffer_size=_PIECE_BYTES)
    # Numbers are offsets and times: most go up from row to row, and hardly any comes twice.
    with pq.ParquetWriter(
        buffered,
        HISTORY,
        compression={name: "none" if name in _NUMBERS else "snappy" for name in HISTORY.names},
        use_dictionary=[name for name in HISTORY.names if name not in _NUMBERS + _SMALL_NUMBERS],
        column_encoding=dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
        write_statistics=_WITH_STATISTICS,
        write_page_checksum=True,
        write_batch_size=_VALUES_AT_ONCE,
    ) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
            yield sink.taken()
    buffered.flush()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A file whose bytes are taken out of it as they come."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._size

    def taken(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        return pieces
