"""Brokers refuse to delete offsets of what they do not have, so R36 and ``committed-for-missing-topic`` do not ask for
it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from tests.live.broker import TOOL_PATIENCE, Broker, Kafka, create_topics
from tests.live.test_compacted_log import started

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def test_offsets_of_a_missing_topic_or_partition_are_not_deleted(kafka: Kafka, tmp_path: Path) -> None:
    broker = Broker(kafka, tmp_path)
    with started(broker):
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        create_topics(admin, {"orders": 1})
        admin.close()
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id="billing")
        there = TopicPartition("orders", 0)
        consumer.assign([there])
        consumer.commit({there: OffsetAndMetadata(0, "", -1)})
        consumer.close()
        request = ["--bootstrap-server", broker.bootstrap, *TOOL_PATIENCE]
        request += ["--delete-offsets", "--group", "billing", "--topic"]

        def told(topic: str) -> str:
            done = subprocess.run(kafka.command(TOOL, *request, topic), capture_output=True, text=True, check=False)
            return done.stdout + done.stderr

        assert "UnknownTopicOrPartitionException" in told("missing:0")
        assert "UnknownTopicOrPartitionException" in told("orders:7")
        assert "Successful" in told("orders:0")
