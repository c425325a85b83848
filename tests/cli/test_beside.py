"""Files beside a log, or named by a run, are found: topics, topology, transaction log, the run before."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coordinator_core.cli.app import run
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.rules import beside
from coordinator_core.rules.catalogue import RULES
from coordinator_core.runs.read import open_run
from coordinator_core.topology import BrokerInfo, PartitionInfo, Topology
from tests.log.builders import NOW_MS, segment_name, write_partition
from tests.rules.logs import HEALTHY, TOPICS, classic, commit, log_of, pending, topic, transaction

NOW = ["--now-ms", str(NOW_MS + 1000)]
RELEASE = ["--kafka-version", "4.3.1"]


def capture(directory: Path, *records: Any, topics: Any = TOPICS, producers: Any = None) -> str:
    """A directory as a capture leaves it, with one offsets partition and one of the transaction log."""
    write_partition(directory, {0: log_of(*records)})
    going = {"pay": 7} if producers is None else producers
    transactions = [transaction(name, producer) for name, producer in going.items()]
    write_partition(directory, {0: log_of(*transactions)}, topic="__transaction_state")
    (directory / "topics.json").write_text(json.dumps(topics))
    brokers = {1: BrokerInfo(1, {"PLAINTEXT": ("broker", 9092)})}
    topology = Topology.of_offsets(brokers, [PartitionInfo(0, 1, 0, (1,), (1,))])
    (directory / "topology.json").write_text(json.dumps(topology.document()))
    return str(directory)


def answer(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[Any, str]:
    assert run([*arguments, "--format", "json"]) == code
    printed = capfd.readouterr()
    return json.loads(printed.out), printed.err


def published(snapshot: str, output: Path, capfd: pytest.CaptureFixture[str], now_ms: int) -> str:
    command = ["replay", snapshot, *RELEASE, "--now-ms", str(now_ms), "--output", str(output), "--cluster", "c"]
    document, _ = answer(capfd, *command, "--window", "w", "--offsets-topic-num-partitions", "1")
    return str(document["run"])


def test_the_topology_tells_in_which_partition_a_group_belongs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It goes before where the groups lie: the offsets topic may have got more partitions since."""
    snapshot = capture(tmp_path / "capture", *HEALTHY, commit("a", "b"), commit("b", "c"))
    topology = Topology.of_offsets({}, [PartitionInfo(number, 1, 0, (1,), (1,)) for number in range(20)])
    (tmp_path / "capture/topology.json").write_text(json.dumps(topology.document()))
    numbers: list[int] = []
    (partition,) = (tmp_path / "capture").glob("__consumer_offsets-*")
    for path, text in ((snapshot, None), (str(partition), None), (snapshot, "no topology")):
        if text is not None:
            (tmp_path / "capture/topology.json").write_text(text)
        words = ["replay", path, *RELEASE, *NOW, "--cluster", "c", "--output", str(tmp_path / f"runs-{len(numbers)}")]
        document, _ = answer(capfd, *words)
        numbers.append(open_run(document["run"]).manifest["offsets_topic_num_partitions"])
    assert numbers == [20, 20, 1]


def test_a_capture_shows_log_ends_and_lag(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    document, _ = answer(capfd, "describe", snapshot, *RELEASE, *NOW)
    (group,) = document["groups"]
    assert group["log_ends"] == [
        {"topic": "t", "partition": 0, "log_start_offset": 10, "log_end_offset": 100, "lag": 50}
    ]
    assert run(["describe", snapshot, *RELEASE, *NOW]) == 0
    header, row = (line.split() for line in capfd.readouterr().out.strip().splitlines())
    assert (row[header.index("LOG-END-OFFSET")], row[header.index("LAG")]) == ("100", "50")


@pytest.mark.parametrize(("offset", "lag"), [(5, 90), (10, 90), (99, 1), (100, 0), (140, 0)])
def test_lag_begins_at_the_log_start_and_is_never_negative(
    offset: int, lag: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    snapshot = capture(tmp_path / "capture", classic(), commit(offset=offset))
    document, _ = answer(capfd, "describe", snapshot, *RELEASE, *NOW)
    assert document["groups"][0]["log_ends"][0]["lag"] == lag
    report, _ = answer(capfd, "report", snapshot, *RELEASE, *NOW)
    assert report["lag"]["total"] == lag


def test_without_topics_describe_is_as_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_partition(tmp_path / "log", {0: log_of(*HEALTHY)})
    document, _ = answer(capfd, "describe", str(tmp_path / "log"), *RELEASE, *NOW)
    assert "log_ends" not in document["groups"][0]


def test_reconcile_of_a_capture_needs_no_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    one = ["--offsets-topic-num-partitions", "1"]
    document, _ = answer(capfd, "reconcile", snapshot, *RELEASE, *NOW, *one)
    assert document["findings"] == []
    assert {need for rule in document["not_evaluated"] for need in RULES[rule].needs} == {"previous run"}
    assert document["run"]["path"] is None
    assert run(["reconcile", snapshot, *RELEASE, *NOW, "--publish"]) == 2


def test_a_run_leads_back_to_all_of_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    before = published(snapshot, tmp_path / "runs", capfd, NOW_MS)
    now = published(snapshot, tmp_path / "runs", capfd, NOW_MS + 1000)
    document, _ = answer(capfd, "reconcile", now)
    assert document["not_evaluated"] == {}
    assert document["previous"]["path"] == before
    assert document["topics"]["path"] == f"{snapshot}/topics.json"
    unwalked, _ = answer(capfd, "reconcile", now, "--no-log")
    assert "R51" in unwalked["not_evaluated"]
    assert all("log" in RULES[rule].needs for rule in unwalked["not_evaluated"])


def test_what_is_named_wins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"topics": [topic("t", end=60)]}))
    document, _ = answer(capfd, "describe", snapshot, *RELEASE, *NOW, "--topics", str(other))
    assert document["groups"][0]["log_ends"][0]["lag"] == 10


def test_a_file_that_cannot_answer_is_not_used_and_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    alone = {"topics": [topic(OFFSETS_TOPIC)]}
    snapshot = capture(tmp_path / "capture", *HEALTHY, topics=alone)
    document, said = answer(capfd, "reconcile", snapshot, *RELEASE, *NOW, "--offsets-topic-num-partitions", "1")
    assert "lists __consumer_offsets alone" in said
    assert document["topics"] is None
    assert document["findings"] == []


def test_a_part_of_the_transaction_log_proves_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A broker holds some of its partitions only: what is not in them may go on elsewhere."""
    snapshot = capture(tmp_path / "capture", *HEALTHY, pending(commit(offset=70)), producers={"other": 8})
    one = ["--offsets-topic-num-partitions", "1"]
    whole, _ = answer(capfd, "reconcile", snapshot, *RELEASE, *NOW, *one, code=1)
    assert [row["rule"] for row in whole["findings"]] == ["R52"]
    (tmp_path / "capture/__transaction_state-0").rename(tmp_path / "capture/__transaction_state-4")
    part, said = answer(capfd, "reconcile", snapshot, *RELEASE, *NOW, *one)
    assert part["findings"] == []
    assert "some partitions of the transaction log only" in said


def test_a_transaction_that_ended_after_the_copy_is_known(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The transaction log was copied later: it has ended there, and its marker is behind the end of the other copy."""
    snapshot = capture(tmp_path / "capture", *HEALTHY, pending(commit(offset=70)))
    done = log_of([transaction("pay", 7, state=4)], time_ms=NOW_MS + 50)
    write_partition(tmp_path / "capture", {0: done}, topic="__transaction_state")
    document, _ = answer(capfd, "reconcile", snapshot, *RELEASE, *NOW, "--offsets-topic-num-partitions", "1")
    assert document["findings"] == []


def test_a_log_that_was_written_to_since_is_of_another_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    now = published(snapshot, tmp_path / "runs", capfd, NOW_MS)
    write_partition(tmp_path / "capture", {0: log_of(*HEALTHY, commit(offset=60))})
    grown, said = answer(capfd, "reconcile", now)
    assert "has grown since" in said
    assert (grown["topics"], grown["transaction_log"]) == (None, None)
    assert grown["log"]["path"] == snapshot
    write_partition(tmp_path / "capture", {0: log_of(commit(offset=60))})
    rewritten, said = answer(capfd, "reconcile", now)
    assert "has been rewritten since" in said
    assert rewritten["log"] is None


def test_other_bytes_of_the_same_size_are_another_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of such a log nothing is told as if the run had it: not as findings, nor by what reads it again."""
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    now = published(snapshot, tmp_path / "runs", capfd, NOW_MS)
    (segment,) = (tmp_path / "capture/__consumer_offsets-0").glob("*.log")
    size = segment.stat().st_size
    write_partition(tmp_path / "capture", {0: log_of(classic("e"), commit("e"))})
    assert segment.stat().st_size == size
    document, said = answer(capfd, "reconcile", now)
    rewritten = f"has been rewritten since: {segment}: other bytes are in its first {size}"
    assert rewritten in said
    assert (document["log"], document["topics"], document["transaction_log"]) == (None, None, None)
    for command in (
        ["reconcile", now, "--log", snapshot],
        ["history", now, "--output", str(tmp_path / "history.parquet")],
        ["explain", now, "--group", "e"],
        ["investigate", now],
        ["stats", now],
        ["restore", "plan", now, "--before-record", "0:1", "--all-groups", "--against", now],
    ):
        assert run(command) == 2, command
        out, said = capfd.readouterr()
        assert (out, rewritten in said) == ("", True), command
    assert not (tmp_path / "history.parquet").exists()


def test_a_run_finds_its_log_from_any_directory(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, group in (("a", "g"), ("b", "e")):
        write_partition(tmp_path / name / "log", {0: log_of(classic(group), commit(group))})
    monkeypatch.chdir(tmp_path / "a")
    path = published("log", tmp_path / "runs", capfd, NOW_MS)
    manifest = json.loads((Path(path) / "manifest.json").read_text())
    log = str(tmp_path / "a/log")
    segment = f"{log}/__consumer_offsets-0/{0:020d}.log"
    assert (manifest["sources"], [entry["path"] for entry in manifest["inputs"]]) == ([log], [segment])
    assert open_run(path).table("segments")["path"].to_pylist() == [segment]
    monkeypatch.chdir(tmp_path / "b")
    assert answer(capfd, "reconcile", path)[0]["log"]["path"] == log
    told, _ = answer(capfd, "explain", path, "--group", "g")
    assert {event["record_offset"] for event in told} == {0, 1}


def test_a_log_is_read_again_as_far_as_the_run_has_read_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Segments and log start offset are those of the run; what a broker has written or dropped since does not count."""
    write_partition(tmp_path / "log", {0: log_of(*HEALTHY), 2: log_of(commit(offset=60), base_offset=2)})
    starts = tmp_path / "log/log-start-offset-checkpoint"
    starts.write_text("0\n1\n__consumer_offsets 0 1\n")
    path = published(str(tmp_path / "log"), tmp_path / "runs", capfd, NOW_MS)
    starts.write_text("0\n1\n__consumer_offsets 0 2\n")
    write_partition(tmp_path / "log", {2: log_of(commit(offset=60), commit(offset=70), base_offset=2)})
    told, _ = answer(capfd, "explain", path, "--group", "g")
    assert [event["record_offset"] for event in told] == [1, 2]
    history = tmp_path / "history.parquet"
    assert run(["history", path, "--output", str(history)]) == 0
    assert pq.read_table(history)["committed_offset"].to_pylist() == [50, 60]
    assert "has grown since" in capfd.readouterr().err
    # A copy has other paths, and is the log all the same.
    copy = str(shutil.copytree(tmp_path / "log", tmp_path / "copy"))
    document, _ = answer(capfd, "reconcile", path, "--log", copy, code=1)
    assert ([row["rule"] for row in document["findings"]], document["log"]["path"]) == (["R81"], copy)
    shutil.rmtree(tmp_path / "copy/__consumer_offsets-0")
    write_partition(tmp_path / "copy", {0: log_of(*HEALTHY)})
    assert run(["reconcile", path, "--log", copy]) == 2
    assert f"{segment_name(2)}: it is gone" in capfd.readouterr().err


def test_a_large_log_is_walked_over_only_when_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert beside.FOUND_LOG_BYTES > 10_000_000
    monkeypatch.setattr(beside, "FOUND_LOG_BYTES", 10)
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    one = ["--offsets-topic-num-partitions", "1"]
    document, said = answer(capfd, "reconcile", snapshot, *RELEASE, *NOW, *one)
    assert document["log"] is None
    assert f"--log {snapshot}" in said
    named, _ = answer(capfd, "reconcile", snapshot, *RELEASE, *NOW, *one, "--log", snapshot)
    assert named["log"]["path"] == snapshot


@pytest.mark.parametrize(
    ("listeners", "text", "says"),
    [
        ({"PLAINTEXT": ("broker", 9092)}, None, "broker:9092  (1)"),
        ({"PLAINTEXT": ("broker", 9092), "TLS": ("broker", 9093)}, None, "-  (1)"),
        ({}, None, "-  (1)"),
        ({}, "no topology", "-"),
        ({}, "", "-"),
    ],
)
def test_the_state_of_a_group_names_its_coordinator(
    listeners: dict[str, tuple[str, int]],
    text: str | None,
    says: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """``host:port  (id)``, as Kafka's tool prints it."""
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    place = tmp_path / "capture/topology.json"
    topology = Topology.of_offsets({1: BrokerInfo(1, listeners)}, [PartitionInfo(0, 1, 0, (1,), (1,))])
    place.write_text(json.dumps(topology.document()) if text is None else text)
    if text == "":
        place.unlink()
    assert run(["describe", snapshot, *RELEASE, *NOW, "--state"]) == 0
    printed = capfd.readouterr()
    header, row = printed.out.strip().splitlines()
    at = header.index("COORDINATOR (ID)")
    assert row[at : header.index("ASSIGNMENT")].strip() == says
    assert ("it is not used" in printed.err) is (text == "no topology")


def test_tasks_walk_over_a_log_whose_partitions_are_small() -> None:
    """The part that a process holds counts: all of the log, or in Spark a partition."""
    found = beside.Beside(log=("LOG",), log_bytes=3 * beside.FOUND_LOG_BYTES, partition_bytes=beside.FOUND_LOG_BYTES)
    assert found.too_large(in_tasks=True) is None
    assert found.too_large(in_tasks=False) == "the log of 192 MB is walked over only when named: --log LOG"
    larger = replace(found, partition_bytes=2 * beside.FOUND_LOG_BYTES)
    assert (
        larger.too_large(in_tasks=True) == "a log with a partition of 128 MB is walked over only when named: --log LOG"
    )


def test_predict_finds_the_topology(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = capture(tmp_path / "capture", *HEALTHY)
    scenario = ["--scenario", "lose-brokers=1"]
    document, _ = answer(capfd, "drill", "predict", snapshot, *RELEASE, *NOW, *scenario, code=1)
    assert document["scenario"]
    (tmp_path / "capture/topology.json").unlink()
    assert run(["drill", "predict", snapshot, *RELEASE, *NOW, *scenario]) == 2
    assert "--topology FILE" in capfd.readouterr().err


def test_files_beside_a_log_are_found_by_uri_too(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    uri = Path(capture(tmp_path / "capture", *HEALTHY)).as_uri()
    answer(capfd, "investigate", uri, *RELEASE, *NOW)
    named = ["--topology", f"{uri}/topology.json"]
    document, _ = answer(capfd, "find-coordinator", "g", *named)
    assert document == [{"group_id": "g", "offsets_partition": 0, "leader": 1}]
    for given in ([], named):
        document, _ = answer(capfd, "rescue", uri, *RELEASE, *NOW, *given)
        assert document["offsets_partitions"] == 1
