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
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from kafka import KafkaConsumer
from kafka.errors import KafkaError

from tests.cluster.kit import TOPIC
from tests.cluster.three import ThreeBrokers
from tests.live import group_protocol
from tests.live.client import Subscription
from tests.live.scenario import ROOT

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
        timeout=300,
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
    begin = [sys.executable, "-c", _AT_EVENT, str(event), moment, str(int(how))]
    return subprocess.Popen([*begin, *map(str, arguments)], cwd=ROOT)


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
            # With no broker to ask it raises, where Java's client would go on.
            with suppress(KafkaError):
                self._consumer.poll(timeout_ms=200)
            if self._subscription.look():
                self._joined.set()
        self._consumer.close(autocommit=False)

    def joined(self) -> bool:
        return self._joined.is_set()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)


class ConsumerMember:
    """A member of a KIP-848 group that heartbeats as a client does, and looks for its coordinator again."""

    def __init__(self, cluster: ThreeBrokers, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._member = str(uuid.uuid4())
        self._epoch = 0
        self._owned: list[Json] = []
        self._connection: group_protocol.Connection | None = None
        self._stop = threading.Event()
        self.joins = 0
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self._thread.start()

    def joined(self) -> bool:
        return self._epoch > 0 and bool(self._owned)

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
        for node in self._cluster.nodes.values():
            try:
                with node.connect() as asked:
                    coordinator = asked.find_coordinator(self._group)
                if coordinator > 0:
                    return group_protocol.Connection(self._cluster.nodes[coordinator].port, "drill-member")
            except OSError:
                continue
        return None

    def _heartbeat(self, connection: group_protocol.Connection) -> None:
        joining = self._epoch == 0
        body = {
            "groupId": self._group,
            "memberId": self._member,
            "memberEpoch": self._epoch,
            "instanceId": None,
            "rackId": None,
            "rebalanceTimeoutMs": 60_000 if joining else -1,
            "subscribedTopicNames": [TOPIC] if joining else None,
            "subscribedTopicRegex": None,
            "serverAssignor": None,
            "topicPartitions": [] if joining else self._owned,
        }
        answer = connection.ask("ConsumerGroupHeartbeat", 1, body)
        if answer["errorCode"] in _LOOK_UP_AGAIN:
            self._lost()
        elif answer["errorCode"]:
            # Fenced or unknown: it begins as a new member.
            self._epoch, self._owned = 0, []
        else:
            self.joins += joining
            self._epoch = answer["memberEpoch"]
            if answer["assignment"] is not None:
                self._owned = answer["assignment"]["topicPartitions"]


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
    """Events of a journal, read without our own reader."""
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    return [row for row in rows if row["event"] == kind and all(row[key] == values[key] for key in values)]
