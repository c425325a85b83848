"""Brokers, and who holds which partition: ``topology.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker at the listener that answered us. ``rack`` is ``None`` where none is configured."""

    broker_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as a broker's metadata has it. ``leader`` is -1 while there is none.

    ``leader_epoch`` is -1 where the broker does not tell it.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic. ``topic_id`` is the 22-character text, ``None`` before Kafka 2.8."""

    name: str
    topic_id: str | None
    partitions: tuple[PartitionInfo, ...]


def topology_document(
    *,
    cluster_id: str | None,
    controller_id: int,
    captured_at_ms: int,
    security_protocol: str,
    brokers: Sequence[BrokerNode],
    topics: Sequence[TopicInfo],
) -> dict[str, Any]:
    """``topology.json``. Its ``partitionInfo`` is what ``find-coordinator --topology`` reads."""
    return {
        "topology_version": 1,
        "cluster_id": cluster_id,
        "captured_at_ms": captured_at_ms,
        "controller_id": None if controller_id < 0 else controller_id,
        "brokers": [
            {
                "broker_id": broker.broker_id,
                "rack": broker.rack,
                "listeners": [
                    {"host": broker.host, "port": broker.port, "security_protocol": security_protocol}
                ],
            }
            for broker in sorted(brokers, key=lambda broker: broker.broker_id)
        ],
        "topics": {
            topic.name: {
                "topic_id": topic.topic_id,
                "partitionInfo": [_partition(info) for info in topic.partitions],
            }
            for topic in topics
        },
    }


def _partition(info: PartitionInfo) -> Mapping[str, Any]:
    return {**asdict(info), "leader": None if info.leader < 0 else info.leader}
