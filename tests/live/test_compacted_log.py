"""Brokers start on compacted logs: they load what they loaded before, and find nothing wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.structs import OffsetAndMetadata

from tests.cases import case
from tests.cluster.kit import Commits
from tests.cluster.three import three_brokers
from tests.lifecycle.test_compact_options import without_open_transactions
from tests.live.broker import SESSION_TIMEOUT_MS, Broker, Kafka, wait_for
from tests.live.scenario import OFFSETS_PARTITIONS, Scenario
from tests.live.test_live_broker import regroup
from tests.live.test_model import ScalaBroker
from tests.live.wire import OFFSETS_TOPIC, Connection, Json

CLEANING = {
    # Whatever is appended rolls the segment, which can be cleaned then.
    "log.roll.ms": "1000",
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0",
}
# A slow start has the controller refuse itself once, which it tells as an error; it sees no offsets log.
TROUBLE = re.compile(r" (ERROR|FATAL) (?!Controller)|uncleanable|Failed to load|[Cc]orrupt|Error loading")


def compact(snapshot: Path, output: Path, *options: str) -> Json:
    document: Json = json.loads(
        regroup("compact", str(snapshot), "--output", str(output), "--format", "json", *options)
    )
    return document


def swap_in(log_dir: Path, partitions: Path) -> None:
    """Put offsets partitions in place of those of a stopped broker, as an operator would."""
    for partition in partitions.glob(f"{OFFSETS_TOPIC}-*"):
        place = log_dir / partition.name
        identity = place / "partition.metadata"
        kept = identity.read_bytes()
        shutil.rmtree(place)
        shutil.copytree(partition, place)
        identity.write_bytes(kept)
    for stale in ("cleaner-offset-checkpoint", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        (log_dir / stale).unlink(missing_ok=True)


@contextmanager
def started(broker: Broker) -> Iterator[Connection]:
    """A connection to a broker that runs for so long."""
    try:
        broker.start()
        with broker.connect() as connection:
            yield connection
    finally:
        broker.kill()


def offset_key(row: Json) -> tuple[str, int]:
    return row["topic"], row["partition"]


def in_order(answers: Json) -> Json:
    """Answers with every group's offsets sorted: a broker lists them in the order of its hash map."""
    for group in answers["groups"].values():
        group["offsetFetch"]["offsets"].sort(key=offset_key)
    return answers


def troubles(broker: Broker) -> list[str]:
    return [line for line in broker.log_since_start().splitlines() if TROUBLE.search(line)]


@pytest.fixture(scope="module")
def compacted(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The offsets partitions of the scenario's killed broker, compacted."""
    output = tmp_path_factory.mktemp("compacted") / "log"
    document = compact(scenario.case.paths[0], output, "--kafka-version", scenario.case.release)
    assert document["output_records"] < document["input_records"]
    assert any(row["open_producers"] for row in document["partitions"])
    return output


@pytest.fixture(scope="module")
def broker_on_compacted(
    kafka: Kafka, scenario: Scenario, compacted: Path, tmp_path_factory: pytest.TempPathFactory
) -> Broker:
    """A broker of the same cluster, not started, whose offsets partitions are the compacted ones."""
    broker = Broker(kafka, tmp_path_factory.mktemp("swapped") / "broker", CLEANING)
    shutil.copytree(scenario.case.paths[0], broker.log_dir)
    swap_in(broker.log_dir, compacted)
    return broker


def test_kafkas_dump_tool_finds_every_batch_valid(kafka: Kafka, compacted: Path) -> None:
    segments = [path for path in sorted(compacted.glob("*/*.log")) if path.stat().st_size]
    text = kafka.dump_log(*segments)
    batches = [line for line in text.splitlines() if line.startswith("baseOffset: ")]
    assert len(batches) > len(segments) / 2
    assert all("isvalid: true" in line for line in batches)


def test_a_broker_answers_as_before_and_then_cleans_without_error(
    broker_on_compacted: Broker, scenario: Scenario
) -> None:
    broker = broker_on_compacted
    expected = in_order(scenario.case.reloaded())
    with started(broker) as connection:
        answers = in_order(connection.answers())
        for name, group in expected["groups"].items():
            assert answers["groups"].get(name) == group, name
        assert answers == expected
        assert troubles(broker) == []
        made = list(broker.log_dir.glob(f"{OFFSETS_TOPIC}-*/*.index"))
        assert len({path.parent.name for path in made}) == OFFSETS_PARTITIONS
        _commit(broker, "g-simple", 7)
        _commit(broker, "g-simple", 8)
        wait_for("the cleaner", lambda: re.search(r"cleaned log __consumer_offsets-\d+", broker.log_since_start()))
        assert troubles(broker) == []
        broker.stop()
    # Also after a clean shutdown, when nothing is recovered.
    with started(broker) as connection:
        again = in_order(connection.answers())
        groups = {name: group for name, group in again["groups"].items() if name != "g-simple"}
        assert groups == {name: group for name, group in expected["groups"].items() if name != "g-simple"}
        assert again["openTransactions"] == expected["openTransactions"]
        assert troubles(broker) == []


def test_a_directory_without_the_topic_id_of_the_broker_is_set_aside(
    kafka: Kafka, scenario: Scenario, compacted: Path, tmp_path: Path
) -> None:
    """Why docs/compaction.md has the broker's own ``partition.metadata`` stay: a log made from a capture has none."""
    broker = Broker(kafka, tmp_path / "broker", CLEANING)
    shutil.copytree(scenario.case.paths[0], broker.log_dir)
    swap_in(broker.log_dir, compacted)
    for identity in broker.log_dir.glob(f"{OFFSETS_TOPIC}-*/partition.metadata"):
        identity.unlink()
    with started(broker) as connection:
        assert connection.list_groups() == []
    assert len(list(broker.log_dir.glob(f"{OFFSETS_TOPIC}-*-stray"))) == OFFSETS_PARTITIONS


def test_three_brokers_begin_on_one_compacted_log(kafka: Kafka, tmp_path: Path) -> None:
    """Whichever leads first: a replica without the log would have the others cut theirs."""
    with three_brokers(kafka, tmp_path, {"offsets.topic.num.partitions": "2"}) as (cluster, commits):
        commits.commit(6)
        groups = [f"g-{number}" for number in range(6)]
        before = {group: commits.held(group) for group in groups}
        commits.close()
        # Combined brokers that are stopped one by one wait for a quorum that is gone.
        cluster.kill()
        logs = [str(node.log_dir) for node in cluster.nodes.values()]
        regroup("compact", *logs, "--output", str(tmp_path / "compacted"))
        for node in cluster.nodes.values():
            swap_in(node.log_dir, tmp_path / "compacted")
        cluster.start()
        cluster.when_in_sync()
        commits = Commits(cluster.bootstrap)
        try:
            for group in groups:
                assert wait_for(group, lambda group=group: commits.held(group) or None) == before[group]
        finally:
            commits.close()


def _commit(broker: Broker, group_id: str, offset: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.alter_group_offsets(group_id, {TopicPartition("orders", 3): OffsetAndMetadata(offset, "", -1)})
    finally:
        admin.close()


def said_of_classic_groups(connection: Connection, topics: list[tuple[str, int]]) -> Json:
    """Answers of brokers of both releases about every group: its description, and each of its offsets."""
    answers: Json = {}
    for row in connection.list_groups():
        group_id = row["groupId"]
        group = connection.send(DescribeGroupsRequest[5](groups=[group_id])).groups[0]
        members = [
            (
                m.member_id,
                m.group_instance_id,
                m.client_id,
                m.client_host,
                m.member_metadata,
                m.member_assignment,
            )
            for m in group.members
        ]
        answers[group_id] = (
            (row, group.error_code, group.group_state, group.protocol_type, group.protocol_data),
            sorted(members),
            sorted(connection.offsets(group_id, None, require_stable=False), key=offset_key),
            connection.offsets(group_id, topics, require_stable=True),
        )
    return answers


@pytest.mark.parametrize(
    ("name", "release"),
    [("k392-classic", "3.9.2"), ("kmix-0102-241/mixed", "3.9.2"), ("kmix-0102-241/mixed", "4.3.1")],
)
def test_older_logs_load_to_the_same_groups(name: str, release: str, tmp_path: Path) -> None:
    """A classic log with open transactions, and one of messages of formats 0, 1 and 2."""
    snapshot = case(name)
    kind = ScalaBroker if release == "3.9.2" else Broker
    settings = {
        "offsets.topic.num.partitions": str(snapshot.offsets_partitions),
        # Nothing may expire between the two loads.
        "offsets.retention.minutes": "100000000",
    }
    compacted = tmp_path / "compacted"
    compact(snapshot.paths[0], compacted, "--kafka-version", release)
    broker = kind(Kafka.fetch(release), tmp_path / "broker", settings)
    with started(broker):
        broker.stop()
    described = json.loads(regroup("describe", str(snapshot.paths[0]), "--kafka-version", release, "--format", "json"))
    topics: dict[str, int] = {}
    for group in described["groups"]:
        for row in group["offsets"]:
            topics[row["topic"]] = max(topics.get(row["topic"], 0), row["partition"] + 1)
    answers = []
    for log in (snapshot.paths[0], compacted):
        swap_in(broker.log_dir, log)
        with started(broker) as connection:
            answers.append(said_of_classic_groups(connection, sorted(topics.items())))
            answers[-1]["open"] = connection.open_transactions(OFFSETS_TOPIC, snapshot.offsets_partitions)
            assert troubles(broker) == []
    assert answers[0] == answers[1]
    assert len(answers[0]) > 5


def said_of_every_group(connection: Connection) -> Json:
    """Answers of a 4.3.1 broker about groups of all kinds; of streams groups, which they are and their
    offsets."""
    describe = {
        "classic": connection.describe_classic,
        "consumer": connection.describe_consumer,
        "share": connection.describe_share,
    }
    return {
        row["groupId"]: (
            row,
            describe.get(row["groupType"], lambda group_id: None)(row["groupId"]),
            sorted(connection.offsets(row["groupId"], None, require_stable=False), key=offset_key),
        )
        for row in connection.list_groups()
    }


def test_a_broker_loads_another_codec_and_another_partition_count(kafka: Kafka, tmp_path: Path) -> None:
    snapshot = without_open_transactions(case("k431-mixed").paths[0], tmp_path / "snapshot")
    recoded, moved = tmp_path / "recoded", tmp_path / "moved"
    compact(snapshot, recoded, "--kafka-version", "4.3.1", "--codec", "zstd")
    compact(
        *(snapshot, moved, "--kafka-version", "4.3.1", "--codec", "gzip"),
        *("--offsets-partitions", "7", "--renumber"),
    )
    answers = []
    for count, logs in ((50, [snapshot, recoded]), (7, [moved])):
        settings = {
            "offsets.topic.num.partitions": str(count),
            "offsets.retention.minutes": "100000000",
            # No member is given up before its group is asked for.
            "group.streams.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "group.streams.max.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        }
        broker = Broker(kafka, tmp_path / f"broker-{count}", settings)
        with started(broker):
            broker.stop()
        for log in logs:
            swap_in(broker.log_dir, log)
            with started(broker) as connection:
                answers.append(said_of_every_group(connection))
                assert troubles(broker) == []
    assert len(answers[0]) > 30
    kinds = {row["groupType"] for row, _, _ in answers[0].values()}
    assert kinds == {"classic", "consumer", "share", "streams"}
    for group_id, answer in answers[0].items():
        assert [again.get(group_id) for again in answers[1:]] == [answer, answer], group_id
    assert [set(again) for again in answers] == [set(answers[0])] * 3


def test_a_broker_begins_a_log_that_ends_before_its_start_where_the_compaction_does(tmp_path: Path) -> None:
    """``LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd``: nothing is left, and the next record is at the start."""
    snapshot = case("k392-classic")
    start, release = 1_000_000, snapshot.release
    log = shutil.copytree(snapshot.paths[0], tmp_path / "log")
    partition = max(
        log.glob(f"{OFFSETS_TOPIC}-*"), key=lambda one: sum(file.stat().st_size for file in one.glob("*.log"))
    )
    number = partition.name.rpartition("-")[2]
    checkpoint = f"0\n1\n{OFFSETS_TOPIC} {number} {start}\n"
    (log / "log-start-offset-checkpoint").write_text(checkpoint)
    regroup("compact", str(log), "--output", str(tmp_path / "out"), "--kafka-version", release, "--partial")
    settings = {"offsets.topic.num.partitions": str(snapshot.offsets_partitions)}
    broker = Broker(Kafka.fetch(), tmp_path / "broker", settings)
    with started(broker):
        broker.stop()
    swap_in(broker.log_dir, log)
    (broker.log_dir / "log-start-offset-checkpoint").write_text(checkpoint)
    with started(broker):
        broker.stop()

    def files(directory: Path) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in (directory / partition.name).glob("*.log")}

    assert files(broker.log_dir) == files(tmp_path / "out") == {f"{start:020d}.log": 0}
