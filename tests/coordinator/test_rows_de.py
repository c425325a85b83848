"""D: finding the coordinator. E: offset management end to end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.find_coordinator import CoordinatorType, FindCoordinator, look_up
from coordinator_core.coordinator.requests import FindCoordinator as Request
from coordinator_core.coordinator.topology import NO_NODE, Node, partition_metadata
from coordinator_core.topology import BrokerInfo, PartitionInfo, Topology
from tests.coordinator.brokers import SUBSCRIPTION, Simulation

BOTH = pytest.mark.parametrize("java", [False, True], ids=["scala", "java"])


def topology() -> Topology:
    brokers = {
        one: BrokerInfo(one, {"PLAINTEXT": (f"b{one}", 9092)}, rack="r1" if one < 3 else "r2") for one in (1, 2, 3)
    }
    return Topology.of_offsets(
        brokers,
        [PartitionInfo(one, 1 + one % 3, 0, (1 + one % 3, 1 + (one + 1) % 3), (1 + one % 3,)) for one in range(50)],
    )


def offsets(topology: Topology) -> tuple[PartitionInfo, ...]:
    assert topology.offsets_partitions is not None
    return topology.offsets_partitions


# D: finding the coordinator


def test_d1_a_client_asks_the_least_loaded_node_until_it_knows() -> None:
    asked: list[tuple[int, int]] = []

    def ask(node_id: int, at_ms: int) -> tuple[Errors, Node]:
        asked.append((node_id, at_ms))
        return (Errors.NONE, Node(2, "b2", 9092)) if at_ms >= 250 else (Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE)

    found = look_up(ask, [(1, 3), (2, 0), (3, 1)], 0, 10_000, retry_backoff_ms=100)
    assert {node_id for node_id, _ in asked} == {2}
    assert found.node == Node(2, "b2", 9092)
    assert (found.requests, found.at_ms) == (4, 304)


@pytest.mark.parametrize(("error", "requests"), [(Errors.COORDINATOR_NOT_AVAILABLE, 5), (Errors.INVALID_REQUEST, 1)])
def test_d1_it_gives_up_when_time_is_up_or_asking_again_is_no_use(error: Errors, requests: int) -> None:
    found = look_up(lambda _node, _at: (error, NO_NODE), [(1, 0)], 0, 500)
    assert (found.node, found.requests) == (None, requests)


def test_d2_the_coordinator_leads_the_groups_partition() -> None:
    lookup = FindCoordinator(topology, share_coordinator=True)
    assert lookup.find(CoordinatorType.GROUP, "testgroup") == (Errors.NONE, Node(1, "b1", 9092))
    answer = lookup.handle(Request(("testgroup", "")), 4)
    assert [(one.key, one.node_id, one.error_code) for one in answer.coordinators] == [
        ("testgroup", 1, Errors.NONE),
        ("", 1, Errors.NONE),
    ]
    assert lookup.handle(Request(("testgroup",)), 0).coordinators[0].node_id == 1
    assert lookup.find(9, "testgroup")[0] is Errors.INVALID_REQUEST


def test_d2_no_topic_no_leader_no_coordinator() -> None:
    created: list[CoordinatorType] = []
    nothing = Topology(topology().brokers, {})
    lookup = FindCoordinator(lambda: nothing, share_coordinator=False, create=created.append)
    assert lookup.find(0, "testgroup") == (Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE)
    assert created == [CoordinatorType.GROUP]
    lost = topology().without(1)
    lookup = FindCoordinator(lambda: lost, share_coordinator=False)
    assert lookup.find(0, "testgroup") == (Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE)


def test_d2_share_coordinators() -> None:
    lookup = FindCoordinator(topology, share_coordinator=True)
    key = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"
    assert lookup.find(CoordinatorType.SHARE, key, 5)[0] is Errors.INVALID_REQUEST
    assert lookup.find(CoordinatorType.SHARE, key, 6)[0] is Errors.NONE
    for malformed in ("g", "g:AAAAAAAAAAAAAAAAAAAAAQ:x", ":AAAAAAAAAAAAAAAAAAAAAQ:0"):
        assert lookup.find(CoordinatorType.SHARE, malformed, 6)[0] is Errors.INVALID_REQUEST


def test_d3_what_a_client_is_told_of_a_partition() -> None:
    full = topology()
    assert partition_metadata(full, 27).error is Errors.NONE
    gone = replace(full, brokers={one: info for one, info in full.brokers.items() if one != 1})
    metadata = partition_metadata(gone, 27)
    assert (metadata.error, metadata.leader) == (Errors.LEADER_NOT_AVAILABLE, -1)
    other = dict(full.brokers) | {1: BrokerInfo(1, {"SSL": ("b1", 9093)})}
    assert partition_metadata(replace(full, brokers=other), 27).error is Errors.LISTENER_NOT_FOUND
    fewer = full.without(2)
    metadata = partition_metadata(fewer, 27)
    assert (metadata.error, metadata.leader) == (Errors.REPLICA_NOT_AVAILABLE, 1)
    assert (metadata.replicas, metadata.offline_replicas) == ((1,), (2,))


def test_d3_who_leads_when_brokers_are_lost() -> None:
    full = topology()
    in_sync = Topology.of_offsets(
        full.brokers, [replace(one, isr=one.replicas, leader_epoch=4) for one in offsets(full)]
    )
    lost = offsets(in_sync.without(1))
    assert (lost[27].leader, lost[27].leader_epoch) == (2, 5)
    assert (lost[28].leader, lost[28].leader_epoch) == (2, 4)
    assert offsets(full.without(1))[27].leader == -1
    unclean = offsets(full.without(1, unclean=True))
    assert (unclean[27].leader, unclean[27].isr) == (2, (2,))


# E: offset management end to end


@BOTH
def test_e1_a_commit_passes_api_coordinator_log_and_cache(java: bool) -> None:
    simulation = Simulation(java=java)
    assert simulation.commit("g", topic="unknown") == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert simulation.commit("g", offsets={7: 1}) == ["UNKNOWN_TOPIC_OR_PARTITION"]
    assert simulation.manager.get_group("g") is None
    assert simulation.commit("g", offsets={0: 1, 1: 2}) == ["NONE", "NONE"]
    assert [len(records) for _, records in simulation.appends] == [2]
    assert {(one.key["partition"], one.value["offset"]) for one in simulation.records() if one.value} == {
        (0, 1),
        (1, 2),
    }
    count = len(simulation.appends)
    assert simulation.fetch("g", (0, 1)) == [(1, "NONE"), (2, "NONE")]
    assert len(simulation.appends) == count


@BOTH
def test_e2_a_failover_loses_what_one_broker_had_in_memory(java: bool) -> None:
    simulation = Simulation(java=java, count=2)
    members, generation = simulation.stable_group("c1")
    simulation.commit("g", member=members[0], generation=generation, offsets={0: 5})
    waiting = simulation.join("g", client="c2")
    old, new = simulation.brokers
    simulation.cluster.lose(old)
    simulation.topology = simulation.topology.without(1)
    partition = new.coordinator.manager.partition_for("g")
    epoch = offsets(simulation.topology)[partition].leader_epoch
    assert simulation.heartbeat(members[0], generation, broker=1) == "NOT_COORDINATOR"
    new.coordinator.manager.begin_load(partition, epoch)
    assert simulation.heartbeat(members[0], generation, broker=1) == "NONE"
    new.coordinator.manager.finish_load(partition)
    # The log is shared: group and offsets are there again, in the last written generation.
    assert simulation.fetch("g", broker=1) == [(5, "NONE")]
    assert simulation.state(broker=1) == "Stable"
    assert simulation.heartbeat(members[0], generation, broker=1) == "NONE"
    # The rebalance that had begun, and who waited in it, are gone.
    simulation.advance(5_000)
    assert waiting == []
    found = simulation.ask("FindCoordinator", 4, {"keyType": 0, "coordinatorKeys": ["g"]}, broker=1)
    assert found["coordinators"][0]["nodeId"] == 2


@BOTH
def test_e2_a_marker_reaches_the_new_coordinator(java: bool) -> None:
    simulation = Simulation(java=java, count=2)
    who = simulation.begin_transaction("g", offset=9)
    old, new = simulation.brokers
    simulation.cluster.lose(old)
    for partition in range(5):
        new.coordinator.manager.load(partition, 1)
    assert simulation.fetch("g", stable=True, broker=1) == [(-1, "UNSTABLE_OFFSET_COMMIT")]
    simulation.ask("EndTxn", 3, who | {"committed": True}, broker=1)
    simulation.advance(10)
    assert simulation.fetch("g", stable=True, broker=1) == [(9, "NONE")]


@BOTH
def test_e3_a_rebalance_from_its_trigger_to_the_new_assignment(java: bool) -> None:
    simulation = Simulation(java=java)
    (member,), generation = simulation.stable_group("c1")
    newcomer = simulation.join("g", client="c2")
    # The member learns of it by its heartbeat, commits what it did, and joins again.
    assert simulation.heartbeat(member, generation) == "REBALANCE_IN_PROGRESS"
    assert simulation.commit("g", member=member, generation=generation, offsets={0: 8}) == ["NONE"]
    rejoined = simulation.join("g", member)
    assert [one[0]["generationId"] for one in (rejoined, newcomer)] == [generation + 1] * 2
    # Until the leader has assigned, nobody may commit.
    late = simulation.commit("g", member=member, generation=generation + 1)
    assert late == ["REBALANCE_IN_PROGRESS"]
    other = newcomer[0]["memberId"]
    waiting = simulation.sync(other, generation + 1)
    simulation.sync(member, generation + 1, {member: SUBSCRIPTION, other: SUBSCRIPTION})
    assert waiting[0]["assignment"] == SUBSCRIPTION
    assert simulation.commit("g", member=other, generation=generation + 1, offsets={1: 1}) == ["NONE"]
    assert simulation.commit("g", member=member, generation=generation) == ["ILLEGAL_GENERATION"]
    assert simulation.fetch("g", (0, 1)) == [(8, "NONE"), (1, "NONE")]
