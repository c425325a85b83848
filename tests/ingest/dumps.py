"""Records that a consumer would be given of a log, as the Parquet files that Kafka's Spark source leads to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import OFFSETS_TOPIC, Batch, ControlType, PartitionLog, Record

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
Row = dict[str, Any]


def row(offset: int, key: bytes | None = None, value: bytes | None = None, **columns: Any) -> Row:
    """A row of Kafka's source; ``timestamp`` in milliseconds."""
    plain = {"topic": OFFSETS_TOPIC, "partition": 0, "timestamp": 1_000, "timestampType": 0, "headers": None}
    return {"key": key, "value": value, "offset": offset} | plain | columns


def write(path: Path, rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> Path:
    timed = [{**each, "timestamp": each["timestamp"] * 1000} for each in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(timed, schema=schema), path, row_group_size=100)
    return path


def consumed(log_dir: Path, isolation_level: str) -> list[Row]:
    """Rows of every record that a consumer of that isolation level is given of a log directory."""
    return [
        _row(log, batch, record)
        for log in discover([str(log_dir)]).partitions
        for batch, record in _visible(log, isolation_level == "read_committed")
    ]


def _visible(log: PartitionLog, committed: bool) -> list[tuple[Batch, Record]]:
    held: list[tuple[Batch, Record]] = []
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for _, batch, records in read_records(log, on_damage=OnDamage.FAIL):
        if batch.is_control:
            (marker,) = records
            assert marker.key is not None
            first = open_since.pop(batch.producer_id, marker.offset)
            if int.from_bytes(marker.key[2:4], "big") == ControlType.ABORT:
                aborted.append((batch.producer_id, first, marker.offset))
            continue
        if batch.is_transactional:
            open_since.setdefault(batch.producer_id, batch.base_offset)
        held += ((batch, record) for record in records)
    if not committed:
        return held
    stable = min(open_since.values(), default=1 << 62)
    return [
        (batch, record)
        for batch, record in held
        if record.offset < stable
        and not any(
            batch.is_transactional and batch.producer_id == producer and first <= record.offset < end
            for producer, first, end in aborted
        )
    ]


def _row(log: PartitionLog, batch: Batch, record: Record) -> Row:
    return row(
        record.offset,
        record.key,
        record.value,
        partition=log.offsets_partition,
        timestamp=record.timestamp_ms,
        timestampType={"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}[batch.timestamp_type],
        headers=[{"key": name, "value": value} for name, value in record.headers] or None,
    )
