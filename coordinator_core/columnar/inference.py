"""The look at a log's records that ``--profile auto`` takes: compiled past commits like those before.

What a record tells is known to ``replay.inference`` alone; the kernel only passes over those that tell
nothing new, which nearly all are.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from enum import IntEnum
from typing import Any

import numpy as np

from coordinator_core import storage
from coordinator_core.columnar import types
from coordinator_core.columnar.compiling import kernel
from coordinator_core.columnar.intrinsics import be32, be64
from coordinator_core.columnar.kernels import (
    Status,
    sound_size,
    split_records,
)
from coordinator_core.columnar.tables import BYTES_TYPE, Bytes, Int, Kind, Rules, Split
from coordinator_core.columnar.unpacking import Row, runs
from coordinator_core.errors import DamagedInputError
from coordinator_core.log.batch import batch_records
from coordinator_core.log.compression import CompressionError
from coordinator_core.log.layout import CODEC_BITS, CONTROL_BIT, HEADER_BYTES, MIN_RECORD_BYTES
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import MAX_OFFSET_SPAN, parse_entry_batch
from coordinator_core.log.types import PartitionLog, SegmentFile
from coordinator_core.replay.inference import SAMPLED_BATCHES, Evidence, release_of, sample
from coordinator_core.replay.profiles import Profile, profile_for_release

_VECTOR, _TABLE = types.Array(types.int64, 1), types.Array(types.int64, 2)
_MOST_RECORDS = 4096
"""Larger batches are looked at one record after the other."""


class Seen(IntEnum):
    """Positions in what :func:`pass_known` goes by."""

    POSITION = 0
    """Where it stopped."""
    NEXT_OFFSET = 1
    BATCHES_LEFT = 2
    LEGACY_KEYS = 3
    """Whether commits with key type 0 were seen, and with 1."""
    KEYS = 4
    OFFSET_VERSION = 5
    WIDTH = 6


@kernel(types.int64(BYTES_TYPE, types.int64, types.int64, types.boolean, _VECTOR, _TABLE, _VECTOR))
def pass_known(data: Any, start: Int, stop: Int, in_arena: bool, seen: Any, scratch: Any, rules: Any) -> Int:
    """Pass over batches of which ``Evidence`` learns nothing, as many as ``Seen.BATCHES_LEFT``.

    Returns ``Status.END``; ``COMPRESSED`` at such a batch; ``ODD_RECORDS`` at one to be looked at;
    ``ODD_BATCH`` at anything but a sound one.
    """
    position = start
    status = Status.END
    while position < stop and seen[Seen.BATCHES_LEFT] > 0:
        size = sound_size(data, position, stop, seen[Seen.NEXT_OFFSET], in_arena, rules)
        if size == 0:
            status = Status.ODD_BATCH
            break
        attributes = np.int64(data[position + 22])
        count = be32(data, position + 57)
        if attributes & CONTROL_BIT == 0 and count > 0:
            if not in_arena and attributes & CODEC_BITS != 0:
                status = Status.COMPRESSED
                break
            if (
                count > len(scratch)
                or count * MIN_RECORD_BYTES > size - HEADER_BYTES
                or not split_records(data, position, position + size, 0, count, scratch, rules)
            ):
                status = Status.ODD_RECORDS
                break
            for record in range(count):
                key_type, version = scratch[record, Split.KEY_TYPE], scratch[record, Split.DETAIL]
                if (
                    scratch[record, Split.KIND] > Kind.TOMBSTONE
                    or seen[Seen.LEGACY_KEYS + key_type] == 0
                    or (key_type == 1 and version > seen[Seen.OFFSET_VERSION])
                ):
                    status = Status.ODD_RECORDS
                    break
            if status == Status.ODD_RECORDS:
                break
        seen[Seen.NEXT_OFFSET] = be64(data, position) + be32(data, position + 23) + 1
        seen[Seen.BATCHES_LEFT] -= 1
        position += size
    seen[Seen.POSITION] = position
    return status


def infer_profile(logs: Iterable[PartitionLog]) -> Profile:
    """Profile of the newest release that left a witness in the newest segments of ``logs``."""
    evidence = Evidence()
    for log in logs:
        left = SAMPLED_BATCHES
        for segment in reversed(log.segments):
            if left == 0:
                break
            left = _take_from(log, segment, evidence, left)
    return profile_for_release(*release_of(evidence))


def _take_from(log: PartitionLog, segment: SegmentFile, evidence: Evidence, batches: int) -> int:
    """What ``replay.inference.sample`` does."""
    if (log.log_start_offset or 0) <= segment.base_offset:
        left = _Sampler(segment, evidence, batches).take()
        if left is not None:
            return left
    return sample(log, segment, evidence, batches)


class _Sampler:
    """The first batches of one segment, as :func:`~coordinator_core.replay.inference.sample` takes them."""

    def __init__(self, segment: SegmentFile, evidence: Evidence, batches: int) -> None:
        self._segment = segment
        self._evidence = evidence
        self._limits = Limits()
        self._scratch = np.empty((_MOST_RECORDS, Split.WIDTH), np.int64)
        self._rules = np.zeros(Rules.SIZE, np.int64)
        self._rules[Rules.MAX_LEGACY_VERSION] = self._rules[Rules.MAX_VERSION] = np.iinfo(np.int16).max
        self._rules[Rules.CHECK_CRC] = 1
        self._rules[Rules.MAX_BATCH_BYTES] = self._limits.max_batch_bytes
        self._rules[Rules.LAST_OFFSET] = segment.base_offset + MAX_OFFSET_SPAN
        self._seen = np.zeros(Seen.WIDTH, np.int64)
        self._seen[Seen.NEXT_OFFSET] = segment.base_offset
        self._seen[Seen.BATCHES_LEFT] = batches

    def take(self) -> int | None:
        """``None`` if anything is for the scalar reader to judge: it then looks at all of it."""
        return int(self._seen[Seen.BATCHES_LEFT]) if self._take() else None

    def _take(self) -> bool:
        view = storage.read(self._segment.path)[: self._segment.size]
        data = np.frombuffer(view, np.uint8)
        position, stop = 0, len(view)
        try:
            while True:
                status = self._pass_known(data, position, stop, in_arena=False)
                position = int(self._seen[Seen.POSITION])
                if status == Status.END:
                    return True
                if status == Status.ODD_BATCH:
                    return False
                if status == Status.ODD_RECORDS:
                    position = self._look_at(view, position)
                    continue
                next_offset = int(self._seen[Seen.NEXT_OFFSET])
                with closing(runs(view, position, next_offset, self._rules, self._limits)) as found:
                    for run in found:
                        if not self._take_unpacked(view, run.batches, run.data):
                            return False
                        position = int(run.batches[-1, Row.POSITION] + run.batches[-1, Row.SIZE])
                        if self._seen[Seen.BATCHES_LEFT] <= 0:
                            return True
        except (CompressionError, DamagedInputError):
            return False

    def _take_unpacked(self, view: memoryview, batches: Any, data: Bytes) -> bool:
        ends = np.cumsum(batches[:, Row.PLAIN_SIZE])
        position = 0
        while True:
            status = self._pass_known(data, position, len(data), in_arena=True)
            position = int(self._seen[Seen.POSITION])
            if status != Status.ODD_RECORDS:
                return status == Status.END
            row = int(np.searchsorted(ends, position, "right"))
            self._look_at(view, int(batches[row, Row.POSITION]))
            position = int(ends[row])

    def _pass_known(self, data: Bytes, position: int, stop: int, *, in_arena: bool) -> Status:
        evidence, seen = self._evidence, self._seen
        seen[Seen.LEGACY_KEYS], seen[Seen.KEYS] = 0 in evidence.key_types, 1 in evidence.key_types
        seen[Seen.OFFSET_VERSION] = evidence.offset_version
        left = int(seen[Seen.BATCHES_LEFT])
        status = Status(pass_known(data, position, stop, in_arena, seen, self._scratch, self._rules))
        if seen[Seen.BATCHES_LEFT] < left:
            evidence.newest_magic = max(evidence.newest_magic, 2)
        return status

    def _look_at(self, view: memoryview, position: int) -> int:
        """Take in the sound batch at ``position``; the position behind it."""
        batch = parse_entry_batch(view, position, self._limits)
        assert batch is not None
        self._evidence.add(batch, batch_records(batch, path=self._segment.path, limits=self._limits))
        self._seen[Seen.NEXT_OFFSET] = batch.next_offset
        self._seen[Seen.BATCHES_LEFT] -= 1
        return position + batch.size
