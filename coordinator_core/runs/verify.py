"""Verification of a published run: every file of its tables, and the state that they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.runs.proof import check_file
from coordinator_core.runs.publish import MANIFEST
from coordinator_core.runs.read import Run, RunError
from coordinator_core.runs.state_hash import all_digests, state_hash


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

    Who rewrites the tables and the manifest is found out by the signature alone (``runs.signature``).
    :class:`RunError` for runs of earlier versions, whose manifests tell no digests.
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
    if not damage and (found := state_hash(all_digests(run.tables()))) != run.state_hash:
        detail = f"the state hash of the tables is {found}, the manifest says {run.state_hash}"
        damage.append(Damage(storage.join(run.path, MANIFEST), 0, None, "changed_since_published", detail))
    return RunReport(tuple(files), tuple(damage))
