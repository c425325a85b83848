"""Requests as Kafka's message classes have them; :mod:`.protocol` reads them from JSON.

A class has the fields of all versions: one that a version does not have has Kafka's default. Requests that
were of one thing before they were of many (LeaveGroup, OffsetFetch, FindCoordinator) are always of many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from coordinator_core.coordinator.record_data import Endpoint, KeyValue, StreamsTopology
from coordinator_core.jsontext import Int16, Int32, Matching
from coordinator_core.lifecycle.due import wrapped

UUID = "[A-Za-z0-9_-]{22}"
Uuid = Annotated[str, Matching(UUID, "a topic id of 22 characters")]


class JoinProtocol(NamedTuple):
    """A protocol that a member supports: its name and the member's metadata for it."""

    name: str
    metadata: bytes


Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of the protocols that a member supports, the preferred one first."""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """``JoinGroupRequest``; version 0 has no rebalance timeout, its session timeout is taken for it."""

    group_id: str
    member_id: str
    session_timeout_ms: Int32
    protocol_type: str
    protocols: tuple[JoinProtocol, ...]
    rebalance_timeout_ms: Int32
    group_instance_id: str | None = None

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}


class SyncAssignment(NamedTuple):
    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """``SyncGroupRequest``; only a leader gives assignments."""

    group_id: str
    generation_id: Int32
    member_id: str
    assignments: tuple[SyncAssignment, ...]
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    group_id: str
    generation_id: Int32
    member_id: str
    group_instance_id: str | None = None


class MemberIdentity(NamedTuple):
    """A member that a LeaveGroup names, by member id, group instance id or both."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    group_id: str
    members: tuple[MemberIdentity, ...]


class CommitPartition(NamedTuple):
    partition_index: Int32
    committed_offset: int
    committed_metadata: str | None
    committed_leader_epoch: Int32 = -1
    commit_timestamp: int = -1


class CommitTopic(NamedTuple):
    """A topic of an OffsetCommit or TxnOffsetCommit, by name or by id; the broker adds the other."""

    partitions: tuple[CommitPartition, ...]
    name: str = ""
    topic_id: Uuid | None = None


class Committer(NamedTuple):
    """Member of an OffsetCommit or TxnOffsetCommit, with its generation or member epoch.

    Nobody in particular has generation -1 and no id.
    """

    generation: int
    member_id: str
    group_instance_id: str | None
    transactional: bool

    @property
    def names_a_member(self) -> bool:
        return bool(self.member_id) or self.group_instance_id is not None


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    group_id: str
    topics: tuple[CommitTopic, ...]
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1

    @property
    def committer(self) -> Committer:
        return Committer(self.generation_id_or_member_epoch, self.member_id, self.group_instance_id, False)

    def expire_timestamp_ms(self, now_ms: int) -> int | None:
        """``None``: the retention of the broker decides."""
        return None if self.retention_time_ms == -1 else int(wrapped(now_ms + self.retention_time_ms))


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    group_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: Int16
    topics: tuple[CommitTopic, ...]
    generation_id: Int32 = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def committer(self) -> Committer:
        return Committer(self.generation_id, self.member_id, self.group_instance_id, True)


class FetchTopic(NamedTuple):
    """A topic of an OffsetFetch, by name or by id; the broker adds the other."""

    partition_indexes: tuple[Int32, ...]
    name: str = ""
    topic_id: Uuid | None = None


class FetchGroup(NamedTuple):
    """A group of an OffsetFetch; ``topics`` None asks for all that have a committed offset."""

    group_id: str
    topics: tuple[FetchTopic, ...] | None
    member_id: str | None = None
    member_epoch: Int32 = -1


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    groups: tuple[FetchGroup, ...]
    require_stable: bool = False


class DeletePartition(NamedTuple):
    partition_index: Int32


class DeleteTopic(NamedTuple):
    """A topic of an OffsetDelete, which has no topic ids."""

    name: str
    partitions: tuple[DeletePartition, ...]
    topic_id: Uuid | None = None


@dataclass(frozen=True, slots=True)
class OffsetDelete:
    group_id: str
    topics: tuple[DeleteTopic, ...]


@dataclass(frozen=True, slots=True)
class DeleteGroups:
    groups_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DescribeGroups:
    groups: tuple[str, ...]
    include_authorized_operations: bool = False


@dataclass(frozen=True, slots=True)
class ListGroups:
    """``ListGroupsRequest``; an empty filter lets everything pass."""

    states_filter: tuple[str, ...] | None = None
    types_filter: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """``FindCoordinatorRequest``; ``key_type`` is a ``CoordinatorType``, or a number that no release knows."""

    coordinator_keys: tuple[str, ...]
    key_type: Int32 = 0


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """``ApiVersionsRequest``; nothing in it changes the answer."""


class OwnedPartitions(NamedTuple):
    """Partitions of one topic that a member says it owns."""

    topic_id: Uuid
    partitions: tuple[Int32, ...]


Owned = tuple[OwnedPartitions, ...] | None
"""Partitions that a member says it owns; ``None``: nothing new since its last word."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """``ConsumerGroupHeartbeatRequest``: ``None`` and a timeout of -1 say nothing new."""

    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: Int32
    subscribed_topic_names: tuple[str, ...] | None
    server_assignor: str | None
    topic_partitions: tuple[OwnedPartitions, ...] | None
    subscribed_topic_regex: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescribe:
    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """``InitProducerIdRequest``; -1 as producer id and epoch: a producer that has none yet."""

    transactional_id: str | None
    transaction_timeout_ms: Int32
    producer_id: int = -1
    producer_epoch: Int16 = -1


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn:
    transactional_id: str
    producer_id: int
    producer_epoch: Int16
    group_id: str


@dataclass(frozen=True, slots=True)
class EndTxn:
    transactional_id: str
    producer_id: int
    producer_epoch: Int16
    committed: bool


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    topic_names: tuple[str, ...]


# Streams groups


class OwnedTasks(NamedTuple):
    """Tasks of one subtopology that a member says it owns."""

    subtopology_id: str
    partitions: tuple[Int32, ...]


class TaskOffset(NamedTuple):
    subtopology_id: str
    partition: Int32
    offset: int


@dataclass(frozen=True, slots=True)
class StreamsGroupHeartbeat:
    """``StreamsGroupHeartbeatRequest``: ``None`` and a timeout of -1 say nothing new."""

    group_id: str
    member_id: str
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: StreamsTopology | None = None
    active_tasks: tuple[OwnedTasks, ...] | None = None
    standby_tasks: tuple[OwnedTasks, ...] | None = None
    warmup_tasks: tuple[OwnedTasks, ...] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[KeyValue, ...] | None = None
    task_offsets: tuple[TaskOffset, ...] | None = None
    task_end_offsets: tuple[TaskOffset, ...] | None = None
    shutdown_application: bool = False


@dataclass(frozen=True, slots=True)
class StreamsGroupDescribe:
    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False
    include_topology_description: bool = False


# Share groups (KIP-932)


@dataclass(frozen=True, slots=True)
class ShareGroupHeartbeat:
    """``ShareGroupHeartbeatRequest``: ``None`` says nothing new."""

    group_id: str
    member_id: str
    member_epoch: Int32
    rack_id: str | None
    subscribed_topic_names: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ShareGroupDescribe:
    group_ids: tuple[str, ...]
    include_authorized_operations: bool = False


class StartOffset(NamedTuple):
    partition_index: Int32
    start_offset: int


class AlterTopic(NamedTuple):
    topic_name: str
    partitions: tuple[StartOffset, ...]


@dataclass(frozen=True, slots=True)
class AlterShareGroupOffsets:
    group_id: str
    topics: tuple[AlterTopic, ...]


class ShareTopic(NamedTuple):
    topic_name: str
    partitions: tuple[Int32, ...]


class ShareOffsetsGroup(NamedTuple):
    """A group of a DescribeShareGroupOffsets; ``topics`` None asks for all that have state."""

    group_id: str
    topics: tuple[ShareTopic, ...] | None


@dataclass(frozen=True, slots=True)
class DescribeShareGroupOffsets:
    groups: tuple[ShareOffsetsGroup, ...]


class ShareTopicName(NamedTuple):
    topic_name: str


@dataclass(frozen=True, slots=True)
class DeleteShareGroupOffsets:
    group_id: str
    topics: tuple[ShareTopicName, ...]


ShareRequest = (
    ShareGroupHeartbeat
    | ShareGroupDescribe
    | AlterShareGroupOffsets
    | DescribeShareGroupOffsets
    | DeleteShareGroupOffsets
)

Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DeleteGroups
    | DescribeGroups
    | ListGroups
    | FindCoordinator
    | ApiVersions
    | ConsumerGroupHeartbeat
    | ConsumerGroupDescribe
    | InitProducerId
    | AddOffsetsToTxn
    | EndTxn
    | DeleteTopics
    | StreamsGroupHeartbeat
    | StreamsGroupDescribe
    | ShareRequest
)
"""Each class has the name of its API."""
