"""Expectations in Spark: what the gate says of a run in one process, of a run with faults and of one without."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator_core.errors import ExitCode
from coordinator_core.runs.read import Run
from expectations import frames
from expectations.gate import evaluate, evaluate_part
from expectations.result import GateResult
from spark_apps import quality as app
from spark_apps.quality import parts_of

from ..expectations.faults import FaultyRun, published


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Rows that contradict each other, of an offsets partition that the run does not have and of none."""
    clean = published("k431-expired/A", tmp_path_factory.mktemp("clean"))
    run = FaultyRun(clean, tmp_path_factory.mktemp("faulty") / "run")
    run.change("members", lambda rows: rows.append({**rows[0], "group_id": "nobody"}))
    run.change("groups", lambda rows: rows[0].update(offsets_partition=99))
    run.change("offsets", lambda rows: rows.append(rows[-1]))
    run.change("group_stats", lambda rows: rows[3].update(offsets_partition=None))
    return run.opened()


def told(result: GateResult) -> dict[str, Any]:
    """All but the order in which rows are named."""
    document = result.as_dict()
    for failure in document["failures"]:
        failure["examples"] = sorted(map(str, failure["examples"]))
    return document


@pytest.mark.full
def test_parts_say_what_the_whole_run_says(faulty_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(faulty_run)
    assert {failure.code for failure in whole.failures} >= {
        *("members.groups.reference", "groups.record_offset.cut", "offsets.key", "group_stats.not_null"),
    }
    monkeypatch.setattr(frames, "BATCH_ROWS", 4)
    parts = parts_of(faulty_run, 3)
    assert len(parts) > 2
    docs = tmp_path / "docs"
    in_parts = evaluate(
        faulty_run, data_docs=str(docs), in_parts=lambda question: [evaluate_part(question, part) for part in parts]
    )
    assert told(in_parts) == told(whole)
    assert "members.groups.reference" in (docs / "index.html").read_text()


@pytest.mark.usefixtures("shared")
def test_the_app_says_what_the_command_says(faulty_run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = tmp_path / "new" / "result.json"
    docs = tmp_path / "docs"
    arguments = ["--run", faulty_run.path, "--data-docs", str(docs), "--result", str(result)]
    assert app.APP.run(arguments) == ExitCode.CLEAN
    printed = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert json.loads(result.read_text()) == printed
    assert printed == {**json.loads(json.dumps(evaluate(faulty_run).as_dict())), "data_docs": str(docs)}
    assert (docs / "index.html").exists()
    assert app.APP.run(["--run", faulty_run.path, "--findings", str(tmp_path)]) == ExitCode.USAGE


def test_why_spark_does_not_start_is_told(
    faulty_run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where a second attempt would do well."""

    class Begins:
        contexts = iter([RuntimeError("Java gateway process exited"), SimpleNamespace(environment={})])

        def __init__(self, *_: object) -> None:
            """Starts nothing."""

        def __enter__(self) -> Begins:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

        @property
        def context(self) -> object:
            found = next(self.contexts)
            if isinstance(found, Exception):
                raise found
            return found

    monkeypatch.setattr("spark_apps.session.Session", Begins)
    assert app.APP.run(["--run", faulty_run.path]) == ExitCode.INTERNAL
    assert "RuntimeError: Java gateway process exited" in capfd.readouterr().err
