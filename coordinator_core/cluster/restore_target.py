"""A live cluster as the target of a plan: its groups, their committed offsets, its topics' logs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafka.protocol.consumer import OffsetCommitRequest

from coordinator_core.cluster.capture import CaptureOptions, capture
from coordinator_core.cluster.client import BROKER_CONFIG, EARLIEST, LATEST, Client, TopicPartition
from coordinator_core.cluster.errors import ClusterError, MissingAclError
from coordinator_core.cluster.groups import ask_groups, require_loaded
from coordinator_core.cluster.share_offsets import has_start_offsets, note_start_offsets
from coordinator_core.errors import UsageError
from coordinator_core.fold.inference import infer_profile
from coordinator_core.groups.model import GroupType, OffsetKey, PartitionState
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
    groups_of,
    in_scope,
    place_of,
)
from coordinator_core.rules.topics import UNKNOWN
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.topology import TopicInfo
from coordinator_core.untrusted import INT32_END, INT64_END, whole_number

_METADATA_SETTING = "offset.metadata.max.bytes"
_NEWEST_WITH_RETENTION = 4
"""Version of OffsetCommit; 2.1 has the next one."""


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
    group.protocol_type = answer["protocol_type"] if group.type == GroupType.CLASSIC else None
    for row in answer["offsets"]:
        key = row["topic"], row["partition"]
        # An offset below 0 is none, in plans too.
        if row["committed_offset"] is not None and row["committed_offset"] >= 0:
            epoch = NO_EPOCH if row["leader_epoch"] is None else row["leader_epoch"]
            group.offsets[key] = Position(row["committed_offset"], epoch, row["metadata"] or "")
        if row["pending"]:
            group.unstable[key] = ()
    return group


def live_target(
    client: Client,
    keys: Sequence[OffsetKey],
    group_ids: Iterable[str] | None,
    topics: Mapping[str, frozenset[int] | None],
    *,
    may_be_unknown: bool = False,
) -> Target:
    """The cluster: groups as :func:`live_groups`, with the logs of all topics that they or ``topics`` name.

    Without ``keys`` all that the groups have committed is asked for by name. ``ClusterError`` when no leader tells the
    log of a key, or of a chosen partition of ``topics``, unless it ``may_be_unknown``. ``MissingAclError`` for one of
    ``topics`` that may not be described.
    """
    info = client.topic(OFFSETS_TOPIC)
    if group_ids is None:
        require_loaded(client, info)
    groups = live_groups(client, info, keys, group_ids)
    if not keys:
        keys = [OffsetKey(group_id, *key) for group_id, group in groups.items() for key in group.offsets]
        groups = live_groups(client, info, keys, group_ids)
    named = {*topics, *(key.topic for key in keys), *(topic for group in groups.values() for topic, _ in group.offsets)}
    needed = {key[1:] for key in keys}

    def is_needed(one: TopicPartition) -> bool:
        return not may_be_unknown and (one in needed or one[0] in topics) and in_scope(OffsetKey("", *one), topics)

    known = live_topics(client, lambda one: one[0] in named, is_needed)
    if unknown := topics.keys() - known.keys():
        # Without names those are left out that may not be described.
        client.topics(unknown)
    return Target(
        name=",".join(client.settings.bootstrap_servers),
        cluster_id=client.cluster_id,
        groups=groups,
        topics=known,
        offsets_partitions=len(info.partitions),
        metadata_limit=_metadata_limit(client),
        has_start_offsets=has_start_offsets(client),
        # KIP-211 took the retention time out of the request.
        has_group_clock=client.max_version(OffsetCommitRequest) > _NEWEST_WITH_RETENTION,
    )


def check_seen(
    client: Client, target: Target, states: Sequence[PartitionState], topics: Mapping[str, frozenset[int] | None]
) -> None:
    """``MissingAclError`` for a committed offset of the chosen ``topics`` (none: of all) that the log has of a group of
    the target, and that its coordinator leaves out, as the topic may not be described."""
    replayed_groups = groups_of(states, {}, place_of(target.offsets_partitions))
    keys = [
        OffsetKey(group_id, *key)
        for group_id, group in target.groups.items()
        if group.state is not None and group_id in replayed_groups
        for key in replayed_groups[group_id].offsets.keys() - group.offsets.keys()
        if in_scope(OffsetKey(group_id, *key), topics)
    ]
    if keys:
        live_groups(client, client.topic(OFFSETS_TOPIC), keys, {key.group_id for key in keys})


def live_topics(
    client: Client,
    is_asked: Callable[[TopicPartition], bool],
    is_needed: Callable[[TopicPartition], bool],
    names: Collection[str] | None = None,
) -> dict[str, TargetTopic]:
    """Topics of these ``names``, or all, with the logs of the partitions that are asked for.

    ``ClusterError`` when no leader tells a log that is needed.
    """
    known, (starts, ends) = _told(client, (EARLIEST, LATEST), is_asked, is_needed, names)
    return {
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
    }


def offsets_at(client: Client, keys: Iterable[OffsetKey], time_ms: int) -> dict[TopicPartition, int]:
    """Offset of the first record at or after a time, by topic and partition; -1 where there is none.

    ``ClusterError`` when no leader tells one, ``UsageError`` for what is no time: times below 0 ask for other offsets.
    """
    if not 0 <= time_ms < INT64_END:
        raise UsageError(f"{time_ms} ms is no time from 1970 on")
    wanted = {key[1:] for key in keys}
    _, (found,) = _told(client, (time_ms,), wanted.__contains__, wanted.__contains__)
    return found


def _told(
    client: Client,
    times: Sequence[int],
    is_asked: Callable[[TopicPartition], bool],
    is_needed: Callable[[TopicPartition], bool],
    names: Collection[str] | None = None,
) -> tuple[list[TopicInfo], list[dict[TopicPartition, int]]]:
    """Topics, and for each of ``times`` the offsets of the partitions that are asked for.

    They are asked again until all that are needed have one: an error of a leader is not an answer.
    """
    untold: list[TopicPartition] = []

    def attempt() -> tuple[list[TopicInfo], list[dict[TopicPartition, int]]] | None:
        known = client.topics(names)
        leaders = {
            (topic.name, each.partition): each.leader
            for topic in known
            for each in topic.partitions
            if is_asked((topic.name, each.partition))
        }
        found = [client.offsets(leaders, time) for time in times]
        untold[:] = [one for one in leaders if is_needed(one) and not all(one in offsets for offsets in found)]
        return None if untold else (known, found)

    def why() -> str:
        more = f" (and {len(untold) - 1} more)" if len(untold) > 1 else ""
        return f"no leader of {untold[0][0]}-{untold[0][1]} answers{more}"

    return client.until_settled(attempt, "offsets of partitions", why)


def _metadata_limit(client: Client) -> int:
    """``offset.metadata.max.bytes`` of a broker; Kafka's default where it does not tell."""
    nodes, _ = client.brokers()
    told: dict[str, str] = {}
    with suppress(ClusterError, MissingAclError):
        told = client.configs(BROKER_CONFIG, str(nodes[0].broker_id), [_METADATA_SETTING], nodes[0].broker_id)
    number = whole_number(told.get(_METADATA_SETTING, ""), INT32_END)
    return METADATA_LIMIT if number is None else number


def captured(
    client: Client, directory: str | Path, profile: Profile | None, long_texts: LongTexts
) -> tuple[dict[str, Any], list[PartitionState]]:
    """Bring the capture in ``directory`` up to now; its manifest, and its replay without whole metadata."""
    manifest = capture(client, directory, CaptureOptions())
    return manifest, replayed(directory, profile, long_texts)


def replayed(
    directory: str | Path, profile: Profile | None, long_texts: LongTexts, partitions: Collection[int] | None = None
) -> list[PartitionState]:
    """State at the end of a capture, without whole metadata; of these offsets partitions, or of all."""
    snapshot = discover([str(directory)])
    if partitions is not None:
        snapshot = snapshot.only(partitions)
    rules = profile or infer_profile(snapshot.partitions)
    return replay_snapshot(snapshot, rules, damage=[], whole_metadata=False, long_texts=long_texts)
