"""Rows framed as record batches of format 2, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.ingest.rows import LOG_APPEND_TIME, Int64s, Rows
from coordinator_core.log.layout import LOG_APPEND_TIME_BIT
from coordinator_core.log.writer import BatchHeader, encode_batch

_DELTA_BITS = 31
_NO_HEADERS = b"\0"


def window(offset: int) -> int:
    """Offsets of the same window are near enough to each other for one batch, and for one segment."""
    return offset >> _DELTA_BITS


def frame(rows: Rows) -> Iterator[tuple[int, bytes]]:
    """Batches without a producer around ``rows``, whose offsets ascend; each with its base offset.

    All records of a batch with LogAppendTime have the same timestamp, so there is a batch for each.
    """
    by_append = rows.timestamp_type == LOG_APPEND_TIME
    marks = np.stack([by_append, np.where(by_append, rows.timestamp_ms, 0), rows.offset >> _DELTA_BITS])
    cuts = np.flatnonzero((marks[:, 1:] != marks[:, :-1]).any(axis=0)) + 1
    bounds = [0, *cuts.tolist(), len(rows)]
    for start, stop in pairwise(bounds):
        yield int(rows.offset[start]), _batch(rows.take(slice(start, stop)))


def _batch(rows: Rows) -> bytes:
    base_offset, base_timestamp = int(rows.offset[0]), int(rows.timestamp_ms[0])
    header = BatchHeader(
        base_offset,
        int(rows.offset[-1]),
        LOG_APPEND_TIME_BIT if rows.timestamp_type[0] == LOG_APPEND_TIME else 0,
        base_timestamp,
        int(rows.timestamp_ms.max()),
    )
    body = _joined(
        pa.array([b"\0"] * len(rows), pa.large_binary()),
        _varints(rows.timestamp_ms - base_timestamp),
        _varints(rows.offset - base_offset),
        *_sized(rows.key),
        *_sized(rows.value),
        _headers(rows),
    )
    section = _joined(_varints(_lengths(body)), body)
    return encode_batch(header, _bytes_of(section), len(rows))


def _sized(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Length, -1 for null, and bytes."""
    return _varints(_lengths(column)), pc.fill_null(column, b"")


def _lengths(column: pa.Array) -> Int64s:
    return np.asarray(pc.fill_null(pc.binary_length(column), -1).cast(pa.int64()))


def _headers(rows: Rows) -> pa.Array:
    listed = [None] * len(rows) if rows.headers is None else rows.headers.to_pylist()
    return pa.array([_encoded(headers) if headers else _NO_HEADERS for headers in listed], pa.large_binary())


def _encoded(headers: list[Mapping[str, Any]]) -> bytes:
    parts = [part for each in headers for part in ((each["key"] or "").encode(), each["value"])]
    sized = _joined(*_sized(pa.array(parts, pa.large_binary())))
    return _bytes_of(_varints(np.array([len(headers)]))) + _bytes_of(sized)


def _joined(*columns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))


def _varints(values: Int64s) -> pa.Array:
    """Zigzag varints, a string of bytes each."""
    words = ((values << 1) ^ (values >> 63)).astype(np.uint64)
    septets: list[npt.NDArray[np.uint8]] = []
    present = [np.ones(len(values), bool)]
    while present[-1].any():
        septets.append((words & np.uint64(0x7F)).astype(np.uint8))
        words = words >> np.uint64(7)
        present.append(words > 0)
    there = np.stack(present[:-1], axis=1)
    more = np.stack(present[1:], axis=1)
    data = np.stack(septets, axis=1) | (more.astype(np.uint8) << 7)
    ends = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(data[there])]
    )


def _bytes_of(column: pa.Array) -> bytes:
    """The values, one behind the other."""
    return b"".join(column.to_pylist())
