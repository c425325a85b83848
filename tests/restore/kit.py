"""A real broker with committed offsets to restore, and the commands that do it."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata

from tests.cluster.kit import Json
from tests.drill import kit
from tests.live.broker import Broker, create_topics
from tests.live.group_protocol import Codec, Connection
from tests.live.scenario import Clients
from tests.recording.session import complete, read_definition

TOPIC, PARTITIONS, RECORDS = "orders", 4, 100
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "s3cret-of-the-restore"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} required user_restorer="{PASSWORD}" '
    f'user_planner="{PASSWORD}";',
}
_JOINS: dict[str, tuple[str, int, Json]] = {
    "consumer": (
        "ConsumerGroupHeartbeat",
        1,
        {"rebalanceTimeoutMs": 60_000, "subscribedTopicNames": [TOPIC], "topicPartitions": []},
    ),
    "streams": (
        "StreamsGroupHeartbeat",
        0,
        {
            "rebalanceTimeoutMs": 60_000,
            "processId": "was-there",
            "topology": {"epoch": 1, "subtopologies": [{"subtopologyId": "0", "sourceTopics": [TOPIC]}]},
            **{name: [] for name in ("activeTasks", "standbyTasks", "warmupTasks")},
        },
    ),
}
"""Request, its version and what a first heartbeat says, by type of group."""

Offsets = dict[tuple[str, int], tuple[int, int, str]]


@dataclass(frozen=True)
class Place:
    """``secured`` is the address for clients that log in."""

    broker: Broker
    admin: KafkaAdminClient
    clients: Clients
    secured: str = ""

    @property
    def server(self) -> tuple[str, str]:
        return "--bootstrap-server", self.broker.bootstrap

    def close(self) -> None:
        self.admin.close()
        self.clients.kill()
        self.broker.kill()

    def commit(self, group: str, offsets: Mapping[int, tuple[int, str, int]]) -> None:
        """Offset, metadata and leader epoch by partition."""
        wanted = {TopicPartition(TOPIC, number): OffsetAndMetadata(*place) for number, place in offsets.items()}
        assert set(self.admin.alter_group_offsets(group, wanted).values()) == {NoError}

    def held(self, *groups: str) -> dict[str, Offsets]:
        """Committed offsets as the coordinators answer; groups without are left out, as the next sweep removes them."""
        listed = {group["group_id"] for group in self.admin.list_groups()}
        found = {}
        for group in listed.intersection(groups):
            answered = self.admin.list_group_offsets(group)[group]
            found[group] = {
                (tp.topic, tp.partition): (place.offset, place.leader_epoch, place.metadata)
                for tp, place in answered.items()
                if place.offset >= 0
            }
        return {group: offsets for group, offsets in found.items() if offsets}


def started(broker: Broker, secured: str = "") -> Place:
    """A broker that runs, with the topic and its records."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    create_topics(admin, {TOPIC: PARTITIONS})
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(PARTITIONS * RECORDS):
        producer.send(TOPIC, f"record {number}".encode(), partition=number % PARTITIONS)
    producer.close()
    return Place(broker, admin, Clients(broker), secured)


def regroup(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = kit.regroup(*arguments, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def offsets_of(number: int) -> dict[int, tuple[int, str, int]]:
    return {partition: (10 + number + partition, f"metadata {number}", 0) for partition in range(PARTITIONS)}


def member_was_there(place: Place, kind: str, group: str) -> None:
    """A member of the ``consumer`` or ``streams`` protocol joins and leaves: its group is of this type from then on."""
    api, version, joins = _JOINS[kind]
    (jar,) = place.broker.kafka.jars.glob("kafka-clients-*.jar")

    def define(api: str, direction: str) -> Json:
        return read_definition(jar, f"{api}{direction.capitalize()}")

    request = define(api, "request")
    member = {"groupId": group, "memberId": str(uuid.uuid4())}
    with closing(Connection(place.broker.port, "was-there", define)) as connection:

        def error_of(epoch: int, body: Json) -> str | None:
            wanted = complete(Codec(request, version), request["fields"], {**member, "memberEpoch": epoch, **body})
            answer = connection.ask(api, version, wanted)
            return f"{answer['errorCode']}: {answer['errorMessage']}" if answer["errorCode"] else None

        assert error_of(0, joins) is None
        assert error_of(-1, {}) is None


def plan_of(place: Place, *arguments: str | Path, output: Path, code: int = 0) -> Json:
    done = regroup("restore", "plan", *arguments, *place.server, "--output", output, "--format", "json", code=code)
    document: Json = json.loads(done.stdout)
    assert document == json.loads(output.read_text())
    return document


def applied(place: Place, plan: Path, directory: Path) -> Json:
    """A plan applied, and proved."""
    regroup("restore", "apply", plan, *place.server, "--execute", "--output", directory)
    done = regroup("restore", "verify", directory, *place.server, "--format", "json")
    proof: Json = json.loads(done.stdout)
    assert proof["verified"]
    return proof


def rolled_back(place: Place, directory: Path, scratch: Path) -> Json:
    regroup("restore", "rollback", directory, *place.server, "--output", scratch / "rollback.json")
    return applied(place, scratch / "rollback.json", scratch / "rolled-back")
