"""The facts in which the two coordinators differ; code asks for the fact, never for the release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coordinator_core.coordinator.maps import JavaHashMap, ScalaHashMap, scala_trie_order


@dataclass(frozen=True, slots=True)
class ReleaseRules:
    """See :data:`SCALA` and :data:`JAVA`."""

    name: str
    member_map: type[dict[str, Any]]
    """Map of a classic group's members: the first one left follows a leader that goes."""
    scala_votes: bool
    sync_restarts_session: bool
    """SyncGroup in Stable restarts the session timer."""
    first_join_is_written: bool
    """The first JoinGroup of a new group appends its empty metadata, even when it is refused."""
    leaves_one_by_one: bool
    """What follows from a member's leaving follows after each member of one LeaveGroup, else once."""
    purgatory: bool
    """Joins wait in a purgatory: the initial one ends by its time only, and its delay is extended while the
    generation is 0. Else it is extended while the group came from Empty."""
    replaced_static_member_forgets_newness: bool
    shows_assignment_outside_stable: bool
    unset_protocol_matches: bool
    """A SyncGroup may name a protocol while the group has none yet."""
    unknown_subscription_is_all: bool
    missing_group_is_an_error_since: int | None
    """Version of DescribeGroups that answers GROUP_ID_NOT_FOUND for a group that does not exist."""

    def vote_order(self, votes: Iterable[str]) -> list[str]:
        """Order in which protocols with equally many votes are tried; the first wins."""
        return scala_trie_order(votes) if self.scala_votes else list(JavaHashMap((v, None) for v in votes))


SCALA = ReleaseRules(
    name="scala",
    member_map=ScalaHashMap,
    scala_votes=True,
    sync_restarts_session=True,
    first_join_is_written=False,
    leaves_one_by_one=True,
    purgatory=True,
    replaced_static_member_forgets_newness=False,
    shows_assignment_outside_stable=False,
    unset_protocol_matches=False,
    unknown_subscription_is_all=True,
    missing_group_is_an_error_since=None,
)
"""``kafka.coordinator.group.GroupCoordinator`` of 3.9."""

JAVA = ReleaseRules(
    name="java",
    member_map=JavaHashMap,
    scala_votes=False,
    sync_restarts_session=False,
    first_join_is_written=True,
    leaves_one_by_one=False,
    purgatory=False,
    replaced_static_member_forgets_newness=True,
    shows_assignment_outside_stable=True,
    unset_protocol_matches=True,
    unknown_subscription_is_all=False,
    missing_group_is_an_error_since=6,
)
"""``org.apache.kafka.coordinator.group.GroupCoordinatorService`` of 4.3."""
