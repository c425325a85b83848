"""Measurement of each row. Every replay is checked against the truth, every dump against Kafka's text."""

from __future__ import annotations

import filecmp
import json
import math
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.bench.capture import Source, source
from tests.bench.compaction import clean, compact
from tests.bench.generator import START_MS, Truth, generate
from tests.bench.investigations import history_of_all, investigate_all, investigate_group
from tests.bench.kafka import LoadingBroker, dump_command, loading_broker
from tests.bench.measure import Sample, Take, in_turn, run_process
from tests.bench.plans import Plan, Row
from tests.bench.rules import reconcile, reconcile_alone, reconcile_overdue
from tests.bench.truth import check_truth
from tests.live.broker import Kafka

NEW_SHARE = 0.05
NO_CACHE = ("--no-fold-cache",)
PYTHON = [sys.executable, "-m"]


class Bench:
    """A generated log in ``directory``, and what is measured on it."""

    def __init__(self, plan: Plan, kafka: Kafka, directory: Path) -> None:
        self.plan = plan
        self._kafka = kafka
        self._directory = directory
        self._log = directory / "log"
        self._runs = directory / "runs"
        self._cache = directory / "cache"
        self._stack = ExitStack()
        self.truths: list[Truth] = []
        self.run = Path()
        """Run of the newest replay."""

    def __enter__(self) -> Bench:
        self.truths = generate(self.plan.workload, self._log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        shutil.rmtree(self._directory)

    @property
    def segments(self) -> list[Path]:
        return sorted(self._log.glob("*/*.log"))

    def take(self, runs: int) -> dict[Row, list[Sample]]:
        takes: dict[Row, Take] = {
            Row.BROKER: lambda: self._broker.load(),
            Row.LOCAL: lambda: self._replay("--engine", "local", *NO_CACHE),
            Row.SPARK: lambda: self._replay("--engine", "spark", "--master", "local[2]", *NO_CACHE),
            Row.KERNEL: self._fold,
            Row.FIRST: self._first,
            Row.SECOND: lambda: self._replay("--engine", "local", "--fold-cache", str(self._cache)),
            Row.KAFKA_DUMP: lambda: run_process(
                dump_command(self._kafka, self.segments[0], "--print-data-log"), self._directory / "kafka.txt"
            ),
            Row.DUMP: self._dump,
            Row.CLEANER: lambda: clean(self._kafka, self._log, self._directory),
            Row.COMPACT: self._compact,
            Row.COMPACT_SPARK: lambda: self._compact("--engine", "spark", "--master", "local[2]"),
            Row.CONSUMER: lambda: self._source.consume(sum(truth.records for truth in self.truths)),
            Row.CAPTURE: lambda: self._source.capture(),
            Row.RULES: lambda: reconcile_alone(self.run, self._directory),
            Row.RULES_COMPARED: self._reconcile,
            Row.RULES_SPARK: lambda: self._reconcile("--engine", "spark", "--master", "local[2]"),
            Row.RULES_OVERDUE: lambda: reconcile_overdue(self.run, self._directory, self.truths),
            Row.GROUP: lambda: investigate_group(self._log, self._directory, self.truths[0], self._kafka.version),
            Row.HISTORY: lambda: history_of_all(self._log, self._directory, self.truths, self._kafka.version),
            Row.CLUSTER: lambda: investigate_all(self._log, self._directory, self._kafka.version),
            Row.STRUCT: lambda: self._reference("struct"),
            Row.KAFKA_PYTHON: lambda: self._reference("kafka-python"),
        }
        samples = in_turn(runs, {row: takes[row] for row in self.plan.rows})
        return {row: samples[row] for row in self.plan.rows}

    @cached_property
    def _broker(self) -> LoadingBroker:
        """Started for the first time when it is asked for; its directory lies beside the log."""
        broker = loading_broker(self._kafka, self._log, self._directory / "broker")
        return self._stack.enter_context(broker)

    @cached_property
    def _source(self) -> Source:
        """A broker that serves the log, started when it is first asked for."""
        return self._stack.enter_context(source(self._kafka, self._log, self._directory / "source"))

    def _replay(self, *options: str, is_whole: bool = True) -> Sample:
        shutil.rmtree(self._runs, ignore_errors=True)
        sample, summary = self._json(
            *(
                "coordinator_core",
                "replay",
                str(self._log),
                "--output",
                str(self._runs),
                "--cluster",
                "bench",
            ),
            *("--kafka-version", self._kafka.version, "--format", "json", *options),
            # A millisecond a batch: when the log ends. Today all of its offsets would be overdue.
            *("--now-ms", str(START_MS + max(truth.batches for truth in self.truths))),
            *("--offsets-topic-num-partitions", str(len(self.truths))),
        )
        self.run = Path(summary["run"])
        if is_whole:
            check_truth(self.run, self.truths)
        return sample

    def _first(self) -> Sample:
        """The newest segments of each partition are not there yet."""
        shutil.rmtree(self._cache, ignore_errors=True)
        newest = []
        for partition in self._log.iterdir():
            segments = sorted(partition.glob("*.log"))
            newest += segments[-math.ceil(NEW_SHARE * len(segments)) :]
        places = {segment: segment.with_suffix(".hidden") for segment in newest}
        for segment, hidden in places.items():
            segment.rename(hidden)
        try:
            return self._replay("--engine", "local", "--fold-cache", str(self._cache), is_whole=False)
        finally:
            for segment, hidden in places.items():
                hidden.rename(segment)

    def _fold(self) -> Sample:
        sample, answer = self._json("tests.bench.kernel", str(self._log), self._kafka.version)
        return replace(sample, seconds=answer["cpu_seconds"], cpu_seconds=answer["cpu_seconds"])

    def _dump(self) -> Sample:
        theirs, ours = self._directory / "kafka.txt", self._directory / "regroup.txt"
        command = [*PYTHON, "coordinator_core", "dump", str(self.segments[0])]
        sample = run_process([*command, "--kafka-version", self._kafka.version], ours)
        if not filecmp.cmp(theirs, ours, shallow=False):
            raise RuntimeError("the dumps differ")
        return sample

    def _compact(self, *options: str) -> Sample:
        return compact(self._kafka, self._log, self._directory, self.truths, *options)

    def _reconcile(self, *options: str) -> Sample:
        return reconcile(self.run, self._directory, self.truths, *options)

    def _reference(self, reader: str) -> Sample:
        sample, live = self._json("tests.bench.references", reader, str(self._log))
        if live != sum(truth.live_offset_keys for truth in self.truths):
            raise RuntimeError(f"{reader} finds {live} live slots")
        return sample

    def _json(self, *command: str) -> tuple[Sample, Any]:
        output = self._directory / "output.json"
        sample = run_process([*PYTHON, *command], output)
        return sample, json.loads(output.read_text())


def describe_log(truths: Sequence[Truth], segments: Sequence[Path]) -> dict[str, int]:
    return {
        "bytes": sum(truth.bytes for truth in truths),
        "records": sum(truth.records for truth in truths),
        "batches": sum(truth.batches for truth in truths),
        "groups": sum(len(truth.groups) for truth in truths),
        "live_committed_offsets": sum(truth.live_offset_keys for truth in truths),
        "partitions": len(truths),
        "segments": len(segments),
    }
