"""A consumer group (KIP-848) at request time: members, target assignment, subscriptions.

Sources: ``ConsumerGroup``, ``ConsumerGroupMember``, ``ModernGroup``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from coordinator_core.coordinator.java import consumer_records as records
from coordinator_core.coordinator.java.modern_group import CommittingModernGroup
from coordinator_core.coordinator.java.modern_records import end_of_members, of_group
from coordinator_core.coordinator.java.offsets import Validate
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap, Partitions, TimelineHashMap, TopicId
from coordinator_core.groups.model import (
    Assignment,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    PartitionEpochs,
    ResolvedRegex,
)
from coordinator_core.groups.modern import ConsumerRecords
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE


def partitions_of(assignment: Mapping[str, Iterable[int]]) -> Partitions:
    return JavaHashMap((TopicId(one), frozenset(partitions)) for one, partitions in assignment.items())


def with_assignment(
    member: ConsumerMember, assigned: PartitionEpochs, pending_revocation: PartitionEpochs
) -> ConsumerMember:
    """A copy of the member with these partitions."""
    return replace(
        member,
        assigned=_partitions(assigned),
        assigned_epochs=epochs_of(assigned),
        pending_revocation=_partitions(pending_revocation),
        pending_revocation_epochs=epochs_of(pending_revocation),
    )


def _partitions(since: PartitionEpochs) -> Assignment:
    return {topic_id: tuple(sorted(epochs)) for topic_id, epochs in since.items()}


def epochs_of(since: PartitionEpochs) -> Assignment:
    """Epochs in the order of the partitions."""
    return {topic_id: tuple(epochs[one] for one in sorted(epochs)) for topic_id, epochs in since.items()}


@dataclass(slots=True)
class LiveConsumerGroup(ConsumerGroup, CommittingModernGroup[ConsumerMember]):
    """The replayed group with the questions of request handlers.

    Its maps iterate as Kafka's do; that is the order of its records. ``metadata_deadline_ms`` and ``_epoch``
    are the refresh deadline of its topics' metadata, which no record holds.
    """

    protocol_type: ClassVar[str] = CONSUMER_PROTOCOL_TYPE

    members: dict[str, ConsumerMember] = field(default_factory=TimelineHashMap)
    target_assignment: dict[str, Assignment] = field(default_factory=TimelineHashMap)
    regexes: dict[str, ResolvedRegex] = field(default_factory=TimelineHashMap)
    metadata_deadline_ms: int = 0
    metadata_deadline_epoch: int = 0

    def target(self, member_id: str) -> Partitions:
        return partitions_of(self.target_assignment.get(member_id, {}))

    def target_of(self, member_id: str, instance_id: str | None = None) -> Partitions:
        """The target of a member, or of the one that held its instance id before."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, "")
        return self.target(member_id)

    # Facts that follow from the members

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
        """Ids of ``members``, and of the members whose group instance id they take over."""
        members = list(old)
        return {
            *(member.member_id for member in members),
            *(self.static_members.get(one.instance_id) for one in members if one.instance_id is not None),
        }

    def regex_counts(self, old: ConsumerMember | None = None, new: ConsumerMember | None = None) -> dict[str, int]:
        """Count of members that subscribe to each regex, once ``old`` is replaced by ``new``."""
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

    def all_classic_except(self, members: Iterable[ConsumerMember]) -> bool:
        gone = {member.member_id for member in members}
        return all(one.speaks_classic for one in self.members.values() if one.member_id not in gone)

    def supports_classic_protocols(self, protocol_type: str, names: set[str]) -> bool:
        """Whether all classic members support one of ``names``; one that a member names twice counts twice."""
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if self.is_empty:
            return bool(names)
        classic = [one.classic_protocols for one in self.members.values() if one.classic_protocols is not None]
        supported = [name for protocols in classic for name, _ in protocols]
        return any(supported.count(name) == len(classic) for name in names)

    def waits_for_release(self, member: ConsumerMember) -> bool:
        """Whether another member still owns a partition of the member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, ()) and (topic_id, partition) in self.partition_epochs
            for topic_id, partitions in self.target_assignment.get(member.member_id, {}).items()
            for partition in partitions
        )

    # Group

    def speaks_classic(self, member: ConsumerMember) -> bool:
        return member.speaks_classic

    def validate_past_epoch(self, member: ConsumerMember, epoch: int) -> Validate:
        def validate(_topic: str, topic_id: str, partition: int) -> None:
            since = member.assigned_since().get(topic_id, {}).get(partition)
            if since is None:
                since = member.pending_revocation_since().get(topic_id, {}).get(partition)
            if since is None or epoch < since:
                raise self.stale(member)

        return validate

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> list[Record]:
        """The end of the group (``createGroupTombstoneRecords``); ``renamed`` members go by their new id."""
        group_id = self.group_id
        members = [(renamed or {}).get(member_id, member_id) for member_id in self.members]
        return [
            *end_of_members(ConsumerRecords, group_id, members),
            *(records.regex_tombstone(group_id, regex) for regex in self.regexes),
            of_group(ConsumerRecords.partition_metadata, group_id),
            of_group(ConsumerRecords.metadata, group_id),
        ]
