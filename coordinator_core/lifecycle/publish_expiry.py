"""Expiry plans as a table beside the run that they are about.

``<output>/<cluster>/<window>/_tombstones/<run id>/<id>/tombstones.parquet``, then ``expiry.json``, which describes the
plan. The run itself is never written into. The id is a hash of the inputs of the plan, so the same question has one
place, and asking it again changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core import __version__, files, storage
from coordinator_core.fold.arrow import schema
from coordinator_core.jsontext import fields_of
from coordinator_core.lifecycle.plan import ExpiryPlan, kept_by_reason
from coordinator_core.runs.place import TOMBSTONES_DIRECTORY, beside
from coordinator_core.runs.read import Run

TOMBSTONES_FILE = "tombstones.parquet"
EXPIRY = "expiry.json"

TOMBSTONES = schema(
    ("topic", "partition", "base_timestamp_ms", "record_offset"),
    offsets_partition=pa.int32(),
    position=pa.int64(),
    due=pa.bool_(),
    kind=pa.string(),
    group_id=pa.string(),
    topic=pa.string(),
    partition=pa.int32(),
    reason=pa.string(),
    base_timestamp_ms=pa.int64(),
    expires_at_ms=pa.int64(),
    record_offset=pa.int64(),
    key=pa.binary(),
)
"""Order of rows: by offsets partition and ``position``; due tombstones as they are written, then the forecast."""


def tombstone_table(plans: Sequence[ExpiryPlan]) -> pa.Table:
    """The rows of all ``plans``."""
    names = ("group_id", "topic", "partition", "base_timestamp_ms", "expires_at_ms", "record_offset", "key")
    rows = [
        fields_of(
            item,
            *names,
            offsets_partition=plan.offsets_partition,
            position=position,
            due=position < len(plan.tombstones),
            kind=str(item.kind),
            reason=str(item.reason),
        )
        for plan in plans
        for position, item in enumerate((*plan.tombstones, *plan.forecast))
    ]
    return pa.Table.from_pylist(rows, schema=TOMBSTONES)


def publish_expiry(
    run: Run, plans: Sequence[ExpiryPlan], *, now_ms: int, offsets_retention_ms: int, rebalancing: Collection[str]
) -> str:
    """Write the plans beside ``run``, unless they are there; returns their directory."""
    summary: dict[str, Any] = {
        "run": {name: run.manifest[name] for name in ("cluster", "window", "run_id", "profile", "state_hash")},
        "now_ms": now_ms,
        "offsets_retention_ms": offsets_retention_ms,
        "rebalancing": sorted(rebalancing),
        "due": sum(len(plan.tombstones) for plan in plans),
        "forecast": sum(len(plan.forecast) for plan in plans),
        "kept": kept_by_reason(plans),
        "failures": {str(plan.offsets_partition): plan.failure for plan in plans if plan.failure is not None},
        "regroup_version": __version__,
    }
    digest = hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).hexdigest()[:16]
    directory = beside(run.path, TOMBSTONES_DIRECTORY, digest)
    target = storage.join(directory, EXPIRY)
    if not storage.exists(target):
        buffer = io.BytesIO()
        pq.write_table(tombstone_table(plans), buffer, compression="zstd")
        storage.write_atomic(storage.join(directory, TOMBSTONES_FILE), buffer.getvalue())
        files.write_json(target, summary)
    return directory
