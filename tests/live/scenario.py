"""Clients of the live broker, and its answers before and after it is killed.

The log holds classic, static, KIP-848, share and simple groups, deleted groups and offsets, and transactions
that were committed, aborted and left open. ``GROUPS`` is what the broker must say before the kill.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata

from tests.cases import Case
from tests.live.broker import Broker, Kafka, create_topics, wait_for
from tests.live.wire import Json

ROOT = Path(__file__).resolve().parent.parent.parent
TOPICS = {"orders": 4, "payments": 3, "clicks": 2}
RECORDS_PER_PARTITION = 20
OFFSETS_PARTITIONS = 50
"""Kafka's default."""

# Group id: type, state after the restart, members.
GROUPS = {
    "g-classic": ("classic", "Stable", 2),
    "g-static": ("classic", "Stable", 2),
    "g-left": ("classic", "Empty", 0),
    "g-consumer": ("consumer", "Stable", 2),
    "g-consumer-range": ("consumer", "Stable", 1),
    "g-share": ("share", "Stable", 1),
    "g-simple": ("classic", "Empty", 0),
    "g-recreated": ("classic", "Empty", 0),
    "g-offsets-deleted": ("classic", "Empty", 0),
    "g-txn-committed": ("classic", "Empty", 0),
    "g-txn-aborted": ("classic", "Empty", 0),
    "g-txn-open": ("classic", "Empty", 0),
    "g-txn-open-over": ("classic", "Empty", 0),
    "g-txn-two-producers": ("classic", "Empty", 0),
    "группа ünï 組": ("classic", "Empty", 0),
}
OPEN_OFFSET_KEYS = {
    ("g-classic", "clicks", 0),
    ("g-txn-open", "orders", 0),
    ("g-txn-open", "orders", 1),
    ("g-txn-open-over", "orders", 0),
    ("g-txn-two-producers", "orders", 1),
}
DELETED_GROUP = "g-deleted"


class Client:
    """A client process, killed by its process id."""

    def __init__(self, command: list[str], log: Path, *, answers: bool) -> None:
        self._log = log
        pipe = subprocess.PIPE if answers else subprocess.DEVNULL
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=stderr, text=True)

    def ask(self, command: Any) -> Json:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self.check_alive()
        answer: Json = json.loads(line)
        return answer

    def check_alive(self) -> None:
        if self._process.poll() is not None:
            said = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"a client ended with {self._process.returncode}:\n{said}")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class Clients:
    """Starts client processes of one broker, and kills all that are left."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._started: list[Client] = []

    def _start(self, command: list[str], *, answers: bool) -> Client:
        log = self.broker.directory / f"client-{len(self._started)}.log"
        client = Client(command, log, answers=answers)
        self._started.append(client)
        return client

    def _python(self, *arguments: str) -> Client:
        return self._start([sys.executable, "-m", "tests.live.client", *arguments], answers=True)

    def member(self, group: str, topics: str, client_id: str, assignor: str, *instance_id: str) -> Client:
        return self._python("member", self.broker.bootstrap, group, topics, client_id, assignor, *instance_id)

    def producer(self, transactional_id: str) -> Client:
        return self._python("producer", self.broker.bootstrap, transactional_id)

    def java(self, main_class: str, *arguments: str, **properties: str) -> Client:
        """One of Kafka's own console consumers. Underscores in property names stand for dots."""
        options = [
            word
            for name, value in properties.items()
            for word in ("--command-property", f"{name.replace('_', '.')}={value}")
        ]
        common = ["--bootstrap-server", self.broker.bootstrap]
        command = self.broker.kafka.command(main_class, *common, *arguments, *options, heap="96m")
        return self._start(command, answers=False)

    def consumer(self, group: str, *arguments: str, **properties: str) -> Client:
        """A KIP-848 member that commits all it reads."""
        return self.java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--group",
            group,
            "--from-beginning",
            *arguments,
            group_protocol="consumer",
            auto_commit_interval_ms="200",
            **properties,
        )

    def check_alive(self) -> None:
        for client in self._started:
            client.check_alive()

    def kill(self) -> None:
        for client in self._started:
            client.kill()
        self._started.clear()


@dataclass(frozen=True)
class Scenario:
    """Files that a broker left, and its answers: a corpus case made just now.

    ``case`` holds a copy of the log directory as SIGKILL left it, and ``reloaded.json``: the broker's answers
    after a restart on its own directory, without clients. ``live`` are its answers before the kill,
    ``members`` the classic members' own words. ``dump`` is what Kafka's dump tool prints of ``segments``, the
    copied offsets segments; ``restarted_segments`` are those that the restarted broker left.
    """

    case: Case
    live: Json
    members: dict[str, list[Json]]
    segments: list[Path]
    restarted_segments: list[Path]
    dump: str


@contextmanager
def running(kafka: Kafka, directory: Path) -> Iterator[tuple[Broker, Clients]]:
    """A started broker and its clients; in the end the clients die after the broker."""
    broker = Broker(kafka, directory)
    with ExitStack() as stack:
        clients = Clients(broker)
        stack.callback(clients.kill)
        stack.callback(broker.kill)
        broker.start()
        yield broker, clients


def play(kafka: Kafka, directory: Path) -> Scenario:
    """Everything, in a directory that does not exist yet."""
    expected = directory / "expected"
    expected.mkdir(parents=True)
    with running(kafka, directory / "broker") as (broker, clients):
        _fill_topics(broker)
        members = _members(clients)
        _simple_groups(broker)
        _transactions(clients)
        for each in chain.from_iterable(members.values()):
            each.ask("commit")
        live = wait_for("the clients to settle", partial(_settled, broker))
        words = {
            group: wait_for(f"one generation of {group}", partial(_words, each)) for group, each in members.items()
        }
        broker.kill()
        captured_ms = time.time_ns() // 1_000_000
        clients.kill()
        log = broker.copy_log(directory / "log")
        broker.start()
        with broker.connect() as connection:
            (expected / "reloaded.json").write_text(json.dumps(connection.answers()), encoding="utf-8")
        broker.kill()
    case = Case("live", directory, (log,), kafka.version, None, OFFSETS_PARTITIONS, captured_ms)
    segments = broker.offsets_segments(log)
    return Scenario(case, live, words, segments, broker.offsets_segments(), kafka.dump_log(*segments))


def _fill_topics(broker: Broker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        create_topics(admin, TOPICS)
    finally:
        admin.close()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    try:
        for topic, partitions in TOPICS.items():
            for partition in range(partitions):
                for number in range(RECORDS_PER_PARTITION):
                    producer.send(topic, b"%d" % number, partition=partition)
        producer.flush()
    finally:
        producer.close()


def _members(clients: Clients) -> dict[str, list[Client]]:
    """All kinds of members; returns those that speak the classic protocol, their groups being Stable."""
    clients.consumer("g-consumer", "--topic", "orders", client_id="k848-a", group_instance_id="static-848")
    clients.consumer("g-consumer", "--topic", "payments", client_id="k848-b", client_rack="rack-b")
    clients.consumer(
        "g-consumer-range", "--include", "orders|clicks", client_id="k848-r", group_remote_assignor="range"
    )
    clients.java(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        "--topic",
        "clicks",
        "--group",
        "g-share",
        client_id="share-a",
    )
    members = {
        "g-classic": _joined(
            clients,
            "g-classic",
            ("orders,payments", "classic-a", "range"),
            ("orders,payments", "classic-b", "range"),
        ),
        "g-static": _joined(
            clients,
            "g-static",
            ("clicks", "static-a", "roundrobin", "instance-a"),
            ("clicks", "static-b", "roundrobin", "instance-b"),
        ),
        "g-left": _joined(clients, "g-left", ("payments", "left-a", "roundrobin")),
    }
    (left,) = members.pop("g-left")
    left.ask("commit")
    left.ask("leave")
    return members


def _joined(clients: Clients, group: str, *settings: tuple[str, ...]) -> list[Client]:
    """Members that joined one after the other, each when the one before it owns partitions.

    The assignors are eager ones: on a busy machine kafka-python 3.0 can stop in the middle of the second
    rebalance that a cooperative assignor asks for. The corpus has cooperative groups of Java clients.
    """
    members: list[Client] = []
    for setting in settings:
        members.append(clients.member(group, *setting))
        wait_for(f"{group} to be Stable", partial(_is_stable, clients, group, len(members)))
        wait_for(f"{group} to have its partitions", partial(_has_partitions, members[-1]))
    return members


def _has_partitions(member: Client) -> bool:
    return bool(member.ask("state")["assignment"])


def _is_stable(clients: Clients, group: str, members: int) -> bool:
    clients.check_alive()
    with clients.broker.connect() as connection:
        described = connection.describe_classic(group)
    return described["groupState"] == "Stable" and len(described["members"]) == members


def _words(members: list[Client]) -> list[Json] | None:
    """What the members of a group know of it, once they are in one generation."""
    words = [each.ask("state") for each in members]
    is_one = len({each["generation"] for each in words}) == 1 and all(each["assignment"] for each in words)
    return words if is_one else None


def _simple_groups(broker: Broker) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)

    def commit(group: str, *rows: tuple[str, int, int, str, int]) -> None:
        offsets = {TopicPartition(t, p): OffsetAndMetadata(offset, text, epoch) for t, p, offset, text, epoch in rows}
        results = admin.alter_group_offsets(group, offsets)
        assert set(results.values()) == {NoError}, results

    try:
        commit(
            "g-simple",
            ("orders", 0, 1, "", -1),
            ("orders", 1, 2, "plain", 0),
            ("orders", 2, 0, "ünï 組 \0 😀", 0),
        )
        commit("g-simple", ("orders", 1, 5, "overwritten", -1), ("payments", 2, 2**63 - 1, "x" * 4096, 0))
        commit("группа ünï 組", ("clicks", 1, 3, "", 0))
        commit("g-deleted", ("orders", 0, 4, "gone", 0))
        commit("g-recreated", ("orders", 0, 4, "before", 0), ("orders", 1, 4, "before", 0))
        commit("g-offsets-deleted", ("orders", 0, 4, "", 0), ("orders", 1, 5, "", 0), ("clicks", 0, 6, "kept", 0))
        commit("g-txn-open-over", ("orders", 0, 11, "under", 0))
        deleted = admin.delete_groups(["g-deleted", "g-recreated"])
        assert set(deleted.values()) == {"OK"}, deleted
        commit("g-recreated", ("orders", 0, 9, "after", 0))
        gone = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        results = admin.delete_group_offsets("g-offsets-deleted", gone)
        assert set(results.values()) == {NoError}, results
    finally:
        admin.close()


def _transactions(clients: Clients) -> None:
    def begin(client: Client, **groups: list[tuple[str, int, int, str, int]]) -> None:
        client.ask({"begin": {group.replace("_", "-"): rows for group, rows in groups.items()}})

    ended, opened = clients.producer("tx-ended"), clients.producer("tx-open")
    begin(ended, g_txn_committed=[("orders", 0, 21, "first", 0), ("orders", 1, 22, "", -1)])
    ended.ask("commit")
    begin(ended, g_txn_committed=[("orders", 0, 23, "second", 0)])
    ended.ask("commit")
    begin(
        ended,
        g_txn_aborted=[("orders", 0, 31, "aborted", 0)],
        g_txn_committed=[("orders", 0, 99, "aborted", 0)],
    )
    ended.ask("abort")
    begin(
        opened,
        g_txn_open=[("orders", 0, 41, "open", 0), ("orders", 1, 42, "open", 0)],
        g_txn_open_over=[("orders", 0, 43, "over", 0)],
        g_txn_two_producers=[("orders", 1, 44, "open", 0)],
        g_classic=[("clicks", 0, 45, "open, of a live group", 0)],
    )
    # Committed after the other producer's commit of the same offset key, which stays open.
    begin(ended, g_txn_two_producers=[("orders", 0, 51, "", 0), ("orders", 1, 52, "other producer", 0)])
    ended.ask("commit")


def _settled(broker: Broker) -> Json | None:
    """The broker's answers, once every group is as promised and has committed all that it read, and the transactions
    that were ended have their markers."""
    with broker.connect() as connection:
        answers = connection.answers()
    described = {
        group_id: (group["type"], group["describe"]["groupState"], len(group["describe"]["members"]))
        for group_id, group in answers["groups"].items()
    }
    if described != GROUPS:
        return None
    states = {row["transactionalId"]: row["transactionState"] for row in answers["listTransactions"]}
    if states.get("tx-ended") != "CompleteCommit":
        return None
    read = {"g-consumer": ("orders", "payments"), "g-consumer-range": ("orders", "clicks")}
    for group_id, topics in read.items():
        offsets = answers["groups"][group_id]["offsetFetch"]["offsets"]
        done = {(o["topic"], o["partition"]) for o in offsets if o["offset"] == RECORDS_PER_PARTITION}
        if done != {(topic, partition) for topic in topics for partition in range(TOPICS[topic])}:
            return None
    return answers
