"""Records and bytes of each group in the log, added up over folds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from coordinator_core.fold.arrow import column
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.numbering import NameNumbers
from coordinator_core.merge.schema import GROUP_STATS

_SUMS = ("records", "tombstones", "size_bytes")
_FIRST, _LAST = "first_timestamp_ms", "last_timestamp_ms"


class GroupStats:
    """Statistics by key type: an int64 column for each, with a row for each group number. Sizes in bytes."""

    def __init__(self) -> None:
        self._columns: dict[int, dict[str, Int64s]] = {}

    def state(self) -> dict[int, dict[str, Int64s]]:
        return self._columns

    def load(self, state: dict[int, dict[str, Int64s]]) -> None:
        self._columns = state

    def add(self, fold: SegmentFold, group_of: Int64s) -> None:
        """Add the statistics of ``fold``, whose groups have these numbers."""
        stats = fold.group_stats
        key_types = stats["key_type"].to_numpy()
        groups = group_of[stats["group"].to_numpy()]
        found = {name: stats[name].to_numpy() for name in (*_SUMS, _FIRST, _LAST)}
        for key_type in sorted(set(key_types.tolist())):
            rows = np.flatnonzero(key_types == key_type)
            columns = self._of(key_type, int(groups.max()) + 1)
            target = groups[rows]
            new = columns["records"][target] == 0
            columns[_FIRST][target[new]] = found[_FIRST][rows[new]]
            columns[_LAST][target] = found[_LAST][rows]
            for name in _SUMS:
                columns[name][target] += found[name][rows]

    def table(self, groups: NameNumbers) -> pa.Table:
        """The statistics: columns of ``merge.schema.GROUP_STATS``."""
        texts = groups.texts()
        parts = [GROUP_STATS.empty_table()]
        for key_type, columns in sorted(self._columns.items()):
            rows = np.flatnonzero(columns["records"])
            made = {name: column(values[rows]) for name, values in columns.items()}
            made["group_id"] = texts.take(column(rows)).cast(pa.string())
            made["key_type"] = column(np.full(len(rows), key_type, np.int16))
            parts.append(pa.Table.from_arrays([made[name] for name in GROUP_STATS.names], schema=GROUP_STATS))
        return pa.concat_tables(parts)

    def _of(self, key_type: int, groups: int) -> dict[str, Int64s]:
        columns = self._columns.get(key_type)
        held = 0 if columns is None else len(columns["records"])
        if columns is None or held < groups:
            bigger = {name: np.zeros(max(groups, 2 * held), np.int64) for name in (*_SUMS, _FIRST, _LAST)}
            for name, values in (columns or {}).items():
                bigger[name][:held] = values
            columns = self._columns[key_type] = bigger
        return columns
