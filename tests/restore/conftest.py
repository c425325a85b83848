"""The broker that tests of restores share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient

from tests.cluster.kit import SecuredBroker
from tests.live.broker import Kafka
from tests.live.scenario import Clients
from tests.restore.kit import PARTITIONS, RECORDS, SETTINGS, TOPIC, Place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    broker = SecuredBroker(
        Kafka.fetch(), tmp_path_factory.mktemp("restore") / "broker", {"SASL": "SASL_PLAINTEXT"}, SETTINGS
    )
    broker.start()
    clients = Clients(broker)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.create_topics({TOPIC: {"num_partitions": PARTITIONS, "replication_factor": 1}}, wait_for_metadata=True)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for number in range(PARTITIONS * RECORDS):
            producer.send(TOPIC, f"record {number}".encode(), partition=number % PARTITIONS)
        producer.close()
        yield Place(broker, admin, clients)
    finally:
        admin.close()
        for client in clients._started:
            client.kill()
        broker.kill()
