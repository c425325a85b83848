"""Drills on three 4.3.1 brokers: predicted, done, observed, compared. The tests follow one another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode
from tests.cluster.kit import TOPIC, Commits
from tests.cluster.three import IDS, ThreeBrokers, three_brokers
from tests.drill.kit import (
    PARTITIONS,
    SETTINGS,
    ClassicMember,
    ConsumerMember,
    Json,
    Operator,
    ShareMember,
    StreamsMember,
    events,
    regroup,
    start_at,
)
from tests.live.broker import Kafka, wait_for
from tests.live.scenario import ROOT
from tests.live.wire import OFFSETS_TOPIC, BrokerError

GROUPS = 200
MEMBERS = 3
SHARE_AND_STREAMS = {"share", "share-empty", "streams", "streams-without-topic"}
STARTS = {0: 7, 3: 5}
OFFSET = 11
SHARE_SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "3",
    # As long as those of the other protocols in these tests: no member is given up.
    "group.streams.session.timeout.ms": "600000",
    "group.streams.max.session.timeout.ms": "600000",
}
LATE = ("late", "late-share", "late-streams")
"""Groups that the last test makes, and an election takes back."""


@dataclass(frozen=True)
class Place:
    cluster: ThreeBrokers
    commits: Commits
    classic: list[ClassicMember]
    consumer: list[ConsumerMember]
    share: list[ShareMember]
    streams: list[StreamsMember]
    operator: Operator
    directory: Path


@pytest.fixture(scope="module")
def place(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """200 groups without members, three with a live member of each protocol, and their offsets.

    A share and a streams group with two live members each. Two more: a share group with start offsets alone, a
    streams group whose source topic does not exist.
    """
    directory = tmp_path_factory.mktemp("drill")
    with (
        three_brokers(kafka, directory / "cluster", SETTINGS | SHARE_SETTINGS) as (cluster, commits),
        ExitStack() as stack,
    ):

        def fail_over() -> None:
            cluster.nodes[1].kill()
            cluster.start(2)
            # Their members learn that they are none, and join again.
            wait_for("the late members", lambda: set(LATE) <= stable(cluster, 2))

        starts = {f"start-{node}": lambda node=node: cluster.start(node) for node in IDS}
        operator = Operator(directory / "operator", {**starts, "fail-over": fail_over})
        stack.callback(operator.stop)
        commits.commit(GROUPS, groups=GROUPS)
        classic = [ClassicMember(cluster.bootstrap, f"classic-{number}") for number in range(MEMBERS)]
        consumer = [ConsumerMember(cluster, f"consumer-{number}") for number in range(MEMBERS)]
        start_at(cluster, "share-empty", STARTS)
        share = [ShareMember(cluster, "share") for _ in range(2)]
        streams = [StreamsMember(cluster, "streams") for _ in range(2)]
        waiting = StreamsMember(cluster, "streams-without-topic", "absent")
        for member in (*classic, *consumer, *share, *streams, waiting):
            stack.callback(member.stop)
        wait_for("members", lambda: all(member.joined() for member in (*classic, *consumer)))
        for members in (share, streams):
            wait_for("all partitions", lambda members=members: [one.partitions for one in members] == [32, 32])
        wait_for("a commit", lambda: streams[0].commit(OFFSET))
        wait_for("the member without topic", lambda: waiting.epoch > 0)
        yield Place(cluster, commits, classic, consumer, share, streams, operator, directory)


def predicted(place: Place, scenario: str, output: Path, alive: tuple[int, ...] = ()) -> Json:
    """A prediction from the brokers' own log directories; brokers ``alive`` are taken to be up by then."""
    topology = output / "capture" / "topology.json"
    up = [node for node in place.cluster.nodes.values() if node._process is not None]
    servers = ",".join(node.bootstrap for node in up)
    regroup("capture", "--bootstrap-server", servers, "--output", output / "capture")
    document = json.loads(topology.read_text())
    # The cluster tells of no broker that is down.
    document["brokers"] += [{"broker_id": broker, "rack": None, "listeners": []} for broker in alive]
    topology.write_text(json.dumps(document))
    arguments: list[str | Path] = ["--topology", topology, "--scenario", scenario, "--kafka-version", "4.3.1"]
    arguments += ["--offsets-topic-num-partitions", str(PARTITIONS)]
    for number, node in place.cluster.nodes.items():
        arguments += ["--server-log", node.log_file]
        if any(node.log_dir.glob(f"{OFFSETS_TOPIC}-?")):
            arguments += ["--broker", f"{number}={node.log_dir}"]
    arguments += ["--broker-config", place.cluster.nodes[1]._config]
    # On a machine that does other things a load may take long: one such is among those observed.
    (output / "loads.jsonl").write_text('{"records": 1000, "load_ms": 60000, "queued_ms": 0}\n')
    arguments += ["--load-samples", output / "loads.jsonl"]
    done = regroup("drill", "predict", *arguments, "--output", output / "prediction.json", check=False)
    assert done.returncode in (ExitCode.CLEAN, ExitCode.FINDINGS), done.stdout + done.stderr
    document = json.loads((output / "prediction.json").read_text())
    return document


def observe(place: Place, output: Path, *arguments: str | Path) -> list[str]:
    """Command line of a drill on what :func:`predicted` wrote into ``output``."""
    command = [sys.executable, "-m", "coordinator_core", "drill", "observe"]
    command += [
        "--bootstrap-server",
        place.cluster.bootstrap,
        "--prediction",
        str(output / "prediction.json"),
    ]
    command += ["--output", str(output), "--observe-seconds", "8", "--interval-ms", "300"]
    for number, node in place.cluster.nodes.items():
        command += ["--server-log", f"{number}={node.log_file}"]
    return [*command, *map(str, arguments)]


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)


def compared(output: Path) -> tuple[int, Json]:
    """Exit code and report."""
    files = output / "prediction.json", output / "journal.jsonl"
    done = regroup("drill", "compare", *files, "--output", output, "--format", "json", check=False)
    assert (output / "drill.html").read_text().startswith("<!DOCTYPE html>"), done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((output / "drill.json").read_text())
    return done.returncode, report


def rows(report: Json, what: str) -> list[Json]:
    return [row for row in report["rows"] if row["what"] == what]


def assert_as_predicted(report: Json, what: str, count: int) -> None:
    found = rows(report, what)
    assert [row for row in found if row["match"] != "as_predicted"] == []
    assert len(found) >= count


def test_a_lost_coordinator_does_what_was_predicted(place: Place, tmp_path: Path) -> None:
    cluster = place.cluster
    lost = cluster.leaders()[0]
    prediction = predicted(place, f"lose-brokers={lost}", tmp_path)
    before = cluster.leaders()
    pid = cluster.nodes[lost].pid
    recover = place.operator.command(f"start-{lost}")
    done = finished(observe(place, tmp_path, "--pid", str(pid), "--recover-command", recover))
    assert done.returncode == ExitCode.CLEAN, done.stdout + done.stderr
    code, report = compared(tmp_path)

    moved = [partition for partition, leader in before.items() if leader == lost]
    assert moved
    assert_as_predicted(report, "leader_after", PARTITIONS)
    assert {row["observed"] for row in rows(report, "leader_after")} == set(IDS) - {lost}
    groups = GROUPS + 2 * MEMBERS + len(SHARE_AND_STREAMS)
    assert_as_predicted(report, "coordinator_after", groups)
    assert_as_predicted(report, "rebalances", groups)
    for what in ("regressed", "vanished"):
        assert_as_predicted(report, what, groups)
        assert all(row["observed"] == [] for row in rows(report, what))
    assert_as_predicted(report, "load_ms", len(moved))
    assert all(row["observed"] for row in rows(report, "load_ms"))
    assert events(tmp_path / "journal.jsonl", "backwards") == []
    # Each member is the one that it was.
    assert [member.joins for member in (*place.consumer, *place.share, *place.streams)] == [1] * (MEMBERS + 4)
    assert_share_and_streams_groups_as_predicted(place, prediction, report, tmp_path / "journal.jsonl")
    assert events(tmp_path / "journal.jsonl", "generation", phase="fault") == []
    # What the canaries met: away, then served again, each by the new leader.
    for partition in moved:
        probes = events(tmp_path / "journal.jsonl", "probe", offsets_partition=partition)
        assert {"DISCONNECTED"} <= {probe["answer"] for probe in probes}
        assert [probe["broker"] for probe in probes if probe["answer"] == "NONE"][-1] != lost
    assert report["outcome"] == "observed"
    assert report["recovered"] is True
    assert (code == ExitCode.CLEAN) == (report["counts"]["miss"] == 0)
    # Nothing of the drill is left.
    assert events(tmp_path / "journal.jsonl", "cleanup") == [
        {**events(tmp_path / "journal.jsonl", "cleanup")[0], "deleted": PARTITIONS, "left": {}}
    ]
    assert {group["group_id"] for group in prediction["groups"]} >= {"classic-0", "consumer-0", "g-0"}


def assert_share_and_streams_groups_as_predicted(place: Place, prediction: Json, report: Json, journal: Path) -> None:
    """State, epochs, members with their partitions or tasks, and start offsets; asked without our own describe, too."""
    for what in ("state", "epochs", "members"):
        assert_as_predicted(report, what, len(SHARE_AND_STREAMS))
        assert {row["name"] for row in rows(report, what)} == SHARE_AND_STREAMS
    states = {row["name"]: row["observed"] for row in rows(report, "state")}
    assert states == {
        "share": "Stable",
        "share-empty": "Empty",
        "streams": "Stable",
        "streams-without-topic": "NotReady",
    }
    assert_as_predicted(report, "start_offsets", 2)
    (empty,) = events(journal, "group", phase="fault", group_id="share-empty")
    assert empty["start_offsets"] == [[TOPIC, partition, offset] for partition, offset in STARTS.items()]
    (streams,) = events(journal, "group", phase="fault", group_id="streams")
    assert [row[2] for row in streams["offsets"]] == [OFFSET]
    served = {group["group_id"]: group["served"] for group in prediction["groups"]}
    for name, members in (("share", place.share), ("streams", place.streams)):
        assert [(one["member_id"], one["epoch"]) for one in served[name]["members"]] == sorted(
            (member.member_id, member.epoch) for member in members
        )
        assert sum(len(found) for one in served[name]["members"] for found in one["assigned"].values()) == 64
    assert served["streams"]["topology_epoch"] == 1


def test_the_cluster_of_another_prediction_is_left_alone(place: Place, tmp_path: Path) -> None:
    lost = place.cluster.leaders()[0]
    prediction = predicted(place, f"lose-brokers={lost}", tmp_path)
    for partition in prediction["partitions"]:
        partition["leader_before"] = lost % len(IDS) + 1
    (tmp_path / "prediction.json").write_text(json.dumps(prediction))
    arguments = ["--pid", str(os.getpid()), "--recover-command", "true", "--limit-seconds", "5"]
    done = finished(observe(place, tmp_path, *arguments))
    assert done.returncode == ExitCode.APPLY_FAILED
    assert f"{OFFSETS_TOPIC}-0 is led by {lost}, the prediction has {lost % len(IDS) + 1}" in done.stderr
    assert events(tmp_path / "journal.jsonl", "method") == []
    code, report = compared(tmp_path)
    assert code == ExitCode.APPLY_FAILED
    assert report["headline"] == "Nothing was done: the cluster was not in the predicted state"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_drill_ended_half_way_restores_the_cluster_and_says_so(
    place: Place, tmp_path: Path, how: signal.Signals
) -> None:
    cluster = place.cluster
    cluster.when_in_sync()
    lost = cluster.leaders()[0]
    predicted(place, f"lose-brokers={lost}", tmp_path)
    journal = tmp_path / "journal.jsonl"
    arguments = ["--pid", str(cluster.nodes[lost].pid), "--observe-seconds", "600"]
    arguments += ["--recover-command", place.operator.command(f"start-{lost}")]
    running = subprocess.Popen(
        observe(place, tmp_path, *arguments),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for("the fault", lambda: journal.exists() and bool(events(journal, "method", stage="ended")))
        running.send_signal(how)
        _, stderr = running.communicate(timeout=600)
    finally:
        running.kill()
        running.wait()
    if how is signal.SIGKILL:
        assert events(journal, "verdict") == []
        assert compared(tmp_path)[1]["headline"].startswith("Killed half-way, not recovered")
        regroup("drill", "recover", journal)
    else:
        assert running.returncode == ExitCode.APPLY_FAILED, stderr
    cluster.when_in_sync()
    rollbacks = len(events(journal, "rollback"))
    # Whoever makes sure of it does nothing twice.
    regroup("drill", "recover", journal)
    assert len(events(journal, "rollback")) == rollbacks == 2
    code, report = compared(tmp_path)
    assert code == ExitCode.APPLY_FAILED
    assert report["recovered"] is True
    word, by = {
        signal.SIGKILL: ("Killed half-way, recovered", "regroup drill recover"),
        signal.SIGTERM: ("Interrupted, recovered", "the drill"),
    }[how]
    assert (report["headline"], report["rollback"]["by"]) == (word, by)
    assert word in (tmp_path / "drill.html").read_text()
    assert not any(group.startswith("regroup-canary-") for group in listed(cluster))


def stable(cluster: ThreeBrokers, node: int) -> set[str]:
    """Stable groups of which a broker is the coordinator; none while it loads."""
    return {group["groupId"] for group in coordinated(cluster, node) or () if group["groupState"] == "Stable"}


def coordinated(cluster: ThreeBrokers, node: int) -> list[Json] | None:
    """Groups of which a broker is the coordinator; ``None`` while it loads."""
    try:
        with cluster.nodes[node].connect() as connection:
            return connection.list_groups()
    except (OSError, BrokerError):
        return None


def listed(cluster: ThreeBrokers) -> set[str]:
    found = [wait_for("its groups", lambda node=node: coordinated(cluster, node)) for node in cluster.nodes]
    return {group["groupId"] for groups in found for group in groups}


def test_offsets_that_an_unclean_election_takes_back_are_predicted_exactly(place: Place, tmp_path: Path) -> None:
    """Last of this file. Broker 2 misses commits, a group and a member, and then leads all partitions."""
    cluster, commits = place.cluster, place.commits
    cluster.when_in_sync()
    commits.reassign(OFFSETS_TOPIC, {partition: [1, 2] for partition in range(PARTITIONS)})
    wait_for("two replicas", lambda: all(sorted(isr) == [1, 2] for isr in cluster.isr().values()))
    cluster.nodes[2].kill()
    wait_for("broker 2 out of sync", lambda: all(isr == [1] for isr in cluster.isr().values()))
    cluster.when_led(1, lambda leader: leader == 1)
    commits.commit(30, groups=20)
    late = ClassicMember(cluster.bootstrap, LATE[0])
    newer = [ShareMember(cluster, LATE[1]), StreamsMember(cluster, LATE[2])]
    try:
        wait_for("the late members", lambda: all(member.joined() for member in (late, *newer)))
        commits.commit(1, groups=1)
        prediction = predicted(place, "unclean-election=1", tmp_path, alive=(2,))
        arguments = ["--fault-command", place.operator.command("fail-over")]
        arguments += ["--recover-command", place.operator.command("start-1")]
        done = finished(observe(place, tmp_path, *arguments))
        assert done.returncode == ExitCode.FINDINGS, done.stdout + done.stderr
    finally:
        for member in (late, *newer):
            member.stop()
    _, report = compared(tmp_path)
    assert report["recovered"] is True
    assert_as_predicted(report, "leader_after", PARTITIONS)
    assert {row["observed"] for row in rows(report, "leader_after")} == {2}
    for what in ("coordinator_after", "regressed", "vanished", "rebalances"):
        assert_as_predicted(report, what, GROUPS)
    assert_as_predicted(report, "lost_records", PARTITIONS)
    back = {row["name"]: row["observed"] for row in rows(report, "regressed") if row["observed"]}
    assert set(back) == {f"g-{number}" for number in range(20)}
    assert all(len(changes) == 64 for changes in back.values())
    assert all(after < before for changes in back.values() for _, _, before, after in changes)
    assert prediction["totals"]["offsets_regressed"] == 20 * 64
    rebalanced = {row["name"] for row in rows(report, "rebalances") if row["observed"]}
    assert rebalanced == set(LATE)
    reasons = {group["group_id"]: group["reason"] for group in prediction["groups"]}
    assert {reasons[one.group] for one in newer} == {"heartbeats are answered GROUP_ID_NOT_FOUND"}
    for what in ("state", "epochs", "members"):
        open_ = {row["name"] for row in rows(report, what) if row["match"] != "as_predicted"}
        assert open_ == set(), what
    assert {row["match"] for row in rows(report, "start_offsets")} == {"not_compared"}
