"""Some offsets partitions of a run, as if they were all of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.errors import DamagedInputError
from coordinator_core.runs.proof import FileProof, open_parquet
from coordinator_core.runs.read import Run
from coordinator_core.runs.rows import ImpossibleRowError, declared
from coordinator_core.runs.schemas import TABLES

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

    def rows(self, parquet: pq.ParquetFile, columns: Sequence[str]) -> pa.Table:
        """The wanted rows of one file of a table, at least with ``columns``."""
        names = list(dict.fromkeys([*columns, _PARTITION]))
        table = parquet.read_row_groups(self._row_groups(parquet), columns=names)
        wanted = pa.array(sorted(self.partitions), table[_PARTITION].type)
        return table.filter(pc.is_in(table[_PARTITION], wanted))

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

    def _file(self, name: str, path: str, proof: FileProof | None, group_ids: Collection[str] | None) -> pa.Table:
        schema = TABLES[name].arrow
        with open_parquet(path, proof) as parquet:
            table = declared(path, self.rows(parquet, schema.names), schema, None)
        if group_ids is None or "group_id" not in schema.names:
            return table
        return table.filter(pc.is_in(table["group_id"], pa.array(sorted(group_ids), pa.string())))
