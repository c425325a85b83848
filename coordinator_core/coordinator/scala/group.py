"""A group of the Scala coordinator: a classic group that holds its offsets itself (``GroupMetadata``)."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_core.coordinator.classic import LiveClassicGroup
from coordinator_core.coordinator.maps import ScalaHashMap, TopicPartition, scala_map_order
from coordinator_core.coordinator.rules import SCALA, SCALA_PROFILE
from coordinator_core.groups.model import CommittedOffset, GroupState
from coordinator_core.groups.offsets import Offsets
from coordinator_core.lifecycle.due import expiry_of_commit
from coordinator_core.releases import Clock
from coordinator_core.replay.interpret import offset_rules


class ScalaGroup(LiveClassicGroup):
    """``offsets`` are committed; ``transactional``, by producer id, wait for their marker.

    Kafka has a third map, of offsets that are being appended. Here an append takes no time.
    """

    def __init__(self, group_id: str, now_ms: int) -> None:
        super().__init__(group_id, SCALA, now_ms)
        self.offsets: dict[TopicPartition, CommittedOffset] = ScalaHashMap()
        self.transactional: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        self._state: Offsets[TopicPartition] = Offsets(
            offset_rules(SCALA_PROFILE), self.offsets, self.transactional, ScalaHashMap
        )

    def has_offsets(self) -> bool:
        return bool(self.offsets or self.transactional)

    def is_unstable(self, offset_key: TopicPartition) -> bool:
        return any(offset_key in offset_keys for offset_keys in self.transactional.values())

    # Commits

    def commit(self, offset_key: TopicPartition, offset: CommittedOffset) -> None:
        self._state.commit(offset_key, offset)

    def txn_commit_failed(self, producer_id: int, offset_keys: Iterable[TopicPartition]) -> None:
        """Drop the pending commits of these offset keys: ``prepareTxnOffsetCommit`` has overwritten them."""
        pending = self.transactional.get(producer_id, {})
        for offset_key in offset_keys:
            pending.pop(offset_key, None)
        if not pending:
            self.transactional.pop(producer_id, None)

    def complete_transaction(self, producer_id: int, commit: bool) -> None:
        self._state.end_transaction(producer_id, commit=commit)

    # Removal: each returns the offset keys that had a committed offset, in the order of their tombstones

    def remove_offsets(self, offset_keys: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Remove pending and committed offsets; only committed ones leave tombstones."""
        removed = []
        for offset_key in offset_keys:
            for pending in self.transactional.values():
                pending.pop(offset_key, None)
            if self.offsets.pop(offset_key, None) is not None:
                removed.append(offset_key)
        return scala_map_order(removed)

    def remove_topics(self, names: set[str]) -> list[TopicPartition]:
        """Everything of deleted topics, in the order of their partitions."""
        offset_keys = {
            *self.offsets,
            *(offset_key for pending in self.transactional.values() for offset_key in pending),
        }
        return self.remove_offsets(sorted(offset_key for offset_key in offset_keys if offset_key.topic in names))

    def remove_expired_offsets(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Remove expired offsets, but none of topics that a Stable group subscribes to."""
        ageing = self.ageing()
        if ageing is None:
            return []
        subscribed = self.subscribed_topics if self.is_in(GroupState.STABLE) else None
        expired: dict[TopicPartition, None] = ScalaHashMap()
        for offset_key, committed in self.offsets.items():
            expiry = expiry_of_commit(
                committed, Clock.GROUP, now_ms=now_ms, retention_ms=retention_ms, base_ms=ageing.since_ms
            )
            if expiry.is_due and offset_key.topic not in (subscribed or ()):
                expired[offset_key] = None
        for offset_key in expired:
            del self.offsets[offset_key]
        return scala_map_order(expired)
