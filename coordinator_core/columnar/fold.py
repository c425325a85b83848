"""Segments to folds: a fast walk over the mapped file, and the scalar readers where that does not do."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from coordinator_core import storage
from coordinator_core.columnar.arena import Arena
from coordinator_core.columnar.columns import counted, with_rows
from coordinator_core.columnar.fingerprint import RunningFingerprint
from coordinator_core.columnar.kernels import (
    Status,
    rebuild_index,
    rebuild_producer_index,
    walk,
)
from coordinator_core.columnar.scalar import ask_for_room, fold_scalar, split_scalar
from coordinator_core.columnar.tables import (
    ARENA,
    SEGMENT,
    Bytes,
    MergeOffset,
    Rules,
    State,
    Tables,
    begin_counting,
    give_up,
    grown,
    index_of,
    new_tables,
    used_rows,
)
from coordinator_core.columnar.unpacking import Row, Run, runs
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.batch import batch_records, parse_batch, records_section
from coordinator_core.log.compression import CompressionError
from coordinator_core.log.layout import HEADER_BYTES
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import MAX_OFFSET_SPAN, OnDamage, parse_entry, read_partition, read_segment
from coordinator_core.log.types import Batch, Codec, PartitionLog, SegmentFile
from coordinator_core.replay.fold import FoldRules, SegmentFold
from coordinator_core.replay.profiles import MergeOffsetRule

__all__ = ["Piece", "fold_batches", "fold_partition", "fold_run", "fold_segment"]

_MERGE_OFFSETS = {
    MergeOffsetRule.RECORD: MergeOffset.RECORD,
    MergeOffsetRule.BATCH_FIRST_RECORD: MergeOffset.BATCH_FIRST_RECORD,
    MergeOffsetRule.BATCH_HEADER: MergeOffset.BATCH_HEADER,
    MergeOffsetRule.NONE: MergeOffset.NONE,
}

_NO_LIMIT = (1 << 63) - 1
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
) -> SegmentFold:
    """Fold one segment file, of which ``running`` is the fingerprint in the making if there is one.

    Then its bytes are not read again, and batches that it finds intact are not checked again; it is taken as
    far as the fold goes.

    ``start_offset`` is the log start offset: batches wholly below it are left out. ``end_offset`` and
    ``check_crc`` are those of ``log.reader.read_segment``, whose verdict on damage this is: what is left out
    is appended to ``damage``, and :class:`DamagedInputError` raised under ``FAIL``.
    """
    found = [] if damage is None else damage
    data = None if running is None else running.data
    if on_damage is not OnDamage.RECOVER:
        for check_utf8 in (False, True):
            folder = _Folder(segment, rules, limits, check_utf8=check_utf8, check_crc=check_crc)
            if not folder.fold_mapped(start_offset, end_offset, data, running):
                break
            if check_utf8 or not folder.has_malformed_names:
                return folder.finish()
    batches = read_segment(
        segment,
        limits=limits,
        on_damage=on_damage,
        damage=found,
        end_offset=end_offset,
        check_crc=check_crc,
    )
    folder = _Folder(segment, rules, limits, check_utf8=True)
    folder.fold_read((batch for batch in batches if batch.last_offset >= start_offset), on_damage, found)
    return folder.finish()


@dataclass(frozen=True)
class Piece:
    """A segment of a run: its content, the offset that it must not reach, and the fingerprint to be taken."""

    segment: SegmentFile
    data: memoryview
    end_offset: int | None = None
    running: RunningFingerprint | None = None


def fold_run(
    pieces: Sequence[Piece], *, rules: FoldRules, limits: Limits = _DEFAULT_LIMITS, start_offset: int = 0
) -> list[SegmentFold] | None:
    """Fold neighbouring segments together; a fold for each, of which the last one has the effect of all.

    A slot then takes its place once, not once in each segment. ``None`` when anything in the segments is for
    :func:`fold_segment` to judge. What is mapped into memory is let go of as soon as it was walked over.
    """
    folder = _Folder(pieces[0].segment, rules, limits, check_utf8=False)
    folds: list[SegmentFold] = []
    for piece in pieces:
        if folds:
            folder.begin(piece.segment)
        if not folder.fold_mapped(start_offset, piece.end_offset, piece.data, piece.running):
            return None
        storage.release(piece.data)
        folds.append(folder.counted())
    if folder.has_malformed_names:
        return None
    folds[-1] = folder.finish()
    return folds


def fold_batches(
    batches: Iterable[Batch],
    *,
    rules: FoldRules,
    offsets_partition: int,
    path: str = "",
    limits: Limits = _DEFAULT_LIMITS,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
) -> SegmentFold:
    """Fold a run of batches that were read already; ``path`` names their file in errors."""
    segment = SegmentFile(path, offsets_partition, 0, 0)
    folder = _Folder(segment, rules, limits, check_utf8=True)
    folder.fold_read(batches, on_damage, [] if damage is None else damage)
    return folder.finish()


def fold_partition(
    log: PartitionLog,
    *,
    rules: FoldRules,
    limits: Limits = _DEFAULT_LIMITS,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
) -> Iterator[SegmentFold]:
    """Folds of a partition's segments, one after the other, read as ``log.reader.read_records`` reads them.

    Under ``RECOVER`` what is kept of a segment depends on those before it, so that its folds cannot be made
    independently; otherwise they are those of :func:`fold_segment`.
    """
    found = [] if damage is None else damage
    start = log.log_start_offset or 0
    if on_damage is not OnDamage.RECOVER:
        for segment, end_offset in log.segment_ranges():
            if end_offset is None or end_offset > start:
                yield fold_segment(
                    segment,
                    rules=rules,
                    limits=limits,
                    on_damage=on_damage,
                    damage=found,
                    start_offset=start,
                    end_offset=end_offset,
                )
        return
    folder: _Folder | None = None
    for segment, batch in read_partition(log, limits=limits, on_damage=on_damage, damage=found):
        if folder is not None and folder.segment != segment:
            yield folder.finish()
            folder = None
        if folder is None:
            folder = _Folder(segment, rules, limits, check_utf8=True)
        folder.fold_read([batch], on_damage, found)
        if folder.stopped:
            break
    if folder is not None:
        yield folder.finish()


class _Folder:
    """One fold in the making."""

    def __init__(
        self,
        segment: SegmentFile,
        rules: FoldRules,
        limits: Limits,
        *,
        check_utf8: bool,
        check_crc: bool = True,
    ) -> None:
        self.segment = segment
        self.stopped = False
        self._rules = rules
        self._limits = limits
        self._segments: list[Bytes] = []
        self._arena = Arena()
        self._formats: Counter[int] = Counter()
        numbers = np.zeros(Rules.SIZE, np.int64)
        numbers[Rules.PENDING_BY_PRODUCER] = rules.pending_by_producer
        numbers[Rules.TOMBSTONE_DROPS_PENDING] = rules.tombstone_drops_pending
        numbers[Rules.MERGE_OFFSET] = _MERGE_OFFSETS[rules.merge_offset_rule]
        numbers[Rules.MAX_LEGACY_VERSION] = rules.max_legacy_offset_value_version
        numbers[Rules.MAX_VERSION] = rules.max_offset_value_version
        numbers[Rules.CHECK_UTF8] = check_utf8
        numbers[Rules.CHECK_CRC] = check_crc
        numbers[Rules.MAX_BATCH_BYTES] = limits.max_batch_bytes
        numbers[Rules.MAX_RECORDS] = limits.max_records
        numbers[Rules.LAST_OFFSET] = _NO_LIMIT
        self._tables: Tables = new_tables(numbers, segment.size)

    @property
    def has_malformed_names(self) -> bool:
        """Whether different bytes may name one slot, so that names must be compared as text."""
        return bool(self._tables.state[State.MALFORMED_UTF8])

    def begin(self, segment: SegmentFile) -> None:
        """Go on with the next segment."""
        self.segment = segment
        self._formats.clear()
        begin_counting(self._tables.state)

    def counted(self) -> SegmentFold:
        """A fold without rows, of what was counted of the segment at hand."""
        return counted(
            self.segment, self._rules, self._tables, stopped=self.stopped, legacy_formats=self._formats
        )

    def finish(self) -> SegmentFold:
        """The fold of what was given; nothing can be given any more."""
        fold = with_rows(self.counted(), self._tables, self._segments, self._arena.data)
        give_up(self._tables)
        return fold

    # The fast way

    def fold_mapped(
        self,
        start_offset: int,
        end_offset: int | None,
        data: memoryview | None = None,
        running: RunningFingerprint | None = None,
    ) -> bool:
        """Fold the whole segment where it lies. False if anything in it is for the scalar readers."""
        segment, rules = self.segment, self._tables.rules
        view = data if data is not None else storage.read(segment.path)[: segment.size]
        if len(view) < segment.size:
            return False
        array = np.frombuffer(view, np.uint8)
        tag = len(self._segments) * SEGMENT
        self._segments.append(array)
        rules[Rules.START_OFFSET] = start_offset
        rules[Rules.LAST_OFFSET] = segment.base_offset + MAX_OFFSET_SPAN
        if end_offset is not None:
            rules[Rules.LAST_OFFSET] = min(rules[Rules.LAST_OFFSET], end_offset - 1)
        state = self._tables.state
        state[State.NEXT_OFFSET] = segment.base_offset
        position, stop = 0, len(view)
        check_crc = rules[Rules.CHECK_CRC]
        while position < stop:
            limit = stop
            if running is not None:
                if position >= running.position and not running.ended:
                    running.advance()
                rules[Rules.CHECK_CRC] = check_crc and position >= running.position
                if position < running.position:
                    limit = running.position
            status = walk(array, position, limit, tag, False, self._tables)
            position = int(state[State.POSITION])
            if status == Status.GROW:
                self._grow()
            elif status == Status.COMPRESSED:
                if running is not None:
                    # These are read as far as they go.
                    rules[Rules.CHECK_CRC] = check_crc and not running.finish().intact
                after = self._fold_compressed(view, position)
                if after is None:
                    return False
                position = after
            elif status == Status.ODD_RECORDS:
                self._arena.tidy(self._tables)
                after = self._fold_odd(view, position)
                if after is None:
                    return False
                position = after
            elif status == Status.ODD_BATCH:
                # Zeroes up to the end are a preallocated tail: the end of the data.
                return parse_entry(view, position, self._limits) is None
        return True

    def _fold_odd(self, view: memoryview, position: int) -> int | None:
        """Fold the sound batch at ``position`` record by record; the position behind it."""
        stop = position + 12 + _BATCH_LENGTH.unpack_from(view, position + 8)[0]
        try:
            self._fold_scalar(parse_batch(view[position:stop], position))
        except DamagedInputError:
            return None
        return int(stop)

    def _fold_compressed(self, view: memoryview, position: int) -> int | None:
        """Fold the batches from ``position`` on by way of the arena, as long as there are compressed ones."""
        next_offset = int(self._tables.state[State.NEXT_OFFSET])
        try:
            with closing(runs(view, position, next_offset, self._tables.rules, self._limits)) as found:
                for run in found:
                    if not self._fold_run(view, run):
                        return None
                    position = int(run.batches[-1, Row.POSITION] + run.batches[-1, Row.SIZE])
        except CompressionError:
            return None
        return position

    def _fold_run(self, view: memoryview, run: Run) -> bool:
        self._arena.tidy(self._tables)
        first = position = self._arena.append(run.data.data)
        stop = self._arena.used
        while position < stop:
            status = self._walk_arena(position, stop)
            position = int(self._tables.state[State.POSITION])
            if status == Status.ODD_BATCH:
                return False
            if status == Status.ODD_RECORDS:
                ends = first + np.cumsum(run.batches[:, Row.PLAIN_SIZE])
                row = int(np.searchsorted(ends, position, "right"))
                if self._fold_odd(view, int(run.batches[row, Row.POSITION])) is None:
                    return False
                position = int(ends[row])
        return True

    def _append_unpacked(self, batch: memoryview, section: bytes | bytearray | memoryview) -> int:
        length = _BATCH_LENGTH.pack(HEADER_BYTES - 12 + len(section))
        return self._arena.append(batch[:8], length, batch[12:HEADER_BYTES], section)

    def _walk_arena(self, position: int, stop: int) -> Status:
        """:func:`walk` in the arena; returns anything but ``GROW``."""
        while True:
            status = walk(self._arena.data, position, stop, ARENA, True, self._tables)
            if status != Status.GROW:
                return Status(status)
            position = int(self._tables.state[State.POSITION])
            self._grow()

    # The careful way

    def fold_read(self, batches: Iterable[Batch], on_damage: OnDamage, damage: list[Damage]) -> None:
        """Fold batches that the scalar reader found sound, as ``log.reader.read_records`` reads on."""
        for batch in batches:
            try:
                self._fold_batch(batch)
            except DamagedInputError as error:
                if on_damage is OnDamage.FAIL:
                    raise
                damage.append(error.damage)
                if on_damage is OnDamage.RECOVER:
                    damage.append(
                        Damage(
                            self.segment.path,
                            batch.position,
                            batch.base_offset,
                            "not_read",
                            "a broker cannot load the partition from here on",
                        )
                    )
                    self.stopped = True
                    return

    def _fold_batch(self, batch: Batch) -> None:
        self._arena.tidy(self._tables)
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
                if self._walk_arena(start, self._arena.used) == Status.END:
                    return
        self._fold_scalar(batch)
        if batch.magic < 2:
            self._formats[batch.magic] += 1

    def _fold_scalar(self, batch: Batch) -> None:
        records = batch_records(batch, path=self.segment.path, limits=self._limits)
        if len(records) > len(self._tables.scratch):
            ask_for_room(self._tables, len(records))
            self._grow()
        size = split_scalar(batch, records, self._rules, self._tables.scratch, self._arena)
        while not fold_scalar(batch, records, size, self._tables, self._arena):
            # Growing makes a new scratch only when it was too short, which was seen to above.
            self._grow()

    def _grow(self) -> None:
        self._tables, rebuilt = grown(self._tables)
        for name in rebuilt:
            rebuild = rebuild_producer_index if name == "producers" else rebuild_index
            rebuild(index_of(self._tables, name), used_rows(self._tables, name))
