"""The table about rules, on a log of a few slots."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.rules import ALONE, COMPARED, PARTITIONS, REPLAY, SPARK, measure, workload


def test_rules_and_the_replay_are_measured_on_a_run_that_holds_what_was_asked(tmp_path: Path) -> None:
    assert list(measure(workload(4_000, 80), 0, tmp_path)) == [REPLAY, ALONE, COMPARED, SPARK]
    manifest = json.loads((tmp_path / "runs/bench/w/r/manifest.json").read_text())
    assert manifest["tables"]["offsets"]["rows"] == 4_000
    assert manifest["tables"]["groups"]["rows"] == 80
    assert len(manifest["cut"]) == PARTITIONS
    # Topics and the run before were looked at: only what needs a log was not.
    (reconciliation,) = (tmp_path / "runs/bench/w/_findings/r").glob("*/reconciliation.json")
    reasons = json.loads(reconciliation.read_text())["not_evaluated"].values()
    assert all("--log" in reason or "--transaction-log" in reason for reason in reasons)
