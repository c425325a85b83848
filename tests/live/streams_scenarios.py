"""Streams groups (KIP-1071) on a real broker, one short scenario for each behaviour; recorded by ``record_streams``."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests.live.broker import Broker, wait_for
from tests.live.group_protocol import Connection, Definitions, Json, definition
from tests.live.recorder import Recorder
from tests.recording.session import read_definition

NO_TASKS: Json = {"activeTasks": [], "standbyTasks": [], "warmupTasks": []}
TOPICS = {"t1": 3, "t2": 2, "t3": 1, "t4": 4, "t5": 4, "t6": 2}
INTERNAL_TOPICS_SECONDS = 1.0
"""Time for the coordinator to see internal topics that the broker has."""


def topic(name: str, partitions: int = 0, **configs: str) -> Json:
    return {
        "name": name,
        "partitions": partitions,
        "replicationFactor": 1,
        "topicConfigs": [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def subtopology(
    name: str,
    *sources: str,
    regex: tuple[str, ...] = (),
    changelogs: tuple[Json, ...] = (),
    sinks: tuple[str, ...] = (),
    repartition: tuple[Json, ...] = (),
    copartition: tuple[Json, ...] = (),
) -> Json:
    return {
        "subtopologyId": name,
        "sourceTopics": list(sources),
        "sourceTopicRegex": list(regex),
        "stateChangelogTopics": list(changelogs),
        "repartitionSinkTopics": list(sinks),
        "repartitionSourceTopics": list(repartition),
        "copartitionGroups": list(copartition),
    }


def copartitioned(sources: tuple[int, ...] = (), repartition: tuple[int, ...] = ()) -> Json:
    return {"sourceTopics": list(sources), "sourceTopicRegex": [], "repartitionSourceTopics": list(repartition)}


def topology(*subtopologies: Json, epoch: int = 1) -> Json:
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


def tasks(active: Json | None = None, standby: Json | None = None, warmup: Json | None = None) -> Json:
    """Owned tasks of a heartbeat, each kind as partitions by subtopology."""

    def listed(kind: Json | None) -> list[Json]:
        return [{"subtopologyId": name, "partitions": partitions} for name, partitions in (kind or {}).items()]

    return {"activeTasks": listed(active), "standbyTasks": listed(standby), "warmupTasks": listed(warmup)}


def definitions(jars: Path) -> Definitions:
    """Definitions of the streams APIs from the jars of the broker, of the others as every recorder has them."""
    (jar,) = jars.glob("kafka-clients-*.jar")

    @cache
    def define(api: str, direction: str) -> Json:
        if api.startswith("StreamsGroup"):
            return read_definition(jar, f"{api}{direction.capitalize()}")
        return definition(api, direction)

    return define


class Streams:
    """What a scenario does: members of streams groups on one recorder."""

    def __init__(self, recorder: Recorder, broker: Broker) -> None:
        self.recorder = recorder
        self.broker = broker
        self.known: dict[tuple[str, str], Json] = {}
        """The newest epoch and tasks of members that used :meth:`enter` or :meth:`beat`, by group and member."""

    def group(self, name: str = "g") -> str:
        return f"{self.recorder.name}.{name}"

    def send(self, api: str, version: int, body: Json, client: str = "o") -> Json:
        answer = self.recorder.send(client, api, version, body)
        assert answer is not None
        return answer

    def heartbeat(self, member_id: str, epoch: int, group: str = "g", **fields: Any) -> Json:
        body: Json = {
            "groupId": self.group(group),
            "memberId": member_id,
            "memberEpoch": epoch,
            "endpointInformationEpoch": -1,
            "instanceId": None,
            "rackId": None,
            "rebalanceTimeoutMs": -1,
            "topology": None,
            "activeTasks": None,
            "standbyTasks": None,
            "warmupTasks": None,
            "processId": None,
            "userEndpoint": None,
            "clientTags": None,
            "taskOffsets": None,
            "taskEndOffsets": None,
            "shutdownApplication": False,
        }
        return self.send("StreamsGroupHeartbeat", 0, body | fields, client=f"c-{member_id or 'none'}")

    def join(self, member_id: str, topology_: Json | None, group: str = "g", **fields: Any) -> Json:
        first = {"rebalanceTimeoutMs": 600_000, "processId": f"p-{member_id}", "clientTags": [], **NO_TASKS}
        return self.heartbeat(member_id, 0, group, **(first | {"topology": topology_} | fields))

    def leave(self, member_id: str, group: str = "g", epoch: int = -1, **fields: Any) -> Json:
        return self.heartbeat(member_id, epoch, group, **fields)

    def describe(self, *groups: str, operations: bool = False) -> Json:
        body = {
            "groupIds": [self.group(one) for one in groups or ("g",)],
            "includeAuthorizedOperations": operations,
        }
        return self.send("StreamsGroupDescribe", 0, body)

    def commit(
        self,
        topic_: str,
        offsets: dict[int, int],
        member_id: str = "",
        epoch: int = -1,
        group: str = "g",
        version: int = 9,
    ) -> Json:
        partitions = [
            {
                "partitionIndex": partition,
                "committedOffset": offset,
                "committedLeaderEpoch": -1,
                "committedMetadata": "",
            }
            for partition, offset in offsets.items()
        ]
        body = {
            "groupId": self.group(group),
            "generationIdOrMemberEpoch": epoch,
            "memberId": member_id,
            "groupInstanceId": None,
            "topics": [{"name": topic_, "partitions": partitions}],
        }
        return self.send("OffsetCommit", version, body)

    def fetch(self, topics: Json | None, member_id: str | None = None, epoch: int = -1, group: str = "g") -> Json:
        wanted = None if topics is None else [{"name": k, "partitionIndexes": v} for k, v in topics.items()]
        one = {"groupId": self.group(group), "memberId": member_id, "memberEpoch": epoch, "topics": wanted}
        return self.send("OffsetFetch", 9, {"groups": [one], "requireStable": False})

    def delete_offsets(self, topic_: str, *partitions: int, group: str = "g") -> Json:
        listed = [{"partitionIndex": partition} for partition in partitions]
        body = {"groupId": self.group(group), "topics": [{"name": topic_, "partitions": listed}]}
        return self.send("OffsetDelete", 0, body)

    def delete(self, *groups: str) -> Json:
        return self.send("DeleteGroups", 2, {"groupsNames": [self.group(one) for one in groups or ("g",)]})

    def list(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Json:
        return self.send("ListGroups", 5, {"statesFilter": list(states), "typesFilter": list(types)})

    def describe_classic(self, group: str = "g") -> Json:
        return self.send("DescribeGroups", 6, {"groups": [self.group(group)], "includeAuthorizedOperations": False})

    def pause(self, seconds: float) -> None:
        self.recorder.pause(seconds)

    def await_topics(self, topology_: Json) -> None:
        """Return when the broker has created the internal topics."""
        infos = ("stateChangelogTopics", "repartitionSourceTopics")
        names = [one["name"] for sub in topology_["subtopologies"] for info in infos for one in sub[info]]
        wanted = {
            "topics": [{"topicId": "A" * 22, "name": name} for name in names],
            "allowAutoTopicCreation": False,
            "includeTopicAuthorizedOperations": False,
        }
        connection = Connection(self.broker.port, "waits")
        wait_for(
            "the internal topics",
            lambda: not any(one["errorCode"] for one in connection.ask("Metadata", 12, wanted)["topics"]),
        )
        connection.close()
        self.pause(INTERNAL_TOPICS_SECONDS)

    def settle(self, *members: str, group: str = "g", rounds: int = 3, **fields: Any) -> None:
        """Members own what they were told and heartbeat, round by round."""
        for _ in range(rounds):
            for member_id in members:
                self.beat(member_id, group, **self.owned(member_id, group), **fields)

    def enter(self, member_id: str, topology_: Json | None, group: str = "g", **fields: Any) -> Json:
        answer = self.join(member_id, topology_, group, **fields)
        self._learn(member_id, group, answer)
        return answer

    def beat(self, member_id: str, group: str = "g", **fields: Any) -> Json:
        """A heartbeat at the epoch that the member knows; without owned tasks unless they are given."""
        epoch = self.known.get((group, member_id), {"memberEpoch": 1})["memberEpoch"]
        answer = self.heartbeat(member_id, epoch, group, **fields)
        self._learn(member_id, group, answer)
        return answer

    def owned(self, member_id: str, group: str = "g") -> Json:
        known = self.known.get((group, member_id), NO_TASKS)
        return {name: known[name] for name in NO_TASKS}

    def _learn(self, member_id: str, group: str, answer: Json) -> None:
        if answer["errorCode"]:
            return
        old = self.known.get((group, member_id), NO_TASKS)
        tasks_ = {name: old[name] if answer[name] is None else answer[name] for name in NO_TASKS}
        self.known[group, member_id] = {"memberEpoch": answer["memberEpoch"], **tasks_}


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
    epoch = s.known["g", "m-a"]["memberEpoch"]
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
    s.settle("m-a", "m-b")
    s.describe()
    s.leave("m-a")
    s.describe()
    s.settle("m-b")
    s.describe()
    s.leave("m-b")
    s.delete()


def three_members(s: Streams) -> None:
    both = topology(subtopology("0", "t4"), subtopology("1", "t5"), subtopology("2", "t1"))
    for member_id in ("m-c", "m-a", "m-b"):
        s.enter(member_id, both)
    s.settle("m-a", "m-b", "m-c")
    s.describe()
    s.enter("m-d", both)
    s.settle("m-d", "m-a", "m-b", "m-c")
    s.describe()
    s.leave("m-b")
    s.settle("m-a", "m-c", "m-d")
    s.describe()
    s.leave("m-c")
    s.leave("m-a")
    s.settle("m-d")
    s.describe()


def one_process(s: Streams) -> None:
    """Several members of one process, and others."""
    two = topology(subtopology("0", "t4"), subtopology("1", "t5"))
    s.enter("m-a", two, processId="p1")
    s.enter("m-b", two, processId="p1")
    s.enter("m-c", two, processId="p2")
    s.settle("m-a", "m-b", "m-c")
    s.describe()
    s.enter("m-d", two, processId="p2")
    s.enter("m-e", two, processId="p3")
    s.settle("m-a", "m-b", "m-c", "m-d", "m-e")
    s.describe()
    s.leave("m-a")
    s.leave("m-c")
    s.settle("m-b", "m-d", "m-e")
    s.describe()


def more_members_than_tasks(s: Streams) -> None:
    one = topology(subtopology("0", "t2"))
    names = ["m-a", "m-b", "m-c", "m-d"]
    for name in names:
        s.enter(name, one)
    s.settle(*names)
    s.describe()
    s.leave("m-a")
    s.settle(*names[1:])
    s.describe()


def rejoin(s: Streams) -> None:
    """A known member joins again."""
    s.enter("m-a", ONE)
    s.enter("m-b", ONE)
    s.settle("m-a", "m-b")
    s.enter("m-a", ONE)
    s.describe()
    s.settle("m-a", "m-b")
    s.enter("m-a", ONE, processId="p-other", rackId="r1", clientTags=[{"key": "zone", "value": "z1"}])
    s.settle("m-a", "m-b")
    s.describe()


def fencing(s: Streams) -> None:
    s.enter("m-a", ONE)
    first = s.known["g", "m-a"]["memberEpoch"]
    s.heartbeat("m-a", first + 1)
    s.heartbeat("m-a", first - 1)
    s.heartbeat("ghost", first)
    s.enter("m-b", ONE)
    s.beat("m-a", **s.owned("m-a"))
    s.beat("m-a", **s.owned("m-a"))
    owned = s.owned("m-a")
    now = s.known["g", "m-a"]["memberEpoch"]
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
    s.beat("m-a", userEndpoint={"host": "h1", "port": 9000})
    s.describe()


def endpoints(s: Streams) -> None:
    two = topology(subtopology("0", "t1"), subtopology("1", "t2"))
    s.enter("m-a", two, userEndpoint={"host": "h1", "port": 9001})
    s.beat("m-a", endpointInformationEpoch=0)
    s.beat("m-a", endpointInformationEpoch=1)
    s.beat("m-a", endpointInformationEpoch=2)
    s.enter("m-b", two, userEndpoint={"host": "h2", "port": 65535})
    s.settle("m-a", "m-b")
    s.settle("m-a", "m-b", endpointInformationEpoch=3, rounds=1)
    s.enter("m-c", two)
    s.settle("m-a", "m-b", "m-c")
    s.leave("m-b")
    s.settle("m-a", "m-c")
    s.describe()


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
    s.commit("t1", {0: 1}, "m-a", s.known["g", "m-a"]["memberEpoch"])
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
    s.commit("t1", {0: 5}, "m-a", s.known["g", "m-a"]["memberEpoch"])
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
    s.settle("m-a", "m-b")
    s.describe()
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
    s.enter("m-a", ONE, userEndpoint={"host": "h1", "port": 1})
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
    classic = {
        "groupId": s.group(),
        "sessionTimeoutMs": 10_000,
        "rebalanceTimeoutMs": 10_000,
        "memberId": "",
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
        "reason": None,
    }
    s.send("JoinGroup", 9, classic)
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
    s.commit("t1", {0: 3}, "m-a", s.known["g", "m-a"]["memberEpoch"])
    s.leave("m-a")
    classic = {
        "groupId": s.group(),
        "sessionTimeoutMs": 10_000,
        "rebalanceTimeoutMs": 10_000,
        "memberId": "",
        "groupInstanceId": None,
        "protocolType": "consumer",
        "protocols": [{"name": "range", "metadata": ""}],
        "reason": None,
    }
    s.send("JoinGroup", 9, classic)
    s.fetch(None)
    s.list()
    s.describe()


def commits(s: Streams) -> None:
    """Commits at epochs before and after partitions moved."""
    s.enter("m-a", ONE)
    old = s.known["g", "m-a"]["memberEpoch"]
    s.settle("m-a", rounds=1)
    s.enter("m-b", ONE)
    s.beat("m-a", **s.owned("m-a"))
    s.commit("t1", {0: 1, 1: 1, 2: 1}, "m-a", old)
    s.settle("m-a", "m-b", rounds=1)
    new = s.known["g", "m-a"]["memberEpoch"]
    for partition in range(3):
        s.commit("t1", {partition: 2}, "m-a", old)
        s.commit("t1", {partition: 3}, "m-b", s.known["g", "m-b"]["memberEpoch"])
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
    s.settle("m-a", "m-b", "m-c")
    s.describe()


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
    s.settle("m-a")
    s.describe()
    s.enter("m-b", one)
    s.settle("m-a", "m-b", rounds=4)
    s.describe()
    s.enter("m-c", one, processId="p-m-b")
    s.settle("m-a", "m-b", "m-c", rounds=4)
    s.describe()
    s.leave("m-a")
    s.settle("m-b", "m-c", rounds=4)
    s.describe()
    s.enter("m-d", one, userEndpoint={"host": "h", "port": 1})
    s.settle("m-b", "m-c", "m-d", rounds=4)
    s.describe()
    s.beat("m-d", taskOffsets=[{"subtopologyId": "0", "partition": 0, "offset": 5}], taskEndOffsets=[])


def initial_delay(s: Streams) -> None:
    s.enter("m-a", ONE)
    s.describe()
    s.enter("m-b", ONE)
    s.beat("m-a")
    s.describe()
    s.pause(1.4)
    s.describe()
    s.settle("m-a", "m-b")
    s.describe()
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
    s.settle("m-a", "m-b", rounds=1)
    s.describe()
    s.pause(1.5)
    s.settle("m-a", "m-b")
    s.describe()
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
    s.settle("m-a", rounds=2)
    s.describe()
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
    s.settle("m-b")
    s.describe()


def endpoint_without_topics(s: Streams) -> None:
    s.enter("m-a", topology(subtopology("0", "nope")), userEndpoint={"host": "h1", "port": 1})
    s.describe()
    s.enter("m-a", topology(subtopology("0", "nope")), userEndpoint={"host": "h1", "port": 1})
    s.enter("m-a", topology(subtopology("0", "nope")))
    s.enter(
        "m-b", topology(subtopology("0", "nope")), userEndpoint={"host": "h1", "port": 1}, endpointInformationEpoch=1
    )
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
    s.settle("m-a")
    s.describe()
    one, two = f"{s.group('h')}-r1", f"{s.group('h')}-r2"
    first = subtopology("0", "t1", sinks=(one,))
    second = subtopology("1", "t2", sinks=(two,))
    joined = subtopology("2", repartition=(topic(one, 4), topic(two)), copartition=(copartitioned((), (0, 1)),))
    s.enter("m-a", topology(first, second, joined), "h")
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.settle("m-a", group="h")
    s.describe("h")


def many_subtopologies(s: Streams) -> None:
    """Ids of two digits: maps iterate in the order of hash codes, records are sorted."""
    wide = topology(*(subtopology(str(number), "t1" if number % 2 else "t2") for number in range(14)))
    s.enter("m-a", wide, userEndpoint={"host": "h", "port": 1})
    s.settle("m-a", rounds=1)
    s.enter("m-b", wide)
    s.enter("m-c", wide, processId="p-m-b")
    s.settle("m-a", "m-b", "m-c")
    s.describe()
    s.leave("m-b")
    s.settle("m-a", "m-c")
    s.describe()


def transactions(s: Streams) -> None:
    """Offsets that members commit in transactions."""
    s.enter("m-a", ONE)
    epoch = s.known["g", "m-a"]["memberEpoch"]
    body: Json = {"transactionalId": f"{s.recorder.name}-tx", "transactionTimeoutMs": 60_000}
    asked = body | {"producerId": -1, "producerEpoch": -1}
    made = s.recorder.settled("p1", "InitProducerId", 4, asked)
    who = {"transactionalId": body["transactionalId"], "producerId": made["producerId"]}
    who["producerEpoch"] = made["producerEpoch"]
    for member_id, generation in (("m-a", epoch), ("m-a", epoch + 1), ("m-a", epoch - 1), ("ghost", epoch), ("", -1)):
        s.recorder.settled("p1", "AddOffsetsToTxn", 3, who | {"groupId": s.group()})
        partition = {"partitionIndex": 0, "committedOffset": 5, "committedLeaderEpoch": -1, "committedMetadata": ""}
        commit = who | {
            "groupId": s.group(),
            "generationId": generation,
            "memberId": member_id,
            "groupInstanceId": None,
            "topics": [{"name": "t1", "partitions": [partition]}],
        }
        s.send("TxnOffsetCommit", 3, commit, "p1")
        s.send("EndTxn", 3, who | {"committed": True}, "p1")
        s.pause(0.4)
    s.fetch(None)
    s.leave("m-a")
    s.delete()


def deleted_topic(s: Streams) -> None:
    """A source topic goes away."""
    both = topology(subtopology("0", "t6"), subtopology("1", "t1"))
    s.enter("m-a", both)
    s.settle("m-a", rounds=1)
    s.commit("t6", {0: 1, 1: 2}, "m-a", s.known["g", "m-a"]["memberEpoch"])
    s.commit("t1", {0: 1}, "m-a", s.known["g", "m-a"]["memberEpoch"])
    s.send("DeleteTopics", 5, {"topicNames": ["t6"], "timeoutMs": 10_000})
    s.pause(0.5)
    s.describe()
    s.beat("m-a", **s.owned("m-a"))
    s.describe()
    s.settle("m-a")
    s.describe()
    s.fetch(None)


def expiry(s: Streams) -> None:
    """Offsets that are a minute old expire unless the topology reads their topic; an empty group goes."""
    s.enter("m-a", ONE)
    epoch = s.known["g", "m-a"]["memberEpoch"]
    s.commit("t1", {0: 1}, "m-a", epoch)
    s.commit("t2", {0: 1}, "m-a", epoch)
    s.enter("m-a", ONE, "h")
    s.commit("t1", {0: 1}, "m-a", s.known["h", "m-a"]["memberEpoch"], group="h")
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
    s.enter("m-a", one, userEndpoint={"host": "h1", "port": 1})
    s.pause(INTERNAL_TOPICS_SECONDS)
    s.settle("m-a")
    s.enter("m-b", one)
    s.beat("m-a", **s.owned("m-a"))
    s.commit("t1", {0: 3}, "m-a", s.known["g", "m-a"]["memberEpoch"])
    s.enter("m-a", ONE, "h", shutdownApplication=True)
    s.settle("m-a", group="h", rounds=1)
    s.beat("m-a", "h", shutdownApplication=True)
    s.recorder.restart(s.broker)
    s.describe()
    s.describe("h")
    s.list()
    s.beat("m-a")
    s.describe()
    s.settle("m-a", "m-b", rounds=4)
    s.describe()
    s.beat("m-a", "h")
    s.fetch(None)
    s.leave("m-b")
    s.settle("m-a")
    s.describe()


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
