"""Some offsets partitions of a run, or some groups of one, as if they were all of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.errors import DamagedInputError
from coordinator_core.runs.read import Run
from coordinator_core.runs.rows import SMALL_ROWS, ImpossibleRowError, blocks, declared
from coordinator_core.runs.schemas import TABLES

PART_ROWS = 3 << 19
"""Committed offsets whose columns rules and the report have in memory at a time, about; some 250 bytes each."""

_PARTITION, _GROUP = "offsets_partition", "group_id"


@dataclass(frozen=True)
class GroupRange:
    """Group ids from ``first`` on, in the order of their UTF-8; before ``end``, where that is set."""

    first: str
    end: str | None

    def holds(self, group_ids: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
        """Mask of the ids in the range."""
        found = pc.greater_equal(group_ids, self.first)
        return found if self.end is None else pc.and_(found, pc.less(group_ids, self.end))


@dataclass(frozen=True)
class RunPart(Run):
    """A run of which only rows of ``partitions`` are read, and only the row groups that may hold any.

    With ``groups`` these are one partition, and of tables with group ids only rows of these groups are read.
    """

    partitions: frozenset[int]
    groups: GroupRange | None = None
    _chosen: dict[str, list[tuple[int, pa.BooleanArray | None]]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, run: Run, partitions: Collection[int], groups: GroupRange | None = None) -> RunPart:
        wanted = frozenset(partitions)
        cut = {name: bounds for name, bounds in run.manifest["cut"].items() if int(name) in wanted}
        return cls(run.path, {**run.manifest, "cut": cut}, wanted, groups, _opened=run._opened)

    def impossible(self, error: ImpossibleRowError, *, is_whole: bool = False) -> DamagedInputError:
        return super().impossible(error, is_whole=False)

    def _blocks(
        self, name: str, path: str, parquet: pq.ParquetFile, schema: pa.Schema, block_rows: int
    ) -> Iterator[pa.Table]:
        if path not in self._chosen:
            self._chosen[path] = list(self._choose(name, path, parquet))
        # Rows are chosen once for all columns that are read one after the other.
        yield from blocks(path, parquet, schema, (), block_rows)
        for row_group, mask in self._chosen[path]:
            begin = 0
            for rows in blocks(path, parquet, schema, [row_group], block_rows):
                end = begin + rows.num_rows
                yield rows if mask is None else rows.filter(mask[begin:end])
                begin = end

    def _choose(self, name: str, path: str, parquet: pq.ParquetFile) -> Iterator[tuple[int, pa.BooleanArray | None]]:
        """Row groups with rows of this part, and which of their rows these are; ``None``: all."""
        wanted = pa.array(sorted(self.partitions), pa.int32())
        fields = [TABLES[name].arrow.field(_PARTITION)]
        if self.groups is not None and _GROUP in TABLES[name].arrow.names:
            fields.append(_numbered(name))
        declared(path, parquet.schema_arrow.empty_table(), pa.schema(fields))
        for number in range(parquet.num_row_groups):
            bounds = self._bounds(parquet, number)
            if bounds is not None and not any(bounds[0] <= one <= bounds[1] for one in self.partitions):
                continue
            if bounds is not None and bounds[0] == bounds[1] and len(fields) == 1:
                yield number, None
                continue
            found = []
            for rows in blocks(path, parquet, pa.schema(fields), [number], SMALL_ROWS):
                mask = pc.is_in(rows[_PARTITION], wanted)
                found.append(mask if len(fields) == 1 else pc.and_(mask, self._of_groups(rows[_GROUP])))
            mask = pa.chunked_array([chunk for one in found for chunk in one.chunks], pa.bool_()).combine_chunks()
            if pc.any(mask).as_py():
                yield number, None if pc.all(mask).as_py() else mask

    def _of_groups(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        assert self.groups is not None
        found = [self.groups.holds(ids.dictionary).take(ids.indices) for ids in column.chunks]
        return pa.chunked_array(found, pa.bool_())

    def _check_rows(self, name: str, read: int) -> None:
        """The manifest tells rows of the whole run."""

    @staticmethod
    def _bounds(parquet: pq.ParquetFile, row_group: int) -> tuple[int, int] | None:
        """Lowest and highest offsets partition of the rows, where that is known."""
        metadata = parquet.metadata
        column = parquet.schema_arrow.get_field_index(_PARTITION)
        # Columns before this one may be nested, and take several places in the file.
        place = next(
            number
            for number in range(column, metadata.num_columns)
            if metadata.schema.column(number).path == _PARTITION
        )
        found = metadata.row_group(row_group).column(place).statistics
        return (found.min, found.max) if found is not None and found.has_min_max else None


def _numbered(table: str) -> pa.Field:
    """Group ids as a dictionary and numbers."""
    return TABLES[table].arrow.field(_GROUP).with_type(pa.dictionary(pa.int32(), pa.string()))


def committed_by_group(run: Run) -> pa.Table:
    """Number of committed offsets (``rows``) by ``offsets_partition`` and ``group_id``, in the order of their first."""
    schema = pa.schema([TABLES["offsets"].arrow.field(_PARTITION), _numbered("offsets")])
    found = []
    for _, rows in run.blocks("offsets", schema, SMALL_ROWS):
        ids = rows[_GROUP].combine_chunks()
        partitions = rows[_PARTITION].to_numpy()
        for partition in np.unique(partitions).tolist():
            used, first, counts = np.unique(
                ids.indices.to_numpy()[partitions == partition], return_index=True, return_counts=True
            )
            order = np.argsort(first)
            texts = ids.dictionary.take(pa.array(used[order])).cast(pa.string())
            found.append(_counts(np.full(len(used), partition), texts, counts[order]))
    return _summed([_counts([], [], []), *found])


def _counts(partitions: object, group_ids: object, rows: object) -> pa.Table:
    return pa.table(
        {
            _PARTITION: pa.array(partitions, pa.int32()),
            _GROUP: pa.array(group_ids, pa.string()),
            "rows": pa.array(rows, pa.int64()),
        }
    )


def _summed(counts: Sequence[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(counts).group_by([_PARTITION, _GROUP], use_threads=False).aggregate([("rows", "sum")])
    return grouped.select([_PARTITION, _GROUP, "rows_sum"]).rename_columns([_PARTITION, _GROUP, "rows"])


def divided(
    partitions: Collection[int], committed: pa.Table, most_rows: int
) -> list[tuple[list[int], list[GroupRange]]]:
    """``partitions`` in parts with no more than ``most_rows`` of the rows in ``committed``, which is as
    :func:`committed_by_group` makes it; or one partition, and ranges of its groups: each with no more rows beside its
    first group."""
    numbers, place = np.unique(committed[_PARTITION].to_numpy(), return_inverse=True)
    sizes = np.bincount(place, committed["rows"].to_numpy(), minlength=len(numbers)).astype(np.int64)
    rows_of = dict.fromkeys(sorted(partitions), 0) | dict(zip(numbers.tolist(), sizes.tolist(), strict=True))
    found: list[tuple[list[int], list[GroupRange]]] = []
    room = -1
    for number, rows in sorted(rows_of.items()):
        if rows > most_rows:
            of_partition = committed.filter(pc.equal(committed[_PARTITION], number))
            found.append(([number], _ranges(of_partition, -(-rows // most_rows))))
            room = -1
        elif rows <= room:
            found[-1][0].append(number)
            room -= rows
        else:
            found.append(([number], []))
            room = most_rows - rows
    return found


def _ranges(committed: pa.Table, count: int) -> list[GroupRange]:
    """So many ranges at most of the groups of an offsets partition, with about equal numbers of rows."""
    ordered = committed.group_by(_GROUP, use_threads=False).aggregate([("rows", "sum")]).sort_by(_GROUP)
    # A group belongs where its last row does, so that no range has more rows than its share and a group's.
    ends = np.cumsum(ordered["rows_sum"].to_numpy())
    share = (ends - 1) * count // ends[-1]
    starts = ordered[_GROUP].take(pa.array(np.flatnonzero(np.diff(share)) + 1)).to_pylist()
    return [GroupRange(*bounds) for bounds in zip(["", *starts], [*starts, None], strict=True)]
