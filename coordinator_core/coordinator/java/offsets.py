"""Offsets in the Java coordinator: a state machine over its records (``OffsetMetadataManager``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from typing import Generic, Protocol, TypeVar

from coordinator_core.coordinator.classic import Ageing
from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.log import NO_PRODUCER_ID, Record
from coordinator_core.coordinator.maps import TimelineHashMap
from coordinator_core.coordinator.records import metadata_fits, offset_tombstone, requested_commit
from coordinator_core.coordinator.replies import FetchedPartition, FetchedTopic
from coordinator_core.coordinator.requests import FetchGroup, FetchTopic, OffsetCommit, OffsetDelete, TxnOffsetCommit
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.groups.loaders import LoadedRecord
from coordinator_core.groups.model import CommittedOffset, OffsetKey
from coordinator_core.groups.offsets import Offsets
from coordinator_core.lifecycle.due import expiry_of_commit
from coordinator_core.records.types import ZERO_UUID
from coordinator_core.releases import Clock, Profile
from coordinator_core.replay.interpret import committed_offset, offset_rules

V = TypeVar("V")
Validate = Callable[[str, str, int], None]
"""Takes topic name, topic id and partition of one commit; raises :class:`ApiError`."""


class CommittingGroup(Protocol):
    """The part of a group of any type that commits and expiry use."""

    def is_subscribed_to(self, topic: str) -> bool: ...

    def ageing(self) -> Ageing | None:
        """``None`` where nothing of the group expires."""


class OffsetKeyMap(MutableMapping[OffsetKey, V], Generic[V]):
    """Values by group, topic and partition, in nested maps that vanish when they are empty (``Offsets``)."""

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, dict[int, V]]] = TimelineHashMap()

    def __getitem__(self, offset_key: OffsetKey) -> V:
        return self.by_group[offset_key.group_id][offset_key.topic][offset_key.partition]

    def __setitem__(self, offset_key: OffsetKey, value: V) -> None:
        topics = self.by_group.setdefault(offset_key.group_id, TimelineHashMap())
        topics.setdefault(offset_key.topic, TimelineHashMap())[offset_key.partition] = value

    def __delitem__(self, offset_key: OffsetKey) -> None:
        topics = self.by_group[offset_key.group_id]
        del topics[offset_key.topic][offset_key.partition]
        if not topics[offset_key.topic]:
            del topics[offset_key.topic]
        if not topics:
            del self.by_group[offset_key.group_id]

    def __iter__(self) -> Iterator[OffsetKey]:
        for group_id in self.by_group:
            yield from self.of(group_id)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def of(self, group_id: str) -> Iterator[OffsetKey]:
        """The offset keys of one group."""
        for topic, partitions in self.by_group.get(group_id, {}).items():
            for partition in partitions:
                yield OffsetKey(group_id, topic, partition)


class OffsetMetadataManager:
    """The offsets of one partition; handlers make records of requests, :meth:`replay` applies them."""

    def __init__(self, settings: BrokerSettings, profile: Profile) -> None:
        self._settings = settings
        self._profile = profile
        self.offsets: OffsetKeyMap[CommittedOffset] = OffsetKeyMap()
        self.open: OffsetKeyMap[set[int]] = OffsetKeyMap()
        """Producers with an open transaction, by offset key (``OpenTransactions``)."""
        self.pending: dict[int, OffsetKeyMap[CommittedOffset]] = TimelineHashMap()
        self._state: Offsets[OffsetKey] = Offsets(offset_rules(profile), self.offsets, self.pending, OffsetKeyMap)

    # Commits

    def commit_records(
        self,
        request: OffsetCommit | TxnOffsetCommit,
        validate: Validate,
        *,
        now_ms: int,
        expire_timestamp_ms: int | None = None,
        keeps_topic_id: bool = True,
    ) -> tuple[list[Errors], list[Record]]:
        """The error of each partition and the records of a commit, both in the order of the request.

        A transactional commit keeps no expiry.
        """
        errors, records = [], []
        for topic in request.topics:
            topic_id = topic.topic_id or ZERO_UUID
            for partition in topic.partitions:
                if not metadata_fits(partition, self._settings):
                    errors.append(Errors.OFFSET_METADATA_TOO_LARGE)
                    continue
                validate(topic.name, topic_id, partition.partition_index)
                errors.append(Errors.NONE)
                records.append(
                    requested_commit(
                        OffsetKey(request.group_id, topic.name, partition.partition_index),
                        partition,
                        now_ms=now_ms,
                        expire_timestamp_ms=expire_timestamp_ms,
                        version=4,
                        topic_id=str(topic_id) if keeps_topic_id else ZERO_UUID,
                    )
                )
        return errors, records

    # Fetches

    def fetch(self, group: FetchGroup, require_stable: bool, *, group_exists: bool) -> tuple[FetchedTopic, ...]:
        """Topics of one group's OffsetFetch; all that have a committed offset when it names none."""
        wanted = group.topics
        if wanted is None:
            topics = self.offsets.by_group.get(group.group_id, {}) if group_exists else {}
            wanted = tuple(FetchTopic(tuple(partitions), name) for name, partitions in topics.items())
        return tuple(
            FetchedTopic(
                topic.name,
                topic.topic_id,
                tuple(
                    self._fetched(group.group_id, topic, one, require_stable, group_exists)
                    for one in topic.partition_indexes
                ),
            )
            for topic in wanted
        )

    def _fetched(
        self, group_id: str, topic: FetchTopic, partition: int, require_stable: bool, group_exists: bool
    ) -> FetchedPartition:
        offset_key, topic_id = OffsetKey(group_id, topic.name, partition), topic.topic_id
        if require_stable and offset_key in self.open:
            return FetchedPartition.of(partition, None, Errors.UNSTABLE_OFFSET_COMMIT)
        committed = self.offsets.get(offset_key) if group_exists else None
        # A topic that was deleted and made anew has another id.
        if committed is not None and topic_id not in (None, ZERO_UUID) and committed.topic_id not in (None, topic_id):
            committed = None
        return FetchedPartition.of(partition, committed)

    # Removal

    def delete_records(self, request: OffsetDelete, group: CommittingGroup) -> tuple[list[Errors], list[Record]]:
        """The error of each partition of an OffsetDelete, and its tombstones."""
        errors, records = [], []
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name)
            for partition in topic.partitions:
                offset_key = OffsetKey(request.group_id, topic.name, partition.partition_index)
                errors.append(Errors.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else Errors.NONE)
                if not subscribed and (offset_key in self.offsets or offset_key in self.open):
                    records.append(offset_tombstone(offset_key))
        return errors, records

    def delete_all_records(self, group_id: str) -> list[Record]:
        """Tombstones for every committed offset key, then for those that are only pending."""
        pending_only = (offset_key for offset_key in self.open.of(group_id) if offset_key not in self.offsets)
        return [offset_tombstone(offset_key) for offset_key in (*self.offsets.of(group_id), *pending_only)]

    def expired_records(self, group_id: str, group: CommittingGroup, now_ms: int) -> tuple[bool, list[Record]]:
        """Whether nothing of the group is left after this sweep, and the sweep's tombstones."""
        if group_id not in self.offsets.by_group:
            return group_id not in self.open.by_group, []
        ageing = group.ageing()
        if ageing is None:
            return False, []
        all_expired = True
        records = []
        retention_ms = self._settings.offsets_retention_ms
        for offset_key in self.offsets.of(group_id):
            expiry = expiry_of_commit(
                self.offsets[offset_key], Clock.GROUP, now_ms=now_ms, retention_ms=retention_ms, base_ms=ageing.since_ms
            )
            if expiry.is_due and not group.is_subscribed_to(offset_key.topic) and offset_key not in self.open:
                records.append(offset_tombstone(offset_key))
            else:
                all_expired = False
        return all_expired and group_id not in self.open.by_group, records

    def topics_deleted_records(self, topics: list[tuple[str, str]]) -> list[Record]:
        """An offset key with a committed and a pending value gets two tombstones."""
        records = []
        for offset_keys in (self.offsets, *self.pending.values()):
            for group_id in offset_keys.by_group:
                for name, topic_id in topics:
                    for partition, offset in offset_keys.by_group[group_id].get(name, {}).items():
                        if offset.topic_id in (None, topic_id):
                            records.append(offset_tombstone(OffsetKey(group_id, name, partition)))
        return records

    # The state machine

    def replay(self, offset_key: OffsetKey, record: LoadedRecord, producer_id: int, producer_epoch: int) -> None:
        """Apply a commit or its tombstone."""
        in_transaction = producer_id != NO_PRODUCER_ID
        if record.value is None:
            self._state.remove(offset_key, producer_id if in_transaction else None)
            self.open.pop(offset_key, None)
            return
        offset = committed_offset(
            record.value,
            record.version,
            self._profile,
            record_offset=record.record_offset,
            ordering_offset=record.record_offset,
            producer_id=producer_id if in_transaction else None,
            producer_epoch=producer_epoch if in_transaction else None,
        )
        self._state.commit(offset_key, offset)
        if in_transaction:
            self.open.setdefault(offset_key, set()).add(producer_id)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Apply an end marker."""
        for offset_key in self.pending.get(producer_id, ()):
            producers = self.open[offset_key]
            producers.discard(producer_id)
            if not producers:
                del self.open[offset_key]
        self._state.end_transaction(producer_id, commit=commit)
