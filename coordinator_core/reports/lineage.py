"""OpenLineage events (spec 2-0-2) of a run: its inputs, and the findings of the rules.

Two jobs of the namespace ``regroup``: ``<cluster>.replay`` reads the log and writes the tables, ``<cluster>.reconcile``
reads the tables and lists the assertions about each.  Each has its START and its end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import pyarrow as pa

from coordinator_core import __version__, storage
from coordinator_core.reports.run_report import Document
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.model import Severity
from coordinator_core.runs.place import MANIFEST
from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES

SPEC = "https://openlineage.io/spec"
EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = {
    "dataQualityAssertions": "1-1-0/DataQualityAssertionsDatasetFacet.json",
    "inputStatistics": "1-0-0/InputStatisticsInputDatasetFacet.json",
    "jobType": "2-0-4/JobTypeJobFacet.json",
    "nominalTime": "1-0-1/NominalTimeRunFacet.json",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet.json",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet.json",
    "schema": "1-2-0/SchemaDatasetFacet.json",
    "version": "1-0-1/DatasetVersionDatasetFacet.json",
}
"""Version and file of the schema of each facet."""

PRODUCER = f"urn:regroup:{__version__}"
NAMESPACE = "regroup"

_IN_BUCKETS = ("s3", "gs")

Facet = dict[str, Any]
Event = dict[str, Any]


def write_lineage(path: str, run: Run, report: Document) -> None:
    """Write the events as JSON lines, which OpenLineage's file transport writes, too."""
    lines = [json.dumps(event, ensure_ascii=False) + "\n" for event in run_events(run, report)]
    storage.write_text(path, "".join(lines))


def run_events(run: Run, report: Document) -> list[Event]:
    """Four events: start and end of the replay that made ``run``, and of the reconciliation in ``report``.

    The replay ended when the manifest was written; the reconciliation is told in the moment of the report.  A table
    is one dataset for all runs of the cluster, so that it has a history: the version says which run.
    """
    manifest = run.manifest
    written = storage.stat(storage.join(run.path, MANIFEST))
    now = datetime.now(UTC)
    ended = now if written is None or written.modified_ns is None else _time(written.modified_ns // 1_000_000)
    began = ended - timedelta(seconds=manifest["seconds"])
    tables = [_table(run, name) for name in manifest["tables"]]
    asserted = [_asserted(table, name, report) for table, name in zip(tables, manifest["tables"], strict=True)]
    return [
        *_job(run, "replay", (began, ended), inputs=_inputs(manifest), outputs=tables),
        *_job(run, "reconcile", (now, now), inputs=asserted),
    ]


def _job(
    run: Run,
    name: str,
    times: tuple[datetime, datetime],
    *,
    inputs: Sequence[Event],
    outputs: Sequence[Event] = (),
) -> Iterator[Event]:
    manifest = run.manifest
    cluster, window, run_id = (manifest[key] for key in ("cluster", "window", "run_id"))
    run_uuid = uuid5(NAMESPACE_URL, f"regroup:{cluster}/{window}/{run_id}/{name}/{_text(times[1])}")
    facets = _facet("processing_engine", name=f"Regroup, {manifest['engine']}", version=manifest["regroup_version"])
    # A time that no calendar has is possible (--now-ms), and cannot be said.
    with suppress(OverflowError, ValueError, OSError):
        facets |= _facet("nominalTime", nominalStartTime=_text(_time(manifest["now_ms"])))
    for kind, time in zip(("START", "COMPLETE"), times, strict=True):
        yield {
            "eventType": kind,
            "eventTime": _text(time),
            "producer": PRODUCER,
            "schemaURL": EVENT,
            "run": {"runId": str(run_uuid), "facets": facets},
            "job": {
                "namespace": NAMESPACE,
                "name": f"{cluster}.{name}",
                "facets": _facet("jobType", processingType="BATCH", integration="REGROUP", jobType="JOB"),
            },
            "inputs": inputs,
            "outputs": outputs,
        }


def _inputs(manifest: Mapping[str, Any]) -> list[Event]:
    """The directories that the run was made of, with the files read below each."""
    sources, below = manifest["sources"], {source: [0, 0] for source in manifest["sources"]}
    for segment in manifest["inputs"]:
        for source in sources:
            if segment["path"] == source or segment["path"].startswith(source.rstrip("/") + "/"):
                below[source][0] += 1
                below[source][1] += segment["bytes"]
                break
    return [
        {**dataset_name(source), "inputFacets": _facet("inputStatistics", fileCount=files, size=size)}
        for source, (files, size) in below.items()
    ]


def _table(run: Run, name: str) -> Event:
    entry = run.manifest["tables"][name]
    table = TABLES[name].arrow
    above, run_id = storage.split(run.path)
    above, window = storage.split(above)
    return {
        **dataset_name(storage.join(above, name)),
        "facets": {
            **_facet("schema", fields=[_field(field, number) for number, field in enumerate(table, 1)]),
            **_facet("version", datasetVersion=f"{window}/{run_id}"),
        },
        "outputFacets": _facet(
            "outputStatistics",
            rowCount=entry["rows"],
            size=run.table_bytes(name),
            fileCount=len(entry["files"]),
        ),
    }


def _field(field: pa.Field, number: int) -> Event:
    comment = (field.metadata or {}).get(b"comment", b"").decode()
    return {"name": field.name, "type": str(field.type), "description": comment, "ordinal_position": number}


def _asserted(table: Event, name: str, report: Document) -> Event:
    """The table as an input, with each rule that reads it and was evaluated."""
    fired = {rule["code"]: rule["findings"] - rule["muted"] for rule in report["rules"]}
    # Settings give a rule another severity than the catalogue.
    severity = {rule["code"]: Severity.of(rule["severity"]) for rule in report["rules"]}
    assertions = [
        {
            "assertion": RULES[code].name,
            "name": code,
            "description": RULES[code].summary,
            "severity": "error" if severity.get(code, RULES[code].severity) is Severity.CRITICAL else "warn",
            "success": not fired.get(code),
            "expected": "0",
            "actual": str(fired.get(code, 0)),
        }
        for code in report["evaluated"]
        if name in RULES[code].reads
    ]
    inputs = _facet("dataQualityAssertions", assertions=assertions) if assertions else {}
    return {key: table[key] for key in ("namespace", "name", "facets")} | {"inputFacets": inputs}


def dataset_name(path: str) -> dict[str, str]:
    """Namespace and name of a path or URI, by OpenLineage's conventions. Options and credentials are left out."""
    if storage.is_local(path):
        return {"namespace": "file", "name": os.path.abspath(storage.local_path(path))}
    parts = urlsplit(path)
    inner = parts.path.rstrip("/")
    host = parts.netloc if parts.scheme == "abfss" else parts.netloc.rpartition("@")[2]
    name = inner.lstrip("/") if parts.scheme in _IN_BUCKETS else inner
    return {"namespace": f"{parts.scheme}://{host}", "name": name or "/"}


def _facet(name: str, /, **values: Any) -> Facet:
    return {name: {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/{FACETS[name]}", **values}}


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


def _text(time: datetime) -> str:
    return time.isoformat(timespec="milliseconds")
