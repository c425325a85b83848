"""A seeded random walk over the group APIs: members that do what they should, and others that do not."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from typing import Any

from coordinator_core.records.blobs import encode_consumer_assignment
from tests.blobs import encode_consumer_subscription
from tests.live.group_protocol import Json
from tests.live.recorder import Recorder

CLIENTS = ("c1", "c2", "c3", "c4", "c5")
OBSERVER, PRODUCERS = "o", ("p1", "p2")
TIMEOUT_MS = 600_000
INSTANCES = ("i1", "i2")
COMMIT_NAMES = ("t1", "t1", "t2", "t3", "unknown")
UNKNOWN_TOPIC_ID = "unknown-topic-id-AAAAA"

NEWEST = {
    False: {"OffsetCommit": 9, "OffsetFetch": 9, "TxnOffsetCommit": 3, "DescribeGroups": 5},
    True: {"OffsetCommit": 10, "OffsetFetch": 10, "TxnOffsetCommit": 3, "DescribeGroups": 6},
}


@dataclass
class Known:
    """A client's knowledge of a membership."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int = -1
    protocol: str = "range"
    members: list[str] = field(default_factory=list)
    leads: bool = False
    owned: Any = None


def _blob(topics: list[str]) -> str:
    data = {"topics": topics, "userData": None, "ownedPartitions": []}
    return base64.b64encode(encode_consumer_subscription(1, data)).decode()


def _assignment(topic: str, partition: int) -> str:
    data = {"assignedPartitions": [{"topic": topic, "partitions": [partition]}], "userData": None}
    return base64.b64encode(encode_consumer_assignment(1, data)).decode()


class Walk:
    """Sends ``count`` requests; everything it chooses comes from ``seed``."""

    def __init__(self, recorder: Recorder, seed: int, *, java: bool) -> None:
        self.recorder = recorder
        self.random = random.Random(seed)
        self.java = java
        self.groups = [f"{recorder.name}.g{number}" for number in range(1, 5)]
        self.consumer_groups = [f"{recorder.name}.cg{number}" for number in range(1, 3)] if java else []
        self.known: list[Known] = []
        self.consumers: dict[tuple[str, str], Known] = {}
        self.joining: dict[str, tuple[str, str | None]] = {}
        self.transactions: dict[str, tuple[int, int, bool]] = {}
        self.steps: list[tuple[int, Any]] = [
            (24, self.join),
            (20, self.sync),
            (10, self.heartbeat),
            (5, self.leave),
            (13, self.commit),
            (8, self.fetch),
            (3, self.delete_offsets),
            (3, self.delete_groups),
            (6, self.describe),
            (2, self.list_groups),
            (6, self.transaction),
            *([(16, self.consumer_heartbeat), (4, self.describe_consumer)] if java else []),
        ]

    def run(self, count: int) -> None:
        weights, steps = zip(*self.steps, strict=True)
        while self.recorder.requests < count:
            self.random.choices(steps, weights)[0]()
        self.recorder.close()

    # Choices

    def _client(self) -> str:
        """A client that does not wait; when all do, one gives up."""
        self.recorder.poll()
        self._learn()
        free = [client for client in CLIENTS if not self.recorder.is_waiting(client)]
        if len(free) < 2:
            client = self.random.choice([one for one in CLIENTS if one not in free])
            self.recorder.drop(client)
            self.joining.pop(client, None)
            free.append(client)
        return self.random.choice(free)

    def _any_group(self) -> str:
        return self.random.choice([*self.groups, *self.consumer_groups])

    def _version(self, api: str, oldest: int, newest: int) -> int:
        return self.random.randint(oldest, NEWEST[self.java].get(api, newest))

    def _member(self) -> Known:
        """Mostly one that is known, sometimes with something wrong about it."""
        choice = self.random.random()
        if not self.known or choice < 0.06:
            instance = self.random.choice([None, None, "i3"])
            return Known(self._any_group(), self.random.choice(["ghost", ""]), instance, 1)
        one = self.random.choice(self.known[-8:])
        if choice < 0.12:
            return Known(one.group_id, one.member_id, one.instance_id, one.generation + 1, one.protocol)
        if choice < 0.16:
            return Known(self._any_group(), one.member_id, one.instance_id, one.generation, one.protocol)
        if choice < 0.19:
            return Known(one.group_id, one.member_id, self.random.choice(INSTANCES), one.generation)
        return one

    def _protocols(self) -> list[Json]:
        names = self.random.choice([["range"], ["range"], ["range", "sticky"], ["sticky", "range"], ["sticky"]])
        blob = _blob(self.random.choice([["t1"], ["t1"], ["t1"], ["t1", "t2"]]))
        return [{"name": name, "metadata": blob} for name in names]

    # Members

    def _learn(self) -> None:
        """Joins that waited and were answered meanwhile."""
        for client, (group_id, instance_id) in list(self.joining.items()):
            if not self.recorder.is_waiting(client):
                answer = self.recorder.answer_of(self.recorder.last_request(client))
                del self.joining[client]
                if answer is not None:
                    self._joined(group_id, instance_id, answer)

    def _joined(self, group_id: str, instance_id: str | None, answer: Json) -> None:
        if answer["errorCode"] not in (0, 79):
            return
        self.known = [
            one
            for one in self.known
            if (one.group_id, one.member_id) != (group_id, answer["memberId"])
            and (instance_id is None or (one.group_id, one.instance_id) != (group_id, instance_id))
        ]
        self.known.append(
            Known(
                group_id,
                answer["memberId"],
                instance_id,
                answer["generationId"],
                answer["protocolName"] or "range",
                [one["memberId"] for one in answer["members"]],
                answer["leader"] == answer["memberId"],
            )
        )

    def join(self) -> None:
        client = self._client()
        version = self._version("JoinGroup", 0, 9)
        one: Known | None = self._member() if self.random.random() < 0.6 else None
        group_id = one.group_id if one else self._any_group()
        if self.consumer_groups and group_id in self.consumer_groups and self.random.random() < 0.7:
            group_id = self.random.choice(self.groups)
        instance_id = one.instance_id if one else self.random.choice([None, None, None, *INSTANCES])
        if version < 5:
            instance_id = None
        body = {
            "groupId": group_id,
            "sessionTimeoutMs": 1 if self.random.random() < 0.02 else TIMEOUT_MS,
            "rebalanceTimeoutMs": TIMEOUT_MS,
            "memberId": one.member_id if one else "",
            "groupInstanceId": instance_id,
            "protocolType": "" if self.random.random() < 0.02 else "consumer",
            "protocols": [] if self.random.random() < 0.02 else self._protocols(),
            "reason": None,
        }
        answer = self.recorder.send(client, "JoinGroup", version, _fields("JoinGroup", version, body))
        if answer is None:
            self.joining[client] = (group_id, instance_id)
        else:
            self._joined(group_id, instance_id, _whole(answer))

    def sync(self) -> None:
        client = self._client()
        one = self._member()
        version = self._version("SyncGroup", 3 if one.instance_id else 0, 5)
        members = one.members or [one.member_id]
        assigned = [
            {"memberId": member, "assignment": _assignment("t1", index % 3)}
            for index, member in enumerate(members)
            if self.random.random() < 0.95
        ]
        body = {
            "groupId": one.group_id,
            "generationId": one.generation,
            "memberId": one.member_id,
            "groupInstanceId": one.instance_id,
            "protocolType": None if self.random.random() < 0.03 else "consumer",
            "protocolName": "other" if self.random.random() < 0.03 else one.protocol,
            "assignments": assigned if one.leads else [],
        }
        self.recorder.send(client, "SyncGroup", version, _fields("SyncGroup", version, body))

    def heartbeat(self) -> None:
        one = self._member()
        version = self._version("Heartbeat", 3 if one.instance_id else 0, 4)
        body = {
            "groupId": one.group_id,
            "generationId": one.generation,
            "memberId": one.member_id,
            "groupInstanceId": one.instance_id,
        }
        self.recorder.send(self._client(), "Heartbeat", version, _fields("Heartbeat", version, body))

    def leave(self) -> None:
        one = self._member()
        version = self._version("LeaveGroup", 3 if one.instance_id else 0, 5)
        identity = {"memberId": one.member_id, "groupInstanceId": one.instance_id, "reason": None}
        members = [identity]
        if self.random.random() < 0.3:
            other = self._member()
            by_instance = self.random.random() < 0.5 and other.instance_id is not None
            member_id = "" if by_instance else other.member_id
            members.append({"memberId": member_id, "groupInstanceId": other.instance_id, "reason": None})
        keys = ("memberId", "groupInstanceId", "reason") if version >= 5 else ("memberId", "groupInstanceId")
        body = {
            "groupId": one.group_id,
            "memberId": one.member_id,
            "members": [{key: member[key] for key in keys} for member in members],
        }
        self.recorder.send(self._client(), "LeaveGroup", version, _fields("LeaveGroup", version, body))

    def consumer_heartbeat(self) -> None:
        """Literal ids: the assignors' order does not hang on chance then."""
        group_id = self.random.choice([*self.consumer_groups, *self.consumer_groups, *self.groups])
        member_id = self.random.choice(["m-a", "m-b", "m-c", "m-s", "m-t"])
        instance_id = "i9" if member_id in ("m-s", "m-t") else None
        one = self.consumers.get((group_id, member_id))
        epoch = one.generation if one else 0
        if self.random.random() < 0.06:
            epoch = self.random.choice([-1, 0, epoch + 1, max(epoch - 1, 1)])
        joins = epoch == 0
        leaves = self.random.random() < 0.1 and one is not None
        leave_epoch = -2 if instance_id and self.random.random() < 0.6 else -1
        topics = self.random.choice([["t1"], ["t1"], ["t1", "t2"], ["t2"]])
        owned = one.owned if one and self.random.random() < 0.8 else None
        body = {
            "groupId": group_id,
            "memberId": member_id,
            "memberEpoch": leave_epoch if leaves else epoch,
            "instanceId": instance_id,
            "rackId": None,
            "rebalanceTimeoutMs": TIMEOUT_MS if joins else -1,
            "subscribedTopicNames": topics if joins or self.random.random() < 0.1 else None,
            "subscribedTopicRegex": None,
            "serverAssignor": self.random.choice(["range", "uniform"]) if self.random.random() < 0.1 else None,
            "topicPartitions": [] if joins else None if leaves else owned,
        }
        answer = self.recorder.send(self._client(), "ConsumerGroupHeartbeat", 1, body)
        assert answer is not None
        if answer["errorCode"] or leaves:
            self.consumers.pop((group_id, member_id), None)
            return
        assigned = answer["assignment"]
        before = one.owned if one else []
        self.consumers[group_id, member_id] = Known(
            group_id,
            member_id,
            None,
            answer["memberEpoch"],
            owned=before if assigned is None else assigned["topicPartitions"],
        )

    # Offsets

    def _topics(self) -> list[Json]:
        names = sorted({self.random.choice(COMMIT_NAMES) for _ in range(self.random.randint(1, 3))})
        return [
            {
                "name": name,
                "partitions": [
                    {
                        "partitionIndex": partition,
                        "committedOffset": self.random.randint(0, 99),
                        "committedLeaderEpoch": self.random.choice([-1, 0, 3]),
                        "committedMetadata": self.random.choice(["", "", "note", None, "x" * 65]),
                    }
                    for partition in sorted(self.random.sample(range(4), self.random.randint(1, 3)))
                ],
            }
            for name in names
        ]

    def _by_id(self, topics: list[Json]) -> list[Json]:
        """Topics named by their ids, as from version 10 on."""
        ids = self.recorder.topic_ids
        return [
            {"topicId": ids.get(topic["name"], UNKNOWN_TOPIC_ID)}
            | {name: value for name, value in topic.items() if name != "name"}
            for topic in topics
        ]

    def commit(self) -> None:
        one = self._member()
        if self.random.random() < 0.35:
            one = Known(self._any_group(), "", None, -1)
        elif self.java and self.consumers and self.random.random() < 0.3:
            one = self.random.choice(list(self.consumers.values()))
        version = self._version("OffsetCommit", 7 if one.instance_id else 2, 9)
        topics = self._topics()
        if version < 6:
            for topic in topics:
                for partition in topic["partitions"]:
                    del partition["committedLeaderEpoch"]
        body = {
            "groupId": one.group_id,
            "generationIdOrMemberEpoch": one.generation,
            "memberId": one.member_id,
            "groupInstanceId": one.instance_id,
            "retentionTimeMs": self.random.choice([-1, -1, 3_600_000]),
            "topics": self._by_id(topics) if version >= 10 else topics,
        }
        self.recorder.send(self._client(), "OffsetCommit", version, _fields("OffsetCommit", version, body))

    def fetch(self) -> None:
        version = self._version("OffsetFetch", 1, 9)
        wanted = [{"name": name, "partitionIndexes": [0, 1, 3]} for name in ("t2", "t1", "unknown")]
        everything = version >= 2 and self.random.random() < 0.4
        group = {
            "groupId": self._any_group(),
            "memberId": None,
            "memberEpoch": -1,
            "topics": None if everything else self._by_id(wanted) if version >= 10 else wanted,
        }
        if self.java and self.consumers and version >= 9 and self.random.random() < 0.5:
            one = self.random.choice(list(self.consumers.values()))
            group |= {"groupId": one.group_id, "memberId": one.member_id, "memberEpoch": one.generation}
        if version < 9:
            group = {name: group[name] for name in ("groupId", "topics")}
        body = group | {"groups": [group], "requireStable": self.random.random() < 0.5}
        self.recorder.send(self._client(), "OffsetFetch", version, _fields("OffsetFetch", version, body))

    def delete_offsets(self) -> None:
        topics = [
            {"name": name, "partitions": [{"partitionIndex": partition} for partition in (0, 1)]}
            for name in self.random.sample(["t1", "t2", "unknown"], 2)
        ]
        self.recorder.send(OBSERVER, "OffsetDelete", 0, {"groupId": self._any_group(), "topics": topics})

    def delete_groups(self) -> None:
        names = self.random.sample([*self.groups, *self.consumer_groups], self.random.randint(1, 2))
        self.recorder.send(OBSERVER, "DeleteGroups", 2, {"groupsNames": names})

    # Questions

    def describe(self) -> None:
        version = self._version("DescribeGroups", 0, 6)
        body = {"groups": [self._any_group()], "includeAuthorizedOperations": False}
        self.recorder.send(OBSERVER, "DescribeGroups", version, _fields("DescribeGroups", version, body))

    def describe_consumer(self) -> None:
        body = {"groupIds": [self._any_group()], "includeAuthorizedOperations": False}
        self.recorder.send(OBSERVER, "ConsumerGroupDescribe", self._version("ConsumerGroupDescribe", 0, 1), body)

    def list_groups(self) -> None:
        states = self.random.choice([[], [], ["Stable"], ["empty", "PreparingRebalance"], ["Assigning"]])
        types = self.random.choice([[], [], ["classic"], ["Consumer"]])
        self.recorder.send(OBSERVER, "ListGroups", 5, {"statesFilter": states, "typesFilter": types})

    # Transactions

    def transaction(self) -> None:
        producer = self.random.choice(PRODUCERS)
        transactional_id = f"{self.recorder.name}.{producer}"
        if producer not in self.transactions or self.random.random() < 0.05:
            self._init(producer, transactional_id)
            return
        producer_id, epoch, is_open = self.transactions[producer]
        who = {"transactionalId": transactional_id, "producerId": producer_id, "producerEpoch": epoch}
        group_id = self._any_group()
        if self.random.random() < (0.3 if is_open else 0.08):
            end = who | {"committed": self.random.random() < 0.6}
            for _ in range(2):
                # The second answer waits for the markers.
                self.recorder.settled(producer, "EndTxn", 3, end)
            self.transactions[producer] = (producer_id, epoch, False)
            return
        if self.random.random() < 0.95:
            self.recorder.settled(producer, "AddOffsetsToTxn", 3, who | {"groupId": group_id})
            self.transactions[producer] = (producer_id, epoch, True)
        topics = self._topics()
        one = self._member()
        if self.random.random() < 0.7:
            one = Known(group_id, "", None, -1)
        body = {
            "groupId": group_id,
            "generationId": one.generation,
            "memberId": one.member_id,
            "groupInstanceId": one.instance_id,
            "topics": topics,
        }
        self.recorder.send(producer, "TxnOffsetCommit", 3, who | body)

    def _init(self, producer: str, transactional_id: str) -> None:
        body = {
            "transactionalId": transactional_id,
            "transactionTimeoutMs": 60_000,
            "producerId": -1,
            "producerEpoch": -1,
        }
        answer = self.recorder.settled(producer, "InitProducerId", 4, body)
        self.transactions[producer] = (answer["producerId"], answer["producerEpoch"], False)


_ONLY: dict[str, dict[str, tuple[int, int]]] = {
    "JoinGroup": {"rebalanceTimeoutMs": (1, 99), "groupInstanceId": (5, 99), "reason": (8, 99)},
    "SyncGroup": {"groupInstanceId": (3, 99), "protocolType": (5, 99), "protocolName": (5, 99)},
    "Heartbeat": {"groupInstanceId": (3, 99)},
    "LeaveGroup": {"memberId": (0, 2), "members": (3, 99)},
    "OffsetCommit": {"groupInstanceId": (7, 99), "retentionTimeMs": (2, 4)},
    "OffsetFetch": {
        "groupId": (0, 7),
        "topics": (0, 7),
        "memberId": (99, 99),
        "memberEpoch": (99, 99),
        "groups": (8, 99),
        "requireStable": (7, 99),
    },
    "DescribeGroups": {"includeAuthorizedOperations": (3, 99)},
}


def _fields(api: str, version: int, body: Json) -> Json:
    """The fields that the version has."""
    ranges = _ONLY.get(api, {})
    return {
        name: value
        for name, value in body.items()
        if ranges.get(name, (0, 99))[0] <= version <= ranges.get(name, (0, 99))[1]
    }


def _whole(answer: Json) -> Json:
    return {"protocolName": None, "members": []} | answer
