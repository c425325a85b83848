"""``topics.json``: a cluster's answers about its topics, and about the offsets topic in particular."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coordinator_core.cluster.client import (
    BROKER_CONFIG,
    EARLIEST,
    LATEST,
    OLDEST_RECORD,
    TOPIC_CONFIG,
    Client,
    Position,
    TopicPartition,
)
from coordinator_core.cluster.errors import ClusterError, MissingAclError
from coordinator_core.durations import clock_ms
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import BrokerInfo, PartitionInfo, TopicInfo

TOPIC_KEYS = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
    "unclean.leader.election.enable",
)
BROKER_KEYS = (
    "log.cleaner.enable",
    "offset.metadata.max.bytes",
    "offsets.load.buffer.size",
    "offsets.retention.check.interval.ms",
    "offsets.retention.minutes",
    "offsets.topic.compression.codec",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "offsets.topic.segment.bytes",
    "transaction.max.timeout.ms",
)
"""Settings of brokers and of the offsets topic that decide what happens to committed offsets."""

_BROKER_SECONDS = 5.0
"""For one broker's settings: it may be gone since the capture began, and a note says so."""


def log_starts(client: Client) -> dict[TopicPartition, Position]:
    """Log start of every partition that the principal may describe."""
    return client.positions(_leaders(client.topics()), EARLIEST)


def topics_document(
    client: Client, brokers: Sequence[BrokerInfo], before: Mapping[TopicPartition, Position]
) -> dict[str, Any]:
    """Every topic that the principal may describe, with its partitions' offsets and leader epochs.

    ``before`` are log starts from before the offsets topic was read: a group that reads on may be past a later one,
    as Streams is, which deletes what it has read of repartition topics. ``notes`` lists settings that the cluster did
    not tell, and why.
    """
    at = clock_ms()
    notes: list[str] = []
    topics = client.topics()
    leaders = _leaders(topics)
    starts, ends = client.positions(leaders, EARLIEST), client.offsets(leaders, LATEST)
    # Where a log still begins at 0, its first record is about as old as the topic.
    whole = {one: leaders[one] for one, start in starts.items() if start.offset == 0 and ends.get(one, 0) > 0}
    oldest = client.positions(whole, OLDEST_RECORD)
    # A topic that was made again in between begins at 0.
    starts |= {one: start for one, start in before.items() if one in starts and start.offset < starts[one].offset}
    return {
        "captured_at_ms": at,
        "brokers": [
            {
                "broker_id": broker.broker_id,
                "rack": broker.rack,
                "config": _configs(client, BROKER_CONFIG, str(broker.broker_id), BROKER_KEYS, notes, broker.broker_id),
            }
            for broker in brokers
        ],
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                **_offsets_topic_config(client, topic, notes),
                "partitions": [_partition(topic.name, each, starts, ends, oldest) for each in topic.partitions],
            }
            for topic in topics
        ],
        "notes": notes,
    }


def _leaders(topics: Sequence[TopicInfo]) -> dict[TopicPartition, int]:
    return {(topic.name, each.partition): each.leader for topic in topics for each in topic.partitions}


def _offsets_topic_config(client: Client, topic: TopicInfo, notes: list[str]) -> dict[str, Any]:
    if topic.name != OFFSETS_TOPIC:
        return {}
    return {"config": _configs(client, TOPIC_CONFIG, topic.name, TOPIC_KEYS, notes)}


def _configs(
    client: Client, kind: int, name: str, keys: Sequence[str], notes: list[str], broker: int | None = None
) -> dict[str, str] | None:
    """``None`` where the cluster does not tell, which ``notes`` then says."""
    try:
        return client.configs(kind, name, keys, broker, patience=None if broker is None else _BROKER_SECONDS)
    except (ClusterError, MissingAclError) as error:
        if str(error) not in notes:
            notes.append(str(error))
        return None


def _partition(
    name: str,
    info: PartitionInfo,
    starts: dict[TopicPartition, Position],
    ends: dict[TopicPartition, int],
    oldest: dict[TopicPartition, Position],
) -> dict[str, Any]:
    start, first = starts.get((name, info.partition)), oldest.get((name, info.partition))
    return {
        "partition": info.partition,
        "leader": None if info.leader < 0 else info.leader,
        "leader_epoch": info.leader_epoch,
        "oldest_leader_epoch": None if start is None or start.leader_epoch < 0 else start.leader_epoch,
        "replicas": list(info.replicas),
        "isr": list(info.isr),
        "start_offset": None if start is None else start.offset,
        "end_offset": ends.get((name, info.partition)),
        # Only of the record at offset 0: a later one would say nothing of the topic's age.
        "first_record_ms": first.timestamp_ms if first is not None and first.offset == 0 else None,
    }
