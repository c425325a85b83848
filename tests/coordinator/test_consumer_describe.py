"""Replies of ConsumerGroupDescribe about a group that is on its way to another assignment."""

from __future__ import annotations

from typing import Any

from tests.coordinator.brokers import Json, Simulation


def heartbeat(simulation: Simulation, member: str, epoch: int, **fields: Any) -> Json:
    body = {
        "groupId": "g",
        "memberId": member,
        "memberEpoch": epoch,
        "instanceId": None,
        "rackId": None,
        "rebalanceTimeoutMs": -1,
        "subscribedTopicNames": None,
        "subscribedTopicRegex": None,
        "serverAssignor": None,
        "topicPartitions": None,
    }
    return simulation.ask("ConsumerGroupHeartbeat", 1, body | fields)


def join(simulation: Simulation, member: str) -> Json:
    return heartbeat(
        simulation,
        member,
        0,
        rebalanceTimeoutMs=5_000,
        subscribedTopicNames=["t1"],
        serverAssignor="range",
        topicPartitions=[],
    )


def test_partitions_that_are_to_be_revoked_are_described_behind_the_others() -> None:
    simulation = Simulation(java=True)
    alone = join(simulation, "b")
    join(simulation, "a")
    heartbeat(simulation, "b", alone["memberEpoch"])
    described = simulation.ask("ConsumerGroupDescribe", 1, {"groupIds": ["g"], "includeAuthorizedOperations": False})
    owned = {
        one["memberId"]: [entry["partitions"] for entry in one["assignment"]["topicPartitions"]]
        for one in described["groups"][0]["members"]
    }
    assert owned == {"a": [], "b": [[2, 0, 1]]}
