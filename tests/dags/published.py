"""Checks on what a DAG run published, against the local engine over the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_from_label
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run, open_run
from tests.cases import Case
from tests.runs.state_tables import computed_state_hash, tables_of


def published(output: Path, cluster: str) -> list[Path]:
    """Directories of the published runs of a cluster, the oldest first."""
    return sorted((path.parent for path in (output / cluster).glob("[!_]*/*/manifest.json")), key=lambda run: run.name)


def local_engine(case: Case, run: Run, place: Path) -> dict[str, Any]:
    """Manifest of a run that the local engine makes of the same case, profile and time."""
    return replay_to_run(
        discover([str(path) for path in case.paths]),
        RunPlace(str(place), "local", "window", "run"),
        profile=profile_from_label(run.profile),
        now_ms=run.now_ms,
        offsets_topic_num_partitions=run.manifest["offsets_topic_num_partitions"],
    )


def check_run(path: Path, case: Case, place: Path) -> Run:
    """The run at ``path`` holds what the local engine makes of ``case``, and every table can be read."""
    run = open_run(str(path))
    assert run.manifest["complete"] is True
    expected = local_engine(case, run, place)
    assert run.state_hash == expected["state_hash"]
    assert computed_state_hash(run) == run.state_hash
    rows = {name: table.num_rows for name, table in tables_of(run).items()}
    assert rows == {name: table["rows"] for name, table in expected["tables"].items()}
    assert rows["groups"] > 0
    return run
