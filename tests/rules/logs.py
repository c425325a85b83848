"""Small offsets logs for rules: a healthy group, and the records from which faults are made."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.records.blobs import encode_consumer_assignment
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.releases import profile_for_release
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import Reconciliation, evaluate
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.needs import Need
from coordinator_core.rules.settings import settings_from
from coordinator_core.rules.topics import read_topics
from coordinator_core.rules.transaction_log import read_transaction_log
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run, open_run
from tests.blobs import encode_consumer_subscription
from tests.log.builders import NOW_MS, build_batch, build_control_batch, write_partition

Record = tuple[bytes | None, bytes | None]

TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAg"
OTHER_TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAw"


def commit(
    group: str = "g",
    topic: str = "t",
    partition: int = 0,
    *,
    offset: int = 50,
    version: int = 4,
    key_type: int = 1,
    leader_epoch: int = 0,
    metadata: str = "",
    time_ms: int = NOW_MS,
    **more: Any,
) -> Record:
    value: dict[str, Any] = {"offset": offset, "metadata": metadata, "commitTimestamp": time_ms}
    if version >= 3:
        value["leaderEpoch"] = leader_epoch
    return (
        encode_key(key_type, {"group": group, "topic": topic, "partition": partition}),
        encode_value(1, version, value | more),
    )


def offset_tombstone(group: str = "g", topic: str = "t", partition: int = 0) -> Record:
    return encode_key(1, {"group": group, "topic": topic, "partition": partition}), None


def subscription(*topics: str, **owned_at_join: Sequence[int]) -> bytes:
    value = {"topics": list(topics), "userData": None, "ownedPartitions": _partitions(owned_at_join)}
    return encode_consumer_subscription(1, value)


def assignment(**topics: Sequence[int]) -> bytes:
    return encode_consumer_assignment(1, {"assignedPartitions": _partitions(topics), "userData": None})


def _partitions(topics: dict[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": list(numbers)} for topic, numbers in topics.items()]


def member(
    member_id: str = "m",
    *,
    subscribes: bytes | None = None,
    owns: bytes | None = None,
    instance: str | None = None,
) -> dict[str, Any]:
    return {
        "memberId": member_id,
        "groupInstanceId": instance,
        "clientId": "c",
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": subscription("t") if subscribes is None else subscribes,
        "assignment": assignment(t=[0]) if owns is None else owns,
    }


def classic(group: str = "g", *members: dict[str, Any], **more: Any) -> Record:
    """A classic group of consumers: of one member that owns ``t-0``, or of ``members``."""
    listed = list(members) or [member()]
    value = {
        "protocolType": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": listed[0]["memberId"],
        "currentStateTimestamp": NOW_MS,
        "members": listed,
    }
    return encode_key(2, {"group": group}), encode_value(2, 3, value | more)


def empty_group(group: str = "g", **more: Any) -> Record:
    value = {
        "protocolType": "consumer",
        "generation": 4,
        "protocol": None,
        "leader": None,
        "currentStateTimestamp": NOW_MS,
        "members": [],
    }
    return encode_key(2, {"group": group}), encode_value(2, 3, value | more)


def _of_member(group: str, member_id: str) -> dict[str, str]:
    return {"groupId": group, "memberId": member_id}


def owned(partitions: dict[str, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"topicId": topic, "partitions": list(numbers)} for topic, numbers in partitions.items()]


def consumer_group(group: str = "g", *, epoch: int = 5, assignment_epoch: int = 5) -> list[Record]:
    """Records of a KIP-848 group, without members."""
    return [
        (encode_key(3, {"groupId": group}), encode_value(3, 0, {"epoch": epoch, "metadataHash": 7})),
        (encode_key(6, {"groupId": group}), encode_value(6, 0, {"assignmentEpoch": assignment_epoch})),
    ]


def consumer_member(
    group: str = "g",
    member_id: str = "m",
    *,
    owns: dict[str, Sequence[int]] | None = None,
    epoch: int = 5,
    parts: str = "member target current",
    **more: Any,
) -> list[Record]:
    """Records of a KIP-848 member that owns partition 0 of the topic ``t``."""
    owns = {TOPIC_ID: [0]} if owns is None else owns
    described = {
        "instanceId": None,
        "rackId": None,
        "clientId": "c",
        "clientHost": "/127.0.0.1",
        "subscribedTopicNames": ["t"],
        "subscribedTopicRegex": None,
        "rebalanceTimeoutMs": 300_000,
        "serverAssignor": "uniform",
    } | more
    current = {
        "memberEpoch": epoch,
        "previousMemberEpoch": epoch - 1,
        "state": 0,
        "assignedPartitions": owned(owns),
        "partitionsPendingRevocation": [],
    }
    key = _of_member(group, member_id)
    records: dict[str, Record] = {
        "member": (encode_key(5, key), encode_value(5, 0, described)),
        "target": (encode_key(7, key), encode_value(7, 0, {"topicPartitions": owned(owns)})),
        "current": (encode_key(8, key), encode_value(8, 0, current)),
    }
    return [records[part] for part in parts.split()]


def share_group(group: str, *, epoch: int = 2) -> list[Record]:
    return [
        (encode_key(11, {"groupId": group}), encode_value(11, 0, {"epoch": epoch, "metadataHash": 7})),
        (encode_key(12, {"groupId": group}), encode_value(12, 0, {"assignmentEpoch": 2})),
    ]


def streams_group(group: str) -> list[Record]:
    """A streams group whose member has a task."""
    key, member_key = {"groupId": group}, _of_member(group, "m")
    subtopology = {"subtopologyId": "0", "sourceTopics": ["t"]}
    lists = ("sourceTopicRegex", "stateChangelogTopics", "repartitionSinkTopics", "repartitionSourceTopics")
    subtopology |= {name: [] for name in (*lists, "copartitionGroups")}
    described = dict.fromkeys(("instanceId", "rackId", "userEndpoint"))
    described |= {"clientId": "c", "clientHost": "/127.0.0.1", "processId": "p", "clientTags": []}
    tasks = ("activeTasks", "standbyTasks", "warmupTasks")
    owned_tasks: dict[str, Any] = {name: [] for name in tasks} | {
        "activeTasks": [{"subtopologyId": "0", "partitions": [0]}]
    }
    current = owned_tasks | {f"{name}PendingRevocation": [] for name in tasks}
    return [
        (
            encode_key(19, member_key),
            encode_value(19, 0, described | {"rebalanceTimeoutMs": 300_000, "topologyEpoch": 0}),
        ),
        (encode_key(17, key), encode_value(17, 0, {"epoch": 3, "metadataHash": 0, "validatedTopologyEpoch": 0})),
        (encode_key(23, key), encode_value(23, 0, {"epoch": 0, "subtopologies": [subtopology]})),
        (encode_key(21, member_key), encode_value(21, 0, owned_tasks)),
        (encode_key(20, key), encode_value(20, 0, {"assignmentEpoch": 3})),
        (
            encode_key(22, member_key),
            encode_value(22, 0, current | {"memberEpoch": 3, "previousMemberEpoch": 2, "state": 1}),
        ),
    ]


def transaction(transactional_id: str, producer_id: int, *, state: int = 1, epoch: int = 0) -> Record:
    """A record of ``__transaction_state``, value version 0, without partitions; state 1 is Ongoing."""
    name = transactional_id.encode()
    value = struct.pack(">hqhibiqq", 0, producer_id, epoch, 60_000, state, -1, NOW_MS, NOW_MS)
    return struct.pack(">hh", 0, len(name)) + name, value


HEALTHY = [classic(), commit()]
"""One group whose member owns ``t-0`` and has committed it."""

OFFSETS: dict[str, Any] = {
    "name": "__consumer_offsets",
    "topic_id": None,
    "config": {"cleanup.policy": "compact", "min.insync.replicas": "2"},
    "partitions": [
        {
            "partition": number,
            "leader": number % 3,
            "leader_epoch": 1,
            "replicas": [number % 3, (number + 1) % 3, (number + 2) % 3],
            "isr": [0, 1, 2],
            "start_offset": 0,
            "end_offset": 2,
        }
        for number in range(3)
    ],
}
"""The offsets topic of a cluster of three brokers in two racks, as ``topics.json`` has it."""

TOPICS: dict[str, Any] = {
    "captured_at_ms": NOW_MS,
    "brokers": [{"broker_id": number, "rack": "ab"[number % 2], "config": {}} for number in range(3)],
    "topics": [
        {
            "name": "t",
            "topic_id": TOPIC_ID,
            "partitions": [
                {
                    "partition": 0,
                    "start_offset": 10,
                    "end_offset": 100,
                    "leader_epoch": 0,
                    "oldest_leader_epoch": 0,
                    "first_record_ms": None,
                }
            ],
        },
        OFFSETS,
    ],
}


def topic(name: str, *, partitions: int = 1, start: int = 0, end: int = 100, topic_id: str | None = None) -> Any:
    return {
        "name": name,
        "topic_id": topic_id,
        "partitions": [{"partition": number, "start_offset": start, "end_offset": end} for number in range(partitions)],
    }


def log_of(*parts: Record | bytes | list[Record], time_ms: int = NOW_MS, base_offset: int = 0) -> bytes:
    """A segment: each record, or list of records, is a batch; bytes are a batch already.

    Their base offsets are set here.
    """
    out = bytearray()
    offset = base_offset
    for part in parts:
        if isinstance(part, bytes):
            count = int.from_bytes(part[23:27], "big") + 1
            batch = part
        else:
            records = part if isinstance(part, list) else [part]
            count = len(records)
            batch = build_batch(0, records, timestamp=time_ms)
        out += offset.to_bytes(8, "big") + batch[8:]
        offset += count
    return bytes(out)


def pending(*records: Record, producer_id: int = 7, time_ms: int = NOW_MS) -> bytes:
    """A transactional batch whose marker is still to come."""
    return build_batch(0, list(records), producer_id=producer_id, transactional=True, timestamp=time_ms)


def marker(control_type: int, *, producer_id: int = 7) -> bytes:
    return build_control_batch(0, control_type, producer_id=producer_id)


@dataclass(frozen=True)
class Log:
    """A log and how to look at it. ``partitions`` are its segments by offsets partition and base offset."""

    partitions: dict[int, bytes | dict[int, bytes]]
    release: str = "4.3.1"
    coordinator: str | None = None
    now_ms: int = NOW_MS + 1_000
    num_partitions: int = 1
    on_damage: OnDamage = OnDamage.FAIL
    topics: dict[str, Any] | None = None
    previous: Log | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    scanned: bool = False
    going: dict[str, int] | None = None
    """Producers, by transactional id, of which the transaction log says that a transaction is going on."""

    cleaned_offset: int | None = None
    """Entry of offsets partition 0 in the checkpoint of the broker's cleaner."""

    log_start_offset: int | None = None
    """Entry of offsets partition 0 in the checkpoint of log start offsets."""

    def publish(self, directory: Path) -> Run:
        """Replay this log and publish it as a run in ``directory``."""
        for number, data in self.partitions.items():
            segments = {0: data} if isinstance(data, bytes) else data
            write_partition(directory / "log", segments, partition=number)
        for name, offset in (
            ("cleaner-offset-checkpoint", self.cleaned_offset),
            ("log-start-offset-checkpoint", self.log_start_offset),
        ):
            if offset is not None:
                (directory / "log" / name).write_text(f"0\n1\n__consumer_offsets 0 {offset}\n")
        place = RunPlace(str(directory / "runs"), "c", "w", "r")
        replay_to_run(
            discover([str(directory / "log")]),
            place,
            profile=profile_for_release(self.release, self.coordinator),
            now_ms=self.now_ms,
            on_damage=self.on_damage,
            offsets_topic_num_partitions=self.num_partitions,
        )
        return open_run(place.path)

    def facts(self, directory: Path) -> Facts:
        """Everything there is to know, in files below ``directory``."""
        run = self.publish(directory / "now")
        topics = None
        if self.topics is not None:
            path = directory / "topics.json"
            path.write_text(json.dumps(self.topics))
            topics = read_topics(str(path))
        previous = None if self.previous is None else self.previous.facts(directory / "before")
        facts = Facts(run, topics, previous)
        if self.scanned:
            facts.extra[Need.LOG] = (str(directory / "now" / "log"),)
        if self.going is not None:
            write_partition(
                directory / "other",
                {0: log_of([transaction(name, producer) for name, producer in self.going.items()])},
                topic="__transaction_state",
            )
            facts.extra[Need.TRANSACTION_LOG] = read_transaction_log(str(directory / "other"))
        return facts

    def reconcile(self, directory: Path) -> Reconciliation:
        return evaluate(self.facts(directory), settings_from(self.settings, RULES))


def one(*parts: Record | bytes | list[Record], **more: Any) -> Log:
    """A log of one offsets partition."""
    return Log({0: log_of(*parts)}, **more)
