"""The table ``history`` as a directory: Parquet files that tasks have written, and a document that makes them count.

``<directory>/history/part-<offsets partition>-<part>-<digits>.parquet``, then ``history.json``. Where the table is one
of a run, the directory is ``<output>/<cluster>/<window>/_history/<run id>/<id>``: the run itself is never written into.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from coordinator_core import __version__, files, storage
from coordinator_core.errors import UsageError
from coordinator_core.history.digest import PartDigest, table_digest
from coordinator_core.history.table import HISTORY
from coordinator_core.reports.history_file import parquet_pieces
from coordinator_core.runs.place import HISTORY_DIRECTORY, check_output_outside
from coordinator_core.runs.proof import FileProof, proof_of
from coordinator_core.runs.publish import STAGING, versions

TABLE, DOCUMENT = "history", "history.json"
HISTORY_VERSION = 1
"""Goes up when a column or a field of the document changes its meaning or disappears."""


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file with the rows of one part of an offsets partition. ``name`` is relative to the directory."""

    offsets_partition: int
    number: int
    name: str
    rows: int
    digest: str
    proof: FileProof


def write_part(directory: str, offsets_partition: int, number: int, tables: Iterator[pa.Table]) -> PartFile | None:
    """Write the rows of a part, whose file appears when it is whole; ``None`` without rows.

    Another attempt of the same task writes another file.
    """
    first = next(tables, None)
    if first is None:
        return None
    digest = PartDigest()
    name = f"part-{offsets_partition:05d}-{number}-{secrets.token_hex(8)}.parquet"
    staged = storage.join(directory, STAGING, name)
    # No directory is made: that of staged files is gone when the table is published.
    system, inner = storage.filesystem(staged)
    with system.open_output_stream(inner) as file:
        for pieces in parquet_pieces(_digested(first, tables, digest)):
            file.writelines(pieces)
    proof = proof_of(staged)
    storage.make_directory(storage.join(directory, TABLE), parents=False)
    files.move(staged, storage.join(directory, TABLE, name))
    return PartFile(offsets_partition, number, f"{TABLE}/{name}", digest.rows, digest.hexdigest(), proof)


def _digested(first: pa.Table, others: Iterator[pa.Table], digest: PartDigest) -> Iterator[pa.Table]:
    digest.update(first)
    yield first
    for table in others:
        digest.update(table)
        yield table


def place_beside(run_path: str) -> str:
    """Directory of the tables ``history`` of a run."""
    window, run_id = storage.split(run_path.rstrip("/"))
    return storage.join(window, HISTORY_DIRECTORY, run_id)


class HistoryWriter:
    """Publishes one table. A context manager: it removes its files, directories too, unless :meth:`commit` was reached.

    Raises :class:`UsageError` when the directory exists, and when it would lie inside one of ``sources``.
    """

    def __init__(self, directory: str, *, sources: Iterable[str]) -> None:
        check_output_outside(directory, sources)
        self.directory = directory
        try:
            self._made = files.create_directory(directory)
        except FileExistsError:
            raise UsageError(
                f"{directory} exists already; a history is never overwritten, choose another directory"
            ) from None
        self._committed = False

    def __enter__(self) -> Self:
        try:
            storage.make_directory(self.staging_path)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._committed:
            storage.delete_while_written(self.directory)
            storage.remove_empty(self._made)

    @property
    def staging_path(self) -> str:
        """Directory for messages between tasks, and for files that are not whole."""
        return storage.join(self.directory, STAGING)

    def commit(self, parts: Sequence[PartFile], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write the document, which makes ``parts`` count and deletes files of other attempts; returns it."""
        parts = sorted(parts, key=lambda part: (part.offsets_partition, part.number)) or [self._no_rows()]
        # The directory first: an attempt that still runs can then move nothing out of it.
        storage.delete_while_written(self.staging_path)
        listed = {part.name for part in parts}
        for entry in storage.list_directory(storage.join(self.directory, TABLE)):
            if f"{TABLE}/{entry.name}" not in listed:
                storage.delete(entry.path)
        document = {
            "regroup_version": __version__,
            "history_version": HISTORY_VERSION,
            **facts,
            "rows": sum(part.rows for part in parts),
            "files": [part.name for part in parts],
            "proofs": [dict(part.proof) for part in parts],
            "hash": table_digest({(part.offsets_partition, part.number): part.digest for part in parts if part.rows}),
            "versions": versions(),
        }
        files.write_json(storage.join(self.directory, DOCUMENT), document)
        self._committed = True
        return document

    def _no_rows(self) -> PartFile:
        """A file without rows, by which readers of the directory learn the columns."""
        written = write_part(self.directory, 0, 0, iter([HISTORY.empty_table()]))
        assert written is not None
        return written
