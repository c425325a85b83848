"""The second half of compaction: the rest of each batch, written in order.

Plain v2 batches go through the kernel; compressed ones and those of old formats are taken apart and built
again by ``log.writer``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from coordinator_core.kernels import BatchFilter, filter_batches
from coordinator_core.kernels.arrays import Array, Int64s, array_of, dtype
from coordinator_core.kernels.layout import Action, Stop
from coordinator_core.lifecycle.compact_plan import CompactionPlan
from coordinator_core.lifecycle.compact_scan import LogScan, ScannedSegment
from coordinator_core.log.batch import batch_records
from coordinator_core.log.layout import BatchField
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import parse_entry_batch
from coordinator_core.log.segments import SegmentWriter
from coordinator_core.log.types import Batch, Codec
from coordinator_core.log.writer import empty_batch, rebuild_batch, recoded_batch

_LIMITS = Limits()
_OUT_BYTES = 4 << 20
_OUT_BATCHES = 1 << 14


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """Format of the records that stay.

    ``convert`` makes v2 batches of messages of formats 0 and 1, as the cleaner of Kafka 4.0 and later does;
    ``renumber`` gives records consecutive offsets from the log start on. With ``codec`` v2 batches with
    records are compressed by it (or not at all), as far as compaction goes; ``None`` keeps each one's own.
    """

    convert: bool = False
    renumber: bool = False
    codec: Codec | None = None


class Sink(Protocol):
    """Takes whole batches in offset order."""

    def write(self, data: memoryview, batches: Array) -> None:
        """Take ``data``; ``batches`` are rows of :class:`~coordinator_core.kernels.layout.WrittenBatch`."""


class SegmentSink:
    """Cuts batches into segments."""

    def __init__(self, writer: SegmentWriter) -> None:
        self._writer = writer

    def write(self, data: memoryview, batches: Array) -> None:
        starts = [*batches["position"].tolist(), len(data)]
        last_offsets = batches["last_offset"].tolist()
        first = 0
        while first < len(batches):
            last = first
            low, high = first, len(batches) - 1
            # The most batches that fit the segment that is open; one always goes, into the next one if need
            # be.
            while low <= high:
                middle = (low + high) // 2
                if self._writer.has_room(starts[middle + 1] - starts[first], last_offsets[middle]):
                    last, low = middle, middle + 1
                else:
                    high = middle - 1
            self._writer.write(
                data[starts[first] : starts[last + 1]], int(batches["base_offset"][first]), last_offsets[last]
            )
            first = last + 1


class SameBytes:
    """Tells whether its input is, byte for byte, the content of the segments of a scan."""

    def __init__(self, scan: LogScan) -> None:
        self._rest = deque(scanned for scanned in scan.segments if scanned.size)
        self._part = memoryview(b"")
        self._differs = False

    def write(self, data: memoryview, batches: Array) -> None:
        while len(data) and not self._differs:
            if not len(self._part):
                if not self._rest:
                    self._differs = True
                    return
                self._part = self._rest.popleft().read()
            size = min(len(data), len(self._part))
            self._differs = self._part[:size] != data[:size]
            self._part, data = self._part[size:], data[size:]

    @property
    def same(self) -> bool:
        return not (self._differs or self._rest or len(self._part))


@dataclass(frozen=True)
class WrittenLog:
    """A compacted log, and how its offsets follow from those of the input.

    ``kept``: record offsets of the input whose records stay, ascending; ``numbered``: their record offsets in the
    output. ``batches_from`` and ``batches_to``: base offsets of all batches, in the input and in the output.
    """

    batches: int
    records: int
    bytes: int
    log_end_offset: int
    kept: Int64s
    numbered: Int64s
    batches_from: Int64s
    batches_to: Int64s

    def moved(self, record_offsets: Int64s) -> Int64s:
        """Record offsets in the output of records of the input; one that no record has where the record is gone."""
        if not len(self.batches_from):
            return np.full(len(record_offsets), -1, np.int64)
        place = np.searchsorted(self.batches_from, record_offsets, "right") - 1
        inside = np.maximum(place, 0)
        found = np.where(place >= 0, self.batches_to[inside] + record_offsets - self.batches_from[inside], -1)
        if not len(self.kept):
            return found
        place = np.minimum(np.searchsorted(self.kept, record_offsets), len(self.kept) - 1)
        return np.where(self.kept[place] == record_offsets, self.numbered[place], found)

    def origin(self, record_offset: int) -> int:
        """Record offsets in the input of records of the output; -1 where no record stays."""
        place = int(np.searchsorted(self.numbered, record_offset))
        is_there = place < len(self.numbered) and self.numbered[place] == record_offset
        return int(self.kept[place]) if is_there else -1


def write_survivors(
    plan: CompactionPlan, sink: Sink, output: OutputFormat = OutputFormat(), first_offset: int = 0
) -> WrittenLog:
    """Write the records that stay to ``sink``. ``first_offset`` is where renumbering begins.

    Raises ``DamagedInputError`` for records that cannot be read.
    """
    writing = _Writing(plan, sink, output, first_offset)
    for scanned in plan.scan.segments:
        scanned.walk(writing.filter_batches, writing.filter_batch)
    writing.flush()
    return WrittenLog(
        writing.batches,
        writing.records,
        writing.bytes,
        writing.filter.next_offset,
        plan.stays.offsets,
        writing.numbered,
        np.concatenate([np.empty(0, np.int64), *writing.moved_from]),
        np.concatenate([np.empty(0, np.int64), *writing.moved_to]),
    )


class _Writing:
    def __init__(self, plan: CompactionPlan, sink: Sink, output: OutputFormat, first_offset: int) -> None:
        self._start_offset = plan.scan.start_offset
        self._kept, self._tombstones = plan.stays.offsets, plan.stays.tombstones
        self._actions: dict[int, int] = dict(plan.actions.tolist())
        self._horizon_ms = plan.rules.horizon_ms
        self._end_offset = plan.end_offset
        self._sink = sink
        self._output = output
        self.numbered = self._kept.copy()
        self.moved_from: list[Int64s] = []
        self.moved_to: list[Int64s] = []
        self.batches = self.records = self.bytes = 0
        self.filter = BatchFilter(
            self._kept,
            self._tombstones,
            self.numbered,
            plan.actions,
            self._start_offset,
            self._end_offset,
            self._horizon_ms,
            output.renumber,
            first_offset,
            _OUT_BYTES,
            _OUT_BATCHES,
        )

    def filter_batches(self, data: memoryview, position: int) -> tuple[int, int]:
        """Write the records that stay of the batches from ``position`` on, as far as the kernel goes."""
        stopped, position = filter_batches(data, position, len(data), self.filter)
        if stopped != Stop.END:
            self.flush()
        return stopped, position

    def flush(self) -> None:
        """Hand on the bytes that the kernel has written."""
        if self.filter.written_used:
            batches = array_of(self.filter.written)[: self.filter.written_used]
            self._emit(array_of(self.filter.out)[: self.filter.out_used].data, batches)
        self.filter.begin_output()

    def _emit(self, data: memoryview, batches: Array) -> None:
        if self._output.codec is not None:
            data, batches = self._recoded(data, batches, self._output.codec)
        self.batches += len(batches)
        self.records += int(batches["records"].sum())
        self.bytes += len(data)
        if self._output.renumber:
            self.moved_from.append(batches["source_base_offset"].copy())
            self.moved_to.append(batches["base_offset"].copy())
        self._sink.write(data, batches)

    def _recoded(self, data: memoryview, batches: Array, codec: Codec) -> tuple[memoryview, Array]:
        out, batches = bytearray(), batches.copy()
        starts = [*batches["position"].tolist(), len(data)]
        for number, source in enumerate(batches["source_base_offset"].tolist()):
            written = data[starts[number] : starts[number + 1]]
            batches["position"][number] = len(out)
            batch = parse_entry_batch(written, 0, _LIMITS)
            if batch is None or source >= self._end_offset:
                out += written
            else:
                out += recoded_batch(batch, codec)
        return memoryview(bytes(out)), batches

    def filter_batch(self, scanned: ScannedSegment, batch: Batch) -> None:
        """The same for one batch of any kind, record by record."""
        self.flush()
        # The kernel goes on behind it.
        self.filter.kept_at = int(np.searchsorted(self._kept, batch.last_offset, "right"))
        if batch.last_offset < self._start_offset:
            return
        data, records = self._left_of(scanned, batch)
        if data is None:
            return
        renumber = self._output.renumber
        source = base = batch.base_offset
        last = batch.last_offset
        if data[BatchField.MAGIC] == 2:
            if batch.magic < 2 and source >= self._end_offset:
                source = whole_at(data, BatchField.BASE_OFFSET, 8)
            base = self.filter.next_offset if renumber else whole_at(data, BatchField.BASE_OFFSET, 8)
            data = base.to_bytes(8, "big") + data[BatchField.LENGTH :]
            last = base + whole_at(data, BatchField.LAST_OFFSET_DELTA, 4)
        else:
            # A wrapper has the offset of its last record, and the records left may lie below.
            base = min(base, whole_at(data, BatchField.BASE_OFFSET, 8))
        self.filter.next_offset = last + 1
        self._emit(memoryview(data), np.array([(0, base, last, records, source)], dtype("WrittenBatch")))

    def _left_of(self, scanned: ScannedSegment, batch: Batch) -> tuple[bytes | None, int]:
        """The bytes that stay of a batch, and how many records they hold; ``None`` for nothing."""
        kept, path = self._kept, scanned.segment.path
        if batch.base_offset >= self._end_offset:
            if batch.magic < 2 and self._output.renumber:
                return self._converted(batch, path)
            count = batch.record_count
            return bytes(batch.data), len(batch_records(batch, path=path)) if count is None else count
        action = self._actions.get(batch.base_offset)
        if action == Action.COPY:
            return bytes(batch.data), batch.record_count or 0
        records = batch_records(batch, path=path)
        first_record = records[0].offset if records else batch.base_offset
        first = int(np.searchsorted(kept, first_record))
        last = int(np.searchsorted(kept, batch.last_offset, "right"))
        stays = set(kept[first:last].tolist())
        if not stays <= {record.offset for record in records}:
            raise scanned.changed(batch.position)
        if action == Action.SET_HORIZON:
            stays = {record.offset for record in records}
        if not stays:
            if action != Action.KEEP_EMPTY or batch.magic < 2:
                return None, 0
            return empty_batch(batch, one_offset=self._output.renumber), 0
        dies = bool(self._tombstones[first:last].any())
        is_legacy = batch.magic < 2
        converted = is_legacy and (self._output.convert or self._output.renumber)
        sets_horizon = action == Action.SET_HORIZON or (
            dies and batch.delete_horizon_ms is None and (converted or not is_legacy)
        )
        dense = not self._output.renumber or len(records) == batch.last_offset - batch.base_offset + 1
        first_offset = self.filter.next_offset if self._output.renumber else None
        whole = len(stays) == len(records) and not sets_horizon and not converted and dense
        if action != Action.SET_HORIZON and first_offset is not None:
            shift = kept[first:last] - batch.base_offset if whole else np.arange(last - first)
            self.numbered[first:last] = first_offset + shift
        if whole:
            return bytes(batch.data), len(records)
        data = rebuild_batch(
            batch,
            stays.__contains__,
            path=path,
            delete_horizon_ms=self._horizon_ms if sets_horizon else None,
            convert=converted,
            first_offset=first_offset,
        )
        return data, len(stays)

    def _converted(self, batch: Batch, path: str) -> tuple[bytes, int]:
        data = rebuild_batch(batch, lambda _: True, path=path, convert=True)
        return data, whole_at(data, BatchField.RECORD_COUNT, 4)


def whole_at(data: bytes, at: int, size: int) -> int:
    """The number in ``size`` bytes of a batch from ``at`` on."""
    return int.from_bytes(data[at : at + size], "big")
