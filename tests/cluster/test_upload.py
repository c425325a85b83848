"""Captures in object storage: whole, or marked as not whole, whenever they are killed; one writer at a time."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator_core import claims, storage
from coordinator_core.cluster.snapshot import CaptureBusyError, CaptureDirectory
from coordinator_core.errors import UsageError
from coordinator_core.log.discovery import CAPTURE_MANIFEST, CAPTURE_MARKER, discover
from tests.log.object_store import ObjectStore, object_store
from tests.log.test_storage import CORPUS

GONE = "gone-0/00000000000000000000.log"

_KILLED = """
import itertools, os, signal, sys
from pathlib import Path
from coordinator_core import claims, storage
from tests.cluster.test_upload import bring_up
claims.RENEW_SECONDS, claims.QUIET_SECONDS = 3600.0, 0.2
wanted, counted = int(sys.argv[3]), itertools.count(1)
def counting(do):
    def counted_do(*arguments):
        do(*arguments)
        if next(counted) == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
    return counted_do
storage.write_atomic, storage.delete = counting(storage.write_atomic), counting(storage.delete)
bring_up(Path(sys.argv[1]), sys.argv[2])
"""


def bring_up(source: Path, place: str) -> None:
    """Have the capture at ``place`` be what ``source`` is; files that are the same stay as they are."""
    with CaptureDirectory.opened(place) as directory:
        directory.previous()
        wanted = {str(file.relative_to(source)): file for file in source.rglob("*") if file.is_file()}
        held = {str(file.relative_to(directory.path)): file for file in directory.path.rglob("*") if file.is_file()}
        for name in held.keys() - wanted.keys():
            held[name].unlink()
        for name, file in wanted.items():
            if name not in held or held[name].read_bytes() != file.read_bytes():
                (directory.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, directory.path / name)


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims of killed processes are taken over at once."""
    monkeypatch.setattr(claims, "QUIET_SECONDS", 0.2)


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """A capture of one segment."""
    segment = next(iter(sorted((CORPUS / "k082").rglob("*.log"))))
    directory = tmp_path / "captured"
    shutil.copytree(segment.parent, directory / segment.parent.name)
    (directory / CAPTURE_MANIFEST).write_text(json.dumps({"capture_version": 1, "cluster_id": "c", "topics": []}))
    return directory


@pytest.fixture
def older(captured: Path, tmp_path: Path) -> Path:
    """The capture before it: with a segment that has gone since."""
    older = tmp_path / "older"
    shutil.copytree(captured, older)
    (older / GONE).parent.mkdir()
    (older / GONE).write_bytes(b"")
    (older / CAPTURE_MANIFEST).write_text(
        json.dumps({"capture_version": 1, "cluster_id": "c", "topics": [], "notes": ["old"]})
    )
    return older


def written(place: str) -> dict[str, storage.Entry]:
    return dict(storage.files_below(place))


def names(directory: Path) -> set[str]:
    return {str(file.relative_to(directory)) for file in directory.rglob("*") if file.is_file()}


def test_killed(captured: Path, older: Path, bucket: ObjectStore, tmp_path: Path) -> None:
    """Behind each put and deletion: also when there was an older capture."""
    ended, wanted = -signal.SIGKILL, 0
    marked = []
    while ended == -signal.SIGKILL:
        wanted += 1
        place = bucket.uri(f"{tmp_path.name}/{wanted}")
        bring_up(older, place)
        command = [sys.executable, "-c", _KILLED, str(captured), place, str(wanted)]
        ended = subprocess.run(command, check=False).returncode
        assert ended in (0, -signal.SIGKILL)
        marked.append(CAPTURE_MARKER in written(place))
        if marked[-1]:
            with pytest.raises(UsageError, match="a capture that is not whole"):
                discover([place])
        else:
            assert written(place).keys() in (names(older), names(captured))
            assert discover([place]).partitions
        bring_up(captured, place)
        assert written(place).keys() == names(captured)
        assert discover([place]).partitions
        assert storage.read(f"{place}/{CAPTURE_MANIFEST}") == (captured / CAPTURE_MANIFEST).read_bytes()
    # Before are claims, behind it is the end of ours.
    first, last = marked.index(True), len(marked) - marked[::-1].index(True)
    assert marked[first:last] == [True] * (last - first)
    assert (ended, first > 1, last - first > 2) == (0, True, True)


def test_what_has_not_changed_is_not_uploaded_again(
    captured: Path, older: Path, bucket: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bucket.uri(f"{tmp_path.name}/capture")
    bring_up(older, place)
    put, puts = storage.write_atomic, list[str]()

    def noted(path: str, data: Any) -> None:
        puts.append(path)
        put(path, data)

    monkeypatch.setattr(storage, "write_atomic", noted)
    bring_up(captured, place)
    assert [path for path in puts if ".writers/" not in path] == [
        f"{place}/{CAPTURE_MARKER}",
        f"{place}/{CAPTURE_MANIFEST}",
    ]
    assert GONE in names(older) - written(place).keys()
    # Of claims only those of the last writer stay.
    assert len([entry for entry in storage.list_directory(f"{place}.writers") if "." not in entry.name]) == 1


def test_one_writes_at_a_time(
    captured: Path, bucket: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = bucket.uri(f"{tmp_path.name}/capture")
    monkeypatch.setattr(claims, "RENEW_SECONDS", 0.05)
    # The other one waits for a renewal, however long that takes.
    monkeypatch.setattr(claims, "QUIET_SECONDS", 3600)
    with CaptureDirectory.opened(place) as directory:
        with pytest.raises(CaptureBusyError, match=r"another capture is writing to it: process \d+ on"):
            bring_up(captured, place)
        shutil.copytree(captured, directory.path, dirs_exist_ok=True)
    # One that stood still too long is told, and what it has does not pass for whole.
    monkeypatch.setattr(claims, "RENEW_SECONDS", 3600)
    monkeypatch.setattr(claims, "QUIET_SECONDS", 0.2)
    stopped = CaptureDirectory.opened(place)
    directory = stopped.__enter__()
    shutil.copytree(captured, directory.path, dirs_exist_ok=True)
    bring_up(captured, place)
    with pytest.raises(CaptureBusyError, match="taken over: process"):
        stopped.__exit__(None, None, None)
    with pytest.raises(UsageError, match="a capture that is not whole"):
        discover([place])
    bring_up(captured, place)
    assert discover([place]).partitions


def test_what_a_killed_writer_left_is_no_claim(tmp_path: Path) -> None:
    """Where files are renamed into place, as in HDFS."""
    (tmp_path / ".000007-ab.renewed.00ff").touch()
    for term in (1, 2):
        with claims.Claim(str(tmp_path), "another writer", CaptureBusyError) as claim:
            assert claim.name.startswith(f"{term:06d}-")
            claim.forget_earlier()


def test_what_is_no_capture_is_left_alone(captured: Path, bucket: ObjectStore, tmp_path: Path) -> None:
    place = bucket.uri(f"{tmp_path.name}/else")
    storage.write_atomic(storage.join(place, "some", "thing"), b"x")
    with pytest.raises(UsageError, match="is not empty, and not a capture"):
        bring_up(captured, place)
