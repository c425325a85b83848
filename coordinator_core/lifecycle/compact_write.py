"""The second half of compaction: what stays of each batch, written in order.

Plain v2 batches go through the kernel; compressed ones and those of old formats are taken apart and built
again by ``log.writer``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from coordinator_core.columnar.batches import Stop
from coordinator_core.columnar.compaction_filter import (
    Action,
    ActionRow,
    Filter,
    Setting,
    WrittenRow,
    filter_batches,
)
from coordinator_core.columnar.tables import Int64s
from coordinator_core.lifecycle.compact_plan import CompactionRules, Survivors
from coordinator_core.lifecycle.compact_scan import LogScan, ScannedSegment
from coordinator_core.log.batch import batch_records
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import parse_entry_batch
from coordinator_core.log.segments import SegmentWriter
from coordinator_core.log.types import Batch, Codec
from coordinator_core.log.writer import empty_batch, rebuild_batch, recoded_batch

_LIMITS = Limits()
_OUT_BYTES = 4 << 20
_OUT_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """How what stays is written.

    ``convert`` makes v2 batches of messages of formats 0 and 1, as the cleaner of Kafka 4.0 and later does;
    ``renumber`` gives records consecutive offsets from the log start on. With ``codec`` v2 batches with
    records are compressed by it (or not at all), as far as compaction goes; ``None`` keeps each one's own.
    """

    convert: bool = False
    renumber: bool = False
    codec: Codec | None = None


class Sink(Protocol):
    """Takes whole batches in offset order."""

    def write(self, data: memoryview, rows: Int64s) -> None:
        """``rows`` are those of :class:`WrittenRow`, positions being those in ``data``."""


class SegmentSink:
    """Cuts what comes into segments."""

    def __init__(self, writer: SegmentWriter) -> None:
        self._writer = writer

    def write(self, data: memoryview, rows: Int64s) -> None:
        ends = np.append(rows[1:, WrittenRow.POSITION], len(data))
        first = 0
        while first < len(rows):
            start = int(rows[first, WrittenRow.POSITION])
            last = first
            low, high = first, len(rows) - 1
            # The most batches that fit the segment that is open; one always goes, into the next one if need
            # be.
            while low <= high:
                middle = (low + high) // 2
                if self._writer.has_room(
                    int(ends[middle]) - start, int(rows[middle, WrittenRow.LAST_OFFSET])
                ):
                    last, low = middle, middle + 1
                else:
                    high = middle - 1
            self._writer.write(
                data[start : int(ends[last])],
                int(rows[first, WrittenRow.BASE_OFFSET]),
                int(rows[last, WrittenRow.LAST_OFFSET]),
            )
            first = last + 1


class SameBytes:
    """Tells whether what comes is, byte for byte, what the segments of a scan hold."""

    def __init__(self, scan: LogScan) -> None:
        self._rest = deque(scanned for scanned in scan.segments if scanned.size)
        self._part = memoryview(b"")
        self._differs = False

    def write(self, data: memoryview, rows: Int64s) -> None:
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
    """What was written.

    ``kept`` are the offsets of the records that compaction let stay, ``numbered`` those that they got;
    ``batches_from`` and ``batches_to`` the base offsets of all batches, of both logs.
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
        """Where records of the input are in the output; a record that is not there goes to no record's
        place."""
        place = np.searchsorted(self.batches_from, record_offsets, "right") - 1
        inside = np.maximum(place, 0)
        found = np.where(place >= 0, self.batches_to[inside] + record_offsets - self.batches_from[inside], -1)
        if not len(self.kept):
            return found
        place = np.minimum(np.searchsorted(self.kept, record_offsets), len(self.kept) - 1)
        return np.where(self.kept[place] == record_offsets, self.numbered[place], found)

    def origin(self, record_offset: int) -> int:
        """Where a record of the output was in the input; -1 where none of those that stay is there."""
        place = int(np.searchsorted(self.numbered, record_offset))
        is_there = place < len(self.numbered) and self.numbered[place] == record_offset
        return int(self.kept[place]) if is_there else -1


def write_survivors(
    scan: LogScan,
    stays: Survivors,
    actions: Int64s,
    rules: CompactionRules,
    end_offset: int,
    sink: Sink,
    output: OutputFormat = OutputFormat(),
    first_offset: int = 0,
) -> WrittenLog:
    """Write what stays of the log to ``sink``; everything from ``end_offset`` on stays as it is.

    ``first_offset`` is where renumbering begins. Raises ``DamagedInputError`` for records that cannot be
    read.
    """
    writing = _Writing(scan, stays, actions, rules, end_offset, sink, output, first_offset)
    for scanned in scan.segments:
        if scanned.is_plain:
            writing.filter_segment(scanned)
        else:
            for batch in scanned.batches():
                writing.filter_batch(batch, scanned.segment.path)
    writing.flush()
    pairs = np.concatenate([np.empty((0, 2), np.int64), *writing.moves])
    return WrittenLog(
        writing.batches,
        writing.records,
        writing.bytes,
        writing.next_offset,
        stays.offsets,
        writing.renumbered,
        pairs[:, 0],
        pairs[:, 1],
    )


class _Writing:
    def __init__(
        self,
        scan: LogScan,
        stays: Survivors,
        actions: Int64s,
        rules: CompactionRules,
        end_offset: int,
        sink: Sink,
        output: OutputFormat,
        first_offset: int,
    ) -> None:
        self._start_offset = scan.start_offset
        self._stays = stays
        self._actions = actions
        self._rules = rules
        self._end_offset = end_offset
        self._sink = sink
        self._output = output
        self.renumbered = stays.offsets.copy()
        self.moves: list[Int64s] = []
        self.batches = self.records = self.bytes = 0
        self._state = np.zeros(Filter.SIZE, np.int64)
        self._state[Filter.NEXT_OFFSET] = first_offset
        self._settings = np.zeros(Setting.SIZE, np.int64)
        self._settings[Setting.START_OFFSET] = self._start_offset
        self._settings[Setting.END_OFFSET] = end_offset
        self._settings[Setting.HORIZON] = rules.horizon_ms
        self._settings[Setting.RENUMBER] = output.renumber
        self._out = np.empty(_OUT_BYTES, np.uint8)
        self._rows = np.empty((_OUT_ROWS, WrittenRow.WIDTH), np.int64)

    @property
    def next_offset(self) -> int:
        return int(self._state[Filter.NEXT_OFFSET])

    def filter_segment(self, scanned: ScannedSegment) -> None:
        data = scanned.read()
        array = np.frombuffer(data, np.uint8)
        position, stop = 0, len(data)
        while position < stop:
            stopped = filter_batches(
                array,
                position,
                stop,
                self._settings,
                self._stays.offsets,
                self._stays.tombstones,
                self.renumbered,
                self._actions,
                self._out,
                self._rows,
                self._state,
            )
            position = int(self._state[Filter.POSITION])
            if stopped == Stop.GROW:
                if self._state[Filter.WRITTEN] == 0:
                    self._out = np.empty(2 * len(self._out), np.uint8)
                self.flush()
            elif stopped == Stop.ODD:
                batch = scanned.batch_at(data, position)
                self.filter_batch(batch, scanned.segment.path)
                position += batch.size

    def flush(self) -> None:
        count, used = int(self._state[Filter.WRITTEN]), int(self._state[Filter.OUT])
        if count:
            rows = self._rows[:count]
            self._emit(self._out[:used].data, rows)
        self._state[Filter.WRITTEN] = self._state[Filter.OUT] = 0

    def _emit(self, data: memoryview, rows: Int64s) -> None:
        if self._output.codec is not None:
            data, rows = self._recoded(data, rows, self._output.codec)
        self.batches += len(rows)
        self.records += int(rows[:, WrittenRow.RECORDS].sum())
        self.bytes += len(data)
        if self._output.renumber:
            self.moves.append(rows[:, [WrittenRow.SOURCE_BASE_OFFSET, WrittenRow.BASE_OFFSET]])
        self._sink.write(data, rows)

    def _recoded(self, data: memoryview, rows: Int64s, codec: Codec) -> tuple[memoryview, Int64s]:
        out, rows = bytearray(), rows.copy()
        ends = [*rows[1:, WrittenRow.POSITION].tolist(), len(data)]
        for row, end in zip(rows, ends, strict=True):
            written = data[row[WrittenRow.POSITION] : end]
            row[WrittenRow.POSITION] = len(out)
            batch = parse_entry_batch(written, 0, _LIMITS)
            if batch is None or row[WrittenRow.SOURCE_BASE_OFFSET] >= self._end_offset:
                out += written
            else:
                out += recoded_batch(batch, codec, limits=_LIMITS)
        return memoryview(bytes(out)), rows

    def filter_batch(self, batch: Batch, path: str) -> None:
        """The same for one batch of any kind, record by record."""
        self.flush()
        # The kernel goes on behind it.
        self._state[Filter.KEPT] = np.searchsorted(self._stays.offsets, batch.last_offset, "right")
        if batch.last_offset < self._start_offset:
            return
        data, records = self._left_of(batch, path)
        if data is None:
            return
        renumber = self._output.renumber
        source = base = batch.base_offset
        last = batch.last_offset
        if data[16] == 2:
            if batch.magic < 2 and source >= self._end_offset:
                source = int.from_bytes(data[:8], "big")
            base = self.next_offset if renumber else int.from_bytes(data[:8], "big")
            data = base.to_bytes(8, "big") + data[8:]
            last = base + int.from_bytes(data[23:27], "big")
        self._state[Filter.NEXT_OFFSET] = last + 1
        row = np.array([[0, base, last, records, source]], np.int64)
        self._emit(memoryview(data), row)

    def _left_of(self, batch: Batch, path: str) -> tuple[bytes | None, int]:
        """The bytes that stay of a batch, and how many records they hold; ``None`` for nothing."""
        kept = self._stays.offsets
        if batch.base_offset >= self._end_offset:
            if batch.magic < 2 and self._output.renumber:
                return self._converted(batch, path)
            return bytes(batch.data), batch.record_count or 1
        action = self._action(batch)
        if action is Action.COPY:
            return bytes(batch.data), batch.record_count or 0
        records = batch_records(batch, path=path, limits=_LIMITS)
        first_record = records[0].offset if records else batch.base_offset
        first = int(np.searchsorted(kept, first_record))
        last = int(np.searchsorted(kept, batch.last_offset, "right"))
        stays = {int(offset) for offset in kept[first:last]}
        if action is Action.SET_HORIZON:
            stays = {record.offset for record in records}
        if not stays:
            return (empty_batch(batch), 0) if action is Action.KEEP_EMPTY and batch.magic >= 2 else (None, 0)
        dies = any(record.value is None and record.offset in stays for record in records)
        is_legacy = batch.magic < 2
        converted = is_legacy and (self._output.convert or self._output.renumber)
        sets_horizon = action is Action.SET_HORIZON or (
            dies and batch.delete_horizon_ms is None and (converted or not is_legacy)
        )
        dense = not self._output.renumber or len(records) == batch.last_offset - batch.base_offset + 1
        first_offset = self.next_offset if self._output.renumber else None
        whole = len(stays) == len(records) and not sets_horizon and not converted and dense
        if action is not Action.SET_HORIZON and first_offset is not None:
            shift = kept[first:last] - batch.base_offset if whole else np.arange(last - first)
            self.renumbered[first:last] = first_offset + shift
        if whole:
            return bytes(batch.data), len(records)
        data = rebuild_batch(
            batch,
            stays.__contains__,
            path=path,
            limits=_LIMITS,
            delete_horizon_ms=self._rules.horizon_ms if sets_horizon else None,
            convert=converted,
            first_offset=first_offset,
        )
        return data, len(stays)

    def _converted(self, batch: Batch, path: str) -> tuple[bytes, int]:
        data = rebuild_batch(batch, lambda _: True, path=path, limits=_LIMITS, convert=True)
        return data, int.from_bytes(data[57:61], "big")

    def _action(self, batch: Batch) -> Action | None:
        place = int(np.searchsorted(self._actions[:, ActionRow.BASE_OFFSET], batch.base_offset))
        if place < len(self._actions) and self._actions[place, ActionRow.BASE_OFFSET] == batch.base_offset:
            return Action(int(self._actions[place, ActionRow.ACTION]))
        return None
