"""Figures of a large restore on a real broker: processor seconds and memory of each command.

``python -m tests.scale.restoring 10000 50`` restores 50 committed offsets of each of 10 000 groups, proves it, and
takes it back; it prints a line of JSON for each command. Half of the groups are absent before, the
others hold other offsets.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka import KafkaProducer

from tests.cluster.kit import PARTITIONS, TOPIC, Commits
from tests.launched import launched
from tests.live.broker import Broker, Kafka


@dataclass(frozen=True)
class Measured:
    """``cpu_seconds`` of user and system; ``peak_bytes`` is the largest resident set."""

    command: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measured(name: str, *arguments: str | Path) -> Measured:
    """One command line, which ends well."""
    began = time.monotonic()
    done = launched([sys.executable, "-m", "coordinator_core", "restore", *map(str, arguments)])
    assert done.code == 0, (arguments, done.code, done.stderr)
    return Measured(name, round(time.monotonic() - began, 1), round(done.cpu_seconds, 1), done.peak_bytes)


def restore(broker: Broker, groups: int, offsets: int, scratch: Path) -> Iterator[Measured]:
    """Each command in turn, on a broker whose topic has a record in each of as many partitions or more."""
    server = ("--bootstrap-server", broker.bootstrap)

    def wanted(name: str, offset: int, every: int) -> Path:
        lines = (
            f"group-{group:05},{TOPIC},{number},{offset}\n"
            for group in range(0, groups, every)
            for number in range(offsets)
        )
        (scratch / name).write_text("".join(lines))
        return scratch / name

    def steps(name: str, plan: Path) -> Iterator[Measured]:
        yield measured(f"{name}: apply", "apply", plan, *server, "--execute", "--output", scratch / name)
        yield measured(f"{name}: verify", "verify", scratch / name, *server)

    plan = scratch / "before.json"
    measured("", "plan", "--from-file", wanted("before.csv", 1, 2), *server, "--output", plan)
    for _ in steps("before", plan):
        pass
    plan = scratch / "plan.json"
    yield measured("plan", "plan", "--from-file", wanted("wanted.csv", 0, 1), *server, "--output", plan)
    yield from steps("restore", plan)
    back = scratch / "back.json"
    yield measured("rollback", "rollback", scratch / "restore", *server, "--output", back)
    yield from steps("rollback", back)
    captured = scratch / "restore" / "capture"
    yield measured("plan of a snapshot", "plan", captured, "--all-groups", *server, "--output", scratch / "again.json")


def main(groups: int, offsets: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Kafka.fetch(), Path(directory) / "broker", heap="1g")
        try:
            broker.start()
            commits = Commits(broker.bootstrap)
            commits.create_topic()
            commits.close()
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
            for number in range(PARTITIONS):
                producer.send(TOPIC, b"record", partition=number)
            producer.close()
            for step in restore(broker, groups, offsets, Path(directory)):
                print(json.dumps(asdict(step)), flush=True)
        finally:
            broker.kill()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
