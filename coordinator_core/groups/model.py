"""The state a coordinator holds in memory, as values: groups, members, committed offsets, transactions.

Names follow Kafka's. Every value carries the record offset (position in the offsets log) of the record that
last set it, so that each number leads back to its bytes. ``None`` stands for what Kafka calls absent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

LEAVE_GROUP_MEMBER_EPOCH = -1
"""Member epoch of a member whose current assignment was tombstoned (``ConsumerGroupHeartbeatRequest``)."""

LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
"""Member epoch of a static member that left for a while (``ConsumerGroupHeartbeatRequest``)."""


class GroupType(StrEnum):
    """``org.apache.kafka.common.GroupType``, in the lower case of the command-line tools."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class GroupState(StrEnum):
    """Group states as the tools print them (``org.apache.kafka.common.GroupState``)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"
    DEAD = "Dead"


REBALANCE_STATES = frozenset({GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE})
"""Phases of a rebalance of a classic group. No record holds them: a replayed group is never in one."""


class MemberState(StrEnum):
    """State of a KIP-848 or streams member (``MemberState`` of the group coordinator)."""

    STABLE = "stable"
    UNREVOKED_PARTITIONS = "unrevoked_partitions"
    UNRELEASED_PARTITIONS = "unreleased_partitions"
    UNREVOKED_TASKS = "unrevoked_tasks"
    UNRELEASED_TASKS = "unreleased_tasks"
    AWAY = "away"
    """A static member of 3.7 that left for a while, and had the target assignment that is the group's."""
    UNKNOWN = "unknown"


class OffsetKey(NamedTuple):
    """Group, topic and partition that an offset is committed for (``OffsetCommitKey``)."""

    group_id: str
    topic: str
    partition: int

    @property
    def topic_partition(self) -> str:
        """``orders-0``, as Kafka writes it (``TopicPartition``)."""
        return f"{self.topic}-{self.partition}"

    @property
    def in_words(self) -> str:
        """``group 'billing', orders-0``, for messages."""
        return f"group {self.group_id!r}, {self.topic_partition}"


def are_of_other_topics(one: str | None, other: str | None) -> bool:
    """Whether two topic ids are known and differ."""
    return None not in (one, other) and one != other


class CommittedOffset(NamedTuple):
    """One committed offset (``OffsetAndMetadata``).

    ``producer_id`` and ``producer_epoch`` are set when the commit came in a transaction.
    ``ordering_offset`` is the offset that the loader compares when a transaction commits: the record's own
    (Java), or that of its batch (Scala).
    """

    committed_offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    topic_id: str | None
    record_offset: int
    value_version: int
    producer_id: int | None
    producer_epoch: int | None
    ordering_offset: int


class ClassicMember(NamedTuple):
    """A member of a classic group. ``subscription`` and ``assignment`` are the client's own blobs."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    subscription: bytes
    assignment: bytes


class ClassicGroup(NamedTuple):
    """A classic group, also a *simple* one: offsets only, no metadata record (``record_offset`` None).

    ``state`` is ``None`` for releases whose coordinator kept no group object for such offsets.
    """

    group_id: str
    state: GroupState | None
    protocol_type: str | None = None
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int | None = None
    members: tuple[ClassicMember, ...] = ()
    record_offset: int | None = None

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def is_simple(self) -> bool:
        """No protocol type and no member (``ClassicGroup.isSimpleGroup``)."""
        return not self.protocol_type and not self.members


Assignment = dict[str, tuple[int, ...]]
"""Topic id (22-character text) to partitions."""

PartitionEpochs = dict[str, dict[int, int]]
"""Topic id to partitions, each with the member epoch in which it was assigned."""


@dataclass(slots=True)
class ModernMember:
    """A member of a consumer, share or streams group.

    ``record_offset`` is -1 until its metadata record was seen, ``assignment_record_offset`` until its current
    assignment was.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    record_offset: int = -1
    assignment_record_offset: int = -1


@dataclass(slots=True)
class ConsumerMember(ModernMember):
    """A KIP-848 member: its metadata record (type 5) and its current assignment (type 8).

    ``classic_protocols`` is set while the member still speaks the classic protocol: its session timeout in
    milliseconds and the (name, metadata) pairs it supports. ``assigned_epochs`` and ``pending_revocation_epochs``
    hold the assignment epochs of records that have them (since 4.3), topic by topic in the order of the partitions.
    """

    instance_id: str | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic_session_timeout_ms: int | None = None
    classic_protocols: tuple[tuple[str, bytes], ...] | None = None
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)
    assigned_epochs: Assignment | None = field(default=None, compare=False)
    pending_revocation_epochs: Assignment | None = field(default=None, compare=False)
    target_epoch: int | None = field(default=None, compare=False)
    """Epoch of the target assignment that the member goes to, which records of 3.7 have."""

    @property
    def speaks_classic(self) -> bool:
        """Whether the member uses the classic protocol (``useClassicProtocol``)."""
        return self.classic_protocols is not None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has the target assignment of ``epoch``."""
        return self.state is MemberState.AWAY or (self.state is MemberState.STABLE and self.member_epoch == epoch)

    def assigned_since(self) -> PartitionEpochs:
        """Assigned partitions with their assignment epochs; the member epoch where no record says one."""
        return self._since(self.assigned, self.assigned_epochs)

    def pending_revocation_since(self) -> PartitionEpochs:
        """Partitions to be revoked, as :meth:`assigned_since`."""
        return self._since(self.pending_revocation, self.pending_revocation_epochs)

    def _since(self, assignment: Assignment, epochs: Assignment | None) -> PartitionEpochs:
        found = {}
        for topic_id, partitions in assignment.items():
            known = () if epochs is None else epochs.get(topic_id, ())
            if len(known) != len(partitions):
                known = (max(self.member_epoch, 0),) * len(partitions)
            found[topic_id] = dict(zip(partitions, known, strict=True))
        return found


class ResolvedRegex(NamedTuple):
    """A resolved subscription regex (type 16): topics, metadata image version, time of resolution."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int
    record_offset: int


@dataclass(slots=True)
class ConsumerGroup:
    """A KIP-848 consumer group. ``assignment_epoch`` is -1 after its record was tombstoned.

    ``static_members`` maps group instance ids to member ids, ``topic_names`` ids to names as far as a partition
    metadata record (type 4, up to Kafka 4.0) has them. Both are not part of the state that is compared.
    """

    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignment_timestamp_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target_assignment: dict[str, Assignment] = field(default_factory=dict)
    target_record_offsets: dict[str, int] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    has_partition_metadata_record: bool = False
    partition_epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    record_offset: int | None = None
    static_members: dict[str, str] = field(default_factory=dict, compare=False)
    topic_names: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def state(self) -> GroupState:
        """Derived, never stored (``ConsumerGroup.maybeUpdateGroupState``)."""
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return GroupState.STABLE if reconciled else GroupState.RECONCILING


@dataclass(slots=True)
class ShareMember(ModernMember):
    """A share group member: records of type 10 and 14."""

    subscribed_topics: tuple[str, ...] = ()
    assigned: Assignment = field(default_factory=dict)


class ShareTopic(NamedTuple):
    """A topic in a share group's state metadata (type 15). ``partitions`` is None for a deleting topic."""

    topic_id: str
    topic: str
    status: str
    partitions: tuple[int, ...] | None
    record_offset: int


@dataclass(slots=True)
class ShareGroup:
    """A share group (KIP-932)."""

    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    assignment_timestamp_ms: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target_assignment: dict[str, Assignment] = field(default_factory=dict)
    target_record_offsets: dict[str, int] = field(default_factory=dict)
    topics: tuple[ShareTopic, ...] = ()
    record_offset: int | None = None

    @property
    def type(self) -> GroupType:
        return GroupType.SHARE

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def is_initializing(self) -> bool:
        """Whether share-partitions of a topic that a member subscribes to have no state yet."""
        subscribed = {topic for member in self.members.values() for topic in member.subscribed_topics}
        return any(one.status == "initializing" and one.topic in subscribed for one in self.topics)


Tasks = dict[str, tuple[int, ...]]
"""Subtopology id to partitions."""


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """Active, standby and warm-up tasks of a streams member."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def by_kind(self) -> dict[str, Tasks]:
        """Tasks under the names that replies and tables have for their kinds."""
        return {"active_tasks": self.active, "standby_tasks": self.standby, "warmup_tasks": self.warmup}


@dataclass(slots=True)
class StreamsMember(ModernMember):
    """A streams group member: records of type 19 and 22."""

    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    user_endpoint: tuple[str, int] | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    assigned: TaskAssignment = field(default_factory=TaskAssignment)
    pending_revocation: TaskAssignment = field(default_factory=TaskAssignment)


@dataclass(slots=True)
class StreamsGroup:
    """A streams group (KIP-1071). ``topology`` is the decoded value of its type-23 record."""

    group_id: str
    group_epoch: int = 0
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    assignment_epoch: int = 0
    assignment_timestamp_ms: int = 0
    last_assignment_configs: dict[str, str] = field(default_factory=dict)
    members: dict[str, StreamsMember] = field(default_factory=dict)
    target_assignment: dict[str, TaskAssignment] = field(default_factory=dict)
    target_record_offsets: dict[str, int] = field(default_factory=dict)
    topology: dict[str, object] | None = None
    topology_record_offset: int | None = None
    record_offset: int | None = None

    @property
    def type(self) -> GroupType:
        return GroupType.STREAMS

    @property
    def state(self) -> GroupState:
        """Derived, never stored (``StreamsGroup.maybeUpdateGroupState``)."""
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology["epoch"] != self.validated_topology_epoch:
            return GroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        for member in self.members.values():
            if member.state is not MemberState.STABLE or member.member_epoch != self.assignment_epoch:
                return GroupState.RECONCILING
        return GroupState.STABLE


Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


class TransactionOutcome(StrEnum):
    """End of a transaction, if it has ended."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class Transaction(NamedTuple):
    """A run of one producer's transactional records, up to its end marker.

    ``first_record_offset`` and ``last_record_offset`` are those of its data records; ``keys`` counts its
    distinct offset keys, ``timestamp_ms`` is that of its last data record.
    """

    producer_id: int
    producer_epoch: int
    first_record_offset: int
    last_record_offset: int
    outcome: TransactionOutcome
    end_marker_offset: int | None
    groups: tuple[str, ...]
    keys: int
    timestamp_ms: int


class LoadFailure(NamedTuple):
    """A record at which the coordinator of this profile stops loading the partition."""

    record_offset: int
    detail: str


class CarriedRecord(NamedTuple):
    """A record this replay keeps but does not interpret: unknown type or version, undecodable body."""

    record_offset: int
    key_type: int | None
    value_version: int | None
    detail: str


@dataclass(slots=True)
class PartitionState:
    """State of a coordinator after the load of one offsets partition.

    ``offsets`` also holds offsets no group owns any more (see :meth:`orphaned`). ``pending`` maps producer
    ids to the commits of their open transactions.
    """

    offsets_partition: int
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: dict[OffsetKey, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, CommittedOffset]] = field(default_factory=dict)
    transactions: list[Transaction] = field(default_factory=list)
    load_failures: list[LoadFailure] = field(default_factory=list)
    carried: list[CarriedRecord] = field(default_factory=list)
    record_counts: dict[tuple[int, int | None], int] = field(default_factory=dict)
    """Records by (key type, value version; None for a tombstone). Control records are not among them."""

    def orphaned(self) -> dict[OffsetKey, CommittedOffset]:
        """Committed offsets whose group a broker would not list: no request can reach them."""
        return {
            offset_key: offset for offset_key, offset in self.offsets.items() if offset_key.group_id not in self.groups
        }
