"""Group records of a generated log: classic groups, and groups of KIP-848 with their members."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from coordinator_core.records.codec import encode_key, encode_value
from tests.log.builders import build_batch

SESSION_TIMEOUT_MS = 1_800_000
"""The most that a broker allows: one that loads the log must not write into it for want of heartbeats."""

Record = tuple[bytes, bytes]


def classic_group(group: str, topic: str, *, generation: int, members: int, now_ms: int) -> bytes:
    """The record that ends a rebalance of a classic group, in a batch of its own."""
    name = topic.encode()
    subscription = struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">ii", -1, 0)

    def assignment(member: int) -> bytes:
        return struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">iii", 1, member, -1)

    value = {
        "protocolType": "consumer",
        "generation": generation,
        "protocol": "range" if members else None,
        "leader": _member_id(group, 0) if members else None,
        "currentStateTimestamp": now_ms,
        "members": [
            {
                "memberId": _member_id(group, member),
                "groupInstanceId": None,
                "clientId": f"consumer-{member}",
                "clientHost": "/10.0.0.1",
                "rebalanceTimeout": 300_000,
                "sessionTimeout": SESSION_TIMEOUT_MS,
                "subscription": subscription,
                "assignment": assignment(member),
            }
            for member in range(members)
        ],
    }
    return _batch([(encode_key(2, {"group": group}), encode_value(2, 3, value))], now_ms)


def consumer_group(group: str, topic: str, topic_id: str, *, epoch: int, members: int, now_ms: int) -> bytes:
    """All records of a KIP-848 group at ``epoch``, each member owning one partition."""

    def key(key_type: int, **fields: str) -> bytes:
        return encode_key(key_type, {"groupId": group, **fields})

    def records() -> Iterator[Record]:
        ids = [_member_id(group, member) for member in range(members)]
        for member, member_id in enumerate(ids):
            described: dict[str, Any] = {
                "instanceId": None,
                "rackId": None,
                "clientId": f"consumer-{member}",
                "clientHost": "/10.0.0.1",
                "subscribedTopicNames": [topic],
                "subscribedTopicRegex": None,
                "rebalanceTimeoutMs": 300_000,
                "serverAssignor": None,
                "classicMemberMetadata": None,
            }
            yield key(5, memberId=member_id), encode_value(5, 0, described)
        yield key(3), encode_value(3, 0, {"epoch": epoch, "metadataHash": 0})
        for member, member_id in enumerate(ids):
            target = {"topicPartitions": [{"topicId": topic_id, "partitions": [member]}]}
            yield key(7, memberId=member_id), encode_value(7, 0, target)
        yield key(6), encode_value(6, 0, {"assignmentEpoch": epoch, "assignmentTimestamp": 0})
        for member, member_id in enumerate(ids):
            owned = {"topicId": topic_id, "partitions": [member], "assignmentEpochs": None}
            current = {
                "memberEpoch": epoch,
                "previousMemberEpoch": epoch - 1,
                "state": 0,
                "assignedPartitions": [owned],
                "partitionsPendingRevocation": [],
            }
            yield key(8, memberId=member_id), encode_value(8, 0, current)

    return _batch(list(records()), now_ms)


def _member_id(group: str, member: int) -> str:
    return f"consumer-{member}-{len(group):08}-0000-4000-8000-{member:012}"


def _batch(records: list[Record], now_ms: int) -> bytes:
    return build_batch(0, records, base_sequence=0, timestamp=now_ms)
