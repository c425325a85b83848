"""KAFKA-13664: a 4.3.1 broker that takes over a partition does not load it from a preallocated segment."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from coordinator_core.cli.app import run
from tests.cluster.three import three_brokers
from tests.live.broker import Kafka, wait_for
from tests.live.wire import OFFSETS_TOPIC, BrokerError

SETTINGS = {"offsets.topic.num.partitions": "1", "offsets.topic.segment.bytes": "1048576", "min.insync.replicas": "1"}


def investigated(directory: Path, capfd: pytest.CaptureFixture[str]) -> list[str | None]:
    run(["investigate", str(directory), "--kafka-version", "4.3.1", "--format", "json"])
    document = json.loads(capfd.readouterr().out)
    return [(one["bug"] or {}).get("id") for one in document["explanations"] if one["code"] == "preallocated-segment"]


@pytest.mark.parametrize("preallocates", [True, False])
def test_the_next_leader_does_not_load(
    preallocates: bool, kafka: Kafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {**SETTINGS, "log.preallocate": str(preallocates).lower()}
    with three_brokers(kafka, tmp_path / "brokers", settings) as (cluster, commits):
        commits.commit(20)
        cluster.when_in_sync()
        [leader] = cluster.leaders().values()
        others = [node for node in cluster.nodes if node != leader]
        copy = tmp_path / "copy"
        shutil.copytree(cluster.nodes[others[0]].log_dir / f"{OFFSETS_TOPIC}-0", copy / f"{OFFSETS_TOPIC}-0")
        cluster.nodes[leader].kill()
        [next_leader] = cluster.when_led(others[0], lambda found: found in others).values()

        def has_tried() -> bool:
            if preallocates:
                return "Failed to load metadata" in cluster.nodes[next_leader].log_since_start()
            with cluster.nodes[next_leader].connect() as connection, suppress(BrokerError):
                return len(connection.list_groups()) > 0
            return False  # It is still loading.

        wait_for("the load", has_tried)
    assert investigated(copy, capfd) == (["KAFKA-13664"] if preallocates else [])
