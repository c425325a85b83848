"""The table about rules, on a log of a few offset keys."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.kafka import kafka_as_it_comes
from tests.bench.plans import QUICK
from tests.bench.takes import Bench

PLAN = next(plan for plan in QUICK if plan.name == "rules")


def test_rules_are_measured_on_a_run_that_holds_what_was_asked(tmp_path: Path) -> None:
    plan = PLAN.scaled(0.01)
    with Bench(plan, kafka_as_it_comes(), tmp_path / "bench") as bench:
        samples = bench.take(1)
        manifest = json.loads((bench.run / "manifest.json").read_text())
        found = json.loads((tmp_path / "bench/reconciliation.json").read_text())
    assert list(samples) == list(plan.rows)
    work = plan.workload
    assert manifest["tables"]["offsets"]["rows"] == work.offset_keys * work.partitions
    assert manifest["tables"]["groups"]["rows"] == work.groups * work.partitions
    assert len(manifest["cut"]) == work.partitions
    # The last row: topics and the run before were looked at, and most offsets are overdue.
    assert {"R31", "R20", "R60"} <= set(found["evaluated"])
    overdue = sum(finding["rows"] for finding in found["findings"] if finding["rule"] == "R60")
    assert overdue > 0.9 * work.offset_keys * work.partitions
