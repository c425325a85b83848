"""Committed offsets and the commits of open transactions, and how records change both.

Sources: ``GroupMetadataManager.loadGroupsAndOffsets`` and ``GroupMetadata`` (Scala),
``OffsetMetadataManager.replay`` and ``replayEndTransactionMarker`` (Java).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from coordinator_core.groups.model import CommittedOffset

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class OffsetRules:
    """The facts of a coordinator that committed offsets depend on."""

    tombstones_apply_at_once: bool
    """Also a tombstone in a transaction removes the committed offset; else it waits for the marker."""
    tombstone_drops_pending: bool
    """A tombstone also removes the commits of open transactions."""
    marker_always_wins: bool
    """A committed transaction replaces the committed offset, however new that is."""


def metadata_length(metadata: str) -> int:
    """Size that brokers compare with ``offset.metadata.max.bytes``: the length of a Java string, in UTF-16 units."""
    return len(metadata.encode("utf-16-be", "surrogatepass")) // 2


def is_newer(commit: CommittedOffset, committed: CommittedOffset | None) -> bool:
    """Whether ``commit`` is newer than the committed offset: age is decided by the commits, not by markers."""
    return committed is None or committed.ordering_offset < commit.ordering_offset


@dataclass(frozen=True, slots=True)
class Offsets(Generic[K]):
    """``committed`` offsets by key, and ``pending`` ones by producer id and key.

    A key is an offset key, or anything hashable that stands for one. The maps may be the caller's own: their order is
    the order in which a coordinator goes through them. ``new_map`` makes the inner maps of ``pending``.
    """

    rules: OffsetRules
    committed: MutableMapping[K, CommittedOffset]
    pending: dict[int, Any]
    new_map: Callable[[], MutableMapping[K, CommittedOffset]] = dict

    def commit(self, key: K, offset: CommittedOffset) -> None:
        """Apply a commit: one with a producer id waits for the marker of its transaction."""
        if offset.producer_id is None:
            self.committed[key] = offset
            return
        pending = self.pending.get(offset.producer_id)
        if pending is None:
            pending = self.pending[offset.producer_id] = self.new_map()
        pending[key] = offset

    def remove(self, key: K, producer_id: int | None) -> None:
        """Apply a tombstone; ``producer_id`` is that of its transaction, if it has one."""
        rules = self.rules
        if producer_id is None or rules.tombstones_apply_at_once:
            self.committed.pop(key, None)
        elif producer_id in self.pending:
            self.pending[producer_id].pop(key, None)
        if rules.tombstone_drops_pending:
            for pending in self.pending.values():
                pending.pop(key, None)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply an end marker."""
        pending = self.pending.pop(producer_id, None)
        if pending is None or not commit:
            return
        for key, offset in pending.items():
            if self.rules.marker_always_wins or is_newer(offset, self.committed.get(key)):
                self.committed[key] = offset
