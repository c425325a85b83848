"""Segments to folds: a fast walk over the file, and the scalar readers where that does not do."""

from __future__ import annotations

import importlib
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.arena import Arena
from coordinator_core.fold.fingerprint import RunningFingerprint
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.scalar import fold_scalar, split_scalar
from coordinator_core.fold.unpacking import Chunk, chunks
from coordinator_core.kernels import Bounds, FoldTables, fold_chunk, fold_messages, fold_wrapper
from coordinator_core.kernels.arrays import array_of, dtype
from coordinator_core.kernels.layout import ARENA, SEGMENT, OrderingOffset, Stop
from coordinator_core.log.batch import batch_records, parse_batch, records_section
from coordinator_core.log.compression import CompressionError
from coordinator_core.log.layout import HEADER_BYTES, LENGTH_END, BatchField
from coordinator_core.log.legacy import InvalidRecordError, parse_message, wrapper_content
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage, last_offset_of, read_partition, read_segment, reads_past
from coordinator_core.log.types import Batch, Codec, PartitionLog, SegmentFile
from coordinator_core.log.windows import SegmentWindows, Windows
from coordinator_core.process.allocator import give_back_freed_memory
from coordinator_core.releases import MergeOffsetRule

if TYPE_CHECKING:
    from coordinator_core.fold.schema import SegmentFold

__all__ = ["Folder", "Piece", "fold_partition", "fold_run", "fold_segment", "group_record_share"]

_ORDERING_OFFSETS = {
    MergeOffsetRule.RECORD: OrderingOffset.RECORD,
    MergeOffsetRule.BATCH_FIRST_RECORD: OrderingOffset.BATCH_FIRST_RECORD,
    MergeOffsetRule.BATCH_HEADER: OrderingOffset.BATCH_HEADER,
    MergeOffsetRule.NONE: OrderingOffset.NONE,
}

_MOST_SPARE_BYTES = 1 << 29
_SAMPLE_BYTES = 1 << 18
_BASE_OFFSET = struct.Struct(">q")
_BATCH_LENGTH = struct.Struct(">i")
_DEFAULT_LIMITS = Limits()


def fold_segment(
    segment: SegmentFile,
    *,
    rules: FoldRules,
    limits: Limits = _DEFAULT_LIMITS,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
    start_offset: int = 0,
    end_offset: int | None = None,
    check_crc: bool = True,
    running: RunningFingerprint | None = None,
) -> Iterator[SegmentFold]:
    """Folds of one segment file, of which ``running`` is the fingerprint in the making if there is one.

    There is one, unless the segment has more than ``limits.fold_bytes``, or unpacks to more than
    ``limits.kept_allowance``: then each is of the batches
    behind those of the one before, and made when it is asked for. With ``running`` bytes are not read again, and
    batches that it finds intact are not checked again; it is taken as far as the fold goes.

    ``start_offset`` is the log start offset: batches wholly below it are left out. ``end_offset`` and
    ``check_crc`` are those of ``log.reader.read_segment``, whose verdict on damage this is: damage that is read past is
    appended to ``damage``, and :class:`DamagedInputError` raised under ``FAIL``.
    """
    found = [] if damage is None else damage
    windows = SegmentWindows(segment) if running is None else running.windows
    folded = 0
    if on_damage is not OnDamage.RECOVER:
        for check_utf8 in (False, True):
            folder = Folder(segment, rules, limits, check_utf8=check_utf8, check_crc=check_crc)
            is_sound = folder.fold_windows(start_offset, end_offset, windows, running)
            while is_sound and folder.is_full and (check_utf8 or not folder.has_malformed_names):
                # Bytes that were given cannot be folded again, so names are looked at from here on.
                check_utf8, folded, next_offset = True, folder.position, folder.next_offset
                yield folder.finish()
                folder = Folder(segment, rules, limits, check_utf8=True, check_crc=check_crc, position=folded)
                is_sound = folder.fold_windows(start_offset, end_offset, windows, running, next_offset)
            if not is_sound:
                break
            if check_utf8 or not folder.has_malformed_names:
                yield folder.finish()
                return
    folder = Folder(segment, rules, limits, check_utf8=True, position=folded)
    for batch in read_segment(
        segment, limits=limits, on_damage=on_damage, damage=found, end_offset=end_offset, check_crc=check_crc
    ):
        if batch.last_offset < start_offset or batch.position < folded:
            continue
        folder.position = batch.position
        if folder.is_full:
            yield folder.finish()
            folder = Folder(segment, rules, limits, check_utf8=True, position=batch.position)
        folder.fold_read([batch], on_damage, found)
        if folder.stopped:
            break
    yield folder.finish()


@dataclass(frozen=True)
class Piece:
    """A segment of a run: its content, the offset that it must not reach, and the fingerprint to be taken."""

    segment: SegmentFile
    windows: Windows
    end_offset: int | None = None
    running: RunningFingerprint | None = None


def fold_run(
    pieces: Iterable[Piece], *, rules: FoldRules, limits: Limits = _DEFAULT_LIMITS, start_offset: int = 0
) -> list[SegmentFold] | None:
    """Fold neighbouring segments together; a fold for each, of which the last one has the effect of all.

    An offset key then takes its place once, not once in each segment. ``None`` when anything in the segments is for
    :func:`fold_segment` to judge. Takes no further piece where the fold could come to hold more than one of
    ``limits.fold_bytes`` bytes of segments in which nothing is superseded.
    """
    folder: Folder | None = None
    folds: list[SegmentFold] = []
    for piece in pieces:
        if folder is None:
            folder = Folder(piece.segment, rules, limits, check_utf8=False)
        else:
            folder.begin(piece.segment)
        if not folder.fold_windows(start_offset, piece.end_offset, piece.windows, piece.running) or folder.is_full:
            return None
        piece.windows.release()
        folds.append(folder.counted())
        # Segments come in one size.
        if folder.held_bytes + piece.segment.size > limits.fold_bytes:
            break
    if folder is None or folder.has_malformed_names:
        return None
    folds[-1] = folder.finish()
    return folds


def group_record_share(segment: SegmentFile, rules: FoldRules) -> float:
    """Share of group records among the first records of a segment, 0 where these are not sound."""
    sample = SegmentWindows(replace(segment, size=min(segment.size, _SAMPLE_BYTES)))
    folder = Folder(replace(segment, size=sample.size), rules, _DEFAULT_LIMITS, check_utf8=False)
    folder.fold_windows(0, None, sample)
    sample.release()
    return folder.group_record_share


def fold_partition(
    log: PartitionLog,
    *,
    rules: FoldRules,
    limits: Limits = _DEFAULT_LIMITS,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
) -> Iterator[SegmentFold]:
    """Folds of a partition's segments, one after the other, read as ``log.reader.read_records`` reads them; that a log
    ends before its log start offset is for ``fold.tasks`` to say.

    Under ``RECOVER`` the part of a segment that is kept depends on segments before it, so that its folds cannot be made
    independently; otherwise they are those of :func:`fold_segment`.
    """
    found = [] if damage is None else damage
    start = log.log_start_offset or 0
    if on_damage is not OnDamage.RECOVER:
        for segment, end_offset in log.segment_ranges():
            if end_offset is None or end_offset > start:
                yield from fold_segment(
                    segment,
                    rules=rules,
                    limits=limits,
                    on_damage=on_damage,
                    damage=found,
                    start_offset=start,
                    end_offset=end_offset,
                )
        return
    folder: Folder | None = None
    for segment, batch in read_partition(log, limits=limits, on_damage=on_damage, damage=found):
        if folder is not None:
            folder.position = batch.position
            if folder.segment != segment or folder.is_full:
                yield folder.finish()
                folder = None
        if folder is None:
            folder = Folder(segment, rules, limits, check_utf8=True, position=batch.position)
        folder.fold_read([batch], on_damage, found)
        if folder.stopped:
            break
    if folder is not None:
        yield folder.finish()


_loading = threading.Lock()


def load_columns_behind(start: Callable[[], None]) -> None:
    """Load what folds are made of while the threads that ``start`` starts read their first segments.

    Arrow takes as long as a tenth of a gigabyte. It is not loaded in these threads: threads that load modules side by
    side may wait for each other, forever.
    """
    with _loading:
        start()
        importlib.import_module("coordinator_core.fold.columns")


def _columns() -> ModuleType:
    with _loading:
        return importlib.import_module("coordinator_core.fold.columns")


_spare = threading.local()


def _tables(bounds: Bounds, size: int) -> FoldTables:
    """Empty tables for a segment of ``size`` bytes, in the memory of those that the thread gave up last.

    Segments come in one size, and fresh memory costs a fold more than its own work on it.
    """
    spare: FoldTables | None = getattr(_spare, "tables", None)
    if spare is None or len(spare.keys.data) < size // 2:
        return FoldTables(bounds, size)
    _spare.tables = None
    spare.reset(bounds)
    return spare


def _give_up(tables: FoldTables) -> None:
    """Leave the memory of ``tables``, which must not be used any more, to the thread's next ones."""
    large = (tables.keys.index, tables.keys.keys, tables.keys.data, tables.events)
    if sum(array_of(table).nbytes for table in large) <= _MOST_SPARE_BYTES:
        _spare.tables = tables


def forget_folds() -> None:
    """Give back what folding, which is done, has left in the process, and the memory that the thread keeps for its next
    fold: 0.3 GB after segments in which nothing is dead."""
    _spare.tables = None
    give_back_freed_memory()


class Folder:
    """A fold that grows batch after batch."""

    def __init__(
        self,
        segment: SegmentFile,
        rules: FoldRules,
        limits: Limits,
        *,
        check_utf8: bool,
        check_crc: bool = True,
        position: int = 0,
    ) -> None:
        self.segment = segment
        self.stopped = False
        self.position = self._begin = position
        self._size = segment.size
        self._rules = rules
        self._limits = limits
        self._segments: list[Windows] = []
        self._arena = Arena()
        self._check_crc = check_crc
        self._bounds = Bounds(limits.max_batch_bytes, limits.max_records)
        self._tables = tables = _tables(self._bounds, min(segment.size - position, limits.fold_bytes))
        tables.pending_by_producer = rules.pending_by_producer
        tables.tombstone_drops_pending = rules.tombstone_drops_pending
        tables.ordering = _ORDERING_OFFSETS[rules.ordering_offset_rule]
        tables.max_legacy_version = rules.max_legacy_offset_value_version
        tables.max_version = rules.max_offset_value_version
        tables.check_utf8 = check_utf8

    @property
    def has_malformed_names(self) -> bool:
        """Whether different bytes may name one offset key, so that names must be compared as text."""
        return bool(self._tables.has_malformed_names)

    @property
    def next_offset(self) -> int:
        """The least offset that may come next."""
        return int(self._tables.next_offset)

    @property
    def is_full(self) -> bool:
        """Whether so much was read or unpacked that another fold should go on, behind :attr:`position`."""
        is_long = self.position - self._begin >= self._limits.fold_bytes
        return is_long or self._copied_bytes > self._limits.kept_allowance(self._size)

    @property
    def held_bytes(self) -> int:
        """Bytes that the fold holds so far: of offset keys and stand-ins for their values, and copies, which are copied
        once more at the end."""
        tables = self._tables
        rows = tables.keys.used * dtype("Event").itemsize + tables.pending_used * dtype("Pending").itemsize
        return int(tables.keys.data_used + rows + 2 * self._copied_bytes)

    @property
    def _copied_bytes(self) -> int:
        tables = self._tables
        copied = tables.group_block_bytes + tables.group_keys_used + tables.group_values_used
        return int(self._arena.used + copied)

    @property
    def group_record_share(self) -> float:
        """Share of group records among the records so far."""
        records = self._tables.group_block_records + self._tables.group_records_used
        return float(records / max(self._tables.sequence, 1))

    def begin(self, segment: SegmentFile) -> None:
        """Go on with the next segment."""
        self.segment = segment
        self.position = self._begin = 0
        self._size += segment.size
        self._tables.begin_segment()

    def counted(self) -> SegmentFold:
        """A fold without rows, with the counts of the segment at hand."""
        fold: SegmentFold = _columns().counted(self.segment, self._rules, self._tables, stopped=self.stopped)
        return fold

    def finish(self) -> SegmentFold:
        """The fold of all batches so far. No batch may follow."""
        is_full = self.is_full
        fold: SegmentFold = _columns().with_rows(self.counted(), self._tables, self._segments, self._arena.data)
        _give_up(self._tables)
        if is_full:
            give_back_freed_memory()
        return fold

    # The fast way

    def fold_windows(
        self,
        start_offset: int,
        end_offset: int | None,
        windows: Windows,
        running: RunningFingerprint | None = None,
        next_offset: int | None = None,
    ) -> bool:
        """Fold the segment from :attr:`position` on, window after window. False if anything is for the scalar readers.

        Stops when the fold is full; ``next_offset`` is where the fold before stopped.
        """
        segment, bounds, tables = self.segment, self._bounds, self._tables
        position = self.position
        if windows.size < segment.size:
            return False
        tag = len(self._segments) * SEGMENT
        self._segments.append(windows)
        bounds.start_offset = start_offset
        bounds.last_offset = last_offset_of(segment, end_offset)
        tables.next_offset = segment.base_offset if next_offset is None else next_offset
        compressed = False
        while position < windows.size and not self.is_full:
            view, first = windows.at(position, wide=compressed)
            limit = len(view)
            bounds.check_crc = self._check_crc
            if running is not None:
                if position >= running.position and not running.ended:
                    running.advance()
                bounds.check_crc = self._check_crc and position >= running.position
                if position < running.position:
                    limit = min(limit, running.position - first)
            begin = position - first
            status = fold_chunk(np.frombuffer(view, np.uint8), begin, limit, tag + first, False, tables)
            after: int | None = tables.position
            if status == Stop.COMPRESSED:
                if not compressed:
                    compressed, position = True, first + tables.position
                    continue
                if running is not None:
                    # These are read as far as they go.
                    bounds.check_crc = self._check_crc and not running.finish().intact
                    view, first = windows.at(first + tables.position, wide=True)
                after = self._fold_compressed(view, tables.position)
            elif status == Stop.UNUSUAL_RECORDS:
                self._arena.tidy(tables)
                after = self._fold_unusual(view, tables.position)
            elif status == Stop.UNUSUAL_BATCH and tables.position == begin:
                after = self._fold_legacy(view, begin, tag + first)
                if after == begin:
                    return windows.is_zero_from(position)
            if after is None:
                return False
            self.position = position = first + after
        return self._is_refuted_by_none(windows)

    def _is_refuted_by_none(self, windows: Windows) -> bool:
        """Whether the offset behind :attr:`position` goes on: one that goes back refutes the batch before it, so
        that ``log.reader`` leaves out that one."""
        if self.position + _BASE_OFFSET.size > windows.size:
            return True
        view, first = windows.covering(self.position, _BASE_OFFSET.size)
        return bool(_BASE_OFFSET.unpack_from(view, self.position - first)[0] >= self.next_offset)

    def _fold_unusual(self, view: memoryview, position: int) -> int | None:
        """Fold the sound batch at ``position`` record by record; the position behind it."""
        stop = position + LENGTH_END + _BATCH_LENGTH.unpack_from(view, position + BatchField.LENGTH)[0]
        try:
            self._fold_scalar(parse_batch(view[position:stop], position))
        except DamagedInputError:
            return None
        return int(stop)

    def _fold_legacy(self, view: memoryview, position: int, tag: int) -> int | None:
        """Fold messages of formats 0 and 1 from ``position`` on; the position behind them, ``None`` if damaged."""
        status = fold_messages(np.frombuffer(view, np.uint8), position, len(view), tag, self._tables)
        position = self._tables.position
        if status not in (Stop.COMPRESSED, Stop.UNUSUAL_RECORDS):
            return position
        stop = position + LENGTH_END + int(_BATCH_LENGTH.unpack_from(view, position + BatchField.LENGTH)[0])
        try:
            self._fold_batch(parse_message(view[position:stop], position))
        except DamagedInputError:
            return None
        return stop

    def _fold_compressed(self, view: memoryview, position: int) -> int | None:
        """Fold the batches from ``position`` on by way of the arena, as long as there are compressed ones."""
        start = position
        try:
            found = chunks(view, position, self._tables.next_offset, self._bounds, self._limits)
            with closing(found):
                for chunk in found:
                    if not self._fold_unpacked(view, chunk):
                        return None
                    position = chunk.end
                    if self.is_full:
                        break
        except CompressionError:
            return None
        # None is left of what the kernel saw when the file has changed since.
        return position if position > start else None

    def _fold_unpacked(self, view: memoryview, chunk: Chunk) -> bool:
        position, stop = 0, len(chunk.data)
        while position < stop:
            status = self._arena.fold(chunk.data, position, stop, self._tables)
            position = self._tables.position
            if status == Stop.UNUSUAL_BATCH:
                return False
            if status == Stop.UNUSUAL_RECORDS:
                ends = np.cumsum(chunk.batches["plain_size"])
                row = int(np.searchsorted(ends, position, "right"))
                if self._fold_unusual(view, int(chunk.batches["position"][row])) is None:
                    return False
                position = int(ends[row])
        self._arena.tidy(self._tables)
        return True

    def _append_unpacked(self, batch: memoryview, section: bytes | bytearray | memoryview) -> int:
        length = _BATCH_LENGTH.pack(HEADER_BYTES - LENGTH_END + len(section))
        return self._arena.append(batch[:8], length, batch[12:HEADER_BYTES], section)

    # The careful way

    def fold_read(self, batches: Iterable[Batch], on_damage: OnDamage, damage: list[Damage]) -> None:
        """Fold batches that the scalar reader found sound, as ``log.reader.read_records`` reads on."""
        for batch in batches:
            try:
                self._fold_batch(batch)
            except DamagedInputError as error:
                if not reads_past(error, self.segment.path, batch, on_damage, damage):
                    self.stopped = True
                    return

    def _fold_batch(self, batch: Batch) -> None:
        self._arena.tidy(self._tables)
        if batch.magic < 2 and batch.codec_id != Codec.NONE and self._fold_wrapper(batch):
            return
        if batch.magic >= 2:
            try:
                if batch.codec_id == Codec.NONE or batch.record_count == 0:
                    start = self._arena.append(batch.data)
                else:
                    start = self._append_unpacked(batch.data, records_section(batch, self._limits))
            except CompressionError:
                pass  # said properly below
            else:
                # A wrong magic of 2 and above is read as 2; offsets may be out of order (RECOVER).
                if fold_chunk(self._arena.data, start, self._arena.used, ARENA, True, self._tables) == Stop.END:
                    return
        self._fold_scalar(batch)
        if batch.magic < 2:
            self._tables.messages[batch.magic] += 1

    def _fold_wrapper(self, batch: Batch) -> bool:
        """Fold a compressed message of format 0 or 1; false if anything about it is unusual."""
        try:
            content = wrapper_content(batch, self._limits)
        except (CompressionError, InvalidRecordError):
            return False  # said properly by those who read it next
        start = self._arena.append(content)
        is_folded: bool = fold_wrapper(
            self._arena.data,
            start,
            self._arena.used,
            ARENA,
            batch.magic,
            batch.codec_id,
            batch.last_offset,
            batch.timestamp_type == "LogAppendTime",
            batch.max_timestamp_ms,
            self._tables,
        )
        if not is_folded:
            self._arena.used = start
        return is_folded

    def _fold_scalar(self, batch: Batch) -> None:
        records = batch_records(batch, path=self.segment.path, limits=self._limits)
        self._tables.reserve_scratch(len(records))
        scratch = array_of(self._tables.scratch)
        size = split_scalar(batch, records, self._rules, scratch, self._arena)
        fold_scalar(batch, records, size, self._tables, self._arena)
