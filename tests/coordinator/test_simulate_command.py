"""``regroup simulate``: output, comparison, exit codes, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from tests.coordinator.traces import trace

TRACE = trace("scripted/3.9.2/commit-then-join")


def test_prints_replies_and_records_in_the_traces_own_format(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", str(TRACE)]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    replies = [line for line in lines if "reply" in line]
    assert [line["reply"] for line in replies] == list(range(1, len(replies) + 1))
    assert set(replies[0]) == {"t", "reply", "body"}
    assert [line["bind"] for line in replies if "bind" in line] == [{"$m1": "memberId"}]
    (records,) = [line for line in lines if "records" in line]
    assert records["groups"] == ["commit-then-join.g1"]
    assert records["records"][0]["key"] == {
        "type": 1,
        "data": {"group": "commit-then-join.g1", "topic": "t1", "partition": 0},
    }
    assert set(records["records"][0]["value"]["data"]["commitTimestamp"]) == {"t"}


def test_check_says_nothing_when_all_is_equal(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--check", str(TRACE), str(trace("scripted/4.3.1/txn-v2"))]) == 0
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "2 traces, 0 differences" in printed.err


def test_check_names_trace_line_field_and_both_values(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(TRACE.read_text().replace('"protocolName": "range"', '"protocolName": "sticky"', 1))
    assert run(["simulate", "--check", str(path)]) == 1
    printed = capfd.readouterr()
    first = printed.out.splitlines()[0]
    assert printed.err.startswith("1 trace, ")
    assert first.startswith(f"{path}: line ")
    assert 'protocolName: expected "sticky", got "range"' in first


def test_a_trace_is_checked_or_written(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--check", "--write-given", str(TRACE)]) == 2
    assert "exclude each other" in capfd.readouterr().err


def test_the_tolerance_is_an_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = TRACE.read_text().splitlines()
    reply = json.loads(lines[2])
    lines[2] = json.dumps(reply | {"t": reply["t"] + 1_000})
    path = tmp_path / "late.jsonl"
    path.write_text("\n".join(lines))
    assert run(["simulate", "--check", str(path)]) == 1
    assert run(["simulate", "--check", "--time-tolerance-ms", "2000", str(path)]) == 0
    capfd.readouterr()
    assert run(["simulate", "--time-tolerance-ms", "2000", str(path)]) == 2
    assert "--time-tolerance-ms goes with --check" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("number", "text", "message"),
    [
        (1, "", "line 1: an empty file is no trace"),
        (1, "{", "line 1: not JSON"),
        (1, "[]", "line 1: not a JSON object"),
        (1, '{"trace": "x"}', "line 1: first line: kafka: missing"),
        (2, '{"t": 0, "what": 1}', "line 2: unknown kind of line: t, what"),
        (2, '{"t": 0, "send": 1, "client": "c"}', "line 2: send line: api: missing"),
        (
            2,
            '{"t": 0, "send": 1, "client": "c", "api": "Fetch", "version": 1, "body": {}}',
            "line 2: Fetch v1: the model has no Fetch",
        ),
        (
            2,
            '{"t": 0, "send": 1, "client": "c", "api": "Heartbeat", "version": 1, "body": {}}',
            "line 2: Heartbeat v1: groupId: missing",
        ),
        (
            2,
            '{"t": 0, "send": 1, "client": "c", "api": "JoinGroup", "version": 1, "body": {"metadata": "?"}}',
            "line 2: JoinGroup v1: groupId: missing",
        ),
        (
            2,
            '{"t": 0, "send": 1, "client": "c", "api": "DescribeGroups", "version": 0, "body": {"groups": "g"}}',
            "line 2: DescribeGroups v0: groups: expected list, got 'g'",
        ),
        (
            2,
            '{"t": 0, "send": 1, "client": "c", "api": "SyncGroup", "version": 0, "body": {"groupId": "g", '
            '"generationId": 1, "memberId": "m", "assignments": [{"memberId": "m", "assignment": "?"}]}}',
            "line 2: ",
        ),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(
    number: int, text: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    head = TRACE.read_text().splitlines()[: number - 1]
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join([*head, text]) if head or text else "")
    assert run(["simulate", str(path)]) == 3
    printed = capfd.readouterr().err
    assert str(path) in printed
    assert message in printed


SEND = '{"t": 0, "send": 1, "client": "c", "api": "%s", "version": 5, "body": %s}'
JOIN = (
    '{"groupId": "g", "memberId": "", "groupInstanceId": "i", "sessionTimeoutMs": 6000, "rebalanceTimeoutMs": %s, '
    '"protocolType": "consumer", "protocols": [{"name": "range", "metadata": ""}]}'
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"t": NaN, "wait": 1}', "wait line: t: expected float from -1000000000000 to 1000000000000, got nan"),
        ('{"t": 1e12, "wait": "1"}', "wait line: wait: expected float, got '1'"),
        ('{"t": 0, "closed": 1, "lost": [{}]}', "closed line: lost[0]: expected int, got {}"),
        ('{"t": 0, "reply": 1, "body": {"members": [null]}}', "reply line: body.members[0]: expected an object"),
        ('{"t": 0, "reply": 1, "nondeterministic": [1], "body": {}}', "nondeterministic[0]: expected str, got 1"),
        ('{"partition": 0, "groups": ["g"], "records": [{"t": {}}]}', "records line: records[0].t: expected float"),
        ('{"variables": {"$p1": {}}}', "$p1: expected int, got {}"),
        ('{"variables": {"$topic:t1": ""}}', "$topic:t1: expected a topic id of 22 characters, got ''"),
        ('{"variables": {"x": 1}}', "unknown kind of variable: x"),
        (SEND % ("DeleteGroups", '{"groupsNames": ["\\ud800"]}'), "line 2: text that UTF-8 cannot hold"),
        (SEND % ("JoinGroup", JOIN % (1 << 31)), "rebalanceTimeoutMs: expected int from -2147483648 to 2147483647"),
        (SEND.replace("5", "-1") % ("ListGroups", "{}"), "version: expected int from 0 to 32767, got -1"),
        ('{"t": 0, "reply": 1, "body": ' + '{"a": ' * 100 + "1" + "}" * 101, "nested more than 64 levels deep"),
    ],
)
def test_values_of_other_types_are_refused_with_their_place(
    line: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f"{TRACE.read_text().splitlines()[0]}\n{line}\n")
    assert run(["simulate", "--check", str(path)]) == 3
    said = capfd.readouterr().err
    assert (said.count("\n"), f"{path}: byte " in said, "line 2: " in said, message in said) == (1, True, True, True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(
            '"offsets.retention.check.interval.ms": "600000"',
            '"offsets.retention.check.interval.ms": "1"',
            "timers fall due",
            marks=pytest.mark.full,
        ),
        ('"offsets.topic.num.partitions": "5"', '"offsets.topic.num.partitions": "2147483647"', "at most 100000 are"),
        ('"partitions": 3', '"partitions": 2147483647', "partitions: expected int from 0 to 100000"),
        ('"group.max.size": "2147483647"', '"group.max.size": "0"', "group.max.size: expected int from 1 to"),
        ('"id": "$topic:t1"', '"id": "x"', "topics.t1.id: expected a topic id or its variable, got 'x'"),
    ],
)
def test_a_simulation_has_limits(
    old: str, new: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.jsonl"
    text = TRACE.read_text()
    assert old in text
    text = text.replace(old, new, 1).replace('"given": {', '"given": {"sweep_t": 0, ', 1)
    path.write_text(text + '{"t": 10000000, "wait": 0}')
    assert run(["simulate", "--check", str(path)]) == 3
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert message in said


@pytest.mark.parametrize("given", ['"given"', '"notes"'])
def test_a_setting_that_is_not_a_number_is_refused(
    given: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "setting.jsonl"
    text = TRACE.read_text().replace('"group.max.size": "2147483647"', '"group.max.size": "many"')
    path.write_text(text.replace('"given"', given, 1))
    assert run(["simulate", str(path)]) == 3
    assert "line 1: group.max.size: not a whole number: 'many'" in capfd.readouterr().err


def test_a_missing_file_is_a_matter_of_usage(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", str(tmp_path / "nothing.jsonl")]) == 2
    capfd.readouterr()


def of(release: str, coordinator: str, directory: Path) -> Path:
    """A recording of classic groups that says to be of another release."""
    path = directory / "of.jsonl"
    head, _, rest = TRACE.read_text().partition("\n")
    fields = json.loads(head) | {"kafka": release, "coordinator": coordinator}
    path.write_text(json.dumps(fields) + "\n" + rest)
    return path


@pytest.mark.parametrize(
    ("release", "coordinator", "message"),
    [
        ("2.8.0", "java", "Kafka 2.8.0 has only the classic coordinator"),
        ("4.3.1", "scala", "Kafka 4.3.1 has only the new coordinator"),
        ("5.0.0", "java", "no rules for Kafka 5.0.0"),
    ],
)
@pytest.mark.parametrize("option", ["--check", "--write-given"])
def test_a_release_that_has_not_the_coordinator_is_refused(
    release: str, coordinator: str, message: str, option: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = of(release, coordinator, tmp_path)
    assert run(["simulate", option, str(path)]) == 2
    assert f"{path}: line 1: {message}" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("release", "coordinator", "note"),
    [
        ("3.8.1", "scala", "Kafka 3.8.1 is not modelled: answered as by 3.9"),
        ("4.1.1", "java", "Kafka 4.1.1 is not modelled: answered as by 4.3"),
        ("3.9.2", "scala", None),
        ("live", "scala", None),
    ],
)
def test_a_release_that_is_not_modelled_is_named(
    release: str, coordinator: str, note: str | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(["simulate", "--check", str(of(release, coordinator, tmp_path))])
    said = capfd.readouterr().err
    assert note is None or note in said
    assert ("is not modelled" in said) is (note is not None)
