"""Scan of a partition's log for compaction: batches that decide about others, and the newest record of each key.

Two passes over the segments. The first checks every batch and notes those with a producer id, control
batches, and where the leader epoch changes; from these the plan finds open and aborted transactions. The
second enters every record's raw key. Memory follows the keys and the transactions, not the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import crc32c
import numpy as np
import pyarrow as pa

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.tasks import Range
from coordinator_core.kernels import (
    BatchIndex,
    Bounds,
    NewestTable,
    SizeTable,
    enter_newest,
    index_batches,
    merge_newest,
)
from coordinator_core.kernels.arrays import Array, Int64s, array_of, dtype
from coordinator_core.kernels.layout import NO_CONTROL_TYPE, UNREAD_CONTROL_TYPE, Stop
from coordinator_core.log.ahead import segment_bytes
from coordinator_core.log.batch import batch_records, control_type, records_section
from coordinator_core.log.compression import CompressionError
from coordinator_core.log.layout import CODEC_BITS, HEADER_BYTES, LENGTH_END, BatchField
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import (
    MAX_OFFSET_SPAN,
    OnDamage,
    ends_before_start,
    is_verified,
    last_offset_of,
    parse_entry,
    parse_entry_batch,
    read_segment,
)
from coordinator_core.log.types import NO_PRODUCER_ID, Batch, ControlType, PartitionLog, SegmentFile
from coordinator_core.log.writer import keys_of_batch

T = TypeVar("T")
R = TypeVar("R")
Kernel = Callable[[memoryview, int], tuple[int, int]]
"""Passes over the batches of a segment from a position on; returns a ``Stop`` and the position reached."""

_LIMITS = Limits()
MAX_RECORDS = _LIMITS.max_records
"""Most records of a batch."""
_LEAST_RECORD_BYTES = 4
"""Bytes of a log that a record takes at least, as a rule; compressed ones may take less."""


@dataclass(frozen=True)
class ScannedSegment:
    """A segment whose batches were checked; ``size`` are its bytes up to the end of the last one.

    ``is_plain``: all of them are v2 batches that the kernels walk over; otherwise :meth:`batches`
    reads them one by one. Nothing of the file is held between passes; each checks, by ``crc``, the CRC-32C of the
    bytes, that they are those of the first.
    """

    segment: SegmentFile
    size: int
    end_offset: int | None
    is_plain: bool
    crc: int
    checks_crc: bool = True
    """Whether batches had to have the CRC that they tell."""

    def read(self) -> memoryview:
        """Bytes of the segment. Raises :class:`DamagedInputError` when the file has become shorter."""
        data = storage.read(self.segment.path, self.size)
        if len(data) < self.size:
            raise self.damaged(len(data), "file_shorter", f"{self.size - len(data)} bytes are gone")
        return data

    def check(self, data: memoryview) -> None:
        """:class:`DamagedInputError` when ``data``, which a pass took for sound, has changed."""
        if crc32c.crc32c(data) != self.crc:
            raise self.changed(_first_unsound(data))

    def batch_at(self, data: memoryview, position: int) -> Batch:
        """The v2 batch at ``position`` of the bytes that :meth:`read` gave, which a kernel leaves to others."""
        batch = parse_entry(data, position)
        first = self.segment.base_offset
        if not isinstance(batch, Batch) or batch.magic < 2 or (self.checks_crc and not batch.crc_valid):
            raise self.changed(position)
        if not first <= batch.base_offset <= batch.last_offset <= first + MAX_OFFSET_SPAN:
            raise self.changed(position)
        return batch

    def changed(self, position: int) -> DamagedInputError:
        """The error of a later pass that finds other bytes than the first one checked."""
        return self.damaged(position, "file_changed", "not the batch that was here when the file was checked")

    def damaged(self, position: int, kind: str, detail: str) -> DamagedInputError:
        return DamagedInputError(Damage(self.segment.path, position, None, kind, detail))

    def batches(self) -> Iterator[Batch]:
        segment = replace(self.segment, size=self.size)
        data = self.read()
        yield from _batches(segment, self.end_offset, data, self.checks_crc)
        self.check(data)

    def walk(self, kernel: Kernel, each: Callable[[ScannedSegment, Batch], None]) -> None:
        """Have ``kernel`` pass over the batches, and ``each`` take those that it leaves to others."""
        if not self.is_plain:
            for batch in self.batches():
                each(self, batch)
            return
        data = self.read()
        stopped, position = kernel(data, 0)
        while stopped != Stop.END:
            if stopped == Stop.UNUSUAL_BATCH:
                raise self.changed(position)
            if stopped != Stop.FULL:
                batch = self.batch_at(data, position)
                each(self, batch)
                position += batch.size
            stopped, position = kernel(data, position)
        self.check(data)


@dataclass(frozen=True)
class LogScan:
    """The batches of a partition.

    ``index`` are rows of :class:`~coordinator_core.kernels.layout.IndexedBatch`, in log order: batches with a
    producer id, control batches, and batches at which the leader epoch changes. ``last_base_offset`` is the
    base offset of the last batch, -1 for a log without any.
    """

    log: PartitionLog
    segments: tuple[ScannedSegment, ...]
    index: Array
    batches: int
    records: int
    last_base_offset: int
    log_end_offset: int

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset or 0

    @property
    def in_log(self) -> Array:
        """Rows of the index that are not wholly below the log start offset: the others are not part of the log."""
        return self.index[self.index["last_offset"] >= self.start_offset]

    @property
    def bytes(self) -> int:
        return sum(scanned.size for scanned in self.segments)


class KeyRows:
    """``rows`` of a kernel's table, one for each raw key."""

    def __init__(self, table: NewestTable | SizeTable) -> None:
        self._keys = table.keys
        self.rows: Array = array_of(table.rows)[: table.keys.used]

    def key(self, row: int) -> bytes:
        found: bytes = self._keys.key(row)
        return found


class NewestRecords(KeyRows):
    """The newest records of every raw key up to an offset.

    ``rows`` are those of :class:`~coordinator_core.kernels.layout.Newest`; ``unkeyed`` are the offsets of records
    without a key, ascending.
    """

    def __init__(self, table: NewestTable) -> None:
        super().__init__(table)
        self.unkeyed: Int64s = array_of(table.unkeyed)[: table.unkeyed_used]

    def keys(self) -> pa.Array:
        """The keys of all rows, of type ``large_binary``, in the memory in which they are."""
        ends = np.append(array_of(self._keys.keys)["start"][: len(self.rows)], self._keys.data_used)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(array_of(self._keys.data))]
        return pa.Array.from_buffers(pa.large_binary(), len(self.rows), buffers)

    def key_types(self) -> Int64s:
        """Record type of every key by its first two bytes; -1 for shorter ones."""
        keys = array_of(self._keys.keys)[: len(self.rows)]
        data = array_of(self._keys.data)
        start = np.minimum(keys["start"], len(data) - 2)
        types = data[start].astype(np.int64) << 8 | data[start + 1]
        return np.where(keys["length"] >= 2, types, -1)


def scan_log(log: PartitionLog, *, as_broker: bool = False, workers: int = 1) -> LogScan:
    """Check every batch of ``log``; raises :class:`DamagedInputError` at the first that is not sound, and for a log
    that ends before its log start offset.

    ``as_broker``: where a starting broker verifies nothing, CRCs are not looked at. Kafka's cleaner looks at none
    (``Cleaner.cleanInto``, ``MemoryRecords.filterTo``): a batch that it keeps whole keeps its wrong CRC.
    """
    checks = [(segment, end, not as_broker or is_verified(log, end)) for segment, end in ranges_to_scan(log)]
    return join_scans(log, _side_by_side(lambda check: _scan_segment(log, *check), checks, workers))


def has_producers(scan: LogScan) -> bool:
    """Whether batches have producer ids."""
    return bool((scan.index["producer_id"] != NO_PRODUCER_ID).any())


def ranges_to_scan(log: PartitionLog) -> list[Range]:
    """The segments that have a part of the log."""
    start = log.log_start_offset or 0
    return [(segment, end) for segment, end in log.segment_ranges() if end is None or end > start]


def scan_ranges(log: PartitionLog, ranges: Sequence[Range]) -> LogScan:
    """The same as :func:`scan_log` of some segments of ``log``, which needs to have none itself."""
    return _joined(log, [_scan_segment(log, segment, end, True) for segment, end in ranges])


def join_scans(log: PartitionLog, scans: Sequence[LogScan]) -> LogScan:
    """The scan of ``log``, of whose segments each of ``scans`` has some, in log order; raises as :func:`scan_log`."""
    whole = _joined(log, scans)
    wrong = ends_before_start(log, whole.log_end_offset)
    if wrong is not None:
        raise DamagedInputError(wrong)
    return whole


def _joined(log: PartitionLog, scans: Sequence[LogScan]) -> LogScan:
    index = np.concatenate([_rows([]), *(scan.index for scan in scans)])
    before = np.cumsum([0, *(len(scan.segments) for scan in scans)], dtype=np.int64)[:-1]
    index["segment"] += np.repeat(before, np.array([len(scan.index) for scan in scans], np.int64))
    return LogScan(
        log,
        tuple(chain.from_iterable(scan.segments for scan in scans)),
        index,
        sum(scan.batches for scan in scans),
        sum(scan.records for scan in scans),
        max((scan.last_base_offset for scan in scans), default=-1),
        max((scan.log_end_offset for scan in scans), default=0),
    )


def _scan_segment(log: PartitionLog, segment: SegmentFile, end_offset: int | None, checks_crc: bool) -> LogScan:
    """Batches wholly below the log start offset are no part of the log: their records are not looked at."""
    start_offset = log.log_start_offset or 0
    data = segment_bytes(segment)
    bounds = Bounds(_LIMITS.max_batch_bytes, MAX_RECORDS)
    bounds.last_offset = last_offset_of(segment, end_offset)
    bounds.check_crc = checks_crc
    index = BatchIndex(segment.base_offset)
    stopped, position = index_batches(data, 0, len(data), bounds, index)
    # Zeroes up to the end are a preallocated file.
    if len(data) < segment.size or (stopped != Stop.END and parse_entry(data, position) is not None):
        return _scan_unusual_segment(log, segment, end_offset, data, checks_crc)
    scanned = ScannedSegment(segment, position, end_offset, True, crc32c.crc32c(data[:position]), checks_crc)
    rows = array_of(index.rows)[: index.used].copy()
    for row in np.flatnonzero(rows["control_type"] == UNREAD_CONTROL_TYPE):
        batch = scanned.batch_at(data, int(rows[row]["position"]))
        is_read = batch.last_offset >= start_offset
        rows["control_type"][row] = _control_type(batch, segment.path) if is_read else ControlType.UNKNOWN
    return LogScan(log, (scanned,), rows, index.batches, index.records, index.last_base_offset, index.next_offset)


def _scan_unusual_segment(
    log: PartitionLog, segment: SegmentFile, end_offset: int | None, data: memoryview, checks_crc: bool
) -> LogScan:
    """The same by the readers that know everything, and raise all damage."""
    start_offset = log.log_start_offset or 0
    rows = []
    size, leader_epoch, batches, records = 0, -2, 0, 0
    last_base_offset, next_offset = -1, segment.base_offset
    for batch in _batches(segment, end_offset, data, checks_crc):
        count = batch.record_count
        if count is None:
            count = len(batch_records(batch, path=segment.path))
        if batch.producer_id != -1 or batch.is_control or batch.partition_leader_epoch != leader_epoch:
            rows.append(_row(batch, count, segment.path, batch.last_offset >= start_offset))
        leader_epoch = batch.partition_leader_epoch
        size = batch.position + batch.size
        last_base_offset, next_offset = batch.base_offset, batch.next_offset
        batches += 1
        records += count
    scanned = ScannedSegment(segment, size, end_offset, False, crc32c.crc32c(data[:size]), checks_crc)
    return LogScan(log, (scanned,), _rows(rows), batches, records, last_base_offset, next_offset)


def _batches(segment: SegmentFile, end_offset: int | None, data: memoryview, checks_crc: bool) -> Iterator[Batch]:
    """Batches of a segment; :class:`DamagedInputError` for all that is wrong but CRCs that are not to be checked."""
    if checks_crc:
        yield from read_segment(segment, end_offset=end_offset, data=data)
        return
    found: list[Damage] = []
    how = partial(read_segment, on_damage=OnDamage.RECOVER, damage=found, check_crc=False)
    for batch in chain(how(segment, end_offset=end_offset, data=data), [None]):
        if (wrong := next((one for one in found if one.kind != "bad_crc"), None)) is not None:
            raise DamagedInputError(wrong)
        found.clear()
        if batch is not None:
            yield batch


def _first_unsound(data: memoryview) -> int:
    """Position of the first batch that is not sound; 0 when all are, and are others than before."""
    position = 0
    while position < len(data):
        batch = parse_entry_batch(data, position, _LIMITS)
        if batch is None:
            return position
        position += batch.size
    return 0


def _rows(rows: list[tuple[int, ...]]) -> Array:
    return np.array(rows, dtype("IndexedBatch"))


def _row(batch: Batch, count: int, path: str, is_read: bool) -> tuple[int, ...]:
    return (
        batch.base_offset,
        batch.last_offset,
        batch.attributes if batch.magic >= 2 else 0,
        count,
        batch.producer_id,
        batch.producer_epoch,
        batch.max_timestamp_ms,
        -1 if batch.delete_horizon_ms is None else batch.delete_horizon_ms,
        _row_control_type(batch, count, path, is_read),
        batch.partition_leader_epoch,
        batch.position,
        0,
    )


def _row_control_type(batch: Batch, count: int, path: str, is_read: bool) -> int:
    if not batch.is_control or not count:
        return NO_CONTROL_TYPE
    return _control_type(batch, path) if is_read else int(ControlType.UNKNOWN)


def _control_type(batch: Batch, path: str) -> int:
    """Type of the first control record: the broker's log looks at no other. Unreadable ones end nothing."""
    try:
        return int(control_type(batch_records(batch, path=path)[0]))
    except ValueError:
        return int(ControlType.UNKNOWN)


def newest_records(scan: LogScan, *, aborted: Int64s, end_offset: int, workers: int = 1) -> NewestRecords:
    """The newest record of every key before ``end_offset``.

    ``aborted`` are the base offsets, ascending, of data batches whose transactions were aborted. Raises
    :class:`DamagedInputError` for records that cannot be read.
    """
    chunks = _chunks(scan.segments, workers)
    records = -(-scan.records // max(1, len(chunks)))
    tables = _side_by_side(
        lambda chunk: _newest_of(chunk, records, scan.start_offset, end_offset, aborted), chunks, workers
    )
    for later in tables[1:]:
        merge_newest(later, tables[0])
    return NewestRecords(tables[0] if tables else NewestTable(MAX_RECORDS))


def _side_by_side(function: Callable[[T], R], items: Sequence[T], workers: int) -> list[R]:
    if min(workers, len(items)) <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))


def _chunks(segments: Sequence[ScannedSegment], workers: int) -> list[list[ScannedSegment]]:
    """Neighbouring segments, in chunks of about the same size, one a worker."""
    total = sum(scanned.size for scanned in segments)
    chunks: list[list[ScannedSegment]] = []
    size = 0
    for scanned in segments:
        if not chunks or size * workers >= total * len(chunks):
            chunks.append([])
        chunks[-1].append(scanned)
        size += scanned.size
    return chunks


def _newest_of(
    chunk: Sequence[ScannedSegment], records: int, start_offset: int, end_offset: int, aborted: Int64s
) -> NewestTable:
    """The newest records of some segments, which have about so many records."""
    size = sum(scanned.size for scanned in chunk)
    # Headers of batches may say any number of records; the table grows where there are more.
    table = NewestTable(MAX_RECORDS, min(records, size // _LEAST_RECORD_BYTES), size)

    def enter(data: memoryview | bytes, position: int) -> tuple[int, int]:
        stopped, position = enter_newest(data, position, len(data), start_offset, end_offset, aborted, table)
        return stopped, position

    def enter_batch(scanned: ScannedSegment, batch: Batch) -> None:
        if batch.is_control or batch.last_offset < start_offset or batch.base_offset >= end_offset:
            return
        plain = decompressed(batch)
        if plain is not None and enter(plain, 0)[0] == Stop.END:
            return
        if enter(keys_of_batch(batch, path=scanned.segment.path), 0)[0] != Stop.END:
            raise scanned.damaged(batch.position, "bad_records", "offsets of the batch do not fit together")

    for scanned in chunk:
        scanned.walk(enter, enter_batch)
    return table


def decompressed(batch: Batch) -> bytes | None:
    """A v2 batch without its compression, for kernels; ``None`` for what only the readers of ``log`` can tell."""
    if batch.magic < 2:
        return None
    try:
        section = records_section(batch, _LIMITS)
    except CompressionError:
        return None
    header = bytearray(batch.data[:HEADER_BYTES])
    length = HEADER_BYTES - LENGTH_END + len(section)
    header[BatchField.LENGTH : BatchField.LENGTH + 4] = length.to_bytes(4, "big")
    header[BatchField.ATTRIBUTES + 1] &= ~CODEC_BITS & 0xFF
    return bytes(header) + bytes(section)
