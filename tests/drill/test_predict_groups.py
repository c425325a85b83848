"""Predictions of groups: rebalances by the model's answers, offsets and transactions by two copies."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_core.drill.changes import changes
from coordinator_core.drill.copies import ClusterLogs, Copy, copies_of_snapshot
from coordinator_core.drill.loading import machine_calibration
from coordinator_core.drill.model import (
    GroupPrediction,
    HangingTransaction,
    Objectives,
    Prediction,
    ServedGroup,
    ServedMember,
    Verdict,
)
from coordinator_core.drill.predict import Situation, predict
from coordinator_core.drill.scenario import Scenario
from coordinator_core.drill.verdict import hypothesis
from coordinator_core.errors import UsageError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import (
    ClassicGroup,
    ClassicMember,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    Group,
    GroupState,
    OffsetKey,
    PartitionState,
    ShareGroup,
    ShareMember,
    ShareTopic,
    StreamsGroup,
    StreamsMember,
    TaskAssignment,
)
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import PartitionLog
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.replay.sequential import SequentialReplayer
from coordinator_core.reports.drill_prediction import prediction_text
from coordinator_core.topology import BrokerInfo, PartitionInfo, TopicInfo, Topology
from tests.cases import CORPUS

JAVA = profile_for_release("4.3.1")
SCALA = profile_for_release("3.9.2", "classic")
PARTITIONS = 5
BOTH = pytest.mark.parametrize("profile", [SCALA, JAVA], ids=["scala", "java"])


def classic(generation: int, *member_ids: str) -> ClassicGroup:
    members = tuple(
        ClassicMember(one, None, "c", "/h", 10_000, 30_000, b"\x00\x01\x00\x00\x00\x00", b"") for one in member_ids
    )
    state = GroupState.STABLE if members else GroupState.EMPTY
    leader = member_ids[0] if member_ids else None
    return ClassicGroup("g", state, "consumer", generation, "range", leader, 1, members, 0)


def consumer(epoch: int, *member_ids: str) -> ConsumerGroup:
    return ConsumerGroup(
        "g",
        group_epoch=epoch,
        assignment_epoch=epoch,
        members={
            one: ConsumerMember(
                one,
                subscribed_topics=("t",),
                rebalance_timeout_ms=30_000,
                member_epoch=epoch,
                previous_member_epoch=epoch - 1,
            )
            for one in member_ids
        },
        target_assignment={one: {} for one in member_ids},
        record_offset=0,
    )


def state(group: Group | None, offset: int | None = None) -> PartitionState:
    number = partition_for("g", PARTITIONS)
    offsets = {}
    if offset is not None:
        committed = CommittedOffset(offset, None, "", offset, None, None, 0, 3, None, None, 0)
        offsets[OffsetKey("g", "t", 0)] = committed
    return PartitionState(number, {} if group is None else {"g": group}, offsets)


def of_g(before: PartitionState, after: PartitionState, profile: Profile, *, in_sync: bool = False) -> GroupPrediction:
    """Broker 1 coordinates everything and is lost; broker 2 is the only one left."""
    prediction = predicted(before, after, profile, in_sync=in_sync)
    (group,) = prediction.groups
    return group


def predicted(before: PartitionState, after: PartitionState, profile: Profile, *, in_sync: bool = False) -> Prediction:
    number = before.offsets_partition
    topology = Topology.of_offsets(
        {one: BrokerInfo(one, {}) for one in (1, 2)},
        [PartitionInfo(one, 1, 0, (1, 2), (1, 2) if in_sync else (1,)) for one in range(PARTITIONS)],
    )
    old, new = ({one: Copy(PartitionState(one), 0, 0, 0) for one in range(PARTITIONS)} for _ in (before, after))
    copies = {**old, number: Copy(before, 0, 2, 100)}
    situation = Situation(
        topology,
        ClusterLogs(copies, {1: copies, 2: {**new, number: Copy(after, 0, 1, 50)}}),
        profile,
        machine_calibration(),
    )
    return predict(situation, Scenario.parse("unclean-election=1"), Objectives(), predicted_at_ms=0)


@BOTH
def test_members_that_the_new_coordinator_knows_go_on(profile: Profile) -> None:
    group = of_g(state(classic(3, "a", "b"), 7), state(classic(3, "a", "b"), 7), profile)
    assert (group.rebalances, group.reason) == (False, "the new coordinator has loaded every member")
    assert group.phases[-1].answers == {
        "FindCoordinator": "NONE",
        "Heartbeat": "NONE",
        "OffsetFetch": "NONE",
        "OffsetCommit": "NONE",
        "SyncGroup": "NONE",
        "JoinGroup": "NONE",
    }


@BOTH
def test_an_older_generation_makes_the_group_rebalance(profile: Profile) -> None:
    group = of_g(state(classic(4, "a", "b"), 7), state(classic(3, "a"), 7), profile)
    assert group.rebalances is True
    assert group.reason == "heartbeats are answered ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID"
    assert group.phases[-1].answers["OffsetCommit"] == "ILLEGAL_GENERATION"
    assert group.phases[-1].answers["SyncGroup"] == "ILLEGAL_GENERATION"


@BOTH
def test_a_group_that_is_gone_makes_its_members_join_anew(profile: Profile) -> None:
    group = of_g(state(classic(4, "a"), 7), state(None), profile)
    assert group.rebalances is True
    assert group.reason == "heartbeats are answered UNKNOWN_MEMBER_ID"
    assert group.phases[-1].answers["JoinGroup"] == "UNKNOWN_MEMBER_ID"
    assert [(one.before, one.after) for one in group.vanished] == [(7, None)]


@BOTH
def test_an_offset_that_vanishes_is_lost_also_where_no_time_passed(profile: Profile) -> None:
    """A copy without any commit, and one commit that it lacks."""
    prediction = predicted(state(classic(4, "a"), 7), state(None), profile)
    assert (prediction.totals.offsets_vanished, prediction.totals.lost_ms) == (1, 0)
    assert prediction.verdict is Verdict.MISSED
    assert "1 offset goes back or vanishes: commits of one moment are lost" in prediction.reasons
    assert "lost:         commits of one moment" in prediction_text(prediction).splitlines()
    unharmed = predicted(state(classic(4, "a"), 7), state(classic(4, "a"), 7), profile)
    assert "lost:         nothing" in prediction_text(unharmed).splitlines()


@BOTH
def test_members_that_are_back_make_the_group_rebalance(profile: Profile) -> None:
    group = of_g(state(classic(4, "a")), state(classic(4, "a", "left")), profile)
    assert group.rebalances is True
    assert "1 member that had left is back" in group.reason


def test_consumer_groups_are_judged_by_their_heartbeats() -> None:
    same = of_g(state(consumer(5, "a"), 7), state(consumer(5, "a"), 7), JAVA)
    assert (same.rebalances, set(same.phases[-1].answers.values())) == (False, {"NONE"})
    older = of_g(state(consumer(5, "a"), 7), state(consumer(4, "a"), 7), JAVA)
    assert (older.rebalances, older.reason) == (True, "heartbeats are answered FENCED_MEMBER_EPOCH")
    without = of_g(state(consumer(5, "a"), 7), state(consumer(5), 7), JAVA)
    assert without.phases[-1].answers["OffsetCommit"] == "UNKNOWN_MEMBER_ID"


@BOTH
def test_what_is_answered_while_the_new_coordinator_loads(profile: Profile) -> None:
    group = of_g(state(classic(3, "a"), 7), state(classic(3, "a"), 7), profile)
    loading = group.phases[1].answers
    assert loading["Heartbeat"] == "NONE"
    assert loading["OffsetCommit"] == loading["OffsetFetch"] == "COORDINATOR_LOAD_IN_PROGRESS"
    in_progress = "REBALANCE_IN_PROGRESS" if profile is SCALA else "COORDINATOR_LOAD_IN_PROGRESS"
    assert loading["SyncGroup"] == in_progress


def test_a_replica_in_sync_has_all_that_was_acknowledged() -> None:
    group = of_g(state(classic(3, "a"), 7), state(None), JAVA, in_sync=True)
    assert (group.rebalances, group.vanished, group.records_read_again) == (False, (), 0)


def test_offsets_by_what_becomes_of_them() -> None:
    back = of_g(state(classic(3), 9), state(classic(3), 4), JAVA)
    assert ([(one.before, one.after) for one in back.regressed], back.records_read_again) == ([(9, 4)], 5)
    reset = of_g(state(classic(3), 4), state(classic(3), 9), JAVA)
    assert [(one.before, one.after) for one in reset.undone] == [(4, 9)]
    deleted = of_g(state(None), state(classic(3), 9), JAVA)
    assert [(one.before, one.after) for one in deleted.undone] == [(None, 9)]
    for before in (state(classic(3), 4), state(None)):
        # Its reader skips records, or what was deleted is back: the commit of that is lost.
        prediction = predicted(before, state(classic(3), 9), JAVA)
        assert prediction.verdict is Verdict.MISSED
        assert "1 change is undone: commits of one moment are lost" in prediction.reasons
        lines = prediction_text(prediction).splitlines()
        assert "offsets:      0 go back, 0 vanish, 1 change is undone, 0 records are read again" in lines
        assert "lost:         commits of one moment" in lines
        said = f"{PARTITIONS} of {PARTITIONS} offsets partitions to move, 0 of 1 group to rebalance"
        assert hypothesis(prediction) == f"unclean-election=1: {said}, commits of 1 offset to be lost"
    prediction = predicted(state(classic(3), 9), state(classic(3), 4), JAVA)
    assert prediction.totals.lost_ms == 5
    assert prediction.verdict is Verdict.MISSED


SHARE_PARTITIONS = {"AAAAAAAAAAAAAAAAAAAAAg": (0, 1)}
TASKS = TaskAssignment({"0": (0, 1)}, standby={"1": (2,)})
TOPOLOGY = {
    "epoch": 1,
    "subtopologies": [
        {
            "subtopologyId": name,
            "sourceTopics": [topic],
            "sourceTopicRegex": [],
            "stateChangelogTopics": [],
            "repartitionSinkTopics": [],
            "repartitionSourceTopics": [],
            "copartitionGroups": [],
        }
        for name, topic in (("0", "t"), ("1", "u"))
    ],
}


def share(epoch: int, *member_ids: str, status: str = "initialized") -> ShareGroup:
    members = {
        one: ShareMember(
            one,
            client_id="c",
            client_host="/h",
            subscribed_topics=("t",),
            member_epoch=epoch,
            previous_member_epoch=epoch - 1,
            assigned=SHARE_PARTITIONS,
        )
        for one in member_ids
    }
    return ShareGroup(
        "g",
        group_epoch=epoch,
        assignment_epoch=epoch,
        members=members,
        target_assignment=dict.fromkeys(member_ids, SHARE_PARTITIONS),
        topics=tuple(ShareTopic(topic_id, "t", status, found, 0) for topic_id, found in SHARE_PARTITIONS.items()),
        record_offset=0,
    )


def streams(epoch: int, *member_ids: str, validated: int = 1) -> StreamsGroup:
    members = {
        one: StreamsMember(
            one,
            rebalance_timeout_ms=1000,
            topology_epoch=1,
            process_id=one,
            # Kafka breaks off a heartbeat that is told of endpoints while topics are missing.
            user_endpoint=("host", 1),
            member_epoch=epoch,
            previous_member_epoch=epoch - 1,
            assigned=TASKS if validated == 1 else TaskAssignment(),
        )
        for one in member_ids
    }
    return StreamsGroup(
        "g",
        group_epoch=epoch,
        validated_topology_epoch=validated,
        assignment_epoch=epoch,
        members=members,
        target_assignment={one: members[one].assigned for one in member_ids},
        topology=TOPOLOGY,
        record_offset=0,
    )


EPOCHS = pytest.mark.parametrize("kind", [share, streams])


@EPOCHS
def test_share_and_streams_groups_are_judged_by_their_heartbeats(kind: Callable[..., Group]) -> None:
    def moved(after: Group | None) -> tuple[bool | None, str]:
        group = of_g(state(kind(5, "a")), state(after), JAVA)
        return group.rebalances, group.reason

    assert moved(kind(5, "a")) == (False, "the new coordinator has loaded every member")
    assert moved(kind(4, "a")) == (True, "heartbeats are answered FENCED_MEMBER_EPOCH")
    assert moved(kind(5)) == (True, "heartbeats are answered UNKNOWN_MEMBER_ID")
    assert moved(None) == (True, "heartbeats are answered GROUP_ID_NOT_FOUND")
    assert moved(kind(5, "a", "left")) == (True, "1 member that had left is back, until the session is over")


def test_share_groups_are_asked_for_start_offsets_not_for_committed_ones() -> None:
    group = of_g(state(share(5, "a")), state(share(5, "a")), JAVA)
    answers = [phase.answers for phase in group.phases]
    apis = ("ShareGroupDescribe", "DescribeShareGroupOffsets", "ShareGroupHeartbeat")
    assert answers[0] == {"FindCoordinator": "NONE", **dict.fromkeys(apis, "DISCONNECTED")}
    assert answers[1] == {"FindCoordinator": "NONE", **dict.fromkeys(apis, "COORDINATOR_LOAD_IN_PROGRESS")}
    assert answers[2] == {"FindCoordinator": "NONE", **dict.fromkeys(apis, "NONE")}


def test_streams_groups_commit_and_fetch_with_their_epoch() -> None:
    group = of_g(state(streams(5, "a"), 7), state(streams(5, "a"), 7), JAVA)
    apis = ("OffsetFetch", "OffsetCommit", "StreamsGroupDescribe", "StreamsGroupHeartbeat")
    assert group.phases[1].answers == {"FindCoordinator": "NONE", **dict.fromkeys(apis, "COORDINATOR_LOAD_IN_PROGRESS")}
    assert group.phases[2].answers == {"FindCoordinator": "NONE", **dict.fromkeys(apis, "NONE")}
    older = of_g(state(streams(5, "a"), 7), state(streams(4, "a"), 6), JAVA)
    assert older.phases[2].answers["OffsetCommit"] == "STALE_MEMBER_EPOCH"
    assert [(one.before, one.after) for one in older.regressed] == [(7, 6)]


def test_what_the_new_coordinator_describes_is_that_of_its_copy() -> None:
    group = of_g(state(streams(5, "b")), state(streams(4, "b", "a")), JAVA)
    a, b = (ServedMember(one, 4, {"0": (0, 1)}, {"1": (2,)}) for one in ("a", "b"))
    assert group.served == ServedGroup(GroupState.STABLE, 4, 4, 1, (a, b))
    group = of_g(state(share(5, "b")), state(share(4)), JAVA)
    assert group.served == ServedGroup(GroupState.EMPTY, 4, 4, None, ())
    assert of_g(state(share(5)), state(None), JAVA).served is None
    assert of_g(state(classic(5)), state(classic(5)), JAVA).served is None


def test_a_streams_group_without_its_topics_does_not_rebalance() -> None:
    for after in (streams(5, "a", validated=-1), streams(5, "a", "b", validated=-1)):
        group = of_g(state(streams(5, "a", validated=-1)), state(after), JAVA)
        assert group.phases[2].answers["StreamsGroupHeartbeat"] == "NONE"
        assert group.served is not None
        assert group.served.state is GroupState.NOT_READY
        assert group.rebalances is (after.members.keys() != {"a"})


def test_share_partitions_without_state_leave_a_rebalance_open() -> None:
    group = of_g(state(share(5, "a", status="initializing")), state(share(5, "a", status="initializing")), JAVA)
    assert (group.rebalances, group.reason) == (
        None,
        "it rebalances once its new share-partitions have state at the share coordinator",
    )


def test_start_offsets_stay_where_the_share_coordinators_lose_nothing() -> None:
    """Their own topic decides, where the topology has it; else an unclean election leaves it open."""

    def stay(scenario: str, *, isr: tuple[int, ...] | None = None, kind: Group | None = None) -> bool | None:
        topology = Topology.of_offsets(
            {one: BrokerInfo(one, {}) for one in (1, 2)},
            [PartitionInfo(one, 1, 0, (1, 2), (1, 2)) for one in range(PARTITIONS)],
        )
        if isr is not None:
            name = "__share_group_state"
            topic = TopicInfo(name, None, (PartitionInfo(0, 1, 0, (1, 2), isr),))
            topology = replace(topology, topics={**topology.topics, name: topic})
        before = state(kind or share(5))
        logs = ClusterLogs({before.offsets_partition: Copy(before, 0, 2, 100)}, {})
        situation = Situation(topology, logs, JAVA, machine_calibration())
        (group,) = predict(situation, Scenario.parse(scenario), Objectives(), predicted_at_ms=0).groups
        return group.start_offsets_stay

    assert stay("lose-brokers=1") is True
    assert stay("unclean-election=1") is None
    assert stay("unclean-election=1", isr=(1, 2)) is True
    assert stay("unclean-election=1", isr=(1,)) is None
    assert stay("lose-brokers=1", isr=(1,)) is True
    assert stay("lose-brokers=1", kind=streams(5)) is None


def test_groups_are_answered_by_what_they_ask() -> None:
    """The group without name, which cannot be joined, and one whose members speak the classic protocol come first."""
    number = partition_for("", 1)
    upgraded = consumer(5, "a")
    upgraded.members["a"] = replace(upgraded.members["a"], classic_protocols=(), classic_session_timeout_ms=1000)
    groups = {
        "": classic(3)._replace(group_id=""),
        "e": classic(3)._replace(group_id="e"),
        "u": replace(upgraded, group_id="u"),
        "v": replace(consumer(5, "a"), group_id="v"),
    }
    before = PartitionState(number, groups)
    topology = Topology.of_offsets(
        {one: BrokerInfo(one, {}) for one in (1, 2)}, [PartitionInfo(0, 1, 0, (1, 2), (1, 2))]
    )
    situation = Situation(topology, ClusterLogs({0: Copy(before, 0, 2, 9)}, {}), JAVA, machine_calibration())
    found = predict(situation, Scenario.parse("lose-brokers=1"), Objectives(), predicted_at_ms=0).groups
    answers = {group.group_id: group.phases[-1].answers for group in found}
    assert (answers[""]["JoinGroup"], answers["e"]["JoinGroup"]) == ("INVALID_GROUP_ID", "MEMBER_ID_REQUIRED")
    assert (answers["u"].get("Heartbeat"), answers["v"].get("ConsumerGroupHeartbeat")) == ("NONE", "NONE")


def test_no_election_without_a_majority_of_controllers() -> None:
    topology = Topology.of_offsets(
        {one: BrokerInfo(one, {}, rack="ab"[one // 2 % 2]) for one in (1, 2, 3)},
        [PartitionInfo(0, 2, 4, (2, 1, 3), (2, 1, 3))],
    )
    situation = Situation(topology, ClusterLogs({}, {}), JAVA, machine_calibration())
    scenario = Scenario.parse("lose-rack=b")
    (led,) = predict(situation, scenario, Objectives(), predicted_at_ms=0).partitions
    assert (led.leader_after, led.leader_epoch_after, led.load_ms) == (1, 5, None)
    situation = replace(situation, topology=replace(topology, voters=(1, 2, 3)))
    prediction = predict(situation, scenario, Objectives(), predicted_at_ms=0)
    (unled,) = prediction.partitions
    assert (unled.leader_after, unled.leader_epoch_after) == (None, 4)
    assert prediction.steps[0].what == "brokers 2, 3 are lost, no controller is left"
    assert prediction.brokers() == (2, 3)


def test_a_restart_is_one_of_brokers_that_are_alive() -> None:
    topology = Topology.of_offsets(
        {1: BrokerInfo(1, {}), 2: BrokerInfo(2, {}, alive=False)}, [PartitionInfo(0, 1, 0, (1, 2), (1,))]
    )
    situation = Situation(topology, ClusterLogs({}, {}), JAVA, machine_calibration())
    scenario = Scenario.parse("rolling-restart")
    assert predict(situation, scenario, Objectives(), predicted_at_ms=0).brokers() == (1,)
    dead = replace(topology, brokers={2: topology.brokers[2]})
    with pytest.raises(UsageError, match="the topology has no broker that is alive"):
        predict(replace(situation, topology=dead), scenario, Objectives(), predicted_at_ms=0)


TXN = CORPUS / "k431-txn" / "log"


def logs_of_the_transactions() -> list[PartitionLog]:
    return list(discover([str(TXN)]).partitions)


@pytest.mark.parametrize("log", logs_of_the_transactions(), ids=lambda log: f"partition-{log.offsets_partition}")
def test_changes_turn_the_old_offsets_into_the_new_ones(log: PartitionLog) -> None:
    """For a copy that ends at any batch of the log."""
    batches = [(batch, records) for _, batch, records in read_records(log, on_damage=OnDamage.FAIL, damage=[])]
    for length in range(len(batches)):
        states = []
        for count in (len(batches), length):
            replayer = SequentialReplayer(JAVA, log.offsets_partition)
            for batch, records in batches[:count]:
                replayer.replay_batch(batch, records)
            states.append(replayer.finish())
        before, after = (
            {
                offset_key: one.committed_offset
                for offset_key, one in state.offsets.items()
                if offset_key.group_id in state.groups
            }
            for state in states
        )
        markers = {batch.producer_id for batch, _ in batches[length:] if batch.is_control}
        for group_id, change in changes(*states).items():
            for one in (*change.regressed, *change.undone, *change.vanished):
                offset_key = OffsetKey(group_id, one.topic, one.partition)
                assert before.get(offset_key) == one.before
                before.pop(offset_key, None)
                if one.after is not None:
                    before[offset_key] = one.after
            assert all((one.before or 0) > (one.after or 0) for one in change.regressed)
            assert {one.producer_id for one in change.hanging} <= markers
        assert before == after


def test_a_transaction_whose_marker_is_lost_hangs(tmp_path: Path) -> None:
    lagging = tmp_path / "broker-2"
    shutil.copytree(TXN, lagging)
    (log,) = (one for one in discover([str(lagging)]).partitions if one.offsets_partition == 40)
    cut = next(
        batch.position
        for _, batch, _ in read_records(log, on_damage=OnDamage.FAIL, damage=[])
        if batch.base_offset == 9
    )
    path = Path(log.segments[-1].path)
    path.write_bytes(path.read_bytes()[:cut])
    found = [
        copies_of_snapshot(discover([str(one)]), JAVA, on_damage=OnDamage.RECOVER, damage=[]) for one in (TXN, lagging)
    ]
    topology = Topology.of_offsets(
        {one: BrokerInfo(one, {}) for one in (1, 2)},
        [PartitionInfo(one, 1, 0, (1, 2), (1,)) for one in range(50)],
    )
    situation = Situation(topology, ClusterLogs(found[0], dict(enumerate(found, 1))), JAVA, machine_calibration())
    prediction = predict(situation, Scenario.parse("unclean-election=1"), Objectives(), predicted_at_ms=0)
    (group,) = (one for one in prediction.groups if one.group_id == "x-plain-after")
    assert group.hanging_transactions == (HangingTransaction(40, 7, 0),)
    assert group.phases[-1].answers["OffsetFetch"] == "UNSTABLE_OFFSET_COMMIT"
    assert prediction.totals.hanging_transactions == 1
    assert prediction.verdict is Verdict.MISSED
    assert "1 transaction stays open for ever" in prediction.reasons
