"""Data frames for GX: the tables of a run as they are stored.

The manifest is not believed here: files are read as they are, so that the checks find where they differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core import storage
from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES
from expectations.checks import COUNTED, FILES_COLUMNS, Reference

_HIDDEN = ("_", ".")
"""Readers of directories pass over such names."""


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


def stored_table(run: Run, name: str) -> pa.Table:
    """Rows of those listed files of a table that are there.

    Raises :class:`UnreadableTableError` when they are no Parquet files, or of different schemas.
    """
    parts = []
    for file in run.manifest["tables"].get(name, {"files": []})["files"]:
        path = storage.join(run.path, file)
        if not storage.exists(path):
            continue
        parts.append(read_parquet(path, file))
    if not parts:
        return TABLES[name].arrow.empty_table()
    try:
        return pa.concat_tables(parts)
    except pa.ArrowInvalid as error:
        raise UnreadableTableError(f"the files of {name} differ: {error}") from None


def read_parquet(path: str, name: str | None = None) -> pa.Table:
    """A Parquet file; :class:`UnreadableTableError`, which calls it ``name``, when it is none."""
    try:
        system, inner = storage.filesystem(path)
        with system.open_input_file(inner) as source:
            return pq.ParquetFile(source).read()
    except (OSError, pa.ArrowInvalid) as error:
        raise UnreadableTableError(f"{name or path} cannot be read: {error}") from None


def with_counts(name: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The table with a count column per reference.

    A reference whose columns are missing adds none, so that its check cannot be evaluated and is refused.
    """
    rows = tables[name]
    for reference in COUNTED:
        if reference.table == name and reference.target in tables:
            rows = _with_count(rows, tables[reference.target], reference)
    return rows


def _with_count(rows: pa.Table, target: pa.Table, reference: Reference) -> pa.Table:
    columns = list(reference.columns)
    needed = {*columns, *([reference.where[0]] if reference.where else [])}
    if not needed <= set(target.column_names) or not set(columns) <= set(rows.column_names):
        return rows
    if reference.where is not None:
        column, value = reference.where
        target = target.filter(pc.equal(target[column], value))
    counted = target.group_by(columns).aggregate([([], "count_all")])
    numbered = rows.select(columns).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    joined = numbered.join(counted, columns, join_type="left outer").sort_by("row")
    return rows.append_column(reference.count_column, pc.fill_null(joined["count_all"], 0))


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
