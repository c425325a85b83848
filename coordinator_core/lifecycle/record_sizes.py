"""Sizes of the records of each raw key of an offsets partition: in the log, and what of it lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from coordinator_core.kernels import SizeTable, add_record_sizes
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.kernels.layout import Stop
from coordinator_core.lifecycle.compact_scan import KeyRows, LogScan, ScannedSegment, decompressed
from coordinator_core.log.batch import batch_records
from coordinator_core.log.types import Batch, Record
from coordinator_core.log.writer import BatchHeader, encode_batch, encode_record

_NO_SIZES: Int64s = np.empty(0, np.int64)
_MESSAGE_BYTES = {0: 26, 1: 34}
"""Bytes of a message of format 0 or 1 besides its key and value."""


def key_sizes(scan: LogScan, *, kept: Int64s, end_offset: int) -> KeyRows:
    """Sizes of the records of a scanned log: rows of :class:`~coordinator_core.kernels.layout.RecordSizes`.

    Records live whose offsets are among ``kept`` (ascending), and all from ``end_offset`` on. Sizes are those in
    decompressed batches; end markers, batch headers and empty batches belong to no key.
    """
    table = SizeTable(kept, scan.start_offset, end_offset)

    def add(data: memoryview | bytes, position: int) -> tuple[int, int]:
        stopped, position = add_record_sizes(data, position, len(data), _NO_SIZES, table)
        return stopped, position

    def add_batch(scanned: ScannedSegment, batch: Batch) -> None:
        if batch.is_control or batch.last_offset < scan.start_offset:
            return
        unpacked = decompressed(batch)
        if unpacked is not None and add(unpacked, 0)[0] == Stop.END:
            return
        records = batch_records(batch, path=scanned.segment.path)
        if records:
            plain = _plain(batch, records)
            stopped, _ = add_record_sizes(plain, 0, len(plain), _sizes(batch, records), table)
            if stopped != Stop.END:
                raise scanned.damaged(batch.position, "bad_records", "offsets do not fit into a batch")

    for scanned in scan.segments:
        scanned.walk(add, add_batch)
    return KeyRows(table)


def _plain(batch: Batch, records: Sequence[Record]) -> bytes:
    """The batch as an uncompressed v2 batch of the same keys and times, with any sizes of records."""
    base_offset, base_timestamp_ms = records[0].offset, records[0].timestamp_ms
    if batch.magic >= 2:
        base_offset = batch.base_offset
    header = replace(BatchHeader.of(batch), base_offset=base_offset, base_timestamp_ms=base_timestamp_ms, attributes=0)
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
    """Bytes of each record in its decompressed batch."""
    if batch.magic < 2:
        sizes = [_MESSAGE_BYTES[batch.magic] + len(item.key or b"") + len(item.value or b"") for item in records]
    else:
        base = batch.base_timestamp_ms
        sizes = [len(encode_record(item, base_offset=batch.base_offset, base_timestamp_ms=base)) for item in records]
    return np.array(sizes, np.int64)
