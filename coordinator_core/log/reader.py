"""Batches of segments and partitions, with everything wrong in them found and said.

Kinds of damage reported here and by :mod:`coordinator_core.log.batch`:

``bad_length``, ``bad_magic``, ``bad_header``, ``bad_crc``
    the entry's own fields are impossible, or its content was changed;
``torn_tail``
    the last entry runs past the end of the file;
``file_shorter``
    the file has fewer bytes than when the snapshot was pinned;
``file_changed``
    a later pass of a compaction finds other bytes than the first one checked (``lifecycle.compact_scan``);
``offset_order``, ``offset_range``
    record offsets go backwards, or lie outside the range that the segment's name, and the next segment's,
    give to this segment (an overlap);
``bad_records``, ``bad_compression``, ``limit_exceeded``
    the records of a batch whose CRC is valid cannot be read;
``log_start_offset``
    the log ends before the checkpointed log start offset: segments are missing;
``zero_tail``, ``not_read``
    a part that :attr:`OnDamage.RECOVER` leaves out, because a starting broker deletes it.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.log.ahead import Reads, segment_bytes
from coordinator_core.log.batch import batch_records, iter_batch_records, parse_batch
from coordinator_core.log.layout import HEADER_BYTES, LAST_OFFSET
from coordinator_core.log.legacy import LOG_OVERHEAD, MIN_MESSAGE_BYTES, parse_message
from coordinator_core.log.limits import Limits
from coordinator_core.log.resync import CRC_BUDGET, find_batch
from coordinator_core.log.types import Batch, PartitionLog, Record, SegmentFile
from coordinator_core.log.windows import KeptWindows

MAX_OFFSET_SPAN = 0x7FFFFFFF
"""Offsets in a segment are at most this far from its base (``LogSegment``'s int32 relative offsets)."""


class Passes(Protocol):
    """Passes batches that its caller does not want: only sound ones, in order, whose records can be read."""

    def __call__(
        self, view: memoryview, first: int, position: int, expected: int, last_offset: int, *, is_cut: bool
    ) -> tuple[int, int]:
        """``view`` are the bytes of a segment from ``first`` on; ``is_cut``: more are behind them.

        ``expected`` is the lowest record offset that the batch at ``position`` may have, ``last_offset`` the last that
        may be in the segment. Returns position and offset behind the passed batches. Positions are those in the
        segment.
        """

    def windows(self, segment: SegmentFile) -> KeptWindows:
        """The windows of a large local segment."""


_PREFIX = struct.Struct(">qi")
_TO_MAGIC = 17
_NEAR = 1 << 16
"""Bytes at the end of a window that are read again, with the next one: a batch may reach over it."""
_MIN_SIZE = {0: MIN_MESSAGE_BYTES, 1: MIN_MESSAGE_BYTES + 8, 2: HEADER_BYTES - LOG_OVERHEAD}
_DEFAULT_LIMITS = Limits()


class OnDamage(Enum):
    """Reaction to damage.

    ``FAIL`` raises :class:`DamagedInputError` at the first.  ``RECOVER`` reads the batches that a broker which starts
    on this directory would keep: after a clean shutdown, and in segments below the recovery point, nothing is verified;
    otherwise everything from the first invalid batch on is dropped, later segments included. ``SALVAGE`` leaves out
    damaged parts only and goes on at the next valid batch.
    """

    FAIL = "fail"
    RECOVER = "recover"
    SALVAGE = "salvage"

    @classmethod
    def chosen(cls, *, partial: bool, salvage: bool) -> OnDamage:
        """The reaction that ``--partial`` and ``--salvage`` ask for."""
        if partial and salvage:
            raise UsageError("--partial and --salvage exclude each other")
        return cls.SALVAGE if salvage else cls.RECOVER if partial else cls.FAIL


@dataclass(frozen=True, slots=True)
class _Unusable:
    """Why no entry can be read at a position."""

    kind: str
    detail: str


def parse_entry(
    view: memoryview, position: int, limits: Limits = _DEFAULT_LIMITS, first: int = 0
) -> Batch | _Unusable | None:
    """The entry at ``position``, ``None`` where data ends (also at zeroes up to the end of the file).

    ``view`` begins at ``first`` in its segment.
    """
    remaining = len(view) - position
    if remaining == 0:
        return None
    if remaining < _TO_MAGIC:
        if _all_zero(view[position:]):
            return None
        return _Unusable("torn_tail", f"{remaining} bytes are too few for an entry")
    _, size = _PREFIX.unpack_from(view, position)
    magic = view[position + 16]
    if size == 0 and _all_zero(view[position:]):
        return None
    if size < MIN_MESSAGE_BYTES:
        return _Unusable("bad_length", f"entry of {size} bytes")
    if magic > 2:
        return _Unusable("bad_magic", f"message format {magic}")
    if size < _MIN_SIZE[magic]:
        return _Unusable("bad_length", f"entry of {size} bytes in message format {magic}")
    if size > limits.max_batch_bytes:
        return _Unusable("bad_length", f"entry of {size} bytes, the limit is {limits.max_batch_bytes}")
    end = position + LOG_OVERHEAD + size
    if end > len(view):
        return _Unusable("torn_tail", f"entry of {LOG_OVERHEAD + size} bytes, {remaining} are left in the file")
    data = view[position:end]
    return parse_batch(data, first + position) if magic == 2 else parse_message(data, first + position)


def _all_zero(view: memoryview) -> bool:
    at, step = 0, 1 << 6
    while at < len(view):
        part = bytes(view[at : at + step])
        if part.count(0) < len(part):
            return False
        at, step = at + step, min(2 * step, 1 << 16)
    return True


def read_segment(
    segment: SegmentFile,
    *,
    limits: Limits = _DEFAULT_LIMITS,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
    end_offset: int | None = None,
    check_crc: bool = True,
    data: memoryview | None = None,
) -> Iterator[Batch]:
    """Batches of one segment in file order. ``data`` are its bytes, when they were read already.

    ``end_offset`` is the base offset of the next segment, when there is one: no offset may reach it.
    ``check_crc=False`` (only with ``RECOVER``) reads batches whose CRC is wrong, as a broker does after a
    clean shutdown.  Damage is appended to ``damage``, and so are parts left out.  Raises :class:`DamagedInputError`
    under ``FAIL``, ``UsageError`` when the file cannot be opened.
    """
    walk = SegmentWalk(segment, limits, on_damage, [] if damage is None else damage, end_offset, check_crc, data)
    return walk.batches()


def read_partition(
    log: PartitionLog,
    *,
    limits: Limits = _DEFAULT_LIMITS,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
    passes: Passes | None = None,
    reads: Reads = segment_bytes,
) -> Iterator[tuple[SegmentFile, Batch]]:
    """Batches of a partition from its log start offset on, in record offset order, without those of ``passes``.

    The read range is that of a broker's loader: it begins with the batch that holds the log start offset,
    segments and batches wholly below it are not part of the log.  Errors and ``damage`` are as in :func:`read_segment`.
    """
    found = [] if damage is None else damage
    start = log.log_start_offset or 0
    expected = 0
    for index, (segment, end_offset) in enumerate(log.segment_ranges()):
        if end_offset is not None and end_offset <= start:
            continue
        verified, passes_from = is_verified(log, end_offset), max(start, expected)
        walk = SegmentWalk(segment, limits, on_damage, found, end_offset, verified, None, passes, passes_from, reads)
        for batch in walk.batches():
            if batch.last_offset < start:
                continue
            if on_damage is OnDamage.RECOVER and batch.last_offset < expected:
                # A broker seeks the next offset it wants, so offsets of a former segment are passed over.
                found.append(
                    Damage(
                        segment.path,
                        batch.position,
                        batch.base_offset,
                        "not_read",
                        f"record offsets up to {batch.last_offset} are below those already read",
                    )
                )
                continue
            yield segment, batch
        expected = max(expected, walk.expected)
        if walk.stopped:
            found.extend(map(_dropped, log.segments[index + 1 :]))
            break
    wrong = ends_before_start(log, expected)
    if wrong is not None:
        if on_damage is OnDamage.FAIL:
            raise DamagedInputError(wrong)
        found.append(wrong)


_BEFORE_START = "log_start_offset"


def ends_before_start(log: PartitionLog, end_offset: int) -> Damage | None:
    """Damage when a log that ends at ``end_offset`` does not reach its log start offset."""
    if log.log_start_offset is None or end_offset >= log.log_start_offset:
        return None
    last = log.segments[-1]
    detail = f"the log ends before its start offset {log.log_start_offset}"
    return Damage(last.path, last.size, end_offset, _BEFORE_START, detail)


def read_records(
    log: PartitionLog,
    *,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage] | None = None,
    passes: Passes | None = None,
    reads: Reads = segment_bytes,
) -> Iterator[tuple[SegmentFile, Batch, list[Record]]]:
    """Like :func:`read_partition`, with the records of each batch.

    A batch whose records cannot be read raises under ``FAIL``, is left out under ``SALVAGE``, and ends the
    partition under ``RECOVER``: a broker's load of it fails there.
    """
    found = [] if damage is None else damage
    batches = read_partition(log, on_damage=on_damage, damage=found, passes=passes, reads=reads)
    return with_records(batches, on_damage, found)


def with_records(
    batches: Iterable[tuple[SegmentFile, Batch]], on_damage: OnDamage, damage: list[Damage]
) -> Iterator[tuple[SegmentFile, Batch, list[Record]]]:
    """Batches of :func:`read_partition`, or some of them, with their records as :func:`read_records` gives them."""
    for segment, batch in batches:
        try:
            records = batch_records(batch, path=segment.path, limits=_DEFAULT_LIMITS)
        except DamagedInputError as error:
            if reads_past(error, segment.path, batch, on_damage, damage):
                continue
            return
        yield segment, batch, records


def reads_past(error: DamagedInputError, path: str, batch: Batch, on_damage: OnDamage, damage: list[Damage]) -> bool:
    """Whether reading goes on behind a batch with damaged records, which are appended to ``damage``.

    Raises ``error`` under ``FAIL``. Under ``RECOVER`` reading ends: a broker keeps the batch, and cannot load it.
    """
    if on_damage is OnDamage.FAIL:
        raise error
    damage.append(error.damage)
    if on_damage is OnDamage.RECOVER:
        damage.append(Damage(path, batch.position, batch.base_offset, "not_read", _NOT_LOADED))
    return on_damage is not OnDamage.RECOVER


_NOT_LOADED = "a broker cannot load the partition from here on"


def loadable(log: PartitionLog, *, damage: list[Damage] | None = None) -> PartitionLog:
    """The partition as a starting broker leaves it and loads it: :func:`recover`, up to records that cannot be read.

    One that ends before its log start offset is empty, and begins there
    (``LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd``).
    """
    log = recover(log, damage=damage)
    found: list[Damage] = []
    for _ in read_records(log, on_damage=OnDamage.RECOVER, damage=found):
        pass
    if found and found[-1].kind == _BEFORE_START:
        if damage is not None:
            damage.append(found[-1])
        assert log.log_start_offset is not None
        return replace(log, segments=(replace(log.segments[-1], base_offset=log.log_start_offset, size=0),))
    if not found or found[-1].detail != _NOT_LOADED:
        return log
    stop = found[-1]
    if damage is not None:
        damage += found[-2:]
    paths = [segment.path for segment in log.segments]
    kept = log.segments[: paths.index(stop.path) + 1]
    return replace(log, segments=(*kept[:-1], replace(kept[-1], size=stop.byte_position)))


def _dropped(segment: SegmentFile) -> Damage:
    return Damage(segment.path, 0, segment.base_offset, "not_read", f"segment of {segment.size} bytes dropped")


def recover(log: PartitionLog, *, damage: list[Damage] | None = None) -> PartitionLog:
    """The partition as a starting broker leaves it: segments cut (by ``size``) behind their last valid
    batch, and without those it deletes.  For readers that take segments apart, one task each."""
    found = [] if damage is None else damage
    kept: list[SegmentFile] = []
    for index, (segment, end_offset) in enumerate(log.segment_ranges()):
        walk = SegmentWalk(segment, _DEFAULT_LIMITS, OnDamage.RECOVER, found, end_offset, is_verified(log, end_offset))
        for _ in walk.batches():
            pass
        kept.append(replace(segment, size=walk.position))
        if walk.stopped:
            found.extend(map(_dropped, log.segments[index + 1 :]))
            break
    return replace(log, segments=tuple(kept))


def last_entry(segment: SegmentFile) -> Batch | None:
    """The last batch before the first invalid entry of a segment; ``None`` when there is none."""
    view = segment_bytes(segment)
    position = 0
    last = None
    while True:
        entry = parse_entry(view, position)
        if not isinstance(entry, Batch) or not entry.crc_valid:
            return last
        last = entry
        position += entry.size


def last_batch(log: PartitionLog) -> Batch | None:
    """The last batch of the last segment that has any (:func:`last_entry`); ``None`` when there is none."""
    for segment in reversed(log.segments):
        last = last_entry(segment)
        if last is not None:
            return last
    return None


def is_verified(log: PartitionLog, end_offset: int | None) -> bool:
    """Whether a starting broker verifies the segment that ends at ``end_offset`` (the last: ``None``)."""
    if log.clean_shutdown:
        return False
    return end_offset is None or log.recovery_point is None or end_offset > log.recovery_point


def last_offset_of(segment: SegmentFile, end_offset: int | None) -> int:
    """The last record offset that may be in a segment; ``end_offset`` is the base offset of the next one."""
    last = min(segment.base_offset + MAX_OFFSET_SPAN, LAST_OFFSET)
    return last if end_offset is None else min(last, end_offset - 1)


class SegmentWalk:
    """One pass over a segment.

    Afterwards ``expected`` is the offset behind its last batch, ``position`` the byte behind it, and
    ``stopped``: nothing behind it may be read, in later segments either.  ``torn_bytes`` and
    ``zero_bytes`` count the bytes at the end of the file that are no entries, and those that are zero.
    """

    def __init__(
        self,
        segment: SegmentFile,
        limits: Limits,
        on_damage: OnDamage,
        damage: list[Damage],
        end_offset: int | None,
        check_crc: bool = True,
        data: memoryview | None = None,
        passes: Passes | None = None,
        passes_from: int = 0,
        reads: Reads = segment_bytes,
    ) -> None:
        self._data = data
        self._reads = reads
        self._passes = passes
        self._passes_from = passes_from
        self.segment = segment
        self.limits = limits
        self.on_damage = on_damage
        self.damage = damage
        self.end_offset = end_offset
        self.check_crc = check_crc or on_damage is not OnDamage.RECOVER
        self.expected = segment.base_offset
        self.position = 0
        self.stopped = False
        self.torn_bytes = 0
        self.zero_bytes = 0
        self._resync_budget = CRC_BUDGET * segment.size

    def view(self) -> memoryview:
        """The bytes of the segment, read once."""
        if self._data is None:
            self._data = self._reads(self.segment)
        return self._data

    def batches(self) -> Iterator[Batch]:
        if self._passes is not None and self._data is None and KeptWindows.fit(self.segment):
            is_at_end = yield from self._sound_batches(self._passes.windows(self.segment))
            if is_at_end:
                return
        view = self.view()
        recover = self.on_damage is OnDamage.RECOVER
        while True:
            self._pass(view, 0, is_cut=False)
            entry = parse_entry(view, self.position, self.limits)
            if entry is None:
                self._at_end(view)
                return
            if isinstance(entry, _Unusable):
                self._report(self.position, self.expected, entry.kind, entry.detail)
                if recover:
                    # Unverified, a torn entry only ends its segment; nothing can be read past a bad length.
                    self._stop(view, later=self.check_crc or entry.kind != "torn_tail")
                    return
                if not self._resync(view):
                    return
                continue
            if not entry.crc_valid:
                offset = entry.base_offset if self._in_range(entry) else self.expected
                kept = "" if self.check_crc else "; read all the same, a broker does not verify this segment"
                self._report(entry.position, offset, "bad_crc", f"CRC is not {entry.crc}{kept}")
                if recover and self.check_crc:
                    self._stop(view, later=True)
                    return
                if not recover:
                    if self._is_followed(view, entry):
                        self.position += entry.size
                    elif not self._resync(view):
                        return
                    continue
            wrong = self._contradiction(view, self.position, entry)
            if wrong is not None:
                offset = entry.base_offset if wrong.kind != "bad_header" else self.expected
                self._report(entry.position, offset, wrong.kind, wrong.detail)
                if not recover:
                    self.position += entry.size
                    continue
            self.position += entry.size
            self.expected = entry.next_offset
            yield entry

    def _pass(self, view: memoryview, first: int, *, is_cut: bool) -> None:
        if self._passes is not None and self.expected >= self._passes_from:
            last_offset = last_offset_of(self.segment, self.end_offset)
            self.position, self.expected = self._passes(
                view, first, self.position, self.expected, last_offset, is_cut=is_cut
            )

    def _sound_batches(self, windows: KeptWindows) -> Generator[Batch, None, bool]:
        """Batches up to the first of which more is to be said; whether that is the end of the segment.

        A batch is valid as long as somebody has it. New memory for whole segments would take longer than to read them.
        """
        view, first = windows.behind(self.position), self.position
        while self.position < windows.size:
            is_cut = first + len(view) < windows.size
            self._pass(view, first, is_cut=is_cut)
            at = self.position - first
            entry = None if is_cut and len(view) - at < _NEAR else parse_entry(view, at, self.limits, first)
            if (
                isinstance(entry, Batch)
                and entry.crc_valid
                and not (is_cut and len(view) - at - entry.size < _TO_MAGIC)
                and self._contradiction(view, at, entry) is None
            ):
                self.position += entry.size
                self.expected = entry.next_offset
                yield entry
            elif is_cut and at > 0:
                view, first = windows.behind(self.position), self.position
            elif self.position < windows.size:
                return False
        windows.release()
        return self.position == self.segment.size

    def _report(self, position: int, record_offset: int | None, kind: str, detail: str) -> None:
        found = Damage(self.segment.path, position, record_offset, kind, detail)
        if self.on_damage is OnDamage.FAIL:
            raise DamagedInputError(found)
        self.damage.append(found)

    def _at_end(self, view: memoryview) -> None:
        self.zero_bytes = len(view) - self.position
        if len(view) < self.segment.size:
            missing = self.segment.size - len(view)
            self._report(len(view), self.expected, "file_shorter", f"{missing} pinned bytes are gone")
        recover_verified = self.on_damage is OnDamage.RECOVER and self.check_crc
        if recover_verified and self.position < len(view) and self.end_offset is not None:
            # To a recovering broker zeroes are an invalid batch, so the bytes behind them go.
            detail = f"{self.zero_bytes} zero bytes before the last segment"
            self._report(self.position, self.expected, "zero_tail", detail)
            self.stopped = True

    def _stop(self, view: memoryview, *, later: bool) -> None:
        self.torn_bytes = len(view) - self.position
        detail = f"{self.torn_bytes} bytes to the end of the segment dropped"
        self._report(self.position, self.expected, "not_read", detail)
        self.stopped = later

    def _in_range(self, entry: Batch) -> bool:
        return self._out_of_range(entry) is None and entry.base_offset >= self.expected

    def _out_of_range(self, entry: Batch) -> str | None:
        base = self.segment.base_offset
        if entry.base_offset < base:
            return f"record offset {entry.base_offset} is below the segment's base offset {base}"
        if self.end_offset is not None and entry.last_offset >= self.end_offset:
            return f"record offset {entry.last_offset} reaches into the segment at {self.end_offset}"
        if entry.last_offset > last_offset_of(self.segment, None):
            return f"record offset {entry.last_offset} is too far from the segment's base offset {base}"
        return None

    def _contradiction(self, view: memoryview, at: int, entry: Batch) -> _Unusable | None:
        """Contradictions of an entry's header with itself, its neighbours, or the segment's range.

        The entry is ``at`` that position in ``view``.
        """
        if entry.last_offset < entry.base_offset:
            return _Unusable("bad_header", f"last offset {entry.last_offset} is below the base offset")
        if entry.partition_leader_epoch < -1:
            return _Unusable("bad_header", f"partition leader epoch {entry.partition_leader_epoch}")
        outside = self._out_of_range(entry)
        if outside is not None:
            return _Unusable("offset_range", outside)
        if entry.base_offset < self.expected:
            return _Unusable("offset_order", f"base offset {entry.base_offset} after record offset {self.expected - 1}")
        if entry.base_offset > self.expected and self.on_damage is not OnDamage.RECOVER:
            # Offsets are missing before this entry. If the next entry fits there, the offset of this one is wrong.
            after = self._offset_at(view, at + entry.size)
            if (
                after is not None
                and self.expected <= after < entry.next_offset
                and self._first_record_offset(entry) != self.expected
            ):
                return _Unusable("offset_order", f"base offset {entry.base_offset} before record offset {after}")
        return None

    def _offset_at(self, view: memoryview, position: int) -> int | None:
        following = parse_entry(view, position, self.limits)
        return following.base_offset if isinstance(following, Batch) and following.crc_valid else None

    def _first_record_offset(self, entry: Batch) -> int | None:
        """``None`` when the entry is a legacy wrapper (its own offset is the last one) that is unreadable."""
        if entry.record_count is not None:
            return entry.base_offset
        try:
            return next(iter_batch_records(entry, path=self.segment.path, limits=self.limits)).offset
        except DamagedInputError:
            return None

    def _is_followed(self, view: memoryview, entry: Batch) -> bool:
        """Whether the size of a damaged entry can be trusted: data ends behind it, or an entry follows."""
        following = parse_entry(view, entry.position + entry.size, self.limits)
        if following is None:
            return True
        return isinstance(following, Batch) and (following.crc_valid or self._in_range(following))

    def _resync(self, view: memoryview) -> bool:
        """Move to the next valid batch behind the damage at ``position``, if there is one."""
        end = self.end_offset if self.end_offset is not None else self.segment.base_offset + MAX_OFFSET_SPAN + 1
        found, self._resync_budget = find_batch(
            view,
            self.position + 1,
            self.expected,
            end,
            self.limits,
            self._resync_budget,
            parse_entry_batch,
        )
        skipped = (len(view) if found is None else found) - self.position
        last = self.damage[-1]
        self.damage[-1] = replace(last, detail=f"{last.detail}; {skipped} bytes skipped")
        if found is None:
            self.torn_bytes = skipped
            self.position = len(view)
            return False
        self.position = found
        return True


def parse_entry_batch(view: memoryview, position: int, limits: Limits) -> Batch | None:
    """The entry at ``position`` when it is whole and its CRC is valid."""
    entry = parse_entry(view, position, limits)
    return entry if isinstance(entry, Batch) and entry.crc_valid else None
