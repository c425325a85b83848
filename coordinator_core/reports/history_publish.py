"""The table ``history`` as a directory: Parquet files that tasks have written, and a document that makes them count.

``<directory>/history/part-<offsets partition>-<part>-<digits>.parquet``, then ``history.json``. Where the table is one
of a run, the directory is ``<output>/<cluster>/<window>/_history/<run id>/<id>``: the run itself is never written into.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from coordinator_core import __version__, storage
from coordinator_core.history.digest import PartDigest, table_digest
from coordinator_core.history.table import HISTORY
from coordinator_core.reports.history_file import parquet_pieces
from coordinator_core.runs.place import HISTORY_DIRECTORY, beside
from coordinator_core.runs.proof import FileProof
from coordinator_core.runs.publish import versions
from coordinator_core.runs.table_directory import TableDirectory, publish_file, staging_path

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
    # No directory is made: that of staged files is gone when the table is published.
    with storage.output_file(storage.join(staging_path(directory), name)) as file:
        for pieces in parquet_pieces(_digested(first, tables, digest)):
            file.writelines(pieces)
    proof = publish_file(directory, TABLE, name)
    return PartFile(offsets_partition, number, f"{TABLE}/{name}", digest.rows, digest.hexdigest(), proof)


def _digested(first: pa.Table, others: Iterator[pa.Table], digest: PartDigest) -> Iterator[pa.Table]:
    digest.update(first)
    yield first
    for table in others:
        digest.update(table)
        yield table


def place_beside(run_path: str) -> str:
    """Directory of the tables ``history`` of a run."""
    return beside(run_path, HISTORY_DIRECTORY)


class HistoryWriter(TableDirectory):
    """Publishes one table ``history``."""

    def __init__(self, directory: str, *, sources: Iterable[str]) -> None:
        super().__init__(directory, TABLE, DOCUMENT, sources=sources)

    def commit(self, parts: Sequence[PartFile], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Publish the files of these ``parts``; returns the document."""
        parts = sorted(parts, key=lambda part: (part.offsets_partition, part.number)) or [self._no_rows()]
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
        self.publish({part.name for part in parts}, document)
        return document

    def _no_rows(self) -> PartFile:
        """A file without rows, by which readers of the directory learn the columns."""
        written = write_part(self.directory, 0, 0, iter([HISTORY.empty_table()]))
        assert written is not None
        return written
