"""Kafka 4.3.1, killed while its clients are at work: what Regroup reads from the log left behind is what the
broker itself rebuilds from it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.live.broker import KAFKA_VERSION, Kafka
from tests.live.scenario import DELETED_GROUP, GROUPS, OPEN_OFFSET_KEYS, Scenario
from tests.reports.broker_answers import comparable, expected_groups

ROOT = Path(__file__).resolve().parent.parent.parent
Json = dict[str, Any]


def regroup(*arguments: str) -> str:
    """Standard output of a ``regroup`` command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "coordinator_core", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def described(scenario: Scenario) -> Json:
    document: Json = json.loads(regroup("describe", "--format", "json", "--now-ms", "0", *scenario.case.command_line()))
    return document


def test_the_release_is_the_promised_one(kafka: Kafka) -> None:
    assert KAFKA_VERSION == "4.3.1"
    assert kafka.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", "--version").split()[0] == KAFKA_VERSION


def test_the_broker_holds_what_the_clients_did(scenario: Scenario) -> None:
    """The scenario itself: without it the comparisons below could agree about nothing."""
    answers = scenario.case.reloaded()
    groups = answers["groups"]
    assert {
        group_id: (group["type"], group["describe"]["groupState"], len(group["describe"]["members"]))
        for group_id, group in groups.items()
    } == GROUPS
    unstable = {
        (group_id, offset_key["topic"], offset_key["partition"])
        for group_id, group in groups.items()
        for offset_key in group["unstablePartitions"]
    }
    assert unstable == OPEN_OFFSET_KEYS
    assert DELETED_GROUP not in groups
    states = {row["transactionalId"]: row["transactionState"] for row in answers["listTransactions"]}
    assert states == {"tx-ended": "CompleteCommit", "tx-open": "Ongoing"}
    producer_ids = {row["producerId"] for row in answers["openTransactions"]}
    assert producer_ids == {
        row["producerId"] for row in answers["listTransactions"] if row["transactionalId"] == "tx-open"
    }


def test_the_restart_left_the_log_as_it_was(scenario: Scenario) -> None:
    """The broker's answers after the restart come from the very bytes that Regroup reads."""

    def contents(segments: list[Path]) -> dict[str, bytes]:
        return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in segments}

    assert contents(scenario.restarted_segments) == contents(scenario.segments)


@pytest.mark.parametrize("group_id", [*GROUPS, DELETED_GROUP])
def test_a_group_is_what_the_broker_reloaded(scenario: Scenario, described: Json, group_id: str) -> None:
    ours = {group["group_id"]: comparable(group, scenario.case) for group in described["groups"]}
    assert ours.get(group_id) == expected_groups(scenario.case).get(group_id)


def test_the_groups_are_those_the_broker_lists(scenario: Scenario, described: Json) -> None:
    ours = [
        {
            "groupId": group["group_id"],
            "protocolType": group["protocol_type"] or "",
            "groupState": group["state"],
            "groupType": group["type"],
        }
        for group in described["groups"]
    ]
    assert sorted(ours, key=lambda row: str(row["groupId"])) == scenario.case.reloaded()["listGroups"]
    assert described["orphaned_offsets"] == []
    assert described["load_failures"] == []
    assert described["partial"] is False


@pytest.mark.parametrize("group_id", ["g-classic", "g-static"])
def test_classic_members_agree_with_their_own_words(scenario: Scenario, described: Json, group_id: str) -> None:
    """Generation and assignment as the members knew them; DescribeGroups does not answer the generation."""
    (group,) = [group for group in described["groups"] if group["group_id"] == group_id]
    words = scenario.members[group_id]
    assert len(words) == 2
    assert {word["generation"] for word in words} == {group["generation"]}
    assert group["leader"] in {word["member_id"] for word in words}
    members = {member["member_id"]: member for member in group["members"]}
    for word in words:
        member = members[word["member_id"]]
        assert member["instance_id"] == word["instance_id"]
        assigned = [[row["topic"], partition] for row in member["assignment"] for partition in row["partitions"]]
        assert sorted(assigned) == word["assignment"]


def test_open_transactions_are_those_of_the_logs_producer_state(scenario: Scenario, described: Json) -> None:
    ours = [
        {
            "partition": transaction["offsets_partition"],
            "producerId": transaction["producer_id"],
            "producerEpoch": transaction["producer_epoch"],
            "firstOffset": transaction["first_record_offset"],
        }
        for transaction in described["transactions"]
        if transaction["outcome"] == "open"
    ]
    theirs = scenario.case.reloaded()["openTransactions"]
    assert theirs
    assert sorted(ours, key=lambda row: (row["partition"], row["producerId"])) == theirs


def test_ended_transactions_ended_as_the_producer_asked(described: Json) -> None:
    outcomes = defaultdict(list)
    for transaction in described["transactions"]:
        for group_id in transaction["groups"]:
            outcomes[group_id].append(transaction["outcome"])
    assert outcomes["g-txn-committed"] == ["committed", "committed", "aborted"]
    assert outcomes["g-txn-aborted"] == ["aborted"]
    assert outcomes["g-txn-open"] == ["open"]
    assert sorted(outcomes["g-txn-two-producers"]) == ["committed", "open"]


def sections(dump: str) -> dict[str, list[str]]:
    """Lines of a dump by segment (``__consumer_offsets-7/00000000000000000000.log``)."""
    found: dict[str, list[str]] = {}
    for line in dump.rstrip("\n").split("\n"):
        if line.startswith("Dumping "):
            path = Path(line.removeprefix("Dumping "))
            lines = found.setdefault(f"{path.parent.name}/{path.name}", [])
        else:
            lines.append(line)
    return found


def test_dump_prints_what_kafkas_dump_tool_prints(scenario: Scenario) -> None:
    theirs = sections(scenario.dump)
    assert list(theirs) == [f"{path.parent.name}/{path.name}" for path in scenario.segments]
    ours = sections(regroup("dump", *scenario.case.command_line()))
    empty = [name for name in ours if name not in theirs]
    assert [name for name in empty if (scenario.case.paths[0] / name).stat().st_size] == []
    for name, lines in theirs.items():
        assert ours[name] == lines, name


def test_verify_finds_the_log_of_a_killed_broker_clean(scenario: Scenario) -> None:
    document = json.loads(regroup("verify", "--format", "json", str(scenario.case.paths[0])))
    assert document["status"] == "clean"
    assert document["damage"] == []
    ours = {
        f"{Path(row['path']).parent.name}/{Path(row['path']).name}": (row["batches"], row["records"])
        for row in document["segments"]
        if row["bytes"]
    }
    theirs = {
        name: (
            sum(line.startswith("baseOffset: ") for line in lines),
            sum(line.startswith("| offset: ") for line in lines),
        )
        for name, lines in sections(scenario.dump).items()
    }
    assert ours == theirs
