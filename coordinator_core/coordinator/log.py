"""The offsets log a coordinator appends to: one list of records per partition, and a switch that refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator_core.coordinator.errors import AppendError, Errors
from coordinator_core.coordinator.protocol import record_json
from coordinator_core.coordinator.record_data import RecordKey, RecordValue
from coordinator_core.groups.loaders import LoadedRecord
from coordinator_core.log.layout import NO_PRODUCER_ID as NO_PRODUCER_ID
from coordinator_core.records.codec import decode_key, decode_value, encode_key, encode_value


class Record(NamedTuple):
    """A record to append: ``value`` None is a tombstone."""

    type: int
    key: RecordKey
    version: int = 0
    value: RecordValue | None = None

    def at(self, offset: int) -> LoadedRecord:
        """The record as the log and a replay take it."""
        value = None if self.value is None else record_json(self.value)
        return LoadedRecord(offset, self.type, record_json(self.key), self.version, value)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of the log. ``control`` is ``COMMIT`` or ``ABORT`` for a marker, which has no key."""

    offset: int
    batch_offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    transactional: bool = False
    control: str | None = None

    def decoded(self) -> LoadedRecord:
        """The data of key and value; only for records that are not markers."""
        key = decode_key(self.key)
        if key.data is None:
            raise ValueError(f"unknown record type {key.type}")
        if self.value is None:
            return LoadedRecord(self.offset, key.type, key.data, 0, None)
        value = decode_value(key.type, self.value)
        return LoadedRecord(self.offset, key.type, key.data, value.version, value.data)

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key) + len(self.value or b"")


class ProducerState(NamedTuple):
    """What a partition knows of a producer (``ProducerStateEntry``)."""

    epoch: int
    is_open: bool
    """Whether it has a transaction there that no marker has ended."""


@dataclass(slots=True)
class OffsetsLog:
    """The partitions of the offsets topic, as all replicas have them.

    ``refuse`` decides about every append: the error of the produce path, or ``None`` to let it pass.
    """

    refuse: Callable[[int, Sequence[Record]], Errors | None] = lambda _partition, _records: None
    partitions: dict[int, list[LogRecord]] = field(default_factory=dict)
    producers: dict[tuple[int, int], ProducerState] = field(default_factory=dict)
    """By partition and producer id."""

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        timestamp_ms: int,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> int:
        """Append one batch and return its base offset; :class:`AppendError` when it is refused."""
        error = self.refuse(partition, records)
        if error is not None:
            raise AppendError(error)
        if producer_id != NO_PRODUCER_ID:
            self._keep_producer(partition, producer_id, ProducerState(producer_epoch, True))
        log = self.partitions.setdefault(partition, [])
        base = len(log)
        for offset, to_append in enumerate(records, base):
            record = to_append.at(offset)
            value = None if record.value is None else encode_value(record.key_type, record.version, record.value)
            log.append(
                LogRecord(
                    offset=offset,
                    batch_offset=base,
                    timestamp_ms=timestamp_ms,
                    key=encode_key(record.key_type, record.key),
                    value=value,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    transactional=producer_id != NO_PRODUCER_ID,
                )
            )
        return base

    def append_marker(
        self, partition: int, producer_id: int, producer_epoch: int, commit: bool, timestamp_ms: int
    ) -> None:
        """Append the marker that ends a transaction; :class:`AppendError` for one of an older epoch."""
        self._keep_producer(partition, producer_id, ProducerState(producer_epoch, False))
        log = self.partitions.setdefault(partition, [])
        log.append(
            LogRecord(
                offset=len(log),
                batch_offset=len(log),
                timestamp_ms=timestamp_ms,
                key=b"",
                value=None,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transactional=True,
                control="COMMIT" if commit else "ABORT",
            )
        )

    def _keep_producer(self, partition: int, producer_id: int, producer: ProducerState) -> None:
        """``ProducerAppendInfo.checkProducerEpoch``."""
        known = self.producers.get((partition, producer_id), producer)
        if producer.epoch < known.epoch:
            raise AppendError(Errors.INVALID_PRODUCER_EPOCH)
        self.producers[partition, producer_id] = producer

    def read(self, partition: int, buffer_size: int) -> Iterator[list[LogRecord]]:
        """The partition from start to end in buffers of whole batches, at least one batch each.

        A batch larger than ``buffer_size`` bytes comes alone: the buffer grows for it, the load goes on.
        """
        buffer: list[LogRecord] = []
        size = 0
        for batch in self._batches(partition):
            batch_size = sum(record.size for record in batch)
            if buffer and size + batch_size > buffer_size:
                yield buffer
                buffer, size = [], 0
            buffer += batch
            size += batch_size
        if buffer:
            yield buffer

    def _batches(self, partition: int) -> Iterator[list[LogRecord]]:
        batch: list[LogRecord] = []
        for record in self.partitions.get(partition, []):
            if batch and record.batch_offset != batch[0].batch_offset:
                yield batch
                batch = []
            batch.append(record)
        if batch:
            yield batch
