"""The weight of each raw key of an offsets partition: records and bytes in the log, and what of it lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coordinator_core.columnar.batches import Stop
from coordinator_core.columnar.kernels import rebuild_index
from coordinator_core.columnar.tables import Bytes, Int64s, Interned
from coordinator_core.columnar.weighing import (
    Weighed,
    WeightRow,
    WeightTables,
    weigh_batches,
)
from coordinator_core.lifecycle.compact_scan import LogScan, ScannedSegment
from coordinator_core.log.batch import batch_records
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import Batch, Record
from coordinator_core.log.writer import BatchHeader, encode_batch, encode_record

_LIMITS = Limits()
_NO_SIZES: Int64s = np.empty(0, np.int64)
_MESSAGE_BYTES = {0: 26, 1: 34}
"""What a message of format 0 or 1 takes besides its key and value."""


@dataclass(frozen=True)
class KeyWeights:
    """``rows`` are those of ``columnar.weighing.WeightRow``, one for each raw key."""

    rows: Int64s
    keys: Bytes

    def key(self, row: int) -> bytes:
        start = int(self.rows[row, Interned.BODY])
        return self.keys[start : start + int(self.rows[row, Interned.BODY_BYTES])].tobytes()


def key_weights(scan: LogScan, *, kept: Int64s, end_offset: int) -> KeyWeights:
    """Weigh the records of a scanned log.

    Those live whose offsets are among ``kept`` (ascending), and all from ``end_offset`` on. Sizes are those
    in decompressed batches; end markers, batch headers and empty batches belong to no key.
    """
    weighing = _Weighing(scan.start_offset, end_offset, kept)
    for scanned in scan.segments:
        weighing.add_segment(scanned)
    tables = weighing.tables
    return KeyWeights(
        tables.rows[: tables.state[Weighed.ROWS]], tables.keys[: tables.state[Weighed.KEY_BYTES]]
    )


class _Weighing:
    def __init__(self, start_offset: int, end_offset: int, kept: Int64s) -> None:
        self.tables = WeightTables(
            state=np.zeros(Weighed.SIZE, np.int64),
            places=np.zeros(1 << 12, np.int64),
            rows=np.empty((1 << 11, WeightRow.WIDTH), np.int64),
            keys=np.empty(1 << 16, np.uint8),
        )
        self._start_offset, self._end_offset, self._kept = start_offset, end_offset, kept

    def add_segment(self, scanned: ScannedSegment) -> None:
        path = scanned.segment.path
        if not scanned.is_plain:
            for batch in scanned.batches():
                self._add_batch(batch, path)
            return
        data = scanned.read()
        array = np.frombuffer(data, np.uint8)
        position = self._add(array, 0, _NO_SIZES)
        while position < len(data):
            batch = scanned.batch_at(data, position)
            self._add_batch(batch, path)
            position = self._add(array, position + batch.size, _NO_SIZES)

    def _add(self, data: Bytes, position: int, sizes: Int64s) -> int:
        """Weigh ``data`` from ``position`` on; returns where it ends, or a batch is not for the kernel."""
        while True:
            stopped = weigh_batches(
                data,
                position,
                len(data),
                self._start_offset,
                self._end_offset,
                self._kept,
                sizes,
                self.tables,
            )
            position = int(self.tables.state[Weighed.POSITION])
            if stopped != Stop.GROW:
                return position
            self._grow(
                int.from_bytes(data[position + 57 : position + 61].tobytes(), "big"), len(data) - position
            )

    def _add_batch(self, batch: Batch, path: str) -> None:
        if batch.is_control or batch.last_offset < self._start_offset:
            return
        records = batch_records(batch, path=path, limits=_LIMITS)
        if records:
            plain = np.frombuffer(_plain(batch, records), np.uint8)
            done = self._add(plain, 0, _sizes(batch, records))
            assert done == len(plain)

    def _grow(self, records: int, size: int) -> None:
        state, places, rows, keys = self.tables
        used, key_bytes = int(state[Weighed.ROWS]), int(state[Weighed.KEY_BYTES])
        if used + records > min(len(rows), len(places) // 2):
            grown = np.empty((2 * max(len(rows), used + records), WeightRow.WIDTH), np.int64)
            grown[:used] = rows[:used]
            rows = grown
            places = np.zeros(1 << (2 * len(rows)).bit_length(), np.int64)
            rebuild_index(places, rows[:used])
        # No batch has more key bytes than bytes.
        wanted = key_bytes + min(size, _LIMITS.max_batch_bytes)
        if wanted > len(keys):
            bigger = np.empty(max(wanted, 2 * len(keys)), np.uint8)
            bigger[:key_bytes] = keys[:key_bytes]
            keys = bigger
        self.tables = WeightTables(state, places, rows, keys)


def _plain(batch: Batch, records: Sequence[Record]) -> bytes:
    """The batch as an uncompressed v2 batch of the same keys and times, whatever the records' sizes are."""
    base_offset, base_timestamp_ms = records[0].offset, records[0].timestamp_ms
    if batch.magic >= 2:
        base_offset = batch.base_offset
    header = replace(
        BatchHeader.of(batch), base_offset=base_offset, base_timestamp_ms=base_timestamp_ms, attributes=0
    )
    section = b"".join(
        encode_record(
            replace(record, value=None if record.value is None else b"", headers=()),
            base_offset=base_offset,
            base_timestamp_ms=base_timestamp_ms,
        )
        for record in records
    )
    return encode_batch(header, section, len(records))


def _sizes(batch: Batch, records: Sequence[Record]) -> Int64s:
    """What each record takes in its decompressed batch."""
    if batch.magic < 2:
        sizes = [
            _MESSAGE_BYTES[batch.magic] + len(item.key or b"") + len(item.value or b"") for item in records
        ]
    else:
        base = batch.base_timestamp_ms
        sizes = [
            len(encode_record(item, base_offset=batch.base_offset, base_timestamp_ms=base))
            for item in records
        ]
    return np.array(sizes, np.int64)
