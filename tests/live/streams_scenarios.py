"""Streams groups (KIP-1071) on a real broker, one short scenario for each behaviour; recorded by ``record_streams``."""

from __future__ import annotations

from collections.abc import Callable

from tests.live.group_protocol import Json
from tests.live.streams_client import (
    INTERNAL_TOPICS_SECONDS,
    NO_TASKS,
    Streams,
    copartitioned,
    endpoint,
    subtopology,
    tasks,
    topic,
    topology,
)

TOPICS = {"t1": 3, "t2": 2, "t3": 1, "t4": 4, "t5": 4, "t6": 2}
Scenario = Callable[[Streams], None]
ONE = topology(subtopology("0", "t1"))
TWO = topology(subtopology("0", "t1"), subtopology("1", "t2"))


def lifecycle(s: Streams) -> None:
    """One member: join, heartbeat, commit, fetch, leave, delete."""
    s.describe()
    s.enter("m-a", ONE)
    s.describe()
    s.describe(operations=True)
    s.list()
    s.list(types=("streams",))
    s.list(states=("Stable",))
    s.describe_classic()
    s.beat("m-a")
    s.beat("m-a", **s.owned("m-a"))
    epoch = s.epoch("m-a")
    s.commit("t1", {0: 5, 1: 6}, "m-a", epoch)
    s.commit("t1", {0: 7}, "m-a", epoch + 1)
    s.commit("t1", {0: 7}, "m-a", epoch - 1)
    s.commit("t1", {0: 7}, "ghost", epoch)
    s.commit("t1", {0: 7})
    s.commit("t1", {0: 8}, "m-a", epoch, version=8)
    s.commit("t2", {0: 9}, "m-a", epoch)
    s.fetch(None, "m-a", epoch)
    s.fetch(None, "m-a", epoch + 1)
    s.fetch(None, "ghost", epoch)
    s.fetch({"t1": [0, 1, 2]})
    s.delete()
    s.delete_offsets("t1", 0)
    s.delete_offsets("t2", 0)
    s.leave("m-a")
    s.describe()
    s.list()
    s.fetch(None)
    s.heartbeat("m-a", epoch)
    s.leave("m-a")
    s.commit("t1", {2: 10})
    s.delete_offsets("t1", 2)
    s.delete()
    s.describe()
    s.fetch(None)
    s.leave("m-a")
    s.heartbeat("m-a", 1)


def invalid_requests(s: Streams) -> None:
    s.join("", ONE)
    s.heartbeat("m-a", 0, topology=ONE, processId="p", **NO_TASKS)
    s.join("m-a", None)
    s.join("m-a", ONE, processId=None)
    s.join("m-a", ONE, processId="")
    s.join("m-a", ONE, activeTasks=None)
    s.join("m-a", ONE, standbyTasks=None)
    s.join("m-a", ONE, warmupTasks=None)
    s.join("m-a", ONE, **tasks({"0": [0]}))
    s.join("m-a", ONE, **tasks(standby={"0": [0]}))
    s.join("m-a", ONE, **tasks(warmup={"0": [0]}))
    s.join("m-a", ONE, rebalanceTimeoutMs=-1)
    s.join("m-a", ONE, rackId="")
    s.join("m-a", ONE, instanceId="")
    s.join("m-a", topology())
    s.join("m-a", topology(epoch=-1))
    s.join("m-a", topology(subtopology("0")))
    s.join("m-a", topology(subtopology("0", "t1"), subtopology("0", "t2")))
    s.join("m-a", topology(subtopology("0", "not a name")))
    s.join("m-a", topology(subtopology("0", "__consumer_offsets")))
    s.join("m-a", topology(subtopology("0", "t1"), epoch=-1))
    s.heartbeat("m-a", -2)
    s.heartbeat("m-a", -3)
    s.heartbeat("", 1)
    s.heartbeat("m-a", 1, activeTasks=[])
    s.heartbeat("m-a", 1, topology=ONE)
    s.heartbeat("m-a", 1, **tasks({"0": [0, 0]}))
    s.heartbeat("m-a", 1, **tasks({"0": [0]}, standby={"0": [0]}))
    s.heartbeat("m-a", 1)
    s.leave("m-a")
    s.describe()
    s.list()


def static_member(s: Streams) -> None:
    s.join("m-a", ONE, instanceId="i1")
    s.join("m-b", ONE)
    s.heartbeat("m-b", 1, instanceId="i1")
    s.leave("m-b", instanceId="i1")
    s.leave("m-b", instanceId="i1", epoch=-2)
    s.leave("m-b", epoch=-2)
    s.describe()


def empty_group_id(s: Streams) -> None:
    body: Json = {"groupIds": [""], "includeAuthorizedOperations": False}
    s.send("StreamsGroupDescribe", 0, body)
    s.describe("g", "h", "g")


def two_members(s: Streams) -> None:
    s.enter("m-a", ONE)
    s.beat("m-a", **s.owned("m-a"))
    s.enter("m-b", ONE)
    s.describe()
    s.show("m-a", "m-b")
    s.leave("m-a")
    s.describe()
    s.show("m-b")
    s.leave("m-b")
    s.delete()


def three_members(s: Streams) -> None:
    both = topology(subtopology("0", "t4"), subtopology("1", "t5"), subtopology("2", "t1"))
    for member_id in ("m-c", "m-a", "m-b"):
        s.enter(member_id, both)
    s.show("m-a", "m-b", "m-c")
    s.enter("m-d", both)
    s.show("m-d", "m-a", "m-b", "m-c")
    s.leave("m-b")
    s.show("m-a", "m-c", "m-d")
    s.leave("m-c")
    s.leave("m-a")
    s.show("m-d")


def one_process(s: Streams) -> None:
    """Several members of one process, and others."""
    two = topology(subtopology("0", "t4"), subtopology("1", "t5"))
    s.enter("m-a", two, processId="p1")
    s.enter("m-b", two, processId="p1")
    s.enter("m-c", two, processId="p2")
    s.show("m-a", "m-b", "m-c")
    s.enter("m-d", two, processId="p2")
    s.enter("m-e", two, processId="p3")
    s.show("m-a", "m-b", "m-c", "m-d", "m-e")
    s.leave("m-a")
    s.leave("m-c")
    s.show("m-b", "m-d", "m-e")


def more_members_than_tasks(s: Streams) -> None:
    one = topology(subtopology("0", "t2"))
    names = ["m-a", "m-b", "m-c", "m-d"]
    for name in names:
        s.enter(name, one)
    s.show(*names)
    s.leave("m-a")
    s.show(*names[1:])


def rejoin(s: Streams) -> None:
    """A known member joins again."""
    s.enter("m-a", ONE)
    s.enter("m-b", ONE)
    s.settle("m-a", "m-b")
    s.enter("m-a", ONE)
    s.describe()
    s.settle("m-a", "m-b")
    s.enter("m-a", ONE, processId="p-other", rackId="r1", clientTags=[{"key": "zone", "value": "z1"}])
    s.show("m-a", "m-b")


def fencing(s: Streams) -> None:
    s.enter("m-a", ONE)
    first = s.epoch("m-a")
    s.heartbeat("m-a", first + 1)
    s.heartbeat("m-a", first - 1)
    s.heartbeat("ghost", first)
    s.enter("m-b", ONE)
    s.beat("m-a", **s.owned("m-a"))
    s.beat("m-a", **s.owned("m-a"))
    owned = s.owned("m-a")
    now = s.epoch("m-a")
    s.heartbeat("m-a", first)
    s.heartbeat("m-a", first, **owned)
    s.heartbeat("m-a", first, **tasks({"0": [0, 1, 2]}))
    s.heartbeat("m-a", first, **tasks({"1": [0]}))
    s.heartbeat("m-a", now, **tasks({"1": [0]}))
    s.heartbeat("m-a", now, **tasks({"0": [3]}))
    s.heartbeat("m-a", now, **tasks({"0": [-1]}))
    s.leave("ghost")
    s.describe()


def member_changes(s: Streams) -> None:
    """Fields that a later heartbeat changes."""
    s.enter("m-a", ONE)
    s.beat("m-a", rackId="r1")
    s.beat("m-a", rackId="r1")
    s.beat("m-a", rebalanceTimeoutMs=12_345)
    s.beat("m-a", processId="p2")
    s.beat("m-a", clientTags=[{"key": "zone", "value": "z1"}, {"key": "cluster", "value": "c1"}])
    s.beat("m-a", clientTags=[])
    s.beat("m-a", userEndpoint=endpoint("h1", 9000))
    s.describe()


def endpoints(s: Streams) -> None:
    two = topology(subtopology("0", "t1"), subtopology("1", "t2"))
    s.enter("m-a", two, userEndpoint=endpoint("h1", 9001))
    s.beat("m-a", endpointInformationEpoch=0)
    s.beat("m-a", endpointInformationEpoch=1)
    s.beat("m-a", endpointInformationEpoch=2)
    s.enter("m-b", two, userEndpoint=endpoint("h2", 65535))
    s.settle("m-a", "m-b")
    s.settle("m-a", "m-b", endpointInformationEpoch=3, rounds=1)
    s.enter("m-c", two)
    s.settle("m-a", "m-b", "m-c")
    s.leave("m-b")
    s.show("m-a", "m-c")


def stale_and_changed_topology(s: Streams) -> None:
    s.enter("m-a", topology(subtopology("0", "t1"), epoch=3))
    s.enter("m-b", topology(subtopology("0", "t1"), epoch=2))
    s.settle("m-a", "m-b")
    s.enter("m-c", topology(subtopology("0", "t2"), epoch=3))
    s.enter("m-d", topology(subtopology("0", "t1"), epoch=4))
    s.enter("m-e", topology(subtopology("0", "t2"), epoch=1))
    s.describe()


def missing_source_topic(s: Streams) -> None:
    s.enter("m-a", topology(subtopology("0", "t1", "nope"), subtopology("1", "nix")))
    s.describe()
    s.list()
    s.beat("m-a")
    s.beat("m-a", **tasks({"0": [0]}))
    s.enter("m-b", topology(subtopology("0", "t1", "nope"), subtopology("1", "nix")))
    s.beat("m-b")
    s.commit("t1", {0: 1}, "m-a", s.epoch("m-a"))
    s.leave("m-b")
    s.leave("m-a")
    s.describe()
    s.delete()


def source_regex(s: Streams) -> None:
    s.enter("m-a", topology(subtopology("0", "t1", regex=("t[23]",))))
    s.describe()
    s.beat("m-a")


def changelog(s: Streams) -> None:
    """A stateful subtopology: the broker creates its changelog topic."""
    log = topic(f"{s.group()}-store-changelog", cleanup_policy="compact")
    one = topology(subtopology("0", "t1", changelogs=(log,)))
    s.enter("m-a", one)
    s.describe()
    s.list()
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.describe()
    s.beat("m-a")
    s.describe()
    s.beat("m-a", **s.owned("m-a"))
    s.commit("t1", {0: 5}, "m-a", s.epoch("m-a"))
    s.delete_offsets("t1", 0)
    s.leave("m-a")
    s.delete()


def repartition(s: Streams) -> None:
    """Partitions of a repartition topic come from the topics of the subtopology that writes to it."""
    name = f"{s.group()}-repartition"
    first = subtopology("0", "t1", sinks=(name,))
    second = subtopology("1", repartition=(topic(name),), changelogs=(topic(f"{s.group()}-agg-changelog"),))
    s.enter("m-a", topology(first, second))
    s.describe()
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.beat("m-a")
    s.describe()
    s.beat("m-a", **s.owned("m-a"))
    s.enter("m-b", topology(first, second))
    s.show("m-a", "m-b")
    s.delete_offsets("t1", 0)
    s.delete_offsets(name, 0)
    s.delete_offsets("t2", 0)


def repartition_fixed(s: Streams) -> None:
    """A repartition topic with a number of partitions of its own, and one that nobody writes to."""
    name = f"{s.group()}-repartition"
    first = subtopology("0", "t1", sinks=(name,))
    second = subtopology("1", repartition=(topic(name, 5),))
    s.enter("m-a", topology(first, second))
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.beat("m-a")
    s.describe()
    orphan = f"{s.group()}-orphan"
    s.enter("m-b", topology(subtopology("0", repartition=(topic(orphan),))), "h")
    s.describe("h")


def copartitions(s: Streams) -> None:
    fine = topology(subtopology("0", "t4", "t5", copartition=(copartitioned((0, 1)),)))
    s.enter("m-a", fine)
    s.describe()
    wrong = topology(subtopology("0", "t4", "t1", copartition=(copartitioned((0, 1)),)))
    s.enter("m-a", wrong, "h")
    s.describe("h")
    s.beat("m-a", "h")
    name = f"{s.group('i')}-repartition"
    first = subtopology("0", "t1", sinks=(name,))
    joined = subtopology("1", "t4", repartition=(topic(name),), copartition=(copartitioned((0,), (0,)),))
    s.enter("m-a", topology(first, joined), "i")
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.beat("m-a", "i")
    s.describe("i")
    name = f"{s.group('j')}-repartition"
    first = subtopology("0", "t1", sinks=(name,))
    clash = subtopology("1", "t4", repartition=(topic(name, 3),), copartition=(copartitioned((0,), (0,)),))
    s.enter("m-a", topology(first, clash), "j")
    s.describe("j")


def wrong_internal_topic(s: Streams) -> None:
    """The changelog topic exists with another number of partitions."""
    one = topology(subtopology("0", "t1", changelogs=(topic("t2"),)))
    s.enter("m-a", one)
    s.describe()
    s.beat("m-a")
    two = topology(subtopology("0", "t1", changelogs=(topic("t1"),)))
    s.enter("m-a", two, "h")
    s.describe("h")


def shutdown(s: Streams) -> None:
    s.enter("m-a", ONE)
    s.enter("m-b", ONE)
    s.settle("m-a", "m-b")
    s.beat("m-a", shutdownApplication=True)
    s.beat("m-b")
    s.beat("m-a")
    s.leave("m-a")
    s.beat("m-b")
    s.leave("m-b")
    s.enter("m-c", ONE)
    s.beat("m-c")
    s.leave("m-c", shutdownApplication=True)
    s.enter("m-d", ONE)


def other_types(s: Streams) -> None:
    """Streams members and groups of other types."""
    s.commit("t1", {0: 1})
    s.describe()
    s.enter("m-a", ONE, userEndpoint=endpoint("h1", 1))
    s.fetch(None)
    s.describe()
    consumer = {
        "groupId": s.group(),
        "memberId": "c1",
        "memberEpoch": 0,
        "instanceId": None,
        "rackId": None,
        "rebalanceTimeoutMs": 600_000,
        "subscribedTopicNames": ["t1"],
        "subscribedTopicRegex": None,
        "serverAssignor": None,
        "topicPartitions": [],
    }
    s.send("ConsumerGroupHeartbeat", 1, consumer)
    s.send("ConsumerGroupDescribe", 1, {"groupIds": [s.group()], "includeAuthorizedOperations": False})
    s.join_classic()
    identity = {"groupId": s.group(), "generationId": 1, "memberId": "m-a", "groupInstanceId": None}
    s.send("Heartbeat", 4, identity)
    sync = identity | {"protocolType": "consumer", "protocolName": "range", "assignments": []}
    s.send("SyncGroup", 5, sync)
    left = {"memberId": "m-a", "groupInstanceId": None, "reason": None}
    s.send("LeaveGroup", 5, {"groupId": s.group(), "members": [left]})
    s.send("ConsumerGroupHeartbeat", 1, consumer | {"groupId": s.group("h")})
    s.enter("m-a", ONE, "h")
    s.heartbeat("c1", 1, "h")
    s.leave("c1", "h")
    s.describe("h")
    s.leave("m-a")
    s.send("ConsumerGroupHeartbeat", 1, consumer)


def classic_over_empty(s: Streams) -> None:
    """A classic member joins a streams group that is empty."""
    s.enter("m-a", ONE)
    s.commit("t1", {0: 3}, "m-a", s.epoch("m-a"))
    s.leave("m-a")
    s.join_classic()
    s.fetch(None)
    s.list()
    s.describe()


def commits(s: Streams) -> None:
    """Commits at epochs before and after partitions moved."""
    s.enter("m-a", ONE)
    old = s.epoch("m-a")
    s.settle("m-a", rounds=1)
    s.enter("m-b", ONE)
    s.beat("m-a", **s.owned("m-a"))
    s.commit("t1", {0: 1, 1: 1, 2: 1}, "m-a", old)
    s.settle("m-a", "m-b", rounds=1)
    new = s.epoch("m-a")
    for partition in range(3):
        s.commit("t1", {partition: 2}, "m-a", old)
        s.commit("t1", {partition: 3}, "m-b", s.epoch("m-b"))
    s.commit("t2", {0: 4}, "m-a", old)
    s.commit("t2", {0: 4}, "m-a", new)
    s.commit("t1", {0: 5}, "m-a", new + 1)
    s.settle("m-a", "m-b", rounds=2)
    for partition in range(3):
        s.commit("t1", {partition: 6}, "m-a", old)
        s.commit("t1", {partition: 7}, "m-b", old)
    s.fetch(None, "m-a", new)
    s.fetch(None, "m-a", old)


def rebalance_slowly(s: Streams) -> None:
    """A member that keeps its tasks holds the others up."""
    s.enter("m-a", ONE)
    s.settle("m-a", rounds=1)
    s.enter("m-b", ONE)
    s.beat("m-b", **s.owned("m-b"))
    all_tasks = tasks({"0": [0, 1, 2]})
    s.beat("m-a", **all_tasks)
    s.describe()
    s.beat("m-a", **all_tasks)
    s.beat("m-b", **s.owned("m-b"))
    s.enter("m-c", ONE)
    s.beat("m-a", **all_tasks)
    s.beat("m-a")
    s.describe()
    s.show("m-a", "m-b", "m-c")


def full_group(s: Streams) -> None:
    s.enter("m-a", ONE)
    s.enter("m-b", ONE)
    s.enter("m-c", ONE)
    s.enter("m-a", ONE)
    s.leave("m-a")
    s.enter("m-c", ONE)


def standbys(s: Streams) -> None:
    log = topic(f"{s.group()}-store-changelog")
    one = topology(subtopology("0", "t1", changelogs=(log,)), subtopology("1", "t2"))
    s.enter("m-a", one)
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.show("m-a")
    s.enter("m-b", one)
    s.show("m-a", "m-b", rounds=4)
    s.enter("m-c", one, processId="p-m-b")
    s.show("m-a", "m-b", "m-c", rounds=4)
    s.leave("m-a")
    s.show("m-b", "m-c", rounds=4)
    s.enter("m-d", one, userEndpoint=endpoint("h", 1))
    s.show("m-b", "m-c", "m-d", rounds=4)
    s.beat("m-d", taskOffsets=[{"subtopologyId": "0", "partition": 0, "offset": 5}], taskEndOffsets=[])


def initial_delay(s: Streams) -> None:
    s.enter("m-a", ONE)
    s.describe()
    s.enter("m-b", ONE)
    s.beat("m-a")
    s.describe()
    s.pause(1.4)
    s.describe()
    s.show("m-a", "m-b")
    s.leave("m-a")
    s.leave("m-b")
    s.enter("m-c", ONE)
    s.describe()
    s.leave("m-c")
    s.pause(1.4)
    s.describe()


def assignment_interval(s: Streams) -> None:
    s.enter("m-a", ONE)
    s.enter("m-b", ONE)
    s.show("m-a", "m-b", rounds=1)
    s.pause(1.5)
    s.show("m-a", "m-b")
    s.leave("m-b")
    s.beat("m-a")
    s.pause(1.5)
    s.settle("m-a")


def session_timeout(s: Streams) -> None:
    s.enter("m-a", ONE)
    s.enter("m-b", ONE)
    s.settle("m-a", "m-b")
    s.pause(1.2)
    s.settle("m-a", rounds=1)
    s.pause(1.5)
    s.beat("m-b")
    s.show("m-a", rounds=2)
    s.pause(3.0)
    s.beat("m-a")
    s.describe()


def rebalance_timeout(s: Streams) -> None:
    s.enter("m-a", ONE, rebalanceTimeoutMs=1_000)
    s.settle("m-a", rounds=1)
    s.enter("m-b", ONE, rebalanceTimeoutMs=1_000)
    all_tasks = tasks({"0": [0, 1, 2]})
    s.beat("m-a", **all_tasks)
    s.pause(0.5)
    s.beat("m-a", **all_tasks)
    s.beat("m-b")
    s.pause(1.0)
    s.beat("m-a", **all_tasks)
    s.show("m-b")


def endpoint_without_topics(s: Streams) -> None:
    s.enter("m-a", topology(subtopology("0", "nope")), userEndpoint=endpoint("h1", 1))
    s.describe()
    s.enter("m-a", topology(subtopology("0", "nope")), userEndpoint=endpoint("h1", 1))
    s.enter("m-a", topology(subtopology("0", "nope")))
    s.enter("m-b", topology(subtopology("0", "nope")), userEndpoint=endpoint("h1", 1), endpointInformationEpoch=1)
    s.describe()


def invalid_topologies(s: Streams) -> None:
    s.join("m-a", topology(), "a")
    s.describe("a")
    s.join("m-a", topology(subtopology("0")), "b")
    s.join("m-a", topology(subtopology("0"), subtopology("1", "t1")), "c")
    loop = subtopology("0", sinks=("x",), repartition=(topic("x"),))
    s.join("m-a", topology(loop), "d")
    s.join("m-a", topology(subtopology("0", "t1", copartition=(copartitioned((7,)),))), "e")
    s.join("m-a", topology(subtopology("0", "t1", changelogs=(topic("x", 3),))), "f")
    s.join("m-a", topology(subtopology("0", "t1", copartition=(copartitioned(),))), "g")
    s.join("m-a", topology(subtopology("0", "t1", "t2", "t4")), "h")
    s.describe("h")
    s.join("m-a", topology(subtopology("0", "n1", "n2", "n3", "n4", "n5")), "i")
    s.join("m-a", topology(subtopology("0", "t1", sinks=("bad name",))), "j")
    s.join("m-a", topology(subtopology("0", "t1", changelogs=(topic("__transaction_state"),))), "k")
    s.join("m-a", topology(subtopology("0", "t1", sinks=("__share_group_state",))), "l")
    s.list()


def copartitioned_repartition(s: Streams) -> None:
    """Repartition topics alone in a copartition group: the largest number of partitions, or the fixed one."""
    one, two = f"{s.group()}-r1", f"{s.group()}-r2"
    first = subtopology("0", "t1", sinks=(one,))
    second = subtopology("1", "t2", sinks=(two,))
    joined = subtopology("2", repartition=(topic(one), topic(two)), copartition=(copartitioned((), (0, 1)),))
    s.enter("m-a", topology(first, second, joined))
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.show("m-a")
    one, two = f"{s.group('h')}-r1", f"{s.group('h')}-r2"
    first = subtopology("0", "t1", sinks=(one,))
    second = subtopology("1", "t2", sinks=(two,))
    joined = subtopology("2", repartition=(topic(one, 4), topic(two)), copartition=(copartitioned((), (0, 1)),))
    s.enter("m-a", topology(first, second, joined), "h")
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.show("m-a", group="h")


def many_subtopologies(s: Streams) -> None:
    """Ids of two digits: maps iterate in the order of hash codes, records are sorted."""
    wide = topology(*(subtopology(str(number), "t1" if number % 2 else "t2") for number in range(14)))
    s.enter("m-a", wide, userEndpoint=endpoint("h", 1))
    s.settle("m-a", rounds=1)
    s.enter("m-b", wide)
    s.enter("m-c", wide, processId="p-m-b")
    s.show("m-a", "m-b", "m-c")
    s.leave("m-b")
    s.show("m-a", "m-c")


def transactions(s: Streams) -> None:
    """Offsets that members commit in transactions."""
    s.enter("m-a", ONE)
    epoch = s.epoch("m-a")
    producer = s.begin_producer()
    for member_id, generation in (("m-a", epoch), ("m-a", epoch + 1), ("m-a", epoch - 1), ("ghost", epoch), ("", -1)):
        s.commit_in_transaction(producer, {"name": "t1"}, member_id, generation)
    s.fetch(None)
    s.leave("m-a")
    s.delete()


def deleted_topic(s: Streams) -> None:
    """A source topic goes away."""
    both = topology(subtopology("0", "t6"), subtopology("1", "t1"))
    s.enter("m-a", both)
    s.settle("m-a", rounds=1)
    s.commit("t6", {0: 1, 1: 2}, "m-a", s.epoch("m-a"))
    s.commit("t1", {0: 1}, "m-a", s.epoch("m-a"))
    s.send("DeleteTopics", 5, {"topicNames": ["t6"], "timeoutMs": 10_000})
    s.pause(0.5)
    s.describe()
    s.beat("m-a", **s.owned("m-a"))
    s.describe()
    s.show("m-a")
    s.fetch(None)


def expiry(s: Streams) -> None:
    """Offsets that are a minute old expire unless the topology reads their topic; an empty group goes."""
    s.enter("m-a", ONE)
    epoch = s.epoch("m-a")
    s.commit("t1", {0: 1}, "m-a", epoch)
    s.commit("t2", {0: 1}, "m-a", epoch)
    s.enter("m-a", ONE, "h")
    s.commit("t1", {0: 1}, "m-a", s.epoch("m-a", "h"), group="h")
    s.leave("m-a", "h")
    s.enter("m-a", ONE, "i")
    s.leave("m-a", "i")
    s.pause(3)
    s.list()
    s.pause(60)
    s.list()
    s.fetch(None)
    s.fetch(None, group="h")


def reload(s: Streams) -> None:
    """What a coordinator knows after it has loaded the group."""
    log = topic(f"{s.group()}-store-changelog")
    one = topology(subtopology("0", "t1", changelogs=(log,)), subtopology("1", "t2"))
    s.enter("m-a", one, userEndpoint=endpoint("h1", 1))
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.settle("m-a")
    s.enter("m-b", one)
    s.beat("m-a", **s.owned("m-a"))
    s.commit("t1", {0: 3}, "m-a", s.epoch("m-a"))
    s.enter("m-a", ONE, "h", shutdownApplication=True)
    s.settle("m-a", group="h", rounds=1)
    s.beat("m-a", "h", shutdownApplication=True)
    s.recorder.restart(s.broker)
    s.describe()
    s.describe("h")
    s.list()
    s.beat("m-a")
    s.describe()
    s.show("m-a", "m-b", rounds=4)
    s.beat("m-a", "h")
    s.fetch(None)
    s.leave("m-b")
    s.show("m-a")


PLAIN: list[Scenario] = [
    lifecycle,
    invalid_requests,
    static_member,
    empty_group_id,
    two_members,
    three_members,
    one_process,
    more_members_than_tasks,
    rejoin,
    fencing,
    member_changes,
    endpoints,
    stale_and_changed_topology,
    missing_source_topic,
    source_regex,
    changelog,
    repartition,
    repartition_fixed,
    copartitions,
    wrong_internal_topic,
    shutdown,
    other_types,
    classic_over_empty,
    commits,
    rebalance_slowly,
    endpoint_without_topics,
    invalid_topologies,
    copartitioned_repartition,
    many_subtopologies,
    transactions,
    deleted_topic,
]
SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.max.session.timeout.ms": "1800000",
    "group.initial.rebalance.delay.ms": "0",
    "offset.metadata.max.bytes": "64",
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "offsets.topic.num.partitions": "5",
    "group.consumer.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "5000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "600000",
    "group.streams.max.session.timeout.ms": "600000",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
PROFILES: dict[str, tuple[dict[str, str], list[Scenario]]] = {
    "plain": ({}, PLAIN),
    "standby": ({"group.streams.num.standby.replicas": "1"}, [standbys]),
    "full": ({"group.streams.max.size": "2"}, [full_group]),
    "delay": ({"group.streams.initial.rebalance.delay.ms": "1000"}, [initial_delay]),
    "interval": ({"group.streams.assignment.interval.ms": "1000"}, [assignment_interval]),
    "timers": (
        {"group.streams.session.timeout.ms": "2000", "group.streams.heartbeat.interval.ms": "1000"},
        [session_timeout, rebalance_timeout],
    ),
    "retention": (
        {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"},
        [expiry],
    ),
    "reload": ({}, [reload]),
}
"""Settings of a broker that differ from ``SETTINGS``, and what is recorded on it."""
