"""Facts of how coordinators answer requests, for ``coordinator_core.coordinator``.

Sources: ``kafka.coordinator.group.GroupCoordinator`` (Scala), ``GroupMetadataManager`` and ``ClassicGroup``
of ``org.apache.kafka.coordinator.group`` (Java), and recorded traces of brokers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """The answer to ApiVersions: KRaft, one broker, features as formatted by default.

    ``api_keys``: API key, lowest and highest version, as ``key:min-max``. ``features``: finalized levels.
    """

    api_keys: str
    metadata_versions: tuple[int, int]
    features: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class StreamsRules:
    """Facts in which releases differ while they serve streams groups (KIP-1071)."""

    has_static_members: bool = False
    """Instance ids are taken, else refused."""
    takes_task_offsets: bool = False
    """Offsets of tasks and warm-up tasks are taken, else refused; replies say how often and how near they shall be."""
    follows_endpoints: bool = False
    """The endpoints' epoch counts endpoints that change, come or go, and changed tasks of a member that has one; a join
    without an endpoint takes the member's away; topics without partitions are left out. Else every join counts."""
    assigns_from_current: bool = False
    """The assignor is told which tasks members have, else which the target assignment gave them."""
    has_revised_assignor: bool = False
    """The sticky assignor asks each member that had a standby task, but those whose process has the task; else nobody
    once the first one's process has it. It adds processes to its map as ``computeIfAbsent`` does, which decides between
    equal ones; else as ``putIfAbsent`` does."""
    changes_roles_in_place: bool = False
    """A member's task becomes active or standby without being given up first."""
    keeps_targets_of_an_epoch: bool = False
    """Members go to the targets that the first heartbeat of an assignment epoch saw (``refinedAssignmentForEpoch``).
    One that has other tasks than its target makes a new epoch of the assignment once the group is stable."""


@dataclass(frozen=True, slots=True)
class RequestRules:
    """Facts in which coordinators differ while they serve requests."""

    scala_maps: bool
    """Members and votes are kept in Scala's maps, else in Java's; their order decides who leads."""
    sync_restarts_session: bool
    """SyncGroup in Stable restarts the session timer."""
    leaves_one_by_one: bool
    """A LeaveGroup of several members has its effects after each of them, else once."""
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
    verifies_epochs: bool
    """The transaction coordinator is not asked about a commit whose producer has a transaction open in the partition by
    that epoch, nor about one of an older epoch, which is refused; else about none of a producer with an open one."""
    api_versions: ApiVersions
    emptied_group_is_assigned: bool = False
    """The last member that leaves a group with epochs makes the group's epoch that of the target assignment, too."""
    added_share_partitions_start_at_zero: bool = False
    """Partitions that a share group's topic got later are read from their begin, else as new topics are."""
    transactions_keep_topic_ids: bool = False
    """Offsets of transactions are written with the id of their topic."""
    readmits_known_members: bool = False
    """A full group takes a static member that comes back, and a streams group a member that it has, as others do."""
    modern_groups: bool = False
    """Consumer, share and streams groups were compared with brokers."""
    streams: StreamsRules = StreamsRules()


CLASSIC_3_9: Final = RequestRules(
    scala_maps=True,
    sync_restarts_session=True,
    leaves_one_by_one=True,
    purgatory=True,
    replaced_static_member_forgets_newness=False,
    shows_assignment_outside_stable=False,
    unset_protocol_matches=False,
    unknown_subscription_is_all=True,
    missing_group_is_an_error_since=None,
    verifies_epochs=False,
    api_versions=ApiVersions(
        "0:0-11 1:0-17 2:0-9 3:0-12 8:0-9 9:0-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 16:0-5 17:0-1 "
        "18:0-4 19:0-7 20:0-6 21:0-2 22:0-5 23:0-4 24:0-5 25:0-4 26:0-4 27:0-1 28:0-4 29:0-3 30:0-3 "
        "31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 "
        "44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-1 60:0-1 61:0-0 64:0-0 "
        "65:0-0 66:0-1 68:0-0 69:0-0 74:0-0 75:0-0 80:0-0 81:0-0",
        (1, 21),
        (("metadata.version", 21),),
    ),
)

NEW_4_3: Final = RequestRules(
    scala_maps=False,
    sync_restarts_session=False,
    leaves_one_by_one=False,
    purgatory=False,
    replaced_static_member_forgets_newness=True,
    shows_assignment_outside_stable=True,
    unset_protocol_matches=True,
    unknown_subscription_is_all=False,
    missing_group_is_an_error_since=6,
    verifies_epochs=True,
    api_versions=ApiVersions(
        "0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 "
        "17:0-1 18:0-4 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 "
        "30:1-3 31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 "
        "43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 "
        "64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 "
        "83:0-0 84:0-0 85:0-1 86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0",
        (7, 30),
        (
            ("group.version", 1),
            ("streams.version", 1),
            ("transaction.version", 2),
            ("eligible.leader.replicas.version", 1),
            ("share.version", 1),
            ("metadata.version", 30),
        ),
    ),
    modern_groups=True,
)

NEW_4_4: Final = replace(
    NEW_4_3,
    emptied_group_is_assigned=True,
    added_share_partitions_start_at_zero=True,
    transactions_keep_topic_ids=True,
    readmits_known_members=True,
    streams=StreamsRules(
        has_static_members=True,
        takes_task_offsets=True,
        follows_endpoints=True,
        assigns_from_current=True,
        has_revised_assignor=True,
        changes_roles_in_place=True,
        keeps_targets_of_an_epoch=True,
    ),
)
"""Seen in recordings of 4.4.0 (``tests/traces``); its answer to ApiVersions was not recorded."""
