"""Applies on three 4.3.1 brokers: coordinators move while one writes, or a broker is killed, and it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from coordinator_core.errors import ExitCode
from tests.cluster.kit import TOPIC
from tests.cluster.three import IDS, ThreeBrokers, three_brokers
from tests.drill.kit import events, signalled
from tests.live.broker import Kafka
from tests.live.wire import OFFSETS_TOPIC
from tests.restore.kit import regroup

GROUPS, OFFSETS_PER_GROUP = 200, 4
SETTINGS = {
    "offsets.topic.num.partitions": "6",
    "min.insync.replicas": "1",
    # Leaders move when the test says so.
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    with three_brokers(Kafka.fetch(), tmp_path_factory.mktemp("three"), SETTINGS) as (cluster, _):
        yield cluster


def applied_through(cluster: ThreeBrokers, prefix: str, scratch: Path, happens: Callable[[], None]) -> None:
    """A plan applied, stopped half-way while something happens; the second try ends well, if one is needed."""
    server = ("--bootstrap-server", cluster.bootstrap)
    rows = [
        f"{prefix}-{group:03},{TOPIC},{number},0\n" for group in range(GROUPS) for number in range(OFFSETS_PER_GROUP)
    ]
    (scratch / "wanted.csv").write_text("".join(rows))
    plan, directory = scratch / "plan.json", scratch / "applied"
    regroup("restore", "plan", "--from-file", scratch / "wanted.csv", *server, "--output", plan)
    apply = ["restore", "apply", str(plan), *server, "--execute", "--output", str(directory), "--parallel", "1"]
    process: subprocess.Popen[bytes] = signalled(GROUPS // 2, "after", signal.SIGSTOP, *apply)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    happens()
    process.send_signal(signal.SIGCONT)
    code = process.wait(180)
    (verdict,) = events(directory / "journal.jsonl", "verdict")
    ended = {end["group_id"]: bool(end["errors"]) for end in events(directory / "journal.jsonl", "end")}
    assert len(ended) == verdict["groups"] == GROUPS
    assert verdict["failed"] == sorted(group for group, failed in ended.items() if failed)
    assert code == (ExitCode.APPLY_FAILED if verdict["failed"] else ExitCode.CLEAN)
    if verdict["failed"]:
        regroup(*apply)
    done = regroup("restore", "verify", directory, *server, "--format", "json")
    proof = json.loads(done.stdout)
    assert proof["verified"]
    assert len(proof["records"]) == GROUPS * OFFSETS_PER_GROUP


def test_coordinators_that_move_meanwhile(cluster: ThreeBrokers, tmp_path: Path) -> None:
    """Every offsets partition gets another leader: the brokers that the apply asks are none any more."""
    before = cluster.leaders()

    def move() -> None:
        with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))) as admin:
            orders = {
                TopicPartition(OFFSETS_TOPIC, partition): [*(node for node in IDS if node != leader), leader]
                for partition, leader in before.items()
            }
            admin.alter_partition_reassignments(orders)
            admin.elect_leaders(0, {OFFSETS_TOPIC: list(before)})
        cluster.when_moved(before)

    applied_through(cluster, "moved", tmp_path, move)


def test_a_broker_that_dies_meanwhile(cluster: ThreeBrokers, tmp_path: Path) -> None:
    def die() -> None:
        lost = cluster.leaders()[0]
        cluster.nodes[lost].kill()
        cluster.when_led(next(node for node in IDS if node != lost), lambda leader: leader not in (-1, lost))

    applied_through(cluster, "orphaned", tmp_path, die)
