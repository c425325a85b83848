"""A forecast as a directory: its tombstones as a table that tasks have written, its numbers, and the bytes it is of.

``<directory>/tombstones/part-<offsets partition>-<digits>.parquet``, ``pin.json``, then ``forecast.json``.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from coordinator_core import __version__, storage
from coordinator_core.fold.pin import Pin, write_pin
from coordinator_core.jsontext import fields_of
from coordinator_core.lifecycle.approved import expiry_row
from coordinator_core.lifecycle.forecast import FORECAST, MOST_GROUPS, Forecast
from coordinator_core.log.types import Snapshot
from coordinator_core.runs.manifest import PartitionFacts
from coordinator_core.runs.parquet_output import ParquetOutput
from coordinator_core.runs.proof import FileProof
from coordinator_core.runs.table_directory import TableDirectory, publish_file, staging_path

TABLE, DOCUMENT, PIN = "tombstones", "forecast.json", "pin.json"

_VALUES_AT_ONCE = 1 << 14
_NUMBERS = [field.name for field in FORECAST if pa.types.is_integer(field.type)]


@dataclass(frozen=True, slots=True)
class ForecastFile:
    """A file with rows of some offsets partitions. ``name`` is relative to the directory."""

    name: str
    rows: int
    proof: FileProof


@dataclass(frozen=True)
class Forecasted:
    """What is known of an offsets partition: its forecast, facts of the replay before it, and the number of
    records in its log, end markers included."""

    forecast: Forecast
    facts: PartitionFacts
    records: int


class ForecastPart:
    """The file of one task, of tables with the columns ``lifecycle.forecast.FORECAST``.

    Another attempt of the same task writes another file.
    """

    def __init__(self, directory: str, first_partition: int) -> None:
        self._directory = directory
        self._name = f"part-{first_partition:05d}-{secrets.token_hex(8)}.parquet"
        self._writer: ParquetOutput | None = None
        self._rows = 0

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        if self._writer is None:
            # No directory is made: that of staged files is gone when the table is published.
            self._writer = ParquetOutput(
                storage.join(staging_path(self._directory), self._name),
                FORECAST,
                compression="zstd",
                use_dictionary=[field.name for field in FORECAST if pa.types.is_dictionary(field.type)],
                column_encoding=dict.fromkeys(_NUMBERS, "DELTA_BINARY_PACKED"),
                write_statistics=["group_id", "expires_at_ms"],
                write_page_checksum=True,
                write_batch_size=_VALUES_AT_ONCE,
                # Readers see texts, not how they were held here.
                store_schema=False,
            )
        self._writer.write_table(table)
        self._rows += table.num_rows

    def close(self) -> ForecastFile | None:
        """The file, whole now and moved into the table; ``None`` without rows."""
        if self._writer is None:
            return None
        self._writer.close()
        return ForecastFile(f"{TABLE}/{self._name}", self._rows, publish_file(self._directory, TABLE, self._name))


class ForecastWriter(TableDirectory):
    """Publishes one forecast."""

    def __init__(self, directory: str, *, sources: Iterable[str]) -> None:
        super().__init__(directory, TABLE, DOCUMENT, sources=sources)

    def commit(
        self, snapshot: Snapshot, parts: Sequence[Forecasted], written: Sequence[ForecastFile], facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Publish the forecast of ``snapshot``; returns the document, which begins with ``facts``.

        ``parts`` are those of its offsets partitions, in their order; ``written`` the files of all tasks.
        """
        pin = Pin(
            snapshot,
            {path: found for part in parts for path, found in part.facts.fingerprints.items()},
            {path: found for part in parts for path, found in part.facts.next_offsets.items()},
        )
        write_pin(pin, storage.join(self.directory, PIN))
        listed = sorted(written, key=lambda file: file.name) or [self._no_rows()]
        document = {
            "regroup_version": __version__,
            **facts,
            "pin": storage.join(self.directory, PIN),
            "bytes": sum(log.size for log in snapshot.partitions),
            "records": sum(part.records for part in parts),
            **_numbers([part.forecast for part in parts]),
            "expiry": [expiry_row(part.forecast) for part in parts],
            "files": [file.name for file in listed],
            "proofs": [dict(file.proof) for file in listed],
        }
        self.publish({file.name for file in listed}, document)
        return document

    def _no_rows(self) -> ForecastFile:
        """A file without rows, by which readers of the directory learn the columns."""
        part = ForecastPart(self.directory, 0)
        part.write(FORECAST.empty_table())
        written = part.close()
        assert written is not None
        return written


def _numbers(forecasts: Sequence[Forecast]) -> dict[str, Any]:
    reasons: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for one in forecasts:
        reasons.update({f"{reason}, {kind}": count for (reason, kind), count in one.reasons.items()})
        kept.update({str(reason): count for reason, count in one.kept.items()})
    # All offsets of a group are in one partition.
    most = sorted((loss for one in forecasts for loss in one.most), key=lambda loss: -loss.tombstones)
    return {
        "committed_offsets": sum(one.committed_offsets for one in forecasts),
        "groups": sum(one.groups for one in forecasts),
        "due": sum(one.tombstones for one in forecasts),
        "later": sum(one.later for one in forecasts),
        "reasons": dict(reasons.most_common()),
        "groups_losing": sum(one.losing for one in forecasts),
        "groups_expired": sum(one.expired_groups for one in forecasts),
        "most": [fields_of(loss, "group_id", "tombstones", "expires") for loss in most[:MOST_GROUPS]],
        "kept": dict(sorted(kept.items())),
        "failures": [
            {"offsets_partition": one.offsets_partition, "detail": one.failure}
            for one in forecasts
            if one.failure is not None
        ],
    }
