"""A transaction coordinator, for commits of offsets only.

Source: ``TransactionCoordinator`` and ``TransactionMetadata``, for offsets partitions only. Markers are
written :data:`MARKER_DELAY_MS` after the transaction ends: EndTxn is answered before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.timers import Clock

MARKER_DELAY_MS = 3
EXHAUSTED_EPOCH = (1 << 15) - 2
"""The last epoch of a producer id that a client gets (``isProducerEpochExhausted``)."""
NO_EPOCH = -1
WriteMarker = Callable[[int, int, int, bool], None]
"""Takes the offsets partition, the producer id and epoch of the marker, and whether it commits."""


class Producer(NamedTuple):
    """A producer id with its epoch, as answers have it; both -1 in an answer without."""

    producer_id: int = -1
    epoch: int = NO_EPOCH


Answer = tuple[Errors, int, int]
"""Error, producer id and epoch."""


@dataclass(slots=True)
class TransactionMetadata:
    """A transactional id; ``ongoing`` from its first partition to the decision how it ends."""

    producer_id: int
    timeout_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """The epoch before: who asks with it once more was not told the current one. None after a new producer."""
    previous_producer_id: int = -1
    """The producer id before, whose epochs were exhausted."""
    ongoing: bool = False
    partitions: set[int] = field(default_factory=set)
    began_ms: int = 0
    attempt: int = 0
    outcome: bool | None = None
    """Whether the producer committed its last transaction; a repeated EndTxn is told so again."""
    markers: Callable[[], None] | None = None
    """Writes the markers that are due. Clients ask again until that is done, so an answer means it is."""

    def is_of(self, producer: Producer) -> bool:
        """Whether the producer may ask for an epoch; the epoch that it has is looked at later."""
        return (
            self.epoch == NO_EPOCH
            or producer.producer_id == self.producer_id
            or (producer.producer_id == self.previous_producer_id and producer.epoch >= EXHAUSTED_EPOCH)
        )

    def answer(self) -> Answer:
        return Errors.NONE, self.producer_id, self.epoch


class Transactions:
    """Transactional ids of the cluster. They survive the restart of a broker, whose log keeps them."""

    def __init__(
        self,
        clock: Clock,
        write_marker: WriteMarker,
        new_producer_id: Callable[[], int],
        cleanup_interval_ms: int,
        max_timeout_ms: int,
        *,
        version_2: bool,
    ) -> None:
        self.clock = clock
        self.write_marker = write_marker
        self._new_producer_id = new_producer_id
        self._cleanup_interval_ms = cleanup_interval_ms
        self._max_timeout_ms = max_timeout_ms
        self._version_2 = version_2
        self._by_id: dict[str, TransactionMetadata] = {}
        self.cleanup_phase_ms: int | None = None
        """A moment at which timed-out transactions were looked for; others are whole intervals away."""
        self._cleanup_from_ms = 0

    # Producers

    def init_producer_id(self, transactional_id: str | None, timeout_ms: int, producer: Producer) -> Answer:
        """The answer to InitProducerId. An open transaction of the id is aborted and fenced first.

        ``producer`` is who asks for a new epoch instead of the one it has (KIP-360): only the newest may.
        """
        if (producer.producer_id == -1) != (producer.epoch == NO_EPOCH):
            return _failed(Errors.INVALID_REQUEST)
        if transactional_id is None:
            return Errors.NONE, self._new_producer_id(), 0
        if not transactional_id:
            return _failed(Errors.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._max_timeout_ms:
            return _failed(Errors.INVALID_TRANSACTION_TIMEOUT)
        current = self._by_id.get(transactional_id)
        if current is None:
            current = self._by_id[transactional_id] = TransactionMetadata(self._new_producer_id(), timeout_ms)
        _settle(current)
        is_new = producer.epoch == NO_EPOCH
        if not is_new and not current.is_of(producer):
            return _failed(Errors.PRODUCER_FENCED)
        if current.ongoing:
            self._fence(current)
            _settle(current)
        if is_new or current.epoch in (NO_EPOCH, producer.epoch):
            self._next_epoch(current)
            if is_new:
                current.last_epoch = NO_EPOCH
        elif producer.epoch != current.last_epoch:
            return _failed(Errors.PRODUCER_FENCED)
        current.outcome = None
        current.timeout_ms = timeout_ms
        return current.answer()

    def _next_epoch(self, current: TransactionMetadata) -> None:
        """The next epoch, of a new producer id where those of the old one are exhausted."""
        current.last_epoch = current.epoch
        if current.epoch >= EXHAUSTED_EPOCH:
            current.previous_producer_id = current.producer_id
            current.producer_id, current.epoch = self._new_producer_id(), 0
        else:
            current.epoch += 1

    # Transactions

    def add_offsets(self, transactional_id: str, producer_id: int, epoch: int, partition: int) -> Errors:
        if not transactional_id:
            return Errors.INVALID_REQUEST
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

    def end(self, transactional_id: str, producer_id: int, epoch: int, commit: bool, version: int) -> Answer:
        """The answer to EndTxn: from version 5 on with the producer of the next transaction."""
        if not transactional_id:
            return _failed(Errors.INVALID_REQUEST)
        current = self._by_id.get(transactional_id)
        if current is None:
            return _failed(Errors.INVALID_PRODUCER_ID_MAPPING)
        _settle(current)
        bumps = self._version_2 and version >= 5
        before = Producer(current.producer_id, current.epoch)
        if bumps and current.outcome is not None:
            # The same request again is of the epoch before, if need be of the producer id before.
            rolled_over = current.epoch == 0 and producer_id == current.previous_producer_id
            before = Producer(producer_id, EXHAUSTED_EPOCH) if rolled_over else before._replace(epoch=current.epoch - 1)
        is_again = current.outcome is not None and before == (producer_id, epoch)
        if current.producer_id != producer_id and not is_again:
            return _failed(Errors.INVALID_PRODUCER_ID_MAPPING)
        if is_again and current.outcome == commit:
            return current.answer()
        if current.epoch != epoch and not is_again:
            return _failed(Errors.PRODUCER_FENCED)
        if not current.ongoing and (is_again or commit or not bumps):
            return _failed(Errors.INVALID_TXN_STATE)
        current.outcome = commit
        marker = Producer(producer_id, epoch + bumps)
        if bumps:
            self._next_epoch(current)
        self._end(current, marker, commit=commit)
        return current.answer()

    def _add(self, current: TransactionMetadata, partition: int) -> None:
        if not current.ongoing:
            _settle(current)
            current.ongoing = True
            current.outcome = None
            current.began_ms = self.clock.now_ms
            self._watch(current)
        current.partitions.add(partition)

    def _end(self, current: TransactionMetadata, marker: Producer, *, commit: bool) -> None:
        partitions = sorted(current.partitions)
        current.ongoing = False
        current.partitions = set()

        def write() -> None:
            if current.markers is write:
                current.markers = None
                for partition in partitions:
                    self.write_marker(partition, *marker, commit)

        current.markers = write
        self.clock.at(self.clock.now_ms + MARKER_DELAY_MS, write)

    def _fence(self, current: TransactionMetadata) -> None:
        """Abort the open transaction with an epoch that its producer does not have."""
        current.last_epoch = current.epoch if self._version_2 else NO_EPOCH
        current.epoch += 1
        self._end(current, Producer(current.producer_id, current.epoch), commit=False)

    # Transactions that time out

    def restarted(self, cleanup_ms: int) -> None:
        """The broker is gone; the next one looks for timed-out transactions at ``cleanup_ms`` for the first time."""
        self.cleanup_phase_ms = self._cleanup_from_ms = cleanup_ms
        for current in self._by_id.values():
            if current.ongoing:
                self._watch(current)

    def _watch(self, current: TransactionMetadata) -> None:
        """Abort the transaction at the first clean-up after its time, instead of any that was meant before."""
        current.attempt += 1
        attempt = current.attempt
        self.clock.at(
            self._cleanup_after(current.began_ms + current.timeout_ms), lambda: self._timed_out(current, attempt)
        )

    def _cleanup_after(self, due_ms: int) -> int:
        due_ms = max(due_ms, self._cleanup_from_ms)
        if self.cleanup_phase_ms is None:
            return due_ms + self._cleanup_interval_ms // 2
        return due_ms + (self.cleanup_phase_ms - due_ms) % self._cleanup_interval_ms

    def _timed_out(self, current: TransactionMetadata, attempt: int) -> None:
        if current.ongoing and current.attempt == attempt:
            self._fence(current)


def _failed(error: Errors) -> Answer:
    return error, *Producer()


def _settle(current: TransactionMetadata) -> None:
    if current.markers is not None:
        current.markers()
