"""A log directory made of records of a consumer, with ``records.json`` beside the partitions: the facts they lack.

A consumer gets records without batch headers, so without producer id and transactional bit, and no control records.
Whether a commit belongs to a transaction, and how that ended, follows from the isolation level of the consumer or is
unknown. A replay of such a directory is never complete: readers report the entries of ``records.json`` as damage, and
go on only with ``--partial``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core import __version__, storage
from coordinator_core.durations import numbered
from coordinator_core.errors import UsageError
from coordinator_core.ingest.framing import frame, window
from coordinator_core.ingest.rows import BadRowsError, Int64s, Rows, parquet_files, read_rows
from coordinator_core.ingest.unknown import RECORDS_ONLY, TRANSACTIONS_UNKNOWN
from coordinator_core.log.discovery import RECORDS_FILE
from coordinator_core.log.limits import STANDING_VARIABLE, standing_allowance
from coordinator_core.log.segments import DEFAULT_SEGMENT_BYTES, partition_directory_name, segment_name

RECORDS_VERSION = 1

_COMMIT_KEYS = pa.array([b"\0\0", b"\0\1"], pa.large_binary())


class IsolationLevel(StrEnum):
    """``isolation.level`` of the consumer that read the records."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass
class _Run:
    """The records of a partition in one file: rows and offsets of the first and the last, and counts."""

    path: str
    partition: int
    first_row: int
    first: int
    last_row: int
    last: int
    records: int = 0
    commits: int = 0
    tombstones: int = 0
    """Tombstones of committed offsets."""
    first_missing: int | None = None

    def add(self, rows: Rows) -> None:
        before = np.concatenate([[self.last if self.records else self.first - 1], rows.offset[:-1]])
        wrong = np.flatnonzero(rows.offset <= before)
        if len(wrong):
            at = int(wrong[0])
            previous = self.last_row if at == 0 else int(rows.row[at - 1])
            same = rows.offset[at] == before[at]
            raise BadRowsError(
                self.path,
                int(rows.row[at]),
                "duplicate_offset" if same else "misordered_offset",
                f"partition {self.partition}, offset {rows.offset[at]} behind {before[at]} in row {previous}",
            )
        gaps = np.flatnonzero(rows.offset > before + 1)
        if len(gaps) and self.first_missing is None:
            self.first_missing = int(before[gaps[0]]) + 1
        is_commit = np.asarray(pc.is_in(pc.binary_slice(rows.key, 0, 2), _COMMIT_KEYS))
        is_tombstone = np.asarray(rows.value.is_null())
        self.tombstones += int((is_commit & is_tombstone).sum())
        self.commits += int((is_commit & ~is_tombstone).sum())
        self.records += len(rows)
        self.last, self.last_row = int(rows.offset[-1]), int(rows.row[-1])


@dataclass
class _Segment:
    path: Path
    window: int
    size: int = 0

    def append(self, batch: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(batch)
        self.size += len(batch)


def import_records(
    paths: Sequence[str], output: str, isolation_level: IsolationLevel, *, segment_bytes: int = DEFAULT_SEGMENT_BYTES
) -> dict[str, Any]:
    """Make the log directory ``output`` of Parquet files; returns the content of its ``records.json``.

    Raises ``UsageError`` for paths that cannot be used, :class:`BadRowsError` for the first row that no consumer can
    have read; neither leaves anything behind.
    """
    files = parquet_files(paths)
    with storage.new_directory(output, over_empty=True) as making:
        runs = [run for path in files for run in _import_file(path, making, segment_bytes)]
        if not runs:
            raise UsageError(f"{', '.join(paths)}: no record in {numbered(len(files), 'file')}")
        document = _document(runs, files, isolation_level)
        text = json.dumps(document, indent=1, ensure_ascii=False)
        storage.write_text(str(making / RECORDS_FILE), text + "\n")
    return document


def _import_file(path: str, directory: Path, segment_bytes: int) -> list[_Run]:
    """Segments made of the records of one file; a segment is named by its first record offset."""
    runs: dict[int, _Run] = {}
    segments: dict[int, _Segment] = {}
    entry = storage.stat(path)
    allowance, written = standing_allowance(0 if entry is None else entry.size), 0
    for rows in read_rows(path):
        row, first = int(rows.row[0]), int(rows.offset[0])
        run = runs.setdefault(rows.partition, _Run(path, rows.partition, row, first, row, first))
        run.add(rows)
        for base_offset, batch in frame(rows):
            segment = segments.get(rows.partition)
            if segment is None or segment.size >= segment_bytes or window(base_offset) != segment.window:
                path_of = directory / partition_directory_name(rows.partition) / segment_name(base_offset)
                path_of.parent.mkdir(exist_ok=True)
                segment = segments[rows.partition] = _Segment(path_of, window(base_offset))
            segment.append(batch)
            written += len(batch)
            if written > allowance:
                told = f"the records unpack to more than {allowance} bytes; {STANDING_VARIABLE} allows more"
                raise BadRowsError(path, row, "too_large", told)
    return list(runs.values())


def _document(runs: list[_Run], files: list[str], isolation_level: IsolationLevel) -> dict[str, Any]:
    by_partition: dict[int, list[_Run]] = {}
    for run in sorted(runs, key=lambda run: (run.partition, run.first)):
        by_partition.setdefault(run.partition, []).append(run)
    return {
        "records_version": RECORDS_VERSION,
        "regroup_version": __version__,
        "isolation_level": isolation_level.value,
        "files": files,
        "partitions": [_partition(parts, isolation_level) for parts in by_partition.values()],
    }


def _partition(runs: list[_Run], isolation_level: IsolationLevel) -> dict[str, Any]:
    first_missing = runs[0].first_missing
    for before, run in pairwise(runs):
        if run.first <= before.last:
            raise _overlap(before, run)
        if first_missing is None:
            first_missing = before.last + 1 if run.first > before.last + 1 else run.first_missing
    first, last = runs[0].first, runs[-1].last
    records, commits, tombstones = (
        sum(getattr(run, name) for run in runs) for name in ("records", "commits", "tombstones")
    )
    row = {
        "offsets_partition": runs[0].partition,
        "first_offset": first,
        "last_offset": last,
        "records": records,
        "commits": commits,
        "tombstones": tombstones,
        "missing_offsets": last - first + 1 - records,
        "first_missing_offset": first_missing,
    }
    kind, detail = _unknown(isolation_level, row)
    unknown = {
        "path": f"{partition_directory_name(runs[0].partition)}/{segment_name(first)}",
        "record_offset": first if first_missing is None else first_missing,
        "kind": kind,
        "detail": detail,
    }
    return row | {"unknown": unknown}


def _overlap(before: _Run, run: _Run) -> BadRowsError:
    """The error for two files whose offsets of a partition overlap: an offset is in both, or they only interleave."""
    (rows, ours), (_, theirs) = (_from_to(one, run.first, before.last) for one in (run, before))
    both, places, _ = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
    if len(both):
        said = f"partition {run.partition}, offset {both[0]} is in {before.path}, too"
        return BadRowsError(run.path, int(rows[places[0]]), "duplicate_offset", said)
    said = (
        f"partition {run.partition}, offsets {run.first} to {run.last} interleave with offsets {before.first} to "
        f"{before.last} of {before.path}; sort the rows by partition and offset before they are written"
    )
    return BadRowsError(run.path, run.first_row, "overlapping_files", said)


def _from_to(run: _Run, first: int, last: int) -> tuple[Int64s, Int64s]:
    """Rows of the offsets ``first`` to ``last``, and these offsets."""
    none = np.zeros(0, np.int64)
    parts = [(rows.row, rows.offset) for rows in read_rows(run.path) if rows.partition == run.partition]
    row, offset = (np.concatenate(each) for each in zip((none, none), *parts, strict=True))
    inside = (first <= offset) & (offset <= last)
    return row[inside], offset[inside]


def _unknown(isolation_level: IsolationLevel, row: Mapping[str, Any]) -> tuple[str, str]:
    """Kind of damage, and the facts that the records of a partition lack.

    Where a tombstone does not drop pending commits (``Profile.tombstone_drops_pending``), the marker of a
    transaction brings back the offset that was committed before it; and that may be the last record of all.
    """
    detail = f"made of {numbered(row['records'], 'record')} of offsets {row['first_offset']} to {row['last_offset']}"
    if missing := row["missing_offsets"]:
        detail += f"; {missing} in between are in none: control records, aborted, compacted away, or lost"
    if isolation_level is IsolationLevel.READ_UNCOMMITTED:
        commits = f"{row['commits']} {'commit counts' if row['commits'] == 1 else 'commits count'}"
        detail += f"; read uncommitted: {commits} as committed, also those of transactions"
        return TRANSACTIONS_UNKNOWN, f"{detail} that were aborted, or are open"
    detail += "; read committed: what was open then, and all behind it, is not here"
    if tombstones := row["tombstones"]:
        detail += (
            f"; by {numbered(tombstones, 'tombstone')} offsets count as deleted, also those that a classic coordinator"
        )
        detail += " has from transactions that ended behind the tombstone"
    return RECORDS_ONLY, detail
