"""Records the incident of ``make demo``: three real brokers of a small shop, its services, and a bad afternoon.

    python -m tests.live.shop demo/shop

The brokers have ``offsets.retention.minutes=1``, as somebody once set it on a test cluster. The one that coordinates
``payments`` dies and comes back. A deploy of ``payments`` crashes at start again and again, and is taken back to
nothing; until its repair is rolled out, the offsets of the group have expired, and it reads every payment again. The
snapshot is what ``regroup capture`` fetches afterwards.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient

from coordinator_core.groups.hashing import partition_for
from tests.cluster.kit import capture_from
from tests.cluster.three import ThreeBrokers
from tests.live.broker import Kafka, wait_for
from tests.live.scenario import Client, Clients

TOPICS = {"orders": 6, "payments": 4, "stock-changes": 3, "shipments": 3}
SETTINGS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"}
SESSION_MS = 6000
COMMIT_SECONDS = 2
WORK_SECONDS = 0.2
"""Time of ten records: a consumer that begins anew is behind for a while."""
_OFFSETS_PARTITIONS = 50


def service(bootstrap: str, group: str, topics: str, client_id: str, instance: str, *, crashes: bool) -> None:
    """A service that commits what it handled, again and again until SIGTERM. One that ``crashes`` handles nothing."""
    consumer = KafkaConsumer(
        *topics.split(","),
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        client_id=client_id,
        group_instance_id=instance or None,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=10,
    )
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    committed = time.monotonic()
    while not ended.is_set():
        handled = consumer.poll(timeout_ms=200)
        if handled and crashes:
            os.kill(os.getpid(), signal.SIGKILL)
        if handled:
            time.sleep(WORK_SECONDS)
        if time.monotonic() - committed > COMMIT_SECONDS:
            consumer.commit()
            committed = time.monotonic()
    consumer.commit()
    consumer.close()


class Shop:
    """The services, by name."""

    def __init__(self, cluster: ThreeBrokers, kafka: Kafka, directory: Path) -> None:
        self.bootstrap = cluster.bootstrap
        self.directory = directory
        self.kafka = kafka
        self.clients = Clients(self)  # type: ignore[arg-type]

    def run(self, group: str, topics: str, client_id: str, instance: str = "", *, crashes: bool = False) -> Client:
        how = "crashing" if crashes else "service"
        command = [sys.executable, "-m", "tests.live.shop", how, self.bootstrap, group, topics, client_id, instance]
        return self.clients._start(command, answers=False)

    def run_java(self, group: str, topic: str, client_id: str) -> Client:
        """A member of a KIP-848 group."""
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        properties = {"client_id": client_id, "group_protocol": "consumer", "auto_commit_interval_ms": "2000"}
        return self.clients.java(tool, "--group", group, "--topic", topic, "--from-beginning", **properties)


def stop(*services: Client) -> None:
    for one in services:
        one._process.terminate()
    for one in services:
        one._process.wait(30)


@contextmanager
def customers(bootstrap: str) -> Iterator[None]:
    """Somebody buys something again and again while the block runs."""
    ended = threading.Event()

    def buy() -> None:
        with closing(KafkaProducer(bootstrap_servers=bootstrap.split(","))) as producer:
            number = 0
            while not ended.wait(0.05):
                for topic in TOPICS:
                    producer.send(topic, b'{"order": %d}' % number, key=b"%d" % number)
                number += 1
            producer.flush()

    thread = threading.Thread(target=buy)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def coordinator_of(cluster: ThreeBrokers, group: str) -> int:
    return cluster.leaders()[partition_for(group, _OFFSETS_PARTITIONS)]


def afternoon(cluster: ThreeBrokers, shop: Shop) -> None:
    """Events, in order."""
    shop.run_java("checkout", "orders", "checkout-1")
    shop.run_java("checkout", "orders", "checkout-2")
    for number in (1, 2):
        shop.run("inventory", "orders,stock-changes", f"inventory-{number}", f"inventory-{number}")
    shop.run("shipping", "shipments", "shipping-1")
    shop.run("fraud-check", "payments", "fraud-check-1")
    report = shop.run("nightly-report", "orders", "nightly-report")
    payments = [shop.run("payments", "payments", f"payments-v1-{number}") for number in (1, 2)]
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))) as admin:
        for group in ("inventory", "shipping", "fraud-check", "nightly-report", "payments"):
            wait_for(f"commits of {group}", lambda group=group: bool(admin.list_group_offsets(group).get(group)))
    say("everything runs")
    time.sleep(20)
    stop(report)
    say("nightly-report is done, as every night")

    lost = coordinator_of(cluster, "payments")
    cluster.nodes[lost].kill()
    say(f"broker {lost}, which coordinates payments, is dead")
    time.sleep(15)
    cluster.start(lost)
    say("it is back")
    time.sleep(15)

    stop(*payments)
    for number in range(1, 6):
        crashing = shop.run("payments", "payments", f"payments-v2-{number}", crashes=True)
        # It crashes with the first payment it sees; one that the rebalance keeps waiting is not given longer.
        with suppress(subprocess.TimeoutExpired):
            crashing._process.wait(20)
        crashing.kill()
    say("payments v2 crashed five times; it is taken back")
    # Nobody is left once the session of the last one is over.
    time.sleep(SESSION_MS / 1000 + 75)

    for number in (1, 2):
        shop.run("payments", "payments", f"payments-v3-{number}")
    say("payments v3 is rolled out, and charges everybody again")
    time.sleep(20)


def record(output: Path) -> None:
    kafka = Kafka.fetch()
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        cluster = ThreeBrokers(kafka, directory, SETTINGS)
        shop = Shop(cluster, kafka, directory)
        try:
            cluster.start()
            cluster.create_offsets_topic()
            with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))) as admin:
                topics = {name: {"num_partitions": count, "replication_factor": 3} for name, count in TOPICS.items()}
                wait_for("the topics", lambda: bool(admin.create_topics(topics, wait_for_metadata=True)))
            with customers(cluster.bootstrap):
                afternoon(cluster, shop)
                capture_from(cluster.bootstrap, output)
        finally:
            shop.clients.kill()
            cluster.kill()


def say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


if __name__ == "__main__":
    if sys.argv[1] in ("service", "crashing"):
        service(*sys.argv[2:], crashes=sys.argv[1] == "crashing")
    else:
        record(Path(sys.argv[1]))
