"""``python -m tests.bench.rules [OFFSETS] [GROUPS] [RUNS]``: all rules, against the replay of their run.

Four offsets partitions of live slots, each committed at least once. Whole processes: a replay without a fold
cache; ``regroup reconcile`` on its run alone; the same with topics and a run before (itself); and in Spark.
Needs no broker, so it is a table of its own beside ``python -m tests.bench``.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.bench.generator import Truth, Workload, generate
from tests.bench.measure import Sample, in_turn, ratio, run_process
from tests.bench.truth import check_truth

PARTITIONS = 4
MOST = 2
"""Times of the replay that the rules may take."""

REPLAY, ALONE, COMPARED, SPARK = (
    "`regroup replay`",
    "`regroup reconcile`, the run alone",
    "the same, with topics and the run before",
    "the same, `--engine spark --master local[2]`",
)
_PYTHON = [sys.executable, "-m", "coordinator_core"]


def workload(offsets: int, groups: int) -> Workload:
    slots = offsets // PARTITIONS
    # A commit takes some 110 bytes; groups commit in turn, so that every slot is there.
    return Workload(
        "rules", slots * 125, groups=groups // PARTITIONS, slots=slots, partitions=PARTITIONS, in_turn=True
    )


def measure(work: Workload, runs: int, directory: Path) -> dict[str, list[Sample]]:
    """All rows in turn, once more than ``runs``. Raises when a replay is not the generated truth."""
    log, output = directory / "log", directory / "runs"
    truths = generate(work, log)
    topics = directory / "topics.json"
    topics.write_text(json.dumps(_topics(truths)))
    place = output / "bench" / "w" / "r"

    def replay() -> Sample:
        shutil.rmtree(output, ignore_errors=True)
        sample = _run(
            directory,
            *("replay", str(log), "--output", str(output), "--cluster", "bench", "--window", "w"),
            *("--run-id", "r", "--kafka-version", "4.3.1", "--no-fold-cache"),
            *("--offsets-topic-num-partitions", str(PARTITIONS)),
        )
        check_truth(place, truths)
        return sample

    def reconcile(*options: str) -> Sample:
        return _run(directory, "reconcile", str(place), "--format", "jsonl", "--fail-on", "never", *options)

    known = ("--topics", str(topics), "--against", str(place))
    return in_turn(
        runs,
        {
            REPLAY: replay,
            ALONE: reconcile,
            COMPARED: lambda: reconcile(*known),
            SPARK: lambda: reconcile(*known, "--engine", "spark", "--master", "local[2]"),
        },
    )


def _topics(truths: Sequence[Truth]) -> dict[str, Any]:
    """All topics, with as many partitions as anybody has committed, and ends that are far."""
    names = truths[0].topics
    count = np.zeros(len(names), np.int64)
    for truth in truths:
        np.maximum.at(count, truth.topic_of_slot, truth.partition_of_slot + 1)
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition": number, "start_offset": 0, "end_offset": 1 << 40} for number in range(size)
                ],
            }
            for name, size in zip(names, count.tolist(), strict=True)
        ]
    }


def _run(directory: Path, *arguments: str) -> Sample:
    return run_process([*_PYTHON, *arguments], directory / "output")


def main(offsets: int = 5_000_000, groups: int = 100_000, runs: int = 3) -> None:
    with tempfile.TemporaryDirectory(prefix="regroup-bench-") as directory:
        samples = measure(workload(offsets, groups), runs, Path(directory))
    print(f"| {offsets} offsets, {groups} groups; median of {runs} | seconds | CPU seconds | peak MiB |")
    print("|---|---|---|---|")
    for row, taken in samples.items():
        seconds, cpu = (median(getattr(one, name) for one in taken) for name in ("seconds", "cpu_seconds"))
        print(f"| {row} | {seconds:.2f} | {cpu:.2f} | {max(one.peak_mib for one in taken):.0f} |")
    for row in (ALONE, COMPARED, SPARK):
        times = ratio(samples[row], samples[REPLAY])
        print(f"\n{row}: {times:.2f} times the replay (at most {MOST}{'' if times < MOST else ', MISSED'})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
