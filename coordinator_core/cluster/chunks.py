"""Fetched bytes, split into whole batches and checked: nothing of a record is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from coordinator_core.kernels import gather_headers
from coordinator_core.kernels.layout import Stop
from coordinator_core.log.layout import HEADER_BYTES, LENGTH_END, BatchField
from coordinator_core.log.reader import parse_entry
from coordinator_core.log.types import Batch

_HEADER = np.dtype(
    {
        "names": ["base_offset", "length", "epoch", "last_offset_delta", "records"],
        "formats": [">i8", ">i4", ">i4", ">i4", ">i4"],
        "offsets": [
            int(field)
            for field in (
                BatchField.BASE_OFFSET,
                BatchField.LENGTH,
                BatchField.LEADER_EPOCH,
                BatchField.LAST_OFFSET_DELTA,
                BatchField.RECORD_COUNT,
            )
        ],
        "itemsize": HEADER_BYTES,
    }
)


class Column(IntEnum):
    """Columns of :attr:`Chunk.rows`. A legacy message may lack ``EPOCH`` and ``RECORDS``: -1."""

    BASE_OFFSET = 0
    NEXT_OFFSET = 1
    SIZE = 2
    EPOCH = 3
    RECORDS = 4


class DamagedBatchError(Exception):
    """The entry at ``byte_position`` is not a batch as it was written: its CRC, its length or its format."""

    def __init__(self, byte_position: int, record_offset: int | None, detail: str) -> None:
        super().__init__(detail)
        self.byte_position = byte_position
        self.record_offset = record_offset


@dataclass(frozen=True)
class Chunk:
    """Consecutive whole batches with valid CRCs: their bytes, and one row of ``rows`` (int64) a batch."""

    data: memoryview
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def next_offset(self) -> int:
        """The offset behind the last batch; only of a chunk that is not empty."""
        return int(self.rows[-1, Column.NEXT_OFFSET])

    def part(self, first: int, stop: int) -> Chunk:
        """Batches ``first`` to ``stop``, exclusive."""
        ends = np.cumsum(self.rows[:, Column.SIZE])
        begin = int(ends[first - 1]) if first else 0
        return Chunk(self.data[begin : int(ends[stop - 1]) if stop else 0], self.rows[first:stop])


def split(data: memoryview) -> Chunk:
    """The whole batches at the beginning of ``data``; an incomplete one at its end is left out.

    :class:`DamagedBatchError` at the first entry that is complete but not sound.
    """
    headers = np.empty(max(1, len(data) // HEADER_BYTES) * HEADER_BYTES, np.uint8)
    parts: list[NDArray[np.int64]] = []
    position = 0
    while position < len(data):
        stopped, position, count = gather_headers(data, position, len(data), headers)
        parts.append(_rows(headers[: count * HEADER_BYTES]))
        if stopped != Stop.UNUSUAL_BATCH:
            continue
        row = _legacy_row(data, position)
        if row is None:
            break
        parts.append(row)
        position += int(row[0, Column.SIZE])
    rows = np.concatenate(parts) if parts else np.empty((0, len(Column)), np.int64)
    # Offsets are outside the checksum.
    back = np.flatnonzero(rows[1:, Column.BASE_OFFSET] < rows[:-1, Column.NEXT_OFFSET])
    if len(back):
        place = int(rows[: back[0] + 1, Column.SIZE].sum())
        raise DamagedBatchError(place, int(rows[back[0] + 1, Column.BASE_OFFSET]), "its offset goes back")
    return Chunk(data[:position], rows)


def wanted(chunk: Chunk, start_offset: int, end_offset: int | None) -> Chunk:
    """The batches that reach beyond ``start_offset`` and begin below ``end_offset``."""
    rows = chunk.rows
    first = int(np.searchsorted(rows[:, Column.NEXT_OFFSET], start_offset, side="right"))
    stop = len(rows)
    if end_offset is not None:
        stop = int(np.searchsorted(rows[:, Column.BASE_OFFSET], end_offset, side="left"))
    return chunk.part(first, max(first, stop))


def _rows(headers: NDArray[np.uint8]) -> NDArray[np.int64]:
    table = np.frombuffer(headers, _HEADER)
    rows = np.empty((len(table), len(Column)), np.int64)
    rows[:, Column.BASE_OFFSET] = table["base_offset"]
    rows[:, Column.NEXT_OFFSET] = rows[:, Column.BASE_OFFSET] + table["last_offset_delta"] + 1
    rows[:, Column.SIZE] = table["length"].astype(np.int64) + LENGTH_END
    rows[:, Column.EPOCH] = table["epoch"]
    rows[:, Column.RECORDS] = table["records"]
    return rows


def _legacy_row(data: memoryview, position: int) -> NDArray[np.int64] | None:
    """A message of format 0 or 1, which topics written by old brokers still hold; ``None``: incomplete."""
    entry = parse_entry(data, position)
    if isinstance(entry, Batch):
        if entry.magic < 2 and entry.crc_valid:
            count = -1 if entry.record_count is None else entry.record_count
            return np.array([[entry.base_offset, entry.next_offset, entry.size, -1, count]], np.int64)
        raise DamagedBatchError(position, entry.base_offset, "its checksum does not match its bytes")
    if entry is None or entry.kind == "torn_tail":
        return None
    raise DamagedBatchError(position, None, entry.detail)
