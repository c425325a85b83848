"""The look at a log's records that ``--profile auto`` takes: compiled past commits like those before.

``replay.inference`` alone knows the meaning of a record; the kernel only passes over those that tell nothing new, which
nearly all are.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from copy import deepcopy

import numpy as np

from coordinator_core.errors import DamagedInputError
from coordinator_core.fold.unpacking import Chunk, chunks
from coordinator_core.kernels import Bounds, FoldTables, pass_known
from coordinator_core.kernels.arrays import Bytes, array_of, new_rows
from coordinator_core.kernels.layout import Stop
from coordinator_core.log.batch import batch_records
from coordinator_core.log.compression import CompressionError
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import last_offset_of, parse_entry_batch
from coordinator_core.log.types import PartitionLog, SegmentFile
from coordinator_core.log.windows import SegmentWindows
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.replay.inference import SAMPLED_BATCHES, Evidence, release_of, sample

_MOST_RECORDS = 4096
"""Larger batches are looked at one record after the other."""


def infer_profile(logs: Iterable[PartitionLog]) -> Profile:
    """Profile of the newest release of which the newest segments of ``logs`` have a witness."""
    return inferred_profile(logs)[0]


def inferred_profile(logs: Iterable[PartitionLog]) -> tuple[Profile, bool]:
    """:func:`infer_profile`, and whether a record tells it: without one it is that of the newest release."""
    evidence = Evidence()
    for log in logs:
        left = SAMPLED_BATCHES
        for segment in reversed(log.segments):
            if left == 0:
                break
            left, evidence = take_from(log, segment, evidence, left)
    return profile_for_release(*release_of(evidence)), bool(evidence.key_types)


def take_from(log: PartitionLog, segment: SegmentFile, evidence: Evidence, batches: int) -> tuple[int, Evidence]:
    """Result of ``replay.inference.sample``, and the evidence that it leaves."""
    if (log.log_start_offset or 0) <= segment.base_offset:
        # Records taken in before the scalar reader was needed do not count.
        seen = deepcopy(evidence)
        left = _Sampler(segment, seen, batches).take()
        if left is not None:
            return left, seen
    return sample(log, segment, evidence, batches), evidence


class _Sampler:
    """The first batches of one segment, as :func:`~coordinator_core.replay.inference.sample` takes them."""

    def __init__(self, segment: SegmentFile, evidence: Evidence, batches: int) -> None:
        self._segment = segment
        self._evidence = evidence
        self._limits = Limits()
        bounds = Bounds(self._limits.max_batch_bytes, _MOST_RECORDS)
        bounds.last_offset = last_offset_of(segment, None)
        self._tables = tables = FoldTables(bounds)
        tables.reserve_scratch(_MOST_RECORDS)
        tables.max_legacy_version = tables.max_version = np.iinfo(np.int16).max
        tables.next_offset = segment.base_offset
        self._left = batches

    def take(self) -> int | None:
        """``None`` if anything is for the scalar reader to judge: it then looks at all of it."""
        return self._left if self._take() else None

    def _take(self) -> bool:
        windows = SegmentWindows(self._segment)
        position = 0
        try:
            while position < windows.size and self._left > 0:
                view, first = windows.at(position)
                after = self._take_window(view, position - first)
                if after is None:
                    return False
                position = first + after
        except (CompressionError, DamagedInputError):
            return False
        finally:
            windows.release()
        return True

    def _take_window(self, view: memoryview, start: int) -> int | None:
        """Take the batches from ``start`` on; the position behind them."""
        data = np.frombuffer(view, np.uint8)
        status, position = self._pass_known(data, start, len(view), is_unpacked=False)
        if status == Stop.UNUSUAL_BATCH:
            return position if position > start else None
        if status == Stop.UNUSUAL_RECORDS:
            return self._look_at(view, position)
        if status == Stop.COMPRESSED:
            tables = self._tables
            with closing(chunks(view, position, tables.next_offset, tables.bounds, self._limits)) as found:
                for chunk in found:
                    if not self._take_unpacked(view, chunk):
                        return None
                    position = chunk.end
                    if self._left <= 0:
                        break
        return position

    def _take_unpacked(self, view: memoryview, chunk: Chunk) -> bool:
        ends = np.cumsum(chunk.batches["plain_size"])
        position = 0
        while True:
            status, position = self._pass_known(chunk.data, position, len(chunk.data), is_unpacked=True)
            if status != Stop.UNUSUAL_RECORDS:
                return status == Stop.END
            row = int(np.searchsorted(ends, position, "right"))
            self._look_at(view, int(chunk.batches["position"][row]))
            position = int(ends[row])

    def _pass_known(self, data: Bytes, position: int, stop: int, *, is_unpacked: bool) -> tuple[int, int]:
        evidence = self._evidence
        witness = new_rows("Witness", 1)
        row = array_of(witness)
        row["has_legacy_keys"], row["has_keys"] = 0 in evidence.key_types, 1 in evidence.key_types
        row["offset_version"] = evidence.offset_version
        status, position, passed = pass_known(data, position, stop, self._left, is_unpacked, witness, self._tables)
        self._left -= passed
        if passed:
            evidence.newest_magic = max(evidence.newest_magic, 2)
        return status, position

    def _look_at(self, view: memoryview, position: int) -> int:
        """Take in the sound batch at ``position``; the position behind it."""
        batch = parse_entry_batch(view, position, self._limits)
        assert batch is not None
        self._evidence.add(batch, batch_records(batch, path=self._segment.path, limits=self._limits))
        self._tables.next_offset = batch.next_offset
        self._left -= 1
        return position + batch.size
