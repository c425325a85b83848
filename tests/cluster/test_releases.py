"""Captures of older brokers: fetch and metadata versions negotiated, the bytes those of the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataRequest

from coordinator_core.cluster.client import Client
from coordinator_core.cluster.settings import client_settings
from tests.cluster.kit import (
    Commits,
    assert_as_on_disk,
    assert_state_as_on_disk,
    capture_from,
    log_bytes,
    partitions,
)
from tests.live.broker import Broker, Kafka, wait_for
from tests.live.wire import OFFSETS_TOPIC
from tests.live.zookeeper import ZooKeeper

RELEASES = ("2.4.1", "3.9.2")


class OldBroker(Broker):
    """Its offsets topic comes with the first commit."""

    def _is_up(self) -> bool:
        self._check_alive()
        try:
            with self.connect() as connection:
                return bool(connection.send(MetadataRequest[9](topics=[])).brokers)
        except OSError:
            return False

    def _has_loaded(self) -> bool:
        self._check_alive()
        return True


class ZooKeeperBroker(OldBroker):
    """A broker from before KRaft, and the ZooKeeper that comes with it."""

    def __init__(self, kafka: Kafka, directory: Path, settings: dict[str, str]) -> None:
        super().__init__(kafka, directory, settings)
        # Formatted logs are KRaft's; this broker makes its own.
        self.log_dir.mkdir()
        self._zookeeper = ZooKeeper(kafka, directory)
        self._config.write_text(
            "".join(
                f"{key}={value}\n"
                for key, value in {
                    "broker.id": "1",
                    "zookeeper.connect": self._zookeeper.connect,
                    "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                    "log.dirs": str(self.log_dir),
                    "offsets.topic.replication.factor": "1",
                    "group.initial.rebalance.delay.ms": "0",
                    "log.index.size.max.bytes": "65536",
                    "log.cleaner.dedupe.buffer.size": "10485760",
                    **settings,
                }.items()
            )
        )
        (self.log_dir / "meta.properties").write_text("version=0\nbroker.id=1\n")

    def start(self) -> None:
        self._zookeeper.start()
        self._zookeeper.wait_until_gone("/brokers/ids/1")
        super().start()

    def kill(self) -> None:
        super().kill()
        self._zookeeper.kill()


@dataclass(frozen=True)
class Place:
    release: str
    broker: OldBroker
    commits: Commits


@pytest.fixture(scope="module", params=RELEASES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    release = request.param
    kind = ZooKeeperBroker if release == "2.4.1" else OldBroker
    settings = {
        "offsets.topic.num.partitions": "3",
        # Before 4.0 as small as one likes: many segments, and holes between them.
        "offsets.topic.segment.bytes": "100000",
        "log.cleaner.backoff.ms": "300",
        "log.cleaner.min.cleanable.ratio": "1",
    }
    broker = kind(Kafka.fetch(release), tmp_path_factory.mktemp(f"release-{release}") / "broker", settings)
    commits = None
    try:
        broker.start()
        commits = Commits(broker.bootstrap)
        commits.create_topic()
        commits.commit(60, metadata="m" * 60)
        yield Place(release, broker, commits)
    finally:
        if commits is not None:
            commits.close()
        broker.kill()


def test_versions_are_negotiated(place: Place) -> None:
    with Client(client_settings(place.broker.bootstrap, {})) as client:
        assert (client.max_version(FetchRequest), client.max_version(MetadataRequest)) == {
            "2.4.1": (11, 9),
            "3.9.2": (17, 12),
        }[place.release]


def test_a_capture_is_what_is_on_the_disk(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "capture"
    manifest = capture_from(place.broker.bootstrap, output)
    disks = log_bytes(place.broker.log_dir)
    size = sum(map(len, disks.values()))
    assert size > 400_000
    assert_as_on_disk(manifest, output, disks)
    assert_state_as_on_disk(place.broker, output, tmp_path, place.release)
    topology = json.loads((output / "topology.json").read_text())
    assert (topology["topics"][OFFSETS_TOPIC]["topic_id"] is None) == (place.release == "2.4.1")
    assert topology["voters"] == ([] if place.release == "2.4.1" else [1])


def test_it_is_resumed_through_a_restart_and_the_cleaner(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "capture"
    first = capture_from(place.broker.bootstrap, output)
    place.broker.stop()
    place.broker.start()
    place.commits.commit(6)
    second = capture_from(place.broker.bootstrap, output)
    assert_as_on_disk(second, output, log_bytes(place.broker.log_dir))
    kept = sum(row["kept_bytes"] for row in partitions(second))
    assert kept == sum(row["bytes"] for row in partitions(first))
    place.commits.clean_eagerly()

    def converged() -> bool:
        place.commits.commit(6)
        disks = log_bytes(place.broker.log_dir)
        manifest = capture_from(place.broker.bootstrap, output)
        if disks != log_bytes(place.broker.log_dir):
            return False
        assert_as_on_disk(manifest, output, disks)
        return sum(row["bytes"] for row in partitions(manifest)) < kept // 2

    wait_for("the cleaner", converged)
