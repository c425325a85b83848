"""Lag from nothing but a capture: its topics.json has the ends that rules and reports look for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from coordinator_core.errors import ExitCode
from tests.cluster.conftest import Place
from tests.cluster.test_one_broker import regroup
from tests.live.broker import TOOL_PATIENCE, Broker, wait_for

SHORT, LONG = TopicPartition("orders", 0), TopicPartition("orders", 1)
RECORDS = {SHORT: 5, LONG: 10}
COMMITTED = {
    "behind": {SHORT: 5, LONG: 4},
    "beyond": {LONG: 12},
    "too-late": {LONG: 1},
    "nowhere": {TopicPartition("orders", 63): 0},
}
LOG_START = 3


@pytest.fixture
def broker(place: Place) -> Iterator[Broker]:
    """Records in two partitions, the first three of one of them deleted, and groups at various places."""
    producer = KafkaProducer(bootstrap_servers=place.broker.bootstrap)
    try:
        for partition, count in RECORDS.items():
            for _ in range(count):
                producer.send(partition.topic, b"order", partition=partition.partition)
        producer.flush()
        place.commits.admin.delete_records({LONG: LOG_START})
        for group, offsets in COMMITTED.items():
            rows = {partition: OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
            wait_for("a commit", lambda group=group, rows=rows: place.commits._one(group, rows))
        yield place.broker
    finally:
        producer.close()


def answer(*arguments: str, code: ExitCode = ExitCode.CLEAN) -> Any:
    done = regroup(*arguments, "--format", "json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_lag_of_a_capture_is_what_kafkas_tool_says(broker: Broker, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    answer("capture", "--bootstrap-server", broker.bootstrap, "--output", str(snapshot))
    (topic,) = [
        each for each in json.loads((snapshot / "topics.json").read_text())["topics"] if each["name"] == "orders"
    ]
    ends = {row["partition"]: (row["start_offset"], row["end_offset"]) for row in topic["partitions"]}
    assert ends == dict.fromkeys(range(64), (0, 0)) | {0: (0, 5), 1: (LOG_START, 10)}
    place = ["--output", str(tmp_path / "runs"), "--cluster", "c", "--kafka-version", "4.3.1"]
    run = answer("replay", str(snapshot), *place)["run"]
    topics = ["--topics", str(snapshot / "topics.json")]

    found = answer("reconcile", run, *topics, code=ExitCode.FINDINGS)["findings"]
    mine = [each for each in found if each["group_id"] in COMMITTED and each["rule"] in ("R31", "R32")]
    assert {(each["rule"], each["group_id"]) for each in mine} == {("R31", "beyond"), ("R32", "too-late")}
    (beyond,) = [each for each in mine if each["rule"] == "R31"]
    assert "committed offset 12 of orders-1 is beyond the log end 10" in beyond["message"]

    largest = answer("report", run, *topics)["lag"]["largest"]
    lag = {row["group_id"]: row["lag"] for row in largest if row["group_id"] in COMMITTED}
    assert lag == {
        "behind": 6,
        "beyond": 0,
        "too-late": 7,
        "nowhere": 0,
    }
    said = tool_lag(broker)
    # Kafka's tool subtracts: beyond the end its lag is negative.
    assert said.pop("beyond") == -2
    # And it counts records below the log start, which nobody can read any more.
    assert said.pop("too-late") == lag["too-late"] + LOG_START - COMMITTED["too-late"][LONG]
    assert said == {group: lag[group] for group in ("behind", "nowhere")}


def tool_lag(broker: Broker) -> dict[str, int]:
    """Sum of the lag by group, of kafka-consumer-groups."""
    text = broker.kafka.tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", broker.bootstrap, *TOOL_PATIENCE, "--describe", "--all-groups"),
    )
    lag: dict[str, int] = {}
    for words in (line.split() for line in text.splitlines()):
        if len(words) > 5 and words[0] in COMMITTED:
            lag[words[0]] = lag.get(words[0], 0) + int(words[5])
    return lag
