"""The newest records of a log by shares of its keys: files that one task writes for each other's share.

A key belongs to one of :data:`BUCKETS`, by a hash of what follows its record type, so that the records of a KIP-848
group or member (``compact_plan``) are together. A share is some buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from zlib import crc32

import numpy as np
import pyarrow as pa

from coordinator_core import storage
from coordinator_core.file_ranges import FileRange
from coordinator_core.kernels import NewestTable, merge_stored_newest
from coordinator_core.kernels.arrays import Int64s, dtype
from coordinator_core.lifecycle.compact_plan import Survivors
from coordinator_core.lifecycle.compact_scan import MAX_RECORDS, NewestRecords

BUCKETS = 256
_TYPE_BYTES = 2
_ROW = dtype("Newest")
_SCHEMA = pa.schema([*((str(name), pa.int64()) for name in _ROW.names or ()), ("key", pa.large_binary())])
_SURVIVOR = np.dtype([("offset", "<i8"), ("is_tombstone", "u1")])


@dataclass(frozen=True)
class NewestFile:
    """The newest records of some segments: record offsets without a key, then a part for each bucket."""

    path: str
    ends: tuple[int, ...]
    """End of the offsets and of each bucket, in bytes."""

    @property
    def unkeyed(self) -> FileRange:
        return FileRange(self.path, 0, self.ends[0])

    def of_buckets(self, buckets: range) -> FileRange:
        begin = self.ends[buckets.start]
        return FileRange(self.path, begin, self.ends[buckets.stop] - begin)


def store_newest(newest: NewestRecords, path: str) -> NewestFile:
    """Write ``newest`` to a file at ``path``, a path or URI."""
    keys = newest.keys()
    buckets = _buckets_of(keys)
    order = np.argsort(buckets, kind="stable")
    rows = newest.rows[order]
    bounds = np.searchsorted(buckets[order], np.arange(BUCKETS + 1))
    table = pa.table([*(rows[name] for name in _ROW.names or ()), keys.take(pa.array(order))], schema=_SCHEMA)
    with storage.output_file(path) as sink:
        sink.write(newest.unkeyed.tobytes())
        ends = [sink.tell()]
        for bucket in range(BUCKETS):
            first, stop = int(bounds[bucket]), int(bounds[bucket + 1])
            if first < stop:
                with pa.ipc.new_stream(sink, _SCHEMA) as writer:
                    writer.write_table(table.slice(first, stop - first))
            ends.append(sink.tell())
    return NewestFile(path, tuple(ends))


def _buckets_of(keys: pa.Array) -> Int64s:
    ends, data = _bytes_of(keys)
    bounds = ends.tolist()
    hashes = (crc32(data[start + _TYPE_BYTES : stop]) for start, stop in pairwise(bounds))
    return np.fromiter(hashes, np.int64, len(keys)) % BUCKETS


def _bytes_of(keys: pa.Array) -> tuple[Int64s, memoryview]:
    """Bounds of the keys in the bytes that follow."""
    _, ends, data = keys.buffers()
    bounds = np.frombuffer(ends, np.int64)[keys.offset : keys.offset + len(keys) + 1]
    return bounds, memoryview(b"" if data is None else data).cast("B")


def merged_newest(places: Iterable[FileRange], unkeyed: Iterable[FileRange]) -> NewestRecords:
    """The newest records of a share of the keys; ``places`` hold the keys in log order, ``unkeyed`` the record
    offsets of records without one."""
    table = NewestTable(MAX_RECORDS)
    for place in places:
        for batch in _batches_in(place):
            # The kernel follows the bounds of the keys.
            batch.validate(full=True)
            rows = np.empty(batch.num_rows, _ROW)
            for name in _ROW.names or ():
                rows[name] = batch.column(name).to_numpy()
            ends, data = _bytes_of(batch.column("key"))
            merge_stored_newest(rows, data, ends, table)
    newest = NewestRecords(table)
    newest.unkeyed = np.concatenate([newest.unkeyed, *(np.frombuffer(place.read(), np.int64) for place in unkeyed)])
    return newest


def _batches_in(place: FileRange) -> Iterator[pa.RecordBatch]:
    source = pa.BufferReader(place.read())
    while source.tell() < place.size:
        with pa.ipc.open_stream(source) as reader:
            yield from reader


@dataclass(frozen=True)
class SurvivorsFile:
    """Records of a share of the keys that stay, by record offset."""

    path: str
    bounds: tuple[int, ...]
    """Number of records before each of the bounds that were asked for, and of all."""

    def between(self, number: int) -> FileRange:
        """Those from one of the bounds to the next."""
        begin, end = (_SURVIVOR.itemsize * bound for bound in self.bounds[number : number + 2])
        return FileRange(self.path, begin, end - begin)


def store_survivors(stays: Survivors, bounds: Int64s, path: str) -> SurvivorsFile:
    """Write ``stays`` to a file at ``path``. ``bounds``: record offsets, ascending, at which others begin to read."""
    rows = np.empty(len(stays.offsets), _SURVIVOR)
    rows["offset"], rows["is_tombstone"] = stays.offsets, stays.tombstones
    with storage.output_file(path) as sink:
        sink.write(rows.tobytes())
    return SurvivorsFile(path, (*np.searchsorted(stays.offsets, bounds).tolist(), len(rows)))


def read_survivors(places: Sequence[FileRange]) -> Survivors:
    """Records that stay of all shares of the keys."""
    rows = np.concatenate([np.empty(0, _SURVIVOR), *(np.frombuffer(place.read(), _SURVIVOR) for place in places)])
    # Of a record that several shares name, one may know that it is a tombstone.
    rows = rows[np.lexsort((1 - rows["is_tombstone"], rows["offset"]))]
    offsets = rows["offset"]
    is_first = np.append(True, offsets[1:] != offsets[:-1])[: len(rows)]
    return Survivors(offsets[is_first].astype(np.int64), rows["is_tombstone"][is_first].copy())
