"""A consumer group (KIP-848) at request time: members, target assignment, and what follows from both.

Sources: ``ConsumerGroup``, ``ConsumerGroupMember``, ``ModernGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import consumer_records as records
from coordinator_core.coordinator.java.group import accept_any
from coordinator_core.coordinator.java.offsets import ExpiryBase, Validate
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap, TimelineHashMap, TopicId
from coordinator_core.coordinator.membership import Request
from coordinator_core.groups.classic import CONSUMER_PROTOCOL_TYPE
from coordinator_core.groups.model import GroupState, MemberState

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
INITIAL_EPOCH = 1

Epochs = dict[TopicId, dict[int, int]]
"""Partitions of topics with the epoch in which each was assigned."""
Partitions = dict[TopicId, frozenset[int]]


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a member that speaks the classic protocol is remembered by."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """``ConsumerGroupMember``; ``classic`` is set while it speaks the classic protocol."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    server_assignor: str | None = None
    assigned: Epochs = field(default_factory=dict)
    pending_revocation: Epochs = field(default_factory=dict)
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """``ConsumerGroup``. Its maps iterate as Kafka's do; that is the order of its records."""

    type = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = INITIAL_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = INITIAL_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = TimelineHashMap()
        self.static_members: dict[str, str] = {}
        self.target: dict[str, Partitions] = TimelineHashMap()
        self.regexes: dict[str, ResolvedRegex] = TimelineHashMap()
        self.partition_epochs: dict[tuple[str, int], int] = {}
        self.has_partition_metadata_record = False
        self.metadata_deadline_ms = 0
        self.metadata_deadline_epoch = 0

    @property
    def state(self) -> GroupState:
        """``maybeUpdateGroupState``."""
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        reconciled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return GroupState.STABLE if reconciled else GroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            text = f"Member {member_id} is not a member of group {self.group_id}."
            raise ApiError(Errors.UNKNOWN_MEMBER_ID, text)
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.member(member_id)

    # State changes by replay

    def put_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._disown(old)
        for slot in _owned(member):
            self.partition_epochs[slot] = member.member_epoch
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._disown(member)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)

    def _disown(self, member: ConsumerMember) -> None:
        for slot in _owned(member):
            if self.partition_epochs.get(slot) == member.member_epoch:
                del self.partition_epochs[slot]

    def target_of(self, member_id: str, instance_id: str | None = None) -> Partitions:
        """The target of a member, or of the one that held its instance id before."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        return self.target.get(member_id, {})

    # What follows from the members

    def subscriptions(
        self, old: Iterable[ConsumerMember] = (), new: ConsumerMember | None = None
    ) -> dict[str, tuple[int, int]]:
        """Topics with the members that name them and the regexes that match them, once ``old`` members are
        replaced by ``new`` (``computeSubscribedTopicNames``)."""
        gone = self._gone(old)
        members = [member for member in self.members.values() if member.member_id not in gone]
        if new is not None:
            members.append(new)
        counts: dict[str, tuple[int, int]] = {}
        for member in members:
            for topic in member.subscribed_topics:
                by_name, by_regex = counts.get(topic, (0, 0))
                counts[topic] = (by_name + 1, by_regex)
        used = {member.subscribed_regex for member in members}
        left = {member.subscribed_regex for member in self.members.values()} - used
        for regex, resolved in self.regexes.items():
            for topic in () if regex in left else resolved.topics:
                by_name, by_regex = counts.get(topic, (0, 0))
                counts[topic] = (by_name, by_regex + 1)
        return counts

    def _gone(self, old: Iterable[ConsumerMember]) -> set[str | None]:
        """Ids of members, and of those whose group instance id they take over."""
        members = list(old)
        return {
            *(member.member_id for member in members),
            *(self.static_members.get(one.instance_id) for one in members if one.instance_id is not None),
        }

    def regex_counts(
        self, old: ConsumerMember | None = None, new: ConsumerMember | None = None
    ) -> dict[str, int]:
        """How many members subscribe to each regex, once ``old`` is replaced by ``new``."""
        gone = self._gone([old] if old is not None else [])
        members = [member for member in self.members.values() if member.member_id not in gone]
        counts: dict[str, int] = {}
        for member in [*members, *([new] if new is not None else [])]:
            if member.subscribed_regex:
                counts[member.subscribed_regex] = counts.get(member.subscribed_regex, 0) + 1
        return counts

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions()

    def _assignor_counts(self) -> dict[str, int]:
        counts: dict[str, int] = TimelineHashMap()
        for member in self.members.values():
            if member.server_assignor is not None:
                counts[member.server_assignor] = counts.get(member.server_assignor, 0) + 1
        return counts

    def preferred_assignor(self) -> str | None:
        """The server assignor that most members ask for; between equals the first one of the map."""
        counts = self._assignor_counts()
        return max(counts, key=counts.__getitem__, default=None)

    def next_assignor(self, old: ConsumerMember, new: ConsumerMember) -> str | None:
        """The same once ``old`` is replaced by ``new``, with the order of the copy that Kafka counts in."""
        counts: JavaHashMap[str, int] = JavaHashMap.copy_of(self._assignor_counts())
        if old.server_assignor is not None and old.server_assignor in counts:
            counts.add(old.server_assignor, -1)
        if new.server_assignor is not None:
            counts.add(new.server_assignor, 1)
        return max(counts, key=counts.__getitem__, default=None)

    # Classic members

    def num_classic_members(self) -> int:
        return sum(member.classic is not None for member in self.members.values())

    def all_classic_except(self, members: Iterable[ConsumerMember]) -> bool:
        gone = {member.member_id for member in members}
        return all(one.classic is not None for one in self.members.values() if one.member_id not in gone)

    def supports_classic_protocols(self, protocol_type: str, names: set[str]) -> bool:
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if self.is_empty:
            return bool(names)
        classic = [set(dict(one.classic.protocols)) for one in self.members.values() if one.classic]
        return any(all(name in protocols for protocols in classic) for name in names)

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Whether a partition that the member is to get is still with another one."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, {})
            and (topic_id, partition) in self.partition_epochs
            for topic_id, partitions in self.target.get(member.member_id, {}).items()
            for partition in partitions
        )

    # Group

    def expiry_base(self) -> ExpiryBase | None:
        return lambda offset: offset.commit_timestamp_ms

    def validate_offset_commit(
        self, generation: int, request: Request, version: int, *, transactional: bool
    ) -> Validate:
        member_id: str = request.get("memberId", "")
        if generation < 0 and not self.members:
            return accept_any
        if transactional and generation == -1 and not member_id and request.get("groupInstanceId") is None:
            return accept_any
        member = self.member(member_id)
        if not transactional and member.classic is None and version < 9:
            raise ApiError(Errors.UNSUPPORTED_VERSION)
        if generation == member.member_epoch:
            return accept_any
        stale = Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION
        if generation > member.member_epoch:
            raise ApiError(stale)

        def validate(_topic: str, topic_id: str, partition: int) -> None:
            """An older epoch will do for a partition that was the member's at that time (KIP-1251)."""
            key = TopicId(topic_id)
            epoch = member.assigned.get(key, {}).get(partition)
            if epoch is None:
                epoch = member.pending_revocation.get(key, {}).get(partition)
            if epoch is None or generation < epoch:
                raise ApiError(stale)

        return validate

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.member_epoch:
            stale = member.classic is None
            raise ApiError(Errors.STALE_MEMBER_EPOCH if stale else Errors.ILLEGAL_GENERATION)

    def validate_offset_delete(self) -> None:
        """Never refused as a whole."""

    def validate_delete(self) -> None:
        if self.members:
            raise ApiError(Errors.NON_EMPTY_GROUP)

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[Record]:
        """The end of the group (``createGroupTombstoneRecords``); ``renamed`` members go by their new id."""
        group_id = self.group_id
        members = [(renamed or {}).get(member_id, member_id) for member_id in self.members]
        return [
            *(records.current_tombstone(group_id, member) for member in members),
            *(records.target_tombstone(group_id, member) for member in members),
            records.target_metadata_tombstone(group_id),
            *(records.member_tombstone(group_id, member) for member in members),
            *(records.regex_tombstone(group_id, regex) for regex in self.regexes),
            records.partition_metadata_tombstone(group_id),
            records.epoch_tombstone(group_id),
        ]

    def timer_keys(self) -> list[tuple[str, ...]]:
        return [key for member_id in self.members for key in member_timer_keys(self.group_id, member_id)]


def member_timer_keys(group_id: str, member_id: str) -> list[tuple[str, ...]]:
    return [
        (timer, group_id, member_id) for timer in ("session", "rebalance", "consumer-join", "consumer-sync")
    ]


def _owned(member: ConsumerMember) -> Iterable[tuple[str, int]]:
    for assignment in (member.assigned, member.pending_revocation):
        for topic_id, partitions in assignment.items():
            for partition in partitions:
                yield topic_id, partition
