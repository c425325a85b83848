"""A Kafka client in a process of its own, to be killed while it holds a membership or a transaction.

    python -m tests.live.client member BOOTSTRAP GROUP TOPIC,… CLIENT_ID ASSIGNOR [INSTANCE_ID]
    python -m tests.live.client producer BOOTSTRAP TRANSACTIONAL_ID

Commands come as JSON lines on standard input; each is answered by one JSON line on standard output.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError, RetriableError
from kafka.structs import MemberState, OffsetAndMetadata

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
}
LONG_TIMEOUT_MS = 300_000
"""Memberships outlive the restart of their broker."""

LONGEST_TRANSACTION_MS = 900_000
"""Kafka's default of ``transaction.max.timeout.ms``: who looks later finds a transaction aborted."""

REBALANCE_TIMEOUT_MS = 20_000
"""A rebalance goes on without a member that misses it, well within what the tests wait."""

EMPTY_SECONDS, JOIN_SECONDS = 5.0, 100.0
"""Time that a member stays without partitions, and that a join takes, before a consumer begins anew."""


class Subscription:
    """Consumer that at times joins before it knows the topic, and then is a member without partitions.

    So it begins anew, until it has had some. A join under way is left alone: a loaded machine takes long for it.
    """

    def __init__(self, consumer: KafkaConsumer, topics: list[str]) -> None:
        self._consumer = consumer
        self._topics = topics
        self._joined = False
        self._state: Any = None
        self._begin()

    def _begin(self) -> None:
        self._since = time.monotonic()
        self._consumer.subscribe(self._topics)

    def poll(self) -> bool:
        """Poll once; whether the consumer has had partitions."""
        try:
            self._consumer.poll(timeout_ms=100)
        except KafkaError as error:
            # With no broker to ask, or a join that went wrong, it raises, where Java's client would go on.
            print(repr(error), file=sys.stderr, flush=True)
            time.sleep(0.1)
        self._joined = self._joined or bool(self._consumer.assignment())
        state = self._consumer.group_metadata().state
        if state != self._state:
            self._state, self._since = state, time.monotonic()
        patience = EMPTY_SECONDS if state == MemberState.STABLE else JOIN_SECONDS
        if not self._joined and time.monotonic() - self._since > patience:
            self._consumer.unsubscribe()
            self._begin()
        return self._joined


def answer(**values: Any) -> None:
    print(json.dumps(values), flush=True)


def member(
    bootstrap: str, group: str, topics: str, client_id: str, assignor: str, instance_id: str | None = None
) -> None:
    """A consumer; ``"commit"`` commits ten times each own partition's number, ``"leave"`` leaves.

    Any other command is a question: the answer says what the member knows of its membership.
    """
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=client_id,
        group_instance_id=instance_id,
        partition_assignment_strategy=[ASSIGNORS[assignor]],
        session_timeout_ms=LONG_TIMEOUT_MS,
        request_timeout_ms=LONG_TIMEOUT_MS + 5_000,
        max_poll_interval_ms=REBALANCE_TIMEOUT_MS,
        heartbeat_interval_ms=300,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    subscription = Subscription(consumer, topics.split(","))
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: [commands.put(line.strip()) for line in sys.stdin], daemon=True).start()
    command = None
    while True:
        subscription.poll()
        if command is None:
            try:
                command = json.loads(commands.get_nowait())
            except queue.Empty:
                continue
        if command == "leave":
            consumer.close()
            answer(left=True)
            return
        owned = sorted(consumer.assignment())
        if command == "commit" and owned:
            texts = {tp: f"{client_id} {tp.topic}-{tp.partition}" for tp in owned}
            try:
                consumer.commit({tp: OffsetAndMetadata(10 * tp.partition, text, 0) for tp, text in texts.items()})
            except (CommitFailedError, RebalanceInProgressError, RetriableError) as error:
                # A rebalance is under way, or the coordinator moves: again behind the next poll.
                print(repr(error), file=sys.stderr, flush=True)
                continue
        metadata = consumer.group_metadata()
        answer(
            member_id=metadata.member_id,
            generation=metadata.generation_id,
            instance_id=metadata.group_instance_id,
            assignment=[list(tp) for tp in owned],
        )
        command = None


def producer(bootstrap: str, transactional_id: str) -> None:
    """A transactional producer.

    ``{"begin": {group: [[topic, partition, offset, metadata, leader epoch], …]}}`` begins a transaction with
    these commits, ``"commit"`` and ``"abort"`` end it; without one of them it stays open.
    """
    client = KafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=transactional_id,
        transaction_timeout_ms=LONGEST_TRANSACTION_MS,
    )
    client.init_transactions()
    for line in sys.stdin:
        command = json.loads(line)
        if command == "commit":
            client.commit_transaction()
        elif command == "abort":
            client.abort_transaction()
        else:
            client.begin_transaction()
            for group, commits in command["begin"].items():
                offsets = {
                    TopicPartition(topic, partition): OffsetAndMetadata(offset, metadata, epoch)
                    for topic, partition, offset, metadata, epoch in commits
                }
                client.send_offsets_to_transaction(offsets, group)
        answer(done=command)


if __name__ == "__main__":
    roles: dict[str, Callable[..., None]] = {"member": member, "producer": producer}
    roles[sys.argv[1]](*sys.argv[2:])
