"""Names that clients chose, in task logs, in what tasks pass on (XCom), and in errors and approvals."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from coordinator_core.cli.app import run
from coordinator_core.errors import Damage, DamagedInputError, ExitCode, UsageError, WriteError
from coordinator_core.rules.model import Severity
from dags.common import command, compact, load, reconcile
from dags.common.clusters import CLUSTERS_ENV
from tests.cli.test_untrusted import EVIL, obeyed
from tests.rules.faults import FAULTS
from tests.rules.logs import Log, assignment, classic, commit, member, one

ALL = "|".join(EVIL.values())


def strings(value: Any) -> Iterator[str]:
    """Every string in a value that a task passes on, keys included."""
    match value:
        case str():
            yield value
        case dict():
            for key, item in value.items():
                yield from strings(key)
                yield from strings(item)
        case list() | tuple():
            for item in value:
                yield from strings(item)


def reported(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the task ``report`` passes on of a run of this log, and the answer of the expectations that it was given."""
    clusters = tmp_path / "clusters.yaml"
    clusters.write_text(f"clusters:\n  c: {{source: log, output: {tmp_path / 'runs'}}}\n")
    monkeypatch.setenv(CLUSTERS_ENV, str(clusters))
    published = log.publish(tmp_path).path
    assert run(["reconcile", published, "--publish", "--fail-on", "never"]) == ExitCode.CLEAN
    [findings] = {path.parent for path in (tmp_path / "runs").rglob("reconciliation.json")}
    result = tmp_path / "result.json"
    result.write_text(json.dumps({"findings": str(findings)}))
    request: dict[str, Any] = {
        "run": published,
        "topics": None,
        "previous": None,
        "directory": str(tmp_path / "report"),
        "result": str(result),
        "args": [],
    }
    tables: dict[str, Any] = {
        "run": published,
        "failed": {level.label: 0 for level in Severity},
        "contradictions": [],
        "declared": 1,
    }
    tables |= {"evaluated": 1, "absent": 0, "not_evaluated": [], "data_docs": None}
    return dict(reconcile.report("c", request, tables)), tables


def test_the_report_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    records = []
    for text in EVIL.values():
        owner = member(f"m{text}", owns=assignment(**{text: [0]})) | {"clientId": text, "clientHost": f"/{text}"}
        records += [classic(f"live{text}", owner, protocol=text), commit(text, text, offset=-7, metadata=text)]
    checked, tables = reported(one(*records), tmp_path, monkeypatch)
    assert any("\\u202e" in line or "\\x1b" in line for line in checked["worst"])
    for text in (*strings(checked), *(record.getMessage() for record in caplog.records)):
        assert obeyed(text) == []
        assert "\n" not in text
    with pytest.raises(AirflowFailException) as closed:
        reconcile.gate("c", checked | {"failed": True}, tables)
    assert obeyed(str(closed.value)) == []


def test_a_finding_has_no_place_that_it_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family of groups is in no single record."""
    (line,) = reported(FAULTS["R27"], tmp_path, monkeypatch)[0]["worst"]
    assert line.endswith("(offsets partition 0)")


@pytest.mark.parametrize(
    "error", [UsageError(ALL), DamagedInputError(Damage(ALL, 0, 0, "bad_records", ALL)), WriteError(ALL)]
)
def test_an_error_of_a_task(error: Exception) -> None:
    with pytest.raises(AirflowFailException) as failed, load.final_errors():
        raise error
    assert obeyed(str(failed.value)) == []
    # Airflow logs the chain of causes as well.
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__


def test_the_approval_of_a_compaction() -> None:
    names = ("bytes", "records", "committed_offsets", "groups", "due", "groups_losing", "groups_expired")
    facts = {
        **dict.fromkeys((*names, "offsets_retention_ms"), 1),
        "profile": "p",
        "reasons": {"commit_age, offset": 1},
        "most": [{"group_id": text, "tombstones": 1, "expires": False} for text in (*EVIL.values(), "a`b``c")],
    }
    body = "\n".join(compact.approval_lines(facts, True, "d", {"tombstones": "t", "plan.json": "p"}))
    assert obeyed(body) == []
    assert "``` a`b``c ```" in body
    assert "**1 record expires**, " in body
    assert "Of 1 group, 1 goes altogether. " in body


def test_the_output_of_a_command(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(AirflowFailException) as failed:
        command.regroup("find-coordinator", "--topology", f"/{EVIL['title']}{EVIL['bidi']}", "g")
    for text in (str(failed.value), *(record.getMessage() for record in caplog.records)):
        assert obeyed(text) == []
