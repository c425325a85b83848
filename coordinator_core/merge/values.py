"""Values of commits, kept in the tables of the folds that they came in until something asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from coordinator_core.fold.arrow import column, joined
from coordinator_core.fold.schema import VALUES
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.packed import Packed, cuts

NOWHERE = -1
_ROW_BITS = 32
_ROW_MASK = (1 << _ROW_BITS) - 1
_NUMBERS = [name for name in VALUES.names if name != "value"]


class ValueStore:
    """A *place* is a value in the store: source and row in one number. ``bytes`` is the size of all values."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._values: list[Packed] = []
        self._ordering_offsets: list[Int64s] = []
        self.rows = self.bytes = 0

    def state(self) -> list[pa.Table]:
        """Tables from which :meth:`load` makes the same store."""
        return [self._with_values(source, self._values[source].array) for source in range(len(self._tables))]

    def load(self, state: list[pa.Table]) -> None:
        for table in state:
            self.add(table)

    def add(self, table: pa.Table) -> int:
        """Keep the rows of a table with the columns ``VALUES``; returns the place of the first."""
        values = Packed(joined(table["value"]))
        self._tables.append(table.select(_NUMBERS))
        self._values.append(values)
        self._ordering_offsets.append(table["ordering_offset"].to_numpy())
        self.rows += table.num_rows
        self.bytes += int(values.lengths.sum())
        return (len(self._tables) - 1) << _ROW_BITS

    def ordering_offset(self, place: int) -> int:
        return int(self._ordering_offsets[place >> _ROW_BITS][place & _ROW_MASK])

    def numbers(self, name: str, places: Int64s) -> Int64s:
        """Column ``name`` (int64) of the values at ``places``, in their order."""
        out = np.empty(len(places), np.int64)
        for source, rows, positions in self._by_source(places):
            out[positions] = self._tables[source][name].to_numpy()[rows]
        return out

    def sizes(self, places: Int64s) -> Int64s:
        """Bytes of the values at ``places``."""
        out = np.empty(len(places), np.int64)
        for source, rows, positions in self._by_source(places):
            out[positions] = self._values[source].lengths[rows]
        return out

    def take(self, places: Int64s) -> pa.Table:
        """The values at ``places``, as :data:`VALUES`."""
        found, order = [VALUES.empty_table()], [np.empty(0, np.int64)]
        for source, rows, positions in self._by_source(places):
            found.append(self._with_values(source, self._values[source].array, column(rows)))
            order.append(positions)
        values, positions = pa.concat_tables(found), np.concatenate(order)
        if (positions[1:] < positions[:-1]).any():
            values = values.combine_chunks().take(column(inverse(positions)))
        return values

    def _with_values(self, source: int, values: pa.Array, rows: pa.Array | None = None) -> pa.Table:
        """The rows of a source, all or some of them, as :data:`VALUES`."""
        table = self._tables[source]
        if rows is not None:
            table, values = table.take(rows), values.take(rows)
        place = VALUES.get_field_index("value")
        return table.add_column(place, VALUES.field(place), values)

    def _by_source(self, places: Int64s) -> Iterator[tuple[int, Int64s, Int64s]]:
        """Sources, the rows of theirs that are at ``places``, and the positions of these places."""
        sources, rows = places >> _ROW_BITS, places & _ROW_MASK
        order = self._by_table(sources)
        bounds = np.searchsorted(sources[order], np.arange(len(self._tables) + 1))
        for source in np.flatnonzero(np.diff(bounds)).tolist():
            positions = order[bounds[source] : bounds[source + 1]]
            yield source, rows[positions], positions

    def _by_table(self, sources: Int64s) -> Int64s:
        # Numbers of two bytes are sorted in one pass.
        return np.argsort(sources.astype(np.min_scalar_type(len(self._tables))), kind="stable")

    def compact(self, places: Int64s) -> Int64s:
        """Keep the values at ``places`` only; returns their new places."""
        # Table by table, so that they need not be put in another order.
        order = self._by_table(places >> _ROW_BITS)
        kept = ValueStore()
        found = np.empty(len(places), np.int64)
        for rows in cuts(self.sizes(places[order])):
            first = kept.add(self.take(places[order[rows]]).combine_chunks())
            found[order[rows]] = first + np.arange(rows.stop - rows.start)
        self._tables, self._values, self._ordering_offsets = kept._tables, kept._values, kept._ordering_offsets
        self.rows, self.bytes = kept.rows, kept.bytes
        return found


def inverse(order: Int64s) -> Int64s:
    """The permutation that undoes ``order`` (int64)."""
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order))
    return found
