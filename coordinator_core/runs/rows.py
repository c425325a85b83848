"""Requirements on rows of a run, checked when they are read: a writer of a run can write its digests, too.

A reader takes columns from a file by :func:`declared`, which checks types, and values that must be there. Keys and
references are checked where they are relied upon: by :mod:`coordinator_core.runs.states`, and where rules look up rows
by their key. Both raise :class:`ImpossibleRowError`; the run knows the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.limits import standing_allowance, too_large
from coordinator_core.process.allocator import give_back_freed_memory

BLOCK_ROWS = 1 << 12
"""Rows of which everything is in memory at once: 128 MiB with the longest metadata of a record (32 767 bytes)."""

SMALL_ROWS = 1 << 15
"""Rows at a time of numbers, and of names as dictionaries: a name takes at most 32 767 bytes."""

_LARGE_BYTES = 1 << 24


class ImpossibleRowError(Exception):
    """Row ``row`` (from 0) of the rows read of ``table`` is none that a replay writes, or contradicts others."""

    def __init__(self, table: str, row: int, reason: str) -> None:
        super().__init__(table, row, reason)
        self.table, self.row, self.reason = table, row, reason


def impossible_row(path: str, row: int | None, reason: str) -> DamagedInputError:
    """The error for row ``row`` of a file, from 0, where it is known."""
    where = "" if row is None else f"row {row}: "
    return DamagedInputError(Damage(path, 0, None, "impossible_row", f"{where}{reason}"))


def declared(path: str, rows: pa.Table, schema: pa.Schema, first_row: int | None = 0) -> pa.Table:
    """The columns of ``schema`` of rows of a file, with its types.

    ``first_row`` is where the rows begin in the file, ``None`` for rows that were picked.

    :class:`DamagedInputError` for a column that is not there or of another type, and for a value that is missing.
    """
    arrays = []
    for field in schema:
        if field.name not in rows.column_names:
            raise impossible_row(path, None, f"the table has no column {field.name}")
        try:
            array = rows[field.name].cast(field.type)
        except pa.ArrowException as error:
            raise impossible_row(path, None, f"column {field.name}: {error}") from None
        if (row := _missing(field, array)) is not None:
            raise impossible_row(path, None if first_row is None else first_row + row, f"{field.name} has no value")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def blocks(
    path: str,
    parquet: pq.ParquetFile,
    schema: pa.Schema,
    row_groups: Sequence[int] | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Iterator[pa.Table]:
    """The rows of a file, or of some row groups, as :func:`declared`, ``block_rows`` at a time; at first none.

    A few kilobytes of Parquet may be gigabytes of text: each value is stored once, and told by every row.
    """
    yield declared(path, parquet.schema_arrow.empty_table(), schema)
    first_row = 0
    groups = range(parquet.num_row_groups) if row_groups is None else row_groups
    # Threads decode a column each: one column alone takes four times as long to be given to a thread.
    threads = len(schema) > 1
    for batch in parquet.iter_batches(block_rows, row_groups=groups, columns=schema.names, use_threads=threads):
        # ``pa.table`` would keep all columns for as long as one of them.
        rows = pa.Table.from_batches([batch])
        yield declared(path, rows, schema, None if row_groups is not None else first_row)
        first_row += batch.num_rows
        if batch.nbytes > _LARGE_BYTES:
            give_back_freed_memory()


class Bounded:
    """Rows of files of ``file_bytes`` bytes in all, of which no more than is allowed may be in memory."""

    def __init__(self, file_bytes: int) -> None:
        self._allowance = standing_allowance(file_bytes)
        self._bytes = 0

    def take(self, path: str, rows: pa.Table) -> pa.Table:
        """``rows`` of the file ``path``, which are kept; :class:`DamagedInputError` where they are too many bytes."""
        self._bytes += rows.nbytes
        if self._bytes > self._allowance:
            raise DamagedInputError(too_large(path, "what is read of the table unpacks", self._allowance))
        return rows


def _missing(field: pa.Field, array: pa.ChunkedArray | pa.Array) -> int | None:
    """The first row without a value that ``field`` must have, at any depth."""
    if array.null_count and not field.nullable:
        return int(pc.index(pc.is_null(array), True).as_py())
    if not pa.types.is_nested(field.type):
        return None
    first = 0
    for chunk in array.chunks if isinstance(array, pa.ChunkedArray) else [array]:
        if (row := _missing_within(field.type, chunk)) is not None:
            return first + row
        first += len(chunk)
    return None


def _missing_within(kind: pa.DataType, array: pa.Array) -> int | None:
    if pa.types.is_list(kind):
        row = _missing(kind.value_field, pc.list_flatten(array))
        return None if row is None else int(pc.list_parent_indices(array)[row].as_py())
    rows = pc.indices_nonzero(pc.is_valid(array))
    present = array.take(rows) if array.null_count else array
    for index, field in enumerate(kind):
        if (row := _missing(field, pc.struct_field(present, [index]))) is not None:
            return int(rows[row].as_py())
    return None
