"""Failures on a real 4.3.1 broker between a plan and its end: each says so, and the second try ends well."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import NoError
from kafka.protocol.admin import AlterClientQuotasRequest
from kafka.structs import OffsetAndMetadata

from coordinator_core.cluster.client import Client
from coordinator_core.cluster.restore_apply import ApplyOptions, apply_plan
from coordinator_core.cluster.settings import client_settings
from coordinator_core.errors import ExitCode
from coordinator_core.restore.decide import group_plan
from coordinator_core.restore.model import Action, Plan, Position, Row, write_plan
from coordinator_core.restore.target import Target, TargetGroup
from tests.drill.kit import events, signalled
from tests.history.logs import Log
from tests.live.broker import create_topics, wait_for
from tests.restore.kit import (
    PARTITIONS,
    SETTINGS,
    TOPIC,
    Place,
    applied,
    member_was_there,
    offsets_of,
    plan_of,
    regroup,
    rolled_back,
)

OFFSETS_PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])


def stopped(event: int, *command: str | Path) -> subprocess.Popen[bytes]:
    """The command line, stopped behind an event of its journal."""
    process = signalled(event, "after", signal.SIGSTOP, *command)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    return process


def goes_on(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGCONT)
    return process.wait(600)


def errors(directory: Path) -> dict[str, set[str]]:
    """Errors of groups by the last word of the journal on them."""
    ends = events(directory / "journal.jsonl", "end")
    return {end["group_id"]: {error["error"] for error in end["errors"]} for end in ends}


def unchecked(place: Place, groups: Mapping[str, Mapping[tuple[str, int], Position]], path: Path) -> None:
    """A plan that nothing has checked: what brokers say then is theirs."""
    with Client(client_settings(place.broker.bootstrap, {})) as client:
        target = Target("", client.cluster_id, {}, None, OFFSETS_PARTITIONS)
    plans = [
        group_plan(
            TargetGroup(group),
            target,
            [Row(group, *key, Action.CREATE, None, after, "") for key, after in sorted(rows.items())],
        )
        for group, rows in sorted(groups.items())
    ]
    write_plan(str(path), Plan("restore", target.cluster_id, "", "", {}, 1, tuple(plans)))


def test_errors_of_single_partitions_leave_the_others(place: Place, tmp_path: Path) -> None:
    """OFFSET_METADATA_TOO_LARGE and UNKNOWN_TOPIC_OR_PARTITION are answered beside what is written."""
    rows = {
        (TOPIC, 0): Position(1),
        (TOPIC, 1): Position(2, metadata="m" * 4097),
        (TOPIC, 2): Position(3, metadata="m" * 4096),
        (TOPIC, PARTITIONS): Position(4),
        ("no-such-topic", 0): Position(0),
    }
    plan, directory = tmp_path / "plan.json", tmp_path / "applied"
    unchecked(place, {"partial": rows, "whole": {(TOPIC, 0): Position(6)}}, plan)
    apply = ("restore", "apply", plan, *place.server, "--execute", "--output", directory)
    failed = regroup(*apply, code=ExitCode.APPLY_FAILED)
    for said in (
        "'partial', orders-1: OFFSET_METADATA_TOO_LARGE",
        f"'partial', orders-{PARTITIONS}: UNKNOWN_TOPIC_OR_PARTITION",
        "'partial', no-such-topic-0: UNKNOWN_TOPIC_OR_PARTITION",
    ):
        assert said in failed.stderr
    written = {(TOPIC, 0): (1, -1, ""), (TOPIC, 2): (3, -1, "m" * 4096)}
    assert place.held("partial", "whole") == {"partial": written, "whole": {(TOPIC, 0): (6, -1, "")}}
    (end,) = events(directory / "journal.jsonl", "end", group_id="partial")
    assert (end["written"], len(end["errors"])) == (2, 3)
    unproved = json.loads(
        regroup("restore", "verify", directory, *place.server, "--format", "json", code=ExitCode.APPLY_FAILED).stdout
    )
    assert len(unproved["records"]) == 3
    create_topics(place.admin, {"no-such-topic": 1})
    regroup(*apply, code=ExitCode.APPLY_FAILED)
    assert ("no-such-topic", 0) in place.held("partial")["partial"]
    assert events(directory / "journal.jsonl", "end", group_id="partial")[1]["written"] == 1
    rolled_back(place, directory, tmp_path)
    assert not place.held("partial", "whole")


def test_metadata_that_the_brokers_do_not_take_is_blocked_or_dropped(place: Place, tmp_path: Path) -> None:
    log = Log().commit("long", {(TOPIC, 0): 10}, metadata="m" * 4097).commit("long", {(TOPIC, 1): 11}, metadata="m")
    source = log.write(tmp_path / "source")
    arguments = (source, "--kafka-version", "3.9.2", "--group", "long")
    blocked = plan_of(place, *arguments, output=tmp_path / "plan.json", code=ExitCode.FINDINGS)
    assert [row["action"] for row in blocked["groups"][0]["rows"]] == ["blocked", "create"]
    plan_of(place, *arguments, "--metadata", "drop", output=tmp_path / "plan.json")
    applied(place, tmp_path / "plan.json", tmp_path / "applied")
    assert place.held("long")["long"] == {(TOPIC, 0): (10, -1, ""), (TOPIC, 1): (11, -1, "m")}


def test_below_the_log_start_and_a_topic_made_again(place: Place, tmp_path: Path) -> None:
    topic, group = "again", "reader"

    def make() -> None:
        create_topics(place.admin, {topic: 1})
        producer = KafkaProducer(bootstrap_servers=place.broker.bootstrap)
        for _ in range(100):
            producer.send(topic, b"record", partition=0)
        producer.close()

    def commit(offset: int) -> None:
        wanted = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "m", 0)}
        assert set(place.admin.alter_group_offsets(group, wanted).values()) == {NoError}

    make()
    commit(20)
    regroup("capture", *place.server, "--output", tmp_path / "good")
    commit(90)
    place.admin.delete_records({TopicPartition(topic, 0): 50})
    arguments = (tmp_path / "good", "--group", group)
    path = tmp_path / "plan.json"
    blocked = plan_of(place, *arguments, output=path, code=ExitCode.FINDINGS)
    assert blocked["groups"][0]["rows"][0]["reason"].startswith("offset 20 is below the log start 50")
    trimmed = plan_of(place, *arguments, "--out-of-range", "trim", output=path)
    assert trimmed["groups"][0]["rows"][0]["reason"].startswith("trimmed from 20 to the log start 50")
    applied(place, path, tmp_path / "trimmed")
    assert place.held(group)[group] == {(topic, 0): (50, -1, "m")}

    place.admin.delete_topics([topic])
    # The coordinator deletes the offsets of a deleted topic, and the group goes with the last of them.
    wait_for(
        "the end of the topic", lambda: topic not in place.admin.list_topics() and not place.held(group).get(group)
    )
    make()
    blocked = plan_of(place, *arguments, output=path, code=ExitCode.FINDINGS)
    assert blocked["groups"][0]["rows"][0]["reason"].startswith("it was committed for another topic of this name (id ")
    plan_of(place, *arguments, "--other-topics", output=path)
    applied(place, path, tmp_path / "meant")
    assert place.held(group)[group] == {(topic, 0): (20, -1, "m")}


def test_who_commits_meanwhile_is_not_overwritten(place: Place, tmp_path: Path) -> None:
    """A consumer with assign() joins no group, and commits when it likes."""
    groups = [f"meanwhile-{number}" for number in range(6)]
    for group in groups:
        place.commit(group, {0: (50, "", -1)})
    path, directory = tmp_path / "plan.json", tmp_path / "applied"
    chosen = [word for group in groups for word in ("--group", group)]
    plan_of(place, *chosen, "--to-earliest", output=path)
    apply = ("restore", "apply", path, *place.server, "--execute", "--output", directory, "--parallel", "1")
    process = stopped(4, *apply)
    (first,) = [end["group_id"] for end in events(directory / "journal.jsonl", "end")]
    late = next(group for group in groups if group != first)
    place.commit(late, {0: (77, "standalone", -1)})
    assert goes_on(process) == ExitCode.APPLY_FAILED
    assert errors(directory)[late] == {"STALE: somebody else has committed"}
    now = place.held(*groups)
    assert now.pop(late) == {(TOPIC, 0): (77, -1, "standalone")}
    assert all(offsets == {(TOPIC, 0): (0, -1, "")} for offsets in now.values())
    assert "the plan is stale" in regroup(*apply, code=ExitCode.USAGE).stderr
    plan_of(place, *chosen, "--to-earliest", output=path)
    applied(place, path, tmp_path / "second")
    assert place.held(late)[late] == {(TOPIC, 0): (0, -1, "")}


def test_a_transaction_after_the_apply_is_found(place: Place, tmp_path: Path) -> None:
    """A producer that commits without group metadata is let into an empty group."""
    place.commit("pending", offsets_of(1))
    plan_of(place, "--group", "pending", "--to-earliest", output=tmp_path / "plan.json")
    applied(place, tmp_path / "plan.json", tmp_path / "applied")
    producer = place.clients.producer("late-tx")
    producer.ask({"begin": {"pending": [[TOPIC, 0, 33, "", -1]]}})
    verify = ("restore", "verify", tmp_path / "applied", *place.server, "--format", "json")

    def problems() -> str:
        return "\n".join(json.loads(regroup(*verify, code=ExitCode.APPLY_FAILED).stdout)["problems"])

    said = problems()
    assert "its coordinator has an open transaction with offsets of group 'pending'" in said
    assert "is foreign: group 'pending', orders-0: a commit of 33 in a transaction of producer " in said
    producer.ask("commit")
    wait_for("the marker", lambda: place.held("pending")["pending"][TOPIC, 0][0] == 33)
    assert "its coordinator has other offsets of group 'pending' than foreseen: orders-0 holds 33" in problems()


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_an_absent_group_becomes_what_its_members_are(place: Place, tmp_path: Path, kind: str) -> None:
    """A commit makes a classic group without members, which the first member converts (not in 4.2.0: KAFKA-20254)."""
    group = f"converted-{kind}"

    def listed() -> str:
        (found,) = [each["group_type"] for each in place.admin.list_groups() if each["group_id"] == group]
        return str(found).lower()

    (tmp_path / "wanted.csv").write_text(f"{group},{TOPIC},0,5\n")
    document = plan_of(place, "--from-file", tmp_path / "wanted.csv", output=tmp_path / "plan.json")
    assert "becomes a classic group" in document["groups"][0]["warnings"][0]
    applied(place, tmp_path / "plan.json", tmp_path / "applied")
    assert listed() == "classic"
    member_was_there(place, kind, group)
    assert listed() == kind
    assert place.held(group)[group] == {(TOPIC, 0): (5, -1, "")}


def test_members_that_join_during_a_rollback(place: Place, tmp_path: Path) -> None:
    """UNKNOWN_MEMBER_ID for commits, GROUP_SUBSCRIBED_TO_TOPIC for deleted offsets."""
    before = {"joined-update": {0: (9, "", -1)}, "joined-delete": {0: (9, "", -1)}}
    for group, offsets in before.items():
        place.commit(group, offsets)
    groups = ("joined-update", "joined-delete", "joined-made")
    held = place.held(*groups)
    rows = [f"joined-update,{TOPIC},0,5", f"joined-delete,{TOPIC},1,5", f"joined-made,{TOPIC},0,5"]
    (tmp_path / "wanted.csv").write_text("\n".join(rows) + "\n")
    plan_of(place, "--from-file", tmp_path / "wanted.csv", output=tmp_path / "plan.json")
    applied(place, tmp_path / "plan.json", tmp_path / "applied")
    written = place.held(*groups)
    back, directory = tmp_path / "back.json", tmp_path / "back"
    regroup("restore", "rollback", tmp_path / "applied", *place.server, "--output", back)
    apply = ("restore", "apply", back, *place.server, "--execute", "--output", directory)
    process = stopped(2, *apply)
    members = [place.clients.member(group, TOPIC, "early", "range") for group in groups]
    for member in members:
        wait_for("the assignment", lambda member=member: member.ask("look")["assignment"] or None)
    assert goes_on(process) == ExitCode.APPLY_FAILED
    assert errors(directory) == {
        "joined-update": {"UNKNOWN_MEMBER_ID: the group has members now"},
        "joined-delete": {"GROUP_SUBSCRIBED_TO_TOPIC"},
        "joined-made": {"GROUP_SUBSCRIBED_TO_TOPIC"},
    }
    assert place.held(*groups) == written
    assert "has members (Stable)" in regroup(*apply, code=ExitCode.USAGE).stderr
    for member in members:
        member.ask("leave")
    regroup(*apply)
    assert place.held(*groups) == held


class Watched(Client):
    """A client that adds up for how long brokers have throttled it."""

    throttled_ms = 0

    def ask(self, *arguments: Any, **options: Any) -> Any:
        answer = super().ask(*arguments, **options)
        self.throttled_ms += getattr(answer, "throttle_time_ms", 0)
        return answer


def set_quota(admin: KafkaAdminClient, percentage: float | None) -> None:
    """Time of request threads that all clients of the id ``regroup`` get; ``None``: as much as there is."""
    kind = AlterClientQuotasRequest.EntryData
    remove = percentage is None
    entry = kind(
        entity=[kind.EntityData(entity_type="client-id", entity_name="regroup")],
        ops=[kind.OpData(key="request_percentage", value=percentage or 0.0, remove=remove)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    answer = admin._manager.run(admin._send_request_to_controller, request)
    assert [one.error_code for one in answer.entries] == [0]


def test_a_quota_makes_it_slower_and_no_less_true(place: Place, tmp_path: Path) -> None:
    groups = [f"throttled-{number:02}" for number in range(4)]
    csv = "".join(f"{group},{TOPIC},{number},5\n" for group in groups for number in range(PARTITIONS))
    (tmp_path / "wanted.csv").write_text(csv)
    plan, directory = tmp_path / "plan.json", tmp_path / "applied"
    plan_of(place, "--from-file", tmp_path / "wanted.csv", output=plan)
    set_quota(place.admin, 0.1)
    try:
        with Watched(client_settings(place.broker.bootstrap, {})) as client:

            def is_throttled() -> bool:
                client.brokers()
                return client.throttled_ms > 0

            # Brokers hear of a quota after the client that set it.
            wait_for("the quota", is_throttled)
            client.throttled_ms = 0
            _, results = apply_plan(client, plan, directory, ApplyOptions())
            assert client.throttled_ms > 0
    finally:
        set_quota(place.admin, None)
    assert not any(one.errors for one in results)
    ends = events(directory / "journal.jsonl", "end")
    assert sorted(end["group_id"] for end in ends) == groups
    assert {end["written"] for end in ends} == {PARTITIONS}
    proof = json.loads(regroup("restore", "verify", directory, *place.server, "--format", "json").stdout)
    assert proof["verified"]
    assert len(proof["records"]) == len(groups) * PARTITIONS
