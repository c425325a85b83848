"""Members of streams groups (KIP-1071) on a real broker: topologies in few words, requests, what members learn."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from coordinator_core.releases import Release
from tests.live.broker import Broker, wait_for
from tests.live.group_protocol import Connection, Definitions, Json, definition
from tests.live.recorder import Recorder
from tests.recording.session import read_definition

NO_TASKS: Json = {"activeTasks": [], "standbyTasks": [], "warmupTasks": []}
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


def endpoint(host: str, port: int) -> Json:
    return {"host": host, "port": port}


def definitions(jars: Path) -> Definitions:
    """Definitions of the APIs of streams groups and of transactional commits, which 4.4 changed, from the jars of the
    broker; of the others as every recorder has them."""
    (jar,) = jars.glob("kafka-clients-*.jar")

    @cache
    def define(api: str, direction: str) -> Json:
        if api.startswith("StreamsGroup") or api == "TxnOffsetCommit":
            return read_definition(jar, f"{api}{direction.capitalize()}")
        return definition(api, direction)

    return define


class Streams:
    """What a scenario does: members of streams groups on one recorder."""

    def __init__(self, recorder: Recorder, broker: Broker) -> None:
        self.recorder = recorder
        self.broker = broker
        self.known: dict[tuple[str, str], Json] = {}
        """The newest epoch and tasks of members that used :meth:`enter` or :meth:`beat`, by group and member; of static
        ones their instance id as well."""

    def group(self, name: str = "g") -> str:
        return f"{self.recorder.name}.{name}"

    def send(self, api: str, version: int, body: Json, client: str = "o") -> Json:
        answer = self.recorder.send(client, api, version, body)
        assert answer is not None
        return answer

    def heartbeat(self, member_id: str, epoch: int, group: str = "g", version: int = 0, **fields: Any) -> Json:
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
        return self.send("StreamsGroupHeartbeat", version, body | fields, client=f"c-{member_id or 'none'}")

    def join(self, member_id: str, topology_: Json | None, group: str = "g", **fields: Any) -> Json:
        first = {"rebalanceTimeoutMs": 600_000, "processId": f"p-{member_id}", "clientTags": [], **NO_TASKS}
        return self.heartbeat(member_id, 0, group, **(first | {"topology": topology_} | fields))

    def leave(self, member_id: str, group: str = "g", epoch: int = -1, **fields: Any) -> Json:
        return self.heartbeat(member_id, epoch, group, **fields)

    def describe(self, *groups: str, operations: bool = False, version: int = 0, **fields: Any) -> Json:
        body: Json = {
            "groupIds": [self.group(one) for one in groups or ("g",)],
            "includeAuthorizedOperations": operations,
        }
        return self.send("StreamsGroupDescribe", version, body | fields)

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

    def join_classic(self, group: str = "g") -> Json:
        """A JoinGroup of a consumer."""
        body = {
            "groupId": self.group(group),
            "sessionTimeoutMs": 10_000,
            "rebalanceTimeoutMs": 10_000,
            "memberId": "",
            "groupInstanceId": None,
            "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": ""}],
            "reason": None,
        }
        return self.send("JoinGroup", 9, body)

    def begin_producer(self) -> Json:
        """A producer with transactions, as its requests name it."""
        identity = {"transactionalId": f"{self.recorder.name}-tx"}
        asked = {"transactionTimeoutMs": 60_000, "producerId": -1, "producerEpoch": -1}
        made = self.recorder.settled("p1", "InitProducerId", 4, identity | asked)
        return identity | {"producerId": made["producerId"], "producerEpoch": made["producerEpoch"]}

    def commit_in_transaction(self, producer: Json, topic_: Json, member_id: str, epoch: int, version: int = 3) -> None:
        """One offset of the topic, by name or id, in a transaction that ends well."""
        self.recorder.settled("p1", "AddOffsetsToTxn", 3, producer | {"groupId": self.group()})
        partition = {"partitionIndex": 0, "committedOffset": 5, "committedLeaderEpoch": -1, "committedMetadata": ""}
        is_renamed = Release.parse(self.broker.kafka.version) >= (4, 4)
        commit = producer | {
            "groupId": self.group(),
            "generationIdOrMemberEpoch" if is_renamed else "generationId": epoch,
            "memberId": member_id,
            "groupInstanceId": None,
            "topics": [topic_ | {"partitions": [partition]}],
        }
        self.send("TxnOffsetCommit", version, commit, "p1")
        self.send("EndTxn", 3, producer | {"committed": True}, "p1")
        self.pause(0.4)

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

    def show(self, *members: str, group: str = "g", rounds: int = 3) -> None:
        """The group once these members have settled."""
        self.settle(*members, group=group, rounds=rounds)
        self.describe(group)

    def epoch(self, member_id: str, group: str = "g") -> int:
        epoch: int = self.known.get((group, member_id), {"memberEpoch": 1})["memberEpoch"]
        return epoch

    def enter(self, member_id: str, topology_: Json | None, group: str = "g", **fields: Any) -> Json:
        answer = self.join(member_id, topology_, group, **fields)
        self._learn(member_id, group, answer, fields.get("instanceId"))
        return answer

    def beat(self, member_id: str, group: str = "g", **fields: Any) -> Json:
        """A heartbeat at the epoch that the member knows; without owned tasks unless they are given."""
        instance_id = self.known.get((group, member_id), {}).get("instanceId")
        fields = {"instanceId": instance_id} | fields
        answer = self.heartbeat(member_id, self.epoch(member_id, group), group, **fields)
        self._learn(member_id, group, answer, fields["instanceId"])
        return answer

    def owned(self, member_id: str, group: str = "g") -> Json:
        known = self.known.get((group, member_id), NO_TASKS)
        return {name: known[name] for name in NO_TASKS}

    def _learn(self, member_id: str, group: str, answer: Json, instance_id: str | None) -> None:
        if answer["errorCode"]:
            return
        old = self.known.get((group, member_id), NO_TASKS)
        tasks_ = {name: old[name] if answer[name] is None else answer[name] for name in NO_TASKS}
        self.known[group, member_id] = {"memberEpoch": answer["memberEpoch"], "instanceId": instance_id, **tasks_}
