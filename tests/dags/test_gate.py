"""The gate: what closes it, and what a run becomes that goes through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from dags.common import reconcile
from dags.common.clusters import CLUSTERS_ENV
from tests.rules.logs import HEALTHY, one

EXPECTED = {"run": "r", "contradictions": [], "not_evaluated": [], "data_docs": "docs/index.html"}


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A run of a cluster whose latest run is the gate's to name."""
    clusters = tmp_path / "clusters.yaml"
    clusters.write_text(
        f"clusters:\n  c: {{source: log, output: {tmp_path / 'runs'}, gate_latest: true}}\n"
        f"  plain: {{source: log, output: {tmp_path / 'runs'}}}\n"
    )
    monkeypatch.setenv(CLUSTERS_ENV, str(clusters))
    run = one(*HEALTHY).publish(tmp_path).path
    return {
        "run": run,
        "verdict": "critical",
        "worst": ["critical R30 of g"],
        "report": "p",
        "findings": "f",
        "failed": False,
    }


def latest(checked: dict[str, Any]) -> Path:
    return Path(checked["run"]).parent.parent / "latest.json"


def test_what_goes_through_is_the_latest_run(checked: dict[str, Any]) -> None:
    assert reconcile.gate("plain", [checked], [EXPECTED]) == [checked]
    assert not latest(checked).exists()
    assert reconcile.gate("c", [checked], [EXPECTED]) == [checked]
    assert json.loads(latest(checked).read_text())["path"] == "w/r"


@pytest.mark.parametrize(
    "failed, expected, said",
    [
        (True, {}, "critical: critical R30 of g"),
        (False, {"contradictions": ["offsets.key"]}, r"contradict each other \(offsets.key\)"),
        (False, {"not_evaluated": ["findings.R10"]}, r"were not evaluated \(findings.R10\)"),
    ],
)
def test_what_closes_the_gate_does_not_become_the_latest_run(
    failed: bool, expected: dict[str, Any], said: str, checked: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException, match=said):
        reconcile.gate("c", [checked | {"failed": failed}], [EXPECTED | expected])
    assert not latest(checked).exists()
