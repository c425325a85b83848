"""What compaction must know of a partition's log: its batches that decide about others, and its newest
records.

Two passes over the segments. The first checks every batch and notes those with a producer id, control
batches, and where the leader epoch changes; from these the plan tells what is open and what was aborted. The
second enters every record's raw key. Memory follows the keys and the transactions, not the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from coordinator_core import storage
from coordinator_core.columnar.batches import Stop
from coordinator_core.columnar.compaction_keys import KeyRow, KeyState, KeyTables, merge_keys, newest_keys
from coordinator_core.columnar.compaction_survey import ASK, NOT_A_MARKER, BatchRow, Survey, survey_log
from coordinator_core.columnar.kernels import rebuild_index
from coordinator_core.columnar.tables import Bytes, Int64s, Interned, Rules
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.batch import batch_records, control_type, records_section
from coordinator_core.log.compression import CompressionError
from coordinator_core.log.layout import CODEC_BITS, HEADER_BYTES
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import MAX_OFFSET_SPAN, parse_entry, parse_entry_batch, read_segment
from coordinator_core.log.types import Batch, ControlType, PartitionLog, SegmentFile
from coordinator_core.log.writer import keys_of_batch

T = TypeVar("T")
R = TypeVar("R")

_LIMITS = Limits()
_FIRST_ROWS = 1 << 12


@dataclass(frozen=True)
class ScannedSegment:
    """A segment whose batches were checked; ``size`` are its bytes up to the end of the last one.

    ``is_plain`` tells that all of them are v2 batches that the kernels walk over; otherwise :meth:`batches`
    reads them one by one. Nothing of the file is held between passes: what is mapped counts as memory.
    """

    segment: SegmentFile
    size: int
    end_offset: int | None
    is_plain: bool

    def read(self) -> memoryview:
        """Its bytes."""
        return storage.read(self.segment.path)[: self.size]

    @staticmethod
    def batch_at(data: memoryview, position: int) -> Batch:
        """The v2 batch at ``position`` of what :meth:`read` gave."""
        batch = parse_entry_batch(data, position, _LIMITS)
        assert batch is not None
        return batch

    def batches(self) -> Iterator[Batch]:
        return read_segment(self.segment, limits=_LIMITS, end_offset=self.end_offset)


@dataclass(frozen=True)
class LogScan:
    """The batches of a partition. ``rows`` are those of :class:`BatchRow`, in log order.

    ``last_base_offset`` is that of the last batch, -1 for a log without any.
    """

    log: PartitionLog
    segments: tuple[ScannedSegment, ...]
    rows: Int64s
    batches: int
    records: int
    last_base_offset: int
    log_end_offset: int

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset or 0

    @property
    def bytes(self) -> int:
        return sum(scanned.size for scanned in self.segments)


@dataclass(frozen=True)
class NewestRecords:
    """The newest records of every raw key up to an offset, see :class:`KeyRow`.

    ``unkeyed`` are the offsets of records without a key.
    """

    rows: Int64s
    keys: Bytes
    unkeyed: Int64s

    def key(self, row: int) -> bytes:
        start = int(self.rows[row, Interned.BODY])
        return self.keys[start : start + int(self.rows[row, Interned.BODY_BYTES])].tobytes()

    def key_types(self) -> Int64s:
        """Record type of every key by its first two bytes; -1 for shorter ones."""
        if not len(self.keys):
            return np.full(len(self.rows), -1, np.int64)
        start = np.minimum(self.rows[:, Interned.BODY], len(self.keys) - 2)
        types = self.keys[start].astype(np.int64) << 8 | self.keys[start + 1]
        return np.where(self.rows[:, Interned.BODY_BYTES] >= 2, types, -1)


def scan_log(log: PartitionLog, *, workers: int = 1) -> LogScan:
    """Check every batch of ``log``; raises :class:`DamagedInputError` at the first that is not sound."""
    start = log.log_start_offset or 0
    ranges = [(segment, end) for segment, end in log.segment_ranges() if end is None or end > start]
    surveys = _side_by_side(lambda item: _survey_segment(*item), ranges, workers)
    parts, last_base, end_offset, batches, records = [], -1, 0, 0, 0
    for index, (scanned, rows, state) in enumerate(surveys):
        rows[:, BatchRow.SEGMENT] = index
        parts.append(rows)
        if index + 1 < len(surveys):
            _check_whole(scanned, int(state[Survey.EXPECTED]))
        batches += int(state[Survey.BATCHES])
        records += int(state[Survey.RECORDS])
        end_offset = max(end_offset, int(state[Survey.EXPECTED]))
        if state[Survey.LAST_BASE_OFFSET] >= 0:
            last_base = int(state[Survey.LAST_BASE_OFFSET])
    rows = np.concatenate(parts) if parts else np.empty((0, BatchRow.WIDTH), np.int64)
    return LogScan(
        log, tuple(scanned for scanned, _, _ in surveys), rows, batches, records, last_base, end_offset
    )


def _check_whole(scanned: ScannedSegment, next_offset: int) -> None:
    """Zeroes at the end of the last segment are a preallocated file; before another one, lost records."""
    segment, zeroes = scanned.segment, scanned.segment.size - scanned.size
    if zeroes:
        detail = f"{zeroes} zero bytes before the last segment"
        raise DamagedInputError(Damage(segment.path, scanned.size, next_offset, "zero_tail", detail))


def _survey_segment(segment: SegmentFile, end_offset: int | None) -> tuple[ScannedSegment, Int64s, Int64s]:
    view = storage.read(segment.path)[: segment.size]
    state = np.zeros(Survey.SIZE, np.int64)
    state[Survey.EXPECTED] = segment.base_offset
    state[Survey.LEADER_EPOCH], state[Survey.LAST_BASE_OFFSET] = -2, -1
    if len(view) < segment.size:
        return _read_odd_segment(segment, view, end_offset, state)
    data = np.frombuffer(view, np.uint8)
    rules = np.zeros(Rules.SIZE, np.int64)
    rules[Rules.CHECK_CRC] = 1
    rules[Rules.MAX_BATCH_BYTES] = _LIMITS.max_batch_bytes
    rules[Rules.LAST_OFFSET] = segment.base_offset + MAX_OFFSET_SPAN
    if end_offset is not None:
        rules[Rules.LAST_OFFSET] = min(int(rules[Rules.LAST_OFFSET]), end_offset - 1)
    rows = np.empty((_FIRST_ROWS, BatchRow.WIDTH), np.int64)
    position = 0
    while position < len(view):
        stopped = survey_log(data, position, len(view), rules, state, rows)
        position = int(state[Survey.POSITION])
        if stopped == Stop.GROW:
            rows = np.concatenate([rows, np.empty_like(rows)])
        elif stopped == Stop.ODD:
            if parse_entry(view, position, _LIMITS) is None:
                break  # zeroes up to the end: a preallocated file
            return _read_odd_segment(segment, view, end_offset, state)
    scanned = ScannedSegment(segment, position, end_offset, True)
    rows = rows[: int(state[Survey.ROWS])].copy()
    for row in np.flatnonzero(rows[:, BatchRow.CONTROL_TYPE] == ASK):
        batch = scanned.batch_at(view, int(rows[row, BatchRow.POSITION]))
        rows[row, BatchRow.CONTROL_TYPE] = _control_type(batch, segment.path)
    return scanned, rows, state


def _read_odd_segment(
    segment: SegmentFile, view: memoryview, end_offset: int | None, state: Int64s
) -> tuple[ScannedSegment, Int64s, Int64s]:
    """The same by the readers that know everything; they raise what is damage."""
    scanned = ScannedSegment(segment, 0, end_offset, False)
    state[:] = 0
    state[Survey.EXPECTED] = segment.base_offset
    state[Survey.LAST_BASE_OFFSET] = -1
    rows, leader_epoch = [], -2
    for batch in scanned.batches():
        count = batch.record_count
        if count is None:
            count = len(batch_records(batch, path=segment.path, limits=_LIMITS))
        if batch.producer_id != -1 or batch.is_control or batch.partition_leader_epoch != leader_epoch:
            rows.append(_batch_row(batch, count, segment.path))
        leader_epoch = batch.partition_leader_epoch
        scanned = replace(scanned, size=batch.position + batch.size)
        state[Survey.LAST_BASE_OFFSET] = batch.base_offset
        state[Survey.EXPECTED] = batch.next_offset
        state[Survey.BATCHES] += 1
        state[Survey.RECORDS] += count
    return scanned, np.array(rows, np.int64).reshape(-1, BatchRow.WIDTH), state


def _batch_row(batch: Batch, count: int, path: str) -> list[int]:
    row = [0] * BatchRow.WIDTH
    row[BatchRow.BASE_OFFSET] = batch.base_offset
    row[BatchRow.LAST_OFFSET] = batch.last_offset
    row[BatchRow.ATTRIBUTES] = batch.attributes if batch.magic >= 2 else 0
    row[BatchRow.RECORDS] = count
    row[BatchRow.PRODUCER_ID] = batch.producer_id
    row[BatchRow.PRODUCER_EPOCH] = batch.producer_epoch
    row[BatchRow.MAX_TIMESTAMP] = batch.max_timestamp_ms
    row[BatchRow.HORIZON] = -1 if batch.delete_horizon_ms is None else batch.delete_horizon_ms
    row[BatchRow.CONTROL_TYPE] = _control_type(batch, path) if batch.is_control and count else NOT_A_MARKER
    row[BatchRow.LEADER_EPOCH] = batch.partition_leader_epoch
    row[BatchRow.POSITION] = batch.position
    return row


def _control_type(batch: Batch, path: str) -> int:
    """Type of the first control record: the broker's log looks at no other. Unreadable ones end nothing."""
    try:
        return int(control_type(batch_records(batch, path=path, limits=_LIMITS)[0]))
    except ValueError:
        return int(ControlType.UNKNOWN)


def newest_records(scan: LogScan, *, aborted: Int64s, end_offset: int, workers: int = 1) -> NewestRecords:
    """The newest record of every key before ``end_offset``.

    ``aborted`` are the base offsets, ascending, of data batches whose transactions were aborted. Raises
    :class:`DamagedInputError` for records that cannot be read.
    """
    runs = _runs(scan.segments, workers)
    done = _side_by_side(
        lambda run: _newest_of_run(run, scan.start_offset, end_offset, aborted), runs, workers
    )
    tables = done[0] if done else _key_tables(0)
    unkeyed = [_unkeyed(tables)]
    for later in done[1:]:
        row = merge_keys(later, 0, tables)
        while row < later.state[KeyState.ROWS]:
            tables = _grown(tables)
            row = merge_keys(later, row, tables)
        unkeyed.append(_unkeyed(later))
    return NewestRecords(
        tables.rows[: tables.state[KeyState.ROWS]],
        tables.keys[: tables.state[KeyState.KEY_BYTES]],
        np.concatenate(unkeyed),
    )


def _side_by_side(function: Callable[[T], R], items: Sequence[T], workers: int) -> list[R]:
    if min(workers, len(items)) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))


def _runs(segments: Sequence[ScannedSegment], workers: int) -> list[list[ScannedSegment]]:
    """Stretches of neighbouring segments of about the same size, one a worker."""
    total = sum(scanned.size for scanned in segments)
    runs: list[list[ScannedSegment]] = []
    size = 0
    for scanned in segments:
        if not runs or size * workers >= total * len(runs):
            runs.append([])
        runs[-1].append(scanned)
        size += scanned.size
    return runs


@dataclass
class _Run:
    """The tables of one stretch in the making."""

    start_offset: int
    end_offset: int
    aborted: Int64s
    tables: KeyTables = field(default_factory=lambda: _key_tables(0))

    def enter(self, data: Bytes, position: int) -> int:
        """Enter ``data`` from ``position`` on; returns where it ends or a batch is not for the kernel."""
        while True:
            stopped = newest_keys(
                data, position, len(data), self.start_offset, self.end_offset, self.aborted, self.tables
            )
            position = int(self.tables.state[KeyState.POSITION])
            if stopped != Stop.GROW:
                return position if stopped == Stop.ODD else len(data)
            self.tables = _grown(self.tables)

    def enter_batch(self, batch: Batch, path: str) -> None:
        if batch.last_offset < self.start_offset or batch.base_offset >= self.end_offset:
            return
        if batch.is_control:
            return
        plain = np.frombuffer(_decompressed(batch, path), np.uint8)
        if self.enter(plain, 0) < len(plain):
            plain = np.frombuffer(keys_of_batch(batch, path=path, limits=_LIMITS), np.uint8)
            done = self.enter(plain, 0)
            assert done == len(plain)


def _newest_of_run(
    run: Sequence[ScannedSegment], start_offset: int, end_offset: int, aborted: Int64s
) -> KeyTables:
    entered = _Run(start_offset, end_offset, aborted, _key_tables(sum(item.size for item in run)))
    for scanned in run:
        path = scanned.segment.path
        if not scanned.is_plain:
            for batch in scanned.batches():
                entered.enter_batch(batch, path)
            continue
        data = scanned.read()
        array = np.frombuffer(data, np.uint8)
        position = entered.enter(array, 0)
        while position < len(data):
            batch = scanned.batch_at(data, position)
            entered.enter_batch(batch, path)
            position = entered.enter(array, position + batch.size)
    return entered.tables


def _decompressed(batch: Batch, path: str) -> bytes:
    """The batch as a v2 batch that the kernel can walk over, if it is one but for its compression."""
    if batch.magic < 2:
        return keys_of_batch(batch, path=path, limits=_LIMITS)
    try:
        section = records_section(batch, _LIMITS)
    except CompressionError:
        return keys_of_batch(batch, path=path, limits=_LIMITS)
    header = bytearray(batch.data[:HEADER_BYTES])
    header[8:12] = (HEADER_BYTES - 12 + len(section)).to_bytes(4, "big")
    header[22] &= ~CODEC_BITS & 0xFF
    return bytes(header) + bytes(section)


def _key_tables(size: int) -> KeyTables:
    """Empty tables for ``size`` bytes of log; rows that are not used take no memory."""
    rows = max(256, size // 512)
    return KeyTables(
        state=np.zeros(KeyState.SIZE, np.int64),
        scratch=np.empty((256, 8), np.int64),
        places=np.zeros(2 * _power_of_two(rows), np.int64) if size < 1 << 16 else np.zeros(1 << 12, np.int64),
        rows=np.empty((rows, KeyRow.WIDTH), np.int64),
        keys=np.empty(max(1 << 12, size // 8), np.uint8),
        unkeyed=np.empty(256, np.int64),
    )


def _grown(tables: KeyTables) -> KeyTables:
    """Tables with room for what the kernel asked for."""
    state = tables.state
    records, key_bytes = int(state[KeyState.NEED_RECORDS]), int(state[KeyState.NEED_BYTES])
    rows, keys, index = tables.rows, tables.keys, tables.places
    used, used_bytes = int(state[KeyState.ROWS]), int(state[KeyState.KEY_BYTES])
    if used + records > len(rows):
        rows = np.empty((max(used + records, 2 * len(rows)), KeyRow.WIDTH), np.int64)
        rows[:used] = tables.rows[:used]
    if used_bytes + key_bytes > len(keys):
        keys = np.empty(max(used_bytes + key_bytes, 2 * len(keys)), np.uint8)
        keys[:used_bytes] = tables.keys[:used_bytes]
    if 2 * (used + records) > len(index):
        index = np.zeros(4 * _power_of_two(used + records), np.int64)
        rebuild_index(index, rows[:used])
    scratch, unkeyed = tables.scratch, tables.unkeyed
    if records > len(scratch):
        scratch = np.empty((max(records, 2 * len(scratch)), scratch.shape[1]), np.int64)
    without_key = int(state[KeyState.UNKEYED])
    if without_key + records > len(unkeyed):
        unkeyed = np.empty(max(without_key + records, 2 * len(unkeyed)), np.int64)
        unkeyed[:without_key] = tables.unkeyed[:without_key]
    return KeyTables(state, scratch, index, rows, keys, unkeyed)


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 1).bit_length()


def _unkeyed(tables: KeyTables) -> Int64s:
    return tables.unkeyed[: tables.state[KeyState.UNKEYED]]
