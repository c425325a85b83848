"""Captures of one 4.3.1 broker: byte for byte what is on its disk, whatever happens meanwhile."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from coordinator_core.cluster import capture, files, snapshot
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.ingest.publish import IsolationLevel
from coordinator_core.log.discovery import CAPTURE_MARKER, discover
from coordinator_core.releases import profile_for_release
from tests import rights
from tests.cli.test_writers import room_of
from tests.cluster.conftest import Place
from tests.cluster.kit import (
    Json,
    assert_as_on_disk,
    assert_state_as_on_disk,
    capture_from,
    ends,
    log_bytes,
    partitions,
    up_to,
)
from tests.ingest.dumps import consumed
from tests.kills import in_child, killed_at
from tests.live.broker import START_SECONDS, fetch_jars, wait_for
from tests.live.scenario import ROOT
from tests.quota import refuse_writes

HERE = Path(__file__).resolve().parent
SEGMENT_BYTES = 1 << 18


def regroup(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coordinator_core", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        check=False,
    )


def test_a_capture_is_what_is_on_the_disk(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "capture"
    done = regroup("capture", "--bootstrap-server", place.broker.bootstrap, "--output", str(output), "--format", "json")
    assert done.returncode == ExitCode.CLEAN, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest == json.loads((output / "capture.json").read_text()) | {"undo": []}
    disks = log_bytes(place.broker.log_dir)
    assert sum(map(len, disks.values())) > 2_000_000
    assert_as_on_disk(manifest, output, disks)
    copy = assert_state_as_on_disk(place.broker, output, tmp_path)
    names = discover([str(output)]).topic_names
    assert names.items() <= discover([str(copy)]).topic_names.items()
    assert set(names.values()) == {"orders", "__consumer_offsets", "__transaction_state"}


def test_what_a_capture_says_of_the_cluster(place: Place, tmp_path: Path) -> None:
    manifest = capture_from(place.broker.bootstrap, tmp_path / "capture")
    topology = json.loads((tmp_path / "capture/topology.json").read_text())
    topics = {topic["name"]: topic for topic in json.loads((tmp_path / "capture/topics.json").read_text())["topics"]}
    (broker,) = topology["brokers"]
    assert (broker["broker_id"], broker["listeners"][0]["port"]) == (1, place.broker.port)
    assert {row["partition"]: row["leader"] for row in topology["topics"]["__consumer_offsets"]["partitionInfo"]} == {
        0: 1,
        1: 1,
        2: 1,
    }
    assert {row["partition"]: row["end_offset"] for row in topics["__consumer_offsets"]["partitions"]} == ends(manifest)
    listed = json.loads((tmp_path / "capture/topics.json").read_text())
    assert manifest["notes"] == listed["notes"] == []
    assert (
        topics["__consumer_offsets"]["config"].items()
        >= {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "min.insync.replicas": "1",
            "retention.bytes": "-1",
            "retention.ms": "604800000",
            "segment.bytes": "1048576",
        }.items()
    )
    (settings,) = listed["brokers"]
    assert (settings["broker_id"], settings["rack"]) == (1, None)
    assert (
        settings["config"].items()
        >= {
            "offsets.retention.minutes": "10080",
            "offsets.topic.num.partitions": "3",
            "log.cleaner.enable": "true",
        }.items()
    )
    for row in topics["__consumer_offsets"]["partitions"]:
        assert (row["leader"], row["replicas"], row["isr"]) == (1, [1], [1])
        assert (row["start_offset"], row["oldest_leader_epoch"], row["leader_epoch"]) == (0, 0, 0)
        batches = (place.broker.log_dir / f"__consumer_offsets-{row['partition']}" / f"{0:020}.log").read_bytes()
        assert row["first_record_ms"] == int.from_bytes(batches[27:35], "big"), "base timestamp of the first batch"
    assert topics["orders"]["partitions"][-1]["first_record_ms"] is None, "nobody produced to it"
    with place.broker.connect() as connection:
        assert {(name, topic_id) for name, topic_id, _ in connection.topics()} == {
            (name, topic["topic_id"]) for name, topic in topics.items()
        }
    found = regroup("find-coordinator", "g-0", "--topology", str(tmp_path / "capture/topology.json"))
    assert found.stdout.splitlines()[1].split()[2] == "1"


def test_a_second_capture_fetches_only_what_is_new(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "capture"
    first = capture_from(place.broker.bootstrap, output, segment_bytes=SEGMENT_BYTES)
    held = {path: path.stat().st_mtime_ns for path in output.glob("__consumer_offsets-*/*.log")}
    assert len(held) > 6
    place.commits.commit(3, groups=1)
    second = capture_from(place.broker.bootstrap, output, segment_bytes=SEGMENT_BYTES)
    assert_as_on_disk(second, output, log_bytes(place.broker.log_dir))
    for before, after in zip(partitions(first), partitions(second), strict=True):
        assert after["kept_bytes"] == before["bytes"]
        assert after["fetched_bytes"] == after["bytes"] - before["bytes"]
        assert after["notes"] == after["vanished"] == []
    touched = [path for path, time_ns in held.items() if path.stat().st_mtime_ns != time_ns]
    assert len(touched) <= 1, "full segments never change"
    third = capture_from(place.broker.bootstrap, output)
    assert sum(row["fetched_bytes"] for row in partitions(third)) == 0


def test_other_topics_on_request(place: Place, tmp_path: Path) -> None:
    topics = ("__transaction_state", "__share_group_state")
    with pytest.raises(UsageError, match="no topic __share_group_state"):
        capture_from(place.broker.bootstrap, tmp_path / "capture", topics_also=topics)
    manifest = capture_from(place.broker.bootstrap, tmp_path / "capture", topics_also=topics[:1])
    disks = log_bytes(place.broker.log_dir, topics[0])
    assert sum(map(len, disks.values())) > 0
    assert_as_on_disk(manifest, tmp_path / "capture", disks, topics[0])
    assert {log.offsets_partition for log in discover([str(tmp_path / "capture")]).partitions} == {0, 1, 2}


def test_a_capture_while_clients_commit(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "capture"
    for _ in range(3):
        with place.commits.going_on():
            manifest = capture_from(place.broker.bootstrap, output)
        disks = log_bytes(place.broker.log_dir)
        assert_as_on_disk(manifest, output, disks)
    assert sum(ends(manifest).values()) > 0
    final = capture_from(place.broker.bootstrap, output)
    assert_as_on_disk(final, output, disks)
    assert_state_as_on_disk(place.broker, output, tmp_path)


def test_the_coordinators_say_what_the_replay_says(place: Place, tmp_path: Path) -> None:
    """Nothing is going on: all is equal, but for what an open transaction holds back."""
    output = tmp_path / "capture"
    done = regroup(
        *("capture", "--bootstrap-server", place.broker.bootstrap, "--output", str(output)),
        *("--check-groups", "--kafka-version", "4.3.1"),
    )
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert "compared:   " in done.stdout
    checked = json.loads((output / "capture.json").read_text())["cross_check"]
    assert checked["differences"] == []
    groups = {group["group_id"]: group for group in json.loads((output / "groups.json").read_text())["groups"]}
    assert checked["groups"] == len(groups) >= 9
    assert checked["slots"] == sum(len(group["offsets"]) for group in groups.values()) - 1
    assert groups["g-open"]["offsets"] == [
        {
            "topic": "orders",
            "partition": 0,
            "committed_offset": None,
            "leader_epoch": None,
            "metadata": None,
            "pending": True,
        }
    ]
    assert (groups["g-member"]["state"], groups["g-member"]["members"]) == ("Stable", 1)
    assert not (output / ".tail").exists()


@pytest.mark.full
def test_records_of_kafkas_spark_source(place: Place, tmp_path: Path) -> None:
    """Every record is imported as the log has it; a replay counts the commits that the source cannot tell."""
    jars = fetch_jars("spark-kafka-source", HERE / "spark_source.xml", "dependency:copy")
    capture_from(place.broker.bootstrap, tmp_path / "capture")
    source = ["-m", "tests.cluster.spark_source", str(jars), place.broker.bootstrap, str(tmp_path / "dump")]
    subprocess.run([sys.executable, *source], cwd=ROOT, check=True)
    whole = described(tmp_path / "capture")
    assert (whole["g-commit"], whole["g-abort"], whole["g-open"]) == (7, None, None)
    partial = {}
    for level in IsolationLevel:
        log = tmp_path / level
        dump = str(tmp_path / "dump" / level)
        done = regroup("import-records", dump, "--output", str(log), "--isolation-level", level)
        assert done.returncode == ExitCode.CLEAN, done.stderr
        assert "less than a snapshot" in done.stderr
        captured = consumed(tmp_path / "capture", level)
        # The broker writes on: the session of a member ends, say.
        ends = {record["partition"]: record["offset"] for record in captured}
        imported = consumed(log, "read_uncommitted")
        assert [one for one in imported if one["offset"] <= ends.get(one["partition"], -1)] == captured
        partial[level] = described(log, "--partial")
    committed, uncommitted = partial.values()
    # Behind the beginning of an open transaction a consumer is given nothing of its partition.
    elsewhere = {group for group in whole if partition_for(group, 3) != partition_for("g-open", 3)}
    assert "g-commit" in elsewhere
    assert {group: whole[group] for group in elsewhere} == {group: committed[group] for group in elsewhere}
    assert set(committed) & {"g-abort", "g-open"} == set()
    assert (uncommitted["g-commit"], uncommitted["g-abort"], uncommitted["g-open"]) == (7, 7, 8)


def described(log: Path, *options: str) -> dict[str, int | None]:
    """Committed offset of orders-0 by group."""
    done = regroup("describe", str(log), "--kafka-version", "4.3.1", "--format", "json", *options)
    assert done.returncode == ExitCode.CLEAN, done.stderr
    document = json.loads(done.stdout)
    assert document["partial"] is bool(options)
    return {
        group["group_id"]: next((each["committed_offset"] for each in group["offsets"] if each["partition"] == 0), None)
        for group in document["groups"]
    }


def test_what_is_committed_meanwhile_is_newer_not_wrong(place: Place, tmp_path: Path) -> None:
    counts: dict[str, int] = {}

    def seen() -> bool:
        with place.commits.going_on():
            manifest = capture_from(
                place.broker.bootstrap,
                tmp_path / "capture",
                check_groups=True,
                profile=profile_for_release("4.3.1"),
            )
        counts.update(manifest["cross_check"]["counts"])
        assert (counts["older"], counts["wrong"], counts["pending"]) == (0, 0, 0), manifest["cross_check"]
        return counts["newer"] > 0

    wait_for("a commit between the pin and the answers", seen)


@pytest.mark.full
def test_a_capture_through_a_restart_of_the_broker(place: Place, tmp_path: Path) -> None:
    """The rate is such that the capture takes longer than the broker needs to be gone."""
    output, patient = tmp_path / "capture", tmp_path / "client.properties"
    patient.write_text(f"default.api.timeout.ms={START_SECONDS * 1000}\n")
    size = sum(map(len, log_bytes(place.broker.log_dir).values()))
    command = [sys.executable, "-m", "coordinator_core", "capture", "--output", str(output)]
    command += ["--bootstrap-server", place.broker.bootstrap, "--command-config", str(patient)]
    command += ["--byte-rate", str(size // 4)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for("the capture to fetch", lambda: sum(map(len, log_bytes(output).values())) > size // 8)
        place.broker.stop()
        place.broker.start()
        _, stderr = running.communicate(timeout=600)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == ExitCode.CLEAN, stderr
    manifest = json.loads((output / "capture.json").read_text())
    assert_as_on_disk(manifest, output, log_bytes(place.broker.log_dir))


@pytest.mark.parametrize("times", [6, pytest.param(50, marks=pytest.mark.full)])
def test_a_capture_killed_anywhere_passes_for_nothing_and_is_finished_by_the_next(
    place: Place, tmp_path: Path, times: int
) -> None:
    """Killed in the code that writes, early and late, also when it goes on from what another one left."""
    chance = random.Random(20261123)
    outputs = [tmp_path / f"{number}/capture" for number in range(5)]
    for output in outputs:
        output.parent.mkdir()
    written_by = {capture.__file__, files.__file__, snapshot.__file__}
    kills = unfinished = 0
    for number in range(times):
        output = outputs[number % len(outputs)]
        work = partial(capture_from, place.broker.bootstrap, output, segment_bytes=SEGMENT_BYTES)
        kills += killed_at(round(2 ** chance.uniform(0, 12)), written_by, work)
        if (output / CAPTURE_MARKER).exists():
            unfinished += 1
            for path in (output, *output.glob("__consumer_offsets-*"), *output.glob("*/*.log"), output.parent):
                with pytest.raises(UsageError, match="not whole"):
                    discover([str(path)])
    assert kills
    assert unfinished
    for output in outputs:
        manifest = capture_from(place.broker.bootstrap, output, segment_bytes=SEGMENT_BYTES)
        assert_as_on_disk(manifest, output, log_bytes(place.broker.log_dir))


@pytest.mark.parametrize("limit", [0, 1 << 10, 1 << 14])
def test_a_capture_on_a_full_disk_is_finished_by_the_next(
    place: Place, tmp_path: Path, limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "capture"
    words = ["capture", "--bootstrap-server", place.broker.bootstrap, "--output", str(output)]
    with room_of(limit):
        assert run(words) == ExitCode.APPLY_FAILED
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("regroup: error: ")
    assert said.endswith("File too large")
    with pytest.raises(UsageError):
        discover([str(output)])
    assert run(words) == ExitCode.CLEAN
    assert_as_on_disk(json.loads((output / "capture.json").read_text()), output, log_bytes(place.broker.log_dir))


@pytest.mark.parametrize(
    ("begin", "code", "reason"),
    [
        (partial(refuse_writes, errno.EDQUOT), ExitCode.APPLY_FAILED, "Disk quota exceeded"),
        (rights.give_up, ExitCode.USAGE, "Permission denied"),
    ],
)
def test_a_capture_beyond_a_quota_or_onto_a_read_only_disk(
    place: Place, tmp_path: Path, begin: Callable[[], None], code: ExitCode, reason: str
) -> None:
    words = ["capture", "--bootstrap-server", place.broker.bootstrap, "--output", str(tmp_path / "capture")]
    if code == ExitCode.USAGE:
        tmp_path.chmod(0o555)
    found, said = in_child(begin, lambda: run(words))
    tmp_path.chmod(0o755)
    assert (found, said.splitlines()[-1].endswith(f"cannot be written: {reason}")) == (code, True), said
    assert run(words) == ExitCode.CLEAN


def test_a_capture_goes_on_when_the_clock_went_back(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, year_ns, now_ns = tmp_path / "capture", 365 * 86_400 * 10**9, time.time_ns
    capture_from(place.broker.bootstrap, output)
    place.commits.commit(2)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() - year_ns)
    monkeypatch.setattr(time, "time", lambda: (now_ns() - year_ns) / 1e9)
    assert_as_on_disk(capture_from(place.broker.bootstrap, output), output, log_bytes(place.broker.log_dir))


def test_of_two_captures_into_one_directory_the_second_is_refused(place: Place, tmp_path: Path) -> None:
    busy = pytest.raises(snapshot.CaptureBusyError, match="another capture is writing")
    with snapshot.CaptureDirectory.opened(tmp_path), busy:
        capture_from(place.broker.bootstrap, tmp_path)


@pytest.mark.parametrize("byte", [0, 7, 12, 40, 70])
def test_what_is_changed_in_a_capture_is_fetched_again(place: Place, tmp_path: Path, byte: int) -> None:
    """A byte of a batch changed on our disk: offset, epoch, header, record. All from there comes again."""
    output = tmp_path / "capture"
    capture_from(place.broker.bootstrap, output, segment_bytes=SEGMENT_BYTES)
    segment = max(output.glob("__consumer_offsets-*/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    batch = len(up_to(bytes(data), int(segment.stem) + 200))
    data[batch + byte] ^= 1
    segment.write_bytes(data)
    manifest = capture_from(place.broker.bootstrap, output, segment_bytes=SEGMENT_BYTES)
    assert sum(row["fetched_bytes"] for row in partitions(manifest)) > 0
    assert_as_on_disk(manifest, output, log_bytes(place.broker.log_dir))


def test_a_directory_that_is_no_capture_is_left_alone(place: Place, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        capture_from(place.broker.bootstrap, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_capture_of_another_cluster_is_left_alone(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "capture"
    capture_from(place.broker.bootstrap, output)
    manifest = json.loads((output / "capture.json").read_text())
    (output / "capture.json").write_text(json.dumps({**manifest, "cluster_id": "another"}))
    with pytest.raises(UsageError, match="cluster another"):
        capture_from(place.broker.bootstrap, output)


def test_a_capture_while_the_cleaner_runs_converges(place: Place, tmp_path: Path) -> None:
    """The cleaner takes most of the log away. It runs between and during captures."""
    output = tmp_path / "capture"
    first = capture_from(place.broker.bootstrap, output)
    before = {row["partition"]: row["bytes"] for row in partitions(first)}
    place.commits.clean_eagerly()
    captures = []

    def cleaned() -> Json | None:
        place.commits.commit(3)
        captures.append(capture_from(place.broker.bootstrap, output))
        # Not all of them: the cleaner does not pass the beginning of the open transaction.
        shrunk = [row for row in partitions(captures[-1]) if row["bytes"] < before[row["partition"]] // 2]
        return captures[-1] if shrunk else None

    wait_for("the cleaner", cleaned)
    assert any("cleaner" in note for found in captures for row in partitions(found) for note in row["notes"])

    def settled() -> bool:
        """The cleaner may come between the capture and our look at the disk."""
        disks = log_bytes(place.broker.log_dir)
        manifest = capture_from(place.broker.bootstrap, output)
        if disks != log_bytes(place.broker.log_dir):
            return False
        assert_as_on_disk(manifest, output, disks)
        return True

    wait_for("a moment without the cleaner", settled)
    assert sum(row["removed_offsets"] for row in partitions(captures[-1])) > 1000
    assert_state_as_on_disk(place.broker, output, tmp_path)


@pytest.mark.full
def test_a_log_start_that_moves_on_is_followed_and_named(place: Place, tmp_path: Path) -> None:
    """Last of this file: retention takes everything, while one capture runs and after another."""
    kept, slow = tmp_path / "kept", tmp_path / "slow"
    place.commits.configure({"cleanup.policy": "delete", "segment.ms": "600000"})
    place.commits.commit(150, metadata="m" * 60)
    first = capture_from(place.broker.bootstrap, kept)
    size = sum(row["bytes"] for row in partitions(first))
    assert size > 1_000_000
    command = [sys.executable, "-m", "coordinator_core", "capture", "--output", str(slow)]
    command += ["--bootstrap-server", place.broker.bootstrap, "--byte-rate", str(size // 60)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for("the capture to fetch", lambda: sum(map(len, log_bytes(slow).values())) > size // 20)
        place.commits.configure({"cleanup.policy": "delete", "retention.ms": "1"})
        _, stderr = running.communicate(timeout=600)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == ExitCode.FINDINGS, stderr
    manifest = json.loads((slow / "capture.json").read_text())
    for row in partitions(manifest):
        (gone,) = row["vanished"] or [None]
        if gone is not None:
            assert gone["end"] == row["log_end_offset"]
            last = gone["end"] - 1
            assert f"offsets {gone['first']} to {last} vanished: the log start offset moved on" in stderr
        assert log_bytes(kept)[row["partition"]].startswith(log_bytes(slow)[row["partition"]])

    wait_for("retention", lambda: not any(map(len, log_bytes(place.broker.log_dir).values())))
    second = capture_from(place.broker.bootstrap, kept)
    assert_as_on_disk(second, kept, log_bytes(place.broker.log_dir))
    for row in partitions(second):
        assert row["log_start_offset"] == row["log_end_offset"]
        assert "below the log start offset" in row["notes"][0]
    assert {log.log_start_offset for log in discover([str(kept)]).partitions} == set(ends(second).values())
    assert regroup("list", str(kept)).returncode == ExitCode.CLEAN
