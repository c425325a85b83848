"""The coordinator model against live brokers: the same random requests, the same answers, the same records.

``--model-seed`` takes another walk; the seed is in the output of a failure.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from coordinator_core.coordinator.trace import Trace, differences, play
from tests.live import streams_client, streams_scenarios
from tests.live.broker import Broker, Kafka, wait_for
from tests.live.group_protocol import Connection, Json
from tests.live.random_walk import Walk
from tests.live.recorder import Recorder
from tests.live.streams_walk import streams_walk
from tests.recording.brokers import RELEASES

REQUESTS = 2_000
STREAMS_REQUESTS = 600
GROUP_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.max.session.timeout.ms": "1800000",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.size": "2147483647",
    "offset.metadata.max.bytes": "64",
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "offsets.topic.num.partitions": "5",
}
JAVA_SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
}
SCALA_SETTINGS = {
    "group.coordinator.new.enable": "false",
    "group.coordinator.rebalance.protocols": "classic",
}
ONE_THREAD = {"num.network.threads": "1", "num.io.threads": "1"}
"""So that requests are looked at in the order in which they are sent."""
TOPICS = {"t1": 3, "t2": 2, "t3": 1}
LATE_MS = 20_000
"""No timer runs out during a walk: answers and records may be as late as a busy machine makes them."""


class ScalaBroker(Broker):
    """A 3.9 broker with its old coordinator."""

    def _has_loaded(self) -> bool:
        """It loads before it takes requests; the offsets topic must exist, and be led."""
        self._check_alive()
        with self.connect() as connection:
            if connection.find_coordinator("") < 0:
                return False
        connection = Connection(self.port, "probe")
        body = {"groups": [f"probe-{number}" for number in range(20)]}
        answer = connection.ask("DescribeGroups", 0, body)
        connection.close()
        return all(group["errorCode"] == 0 for group in answer["groups"])


def create_topics(broker: Broker, names: Mapping[str, int] = TOPICS) -> dict[str, Json]:
    """Topics with their ids; also the first transaction, which makes the broker create a topic."""
    connection = Connection(broker.port, "admin")
    topics = [
        {"name": name, "numPartitions": count, "replicationFactor": 1, "assignments": [], "configs": []}
        for name, count in names.items()
    ]
    created = connection.ask("CreateTopics", 7, {"topics": topics, "timeoutMs": 30_000, "validateOnly": False})
    assert all(topic["errorCode"] == 0 for topic in created["topics"])
    init = {"transactionalId": "first", "transactionTimeoutMs": 1000, "producerId": -1, "producerEpoch": -1}

    def ready() -> bool:
        connection.ask("FindCoordinator", 4, {"keyType": 1, "coordinatorKeys": ["first"]})
        return bool(connection.ask("InitProducerId", 4, init)["errorCode"] == 0)

    wait_for("the transaction coordinator", ready)
    wanted = {
        "topics": [{"topicId": "A" * 22, "name": name} for name in names],
        "allowAutoTopicCreation": False,
        "includeTopicAuthorizedOperations": False,
    }

    def led() -> bool:
        answer = connection.ask("Metadata", 12, wanted)
        return all(
            topic["errorCode"] == 0 and all(one["leaderId"] >= 0 for one in topic["partitions"])
            for topic in answer["topics"]
        )

    wait_for("the topics", led)
    connection.close()
    return {
        topic["name"]: {
            "id": f"$topic:{topic['name']}",
            "real": topic["topicId"],
            "partitions": names[topic["name"]],
        }
        for topic in created["topics"]
    }


def record(broker: Broker, settings: dict[str, str], seed: int, *, java: bool) -> Trace:
    """One walk against a new broker, up to the records in its log."""
    broker.start()
    try:
        recorder = Recorder(f"walk-{seed}", broker.port, settings, create_topics(broker), java=java)
        Walk(recorder, seed, java=java).run(REQUESTS)
    finally:
        broker.kill()
    return recorder.trace(broker.log_dir)


def check(recording: Trace, seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}", file=sys.stderr)
    kept = tmp_path / f"walk-{seed}.jsonl"
    lines = [recording.head, *(line.fields for line in recording.lines), {"variables": recording.variables}]
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines))
    began = time.monotonic()
    found = [str(difference) for difference in differences(recording, play(recording), LATE_MS)]
    count = sum(line.kind == "send" for line in recording.lines)
    print(f"{count} requests compared in {time.monotonic() - began:.1f} s", file=sys.stderr)
    assert found[:10] == [], f"seed {seed}, kept in {kept}"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--model-seed")


def test_java_coordinator(kafka: Kafka, seed: int, tmp_path: Path) -> None:
    settings = GROUP_SETTINGS | JAVA_SETTINGS
    broker = Broker(kafka, tmp_path / "broker", settings | ONE_THREAD | {"group.coordinator.threads": "1"})
    check(record(broker, settings, seed, java=True), seed, tmp_path)


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
def test_streams_groups(release: str, seed: int, tmp_path: Path) -> None:
    kafka = RELEASES[release].fetch() if release in RELEASES else Kafka.fetch(release)
    settings = streams_scenarios.SETTINGS | {"group.streams.num.standby.replicas": str(seed % 3)}
    broker = Broker(kafka, tmp_path / "broker", settings | ONE_THREAD | {"group.coordinator.threads": "1"})
    define = streams_client.definitions(kafka.jars)
    broker.start()
    try:
        topics = create_topics(broker, streams_scenarios.TOPICS)
        recorder = Recorder(f"walk-{seed}", broker.port, settings, topics, java=True, kafka=release, definitions=define)
        streams_walk(streams_client.Streams(recorder, broker), seed).run(STREAMS_REQUESTS)
        recorder.close()
    finally:
        broker.kill()
    check(recorder.trace(broker.log_dir), seed, tmp_path)


def test_scala_coordinator(seed: int, tmp_path: Path) -> None:
    settings = GROUP_SETTINGS | SCALA_SETTINGS
    broker = ScalaBroker(Kafka.fetch("3.9.2"), tmp_path / "broker", settings | ONE_THREAD)
    check(record(broker, settings, seed, java=False), seed, tmp_path)
