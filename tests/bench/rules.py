"""All rules on the run of a replay: alone, and with everything else that they can be told."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.generator import Truth
from tests.bench.measure import Sample, run_process

FAR_END = 1 << 40
OVERDUE = {"thresholds": {"offsets_retention_ms": 0, "expiry_grace_ms": 0}}
"""Settings by which a broker should have deleted what no member subscribes to."""
GIVEN = {"needs topics", "previous run"}


def reconcile(run: Path, directory: Path, truths: Sequence[Truth], *options: str) -> Sample:
    """With topics and, as the run before, this one: rules about them look at every committed offset."""
    topics = directory / "topics.json"
    if not topics.exists():
        topics.write_text(json.dumps(_topics(truths)))
    sample, missing = _reconcile(run, directory, "--topics", str(topics), "--against", str(run), *options)
    if any(need in reason for reason in missing for need in GIVEN):
        raise RuntimeError(f"rules were not evaluated: {missing}")
    return sample


def reconcile_alone(run: Path, directory: Path) -> Sample:
    return _reconcile(run, directory)[0]


def reconcile_overdue(run: Path, directory: Path, truths: Sequence[Truth]) -> Sample:
    """Nearly every committed offset is a finding, or one of those that a finding stands for."""
    settings = directory / "overdue.yaml"
    settings.write_text(json.dumps(OVERDUE))
    return reconcile(run, directory, truths, "--rules", str(settings))


def _reconcile(run: Path, directory: Path, *options: str) -> tuple[Sample, list[str]]:
    """The sample, and what the rules lacked that were not evaluated."""
    output = directory / "reconciliation.json"
    command = [sys.executable, "-m", "coordinator_core", "reconcile", str(run), "--fail-on", "never", "--no-log"]
    sample = run_process([*command, "--format", "json", *options], output)
    return sample, list(json.loads(output.read_text())["not_evaluated"].values())


def _topics(truths: Sequence[Truth]) -> dict[str, Any]:
    """All topics, with as many partitions as anybody has committed, and ends that are far."""
    names = truths[0].topics
    count = np.zeros(len(names), np.int64)
    for truth in truths:
        np.maximum.at(count, truth.topic_of_offset_key, truth.partition_of_offset_key + 1)
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition": number, "start_offset": 0, "end_offset": FAR_END} for number in range(size)
                ],
            }
            for name, size in zip(names, count.tolist(), strict=True)
        ]
    }
