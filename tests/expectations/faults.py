"""Runs for the tests of the gate: of corpus cases, and copies of them with seeded faults."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import MANIFEST, RunPlace
from coordinator_core.runs.read import Run, open_run

from ..cases import case

NOW_MS = 4_000_000_000_000
Rows = list[dict[str, Any]]


def published(name: str, output: Path) -> Run:
    """The run of a corpus case."""
    item = case(name)
    place = RunPlace(str(output), "corpus", name.replace("/", "."), "r1")
    snapshot = discover([str(path) for path in item.paths])
    profile = profile_for_release(item.release, item.coordinator)
    replay_to_run(snapshot, place, profile=profile, now_ms=NOW_MS)
    return open_run(place.path)


class FaultyRun:
    """A copy of a run that can be changed; what is written keeps the manifest's row counts right."""

    def __init__(self, run: Run, directory: Path) -> None:
        self.path = Path(shutil.copytree(run.path, directory))
        self.manifest: dict[str, Any] = json.loads((self.path / MANIFEST).read_text())

    def part(self, table: str) -> Path:
        return self.path / table / "part-00000.parquet"

    def change(self, table: str, change: Callable[[Rows], object]) -> None:
        """Change the rows of a table, also so that a column which must not be null is."""
        stored = pq.read_table(self.part(table), partitioning=None)
        rows = stored.to_pylist()
        change(rows)
        schema = pa.schema([column.with_nullable(True) for column in stored.schema])
        self.write(table, pa.Table.from_pylist(rows, schema=schema))

    def write(self, table: str, rows: pa.Table) -> None:
        pq.write_table(rows, self.part(table))
        self.manifest["tables"][table]["rows"] = rows.num_rows

    def opened(self) -> Run:
        (self.path / MANIFEST).write_text(json.dumps(self.manifest))
        return open_run(str(self.path))
