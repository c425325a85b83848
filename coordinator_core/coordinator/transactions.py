"""A transaction coordinator, for commits of offsets only.

Source: ``TransactionCoordinator`` and ``TransactionMetadata``, for offsets partitions only. Markers are
written :data:`MARKER_DELAY_MS` after the transaction ends: EndTxn is answered before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.timers import Clock

MARKER_DELAY_MS = 3
WriteMarker = Callable[[int, int, int, bool], None]
"""Takes the offsets partition, the producer id and epoch of the marker, and whether it commits."""


@dataclass(slots=True)
class TransactionMetadata:
    """A transactional id; ``ongoing`` from its first partition to the decision how it ends."""

    producer_id: int
    epoch: int
    timeout_ms: int
    ongoing: bool = False
    partitions: set[int] = field(default_factory=set)
    attempt: int = 0
    outcome: bool | None = None
    """Whether the producer committed its last transaction; a repeated EndTxn is told so again."""
    markers: Callable[[], None] | None = None
    """Writes the markers that are due. Clients ask again until that is done, so an answer means it is."""


class Transactions:
    """Transactional ids of the cluster. They survive the restart of a broker, whose log keeps them."""

    def __init__(
        self,
        clock: Clock,
        write_marker: WriteMarker,
        new_producer_id: Callable[[], int],
        cleanup_interval_ms: int,
        *,
        version_2: bool,
    ) -> None:
        self.clock = clock
        self.write_marker = write_marker
        self._new_producer_id = new_producer_id
        self._cleanup_interval_ms = cleanup_interval_ms
        self._version_2 = version_2
        self._by_id: dict[str, TransactionMetadata] = {}
        self.cleanup_phase_ms: int | None = None
        """A moment at which timed-out transactions were looked for; others are whole intervals away."""

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> tuple[Errors, int, int]:
        """Error, producer id and epoch. An open transaction of the id is aborted and fenced first."""
        current = self._by_id.get(transactional_id)
        if current is None:
            current = TransactionMetadata(self._new_producer_id(), 0, timeout_ms)
            self._by_id[transactional_id] = current
            return Errors.NONE, current.producer_id, 0
        _settle(current)
        if current.ongoing:
            current.epoch += 1
            self._end(current, commit=False, marker_epoch=current.epoch)
            _settle(current)
        current.epoch += 1
        current.outcome = None
        current.timeout_ms = timeout_ms
        return Errors.NONE, current.producer_id, current.epoch

    def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, partition: int) -> Errors:
        current = self._by_id.get(transactional_id)
        if current is None or current.producer_id != producer_id:
            return Errors.INVALID_PRODUCER_ID_MAPPING
        if current.epoch != epoch:
            return Errors.PRODUCER_FENCED
        self._add(current, partition)
        return Errors.NONE

    def verify(self, transactional_id: str, producer_id: int, epoch: int, partition: int, version: int) -> Errors:
        """Error for a TxnOffsetCommit of ``version``: its partition must be in the transaction. Version 5 adds it."""
        current = self._by_id.get(transactional_id)
        if current is None or current.producer_id != producer_id:
            return Errors.INVALID_PRODUCER_ID_MAPPING
        if current.epoch != epoch:
            return Errors.INVALID_PRODUCER_EPOCH
        if version >= 5:
            self._add(current, partition)
        if partition in current.partitions and current.ongoing:
            return Errors.NONE
        return Errors.TRANSACTION_ABORTABLE if version >= 4 else Errors.INVALID_TXN_STATE

    def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, version: int
    ) -> tuple[Errors, int, int]:
        """Error, and from version 5 on the producer id and the epoch of the next transaction."""
        current = self._by_id.get(transactional_id)
        if current is None or current.producer_id != producer_id:
            return Errors.INVALID_PRODUCER_ID_MAPPING, -1, -1
        bumps = self._version_2 and version >= 5
        if not current.ongoing and current.outcome == commit and current.epoch == epoch + bumps:
            _settle(current)
            return Errors.NONE, producer_id, current.epoch
        if current.epoch != epoch:
            return Errors.PRODUCER_FENCED, -1, -1
        if not current.ongoing:
            if bumps and not commit:
                current.epoch += 1
                current.outcome = False
                return Errors.NONE, producer_id, current.epoch
            return Errors.INVALID_TXN_STATE, -1, -1
        current.outcome = commit
        if bumps:
            current.epoch += 1
        self._end(current, commit=commit, marker_epoch=current.epoch)
        return Errors.NONE, producer_id, current.epoch

    def _add(self, current: TransactionMetadata, partition: int) -> None:
        if not current.ongoing:
            _settle(current)
            current.ongoing = True
            current.outcome = None
            current.attempt += 1
            attempt = current.attempt
            self.clock.at(self._cleanup_after(current.timeout_ms), lambda: self._timed_out(current, attempt))
        current.partitions.add(partition)

    def _cleanup_after(self, timeout_ms: int) -> int:
        due_ms = self.clock.now_ms + timeout_ms
        if self.cleanup_phase_ms is None:
            return due_ms + self._cleanup_interval_ms // 2
        return due_ms + (self.cleanup_phase_ms - due_ms) % self._cleanup_interval_ms

    def _timed_out(self, current: TransactionMetadata, attempt: int) -> None:
        if current.ongoing and current.attempt == attempt:
            current.epoch += 1
            self._end(current, commit=False, marker_epoch=current.epoch)

    def _end(self, current: TransactionMetadata, *, commit: bool, marker_epoch: int) -> None:
        partitions = sorted(current.partitions)
        current.ongoing = False
        current.partitions = set()

        def write() -> None:
            if current.markers is write:
                current.markers = None
                for partition in partitions:
                    self.write_marker(partition, current.producer_id, marker_epoch, commit)

        current.markers = write
        self.clock.at(self.clock.now_ms + MARKER_DELAY_MS, write)


def _settle(current: TransactionMetadata) -> None:
    if current.markers is not None:
        current.markers()
