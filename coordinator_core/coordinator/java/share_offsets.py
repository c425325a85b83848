"""Share-partitions of share groups: which of them have state, and the three APIs of their start offsets.

Their state itself is the share coordinator's (:mod:`coordinator_core.coordinator.share_states`); the group coordinator
writes down what it asks of it, asks, and writes down what was done. Sources: ``GroupMetadataManager``
(``initializeShareGroupState``, ``sharePartitionsEligibleForOffsetDeletion``, ``completeAlterShareGroupOffsets``),
``GroupCoordinatorService``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager
from coordinator_core.coordinator.java.modern_groups import Check
from coordinator_core.coordinator.java.share_group import LiveShareGroup
from coordinator_core.coordinator.java.share_records import StateTopics
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import TopicId
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.replies import (
    AlteredPartition,
    AlteredTopic,
    AlterShareGroupOffsetsReply,
    DeletedShareTopic,
    DeleteShareGroupOffsetsReply,
    ShareOffset,
    ShareOffsetsGroup,
    ShareOffsetsTopic,
)
from coordinator_core.coordinator.requests import (
    AlterShareGroupOffsets,
    AlterTopic,
    DeleteShareGroupOffsets,
    ShareTopic,
)
from coordinator_core.coordinator.requests import ShareOffsetsGroup as AskedGroup
from coordinator_core.coordinator.share_states import NO_OFFSET, ShareStates
from coordinator_core.records.types import ZERO_UUID
from coordinator_core.releases.requests import RequestRules

INITIALIZATION_MS = 10
"""Time that the share coordinator takes in this model to make state: the heartbeat that asks is answered before."""


class ShareOffsets:
    """Share-partitions of the groups of one coordinator."""

    def __init__(
        self,
        manager: JavaGroupMetadataManager,
        metadata: Callable[[], MetadataImage],
        states: ShareStates,
        rules: RequestRules,
    ) -> None:
        self._manager = manager
        self._metadata = metadata
        self._states = states
        self._rules = rules
        self._asked_ms: dict[tuple[str, str], int] = {}
        """Time at which state was asked for, by group and topic id, while it is not there."""

    def _topics(self, group_id: str) -> StateTopics:
        return StateTopics.of(self._manager.share_topics.get(group_id, ()))

    def _write(self, group_id: str, topics: StateTopics) -> None:
        self._manager.write_group(group_id, [topics.record(group_id)])

    # Heartbeats

    def assignable(self, group_id: str) -> Mapping[TopicId, frozenset[int]]:
        """Partitions that have state, by topic id: only they are assigned."""
        return {TopicId(topic_id): found for topic_id, found in self._topics(group_id).initialized.items()}

    def assignment_pending(self, group: LiveShareGroup) -> bool:
        """Whether a subscribed topic has other partitions with state than are assigned."""
        if not group.members:
            return False
        subscribed = group.subscriptions()
        topics = self._topics(group.group_id)
        assigned: dict[str, set[int]] = {}
        for target in group.target_assignment.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topics.names[topic_id] in subscribed and assigned.get(topic_id, set()) != partitions
            for topic_id, partitions in topics.initialized.items()
        )

    def loaded(self, group_id: str) -> None:
        """The time at which state was asked for is that of the load."""
        for topic_id in self._topics(group_id).initializing:
            self._asked_ms[group_id, topic_id] = self._manager.clock.now_ms

    def to_initialize(self, group_id: str, subscribed: Iterable[str], out: list[Record]) -> dict[str, dict[int, int]]:
        """Partitions of subscribed topics for which state is now to be asked, with their start offsets; a record in
        ``out`` says so."""
        topics = self._topics(group_id)
        now_ms = self._manager.clock.now_ms
        retry_ms = self._manager.settings.group_share_initialize_retry_interval_ms
        wanted: dict[str, dict[int, int]] = {}
        for topic in map(self._metadata().topic, subscribed):
            if topic is None:
                continue
            known = topics.initialized.get(topic.topic_id, frozenset())
            if now_ms - self._asked_ms.get((group_id, topic.topic_id), now_ms) < retry_ms:
                known |= topics.initializing.get(topic.topic_id, frozenset())
            missing = frozenset(range(topic.partitions)) - known
            if missing:
                was_known = topic.topic_id in topics.initialized or topic.topic_id in topics.initializing
                at_zero = was_known and self._rules.added_share_partitions_start_at_zero
                topics.names[topic.topic_id] = topic.name
                wanted[topic.topic_id] = dict.fromkeys(missing, 0 if at_zero else NO_OFFSET)
                self._asked_ms[group_id, topic.topic_id] = now_ms
        if wanted:
            for topic_id, partitions in wanted.items():
                topics.initializing[topic_id] = topics.initializing.get(topic_id, frozenset()) | partitions.keys()
            out.append(topics.record(group_id))
        return wanted

    def initialize_later(self, group_id: str, wanted: Mapping[str, Mapping[int, int]]) -> None:
        """Ask the share coordinator in the background."""

        def initialize() -> None:
            try:
                self._initialize(group_id, wanted)
            except ApiError:
                # The next heartbeats ask again.
                return

        self._manager.clock.at(self._manager.clock.now_ms + INITIALIZATION_MS, initialize)

    def _initialize(self, group_id: str, start_offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Give share-partitions state, and write that they have it (``initializeShareGroupState``)."""
        done = {topic_id: frozenset(found) for topic_id, found in start_offsets.items() if found}
        if not done or not isinstance(self._manager.get_group(group_id), LiveShareGroup):
            return
        topics = self._topics(group_id)
        for topic_id, partitions in done.items():
            self._states.initialize(group_id, topic_id, start_offsets[topic_id])
            topics.initialized[topic_id] = topics.initialized.get(topic_id, frozenset()) | partitions
            left = topics.initializing.pop(topic_id, frozenset()) - partitions
            if left:
                topics.initializing[topic_id] = left
        self._write(group_id, topics)

    # Start offsets

    def _group(self, group_id: str) -> LiveShareGroup | None:
        """The group if it is there; raises :class:`ApiError` unless it is an Empty share group."""
        group = self._manager.get_group(group_id)
        if group is None:
            return None
        if not isinstance(group, LiveShareGroup):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if group.members:
            raise ApiError(Errors.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    def alter(self, request: AlterShareGroupOffsets, check: Check) -> AlterShareGroupOffsetsReply:
        """Partitions get new state with these start offsets; a group that is not there is made."""
        group_id = request.group_id
        try:
            check(group_id)
            self._group(group_id)
            answers: list[AlteredTopic] = []
            topics = self._topics(group_id)
            offsets: dict[str, dict[int, int]] = {}
            for asked in request.topics:
                topic = self._metadata().topic(asked.topic_name)
                answers.append(self._altered(asked))
                if topic is not None:
                    topics.names[topic.topic_id] = topic.name
                    known = {one: offset for one, offset in asked.partitions if one in range(topic.partitions)}
                    offsets[topic.topic_id] = known
                    topics.initializing[topic.topic_id] = topics.initializing.get(
                        topic.topic_id, frozenset()
                    ) | frozenset(known)
            if offsets:
                self._write(group_id, topics)
                self._initialize(group_id, offsets)
        except ApiError as error:
            return AlterShareGroupOffsetsReply(error.error, error.message)
        return AlterShareGroupOffsetsReply(Errors.NONE, responses=tuple(answers))

    def _altered(self, asked: AlterTopic) -> AlteredTopic:
        image = self._metadata()
        topic = image.topic(asked.topic_name)
        return AlteredTopic(
            asked.topic_name,
            ZERO_UUID if topic is None else topic.topic_id,
            tuple(
                AlteredPartition(
                    one,
                    Errors.NONE if image.has_partition(asked.topic_name, one) else Errors.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for one, _ in asked.partitions
            ),
        )

    def describe(self, asked: AskedGroup, check: Check) -> ShareOffsetsGroup:
        """Start offsets of one group of a DescribeShareGroupOffsets; only one without topics looks at the group."""
        wanted = asked.topics
        if wanted is None:
            try:
                check(asked.group_id)
            except ApiError as error:
                return ShareOffsetsGroup(asked.group_id, (), error.error, error.message)
            topics = self._topics(asked.group_id)
            wanted = tuple(
                ShareTopic(topics.names[topic_id], tuple(sorted(found)))
                for topic_id, found in topics.initialized.items()
            )
        known = [topic for topic in wanted if self._metadata().topic(topic.topic_name) is not None]
        if known and not any(topic.partitions for topic in known):
            # The share coordinator takes no request without a partition.
            return ShareOffsetsGroup(asked.group_id, (), Errors.UNKNOWN_SERVER_ERROR)
        described = tuple(self._described(asked.group_id, topic) for topic in wanted)
        return ShareOffsetsGroup(asked.group_id, described, Errors.NONE)

    def _described(self, group_id: str, asked: ShareTopic) -> ShareOffsetsTopic:
        """A topic that does not exist has no state either."""
        topic = self._metadata().topic(asked.topic_name)
        topic_id = ZERO_UUID if topic is None else topic.topic_id
        found = {one: self._states.start_offset(group_id, topic_id, one) for one in asked.partitions}
        return ShareOffsetsTopic(
            asked.topic_name,
            topic_id,
            tuple(
                ShareOffset(one, offset, 0, NO_OFFSET if offset == NO_OFFSET else -offset, Errors.NONE)
                for one, offset in found.items()
            ),
        )

    def delete(self, request: DeleteShareGroupOffsets, check: Check) -> DeleteShareGroupOffsetsReply:
        """Topics lose their state."""
        group_id = request.group_id
        try:
            check(group_id)
            if self._group(group_id) is None:
                raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
            if group_id not in self._manager.share_topics:
                return DeleteShareGroupOffsetsReply(Errors.NONE)
            topics = self._topics(group_id)
            answers: list[DeletedShareTopic] = []
            gone: set[str] = set()
            for (name,) in dict.fromkeys(request.topics):
                topic = self._metadata().topic(name)
                if topic is None or topic.topic_id not in topics.initialized:
                    text = "There is no offset information to delete."
                    answers.append(DeletedShareTopic(name, ZERO_UUID, Errors.UNKNOWN_TOPIC_OR_PARTITION, text))
                    continue
                answers.append(DeletedShareTopic(name, topic.topic_id, Errors.NONE))
                gone.add(topic.topic_id)
            self._delete(group_id, topics, gone)
        except ApiError as error:
            return DeleteShareGroupOffsetsReply(error.error, error.message)
        return DeleteShareGroupOffsetsReply(Errors.NONE, responses=tuple(answers))

    def _delete(self, group_id: str, topics: StateTopics, gone: set[str]) -> None:
        """Write which offsets are to go, let them go, write that they have gone."""
        for topic_id in gone:
            del topics.initialized[topic_id]
            topics.deleting.add(topic_id)
        self._write(group_id, topics)
        if gone:
            self._states.delete(group_id, gone)
            topics.deleting.difference_update(gone)
            self._write(group_id, topics)

    def delete_all(self, group_ids: Iterable[str]) -> None:
        """The state of groups of one partition that are about to go (``shareGroupBuildPartitionDeleteRequest``)."""
        out: list[Record] = []
        gone: dict[str, set[str]] = {}
        partition = -1
        for group_id in group_ids:
            if group_id in self._manager.share_topics:
                topics = self._topics(group_id)
                gone[group_id] = {*topics.initializing, *topics.initialized, *topics.deleting}
                out.append(StateTopics(names=topics.names, deleting=gone[group_id]).record(group_id))
                partition = self._manager.partition_for(group_id)
        self._manager.write(partition, out)
        for group_id, topic_ids in gone.items():
            self._states.delete(group_id, topic_ids)

    def topics_deleted(self, names: set[str]) -> None:
        """Deleted topics have no share-partitions any more (``maybeCleanupShareGroupState``)."""
        out: dict[int, list[Record]] = {}
        for group_id in self._manager.groups:
            topics = self._topics(group_id)
            deleted = {topic_id for topic_id, name in topics.names.items() if name in names}
            for known in (topics.initializing, topics.initialized):
                for topic_id in deleted & known.keys():
                    del known[topic_id]
            topics.deleting -= deleted
            if deleted:
                self._states.delete(group_id, deleted)
                out.setdefault(self._manager.partition_for(group_id), []).append(topics.record(group_id))
        for partition, records in out.items():
            self._manager.write(partition, records)
