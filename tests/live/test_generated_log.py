"""A generated log with everything in it, and one of rebalances, loaded by a broker: the truth of the
generator is Kafka's truth."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coordinator_core.records.blobs import decode_consumer_assignment
from tests.bench.generator import Truth, generate
from tests.bench.group_truth import Kind
from tests.bench.kafka import offsets_broker
from tests.bench.test_generator import EVERYTHING, REBALANCES
from tests.bench.truth import expected_members
from tests.bench.workload import Workload
from tests.live.broker import Kafka
from tests.live.wire import Connection


@pytest.fixture(scope="module", params=[EVERYTHING, REBALANCES], ids=lambda workload: workload.name)
def workload(request: pytest.FixtureRequest) -> Workload:
    return replace(request.param, partitions=1)


@pytest.fixture(scope="module")
def log(workload: Workload, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generated") / "log"


@pytest.fixture(scope="module")
def truth(workload: Workload, log: Path) -> Truth:
    (truth,) = generate(workload, log)
    return truth


@pytest.fixture(scope="module")
def connection(kafka: Kafka, log: Path, truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    broker = offsets_broker(kafka, log, tmp_path_factory.mktemp("loading") / "broker", {})
    try:
        broker.start()
        with broker.connect() as connection:
            yield connection
    finally:
        broker.kill()


def test_the_broker_answers_the_committed_offsets(connection: Connection, truth: Truth) -> None:
    expected: dict[str, dict[tuple[str, int], int]] = {group: {} for group in truth.groups}
    for offset_key in np.flatnonzero(truth.committed >= 0).tolist():
        place = (
            truth.topics[truth.topic_of_offset_key[offset_key]],
            int(truth.partition_of_offset_key[offset_key]),
        )
        expected[truth.groups[truth.group_of_offset_key[offset_key]]][place] = int(truth.committed[offset_key])
    answered = {
        group: {
            (row["topic"], row["partition"]): row["offset"]
            for row in connection.offsets(group, None, require_stable=True)
        }
        for group in truth.groups
    }
    assert answered == expected
    assert sum(map(len, answered.values())) == truth.live_offset_keys > 500


def test_the_broker_holds_the_groups(connection: Connection, truth: Truth) -> None:
    """All of them and no other one. A classic group does not tell its generation."""
    answered: dict[str, Any] = {}
    for row in connection.list_groups():
        group_id, is_classic = row["groupId"], row["groupType"].lower() == "classic"
        described = (connection.describe_classic if is_classic else connection.describe_consumer)(group_id)
        assert described["errorCode"] == 0
        is_simple = is_classic and not row["protocolType"]
        kind = Kind.SIMPLE if is_simple else Kind.CLASSIC if is_classic else Kind.CONSUMER
        epochs = described.get("groupEpoch"), described.get("assignmentEpoch")
        answered[group_id] = kind, len(described["members"]), *epochs
    expected = {
        truth.groups[group]: (
            kind,
            0 if kind == Kind.SIMPLE else truth.members[group],
            *((truth.epochs[group], truth.assignment_epochs[group]) if kind == Kind.CONSUMER else (None, None)),
        )
        for group, kind in enumerate(truth.kinds.tolist())
        if kind != Kind.ABSENT
    }
    assert answered == expected
    assert {Kind.CLASSIC, Kind.CONSUMER} <= {kind for kind, *_ in answered.values()}


def test_the_broker_holds_the_members(connection: Connection, truth: Truth) -> None:
    """Offsets as the truth has them. The broker has none of the topics, so it names no partition of a topic id."""
    expected = {
        place: (row.instance_id, row.epoch, row.assigned if row.epoch is None else None)
        for place, row in expected_members(truth).items()
    }
    answered: dict[tuple[str, str], Any] = {}
    for group in truth.details:
        group_id, kind = truth.groups[group], truth.kinds[group]
        if kind == Kind.CONSUMER:
            for member in connection.describe_consumer(group_id)["members"]:
                place = group_id, member["memberId"]
                answered[place] = member["instanceId"], member["memberEpoch"], None
        elif kind != Kind.ABSENT:
            for member in connection.describe_classic(group_id)["members"]:
                owned = _owned(base64.b64decode(member["memberAssignment"]))
                answered[group_id, member["memberId"]] = member["groupInstanceId"], None, owned
    assert answered == expected


def _owned(assignment: bytes) -> frozenset[tuple[str, int]]:
    """A member that its leader left out has no bytes."""
    if not assignment:
        return frozenset()
    return frozenset(
        (entry["topic"], partition)
        for entry in decode_consumer_assignment(assignment)["assignedPartitions"]
        for partition in entry["partitions"]
    )
