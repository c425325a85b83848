"""Share groups of the coordinator model against live brokers: a random walk, and the real assignor.

``--model-seed`` takes another walk and other groups; the seed is in the output of a failure.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from coordinator_core.coordinator.java.simple import ShareSpec, assign_simple
from coordinator_core.coordinator.maps import JavaHashMap, TopicId
from coordinator_core.coordinator.trace import differences, play
from tests.live.broker import HERE, Kafka, java
from tests.live.share_groups import record, walks, write
from tests.live.test_model import LATE_MS
from tests.live.wire import uuid_text
from tests.recording.brokers import RELEASES

REQUESTS = 400
GROUPS = 3_000

Assignment = Mapping[str, Iterable[int]]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--model-seed"))


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
def test_a_random_walk(release: str, seed: int, tmp_path: Path) -> None:
    kafka = RELEASES[release].fetch() if release in RELEASES else Kafka.fetch(release)
    (trace,) = record(kafka, tmp_path / "broker", {}, walks([seed], REQUESTS))
    kept = tmp_path / f"walk-{seed}.jsonl"
    write(trace, kept)
    found = [str(difference) for difference in differences(trace, play(trace), LATE_MS)]
    assert found[:10] == [], f"seed {seed}, kept in {kept}"


class Group(NamedTuple):
    """Members with the topics they subscribe to and what they had; ``partitions`` have state."""

    homogeneous: bool
    partitions: dict[str, set[int]]
    members: dict[str, tuple[list[str], dict[str, set[int]]]]

    @classmethod
    def drawn(cls, chance: random.Random) -> Group:
        topics = list({uuid_text(bytes(15) + bytes([chance.randint(1, 29)])) for _ in range(chance.randint(1, 3))})
        holes = chance.choice([0, 0.1, 0.6])
        partitions = {
            topic: {one for one in range(chance.randint(1, chance.choice([3, 9, 60]))) if chance.random() >= holes}
            for topic in topics
        }
        homogeneous = chance.random() < 0.5
        members = {}
        for _ in range(chance.randint(1, chance.choice([3, 6, 20]))):
            kept = chance.choice([0, 0.1, 0.5, 1])
            had = {
                topic: {one for one in found if chance.random() < kept}
                for topic, found in partitions.items()
                if chance.random() < 0.7
            }
            wanted = topics if homogeneous else [topic for topic in topics if chance.random() < 0.6]
            members[f"member-{chance.randint(0, 99_999)}"] = (wanted, had)
        return cls(homogeneous, partitions, members)

    def __str__(self) -> str:
        members = (f"{name}:{'+'.join(topics)}:{_text(had)}" for name, (topics, had) in self.members.items())
        return ";".join(["H" if self.homogeneous else "E", _text(self.partitions), *members])

    def assigned(self) -> dict[str, dict[str, frozenset[int]]]:
        """The model's replies and records."""
        specs: JavaHashMap[str, ShareSpec] = JavaHashMap()
        for name, (topics, had) in self.members.items():
            target = JavaHashMap((TopicId(topic), frozenset(found)) for topic, found in had.items())
            specs[name] = ShareSpec(tuple(map(TopicId, topics)), target)
        partitions = {TopicId(topic): frozenset(found) for topic, found in self.partitions.items()}
        found = assign_simple(specs, partitions, homogeneous=self.homogeneous)
        return {name: {str(topic): numbers for topic, numbers in found.get(name, {}).items()} for name in self.members}


def _text(assignment: Assignment) -> str:
    return ",".join(f"{topic}={'+'.join(map(str, sorted(found)))}" for topic, found in assignment.items())


def _read(line: str) -> dict[str, dict[str, frozenset[int]]]:
    members = (member.split(":") for member in line.split(";") if member)
    return {
        name: {
            topic: frozenset(map(int, numbers.split("+") if numbers else ()))
            for topic, numbers in (one.split("=") for one in topics.split(",") if one)
        }
        for name, topics in members
    }


def test_the_assignor_does_what_kafkas_own_class_does(kafka: Kafka, seed: int) -> None:
    """All assignments, also the empty sets that a member keeps of a topic."""
    chance = random.Random(seed)
    groups = [Group.drawn(chance) for _ in range(GROUPS)]
    command = [java(), "-Xmx256m", "-cp", f"{kafka.jars}/*", str(HERE / "ShareAssignor.java")]
    done = subprocess.run(command, input="\n".join(map(str, groups)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")[:-1]
    assert len(lines) == GROUPS
    different = [
        str(group)
        for group, line in zip(groups, lines, strict=True)
        if group.assigned() != {name: _read(line).get(name, {}) for name in group.members}
    ]
    assert different[:3] == [], f"seed {seed}"
