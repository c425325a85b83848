"""A 4.3.1 broker that refuses an offsets partition, and each way out of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode
from coordinator_core.groups.hashing import partition_for
from tests.cluster.kit import Commits
from tests.live.broker import Broker, Kafka
from tests.live.test_compacted_log import swap_in
from tests.replay.histories import GROUP, TOPIC
from tests.restore.kit import regroup
from tests.restore.test_rescue import HOME, PARTITIONS, downgraded

REFUSED = f"Failed to load metadata from __consumer_offsets-{HOME}"
SETTINGS = {"offsets.topic.num.partitions": str(PARTITIONS)}


class StuckBroker(Broker):
    """Is up once it has refused the partition."""

    def _has_loaded(self) -> bool:
        self._check_alive()
        return REFUSED in self.log_since_start()


@pytest.fixture(scope="module")
def stuck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StuckBroker]:
    """A broker that does not load the partition of the group, and runs."""
    directory = tmp_path_factory.mktemp("rescue")
    sound = Broker(Kafka.fetch(), directory / "broker", SETTINGS)
    try:
        sound.start()
        with closing(Commits(sound.bootstrap)) as commits:
            commits.create_topic(TOPIC, 1)
    finally:
        sound.stop()
    segment = directory / "failing" / f"__consumer_offsets-{HOME}"
    segment.mkdir(parents=True)
    (segment / f"{0:020d}.log").write_bytes(b"".join(downgraded().batches))
    swap_in(sound.log_dir, directory / "failing")
    broker = StuckBroker(Kafka.fetch(), directory / "broker", SETTINGS)
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def test_names_on_other_partitions_work_while_the_coordinator_is_stuck(stuck: StuckBroker, tmp_path: Path) -> None:
    server = ("--bootstrap-server", stuck.bootstrap)
    regroup("capture", *server, "--output", tmp_path / "log")
    found = regroup(
        *("rescue", tmp_path / "log", "--kafka-version", "4.3.1", "--names", tmp_path / "names.csv"),
        *("--format", "json"),
        code=ExitCode.FINDINGS,
    )
    (partition,) = json.loads(found.stdout)["partitions"]
    assert (partition["offsets_partition"], partition["leader"], partition["stop"]["bug"]) == (HOME, 1, "KAFKA-21117")
    (tmp_path / "client.properties").write_text("default.api.timeout.ms=5000\n")
    told = regroup(
        *("restore", "plan", tmp_path / "log", "--kafka-version", "4.3.1", "--group", GROUP, *server),
        *("--command-config", tmp_path / "client.properties"),
        code=ExitCode.INTERNAL,
    )
    assert "(NOT_COORDINATOR); if it leads the partition, it has not loaded it (regroup capture and" in told.stderr
    new = partition["names"][GROUP]
    assert partition_for(new, PARTITIONS) != HOME
    plan = tmp_path / "plan.json"
    regroup(
        *("restore", "plan", tmp_path / "log", "--kafka-version", "4.3.1", "--map-groups", tmp_path / "names.csv"),
        *(*server, "--out-of-range", "trim", "--output", plan),
    )
    regroup("restore", "apply", plan, *server, "--execute", "--output", tmp_path / "applied")
    regroup("restore", "verify", tmp_path / "applied", *server, "--kafka-version", "4.3.1")
    with stuck.connect() as connection:
        assert connection.find_coordinator(new) == 1
    with closing(Commits(stuck.bootstrap)) as commits:
        assert {tp.topic: place.offset for tp, place in commits.held(new).items()} == {TOPIC: 0}


def test_the_repaired_partition_is_loaded(stuck: StuckBroker, tmp_path: Path) -> None:
    stuck.stop()
    shutil.copytree(stuck.log_dir, tmp_path / "log")
    regroup(
        *("rescue", tmp_path / "log", "--kafka-version", "4.3.1", "--repair", tmp_path / "repaired"),
        code=ExitCode.FINDINGS,
    )
    regroup("rescue", tmp_path / "repaired", "--kafka-version", "4.3.1")
    swap_in(stuck.log_dir, tmp_path / "repaired")
    broker = Broker(Kafka.fetch(), stuck.directory, SETTINGS)
    broker.start()
    try:
        assert REFUSED not in broker.log_since_start()
        with closing(Commits(broker.bootstrap)) as commits:
            assert {tp.topic: place.offset for tp, place in commits.held(GROUP).items()} == {TOPIC: 6}
    finally:
        broker.kill()
