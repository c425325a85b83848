"""Each way out that ``regroup rescue`` prints, judged by brokers: those that do not load a log, and those that do.

The log is that of ``tests/lifecycle/failing_logs.py``, with a group behind each record that stops a load.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from coordinator_core.errors import ExitCode
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import OffsetKey
from coordinator_core.releases import Release
from tests.lifecycle.failing_logs import LOGS, PARTITIONS, write_log
from tests.live.broker import KAFKA_VERSION, Broker, Kafka, create_topics, wait_for
from tests.live.test_compacted_log import swap_in
from tests.log.builders import build_batch, segment_name
from tests.recording.brokers import RELEASES, Recorded, RecordedBroker
from tests.recording.loads import SETTINGS, last_words
from tests.recording.session import Session
from tests.replay.histories import encoded_key, offset_value
from tests.restore.kit import regroup

FILLED = range(len(LOGS["new"]))
BEHIND, COMMITTED, RECORDS = 1000, 5, 10
COMMITTED_IN = {"gap": 5, "large": 0}
"""Offset of g-0 for t-0, by log."""
COORDINATOR_LOAD_IN_PROGRESS = 14


def group_behind(partition: int) -> str:
    """A group whose only commit is behind all else in the partition."""
    return next(name for number in range(1000) if partition_for(name := f"behind-{number}", PARTITIONS) == partition)


def broker_of(version: str, directory: Path) -> RecordedBroker:
    recorded = Recorded.of(version)
    kafka = Kafka.fetch() if version == KAFKA_VERSION else recorded.fetch()
    return RecordedBroker(recorded, kafka, directory, {**SETTINGS, **recorded.settings})


def write_failing_log(log_dir: Path) -> None:
    write_log("new", log_dir)
    for partition in FILLED:
        key = encoded_key(OffsetKey(group_behind(partition), "t", 0))
        segment = max((log_dir / f"__consumer_offsets-{partition}").glob("*.log"))
        with segment.open("ab") as file:
            file.write(build_batch(BEHIND, [(key, offset_value(COMMITTED))]))


def loaded(broker: Broker) -> dict[int, bool]:
    """Whether the broker has loaded each partition of the log, once it has said so of all of them."""
    broker.start()

    def words() -> dict[str, str] | None:
        found = last_words(broker.log_since_start())
        return found if set(found) == set(map(str, range(PARTITIONS))) else None

    said = wait_for("the loads", words)
    return {partition: "Finished loading" in said[str(partition)] for partition in FILLED}


def committed(broker: Broker, *group_ids: str) -> dict[str, int]:
    """Committed offsets of t-0. A broker that was killed loads its partitions again when it is unfenced."""

    def answer(group_id: str) -> list[int] | None:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        try:
            offsets = admin.list_group_offsets(group_id)[group_id]
        except KafkaError:
            return None
        finally:
            admin.close()
        return [place.offset for partition, place in offsets.items() if partition.topic == "t"]

    answers = {group_id: wait_for("an answer", lambda group_id=group_id: answer(group_id)) for group_id in group_ids}
    return {group_id: offset for group_id, (offset,) in answers.items()}


def prepared(broker: RecordedBroker) -> None:
    """A topic with records, and the failing log in the place of the offsets partitions; the broker is stopped."""
    broker.start()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    create_topics(admin, {"t": 1})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(RECORDS):
        producer.send("t", b"%d" % number, partition=0)
    producer.close()
    # The first question for a group creates the offsets topic.
    with broker.connect() as connection:
        wait_for("the offsets topic", lambda: connection.find_coordinator("g") >= 0)
    # Without the file that names its topic, a partition is none after the kill.
    for name in (segment_name(0), "partition.metadata"):
        files = f"__consumer_offsets-*/{name}"
        wait_for("its partitions", lambda files=files: len(list(broker.log_dir.glob(files))) == PARTITIONS)
    admin.close()
    broker.kill()
    write_failing_log(broker.log_dir)


@pytest.mark.parametrize(
    "release, bugs, saved",
    [
        ("4.0.1", {1: "KAFKA-19862", 3: "KAFKA-21117", 6: "KAFKA-19453"}, {1, 6}),
        ("4.2.0", {2: "KAFKA-20254", 3: "KAFKA-21117"}, {2}),
    ],
)
def test_every_way_out_of_a_load_that_stops(
    release: str, bugs: Mapping[int, str], saved: set[int], tmp_path: Path
) -> None:
    """``saved``: the partitions that the newest release loads."""
    RELEASES["4.4.0"].fetch()  # The recorder's client is of that release.
    broker = broker_of(release, tmp_path / "broker")
    prepared(broker)
    log, repaired, names = tmp_path / "log", tmp_path / "repaired", tmp_path / "names.csv"
    rules = ("--kafka-version", release, "--coordinator", "new")
    count = ("--offsets-topic-num-partitions", str(PARTITIONS))
    try:
        assert {partition for partition, is_loaded in loaded(broker).items() if not is_loaded} == set(bugs)
        shutil.copytree(broker.log_dir, log)
        printed = regroup(
            *("rescue", log, *rules, *count, "--repair", repaired, "--names", names, "--format", "json"),
            code=ExitCode.FINDINGS,
        )
        stuck = {one["offsets_partition"]: one for one in json.loads(printed.stdout)["partitions"]}
        assert {partition: one["stop"]["bug"] for partition, one in stuck.items()} == bugs
        newest_of_table = {"release": "4.3", "coordinator": "new"}
        assert {at for at, one in stuck.items() if newest_of_table in one["loaded_by"]} == saved

        # Other names, while the coordinator is stuck.
        server = ("--bootstrap-server", broker.bootstrap)
        plan, applied = tmp_path / "plan.json", tmp_path / "applied"
        regroup(
            *("restore", "plan", log, *rules, *count, "--map-groups", names, "--topic", "t"),
            *(*server, "--output", plan),
        )
        regroup("restore", "apply", plan, *server, "--execute", "--output", applied)
        regroup("restore", "verify", applied, *server, *rules)
        behind = {partition: group_behind(partition) for partition in bugs}
        new = [stuck[partition]["names"][group_id] for partition, group_id in behind.items()]
        assert committed(broker, *new) == dict.fromkeys(new, COMMITTED)
        broker.kill()

        # A release that loads it.
        newest = broker_of(KAFKA_VERSION, tmp_path / "newest")
        shutil.copytree(broker.log_dir, newest.log_dir)
        try:
            found = loaded(newest)
            assert {partition for partition in bugs if found[partition]} == saved
            assert committed(newest, *(behind[at] for at in saved)) == {behind[at]: COMMITTED for at in saved}
        finally:
            newest.kill()

        # The repaired partitions, made smaller.
        compacted = tmp_path / "compacted"
        regroup("compact", repaired, *rules, "--output", compacted)
        swap_in(broker.log_dir, compacted)
        assert set(loaded(broker).values()) == {True}
        assert committed(broker, *behind.values()) == dict.fromkeys(behind.values(), COMMITTED)
    finally:
        broker.kill()


@pytest.mark.parametrize("release, name, mends", [("2.3.1", "gap", "2.4.1"), ("2.0.0", "large", "2.4.1")])
def test_every_way_out_of_a_load_that_never_ends(release: str, name: str, mends: str, tmp_path: Path) -> None:
    RELEASES["4.4.0"].fetch()  # The recorder's client is of that release.
    settings = {**SETTINGS, "offsets.topic.num.partitions": "1", "offsets.retention.minutes": "10000000"}
    log, repaired = tmp_path / "log", tmp_path / "repaired"
    broker = RecordedBroker(Recorded.of(release), Recorded.of(release).fetch(), tmp_path / "broker", settings)
    try:
        broker.start()
        answer_for_t_0(broker, offset=-1)
        broker.kill()
        write_log(name, broker.log_dir)
        broker.start()
        answer_for_t_0(broker, error=COORDINATOR_LOAD_IN_PROGRESS)
        broker.kill()
        shutil.copytree(broker.log_dir, log)
        rules = ("--kafka-version", release, "--offsets-topic-num-partitions", "1")
        regroup("rescue", log, *rules, "--repair", repaired, code=ExitCode.FINDINGS)

        # A release that loads it.
        newer = RecordedBroker(Recorded.of(mends), Recorded.of(mends).fetch(), tmp_path / "newer", settings)
        shutil.rmtree(newer.log_dir)
        shutil.copytree(broker.log_dir, newer.log_dir)
        shutil.copytree(broker.directory / "zookeeper", newer.directory / "zookeeper", dirs_exist_ok=True)
        try:
            newer.start()
            answer_for_t_0(newer, offset=COMMITTED_IN[name])
        finally:
            newer.kill()

        # The repaired partition.
        segments = next(repaired.glob("__consumer_offsets-0"))
        for old in (broker.log_dir / segments.name).iterdir():
            old.unlink()
        shutil.copytree(segments, broker.log_dir / segments.name, dirs_exist_ok=True)
        (broker.log_dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        broker.start()
        answer_for_t_0(broker, offset=COMMITTED_IN[name])
    finally:
        broker.kill()


def answer_for_t_0(broker: RecordedBroker, *, offset: int = -1, error: int = 0) -> None:
    """Asks the coordinator of g-0 until it answers so; any other answer that does not pass is an error."""
    session = Session(broker.port, Release.parse(broker.kafka.version))
    try:
        if not error:
            session.ask("FindCoordinator", {"key": "g-0", "keyType": 0}, 2)
        body = {"groupId": "g-0", "topics": [{"name": "t", "partitionIndexes": [0]}]}
        answer = session.ask("OffsetFetch", body, 3, (error,) if error else (0,))
    finally:
        session.close()
    assert [one["committedOffset"] for topic in answer["topics"] for one in topic["partitions"]] in ([offset], [])
    assert answer["topics"] or error
