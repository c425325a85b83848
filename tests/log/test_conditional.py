"""Files that several processes replace: nothing that one of them wrote is lost, locally and in object storage."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from coordinator_core import conditional, storage
from coordinator_core.errors import RegroupError, UsageError, WriteError
from coordinator_core.runs.place import LATEST, RunPlace
from coordinator_core.runs.publish import promote
from tests.log.object_store import ObjectStore, object_store

TIMES = conditional._TRIES - 1
"""Each try of one process that fails is a put of the other: the last try is never one of them."""
_COUNTING = f"""
import sys
from coordinator_core import conditional
for _ in range({TIMES}):
    conditional.update(sys.argv[1], lambda found: b"%d" % (int(found or b"0") + 1))
"""


def create(path: str, data: bytes) -> bool:
    return conditional.update(path, lambda found: data if found is None else None)


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, bucket: ObjectStore) -> str:
    return str(tmp_path / "place") if request.param == "local" else bucket.uri(tmp_path.name)


def manifest(now_ms: int) -> dict[str, Any]:
    return {"now_ms": now_ms, **dict.fromkeys(("cluster", "window", "run_id", "profile", "complete", "state_hash"))}


def latest(place: str) -> Any:
    return json.loads(storage.read_text(storage.join(place, "c", LATEST)))


def test_two_processes_lose_nothing(place: str) -> None:
    path = storage.join(place, "count")
    counting = [subprocess.Popen([sys.executable, "-c", _COUNTING, path]) for _ in range(2)]
    assert [process.wait() for process in counting] == [0, 0]
    assert storage.read_text(path) == str(2 * TIMES)


def test_a_file_is_created_once(place: str) -> None:
    path = storage.join(place, "file")
    assert [create(path, data) for data in (b"one", b"two")] == [True, False]
    assert storage.read_text(path) == "one"


def test_who_comes_second_sees_what_the_first_has_left(
    bucket: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backfill that has read ``latest.json`` before the newest run got there does not replace it."""
    place = bucket.uri(tmp_path.name)
    found, reads = conditional._found, []

    def slow(store: Any, key: str) -> tuple[bytes | None, Any]:
        read = found(store, key)
        reads.append(read[0])
        if len(reads) == 1:
            assert promote(RunPlace(place, "c", "new", "run"), manifest(2))
        return read

    for now_ms, promoted in ((1, False), (3, True)):
        storage.delete(storage.join(place, "c", LATEST))
        reads.clear()
        monkeypatch.setattr(conditional, "_found", slow)
        assert promote(RunPlace(place, "c", "mine", "run"), manifest(now_ms)) == promoted
        assert latest(place)["path"] == ("mine/run" if promoted else "new/run")
        # Its own read, that of the other, and the one after it.
        assert [read is None for read in reads] == [True, True, False]


def test_others_that_always_come_between(bucket: ObjectStore, tmp_path: Path) -> None:
    path = bucket.uri(f"{tmp_path.name}/file")

    def change(found: bytes | None) -> bytes:
        storage.write_atomic(path, (found or b"") + b"x")
        return b"mine"

    with pytest.raises(WriteError, match="other processes write to it all the time"):
        conditional.update(path, change)


def test_a_server_that_knows_no_conditions(
    bucket: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bucket.uri(f"{tmp_path.name}/file")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    assert create(path, b"one")
    assert conditional.update(path, lambda found: (found or b"") + b" two")
    assert storage.read_text(path) == "one two"


def test_the_endpoint_of_a_uri(bucket: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, _, server = bucket.environment["AWS_ENDPOINT_URL"].partition("://")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    path = f"{bucket.uri(tmp_path.name)}/file?scheme={scheme}&endpoint_override={server}"
    assert create(path, b"one")
    assert not create(path, b"two")
    assert storage.read_text(path) == "one"


def test_a_key_may_have_any_character(bucket: ObjectStore, tmp_path: Path) -> None:
    """It is that of every other access; what stands at a part of it stays."""
    beside, path = bucket.uri(f"{tmp_path.name}/out"), bucket.uri(f"{tmp_path.name}/out#1 ~%41/file")
    storage.write_atomic(beside, b"of somebody else")
    assert create(path, b"one")
    assert not create(path, b"two")
    assert storage.read_text(path) == "one"
    assert storage.read_text(beside) == "of somebody else"


def test_what_cannot_be_replaced(bucket: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(
        WriteError, match=r"s3://no-such-bucket-there/file: cannot be replaced: .*404 Not Found$"
    ) as raised:
        create("s3://no-such-bucket-there/file", b"one")
    assert "\n" not in str(raised.value)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        create(str(tmp_path / "file/below"), b"one")


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, WriteError), (errno.EROFS, WriteError), (errno.EACCES, UsageError)],
)
def test_a_lock_file_for_which_there_is_no_room(
    number: int, expected: type[RegroupError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(RegroupError, match=f"latest: cannot be written: {os.strerror(number)}") as raised:
        create(str(tmp_path / "latest"), b"1")
    assert type(raised.value) is expected


def test_half_an_upload_is_no_object(bucket: ObjectStore, tmp_path: Path) -> None:
    path = bucket.uri(f"{tmp_path.name}/plan.json")

    def portions() -> Iterator[bytes]:
        yield b"half"
        raise OSError("no more")

    with pytest.raises(UsageError, match="no more"):
        storage.write_atomic(path, portions())
    assert not storage.exists(path)


def test_where_a_file_is_seen_while_it_is_written_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in HDFS: a file system that is neither local by its URI nor an object store."""
    system = pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem())
    monkeypatch.setattr(storage, "_remote", lambda root, query: (system, ""))
    path, file = "hdfs://name/above/file", tmp_path / "above/file"
    storage.write_atomic(path, b"before")

    def portions() -> Iterator[bytes]:
        yield b"half"
        assert file.read_bytes() == b"before"
        if failing:
            raise OSError("no more")

    failing = True
    with pytest.raises(UsageError, match="no more"):
        storage.write_atomic(path, portions())
    assert [each.name for each in file.parent.iterdir()] == ["file"]
    failing = False
    storage.write_atomic(path, portions())
    assert (file.read_bytes(), len(list(file.parent.iterdir()))) == (b"half", 1)
    # Two at once cannot be told there; one behind the other can.
    assert conditional.update(path, lambda found: (found or b"") + b"!")
    assert not create(path, b"other")
    assert file.read_bytes() == b"half!"
