"""Captures of three 4.3.1 brokers: from all leaders, from one replica, while leaders move and are lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode, UsageError
from tests.cluster.kit import (
    Commits,
    assert_as_on_disk,
    capture_from,
    ends,
    log_bytes,
    partitions,
    state_hash,
)
from tests.cluster.three import IDS, ThreeBrokers, three_brokers
from tests.live.broker import Kafka, wait_for
from tests.live.scenario import ROOT
from tests.live.wire import OFFSETS_TOPIC

PARTITIONS = 6


@dataclass(frozen=True)
class Place:
    cluster: ThreeBrokers
    commits: Commits


@pytest.fixture(scope="module")
def place(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    settings = {
        "offsets.topic.num.partitions": str(PARTITIONS),
        "unclean.leader.election.enable": "true",
        "min.insync.replicas": "1",
    }
    with three_brokers(kafka, tmp_path_factory.mktemp("three-brokers"), settings) as (cluster, commits):
        commits.commit(60, groups=20, metadata="m" * 60)
        yield Place(cluster, commits)


def settled(cluster: ThreeBrokers, output: Path, ask: int = 1) -> None:
    """Followers have what the leader has, so that any disk may be compared."""
    leaders = cluster.leaders(ask)
    manifest = json.loads((output / "capture.json").read_text())
    assert_as_on_disk(manifest, output, cluster.leader_bytes(leaders))


def test_the_leaders_bytes_of_every_partition(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "capture"
    manifest = capture_from(place.cluster.bootstrap, output)
    leaders = place.cluster.leaders()
    assert set(leaders.values()) == set(IDS)
    settled(place.cluster, output)
    topology = json.loads((output / "topology.json").read_text())
    assert {row["broker_id"]: row["rack"] for row in topology["brokers"]} == {node: f"rack-{node}" for node in IDS}
    info = topology["topics"][OFFSETS_TOPIC]["partitionInfo"]
    assert {row["partition"]: row["leader"] for row in info} == leaders
    assert all(row["isr"] == [1, 2, 3] and sorted(row["replicas"]) == [1, 2, 3] for row in info)
    assert topology["active_controller_id"] in topology["voters"]
    # As an operator would copy the disks of all three.
    disks = [str(node.log_dir) for node in place.cluster.nodes.values()]
    assert state_hash(output, tmp_path / "runs") == state_hash(disks, tmp_path / "runs")
    assert len(partitions(manifest)) == PARTITIONS


@pytest.mark.parametrize("replica", IDS)
def test_one_replica_instead_of_the_leaders(place: Place, tmp_path: Path, replica: int) -> None:
    output = tmp_path / "capture"
    manifest = capture_from(place.cluster.bootstrap, output, replica=replica)
    assert manifest["replica"] == replica
    settled(place.cluster, output)


def test_a_replica_that_is_none(place: Place, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no broker 7"):
        capture_from(place.cluster.bootstrap, tmp_path / "capture", replica=7)


def test_a_capture_while_a_leader_is_killed(place: Place, tmp_path: Path) -> None:
    """The killed broker leads partitions that are still to be fetched: they come from their new leaders."""
    output = tmp_path / "capture"
    size = sum(map(len, place.cluster.leader_bytes(place.cluster.leaders()).values()))
    command = [sys.executable, "-m", "coordinator_core", "capture", "--output", str(output)]
    command += ["--bootstrap-server", place.cluster.bootstrap, "--byte-rate", str(size // 16)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for("the capture to fetch", lambda: sum(map(len, log_bytes(output).values())) > size // 20)
        place.cluster.nodes[3].kill()
        stdout, stderr = running.communicate(timeout=600)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == ExitCode.CLEAN, stdout + stderr
    leaders = place.cluster.when_led(1, lambda leader: leader in (1, 2))
    manifest = json.loads((output / "capture.json").read_text())
    assert_as_on_disk(manifest, output, place.cluster.leader_bytes(leaders))
    assert [row["partition"] for row in partitions(manifest) if row["leader"] == 3] == []
    (note,) = json.loads((output / "topics.json").read_text())["notes"]
    assert note.startswith("broker 3 gives no answer")
    place.cluster.start(3)
    place.commits.commit(10, groups=20)
    capture_from(place.cluster.bootstrap, output)
    settled(place.cluster, output)


def test_an_unclean_election_cuts_the_capture_too(place: Place, tmp_path: Path) -> None:
    """Last of this file. Broker 2 misses commits, is all that is left of two replicas, and leads: a second
    capture must let go of what only the first could see."""
    output = tmp_path / "capture"
    cluster = place.cluster
    place.commits.reassign(OFFSETS_TOPIC, {partition: [1, 2] for partition in range(PARTITIONS)})
    wait_for("two replicas", lambda: all(sorted(isr) == [1, 2] for isr in cluster.isr().values()))
    cluster.nodes[2].kill()
    wait_for("broker 2 out of sync", lambda: all(isr == [1] for isr in cluster.isr().values()))
    place.commits.commit(30, groups=20)
    first = capture_from(cluster.bootstrap, output)
    cluster.nodes[1].kill()
    cluster.start(2)
    leaders = cluster.when_led(2, lambda leader: leader == 2)
    second = capture_from(cluster.nodes[2].bootstrap, output)
    assert_as_on_disk(second, output, cluster.leader_bytes(leaders))
    rows = partitions(second)
    assert any(row["vanished"] for row in rows)
    for row in rows:
        for gone in row["vanished"]:
            assert gone["end"] == ends(first)[row["partition"]]
            assert "broker 2 leads" in gone["why"]
    third = capture_from(cluster.nodes[2].bootstrap, output)
    assert not any(row["vanished"] or row["fetched_bytes"] for row in partitions(third))
