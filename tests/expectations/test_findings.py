"""Rules as expectations: one each, with the rows that break it, and none that goes missing unnoticed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import evaluate as reconcile
from coordinator_core.rules.findings import FINDINGS
from coordinator_core.rules.model import Severity
from coordinator_core.rules.publish import FINDINGS_FILE, publish_findings
from coordinator_core.rules.settings import settings_from
from coordinator_core.runs.place import RECONCILIATION
from coordinator_core.runs.read import Run
from expectations import gate
from expectations.__main__ import main
from expectations.checks import Check, suites
from expectations.findings import SUITE, read_reconciled
from tests.rules.logs import HEALTHY, TOPICS, Log, classic, commit, one

OF_TABLES = sum(map(len, suites().values()))
OF_FINDINGS = 5
"""Checks of the table itself."""

MOVED = one(
    classic(),
    commit(offset=5),
    commit("s", "u", offset=-1),
    topics=TOPICS,
    previous=one(*HEALTHY),
    settings={
        "severities": {"R44": "info"},
        "mutes": [{"rule": "R36", "reason": "known", "until": "2030-01-01"}],
    },
)


def published(log: Log, directory: Path) -> tuple[Run, str]:
    """A run, and the directory of what the rules say of it."""
    facts = log.facts(directory)
    return facts.run, publish_findings(facts, reconcile(facts, settings_from(log.settings, RULES)))


@pytest.fixture
def moved(tmp_path: Path) -> tuple[Run, str]:
    return published(MOVED, tmp_path)


@pytest.fixture
def findings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate without the checks of the tables, which GX takes seconds for."""
    monkeypatch.setattr(gate, "suites", dict)


alone = pytest.mark.usefixtures("findings_alone")


def change(directory: str, **values: Any) -> None:
    path = Path(directory) / RECONCILIATION
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_finding_fails_its_expectation_with_its_coordinates(moved: tuple[Run, str], tmp_path: Path) -> None:
    run, directory = moved
    result = gate.evaluate(run, findings=directory, data_docs=str(tmp_path / "docs"))
    failed = {failure.code: failure for failure in result.failures if failure.code.startswith("findings.")}
    # R36 is muted; the severity of R44 is that of the settings.
    assert {code: failure.severity for code, failure in failed.items()} == {
        "findings.R30": Severity.CRITICAL,
        "findings.R32": Severity.WARNING,
        "findings.R44": Severity.INFO,
    }
    (example,) = failed["findings.R30"].examples
    assert example | {"message": ""} == {
        "offsets_partition": 0,
        "record_offset": 1,
        "group_id": "g",
        "topic": "t",
        "partition": 0,
        "member_id": None,
        "message": "",
        "rule": "R30",
        "muted": None,
    }
    assert set(result.absent) == {code for code, rule in RULES.items() if rule.needs} - {
        code for code in RULES if f"findings.{code}" in failed
    } - set(read_reconciled(directory, run).evaluated) | {"R07", "R75"}
    assert result.refusals == ()
    assert result.declared == result.evaluated == OF_TABLES + OF_FINDINGS + len(RULES) - len(result.absent)
    assert not result.passed(Severity.CRITICAL)
    index = (tmp_path / "docs/index.html").read_text()
    assert "findings.R30" in index
    assert f"{len(result.absent)} rules not looked at" in index
    assert (tmp_path / "docs/expectations/findings.html").is_file()


@alone
def test_a_run_without_findings_passes_with_every_rule_counted(tmp_path: Path) -> None:
    log = one(*HEALTHY, topics=TOPICS, previous=one(*HEALTHY), scanned=True, going={})
    run, directory = published(log, tmp_path)
    result = gate.evaluate(run, findings=directory)
    assert result.passed(Severity.INFO)
    assert set(result.absent) == {"R07", "R75"}
    assert result.evaluated == OF_FINDINGS + len(RULES) - 2


@alone
def test_every_rule_has_an_expectation_that_fails(moved: tuple[Run, str]) -> None:
    run, directory = moved
    rows = [
        dict.fromkeys(FINDINGS.arrow.names)
        | {"rule": code, "severity": rule.severity.label, "rows": 1, "message": code}
        | {"evidence": "{}", "remedy": "", "offsets_partition": 0, "record_offset": 1}
        for code, rule in RULES.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=FINDINGS.arrow), Path(directory) / FINDINGS_FILE)
    change(
        directory,
        evaluated=list(RULES),
        not_evaluated={},
        not_applicable={},
        counts={"critical": len(rows)},
        muted=0,
        settings={"severities": {}},
    )
    result = gate.evaluate(run, findings=directory)
    fired = [failure for failure in result.failures if failure.code.startswith("findings.")]
    assert {failure.code: failure.severity for failure in fired} == {
        f"findings.{code}": rule.severity for code, rule in RULES.items()
    }
    assert all(failure.unexpected_rows == 1 for failure in fired)
    assert result.evaluated == OF_FINDINGS + len(RULES)


@alone
def test_an_expectation_that_was_removed_from_its_suite_closes_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, directory = published(one(*HEALTHY), tmp_path)
    store = gate._store

    def without_r10(context: Any, name: str, checks: Sequence[Check]) -> Any:
        return store(context, name, [check for check in checks if check.code != "findings.R10"])

    monkeypatch.setattr(gate, "_store", without_r10)
    result = gate.evaluate(run, findings=directory)
    assert [(refusal.code, refusal.reason) for refusal in result.refusals] == [("findings.R10", "GX dropped it")]
    assert result.evaluated == result.declared - 1
    assert not result.passed(Severity.CRITICAL)


@alone
def test_expectations_that_are_not_registered_close_the_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from great_expectations.expectations import registry

    import expectations.custom  # noqa: F401 - registers what is now taken away, as if it were not imported

    monkeypatch.delitem(registry._registered_expectations, "expect_no_finding_of_rule")
    run, directory = published(one(*HEALTHY), tmp_path)
    result = gate.evaluate(run, findings=directory)
    assert {refusal.code for refusal in result.refusals} == {
        f"findings.{code}" for code in RULES if code not in result.absent
    }
    assert not result.passed(Severity.CRITICAL)


@alone
def test_a_rule_that_nobody_evaluated_and_a_finding_that_is_gone_close_the_gate(
    moved: tuple[Run, str],
) -> None:
    run, directory = moved
    path = Path(directory) / FINDINGS_FILE
    pq.write_table(pq.read_table(path).slice(1), path)
    evaluated = sorted(read_reconciled(directory, run).evaluated - {"R10"} | {"R99"})
    change(directory, evaluated=evaluated)
    result = gate.evaluate(run, findings=directory)
    assert {(refusal.code, refusal.reason) for refusal in result.refusals} == {
        ("findings.R10", "the rule was not evaluated, and nothing says why"),
        ("findings.R99", "the catalogue has no such rule"),
    }
    assert "findings.rows" in {failure.code for failure in result.failures}


@alone
def test_a_table_of_findings_that_is_gone_closes_the_gate(moved: tuple[Run, str]) -> None:
    run, directory = moved
    (Path(directory) / FINDINGS_FILE).unlink()
    result = gate.evaluate(run, findings=directory)
    assert {refusal.code.partition(".")[0] for refusal in result.refusals} == {SUITE}
    assert not result.passed(Severity.CRITICAL)


@alone
def test_findings_of_another_run_are_refused(
    moved: tuple[Run, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, directory = moved
    other, _ = published(one(*HEALTHY, commit("more")), tmp_path / "other")
    with pytest.raises(UsageError, match="is about run r, not about"):
        gate.evaluate(other, findings=directory)
    assert main([other.path, "--findings", directory]) == ExitCode.USAGE
    assert main([other.path, "--findings", str(tmp_path)]) == ExitCode.USAGE
    assert "holds no reconciliation.json" in capsys.readouterr().err
    (Path(directory) / RECONCILIATION).write_text("[]")
    assert main([other.path, "--findings", directory]) == ExitCode.USAGE
