"""Committed offsets as rows, made block by block of the values that stand in the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.fold.arrow import column
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.commit_values import decoded
from coordinator_core.merge.numbering import NameNumbers, OffsetKeyNumbers
from coordinator_core.merge.packed import BLOCK_BYTES, cuts
from coordinator_core.merge.schema import BLOCK_ROWS, OFFSETS
from coordinator_core.merge.values import ValueStore
from coordinator_core.releases import Profile

_ROWS = 1 << 17
"""Rows that are made together where they are not asked for by number."""


class GatheredRows:
    """Rows (``merge.schema.OffsetRows``) of offset keys whose values are at ``places`` of a store."""

    def __init__(
        self,
        offset_keys: Int64s,
        places: Int64s,
        values: ValueStore,
        numbers: OffsetKeyNumbers,
        groups: NameNumbers,
        topics: NameNumbers,
        profile: Profile,
    ) -> None:
        self._values = values
        self._numbers = numbers
        self._groups = groups
        self._topics = topics
        self._minus_one_expires = profile.minus_one_expires
        order = self._order(offset_keys, values.numbers("record_offset", places))
        self.offset_keys = offset_keys[order]
        self._places = places[order]

    @property
    def num_rows(self) -> int:
        return len(self.offset_keys)

    def blocks(self, block_rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
        """See ``merge.schema.RowBlocks``."""
        return self._blocks(block_rows, OFFSETS.names)

    def in_any_order(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """See ``merge.schema.OffsetRows``."""
        return self._blocks(_ROWS, columns)

    def _blocks(self, block_rows: int, columns: Sequence[str]) -> Iterator[pa.Table]:
        make = partial(self._block, self._groups.texts(), self._topics.texts(), pa.schema(map(OFFSETS.field, columns)))
        made: deque[Future[pa.Table]] = deque()
        with ThreadPoolExecutor(2) as threads:
            for rows, size in self._cut(block_rows):
                values = self._values.take(self._places[rows])
                made.append(threads.submit(make, self.offset_keys[rows], values))
                # Two side by side, unless they are large.
                while len(made) > (size <= BLOCK_BYTES // 2):
                    yield made.popleft().result()
            while made:
                yield made.popleft().result()

    def _cut(self, block_rows: int) -> Iterator[tuple[slice, int]]:
        """Ranges of rows that are made at once, and bytes of the texts that they name."""
        group_sizes, topic_sizes = self._groups.sizes(), self._topics.sizes()
        for start in range(0, len(self.offset_keys), block_rows):
            offset_keys, places = (rows[start : start + block_rows] for rows in (self.offset_keys, self._places))
            sizes = group_sizes[self._numbers.groups(offset_keys)] + topic_sizes[self._numbers.topics(offset_keys)]
            sizes += self._values.sizes(places)
            for rows in cuts(sizes):
                yield slice(start + rows.start, start + rows.stop), int(sizes[rows].sum())

    def _block(
        self, groups: pa.Array, topics: pa.Array, schema: pa.Schema, offset_keys: Int64s, values: pa.Table
    ) -> pa.Table:
        fields = decoded(values["value"].combine_chunks(), schema.names)
        expiry = fields.get("expire_timestamp_ms")
        if expiry is not None and not self._minus_one_expires and expiry.null_count < len(expiry):
            fields["expire_timestamp_ms"] = pc.if_else(pc.equal(expiry, -1), None, expiry)
        made = {
            "group_id": groups.take(column(self._numbers.groups(offset_keys))),
            "topic": topics.take(column(self._numbers.topics(offset_keys))),
            "partition": column(self._numbers.partitions(offset_keys)),
            **{name: values[name] for name in values.column_names if name != "value"},
            **fields,
        }
        return pa.Table.from_arrays([made[field.name].cast(field.type) for field in schema], schema=schema)

    def _order(self, offset_keys: Int64s, record_offsets: Int64s) -> Int64s:
        order = np.argsort(record_offsets, kind="stable")
        if (np.diff(record_offsets[order]) > 0).all():
            return order
        # In a damaged log offsets repeat, in transactions of several producers too; the names decide then.
        groups = self._groups.ranks()[self._numbers.groups(offset_keys)]
        topics = self._topics.ranks()[self._numbers.topics(offset_keys)]
        return np.lexsort((self._numbers.partitions(offset_keys), topics, groups, record_offsets))
