"""Applies on three 4.3.1 brokers: coordinators move while one writes, or a broker is killed, and it goes on.

A coordinator that is elected may miss that its log is replicated, and answers NOT_COORDINATOR until somebody commits
(``tests/drill/test_live_behind.py``). An apply then fails, and says so; behind a commit the second try ends well.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.admin import DescribeConfigsRequest

from coordinator_core.errors import ExitCode
from coordinator_core.groups.hashing import partition_for
from tests.cluster.kit import TOPIC, Commits
from tests.cluster.three import IDS, ThreeBrokers, three_brokers
from tests.drill.kit import events, signalled
from tests.live.broker import Kafka, wait_for
from tests.live.wire import OFFSETS_TOPIC
from tests.restore.kit import regroup

GROUPS, OFFSETS_PER_GROUP = 200, 4
OFFSETS_PARTITIONS = 6
SETTINGS = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "min.insync.replicas": "1",
    # Leaders move when the test says so.
    "auto.leader.rebalance.enable": "false",
}
COMMITTING = [f"g-{number}" for number in range(12)]
"""Groups for which :class:`Commits` commits; they have a coordinator in every offsets partition."""
TOPIC_RESOURCE = 2


Place = tuple[ThreeBrokers, Commits]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with three_brokers(Kafka.fetch(), tmp_path_factory.mktemp("three"), SETTINGS) as place:
        yield place


def commit_everywhere(commits: Commits) -> None:
    """Commit in every offsets partition."""
    assert len({partition_for(group, OFFSETS_PARTITIONS) for group in COMMITTING}) == OFFSETS_PARTITIONS
    commits.commit(len(COMMITTING), len(COMMITTING))


def when_configured(place: Place, nodes: list[int], name: str, value: str) -> None:
    """Once the logs of the offsets topic have the setting, on each of these brokers.

    A broker tells a setting that it has heard of before its logs have it. It takes one change of metadata after the
    other: once it has a partition of a topic made since, that change is done.
    """
    cluster, commits = place
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=OFFSETS_TOPIC, configuration_keys=[name]
    )

    def told(node: int) -> bool:
        with cluster.nodes[node].connect() as connection:
            (result,) = connection.send(DescribeConfigsRequest[1](resources=[resource])).results
        return [config.value for config in result.configs] == [value]

    wait_for(f"{name}={value}", lambda: all(map(told, nodes)))
    topic = f"made-after-{name}-{value}"
    commits.create_topic(topic, 1, replication_factor=len(IDS))
    wait_for(topic, lambda: all((cluster.nodes[node].log_dir / f"{topic}-0").exists() for node in nodes))


def planned(place: Place, groups: Iterable[str], scratch: Path) -> list[str]:
    """The command that applies a plan for these groups, which have nothing committed."""
    cluster, commits = place
    commit_everywhere(commits)
    rows = [f"{group},{TOPIC},{number},0\n" for group in groups for number in range(OFFSETS_PER_GROUP)]
    (scratch / "wanted.csv").write_text("".join(rows))
    server, plan = ("--bootstrap-server", cluster.bootstrap), scratch / "plan.json"
    regroup("restore", "plan", "--from-file", scratch / "wanted.csv", *server, "--output", plan)
    directory = scratch / "applied"
    return ["restore", "apply", str(plan), *server, "--execute", "--output", str(directory), "--parallel", "1"]


def proved(place: Place, directory: Path, groups: int) -> None:
    cluster, _ = place
    done = regroup("restore", "verify", directory, "--bootstrap-server", cluster.bootstrap, "--format", "json")
    proof = json.loads(done.stdout)
    assert proof["verified"]
    assert len(proof["records"]) == groups * OFFSETS_PER_GROUP


def applied_through(place: Place, prefix: str, scratch: Path, happens: Callable[[], None]) -> None:
    """A plan applied, stopped half-way while something happens; the second try ends well, if one is needed."""
    apply, directory = (
        planned(place, [f"{prefix}-{number:03}" for number in range(GROUPS)], scratch),
        scratch / "applied",
    )
    process: subprocess.Popen[bytes] = signalled(GROUPS // 2, "after", signal.SIGSTOP, *apply)
    try:
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        happens()
        process.send_signal(signal.SIGCONT)
        code = process.wait(600)
    finally:
        process.kill()
        process.wait()
    (verdict,) = events(directory / "journal.jsonl", "verdict")
    ended = {end["group_id"]: bool(end["errors"]) for end in events(directory / "journal.jsonl", "end")}
    assert len(ended) == verdict["groups"] == GROUPS
    assert verdict["failed"] == sorted(group for group, failed in ended.items() if failed)
    assert code == (ExitCode.APPLY_FAILED if verdict["failed"] else ExitCode.CLEAN)
    if verdict["failed"]:
        _, commits = place
        commit_everywhere(commits)
        regroup(*apply)
    proved(place, directory, GROUPS)


def test_coordinators_that_move_meanwhile(place: Place, tmp_path: Path) -> None:
    """Every offsets partition gets another leader: the brokers that the apply asks are none any more."""
    cluster, _ = place
    cluster.when_in_sync()
    before = cluster.leaders()

    def move() -> None:
        with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))) as admin:
            orders = {
                TopicPartition(OFFSETS_TOPIC, partition): [*(node for node in IDS if node != leader), leader]
                for partition, leader in before.items()
            }
            admin.alter_partition_reassignments(orders)

            def moved() -> bool:
                # The controller elects nobody whom it has just found out of sync.
                with suppress(KafkaError):
                    admin.elect_leaders(0, {OFFSETS_TOPIC: list(before)})
                return cluster.have_moved(before)

            wait_for("other leaders", moved)

    applied_through(place, "moved", tmp_path, move)


def test_a_broker_that_dies_meanwhile(place: Place, tmp_path: Path) -> None:
    cluster, _ = place
    lost = cluster.leaders()[0]
    try:
        applied_through(place, "orphaned", tmp_path, lambda: dies(cluster, lost))
    finally:
        cluster.start(lost)


def dies(cluster: ThreeBrokers, lost: int) -> None:
    cluster.nodes[lost].kill()
    cluster.when_led(next(node for node in IDS if node != lost), lambda leader: leader not in (-1, lost))


def test_coordinators_whose_logs_take_no_record(place: Place, tmp_path: Path) -> None:
    """Of each offsets partition one group is tried at a time, and what its coordinator says is told."""
    cluster, commits = place
    lost = IDS[-1]
    dies(cluster, lost)
    groups = [f"waits-{number:02}" for number in range(20)]
    apply, directory = planned(place, groups, tmp_path), tmp_path / "applied"
    properties = tmp_path / "client.properties"
    properties.write_text("default.api.timeout.ms=40000\n")
    commits.configure({"min.insync.replicas": str(len(IDS))})
    try:
        when_configured(place, [node for node in IDS if node != lost], "min.insync.replicas", str(len(IDS)))
        failed = regroup(*apply, "--command-config", properties, code=ExitCode.APPLY_FAILED)
        leaders = cluster.leaders()
    finally:
        commits.configure({"min.insync.replicas": "1"})
        cluster.start(lost)
    partitions = {group: partition_for(group, OFFSETS_PARTITIONS) for group in groups}
    for end in events(directory / "journal.jsonl", "end"):
        number = partitions[end["group_id"]]
        (error,) = end["errors"]
        where = f"broker {leaders[number]}, {OFFSETS_TOPIC}-{number}"
        # The first of a commit, and the second of the fetch before the next try: the record stands in the log.
        code = r"(15 \(COORDINATOR_NOT_AVAILABLE\)|16 \(NOT_COORDINATOR\))"
        assert re.match(rf"no answer of its coordinator in 40 s: {where}: error {code}", error["error"])
        assert error["error"] in failed.stderr
    begun = {event["group_id"] for event in events(directory / "journal.jsonl", "begin")}
    assert begun == {min(one for one in groups if partitions[one] == number) for number in partitions.values()}
    # Until the setting has gone back everywhere, and what stands in the logs is replicated.
    commit_everywhere(commits)
    regroup(*apply)
    proved(place, directory, len(groups))
