"""Effects of a change on groups and committed offsets, by rules of releases; forms and exit codes of the command.

``tests/live/test_whatif.py`` compares with a broker.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import (
    ClassicGroup,
    ClassicMember,
    CommittedOffset,
    GroupState,
    GroupType,
    OffsetKey,
    PartitionState,
    ShareGroup,
    ShareMember,
)
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.whatif import (
    Effect,
    Outcome,
    groups_deleted,
    migrated,
    repartitioned,
    retained,
    topics_deleted,
)
from coordinator_core.records.blobs import encode_consumer_assignment
from coordinator_core.releases import Profile, profile_for_release
from tests.blobs import encode_consumer_subscription
from tests.cases import case
from tests.cli.test_damaged_input import outcome
from tests.history.incidents import topics
from tests.history.logs import Log

CASE = case("k440/before")
NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000
Capture = pytest.CaptureFixture[str]


def release(version: str, coordinator: str | None = None) -> Profile:
    return profile_for_release(version, coordinator)


def assigned(*partitions: int, user_data: bytes | None = None) -> bytes:
    rows = [{"topic": "t", "partitions": list(partitions)}]
    return encode_consumer_assignment(1, {"assignedPartitions": rows, "userData": user_data})


def member(member_id: str, assignment: bytes) -> ClassicMember:
    blob = encode_consumer_subscription(1, {"topics": ["t"], "userData": None, "ownedPartitions": []})
    return ClassicMember(member_id, None, "c", "/h", 10_000, 10_000, blob, assignment)


def live(*assignments: bytes, protocol_type: str = "consumer") -> ClassicGroup:
    members = tuple(member(f"m{number}", blob) for number, blob in enumerate(assignments))
    return ClassicGroup("g", GroupState.STABLE, protocol_type, 7, "range", "m0", None, members, 5)


def offset(record_offset: int, commit_ms: int, expire_ms: int | None = None) -> CommittedOffset:
    return CommittedOffset(100, None, "", commit_ms, expire_ms, None, record_offset, 3, None, None, record_offset)


def state(group: ClassicGroup | None, **offsets: CommittedOffset) -> PartitionState:
    groups = {} if group is None else {group.group_id: group}
    return PartitionState(3, dict(groups), {OffsetKey("g", topic, 0): one for topic, one in offsets.items()})


SIMPLE = ClassicGroup("g", GroupState.EMPTY)
EMPTY = ClassicGroup("g", GroupState.EMPTY, "consumer", 4, record_offset=6)


@pytest.mark.parametrize(
    "group, refusal",
    [
        (live(assigned(0), assigned(1)), None),
        (live(assigned(0), b""), None),
        (live(assigned(0), assigned(0, 1)), "t-0 is assigned to m0 and m1"),
        (live(assigned(0, user_data=b"mine")), "the assignment of member m0 has user data: a custom assignor made it"),
        (live(b"\x00"), "subscription or assignment of member m0 cannot be read"),
        (live(assigned(0), protocol_type="connect"), "its protocol type is 'connect', not 'consumer'"),
    ],
)
def test_a_live_classic_group_becomes_one_of_consumers(group: ClassicGroup, refusal: str | None) -> None:
    (effect,) = migrated(state(group), release("4.3.1"), GroupType.CONSUMER)
    outcome_, epoch = (Outcome.CONVERTED, 7) if refusal is None else (Outcome.REFUSED, None)
    assert effect == Effect(3, "g", outcome_, record_offset=5, epoch=epoch, detail=refusal)
    assert effect.is_loss == (refusal is not None)


@pytest.mark.parametrize(
    "group, version, coordinator, to, outcome_, says",
    [
        (EMPTY, "4.3.1", None, GroupType.CONSUMER, Outcome.CONVERTED, None),
        (EMPTY, "4.3.1", None, GroupType.STREAMS, Outcome.CONVERTED, None),
        (live(assigned(0)), "4.3.1", None, GroupType.STREAMS, Outcome.REFUSED, "stop them first"),
        (EMPTY, "4.3.1", None, GroupType.SHARE, Outcome.REFUSED, "delete it first"),
        (EMPTY, "4.0.2", None, GroupType.STREAMS, Outcome.REFUSED, "has no streams groups"),
        (EMPTY, "3.9.2", "classic", GroupType.CONSUMER, Outcome.REFUSED, "has no consumer groups"),
        (EMPTY, "3.7.2", "new", GroupType.CONSUMER, Outcome.REFUSED, "makes no group one of another type"),
        (SIMPLE, "3.9.2", "new", GroupType.CONSUMER, Outcome.CONVERTED, "once the cleaner has removed"),
        (SIMPLE, "4.2.0", None, GroupType.STREAMS, Outcome.CONVERTED, "KAFKA-20254"),
        (SIMPLE, "4.2.1", None, GroupType.STREAMS, Outcome.CONVERTED, None),
    ],
)
def test_a_migration_depends_on_the_release(
    group: ClassicGroup, version: str, coordinator: str | None, to: GroupType, outcome_: Outcome, says: str | None
) -> None:
    (effect,) = migrated(state(group), release(version, coordinator), to)
    assert effect.outcome is outcome_
    assert (says in (effect.detail or "")) if says else effect.detail is None


def test_the_policy_refuses_groups_with_members_alone() -> None:
    profile = release("4.3.1")
    assert migrated(state(live(assigned(0))), profile, GroupType.CONSUMER, upgrades=False)[0].outcome is Outcome.REFUSED
    assert migrated(state(EMPTY), profile, GroupType.CONSUMER, upgrades=False)[0].outcome is Outcome.CONVERTED
    assert migrated(state(EMPTY), profile, GroupType.CLASSIC) == []


@pytest.mark.parametrize("count", range(1, 20))
def test_a_group_is_looked_for_where_its_hash_says(count: int) -> None:
    before = state(EMPTY, t=offset(8, NOW_MS))
    home = partition_for("g", count)
    found = repartitioned(before, count)
    assert found == (
        []
        if home == 3
        else [
            Effect(3, "g", Outcome.UNREACHABLE, record_offset=6, moved_to=home),
            Effect(3, "g", Outcome.UNREACHABLE, "t", 0, 8, 100, moved_to=home),
        ]
    )


def test_another_retention_moves_what_ages_and_nothing_else() -> None:
    profile = release("4.3.1")
    before = state(SIMPLE, old=offset(1, NOW_MS - 2 * HOUR_MS), new=offset(2, NOW_MS), own=offset(3, 0, NOW_MS + 5))

    def plan(retention_ms: int) -> Any:
        return plan_expiry(before, profile, now_ms=NOW_MS, offsets_retention_ms=retention_ms)

    shorter = retained(before, plan(4 * HOUR_MS), plan(HOUR_MS))
    assert [(one.topic, one.outcome, one.at_ms, one.was_ms) for one in shorter] == [
        ("new", Outcome.EARLIER, NOW_MS + HOUR_MS, NOW_MS + 4 * HOUR_MS),
        ("old", Outcome.REMOVED, NOW_MS - HOUR_MS, NOW_MS + 2 * HOUR_MS),
        (None, Outcome.EARLIER, NOW_MS + HOUR_MS, NOW_MS + 4 * HOUR_MS),
    ]
    longer = retained(before, plan(HOUR_MS), plan(4 * HOUR_MS))
    assert [(one.topic, one.outcome, one.at_ms, one.was_ms) for one in longer] == [
        ("new", Outcome.LATER, NOW_MS + 4 * HOUR_MS, NOW_MS + HOUR_MS),
        ("old", Outcome.LATER, NOW_MS + 2 * HOUR_MS, NOW_MS - HOUR_MS),
        (None, Outcome.LATER, NOW_MS + 4 * HOUR_MS, NOW_MS + HOUR_MS),
    ]
    assert [one.is_loss for one in shorter] == [False, True, False]
    # Both are due for long.
    assert [one.topic for one in retained(before, plan(HOUR_MS), plan(1))] == ["new", None]


def test_deletions_depend_on_the_release() -> None:
    before = state(EMPTY, t=offset(8, NOW_MS), u=offset(9, NOW_MS))
    (refused,) = groups_deleted(before, release("1.0.2"), {"g"})
    assert refused.outcome is Outcome.REFUSED
    assert [one.record_offset for one in groups_deleted(before, release("4.3.1"), {"g"})] == [6, 8, 9]
    plan = plan_expiry(before, release("4.3.1"), now_ms=NOW_MS, offsets_retention_ms=HOUR_MS)
    for version, expected in (("0.10.1.1", Outcome.STAYS), ("0.10.2.2", Outcome.REMOVED), ("4.3.1", Outcome.REMOVED)):
        (effect,) = topics_deleted(before, release(version), {"t"}, today=plan, then=plan)
        assert (effect.outcome, effect.topic, effect.record_offset) == (expected, "t", 8)


def test_share_groups_rebalance_when_their_topic_goes() -> None:
    before = PartitionState(3, {"g": ShareGroup("g", members={"m": ShareMember("m", 1, subscribed_topics=("t",))})}, {})
    plan = plan_expiry(before, release("4.3.1"), now_ms=NOW_MS, offsets_retention_ms=HOUR_MS)
    (effect,) = topics_deleted(before, release("4.3.1"), {"t"}, today=plan, then=plan)
    assert effect == Effect(3, "g", Outcome.REBALANCES)
    assert topics_deleted(before, release("4.3.1"), {"u"}, today=plan, then=plan) == []


@pytest.mark.parametrize(
    "command, before, after",
    [
        (["whatif", "--retention-ms", str(7 * 24 * HOUR_MS)], "offsets: 1 kept", "offsets: 1 later"),
        (["expire"], "with a retention of 7 d: 0 tombstones", "with a retention of 1 h: 2 tombstones"),
        (["compact", "--expire", "--output"], "expired: 0 ", "expired: 1 "),
    ],
)
def test_the_retention_is_that_of_the_capture(
    command: list[str], before: str, after: str, tmp_path: Path, capfd: Capture
) -> None:
    log = Log().commit("g", {("orders", 0): 10})
    now = ["--kafka-version", "4.3.1", "--now-ms", str(log.at + 2 * HOUR_MS)]
    for number, (minutes, says) in enumerate([(None, before), (60, after)]):
        path = topics(log.write(tmp_path / f"{number}"), (0, 10), offsets_retention_minutes=minutes)
        output = [str(tmp_path / f"compacted-{number}")] if command[-1] == "--output" else []
        _, printed, said = outcome([*command, *output, str(path), *now], capfd)
        assert says in printed
        assert ("is 1 h, as the capture has it" in said) is (minutes is not None)


def test_a_log_that_does_not_load_is_no_clean_answer(capfd: Capture) -> None:
    arguments = [*map(str, CASE.paths), "--kafka-version", "0.9.0.1", "--delete-topic", "no-such-topic"]
    code, _, said = outcome(["whatif", *arguments], capfd)
    assert code == 1
    failures = [line for line in said.splitlines() if "nothing expires in offsets partition 3:" in line]
    assert len(failures) == 1
    assert "None of the groups has an offset of these topics, or subscribes to one." in said


@pytest.mark.parametrize(
    "change, code",
    [
        (["--to", "consumer", "--group", "g-simple"], 0),
        (["--to", "share", "--group", "g-simple"], 1),
        (["--offsets-partitions", "5"], 0),
        (["--offsets-partitions", "6"], 1),
        (["--retention-ms", "604800000"], 0),
        (["--retention-ms", "1"], 1),
        (["--delete-group", "g-simple"], 1),
        (["--delete-topic", "no-such-topic"], 0),
    ],
)
def test_the_command_says_the_same_in_each_form(change: list[str], code: int, capfd: Capture) -> None:
    arguments = ["whatif", *CASE.command_line(), *change, "--now-ms", str(CASE.captured_ms)]
    found, printed, _ = outcome([*arguments, "--format", "json"], capfd)
    document: dict[str, Any] = json.loads(printed)
    assert found == code
    total = {"groups": 0, "committed_offsets": 0}
    for what in total:
        total[what] = sum(document["changed"][what].values()) + document["kept"][what]
    assert total["groups"] == len(CASE.reloaded()["groups"])
    found, printed, _ = outcome([*arguments, "--format", "csv"], capfd)
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [(row["group_id"], row["outcome"]) for row in rows] == [
        (one["group_id"], one["outcome"]) for one in document["effects"]
    ]
    found, printed, _ = outcome(arguments, capfd)
    assert (found, printed.count("\n")) == (code, 3 + bool(rows) + len(rows))


def test_a_group_in_two_offsets_partitions_is_two_in_the_sums(tmp_path: Path, capfd: Capture) -> None:
    home = partition_for("g", 50)
    for partition in (home, home + 1):
        Log().commit("g", {("t", 0): 1, ("t", 1): 1}).write(tmp_path, partition)
    arguments = ["whatif", str(tmp_path), "--kafka-version", "4.3.1", "--offsets-topic-num-partitions", "50"]
    code, printed, said = outcome([*arguments, "--offsets-partitions", "50"], capfd)
    assert code == 1
    assert printed.splitlines()[-2:] == ["groups: 1 unreachable, 1 kept", "committed offsets: 2 unreachable, 2 kept"]
    assert f"group 'g' is in offsets partitions {home}, {home + 1}: the broker answers with that of {home}" in said
    # The coordinators of both partitions delete these.
    _, printed, said = outcome([*arguments, "--delete-topic", "t"], capfd)
    assert "committed offsets: 4 removed, 0 kept" in printed
    assert "is in offsets partitions" not in said


@pytest.mark.parametrize("change", [["--delete-group", "g"], ["--to", "consumer", "--group", "g"]])
def test_a_group_of_which_offsets_alone_are_left_is_told(change: list[str], tmp_path: Path, capfd: Capture) -> None:
    Log().generation("g", 1).commit("g", {("t", 0): 1}).tombstones("g", with_group=True).write(tmp_path)
    code, printed, said = outcome(["whatif", str(tmp_path), "--kafka-version", "4.3.1", *change], capfd)
    assert (code, printed.splitlines()[1:]) == (0, ["groups: 0 kept", "committed offsets: 1 kept"])
    assert "does not have group 'g' any more: committed offsets alone are left of it." in said


def test_offsets_of_open_transactions_are_no_committed_ones(tmp_path: Path, capfd: Capture) -> None:
    Log().commit("g", {("t", 0): 1}).commit("g", {("t", 0): 2, ("t", 1): 2}, producer_id=7).write(tmp_path)
    arguments = ["whatif", str(tmp_path), "--kafka-version", "4.3.1", "--delete-group", "g"]
    _, printed, _ = outcome(arguments, capfd)
    assert printed.splitlines()[-3:] == [
        "groups: 1 removed, 0 kept",
        "committed offsets: 1 removed, 0 kept",
        "pending offsets: 1 removed",
    ]
    _, printed, _ = outcome([*arguments, "--format", "json"], capfd)
    assert json.loads(printed)["changed"]["pending_offsets"] == {"removed": 1}


@pytest.mark.parametrize(
    "change, says",
    [
        ([], "name one change"),
        (["--offsets-partitions", "6", "--retention-ms", "1"], "name one change"),
        (["--offsets-partitions", "6", "--group", "g-simple"], "go with --to"),
        (["--to", "consumer", "--offsets-retention-ms", "1"], "goes with --retention-ms and --delete-topic"),
        (["--delete-group", "nobody"], "does not exist in this log"),
    ],
)
def test_what_is_no_change_is_refused(change: list[str], says: str, capfd: Capture) -> None:
    code, printed, said = outcome(["whatif", *CASE.command_line(), *change], capfd)
    assert (code, printed) == (2, "")
    assert says in said
