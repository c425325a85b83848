"""Data frames for GX: the tables of a run as they are stored.

The manifest is not believed here: files are read as they are, so that the checks find where they differ.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core import storage
from coordinator_core.errors import DamagedInputError
from coordinator_core.runs.proof import FileProof, open_parquet
from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES
from expectations.checks import COUNTED, FILES_COLUMNS, Reference
from expectations.ordered import is_ordered

_HIDDEN = ("_", ".")
"""Readers of directories pass over such names."""

BATCH_ROWS = 1 << 19
"""Rows that GX has in a data frame at most, about; of committed offsets some 100 MiB."""

BATCH_BYTES = 1 << 27
"""Bytes that rows of a table that is in order have in a data frame at most, about."""

_READ_ROWS = 1 << 16
_PARTITION = "offsets_partition"
_MIX = np.uint64(0x9E3779B97F4A7C15)


class UnreadableTableError(Exception):
    """The files of a table cannot be read together."""


def run_files(run: Run) -> pa.Table:
    """The Parquet files of the run, listed or found: columns ``FILES_COLUMNS``.

    ``intact`` is null where there are no two to compare: a file that is not there, or whose digest no manifest tells.
    """
    proofs = {
        (name, file): proof
        for name, table in run.manifest["tables"].items()
        for file, proof in zip_longest(table["files"], table.get("proofs", ()))
    }
    listed = proofs.keys()
    found = {
        (directory.name, f"{directory.name}/{file.name}")
        for directory in storage.list_directory(run.path)
        if directory.is_directory and not directory.name.startswith(_HIDDEN)
        for file in storage.list_directory(directory.path)
        if not file.is_directory and not file.name.startswith(_HIDDEN)
    }
    rows = [
        (*file, file in listed, file in found, _is_intact(run, file[1], proofs.get(file)) if file in found else None)
        for file in sorted(listed | found)
    ]
    kinds = [pa.string(), pa.string(), pa.bool_(), pa.bool_(), pa.bool_()]
    schema = pa.schema(zip(FILES_COLUMNS, kinds, strict=True))
    return pa.Table.from_pylist([dict(zip(FILES_COLUMNS, row, strict=True)) for row in rows], schema=schema)


def _is_intact(run: Run, file: str, proof: FileProof | None) -> bool | None:
    """Whether a file is the published one, by what :meth:`Run.table` looks at: of a large one only size and footer are
    read here, and its pages have checksums of their own."""
    if proof is None:
        return None
    try:
        open_parquet(storage.join(run.path, file), proof).close()
    except DamagedInputError:
        return False
    return True


class Part(NamedTuple):
    """Rows of some offsets partitions: those that ``of`` gives this number; the first part has all that ``of`` does not
    know. Suites of small tables, and of files that are no table of the run, are the first part's."""

    number: int
    of: Mapping[int, int]

    def holds(self, group: pq.RowGroupMetaData) -> bool | None:
        """Whether the rows of a row group are of the part; ``None``: some may be."""
        if not self.of:
            return True
        columns = (group.column(place) for place in range(group.num_columns))
        found = next((column.statistics for column in columns if column.path_in_schema == _PARTITION), None)
        if found is None or not found.has_min_max or found.min != found.max or found.null_count:
            return None
        return self.of.get(found.min, 0) == self.number

    def of_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the part."""
        if _PARTITION not in rows.schema.names:
            return rows if self.number == 0 else rows.slice(0, 0)
        partitions = rows[_PARTITION]
        known = pa.array(list(self.of), pa.int32())
        place = pc.index_in(partitions.cast(pa.int32(), safe=False), value_set=known)
        number = pc.fill_null(pa.array(list(self.of.values()), pa.int32()).take(place), 0)
        return rows.filter(pc.equal(number, self.number))


WHOLE = Part(0, {})
"""All rows."""


class StoredTable:
    """Rows of Parquet files, read as they are asked for, a bounded number at a time.

    ``files`` are paths, each with its name in messages; files that are not there are left out. Raises
    :class:`UnreadableTableError` when they are no Parquet files, or of different schemas.
    """

    def __init__(self, files: Iterable[tuple[str, str]], schema: pa.Schema, key: Sequence[str]) -> None:
        self._files = [(path, name) for path, name in files if storage.exists(path)]
        self.schema = schema
        self.key = key
        self.num_rows = 0
        for number, (path, name) in enumerate(self._files):
            with _opened(path, name) as parquet:
                found = parquet.schema_arrow
                self.num_rows += parquet.metadata.num_rows
            if number and not found.equals(self.schema):
                raise UnreadableTableError(f"the files of {name.partition('/')[0]} differ: {name} has other columns")
            self.schema = found

    def most_rows(self, part: Part) -> int:
        """The number of rows of a part, or more."""
        if not part.of:
            return self.num_rows
        found = 0
        for path, name in self._files:
            with _opened(path, name) as parquet:
                found += sum(parquet.metadata.row_group(one).num_rows for _, one in _row_groups(parquet, part))
        return found

    @property
    def is_large(self) -> bool:
        """Whether the table has more than a batch of rows, and is looked at in parts."""
        return self.num_rows > BATCH_ROWS

    def has(self, columns: Iterable[str]) -> bool:
        return set(columns) <= set(self.schema.names)

    def spread(
        self, count: int, by: Sequence[str], part: Part = WHOLE, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """The rows of ``part``, or ``columns`` of them, in ``count`` batches: rows with equal values in ``by`` are in
        the same batch of this and of any other table.

        They pass through files, so that no more than a batch is in memory.
        """
        schema = self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])
        if count <= 1:
            yield pa.Table.from_batches(self._record_batches(part, columns), schema)
            return
        with tempfile.TemporaryDirectory(prefix="regroup-batches-") as directory:
            paths = [f"{directory}/{number}" for number in range(count)]
            with ExitStack() as opened:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                sinks = [opened.enter_context(pa.OSFile(path, "wb")) for path in paths]
                writers = [opened.enter_context(pa.ipc.new_stream(sink, schema, options=options)) for sink in sinks]
                for rows in self._record_batches(part, columns):
                    batch_of = hashes(rows, by) % count
                    rows = rows.take(pa.array(np.argsort(batch_of, kind="stable")))
                    ends = np.cumsum(np.bincount(batch_of.astype(np.int64), minlength=count))
                    for writer, begin, end in zip(writers, [0, *ends[:-1]], ends, strict=True):
                        writer.write_batch(rows.slice(begin, end - begin))
            for path in paths:
                with pa.OSFile(path) as source, pa.ipc.open_stream(source) as reader:
                    yield reader.read_all()
                os.unlink(path)

    def is_ordered(self, by: Sequence[str], part: Part = WHOLE) -> bool:
        """Whether the rows of ``part`` are in the order of ``by``, as far as :func:`ordered.is_ordered` knows one."""
        if not self.has(by):
            return False
        last = None
        for rows in self._record_batches(part, by):
            table = pa.Table.from_batches([rows] if last is None else [last, rows])
            if not is_ordered(table.select(by)):
                return False
            if rows.num_rows:
                last = rows.slice(rows.num_rows - 1)
        return True

    def in_order(self, by: Sequence[str], part: Part = WHOLE) -> Iterator[pa.Table]:
        """The rows of ``part``, which are in the order of ``by``, in batches of about :data:`BATCH_ROWS` or
        :data:`BATCH_BYTES`: rows with equal values in ``by`` are in the same batch."""
        kept: list[pa.RecordBatch] = []
        for rows in self._record_batches(part, None):
            kept.append(rows)
            if sum(one.num_rows for one in kept) >= BATCH_ROWS or sum(one.nbytes for one in kept) >= BATCH_BYTES:
                table = pa.Table.from_batches(kept, self.schema)
                end = table.num_rows - _equal_to_last(table.select(by))
                if end:
                    yield table.slice(0, end)
                kept = table.slice(end).to_batches()
        yield pa.Table.from_batches(kept, self.schema)

    def _record_batches(self, part: Part, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        for path, name in self._files:
            with _opened(path, name) as parquet:
                try:
                    for are_all, groups in groupby(_row_groups(parquet, part), itemgetter(0)):
                        numbers = [number for _, number in groups]
                        for rows in parquet.iter_batches(batch_size=_READ_ROWS, columns=columns, row_groups=numbers):
                            yield rows if are_all else part.of_rows(rows)
                except (OSError, pa.ArrowInvalid) as error:
                    raise UnreadableTableError(f"{name} cannot be read: {error}") from None


def _row_groups(parquet: pq.ParquetFile, part: Part) -> list[tuple[bool, int]]:
    """Row groups with rows of ``part``, each with whether all of its rows are."""
    metadata = parquet.metadata
    held = [(part.holds(metadata.row_group(number)), number) for number in range(metadata.num_row_groups)]
    return [(holds is True, number) for holds, number in held if holds is not False]


def _equal_to_last(rows: pa.Table) -> int:
    """Rows with the values of the last row, which they are next to."""
    same = None
    for column in rows.columns:
        found = pc.equal(column, column[-1])
        same = found if same is None else pc.and_(same, found)
    return int(pc.sum(same).as_py())


def hashes(rows: pa.RecordBatch, columns: Iterable[str]) -> npt.NDArray[np.uint64]:
    """A number for each row, equal for equal values in ``columns``, as far as they are there."""
    import pandas as pd

    found = np.zeros(rows.num_rows, np.uint64)
    for name in columns:
        if name in rows.schema.names:
            values = rows[name].dictionary_encode()
            of_value = pd.util.hash_array(values.dictionary.to_numpy(zero_copy_only=False))
            index = values.indices.fill_null(len(of_value)).to_numpy(zero_copy_only=False)
            found = found * _MIX + np.append(of_value, np.uint64(0))[index]
    return found


@contextmanager
def _opened(path: str, name: str) -> Iterator[pq.ParquetFile]:
    try:
        with storage.input_file(path) as source:
            yield pq.ParquetFile(source, page_checksum_verification=True)
    except (OSError, pa.ArrowInvalid) as error:
        raise UnreadableTableError(f"{name} cannot be read: {error}") from None


def stored_table(run: Run, name: str) -> StoredTable:
    """Listed files of a table that are there."""
    files = run.manifest["tables"].get(name, {"files": []})["files"]
    table = TABLES[name]
    return StoredTable(((storage.join(run.path, file), file) for file in files), table.arrow, table.key)


def batches(name: str, tables: Mapping[str, StoredTable], part: Part = WHOLE) -> Iterator[pa.Table]:
    """Rows of a table in batches of about :data:`BATCH_ROWS`, with a count column for each of its references.

    Rows with the same key are in one batch. Referenced rows are counted batch by batch, too: memory holds no more of
    a target than belongs to the batch. A reference whose columns are missing has no count, so that its check cannot be
    evaluated and is refused.
    """
    table = tables[name]
    references = [reference for reference in COUNTED if reference.table == name and _can_count(reference, tables)]
    # Columns of a key, so that equal keys come together.
    by = references[0].columns if references else table.key[:2]
    if not references and table.num_rows > _READ_ROWS and table.is_ordered(by, part):
        yield from table.in_order(by, part)
        return
    rows_of = [tables[one].most_rows(part) for one in (name, *(reference.target for reference in references))]
    count = -(-max(rows_of) // BATCH_ROWS) if rows_of[0] else 1
    targets = [
        tables[reference.target].spread(count, by, part, [*reference.columns, *(reference.where or ())[:1]])
        for reference in references
    ]
    for rows, *found in zip(table.spread(count, by, part), *targets, strict=True):
        for reference, target in zip(references, found, strict=True):
            rows = _with_count(rows, reference, target)
        yield rows


def _can_count(reference: Reference, tables: Mapping[str, StoredTable]) -> bool:
    target = tables.get(reference.target)
    needed = [*reference.columns, *(reference.where or ())[:1]]
    return target is not None and target.has(needed) and tables[reference.table].has(reference.columns)


def _with_count(rows: pa.Table, reference: Reference, target: pa.Table) -> pa.Table:
    """``rows`` with the number of rows of ``target`` that each refers to."""
    columns = list(reference.columns)
    if reference.where is not None:
        target = target.filter(pc.equal(target[reference.where[0]], reference.where[1]))
    counted = target.group_by(columns).aggregate([([], "count_all")])
    numbered = rows.select(columns).append_column("row", pa.array(np.arange(rows.num_rows, dtype=np.int64)))
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
