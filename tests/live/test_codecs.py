"""Kafka 4.3.1 writing the offsets topic with each codec: the same dump, and the offsets it answers itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import NoError
from kafka.structs import OffsetAndMetadata

from coordinator_core.log.types import Codec
from tests.live.broker import Broker, Kafka, create_topics
from tests.live.test_live_broker import regroup, sections

CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
TOPIC, PARTITIONS = "orders", 64


@dataclass(frozen=True)
class CodecLog:
    """``committed`` is what the last broker answered, by group and partition."""

    log: Path
    segments: list[Path]
    committed: dict[str, dict[int, int]]


def group_of(codec: Codec) -> str:
    return f"g-{codec.name.lower()}"


@pytest.fixture(scope="module")
def codec_log(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> CodecLog:
    """One log, grown by a broker that is restarted with another codec each time."""
    directory = tmp_path_factory.mktemp("codecs")
    for codec in CODECS:
        settings = {"offsets.topic.num.partitions": "1", "offsets.topic.compression.codec": str(codec.value)}
        broker = Broker(kafka, directory / "broker", settings)
        try:
            broker.start()
            commit(broker, group_of(codec), first=codec is CODECS[0])
            with broker.connect() as connection:
                committed = {
                    group_id: {row["partition"]: row["offset"] for row in group["offsetFetch"]["offsets"]}
                    for group_id, group in connection.answers()["groups"].items()
                }
        finally:
            broker.kill()
    log = broker.copy_log(directory / "log")
    return CodecLog(log, broker.offsets_segments(log), committed)


def commit(broker: Broker, group_id: str, *, first: bool) -> None:
    """Three commits of all partitions in one request each, so that batches are worth compressing."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        if first:
            create_topics(admin, {TOPIC: PARTITIONS})
        for number in range(3):
            offsets = {
                TopicPartition(TOPIC, partition): OffsetAndMetadata(1000 * number + partition, "round", -1)
                for partition in range(PARTITIONS)
            }
            results = admin.alter_group_offsets(group_id, offsets)
            assert set(results.values()) == {NoError}, results
    finally:
        admin.close()


def test_the_broker_wrote_every_codec(codec_log: CodecLog) -> None:
    rows = [json.loads(line) for line in regroup("dump", str(codec_log.log), "--format", "jsonl").splitlines()]
    assert {(row["magic"], row["codec"]) for row in rows if row["key"]["data"]["group"] in map(group_of, CODECS)} == {
        (2, codec.name.lower()) for codec in CODECS
    }


def test_dump_of_compressed_batches_equals_kafkas(codec_log: CodecLog, kafka: Kafka) -> None:
    theirs = sections(kafka.dump_log(*codec_log.segments))
    ours = sections(regroup("dump", *map(str, codec_log.segments), "--kafka-version", kafka.version))
    assert ours == theirs


def test_offsets_in_compressed_batches_are_the_brokers(codec_log: CodecLog) -> None:
    document = json.loads(regroup("describe", str(codec_log.log), "--format", "json"))
    ours = {
        group["group_id"]: {row["partition"]: row["committed_offset"] for row in group["offsets"]}
        for group in document["groups"]
    }
    assert ours == codec_log.committed
    assert [ours[group_of(codec)][7] for codec in CODECS] == [2007] * 4
