"""Publishing a run: tables first, ``manifest.json`` last, then ``latest.json`` beside the runs.

Layout: ``<output>/<cluster>/<window>/<run id>/<table>/part-*.parquet``.  A run exists for readers from the
moment its manifest is there, and never changes afterwards.
"""

from __future__ import annotations

import os
import platform
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from coordinator_core import __version__, files, storage
from coordinator_core.errors import RegroupError, UsageError
from coordinator_core.merge.schema import RowBlocks
from coordinator_core.runs.parquet_output import ParquetOutput
from coordinator_core.runs.place import LATEST, MANIFEST, RunPlace, check_sources
from coordinator_core.runs.proof import FileProof, proof_of
from coordinator_core.runs.schemas import SCHEMA_VERSION, TABLES
from coordinator_core.runs.state_hash import (
    STATE_HASH_VERSION,
    PartitionDigest,
    TableDigests,
    canonical_rows,
    combined_hash,
    digests_of,
    state_hash,
)
from coordinator_core.runs.table_directory import remove_other_attempts, remove_unpublished, staging_path

_VERSIONED_PACKAGES = ("numpy", "pyarrow", "pyspark")
ROW_GROUP_ROWS = 1 << 17

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A Parquet file of a run. ``name`` is relative to the run."""

    table: str
    name: str
    rows: int
    proof: FileProof


class RunWriter:
    """Writes one run. A context manager: it removes its files, directories too, unless :meth:`commit` was reached.

    Raises :class:`UsageError` when the run directory exists, also when an aborted run left it, and where
    :func:`~coordinator_core.runs.place.check_sources` refuses ``sources``.
    """

    def __init__(self, place: RunPlace, *, sources: Sequence[str]) -> None:
        check_sources(place.output, place.cluster, sources)
        self.place = place
        try:
            self._made = files.create_directory(place.path)
        except FileExistsError:
            raise UsageError(
                f"{place.path} exists already; a run is never overwritten, choose another run id"
            ) from None
        self._parts: dict[str, _PartWriter] = {}
        self._files: dict[str, list[TableFile]] = {name: [] for name in TABLES}
        self._digests: TableDigests = {}
        self._committed = False
        self._has_tasks = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._committed:
            try:
                with suppress(RegroupError):
                    self._close_parts()
            finally:
                remove_unpublished(self.place.path, self._made)

    @property
    def staging_path(self) -> str:
        """Directory for tasks of this run, see :class:`StagedTables`."""
        return staging_path(self.place.path)

    def write_tables(self, tables: Mapping[str, pa.Table | RowBlocks], *, is_last: bool = False) -> None:
        """Append rows, in canonical order, and take in their digests. The rows of one table come from one thread.

        All rows of an offsets partition must come in one call; ``RowBlocks`` are those of one partition. ``is_last``:
        no rows of these tables come afterwards, and their files are closed.
        """

        def write(name: str, rows: pa.Table | RowBlocks) -> None:
            if rows.num_rows:
                self._digests |= self._part(name).write(rows)
            if is_last:
                # The disk takes it while other tables are written.
                self._close(name)

        with ThreadPoolExecutor(max(len(tables), 1)) as threads:
            for _ in threads.map(write, tables, tables.values()):
                pass

    def adopt(self, staged: Sequence[TableFile], digests: TableDigests) -> None:
        """Let files that tasks have put into their tables (:class:`StagedTables`) count, in the order given.

        Files of other attempts of those tasks go when the run is committed.
        """
        for file in staged:
            self._files[file.table].append(file)
        self._digests |= digests
        self._has_tasks = True

    def commit(self, facts: Mapping[str, Any], *, seconds: float, steps: Mapping[str, float]) -> Manifest:
        """Write the manifest, which makes the run visible, and return it.

        ``facts`` are the fields that the replay knows (``coordinator_core.runs.manifest.ReplayFacts``).
        """
        for name, written in self._files.items():
            if not written:
                self._part(name)
        self._close_parts()
        if self._has_tasks:
            listed = {file.name for written in self._files.values() for file in written}
            remove_other_attempts(self.place.path, self._files, listed)
        manifest: Manifest = {
            "regroup_version": __version__,
            "schema_version": SCHEMA_VERSION,
            "cluster": self.place.cluster,
            "window": self.place.window,
            "run_id": self.place.run_id,
            **facts,
            "tables": {
                name: {
                    "rows": sum(file.rows for file in written),
                    "files": [file.name for file in written],
                    "proofs": [dict(file.proof) for file in written],
                    "hash": combined_hash(self._digests, [name]),
                }
                for name, written in self._files.items()
            },
            "state_hash": state_hash(self._digests),
            "state_hash_version": STATE_HASH_VERSION,
            # Null: no rule has looked at this run. A count would say that one has.
            "findings": {"critical": None, "warning": None, "info": None},
            "versions": versions(),
            "seconds": round(seconds, 3),
            "steps": {name: round(duration, 3) for name, duration in steps.items()},
        }
        files.write_json(storage.join(self.place.path, MANIFEST), manifest)
        self._committed = True
        return manifest

    def _part(self, table: str) -> _PartWriter:
        if table not in self._parts:
            storage.make_directory(storage.join(self.place.path, table), parents=False)
            name = f"{table}/part-{len(self._files[table]):05d}.parquet"
            self._parts[table] = _PartWriter(storage.join(self.place.path, name), table, name)
        return self._parts[table]

    def _close(self, table: str) -> None:
        """Close the file of a table, which has no rows where none were written."""
        self._files[table].append(self._part(table).close())
        del self._parts[table]

    def _close_parts(self) -> None:
        # Each of them waits for the disk.
        with ThreadPoolExecutor() as threads:
            for _ in threads.map(self._close, list(self._parts)):
                pass


class _PartWriter:
    """One open Parquet file."""

    def __init__(self, path: str, table: str, name: str) -> None:
        schema = TABLES[table]
        # Numbers are offsets, times and counts: most go up from row to row, and hardly any comes twice.
        numbers = {field.name for field in schema.arrow if field.type == pa.int64()}
        self._writer = ParquetOutput(
            path,
            schema.arrow,
            compression="zstd",
            use_dictionary=[name for name in schema.arrow.names if name not in numbers],
            column_encoding=dict.fromkeys(sorted(numbers), "DELTA_BINARY_PACKED"),
            write_statistics=list(schema.key),
            write_page_checksum=True,
        )
        self._rows = 0
        self._path, self._name = path, name
        self.table = table

    def write(self, rows: pa.Table | RowBlocks) -> TableDigests:
        """Append rows, not none, and return their digests."""
        self._rows += rows.num_rows
        if isinstance(rows, pa.Table):
            canonical = canonical_rows(self.table, rows)
            self._writer.write_table(canonical, row_group_size=ROW_GROUP_ROWS)
            return digests_of(self.table, canonical)
        digest = PartitionDigest(self.table, rows.num_rows)
        encoded: deque[Future[None]] = deque()
        # Pieces are small, so that the next one is made in the memory of one before: while the last one is encoded.
        with ThreadPoolExecutor(1) as encoder:
            for piece in rows.blocks(ROW_GROUP_ROWS):
                canonical = canonical_rows(self.table, piece)
                if len(encoded) > 1:
                    encoded.popleft().result()
                encoded.append(encoder.submit(self._writer.write_table, canonical))
                digest.update(canonical)
            partition = canonical.column("offsets_partition")[0].as_py()
            found = {(self.table, partition): digest.hexdigest()}
            for future in encoded:
                future.result()
        return found

    def close(self) -> TableFile:
        self._writer.close()
        return TableFile(self.table, self._name, self._rows, proof_of(self._path))


class StagedTables:
    """Tables that a task writes into a run, apart from other attempts of the task; for :meth:`RunWriter.adopt`.

    Files have the number of the first offsets partition in their name, so that directories list them in order.
    """

    def __init__(self, run_path: str, first_partition: int) -> None:
        self._path = run_path
        self._name = f"part-{first_partition:05d}-{os.urandom(8).hex()}.parquet"
        self._parts: dict[str, _PartWriter] = {}
        self._digests: TableDigests = {}

    def write_tables(self, tables: Mapping[str, pa.Table | RowBlocks]) -> None:
        """Like :meth:`RunWriter.write_tables`."""
        for table, rows in tables.items():
            if rows.num_rows:
                if table not in self._parts:
                    directory = storage.join(staging_path(self._path), table)
                    # Not the directory of staged files itself: that is gone when the run is committed.
                    storage.make_directory(directory, parents=False)
                    path = storage.join(directory, self._name)
                    self._parts[table] = _PartWriter(path, table, f"{table}/{self._name}")
                self._digests |= self._parts[table].write(rows)

    def close(self) -> tuple[list[TableFile], TableDigests]:
        """The files, whole now and moved into their tables, and the digests of their rows."""
        written = [part.close() for part in self._parts.values()]
        for file in written:
            storage.make_directory(storage.join(self._path, file.table), parents=False)
            files.move(storage.join(staging_path(self._path), file.name), storage.join(self._path, file.name))
        return written, self._digests


def versions() -> dict[str, str | None]:
    """Versions of packages on which the result may depend; null for a package that had no part in it."""
    # importlib.metadata knows them, too; to load it takes some 40 ms.
    found = {package: getattr(sys.modules.get(package), "__version__", None) for package in _VERSIONED_PACKAGES}
    return {"regroup": __version__, "python": platform.python_version(), **found}


def promote(place: RunPlace, manifest: Manifest) -> bool:
    """Let ``latest.json`` of the cluster name this run; false when it names one with a later ``now_ms``.

    So a backfill of an old window does not hide the newest run, also when both end at once (:mod:`conditional`). An
    error says that the run is there.
    """
    names = ("cluster", "window", "run_id", "now_ms", "profile", "complete", "state_hash")
    named = {"path": place.relative_path, **{name: manifest[name] for name in names}}
    try:
        return files.let_latest(storage.join(place.cluster_path, LATEST), named)
    except RegroupError as error:
        raise type(error)(f"{error}; the run is published: {place.path}") from None
