"""Share and streams groups as their coordinators describe them, and start offsets of share groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator_core.cluster.client import RETRIABLE, Client, topic_id_text
from coordinator_core.cluster.groups import Json, ask_coordinators
from coordinator_core.cluster.messages.describe import ShareGroupDescribeRequest, StreamsGroupDescribeRequest
from coordinator_core.cluster.share_offsets import has_start_offsets, note_start_offsets
from coordinator_core.drill.model import ServedGroup, ServedMember
from coordinator_core.drill.served import assigned
from coordinator_core.groups.model import GroupState, GroupType
from coordinator_core.restore.target import TargetGroup
from coordinator_core.topology import TopicInfo

Starts = dict[str, list[list[Any]]]
"""Topic, partition and start offset, sorted, by group id."""


def described(client: Client, info: TopicInfo, groups: Iterable[Json]) -> dict[str, ServedGroup]:
    """The share and streams groups among ``groups`` that the principal may describe, by group id."""
    types = {group["group_id"]: group["type"] for group in groups}
    share, streams = (
        [group_id for group_id, type_ in types.items() if type_ == kind]
        for kind in (GroupType.SHARE, GroupType.STREAMS)
    )
    return {
        **_described(client, info, share, ShareGroupDescribeRequest, _share_member),
        **_described(client, info, streams, StreamsGroupDescribeRequest, _streams_member),
    }


def _described(
    client: Client, info: TopicInfo, group_ids: list[str], request: Any, member: Callable[[Any], ServedMember]
) -> dict[str, ServedGroup]:
    found: dict[str, ServedGroup] = {}

    def ask(broker: int, part: list[str]) -> dict[str, int]:
        again = {}
        answer = client.ask(lambda: request(group_ids=part, include_authorized_operations=False), broker)
        for group in answer.groups:
            if group.error_code in RETRIABLE:
                again[group.group_id] = group.error_code
            elif not group.error_code:
                found[group.group_id] = _group(group, member)
        return again

    if group_ids:
        ask_coordinators(client, info, group_ids, ask)
    return found


def start_offsets(client: Client, info: TopicInfo, groups: Iterable[Json]) -> Starts:
    """Of the share groups among ``groups``; empty where brokers do not tell them (before 4.1)."""
    targets = {
        group["group_id"]: TargetGroup(group["group_id"], GroupType.SHARE)
        for group in groups
        if group["type"] == GroupType.SHARE
    }
    if not targets or not has_start_offsets(client):
        return {}
    note_start_offsets(client, info, targets)
    return {
        group_id: [[*one, target.offsets[one].offset] for one in sorted(target.offsets)]
        for group_id, target in targets.items()
    }


def _group(group: Any, member: Callable[[Any], ServedMember]) -> ServedGroup:
    topology = getattr(group, "topology", None)
    members = sorted(map(member, group.members), key=lambda one: one.member_id)
    return ServedGroup(
        GroupState(group.group_state),
        group.group_epoch,
        group.assignment_epoch,
        None if topology is None else topology.epoch,
        tuple(members),
    )


def _share_member(member: Any) -> ServedMember:
    topics = member.assignment.topic_partitions
    partitions = {str(topic_id_text(topic.topic_id)): topic.partitions for topic in topics}
    return ServedMember(member.member_id, member.member_epoch, assigned(partitions))


def _streams_member(member: Any) -> ServedMember:
    found = member.assignment
    kinds = (
        assigned({task.subtopology_id: task.partitions for task in tasks})
        for tasks in (found.active_tasks, found.standby_tasks, found.warmup_tasks)
    )
    return ServedMember(member.member_id, member.member_epoch, *kinds)
