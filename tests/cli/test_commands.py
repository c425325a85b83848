"""Commands end to end: the contract's JSON, exit codes, and that a run answers like its snapshot."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest

from coordinator_core.cli import history, spark_app
from coordinator_core.cli.app import cli, run
from coordinator_core.cli.options import WITHOUT_SPARK
from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.manifest import summary
from coordinator_core.runs.place import RunPlace
from tests.cases import CASES, FEW_CASES, TORN, Case, case, cross_section
from tests.cli.commands import leaf_commands
from tests.cli.test_damaged_input import outcome, write_segment
from tests.groups.test_java_loader import GROUP_KEY, TOPIC_ID, with_member
from tests.history.logs import Log, modern_member
from tests.log.builders import NOW_MS
from tests.replay.histories import History, OffsetKey, encoded_key
from tests.rules.faults import damaged

NOW = ["--now-ms", "1795260000000"]
OFFSET_TYPE = b"\0\1"


def output_of(arguments: list[str], capfdbinary: pytest.CaptureFixture[bytes], *, code: int = 0) -> str:
    assert run(arguments) == code
    return capfdbinary.readouterr().out.decode("utf-8")


@pytest.mark.parametrize(
    "snapshot", cross_section([item for item in CASES if item in TORN or item.name in FEW_CASES], FEW_CASES)
)
def test_a_run_describes_like_its_snapshot(
    snapshot: Case, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments = [*snapshot.command_line(), *NOW] + ["--partial"] * (snapshot in TORN)
    replayed = output_of(
        ["replay", *arguments, "--output", str(tmp_path), "--cluster", "c", "--format", "json"], capfdbinary
    )
    run_path = json.loads(replayed)["run"]
    for command in ("describe", "list"):
        direct = output_of([command, *arguments, "--format", "json"], capfdbinary)
        assert output_of([command, run_path, "--format", "json"], capfdbinary) == direct


def test_describe_json_has_the_fields_of_the_contract(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    document: dict[str, Any] = json.loads(
        output_of(
            [
                "describe",
                *case("k431-txn").command_line(),
                *NOW,
                "--format",
                "json",
                "--group",
                "x-pending-over",
            ],
            capfdbinary,
        )
    )
    assert document["profile"] == "J3 (4.3.1, new coordinator)"
    assert document["now_ms"] == 1795260000000
    assert document["partial"] is False
    (group,) = document["groups"]
    assert (group["group_id"], group["offsets_partition"], group["type"]) == ("x-pending-over", 17, "classic")
    assert (group["simple"], group["state"], group["members"]) == (True, "Empty", [])
    assert [(row["partition"], row["committed_offset"], row["pending"]) for row in group["offsets"]] == [
        (0, 3, True),
        (1, 4, False),
        (2, None, True),
    ]
    assert [(row["outcome"], row["groups"]) for row in document["transactions"]] == [("open", ["x-pending-over"])]


def test_a_topic_narrows(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    shop = ["demo/shop", *NOW]
    document = json.loads(output_of(["describe", *shop, "--topic", "stock-changes", "--format", "json"], capfdbinary))
    ends = {(group["group_id"], end["topic"]) for group in document["groups"] for end in group["log_ends"]}
    assert ends == {("inventory", "stock-changes")}
    mixed = [*case("k431-mixed").command_line(), *NOW, "--topic", "t-clicks"]
    text = output_of(["describe", *mixed, "--group", "g-consumer"], capfdbinary)
    assert [line.split()[1:4] for line in text.strip().splitlines()[1:]] == [
        ["t-clicks", str(partition), "100"] for partition in range(4)
    ]
    described = json.loads(output_of(["describe", *mixed, "--format", "json"], capfdbinary))["groups"]
    assert run(["describe", *mixed, "--group", "g-classic-range"]) == 0
    out, err = capfdbinary.readouterr()
    assert not out
    assert b"None of the groups has an offset of these topics" in err
    ids = [group["group_id"] for group in json.loads(output_of(["list", *mixed, "--format", "json"], capfdbinary))]
    # Offsets, partitions of a member of a group of each type, and topics of a share group without members.
    assert {"g-simple-assign", "g-classic-coop-static", "g-consumer", "g-share", "g-share-empty"} < set(ids)
    assert "g-classic-range" not in ids
    assert [group["group_id"] for group in described] == ids


def test_a_streams_group_has_the_topics_of_its_topology(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Groups that have committed nothing: one with tasks of the topic, one without members."""
    log = Log()
    for partition in discover([str(path) for path in case("k440/before").paths]).partitions:
        for _, batch, records in read_records(partition):
            for record in records:
                is_of_group = record.key is not None and b"g-streams" in record.key and record.key[:2] != OFFSET_TYPE
                if is_of_group and not batch.is_control:
                    log.records((record.key, record.value), sequence=0)
    arguments = [str(log.write(tmp_path)), "--kafka-version", "4.4.0", *NOW, "--format", "json"]
    for topic, ids in (("orders", ["g-streams"]), ("payments", [])):
        groups = json.loads(output_of(["list", *arguments, "--topic", topic], capfdbinary))
        assert [group["group_id"] for group in groups] == ids
        described = json.loads(output_of(["describe", *arguments, "--topic", topic], capfdbinary))
        assert [group["group_id"] for group in described["groups"]] == ids


def test_a_offset_key_with_only_a_pending_commit_has_no_committed_offset(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    arguments = ["describe", *case("k431-txn").command_line(), "--format", "json", "--group", "x-pending"]
    (row,) = json.loads(output_of(arguments, capfdbinary))["groups"][0]["offsets"]
    assert (row["committed_offset"], row["metadata"], row["pending"]) == (None, None, True)
    assert row["record_offset"] is not None
    assert row["producer_id"] is not None


def test_explain_tells_why_a_transaction_won(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    arguments = ["explain", *case("k431-txn").command_line(), "--group", "x-sandwich", "--topic", "t-a:0"]
    text = output_of(arguments, capfdbinary)
    assert text.splitlines() == [
        "[36]        0  1795251040822  commit of 100 t-a-0: pending in the transaction of producer 7",
        "[36]        1  1795251040825  commit of 50 t-a-0: committed offset set",
        "[36]        2  1795251040828  commit of 110 t-a-0: pending in the transaction of producer 7",
        "[36]        3  1795251040833  COMMIT marker of producer 7 t-a-0: committed offset becomes 110 (record 2)",
    ]


def test_explain_tells_why_a_transaction_lost(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    arguments = ["explain", *case("k431-txn").command_line(), "--group", "x-plain-after", "--format", "jsonl"]
    events = [json.loads(line) for line in output_of(arguments, capfdbinary).splitlines()]
    assert "committed offset stays 50" in events[-1]["effect"]
    assert "age is decided by the commit" in events[-1]["effect"]


def test_explain_of_a_run_reads_the_log_it_came_from(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    snapshot = case("k241/before")
    arguments = ["replay", *snapshot.command_line(), "--output", str(tmp_path), "--cluster", "c"]
    replayed = json.loads(output_of([*arguments, "--format", "json"], capfdbinary))
    explained = output_of(["explain", replayed["run"], "--group", "g-txn"], capfdbinary)
    assert explained == output_of(["explain", *snapshot.command_line(), "--group", "g-txn"], capfdbinary)
    assert "COMMIT marker" in explained


def test_a_run_says_that_nobody_has_looked_for_findings(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments = ["replay", *case("k241/before").command_line(), "--output", str(tmp_path), "--cluster", "c"]
    assert "findings: -" in output_of(arguments, capfdbinary).splitlines()


def test_a_record_that_ends_the_load_is_told_of_its_group(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = Log().commit("g", {("orders", 0): 1}).generation("g", 1)
    log.commit_version = 4
    log.commit("g", {("orders", 0): 2}).records((b"", b""))
    arguments = ["explain", str(log.write(tmp_path)), "--kafka-version", "3.0.0", "--group"]
    told = output_of([*arguments, "g"], capfdbinary).splitlines()
    assert [line.split(": the load fails here: ")[-1] for line in told[2:]] == [
        "value version 4 of key type 1 is unknown to Kafka 3.0.0",
        "key: byte 0: Could not read version from key's buffer.",
    ]
    assert "commit orders-0: " in told[2]
    assert told[1].endswith("generation 1, protocol none, members: none")
    assert output_of([*arguments, "g", "--topic", "orders:1"], capfdbinary).splitlines() == [told[1], told[3]]
    assert output_of([*arguments, "other"], capfdbinary).splitlines() == told[3:]


def test_a_tombstone_of_what_is_not_there_is_told_as_such(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    group, member = {"groupId": "g"}, {"groupId": "g", "memberId": "m"}
    regex = {"groupId": "g", "regularExpression": "a.*"}
    gone: list[tuple[int, dict[str, Any], None]] = [(8, member, None), (7, member, None), (5, member, None)]
    log = Log().tombstones("g", ("t", 0), with_group=True).modern(*gone, (16, regex, None), (3, group, None))
    log.modern(
        modern_member("g", "m"),
        (7, member, {"topicPartitions": []}),
        (16, regex, {"topics": [], "version": 1, "timestamp": 1}),
        *(gone[1], gone[1], (16, regex, None), (16, regex, None)),
    )
    arguments = ["explain", str(log.write(tmp_path)), "--kafka-version", "4.3.1", "--group", "g"]
    told = [line.split(": ")[-1] for line in output_of(arguments, capfdbinary).splitlines()]
    assert told == ["nothing to remove"] * 7 + ["set"] * 3 + ["removed", "nothing to remove"] * 2


@pytest.mark.parametrize("key", [b"\0", b"", b"\xff\xff\0\1"])
def test_an_unreadable_control_key_is_told_as_the_end_of_the_load(
    key: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    log = Log().commit("g", {("orders", 0): 1}).commit("g", {("orders", 0): 2}, producer_id=7).control(key, 7)
    arguments = [str(log.commit("g", {("orders", 0): 3}).write(tmp_path / "log")), "--kafka-version", "3.9.2"]
    told = output_of(["explain", *arguments, "--group", "g"], capfdbinary).splitlines()
    assert len(told) == 4
    assert f"the load fails here: control record with a {len(key)}-byte key" in told[2]
    assert output_of(["explain", *arguments, "--group", "other"], capfdbinary).splitlines() == told[2:3]
    output_of(["reconcile", *arguments, *NOW], capfdbinary, code=1)
    output_of(["report", *arguments, *NOW, "--output", str(tmp_path / "pages")], capfdbinary)


@pytest.mark.parametrize("name", ["k082/plain", "k0102/before", "k392-classic", "k431-mixed"])
def test_dump_prints_like_the_tool_of_the_release_that_the_records_tell(
    name: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    snapshot = case(name)
    told = output_of(["dump", str(snapshot.paths[0])], capfdbinary)
    assert told == output_of(["dump", *snapshot.command_line()], capfdbinary)
    assert told != output_of(["dump", str(snapshot.paths[0]), "--kafka-version", "2.2.2"], capfdbinary)


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["stats"],
        ["expire", "--offsets-retention-ms", "1"],
        ["whatif", "--delete-topic", "t"],
        ["find-coordinator"],
    ],
    ids=lambda words: words[0],
)
def test_a_long_group_id_pads_no_other_row(
    words: list[str], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It is whole, in its own row alone."""
    groups = ["g" * 20_000, *(f"g-{number}" for number in range(9))]
    history = History()
    for group in groups:
        history.commit(1, OffsetKey(group, "t", 0))
    (tmp_path / "log").mkdir()
    log = str(write_segment(tmp_path / "log", b"".join(history.batches)))
    given = groups if words[0] == "find-coordinator" else [log, "--kafka-version", "4.3.1", *NOW]
    lines = output_of([*words, *given], capfdbinary, code=int(words[0] == "whatif")).splitlines()
    assert any(groups[0] in line for line in lines)
    assert max(len(line) for line in lines if groups[0] not in line) < 500


def test_find_coordinator_by_count_and_by_topology(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    plain = json.loads(output_of(["find-coordinator", "testgroup", "--format", "json"], capfdbinary))
    assert plain == [{"group_id": "testgroup", "offsets_partition": 27, "leader": None}]
    before = case("k431-cluster").expected / "before"
    coordinators = json.loads((before / "coordinators.json").read_text())["groups"]
    groups = sorted(coordinators)
    arguments = ["find-coordinator", *groups, "--topology", str(before / "topics.json"), "--format", "json"]
    ours = {
        row["group_id"]: (row["offsets_partition"], row["leader"])
        for row in json.loads(output_of(arguments, capfdbinary))
    }
    assert ours == {group: (found["partition"], found["nodeId"]) for group, found in coordinators.items()}
    (row,) = json.loads(
        output_of([*arguments[:1], "testgroup", *arguments[-4:], "--offsets-topic-num-partitions", "50"], capfdbinary)
    )
    assert row["offsets_partition"] == 27


@pytest.mark.parametrize("engine", ["snapshot", "run"])
def test_partition_metadata_records_name_topics(
    engine: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Up to Kafka 4.0 records of type 4 are the only names of a KIP-848 assignment in the log."""
    topic = {"topicId": TOPIC_ID, "topicName": "orders", "numPartitions": 2, "partitionMetadata": []}
    history = with_member(History().modern(4, GROUP_KEY, {"topics": [topic]}), "m", 0, 1)
    (tmp_path / "log").mkdir()
    place = str(write_segment(tmp_path / "log", b"".join(history.batches)))
    rules = ["--kafka-version", "3.9.2", "--coordinator", "new"]
    if engine == "run":
        publish = ["replay", place, "--output", str(tmp_path / "runs"), "--cluster", "c", "--format", "json", *rules]
        place, rules = json.loads(output_of(publish, capfdbinary))["run"], []
    document = json.loads(output_of(["describe", place, *rules, "--members", "--format", "json"], capfdbinary))
    (group,) = document["groups"]
    assert [assigned["topic"] for assigned in group["members"][0]["assignment"]] == ["orders"]


def test_describe_shows_one_view(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    place = str(write_segment(tmp_path, b"".join(History().commit(1).batches)))
    code, _, err = outcome(["describe", place, "--kafka-version", "4.3.1", "--state", "--members"], capfd)
    assert (code, err) == (2, "regroup: error: --offsets, --members and --state exclude each other\n")


def test_a_load_failure_is_a_finding(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    history = History().commit(1).records((encoded_key(), b"\x00\x63"))
    write_segment(tmp_path, b"".join(history.batches))
    code, out, err = outcome(["describe", str(tmp_path), "--kafka-version", "4.3.1", "--format", "json"], capfd)
    assert code == 1
    assert "does not load offsets partition 0: record offset 1" in err
    assert json.loads(out)["load_failures"][0]["record_offset"] == 1


def test_the_usage_says_what_can_be_repeated() -> None:
    repeated = {
        leaf: param.metavar or ""
        for leaf, command in leaf_commands(cli)
        for param in command.params
        if param.nargs == -1
    }
    assert repeated["list"] == "SNAPSHOT…|RUN"
    assert [leaf for leaf, metavar in repeated.items() if "…" not in metavar] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["describe"],
        ["describe", "/no/such/path"],
        ["describe", "LOG", "--kafka-version", "9.9"],
        ["describe", "LOG", "--kafka-version", "4.3.1", "--coordinator", "classic"],
        ["describe", "LOG", "--profile", "S9"],
        ["describe", "LOG", "--partial", "--salvage"],
        ["describe", "LOG", "--group", "no-such-group"],
        ["describe", "LOG", "--group", "x-seq", "--all-groups"],
        ["explain", "LOG", "--group", "x-seq", "--topic", "t-a:x"],
        ["explain", "LOG", "--group", "no-such-group"],
        ["find-coordinator", "g", "--topology", "README.md"],
        ["find-coordinator", "g", "--offsets-topic-num-partitions", "2147483648"],
        ["whatif", "LOG", "--offsets-partitions", "2147483648"],
        ["replay", "LOG", "--output", "OUT", "--cluster", "../escape"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_usage_problems_exit_with_2_and_one_line(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    places = {"LOG": str(case("k431-txn").paths[0]), "OUT": str(tmp_path)}
    code, out, err = outcome([places.get(word, word) for word in arguments], capfd)
    assert (code, out) == (2, "")
    assert "rror: " in err
    assert "Traceback" not in err


@pytest.mark.parametrize("topic", ["t-a:0", "t a", ".", "", "t" * 250])
@pytest.mark.parametrize("command", ["describe", "list", "whatif"])
def test_what_no_topic_may_be_called_is_a_mistake(command: str, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    option = "--delete-topic" if command == "whatif" else "--topic"
    code, out, err = outcome([command, str(case("k431-txn").paths[0]), option, "t-a", option, topic, *NOW], capfd)
    assert (code, out) == (2, "")
    assert f"error: {option}: no topic of Kafka has the name {topic!r}" in err
    assert ("`regroup explain` takes TOPIC:PARTITION" in err) is (":" in topic)


def test_a_topic_that_no_group_has_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    for command in ("describe", "list"):
        code, out, err = outcome([command, str(case("k431-txn").paths[0]), "--topic", "no-such-topic"], capfd)
        assert (code, out) == (0, "")
        assert err.endswith("None of the groups has an offset of these topics, or owns a partition of one.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", ""],
        ["list", "LOG", ""],
        ["dump", ""],
        ["reconcile", ""],
        ["diff", "", ""],
        ["compact", "LOG", "--output", ""],
        ["replay", "LOG", "--output", "", "--cluster", "c"],
        ["restore", "plan", "LOG", "--all-groups", "--against", ""],
    ],
    ids=" ".join,
)
def test_an_empty_path_is_not_the_working_directory(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    shutil.copytree(case("k431-txn").paths[0], log)
    monkeypatch.chdir(log)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = outcome([word.replace("LOG", str(log)) for word in arguments], capfd)
    assert (code, out) == (2, "")
    assert "an empty path" in err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "what", "remedy"),
    [
        (f"{9:020}.log.zst", "compressed segments", "unpack them"),
        ("9.log", "files named .log", "a segment has the 20 digits of its first record offset as name"),
    ],
)
def test_segments_that_are_left_aside_are_told(
    name: str, what: str, remedy: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_segment(tmp_path, b"".join(History().commit(1).batches))
    (segment,) = tmp_path.rglob("*.log")
    # Its own compressed copy is not told.
    segment.with_name(f"{segment.name}.zst").write_bytes(b"")
    left = segment.with_name(name)
    left.write_bytes(b"")
    warning = f"regroup: warning: {what} are not read (1, such as {left}): {remedy}\n"
    for command in ("list", "investigate", "reconcile", "verify"):
        _, _, err = outcome([command, str(tmp_path), "--kafka-version", "4.3.1"], capfd)
        assert err.count(warning) == err.count("warning: ") == 1, command
    assert warning not in outcome(["list", str(segment), "--kafka-version", "4.3.1"], capfd)[2]


@pytest.mark.parametrize("source", ["snapshot", "run"])
def test_a_group_whose_offsets_partition_was_not_copied_is_told_as_that(
    source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = case("k431-txn").paths[0]
    place, rules = str(log / "__consumer_offsets-2"), ["--kafka-version", "4.3.1"]
    if source == "run":
        published = ["--output", str(tmp_path), "--cluster", "c", "--offsets-topic-num-partitions", "50", *rules]
        assert outcome(["replay", place, *published], capfd)[0] == 0
        (manifest,) = tmp_path.glob("c/*/*/manifest.json")
        place, rules = str(manifest.parent), []
    told = "as the run has them" if source == "run" else "the default"
    away = f"; of 50 offsets partitions, {told}, its records are in 40, which is not in this log\n"
    target = ["--against", str(log)]
    for command, first in (
        (["describe", place], "Consumer group 'x-plain-after' does not exist in this log"),
        (["list", place], "Consumer group 'x-plain-after' does not exist in this log"),
        (["expire", place], "Consumer group 'x-plain-after' does not exist in this log"),
        (["stats", place], "no record in this log concerns group 'x-plain-after'"),
        (["explain", place], "no record in this log concerns group 'x-plain-after'"),
        (["explain", place, "--topic", "t"], "no record in this log concerns group 'x-plain-after', topic t"),
        (["investigate", place], "no record in this log concerns group 'x-plain-after'"),
        (["restore", "plan", place, *target], "the source has no committed offset of group 'x-plain-after'"),
        (
            ["restore", "plan", place, *target, "--at-time", "1795260000000"],
            "the source has no committed offset of group 'x-plain-after'",
        ),
    ):
        code, out, err = outcome([*command, "--group", "x-plain-after", *rules], capfd)
        assert (code, out) == (2, ""), command
        assert err.endswith(f"regroup: error: {first}{away}"), command


class TestPathsThatLeadToRuns:
    """The error says which path to name."""

    @pytest.fixture(scope="class")
    @classmethod
    def place(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        place = tmp_path_factory.mktemp("runs")
        shutil.copytree(case("k431-txn").paths[0] / "__consumer_offsets-2", place / "log/__consumer_offsets-2")
        replay = ["replay", str(place / "log"), "--output", str(place / "out"), "--cluster", "c", "--run-id", "r1"]
        assert run([*replay, "--window", "w", "--kafka-version", "4.3.1", "--no-fold-cache"]) == 0
        return place

    @pytest.mark.parametrize("words", [["dump"], ["loads"], ["replay", "--cluster", "c", "--output", "OUT"]])
    def test_a_run_where_a_log_is_read(self, words: list[str], place: Path, capfd: pytest.CaptureFixture[str]) -> None:
        given = str(place / "out/c/w/r1")
        code, _, err = outcome([words[0], given, *words[1:], "--kafka-version", "4.3.1"], capfd)
        assert (code, err) == (
            2,
            f"regroup: error: {given} is a run: name the log that it was made of, {place / 'log'}\n",
        )

    @pytest.mark.parametrize("above", ["out", "out/c", "out/c/w", "out/c/latest.json"])
    def test_a_path_above_a_run(self, above: str, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
        code, _, err = outcome(["list", str(place / above)], capfd)
        said = f"{place / above} is no run, but there are runs below: name one, such as {place / 'out/c/w/r1'}"
        assert (code, err) == (2, f"regroup: error: {said}\n")

    @pytest.mark.parametrize("above", ["out", "out/c", "out/c/w", "out/c/latest.json"])
    @pytest.mark.parametrize("latest", ["{", '{"path": "w/gone", "run_id": "gone", "now_ms": 1}'])
    def test_a_path_above_a_run_that_nothing_names(
        self, latest: str, above: str, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copytree(place / "out", tmp_path / "out")
        (tmp_path / "out/c/latest.json").write_text(latest)
        code, _, err = outcome(["list", str(tmp_path / above)], capfd)
        assert code == 2
        assert err.endswith(f"there are runs below: name one, such as {tmp_path / 'out/c/w/r1'}\n")

    def test_a_cluster_whose_gate_was_never_open(
        self, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copytree(place / "out", tmp_path / "out")
        (tmp_path / "out/c/latest.json").unlink()
        code, _, err = outcome(["list", str(tmp_path / "out/c")], capfd)
        assert code == 2
        assert err.endswith(f"there are runs below: name one, such as {tmp_path / 'out/c/w/r1'}\n")

    def test_a_run_whose_log_is_gone(self, place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        shutil.copytree(place / "out", tmp_path / "out")
        given = tmp_path / "out/c/w/r1"
        manifest = (given / "manifest.json").read_text()
        (given / "manifest.json").write_text(manifest.replace(f'"{place / "log"}"', f'"{tmp_path / "gone"}"'))
        code, _, err = outcome(["explain", str(given), "--group", "x-seq"], capfd)
        assert code == 2
        assert f"{given} was made of {tmp_path / 'gone'}, which is gone: name the log where it is now" in err


def test_a_log_without_a_record_is_told_as_that(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.mkdir()
    write_segment(log, b"")
    warning = f"regroup: warning: {log} holds no record: nothing is known of any group\n"
    for words in (
        ["list"],
        ["investigate"],
        ["reconcile"],
        ["verify"],
        ["replay", "--output", str(tmp_path / "out"), "--cluster", "c"],
    ):
        code, _, err = outcome([words[0], str(log), *words[1:]], capfd)
        assert (code, err.count(warning)) == (0, 1), err
        assert ("assumed: no record tells it" in err) is (words[0] != "verify")
        assert "told from the records" not in err
    told: dict[str, dict[str, Any]] = {
        "replay": {"rows": {"record_counts": 0}, "load_failures": 0, "damage": 0},
        "history": {"rows": 0, "damage": [], "history": "out", "hash": None, "profile_told": False},
    }
    for module in (history, spark_app):
        monkeypatch.setattr(module, "run_spark_app", lambda app, *_: {**told[app], "profile": "J3 (4.3.1)"})
    for words in (["replay", "--cluster", "c"], ["history"]):
        arguments = [words[0], str(log), *words[1:], "--output", str(tmp_path / "out"), "--engine", "spark"]
        code, _, err = outcome(arguments, capfd)
        # The app has warned of the log.
        assert (code, err.count(warning)) == (0, 0), err
        assert "regroup: profile J3 (4.3.1), assumed: no record tells it\n" in err
    assert outcome(["investigate", str(log)], capfd)[1].startswith("This log holds no group.\n")
    assert "(4.3.1, new coordinator), assumed: no record tells it\n" in outcome(["list", str(log)], capfd)[2]
    write_segment(log, b"".join(History().commit(1).batches))
    assert "holds no record" not in outcome(["list", str(log)], capfd)[2]


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("command", ["replay", "list"])
def test_damage_that_was_read_past_is_told_by_either_engine(
    command: str, engine: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def replayed(_: str, __: str, arguments: list[str], *___: object) -> dict[str, Any]:
        options = dict(zip(arguments[::2], arguments[1::2], strict=False))
        place = RunPlace(*(options[f"--{name}"] for name in ("output", "cluster", "window", "run-id")))
        snapshot = discover([options["--snapshot"]])
        manifest = replay_to_run(snapshot, place, profile=None, now_ms=NOW_MS, on_damage=OnDamage.RECOVER)
        return summary(manifest, path=place.path, latest=False)

    monkeypatch.setattr(spark_app, "run_spark_app", replayed)
    log = tmp_path / "log"
    log.mkdir()
    write_segment(log, damaged())
    more = ["--output", str(tmp_path / "out"), "--cluster", "c"] if command == "replay" else []
    code, _, err = outcome([command, str(log), *more, "--partial", "--engine", engine], capfd)
    assert code == 0
    assert err.count("regroup: profile J3 (4.3.1, new coordinator), told from the records\n") == 1
    assert err.count("bad_crc") == 1
    assert "the input is damaged; it was read as a restarting broker would, and the result is partial" in err


@pytest.mark.parametrize("command", ["replay", "history", "compact"])
def test_segments_that_are_not_read_are_told(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The Spark apps tell it, too (``tests/spark/test_exits.py``)."""
    log = tmp_path / "log"
    log.mkdir()
    write_segment(log, b"".join(History().commit(1).batches))
    packed = log / "__consumer_offsets-0/00000000000000000007.log.gz"
    packed.write_bytes(b"")
    more = {"replay": ["--cluster", "c"], "history": [], "compact": ["--format", "json"]}[command]
    code, _, err = outcome([command, str(log), "--output", str(tmp_path / "o"), *more], capfd)
    assert code == 0
    assert err.count(f"regroup: warning: compressed segments are not read (1, such as {packed}): unpack them\n") == 1
    assert err.count(", told from the records\n") == 1


@pytest.mark.parametrize("command", ["describe", "list"])
def test_a_group_of_two_offsets_partitions_is_named(
    command: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The offsets topic got more partitions, and a group has state in its old one and in its new one."""
    group = "g"
    home = partition_for(group, 8)
    old = home % 4 if home % 4 != home else (home + 1) % 8
    for partition in (old, home):
        Log().generation(group, 1).commit(group, {("orders", 0): 7}).write(tmp_path, partition)
    arguments = [command, str(tmp_path), "--kafka-version", "3.9.2"]
    both = ", ".join(map(str, sorted((old, home))))
    for more, told in (
        ([], "with one of them; give --offsets-topic-num-partitions"),
        (["--offsets-topic-num-partitions", "8"], f"with that of {home} (of 8 offsets partitions, as was given)"),
    ):
        assert run([*arguments, *more]) == 0
        warned = capfdbinary.readouterr().err.decode()
        assert f"group 'g' is in offsets partitions {both}: the broker answers {told}" in warned


WITHOUT_SPARK_ARGUMENTS = {
    "audit export": ["--output", "evidence"],
    "dump": [],
    "explain": ["--group", "x-plain-after"],
    "investigate": ["--group", "x-plain-after"],
    "loads": ["--releases", "4.3.1"],
    "rescue": [],
    "verify": [],
}


def test_a_command_that_has_no_spark_says_so_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = "regroup: this command works in this process: --engine spark changes nothing\n"
    without = {
        name
        for name, command in leaf_commands(cli)
        if WITHOUT_SPARK in [one.help for one in command.params if isinstance(one, click.Option)]
    }
    assert without == WITHOUT_SPARK_ARGUMENTS.keys()
    for name, more in WITHOUT_SPARK_ARGUMENTS.items():
        line = [*name.split(), *case("k431-txn").command_line(), *NOW, *more]
        local = outcome(line, capfd)
        shutil.rmtree("evidence", ignore_errors=True)
        asked = outcome([*line, "--engine", "spark"], capfd)
        assert asked[:2] == local[:2]
        assert (told in asked[2], told in local[2]) == (True, False)
