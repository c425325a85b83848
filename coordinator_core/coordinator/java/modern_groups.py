"""Handling of groups of one of the modern types: lookup, sessions and fencing, describes.

Source: ``GroupMetadataManager``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager
from coordinator_core.coordinator.java.modern_group import ModernGroup, RevokingMember, timer_keys
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.groups.model import MemberState, ModernMember

Group = TypeVar("Group", bound=ModernGroup[Any])
Described = TypeVar("Described")

_REVOKING = (MemberState.UNREVOKED_PARTITIONS, MemberState.UNREVOKED_TASKS)

Check = Callable[[str], None]
"""Takes a group id; raises :class:`ApiError` when this coordinator does not answer for it."""


class ModernGroups(ABC, Generic[Group]):
    """The groups of class ``kind`` of one coordinator; errors call them ``type_name`` groups."""

    def __init__(
        self,
        manager: JavaGroupMetadataManager,
        metadata: Callable[[], MetadataImage],
        kind: type[Group],
        type_name: str,
    ) -> None:
        self.manager = manager
        self.settings = manager.settings
        self.metadata = metadata
        self._kind = kind
        self._type_name = type_name
        manager.on_loaded[kind] = self.loaded

    @property
    @abstractmethod
    def session_timeout_ms(self) -> int: ...

    @abstractmethod
    def topics_of(self, group: Group) -> set[str]:
        """Names of the topics whose metadata the group follows."""

    @abstractmethod
    def remove(self, group: Group, member_id: str) -> None:
        """Write that a member was fenced; :class:`ApiError` when the log refuses."""

    @property
    def now_ms(self) -> int:
        return self.manager.clock.now_ms

    def group(self, group_id: str, *, written: bool = False) -> Group:
        """The group, as it is or as of the written end of its partition; :class:`ApiError` when there is none."""
        return self.own(group_id, self.manager.written_group(group_id) if written else self.manager.group(group_id))

    def own(self, group_id: str, group: object) -> Group:
        """``group``; :class:`ApiError` when it is of another type."""
        if not isinstance(group, self._kind):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {self._type_name} group.")
        return group

    def not_found(self, group_id: str) -> ApiError:
        return ApiError(Errors.GROUP_ID_NOT_FOUND, f"{self._type_name.capitalize()} group {group_id} not found.")

    def topics_changed(self, names: set[str]) -> None:
        """Groups that follow one of these topics look at their topics again with the next heartbeat."""
        for group in self.manager.groups.values():
            if isinstance(group, self._kind) and names & self.topics_of(group):
                group.metadata_deadline_ms = group.metadata_deadline_epoch = 0

    def keep_deadline(self, group: Group) -> None:
        """A group that this heartbeat made is replaced by what its records made: keep the deadline."""
        current = self.manager.groups.get(group.group_id)
        if isinstance(current, self._kind):
            current.metadata_deadline_ms = group.metadata_deadline_ms
            current.metadata_deadline_epoch = group.metadata_deadline_epoch

    def refuse_when_full(self, group: Group, member_id: str, limit: int) -> None:
        if len(group.members) >= limit and member_id not in group.members:
            text = f"The {self._type_name} group has reached its maximum capacity of {limit} members."
            raise ApiError(Errors.GROUP_MAX_SIZE_REACHED, text)

    def loaded(self, group: Group) -> None:
        """Sessions of the members begin anew, and so does the time to give up partitions or tasks."""
        for member in group.members.values():
            self.restart_session(group.group_id, member.member_id)
            if member.state in _REVOKING:
                self.schedule_rebalance_timeout(group.group_id, member)

    # Timers

    def fence_later(self, group_id: str, member_id: str, epoch: int | None = None) -> Callable[[], None]:
        """An action that removes the member, unless it has another epoch by then."""

        def fence() -> None:
            try:
                group = self.group(group_id)
                member: ModernMember = group.member(member_id)
                if epoch is None or member.member_epoch == epoch:
                    self.remove(group, member_id)
            except ApiError:
                # Group or member went before, or the log refuses: then the next timer tries.
                return

        return fence

    def restart_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        if timeout_ms is None:
            timeout_ms = self.session_timeout_ms
        fence = self.fence_later(group_id, member_id)
        self.manager.timers.schedule(("session", group_id, member_id), timeout_ms, fence)

    def schedule_rebalance_timeout(self, group_id: str, member: RevokingMember) -> None:
        """The time that a member has to give up revoked partitions."""
        fence = self.fence_later(group_id, member.member_id, member.member_epoch)
        key = ("rebalance", group_id, member.member_id)
        self.manager.timers.schedule(key, member.rebalance_timeout_ms, fence)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        for key in timer_keys(group_id, member_id):
            self.manager.timers.cancel(key)

    # Describe

    def describe_by(
        self,
        group_id: str,
        check: Check,
        show: Callable[[Group], Described],
        refused: Callable[[Errors, str | None, str], Described],
    ) -> Described:
        """``show`` of the written group; a ``refused`` group has error, message and group id."""
        try:
            check(group_id)
            group = self.group(group_id, written=True)
        except ApiError as error:
            return refused(error.error, error.message, "" if error.error is Errors.INVALID_GROUP_ID else group_id)
        return show(group)
