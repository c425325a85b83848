"""Scenarios of what 4.4 added to streams groups, as in :mod:`.streams_scenarios`: static members, task offsets."""

from __future__ import annotations

from tests.live.group_protocol import Json
from tests.live.streams_client import (
    INTERNAL_TOPICS_SECONDS,
    Streams,
    endpoint,
    subtopology,
    tasks,
    topic,
    topology,
)
from tests.live.streams_scenarios import ONE, TWO, Scenario

AWAY = -2
"""Member epoch of a static member that leaves for a while."""


def with_state(s: Streams, group: str = "g") -> Json:
    """A subtopology with a changelog topic, and one without state."""
    log = topic(f"{s.group(group)}-store-changelog")
    return topology(subtopology("0", "t1", changelogs=(log,)), subtopology("1", "t2"))


def offset(partition: int, value: int, name: str = "0") -> Json:
    return {"subtopologyId": name, "partition": partition, "offset": value}


def enter_with_state(s: Streams, *members: str) -> Json:
    """Members join one after the other and get their tasks; the topology."""
    sent = with_state(s)
    s.enter(members[0], sent)
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.settle(members[0])
    for member_id in members[1:]:
        s.enter(member_id, sent)
    s.settle(*members, rounds=4)
    return sent


def static_lifecycle(s: Streams) -> None:
    """Join, leave for a while, come back under the same and another id, be fenced, leave for good."""
    s.enter("m-a", ONE, instanceId="i1")
    s.show("m-a", rounds=1)
    s.join("m-b", ONE, instanceId="i1")
    s.join("m-a", ONE, instanceId="i1")
    s.heartbeat("m-b", 2, instanceId="i1")
    s.heartbeat("m-a", s.epoch("m-a"), instanceId="i2")
    s.heartbeat("m-a", s.epoch("m-a"))
    s.leave("m-a", instanceId="i2")
    s.leave("m-b", instanceId="i1", epoch=AWAY)
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.describe()
    s.list()
    s.commit("t1", {0: 1}, "m-a", s.epoch("m-a"))
    s.fetch(None, "m-a", s.epoch("m-a"))
    s.beat("m-a")
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.enter("m-a", ONE, instanceId="i1")
    s.show("m-a", rounds=1)
    s.commit("t1", {0: 2}, "m-a", s.epoch("m-a"))
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.enter("m-b", ONE, instanceId="i1")
    s.describe()
    s.beat("m-a")
    s.leave("m-a", instanceId="i1")
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.leave("m-a")
    s.show("m-b", rounds=2)
    s.commit("t1", {0: 3}, "m-b", s.epoch("m-b") - 1)
    s.leave("m-b", instanceId="i1")
    s.describe()
    s.enter("m-c", ONE, instanceId="i1")
    s.leave("m-c")
    s.delete()


def static_members_change(s: Streams) -> None:
    """Changes of static members, only some of which need another assignment."""
    s.enter("m-a", TWO, instanceId="i1")
    s.enter("m-b", TWO, instanceId="i2")
    s.show("m-a", "m-b")
    s.beat("m-a", rebalanceTimeoutMs=12_345)
    s.beat("m-a", userEndpoint=endpoint("h1", 1))
    s.beat("m-a", rackId="r1")
    s.beat("m-a", processId="p-other")
    s.beat("m-a", clientTags=[{"key": "zone", "value": "z"}])
    s.show("m-a", "m-b")
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.settle("m-b")
    s.enter("m-c", TWO, instanceId="i1", processId="p-other", rackId="r1", userEndpoint=endpoint("h1", 1))
    s.show("m-b", "m-c")
    s.leave("m-c", instanceId="i1", epoch=AWAY)
    s.enter("m-d", TWO, instanceId="i1")
    s.show("m-b", "m-d")
    s.heartbeat("m-d", s.epoch("m-d"), instanceId=None)
    s.enter("m-d", TWO, instanceId="i9")
    s.show("m-b", "m-d")
    s.enter("m-e", TWO)
    s.enter("m-e", TWO, instanceId="i5")
    s.show("m-b", "m-d", "m-e")


def static_member_among_others(s: Streams) -> None:
    """Tasks of a static member wait for it, and its endpoint is told once."""
    two = topology(subtopology("0", "t4"), subtopology("1", "t5"))
    s.enter("m-a", two, instanceId="i1", userEndpoint=endpoint("h1", 1))
    s.enter("m-b", two, userEndpoint=endpoint("h2", 2))
    s.enter("m-c", two, instanceId="i3")
    s.show("m-a", "m-b", "m-c")
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.show("m-b", "m-c")
    s.enter("m-d", two)
    s.show("m-b", "m-c", "m-d")
    s.enter("m-e", two, instanceId="i1", userEndpoint=endpoint("h1", 3), endpointInformationEpoch=0)
    s.show("m-b", "m-c", "m-d", "m-e")
    s.leave("m-c", instanceId="i3", epoch=AWAY)
    s.leave("m-b")
    s.enter("m-f", two, instanceId="i3", processId="p-m-c")
    s.show("m-d", "m-e", "m-f")
    s.leave("m-d")
    s.leave("m-e", instanceId="i1")
    s.leave("m-f", instanceId="i3", epoch=AWAY)
    s.describe()
    s.delete()
    s.leave("m-f", instanceId="i3", shutdownApplication=True)
    s.delete()


def static_member_while_revoking(s: Streams) -> None:
    """A member goes while it is to give up tasks, and comes back without them."""
    s.enter("m-a", ONE, instanceId="i1")
    s.settle("m-a", rounds=1)
    s.enter("m-b", ONE, instanceId="i2")
    s.beat("m-a", **tasks({"0": [0, 1, 2]}))
    s.beat("m-b")
    s.describe()
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.show("m-b", rounds=1)
    s.enter("m-c", ONE, instanceId="i1", processId="p-m-a")
    s.describe()
    s.show("m-b", "m-c")


def static_member_robbed(s: Streams) -> None:
    """A member that is refused an instance id takes the owner's targets of this epoch away; they come back later."""
    s.enter("m-a", TWO, instanceId="i1")
    s.settle("m-a", rounds=1)
    s.enter("m-b", TWO)
    s.join("m-x", TWO, instanceId="i1")
    s.beat("m-a", **s.owned("m-a"))
    s.settle("m-b", "m-a")
    s.describe()
    s.show("m-a", "m-b", rounds=4)
    s.enter("m-c", TWO)
    s.heartbeat("m-y", 3, instanceId="i1")
    s.show("m-a", "m-b", "m-c", rounds=6)


def endpoint_changes(s: Streams) -> None:
    """The epoch of endpoints; tasks beyond the partitions of a topic."""
    uneven = topology(subtopology("0", "t1", "t2", "t3"))
    s.enter("m-a", uneven, userEndpoint=endpoint("h1", 1))
    s.enter("m-b", uneven)
    s.settle("m-a", "m-b", endpointInformationEpoch=0)
    s.beat("m-b", userEndpoint=endpoint("h2", 2), endpointInformationEpoch=0)
    s.beat("m-b", userEndpoint=endpoint("h2", 3), endpointInformationEpoch=0)
    s.beat("m-b", userEndpoint=endpoint("h2", 3), endpointInformationEpoch=0)
    s.enter("m-b", uneven, endpointInformationEpoch=0)
    s.enter("m-a", uneven, userEndpoint=endpoint("h1", 1), endpointInformationEpoch=0)
    s.show("m-a", "m-b")
    s.beat("m-b", endpointInformationEpoch=0)


def task_offsets(s: Streams) -> None:
    """Members report how far the state of their tasks is."""
    s.enter("m-a", ONE, taskOffsets=[offset(0, 5)], taskEndOffsets=[offset(0, 9)])
    s.describe()
    s.beat("m-a", taskOffsets=[offset(2, 7), offset(1, 6), offset(0, 3, "9")])
    s.describe()
    s.beat("m-a", taskEndOffsets=[offset(0, 1)])
    s.beat("m-a", taskOffsets=[offset(0, 1), offset(0, 2)])
    s.beat("m-a", taskOffsets=[], **tasks({"0": [0]}, warmup={"0": [1]}))
    s.beat("m-a", **tasks({"0": [0]}, warmup={"1": [1]}))
    s.describe()
    s.beat("m-a", taskOffsets=[offset(0, 4)])
    s.enter("m-b", ONE, instanceId="i1")
    s.beat("m-b", taskOffsets=[offset(1, 8)])
    s.leave("m-b", instanceId="i1", epoch=AWAY)
    s.enter("m-b", ONE, instanceId="i1", taskOffsets=[offset(1, 9)])
    s.describe()
    s.beat("m-b", taskOffsets=[offset(1, 10)])
    s.enter("m-b", ONE, instanceId="i2")
    s.describe()
    s.leave("m-a")
    s.enter("m-a", ONE)
    s.describe()


def new_versions(s: Streams) -> None:
    """Version 1 of the heartbeat and of describe."""
    s.join("m-a", ONE, version=1)
    s.join("m-a", None, version=1)
    s.describe("g", "none", version=1, includeTopologyDescription=False)
    s.describe("g", "none", version=1, includeTopologyDescription=True)
    s.send(
        "StreamsGroupDescribe",
        1,
        {"groupIds": [""], "includeAuthorizedOperations": False} | {"includeTopologyDescription": True},
    )
    s.heartbeat("m-a", 2, version=1)
    s.heartbeat("m-a", 1, version=1)
    s.leave("m-a", version=1)


def transactions_by_topic_id(s: Streams) -> None:
    """Version 6 names topics by id, and says what an older one calls an illegal generation."""
    t1, unknown = {"topicId": s.recorder.topic_ids["t1"]}, {"topicId": "AAAAAAAAAAAAAAAAAAAAZQ"}
    producer = s.begin_producer()
    s.commit_in_transaction(producer, t1, "m-a", 1, version=6)
    s.enter("m-a", ONE)
    epoch = s.epoch("m-a")
    for member_id, generation in (("m-a", epoch), ("m-a", epoch + 1), ("m-a", epoch - 1), ("ghost", epoch), ("", -1)):
        s.commit_in_transaction(producer, t1, member_id, generation, version=6)
    s.commit_in_transaction(producer, unknown, "m-a", epoch, version=6)
    s.fetch(None)


def standbys_by_offsets(s: Streams) -> None:
    """A member that keeps more of a task's state gets it sooner."""
    sent = enter_with_state(s, "m-a", "m-b", "m-c")
    s.describe()
    s.beat("m-a", taskOffsets=[offset(0, 5), offset(1, 50), offset(2, 500)])
    s.beat("m-b", taskOffsets=[offset(0, 6), offset(1, 60), offset(2, 600)])
    s.beat("m-c", taskOffsets=[offset(0, 7), offset(1, 40), offset(2, 550)])
    s.enter("m-d", sent, taskOffsets=[offset(0, 9), offset(1, 90)])
    s.show("m-a", "m-b", "m-c", "m-d", rounds=4)
    s.beat("m-d", taskOffsets=[offset(0, 9), offset(1, 90)])
    s.leave("m-b")
    s.show("m-a", "m-c", "m-d", rounds=4)
    s.leave("m-a")
    s.show("m-c", "m-d", rounds=4)


def roles_in_place(s: Streams) -> None:
    """Standby tasks become active when the active ones go, and the other way round; members of one process share."""
    sent = enter_with_state(s, "m-a", "m-b")
    s.leave("m-a")
    s.show("m-b")
    s.enter("m-c", sent)
    all_active = tasks({"0": [0, 1, 2], "1": [0, 1]})
    s.beat("m-b", **all_active)
    s.beat("m-c")
    s.beat("m-b", **all_active)
    s.describe()
    s.show("m-b", "m-c", rounds=5)
    s.enter("m-d", sent, processId="p-m-c")
    s.show("m-b", "m-c", "m-d", rounds=5)
    s.leave("m-b")
    s.show("m-c", "m-d", rounds=5)
    s.enter("m-e", sent, processId="p-m-c", instanceId="i1")
    s.enter("m-f", sent, instanceId="i2")
    s.show("m-c", "m-d", "m-e", "m-f", rounds=5)
    s.leave("m-f", instanceId="i2", epoch=AWAY)
    s.leave("m-d")
    s.settle("m-c", "m-e")
    s.enter("m-g", sent, instanceId="i2")
    s.show("m-c", "m-e", "m-g", rounds=5)


def static_session(s: Streams) -> None:
    """A static member that stays away too long is gone; one that came back under another id is not."""
    s.enter("m-a", ONE, instanceId="i1")
    s.enter("m-b", ONE)
    s.settle("m-a", "m-b")
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.pause(1.2)
    s.beat("m-b", **s.owned("m-b"))
    s.enter("m-c", ONE, instanceId="i1")
    s.pause(1.2)
    s.settle("m-b", "m-c", rounds=2)
    s.leave("m-c", instanceId="i1", epoch=AWAY)
    s.pause(1.4)
    s.beat("m-b", **s.owned("m-b"))
    s.pause(1.2)
    s.show("m-b", rounds=2)
    s.join("m-a", ONE, instanceId="i1")


def static_full_group(s: Streams) -> None:
    s.enter("m-a", ONE, instanceId="i1")
    s.enter("m-b", ONE)
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.enter("m-c", ONE, instanceId="i2")
    s.enter("m-c", ONE, instanceId="i1")
    s.enter("m-b", ONE, instanceId="i3")
    s.describe()


def rejoin_within_interval(s: Streams) -> None:
    """A member leaves and comes back before the next assignment is due."""
    s.enter("m-a", ONE)
    s.pause(1.2)
    s.enter("m-b", ONE)
    s.settle("m-a", "m-b", rounds=2)
    s.leave("m-b")
    s.enter("m-b", ONE)
    s.beat("m-a")
    s.describe()
    s.pause(1.4)
    s.show("m-a", "m-b")
    s.enter("m-c", ONE, instanceId="i1")
    s.leave("m-c", instanceId="i1", epoch=AWAY)
    s.enter("m-d", ONE, instanceId="i1")
    s.pause(1.4)
    s.show("m-a", "m-b", "m-d")


def static_reload(s: Streams) -> None:
    """Static members over a restart of the broker: one that is away, one that stays, one that comes back after it."""
    s.enter("m-a", TWO, instanceId="i1")
    s.enter("m-b", TWO, instanceId="i2", taskOffsets=[offset(0, 5)])
    s.show("m-a", "m-b")
    s.leave("m-a", instanceId="i1", epoch=AWAY)
    s.recorder.restart(s.broker)
    s.describe()
    s.join("m-c", TWO, instanceId="i2")
    s.enter("m-c", TWO, instanceId="i1")
    s.show("m-b", "m-c")
    s.leave("m-b", instanceId="i2", epoch=AWAY)
    s.leave("m-c", instanceId="i1")
    s.describe()


SCENARIOS: dict[str, list[Scenario]] = {
    "plain": [
        static_lifecycle,
        static_members_change,
        static_member_among_others,
        static_member_while_revoking,
        static_member_robbed,
        endpoint_changes,
        task_offsets,
        new_versions,
        transactions_by_topic_id,
    ],
    "standby": [standbys_by_offsets, roles_in_place],
    "full": [static_full_group],
    "interval": [rejoin_within_interval],
    "timers": [static_session],
    "reload": [static_reload],
}
"""Scenarios beside those of 4.3, by the profile of ``PROFILES``."""
