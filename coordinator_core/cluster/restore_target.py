"""A live cluster as the target of a plan: its groups, their committed offsets, its topics' logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest

from coordinator_core.cluster.capture import CaptureOptions, capture
from coordinator_core.cluster.client import EARLIEST, LATEST, Client
from coordinator_core.cluster.groups import ask_groups
from coordinator_core.cluster.share_offsets import has_start_offsets, note_start_offsets
from coordinator_core.fold.inference import infer_profile
from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.merge.packed import LongTexts
from coordinator_core.releases import Profile
from coordinator_core.restore.model import NO_EPOCH, Position
from coordinator_core.restore.target import (
    METADATA_LIMIT,
    LogRange,
    Target,
    TargetGroup,
    TargetTopic,
)
from coordinator_core.rules.topics import UNKNOWN
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.topology import TopicInfo
from coordinator_core.untrusted import INT32_END, whole_number

_BROKER_RESOURCE = 4
_METADATA_SETTING = "offset.metadata.max.bytes"


def live_groups(
    client: Client, info: TopicInfo, keys: Iterable[OffsetKey], group_ids: Iterable[str] | None
) -> dict[str, TargetGroup]:
    """Groups as their coordinators answer; ``keys`` are also asked for by name, whether they are stable. Offsets of
    share groups are their start offsets.

    ``group_ids``: these only, absent ones too; ``None``: all that the coordinators list, and those of ``keys``.
    """
    expected: dict[str, list[tuple[str, int]]] = {group_id: [] for group_id in group_ids or ()}
    for key in keys:
        expected.setdefault(key.group_id, []).append(key[1:])
    answers = ask_groups(client, info, expected, only_expected=group_ids is not None)["groups"]
    # One at a time: both forms of 500 000 offsets take more memory than all the rest.
    answers.reverse()
    groups = {}
    while answers:
        group = _group(answers.pop())
        groups[group.group_id] = group
    note_start_offsets(client, info, groups)
    return groups


def _group(answer: Mapping[str, Any]) -> TargetGroup:
    group = TargetGroup(answer["group_id"], answer["type"] or "classic", answer["state"], answer["members"])
    for row in answer["offsets"]:
        key = row["topic"], row["partition"]
        if row["committed_offset"] is not None:
            epoch = NO_EPOCH if row["leader_epoch"] is None else row["leader_epoch"]
            group.offsets[key] = Position(row["committed_offset"], epoch, row["metadata"] or "")
        if row["pending"]:
            group.unstable[key] = ()
    return group


def live_target(
    client: Client, keys: Sequence[OffsetKey], group_ids: Iterable[str] | None, topics: Iterable[str]
) -> Target:
    """The cluster: groups as :func:`live_groups`, with the logs of all topics that they or ``topics`` name.

    Without ``keys`` all that the groups have committed is asked for by name.
    """
    info = client.topic(OFFSETS_TOPIC)
    groups = live_groups(client, info, keys, group_ids)
    if not keys:
        keys = [OffsetKey(group_id, *key) for group_id, group in groups.items() for key in group.offsets]
        groups = live_groups(client, info, keys, group_ids)
    named = {*topics, *(key.topic for key in keys), *(topic for group in groups.values() for topic, _ in group.offsets)}
    known = client.topics()
    leaders = {
        (topic.name, each.partition): each.leader for topic in known if topic.name in named for each in topic.partitions
    }
    starts, ends = client.offsets(leaders, EARLIEST), client.offsets(leaders, LATEST)
    return Target(
        name=",".join(client.settings.bootstrap_servers),
        cluster_id=client.cluster_id,
        groups=groups,
        topics={
            topic.name: TargetTopic(
                topic.topic_id,
                {
                    each.partition: LogRange(
                        starts.get((topic.name, each.partition), UNKNOWN),
                        ends.get((topic.name, each.partition), UNKNOWN),
                        each.leader_epoch,
                    )
                    for each in topic.partitions
                },
            )
            for topic in known
        },
        offsets_partitions=len(info.partitions),
        metadata_limit=_metadata_limit(client),
        has_start_offsets=has_start_offsets(client),
    )


def offsets_at(client: Client, keys: Iterable[OffsetKey], time_ms: int) -> dict[tuple[str, int], int]:
    """Offset of the first record at or after a time, by topic and partition; -1 where there is none."""
    wanted = {key[1:] for key in keys}
    leaders = {
        (topic.name, each.partition): each.leader
        for topic in client.topics()
        for each in topic.partitions
        if (topic.name, each.partition) in wanted
    }
    return client.offsets(leaders, time_ms)


def _metadata_limit(client: Client) -> int:
    """``offset.metadata.max.bytes`` of a broker; Kafka's default where the principal may not ask."""
    nodes, _ = client.brokers()
    broker = nodes[0].broker_id
    kind = DescribeConfigsRequest.DescribeConfigsResource
    asked = kind(resource_type=_BROKER_RESOURCE, resource_name=str(broker), configuration_keys=[_METADATA_SETTING])
    answer = client.ask(lambda: DescribeConfigsRequest(resources=[asked], max_version=2), broker)
    for result in answer.results:
        for config in () if result.error_code else result.configs:
            number = whole_number(config.value or "", INT32_END) if config.name == _METADATA_SETTING else None
            if number is not None:
                return number
    return METADATA_LIMIT


def captured(
    client: Client, directory: str | Path, profile: Profile | None, long_texts: LongTexts
) -> tuple[dict[str, Any], list[PartitionState]]:
    """Bring the capture in ``directory`` up to now; its manifest, and its replay without whole metadata."""
    manifest = capture(client, directory, CaptureOptions())
    snapshot = discover([str(directory)])
    rules = profile or infer_profile(snapshot.partitions)
    states = replay_snapshot(snapshot, rules, damage=[], whole_metadata=False, long_texts=long_texts)
    return manifest, states
