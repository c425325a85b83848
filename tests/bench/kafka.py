"""Kafka's own work on the same bytes: its broker's load, its dump tool.

Kafka runs as it comes, with the JIT and the collector that its JVM chooses; the heap is larger than the
default gigabyte, so that it never waits for memory.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.measure import Sample, cpu_seconds, peak_mib
from tests.live.broker import Broker, Kafka

HEAP = "4g"
PATIENCE_SECONDS = 1800.0
LOADED = re.compile(
    r"GroupCoordinator .*Finished loading of metadata from (\S+) with epoch \d+ in (\d+)ms "
    r"where (\d+)ms was spent in the scheduler"
)
LOADER_THREAD = "kafka-scheduler"
MADE_BY_BROKER = ("*.log", "*.index", "*.timeindex", "*.snapshot", "*.txnindex")


def kafka_as_it_comes() -> Kafka:
    return Kafka(Kafka.fetch().jars, jvm_options=())


def dump_command(kafka: Kafka, segment: Path, *options: str) -> list[str]:
    main_class = "org.apache.kafka.tools.DumpLogSegments"
    return kafka.command(main_class, "--offsets-decoder", *options, "--files", str(segment), heap="1g")


def put_log(broker: Broker, log: Path) -> None:
    """Give a stopped broker the offsets partitions of ``log``, by hard links: what it writes would show."""
    for partition in sorted(log.iterdir()):
        place = broker.log_dir / partition.name
        for pattern in MADE_BY_BROKER:
            for stale in place.glob(pattern):
                stale.unlink()
        for segment in partition.glob("*.log"):
            os.link(segment, place / segment.name)


@contextmanager
def loading_broker(kafka: Kafka, log: Path, directory: Path) -> Iterator[LoadingBroker]:
    """A stopped broker whose offsets topic is ``log``."""
    broker = offsets_broker(kafka, log, directory, {"log.cleaner.enable": "false"})
    try:
        yield LoadingBroker(broker, log)
    finally:
        broker.kill()
        shutil.rmtree(directory)


class LoadingBroker:
    """Loads its offsets topic whenever it is started."""

    def __init__(self, broker: Broker, log: Path) -> None:
        self._broker = broker
        self._log = log
        self._sizes = self._segment_sizes()

    def load(self) -> Sample:
        """The broker's own figure, its start not counted. Partitions load one after the other, in one thread:
        theirs is the CPU time. The peak is that of the whole process."""
        self._broker.start()
        pid = self._broker.pid
        threads = Path(f"/proc/{pid}/task").iterdir()
        loader = max(
            cpu_seconds(thread) for thread in threads if (thread / "comm").read_text().strip() == LOADER_THREAD
        )
        details = {"process_cpu_seconds": cpu_seconds(Path(f"/proc/{pid}"))}
        peak = peak_mib(pid)
        # Loaded again under a newer leader epoch, a partition counts once.
        seconds: dict[str, float] = {}
        for partition, total, waited in LOADED.findall(self._broker.log_since_start()):
            took = (int(total) - int(waited)) / 1000
            seconds[partition] = max(took, seconds.get(partition, 0.0))
        self._broker.stop()
        if self._segment_sizes() != self._sizes:
            raise RuntimeError("the broker has written into the log that is measured")
        return Sample(sum(seconds.values()), loader, peak, details)

    def _segment_sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in self._log.glob("*/*.log")}


def thread(pid: int, name: str) -> Path:
    """Place in ``/proc`` of the thread whose name begins like that; Linux keeps 15 characters."""
    for place in Path(f"/proc/{pid}/task").iterdir():
        if (place / "comm").read_text().startswith(name[:15]):
            return place
    raise RuntimeError(f"Kafka has no thread {name}")


def offsets_broker(kafka: Kafka, log: Path, directory: Path, settings: dict[str, str]) -> Broker:
    """A stopped broker that holds ``log`` and expires nothing of it."""
    partitions = sum(1 for _ in log.iterdir())
    common = {
        "offsets.topic.num.partitions": str(partitions),
        "offsets.topic.segment.bytes": "104857600",
        "log.index.size.max.bytes": "10485760" if partitions < 10 else "1048576",
        "offsets.retention.minutes": "1000000",
    }
    broker = Broker(kafka, directory, {**common, **settings}, heap=HEAP, start_seconds=PATIENCE_SECONDS)
    broker.start()
    broker.stop()
    put_log(broker, log)
    return broker
