"""Segments that are read of the directories that an operator names."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.log.beside import file_beside
from coordinator_core.log.discovery import discover, parse_checkpoint
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import Snapshot
from tests.log.builders import build_batch, build_empty_batch, segment_name, write_partition

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
TOPIC_ID = "PSgrW12rHJea70ahMhfyDQ"


def commits(base_offset: int, count: int = 2, *, mark: bytes = b"", leader_epoch: int = 0) -> bytes:
    items = [(b"key", mark) for _ in range(count)]
    return build_batch(base_offset, items, leader_epoch=leader_epoch)


def names(snapshot: Snapshot) -> list[str]:
    """Directory and file name of each segment, in reading order."""
    return ["/".join(Path(segment.path).parts[-2:]) for segment in snapshot.segments]


def reasons(snapshot: Snapshot) -> dict[str, str]:
    return {Path(path).name: reason for path, reason in snapshot.ignored}


def values(snapshot: Snapshot) -> list[bytes | None]:
    return [record.value for log in snapshot.partitions for _, _, records in read_records(log) for record in records]


class TestWhatPathsMayName:
    def test_a_log_dir(self, tmp_path: Path) -> None:
        for partition in (10, 2):
            write_partition(tmp_path, {0: commits(0), 2: commits(2)}, partition=partition)
        snapshot = discover([str(tmp_path)])
        assert snapshot.sources == (str(tmp_path),)
        assert [log.offsets_partition for log in snapshot.partitions] == [2, 10]
        assert names(snapshot) == [
            f"__consumer_offsets-{partition}/{segment_name(base)}" for partition in (2, 10) for base in (0, 2)
        ]
        assert [(segment.base_offset, segment.size) for segment in snapshot.partitions[0].segments] == [
            (0, len(commits(0))),
            (2, len(commits(2))),
        ]

    def test_a_number_that_no_partition_has(self, tmp_path: Path) -> None:
        """A partition is an int32."""
        write_partition(tmp_path / "log", {0: commits(0)}, partition=1 << 31)
        directory = tmp_path / f"log/__consumer_offsets-{1 << 31}"
        why = f"{directory}: no partition of Kafka has that number, which is at most 2147483647"
        for named in (tmp_path / "log", directory, directory / segment_name(0)):
            with pytest.raises(UsageError) as caught:
                discover([str(named)])
            assert why in str(caught.value)
        write_partition(tmp_path / "log", {0: commits(0)}, partition=(1 << 31) - 1)
        assert ": ".join(discover([str(tmp_path)]).ignored[0]) == why

    @pytest.mark.parametrize("depth", ["", "broker-1", "cluster/broker-1/log"])
    def test_directories_that_hold_log_dirs(self, tmp_path: Path, depth: str) -> None:
        write_partition(tmp_path / depth, {0: commits(0)}, partition=3)
        assert [log.offsets_partition for log in discover([str(tmp_path)]).partitions] == [3]

    def test_the_error_of_a_search_says_where_it_began(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As ``/``, below which directories go while others are read."""
        gone = tmp_path / "data/gone"
        gone.mkdir(parents=True)
        listed = storage.list_directory

        def listed_and_removed(path: str) -> list[storage.Entry]:
            entries = listed(path)
            if path == str(gone.parent):
                gone.rmdir()
            return entries

        monkeypatch.setattr(storage, "list_directory", listed_and_removed)
        with pytest.raises(UsageError) as error:
            discover([str(tmp_path)])
        searched = f"{tmp_path}: log directories are looked for below it"
        assert str(error.value) == f"{searched}: {gone}: cannot be read: No such file or directory"

    def test_a_partition_directory(self, tmp_path: Path) -> None:
        directory = write_partition(tmp_path, {0: commits(0)}, partition=7)
        (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 7 1\n")
        (log,) = discover([str(directory)]).partitions
        assert log.offsets_partition == 7
        assert log.log_start_offset == 1

    def test_a_partition_directory_with_a_slash_or_a_dot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        directory = write_partition(tmp_path, {0: commits(0)}, partition=7)
        (tmp_path / "meta.properties").write_text("broker.id=4\n")
        assert discover([f"{directory}/"]).partitions[0].offsets_partition == 7
        monkeypatch.chdir(directory)
        (log,) = discover(["."]).partitions
        assert (log.offsets_partition, log.broker_id) == (7, 4)

    def test_files_beside_a_log_are_found_from_within_its_partition_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = write_partition(tmp_path, {0: commits(0)}, partition=7)
        (tmp_path / ".kafka_cleanshutdown").touch()
        (tmp_path / "topology.json").touch()
        monkeypatch.chdir(directory)
        for path in (".", segment_name(0)):
            assert discover([path]).partitions[0].clean_shutdown
            assert file_beside([path], "topology.json") == storage.join(".", "..", "topology.json")
        (tmp_path / "capture.incomplete").touch()
        for path in (".", segment_name(0)):
            with pytest.raises(UsageError, match="not whole"):
                discover([path])

    def test_a_partition_directory_under_another_name_is_partition_0(self, tmp_path: Path) -> None:
        directory = tmp_path / "a copy"
        write_partition(tmp_path, {0: commits(0)}).rename(directory)
        assert [log.offsets_partition for log in discover([str(directory)]).partitions] == [0]

    def test_segment_files(self, tmp_path: Path) -> None:
        directory = write_partition(tmp_path, {0: commits(0), 2: commits(2), 4: commits(4)}, partition=7)
        (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 7 3\n")
        (tmp_path / ".kafka_cleanshutdown").touch()
        (log,) = discover([str(directory / segment_name(4)), str(directory / segment_name(0))]).partitions
        assert log.offsets_partition == 7
        assert [segment.base_offset for segment in log.segments] == [0, 4]
        assert log.log_start_offset is None
        assert log.clean_shutdown

    def test_a_segment_file_whose_directory_does_not_tell_is_of_partition_0(self, tmp_path: Path) -> None:
        file = tmp_path / "copy.log"
        file.write_bytes(commits(1234))
        (log,) = discover([str(file)]).partitions
        assert (log.offsets_partition, log.segments[0].base_offset) == (0, 1234)

    def test_other_files_beside_named_segments_are_ignored(self, tmp_path: Path) -> None:
        directory = write_partition(tmp_path, {0: commits(0)})
        index = directory / "00000000000000000000.index"
        index.touch()
        snapshot = discover([str(index), str(directory / segment_name(0))])
        assert len(snapshot.segments) == 1
        assert "index" in reasons(snapshot)[index.name]

    def test_several_paths(self, tmp_path: Path) -> None:
        write_partition(tmp_path / "one", {0: commits(0)}, partition=1)
        write_partition(tmp_path / "two", {0: commits(0)}, partition=2)
        snapshot = discover([str(tmp_path / "one"), str(tmp_path / "two")])
        assert [log.offsets_partition for log in snapshot.partitions] == [1, 2]

    def test_the_same_directory_twice_is_read_once(self, tmp_path: Path) -> None:
        directory = write_partition(tmp_path, {0: commits(0)})
        snapshot = discover([str(tmp_path), f"{tmp_path}/", str(tmp_path)])
        assert len(snapshot.segments) == 1
        assert snapshot.ignored == ()
        assert directory.name == "__consumer_offsets-0"

    def test_a_uri(self, tmp_path: Path) -> None:
        write_partition(tmp_path / "log dir", {0: commits(0)}, partition=5)
        uri = (tmp_path / "log dir").as_uri()
        snapshot = discover([uri])
        assert [segment.path for segment in snapshot.segments] == [f"{uri}/__consumer_offsets-5/{segment_name(0)}"]
        assert len(values(snapshot)) == 2


class TestRefusals:
    def test_unknown_path(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"gone: no such file") as caught:
            discover([str(tmp_path / "gone")])
        assert caught.value.exit_code == 2

    def test_directory_without_segments(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=f"{tmp_path}: no segment"):
            discover([str(tmp_path)])

    def test_every_path_must_hold_some(self, tmp_path: Path) -> None:
        write_partition(tmp_path / "one", {0: commits(0)})
        (tmp_path / "two").mkdir()
        with pytest.raises(UsageError, match="two: no segment"):
            discover([str(tmp_path / "one"), str(tmp_path / "two")])

    def test_log_dir_of_other_topics(self, tmp_path: Path) -> None:
        write_partition(tmp_path, {0: commits(0)}, topic="orders")
        (tmp_path / "meta.properties").touch()
        with pytest.raises(UsageError, match="partition of orders"):
            discover([str(tmp_path)])

    @pytest.mark.parametrize("named", ["directory", "file"])
    def test_partition_of_another_internal_topic(self, tmp_path: Path, named: str) -> None:
        directory = write_partition(tmp_path, {0: commits(0)}, topic="__transaction_state")
        with pytest.raises(UsageError, match="__transaction_state"):
            discover([str(directory if named == "directory" else directory / segment_name(0))])

    def test_only_files_that_are_no_segments(self, tmp_path: Path) -> None:
        (tmp_path / "case.json").touch()
        with pytest.raises(UsageError, match=r"case\.json"):
            discover([str(tmp_path / "case.json")])

    @pytest.mark.parametrize(
        ("data", "what"),
        [
            (gzip.compress(b"log"), "a gzip'd file or archive"),
            (b"\x28\xb5\x2f\xfd\x00", "a zstd-compressed file or archive"),
            (b"PK\x03\x04", "a zip archive"),
            (bytes(257) + b"ustar\x00", "a tar archive"),
        ],
        # The bytes of gzip have a time, and would be the name of a test.
        ids=["gzip", "zstd", "zip", "tar"],
    )
    @pytest.mark.parametrize("place", ["file", "directory", "partition"])
    def test_archives(self, tmp_path: Path, data: bytes, what: str, place: str) -> None:
        path = tmp_path / ("__consumer_offsets-0" if place == "partition" else "") / f"{segment_name(0)}.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        with pytest.raises(UsageError, match=rf"\({path}: {what}: unpack it first[);]"):
            discover([str(path if place == "file" else tmp_path)])


class TestClusters:
    """Log dirs of one cluster are one log; those of several are none."""

    def log_dir(self, path: Path, cluster_id: str, file: str = "meta.properties", partition: int = 0) -> Path:
        write_partition(path, {0: commits(0)}, partition=partition)
        text = (
            f"version=1\ncluster.id={cluster_id}\n"
            if file == "meta.properties"
            else f'{{"cluster_id": "{cluster_id}"}}'
        )
        (path / file).write_text(text)
        return path

    def test_the_id_is_that_of_the_brokers_or_the_capture(self, tmp_path: Path) -> None:
        for number, file in enumerate(("meta.properties", "capture.json")):
            self.log_dir(tmp_path / f"broker-{number}", "ab-C_1", file, number)
            assert discover([str(tmp_path / f"broker-{number}")]).cluster_id == "ab-C_1"
        # Brokers before 0.10.1 write none.
        write_partition(tmp_path / "old", {0: commits(0)}, partition=2)
        (tmp_path / "old/meta.properties").write_text("version=0\nbroker.id=2\n")
        assert discover([str(tmp_path / "old")]).cluster_id is None
        assert discover([str(tmp_path)]).cluster_id == "ab-C_1"

    def test_brokers_escape_what_java_escapes(self, tmp_path: Path) -> None:
        self.log_dir(tmp_path / "broker", r"MkU3OEVBNTcwNTJENDM2Qg\=\=")
        self.log_dir(tmp_path / "capture", "MkU3OEVBNTcwNTJENDM2Qg==", "capture.json", 1)
        assert discover([str(tmp_path)]).cluster_id == "MkU3OEVBNTcwNTJENDM2Qg=="
        # No JSON holds such an id.
        self.log_dir(tmp_path / "other", r"\ud800")
        assert discover([str(tmp_path / "other")]).cluster_id is None

    @pytest.mark.parametrize("file", ["meta.properties", "capture.json"])
    @pytest.mark.parametrize("named", ["above", "each", "partitions", "segments"])
    def test_those_of_two_are_refused(self, tmp_path: Path, file: str, named: str) -> None:
        dirs = [self.log_dir(tmp_path / "a", "one"), self.log_dir(tmp_path / "b", "two", file, 1)]
        paths = {
            "above": [tmp_path],
            "each": dirs,
            "partitions": [dirs[0] / "__consumer_offsets-0", dirs[1] / "__consumer_offsets-1"],
            "segments": [path for one in dirs for path in one.glob("*/*.log")],
        }
        with pytest.raises(UsageError, match=f"{dirs[0]} is of cluster one, {dirs[1]} of two"):
            discover([*map(str, paths[named])])

    @pytest.mark.parametrize("other", ["orders-0", "__consumer_offsets-1", f"__consumer_offsets-1.{'a' * 32}-delete"])
    def test_one_of_which_no_log_is_read_says_nothing(self, tmp_path: Path, other: str) -> None:
        self.log_dir(tmp_path / "a", "one")
        (tmp_path / "b" / other).mkdir(parents=True)
        (tmp_path / "b/meta.properties").write_text("cluster.id=two\n")
        assert discover([str(tmp_path)]).cluster_id == "one"

    @pytest.mark.parametrize(
        ("text", "damage"),
        [
            ("{", []),
            ("[]", []),
            ('{"note": "copied by cron"}', []),
            ('{"cluster_id": 7}', []),
            ('{"capture_version": 1, "cluster_id": 7}', ["bad_capture_manifest"]),
            ('{"capture_version": 1, "cluster_id": "\\ud800"}', ["bad_capture_manifest"]),
            ('{"capture_version": 1, "cluster_id": null}', []),
        ],
    )
    def test_another_value_as_id_of_a_capture_is_damage(self, tmp_path: Path, text: str, damage: list[str]) -> None:
        write_partition(tmp_path, {0: commits(0)})
        (tmp_path / "capture.json").write_text(text)
        snapshot = discover([str(tmp_path)])
        assert [one.kind for one in snapshot.damage] == damage
        assert snapshot.cluster_id is None


class TestWhatABrokerDoesNotRead:
    @pytest.mark.parametrize(
        ("suffix", "reason"),
        [("delete", "deleting"), ("future", "moved"), ("stray", "not assigned")],
    )
    def test_retired_directories(self, tmp_path: Path, suffix: str, reason: str) -> None:
        write_partition(tmp_path, {0: commits(0, mark=b"live")})
        retired = f"__consumer_offsets-0.0123456789abcdef0123456789abcdef-{suffix}"
        shutil.copytree(tmp_path / "__consumer_offsets-0", tmp_path / retired)
        snapshot = discover([str(tmp_path)])
        assert names(snapshot) == [f"__consumer_offsets-0/{segment_name(0)}"]
        assert reason in reasons(snapshot)[retired]

        shutil.rmtree(tmp_path / "__consumer_offsets-0")
        with pytest.raises(UsageError, match=reason):
            discover([str(tmp_path)])
        with pytest.raises(UsageError, match=reason):
            discover([str(tmp_path / retired)])

    def test_other_topics_and_files(self, tmp_path: Path) -> None:
        directory = write_partition(tmp_path, {0: commits(0)})
        write_partition(tmp_path, {0: b"not read"}, topic="orders", partition=3)
        for name in (
            "00000000000000000000.index",
            "00000000000000000000.timeindex",
            "00000000000000000000.txnindex",
            "00000000000000000002.snapshot",
            "00000000000000000000.log.deleted",
            "00000000000000000000.log.cleaned",
            "0.log",
            "leader-epoch-checkpoint",
            "partition.metadata",
            "notes.txt",
        ):
            (directory / name).touch()
        (directory / "subdirectory").mkdir()
        snapshot = discover([str(tmp_path)])
        assert len(snapshot.segments) == 1
        assert len(reasons(snapshot)) == 12
        assert reasons(snapshot)["orders-3"] == "partition of orders"
        assert "superseded" in reasons(snapshot)["00000000000000000000.log.deleted"]
        assert "20 digits" in reasons(snapshot)["0.log"]
        assert reasons(snapshot)["notes.txt"] == "not a file of a log"

    def test_topic_ids_are_taken_from_every_topic(self, tmp_path: Path) -> None:
        for topic, topic_id in (("__consumer_offsets", "A" * 22), ("orders", "B" * 22), ("a-b-7", "C" * 22)):
            directory = write_partition(tmp_path, {0: b""}, topic=topic, partition=1)
            (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
        gone = write_partition(tmp_path, {0: b""}, topic="gone", partition=1)
        (gone / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}")
        gone.rename(tmp_path / "gone-1.0123456789abcdef0123456789abcdef-delete")
        assert discover([str(tmp_path)]).topic_names == {
            "A" * 22: "__consumer_offsets",
            "B" * 22: "orders",
            "C" * 22: "a-b-7",
            TOPIC_ID: "gone",
        }


class TestFilesOfTheLogDir:
    def test_what_they_say(self, tmp_path: Path) -> None:
        for partition in (0, 1):
            write_partition(tmp_path, {0: commits(0)}, partition=partition)
        (tmp_path / "meta.properties").write_text("#\n#Sat Nov 21\nnode.id=3\nversion=1\ncluster.id=x\n")
        (tmp_path / ".kafka_cleanshutdown").touch()
        (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\norders 1 9\n__consumer_offsets 1 5\n")
        (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 4\n")
        logs = discover([str(tmp_path)]).partitions
        assert [(log.log_start_offset, log.recovery_point) for log in logs] == [(None, 4), (5, None)]
        assert [(log.broker_id, log.clean_shutdown) for log in logs] == [(3, True), (3, True)]

    def test_without_them(self, tmp_path: Path) -> None:
        write_partition(tmp_path, {0: commits(0)})
        (log,) = discover([str(tmp_path)]).partitions
        assert (log.log_start_offset, log.recovery_point, log.broker_id) == (None, None, None)
        assert not log.clean_shutdown

    @pytest.mark.parametrize(
        "text", ["1\n0\n", "0\n", "0\n2\n__consumer_offsets 0 1\n", "0\n1\n__consumer_offsets 0\n", "0\nx\n"]
    )
    def test_a_malformed_checkpoint_is_damage_and_otherwise_not_there(self, tmp_path: Path, text: str) -> None:
        write_partition(tmp_path, {0: commits(0)})
        path = tmp_path / "log-start-offset-checkpoint"
        path.write_text(text)
        snapshot = discover([str(tmp_path)])
        assert [(found.path, found.kind) for found in snapshot.damage] == [(str(path), "bad_checkpoint")]
        assert snapshot.partitions[0].log_start_offset is None

    def test_an_empty_checkpoint_holds_nothing(self) -> None:
        assert parse_checkpoint("") == {}


class TestSwaps:
    """A log cleaner that was interrupted; ``old`` marks what it replaced, ``new`` what it wrote."""

    def segments(self, tmp_path: Path, present: dict[str, bytes]) -> Snapshot:
        directory = tmp_path / "__consumer_offsets-0"
        directory.mkdir()
        for name, data in present.items():
            (directory / name).write_bytes(data)
        return discover([str(tmp_path)])

    def test_a_swap_replaces_all_segments_it_covers(self, tmp_path: Path) -> None:
        snapshot = self.segments(
            tmp_path,
            {
                segment_name(0): commits(0, mark=b"old"),
                segment_name(2): commits(2, mark=b"old"),
                segment_name(4): commits(4, mark=b"old"),
                segment_name(6): commits(6, mark=b"rest"),
                segment_name(0) + ".swap": commits(1, 1, mark=b"new") + commits(5, 1, mark=b"new"),
                "00000000000000000000.index.swap": b"",
            },
        )
        assert values(snapshot) == [b"new", b"new", b"rest", b"rest"]
        assert names(snapshot) == [
            f"__consumer_offsets-0/{segment_name(0)}.swap",
            f"__consumer_offsets-0/{segment_name(6)}",
        ]
        assert [reasons(snapshot)[segment_name(base)] for base in (0, 2, 4)] == ["replaced by a swap segment"] * 3

    def test_segments_in_front_of_it_stay(self, tmp_path: Path) -> None:
        snapshot = self.segments(
            tmp_path,
            {
                segment_name(0): commits(0, mark=b"rest"),
                segment_name(2): commits(2, mark=b"old"),
                segment_name(2) + ".swap": commits(3, 1, mark=b"new"),
            },
        )
        assert values(snapshot) == [b"rest", b"rest", b"new"]

    def test_renamed_swaps_are_segments_like_others(self, tmp_path: Path) -> None:
        snapshot = self.segments(
            tmp_path,
            {
                segment_name(0): commits(1, 1, mark=b"new"),
                segment_name(0) + ".deleted": commits(0, mark=b"old"),
                segment_name(2) + ".deleted": commits(2, mark=b"old"),
            },
        )
        assert values(snapshot) == [b"new"]

    def test_the_end_of_a_swap_counts_empty_batches(self, tmp_path: Path) -> None:
        snapshot = self.segments(
            tmp_path,
            {
                segment_name(0): commits(0, mark=b"old"),
                segment_name(2): commits(2, mark=b"old"),
                segment_name(0) + ".swap": commits(0, 1, mark=b"new") + build_empty_batch(1, 2),
            },
        )
        assert values(snapshot) == [b"new"]

    def test_an_empty_swap_replaces_the_segment_of_its_name(self, tmp_path: Path) -> None:
        snapshot = self.segments(
            tmp_path,
            {
                segment_name(0): commits(0, mark=b"old"),
                segment_name(2): commits(2, mark=b"rest"),
                segment_name(0) + ".swap": b"",
            },
        )
        assert values(snapshot) == [b"rest", b"rest"]

    def test_cleaned_files_are_nothing_yet(self, tmp_path: Path) -> None:
        snapshot = self.segments(
            tmp_path,
            {
                segment_name(0): commits(0, mark=b"live"),
                segment_name(0) + ".cleaned": commits(1, 1, mark=b"unfinished"),
            },
        )
        assert values(snapshot) == [b"live", b"live"]

    def test_swaps_from_the_smallest_cleaned_offset_on_belong_to_an_unfinished_split(self, tmp_path: Path) -> None:
        snapshot = self.segments(
            tmp_path,
            {
                segment_name(0): commits(0, mark=b"old"),
                segment_name(2): commits(2, mark=b"live") + commits(4, mark=b"live"),
                segment_name(0) + ".swap": commits(1, 1, mark=b"new"),
                segment_name(4) + ".swap": commits(4, mark=b"half"),
                "00000000000000000002.index.cleaned": b"",
            },
        )
        assert values(snapshot) == [b"new", b"live", b"live", b"live", b"live"]
        assert reasons(snapshot)[segment_name(4) + ".swap"] == "swap of an unfinished split"

    def test_swaps_of_a_split_replace_the_segment_they_came_from(self, tmp_path: Path) -> None:
        snapshot = self.segments(
            tmp_path,
            {
                segment_name(0): commits(0, mark=b"old") + commits(2, mark=b"old"),
                segment_name(0) + ".swap": commits(0, mark=b"new"),
                segment_name(2) + ".swap": commits(2, mark=b"new"),
                segment_name(4): commits(4, mark=b"rest"),
            },
        )
        assert values(snapshot) == [b"new"] * 4 + [b"rest"] * 2


class TestReplicas:
    def test_the_highest_leader_epoch_leads_then_the_longest_log(self, tmp_path: Path) -> None:
        for broker, (count, epoch) in {"b1": (9, 3), "b2": (4, 5), "b3": (6, 5)}.items():
            write_partition(tmp_path / broker, {0: commits(0) + commits(2, count, leader_epoch=epoch)})
        snapshot = discover([str(tmp_path)])
        assert [Path(log.directory).parts[-2] for log in snapshot.partitions] == ["b3"]
        assert [(Path(path).parts[-2], "end offset 8" in why) for path, why in snapshot.ignored] == [
            ("b1", True),
            ("b2", True),
        ]

    def test_a_torn_tail_does_not_count(self, tmp_path: Path) -> None:
        write_partition(tmp_path / "b1", {0: commits(0) + commits(2, 9)[:-3]})
        write_partition(tmp_path / "b2", {0: commits(0) + commits(2, 1)})
        assert Path(discover([str(tmp_path)]).partitions[0].directory).parts[-2] == "b2"

    def test_an_empty_active_segment_does_not_hide_the_one_before(self, tmp_path: Path) -> None:
        write_partition(tmp_path / "b1", {0: commits(0, leader_epoch=2), 2: b""})
        write_partition(tmp_path / "b2", {0: commits(0, leader_epoch=1)})
        assert Path(discover([str(tmp_path)]).partitions[0].directory).parts[-2] == "b1"


class TestCorpus:
    @pytest.mark.parametrize(
        ("case", "partitions", "segments"),
        [
            ("k431-mixed", 33, 33),
            ("k082/cleaned", 2, 7),
            ("k241/cleaned", 5, 11),
            ("kmix-0102-241/mixed", 1, 4),
            ("k431-compacted/A-uncleaned", 2, 6),
        ],
    )
    def test_case_directories(self, case: str, partitions: int, segments: int) -> None:
        snapshot = discover([str(CORPUS / case)])
        assert len(snapshot.partitions) == partitions
        assert len(snapshot.segments) == segments == len(list(CORPUS.glob(f"{case}/log/__consumer*/*.log")))
        assert snapshot.damage == ()

    def test_k431_compacted_b_keeps_deleted_segments_beside_the_cleaned_ones(self) -> None:
        snapshot = discover([str(CORPUS / "k431-compacted" / "B-cleaned-default")])
        assert len(snapshot.segments) == 6
        deleted = [path for path, why in snapshot.ignored if path.endswith(".log.deleted") and "superseded" in why]
        assert len(deleted) == 3

    def test_k431_cluster_takes_for_each_partition_the_replica_that_reaches_furthest(self) -> None:
        snapshot = discover([str(CORPUS / "k431-cluster")])
        assert [log.offsets_partition for log in snapshot.partitions] == list(range(10))
        # Broker 3 was killed before the end of the run.
        assert {log.broker_id for log in snapshot.partitions} <= {1, 2}
        assert sum("replica" in why for _, why in snapshot.ignored) == 20
        assert snapshot.damage == ()

    def test_k431_cluster_one_broker(self) -> None:
        snapshot = discover([str(CORPUS / "k431-cluster" / "broker-3" / "log")])
        assert {log.broker_id for log in snapshot.partitions} == {3}
        assert len(snapshot.partitions) == 10

    def test_k431_torn_bitflip_clean_shutdown_has_the_marker(self) -> None:
        cases = {path.name: discover([str(path)]) for path in sorted((CORPUS / "k431-torn").glob("b*"))}
        assert {name: case.partitions[0].clean_shutdown for name, case in cases.items()} == {
            "badlength": False,
            "bitflip": False,
            "bitflip-clean-shutdown": True,
        }

    def test_topic_names(self) -> None:
        names = discover([str(CORPUS / "k431-mixed")]).topic_names
        assert sorted(names.values()) == ["__consumer_offsets", "__share_group_state"]
        assert all(len(topic_id) == 22 for topic_id in names)
