"""How the two coordinators turn records that are not commits into groups.

Both classes take records in log order through :meth:`apply` and the commits' side effect through
:meth:`touch`. A record at which the real loader would give up raises :class:`LoadError`.
Sources: ``GroupMetadataManager.doLoadGroupsAndOffsets`` (Scala), ``GroupMetadataManager.replay`` (Java).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from coordinator_core.groups.classic import classic_group_from_record, duplicate_instance_id
from coordinator_core.groups.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    Assignment,
    ClassicGroup,
    ConsumerGroup,
    ConsumerMember,
    Group,
    GroupState,
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


class LoadError(Exception):
    """The loader of this profile stops at this record."""


class LoaderRules(Protocol):
    """The facts of a profile (``replay.profiles.Profile``) that group loading depends on."""

    @property
    def state_timestamp_versions(self) -> frozenset[int]: ...
    @property
    def empty_group_keeps_protocol_type(self) -> bool: ...
    @property
    def keeps_offsets_only_groups(self) -> bool: ...
    @property
    def has_group_state(self) -> bool: ...
    @property
    def tolerates_missing_groups(self) -> bool: ...
    @property
    def consumer_replaces_simple(self) -> bool: ...
    @property
    def streams_replaces_simple(self) -> bool: ...
    @property
    def initial_epoch(self) -> int: ...


class GroupLoader(Protocol):
    """What replay needs of either coordinator."""

    def apply(
        self,
        record_offset: int,
        key_type: int,
        key: dict[str, Any],
        version: int,
        value: dict[str, Any] | None,
    ) -> None:
        """Apply one record of key type 2 or above; ``value`` is None for a tombstone."""

    def touch(self, group_id: str) -> None:
        """An offset was committed (perhaps in a transaction) for ``group_id``."""

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        """The groups after the scan, by id; ``groups_with_offsets`` have committed or pending offsets."""


class ScalaGroups:
    """The classic coordinator: GroupMetadata records, and a group for every id that has offsets."""

    def __init__(self, rules: LoaderRules) -> None:
        self._rules = rules
        self._loaded: dict[str, ClassicGroup] = {}

    def apply(
        self,
        record_offset: int,
        key_type: int,
        key: dict[str, Any],
        version: int,
        value: dict[str, Any] | None,
    ) -> None:
        group_id = key["group"]
        if value is None:
            self._loaded.pop(group_id, None)
            return
        self._loaded[group_id] = classic_group_from_record(
            group_id,
            version,
            value,
            record_offset,
            state_timestamp_versions=self._rules.state_timestamp_versions,
            empty_group_keeps_protocol_type=self._rules.empty_group_keeps_protocol_type,
        )

    def touch(self, group_id: str) -> None:
        """Commits create nothing while the log is read; see :meth:`finish`."""

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        groups: dict[str, Group] = dict(self._loaded)
        if self._rules.keeps_offsets_only_groups:
            state = GroupState.EMPTY if self._rules.has_group_state else None
            for group_id in groups_with_offsets:
                if group_id not in groups:
                    groups[group_id] = ClassicGroup(group_id, state)
        return groups


def _assignment(topic_partitions: list[dict[str, Any]]) -> Assignment:
    return {entry["topicId"]: tuple(entry["partitions"]) for entry in topic_partitions}


def _tasks(entries: list[dict[str, Any]]) -> Tasks:
    return {entry["subtopologyId"]: tuple(entry["partitions"]) for entry in entries}


# The same byte means other things to the two families (facts 2.4 and 2.6 of the record schemas).
_CONSUMER_MEMBER_STATES = {
    0: MemberState.STABLE,
    1: MemberState.UNREVOKED_PARTITIONS,
    2: MemberState.UNRELEASED_PARTITIONS,
}
_STREAMS_MEMBER_STATES = {
    1: MemberState.STABLE,
    2: MemberState.UNREVOKED_TASKS,
    3: MemberState.UNRELEASED_TASKS,
}

_Handler = Callable[["JavaGroups", int, dict[str, Any], dict[str, Any] | None], None]


class JavaGroups:
    """The Java coordinator: groups of all four types, created by their first record or commit."""

    def __init__(self, rules: LoaderRules) -> None:
        self._rules = rules
        self._groups: dict[str, Group] = {}
        self._share_topics: dict[str, tuple[ShareTopic, ...]] = {}

    def apply(
        self,
        record_offset: int,
        key_type: int,
        key: dict[str, Any],
        version: int,
        value: dict[str, Any] | None,
    ) -> None:
        if key_type == 2:
            self._apply_classic(record_offset, key["group"], version, value)
        else:
            _HANDLERS[key_type](self, record_offset, key, value)

    def touch(self, group_id: str) -> None:
        """A commit for an unknown group id makes a simple group; its tombstone does not unmake it."""
        if group_id not in self._groups:
            self._groups[group_id] = ClassicGroup(group_id, GroupState.EMPTY)

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        for group_id, topics in self._share_topics.items():
            group = self._groups.get(group_id)
            if isinstance(group, ShareGroup):
                group.topics = topics
        return self._groups

    # Classic groups

    def _apply_classic(
        self, record_offset: int, group_id: str, version: int, value: dict[str, Any] | None
    ) -> None:
        if value is None:
            self._groups.pop(group_id, None)
            return
        group = classic_group_from_record(
            group_id,
            version,
            value,
            record_offset,
            state_timestamp_versions=self._rules.state_timestamp_versions,
            empty_group_keeps_protocol_type=True,
        )
        instance_id = duplicate_instance_id(group)
        if instance_id is not None:
            raise LoadError(f"two members of group {group_id!r} have the group instance id {instance_id!r}")
        self._groups[group_id] = group

    # Lookup of groups and members; None stands for "tombstone of something unknown: ignore it"

    def _missing(self, what: str) -> None:
        if not self._rules.tolerates_missing_groups:
            raise LoadError(f"tombstone for {what}, which does not exist")

    def _consumer_group(self, group_id: str, create: bool) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is None and not create:
            self._missing(f"consumer group {group_id!r}")
            return None
        if group is not None and not (self._rules.consumer_replaces_simple and self._is_simple(group)):
            raise LoadError(f"group {group_id!r} is a {group.type} group, not a consumer group")
        epoch = self._rules.initial_epoch
        created = ConsumerGroup(group_id, group_epoch=epoch, assignment_epoch=epoch)
        self._groups[group_id] = created
        return created

    def _share_group(self, group_id: str, create: bool) -> ShareGroup | None:
        group = self._groups.get(group_id)
        if isinstance(group, ShareGroup):
            return group
        if group is not None:
            raise LoadError(f"group {group_id!r} is a {group.type} group, not a share group")
        if not create:
            self._missing(f"share group {group_id!r}")
            return None
        epoch = self._rules.initial_epoch
        created = ShareGroup(group_id, group_epoch=epoch, assignment_epoch=epoch)
        self._groups[group_id] = created
        return created

    def _streams_group(self, group_id: str, create: bool) -> StreamsGroup | None:
        group = self._groups.get(group_id)
        if isinstance(group, StreamsGroup):
            return group
        if group is None and not create:
            self._missing(f"streams group {group_id!r}")
            return None
        if group is not None and not (self._rules.streams_replaces_simple and self._is_simple(group)):
            raise LoadError(f"group {group_id!r} is a {group.type} group, not a streams group")
        epoch = self._rules.initial_epoch
        created = StreamsGroup(group_id, group_epoch=epoch, assignment_epoch=epoch)
        self._groups[group_id] = created
        return created

    @staticmethod
    def _is_simple(group: Group) -> bool:
        return isinstance(group, ClassicGroup) and group.is_simple

    def _check_group_tombstone(
        self, group: ConsumerGroup | ShareGroup | StreamsGroup, *, target_too: bool
    ) -> None:
        if group.members:
            raise LoadError(
                f"tombstone for group {group.group_id!r}, which still has {len(group.members)} members"
            )
        if target_too and group.target_assignment:
            raise LoadError(f"tombstone for group {group.group_id!r}, which still has target assignments")
        if group.assignment_epoch != -1:
            raise LoadError(
                f"tombstone for group {group.group_id!r} without that of its target assignment metadata"
            )

    def _check_member_tombstone(
        self,
        group: ConsumerGroup | ShareGroup | StreamsGroup,
        member: ConsumerMember | ShareMember | StreamsMember,
    ) -> None:
        where = f"member {member.member_id!r} of group {group.group_id!r}"
        if member.member_epoch != LEAVE_GROUP_MEMBER_EPOCH:
            raise LoadError(f"tombstone for {where} without the tombstone of its current assignment")
        if member.member_id in group.target_assignment:
            raise LoadError(f"tombstone for {where} without the tombstone of its target assignment")

    def _check_target_tombstone(self, group: ConsumerGroup | ShareGroup | StreamsGroup) -> None:
        if group.target_assignment:
            raise LoadError(
                f"tombstone for the target assignment metadata of group {group.group_id!r}, "
                f"which still has {len(group.target_assignment)} target assignments"
            )

    # Consumer groups (KIP-848)

    def _consumer_metadata(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._consumer_group(key["groupId"], value is not None)
        if group is None:
            return
        if value is None:
            self._check_group_tombstone(group, target_too=True)
            del self._groups[group.group_id]
            return
        group.group_epoch = value["epoch"]
        group.metadata_hash = value.get("metadataHash", 0)
        group.record_offset = offset

    def _consumer_partition_metadata(
        self, offset: int, key: dict[str, Any], value: dict[str, Any] | None
    ) -> None:
        group = self._consumer_group(key["groupId"], value is not None)
        if group is not None:
            group.has_partition_metadata_record = value is not None

    def _consumer_member(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._consumer_group(key["groupId"], value is not None)
        if group is None:
            return
        member_id = key["memberId"]
        member = group.members.get(member_id)
        if value is None:
            if member is None:
                self._missing(f"member {member_id!r} of group {group.group_id!r}")
                return
            self._check_member_tombstone(group, member)
            self._release_partitions(group, member)
            del group.members[member_id]
            return
        classic = value.get("classicMemberMetadata")
        group.members[member_id] = replace(
            member or ConsumerMember(member_id),
            instance_id=value["instanceId"],
            rack_id=value["rackId"],
            client_id=value["clientId"],
            client_host=value["clientHost"],
            subscribed_topics=tuple(value["subscribedTopicNames"]),
            subscribed_regex=value["subscribedTopicRegex"] or None,
            rebalance_timeout_ms=value["rebalanceTimeoutMs"],
            server_assignor=value["serverAssignor"],
            classic_session_timeout_ms=classic["sessionTimeoutMs"] if classic else None,
            classic_protocols=(
                tuple((entry["name"], entry["metadata"]) for entry in classic["supportedProtocols"])
                if classic
                else None
            ),
            record_offset=offset,
        )

    def _consumer_target_metadata(
        self, offset: int, key: dict[str, Any], value: dict[str, Any] | None
    ) -> None:
        group = self._consumer_group(key["groupId"], value is not None)
        if group is not None:
            self._set_target_metadata(group, value)

    def _set_target_metadata(
        self, group: ConsumerGroup | ShareGroup | StreamsGroup, value: dict[str, Any] | None
    ) -> None:
        if value is None:
            self._check_target_tombstone(group)
            group.assignment_epoch, group.assignment_timestamp_ms = -1, 0
            return
        group.assignment_epoch = value["assignmentEpoch"]
        group.assignment_timestamp_ms = value.get("assignmentTimestamp", 0)

    def _consumer_target_member(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._consumer_group(key["groupId"], value is not None)
        if group is None:
            return
        if value is None:
            group.target_assignment.pop(key["memberId"], None)
        else:
            group.target_assignment[key["memberId"]] = _assignment(value["topicPartitions"])

    def _consumer_current_assignment(
        self, offset: int, key: dict[str, Any], value: dict[str, Any] | None
    ) -> None:
        group = self._consumer_group(key["groupId"], value is not None)
        if group is None:
            return
        member_id = key["memberId"]
        old = group.members.get(member_id)
        if value is None:
            if old is None:
                self._missing(f"member {member_id!r} of group {group.group_id!r}")
                return
            new = replace(
                old,
                member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                assigned={},
                pending_revocation={},
                assignment_record_offset=offset,
            )
        else:
            new = replace(
                old or ConsumerMember(member_id),
                member_epoch=value["memberEpoch"],
                previous_member_epoch=value["previousMemberEpoch"],
                state=_CONSUMER_MEMBER_STATES.get(value.get("state", 0), MemberState.UNKNOWN),
                assigned=_assignment(value["assignedPartitions"]),
                pending_revocation=_assignment(value["partitionsPendingRevocation"]),
                assignment_record_offset=offset,
            )
        self._move_partitions(group, old, new)
        group.members[member_id] = new

    def _release_partitions(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    if group.partition_epochs.get((topic_id, partition)) == member.member_epoch:
                        del group.partition_epochs[topic_id, partition]

    def _move_partitions(self, group: ConsumerGroup, old: ConsumerMember | None, new: ConsumerMember) -> None:
        """Keep who owns which partition at which epoch (``ConsumerGroup.maybeUpdatePartitionEpoch``)."""
        before = dict(group.partition_epochs)
        if old is not None:
            self._release_partitions(group, old)
        for assignment in (new.assigned, new.pending_revocation):
            for topic_id, partitions in assignment.items():
                for partition in partitions:
                    owned = group.partition_epochs.get((topic_id, partition))
                    if owned is not None and owned >= new.member_epoch:
                        group.partition_epochs = before
                        raise LoadError(
                            f"partition {topic_id}-{partition} of group {group.group_id!r} goes to member "
                            f"{new.member_id!r} at epoch {new.member_epoch} while owned at epoch {owned}"
                        )
                    group.partition_epochs[topic_id, partition] = new.member_epoch

    def _consumer_regex(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._consumer_group(key["groupId"], value is not None)
        if group is None:
            return
        regex = key["regularExpression"]
        if value is None:
            group.regexes.pop(regex, None)
        else:
            group.regexes[regex] = ResolvedRegex(
                tuple(value["topics"]), value["version"], value["timestamp"], offset
            )

    # Share groups (KIP-932)

    def _share_metadata(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._share_group(key["groupId"], value is not None)
        if group is None:
            return
        if value is None:
            self._check_group_tombstone(group, target_too=True)
            del self._groups[group.group_id]
            return
        group.group_epoch = value["epoch"]
        group.metadata_hash = value.get("metadataHash", 0)
        group.record_offset = offset

    def _share_member(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._share_group(key["groupId"], value is not None)
        if group is None:
            return
        member_id = key["memberId"]
        member = group.members.get(member_id)
        if value is None:
            if member is not None:
                self._check_member_tombstone(group, member)
                del group.members[member_id]
            return
        group.members[member_id] = replace(
            member or ShareMember(member_id),
            rack_id=value["rackId"],
            client_id=value["clientId"],
            client_host=value["clientHost"],
            subscribed_topics=tuple(value["subscribedTopicNames"]),
            record_offset=offset,
        )

    def _share_target_metadata(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._share_group(key["groupId"], value is not None)
        if group is not None:
            self._set_target_metadata(group, value)

    def _share_target_member(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._share_group(key["groupId"], value is not None)
        if group is None:
            return
        if value is None:
            group.target_assignment.pop(key["memberId"], None)
        else:
            group.target_assignment[key["memberId"]] = _assignment(value["topicPartitions"])

    def _share_current_assignment(
        self, offset: int, key: dict[str, Any], value: dict[str, Any] | None
    ) -> None:
        group = self._share_group(key["groupId"], value is not None)
        if group is None:
            return
        member_id = key["memberId"]
        member = group.members.get(member_id)
        if value is None:
            if member is not None:
                group.members[member_id] = replace(
                    member,
                    member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                    previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                    assigned={},
                    assignment_record_offset=offset,
                )
            return
        group.members[member_id] = replace(
            member or ShareMember(member_id),
            member_epoch=value["memberEpoch"],
            previous_member_epoch=value["previousMemberEpoch"],
            state=_CONSUMER_MEMBER_STATES.get(value["state"], MemberState.UNKNOWN),
            assigned=_assignment(value["assignedPartitions"]),
            assignment_record_offset=offset,
        )

    def _share_state(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group_id = key["groupId"]
        self._share_group(group_id, value is not None)
        if value is None:
            self._share_topics.pop(group_id, None)
            return
        topics = [
            ShareTopic(topic["topicId"], topic["topicName"], status, tuple(topic["partitions"]))
            for status in ("initializing", "initialized")
            for topic in value.get(f"{status}Topics", ())
        ]
        topics += [
            ShareTopic(topic["topicId"], topic["topicName"], "deleting", None)
            for topic in value["deletingTopics"]
        ]
        self._share_topics[group_id] = tuple(topics)

    # Streams groups (KIP-1071)

    def _streams_metadata(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._streams_group(key["groupId"], value is not None)
        if group is None:
            return
        if value is None:
            self._check_group_tombstone(group, target_too=False)
            del self._groups[group.group_id]
            return
        group.group_epoch = value["epoch"]
        group.metadata_hash = value["metadataHash"]
        group.validated_topology_epoch = value.get("validatedTopologyEpoch", -1)
        group.last_assignment_configs = {
            entry["key"]: entry["value"] for entry in value.get("lastAssignmentConfigs") or ()
        }
        group.record_offset = offset

    def _streams_member(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._streams_group(key["groupId"], value is not None)
        if group is None:
            return
        member_id = key["memberId"]
        member = group.members.get(member_id)
        if value is None:
            if member is not None:
                self._check_member_tombstone(group, member)
                del group.members[member_id]
            return
        endpoint = value["userEndpoint"]
        group.members[member_id] = replace(
            member or StreamsMember(member_id),
            instance_id=value["instanceId"],
            rack_id=value["rackId"],
            client_id=value["clientId"],
            client_host=value["clientHost"],
            rebalance_timeout_ms=value["rebalanceTimeoutMs"],
            topology_epoch=value["topologyEpoch"],
            process_id=value["processId"],
            user_endpoint=(endpoint["host"], endpoint["port"]) if endpoint else None,
            client_tags=tuple((tag["key"], tag["value"]) for tag in value["clientTags"]),
            record_offset=offset,
        )

    def _streams_target_metadata(
        self, offset: int, key: dict[str, Any], value: dict[str, Any] | None
    ) -> None:
        group = self._streams_group(key["groupId"], value is not None)
        if group is not None:
            self._set_target_metadata(group, value)

    def _streams_target_member(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._streams_group(key["groupId"], value is not None)
        if group is None:
            return
        if value is None:
            group.target_assignment.pop(key["memberId"], None)
        else:
            group.target_assignment[key["memberId"]] = TaskAssignment(
                _tasks(value["activeTasks"]), _tasks(value["standbyTasks"]), _tasks(value["warmupTasks"])
            )

    def _streams_current_assignment(
        self, offset: int, key: dict[str, Any], value: dict[str, Any] | None
    ) -> None:
        group = self._streams_group(key["groupId"], value is not None)
        if group is None:
            return
        member_id = key["memberId"]
        member = group.members.get(member_id)
        if value is None:
            if member is not None:
                group.members[member_id] = replace(
                    member,
                    member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                    previous_member_epoch=LEAVE_GROUP_MEMBER_EPOCH,
                    assigned=TaskAssignment(),
                    pending_revocation=TaskAssignment(),
                    assignment_record_offset=offset,
                )
            return
        group.members[member_id] = replace(
            member or StreamsMember(member_id),
            member_epoch=value["memberEpoch"],
            previous_member_epoch=value["previousMemberEpoch"],
            state=_STREAMS_MEMBER_STATES.get(value["state"], MemberState.UNKNOWN),
            assigned=TaskAssignment(
                _tasks(value["activeTasks"]), _tasks(value["standbyTasks"]), _tasks(value["warmupTasks"])
            ),
            pending_revocation=TaskAssignment(
                _tasks(value["activeTasksPendingRevocation"]),
                _tasks(value["standbyTasksPendingRevocation"]),
                _tasks(value["warmupTasksPendingRevocation"]),
            ),
            assignment_record_offset=offset,
        )

    def _streams_topology(self, offset: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        group = self._streams_group(key["groupId"], value is not None)
        if group is not None:
            group.topology = value


_HANDLERS: dict[int, _Handler] = {
    3: JavaGroups._consumer_metadata,
    4: JavaGroups._consumer_partition_metadata,
    5: JavaGroups._consumer_member,
    6: JavaGroups._consumer_target_metadata,
    7: JavaGroups._consumer_target_member,
    8: JavaGroups._consumer_current_assignment,
    10: JavaGroups._share_member,
    11: JavaGroups._share_metadata,
    12: JavaGroups._share_target_metadata,
    13: JavaGroups._share_target_member,
    14: JavaGroups._share_current_assignment,
    15: JavaGroups._share_state,
    16: JavaGroups._consumer_regex,
    17: JavaGroups._streams_metadata,
    19: JavaGroups._streams_member,
    20: JavaGroups._streams_target_metadata,
    21: JavaGroups._streams_target_member,
    22: JavaGroups._streams_current_assignment,
    23: JavaGroups._streams_topology,
}
