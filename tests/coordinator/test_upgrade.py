"""A live classic group that a first ConsumerGroupHeartbeat makes a consumer group, or cannot."""

from __future__ import annotations

from base64 import b64encode

from coordinator_core.coordinator.errors import Errors
from coordinator_core.records.blobs import encode_consumer_assignment
from tests.coordinator.brokers import Json, Simulation

HEARTBEAT = {
    "groupId": "g",
    "memberId": "m",
    "memberEpoch": 0,
    "instanceId": None,
    "rackId": None,
    "rebalanceTimeoutMs": 5_000,
    "subscribedTopicNames": ["t1"],
    "subscribedTopicRegex": None,
    "serverAssignor": None,
    "topicPartitions": [],
}


def heartbeat(simulation: Simulation) -> Json:
    return simulation.ask("ConsumerGroupHeartbeat", 1, HEARTBEAT, client="c9")


def test_a_member_without_the_chosen_protocol_ends_in_an_exception() -> None:
    simulation = Simulation(java=True)
    simulation.join("g", names=["range", "sticky"])
    waiting = simulation.join("g", client="c2", names=["sticky"])
    refused = heartbeat(simulation)
    assert (refused["error"], refused["errorMessage"]) == ("UNKNOWN_SERVER_ERROR", None)
    assert waiting[0]["error"] == "REBALANCE_IN_PROGRESS"


def test_user_data_of_a_custom_assignor_is_not_given_up() -> None:
    simulation = Simulation(java=True)
    joined = simulation.join("g")
    simulation.advance(1)
    member, generation = joined[0]["memberId"], joined[0]["generationId"]
    blob = encode_consumer_assignment(
        0, {"assignedPartitions": [{"topic": "t1", "partitions": [0]}], "userData": b"mine"}
    )
    simulation.sync(member, generation, {member: b64encode(blob).decode()})
    refused = heartbeat(simulation)
    assert refused["error"] == "GROUP_ID_NOT_FOUND"
    assert refused["errorMessage"] == (
        "Cannot upgrade classic group g to consumer group because an unsupported custom assignor is in use. "
        "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
    )


def test_a_partition_of_two_members_ends_in_an_exception() -> None:
    """Replay refuses the second owner of an epoch, on load and here (``addPartitionEpochs``)."""
    simulation = Simulation(java=True)
    waiting = [simulation.join("g"), simulation.join("g", client="c2")]
    simulation.advance(1)
    leader, follower = (answer[0]["memberId"] for answer in waiting)
    generation = waiting[0][0]["generationId"]
    blob = b64encode(
        encode_consumer_assignment(0, {"assignedPartitions": [{"topic": "t1", "partitions": [0]}], "userData": None})
    ).decode()
    simulation.sync(leader, generation, {leader: blob, follower: blob})
    written = len(simulation.appends)
    assert heartbeat(simulation)["error"] == "UNKNOWN_SERVER_ERROR"
    assert len(simulation.appends) == written


def test_an_empty_consumer_group_stays_when_the_log_refuses_what_replaces_it() -> None:
    """A refused write takes the removal of the group back (``SnapshotRegistry.revertToSnapshot``)."""
    simulation = Simulation(java=True)
    heartbeat(simulation)
    simulation.ask("ConsumerGroupHeartbeat", 1, HEARTBEAT | {"memberEpoch": -1})
    simulation.refused = Errors.NOT_ENOUGH_REPLICAS
    simulation.join("g")
    simulation.refused = None
    asked = {"groupIds": ["g"], "includeAuthorizedOperations": False}
    (described,) = simulation.ask("ConsumerGroupDescribe", 1, asked)["groups"]
    assert (described["error"], described["groupState"]) == ("NONE", "Empty")
