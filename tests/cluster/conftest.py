"""The broker that several files of this directory capture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.cluster.kit import Commits
from tests.live.broker import Broker, Kafka, wait_for
from tests.live.scenario import Clients

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    # The smallest that this release takes: several segments without much work.
    "offsets.topic.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "1",
    "log.retention.check.interval.ms": "300",
}


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    return Kafka.fetch()


@dataclass(frozen=True)
class Place:
    broker: Broker
    commits: Commits


@pytest.fixture(scope="package")
def place(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker with commits, transactions of every outcome, and a group with a live member."""
    broker = Broker(kafka, tmp_path_factory.mktemp("one-broker") / "broker", SETTINGS)
    broker.start()
    clients = Clients(broker)
    commits = Commits(broker.bootstrap)
    try:
        commits.create_topic()
        commits.commit(300, metadata="m" * 60)
        producer, opened = clients.producer("tx-ended"), clients.producer("tx-open")
        for outcome in ("commit", "abort"):
            producer.ask({"begin": {f"g-{outcome}": [["orders", 0, 7, outcome, 0]]}})
            producer.ask(outcome)
        opened.ask({"begin": {"g-open": [["orders", 0, 8, "open", 0]]}})
        member = clients.member("g-member", "orders", "member", "range")
        wait_for("the member's assignment", lambda: member.ask("commit")["assignment"])
        yield Place(broker, commits)
    finally:
        commits.close()
        for client in clients._started:
            client.kill()
        broker.kill()
