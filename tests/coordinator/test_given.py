"""A trace gives the model its field ``given``; all else that a broker did is compared.

Each change below makes a recording wrong. A recording without the field shows the given only by what is wrong now, so
that its check finds nothing; with the field the check finds it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from tests.coordinator.traces import TRACES, name, trace

Lines = list[dict[str, Any]]
DEAD = "scripted/3.9.2/delete-offsets-with-pending-transaction"


def lines_of(name_: str) -> Lines:
    return [json.loads(line) for line in trace(name_).read_text().splitlines()]


def check(lines: Lines, directory: Path, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The differences that ``regroup simulate --check`` prints."""
    path = directory / "changed.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code = run(["simulate", "--check", str(path)])
    found = capfd.readouterr().out.splitlines()
    assert code == (1 if found else 0)
    return found


def records(lines: Lines) -> list[dict[str, Any]]:
    return [record for line in lines for record in line.get("records", ())]


def reply(lines: Lines, number: int) -> dict[str, Any]:
    return next(line for line in lines if line.get("reply") == number)


def a_sweep_at_another_time(lines: Lines) -> None:
    for record in records(lines):
        if record.get("value", 0) is None:
            record["t"] += 400 if record["t"] % 1_000 < 500 else -400


def a_clean_up_of_transactions_at_another_time(lines: Lines) -> None:
    for record in records(lines):
        if record.get("control") == "ABORT":
            record["t"] -= 400


def a_load_that_is_denied(lines: Lines) -> None:
    reply(lines, 8)["body"] = reply(lines, 7)["body"]


def a_load_that_begins_earlier(lines: Lines) -> None:
    reply(lines, 7)["body"] = reply(lines, 8)["body"]


def members_answered_in_another_order(lines: Lines) -> None:
    """The last LeaveGroup whose members differ in what they are answered."""
    answers = [line["body"]["members"] for line in lines if len(line.get("body", {}).get("members", ())) > 1]
    left = [members for members in answers if "errorCode" in members[0]]
    assert left[-1] != left[-1][::-1]
    left[-1].reverse()


def an_id_that_begins_with_another_client(lines: Lines) -> None:
    variables = lines[-1]["variables"]
    assert variables["$m1"].startswith("c1-")
    variables["$m1"] = "c2-" + variables["$m1"].removeprefix("c1-")


def a_group_that_goes_earlier(lines: Lines) -> None:
    reply(lines, 9)["body"] = reply(lines, 11)["body"]


def an_assignment_of_other_partitions(lines: Lines) -> None:
    marked = next(line for line in lines if "body.assignment.topicPartitions[0].partitions[len 1/2]" in _marks(line))
    marked["body"]["assignment"]["topicPartitions"][0]["partitions"].append(0)


def _marks(line: dict[str, Any]) -> list[str]:
    found: list[str] = line.get("nondeterministic", [])
    return found


@pytest.mark.parametrize(
    ("name_", "change", "message"),
    [
        ("scripted/3.9.2/sweep-default-retention-simple", a_sweep_at_another_time, ".t: expected"),
        ("scripted/4.3.1/sweep-default-retention-simple", a_sweep_at_another_time, ".t: expected"),
        ("scripted/3.9.2/txn-timeout", a_clean_up_of_transactions_at_another_time, ".t: expected"),
        ("scripted/4.3.1/txn-timeout", a_clean_up_of_transactions_at_another_time, ".t: expected"),
        ("reload/4.3.1/reload-consumer-group", a_load_that_is_denied, "body.errorCode: expected 16, got 14"),
        ("reload/4.3.1/reload-consumer-group", a_load_that_begins_earlier, "body.errorCode: expected 14, got 16"),
        ("scripted/4.3.1/leave-batch", members_answered_in_another_order, "body.members[0].memberId: expected"),
        (
            "scripted/4.3.1/join-two-members",
            an_id_that_begins_with_another_client,
            'memberId: expected "$m1", got "c1-',
        ),
        (DEAD, a_group_that_goes_earlier, 'groupState: expected "Dead", got "Empty"'),
        ("scripted/4.3.1/cg-upgrade-classic-group", an_assignment_of_other_partitions, ".partitions["),
    ],
)
def test_a_wrong_recording_is_found_where_it_explained_itself(
    name_: str,
    change: Callable[[Lines], None],
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lines = lines_of(name_)
    assert check(lines, tmp_path, capfd) == []
    change(lines)
    assert any(message in difference for difference in check(lines, tmp_path, capfd))
    del lines[0]["given"]
    # What stands before the random part of an id is predicted with the field and without.
    if change is not an_id_that_begins_with_another_client:
        assert check(lines, tmp_path, capfd) == []


def test_a_sweep_that_finds_nothing_may_come_at_any_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = lines_of("scripted/3.9.2/sweep-pending-member-group")
    for sweep_t in (0, 300, 700):
        lines[0]["given"]["sweep_t"] = sweep_t
        assert check(lines, tmp_path, capfd) == []


def test_a_sweep_that_the_recording_says_removed_nothing_is_compared(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of("scripted/4.3.1/sweep-explicit-retention")
    for line in lines:
        if "records" in line:
            line["records"] = [one for one in line["records"] if one.get("value", 0) is not None]
    assert any("expected nothing, got" in difference for difference in check(lines, tmp_path, capfd))
    del lines[0]["given"]
    assert check(lines, tmp_path, capfd) != []


def test_records_that_the_recording_leaves_out_are_a_difference(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in lines_of("scripted/3.9.2/commit-then-join") if "records" not in line]
    (found,) = check(lines, tmp_path, capfd)
    assert "expected no records, got" in found


def test_an_answer_is_lost_only_when_it_was_on_its_way(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in lines_of("scripted/3.9.2/commit-then-join") if line.get("reply") != 1]
    at = next(position for position, line in enumerate(lines) if line.get("send") == 2)
    lines.insert(at, {"t": lines[at]["t"], "closed": 1, "client": "o", "by": "client", "lost": [1]})
    assert check(lines, tmp_path, capfd) == []
    for line in lines[at:]:
        line |= {"t": line["t"] + 1_000} if "t" in line else {}
    assert any("reply 1: expected no answer" in difference for difference in check(lines, tmp_path, capfd))


def test_a_late_answer_counts_also_where_a_field_is_marked(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = lines_of("scripted/4.3.1/cg-upgrade-classic-group")
    next(line for line in lines if _marks(line) and "reply" in line)["t"] += 1_000
    assert any(" t: expected" in difference for difference in check(lines, tmp_path, capfd))


def test_a_topic_that_somebody_else_deletes_ends_groups_without_offsets(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A Scala broker cleans every group then (``handleDeletedPartitions``), and writes nothing about this one.

    A commit without a value left of it changes nothing: the group is Empty until somebody cleans it.
    """
    lines = lines_of(DEAD)
    states = {number: reply(lines, number)["body"]["groups"][0]["groupState"] for number in (7, 9, 11)}
    assert states == {7: "Empty", 9: "Empty", 11: "Dead"}
    del lines[0]["given"]["topic_deletions"]
    found = check(lines, tmp_path, capfd)
    assert 'reply 11 body.groups[0].groupState: expected "Dead", got "Empty"' in found[0]


def test_every_trace_says_what_it_gives() -> None:
    for path in TRACES:
        assert "given" in json.loads(path.read_text().partition("\n")[0]), name(path)


def test_the_field_is_written_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is what stands in the trace already; other lines stay as they are; a second time changes nothing."""
    source = trace("reload/4.3.1/reload-states").read_text()
    head, _, rest = source.partition("\n")
    bare = {name_: value for name_, value in json.loads(head).items() if name_ != "given"}
    path = tmp_path / "bare.jsonl"
    path.write_text(json.dumps(bare) + "\n" + rest)
    assert run(["simulate", "--check", str(path)]) == 0
    assert "1 trace without the field given" in capfd.readouterr().err
    assert run(["simulate", "--write-given", str(path)]) == 0
    assert path.read_text() == source
    path.write_text(source.replace('"end_t": ', '"end_t": 1'))
    written = path.read_text()
    assert run(["simulate", "--write-given", str(path)]) == 0
    assert path.read_text() == written
    assert "written into 0 of 1" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "given: expected an object"),
        ({"what": 1}, "given: what: unknown field"),
        ({"end_t": "late"}, "given: end_t: expected float, got 'late'"),
        ({"loads": [{"begin_t": 1}]}, "given: loads[0].end_t: missing"),
        ({"member_ids": {"first": "x"}}, "given: member_ids: 'first' is no number"),
        ({"leave_orders": {"1": [0, 2]}}, "given: leave_orders: not an order of positions"),
    ],
)
def test_a_field_that_is_not_as_it_should_be_is_refused(
    given: Any, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of("scripted/3.9.2/commit-then-join")
    lines[0]["given"] = given
    path = tmp_path / "bad.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run(["simulate", "--check", str(path)]) == 3
    assert f"line 1: {message}" in capfd.readouterr().err


def test_a_restart_needs_its_load_and_a_leave_order_its_members(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name_, part, message in (
        ("reload/4.3.1/reload-states", {"loads": []}, "a restart without its load"),
        ("scripted/4.3.1/leave-batch", {"leave_orders": {"*": [0]}}, "the field given orders 1 members of"),
    ):
        lines = lines_of(name_)
        given = lines[0]["given"] | part
        if "leave_orders" in part:
            last = [
                line["send"] for line in lines if len(line.get("body", {}).get("members", ())) > 1 and "send" in line
            ]
            given["leave_orders"] = {str(last[-1]): [0]}
        lines[0]["given"] = given
        path = tmp_path / "bad.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert run(["simulate", "--check", str(path)]) == 3
        assert message in capfd.readouterr().err
