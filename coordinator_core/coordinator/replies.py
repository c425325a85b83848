"""Replies as Kafka's message classes have them, fields in their order; :mod:`.protocol` writes them as JSON.

A class has the fields of all versions. Replies to requests that were of one thing before they were of many
are always of many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Generic, NamedTuple, TypeVar

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.record_data import Endpoint, KeyValue, TopicInfo
from coordinator_core.coordinator.requests import TaskOffset
from coordinator_core.groups.model import CommittedOffset

G = TypeVar("G")
NO_OPERATIONS = -0x80000000
"""Authorized operations of a group when they were not asked for."""


class Reply:
    """A reply to any request."""

    __slots__ = ()


Respond = Callable[[Reply], None]


def errors_of(message: object) -> Iterator[Errors]:
    """The error codes in a reply, outer ones first."""
    if isinstance(message, Errors):
        yield message
    elif isinstance(message, tuple):
        for one in message:
            yield from errors_of(one)
    elif isinstance(message, Reply):
        for field in fields(message):  # type: ignore[arg-type]
            yield from errors_of(getattr(message, field.name))


@dataclass(frozen=True, slots=True)
class GroupsReply(Reply, Generic[G]):
    """Responses of the APIs that describe groups, and of OffsetFetch and DescribeShareGroupOffsets."""

    groups: tuple[G, ...]


@dataclass(frozen=True, slots=True)
class ErrorReply(Reply):
    """``HeartbeatResponse`` and ``AddOffsetsToTxnResponse``."""

    error_code: Errors


class JoinMember(NamedTuple):
    """Leader's view of a member."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroupReply(Reply):
    """``JoinGroupResponse``; ``members`` are for the leader alone."""

    error_code: Errors
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinMember, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncGroupReply(Reply):
    error_code: Errors
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeaveMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error_code: Errors


@dataclass(frozen=True, slots=True)
class LeaveGroupReply(Reply):
    error_code: Errors
    members: tuple[LeaveMember, ...] = ()


class PartitionResult(NamedTuple):
    partition_index: int
    error_code: Errors


class TopicResult(NamedTuple):
    name: str
    topic_id: str | None
    partitions: tuple[PartitionResult, ...]


@dataclass(frozen=True, slots=True)
class OffsetCommitReply(Reply):
    """``OffsetCommitResponse`` and ``TxnOffsetCommitResponse``."""

    topics: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class OffsetDeleteReply(Reply):
    error_code: Errors
    topics: tuple[TopicResult, ...] = ()


class FetchedPartition(NamedTuple):
    """A partition of an OffsetFetch; offset -1 where there is none."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str
    error_code: Errors

    @classmethod
    def of(cls, partition: int, committed: CommittedOffset | None, error: Errors = Errors.NONE) -> FetchedPartition:
        if committed is None:
            return cls(partition, -1, -1, "", error)
        leader_epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
        return cls(partition, committed.committed_offset, leader_epoch, committed.metadata, error)


class FetchedTopic(NamedTuple):
    name: str
    topic_id: str | None
    partitions: tuple[FetchedPartition, ...]


class FetchedGroup(NamedTuple):
    group_id: str
    error_code: Errors
    topics: tuple[FetchedTopic, ...] = ()


class DeletedGroup(NamedTuple):
    group_id: str
    error_code: Errors


@dataclass(frozen=True, slots=True)
class DeleteGroupsReply(Reply):
    results: tuple[DeletedGroup, ...]


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes


class DescribedGroup(NamedTuple):
    error_code: Errors
    error_message: str | None
    group_id: str
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()
    authorized_operations: int = NO_OPERATIONS


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    group_state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class ListGroupsReply(Reply):
    error_code: Errors
    groups: tuple[ListedGroup, ...] = ()


class FoundCoordinator(NamedTuple):
    key: str
    node_id: int
    host: str
    port: int
    error_code: Errors
    error_message: str


@dataclass(frozen=True, slots=True)
class FindCoordinatorReply(Reply):
    coordinators: tuple[FoundCoordinator, ...]


class ApiKey(NamedTuple):
    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(NamedTuple):
    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    name: str
    max_version_level: int
    min_version_level: int


@dataclass(frozen=True, slots=True)
class ApiVersionsReply(Reply):
    error_code: Errors
    api_keys: tuple[ApiKey, ...]
    supported_features: tuple[SupportedFeature, ...]
    finalized_features_epoch: int
    finalized_features: tuple[FinalizedFeature, ...]


class TopicPartitions(NamedTuple):
    topic_id: str
    partitions: tuple[int, ...]


class HeartbeatAssignment(NamedTuple):
    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatReply(Reply):
    """``ConsumerGroupHeartbeatResponse``; ``assignment`` None: it is the same as before."""

    error_code: Errors
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: HeartbeatAssignment | None = None


class NamedTopicPartitions(NamedTuple):
    topic_id: str
    topic_name: str
    partitions: tuple[int, ...]


class DescribedAssignment(NamedTuple):
    topic_partitions: tuple[NamedTopicPartitions, ...]


class DescribedConsumer(NamedTuple):
    """A member in a ConsumerGroupDescribe; ``member_type`` is 0 for one that speaks the classic protocol, else 1."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: int


class DescribedConsumerGroup(NamedTuple):
    error_code: Errors
    error_message: str | None
    group_id: str
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumer, ...] = ()
    authorized_operations: int = NO_OPERATIONS


@dataclass(frozen=True, slots=True)
class ProducerReply(Reply):
    """``InitProducerIdResponse`` and ``EndTxnResponse``."""

    error_code: Errors
    producer_id: int
    producer_epoch: int


class DeletedTopic(NamedTuple):
    name: str
    error_code: Errors
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteTopicsReply(Reply):
    responses: tuple[DeletedTopic, ...]


# Streams groups


class Status(NamedTuple):
    """Status of a group in a reply to its member (``StreamsGroupHeartbeatResponse.Status``)."""

    status_code: int
    status_detail: str


class Tasks(NamedTuple):
    """Tasks of one subtopology."""

    subtopology_id: str
    partitions: tuple[int, ...]


class TopicPartitionNumbers(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


class EndpointPartitions(NamedTuple):
    user_endpoint: Endpoint
    active_partitions: tuple[TopicPartitionNumbers, ...]
    standby_partitions: tuple[TopicPartitionNumbers, ...]


@dataclass(frozen=True, slots=True)
class StreamsGroupHeartbeatReply(Reply):
    """``StreamsGroupHeartbeatResponse``; tasks None: they are the same as before.

    ``acceptable_recovery_lag_legacy`` is what 4.4 calls the field of version 0; None: a release before that.
    """

    error_code: Errors
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    acceptable_recovery_lag_legacy: int | None = None
    task_offset_interval_ms: int = 0
    status: tuple[Status, ...] | None = ()
    active_tasks: tuple[Tasks, ...] | None = None
    standby_tasks: tuple[Tasks, ...] | None = None
    warmup_tasks: tuple[Tasks, ...] | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: tuple[EndpointPartitions, ...] | None = None
    topology_description_required: bool = False


class DescribedSubtopology(NamedTuple):
    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_source_topics: tuple[TopicInfo, ...]


class DescribedTopology(NamedTuple):
    epoch: int
    subtopologies: tuple[DescribedSubtopology, ...]


class DescribedTasks(NamedTuple):
    active_tasks: tuple[Tasks, ...]
    standby_tasks: tuple[Tasks, ...]
    warmup_tasks: tuple[Tasks, ...]


class DescribedStreamsMember(NamedTuple):
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: tuple[KeyValue, ...]
    task_offsets: tuple[TaskOffset, ...]
    task_end_offsets: tuple[TaskOffset, ...]
    assignment: DescribedTasks
    target_assignment: DescribedTasks
    is_classic: bool = False


class DescribedStreamsGroup(NamedTuple):
    error_code: Errors
    error_message: str | None
    group_id: str
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology: DescribedTopology | None = None
    members: tuple[DescribedStreamsMember, ...] = ()
    authorized_operations: int = NO_OPERATIONS
    topology_description: None = None
    topology_description_status: int = 0
    assignor_name: str | None = None


# Share groups (KIP-932)


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeatReply(ConsumerGroupHeartbeatReply):
    """``ShareGroupHeartbeatResponse``, which has the same fields."""


class DescribedShareMember(NamedTuple):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    assignment: DescribedAssignment


class DescribedShareGroup(NamedTuple):
    error_code: Errors
    error_message: str | None
    group_id: str
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedShareMember, ...] = ()
    authorized_operations: int = NO_OPERATIONS


class AlteredPartition(NamedTuple):
    partition_index: int
    error_code: Errors
    error_message: str | None = None


class AlteredTopic(NamedTuple):
    topic_name: str
    topic_id: str
    partitions: tuple[AlteredPartition, ...]


@dataclass(frozen=True, slots=True)
class AlterShareGroupOffsetsReply(Reply):
    error_code: Errors
    error_message: str | None = None
    responses: tuple[AlteredTopic, ...] = ()


class ShareOffset(NamedTuple):
    """A share-partition; start offset and lag are -1 where its state says none."""

    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int
    error_code: Errors
    error_message: str | None = None


class ShareOffsetsTopic(NamedTuple):
    topic_name: str
    topic_id: str
    partitions: tuple[ShareOffset, ...]


class ShareOffsetsGroup(NamedTuple):
    group_id: str
    topics: tuple[ShareOffsetsTopic, ...]
    error_code: Errors
    error_message: str | None = None


class DeletedShareTopic(NamedTuple):
    topic_name: str
    topic_id: str
    error_code: Errors
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteShareGroupOffsetsReply(Reply):
    error_code: Errors
    error_message: str | None = None
    responses: tuple[DeletedShareTopic, ...] = ()
