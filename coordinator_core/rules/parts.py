"""Some offsets partitions of a run, as if they were all of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.errors import DamagedInputError
from coordinator_core.runs.read import Run
from coordinator_core.runs.rows import ImpossibleRowError, blocks

_PARTITION = "offsets_partition"


@dataclass(frozen=True)
class RunPart(Run):
    """A run of which only rows of ``partitions`` are read, and only the row groups that may hold any."""

    partitions: frozenset[int]

    @classmethod
    def of(cls, run: Run, partitions: Collection[int]) -> RunPart:
        wanted = frozenset(partitions)
        cut = {name: bounds for name, bounds in run.manifest["cut"].items() if int(name) in wanted}
        return cls(run.path, {**run.manifest, "cut": cut}, wanted)

    def impossible(self, error: ImpossibleRowError, *, is_whole: bool = False) -> DamagedInputError:
        return super().impossible(error, is_whole=False)

    def _blocks(self, path: str, parquet: pq.ParquetFile, schema: pa.Schema, block_rows: int) -> Iterator[pa.Table]:
        with_place = schema if _PARTITION in schema.names else schema.append(pa.field(_PARTITION, pa.int32()))
        wanted = pa.array(sorted(self.partitions), pa.int32())
        for rows in blocks(path, parquet, with_place, self._row_groups(parquet), block_rows=block_rows):
            yield rows.filter(pc.is_in(rows[_PARTITION], wanted)).select(schema.names)

    def _check_rows(self, name: str, read: int) -> None:
        """The manifest tells rows of the whole run."""

    def _row_groups(self, parquet: pq.ParquetFile) -> list[int]:
        metadata = parquet.metadata
        column = parquet.schema_arrow.get_field_index(_PARTITION)
        # Columns before this one may be nested, and take several places in the file.
        place = next(
            number
            for number in range(column, metadata.num_columns)
            if metadata.schema.column(number).path == _PARTITION
        )
        found = []
        for number in range(metadata.num_row_groups):
            bounds = metadata.row_group(number).column(place).statistics
            known = bounds is not None and bounds.has_min_max
            if not known or any(bounds.min <= one <= bounds.max for one in self.partitions):
                found.append(number)
        return found
