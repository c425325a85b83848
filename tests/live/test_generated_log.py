"""A generated log with everything in it, loaded by a broker: the truth of the generator is Kafka's truth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bench.generator import Truth, generate
from tests.bench.kafka import offsets_broker
from tests.bench.test_generator import EVERYTHING
from tests.live.broker import Kafka
from tests.live.wire import Connection


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("generated") / "log"


@pytest.fixture(scope="module")
def truth(log: Path) -> Truth:
    (truth,) = generate(replace(EVERYTHING, partitions=1), log)
    return truth


@pytest.fixture(scope="module")
def connection(
    kafka: Kafka, log: Path, truth: Truth, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    broker = offsets_broker(kafka, log, tmp_path_factory.mktemp("loading") / "broker", {})
    try:
        broker.start()
        with broker.connect() as connection:
            yield connection
    finally:
        broker.kill()


def test_the_broker_answers_the_committed_offsets(connection: Connection, truth: Truth) -> None:
    expected: dict[str, dict[tuple[str, int], int]] = {group: {} for group in truth.groups}
    for slot in np.flatnonzero(truth.committed >= 0).tolist():
        place = truth.topics[truth.topic_of_slot[slot]], int(truth.partition_of_slot[slot])
        expected[truth.groups[truth.group_of_slot[slot]]][place] = int(truth.committed[slot])
    answered = {
        group: {
            (row["topic"], row["partition"]): row["offset"]
            for row in connection.offsets(group, None, require_stable=True)
        }
        for group in truth.groups
    }
    assert answered == expected
    assert sum(map(len, answered.values())) == truth.live_slots > 500


def test_the_broker_holds_the_groups(connection: Connection, truth: Truth) -> None:
    describe = {"classic": connection.describe_classic, "consumer": connection.describe_consumer}
    types = {row["groupId"]: row["groupType"].lower() for row in connection.list_groups()}
    recorded = np.flatnonzero(truth.epochs >= 0).tolist()
    answered: dict[str, Any] = {}
    by_type: defaultdict[str, int] = defaultdict(int)
    for group in recorded:
        group_id = truth.groups[group]
        described = describe[types[group_id]](group_id)
        by_type[types[group_id]] += 1
        # A classic group does not tell its generation.
        answered[group_id] = len(described["members"]), described.get("groupEpoch", truth.epochs[group])
    assert answered == {
        truth.groups[group]: (truth.members[group], truth.epochs[group]) for group in recorded
    }
    assert by_type == {"classic": len(recorded) - 10, "consumer": 10}
