"""Replay of the records of consumer, share and streams groups, as the Java coordinator does it.

The three kinds have the same five records under different key types (group metadata, member, target
assignment metadata, a member's target assignment, a member's current assignment), and the same rules for
their order: :class:`ModernRecords`. Source: ``GroupMetadataManager.replay`` of the Java coordinator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from coordinator_core.durations import numbered
from coordinator_core.groups.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    Assignment,
    ConsumerGroup,
    ConsumerMember,
    GroupType,
    MemberState,
    ResolvedRegex,
    ShareGroup,
    ShareMember,
    ShareTopic,
    StreamsGroup,
    StreamsMember,
    TaskAssignment,
    Tasks,
)
from coordinator_core.releases import Profile

ModernGroup = ConsumerGroup | ShareGroup | StreamsGroup
Record = dict[str, Any]
PartitionEpochs = dict[tuple[str, int], int]
"""``ConsumerGroup.partition_epochs``."""
Handler = Callable[[int, Record, Record | None], None]
"""Takes the record offset, the key and the value (``None`` for a tombstone)."""


class LoadError(Exception):
    """The loader of this profile stops at this record."""


class ModernRecords(ABC):
    """Replays one kind of group into ``groups``, which all kinds share: one group id has one type.

    Classic groups among them may be of any class that has ``type`` and ``is_simple``.
    """

    group_class: ClassVar[type[ModernGroup]]
    member_class: ClassVar[type[ConsumerMember | ShareMember | StreamsMember]]
    type: ClassVar[GroupType]
    metadata, member, target_metadata, target_member, current_assignment = (0,) * 5
    checks_targets_at_the_end: ClassVar[bool] = True
    """Whether the tombstone of the group's metadata requires that no target assignment is left."""

    def __init__(self, groups: dict[str, Any], rules: Profile) -> None:
        self._groups = groups
        self._rules = rules
        self.is_restoring = False
        """Whether records are applied of which it is known that each was loaded in its turn."""

    def handlers(self) -> dict[int, Handler]:
        """Handlers by key type."""
        return {
            self.metadata: self._metadata,
            self.member: self._member,
            self.target_metadata: self._target_metadata,
            self.target_member: self._target_member,
            self.current_assignment: self._current_assignment,
        }

    @property
    @abstractmethod
    def replaces_simple(self) -> bool:
        """Whether records of this kind replace a simple classic group, which no record backs."""

    def set_metadata(self, group: Any, value: Record) -> None:  # noqa: B027
        """Apply the fields of the metadata record besides the epoch and the hash; most kinds have none."""

    @abstractmethod
    def describe(self, group: Any, member: Any, value: Record) -> None:
        """Apply a member record to its member."""

    def remove(self, group: Any, member: Any) -> None:
        """Remove a member that has a tombstone."""
        del group.members[member.member_id]

    def target(self, value: Record) -> Any:
        """The target assignment in a record."""
        return _assignment(value["topicPartitions"])

    def finish(self) -> None:  # noqa: B027
        """Settle facts that only the end of the log tells; nothing, for most kinds."""

    def restored(self, group: Any, partition_epochs: PartitionEpochs | None) -> None:  # noqa: B027
        """Settle facts that the newest records of a group do not tell one by one; see ``GroupLoader.restore``."""

    @abstractmethod
    def assign(self, group: Any, member: Any, member_epoch: int, value: Record | None) -> None:
        """Apply a current assignment record to its member, which is about to be at ``member_epoch``.

        ``None`` takes all assignments away. Raises :class:`LoadError` before anything is set.
        """

    def group(self, group_id: str, *, create: bool) -> Any:
        """The group of this kind; ``None`` when it does not exist and a tombstone may be ignored."""
        group = self._groups.get(group_id)
        if isinstance(group, self.group_class):
            return group
        simple = group is not None and group.type is GroupType.CLASSIC and group.is_simple
        if group is not None and not (simple and self.replaces_simple):
            raise LoadError(f"group {group_id!r} is a {group.type} group, not a {self.type} group")
        if group is None and not create:
            return self._missing(f"{self.type} group {group_id!r}")
        return self.create(group_id)

    def create(self, group_id: str) -> Any:
        """A group of this kind without members, in the place of any group that has the id."""
        created = self._groups[group_id] = self.new_group(group_id)
        return created

    def new_group(self, group_id: str) -> Any:
        """A group of this kind before its first record."""
        epoch = self._rules.initial_epoch
        return self.group_class(group_id, group_epoch=epoch, assignment_epoch=epoch)

    def _missing(self, what: str) -> None:
        if not self._rules.tolerates_missing_groups:
            raise LoadError(f"tombstone for {what}, which does not exist")

    def _known_member(self, group: Any, member_id: str) -> Any:
        member = group.members.get(member_id)
        if member is None:
            self._missing(f"member {member_id!r} of group {group.group_id!r}")
        return member

    def _metadata(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is None:
            return
        if value is not None:
            group.group_epoch = value["epoch"]
            group.metadata_hash = value.get("metadataHash", 0)
            self.set_metadata(group, value)
            group.record_offset = record_offset
            return
        what = f"tombstone for group {group.group_id!r}"
        if group.members:
            raise LoadError(f"{what}, which still has {numbered(len(group.members), 'member')}")
        if self.checks_targets_at_the_end and group.target_assignment:
            raise LoadError(f"{what}, which still has target assignments")
        if group.assignment_epoch != -1:
            raise LoadError(f"{what} without that of its target assignment metadata")
        del self._groups[group.group_id]

    def _member(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is None:
            return
        member_id = key["memberId"]
        if value is not None:
            member = group.members.get(member_id)
            if member is None:
                member = group.members[member_id] = self.member_class(member_id)
            self.describe(group, member, value)
            member.record_offset = record_offset
            return
        member = self._known_member(group, member_id)
        if member is None:
            return
        what = f"tombstone for member {member_id!r} of group {group.group_id!r}"
        if member.member_epoch != LEAVE_GROUP_MEMBER_EPOCH:
            raise LoadError(f"{what} without the tombstone of its current assignment")
        if member_id in group.target_assignment:
            raise LoadError(f"{what} without the tombstone of its target assignment")
        self.assign(group, member, LEAVE_GROUP_MEMBER_EPOCH, None)
        self.remove(group, member)

    def _target_metadata(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is None:
            return
        if value is not None:
            group.assignment_epoch = value["assignmentEpoch"]
            group.assignment_timestamp_ms = value.get("assignmentTimestamp", 0)
            return
        if group.target_assignment:
            raise LoadError(
                f"tombstone for the target assignment metadata of group {group.group_id!r}, "
                f"which still has {numbered(len(group.target_assignment), 'target assignment')}"
            )
        group.assignment_epoch, group.assignment_timestamp_ms = -1, 0

    def _target_member(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is None:
            return
        if value is None:
            group.target_assignment.pop(key["memberId"], None)
            group.target_record_offsets.pop(key["memberId"], None)
        else:
            group.target_assignment[key["memberId"]] = self.target(value)
            group.target_record_offsets[key["memberId"]] = record_offset

    def _current_assignment(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is None:
            return
        member_id = key["memberId"]
        if value is None:
            member = self._known_member(group, member_id)
            if member is None:
                return
            epochs = (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH)
        else:
            member = group.members.get(member_id) or self.member_class(member_id)
            epochs = (value["memberEpoch"], value["previousMemberEpoch"])
        self.assign(group, member, epochs[0], value)
        member.member_epoch, member.previous_member_epoch = epochs
        member.assignment_record_offset = record_offset
        group.members[member_id] = member


def _assignment(topic_partitions: list[Record]) -> Assignment:
    return {entry["topicId"]: tuple(entry["partitions"]) for entry in topic_partitions}


def _with_epochs(topic_partitions: Sequence[Record]) -> tuple[Assignment, Assignment | None]:
    """Partitions by topic id, and assignment epochs of the topics whose entry has them."""
    assignment: Assignment = {}
    epochs: Assignment | None = None
    for entry in topic_partitions:
        topic_id = entry["topicId"]
        assignment[topic_id] = tuple(entry["partitions"])
        known = entry.get("assignmentEpochs")
        if known:
            if epochs is None:
                epochs = {}
            epochs[topic_id] = tuple(known)
    return assignment, epochs


# The same byte means other things to consumer and share members than to streams members.
MEMBER_STATES = {0: MemberState.STABLE, 1: MemberState.UNREVOKED_PARTITIONS, 2: MemberState.UNRELEASED_PARTITIONS}
STREAMS_MEMBER_STATES = {1: MemberState.STABLE, 2: MemberState.UNREVOKED_TASKS, 3: MemberState.UNRELEASED_TASKS}


def _state(value: Record) -> MemberState:
    """State of a consumer member in its current assignment record; members of 3.7 show it by pending partitions."""
    if "state" in value:
        return MEMBER_STATES.get(value["state"], MemberState.UNKNOWN)
    if value["partitionsPendingRevocation"]:
        return MemberState.UNREVOKED_PARTITIONS
    return MemberState.UNRELEASED_PARTITIONS if value.get("partitionsPendingAssignment") else MemberState.STABLE


class ConsumerRecords(ModernRecords):
    """Consumer groups (KIP-848)."""

    group_class = ConsumerGroup
    member_class = ConsumerMember
    type = GroupType.CONSUMER
    metadata, member, target_metadata, target_member, current_assignment = 3, 5, 6, 7, 8
    partition_metadata, regex = 4, 16

    def handlers(self) -> dict[int, Handler]:
        own = {self.partition_metadata: self._partition_metadata, self.regex: self._regex}
        return super().handlers() | own

    @property
    def replaces_simple(self) -> bool:
        return self._rules.consumer_replaces_simple

    def describe(self, group: ConsumerGroup, member: ConsumerMember, value: Record) -> None:
        classic = value.get("classicMemberMetadata")
        member.instance_id = value["instanceId"]
        member.rack_id = value["rackId"]
        member.client_id = value["clientId"]
        member.client_host = value["clientHost"]
        member.subscribed_topics = tuple(value["subscribedTopicNames"])
        member.subscribed_regex = value["subscribedTopicRegex"] or None
        member.rebalance_timeout_ms = value["rebalanceTimeoutMs"]
        member.server_assignor = value["serverAssignor"]
        member.classic_session_timeout_ms = classic["sessionTimeoutMs"] if classic else None
        member.classic_protocols = (
            tuple((entry["name"], entry["metadata"]) for entry in classic["supportedProtocols"]) if classic else None
        )
        if member.instance_id is not None:
            group.static_members[member.instance_id] = member.member_id

    def remove(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        super().remove(group, member)
        if member.instance_id is not None:
            group.static_members.pop(member.instance_id, None)

    def assign(self, group: ConsumerGroup, member: ConsumerMember, member_epoch: int, value: Record | None) -> None:
        """Keeps the epoch since which each partition is owned (``ConsumerGroup.maybeUpdatePartitionEpoch``)."""
        assigned, assigned_epochs = _with_epochs(value["assignedPartitions"] if value else ())
        pending_revocation, pending_epochs = _with_epochs(value["partitionsPendingRevocation"] if value else ())
        if not self.is_restoring:
            self._take(group, member, member_epoch, _owned(assigned, pending_revocation))
        member.assigned, member.pending_revocation = assigned, pending_revocation
        member.assigned_epochs, member.pending_revocation_epochs = assigned_epochs, pending_epochs
        if value is not None:
            member.state = _state(value)
            member.target_epoch = value.get("targetMemberEpoch")

    def _take(
        self, group: ConsumerGroup, member: ConsumerMember, member_epoch: int, partitions: list[tuple[str, int]]
    ) -> None:
        """Let the member own these partitions at that epoch, and no others."""
        # Not a copy: a group of many members has as many of these records as members.
        epochs = group.partition_epochs
        released = {
            partition
            for partition in _owned(member.assigned, member.pending_revocation)
            if epochs.get(partition) == member.member_epoch
        }
        taken: dict[tuple[str, int], int] = {}
        for partition in partitions:
            held = None if partition in released else epochs.get(partition)
            epoch = taken.get(partition, held)
            if epoch is not None and (epoch >= member_epoch or not self._rules.tolerates_owned_partitions):
                raise LoadError(
                    f"partition {partition[0]}-{partition[1]} of group {group.group_id!r} goes to member "
                    f"{member.member_id!r} at epoch {member_epoch} while owned at epoch {epoch}"
                )
            taken[partition] = member_epoch
        for partition in released:
            del epochs[partition]
        epochs.update(taken)

    def restored(self, group: ConsumerGroup, partition_epochs: PartitionEpochs | None) -> None:
        if partition_epochs is None:
            partition_epochs = {
                partition: member.member_epoch
                for member in group.members.values()
                for partition in _owned(member.assigned, member.pending_revocation)
            }
        group.partition_epochs = partition_epochs

    def finish(self) -> None:
        """3.7 asks which target assignment a member goes to: one that is away may have the group's."""
        groups = (group for group in self._groups.values() if isinstance(group, ConsumerGroup))
        for group in groups if self._rules.compares_target_epochs else ():
            for member in group.members.values():
                if member.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH:
                    has_target = member.target_epoch == group.assignment_epoch
                    member.state = MemberState.AWAY if has_target else MemberState.STABLE

    def _partition_metadata(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is not None:
            group.has_partition_metadata_record = value is not None
            topics = () if value is None else value["topics"]
            group.topic_names = {topic["topicId"]: topic["topicName"] for topic in topics}

    def _regex(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is None:
            return
        regex = key["regularExpression"]
        # Also one that is set anew goes first (``updateResolvedRegularExpression``): maps keep their order.
        group.regexes.pop(regex, None)
        if value is not None:
            group.regexes[regex] = ResolvedRegex(
                tuple(value["topics"]), value["version"], value["timestamp"], record_offset
            )


def _owned(*assignments: Assignment) -> list[tuple[str, int]]:
    return [
        (topic_id, partition)
        for assignment in assignments
        for topic_id, partitions in assignment.items()
        for partition in partitions
    ]


class ShareRecords(ModernRecords):
    """Share groups (KIP-932)."""

    group_class = ShareGroup
    member_class = ShareMember
    type = GroupType.SHARE
    metadata, member, target_metadata, target_member, current_assignment = 11, 10, 12, 13, 14
    partition_metadata, state_metadata = 9, 15
    replaces_simple = False

    def __init__(self, groups: dict[str, Any], rules: Profile) -> None:
        super().__init__(groups, rules)
        self.topics: dict[str, tuple[ShareTopic, ...]] = {}
        """Share-partitions by group, until :meth:`finish`."""

    def handlers(self) -> dict[int, Handler]:
        return super().handlers() | {
            self.state_metadata: self._state,
            self.partition_metadata: self._partition_metadata,
        }

    def group(self, group_id: str, *, create: bool) -> Any:
        """Like that of the other kinds; the first releases with share groups stop where a group is missing."""
        if not create and group_id not in self._groups and not self._rules.tolerates_missing_share_groups:
            raise LoadError(f"tombstone for share group {group_id!r}, which does not exist")
        return super().group(group_id, create=create)

    def finish(self) -> None:
        """The coordinator keeps the state of topics beside the groups, by group id: put it on them."""
        for group_id, topics in self.topics.items():
            group = self._groups.get(group_id)
            if isinstance(group, ShareGroup):
                group.topics = topics

    def describe(self, group: ShareGroup, member: ShareMember, value: Record) -> None:
        member.rack_id = value["rackId"]
        member.client_id = value["clientId"]
        member.client_host = value["clientHost"]
        member.subscribed_topics = tuple(value["subscribedTopicNames"])

    def assign(self, group: ShareGroup, member: ShareMember, member_epoch: int, value: Record | None) -> None:
        if value is not None:
            member.state = MEMBER_STATES.get(value["state"], MemberState.UNKNOWN)
        member.assigned = _assignment(value["assignedPartitions"]) if value else {}

    def _partition_metadata(self, record_offset: int, key: Record, value: Record | None) -> None:
        """Numbers of partitions are all there is; only 4.0 writes and reads them."""
        self.group(key["groupId"], create=value is not None)

    def _state(self, record_offset: int, key: Record, value: Record | None) -> None:
        group_id = key["groupId"]
        self.group(group_id, create=value is not None)
        if value is None:
            self.topics.pop(group_id, None)
            return
        topics = [
            ShareTopic(topic["topicId"], topic["topicName"], status, tuple(topic["partitions"]), record_offset)
            for status in ("initializing", "initialized")
            for topic in value.get(f"{status}Topics", ())
        ]
        topics += [
            ShareTopic(topic["topicId"], topic["topicName"], "deleting", None, record_offset)
            for topic in value["deletingTopics"]
        ]
        self.topics[group_id] = tuple(topics)


class StreamsRecords(ModernRecords):
    """Streams groups (KIP-1071)."""

    group_class = StreamsGroup
    member_class = StreamsMember
    type = GroupType.STREAMS
    metadata, member, target_metadata, target_member, current_assignment = 17, 19, 20, 21, 22
    topology = 23
    checks_targets_at_the_end = False

    def handlers(self) -> dict[int, Handler]:
        return super().handlers() | {self.topology: self._topology}

    @property
    def replaces_simple(self) -> bool:
        return self._rules.streams_replaces_simple

    def set_metadata(self, group: StreamsGroup, value: Record) -> None:
        if self._rules.reads_validated_topology:
            group.validated_topology_epoch = value.get("validatedTopologyEpoch", -1)
        group.last_assignment_configs = {
            entry["key"]: entry["value"] for entry in value.get("lastAssignmentConfigs") or ()
        }

    def describe(self, group: StreamsGroup, member: StreamsMember, value: Record) -> None:
        endpoint = value["userEndpoint"]
        member.instance_id = value["instanceId"]
        member.rack_id = value["rackId"]
        member.client_id = value["clientId"]
        member.client_host = value["clientHost"]
        member.rebalance_timeout_ms = value["rebalanceTimeoutMs"]
        member.topology_epoch = value["topologyEpoch"]
        member.process_id = value["processId"]
        member.user_endpoint = (endpoint["host"], endpoint["port"]) if endpoint else None
        member.client_tags = tuple((tag["key"], tag["value"]) for tag in value["clientTags"])

    def target(self, value: Record) -> TaskAssignment:
        return _task_assignment(value)

    def assign(self, group: StreamsGroup, member: StreamsMember, member_epoch: int, value: Record | None) -> None:
        if value is None:
            member.assigned = member.pending_revocation = TaskAssignment()
            return
        member.state = STREAMS_MEMBER_STATES.get(value["state"], MemberState.UNKNOWN)
        member.assigned = _task_assignment(value)
        member.pending_revocation = _task_assignment(value, "PendingRevocation")

    def _topology(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is not None:
            group.topology = value
            group.topology_record_offset = None if value is None else record_offset


def _task_assignment(value: Record, suffix: str = "") -> TaskAssignment:
    def tasks(kind: str) -> Tasks:
        return {entry["subtopologyId"]: tuple(entry["partitions"]) for entry in value[f"{kind}Tasks{suffix}"]}

    return TaskAssignment(tasks("active"), tasks("standby"), tasks("warmup"))
