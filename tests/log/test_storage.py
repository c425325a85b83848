"""Files by path and by URI."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator_core import conditional, storage
from coordinator_core.cli.app import run
from coordinator_core.errors import ExitCode, RegroupError, UsageError
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.verify import verify
from tests.log.object_store import ObjectStore, object_store

CORPUS = Path(__file__).resolve().parent.parent / "corpus"


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture(params=["path", "file URI", "object store"])
def root(request: pytest.FixtureRequest, tmp_path: Path, bucket: ObjectStore) -> str:
    """An empty place to keep files, named in each of the ways."""
    directory = tmp_path / "a place"
    if request.param == "object store":
        place = bucket.uri(f"a place/{tmp_path.name}")
        storage.make_directory(place)
        return place
    directory.mkdir()
    return str(directory) if request.param == "path" else directory.as_uri()


class TestEveryKindOfPath:
    def test_what_is_written_is_read(self, root: str) -> None:
        path = storage.join(root, "table", "part 1.bin")
        for data in (b"first", b"", b"x" * 300_000):
            storage.write_atomic(path, data)
            assert bytes(storage.read(path)) == data
        found = storage.stat(path)
        assert found is not None
        assert (found.name, found.path, found.is_directory, found.size) == (
            "part 1.bin",
            path,
            False,
            300_000,
        )

    def test_text(self, root: str) -> None:
        path = storage.join(root, "text")
        storage.write_atomic(path, "grüße".encode() + b"\xff")
        assert storage.read_text(path) == "grüße\ufffd"

    def test_listing(self, root: str) -> None:
        for name in ("b", "a", "inner/c"):
            storage.write_atomic(storage.join(root, *name.split("/")), b"12")
        assert [(entry.name, entry.path, entry.is_directory, entry.size) for entry in storage.list_directory(root)] == [
            ("a", storage.join(root, "a"), False, 2),
            ("b", storage.join(root, "b"), False, 2),
            ("inner", storage.join(root, "inner"), True, 0),
        ]

    def test_what_is_not_there(self, root: str) -> None:
        path = storage.join(root, "gone")
        assert storage.stat(path) is None
        assert not storage.exists(path)
        storage.delete(path)
        with pytest.raises(UsageError, match="gone"):
            storage.read(path)
        with pytest.raises(UsageError, match="gone"):
            storage.list_directory(path)

    def test_deleting(self, root: str) -> None:
        file, inner = storage.join(root, "keep", "file"), storage.join(root, "go", "inner", "file")
        for path in (file, inner):
            storage.write_atomic(path, b"1")
        storage.delete(storage.join(root, "go"))
        assert not storage.exists(inner)
        storage.delete(file)
        assert not storage.exists(file)

    def test_directories(self, root: str) -> None:
        path = storage.join(root, "one", "two")
        storage.make_directory(path)
        storage.make_directory(path)
        found = storage.stat(path)
        assert found is not None
        assert found.is_directory

    def test_a_directory_without_parents_is_no_object(self, root: str) -> None:
        path = storage.join(root, "one")
        storage.make_directory(path, parents=False)
        assert storage.exists(path) == storage.is_local(root)
        storage.write_atomic(storage.join(path, "file"), b"1")
        assert [entry.name for entry in storage.list_directory(path)] == ["file"]

    def test_the_arrow_filesystem_names_the_same_file(self, root: str) -> None:
        path = storage.join(root, "file")
        storage.write_atomic(path, b"content")
        system, inner = storage.filesystem(path)
        with system.open_input_file(inner) as stream:
            assert stream.read() == b"content"

    def test_names_stay_as_they_are(self, root: str) -> None:
        for name in ("100%41", "a#b", "grün", "a+b=c:d@e"):
            storage.write_atomic(storage.join(root, name, "file"), name.encode())
            (entry,) = (one for one in storage.list_directory(root) if one.name == name)
            ((below, file),) = storage.files_below(entry.path)
            assert (below, storage.read_text(file.path)) == ("file", name)
            assert storage.split(entry.path) == (root, name)
            assert storage.stat(entry.path) == entry

    def test_what_lies_below_is_sorted_and_has_its_directories(self, root: str) -> None:
        for names in (("one", "b", "2"), ("one", "b.c"), ("one", "b", "1"), ("three",)):
            storage.write_atomic(storage.join(root, *names), b"1")
        storage.make_directory(storage.join(root, "two"))
        found = dict(storage.entries_below(root))
        assert list(found) == ["one", "one/b", "one/b/1", "one/b/2", "one/b.c", "three", "two"]
        assert [name for name, entry in found.items() if entry.is_directory] == ["one", "one/b", "two"]
        for name, entry in found.items():
            assert (entry.name, entry.path) == (name.rpartition("/")[2], storage.join(root, *name.split("/")))
            assert entry.size == (0 if entry.is_directory else 1)
        assert list(storage.files_below(root)) == [item for item in found.items() if not item[1].is_directory]
        assert list(storage.entries_below(storage.join(root, "missing"))) == []

    def test_parents(self, root: str) -> None:
        assert storage.split(storage.join(root, "one", "two")) == (storage.join(root, "one"), "two")


class TestLocalFiles:
    @pytest.mark.parametrize("size", [6, 3 << 20])
    def test_what_was_read_stays(self, tmp_path: Path, size: int) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"x" * size)
        view = storage.read(str(path))
        os.truncate(path, 0)
        assert bytes(view) == b"x" * size

    def test_the_beginning_of_a_file_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"before")
        assert bytes(storage.read(str(tmp_path / "file"), 2)) == b"be"
        assert bytes(storage.read(str(tmp_path / "file"), 20)) == b"before"

    def test_pipes_and_devices_are_not_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path in (str(tmp_path / "pipe"), "/dev/zero"):
            with pytest.raises(UsageError, match="not a regular file"):
                storage.read(path)

    def test_writing_replaces_the_file_as_a_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(b"before")
        view = storage.read(str(path))
        storage.write_atomic(str(path), b"after!")
        assert bytes(view) == b"before"
        assert path.read_bytes() == b"after!"
        assert os.listdir(tmp_path) == ["file"]

    def test_a_pipe_or_a_device_stays_what_it_is(self, tmp_path: Path) -> None:
        pipe, taken = tmp_path / "pipe", tmp_path / "taken"
        os.mkfifo(pipe)
        with taken.open("wb") as out, subprocess.Popen(["cat", str(pipe)], stdout=out) as reader:
            storage.write_atomic(str(pipe), [b"to ", b"a reader"])
        assert reader.returncode == 0
        assert taken.read_bytes() == b"to a reader"
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        # As /dev/stdout is a link to what the process has open.
        stdout = tmp_path / "stdout"
        with taken.open("wb") as out:
            stdout.symlink_to(f"/proc/self/fd/{out.fileno()}")
            storage.write_atomic(str(stdout), b"redirected")
        assert stdout.is_symlink()
        assert taken.read_bytes() == b"redirected"
        assert sorted(tmp_path.iterdir()) == [pipe, stdout, taken]

    @pytest.mark.parametrize("form", ["/dev/fd/{}", "/proc/self/fd/{}", "a link"])
    def test_a_file_that_is_open_is_not_written_over(self, form: str, tmp_path: Path) -> None:
        """As standard output that is redirected to a file: what the shell or the command writes there stays."""
        taken, link = tmp_path / "taken", tmp_path / "link"
        with taken.open("wb", buffering=0) as out:
            out.write(b"before ")
            link.symlink_to(f"/dev/fd/{out.fileno()}")
            storage.write_atomic(str(link) if form == "a link" else form.format(out.fileno()), [b"the ", b"result"])
            out.write(b" behind")
        assert taken.read_bytes() == b"before the result behind"
        assert sorted(tmp_path.iterdir()) == [link, taken]

    def test_a_failed_write_leaves_nothing_behind(self, tmp_path: Path) -> None:
        (tmp_path / "file").mkdir()
        with pytest.raises(UsageError, match="cannot be written"):
            storage.write_atomic(str(tmp_path / "file"), b"x")
        assert os.listdir(tmp_path) == ["file"]

    def test_written_files_have_the_mode_of_ordinary_ones(self, tmp_path: Path) -> None:
        storage.write_atomic(str(tmp_path / "ours"), b"")
        (tmp_path / "other").touch()
        assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode

    def test_links_are_followed_and_dangling_ones_left_out(self, tmp_path: Path) -> None:
        (tmp_path / "directory").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "directory")
        (tmp_path / "dangling").symlink_to(tmp_path / "gone")
        assert [(entry.name, entry.is_directory) for entry in storage.list_directory(str(tmp_path))] == [
            ("directory", True),
            ("link", True),
        ]

    def test_a_uri_names_any_file(self, tmp_path: Path) -> None:
        for name in ("a?b", "line\nline", os.fsdecode(b"\xff")):
            (tmp_path / name).write_bytes(b"1")
            path = storage.join(tmp_path.as_uri(), name)
            assert bytes(storage.read(path)) == b"1"
            assert storage.split(path) == (tmp_path.as_uri(), name)

    def test_what_has_the_longest_name_is_deleted(self, tmp_path: Path) -> None:
        (tmp_path / ("r" * 255)).mkdir()
        storage.delete_while_written(str(tmp_path / ("r" * 255)))
        assert os.listdir(tmp_path) == []

    def test_a_directory_cannot_be_read_as_a_file(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            storage.read(str(tmp_path))

    @pytest.mark.parametrize(
        "path, parent, name",
        [
            ("/a/b", "/a", "b"),
            ("/a", "/", "a"),
            ("a", ".", "a"),
            ("a/b/", "a", "b"),
            ("s3://b/k?x=1", "s3://b?x=1", "k"),
        ],
    )
    def test_split(self, path: str, parent: str, name: str) -> None:
        assert storage.split(path) == (parent, name)


class TestObjectStore:
    def test_unknown_kinds_of_uri(self) -> None:
        with pytest.raises(UsageError, match="carrier-pigeon"):
            storage.stat("carrier-pigeon://coop/file")

    def test_credentials_in_a_uri_are_refused_and_not_repeated(self) -> None:
        """Paths are printed and end up in manifests."""
        with pytest.raises(UsageError, match="credentials") as caught:
            storage.stat("s3://key:secret@bucket/log?region=eu")
        assert "key" not in str(caught.value)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("key", ["/x", "x//y"])
    def test_an_empty_name_in_a_key_is_refused(self, key: str, bucket: ObjectStore) -> None:
        refusing: list[Callable[[str], object]] = [
            storage.stat,
            storage.list_directory,
            storage.read,
            storage.make_directory,
            storage.delete,
            lambda path: storage.write_atomic(path, b""),
            lambda path: conditional.update(path, lambda _: b""),
        ]
        for refused in refusing:
            with pytest.raises(UsageError, match="two slashes with no name between them"):
                refused(bucket.uri(key))
        # A slash at the end is none in a key.
        assert storage.stat(f"{bucket.uri('')}/") is not None
        with pytest.raises(UsageError, match="credentials"):
            storage.stat(f"s3://key:secret@{bucket.bucket}/{key}")

    @pytest.mark.parametrize("words", [["list", "URI"], ["replay", "demo/shop", "--cluster", "c", "--output", "URI"]])
    def test_a_command_says_so(self, words: list[str], bucket: ObjectStore, capfd: pytest.CaptureFixture[str]) -> None:
        assert run([bucket.uri("/x") if word == "URI" else word for word in words]) == ExitCode.USAGE
        assert "two slashes with no name between them" in capfd.readouterr().err

    @pytest.mark.parametrize("case", ["kmix-0102-241/cleaned", "k431-cluster"])
    def test_a_snapshot_is_read_as_from_files(self, bucket: ObjectStore, case: str) -> None:
        copy = bucket.copy(CORPUS / case, case)
        remote, local = discover([copy]), discover([str(CORPUS / case)])

        assert remote.topic_names == local.topic_names
        assert len(remote.ignored) == len(local.ignored)
        assert len(remote.partitions) == len(local.partitions)
        for ours, theirs in zip(remote.partitions, local.partitions, strict=True):
            assert [records for _, _, records in read_records(ours)] == [
                records for _, _, records in read_records(theirs)
            ]
            assert (ours.broker_id, ours.log_start_offset) == (theirs.broker_id, theirs.log_start_offset)
        assert [segment.sha256 for segment in verify(remote).segments] == [
            segment.sha256 for segment in verify(local).segments
        ]

    def test_one_partition_and_one_file(self, bucket: ObjectStore) -> None:
        source = CORPUS / "k431-mixed" / "log" / "__consumer_offsets-16"
        (segment,) = source.glob("*.log")
        storage.write_atomic(bucket.uri(f"one/__consumer_offsets-16/{segment.name}"), segment.read_bytes())
        for key in ("one/__consumer_offsets-16", f"one/__consumer_offsets-16/{segment.name}"):
            (log,) = discover([bucket.uri(key)]).partitions
            assert log.offsets_partition == 16
            assert sum(len(records) for _, _, records in read_records(log)) == 37

    def test_an_object_larger_than_one_part_of_an_upload(self, bucket: ObjectStore) -> None:
        data = bytes(range(256)) * (11 << 12)
        storage.write_atomic(bucket.uri("large"), data)
        assert bytes(storage.read(bucket.uri("large"))) == data


class TestNewDirectory:
    def test_it_is_there_when_it_is_whole(self, tmp_path: Path) -> None:
        target = tmp_path / "logs/new"
        with storage.new_directory(str(target)) as making:
            (making / "part").write_bytes(b"1")
            assert not target.exists()
        assert (target / "part").read_bytes() == b"1"
        (tmp_path / "ordinary").mkdir()
        assert target.stat().st_mode == (tmp_path / "ordinary").stat().st_mode
        assert list(target.parent.iterdir()) == [target]

    @pytest.mark.parametrize("error", [OSError(28, "No space left"), UsageError("no"), KeyboardInterrupt()])
    def test_what_fails_leaves_nothing(self, tmp_path: Path, error: BaseException) -> None:
        def fill(making: Path) -> None:
            (making / "part").touch()
            raise error

        expected = RegroupError if isinstance(error, OSError) else type(error)
        with pytest.raises(expected), storage.new_directory(str(tmp_path / "new")) as making:
            fill(making)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(expected), storage.new_directory(str(tmp_path / "a/b/new")) as making:
            fill(making)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("over_empty", [False, True])
    def test_what_is_there_stays(self, tmp_path: Path, over_empty: bool) -> None:
        (tmp_path / "file").touch()
        (tmp_path / "full").mkdir()
        (tmp_path / "full/kept").touch()
        for name in ("file", "full", "late"):
            path = tmp_path / name
            with (
                pytest.raises(UsageError, match=r"exists already|another process has written there"),
                storage.new_directory(str(path), over_empty=over_empty),
            ):
                storage.write_atomic(str(path / "kept"), b"")
        assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["file", "full", "kept", "late", "kept"]

    def test_another_is_as_fast(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It writes between the last look and the change of the name."""
        target = tmp_path / "above" / "new"
        monkeypatch.setattr(storage, "_refuse_existing", lambda *_: None)
        for other in (target, target / "theirs"):
            with (
                pytest.raises(UsageError, match="new: another process has written there meanwhile"),
                storage.new_directory(str(target)),
            ):
                storage.write_atomic(str(other), b"")
            assert [path.name for path in target.parent.iterdir()] == ["new"]
            if target.is_file():
                target.unlink()
        assert [path.name for path in target.iterdir()] == ["theirs"]

    def test_an_empty_directory_is_taken_when_asked(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="overwritten"), storage.new_directory(str(tmp_path)):
            pass
        with storage.new_directory(str(tmp_path / "a"), over_empty=True) as making:
            (tmp_path / "a").mkdir()
            (making / "part").touch()
        assert (tmp_path / "a/part").exists()
