"""Loaders of the two coordinators: records that are not commits become groups.

Both classes take records in log order through :meth:`GroupLoader.apply`, and of commits that there was one through
:meth:`GroupLoader.touch`. A record at which the real loader would give up raises :class:`LoadError`. The coordinator
model uses them too, with its own map of groups.
Sources: ``GroupMetadataManager.doLoadGroupsAndOffsets`` (Scala), ``GroupMetadataManager.replay`` (Java).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from coordinator_core.groups.classic import classic_group_from_record, duplicate_instance_id, stopping_member
from coordinator_core.groups.model import ClassicGroup, Group, GroupState, GroupType, ShareTopic
from coordinator_core.groups.modern import (
    ConsumerRecords,
    LoadError,
    ModernRecords,
    PartitionEpochs,
    ShareRecords,
    StreamsRecords,
)
from coordinator_core.releases import Loader, Profile

__all__ = ["GroupLoader", "JavaGroups", "LoadError", "LoadedRecord", "ScalaGroups"]


class LoadedRecord(NamedTuple):
    """A decoded record; ``value`` is None for a tombstone."""

    record_offset: int
    key_type: int
    key: dict[str, Any]
    version: int
    value: dict[str, Any] | None


def _unchanged(group: ClassicGroup) -> ClassicGroup:
    return group


class GroupLoader(ABC):
    """The groups of either coordinator in a replay.

    ``groups`` is the caller's own map by id, if it has one; ``classic`` makes its class of a classic group.
    """

    def __init__(
        self,
        rules: Profile,
        groups: dict[str, Any] | None = None,
        classic: Callable[[ClassicGroup], Any] = _unchanged,
    ) -> None:
        self._rules = rules
        self._groups: dict[str, Any] = {} if groups is None else groups
        self._classic = classic

    @abstractmethod
    def apply(self, record: LoadedRecord) -> None:
        """Apply one record of key type 2 or above."""

    @abstractmethod
    def touch(self, group_id: str) -> None:
        """An offset was committed (perhaps in a transaction) for ``group_id``."""

    def get(self, group_id: str) -> Group | None:
        """The group as the records so far made it."""
        return self._groups.get(group_id)

    def restore(
        self,
        group_id: str,
        group_type: GroupType,
        records: Iterable[LoadedRecord],
        partition_epochs: PartitionEpochs | None,
    ) -> None:
        """Make a group of the newest record of each of its keys; no record of it may have been applied.

        Records come in an order in which none refers to a later one: of the group, of members, of the rest.
        ``partition_epochs`` are given where they do not follow from these records: a member has left, or has
        taken partitions that another one still owned.
        """
        for record in records:
            self.apply(record)

    def state(self) -> dict[str, Any]:
        """State from which :meth:`load` of a new loader goes on: plain values and classes of ``groups.model``."""
        return {"groups": self._groups}

    def load(self, state: Mapping[str, Any]) -> None:
        self._groups.update(state["groups"])

    @abstractmethod
    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        """The groups after the scan, by id; ``groups_with_offsets`` have committed or pending offsets."""

    def _apply_classic(self, record: LoadedRecord, *, empty_group_keeps_protocol_type: bool) -> None:
        """A value replaces, and a tombstone removes, a group of any type."""
        group_id = record.key["group"]
        if record.value is None:
            self._groups.pop(group_id, None)
            return
        group = classic_group_from_record(
            group_id,
            record.version,
            record.value,
            record.record_offset,
            state_timestamp_versions=self._rules.state_timestamp_versions,
            empty_group_keeps_protocol_type=empty_group_keeps_protocol_type,
            # ``GroupMetadataManager.readGroupMessageValue`` looks at the version alone, ``replay`` at the value.
            no_timeout=-1 if self._rules.loader is Loader.JAVA else None,
        )
        instance_id = duplicate_instance_id(group) if self._rules.refuses_duplicate_instances else None
        if instance_id is not None:
            raise LoadError(f"two members of group {group_id!r} have the group instance id {instance_id!r}")
        member_id = stopping_member(group, self._rules.subscription_reading)
        if member_id is not None:
            raise LoadError(f"the subscription of member {member_id!r} of group {group_id!r} cannot be read")
        self._groups[group_id] = self._classic(group)


class ScalaGroups(GroupLoader):
    """The classic coordinator: GroupMetadata records, and a group for every id that has offsets."""

    def apply(self, record: LoadedRecord) -> None:
        keeps_protocol_type = self._rules.empty_group_keeps_protocol_type
        self._apply_classic(record, empty_group_keeps_protocol_type=keeps_protocol_type)

    def touch(self, group_id: str) -> None:
        """Commits create nothing while the log is read; see :meth:`finish`."""

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        if self._rules.keeps_offsets_only_groups:
            state = GroupState.EMPTY if self._rules.has_group_state else None
            for group_id in groups_with_offsets:
                if group_id not in self._groups:
                    self._groups[group_id] = self._classic(ClassicGroup(group_id, state))
        return self._groups


class JavaGroups(GroupLoader):
    """The Java coordinator: groups of all four types, created by their first record or commit.

    ``kinds`` are the other types whose records it takes; records of further types raise ``KeyError``.
    """

    def __init__(
        self,
        rules: Profile,
        groups: dict[str, Any] | None = None,
        classic: Callable[[ClassicGroup], Any] = _unchanged,
        kinds: Iterable[type[ModernRecords]] = (ConsumerRecords, ShareRecords, StreamsRecords),
    ) -> None:
        super().__init__(rules, groups, classic)
        self._kinds: Mapping[GroupType, ModernRecords] = {kind.type: kind(self._groups, rules) for kind in kinds}
        self._handlers = {
            key_type: handler for kind in self._kinds.values() for key_type, handler in kind.handlers().items()
        }

    def apply(self, record: LoadedRecord) -> None:
        if record.key_type == 2:
            self._apply_classic(record, empty_group_keeps_protocol_type=True)
        else:
            self._handlers[record.key_type](record.record_offset, record.key, record.value)

    def touch(self, group_id: str) -> None:
        """A commit for an unknown group id makes a simple group; its tombstone does not unmake it."""
        if group_id not in self._groups:
            self._groups[group_id] = self._classic(ClassicGroup(group_id, GroupState.EMPTY))

    def restore(
        self,
        group_id: str,
        group_type: GroupType,
        records: Iterable[LoadedRecord],
        partition_epochs: PartitionEpochs | None,
    ) -> None:
        if group_type is GroupType.CLASSIC:
            self.touch(group_id)
            super().restore(group_id, group_type, records, partition_epochs)
            return
        kind = self._kinds[group_type]
        group = kind.create(group_id)
        kind.is_restoring = True
        super().restore(group_id, group_type, records, partition_epochs)
        kind.is_restoring = False
        kind.restored(group, partition_epochs)

    @property
    def _share(self) -> ShareRecords | None:
        found = self._kinds.get(GroupType.SHARE)
        return found if isinstance(found, ShareRecords) else None

    @property
    def share_topics(self) -> dict[str, tuple[ShareTopic, ...]]:
        """Share-partitions by group, which the coordinator keeps beside its groups."""
        return {} if self._share is None else self._share.topics

    def state(self) -> dict[str, Any]:
        return super().state() | {"share_topics": self.share_topics}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        if self._share is not None:
            self._share.topics.update(state["share_topics"])

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        for kind in self._kinds.values():
            kind.finish()
        return self._groups
