"""Plans applied to a real 4.3.1 broker, proved from its log, killed on the way, and undone."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from coordinator_core.errors import ExitCode
from coordinator_core.restore.model import read_plan, write_plan
from tests.cli.test_untrusted import EVIL, obeyed
from tests.drill.kit import signalled
from tests.live.broker import create_topics, wait_for
from tests.live.scenario import ROOT
from tests.restore.kit import (
    PARTITIONS,
    PASSWORD,
    PLAIN,
    RECORDS,
    TOPIC,
    Place,
    applied,
    offsets_of,
    plan_of,
    regroup,
    rolled_back,
)


def test_deleted_and_reset_groups_come_back_and_go_again(place: Place, tmp_path: Path) -> None:
    groups = [f"lost-{number}" for number in range(4)]
    for number, group in enumerate(groups):
        place.commit(group, offsets_of(number))
    good = place.held(*groups)
    regroup("capture", *place.server, "--output", tmp_path / "good")
    place.admin.delete_groups(["lost-0"])
    place.commit("lost-1", {0: (1, "", -1), 1: (99, "reset", -1)})
    place.admin.delete_group_offsets("lost-2", [TopicPartition(TOPIC, 1)])
    bad = place.held(*groups)
    assert bad != good
    assert "lost-0" not in bad

    chosen = [word for group in groups for word in ("--group", group)]
    arguments = [tmp_path / "good", *chosen, "--capture", tmp_path / "now"]
    document = plan_of(place, *arguments, output=tmp_path / "plan.json")
    assert document["counts"] == {"blocked": 0, "create": 5, "delete": 0, "keep": 9, "update": 2}
    assert {group["group_id"]: group["action"] for group in document["groups"]} == {
        "lost-0": "create",
        "lost-1": "update",
        "lost-2": "update",
        "lost-3": "keep",
    }
    reset = document["groups"][1]["rows"][1]
    assert (reset["before"]["offset"], reset["after"]["offset"], reset["read_again"]) == (99, 12, 87)
    assert reset["after"]["leader_epoch"] == 0
    assert reset["before"]["record_offset"] > reset["after"]["record_offset"] >= 0
    regroup("restore", "apply", tmp_path / "plan.json", *place.server)
    assert place.held(*groups) == bad, "a dry run writes nothing"

    proof = applied(place, tmp_path / "plan.json", tmp_path / "applied")
    assert len(proof["records"]) == 7
    assert place.held(*groups) == good
    dumped = regroup("dump", tmp_path / "applied/capture", "--format", "jsonl").stdout
    records = {(row["offsets_partition"], row["record_offset"]): row for row in map(json.loads, dumped.splitlines())}
    for record in proof["records"]:
        row = records[record["offsets_partition"], record["record_offset"]]
        key = row["key"]["data"]
        assert (key["group"], key["topic"], key["partition"]) == (
            record["group_id"],
            record["topic"],
            record["partition"],
        )
        offset, epoch, metadata = good[key["group"]][key["topic"], key["partition"]]
        assert row["value"]["data"]["offset"] == offset
        assert row["value"]["data"]["leaderEpoch"] == epoch
        assert row["value"]["data"]["metadata"] == metadata

    rolled_back(place, tmp_path / "applied", tmp_path)
    assert place.held(*groups) == bad, "what was made is gone again"


def test_the_undo_that_capture_prints_brings_back_what_was_deleted_and_reset(place: Place, tmp_path: Path) -> None:
    place.commit("undone", offsets_of(3))
    place.commit("set-back", offsets_of(4))
    good = place.held("undone", "set-back")
    place.admin.delete_groups(["undone"])
    place.commit("set-back", dict.fromkeys(range(PARTITIONS), (0, "", -1)))
    captured = regroup("capture", *place.server, "--output", tmp_path / "log", "--format", "json")
    for group in ("undone", "set-back"):
        (command,) = [words for words in json.loads(captured.stdout)["undo"] if f" --group {group} " in words]
        name, *words, output = shlex.split(command)
        assert (name, output) == ("regroup", "plan.json")
        regroup(*words, tmp_path / group)
        applied(place, tmp_path / group, tmp_path / f"applied-{group}")
    assert place.held("undone", "set-back") == good


def test_what_is_refused(place: Place, tmp_path: Path) -> None:
    place.commit("refused", offsets_of(1))
    path = tmp_path / "plan.json"
    plan_of(place, "--group", "refused", "--to-earliest", output=path)
    place.commit("refused", {3: (50, "", -1)})
    apply = ("restore", "apply", path, *place.server, "--execute", "--output", tmp_path / "applied")
    assert "the plan is stale" in regroup(*apply, code=ExitCode.USAGE).stderr
    plan_of(place, "--group", "refused", "--to-current", output=path)
    assert "the plan is empty" in regroup(*apply, code=ExitCode.USAGE).stderr
    plan_of(place, "--group", "refused", "--to-offset", "101", output=path, code=ExitCode.FINDINGS)
    assert "above the log end 100" in regroup(*apply, code=ExitCode.USAGE).stderr
    trimmed = plan_of(place, "--group", "refused", "--to-offset", "101", "--out-of-range", "trim", output=path)
    assert {row["reason"] for row in trimmed["groups"][0]["rows"]} == {"trimmed from 101 to the log end 100"}
    assert {row["after"]["offset"] for row in trimmed["groups"][0]["rows"]} == {RECORDS}
    plan, _ = read_plan(path)
    write_plan(str(path), replace(plan, cluster_id="another"))
    assert "for cluster another" in regroup(*apply, code=ExitCode.USAGE).stderr
    text = path.read_text()
    path.write_text(text.replace('"refused"', '"refuses"'))
    assert "its digest is another" in regroup(*apply, code=ExitCode.USAGE).stderr
    assert place.held("refused")["refused"][TOPIC, 3] == (50, -1, "")


def test_a_group_with_members_is_waited_for(place: Place, tmp_path: Path) -> None:
    member = place.clients.member("busy", TOPIC, "member", "range")
    wait_for("the assignment", lambda: member.ask("commit")["assignment"] or None)
    document = plan_of(place, "--group", "busy", "--to-earliest", output=tmp_path / "plan.json")
    assert document["groups"][0]["warnings"] == ["it has 1 member (Stable): nothing is written before it is empty"]
    apply = ("restore", "apply", tmp_path / "plan.json", *place.server, "--execute", "--output", tmp_path / "applied")
    assert "has members (Stable)" in regroup(*apply, code=ExitCode.USAGE).stderr
    command = [sys.executable, "-m", "coordinator_core", *map(str, apply), "--wait-empty", "300"]
    with (tmp_path / "waits").open("wb") as told:
        waiting = subprocess.Popen(command, cwd=ROOT, stderr=told)
    line = re.compile(r"regroup: waits for at most \d+ s: group 'busy' has members \(Stable\)\n")
    wait_for("the line", lambda: line.fullmatch((tmp_path / "waits").read_text()))
    member.ask("leave")
    assert waiting.wait(600) == 0
    assert {place[0] for place in place.held("busy")["busy"].values()} == {0}
    regroup("restore", "verify", tmp_path / "applied", *place.server)
    foreign = place.clients.member("busy", TOPIC, "too-early", "range")
    wait_for("the assignment", lambda: foreign.ask("commit")["assignment"] or None)
    foreign.ask("leave")
    done = regroup("restore", "verify", tmp_path / "applied", *place.server, "--format", "json", code=4)
    said = "\n".join(json.loads(done.stdout)["problems"])
    assert re.search(
        r"record \d+ of offsets partition \d is foreign: group 'busy', orders-1: a commit of 10, leader epoch 0, "
        r"metadata 'too-early orders-1' by its member, client 'too-early' at /127.0.0.1, \S+ \S+Z; the plan has a "
        r"commit of 0\n",
        said,
    ), said
    assert re.search("its coordinator has other offsets of group 'busy' than foreseen: .*orders-1 holds 10, ", said)


@pytest.mark.full
def test_share_groups_deliver_from_where_they_are_told(place: Place, tmp_path: Path) -> None:
    """Made, unmade, moved, moved back; Kafka's consumer reads from there, and is a member that has to go first."""
    path, group = tmp_path / "plan.json", ("--group", "shared", "--topic", f"{TOPIC}:0,1")

    def starts() -> list[int]:
        rows = plan_of(place, *group, "--to-current", output=tmp_path / "now.json")["groups"][0]["rows"]
        return [row["before"]["offset"] for row in rows]

    def groups() -> dict[str, tuple[str, str]]:
        listed = place.admin.list_groups()
        return {one["group_id"]: (one["group_type"], one["group_state"]) for one in listed}

    (tmp_path / "wanted.csv").write_text(f"shared,{TOPIC},0,40\nshared,{TOPIC},1,{RECORDS}\n")
    document = plan_of(place, "--from-file", tmp_path / "wanted.csv", "--new-groups", "share", output=path)
    assert document["counts"] == {"blocked": 0, "create": 2, "delete": 0, "keep": 0, "update": 0}
    assert "states and counts of deliveries" in document["groups"][0]["warnings"][-1]
    applied(place, path, tmp_path / "made")
    assert groups()["shared"] == ("share", "Empty")
    rolled_back(place, tmp_path / "made", tmp_path)
    assert "shared" not in groups()
    applied(place, path, tmp_path / "made-again")

    plan_of(place, *group, "--shift-by", "-10", output=path)
    applied(place, path, tmp_path / "moved")
    assert starts() == [30, RECORDS - 10]
    (tmp_path / "back").mkdir()
    rolled_back(place, tmp_path / "moved", tmp_path / "back")
    assert starts() == [40, RECORDS]

    # A topic that goes between plan and apply fails alone. Made again, it is another one.
    create_topics(place.admin, {"other": 1})
    (tmp_path / "wanted.csv").write_text(f"partly,{TOPIC},0,40\npartly,other,0,0\n")
    partly = tmp_path / "partly.json"
    plan_of(place, "--from-file", tmp_path / "wanted.csv", "--new-groups", "share", output=partly)
    place.admin.delete_topics(["other"])
    wait_for("the topic to be gone", lambda: "other" not in place.admin.list_topics())
    apply = ("restore", "apply", partly, *place.server, "--execute", "--output", tmp_path / "partly")
    failed = regroup(*apply, code=ExitCode.APPLY_FAILED)
    assert "failed: group 'partly', other-0: UNKNOWN_TOPIC_OR_PARTITION" in failed.stderr
    create_topics(place.admin, {"other": 1})
    assert "partly', other-0: the topic was made again" in regroup(*apply, code=ExitCode.USAGE).stderr

    command = place.broker.kafka.command(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", place.broker.bootstrap, "--topic", TOPIC, "--group", "shared"),
        *("--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true"),
        heap="96m",
    )
    read = tmp_path / "read"
    with read.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL) as member:
        try:
            wait_for("records", lambda: read.read_bytes().count(b"\n") >= RECORDS - 40)
            dry_run = regroup("restore", "apply", path, *place.server, code=ExitCode.USAGE)
            assert "group 'shared' has members (Stable)" in dry_run.stderr
        finally:
            member.kill()
    offsets = [int(offset) for offset in re.findall(r"Partition:0\tOffset:(\d+)", read.read_text())]
    assert min(offsets) == 40
    assert "Partition:1\t" not in read.read_text()


def test_a_leader_epoch_from_elsewhere_is_not_written(place: Place, tmp_path: Path) -> None:
    """With it Java's consumer refreshes metadata and reads nothing; as planned it reads."""

    def read(seconds: int) -> str:
        command = place.broker.kafka.command(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", place.broker.bootstrap, "--topic", TOPIC, "--group", "foreign"),
            *("--max-messages", "1", "--timeout-ms", str(1000 * seconds)),
            heap="96m",
        )
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600).stdout

    place.commit("foreign", dict.fromkeys(range(PARTITIONS), (7, "m", 42)))
    regroup("capture", *place.server, "--output", tmp_path / "elsewhere")
    assert read(9) == ""
    wait_for("the consumer to be gone", lambda: "Empty" in str(place.admin.describe_groups(["foreign"])))
    document = plan_of(place, tmp_path / "elsewhere", "--group", "foreign", output=tmp_path / "plan.json")
    rows = document["groups"][0]["rows"]
    assert [(row["action"], row["after"]["offset"], row["after"]["leader_epoch"]) for row in rows] == [
        ("update", 7, -1)
    ] * PARTITIONS
    assert {row["reason"] for row in rows} == {"leader epoch 42 is dropped: it is above the current one, 0"}
    applied(place, tmp_path / "plan.json", tmp_path / "applied")
    assert read(300).startswith("record ")


def test_an_open_transaction_is_named_and_has_to_end(place: Place, tmp_path: Path) -> None:
    place.commit("exactly-once", offsets_of(2))
    producer = place.clients.producer("restore-tx")
    producer.ask({"begin": {"exactly-once": [[TOPIC, 0, 77, "", -1]]}})
    arguments = ("--group", "exactly-once", "--topic", f"{TOPIC}:0", "--to-earliest", "--capture", tmp_path / "now")
    document = plan_of(place, *arguments, output=tmp_path / "plan.json")
    (warning,) = document["groups"][0]["rows"][0]["warnings"]
    assert warning.startswith("a transaction of producer ")
    apply = ("restore", "apply", tmp_path / "plan.json", *place.server, "--execute", "--output", tmp_path / "applied")
    assert "a transaction is open" in regroup(*apply, code=ExitCode.USAGE).stderr
    producer.ask("commit")
    wait_for("the marker", lambda: place.held("exactly-once")["exactly-once"][TOPIC, 0][0] == 77)
    assert "the plan is stale" in regroup(*apply, code=ExitCode.USAGE).stderr
    plan_of(place, *arguments, output=tmp_path / "plan.json")
    applied(place, tmp_path / "plan.json", tmp_path / "applied")
    assert place.held("exactly-once")["exactly-once"][TOPIC, 0] == (0, -1, "")


def test_an_apply_that_is_killed_can_be_rolled_back_as_it_is(place: Place, tmp_path: Path) -> None:
    groups = [f"half-{number:02}" for number in range(40)]
    place.commit(groups[0], offsets_of(0))
    before = place.held(*groups)
    csv = "".join(f"{group},{TOPIC},0,5\n" for group in groups)
    (tmp_path / "wanted.csv").write_text(csv)
    plan_of(place, "--from-file", tmp_path / "wanted.csv", output=tmp_path / "plan.json")
    apply = ["restore", "apply", tmp_path / "plan.json", *place.server, "--execute", "--output", tmp_path / "applied"]
    assert signalled(20, "after", signal.SIGKILL, *apply).wait() == -signal.SIGKILL
    assert 1 < len(place.held(*groups)) < len(groups)
    found = regroup("restore", "verify", tmp_path / "applied", *place.server, code=ExitCode.APPLY_FAILED).stdout
    assert re.search(
        r"^problem: +the apply has not ended: its journal has no end of \d+ of 40 groups; the same", found, re.M
    )
    dry = regroup("restore", "apply", tmp_path / "plan.json", *place.server, code=ExitCode.USAGE)
    assert re.fullmatch(r"dry run: +\d+ offsets of \d+ groups are refused\n", dry.stdout)
    assert "as planned; go on with the --output of an apply that has begun it" in dry.stderr
    rolled_back(place, tmp_path / "applied", tmp_path)
    assert place.held(*groups) == before


def allow(place: Place, *acls: tuple[str, str, str], user: str = "restorer") -> None:
    made = [
        ACL(f"User:{user}", "*", ACLOperation[each], ACLPermissionType.ALLOW, ResourcePattern(ResourceType[kind], name))
        for each, kind, name in acls
    ]
    assert not place.admin.create_acls(made)["failed"]
    for one in made:
        wait_for("the authorizer", lambda one=one: bool(place.admin.describe_acls(one)[0]))


def login_of(place: Place, tmp_path: Path) -> tuple[str | Path, ...]:
    """Options for a client that is ``restorer``, who may read the log and the topic, and list groups."""
    allow(place, ("READ", "TOPIC", "__consumer_offsets"), ("READ", "TOPIC", TOPIC), ("DESCRIBE", "GROUP", "*"))
    return login_as("restorer", place, tmp_path)


def login_as(user: str, place: Place, tmp_path: Path) -> tuple[str | Path, ...]:
    properties = tmp_path / f"{user}.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="{user}" password="{PASSWORD}";\n'
    )
    return "--bootstrap-server", place.secured, "--command-config", properties


def test_a_plan_needs_the_permissions_of_the_manual_and_no_others(place: Place, tmp_path: Path) -> None:
    (row,) = re.findall(r"^\| (.*) \| `plan` \|$", (ROOT / "docs/restore.md").read_text(), re.M)
    assert row == "`Describe` on the groups, on their topics and on `Topic:__consumer_offsets`"
    acls = [("DESCRIBE", "GROUP", "planned"), ("DESCRIBE", "TOPIC", TOPIC), ("DESCRIBE", "TOPIC", "__consumer_offsets")]
    (tmp_path / "wanted.csv").write_text(f"planned,{TOPIC},0,5\n")
    plan = ("restore", "plan", "--from-file", tmp_path / "wanted.csv", *login_as("planner", place, tmp_path))
    for number, (_, kind, name) in reversed([*enumerate(acls)]):
        allow(place, *acls[:number], *acls[number + 1 :], user="planner")
        refused = regroup(*plan, code=ExitCode.USAGE)
        assert f"needs the ACL Describe on {kind.capitalize()}:{name}" in refused.stderr
        forbid(place, "planner")
    allow(place, *acls, user="planner")
    assert "1 create" in regroup(*plan).stdout


def forbid(place: Place, user: str) -> None:
    resources = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    every = ACLFilter(f"User:{user}", "*", ACLOperation.ANY, ACLPermissionType.ANY, resources)
    place.admin.delete_acls([every])
    wait_for("the authorizer", lambda: not place.admin.describe_acls(every)[0])


def test_a_group_without_permission_fails_alone_and_the_second_try_ends_well(place: Place, tmp_path: Path) -> None:
    login = login_of(place, tmp_path)
    allow(place, ("READ", "GROUP", "may"))
    (tmp_path / "wanted.csv").write_text(f"may,{TOPIC},0,5\nmay-not,{TOPIC},0,6\n")
    regroup("restore", "plan", "--from-file", tmp_path / "wanted.csv", *login, "--output", tmp_path / "plan.json")
    apply = ("restore", "apply", tmp_path / "plan.json", *login, "--execute", "--output", tmp_path / "applied")
    failed = regroup(*apply, code=ExitCode.APPLY_FAILED)
    assert "failed: group 'may-not', orders-0: GROUP_AUTHORIZATION_FAILED" in failed.stderr
    assert set(place.held("may", "may-not")) == {"may"}
    verified = regroup("restore", "verify", tmp_path / "applied", *login, "--format", "json", code=4)
    assert [record["group_id"] for record in json.loads(verified.stdout)["records"]] == ["may"]
    allow(place, ("READ", "GROUP", "may-not"))
    regroup(*apply)
    verified = regroup("restore", "verify", tmp_path / "applied", *login, "--format", "json")
    assert [record["group_id"] for record in json.loads(verified.stdout)["records"]] == ["may", "may-not"]


@pytest.mark.full
def test_start_offsets_of_share_groups_need_read_and_delete(place: Place, tmp_path: Path) -> None:
    """Of a group whose name obeys nobody, whatever is printed of it."""
    login, group = login_of(place, tmp_path), f"starts{EVIL['title']}{EVIL['bidi']}"

    def restore(*words: str | Path, code: int = 0) -> str:
        done = regroup("restore", *words, *login, code=code)
        assert obeyed(done.stdout + done.stderr) == []
        return done.stdout + done.stderr

    (tmp_path / "wanted.csv").write_text(f"{group},{TOPIC},0,5\n")
    plan, back, done = tmp_path / "plan.json", tmp_path / "back.json", tmp_path / "applied"
    restore("plan", "--from-file", tmp_path / "wanted.csv", "--new-groups", "share", "--output", plan)
    restore("apply", plan)
    apply = ("apply", plan, "--execute", "--output", done)
    assert "GROUP_AUTHORIZATION_FAILED" in restore(*apply, code=ExitCode.APPLY_FAILED)
    allow(place, ("READ", "GROUP", group))
    restore(*apply)
    assert "1 of them are start offsets of share groups" in restore("verify", done)
    restore("rollback", done, "--output", back)
    apply = ("apply", back, "--execute", "--output", tmp_path / "undone")
    assert "GROUP_AUTHORIZATION_FAILED" in restore(*apply, code=ExitCode.APPLY_FAILED)
    allow(place, ("DELETE", "GROUP", group))
    restore(*apply)
    assert group not in {each["group_id"] for each in place.admin.list_groups()}
    captured = regroup("capture", *login, "--output", tmp_path / "capture")
    assert obeyed(captured.stdout + captured.stderr) == []
