"""How the two coordinators turn records that are not commits into groups.

Both classes take records in log order through :meth:`apply` and the commits' side effect through
:meth:`touch`. A record at which the real loader would give up raises :class:`LoadError`. The coordinator
model uses them too: ``groups`` is then its own map, and ``classic`` makes its own class of a classic group.
Sources: ``GroupMetadataManager.doLoadGroupsAndOffsets`` (Scala), ``GroupMetadataManager.replay`` (Java).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from coordinator_core.groups.classic import classic_group_from_record, duplicate_instance_id
from coordinator_core.groups.model import ClassicGroup, ConsumerGroup, Group, GroupState, GroupType
from coordinator_core.groups.modern import (
    ConsumerRecords,
    LoadError,
    ModernRecords,
    ModernRules,
    ShareRecords,
    StreamsRecords,
)

__all__ = ["GroupLoader", "JavaGroups", "LoadError", "LoadedRecord", "LoaderRules", "ScalaGroups"]

PartitionEpochs = dict[tuple[str, int], int]
"""``ConsumerGroup.partition_epochs``."""


class LoadedRecord(NamedTuple):
    """Arguments of :meth:`GroupLoader.apply`."""

    record_offset: int
    key_type: int
    key: dict[str, Any]
    version: int
    value: dict[str, Any] | None


def _unchanged(group: ClassicGroup) -> ClassicGroup:
    return group


class LoaderRules(ModernRules, Protocol):
    """The facts of a profile (``releases.Profile``) that group loading depends on."""

    @property
    def state_timestamp_versions(self) -> frozenset[int]: ...
    @property
    def empty_group_keeps_protocol_type(self) -> bool: ...
    @property
    def keeps_offsets_only_groups(self) -> bool: ...
    @property
    def has_group_state(self) -> bool: ...


class GroupLoader(Protocol):
    """Interface of either coordinator for a replay."""

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

    def get(self, group_id: str) -> Group | None:
        """The group as the records so far made it."""

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

    def state(self) -> dict[str, Any]:
        """What :meth:`load` of a new loader goes on from: plain values and classes of ``groups.model``."""

    def load(self, state: Mapping[str, Any]) -> None: ...

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        """The groups after the scan, by id; ``groups_with_offsets`` have committed or pending offsets."""


class ScalaGroups:
    """The classic coordinator: GroupMetadata records, and a group for every id that has offsets."""

    def __init__(
        self,
        rules: LoaderRules,
        groups: dict[str, Any] | None = None,
        classic: Callable[[ClassicGroup], Any] = _unchanged,
    ) -> None:
        self._rules = rules
        self._groups: dict[str, Any] = {} if groups is None else groups
        self._classic = classic

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
            self._groups.pop(group_id, None)
            return
        group = classic_group_from_record(
            group_id,
            version,
            value,
            record_offset,
            state_timestamp_versions=self._rules.state_timestamp_versions,
            empty_group_keeps_protocol_type=self._rules.empty_group_keeps_protocol_type,
        )
        self._groups[group_id] = self._classic(group)

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def touch(self, group_id: str) -> None:
        """Commits create nothing while the log is read; see :meth:`finish`."""

    def restore(
        self,
        group_id: str,
        group_type: GroupType,
        records: Iterable[LoadedRecord],
        partition_epochs: PartitionEpochs | None,
    ) -> None:
        for record in records:
            self.apply(*record)

    def state(self) -> dict[str, Any]:
        return {"groups": self._groups}

    def load(self, state: Mapping[str, Any]) -> None:
        self._groups.update(state["groups"])

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        if self._rules.keeps_offsets_only_groups:
            state = GroupState.EMPTY if self._rules.has_group_state else None
            for group_id in groups_with_offsets:
                if group_id not in self._groups:
                    self._groups[group_id] = self._classic(ClassicGroup(group_id, state))
        return self._groups


class JavaGroups:
    """The Java coordinator: groups of all four types, created by their first record or commit.

    ``kinds`` are the other types whose records it takes; records of further types raise ``KeyError``.
    """

    def __init__(
        self,
        rules: LoaderRules,
        groups: dict[str, Any] | None = None,
        classic: Callable[[ClassicGroup], Any] = _unchanged,
        kinds: Iterable[type[ModernRecords]] = (ConsumerRecords, ShareRecords, StreamsRecords),
    ) -> None:
        self._rules = rules
        self._groups: dict[str, Any] = {} if groups is None else groups
        self._classic = classic
        self._kinds: Mapping[GroupType, ModernRecords] = {kind.type: kind(self._groups, rules) for kind in kinds}
        self._handlers = {
            key_type: handler for kind in self._kinds.values() for key_type, handler in kind.handlers().items()
        }

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
            self._handlers[key_type](record_offset, key, value)

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

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
        else:
            self._kinds[group_type].create(group_id)
        for record in records:
            self.apply(*record)
            if partition_epochs is not None:
                # Members may own the same partition: none must find another one's epoch.
                self._set_partition_epochs(group_id, {})
        if partition_epochs is not None:
            self._set_partition_epochs(group_id, partition_epochs)

    def state(self) -> dict[str, Any]:
        topics = {kind: found.topics for kind, found in self._kinds.items() if isinstance(found, ShareRecords)}
        return {"groups": self._groups, "share_topics": topics.get(GroupType.SHARE, {})}

    def load(self, state: Mapping[str, Any]) -> None:
        self._groups.update(state["groups"])
        for kind in self._kinds.values():
            if isinstance(kind, ShareRecords):
                kind.topics.update(state["share_topics"])

    def _set_partition_epochs(self, group_id: str, epochs: PartitionEpochs) -> None:
        group = self._groups[group_id]
        assert isinstance(group, ConsumerGroup)
        group.partition_epochs = epochs

    def finish(self, groups_with_offsets: Iterable[str]) -> dict[str, Group]:
        for kind in self._kinds.values():
            if isinstance(kind, ShareRecords):
                kind.finish()
        return self._groups

    def _apply_classic(self, record_offset: int, group_id: str, version: int, value: dict[str, Any] | None) -> None:
        """A value replaces, and a tombstone removes, a group of whatever type."""
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
        self._groups[group_id] = self._classic(group)
