"""Long stretches of sound batches as text: compiled code in several threads, the text in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Self

import numpy as np

from coordinator_core import storage
from coordinator_core.columnar.tables import Bytes, Int64s, Rules
from coordinator_core.columnar.text import (
    STACK_SIZE,
    Cursor,
    Hole,
    Number,
    Status,
    sound_stretch,
    write_text,
)
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.log.batch import iter_batch_records, parse_batch
from coordinator_core.log.compression import CompressionError, decompress
from coordinator_core.log.layout import CODEC_BITS, HEADER_BYTES
from coordinator_core.log.reader import MAX_OFFSET_SPAN, SegmentWalk
from coordinator_core.log.types import Batch, Codec, Record
from coordinator_core.reports.dump_programs import Programs
from coordinator_core.reports.dump_styles import DumpStyle, batch_text, record_text, texts_of

_STRETCH_BYTES = 1 << 19
"""Of a log, for one thread at a time: text of this size stays in the caches until it is written."""

_TEXT_BYTES = 5 * _STRETCH_BYTES
"""Of most logs the text is three to four times as long; more is written in pieces."""

_MAX_TEXT_BYTES = 1 << 24
"""Text that is made before any is written: beyond it a thread stops at the end of a batch."""

_UNPACKED_BYTES = 1 << 19
"""Records that are decompressed for one call of the kernel."""

_MAX_WORKERS = 4
"""One thread writes what they make, two or three times as fast as one of them makes it."""

_MAX_HOLES = 1 << 10
_IN_PLACE: Int64s = np.empty((0, 2), np.int64)
_ATTRIBUTES_AT = 22


@dataclass(slots=True)
class StretchText:
    """The text of the batches up to ``end``, in pieces that are valid until the next text is asked for.

    ``stopped`` tells that damage, the last in ``damage``, was met that ends the dump.
    """

    end: int
    pieces: list[bytes | memoryview] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    stopped: bool = False


class SegmentBytes:
    """The bytes of the segment that ``walk`` walks over."""

    def __init__(self, walk: SegmentWalk) -> None:
        segment = walk.segment
        self.walk = walk
        self.path = segment.path
        self.view = storage.read(segment.path)[: segment.size]
        self.data = np.frombuffer(self.view, np.uint8)
        self._rules = np.zeros(Rules.SIZE, np.int64)
        self._rules[Rules.CHECK_CRC] = True
        self._rules[Rules.MAX_BATCH_BYTES] = walk.limits.max_batch_bytes
        last_offset = segment.base_offset + MAX_OFFSET_SPAN
        if walk.end_offset is not None:
            last_offset = min(last_offset, walk.end_offset - 1)
        self._rules[Rules.LAST_OFFSET] = last_offset
        self._expected = np.zeros(1, np.int64)

    def stretch(self) -> int:
        """Move the walk over some sound batches; returns its position then."""
        walk = self.walk
        self._expected[0] = max(walk.expected, walk.segment.base_offset)
        stop: int = sound_stretch(
            self.data, walk.position, len(self.view), _STRETCH_BYTES, self._rules, self._expected
        )
        if stop > walk.position:
            walk.position, walk.expected = stop, int(self._expected[0])
        return stop


class StretchWriter:
    """Text in one style, by threads that live as long as the context."""

    def __init__(self, style: DumpStyle, programs: Programs, *, stop_at_damage: bool) -> None:
        self._style = style
        self._programs = programs
        self._stop_at_damage = stop_at_damage
        workers = min(os.cpu_count() or 1, _MAX_WORKERS)
        self._executor = ThreadPoolExecutor(workers)
        self._buffers = [np.empty(_TEXT_BYTES, np.uint8) for _ in range(workers + 2)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown(cancel_futures=True)

    def texts(self, source: SegmentBytes) -> Iterator[StretchText]:
        """Text of the sound batches from where the walk stands; it is moved behind them.

        Sound is what the walk would yield without finding damage; records may be damaged nevertheless.
        """
        pending: deque[tuple[Future[StretchText], int, Bytes]] = deque()
        try:
            while True:
                while self._buffers:
                    start = source.walk.position
                    stop = source.stretch()
                    if stop == start:
                        break
                    buffer = self._buffers.pop()
                    future = self._executor.submit(self._text, source, start, stop, buffer)
                    pending.append((future, stop, buffer))
                if not pending:
                    return
                future, stop, buffer = pending.popleft()
                text = future.result()
                yield text
                while text.end < stop and not text.stopped:
                    text = self._text(source, text.end, stop, buffer)
                    yield text
                self._buffers.append(buffer)
                if text.stopped:
                    return
        finally:
            for future, _, buffer in pending:
                if not future.cancel():
                    future.exception()
                self._buffers.append(buffer)

    def _text(self, source: SegmentBytes, start: int, stop: int, buffer: Bytes) -> StretchText:
        work = _StretchInWork(self._style, self._programs, source, buffer)
        return work.text(start, stop, stop_at_damage=self._stop_at_damage)


class _StretchInWork:
    """The kernel at work, and the readers and formatters where it asks for them."""

    def __init__(self, style: DumpStyle, programs: Programs, source: SegmentBytes, buffer: Bytes) -> None:
        self._style = style
        self._programs = programs
        self._source = source
        self._limits = source.walk.limits
        self._out = buffer
        self._numbers = np.zeros(Number.LENGTH, np.int64)
        self._stack = np.zeros(STACK_SIZE, np.int64)
        self._cursor = np.zeros(Cursor.LENGTH, np.int64)
        self._holes = np.zeros((_MAX_HOLES, Hole.WIDTH), np.int64)
        self._fillings: list[tuple[int, bytes]] = []
        self._pieces: list[bytes | memoryview] = []
        self._flushed = 0

    def text(self, start: int, stop: int, *, stop_at_damage: bool) -> StretchText:
        """The text of the batches from ``start`` to ``stop``, or of the first of them when it is long."""
        cursor = self._cursor
        self._go_to(start)
        self._read_in_place(stop)
        damage: list[Damage] = []
        while cursor[Cursor.POSITION] < stop:
            if self._flushed > _MAX_TEXT_BYTES and cursor[Cursor.RECORD] < 0:
                break
            status = self._write()
            if status == Status.END:
                self._read_in_place(stop)
            elif status == Status.FULL:
                self._make_room()
            elif status == Status.ODD or not self._unpack(stop):
                batch = self._batch()
                try:
                    self._write_odd(batch)
                except DamagedInputError as error:
                    damage.append(error.damage)
                    if stop_at_damage:
                        return StretchText(batch.position, self._written(), damage, stopped=True)
                self._go_to(batch.position + batch.size)
                cursor[Cursor.SECTION] += 1
        return StretchText(int(cursor[Cursor.POSITION]), self._written(), damage)

    def _read_in_place(self, stop: int) -> None:
        """Have the kernel read the records up to ``stop`` where they lie."""
        self._records, self._sections, self._until = self._source.data, _IN_PLACE, stop

    def _unpack(self, stop: int) -> bool:
        """Have it read some batches from the cursor on decompressed; False if the first one cannot be."""
        view, limits = self._source.view, self._limits
        position = int(self._cursor[Cursor.POSITION])
        parts: list[bytes | bytearray | memoryview] = []
        bounds = [0]
        while position < stop and bounds[-1] < _UNPACKED_BYTES:
            size, codec = _size_at(view, position), view[position + _ATTRIBUTES_AT] & CODEC_BITS
            packed = view[position + HEADER_BYTES : position + size]
            part: bytes | bytearray | memoryview = packed
            if codec != Codec.NONE and len(packed) > 0:
                allowance = limits.decompressed_allowance(len(packed))
                try:
                    part = decompress(codec, packed, magic=2, max_bytes=allowance)
                except CompressionError:
                    break
            parts.append(part)
            bounds.append(bounds[-1] + len(part))
            position += size
        if not parts:
            return False
        self._records = np.frombuffer(b"".join(parts), np.uint8)
        self._sections = np.array([bounds[:-1], bounds[1:]], np.int64).T.copy()
        self._until = position
        self._cursor[Cursor.SECTION] = 0
        return True

    def _write(self) -> int:
        """Let the kernel write, and format the texts that it leaves out."""
        records, programs = self._records, self._programs
        status: int = write_text(
            self._source.data,
            self._until,
            records,
            self._sections,
            self._limits.max_records,
            programs.program,
            programs.literals,
            programs.starts,
            self._numbers,
            self._stack,
            self._cursor,
            self._holes,
            self._out,
        )
        for row in self._holes[: self._cursor[Cursor.HOLES]].tolist():
            record = Record(
                row[Hole.OFFSET],
                0,
                _bytes(records, row[Hole.KEY], row[Hole.KEY_BYTES]),
                _bytes(records, row[Hole.VALUE], row[Hole.VALUE_BYTES]),
            )
            self._fillings.append((row[Hole.OUT], _encoded(texts_of(record, self._style))))
        self._cursor[Cursor.HOLES] = 0
        return status

    def _batch(self) -> Batch:
        """The batch at the cursor."""
        position = int(self._cursor[Cursor.POSITION])
        view = self._source.view
        return parse_batch(view[position : position + _size_at(view, position)], position)

    def _write_odd(self, batch: Batch) -> None:
        """Write what the kernel has not written of a batch."""
        self._flush()
        done = int(self._cursor[Cursor.RECORD])
        if done < 0:
            line = batch_text(batch, self._style)
            if line is not None:
                self._append(line)
        records = iter_batch_records(batch, path=self._source.path, limits=self._limits)
        for record in islice(records, max(done, 0), None):
            self._append(record_text(batch, record, self._style))

    def _append(self, line: str) -> None:
        piece = _encoded(f"{line}\n")
        self._pieces.append(piece)
        self._flushed += len(piece)

    def _go_to(self, position: int) -> None:
        self._cursor[[Cursor.POSITION, Cursor.RECORD, Cursor.DELTA]] = position, -1, -1

    def _make_room(self) -> None:
        """For a record that does not fit into an empty buffer, a bigger one."""
        if self._cursor[Cursor.OUT] == 0:
            self._out = np.empty(2 * len(self._out), np.uint8)
        self._flush()

    def _flush(self) -> None:
        """Take what the kernel wrote out of its buffer."""
        text = b"".join(self._filled())
        if text:
            self._pieces.append(text)
            self._flushed += len(text)
        self._cursor[Cursor.OUT] = 0
        self._fillings.clear()

    def _written(self) -> list[bytes | memoryview]:
        return [*self._pieces, *self._filled()]

    def _filled(self) -> Iterator[bytes | memoryview]:
        """What the kernel wrote, with its holes filled."""
        text = self._out.data
        start = 0
        for at, filling in self._fillings:
            yield text[start:at]
            yield filling
            start = at
        yield text[start : self._cursor[Cursor.OUT]]


def _size_at(view: memoryview, position: int) -> int:
    """Bytes of the batch at ``position``."""
    return 12 + int.from_bytes(view[position + 8 : position + 12], "big")


def _bytes(records: Bytes, start: int, size: int) -> bytes | None:
    return None if size < 0 else records[start : start + size].tobytes()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
