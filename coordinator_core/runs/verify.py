"""Verification of a published run: every file of its tables, and the state that they hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.runs.place import MANIFEST
from coordinator_core.runs.proof import check_file
from coordinator_core.runs.read import Run, RunError
from coordinator_core.runs.schemas import TABLES
from coordinator_core.runs.state_hash import (
    COORDINATES,
    PartitionDigest,
    TableDigests,
    all_digests,
    is_ascending,
    state_hash,
)

_METADATA = "metadata"
"""Column of tables that are digested a block at a time."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """``files`` are the paths of the files that were checked."""

    files: tuple[str, ...]
    damage: tuple[Damage, ...]
    segments: tuple[()] = ()
    """None: a run has files of tables."""

    @property
    def status(self) -> str:
        return "damaged" if self.damage else "clean"

    def as_dict(self) -> dict[str, Any]:
        """The document of ``regroup verify --format json``; of a run it has ``files``, and no segments."""
        damage = [found.as_dict() for found in self.damage]
        return {"status": self.status, "segments": [], "files": list(self.files), "damage": damage}


def verify_run(run: Run) -> RunReport:
    """Check all bytes of the run against its manifest, and the state hash of its rows.

    A forger of tables and manifest is found out by the signature alone (``runs.signature``). :class:`RunError` for runs
    of earlier versions, whose manifests tell no digests.
    """
    files, damage = [], []
    for table in run.manifest["tables"]:
        for path, proof in run.parquet_files(table):
            if proof is None:
                raise RunError(f"{run.path}: its manifest has no digests, as those of earlier versions; replay again")
            files.append(path)
            try:
                check_file(path, proof)
            except DamagedInputError as error:
                damage.append(error.damage)
    if not damage and (found := state_hash(_digests(run))) != run.state_hash:
        detail = f"the state hash of the tables is {found}, the manifest says {run.state_hash}"
        damage.append(Damage(storage.join(run.path, MANIFEST), 0, None, "changed_since_published", detail))
    return RunReport(tuple(files), tuple(damage))


def _digests(run: Run) -> TableDigests:
    digests: TableDigests = {}
    for name in (one for one in TABLES if run.has_table(one)):
        large = _METADATA in TABLES[name].arrow.names and _is_ordered(run, name)
        digests |= _in_blocks(run, name) if large else all_digests({name: run.table(name)})
    return digests


def _is_ordered(run: Run, name: str) -> bool:
    """Whether the rows are in the order that the state hash takes them in, as we write them."""
    places = pa.schema([TABLES[name].arrow.field(one) for one in COORDINATES])
    rows = pa.concat_tables([places.empty_table(), *(rows for _, rows in run.blocks(name, places))])
    return is_ascending(*(column.to_numpy() for column in rows.columns))


def _in_blocks(run: Run, name: str) -> TableDigests:
    """Digests of ordered rows: their metadata may unpack to gigabytes."""
    digests = {}
    place = pa.schema([TABLES[name].arrow.field(COORDINATES[0])])
    counts = Counter(number for _, rows in run.blocks(name, place) for number in rows[0].to_pylist())
    blocks = (rows for _, rows in run.blocks(name, TABLES[name].arrow))
    parts = (
        (number, rows.filter(pc.equal(rows[COORDINATES[0]], number)))
        for rows in blocks
        for number in pc.unique(rows[COORDINATES[0]]).to_pylist()
    )
    for number, found in groupby(parts, key=itemgetter(0)):
        digest = PartitionDigest(name, counts[number])
        for _, rows in found:
            digest.update(rows)
        digests[name, number] = digest.hexdigest()
    return digests
