"""A: the group metadata manager, one test or more for each of its systems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coordinator_core.coordinator.broker import Broker
from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.find_coordinator import FindCoordinator
from coordinator_core.coordinator.java import consumer_records
from coordinator_core.coordinator.java.group import JavaClassicGroup
from coordinator_core.coordinator.java.modern_records import of_group
from coordinator_core.coordinator.manager import LoadState
from coordinator_core.coordinator.scala.group import ScalaGroup
from coordinator_core.coordinator.trace import play, read_trace
from coordinator_core.groups.loaders import JavaGroups, ScalaGroups
from coordinator_core.groups.model import ClassicGroup, ConsumerMember, LoadFailure
from coordinator_core.groups.modern import ConsumerRecords
from coordinator_core.releases import chosen_profile
from tests.coordinator.brokers import SETTINGS, Simulation
from tests.coordinator.traces import TRACES, name

BOTH = pytest.mark.parametrize("java", [False, True], ids=["scala", "java"])


@BOTH
def test_a1_a_partition_is_loading_then_owned_then_gone(java: bool) -> None:
    simulation = Simulation(java=java, count=2)
    manager = simulation.brokers[1].coordinator.manager
    partition = manager.partition_for("g")
    assert manager.state_of("g") is None
    assert simulation.state(broker=1) == "NOT_COORDINATOR"
    assert manager.begin_load(partition, 1)
    assert (manager.state_of("g"), manager.is_loading) == (LoadState.LOADING, True)
    assert simulation.state(broker=1) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert manager.finish_load(partition) is not None
    assert (manager.state_of("g"), manager.is_loading) == (LoadState.OWNED, False)
    assert manager.finish_load(partition) is None
    manager.unload(partition, 2)
    assert manager.state_of("g") is None


@BOTH
def test_a1_calls_of_an_older_leader_epoch_are_stale(java: bool) -> None:
    manager = Simulation(java=java).manager
    assert manager.unload(0, 5) is not None
    assert not manager.begin_load(0, 4)
    assert manager.unload(0, 4) is None
    assert manager.begin_load(0, 6)


@BOTH
def test_a2_an_absent_group_is_made_empty_and_the_first_of_two_stays(java: bool) -> None:
    manager = Simulation(java=java).manager
    assert manager.get_group("g") is None
    assert manager.get_or_maybe_create_group("g", False) is None
    group = manager.get_or_maybe_create_group("g", True)
    assert group.state == "Empty"
    assert manager.get_or_maybe_create_group("g", True) is group
    assert manager.add_group("g", manager.new_group("g")) is group
    assert manager.get_group("g") is group


@BOTH
def test_a3_unload_takes_groups_and_offsets_away_and_tells_who_waits(java: bool) -> None:
    simulation = Simulation(java=java)
    members, _ = simulation.stable_group("c1")
    simulation.commit("g", member=members[0], generation=1, offsets={0: 1, 1: 2})
    waiting = simulation.join("g", client="c2")
    before = len(simulation.records())
    unloaded = simulation.manager.unload(simulation.manager.partition_for("g"), 1)
    assert (unloaded.groups, unloaded.offsets) == (1, 2)
    assert [reply["error"] for reply in waiting] == ["NOT_COORDINATOR"]
    assert simulation.manager.get_group("g") is None
    assert simulation.state() == "NOT_COORDINATOR"
    assert len(simulation.records()) == before
    simulation.advance(60_000)
    assert len(simulation.records()) == before


def test_a3_the_producer_to_groups_map_forgets_an_unloaded_group() -> None:
    simulation = Simulation(java=False)
    simulation.begin_transaction("g")
    assert list(simulation.manager.open_groups.values()) == [{"g"}]
    simulation.manager.unload(simulation.manager.partition_for("g"), 1)
    assert simulation.manager.open_groups == {}


@BOTH
def test_a4_a_batch_larger_than_the_buffer_is_loaded_too(java: bool) -> None:
    simulation = Simulation(java=java, settings=replace(SETTINGS, offsets_load_buffer_size=200))
    for offset in range(6):
        simulation.commit("g", offsets={0: offset})
    simulation.commit("g", offsets={0: 7, 1: 8, 2: 9}, metadata="x" * 64)
    simulation.commit("g", offsets={1: 10})
    partition = simulation.manager.partition_for("g")
    simulation.manager.unload(partition, 1)
    loaded = simulation.manager.load(partition, 2)
    assert loaded.records == 10
    assert 3 <= loaded.buffers < 8
    assert simulation.fetch("g", (0, 1, 2)) == [(7, "NONE"), (10, "NONE"), (9, "NONE")]


def test_a4_a_cached_group_wins_over_the_loaded_one() -> None:
    simulation = Simulation(java=False, count=2)
    simulation.commit("g", offsets={0: 1})
    manager = simulation.brokers[1].coordinator.manager
    cached = manager.add_group("g", manager.new_group("g"))
    assert manager.load(manager.partition_for("g"), 1).records == 1
    assert manager.get_group("g") is cached
    assert cached.offsets == {}


def test_a4_a_refused_record_is_noted_and_the_load_reads_on() -> None:
    """Kafka gives the partition up there; a replay of the same log notes the same failure."""
    simulation = Simulation(java=True)
    manager = simulation.manager
    partition = manager.partition_for("g")
    written = [
        consumer_records.member("g", ConsumerMember("m")),
        of_group(ConsumerRecords.metadata, "g"),
    ]
    simulation.cluster.log.append(partition, [*written, consumer_records.epoch("g", 3, 0)], 0)
    manager.unload(partition, 1)
    manager.load(partition, 2)
    assert manager.load_failures == [
        LoadFailure(1, "tombstone for group 'g', which still has 1 member"),
    ]
    assert manager.get_group("g").group_epoch == 3


@BOTH
def test_a4_open_transactions_are_loaded_and_end_after_the_load(java: bool) -> None:
    simulation = Simulation(java=java)
    simulation.commit("g", offsets={0: 1})
    who = simulation.begin_transaction("g", offset=9)
    partition = simulation.manager.partition_for("g")
    simulation.manager.unload(partition, 1)
    simulation.manager.load(partition, 2)
    assert simulation.fetch("g", stable=True) == [(-1, "UNSTABLE_OFFSET_COMMIT")]
    simulation.ask("EndTxn", 3, who | {"committed": True})
    simulation.advance(10)
    assert simulation.fetch("g", stable=True) == [(9, "NONE")]


@pytest.mark.parametrize("path", [path for path in TRACES if "scripted" in path.parts], ids=name)
def test_a4_the_load_agrees_with_the_replay(path: Path) -> None:
    """The model's own load of what it wrote, against the loaders by which logs are replayed."""
    trace = read_trace(path)
    log = play(trace).log
    simulation = Simulation(java=trace.is_java)
    simulation.cluster.log = log
    broker = Broker(simulation.cluster, str, FindCoordinator(lambda: simulation.topology, share_coordinator=True))
    rules = chosen_profile("auto", trace.head["kafka"], None if trace.is_java else "classic")
    assert rules is not None
    loader = JavaGroups(rules) if trace.is_java else ScalaGroups(rules)
    offset_keys: set[str] = set()
    manager = broker.coordinator.manager
    manager.log = log
    for partition, records in log.partitions.items():
        manager.load(partition, 1)
        pending: dict[int, set[str]] = {}
        for record in records:
            if record.control is not None:
                groups = pending.pop(record.producer_id, set())
                offset_keys |= groups if record.control == "COMMIT" else set()
                continue
            decoded = record.decoded()
            if decoded.key_type != 1:
                loader.apply(decoded)
            elif decoded.value is not None:
                loader.touch(decoded.key["group"])
                found = pending.setdefault(record.producer_id, set()) if record.transactional else offset_keys
                found.add(decoded.key["group"])
        offset_keys |= set().union(*pending.values())
    replayed = loader.finish([one for one in offset_keys if manager.get_group(one) is not None])
    loaded = manager.groups
    assert set(loaded) == set(replayed)
    for group_id, group in replayed.items():
        model = loaded[group_id]
        assert str(model.state) == str(group.state)
        assert set(model.members) == {one if isinstance(one, str) else one.member_id for one in group.members}
        if isinstance(group, ClassicGroup):
            assert isinstance(model, ScalaGroup | JavaClassicGroup)
            assert (model.generation, model.protocol_type) == (group.generation, group.protocol_type)


@BOTH
def test_a5_long_metadata_is_refused_per_partition(java: bool) -> None:
    simulation = Simulation(java=java)
    body = {
        "groupId": "g",
        "generationIdOrMemberEpoch": -1,
        "memberId": "",
        "groupInstanceId": None,
        "topics": [
            {
                "name": "t1",
                "partitions": [
                    {
                        "partitionIndex": partition,
                        "committedOffset": 1,
                        "committedLeaderEpoch": -1,
                        "committedMetadata": text,
                    }
                    for partition, text in enumerate(("\N{GRINNING FACE}" * 32, "x" * 65))
                ],
            }
        ],
    }
    (topic,) = simulation.ask("OffsetCommit", 8, body)["topics"]
    assert [one["error"] for one in topic["partitions"]] == ["NONE", "OFFSET_METADATA_TOO_LARGE"]
    assert simulation.fetch("g", (0, 1)) == [(1, "NONE"), (-1, "NONE")]
    assert simulation.commit("h", metadata="x" * 65) == ["OFFSET_METADATA_TOO_LARGE"]
    assert simulation.records("h") == []


@BOTH
def test_a5_a_partition_of_another_broker_is_not_written(java: bool) -> None:
    simulation = Simulation(java=java, count=2)
    assert simulation.commit("g", broker=1) == ["NOT_COORDINATOR"]
    assert simulation.records() == []


@pytest.mark.parametrize(
    ("refused", "scala", "java"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        (
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        ),
        ("REQUEST_TIMED_OUT", "REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE", "UNKNOWN_SERVER_ERROR"),
        ("RECORD_LIST_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE", "UNKNOWN_SERVER_ERROR"),
        ("INVALID_FETCH_SIZE", "INVALID_COMMIT_OFFSET_SIZE", "UNKNOWN_SERVER_ERROR"),
        ("NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS"),
    ],
)
def test_a5_a_failed_append_is_translated_and_changes_nothing(refused: str, scala: str, java: str) -> None:
    for is_java, expected in ((False, scala), (True, java)):
        simulation = Simulation(java=is_java)
        simulation.commit("g", offsets={0: 1})
        simulation.refused = Errors[refused]
        assert simulation.commit("g", offsets={0: 2}) == [expected]
        assert simulation.fetch("g", stable=True) == [(1, "NONE")]
        simulation.refused = None
        assert simulation.commit("g", offsets={0: 3}) == ["NONE"]
        assert simulation.fetch("g") == [(3, "NONE")]


@BOTH
def test_a5_a_failed_transactional_append_takes_the_pending_entry_back(java: bool) -> None:
    simulation = Simulation(java=java)
    simulation.refused = Errors.NOT_ENOUGH_REPLICAS
    simulation.begin_transaction("g")
    assert simulation.fetch("g", stable=True) == [(-1, "NONE")]


@BOTH
def test_a6_what_a_fetch_says(java: bool) -> None:
    simulation = Simulation(java=java)
    assert simulation.fetch("nobody", (0, 1)) == [(-1, "NONE"), (-1, "NONE")]
    simulation.commit("g", offsets={0: 5})
    who = simulation.begin_transaction("g", offset=9)
    assert simulation.fetch("g", (0, 1)) == [(5, "NONE"), (-1, "NONE")]
    assert simulation.fetch("g", (0, 1), stable=True) == [(-1, "UNSTABLE_OFFSET_COMMIT"), (-1, "NONE")]
    simulation.ask("EndTxn", 3, who | {"committed": False})
    simulation.advance(10)
    assert simulation.fetch("g", stable=True) == [(5, "NONE")]


@BOTH
def test_a7_a_sweep_writes_offset_tombstones_then_the_groups(java: bool) -> None:
    simulation = Simulation(java=java)
    simulation.stable_group("c1")
    members, _ = simulation.stable_group("c1", group="h")
    simulation.commit("g", member="c1-1", generation=1, offsets={0: 1, 1: 2})
    body = {"groupId": "g", "members": [{"memberId": "c1-1", "groupInstanceId": None}]}
    simulation.ask("LeaveGroup", 3, body)
    simulation.manager.start_sweeps(simulation.clock.now_ms + 30_000)
    simulation.manager.timers.cancel(("heartbeat", "h", members[0]))
    simulation.advance(30_000)
    assert simulation.state() == "Empty"
    simulation.advance(600_000)
    *_, first, second, last = simulation.records()
    assert [(one.key_type, one.value) for one in (first, second, last)] == [(1, None), (1, None), (2, None)]
    assert simulation.manager.get_group("g") is None
    assert simulation.state("h") == "Stable"


def test_a7_how_many_offsets_a_sweep_removed() -> None:
    simulation = Simulation(java=False)
    simulation.commit("g", offsets={0: 1, 1: 2})
    simulation.commit("h", offsets={2: 3})
    simulation.clock.now_ms += 60_000
    assert simulation.manager.cleanup_expired_offsets() == 3
