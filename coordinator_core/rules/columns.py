"""Columns of a run's tables, read when a rule asks for them, and numbers that stand for names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.errors import DamagedInputError
from coordinator_core.runs.read import Run
from coordinator_core.runs.rows import BLOCK_ROWS, SMALL_ROWS, Bounded, ImpossibleRowError
from coordinator_core.runs.schemas import TABLES

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OFFSET_KEY = ("group_id", "topic", "partition")
_NAMES = frozenset({"group_id", "topic", "topic_id", "member_id"})
"""Text that repeats: kept as a dictionary and numbers."""


class Columns:
    """One table of a run; ``len`` is its number of rows."""

    def __init__(self, run: Run, table: str) -> None:
        self._run = run
        self.table = table
        self._arrays: dict[str, pa.Array] = {}
        self._numbers: dict[str, Int64s] = {}

    def __len__(self) -> int:
        return len(self.array("offsets_partition"))

    def load(self, *columns: str) -> None:
        """Read columns in one go."""
        wanted = [name for name in columns if name not in self._arrays]
        if not wanted:
            return
        bounded = Bounded(self._run.table_bytes(self.table))
        for is_large, block_rows in ((False, SMALL_ROWS), (True, BLOCK_ROWS)):
            fields = [field for field in map(self.schema.field, wanted) if _is_large(field) is is_large]
            if not fields:
                continue
            target = pa.schema(map(_kept_as, fields))
            found = [bounded.take(path, rows) for path, rows in self._run.blocks(self.table, target, block_rows)]
            rows = pa.concat_tables([target.empty_table(), *found]).unify_dictionaries()
            for name in target.names:
                self._arrays[name] = rows[name].combine_chunks()

    def blocks_of(self, column: str) -> Iterator[Int64s]:
        """Values of a column of integers without nulls, which need not be in memory whole."""
        for _, rows in self._run.blocks(self.table, pa.schema([self.schema.field(column)]), SMALL_ROWS):
            yield rows[column].to_numpy()

    def each(self, column: str, measure: Callable[[pa.Array], Int64s]) -> Int64s:
        """``measure`` (int64, one a value) of a column of text that need not be in memory whole."""
        blocks = self._run.blocks(self.table, pa.schema([self.schema.field(column)]))
        return np.concatenate([np.empty(0, np.int64), *(measure(rows[column].combine_chunks()) for _, rows in blocks)])

    def array(self, column: str) -> pa.Array:
        """Names as a dictionary array, other columns as they are declared."""
        self.load(column)
        return self._arrays[column]

    def numbers(self, column: str, null: int = -1) -> Int64s:
        """Values of a column of integers (or of true and false), ``null`` where there is none."""
        if column not in self._numbers or null != -1:
            array = self.array(column).cast(pa.int64())
            filled = pc.fill_null(array, null) if array.null_count else array
            values: Int64s = filled.to_numpy(zero_copy_only=False)
            if null != -1:
                return values
            self._numbers[column] = values
        return self._numbers[column]

    def is_null(self, column: str) -> Bools:
        found: Bools = pc.is_null(self.array(column)).to_numpy(zero_copy_only=False)
        return found

    def equals(self, column: str, value: str) -> Bools:
        """Mask of the rows in which a column of text has this value."""
        found: Bools = pc.fill_null(pc.equal(self.array(column).cast(pa.string()), value), False).to_numpy(
            zero_copy_only=False
        )
        return found

    def lacks(self, column: str) -> Bools:
        """Mask of the rows in which a column of text is null or empty."""
        found: Bools = pc.equal(pc.fill_null(self.array(column), ""), "").to_numpy(zero_copy_only=False)
        return found

    def rows(self, where: Bools | Int64s, *columns: str, **more: Int64s | pa.Array | int) -> pa.Table:
        """Record coordinates and ``columns`` of the rows ``where``: a mask (bool, one a row) or row numbers (int64).

        Names are dictionary arrays, as they are kept. ``more`` are columns with a value for each of these rows, or one
        for all.
        """
        index = np.flatnonzero(where) if where.dtype == np.bool_ else where
        taken = pa.array(index)
        names = dict.fromkeys(["offsets_partition", *self._record_offset, *columns])
        self.load(*names)
        found = {name: self.array(name).take(taken) for name in names}
        for name, values in more.items():
            found[name] = pa.array(np.full(len(index), values)) if isinstance(values, int) else pa.array(values)
        return pa.table(found)

    def rows_of(self, wanted: Int64s, keys: Int64s) -> Int64s:
        """:func:`lookup` in ``keys``, one for each row of this table.

        :class:`DamagedInputError` when two rows have the same.
        """
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        again = order[1:][ordered[1:] == ordered[:-1]]
        if len(again):
            row = int(again.min())
            raise self.impossible(row, "another row has the same key")
        return lookup(wanted, keys, order)

    def impossible(self, row: int, reason: str) -> DamagedInputError:
        """The error for a row (from 0) that contradicts others."""
        return self._run.impossible(ImpossibleRowError(self.table, row, reason))

    @property
    def _record_offset(self) -> list[str]:
        return ["record_offset"] if "record_offset" in self.schema.names else []

    @property
    def schema(self) -> pa.Schema:
        """The columns as they are declared."""
        return TABLES[self.table].arrow


def _is_large(field: pa.Field) -> bool:
    """Whether a column may unpack to much: text that is no name, lists."""
    return field.name not in _NAMES and not (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type))


def _kept_as(field: pa.Field) -> pa.Field:
    kind = pa.dictionary(pa.int32(), pa.string()) if field.name in _NAMES else field.type
    return pa.field(field.name, kind, nullable=field.nullable)


def coded(*columns: pa.Array) -> tuple[list[Int64s], pa.Array]:
    """Numbers of the texts of each of ``columns`` (int64, one a row, -1 for null), and the texts by number."""
    dictionaries = [
        array if pa.types.is_dictionary(array.type) else array.cast(pa.string()).dictionary_encode()
        for array in columns
    ]
    texts = pa.concat_arrays([pa.array([], pa.string()), *(item.dictionary.cast(pa.string()) for item in dictionaries)])
    vocabulary = pc.unique(texts)
    numbers = []
    for item in dictionaries:
        of_entry = pc.index_in(item.dictionary.cast(pa.string()), value_set=vocabulary).to_numpy(zero_copy_only=False)
        index = item.indices.fill_null(-1) if item.indices.null_count else item.indices
        numbers.append(np.append(of_entry, -1).astype(np.int64)[index.to_numpy(zero_copy_only=False)])
    return numbers, vocabulary


def combined(*parts: Int64s) -> Int64s:
    """One number for each row: the same for rows with the same numbers in all ``parts``."""
    return combined_pair(parts, [part[:0] for part in parts])[0]


def combined_pair(left: Sequence[Int64s], right: Sequence[Int64s]) -> tuple[Int64s, Int64s]:
    """:func:`combined` of two tables with the same parts, comparable with each other."""
    keys = [np.zeros(len(side[0]), np.int64) for side in (left, right)]
    size = 1
    for pair in zip(left, right, strict=True):
        # A log may have partitions below 0, though no broker takes a commit for one.
        least = min(int(part.min(initial=-1)) for part in pair)
        width = max(int(part.max(initial=-1)) for part in pair) - least + 1
        if size * width >= 1 << 62:
            _, both = np.unique(np.concatenate(keys), return_inverse=True)
            keys = [both[: len(left[0])], both[len(left[0]) :]]
            size = int(both.max(initial=0)) + 1
        for key, part in zip(keys, pair, strict=True):
            key *= width
            key += part - least
        size *= width
    return keys[0], keys[1]


class Partners(NamedTuple):
    """Rows of two tables with the same key: ``now`` and ``before`` are parallel (int64), ``added`` and ``gone`` are the
    rows without a partner."""

    now: Int64s
    before: Int64s
    added: Int64s
    gone: Int64s


def partners(now: Columns, before: Columns, *key: str) -> Partners:
    """Rows of the same offsets partition and ``key``, which no table has twice, in the tables of two runs."""
    parts = []
    for name in ("offsets_partition", *key):
        if name in _NAMES:
            parts.append(coded(now.array(name), before.array(name))[0])
        else:
            parts.append([now.numbers(name), before.numbers(name)])
    here, there = combined_pair([part[0] for part in parts], [part[1] for part in parts])
    at = before.rows_of(here, there)
    rows = np.flatnonzero(at >= 0)
    gone = np.ones(len(before), np.bool_)
    gone[at[rows]] = False
    if np.count_nonzero(~gone) < len(rows):
        now.rows_of(here, here)
    return Partners(rows, at[rows], np.flatnonzero(at < 0), np.flatnonzero(gone))


def is_in(values: Int64s, others: Int64s) -> Bools:
    """Mask of ``values`` that are among ``others``. NumPy's function takes up to ten times as long."""
    found: Bools = pc.is_in(pa.array(values), value_set=pa.array(others)).to_numpy(zero_copy_only=False)
    return found


def lookup(wanted: Int64s, keys: Int64s, order: Int64s | None = None) -> Int64s:
    """Row of each of ``wanted`` in ``keys``, which has no number twice; -1 for none. ``order`` sorts ``keys``."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    if order is None:
        order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys, wanted, sorter=order)
    found = order[np.minimum(place, len(keys) - 1)]
    return np.where(keys[found] == wanted, found, -1)
