"""Share groups of a real broker, recorded: one client of all their APIs, scripted traces, a random walk.

``python -m tests.live.share_groups RELEASE DIRECTORY`` records the traces of ``tests/traces`` again.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from coordinator_core.coordinator.trace import Trace
from coordinator_core.groups.hashing import partition_for
from tests.live.broker import Broker, Kafka, wait_for
from tests.live.group_protocol import Connection, Definitions, Json
from tests.live.recorder import Recorder
from tests.live.test_model import GROUP_SETTINGS, JAVA_SETTINGS, ONE_THREAD, TOPICS, create_topics
from tests.recording.brokers import RELEASES
from tests.recording.session import read_definition

SETTINGS = (
    GROUP_SETTINGS
    | JAVA_SETTINGS
    | {
        "group.share.assignment.interval.ms": "0",
        "group.share.heartbeat.interval.ms": "5000",
        "group.share.session.timeout.ms": "600000",
        "group.share.max.session.timeout.ms": "600000",
    }
)
PARTITIONS = int(SETTINGS["offsets.topic.num.partitions"])
JOIN = {
    "sessionTimeoutMs": 600_000,
    "rebalanceTimeoutMs": 600_000,
    "protocolType": "consumer",
    "protocols": [{"name": "range", "metadata": "AAAAAAABAAJ0Mf////8="}],
}
CONSUMER = {
    "memberId": "m-x",
    "memberEpoch": 0,
    "instanceId": None,
    "rackId": None,
    "rebalanceTimeoutMs": 600_000,
    "subscribedTopicNames": ["t1"],
    "subscribedTopicRegex": None,
    "serverAssignor": None,
    "topicPartitions": [],
}


def share_definitions(kafka: Kafka) -> Definitions:
    """Kafka's own definitions: kafka-python has none of share groups."""

    @cache
    def find(api: str, direction: str) -> Json:
        return read_definition(kafka.jars / f"kafka-clients-{kafka.version}.jar", f"{api}{direction.capitalize()}")

    return find


class Shares:
    """The APIs of share groups in few words. Groups are named after the recording, members keep their epochs."""

    def __init__(self, recorder: Recorder, broker: Broker, definitions: Definitions) -> None:
        self.recorder = recorder
        self.epochs: dict[tuple[str, str], int] = {}
        self._broker = broker
        self._definitions = definitions
        self._watch = self._connect()

    def _connect(self) -> Connection:
        return Connection(self._broker.port, "watch", self._definitions)

    def restart(self) -> None:
        """Kill the broker and start it again."""
        self._watch.close()
        self.recorder.restart(self._broker)
        self._watch = self._connect()

    def close(self) -> None:
        self.recorder.close()
        self._watch.close()

    def group(self, name: str) -> str:
        return f"{self.recorder.name}.{name}"

    def ask(self, client: str, api: str, version: int, body: Json) -> Json:
        answer = self.recorder.send(client, api, version, body)
        assert answer is not None
        return answer

    def heartbeat(
        self,
        group: str,
        member: str,
        epoch: int | None = None,
        topics: Sequence[str] | None = None,
        rack: str | None = None,
        client: str = "c1",
    ) -> Json:
        """A heartbeat with the epoch that the member was told last. One with topics waits until they have state."""
        body = {
            "groupId": self.group(group) if group.strip() else group,
            "memberId": member,
            "memberEpoch": self.epochs.get((group, member), 0) if epoch is None else epoch,
            "rackId": rack,
            "subscribedTopicNames": topics,
        }
        answer = self.ask(client, "ShareGroupHeartbeat", 1, body)
        if answer["errorCode"] == 0 and answer["memberEpoch"] > 0:
            self.epochs[group, member] = answer["memberEpoch"]
            if topics:
                self._settled(group, topics)
        elif epoch != 0:
            self.epochs.pop((group, member), None)
        return answer

    def _settled(self, group: str, topics: Sequence[str]) -> None:
        """State is made behind the answer: the model takes a few milliseconds for it, a broker takes what it takes."""
        self.recorder.pause(0.05)
        body = {"groups": [{"groupId": self.group(group), "topics": None}]}
        wanted = {(topic, one) for topic in topics for one in range(TOPICS.get(topic, 0))} - self._deleted

        def have_state() -> bool:
            (found,) = self._watch.ask("DescribeShareGroupOffsets", 1, body)["groups"]
            return wanted <= {
                (topic["topicName"], one["partitionIndex"]) for topic in found["topics"] for one in topic["partitions"]
            }

        wait_for("the state of share-partitions", have_state)

    _deleted: frozenset[tuple[str, int]] = frozenset()

    def delete_topic(self, topic: str) -> None:
        self.ask("o", "DeleteTopics", 5, {"topicNames": [topic], "timeoutMs": 30_000})
        self._deleted = frozenset((topic, one) for one in range(TOPICS[topic]))
        self.recorder.pause(1)

    def leave(self, group: str, member: str, client: str = "c1") -> Json:
        self.epochs.pop((group, member), None)
        return self.heartbeat(group, member, -1, client=client)

    def describe(self, *groups: str, operations: bool = False) -> None:
        body = {"groupIds": [self.group(one) for one in groups], "includeAuthorizedOperations": operations}
        self.ask("o", "ShareGroupDescribe", 1, body)

    def delete(self, *groups: str) -> None:
        self.ask("o", "DeleteGroups", 2, {"groupsNames": [self.group(one) for one in groups]})

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        self.ask("o", "ListGroups", 5, {"statesFilter": list(states), "typesFilter": list(types)})

    def alter(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
        topics = [
            {
                "topicName": topic,
                "partitions": [{"partitionIndex": one, "startOffset": offset} for one, offset in partitions.items()],
            }
            for topic, partitions in offsets.items()
        ]
        self.ask("o", "AlterShareGroupOffsets", 0, {"groupId": group and self.group(group), "topics": topics})

    def offsets(self, *groups: tuple[str, Mapping[str, list[int]] | None], version: int = 1) -> None:
        body = {
            "groups": [
                {
                    "groupId": group and self.group(group),
                    "topics": None
                    if topics is None
                    else [{"topicName": topic, "partitions": found} for topic, found in topics.items()],
                }
                for group, topics in groups
            ]
        }
        self.ask("o", "DescribeShareGroupOffsets", version, body)

    def delete_offsets(self, group: str, *topics: str) -> None:
        body = {"groupId": group and self.group(group), "topics": [{"topicName": topic} for topic in topics]}
        self.ask("o", "DeleteShareGroupOffsets", 0, body)

    def commit(self, group: str, retention_ms: int = -1) -> None:
        """A commit of nobody in particular, which makes a simple group."""
        partition = {"partitionIndex": 0, "committedOffset": 3, "committedMetadata": ""}
        body = {
            "groupId": self.group(group),
            "generationIdOrMemberEpoch": -1,
            "memberId": "",
            "retentionTimeMs": retention_ms,
            "topics": [{"name": "t1", "partitions": [partition]}],
        }
        self.ask("c1", "OffsetCommit", 2, body)

    def fetch(self, *groups: str) -> None:
        """All committed offsets."""
        wanted = [{"groupId": self.group(one), "topics": None} for one in groups]
        self.ask("o", "OffsetFetch", 8, {"groups": wanted, "requireStable": False})

    def in_one_partition(self, count: int) -> list[str]:
        """Names of groups whose offsets partition is the same."""
        letters = "abcdefghijklmnop"
        names = (one + other for one in letters for other in letters)
        return [name for name in names if partition_for(self.group(name), PARTITIONS) == 2][:count]


# Scripted traces


def join_stay_leave(s: Shares) -> None:
    s.heartbeat("g", "m-a", 0, ["t1"])
    s.heartbeat("g", "m-a")
    s.heartbeat("g", "m-a")
    s.describe("g")
    s.heartbeat("g", "m-b", 0, ["t1"], rack="r1", client="c2")
    s.heartbeat("g", "m-b", client="c2")
    s.heartbeat("g", "m-a")
    s.describe("g", operations=True)
    s.list_groups()
    s.delete("g")
    s.leave("g", "m-a")
    s.describe("g")
    s.heartbeat("g", "m-b", client="c2")
    s.heartbeat("g", "m-b", client="c2")
    s.leave("g", "m-b", client="c2")
    s.describe("g")
    s.list_groups()
    s.heartbeat("g", "m-c", 0, ["t1", "t2"], client="c3")
    s.heartbeat("g", "m-c", client="c3")
    s.leave("g", "m-c", client="c3")
    s.delete("g")
    s.describe("g")
    s.list_groups()
    s.delete("g")
    s.heartbeat("g", "m-a", 0, ["t1"])
    s.heartbeat("g", "m-a")
    s.describe("g")


def errors(s: Shares) -> None:
    s.heartbeat("g", "m-a", 5)
    s.heartbeat("g", "m-a", -1)
    for group, member, epoch, topics, rack in (
        ("g", "", 0, ["t1"], None),
        ("g", " ", 0, ["t1"], None),
        ("g", "m-a", 0, None, None),
        ("g", "m-a", 0, [], None),
        ("g", "m-a", -2, ["t1"], None),
        ("", "m-a", 0, ["t1"], None),
        (" ", "m-a", 0, ["t1"], None),
        ("g", "m-a", 0, ["t1"], ""),
        ("g", "", 3, None, None),
        ("g", "", -1, None, None),
    ):
        s.heartbeat(group, member, epoch, topics, rack)
    s.describe("g", "nope")
    s.ask("o", "ShareGroupDescribe", 1, {"groupIds": ["", s.group("g")], "includeAuthorizedOperations": False})
    s.heartbeat("g", "m-a", 0, ["t1"])
    s.heartbeat("g", "m-a")
    for member, epoch in (("m-a", 4), ("m-a", 2), ("m-a", 1), ("ghost", 3), ("ghost", -1)):
        s.heartbeat("g", member, epoch)
    s.heartbeat("g", "m-a", 0, ["t1"])
    s.heartbeat("g", "m-a", 0, ["t2"])
    s.heartbeat("g", "m-a")
    s.describe("g")
    s.heartbeat("g", "m-a", -1, ["t1"])
    s.heartbeat("g", "m-a", -1)
    s.heartbeat("g", "m-a", 3)
    s.describe("g")


def subscriptions(s: Shares) -> None:
    for topics in (["t1"], None, ["t1"], ["t2", "t1"], None, None, ["t1", "t2"], ["unknown"], None):
        s.heartbeat("g", "m-a", topics=topics)
    s.describe("g")
    for topics in (["unknown", "t3"], None, [], None, ["t1", "t1", "t2"], None):
        s.heartbeat("g", "m-a", topics=topics)
    s.heartbeat("g", "m-a", rack="r2")
    s.heartbeat("g", "m-a", client="other")
    s.describe("g")
    s.heartbeat("h", "m-a", 0, ["unknown"])
    s.heartbeat("h", "m-b", 0, ["t1"])
    s.heartbeat("h", "m-b")
    s.heartbeat("h", "m-a")
    s.heartbeat("h", "m-c", 0, ["t1", "t2"])
    for member in ("m-c", "m-b", "m-a"):
        s.heartbeat("h", member)
    s.describe("h")


def many_members(s: Shares) -> None:
    members = [f"m-{letter}" for letter in "abcdefg"]
    for count, member in enumerate(members, 1):
        s.heartbeat("g", member, 0, ["t1", "t2"], client=f"c{count % 3 + 1}")
        for other in members[:count]:
            s.heartbeat("g", other)
        s.describe("g")
    for gone in ("m-b", "m-d", "m-f"):
        s.leave("g", gone)
        members.remove(gone)
        for member in members:
            s.heartbeat("g", member)
        s.describe("g")
    for member in ("m-b", "m-d", "m-f"):
        s.heartbeat("g", member, 0, ["t3"])
    for member in (*members, "m-b", "m-d", "m-f") * 2:
        s.heartbeat("g", member)
    s.describe("g")


def offsets(s: Shares) -> None:
    s.offsets(("g", {"t1": [0, 1]}), ("g", None))
    s.alter("g", {"t1": {0: 5}})
    s.delete_offsets("g", "t1")
    s.describe("g")
    s.list_groups()
    s.heartbeat("g", "m-a", 0, ["t1", "t2"])
    s.heartbeat("g", "m-a")
    s.offsets(("g", {"t1": [0, 1, 2], "t2": [0]}), ("g", None), ("g", {}))
    s.offsets(("g", None), version=0)
    s.alter("g", {"t1": {0: 5}})
    s.delete_offsets("g", "t1")
    s.leave("g", "m-a")
    s.alter("g", {"t1": {0: 5, 1: 0, 7: 3}, "t3": {0: 2}, "unknown": {0: 1}})
    s.offsets(("g", None))
    s.offsets(("g", {"t1": [0, 1, 2], "t3": [0]}))
    s.alter("g", {})
    s.alter("g", {"t1": {}})
    s.alter("g", {"t2": {0: -1, 1: -5}})
    s.offsets(("g", None))
    for topics in (["t3", "unknown", "t1"], [], ["t3"], ["unknown"]):
        s.delete_offsets("g", *topics)
        s.offsets(("g", None))
    s.describe("g")
    s.heartbeat("g", "m-b", 0, ["t1", "t2"])
    s.heartbeat("g", "m-b")
    s.offsets(("g", None), ("other", None), ("g", {"t1": [0]}))
    s.leave("g", "m-b")
    s.delete_offsets("g", "t1", "t2")
    s.offsets(("g", None))
    s.delete("g")
    s.offsets(("g", None))


def offsets_and_members(s: Shares) -> None:
    s.heartbeat("g", "m-a", 0, ["t1"])
    s.heartbeat("g", "m-a")
    s.leave("g", "m-a")
    s.alter("g", {"t2": {0: 3}})
    s.heartbeat("g", "m-a", 0, ["t2"])
    s.heartbeat("g", "m-a")
    s.heartbeat("g", "m-a", topics=["t1", "t2"])
    s.heartbeat("g", "m-a")
    s.offsets(("g", None))
    s.leave("g", "m-a")
    s.alter("g", {"t1": {1: 4}, "t2": {1: 1}})
    s.offsets(("g", None))
    s.delete("g")


def offsets_of_nothing(s: Shares) -> None:
    s.alter("g", {"unknown": {0: 1}})
    s.alter("g", {"t1": {9: 1}})
    s.describe("g")
    s.delete_offsets("h", "t1")
    s.alter("i", {})
    s.alter("j", {"t1": {}})
    s.describe("g", "h", "i", "j")
    s.list_groups()
    s.delete_offsets("j", "t1")
    s.delete("j")
    s.delete("g")
    s.heartbeat("k", "m-a", 0, ["unknown"])
    s.leave("k", "m-a")
    for topics in (["t1"], ["unknown"], []):
        s.delete_offsets("k", *topics)
    s.alter("k", {"unknown": {0: 1}})
    s.alter("k", {"t1": {0: 4}, "unknown": {0: 1}})
    s.offsets(("k", None))
    s.delete_offsets("k", "t1", "t1")
    s.offsets(("k", None))
    s.delete("k")
    s.alter("", {"t1": {0: 1}})
    s.delete_offsets("", "t1")
    s.offsets(("", None), ("g", None))
    s.offsets()
    s.offsets(("k", {"unknown": [0], "t1": [1]}), ("k", {"t1": []}))


def other_types(s: Shares) -> None:
    """A share group and requests for other types of groups, and the other way round."""
    s.commit("classic")
    s.heartbeat("classic", "m-a", 0, ["t1"])
    s.heartbeat("s", "m-a", 0, ["t1"])
    s.heartbeat("s", "m-a")
    group = {"groupId": s.group("s")}
    topics = [{"name": "t1", "partitionIndexes": [0]}]
    s.ask("c1", "JoinGroup", 1, JOIN | group | {"memberId": ""})
    s.ask("c1", "JoinGroup", 1, JOIN | group | {"memberId": "x"})
    s.commit("s")
    s.ask(
        "o",
        "OffsetFetch",
        8,
        {"groups": [group | {"topics": None}, group | {"topics": topics}], "requireStable": False},
    )
    removed = {"topics": [{"name": "t1", "partitions": [{"partitionIndex": 0}]}]}
    s.ask("o", "OffsetDelete", 0, group | removed)
    for version in (5, 6):
        s.ask("o", "DescribeGroups", version, {"groups": [s.group("s")], "includeAuthorizedOperations": False})
    s.ask("o", "ConsumerGroupDescribe", 1, {"groupIds": [s.group("s")], "includeAuthorizedOperations": False})
    s.ask("c1", "ConsumerGroupHeartbeat", 1, CONSUMER | group)
    member = {"generationId": 1, "memberId": "x", "groupInstanceId": None}
    s.ask("c1", "SyncGroup", 3, group | member | {"assignments": []})
    s.ask("c1", "Heartbeat", 3, group | member)
    s.ask("c1", "LeaveGroup", 3, group | {"members": [{"memberId": "x", "groupInstanceId": None}]})
    s.ask("c1", "ConsumerGroupHeartbeat", 1, CONSUMER | {"groupId": s.group("consumer")})
    for other in ("classic", "consumer"):
        s.heartbeat(other, "m-a", 0, ["t1"])
        s.alter(other, {"t1": {0: 1}})
        s.delete_offsets(other, "t1")
        s.offsets((other, None), (other, {"t1": [0]}))
    s.describe("consumer", "classic", "s")
    s.list_groups(types=["share"])
    s.list_groups(states=["stable"])
    s.list_groups(types=["share", "consumer"], states=["empty", "Stable"])
    s.leave("s", "m-a")
    s.ask("c1", "JoinGroup", 1, JOIN | group | {"memberId": ""})
    s.ask("c1", "ConsumerGroupHeartbeat", 1, CONSUMER | group)
    s.ask("o", "OffsetDelete", 0, group | removed)
    s.delete("s", "consumer", "classic")
    s.list_groups()


def delete_groups(s: Shares) -> None:
    """Groups of one offsets partition in one request: with state, without it, with members, of another type."""
    a, b, c, d, e, f = s.in_one_partition(6)
    for name, topics in ((a, ["t1"]), (b, ["unknown"]), (e, ["t2"]), (f, ["t2", "t1"])):
        s.heartbeat(name, "m-a", 0, topics)
        s.heartbeat(name, "m-a")
    s.alter(c, {"t1": {0: 5}})
    s.commit(d)
    for name in (a, b, f):
        s.leave(name, "m-a")
    s.describe(a, b, c, d, e, f)
    s.delete(b)
    s.delete(f, e, d, c, b, a)
    s.list_groups()
    s.offsets((a, None), (c, None))
    s.heartbeat(a, "m-a", 0, ["t1"])
    s.heartbeat(a, "m-a")
    s.delete(a)


def assignment_interval(s: Shares) -> None:
    s.heartbeat("g", "m-a", 0, ["t1"])
    s.heartbeat("g", "m-a")
    s.heartbeat("g", "m-a")
    s.describe("g")
    s.heartbeat("g", "m-b", 0, ["t1"], client="c2")
    s.heartbeat("g", "m-b", client="c2")
    s.recorder.pause(1.5)
    for member in ("m-a", "m-b", "m-a"):
        s.heartbeat("g", member)
    s.describe("g")
    s.recorder.pause(1.5)
    for topics in (["t2"], None, ["t1", "t2"], ["t1"], ["t2"]):
        s.heartbeat("g", "m-a", topics=topics)
    s.heartbeat("g", "m-b", client="c2")
    s.describe("g")
    s.recorder.pause(1.5)
    s.heartbeat("g", "m-b", client="c2")
    s.heartbeat("g", "m-a")
    s.describe("g")
    s.leave("g", "m-b", client="c2")
    s.heartbeat("g", "m-a")
    s.heartbeat("g", "m-a", 0, ["t2"])
    s.recorder.pause(1.5)
    s.heartbeat("g", "m-a")
    s.describe("g")


def session_expiry(s: Shares) -> None:
    s.heartbeat("g", "m-a", 0, ["t1"])
    s.heartbeat("g", "m-a")
    s.recorder.pause(1)
    s.heartbeat("g", "m-b", 0, ["t1"], client="c2")
    s.recorder.pause(1)
    s.heartbeat("g", "m-b", client="c2")
    s.recorder.pause(1)
    s.describe("g")
    s.heartbeat("g", "m-b", client="c2")
    s.heartbeat("g", "m-a")
    s.recorder.pause(2)
    s.describe("g")
    s.heartbeat("g", "m-b", client="c2")
    s.heartbeat("g", "m-a", 0, ["t2"])
    s.leave("g", "m-a")
    s.recorder.pause(2)
    s.describe("g")
    s.delete("g")


def sweep(s: Shares) -> None:
    """Sweeps over one offsets partition: share groups of every kind stay, what is due beside them goes."""
    live, emptied, altered, bare, soon, simple, consumer, reused = s.in_one_partition(8)
    for group, topics in ((live, ["t1"]), (emptied, ["t1"]), (bare, ["unknown"]), (reused, ["t2"])):
        s.heartbeat(group, "m-a", 0, topics)
        s.heartbeat(group, "m-a")
    for group in (emptied, bare, reused):
        s.leave(group, "m-a")
    s.alter(altered, {"t1": {0: 5}})
    s.delete(reused)
    s.ask("c1", "ConsumerGroupHeartbeat", 1, CONSUMER | {"groupId": s.group(consumer)})
    for group in (simple, consumer, reused, live, emptied):
        s.commit(group)
    s.ask("c1", "ConsumerGroupHeartbeat", 1, CONSUMER | {"groupId": s.group(consumer), "memberEpoch": -1})
    s.commit(consumer)
    s.commit(soon, retention_ms=1_000)
    everyone = (live, emptied, altered, bare, soon, simple, consumer, reused)
    s.recorder.pause(7.5)
    s.list_groups()
    s.fetch(*everyone)
    # The name is free again.
    s.heartbeat(soon, "m-a", 0, ["t1"])
    s.heartbeat(soon, "m-a")
    s.leave(soon, "m-a")
    s.recorder.pause(60)
    s.list_groups()
    s.fetch(*everyone)
    s.describe(*everyone)
    s.offsets(*((group, None) for group in everyone))
    s.heartbeat(live, "m-a")
    for group in (emptied, reused, simple):
        s.heartbeat(group, "m-b", 0, ["t1"])
        s.heartbeat(group, "m-b")
    s.delete(*everyone)
    s.list_groups()
    s.recorder.pause(6)
    s.describe(*everyone)


def max_size(s: Shares) -> None:
    for member in ("m-a", "m-b", "m-c"):
        s.heartbeat("g", member, 0, ["t1"])
    s.heartbeat("g", "m-a")
    s.heartbeat("g", "m-a", 0, ["t1"])
    s.heartbeat("g", "m-c", 4)
    s.leave("g", "m-a")
    s.heartbeat("g", "m-c", 0, ["t1"])
    s.describe("g")


def delete_topic(s: Shares) -> None:
    s.heartbeat("g", "m-a", 0, ["t1", "t3"])
    s.heartbeat("g", "m-a")
    s.heartbeat("g", "m-b", 0, ["t3"], client="c2")
    s.heartbeat("g", "m-a")
    s.heartbeat("h", "m-a", 0, ["t3"])
    s.heartbeat("h", "m-a")
    s.leave("h", "m-a")
    s.heartbeat("i", "m-a", 0, ["t2"])
    s.heartbeat("i", "m-a")
    s.delete_topic("t3")
    s.describe("g", "h")
    for group, member in (("g", "m-a"), ("g", "m-b"), ("g", "m-a"), ("i", "m-a")):
        s.heartbeat(group, member)
    s.describe("g")
    s.offsets(("g", None), ("h", None))
    s.heartbeat("h", "m-a", 0, ["t3"])
    s.describe("h")
    for group, member in (("g", "m-a"), ("g", "m-b"), ("h", "m-a")):
        s.leave(group, member)
    s.delete_offsets("g", "t3")
    s.delete("g", "h")


def reload(s: Shares) -> None:
    """The broker is killed and loads groups with members, without them, with start offsets; one was deleted."""
    for group, topics in (("g", ["t1", "t2"]), ("h", ["t1"]), ("i", ["t2"])):
        s.heartbeat(group, "m-a", 0, topics)
        s.heartbeat(group, "m-a")
    s.heartbeat("g", "m-b", 0, ["t1"])
    s.leave("h", "m-a")
    s.leave("i", "m-a")
    s.alter("h", {"t1": {1: 7}})
    s.delete("i")
    s.restart()
    s.describe("g", "h", "i")
    s.list_groups()
    s.offsets(("g", None), ("h", {"t1": [0]}))
    for member in ("m-a", "m-b", "m-a"):
        s.heartbeat("g", member)
    s.heartbeat("h", "m-c", 0, ["t1", "t3"])
    s.heartbeat("h", "m-c")
    s.leave("g", "m-b")
    s.heartbeat("g", "m-a")
    s.describe("g", "h")
    s.delete("g", "h", "i")


Scenario = Callable[[Shares], None]
PLAIN: tuple[Scenario, ...] = (
    join_stay_leave,
    errors,
    subscriptions,
    many_members,
    offsets,
    offsets_and_members,
    offsets_of_nothing,
    other_types,
    delete_groups,
)
"""Traces that can share a broker."""

OWN_BROKER: Mapping[Scenario, Mapping[str, str]] = {
    assignment_interval: {"group.share.assignment.interval.ms": "1000"},
    session_expiry: {
        "group.share.min.session.timeout.ms": "1000",
        "group.share.session.timeout.ms": "1500",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "500",
    },
    sweep: {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"},
    max_size: {"group.share.max.size": "2"},
    delete_topic: {},
    reload: {},
}


# Random walks


@dataclass
class ShareWalk:
    """Members of three groups that do what they should, and others that do not; ``seed`` decides all of it."""

    shares: Shares
    seed: int
    members: Sequence[str] = tuple(f"m-{letter}" for letter in "abcdefgh")
    groups: Sequence[str] = ("s1", "s2", "s3")
    random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def run(self, count: int) -> None:
        steps = (self.heartbeat, self.leave, self.describe, self.offsets, self.alter, self.delete_offsets, self.delete)
        while self.shares.recorder.requests < count:
            self.random.choices(steps, (70, 10, 5, 5, 4, 3, 3))[0]()
        self.shares.close()

    def _topics(self) -> list[str]:
        names = [*TOPICS, *TOPICS, "unknown"]
        return sorted({self.random.choice(names) for _ in range(self.random.randint(1, 3))})

    def _group(self) -> str:
        return self.random.choice(self.groups)

    def heartbeat(self) -> None:
        group, member = self._group(), self.random.choice(self.members)
        known = self.shares.epochs.get((group, member), 0)
        epoch = known
        if self.random.random() < 0.06:
            epoch = self.random.choice([0, known + 1, max(known - 1, 1)])
        topics = self._topics() if epoch == 0 or self.random.random() < 0.12 else None
        rack = self.random.choice(["r1", "r2"]) if self.random.random() < 0.05 else None
        client = self.random.choice(["c1", "c2"]) if self.random.random() < 0.1 else "c1"
        self.shares.heartbeat(group, member, epoch, topics, rack, client)

    def leave(self) -> None:
        joined = sorted(self.shares.epochs)
        group, member = self.random.choice(joined) if joined else (self._group(), "ghost")
        everyone = [one for one in joined if one[0] == group] if self.random.random() < 0.3 else [(group, member)]
        for one in everyone:
            self.shares.leave(*one)

    def describe(self) -> None:
        if self.random.random() < 0.3:
            self.shares.list_groups(types=self.random.choice([[], ["share"], ["classic"]]))
        else:
            self.shares.describe(*self.random.sample(self.groups, 2), operations=self.random.random() < 0.3)

    def offsets(self) -> None:
        named = {topic: [0] for topic in self._topics() if topic in TOPICS}
        self.shares.offsets((self._group(), None), (self._group(), named), version=self.random.choice([0, 1]))

    def alter(self) -> None:
        topics = {topic: {self.random.randint(0, 3): self.random.randint(0, 99)} for topic in self._topics()}
        self.shares.alter(self._group(), topics)

    def delete_offsets(self) -> None:
        self.shares.delete_offsets(self._group(), *self._topics())

    def delete(self) -> None:
        self.shares.delete(*self.random.sample(self.groups, self.random.randint(1, 3)))


# Recording


def warm_up(shares: Shares) -> None:
    """Each kind of request once: the first ones of a broker take long, and make it create topics."""
    join_stay_leave(shares)
    offsets(shares)
    shares.recorder.pause(1)


def record(kafka: Kafka, directory: Path, settings: Mapping[str, str], scripts: Mapping[str, Scenario]) -> list[Trace]:
    """Traces of one new broker: each has a recorder, and groups, of its own."""
    values = SETTINGS | dict(settings)
    broker = Broker(kafka, directory, values | ONE_THREAD | {"group.coordinator.threads": "1"})
    definitions = share_definitions(kafka)
    recorders = []
    broker.start()
    try:
        topics = create_topics(broker)
        for name, script in {"warm": warm_up, **scripts}.items():
            recorder = Recorder(
                name, broker.port, values, topics, java=True, kafka=kafka.version, definitions=definitions
            )
            shares = Shares(recorder, broker, definitions)
            script(shares)
            shares.close()
            recorders.append(recorder)
    finally:
        broker.kill()
    return [recorder.trace(broker.log_dir) for recorder in recorders[1:]]


def walks(seeds: Sequence[int], count: int) -> dict[str, Scenario]:
    return {f"share-walk-{seed}": lambda shares, seed=seed: ShareWalk(shares, seed).run(count) for seed in seeds}


def name_of(script: Scenario) -> str:
    return f"share-{script.__name__.replace('_', '-')}"


def write(trace: Trace, path: Path) -> None:
    lines = [trace.head, *(line.fields for line in trace.lines), {"variables": trace.variables}]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main(release: str, out: str, *only: str) -> None:
    kafka = RELEASES[release].fetch() if release in RELEASES else Kafka.fetch(release)
    runs: list[tuple[str, Mapping[str, str], dict[str, Scenario]]] = [
        ("scripted", {}, {name_of(script): script for script in PLAIN}),
        ("random", {}, walks((1, 2, 3, 4, 5, 6), 160)),
        *(
            ("reload" if script is reload else "scripted", settings, {name_of(script): script})
            for script, settings in OWN_BROKER.items()
        ),
    ]
    for kind, settings, scripts in runs:
        wanted = {name: script for name, script in scripts.items() if not only or name in only}
        if wanted:
            with tempfile.TemporaryDirectory() as directory:
                for trace in record(kafka, Path(directory), settings, wanted):
                    write(trace, Path(out) / kind / release / f"{trace.name}.jsonl")


if __name__ == "__main__":
    main(*sys.argv[1:])
