"""``regroup investigate``: of one group, checked against the truth, and of the whole cluster; ``regroup history``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core.errors import ExitCode
from tests.bench.generator import Truth
from tests.bench.measure import Sample, run_process
from tests.bench.truth import WrongAnswerError


def investigate_group(log: Path, directory: Path, truth: Truth, version: str) -> Sample:
    """One group of the middle of the log; what stands in its table ``history`` must be what was committed last."""
    live = np.flatnonzero(truth.committed >= 0)
    number = int(truth.group_of_offset_key[live[len(live) // 2]])
    sample, document = _investigate(log, directory, version, "--group", truth.groups[number])
    keys = live[truth.group_of_offset_key[live] == number]
    expected = {
        (truth.topics[truth.topic_of_offset_key[key]], int(truth.partition_of_offset_key[key])): truth.committed[key]
        for key in keys
    }
    found = {
        (row["topic"], row["partition"]): row["committed_offset"]
        for row in document["history"]
        if row["valid_to"] is None
    }
    if found != expected:
        raise WrongAnswerError(f"history of {truth.groups[number]}: {len(found)} values stand, {len(expected)} should")
    return sample


def history_of_all(log: Path, directory: Path, truths: Sequence[Truth], version: str) -> Sample:
    """Every group of the log; what stands in the table must be what was committed last."""
    file = directory / "history.parquet"
    command = [sys.executable, "-m", "coordinator_core", "history", str(log), "--kafka-version", version]
    sample = run_process([*command, "--output", str(file)], directory / "history.txt")
    columns = ["group_id", "topic", "partition", "committed_offset"]
    standing = pq.read_table(file, columns=columns, filters=pc.field("valid_to").is_null())
    found = sorted(zip(*(standing[name].to_pylist() for name in columns), strict=True))
    expected = sorted(
        (
            truth.groups[truth.group_of_offset_key[key]],
            truth.topics[truth.topic_of_offset_key[key]],
            int(truth.partition_of_offset_key[key]),
            int(truth.committed[key]),
        )
        for truth in truths
        for key in np.flatnonzero(truth.committed >= 0)
    )
    if found != expected:
        raise WrongAnswerError(f"history: {len(found)} values stand, {len(expected)} should")
    return sample


def investigate_all(log: Path, directory: Path, version: str) -> Sample:
    """Every group of the log."""
    sample, document = _investigate(log, directory, version)
    if "explanations" not in document:
        raise WrongAnswerError("no explanations")
    return sample


def _investigate(log: Path, directory: Path, version: str, *options: str) -> tuple[Sample, dict[str, Any]]:
    output = directory / "investigation.json"
    command = [sys.executable, "-m", "coordinator_core", "investigate", str(log), "--kafka-version", version]
    # Offsets of generated logs go to and fro: that is found.
    codes = (ExitCode.CLEAN, ExitCode.FINDINGS)
    sample = run_process([*command, "--format", "json", *options], output, codes)
    return sample, json.loads(output.read_text())
