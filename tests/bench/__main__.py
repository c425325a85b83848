"""``make bench``: replay and dump against Kafka 4.3.1 on the same bytes, in turn, in one run.

The reference of the replay is the broker's own "Finished loading" of the partition: only its loading, without
the start of the broker, against our whole process from start to published run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.generator import Truth, Workload, generate
from tests.bench.measure import HEADER, Sample, in_turn, run_process
from tests.bench.truth import check_truth
from tests.live.broker import Broker, Kafka

RELEASE = "4.3.1"
LOADED = re.compile(r"Finished loading of metadata from __consumer_offsets-\d+ with epoch \d+ in (\d+)ms")
PROCESS = [sys.executable, "-m", "coordinator_core"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=100, help="size of the offsets partition")
    parser.add_argument("--slots", type=int, default=176_000)
    parser.add_argument("--transactional", type=float, default=0.0, help="share of transactional batches")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    workload = Workload(
        "bench", options.megabytes * 1_000_000, slots=options.slots, transactional=options.transactional
    )
    with tempfile.TemporaryDirectory(prefix="regroup-bench-") as name:
        directory = Path(name)
        log = directory / "log"
        (truth,) = generate(workload, log)
        print(_machine())
        print(
            f"One offsets partition: {truth.bytes / 1e6:.0f} MB, {truth.records} records, {truth.batches} "
            f"batches, {workload.groups} groups, {int((truth.committed >= 0).sum())} live slots.\n"
        )
        kafka = Kafka.fetch()
        print("\n".join(replay_table(kafka, log, directory, truth, options.runs)))
        print()
        print("\n".join(dump_table(kafka, log, directory, options.runs)))


def _machine() -> str:
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, Kafka {RELEASE}."
    )


def replay_table(kafka: Kafka, log: Path, directory: Path, truth: Truth, runs: int) -> list[str]:
    """Our replays against the broker's load."""
    runs_at = directory / "runs"
    summary_at = directory / "summary.json"

    def replay(engine: str) -> Sample:
        shutil.rmtree(runs_at, ignore_errors=True)
        command = [*PROCESS, "replay", str(log), "--output", str(runs_at), "--cluster", "bench"]
        command += [
            "--kafka-version",
            RELEASE,
            "--engine",
            engine,
            "--master",
            "local[2]",
            "--format",
            "json",
        ]
        sample = run_process(command, summary_at)
        check_truth(Path(json.loads(summary_at.read_text())["run"]), [truth])
        return sample

    with loading_broker(kafka, log, directory) as broker:

        def load() -> Sample:
            broker.start()
            loaded = [int(found) for found in LOADED.findall(broker.log_since_start())]
            broker.stop()
            return Sample(max(loaded) / 1000, float("nan"), float("nan"))

        figures = in_turn(
            runs,
            **{
                "broker loads the partition": load,
                "regroup replay --engine local, whole process": lambda: replay("local"),
                "regroup replay --engine spark --master local[2], whole process": lambda: replay("spark"),
            },
        )
    reference = figures["broker loads the partition"]
    return [*HEADER, *(figure.row(reference) for figure in figures.values())]


@contextmanager
def loading_broker(kafka: Kafka, log: Path, directory: Path) -> Iterator[Broker]:
    """A stopped broker whose only offsets partition holds the log; it is started once for every sample."""
    broker = Broker(
        kafka,
        directory / "broker",
        {
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": "104857600",
            "log.index.size.max.bytes": "10485760",
            "log.cleaner.enable": "false",
            "offsets.retention.minutes": "1000000",
        },
    )
    broker.start()
    broker.stop()
    place = broker.log_dir / "__consumer_offsets-0"
    for stale in [
        *place.glob("*.log"),
        *place.glob("*.index"),
        *place.glob("*.timeindex"),
        *place.glob("*.snapshot"),
    ]:
        stale.unlink()
    for segment in (log / place.name).glob("*.log"):
        shutil.copy(segment, place)
    try:
        yield broker
    finally:
        broker.kill()


def dump_table(kafka: Kafka, log: Path, directory: Path, runs: int) -> list[str]:
    """Our dump against Kafka's dump tool, on the first segment; the texts must be equal."""
    segment = min(log.glob("*/*.log"))
    texts = {name: directory / f"{name}.txt" for name in ("kafka", "regroup")}
    theirs = kafka.command(
        "org.apache.kafka.tools.DumpLogSegments",
        *("--offsets-decoder", "--print-data-log", "--files", str(segment)),
        heap="1g",
    )
    ours = [*PROCESS, "dump", str(segment), "--kafka-version", RELEASE]
    figures = in_turn(
        runs,
        **{
            "kafka-dump-log --offsets-decoder --print-data-log": lambda: run_process(theirs, texts["kafka"]),
            "regroup dump": lambda: run_process(ours, texts["regroup"]),
        },
    )
    if texts["kafka"].read_bytes() != texts["regroup"].read_bytes():
        raise RuntimeError("the dumps differ")
    reference = next(iter(figures.values()))
    return [*HEADER, *(figure.row(reference) for figure in figures.values())]


if __name__ == "__main__":
    main()
