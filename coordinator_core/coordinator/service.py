"""Common parts of the request handlers of both coordinators.

Sources: ``GroupCoordinator`` behind ``GroupCoordinatorAdapter`` (Scala), ``GroupCoordinatorService`` (Java).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.manager import GroupMetadataManager, LoadState
from coordinator_core.coordinator.membership import MemberIds, Membership
from coordinator_core.coordinator.replies import DescribedGroup, LeaveGroupReply, LeaveMember
from coordinator_core.coordinator.requests import Heartbeat, JoinGroup, LeaveGroup, TxnOffsetCommit
from coordinator_core.coordinator.rules import ReleaseRules

M = TypeVar("M", bound=GroupMetadataManager[Any])

VerifyTransaction = Callable[[TxnOffsetCommit, int], Errors]
"""Says whether the transaction of a TxnOffsetCommit has the group's partition; takes its version."""


class GroupCoordinator(ABC, Generic[M]):
    """Answers the group APIs of one broker. ``active`` is whether it was started.

    A handler returns its answer; those of JoinGroup and SyncGroup call ``respond``, as members wait.
    """

    rules: ReleaseRules

    def __init__(self, manager: M, new_member_id: MemberIds, verify: VerifyTransaction) -> None:
        self.settings = manager.settings
        self.clock = manager.clock
        self.manager = manager
        self.membership = Membership(manager.rebalances, new_member_id)
        self.active = True
        self._verify = verify

    def check(self, group_id: str, *, empty_id: bool = False) -> None:
        """The first checks of every request: group id, started, load state; raises :class:`ApiError`."""
        if not group_id and not empty_id:
            raise ApiError(Errors.INVALID_GROUP_ID)
        if not self.active:
            raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
        state = self.manager.state_of(group_id)
        if state is LoadState.LOADING:
            raise ApiError(Errors.COORDINATOR_LOAD_IN_PROGRESS)
        if state is None:
            raise ApiError(Errors.NOT_COORDINATOR)

    def accepts_session_timeout(self, request: JoinGroup) -> bool:
        low, high = self.settings.group_min_session_timeout_ms, self.settings.group_max_session_timeout_ms
        return low <= request.session_timeout_ms <= high

    def heartbeat(self, request: Heartbeat) -> Errors:
        """While the coordinator loads, a member is told that all is well."""
        try:
            self.check(request.group_id)
            return self.group_heartbeat(request)
        except ApiError as error:
            loading = error.error is Errors.COORDINATOR_LOAD_IN_PROGRESS
            return Errors.NONE if loading else error.error

    @abstractmethod
    def group_heartbeat(self, request: Heartbeat) -> Errors:
        """The heartbeat in its group; raises :class:`ApiError` without one."""

    def leave_group(self, request: LeaveGroup) -> LeaveGroupReply:
        try:
            self.check(request.group_id)
            return self.leave(request)
        except ApiError as error:
            return LeaveGroupReply(error.error)

    @abstractmethod
    def leave(self, request: LeaveGroup) -> LeaveGroupReply:
        """Members leave their group, if there is one."""

    def describe_group(self, group_id: str, version: int) -> DescribedGroup:
        try:
            self.check(group_id, empty_id=True)
        except ApiError as error:
            return DescribedGroup(error.error, None, group_id)
        return self.described(group_id, version)

    @abstractmethod
    def described(self, group_id: str, version: int) -> DescribedGroup:
        """The group, if there is one, for a DescribeGroups of this version."""


def nobody_left(request: LeaveGroup) -> LeaveGroupReply:
    """The answer where no group is."""
    unknown = (LeaveMember(*one, Errors.UNKNOWN_MEMBER_ID) for one in request.members)
    return LeaveGroupReply(Errors.NONE, tuple(unknown))
