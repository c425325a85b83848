"""Differences between the replayed log and the coordinators' answers, and the reason given for each."""

from __future__ import annotations

from types import SimpleNamespace as Answer
from typing import Any

import pytest

from coordinator_core.cli.capture import write_cross_check
from coordinator_core.cluster.crosscheck import Commit, Difference, Reason, cross_check, differing_offset_keys
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.cluster.groups import ask_groups
from coordinator_core.cluster.restore_target import live_groups, live_target
from coordinator_core.coordinator.errors import Errors
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import (
    ClassicGroup,
    CommittedOffset,
    GroupState,
    OffsetKey,
    PartitionState,
)
from coordinator_core.log.types import OFFSETS_TOPIC
from tests.restore.one_process import OneProcess

OFFSET_KEY = OffsetKey("g", "orders", 0)
END = 100


def committed(offset: int, record_offset: int) -> CommittedOffset:
    return CommittedOffset(
        committed_offset=offset,
        leader_epoch=None,
        metadata="",
        commit_timestamp_ms=0,
        expire_timestamp_ms=None,
        topic_id=None,
        record_offset=record_offset,
        value_version=3,
        producer_id=None,
        producer_epoch=None,
        ordering_offset=record_offset,
    )


def state(offset: int | None, record_offset: int = 50) -> PartitionState:
    found = PartitionState(7, {"g": ClassicGroup("g", GroupState.EMPTY)})
    if offset is not None:
        found.offsets[OFFSET_KEY] = committed(offset, record_offset)
    return found


def answer(offset: int | None, *, pending: bool = False, state: str | None = "Empty") -> dict[str, Any]:
    row = {"topic": "orders", "partition": 0, "committed_offset": offset, "pending": pending}
    rows = [row] if offset is not None or pending else []
    group = {"group_id": "g", "state": state, "listed": state is not None, "offsets": rows}
    return {"groups": [group]}


def history(*commits: tuple[int, int | None]) -> dict[OffsetKey, list[Commit]]:
    return {OFFSET_KEY: [Commit(7, *one) for one in commits]}


HISTORY = history((40, 3), (50, 5), (110, 8), (120, 9))


@pytest.mark.parametrize(
    "said, reason",
    [(9, Reason.NEWER), (8, Reason.NEWER), (3, Reason.OLDER), (4, Reason.WRONG), (None, Reason.WRONG)],
)
def test_a_committed_offset_that_is_not_the_pinned_one(said: int | None, reason: Reason) -> None:
    """The pinned log says 5, the log read on says 8, then 9; 3 was before 5, and 4 never was."""
    checked = cross_check([state(5)], [state(9, 120)], HISTORY, answer(said), {7: END})
    assert checked.differences == (Difference(reason, "g", "orders", 0, 5, said),)
    assert checked.counts()[reason.value] == 1
    assert differing_offset_keys([state(5)], answer(said)) == {OFFSET_KEY}


def test_what_is_equal_is_no_difference() -> None:
    checked = cross_check([state(5)], [state(9)], HISTORY, answer(5), {7: END})
    assert (checked.offset_keys, checked.groups, checked.differences) == (1, 1, ())


def test_a_deletion_behind_the_pinned_end_is_newer() -> None:
    checked = cross_check([state(5)], [state(None)], history((50, 5), (110, None)), answer(None), {7: END})
    assert [each.reason for each in checked.differences] == [Reason.NEWER]


def test_a_coordinator_that_missed_a_deletion_is_older() -> None:
    checked = cross_check([state(None)], [state(None)], history((50, 5), (60, None)), answer(5), {7: END})
    assert checked.differences == (Difference(Reason.OLDER, "g", "orders", 0, None, 5),)


def test_offsets_below_0() -> None:
    """Brokers take them, and answer them as they are; -1 is the answer for none."""
    for held, said in ((-1, None), (-2, -2)):
        assert cross_check([state(held)], [state(held)], {}, answer(said), {7: END}).differences == ()
        assert differing_offset_keys([state(held)], answer(said)) == set()
    meanwhile = history((50, 5), (110, -1), (120, 8))
    checked = cross_check([state(5)], [state(8)], meanwhile, answer(None), {7: END})
    assert [each.reason for each in checked.differences] == [Reason.NEWER]


def test_answers_below_0_are_kept() -> None:
    held = {("orders", partition): (offset, -1, "") for partition, offset in enumerate((-1, -2, -1001, 0))}
    client = OneProcess({"g": held}, {OFFSETS_TOPIC: (99, {0: (0, 0, 0)})})
    (group,) = ask_groups(client, client.topic(OFFSETS_TOPIC), {"g": list(held)})["groups"]
    assert {row["partition"]: row["committed_offset"] for row in group["offsets"]} == {1: -2, 2: -1001, 3: 0}


def test_states_in_lower_case() -> None:
    """As the new coordinator of 3.7 answers: a group without members is no difference, nor has it members."""
    client = OneProcess({"g": {}, "rebalances": {}}, {})
    states = {"g": "empty", "rebalances": "preparingrebalance"}
    listed = [Answer(group_id=one, group_type="", protocol_type="", group_state=state) for one, state in states.items()]
    described = [
        Answer(group_id=one, error_code=0, group_state=state, protocol_type="", members=[])
        for one, state in states.items()
    ]
    answers = {"ListGroups": Answer(error_code=0, groups=listed), "DescribeGroups": Answer(groups=described)}
    client.answer = lambda name, _: answers.get(name)
    info = client.topic(OFFSETS_TOPIC)
    answered = ask_groups(client, info, {})
    assert {group["group_id"]: group["state"] for group in answered["groups"]} == {
        "g": GroupState.EMPTY,
        "rebalances": GroupState.PREPARING_REBALANCE,
    }
    answered["groups"].pop()
    assert cross_check([state(None)], [state(None)], {}, answered, {7: END}).differences == ()
    live = live_groups(client, info, [], None)
    assert not live["g"].has_members
    assert live["rebalances"].has_members


def test_groups_are_listed_once_their_coordinators_have_loaded() -> None:
    """Until then a list leaves them out, without an error, as after each restart of a broker."""
    held = {("orders", 0): (5, -1, "")}
    client = OneProcess({"g": held}, {OFFSETS_TOPIC: (99, {0: (0, 0, 0)})})
    answers = [Errors.NOT_COORDINATOR, Errors.COORDINATOR_LOAD_IN_PROGRESS]

    def answer(name: str, _: Any) -> Any:
        if name == "OffsetFetch" and answers:
            return Answer(groups=[Answer(group_id="g", error_code=answers.pop(0), topics=[])])
        return Answer(error_code=0, groups=[]) if name == "ListGroups" and answers else None

    client.answer = answer
    (group,) = ask_groups(client, client.topic(OFFSETS_TOPIC), {"g": list(held)})["groups"]
    assert (group["listed"], group["type"], group["state"]) == (True, "classic", "Empty")


def test_where_a_coordinator_has_not_loaded_not_all_groups_can_be_listed() -> None:
    client = OneProcess({"g": {}}, {OFFSETS_TOPIC: (99, {0: (0, 0, 0), 1: (0, 0, 0)})})
    assert live_target(client, [], None, {}).groups.keys() == {"g"}
    client.patience_seconds = 0

    def answer(name: str, request: Any) -> Any:
        if name != "DescribeGroups":
            return None
        codes = {one: Errors.NOT_COORDINATOR if partition_for(one, 2) else 0 for one in request.groups}
        fields = {"group_state": "Dead", "protocol_type": "", "members": []}
        return Answer(groups=[Answer(group_id=one, error_code=code, **fields) for one, code in codes.items()])

    client.answer = answer
    with pytest.raises(ClusterError, match=r"^not all groups can be listed, .*__consumer_offsets-1.*NOT_COORDINATOR"):
        live_target(client, [], None, {})
    # Groups that are named need their own coordinators alone.
    named = next(one for one in ("g", "h", "i") if partition_for(one, 2) == 0)
    assert live_target(client, [], [named], {}).groups.keys() == {named}


def test_what_an_open_transaction_holds_is_pending() -> None:
    pinned = state(5)
    pinned.pending = {4: {OFFSET_KEY: committed(6, 60)}}
    for said in (answer(6), answer(None), answer(4, pending=True)):
        checked = cross_check([pinned], [pinned], HISTORY, said, {7: END})
        assert [each.reason for each in checked.differences] == [Reason.PENDING]


def test_groups_that_only_one_side_has_or_that_differ() -> None:
    missing = cross_check([state(None)], [state(None)], {}, {"groups": []}, {7: END})
    assert missing.differences == (Difference(Reason.WRONG, "g", None, None, "Empty", None),)
    deleted = cross_check([state(None)], [PartitionState(7)], {}, {"groups": []}, {7: END})
    assert [each.reason for each in deleted.differences] == [Reason.NEWER]
    stable = cross_check([state(None)], [state(None)], {}, answer(None, state="Stable"), {7: END})
    assert [each.reason for each in stable.differences] == [Reason.WRONG]
    joining = cross_check([state(None)], [state(None)], {}, answer(None, state="PreparingRebalance"), {7: END})
    assert [each.reason for each in joining.differences] == [Reason.NEWER]
    populated = state(None)
    populated.groups["g"] = ClassicGroup("g", GroupState.STABLE, generation=2)
    later = cross_check([state(None)], [populated], {}, answer(None, state="Stable"), {7: END})
    assert [each.reason for each in later.differences] == [Reason.NEWER]


def test_no_offset_is_told_as_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    different = {"reason": "wrong", "group_id": "g", "topic": "orders", "partition": 0, "replayed": 7, "cluster": None}
    checked = {"counts": {"wrong": 1}, "groups": 1, "slots": 1, "profile": "J3", "differences": [different]}
    for is_told in (False, True):
        write_cross_check(checked, is_told=is_told)
        said = capfd.readouterr().err
        assert "wrong: group 'g' orders-0: the log says 7, the coordinator nothing\n" in said
        assert ("the release is told from the records" in said) is is_told
