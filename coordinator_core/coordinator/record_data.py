"""Keys and values of the records that coordinators append, as Kafka's message classes have them."""

from __future__ import annotations

from typing import NamedTuple

from coordinator_core.jsontext import Int16, Int32, Uint16


class OffsetCommitKey(NamedTuple):
    group: str
    topic: str
    partition: int


class OffsetCommitValue(NamedTuple):
    """``None`` stands for a field that the version does not have."""

    offset: int
    metadata: str
    commit_timestamp: int
    leader_epoch: int | None = None
    expire_timestamp: int | None = None
    topic_id: str | None = None


class GroupMetadataKey(NamedTuple):
    group: str


class GroupMetadataMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


class GroupMetadataValue(NamedTuple):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: tuple[GroupMetadataMember, ...]


class ConsumerGroupKey(NamedTuple):
    """``ConsumerGroupMetadataKey``, and the keys of partition metadata and of target assignment metadata."""

    group_id: str


class ConsumerGroupMetadataValue(NamedTuple):
    epoch: int
    metadata_hash: int


class ConsumerMemberKey(NamedTuple):
    """Key of a member, of its target assignment and of its current one."""

    group_id: str
    member_id: str


class ClassicProtocol(NamedTuple):
    name: str
    metadata: bytes


class ClassicMemberMetadata(NamedTuple):
    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


class ConsumerMemberValue(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None


class TargetAssignmentMetadataValue(NamedTuple):
    assignment_epoch: int
    assignment_timestamp: int


class TargetPartitions(NamedTuple):
    topic_id: str
    partitions: tuple[int, ...]


class TargetAssignmentValue(NamedTuple):
    topic_partitions: tuple[TargetPartitions, ...]


class AssignedPartitions(NamedTuple):
    topic_id: str
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...]


class CurrentAssignmentValue(NamedTuple):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[AssignedPartitions, ...]
    partitions_pending_revocation: tuple[AssignedPartitions, ...]


class RegularExpressionKey(NamedTuple):
    group_id: str
    regular_expression: str


class RegularExpressionValue(NamedTuple):
    topics: tuple[str, ...]
    version: int
    timestamp: int


# Streams groups


class KeyValue(NamedTuple):
    """A topic configuration, a client tag or an assignment configuration."""

    key: str
    value: str


class TopicInfo(NamedTuple):
    """An internal topic of a topology; 0 partitions: as many as follows from the topology."""

    name: str
    partitions: Int32
    replication_factor: Int16
    topic_configs: tuple[KeyValue, ...]


class CopartitionGroup(NamedTuple):
    """Positions of topics in the lists of their subtopology."""

    source_topics: tuple[Int16, ...]
    source_topic_regex: tuple[Int16, ...]
    repartition_source_topics: tuple[Int16, ...]


class Subtopology(NamedTuple):
    subtopology_id: str
    source_topics: tuple[str, ...]
    source_topic_regex: tuple[str, ...]
    state_changelog_topics: tuple[TopicInfo, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[TopicInfo, ...]
    copartition_groups: tuple[CopartitionGroup, ...]


class StreamsTopology(NamedTuple):
    """``StreamsGroupTopologyValue``, and the topology of a StreamsGroupHeartbeat."""

    epoch: Int32
    subtopologies: tuple[Subtopology, ...]


class Endpoint(NamedTuple):
    host: str
    port: Uint16


class StreamsGroupMetadataValue(NamedTuple):
    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    last_assignment_configs: tuple[KeyValue, ...]


class StreamsMemberValue(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: tuple[KeyValue, ...]


class TaskIds(NamedTuple):
    """Tasks of one subtopology; only active ones in a current assignment have epochs."""

    subtopology_id: str
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = None


class StreamsTargetAssignmentValue(NamedTuple):
    active_tasks: tuple[TaskIds, ...]
    standby_tasks: tuple[TaskIds, ...]
    warmup_tasks: tuple[TaskIds, ...]


class StreamsCurrentAssignmentValue(NamedTuple):
    member_epoch: int
    previous_member_epoch: int
    state: int
    active_tasks: tuple[TaskIds, ...]
    standby_tasks: tuple[TaskIds, ...]
    warmup_tasks: tuple[TaskIds, ...]
    active_tasks_pending_revocation: tuple[TaskIds, ...]
    standby_tasks_pending_revocation: tuple[TaskIds, ...]
    warmup_tasks_pending_revocation: tuple[TaskIds, ...]


StreamsValue = (
    StreamsTopology
    | StreamsGroupMetadataValue
    | StreamsMemberValue
    | StreamsTargetAssignmentValue
    | StreamsCurrentAssignmentValue
)
"""Values of streams groups; their keys and the target assignment's metadata are those of consumer groups."""


class ShareMemberValue(NamedTuple):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


class ShareCurrentAssignmentValue(NamedTuple):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TargetPartitions, ...]


class ShareTopicPartitions(NamedTuple):
    """A topic whose share-partitions have, or are to have, state at the share coordinator."""

    topic_id: str
    topic_name: str
    partitions: tuple[int, ...]


class ShareTopicName(NamedTuple):
    """A topic whose share-partitions are to lose their state."""

    topic_id: str
    topic_name: str


class ShareStateValue(NamedTuple):
    """``ShareGroupStatePartitionMetadataValue``; the other records of share groups are those of consumer groups."""

    initializing_topics: tuple[ShareTopicPartitions, ...]
    initialized_topics: tuple[ShareTopicPartitions, ...]
    deleting_topics: tuple[ShareTopicName, ...]


RecordKey = OffsetCommitKey | GroupMetadataKey | ConsumerGroupKey | ConsumerMemberKey | RegularExpressionKey
RecordValue = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerMemberValue
    | TargetAssignmentMetadataValue
    | TargetAssignmentValue
    | CurrentAssignmentValue
    | RegularExpressionValue
    | StreamsValue
    | ShareMemberValue
    | ShareCurrentAssignmentValue
    | ShareStateValue
)
