"""``python -m tests.bench.capture [MEGABYTES] [RUNS]``: a capture against Kafka's own consumer.

One offsets partition, uncompressed, of one broker on loopback. Kafka's figure is what its consumer's
performance tool says of the fetching alone; ours is a whole process, from its start to the manifest, with the
bytes on the disk. It starts a broker itself, so it is a table of its own beside ``python -m tests.bench``.
"""

from __future__ import annotations

import csv
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

from coordinator_core.log.discovery import discover
from coordinator_core.log.types import OFFSETS_TOPIC
from tests.bench.generator import Workload, generate
from tests.bench.kafka import kafka_as_it_comes, offsets_broker
from tests.bench.measure import Sample, in_turn, ratio, run_process
from tests.live.broker import Broker

CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
CONSUMER_ROW, CAPTURE_ROW = "Kafka's consumer", "regroup capture"


def measure(workload: Workload, runs: int, directory: Path) -> dict[str, list[Sample]]:
    """Both in turn. Raises when the capture is not the generated log, byte for byte."""
    log = directory / "log"
    truths = generate(workload, log)
    records = sum(truth.records for truth in truths)
    broker = offsets_broker(kafka_as_it_comes(), log, directory / "broker", {"log.cleaner.enable": "false"})
    broker.start()
    try:
        return in_turn(
            runs,
            {
                CONSUMER_ROW: lambda: _consume(broker, records, directory),
                CAPTURE_ROW: lambda: _capture(broker, log, directory),
            },
        )
    finally:
        broker.kill()


def _consume(broker: Broker, records: int, directory: Path) -> Sample:
    """Assigned by a group of its own, which leaves records of its own behind those that count."""
    command = broker.kafka.command(
        CONSUMER,
        *("--bootstrap-server", broker.bootstrap, "--topic", OFFSETS_TOPIC),
        *("--num-records", str(records), "--timeout", "60000", "--hide-header"),
        *("--command-property", "exclude.internal.topics=false"),
        heap="1g",
    )
    output = directory / "consumer"
    sample = run_process(command, output)
    (row,) = [
        row for row in csv.reader(output.read_text().splitlines(), skipinitialspace=True) if len(row) == 10
    ]
    if int(row[4]) < records:
        raise RuntimeError(f"the consumer read {row[4]} of {records} records")
    return replace(sample, seconds=int(row[7]) / 1000)


def _capture(broker: Broker, log: Path, directory: Path) -> Sample:
    output = directory / "capture"
    if output.exists():
        shutil.rmtree(output)
    command = [sys.executable, "-m", "coordinator_core", "capture", "--output", str(output)]
    sample = run_process([*command, "--bootstrap-server", broker.bootstrap], directory / "captured")
    for theirs, ours in zip(_bytes(log), _bytes(output), strict=True):
        if ours[: len(theirs)] != theirs:
            raise RuntimeError("the capture is not the log")
    return sample


def _bytes(log: Path) -> list[bytes]:
    partitions = discover([str(log)]).partitions
    return [b"".join(Path(segment.path).read_bytes() for segment in each.segments) for each in partitions]


def main(megabytes: int = 1000, runs: int = 3) -> None:
    with tempfile.TemporaryDirectory(prefix="regroup-bench-") as directory:
        workload = Workload("capture", megabytes * 1_000_000)
        samples = measure(workload, runs, Path(directory))
    print(f"| {megabytes} MB of {OFFSETS_TOPIC}, median of {runs} | seconds | MB/s | peak MiB |")
    print("|---|---|---|---|")
    for row, taken in samples.items():
        seconds = median(sample.seconds for sample in taken)
        peak = max(sample.peak_mib for sample in taken)
        print(f"| {row} | {seconds:.2f} | {megabytes / seconds:.0f} | {peak:.0f} |")
    print(f"\ncapture is {ratio(samples[CONSUMER_ROW], samples[CAPTURE_ROW]):.2f} times as fast")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
