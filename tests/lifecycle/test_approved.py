"""A plan of a compaction is the one whose bytes were approved, also when its files are replaced while it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.fold.pin import write_pin
from coordinator_core.lifecycle.approved import plan_document, read_plan, write_plan
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import profile_for_release


def write(directory: Path, snapshot: Snapshot, now_ms: int) -> str:
    """A plan and its snapshot manifest; the digest of the plan."""
    write_pin(snapshot, str(directory / "pin.json"))
    pin, label = str(directory / "pin.json"), profile_for_release("4.3.1").label
    options = {"expire": False, "offsets_retention_ms": None, "delete_retention_ms": 1}
    document = plan_document(pin, label, [], now_ms=now_ms, partial=False, options=options)
    return write_plan(str(directory / "plan.json"), document)


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Path, str]:
    """The directory of a plan of an empty snapshot, and its digest."""
    return tmp_path, write(tmp_path, Snapshot((), (), (), (), {}), 1)


def replaced_behind(monkeypatch: pytest.MonkeyPatch, path: Path, content: bytes) -> None:
    """Replace the file as soon as it was read once."""
    read = storage.read

    def reading(place: str, size: int | None = None) -> memoryview:
        found = read(place, size)
        if place == str(path):
            path.write_bytes(content)
        return found

    monkeypatch.setattr(storage, "read", reading)


def test_the_plan_is_of_the_bytes_that_were_hashed(planned: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    directory, digest = planned
    path = directory / "plan.json"
    replaced_behind(monkeypatch, path, path.read_bytes().replace(b'"now_ms": 1', b'"now_ms": 2'))
    assert read_plan(str(path), digest).document["now_ms"] == 1
    with pytest.raises(UsageError, match="is not the plan that was approved"):
        read_plan(str(path), digest)


def test_the_snapshot_manifest_is_of_the_bytes_that_were_hashed(
    planned: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, digest = planned
    path = directory / "pin.json"
    replaced_behind(monkeypatch, path, path.read_bytes().replace(b'"sources": []', b'"sources": ["elsewhere"]'))
    assert read_plan(str(directory / "plan.json"), digest).pin.snapshot.sources == ()
    with pytest.raises(UsageError, match=r"pin\.json: the snapshot manifest of the plan is gone or another one"):
        read_plan(str(directory / "plan.json"), digest)
