"""Sound batches of a segment as text, by compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from coordinator_core.kernels import Bounds, TextWriter
from coordinator_core.kernels.layout import Stop
from coordinator_core.log.batch import parse_batch, records_section
from coordinator_core.log.compression import CompressionError
from coordinator_core.log.reader import SegmentWalk, last_offset_of
from coordinator_core.log.types import Record
from coordinator_core.reports.dump_styles import DumpStyle, tables_of, texts_of

_ENOUGH_BYTES = 1 << 20
"""Text that is written before it is handed out; one batch's may come on top."""


class CompiledDump:
    """Prints in one style the batches that compiled code covers."""

    def __init__(self, style: DumpStyle) -> None:
        self._style = style
        tables = tables_of(style)
        assert tables is not None
        self._writer = TextWriter(*tables, self._other)

    def segment(self, walk: SegmentWalk) -> Callable[[], Iterator[memoryview]]:
        """A function that prints the sound batches from where ``walk`` stands, and moves it behind them.

        A sound batch is one that the walk would yield without finding damage in it or in its records. Each piece is
        valid until the next one is asked for.
        """
        segment = walk.segment
        bounds = Bounds(walk.limits.max_batch_bytes, walk.limits.max_records)
        bounds.last_offset = last_offset_of(segment, walk.end_offset)
        return partial(self._texts, walk, walk.view(), bounds)

    def _texts(self, walk: SegmentWalk, view: memoryview, bounds: Bounds) -> Iterator[memoryview]:
        writer = self._writer
        reason: int = Stop.FULL
        while reason in (Stop.FULL, Stop.COMPRESSED):
            expected = max(walk.expected, walk.segment.base_offset)
            reason = writer.write(view, walk.position, len(view), expected, _ENOUGH_BYTES, bounds)
            if reason == Stop.COMPRESSED and not self._unpack(view, walk):
                reason = Stop.UNUSUAL_RECORDS
            walk.position, walk.expected = writer.position, writer.expected
            if reason != Stop.COMPRESSED and writer.used > 0:
                yield writer.text()
                writer.used = 0

    def _unpack(self, view: memoryview, walk: SegmentWalk) -> bool:
        """Print the batch at which the writer stopped; False if its records are unusual."""
        position = self._writer.position
        batch = parse_batch(view[position : self._writer.end], position)
        try:
            records = records_section(batch, walk.limits)
        except CompressionError:
            return False
        return bool(self._writer.write_unpacked(view, records))

    def _other(self, offset: int, key: bytes | None, value: bytes | None) -> bytes:
        """Key and payload that the tables do not cover."""
        return texts_of(Record(offset, 0, key, value), self._style).encode("utf-8", "surrogateescape")
