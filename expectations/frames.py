"""Data frames for GX: the tables of a run as they are stored.

The manifest is not believed here: files are read as they are, so that the checks find where they differ.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core import storage
from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES
from expectations.checks import COUNTED, FILES_COLUMNS, Reference

_HIDDEN = ("_", ".")
"""Readers of directories pass over such names."""

BATCH_ROWS = 1 << 18
"""Rows that GX has in a data frame; of committed offsets about 150 MiB."""

_READ_ROWS = 1 << 16


class UnreadableTableError(Exception):
    """The files of a table cannot be read together."""


def run_files(run: Run) -> pa.Table:
    """The Parquet files of the run, listed or found: columns ``FILES_COLUMNS``."""
    listed = {(name, file) for name, table in run.manifest["tables"].items() for file in table["files"]}
    found = {
        (directory.name, f"{directory.name}/{file.name}")
        for directory in storage.list_directory(run.path)
        if directory.is_directory and not directory.name.startswith(_HIDDEN)
        for file in storage.list_directory(directory.path)
        if not file.is_directory and not file.name.startswith(_HIDDEN)
    }
    rows = [(*file, file in listed, file in found) for file in sorted(listed | found)]
    schema = pa.schema(zip(FILES_COLUMNS, [pa.string(), pa.string(), pa.bool_(), pa.bool_()], strict=True))
    return pa.Table.from_pylist([dict(zip(FILES_COLUMNS, row, strict=True)) for row in rows], schema=schema)


class StoredTable:
    """Rows of Parquet files, read as they are asked for, a bounded number at a time.

    ``files`` are paths, each with its name in messages; files that are not there are left out. Raises
    :class:`UnreadableTableError` when they are no Parquet files, or of different schemas.
    """

    def __init__(self, files: Iterable[tuple[str, str]], schema: pa.Schema, key: Sequence[str]) -> None:
        self._files = [(path, name) for path, name in files if storage.exists(path)]
        self.schema = schema
        self._key = key
        self.num_rows = 0
        for number, (path, name) in enumerate(self._files):
            with _opened(path, name) as parquet:
                found = parquet.schema_arrow
                self.num_rows += parquet.metadata.num_rows
            if number and not found.equals(self.schema):
                raise UnreadableTableError(f"the files of {name.partition('/')[0]} differ: {name} has other columns")
            self.schema = found

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows, of ``columns`` only where they are given."""
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        return pa.Table.from_batches(self._record_batches(columns), schema)

    def batches(self) -> Iterator[pa.Table]:
        """The rows in batches of about :data:`BATCH_ROWS` at most, by hash of their key: equal keys are in one.

        They pass through files, so that no more than a batch is in memory.
        """
        count = -(-self.num_rows // BATCH_ROWS)
        if count <= 1:
            yield self.read()
            return
        with tempfile.TemporaryDirectory(prefix="regroup-batches-") as directory:
            paths = [f"{directory}/{number}" for number in range(count)]
            with ExitStack() as opened:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                sinks = [opened.enter_context(pa.OSFile(path, "wb")) for path in paths]
                writers = [
                    opened.enter_context(pa.ipc.new_stream(sink, self.schema, options=options)) for sink in sinks
                ]
                for rows in self._record_batches():
                    batch_of = self._hashes(rows) % count
                    for number, writer in enumerate(writers):
                        writer.write_batch(rows.filter(pa.array(batch_of == number)))
            for path in paths:
                with pa.OSFile(path) as source, pa.ipc.open_stream(source) as reader:
                    yield reader.read_all()
                os.unlink(path)

    def _hashes(self, rows: pa.RecordBatch) -> Any:
        """Hashes of the keys of all rows, of the parts that are there: without all of them the check is refused."""
        import pandas as pd

        columns = [name for name in self._key if name in rows.schema.names]
        if not columns:
            return np.arange(rows.num_rows, dtype=np.uint64)
        return pd.util.hash_pandas_object(rows.select(columns).to_pandas(), index=False).to_numpy()

    def _record_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for path, name in self._files:
            with _opened(path, name) as parquet:
                try:
                    yield from parquet.iter_batches(batch_size=_READ_ROWS, columns=columns)
                except (OSError, pa.ArrowInvalid) as error:
                    raise UnreadableTableError(f"{name} cannot be read: {error}") from None


@contextmanager
def _opened(path: str, name: str) -> Iterator[pq.ParquetFile]:
    try:
        system, inner = storage.filesystem(path)
        with system.open_input_file(inner) as source:
            yield pq.ParquetFile(source)
    except (OSError, pa.ArrowInvalid) as error:
        raise UnreadableTableError(f"{name} cannot be read: {error}") from None


def stored_table(run: Run, name: str) -> StoredTable:
    """Listed files of a table that are there."""
    files = run.manifest["tables"].get(name, {"files": []})["files"]
    table = TABLES[name]
    return StoredTable(((storage.join(run.path, file), file) for file in files), table.arrow, table.key)


Counts = Sequence[tuple[Reference, pa.Table]]


def counts_for(name: str, tables: Mapping[str, StoredTable]) -> Counts:
    """For each reference of a table: rows of its target by the columns of the reference.

    A reference whose columns are missing has none, so that its check cannot be evaluated and is refused.
    """
    found = []
    for reference in COUNTED:
        if reference.table == name and reference.target in tables:
            target = tables[reference.target]
            columns = list(reference.columns)
            needed = list(dict.fromkeys([*columns, *([reference.where[0]] if reference.where else [])]))
            if set(needed) <= set(target.schema.names):
                rows = target.read(needed)
                if reference.where is not None:
                    rows = rows.filter(pc.equal(rows[reference.where[0]], reference.where[1]))
                found.append((reference, rows.group_by(columns).aggregate([([], "count_all")])))
    return found


def with_counts(rows: pa.Table, counts: Counts) -> pa.Table:
    """Rows of a table with a count column per reference, where it has the columns."""
    for reference, counted in counts:
        columns = list(reference.columns)
        if set(columns) <= set(rows.column_names):
            numbered = rows.select(columns).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
            joined = numbered.join(counted, columns, join_type="left outer").sort_by("row")
            rows = rows.append_column(reference.count_column, pc.fill_null(joined["count_all"], 0))
    return rows


def parameters(run: Run, name: str) -> dict[str, Any]:
    """Parameters of the checks of a table, from the manifest.

    ``cut`` has, by offsets partition, the lowest offset that a record of the run can have and the log end
    offset.  A loader begins with the batch that holds the log start offset, which may begin before it, but
    not before its segment.
    """
    cut = {
        partition: [bounds["log_start_offset"], bounds["log_end_offset"]]
        for partition, bounds in run.manifest["cut"].items()
    }
    for segment in run.manifest["inputs"]:
        bounds = cut[str(segment["offsets_partition"])]
        bounds[0] = min(bounds[0], segment["base_offset"])
    rows = run.manifest["tables"].get(name, {"rows": 0})["rows"]
    return {"rows": rows, "now_ms": run.now_ms, "cut": cut, "offsets_partitions": sorted(map(int, cut))}
