"""Words of ``restore verify`` about records that are not of the plan: which, and by whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.groups.model import OffsetKey
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.replay.interpret import GroupRecord, OffsetRecord
from coordinator_core.restore.decide import Choices, decide
from coordinator_core.restore.model import Plan, Position
from coordinator_core.restore.proof import Added, prove
from coordinator_core.restore.source import Wanted
from coordinator_core.restore.target import LogRange, Target, TargetGroup, TargetTopic, with_records
from coordinator_core.runs.local import replay_snapshot
from tests.history.logs import Log

KEY, OTHER = OffsetKey("g", "orders", 0), OffsetKey("g", "orders", 1)
HELD = Position(150, 5, "held")
AT = "2026-01-01 00:00:00Z"
CLIENT = {"memberId": "m", "clientId": "shop", "clientHost": "/10.0.0.1"}
JOINED = GroupRecord(2, 3, {"group": "g"}, {"members": [CLIENT]})
LEFT = GroupRecord(2, 3, {"group": "g"}, {"members": []})
MODERN = GroupRecord(5, 0, {"groupId": "g", "memberId": "m"}, {key: CLIENT[key] for key in ("clientId", "clientHost")})
GONE = MODERN._replace(value=None)


def commit(key: OffsetKey, offset: int, epoch: int = -1, metadata: str = "") -> OffsetRecord:
    value = {"offset": offset, "leaderEpoch": epoch, "metadata": metadata, "commitTimestamp": 1_767_225_600_000}
    return OffsetRecord(1, 3, key, value)


def problems(*more: OffsetRecord | GroupRecord, producer_id: int = -1) -> list[str]:
    """Problems of the planned record with ``more`` behind it."""
    group = TargetGroup("g", state="Empty", members=0, offsets={KEY[1:]: HELD})
    topics = {"orders": TargetTopic("A" * 22, {0: LogRange(100, 200, 5), 1: LogRange(100, 200, 5)})}
    target = Target("test", "cluster", {"g": group}, topics, 50)
    groups = decide(Wanted({KEY: Position(160)}), target, Choices({}))
    plan = Plan("restore", "cluster", "test", "source", {}, 1, tuple(groups))
    added = [Added(3, 7, commit(KEY, 160)), *(Added(3, 8 + at, one, producer_id) for at, one in enumerate(more))]
    now = {"g": TargetGroup("g", state="Empty", offsets={KEY[1:]: Position(160)})}
    proof = prove(plan, added, [], now)
    # The replayed state is not looked at here.
    return [said for said in proof.problems if not said.startswith("the replayed log")]


def test_what_was_planned_is_no_problem() -> None:
    assert problems() == []


@pytest.mark.parametrize(
    "records, said",
    [
        (
            [commit(KEY, 170, 5, "m")],
            "record 8 of offsets partition 3 is foreign: group 'g', orders-0: a commit of 170, leader epoch 5, "
            f"metadata 'm' by a client that is no member (standalone consumer, admin client), {AT}; "
            "the plan has a commit of 160",
        ),
        (
            [JOINED, commit(KEY, 170)],
            "record 9 of offsets partition 3 is foreign: group 'g', orders-0: a commit of 170 by its member, client "
            f"'shop' at /10.0.0.1, {AT}; the plan has a commit of 160",
        ),
        (
            [MODERN, commit(OTHER, 3)],
            "record 9 of offsets partition 3 is foreign: group 'g', orders-1: a commit of 3 by its member, client "
            f"'shop' at /10.0.0.1, {AT}; the plan writes nothing there",
        ),
        (
            [JOINED, LEFT, commit(KEY, 160)],
            "record 10 of offsets partition 3 is foreign: group 'g', orders-0: a commit of 160 by a client that is no "
            f"member (standalone consumer, admin client), {AT}; it is there a second time",
        ),
        (
            [MODERN, GONE, OffsetRecord(1, None, KEY, None)],
            "record 10 of offsets partition 3 is foreign: group 'g', orders-0: a tombstone by a deletion, or as it "
            "expired; the plan has a commit of 160",
        ),
        (
            [JOINED],
            "record 8 of offsets partition 3 is foreign: it changes group 'g' itself (members: client 'shop' at "
            "/10.0.0.1)",
        ),
        (
            [commit(KEY, 170, metadata="m" * 4096)],
            "record 8 of offsets partition 3 is foreign: group 'g', orders-0: a commit of 170, metadata that is long "
            f"by a client that is no member (standalone consumer, admin client), {AT}; the plan has a commit of 160",
        ),
    ],
)
def test_a_foreign_record_is_named_with_who_wrote_it(records: list[OffsetRecord | GroupRecord], said: str) -> None:
    assert problems(*records)[-1] == said


def test_a_transaction_is_named_by_its_producer() -> None:
    (said,) = problems(commit(KEY, 170), producer_id=42)
    assert f"a commit of 170 in a transaction of producer 42, {AT};" in said


@pytest.mark.parametrize("secret", [("secret", 0), ("orders", 7)])
def test_what_the_log_had_before_is_no_problem(tmp_path: Path, secret: tuple[str, int]) -> None:
    """The coordinators leave out topics that may not be described."""
    log = Log().commit("g", {secret: 1}).commit("g", {KEY[1:]: 160}, leader_epoch=-1).write(tmp_path, 3)
    states = replay_snapshot(discover([str(log)]), profile_for_release("3.9.2"), damage=[])
    seen = {"g": TargetGroup("g", state="Empty", offsets={KEY[1:]: Position(160)})}
    groups = decide(Wanted({KEY: Position(160)}), Target("test", None, {}, None, 50), Choices({}))
    plan = Plan("restore", None, "test", "source", {}, 1, tuple(groups))
    planned = Added(3, 1, commit(KEY, 160))
    assert prove(plan, [planned], states, seen).problems == []
    # Committed since, or shown, it is one.
    (record, state) = prove(plan, [planned, Added(3, 2, commit(OffsetKey("g", *secret), 1))], states, seen).problems
    assert ("is foreign" in record, state.startswith("the replayed log has other offsets")) == (True, True)
    seen["g"].offsets[secret] = Position(1)
    (answer,) = prove(plan, [planned], states, seen).problems
    assert answer.startswith("its coordinator has other offsets")


def test_brokers_remove_a_group_that_has_no_offset_left() -> None:
    held = TargetGroup("g", state="Empty", members=0, offsets={KEY[1:]: HELD})
    topics = {"orders": TargetTopic("A" * 22, {0: LogRange(100, 200, 5)})}
    groups = decide(Wanted({}), Target("test", None, {"g": held}, topics, 50), Choices({}, delete_others=True), ["g"])
    plan = Plan("restore", None, "test", "source", {}, 1, tuple(groups))
    added = [Added(3, 7, OffsetRecord(1, None, KEY, None)), Added(3, 8, GroupRecord(2, None, {"group": "g"}, None))]
    assert prove(plan, added, [], {}).problems == []


def test_of_a_group_in_two_offsets_partitions_that_of_its_coordinator_counts(tmp_path: Path) -> None:
    log = Log().commit("g", {KEY[1:]: 160}, leader_epoch=-1).write(tmp_path, 3)
    Log().commit("g", {KEY[1:]: 1, OTHER[1:]: 1}, leader_epoch=-1).write(log, 17)
    states = replay_snapshot(discover([str(log)]), profile_for_release("3.9.2"), damage=[])
    now = {"g": TargetGroup("g", state="Empty", offsets={KEY[1:]: Position(160)})}
    groups = decide(Wanted({KEY: Position(160)}), Target("test", None, {}, None, 50), Choices({}))
    plan = Plan("restore", None, "test", "source", {}, 1, tuple(groups))
    assert prove(plan, [Added(3, 0, commit(KEY, 160))], states, now).problems == []
    with_records(now, states, 50)
    assert now["g"].offsets == {KEY[1:]: Position(160, offsets_partition=3, record_offset=0)}
