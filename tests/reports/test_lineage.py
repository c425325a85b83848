"""OpenLineage events, against the schemas that the specification publishes."""

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

SCHEMAS = {path.name: json.loads(path.read_text()) for path in (Path(__file__).parent / "openlineage").glob("*.json")}
CORE = SCHEMAS.pop("OpenLineage.json")


def valid(document: Any, name: str, schema: dict[str, Any]) -> None:
    """``document`` is what ``name`` says in a published schema, whose references to the core are resolved here."""
    definitions = json.loads(json.dumps(schema["$defs"]).replace(f"{CORE['$id']}#", "#"))
    whole = {"$defs": {**CORE["$defs"], **definitions}, "$ref": f"#/$defs/{name}"}
    Draft202012Validator(whole, format_checker=FormatChecker()).validate(document)


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
        valid(event, "RunEvent", CORE)
        assert event["schemaURL"] == EVENT == f"{CORE['$id']}#/$defs/RunEvent"
        for name, facet in facets(event):
            version, file = FACETS[name].split("/")
            assert facet["_schemaURL"] == f"{SPEC}/facets/{version}/{file}" == SCHEMAS[file]["$id"]
            valid(facet, file.removesuffix(".json"), SCHEMAS[file])
            used.add(name)
    assert used == set(FACETS)
    assert {Path(path).name for path in FACETS.values()} == set(SCHEMAS)


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
