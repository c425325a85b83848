"""Start offsets of share groups, asked of their coordinators and set there (KIP-932; Kafka 4.1 and later)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafka.errors import IncompatibleBrokerVersion

from coordinator_core.cluster.client import (
    RETRIABLE,
    Client,
    check_answered,
    error_name,
    topic_id_text,
    usable,
)
from coordinator_core.cluster.errors import ClusterError, MissingAclError
from coordinator_core.cluster.groups import ask_coordinators
from coordinator_core.cluster.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequest,
)
from coordinator_core.coordinator.errors import Errors
from coordinator_core.groups.model import GroupType
from coordinator_core.restore.model import Position
from coordinator_core.restore.target import TargetGroup
from coordinator_core.topology import TopicInfo


class StartOffset(NamedTuple):
    """Start offset of a share group in a partition of a topic; ``offset`` is -1 before its first read."""

    topic: str
    partition: int
    offset: int
    topic_id: str | None
    error_code: int


class Answer(NamedTuple):
    """``error_code`` is that of the whole group; ``codes`` are those of partitions, or of topics (partition -1)."""

    error_code: int
    codes: dict[tuple[str, int], int]


def has_start_offsets(client: Client) -> bool:
    """Whether the brokers have the requests at all."""
    try:
        client.max_version(DescribeShareGroupOffsetsRequest)
    except IncompatibleBrokerVersion:
        return False
    return True


def note_start_offsets(client: Client, info: TopicInfo, groups: Mapping[str, TargetGroup]) -> None:
    """Give the share groups among ``groups`` their start offsets, where the brokers tell them.

    ``MissingAclError`` names the group or topic, ``ClusterError`` any other error of a group.
    """
    shares = [group_id for group_id, group in groups.items() if group.type == GroupType.SHARE]
    if not shares or not has_start_offsets(client):
        return

    def ask(broker: int, part: list[str]) -> dict[str, int]:
        again = {}
        for group_id, code, starts in described(client, broker, part):
            if code == Errors.GROUP_AUTHORIZATION_FAILED:
                raise MissingAclError("Describe", f"Group:{group_id}", "reading the start offsets of the share group")
            untold = [one.error_code for one in starts if not _is_told(one, group_id)]
            if code in RETRIABLE or untold:
                again[group_id] = code or untold[0]
            elif code not in (Errors.NONE, Errors.GROUP_ID_NOT_FOUND):
                raise ClusterError(f"start offsets of share group {group_id!r}: {error_name(code)}")
            else:
                groups[group_id].offsets = {
                    (one.topic, one.partition): Position(one.offset, topic_id=one.topic_id)
                    for one in starts
                    if one.offset >= 0
                }
        return again

    ask_coordinators(client, info, shares, ask)


def _is_told(one: StartOffset, group_id: str) -> bool:
    """Whether the answer stands; a topic that is gone has no start offset."""
    if one.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
        return True
    return usable(one.error_code, one.topic, one.partition, "Describe")


def described(
    client: Client, broker: int, group_ids: Iterable[str], *, patience: float | None = None
) -> list[tuple[str, int, list[StartOffset]]]:
    """Group id, error code and start offsets of groups of one coordinator; ``patience`` as in :meth:`Client.ask`."""
    kind = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    asked = {group_id: kind(group_id=group_id, topics=None) for group_id in group_ids}
    answer = client.ask(
        lambda: DescribeShareGroupOffsetsRequest(groups=list(asked.values())), broker, patience=patience
    )
    check_answered(broker, "start offsets", asked, [group.group_id for group in answer.groups])
    return [
        (
            group.group_id,
            group.error_code,
            [
                StartOffset(
                    topic.topic_name,
                    each.partition_index,
                    -1 if each.error_code else each.start_offset,
                    topic_id_text(topic.topic_id),
                    each.error_code,
                )
                for topic in group.topics
                for each in topic.partitions
            ],
        )
        for group in answer.groups
    ]


def alter(client: Client, broker: int, group_id: str, starts: Sequence[tuple[str, int, int]]) -> Answer:
    """Set start offsets (topic, partition, offset); the others of the group stay. Asked once."""
    kind = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    topics: dict[str, list[object]] = {}
    for topic, partition, offset in starts:
        one = kind.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
        topics.setdefault(topic, []).append(one)
    asked = [kind(topic_name=topic, partitions=partitions) for topic, partitions in topics.items()]
    answer = client.ask(lambda: AlterShareGroupOffsetsRequest(group_id=group_id, topics=asked), broker, patience=0)
    codes = {
        (topic.topic_name, each.partition_index): each.error_code
        for topic in answer.responses
        for each in topic.partitions
    }
    return Answer(answer.error_code, codes)


def delete(client: Client, broker: int, group_id: str, topics: Iterable[str]) -> Answer:
    """Delete all start offsets of topics. Asked once."""
    kind = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    asked = [kind(topic_name=topic) for topic in topics]
    answer = client.ask(lambda: DeleteShareGroupOffsetsRequest(group_id=group_id, topics=asked), broker, patience=0)
    return Answer(answer.error_code, {(topic.topic_name, -1): topic.error_code for topic in answer.responses})
