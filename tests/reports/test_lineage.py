"""OpenLineage events, against what the specification (openlineage.io, 2-0-2) asks of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, FormatChecker

from coordinator_core.cli.app import run
from coordinator_core.reports.lineage import EVENT, FACETS, SPEC, dataset_name
from coordinator_core.runs.read import open_run
from tests.rules.logs import classic, commit, one

TEXT = {"type": "string", "minLength": 1}
COUNT = {"type": "integer", "minimum": 0}
URI = {"type": "string", "format": "uri"}


def object_of(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {"type": "object", "properties": required | optional, "required": list(required)}


def list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


FACET_BODIES = {
    "dataQualityAssertions": object_of(
        {
            "assertions": list_of(
                object_of(
                    {"assertion": TEXT, "success": {"type": "boolean"}},
                    severity={"enum": ["error", "warn"]},
                    expected=TEXT,
                    actual=TEXT,
                )
            )
        }
    ),
    "inputStatistics": object_of({}, size=COUNT, fileCount=COUNT),
    "jobType": object_of({"processingType": TEXT, "integration": TEXT}, jobType=TEXT),
    "nominalTime": object_of({"nominalStartTime": {"type": "string", "format": "date-time"}}),
    "outputStatistics": object_of({}, rowCount=COUNT, size=COUNT, fileCount=COUNT),
    "processing_engine": object_of({"version": TEXT}, name=TEXT),
    "schema": object_of({"fields": list_of(object_of({"name": TEXT}, type=TEXT, ordinal_position={"minimum": 1}))}),
    "version": object_of({"datasetVersion": TEXT}),
}
"""Body of each facet, by its page of the specification; all facets have ``_producer`` and ``_schemaURL``, too."""

DATASET = object_of({"namespace": TEXT, "name": TEXT})
RUN_EVENT = object_of(
    {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": URI,
        "schemaURL": URI,
        "run": object_of({"runId": {"type": "string", "format": "uuid"}}),
        "job": object_of({"namespace": TEXT, "name": TEXT}),
    },
    inputs=list_of(DATASET),
    outputs=list_of(DATASET),
)


def check(document: Any, schema: dict[str, Any]) -> None:
    Draft202012Validator(schema, format_checker=FormatChecker()).validate(document)


def facets(event: Any) -> list[tuple[str, Any]]:
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    names = ("facets", "inputFacets", "outputFacets")
    return [item for one in holders for name in names for item in one.get(name, {}).items()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any]]:
    """A run with a finding, and its events."""
    place = tmp_path_factory.mktemp("lineage")
    path = one(classic(), commit(offset=-1), commit("<b>\x1b")).publish(place).path
    assert run(["report", path, "--openlineage", str(place / "lineage.jsonl")]) == 0
    return path, [json.loads(line) for line in (place / "lineage.jsonl").read_text().splitlines()]


def test_events_and_facets_are_as_the_specification_has_them(told: tuple[str, list[Any]]) -> None:
    used = set()
    for event in told[1]:
        check(event, RUN_EVENT)
        assert event["schemaURL"] == EVENT
        for name, facet in facets(event):
            assert facet["_schemaURL"] == f"{SPEC}/facets/{FACETS[name]}"
            check(facet, object_of({"_producer": URI, "_schemaURL": URI}))
            check(facet, FACET_BODIES[name])
            used.add(name)
    assert used == set(FACETS) == set(FACET_BODIES)


def test_events_say_what_was_read_written_and_asserted(told: tuple[str, list[Any]]) -> None:
    path, events = told
    manifest = open_run(path).manifest
    assert [(event["eventType"], event["job"]["name"]) for event in events] == [
        ("START", "c.replay"),
        ("COMPLETE", "c.replay"),
        ("START", "c.reconcile"),
        ("COMPLETE", "c.reconcile"),
    ]
    assert len({event["run"]["runId"] for event in events}) == 2
    _, replay, _, reconcile = events
    [log] = replay["inputs"]
    assert (log["namespace"], log["name"]) == ("file", manifest["sources"][0])
    assert log["inputFacets"]["inputStatistics"]["size"] == sum(entry["bytes"] for entry in manifest["inputs"]) > 0
    rows = {
        Path(table["name"]).name: table["outputFacets"]["outputStatistics"]["rowCount"] for table in replay["outputs"]
    }
    assert rows == {name: entry["rows"] for name, entry in manifest["tables"].items()}
    offsets = next(table for table in replay["outputs"] if table["name"].endswith("/offsets"))
    assert offsets["facets"]["version"]["datasetVersion"] == "w/r"
    assert "committed_offset" in [field["name"] for field in offsets["facets"]["schema"]["fields"]]
    audited = {table["name"]: table["inputFacets"] for table in reconcile["inputs"]}[offsets["name"]]
    failed = [one for one in audited["dataQualityAssertions"]["assertions"] if not one["success"]]
    assert [(one["name"], one["severity"], one["actual"]) for one in failed] == [("R44", "warn", "1")]


def test_a_rule_has_the_severity_of_the_settings(told: tuple[str, list[Any]], tmp_path: Path) -> None:
    settings, events = tmp_path / "rules.yaml", tmp_path / "lineage.jsonl"
    settings.write_text("severities: {R44: critical}")
    assert run(["report", told[0], "--openlineage", str(events), "--rules", str(settings), "--fail-on", "never"]) == 0
    inputs = json.loads(events.read_text().splitlines()[-1])["inputs"]
    found = [
        one for table in inputs for one in table["inputFacets"].get("dataQualityAssertions", {}).get("assertions", [])
    ]
    assert {one["severity"] for one in found if one["name"] == "R44"} == {"error"}


@pytest.mark.parametrize(
    "path, namespace, name",
    [
        ("/srv/runs", "file", "/srv/runs"),
        ("s3://user:secret@bucket/a/b/?region=x", "s3://bucket", "a/b"),
        ("gs://bucket/a", "gs://bucket", "a"),
        ("hdfs://nn:8020/a", "hdfs://nn:8020", "/a"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net", "/a"),
    ],
)
def test_datasets_are_named_by_the_conventions(path: str, namespace: str, name: str) -> None:
    assert dataset_name(path) == {"namespace": namespace, "name": name}


def test_a_snapshot_has_no_lineage(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one(commit()).publish(tmp_path)
    assert run(["report", str(tmp_path / "log"), "--openlineage", str(tmp_path / "lineage")]) == 2
    assert "a published run" in capfd.readouterr().err
