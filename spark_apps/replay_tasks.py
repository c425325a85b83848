"""What tasks of the app ``replay`` do with a merged partition: its rows go into the tables of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator_core.fold.tasks import SegmentResult
from coordinator_core.releases import Profile
from coordinator_core.runs.manifest import PartitionFacts
from coordinator_core.runs.merging import Merge, merge_partition
from coordinator_core.runs.publish import StagedTables, TableFile
from coordinator_core.runs.state_hash import TableDigests
from spark_apps.tasks import MergeTask

Written = tuple[list[TableFile], TableDigests]
"""Files with rows, and digests of the rows."""


@dataclass(frozen=True)
class ReplayTask(MergeTask[PartitionFacts, Written]):
    """Arguments of the tasks of a replay; ``directory`` is that of the run."""

    now_ms: int

    def taker(self, first_partition: int) -> _Tables:
        return _Tables(self.profile, self.now_ms, StagedTables(self.directory, first_partition))


@dataclass(frozen=True)
class _Tables:
    profile: Profile
    now_ms: int
    staged: StagedTables

    def take(self, offsets_partition: int, results: Iterable[SegmentResult], merged: Merge | None) -> PartitionFacts:
        tables, facts = merge_partition(offsets_partition, results, self.profile, now_ms=self.now_ms, merged=merged)
        self.staged.write_tables(tables)
        return facts

    def close(self) -> Written:
        return self.staged.close()
