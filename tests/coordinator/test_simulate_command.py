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
    first = capfd.readouterr().out.splitlines()[0]
    assert first.startswith(f"{path}: line ")
    assert 'protocolName: expected "sticky", got "range"' in first


def test_the_tolerance_is_an_option(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = TRACE.read_text().splitlines()
    reply = json.loads(lines[2])
    lines[2] = json.dumps(reply | {"t": reply["t"] + 1_000})
    path = tmp_path / "late.jsonl"
    path.write_text("\n".join(lines))
    assert run(["simulate", "--check", str(path)]) == 1
    assert run(["simulate", "--check", "--time-tolerance-ms", "2000", str(path)]) == 0
    capfd.readouterr()


@pytest.mark.parametrize(
    ("number", "text", "message"),
    [
        (1, "", "line 1: an empty file is no trace"),
        (1, "{", "line 1: not JSON"),
        (1, "[]", "line 1: not a JSON object"),
        (1, '{"trace": "x"}', "line 1: the first line has no kafka"),
        (2, '{"t": 0, "what": 1}', "line 2: unknown kind of line: t, what"),
        (2, '{"t": 0, "send": 1, "client": "c"}', "line 2: a send line without a proper api"),
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
