"""A group of the Scala coordinator: a classic group that holds its offsets itself (``GroupMetadata``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coordinator_core.coordinator.classic import LiveClassicGroup, State
from coordinator_core.coordinator.maps import ScalaHashMap, TopicIdPartition, TopicPartition, scala_map_order
from coordinator_core.coordinator.rules import SCALA


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset. ``None`` stands for no leader epoch and no expiry of its own."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class CommittedAt:
    """An offset with the base offset of the batch it was appended in, which decides what is newer."""

    batch_offset: int
    value: OffsetAndMetadata


PendingWrites = dict[TopicIdPartition, OffsetAndMetadata]


class ScalaGroup(LiveClassicGroup):
    """``offsets`` are committed, ``pending`` are being appended, ``transactional`` wait for their marker."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id, SCALA, now_ms)
        self.offsets: dict[TopicPartition, CommittedAt] = ScalaHashMap()
        self.pending: dict[TopicPartition, OffsetAndMetadata] = {}
        self.transactional: dict[int, dict[TopicPartition, CommittedAt | None]] = {}

    def has_offsets(self) -> bool:
        return bool(self.offsets or self.pending or self.transactional)

    def is_unstable(self, slot: TopicPartition) -> bool:
        return slot in self.pending or any(slot in slots for slots in self.transactional.values())

    # Commits

    def prepare_commit(self, offsets: PendingWrites) -> None:
        for slot, offset in offsets.items():
            self.pending[slot.topic_partition] = offset

    def commit_appended(self, offsets: PendingWrites, batch_offset: int) -> None:
        for slot, offset in offsets.items():
            self._put_newer(slot.topic_partition, CommittedAt(batch_offset, offset))
            self.pending.pop(slot.topic_partition, None)

    def commit_failed(self, offsets: PendingWrites) -> None:
        for slot in offsets:
            self.pending.pop(slot.topic_partition, None)

    def prepare_txn_commit(self, producer_id: int, offsets: PendingWrites) -> None:
        slots = self.transactional.setdefault(producer_id, ScalaHashMap())
        for slot in offsets:
            slots[slot.topic_partition] = None

    def txn_commit_appended(self, producer_id: int, offsets: PendingWrites, batch_offset: int) -> None:
        slots = self.transactional.setdefault(producer_id, ScalaHashMap())
        for slot, offset in offsets.items():
            slots[slot.topic_partition] = CommittedAt(batch_offset, offset)

    def txn_commit_failed(self, producer_id: int, offsets: PendingWrites) -> None:
        slots = self.transactional.get(producer_id, {})
        for slot in offsets:
            slots.pop(slot.topic_partition, None)
        if not slots:
            self.transactional.pop(producer_id, None)

    def complete_transaction(self, producer_id: int, commit: bool) -> None:
        slots = self.transactional.pop(producer_id, {})
        for slot, committed in slots.items():
            if commit and committed is not None:
                self._put_newer(slot, committed)

    def _put_newer(self, slot: TopicPartition, committed: CommittedAt) -> None:
        current = self.offsets.get(slot)
        if current is None or current.batch_offset < committed.batch_offset:
            self.offsets[slot] = committed

    # Removal: each returns the slots that had a committed offset, in the order of their tombstones

    def remove_offsets(self, slots: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Pending values go without a trace; only a committed one leaves a tombstone."""
        removed = []
        for slot in slots:
            self.pending.pop(slot, None)
            for pending in self.transactional.values():
                pending.pop(slot, None)
            if self.offsets.pop(slot, None) is not None:
                removed.append(slot)
        return scala_map_order(removed)

    def remove_all_offsets(self) -> list[TopicPartition]:
        return self.remove_offsets(list(self.offsets))

    def remove_topics(self, names: set[str]) -> list[TopicPartition]:
        """Everything of deleted topics, in the order of their partitions."""
        slots = {*self.offsets, *(slot for pending in self.transactional.values() for slot in pending)}
        return self.remove_offsets(sorted(slot for slot in slots if slot.topic in names))

    def remove_expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """``removeExpiredOffsets`` since KIP-211 and KAFKA-13636."""
        base: Callable[[OffsetAndMetadata], int] = lambda value: value.commit_timestamp_ms  # noqa: E731
        subscribed: frozenset[str] = frozenset()
        if self.protocol_type is not None:
            if self.is_in(State.EMPTY):
                since = self.state_timestamp_ms
                if since is not None:
                    base = lambda _value: since  # noqa: E731
            elif (
                self.uses_consumer_protocol
                and self.subscribed_topics is not None
                and self.is_in(State.STABLE)
            ):
                subscribed = self.subscribed_topics
            else:
                return []
        expired: dict[TopicPartition, None] = ScalaHashMap()
        for slot, committed in self.offsets.items():
            if slot.topic in subscribed or slot in self.pending:
                continue
            expires = committed.value.expire_timestamp_ms
            due = now_ms - base(committed.value) >= retention_ms if expires is None else now_ms >= expires
            if due:
                expired[slot] = None
        for slot in expired:
            del self.offsets[slot]
        return scala_map_order(expired)
