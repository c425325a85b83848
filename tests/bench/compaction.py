"""Compaction beside the broker's log cleaner: the same log, and what both leave of it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench.generator import Truth
from tests.bench.kafka import PATIENCE_SECONDS, offsets_broker, thread
from tests.bench.measure import Sample, cpu_seconds, peak_mib, run_process
from tests.live.broker import Broker, Kafka, wait_for

CLEANED = re.compile(
    r"cleaned log __consumer_offsets-(\d+) .*?([\d,.]+) MB of log processed in ([\d,.]+) seconds", re.DOTALL
)
_MIB = 1 << 20


def clean(kafka: Kafka, log: Path, directory: Path) -> Sample:
    """The log cleaner's own figure for its first pass over each partition of a copy of ``log``, one after
    the other in its one thread.

    ``left_mib`` is what is on the disk then, the active segment included.
    """
    copy = directory / "log-to-clean"
    shutil.copytree(log, copy)
    settings = {
        "log.cleaner.enable": "true",
        "log.cleaner.min.cleanable.ratio": "0.01",
        # The first look at the logs comes before the broker leads the partition, the next after its load.
        "log.cleaner.backoff.ms": "30000",
        "log.cleaner.dedupe.buffer.size": "134217728",
    }
    broker = offsets_broker(kafka, copy, directory / "cleaner", settings)
    partitions = sum(1 for _ in log.iterdir())
    try:
        broker.start()
        before = cpu_seconds(thread(broker.pid, "kafka-log-clean"))
        found = wait_for("the log cleaner", lambda: _passes(broker, partitions), PATIENCE_SECONDS)
        cpu = cpu_seconds(thread(broker.pid, "kafka-log-clean")) - before
        peak = peak_mib(broker.pid)
        left = _left(broker.log_dir)
    finally:
        broker.kill()
        shutil.rmtree(copy)
        shutil.rmtree(directory / "cleaner")
    megabytes, seconds = map(sum, zip(*found.values(), strict=True))
    return Sample(seconds, cpu, peak, {"processed_mib": megabytes, "left_mib": left})


def _passes(broker: Broker, partitions: int) -> dict[str, tuple[float, float]] | None:
    """Megabytes and seconds of the first pass over each partition, once all have had one."""
    found: dict[str, tuple[float, float]] = {}
    for number, *figures in CLEANED.findall(broker.log_since_start()):
        megabytes, seconds = (float(figure.replace(",", "")) for figure in figures)
        found.setdefault(number, (megabytes, seconds))
    return found if len(found) == partitions else None


def compact(kafka: Kafka, log: Path, directory: Path, truths: Sequence[Truth], *options: str) -> Sample:
    """The whole ``regroup compact``, proof included."""
    output, said = directory / "compacted", directory / "output.json"
    shutil.rmtree(output, ignore_errors=True)
    command = [sys.executable, "-m", "coordinator_core", "compact", str(log), "--output", str(output)]
    sample = run_process([*command, "--kafka-version", kafka.version, "--format", "json", *options], said)
    document = json.loads(said.read_text())
    if document["output_records"] < sum(truth.live_offset_keys for truth in truths):
        raise RuntimeError("compaction has lost committed offsets")
    sample.details["left_mib"] = _left(output)
    return sample


def _left(directory: Path) -> float:
    return sum(path.stat().st_size for path in directory.glob("__consumer_offsets-*/*.log")) / _MIB
