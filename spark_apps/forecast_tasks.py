"""What tasks of the app ``forecast`` do with a merged partition: its tombstones go into a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from coordinator_core.fold.tasks import SegmentResult
from coordinator_core.lifecycle.expiring import OFFSET_COLUMNS
from coordinator_core.lifecycle.forecast import forecast
from coordinator_core.lifecycle.forecast_publish import Forecasted, ForecastFile, ForecastPart
from coordinator_core.runs.merging import Merge, merge_results
from spark_apps.tasks import MergeTask


@dataclass(frozen=True)
class ForecastTask(MergeTask[Forecasted, ForecastFile | None]):
    """Arguments of the tasks of a forecast; ``directory`` is that of its table."""

    columns: ClassVar[Sequence[str] | None] = OFFSET_COLUMNS

    now_ms: int
    offsets_retention_ms: int

    def taker(self, first_partition: int) -> _Tombstones:
        return _Tombstones(self, ForecastPart(self.directory, first_partition))


@dataclass(frozen=True)
class _Tombstones:
    rules: ForecastTask
    part: ForecastPart

    def take(self, offsets_partition: int, results: Iterable[SegmentResult], merged: Merge | None) -> Forecasted:
        rules = self.rules
        state, segments, facts = merge_results(offsets_partition, results, rules.profile, merged)
        found = forecast(
            state,
            rules.profile,
            now_ms=rules.now_ms,
            offsets_retention_ms=rules.offsets_retention_ms,
            take=self.part.write,
        )
        return Forecasted(found, facts, sum(segments["records"].to_pylist()))

    def close(self) -> ForecastFile | None:
        return self.part.close()
