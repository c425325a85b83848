"""The digest of the rows of the table ``history``: the same whoever wrote them, in however many files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from coordinator_core.history.parts import Part
from coordinator_core.history.table import HISTORY
from coordinator_core.runs.state_hash import BlockDigest, Chunk, Hash, feed

_BLOCK_ROWS = 1 << 17

PartDigests = Mapping[tuple[int, int], str]
"""Digest of the rows by offsets partition and part of it; parts without rows have none."""


class PartDigest(BlockDigest):
    """The digest of the rows of one part of an offsets partition, of the schema :data:`HISTORY`.

    Of a block: of the names in a column each once, in the order in which they come first, then its number in each row.
    """

    def __init__(self) -> None:
        super().__init__("history 1\n", HISTORY.names, _BLOCK_ROWS)
        self.rows = 0

    def update(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        super().update(rows)

    def _feed(self, name: str, chunks: Sequence[Chunk]) -> None:
        self._hash.update(f"{name} {self._rows}\n".encode())
        if pa.types.is_dictionary(HISTORY.field(name).type):
            _feed_names(self._hash, chunks)
        else:
            feed(self._hash, chunks)


class HistoryDigest:
    """The digest of a whole table, of rows as :func:`~coordinator_core.history.parts.history_parts` gives them."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], PartDigest] = {}

    def update(self, part: Part) -> None:
        self._parts.setdefault((part.offsets_partition, part.number), PartDigest()).update(part.table)

    def hexdigest(self) -> str:
        return table_digest({place: digest.hexdigest() for place, digest in self._parts.items() if digest.rows})


def table_digest(parts: PartDigests) -> str:
    """The digest of a table, of those of its parts."""
    lines = (f"{partition} {number} {digest}\n" for (partition, number), digest in sorted(parts.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _feed_names(digest: Hash, chunks: Sequence[Chunk]) -> None:
    """Of a dictionary column: each distinct name as length and UTF-8 bytes, and by row its number, -1 for null."""
    numbers: dict[str, int] = {}
    codes = []
    for chunk in chunks:
        assert isinstance(chunk, pa.DictionaryArray)
        names = chunk.dictionary.to_pylist()
        own = chunk.indices.fill_null(len(names)).to_numpy()
        distinct, first = np.unique(own, return_index=True)
        known = np.full(len(names) + 1, -1, np.int32)
        for code in distinct[np.argsort(first)].tolist():
            if code < len(names):
                name = names[code]
                if name not in numbers:
                    data = name.encode()
                    digest.update(len(data).to_bytes(8, "little"))
                    digest.update(data)
                known[code] = numbers.setdefault(name, len(numbers))
        codes.append(known[own])
    digest.update(b"\xff" * 8)
    for numbered in codes:
        digest.update(np.ascontiguousarray(numbered, "<i4"))
