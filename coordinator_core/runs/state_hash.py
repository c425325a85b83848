"""The state hash: one number that is equal exactly when two replays found the same state.

It depends on nothing but the rows of the state tables: not on files, row order, engine, machine, snapshot
paths, the time of the run, or how the log was cut into segments.  Scheme (version 1):

1. For each state table and each offsets partition that has rows in it: the rows in the order of the table's
   key, in blocks of ``BLOCK_ROWS``; of each block, column by column in schema order (columns in ``not_state``
   left out), the canonical bytes of :func:`_feed`; SHA-256 of all that is the *digest* of (table, partition).
2. The SHA-256 of the lines ``<table> <offsets partition> <digest>`` in sorted order is the state hash.

The unit is an offsets partition, so that the task which merges one can hash it; a later run that finds a partition
unchanged can reuse its digests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.fold.arrow import column
from coordinator_core.merge.packed import Packed
from coordinator_core.runs.schemas import TABLES

STATE_HASH_VERSION = 1
BLOCK_ROWS = 1 << 20

COORDINATES = ("offsets_partition", "record_offset")

Chunk: TypeAlias = "pa.Array | Packed"
"""A part of a column that waits for the rest of its block."""

TableDigests = dict[tuple[str, int], str]
"""Digest of (table name, offsets partition); tables without rows in a partition have none."""


class Hash(Protocol):
    def update(self, data: Any, /) -> None: ...


def canonical_rows(name: str, rows: pa.Table) -> pa.Table:
    """``rows`` as table ``name`` declares them, in the order of its key: nulls last, text by UTF-8 bytes."""
    table = TABLES[name]
    typed = rows.select(table.arrow.names).cast(table.arrow)
    if typed.num_rows < 2:
        return typed
    if table.key[:2] == COORDINATES:
        # These are unique, unless offsets repeat in a damaged log.  Comparing text is slow.
        partitions = typed.column("offsets_partition").to_numpy()
        offsets = typed.column("record_offset").to_numpy()
        if is_ascending(partitions, offsets):
            return typed
        order = np.lexsort((offsets, partitions))
        if is_ascending(partitions[order], offsets[order]):
            return typed.take(column(order))
    return typed.take(pc.sort_indices(typed, sort_keys=[(name, "ascending") for name in table.key]))


def is_ascending(partitions: Any, offsets: Any) -> bool:
    """Whether places (int32 and int64, parallel) follow each other, none twice."""
    step, within = np.diff(partitions), np.diff(offsets)
    return bool(((step > 0) | ((step == 0) & (within > 0))).all())


def digests_of(name: str, canonical: pa.Table) -> TableDigests:
    """Digests of the :func:`canonical_rows` of one table, which may belong to any number of partitions."""
    if not canonical.num_rows:
        return {}
    partitions, starts = np.unique(canonical.column("offsets_partition").to_numpy(), return_index=True)
    ends = [*starts[1:], canonical.num_rows]
    digests = {}
    for partition, start, end in zip(partitions.tolist(), starts, ends, strict=True):
        digest = PartitionDigest(name, end - start)
        digest.update(canonical.slice(start, end - start))
        digests[name, partition] = digest.hexdigest()
    return digests


def all_digests(tables: Mapping[str, pa.Table]) -> TableDigests:
    """Digests of every table in ``tables`` that ``TABLES`` knows."""
    digests: TableDigests = {}
    for name, rows in tables.items():
        if name in TABLES:
            digests |= digests_of(name, canonical_rows(name, rows))
    return digests


class BlockDigest:
    """The SHA-256 of a table's columns ``names``, in the making: ``head``, then blocks of ``block_rows`` rows, a column
    at a time."""

    def __init__(self, head: str, names: Iterable[str], block_rows: int) -> None:
        self._hash = hashlib.sha256(head.encode())
        self._waiting: dict[str, list[Chunk]] = {name: [] for name in names}
        self._block_rows = block_rows
        self._rows = 0

    def update(self, rows: pa.Table) -> None:
        """Take in the next rows in canonical order."""
        while rows.num_rows:
            taken = rows.slice(0, self._block_rows - self._rows)
            rows = rows.slice(taken.num_rows)
            for name, chunks in self._waiting.items():
                chunks += map(kept, taken.column(name).chunks)
            self._rows += taken.num_rows
            if self._rows == self._block_rows:
                self._take_block()

    def hexdigest(self) -> str:
        """The digest of all rows; no others can be taken in any more."""
        if self._rows:
            self._take_block()
        return self._hash.hexdigest()

    def _take_block(self) -> None:
        for name, chunks in self._waiting.items():
            self._feed(name, chunks)
            chunks.clear()
        self._rows = 0

    def _feed(self, name: str, chunks: Sequence[Chunk]) -> None:
        """Take in a column of a block."""
        self._hash.update(f"{name}\n".encode())
        feed(self._hash, chunks)


class PartitionDigest(BlockDigest):
    """The digest of a table's rows of one offsets partition."""

    def __init__(self, name: str, num_rows: int) -> None:
        table = TABLES[name]
        names = [field for field in table.arrow.names if field not in table.not_state]
        super().__init__(f"{STATE_HASH_VERSION} {name} {num_rows}\n", names, BLOCK_ROWS)


def combined_hash(digests: TableDigests, names: Iterable[str]) -> str:
    """Hash over the digests of the tables ``names``: the entry of a table in the manifest."""
    chosen = set(names)
    lines = sorted(f"{name} {part} {digest}\n" for (name, part), digest in digests.items() if name in chosen)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def state_hash(digests: TableDigests) -> str:
    """The state hash, of the digests of all offsets partitions."""
    return combined_hash(digests, (name for name, table in TABLES.items() if table.is_state))


def kept(values: pa.Array) -> Chunk:
    """A part of a column that is not digested yet, small where its texts are large."""
    return Packed(values) if _is_text(values.type) else values


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _array(chunk: Chunk) -> pa.Array:
    return chunk.array if isinstance(chunk, Packed) else chunk


def feed(digest: Hash, chunks: Sequence[Chunk]) -> None:
    """Canonical bytes of the array that ``chunks`` (not none) make: one byte 0 (no nulls) or 1 (a validity byte per
    value follows), then numbers as little-endian of their width; text and bytes as int64 lengths and the joined data;
    lists as int64 lengths and the canonical bytes of the joined elements; structs as those of their fields.  Nulls are
    zero or empty."""
    if any(chunk.null_count for chunk in chunks):
        digest.update(b"\x01")
        for chunk in chunks:
            digest.update(_uint8(_array(chunk).is_valid()))
    else:
        digest.update(b"\x00")
    kind = _array(chunks[0]).type
    if _is_text(kind):
        for chunk in chunks:
            digest.update(_int64(pc.binary_length(_array(chunk))))
        for chunk in chunks:
            digest.update(_joined(_array(chunk)))
        return
    arrays = list(map(_array, chunks))
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            feed(digest, [pc.struct_field(values, [index]) for values in arrays])
    elif pa.types.is_list(kind):
        for values in arrays:
            digest.update(_int64(pc.list_value_length(values)))
        feed(digest, [pc.list_flatten(values) for values in arrays])
    elif pa.types.is_boolean(kind):
        for values in arrays:
            digest.update(_uint8(values))
    else:
        for values in arrays:
            numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
            digest.update(np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)))


def _uint8(values: pa.Array) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(values.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False))


def _int64(values: pa.Array) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), dtype="<i8")


def _joined(values: pa.Array) -> memoryview:
    """The bytes of all values, one after the other."""
    values = values.cast(pa.binary())
    if values.null_count:
        values = values.fill_null(b"")
    _, offsets_buffer, data = values.buffers()
    if data is None or len(values) == 0:
        return memoryview(b"")
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)
    return memoryview(data)[offsets[values.offset] : offsets[values.offset + len(values)]]
