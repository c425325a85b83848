"""The five-minute path of the README, run on a cluster: its commands work, and print what it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from coordinator_core.errors import ExitCode
from tests.cluster.kit import Commits
from tests.cluster.test_one_broker import regroup
from tests.live.broker import Broker, Kafka, wait_for
from tests.live.scenario import ROOT

SERVER, OUTPUT = "broker-1:9092", "snapshots/shop"
OFFSETS = {0: 4711, 1: 4698, 2: 4703}
ENDS = {0: 4720, 1: 4698, 2: 4750}


@pytest.fixture(scope="module")
def broker(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(kafka, tmp_path_factory.mktemp("readme") / "broker")
    broker.start()
    commits = Commits(broker.bootstrap)
    try:
        commits.create_topic()
        commits.commit(6, groups=3)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for partition, end in ENDS.items():
            for _ in range(end):
                producer.send("orders", b"order", partition=partition)
        producer.close()
        offsets = {TopicPartition("orders", p): OffsetAndMetadata(o, "", -1) for p, o in OFFSETS.items()}
        wait_for("the commit", lambda: commits._one("checkout", offsets))
        yield broker
    finally:
        commits.close()
        broker.kill()


def masked(text: str) -> list[str]:
    """Lines without what differs from one cluster and machine to the next: cluster id, times."""
    text = re.sub(r"(cluster: +)\S+", r"\1ID", text)
    text = re.sub(r"(seconds: +)[\d.]+", r"\1S", text)
    text = re.sub(r"\b1[789]\d{11}\b", "MS", text)
    return [line.rstrip() for line in text.strip().splitlines()]


def test_the_readmes_path(broker: Broker, tmp_path: Path) -> None:
    (block,) = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    steps = re.findall(r"^\$ regroup (.+)\n((?:(?!\$ ).*\n)*)", block, re.M)
    assert len(steps) == 3
    for command, shown in steps:
        words = [
            word.replace(SERVER, broker.bootstrap).replace(OUTPUT, str(tmp_path / "snapshot"))
            for word in shlex.split(command)
        ]
        done = regroup(*words)
        assert done.returncode == ExitCode.CLEAN, done.stderr
        printed = done.stdout.replace(str(tmp_path / "snapshot"), OUTPUT)
        assert masked(printed) == masked(shown), command
