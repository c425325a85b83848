"""A classic group of the Java coordinator, and the interface of groups of any type."""

from __future__ import annotations

from typing import Protocol

from coordinator_core.coordinator.classic import LiveClassicGroup
from coordinator_core.coordinator.describe import Listed
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.offsets import CommittingGroup, Validate
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.records import group_tombstone
from coordinator_core.coordinator.requests import Committer
from coordinator_core.coordinator.validation import validate_commit
from coordinator_core.groups.model import GroupState


class Group(Listed, CommittingGroup, Protocol):
    """``org.apache.kafka.coordinator.group.Group``."""

    @property
    def is_empty(self) -> bool: ...

    def validate_offset_commit(self, who: Committer, version: int) -> Validate: ...
    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...
    def validate_offset_delete(self) -> None: ...
    def validate_delete(self) -> None: ...
    def tombstones(self) -> list[Record]: ...
    def timer_keys(self) -> list[tuple[str, ...]]: ...


def accept_any(_topic: str, _topic_id: str, _partition: int) -> None:
    """Nothing is checked per partition (``CommitPartitionValidator.NO_OP``)."""


class JavaClassicGroup(LiveClassicGroup):
    """``ClassicGroup``."""

    def validate_offset_commit(self, who: Committer, version: int) -> Validate:
        validate_commit(self, who)
        standalone = who.generation < 0 and self.is_empty
        if not who.transactional and not standalone and self.is_in(GroupState.COMPLETING_REBALANCE):
            raise ApiError(Errors.REBALANCE_IN_PROGRESS)
        return accept_any

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.is_in(GroupState.DEAD):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND)

    def validate_offset_delete(self) -> None:
        if self.is_in(GroupState.DEAD):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND)
        if not self.is_empty and not self.uses_consumer_protocol:
            raise ApiError(Errors.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        if self.is_in(GroupState.DEAD):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND)
        if not self.is_empty:
            raise ApiError(Errors.NON_EMPTY_GROUP)

    def tombstones(self) -> list[Record]:
        return [group_tombstone(self.group_id)]

    def timer_keys(self) -> list[tuple[str, ...]]:
        """Keys of timers to cancel: none. A deleted classic group has no members; pending ones expire."""
        return []
