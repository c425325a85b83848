"""Captures in object storage: whole, or marked as not whole, whenever the upload is killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator_core import storage
from coordinator_core.cluster.snapshot import MANIFEST, CaptureDirectory, uploaded
from coordinator_core.errors import UsageError
from coordinator_core.log.discovery import CAPTURE_MARKER, discover
from tests.log.object_store import ObjectStore, object_store
from tests.log.test_storage import CORPUS

_UPLOAD = """
import itertools, os, signal, sys
from pathlib import Path
from coordinator_core import storage
from coordinator_core.cluster.snapshot import CaptureDirectory
wanted, counted = int(sys.argv[3]), itertools.count(1)
def counting(do):
    def counted_do(*arguments):
        do(*arguments)
        if next(counted) == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
    return counted_do
storage.write_atomic, storage.delete = counting(storage.write_atomic), counting(storage.delete)
CaptureDirectory(Path(sys.argv[1])).upload(sys.argv[2])
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """A capture of one segment."""
    segment = next(iter(sorted((CORPUS / "k082").rglob("*.log"))))
    directory = tmp_path / "captured"
    shutil.copytree(segment.parent, directory / segment.parent.name)
    (directory / MANIFEST).write_text(json.dumps({"capture_version": 1, "cluster_id": "c", "topics": []}))
    return directory


def names(place: str) -> list[str]:
    return sorted(entry.name for entry in storage.list_directory(place))


def test_killed(captured: Path, bucket: ObjectStore, tmp_path: Path) -> None:
    """Behind each put and deletion: also when there was an older capture."""
    older = tmp_path / "older"
    shutil.copytree(captured, older)
    (older / "gone-0").mkdir()
    (older / "gone-0/00000000000000000000.log").write_bytes(b"")
    ended, wanted = -signal.SIGKILL, 0
    marked = []
    while ended == -signal.SIGKILL:
        wanted += 1
        place = bucket.uri(f"{tmp_path.name}/{wanted}")
        CaptureDirectory(older).upload(place)
        command = [sys.executable, "-c", _UPLOAD, str(captured), place, str(wanted)]
        ended = subprocess.run(command, check=False).returncode
        marked.append(CAPTURE_MARKER in names(place))
        if marked[-1]:
            with pytest.raises(UsageError, match="a capture that is not whole"):
                discover([place])
        else:
            assert names(place) == names(str(captured))
        CaptureDirectory(captured).upload(place)
        assert names(place) == names(str(captured))
        assert discover([place]).partitions
        assert uploaded(place) == json.loads((captured / MANIFEST).read_text())
    # Its last kill is behind the deletion of the marker.
    assert (ended, len(marked) > 6, marked) == (0, True, [True] * (len(marked) - 2) + [False, False])


def test_what_is_no_capture_is_left_alone(bucket: ObjectStore, tmp_path: Path) -> None:
    place = bucket.uri(f"{tmp_path.name}/else")
    storage.write_atomic(storage.join(place, "some", "thing"), b"x")
    with pytest.raises(UsageError, match="is not empty, and not a capture"):
        uploaded(place)
