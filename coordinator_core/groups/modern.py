"""How the Java coordinator replays records of consumer, share and streams groups.

The three kinds have the same five records under different key types (group metadata, member, target
assignment metadata, a member's target assignment, a member's current assignment), and the same rules for
their order: :class:`ModernRecords`. Source: ``GroupMetadataManager.replay`` of the Java coordinator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from coordinator_core.groups.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    Assignment,
    ClassicGroup,
    ConsumerGroup,
    ConsumerMember,
    Group,
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

ModernGroup = ConsumerGroup | ShareGroup | StreamsGroup
Record = dict[str, Any]
Fields = dict[str, Any]
"""Of a member, with their new values."""
Handler = Callable[[int, Record, Record | None], None]
"""Takes the record offset, the key and the value (``None`` for a tombstone)."""


class LoadError(Exception):
    """The loader of this profile stops at this record."""


class ModernRules(Protocol):
    """The facts of a profile (``replay.profiles.Profile``) that modern groups depend on."""

    @property
    def tolerates_missing_groups(self) -> bool: ...
    @property
    def consumer_replaces_simple(self) -> bool: ...
    @property
    def streams_replaces_simple(self) -> bool: ...
    @property
    def initial_epoch(self) -> int: ...


class ModernRecords(ABC):
    """Replays one kind of group into ``groups``, which all kinds share: one group id has one type."""

    group_class: ClassVar[type[ModernGroup]]
    member_class: ClassVar[type[ConsumerMember | ShareMember | StreamsMember]]
    type: ClassVar[GroupType]
    metadata, member, target_metadata, target_member, current_assignment = (0,) * 5
    checks_targets_at_the_end: ClassVar[bool] = True
    """Whether the tombstone of the group's metadata requires that no target assignment is left."""

    def __init__(self, groups: dict[str, Group], rules: ModernRules) -> None:
        self._groups = groups
        self._rules = rules

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

    @abstractmethod
    def set_metadata(self, group: Any, value: Record) -> None:
        """Take over what this kind has in its metadata record besides the epoch."""

    @abstractmethod
    def described(self, value: Record) -> Fields:
        """What a member record says of its member."""

    @abstractmethod
    def target(self, value: Record) -> Any:
        """The target assignment in a record."""

    @abstractmethod
    def assigned(self, value: Record) -> Fields:
        """What a current assignment record says of its member, epochs aside."""

    @abstractmethod
    def unassigned(self) -> Fields:
        """A member's lack of any assignment."""

    @abstractmethod
    def owner_changes(self, group: Any, old: Any, new: Any) -> None:
        """``old`` is about to become ``new`` (either may be ``None``). Raises :class:`LoadError`."""

    def group(self, group_id: str, *, create: bool) -> Any:
        """The group of this kind; ``None`` when it does not exist and a tombstone may be ignored."""
        group = self._groups.get(group_id)
        if isinstance(group, self.group_class):
            return group
        simple = isinstance(group, ClassicGroup) and group.is_simple
        if group is not None and not (simple and self.replaces_simple):
            raise LoadError(f"group {group_id!r} is a {group.type} group, not a {self.type} group")
        if group is None and not create:
            return self._missing(f"{self.type} group {group_id!r}")
        epoch = self._rules.initial_epoch
        created = self._groups[group_id] = self.group_class(
            group_id, group_epoch=epoch, assignment_epoch=epoch
        )
        return created

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
            raise LoadError(f"{what}, which still has {len(group.members)} members")
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
            member = group.members.get(member_id) or self.member_class(member_id)
            group.members[member_id] = replace(member, **self.described(value), record_offset=record_offset)
            return
        member = self._known_member(group, member_id)
        if member is None:
            return
        what = f"tombstone for member {member_id!r} of group {group.group_id!r}"
        if member.member_epoch != LEAVE_GROUP_MEMBER_EPOCH:
            raise LoadError(f"{what} without the tombstone of its current assignment")
        if member_id in group.target_assignment:
            raise LoadError(f"{what} without the tombstone of its target assignment")
        self.owner_changes(group, member, None)
        del group.members[member_id]

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
                f"which still has {len(group.target_assignment)} target assignments"
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
            old = self._known_member(group, member_id)
            if old is None:
                return
            epochs = (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_MEMBER_EPOCH)
            assignment = self.unassigned()
        else:
            old = group.members.get(member_id)
            epochs = (value["memberEpoch"], value["previousMemberEpoch"])
            assignment = self.assigned(value)
        new = replace(
            old or self.member_class(member_id),
            **assignment,
            member_epoch=epochs[0],
            previous_member_epoch=epochs[1],
            assignment_record_offset=record_offset,
        )
        self.owner_changes(group, old, new)
        group.members[member_id] = new


def _assignment(topic_partitions: list[Record]) -> Assignment:
    return {entry["topicId"]: tuple(entry["partitions"]) for entry in topic_partitions}


# The same byte means other things to consumer and share members than to streams members.
_MEMBER_STATES = {
    0: MemberState.STABLE,
    1: MemberState.UNREVOKED_PARTITIONS,
    2: MemberState.UNRELEASED_PARTITIONS,
}
_STREAMS_MEMBER_STATES = {
    1: MemberState.STABLE,
    2: MemberState.UNREVOKED_TASKS,
    3: MemberState.UNRELEASED_TASKS,
}


class ConsumerRecords(ModernRecords):
    """Consumer groups (KIP-848)."""

    group_class = ConsumerGroup
    member_class = ConsumerMember
    type = GroupType.CONSUMER
    metadata, member, target_metadata, target_member, current_assignment = 3, 5, 6, 7, 8

    def handlers(self) -> dict[int, Handler]:
        return super().handlers() | {4: self._partition_metadata, 16: self._regex}

    @property
    def replaces_simple(self) -> bool:
        return self._rules.consumer_replaces_simple

    def set_metadata(self, group: ConsumerGroup, value: Record) -> None:
        """The epoch and the hash are all there is."""

    def described(self, value: Record) -> Fields:
        classic = value.get("classicMemberMetadata")
        return {
            "instance_id": value["instanceId"],
            "rack_id": value["rackId"],
            "client_id": value["clientId"],
            "client_host": value["clientHost"],
            "subscribed_topics": tuple(value["subscribedTopicNames"]),
            "subscribed_regex": value["subscribedTopicRegex"] or None,
            "rebalance_timeout_ms": value["rebalanceTimeoutMs"],
            "server_assignor": value["serverAssignor"],
            "classic_session_timeout_ms": classic["sessionTimeoutMs"] if classic else None,
            "classic_protocols": (
                tuple((entry["name"], entry["metadata"]) for entry in classic["supportedProtocols"])
                if classic
                else None
            ),
        }

    def target(self, value: Record) -> Assignment:
        return _assignment(value["topicPartitions"])

    def assigned(self, value: Record) -> Fields:
        return {
            "state": _MEMBER_STATES.get(value.get("state", 0), MemberState.UNKNOWN),
            "assigned": _assignment(value["assignedPartitions"]),
            "pending_revocation": _assignment(value["partitionsPendingRevocation"]),
        }

    def unassigned(self) -> Fields:
        return {"assigned": {}, "pending_revocation": {}}

    def owner_changes(
        self, group: ConsumerGroup, old: ConsumerMember | None, new: ConsumerMember | None
    ) -> None:
        """Keep who owns which partition at which epoch (``ConsumerGroup.maybeUpdatePartitionEpoch``)."""
        # Not a copy: a group of many members has as many of these records as members.
        epochs = group.partition_epochs
        released = {part for part in _owned(old) if epochs.get(part) == old.member_epoch} if old else set()
        taken: dict[tuple[str, int], int] = {}
        if new is not None:
            for partition in _owned(new):
                held = None if partition in released else epochs.get(partition)
                epoch = taken.get(partition, held)
                if epoch is not None and epoch >= new.member_epoch:
                    raise LoadError(
                        f"partition {partition[0]}-{partition[1]} of group {group.group_id!r} goes to member "
                        f"{new.member_id!r} at epoch {new.member_epoch} while owned at epoch {epoch}"
                    )
                taken[partition] = new.member_epoch
        for partition in released:
            del epochs[partition]
        epochs.update(taken)

    def _partition_metadata(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is not None:
            group.has_partition_metadata_record = value is not None

    def _regex(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is None:
            return
        regex = key["regularExpression"]
        if value is None:
            group.regexes.pop(regex, None)
        else:
            group.regexes[regex] = ResolvedRegex(
                tuple(value["topics"]), value["version"], value["timestamp"], record_offset
            )


def _owned(member: ConsumerMember) -> list[tuple[str, int]]:
    return [
        (topic_id, partition)
        for assignment in (member.assigned, member.pending_revocation)
        for topic_id, partitions in assignment.items()
        for partition in partitions
    ]


class ShareRecords(ModernRecords):
    """Share groups (KIP-932)."""

    group_class = ShareGroup
    member_class = ShareMember
    type = GroupType.SHARE
    metadata, member, target_metadata, target_member, current_assignment = 11, 10, 12, 13, 14
    replaces_simple = False

    def __init__(self, groups: dict[str, Group], rules: ModernRules) -> None:
        super().__init__(groups, rules)
        self._topics: dict[str, tuple[ShareTopic, ...]] = {}

    def handlers(self) -> dict[int, Handler]:
        return super().handlers() | {15: self._state}

    def finish(self) -> None:
        """The coordinator keeps the state of topics beside the groups, by group id: put it on them."""
        for group_id, topics in self._topics.items():
            group = self._groups.get(group_id)
            if isinstance(group, ShareGroup):
                group.topics = topics

    def set_metadata(self, group: ShareGroup, value: Record) -> None:
        """The epoch and the hash are all there is."""

    def described(self, value: Record) -> Fields:
        return {
            "rack_id": value["rackId"],
            "client_id": value["clientId"],
            "client_host": value["clientHost"],
            "subscribed_topics": tuple(value["subscribedTopicNames"]),
        }

    def target(self, value: Record) -> Assignment:
        return _assignment(value["topicPartitions"])

    def assigned(self, value: Record) -> Fields:
        return {
            "state": _MEMBER_STATES.get(value["state"], MemberState.UNKNOWN),
            "assigned": _assignment(value["assignedPartitions"]),
        }

    def unassigned(self) -> Fields:
        return {"assigned": {}}

    def owner_changes(self, group: ShareGroup, old: ShareMember | None, new: ShareMember | None) -> None:
        """Members share partitions."""

    def _state(self, record_offset: int, key: Record, value: Record | None) -> None:
        group_id = key["groupId"]
        self.group(group_id, create=value is not None)
        if value is None:
            self._topics.pop(group_id, None)
            return
        topics = [
            ShareTopic(
                topic["topicId"], topic["topicName"], status, tuple(topic["partitions"]), record_offset
            )
            for status in ("initializing", "initialized")
            for topic in value.get(f"{status}Topics", ())
        ]
        topics += [
            ShareTopic(topic["topicId"], topic["topicName"], "deleting", None, record_offset)
            for topic in value["deletingTopics"]
        ]
        self._topics[group_id] = tuple(topics)


class StreamsRecords(ModernRecords):
    """Streams groups (KIP-1071)."""

    group_class = StreamsGroup
    member_class = StreamsMember
    type = GroupType.STREAMS
    metadata, member, target_metadata, target_member, current_assignment = 17, 19, 20, 21, 22
    checks_targets_at_the_end = False

    def handlers(self) -> dict[int, Handler]:
        return super().handlers() | {23: self._topology}

    @property
    def replaces_simple(self) -> bool:
        return self._rules.streams_replaces_simple

    def set_metadata(self, group: StreamsGroup, value: Record) -> None:
        group.validated_topology_epoch = value.get("validatedTopologyEpoch", -1)
        group.last_assignment_configs = {
            entry["key"]: entry["value"] for entry in value.get("lastAssignmentConfigs") or ()
        }

    def described(self, value: Record) -> Fields:
        endpoint = value["userEndpoint"]
        return {
            "instance_id": value["instanceId"],
            "rack_id": value["rackId"],
            "client_id": value["clientId"],
            "client_host": value["clientHost"],
            "rebalance_timeout_ms": value["rebalanceTimeoutMs"],
            "topology_epoch": value["topologyEpoch"],
            "process_id": value["processId"],
            "user_endpoint": (endpoint["host"], endpoint["port"]) if endpoint else None,
            "client_tags": tuple((tag["key"], tag["value"]) for tag in value["clientTags"]),
        }

    def target(self, value: Record) -> TaskAssignment:
        return _task_assignment(value)

    def assigned(self, value: Record) -> Fields:
        return {
            "state": _STREAMS_MEMBER_STATES.get(value["state"], MemberState.UNKNOWN),
            "assigned": _task_assignment(value),
            "pending_revocation": _task_assignment(value, "PendingRevocation"),
        }

    def unassigned(self) -> Fields:
        return {"assigned": TaskAssignment(), "pending_revocation": TaskAssignment()}

    def owner_changes(
        self, group: StreamsGroup, old: StreamsMember | None, new: StreamsMember | None
    ) -> None:
        """The coordinator notes tasks' processes, and objects to nothing."""

    def _topology(self, record_offset: int, key: Record, value: Record | None) -> None:
        group = self.group(key["groupId"], create=value is not None)
        if group is not None:
            group.topology = value
            group.topology_record_offset = None if value is None else record_offset


def _task_assignment(value: Record, suffix: str = "") -> TaskAssignment:
    def tasks(kind: str) -> Tasks:
        return {entry["subtopologyId"]: tuple(entry["partitions"]) for entry in value[f"{kind}Tasks{suffix}"]}

    return TaskAssignment(tasks("active"), tasks("standby"), tasks("warmup"))
