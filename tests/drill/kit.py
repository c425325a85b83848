"""A cluster to drill on, and live members of both protocols."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from kafka import KafkaConsumer

from tests.cluster.kit import TOPIC
from tests.cluster.three import ThreeBrokers
from tests.live import group_protocol
from tests.live.broker import wait_for
from tests.live.client import Subscription
from tests.live.scenario import ROOT
from tests.live.share_groups import share_definitions
from tests.live.streams_scenarios import subtopology, topology

PARTITIONS = 10
SETTINGS = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    # Leaders move when a broker is lost, and at no other time.
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "true",
}
LONG_SESSION_MS = 300_000
_LOOK_UP_AGAIN = {14, 15, 16}

Json = dict[str, Any]


def regroup(*arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command line, to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "coordinator_core", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "REGROUP_DEBUG": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


_AT_EVENT = """
import itertools, runpy, signal, sys, threading
from coordinator_core.drill.journal import Journal
event, moment, how = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
del sys.argv[1:4]
write, counted = Journal.write, itertools.count(1)
def write_and_count(*arguments, **values):
    here = next(counted) == event
    # To this very thread: of a signal to the process, another thread may take note while this one goes on.
    if here and moment == "before":
        signal.pthread_kill(threading.get_ident(), how)
    write(*arguments, **values)
    if here and moment == "after":
        signal.pthread_kill(threading.get_ident(), how)
Journal.write = write_and_count
runpy.run_module("coordinator_core", run_name="__main__")
"""


def signalled(
    event: int, moment: Literal["before", "after"], how: signal.Signals, *arguments: str | Path
) -> subprocess.Popen[bytes]:
    """The command line, which sends itself a signal before or after it writes that event to its journal, from 1.

    So it is killed, or stops, at a known point, however fast the machine is.
    """
    return subprocess.Popen([*signalling(event, moment, how), *map(str, arguments)], cwd=ROOT)


def signalling(event: int, moment: Literal["before", "after"], how: signal.Signals) -> list[str]:
    """How such a command line begins."""
    return [sys.executable, "-c", _AT_EVENT, str(event), moment, str(int(how))]


class ClassicMember:
    """A consumer of the classic protocol that polls, and so heartbeats, in a thread of its own."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            session_timeout_ms=LONG_SESSION_MS,
            request_timeout_ms=LONG_SESSION_MS + 5_000,
            heartbeat_interval_ms=300,
            reconnect_backoff_max_ms=500,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        self._subscription = Subscription(self._consumer, [TOPIC])
        self._stop = threading.Event()
        self._joined = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def _go_on(self) -> None:
        while not self._stop.is_set():
            if self._subscription.poll():
                self._joined.set()
        self._consumer.close(autocommit=False)

    def joined(self) -> bool:
        return self._joined.is_set()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


class Member(ABC):
    """A member of a group with epochs, which heartbeats as a client does, and looks for its coordinator again."""

    api: str
    version = 0

    def __init__(self, cluster: ThreeBrokers, group: str) -> None:
        self._cluster = cluster
        self.group = group
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self._owned: list[Json] = []
        self._connection: group_protocol.Connection | None = None
        self._stop = threading.Event()
        self.joins = 0
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    @abstractmethod
    def body(self, joining: bool) -> Json:
        """What it says beside group, member and epoch."""

    def assigned(self, answer: Json) -> list[Json] | None:
        """What an answer gives it; ``None``: as before."""
        return None if answer["assignment"] is None else answer["assignment"]["topicPartitions"]

    @property
    def partitions(self) -> int:
        """Number of partitions or tasks that it has."""
        return sum(len(one["partitions"]) for one in self._owned)

    def joined(self) -> bool:
        return self.epoch > 0 and bool(self._owned)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _go_on(self) -> None:
        while not self._stop.is_set():
            try:
                if self._connection is None:
                    self._connection = self._found()
                if self._connection is not None:
                    self._heartbeat(self._connection)
            except (OSError, AssertionError):
                self._lost()
            self._stop.wait(0.3)
        self._lost()

    def _lost(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _found(self) -> group_protocol.Connection | None:
        return coordinator(self._cluster, self.group)

    def _heartbeat(self, connection: group_protocol.Connection) -> None:
        joining = self.epoch == 0
        body = {"groupId": self.group, "memberId": self.member_id, "memberEpoch": self.epoch, "rackId": None}
        answer = connection.ask(self.api, self.version, body | self.body(joining))
        if answer["errorCode"] in _LOOK_UP_AGAIN:
            self._lost()
        elif answer["errorCode"]:
            # Fenced or unknown: it begins as a new member.
            self.epoch, self._owned = 0, []
        else:
            self.joins += joining
            self.epoch = answer["memberEpoch"]
            found = self.assigned(answer)
            if found is not None:
                self._owned = found


class ConsumerMember(Member):
    """Of a KIP-848 group."""

    api, version = "ConsumerGroupHeartbeat", 1

    def body(self, joining: bool) -> Json:
        return {
            "instanceId": None,
            "rebalanceTimeoutMs": 60_000 if joining else -1,
            "subscribedTopicNames": [TOPIC] if joining else None,
            "subscribedTopicRegex": None,
            "serverAssignor": None,
            "topicPartitions": [] if joining else self._owned,
        }


class ShareMember(Member):
    """Of a share group (KIP-932)."""

    api, version = "ShareGroupHeartbeat", 1

    def body(self, joining: bool) -> Json:
        return {"subscribedTopicNames": [TOPIC] if joining else None}


class StreamsMember(Member):
    """Of a streams group (KIP-1071) with one subtopology, which reads ``topic``."""

    api = "StreamsGroupHeartbeat"

    def __init__(self, cluster: ThreeBrokers, group: str, topic: str = TOPIC) -> None:
        self._topology = topology(subtopology("0", topic))
        super().__init__(cluster, group)

    def body(self, joining: bool) -> Json:
        return {
            "endpointInformationEpoch": 0,
            "instanceId": None,
            "rebalanceTimeoutMs": 60_000 if joining else -1,
            "topology": self._topology if joining else None,
            "activeTasks": [] if joining else self._owned,
            "standbyTasks": [],
            "warmupTasks": [],
            "processId": self.member_id if joining else None,
            "userEndpoint": None,
            "clientTags": [] if joining else None,
            "taskOffsets": None,
            "taskEndOffsets": None,
            "shutdownApplication": False,
        }

    def assigned(self, answer: Json) -> list[Json] | None:
        found: list[Json] | None = answer["activeTasks"]
        return found

    def commit(self, offset: int) -> bool:
        """Commit for its first task; whether that is done. The coordinator may be an epoch ahead of what it knows."""
        partition = {"partitionIndex": self._owned[0]["partitions"][0], "committedOffset": offset}
        body = {
            "groupId": self.group,
            "generationIdOrMemberEpoch": self.epoch,
            "memberId": self.member_id,
            "groupInstanceId": None,
            "topics": [
                {"name": TOPIC, "partitions": [partition | {"committedLeaderEpoch": -1, "committedMetadata": ""}]}
            ],
        }
        answer = asked(self._cluster, self.group, "OffsetCommit", 9, body)
        return bool(answer["topics"][0]["partitions"][0]["errorCode"] == 0)


def start_at(cluster: ThreeBrokers, group: str, offsets: Mapping[int, int]) -> None:
    """Make a share group without members, with start offsets by partition."""
    partitions = [{"partitionIndex": one, "startOffset": offset} for one, offset in offsets.items()]
    topics = [{"topicName": TOPIC, "partitions": partitions}]

    def altered() -> bool:
        """``False`` while the share coordinator's topic is being made."""
        answer = asked(cluster, group, "AlterShareGroupOffsets", 0, {"groupId": group, "topics": topics})
        found = [one["errorCode"] for topic in answer["responses"] for one in topic["partitions"]]
        return answer["errorCode"] == 0 and found == [0] * len(partitions)

    wait_for("start offsets", altered)


def asked(cluster: ThreeBrokers, group: str, api: str, version: int, body: Json) -> Json:
    """The answer of a group's coordinator."""
    connection = coordinator(cluster, group)
    assert connection is not None
    try:
        return connection.ask(api, version, body)
    finally:
        connection.close()


def coordinator(cluster: ThreeBrokers, group: str) -> group_protocol.Connection | None:
    """A connection to a group's coordinator, if there is one."""
    for node in cluster.nodes.values():
        try:
            with node.connect() as connection:
                found = connection.find_coordinator(group)
            if found > 0:
                port = cluster.nodes[found].port
                return group_protocol.Connection(port, "drill-member", share_definitions(node.kafka))
        except OSError:
            continue
    return None


class Operator:
    """Does what commands of a drill ask for: a command waits until the function of its name has run here.

    So brokers that a command starts are children of the test, whatever becomes of the drill.
    """

    def __init__(self, directory: Path, actions: Mapping[str, Callable[[], None]]) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._actions = actions
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def command(self, action: str) -> str:
        """A shell command that has ``action`` done and fails when that fails."""
        wanted, done = (shlex.quote(str(self._directory / f"{action}.{state}")) for state in ("wanted", "done"))
        return (
            f"touch {wanted}; while [ ! -e {done} ]; do sleep 0.1; done; test ! -s {done}; "
            f"code=$?; cat {done}; rm {done}; exit $code"
        )

    def _go_on(self) -> None:
        while not self._stop.wait(0.1):
            for action, do in self._actions.items():
                wanted = self._directory / f"{action}.wanted"
                if not wanted.exists():
                    continue
                wanted.unlink()
                problem = ""
                try:
                    do()
                except Exception as error:
                    problem = repr(error)
                (self._directory / f"{action}.part").write_text(problem)
                (self._directory / f"{action}.part").rename(self._directory / f"{action}.done")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def events(journal: Path, kind: str, **values: Any) -> list[Json]:
    """Events of a journal, read without our own reader. Its last line may be under way."""
    rows = [json.loads(line) for line in journal.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [row for row in rows if row["event"] == kind and all(row[key] == values[key] for key in values)]
