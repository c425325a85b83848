"""B: the records that a coordinator writes. C: joining and synchronising a group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator_core.coordinator.errors import Errors
from coordinator_core.groups.hashing import partition_for
from coordinator_core.records.codec import decode_key, decode_value, encode_key, encode_value
from coordinator_core.records.jsontext import key_json, value_json
from tests.coordinator.brokers import SETTINGS, SUBSCRIPTION, Simulation

BOTH = pytest.mark.parametrize("java", [False, True], ids=["scala", "java"])


# B: the offsets topic


@pytest.mark.parametrize(("java", "plain", "expiring"), [(False, 3, 1), (True, 4, 1)], ids=["scala", "java"])
def test_b1_keys_and_values_have_the_releases_versions(java: bool, plain: int, expiring: int) -> None:
    simulation = Simulation(java=java)
    simulation.stable_group("c1")
    simulation.commit("h")
    partition = {"partitionIndex": 0, "committedOffset": 1, "committedMetadata": ""}
    body = {
        "groupId": "h",
        "generationIdOrMemberEpoch": -1,
        "memberId": "",
        "retentionTimeMs": 1_000,
        "topics": [{"name": "t1", "partitions": [partition]}],
    }
    simulation.ask("OffsetCommit", 2, body)
    assert [record.version for record in simulation.records("h")] == [plain, expiring]
    assert {record.version for record in simulation.records("g")} == {3}
    for log in simulation.cluster.log.partitions.values():
        for record in log:
            key = decode_key(record.key)
            assert key.data is not None
            assert encode_key(key.type, key.data) == record.key
            assert record.value is not None
            value = decode_value(key.type, record.value)
            assert value.data is not None
            assert encode_value(key.type, value.version, value.data) == record.value


@BOTH
def test_b2_a_group_is_registered_when_all_joined_and_when_the_assignment_comes(java: bool) -> None:
    """In both releases nothing is written at the end of the join phase; Java writes at the first join."""
    simulation = Simulation(java=java)
    (waiting,) = [simulation.join("g")]
    simulation.advance(1)
    assert [record.value["generation"] for record in simulation.records() if record.value] == [0] * java
    simulation.sync(waiting[0]["memberId"], 1, {waiting[0]["memberId"]: SUBSCRIPTION})
    last = simulation.records()[-1].value
    assert last is not None
    assert (last["generation"], last["protocol"], len(last["members"])) == (1, "range", 1)
    assert last["members"][0]["assignment"] != b""


@BOTH
def test_b3_tombstones_have_no_value(java: bool) -> None:
    simulation = Simulation(java=java)
    simulation.commit("g", offsets={0: 1, 2: 1})
    simulation.ask("DeleteGroups", 2, {"groupsNames": ["g"]})
    tombstones = [record for record in simulation.records() if record.value is None]
    offsets = [record.key["partition"] for record in tombstones if record.key_type == 1]
    assert sorted(offsets) == [0, 2]
    # A group without a generation was never written by 3.9, and 4.3 deletes it all the same.
    assert [record.key_type for record in tombstones] == [1, 1, *([2] if java else [])]


def test_b4_records_print_as_kafkas_tools_print_them() -> None:
    simulation = Simulation(java=True)
    simulation.commit("g", offsets={0: 7}, metadata="note")
    (record,) = simulation.cluster.log.partitions[simulation.manager.partition_for("g")]
    assert record.value is not None
    key = decode_key(record.key)
    assert key_json(key) == '{"type":"1","data":{"group":"g","topic":"t1","partition":0}}'
    assert value_json(1, decode_value(1, record.value)) == (
        '{"version":"4","data":{"offset":7,"leaderEpoch":-1,"metadata":"note",'
        f'"commitTimestamp":{simulation.clock.now_ms},"topicId":"AAAAAAAAAAAAAAAAAAAAAQ"}}}}'
    )


@BOTH
def test_b5_the_partition_of_a_group(java: bool) -> None:
    assert partition_for("testgroup") == 27
    simulation = Simulation(java=java, settings=replace(SETTINGS, offsets_topic_num_partitions=50))
    simulation.commit("testgroup")
    assert list(simulation.cluster.log.partitions) == [27]


# C: joining and synchronising a group


@BOTH
def test_c1_the_first_checks_of_every_request_in_their_order(java: bool) -> None:
    simulation = Simulation(java=java, count=2)
    coordinator = simulation.brokers[1].coordinator
    partition = coordinator.manager.partition_for("")
    coordinator.active = False
    # 3.9 looks at the group id first, 4.3 whether the coordinator was started.
    assert simulation.heartbeat("m", 1, group="", broker=1) == (
        "COORDINATOR_NOT_AVAILABLE" if java else "INVALID_GROUP_ID"
    )
    coordinator.active = True
    assert simulation.heartbeat("m", 1, group="", broker=1) == "INVALID_GROUP_ID"
    assert simulation.commit("", broker=1) == ["NOT_COORDINATOR"]
    coordinator.manager.begin_load(partition, 1)
    assert simulation.commit("", broker=1) == ["COORDINATOR_LOAD_IN_PROGRESS"]
    coordinator.manager.finish_load(partition)
    assert simulation.commit("", broker=1) == ["NONE"]


@pytest.mark.parametrize(
    ("java", "while_loading"), [(False, "REBALANCE_IN_PROGRESS"), (True, "COORDINATOR_LOAD_IN_PROGRESS")]
)
def test_c2_sync_while_loading_and_of_an_unknown_group(java: bool, while_loading: str) -> None:
    simulation = Simulation(java=java, count=2)
    assert simulation.sync("m", 1)[0]["error"] == "UNKNOWN_MEMBER_ID"
    manager = simulation.brokers[1].coordinator.manager
    manager.begin_load(manager.partition_for("g"), 1)
    assert simulation.sync("m", 1, broker=1)[0]["error"] == while_loading
    assert simulation.heartbeat("m", 1, broker=1) == "NONE"


@BOTH
def test_c3_the_checks_of_sync(java: bool) -> None:
    simulation = Simulation(java=java)
    (member,), generation = simulation.stable_group("c1")
    assert simulation.sync("ghost", generation)[0]["error"] == "UNKNOWN_MEMBER_ID"
    assert simulation.sync(member, generation + 1)[0]["error"] == "ILLEGAL_GENERATION"
    other = simulation.sync(member, generation, version=5, protocolName="sticky")
    assert other[0]["error"] == "INCONSISTENT_GROUP_PROTOCOL"
    none = simulation.sync(member, generation, version=5, protocolName=None)
    assert none[0]["error"] == "INCONSISTENT_GROUP_PROTOCOL"
    stable = simulation.sync(member, generation)
    assert (stable[0]["error"], stable[0]["assignment"]) == ("NONE", SUBSCRIPTION)
    simulation.join("g", client="c2")
    assert simulation.sync(member, generation)[0]["error"] == "REBALANCE_IN_PROGRESS"
    static = simulation.sync(member, generation, groupInstanceId="i1")
    assert static[0]["error"] == "UNKNOWN_MEMBER_ID"


@BOTH
def test_c3_a_fenced_static_member(java: bool) -> None:
    simulation = Simulation(java=java)
    first = simulation.join("g", instance="i1", version=5)
    simulation.advance(1)
    again = simulation.join("g", instance="i1", version=5)
    simulation.advance(1)
    fenced = simulation.sync(first[0]["memberId"], 1, groupInstanceId="i1")
    assert fenced[0]["error"] == "FENCED_INSTANCE_ID"
    assert again[0]["memberId"] != first[0]["memberId"]


@BOTH
def test_c3_the_leaders_assignment_is_completed_stored_and_handed_out(java: bool) -> None:
    simulation = Simulation(java=java)
    first = simulation.join("g")
    simulation.advance(1)
    second = simulation.join("g", client="c2")
    leader = first.pop()["memberId"]
    first = simulation.join("g", leader)
    follower = second[0]["memberId"]
    waiting = simulation.sync(follower, 2)
    assert (waiting, simulation.state()) == ([], "CompletingRebalance")
    answered = simulation.sync(leader, 2, {leader: SUBSCRIPTION})
    assert [reply["assignment"] for reply in (*answered, *waiting)] == [SUBSCRIPTION, ""]
    assert simulation.state() == "Stable"
    stored = simulation.records()[-1].value
    assert stored is not None
    assert sorted(len(member["assignment"]) for member in stored["members"])[0] == 0


@pytest.mark.parametrize(
    ("java", "refused", "error"),
    [
        (False, Errors.NOT_ENOUGH_REPLICAS, "COORDINATOR_NOT_AVAILABLE"),
        (False, Errors.REQUEST_TIMED_OUT, "REBALANCE_IN_PROGRESS"),
        (False, Errors.MESSAGE_TOO_LARGE, "UNKNOWN_SERVER_ERROR"),
        (True, Errors.NOT_LEADER_OR_FOLLOWER, "NOT_COORDINATOR"),
        (True, Errors.REQUEST_TIMED_OUT, "COORDINATOR_NOT_AVAILABLE"),
    ],
)
def test_c4_a_failed_store_reaches_everyone_and_rebalances(java: bool, refused: Errors, error: str) -> None:
    simulation = Simulation(java=java)
    first = simulation.join("g")
    simulation.advance(1)
    second = simulation.join("g", client="c2")
    leader = first.pop()["memberId"]
    simulation.join("g", leader)
    waiting = simulation.sync(second[0]["memberId"], 2)
    simulation.refused = refused
    answered = simulation.sync(leader, 2, {leader: SUBSCRIPTION})
    assert [reply["error"] for reply in (*answered, *waiting)] == [error, error]
    assert simulation.state() == "PreparingRebalance"


@BOTH
def test_c4_nothing_happens_when_another_rebalance_began_meanwhile(java: bool) -> None:
    simulation = Simulation(java=java)
    leader = simulation.join("g")
    simulation.advance(1)
    member = leader[0]["memberId"]
    group = simulation.manager.get_group("g")
    newcomer: list[object] = []

    def while_it_is_written(_partition: int, records: object) -> None:
        if not newcomer:
            newcomer.append(records)
            simulation.manager.rebalances.prepare_rebalance(group)

    simulation.cluster.log.refuse = while_it_is_written
    answered = simulation.sync(member, 1, {member: SUBSCRIPTION})
    assert [reply["error"] for reply in answered] == ["REBALANCE_IN_PROGRESS"]
    assert (simulation.state(), group.generation) == ("PreparingRebalance", 1)


@BOTH
def test_c5_member_ids_leader_and_generation(java: bool) -> None:
    simulation = Simulation(java=java)
    asked = simulation.join("g", version=7)[0]
    assert (asked["error"], asked["generationId"]) == ("MEMBER_ID_REQUIRED", -1)
    first = simulation.join("g", asked["memberId"], version=7)
    simulation.advance(1)
    assert (first[0]["leader"], first[0]["generationId"]) == (asked["memberId"], 1)
    second = simulation.join("g", client="c2")
    assert second == []
    again = simulation.join("g", asked["memberId"], version=7)
    assert [(reply[0]["generationId"], len(reply[0]["members"])) for reply in (again, second)] == [
        (2, 2),
        (2, 0),
    ]
    assert simulation.join("g", "ghost")[0]["error"] == "UNKNOWN_MEMBER_ID"
    assert simulation.join("nobody", "ghost")[0]["error"] == "UNKNOWN_MEMBER_ID"
    assert simulation.join("g", session_ms=1)[0]["error"] == "INVALID_SESSION_TIMEOUT"
    assert simulation.join("g", names=["sticky"])[0]["error"] == "INCONSISTENT_GROUP_PROTOCOL"


@pytest.mark.parametrize(("java", "winner"), [(False, "range"), (True, "sticky")])
def test_c5_the_protocol_that_all_support_and_most_vote_for(java: bool, winner: str) -> None:
    simulation = Simulation(java=java)
    first = simulation.join("g", names=["range", "other", "sticky"])
    simulation.advance(1)
    second = simulation.join("g", client="c2", names=["sticky", "range"])
    again = simulation.join("g", first[0]["memberId"], names=["range", "other", "sticky"])
    # One vote each: the order of the release's map decides, as the walks on real brokers show.
    assert {reply[0]["protocolName"] for reply in (again, second)} == {winner}


@BOTH
def test_c5_a_full_group_takes_no_new_member(java: bool) -> None:
    simulation = Simulation(java=java, settings=replace(SETTINGS, group_max_size=1))
    simulation.stable_group("c1")
    assert simulation.join("g", client="c2")[0]["error"] == "GROUP_MAX_SIZE_REACHED"


@BOTH
def test_c6_heartbeat_leave_and_session_expiry(java: bool) -> None:
    simulation = Simulation(java=java)
    (member,), generation = simulation.stable_group("c1")
    assert simulation.heartbeat(member, generation) == "NONE"
    assert simulation.heartbeat(member, generation + 1) == "ILLEGAL_GENERATION"
    assert simulation.heartbeat("ghost", generation) == "UNKNOWN_MEMBER_ID"
    assert simulation.heartbeat(member, generation, group="nobody") == "UNKNOWN_MEMBER_ID"
    newcomer = simulation.join("g", client="c2")
    assert simulation.heartbeat(member, generation) == "REBALANCE_IN_PROGRESS"
    identities = [
        {"memberId": member, "groupInstanceId": None},
        {"memberId": "ghost", "groupInstanceId": None},
    ]
    left = simulation.ask("LeaveGroup", 3, {"groupId": "g", "members": identities})
    assert [one["error"] for one in left["members"]] == ["NONE", "UNKNOWN_MEMBER_ID"]
    assert newcomer[0]["generationId"] == generation + 1
    simulation.sync(newcomer[0]["memberId"], generation + 1, {newcomer[0]["memberId"]: SUBSCRIPTION})
    simulation.advance(9_999)
    assert simulation.state() == "Stable"
    simulation.advance(2)
    assert simulation.state() == "Empty"
    last = simulation.records()[-1].value
    assert last is not None
    assert (last["generation"], last["members"]) == (generation + 2, [])


@BOTH
def test_c6_who_does_not_rejoin_in_time_is_removed(java: bool) -> None:
    simulation = Simulation(java=java)
    simulation.stable_group("c1")
    newcomer = simulation.join("g", client="c2", rebalance_ms=4_000)
    simulation.advance(4_999)
    assert newcomer == []
    simulation.advance(2)
    assert [one["memberId"] for one in newcomer[0]["members"]] == [newcomer[0]["memberId"]]
