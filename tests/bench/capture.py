"""A capture beside Kafka's own consumer: the offsets topic of one broker on loopback.

Kafka's figure is what its performance tool says of the fetching alone; ours is a whole process, from
its start to the manifest, with the bytes on the disk.
"""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from coordinator_core.log.discovery import discover
from coordinator_core.log.types import OFFSETS_TOPIC
from tests.bench.kafka import offsets_broker
from tests.bench.measure import Sample, run_process
from tests.live.broker import Broker, Kafka

CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"


@dataclass(frozen=True)
class Source:
    """A running broker with a generated log."""

    broker: Broker
    log: Path
    directory: Path

    def consume(self, records: int) -> Sample:
        """Assigned by a group of its own, which leaves records of its own behind those that count."""
        command = self.broker.kafka.command(
            CONSUMER,
            *("--bootstrap-server", self.broker.bootstrap, "--topic", OFFSETS_TOPIC),
            *("--num-records", str(records), "--timeout", "60000", "--hide-header"),
            *("--command-property", "exclude.internal.topics=false"),
            heap="1g",
        )
        output = self.directory / "consumer"
        sample = run_process(command, output)
        (row,) = [row for row in csv.reader(output.read_text().splitlines(), skipinitialspace=True) if len(row) == 10]
        if int(row[4]) < records:
            raise RuntimeError(f"the consumer read {row[4]} of {records} records")
        return replace(sample, seconds=int(row[7]) / 1000)

    def capture(self) -> Sample:
        """Raises when the capture does not begin with the generated log, byte for byte."""
        output = self.directory / "capture"
        if output.exists():
            shutil.rmtree(output)
        command = [sys.executable, "-m", "coordinator_core", "capture", "--output", str(output)]
        sample = run_process([*command, "--bootstrap-server", self.broker.bootstrap], self.directory / "captured")
        for theirs, ours in zip(_bytes(self.log), _bytes(output), strict=True):
            if ours[: len(theirs)] != theirs:
                raise RuntimeError("the capture is not the log")
        return sample


@contextmanager
def source(kafka: Kafka, log: Path, directory: Path) -> Iterator[Source]:
    """``directory`` is for the broker and what is fetched; it is gone afterwards."""
    broker = offsets_broker(kafka, log, directory / "broker", {"log.cleaner.enable": "false"})
    try:
        broker.start()
        yield Source(broker, log, directory)
    finally:
        broker.kill()
        shutil.rmtree(directory)


def _bytes(log: Path) -> list[bytes]:
    partitions = discover([str(log)]).partitions
    return [b"".join(Path(segment.path).read_bytes() for segment in each.segments) for each in partitions]
