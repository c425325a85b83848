"""Groups of every kind, lost in every way, restored on an old broker and on 4.3.1, and taken away again.

Commit times are the broker's: neither a restore nor its rollback can give them back. Everything else that the replay of
the log tells is compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaError

from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from tests.cluster.test_releases import ZooKeeperBroker
from tests.live.broker import KAFKA_VERSION, TOOL_PATIENCE, Broker, Kafka, wait_for
from tests.live.group_protocol import Json
from tests.restore.kit import (
    TOPIC,
    Offsets,
    Place,
    applied,
    member_was_there,
    offsets_of,
    plan_of,
    regroup,
    rolled_back,
    started,
)

OLD = "2.4.1"
KINDS = {OLD: ("simple", "classic"), KAFKA_VERSION: ("simple", "classic", "consumer", "streams")}
LOSSES = ("deleted", "reset", "cut", "kept")
OFFSETS_PARTITIONS = 3
SETTINGS = {"offsets.topic.num.partitions": str(OFFSETS_PARTITIONS)}
RETENTION = {"offsets.retention.minutes": "10080", "offsets.retention.check.interval.ms": "600000"}
SHORT_RETENTION = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
DESCRIBE = {OLD: "kafka.admin.ConsumerGroupCommand"}


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    kind = ZooKeeperBroker if request.param == OLD else Broker
    directory = tmp_path_factory.mktemp(f"restore-{request.param}") / "broker"
    broker = kind(Kafka.fetch(request.param), directory, SETTINGS)
    try:
        broker.start()
        place = started(broker)
        has_coordinators(place)
        yield place
        place.close()
    finally:
        broker.kill()


def has_coordinators(place: Place) -> None:
    """The offsets topic is made by the first question for a coordinator, and loaded after an old broker is up."""

    def answers(group: str) -> bool:
        try:
            place.admin.list_group_offsets(group)
        except KafkaError:
            return False
        return True

    for group in {partition_for(f"any-{number}", OFFSETS_PARTITIONS): f"any-{number}" for number in range(20)}.values():
        wait_for("its coordinator", lambda group=group: answers(group))


def made(place: Place, kind: str, group: str, number: int) -> None:
    """A group without members, with committed offsets."""
    match kind:
        case "classic":
            member = place.clients.member(group, TOPIC, "was-there", "range")
            wait_for("the assignment", lambda: member.ask("commit")["assignment"] or None)
            member.ask("leave")
        case "consumer" | "streams":
            member_was_there(place, kind, group)
    place.commit(group, offsets_of(number))


def replayed(place: Place, directory: Path) -> dict[str, Any]:
    """State at the end of the log, without commit times and places of records."""
    regroup("capture", *place.server, "--output", directory)
    states = replay_snapshot(discover([str(directory)]), profile_for_release(place.broker.kafka.version), damage=[])
    offsets = {
        str(key): (one.committed_offset, one.leader_epoch, one.metadata, one.topic_id, one.expire_timestamp_ms)
        for state in states
        for key, one in state.offsets.items()
    }
    # One that was made loses its offsets, and goes at the next sweep.
    with_offsets = {key.group_id for state in states for key in state.offsets}
    groups = {
        group_id: group for state in states for group_id, group in state.groups.items() if group_id in with_offsets
    }
    assert not any(state.pending or state.load_failures for state in states)
    return {"offsets": offsets, "groups": groups}


def described(place: Place) -> dict[str, dict[tuple[str, int], int]]:
    """Committed offsets as Kafka's own tool prints them."""
    tool = DESCRIBE.get(place.broker.kafka.version, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")
    text = place.broker.kafka.tool(tool, *place.server, *TOOL_PATIENCE, "--describe", "--all-groups", "--offsets")
    found: dict[str, dict[tuple[str, int], int]] = {}
    for words in map(str.split, text.splitlines()):
        if len(words) > 3 and words[1] == TOPIC and words[3] != "-":
            # From 4.3 on a column has the leader epoch.
            found.setdefault(words[0], {})[words[1], int(words[2])] = int(words[3])
    return found


def planned(document: Json) -> dict[str, Offsets]:
    return {
        group["group_id"]: {
            (row["topic"], row["partition"]): tuple(
                row["after"][name] for name in ("offset", "leader_epoch", "metadata")
            )
            for row in group["rows"]
        }
        for group in document["groups"]
    }


def without_epochs(held: dict[str, Offsets]) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    return {
        group: {key: (offset, metadata) for key, (offset, _, metadata) in offsets.items()}
        for group, offsets in held.items()
    }


def test_lost_restored_and_taken_away(place: Place, tmp_path: Path) -> None:
    kinds = KINDS[place.broker.kafka.version]
    groups = [f"{kind}-{loss}" for kind in kinds for loss in LOSSES]
    for number, group in enumerate(groups):
        made(place, group.partition("-")[0], group, number)
    good = place.held(*groups)
    assert set(good) == set(groups)
    regroup("capture", *place.server, "--output", tmp_path / "good")

    for group in groups:
        if group.endswith("-deleted"):
            place.admin.delete_groups([group])
        elif group.endswith("-reset"):
            place.commit(group, {0: (1, "", -1), 1: (99, "reset", -1)})
        elif group.endswith("-cut"):
            place.admin.delete_group_offsets(group, [TopicPartition(TOPIC, 1)])
    restored_and_back(place, tmp_path / "good", groups, good, tmp_path / "lost")

    restart(place, SHORT_RETENTION)
    wait_for("the sweep", lambda: not place.held(*groups), 300)
    # With a long one, what is restored does not expire while it is looked at.
    restart(place, RETENTION)
    restored_and_back(place, tmp_path / "good", groups, good, tmp_path / "expired")
    assert not place.held(*groups)


def restart(place: Place, settings: dict[str, str]) -> None:
    place.broker.stop()
    place.broker.configure(settings)
    place.broker.start()
    has_coordinators(place)


def restored_and_back(place: Place, source: Path, groups: list[str], good: Json, scratch: Path) -> None:
    bad, before = place.held(*groups), replayed(place, scratch / "before")
    assert bad != good
    chosen = [word for group in groups for word in ("--group", group)]
    document = plan_of(place, source, *chosen, output=scratch / "plan.json")
    made_groups = {group["group_id"] for group in document["groups"] if group["action"] == "create"}
    assert made_groups == set(groups) - set(bad)
    applied(place, scratch / "plan.json", scratch / "applied")
    held = place.held(*groups)
    assert held == planned(document)
    has_topic_ids = place.broker.kafka.version != OLD
    # Without topic ids nobody knows whether a leader epoch is of this topic, and none is written.
    assert without_epochs(held) == without_epochs(good)
    assert (held == good) == has_topic_ids
    # Kafka's tool for consumer groups leaves out streams groups, which have one of their own.
    listed = {group["group_id"] for group in document["groups"] if group["type"] != "streams"}
    assert {group: offsets for group, offsets in described(place).items() if group in groups} == {
        group: {key: place[0] for key, place in held[group].items()} for group in listed
    }
    after = replayed(place, scratch / "after")
    assert {group: str(after["groups"][group].type) for group in groups} == {
        group: "classic" if group in made_groups else group.partition("-")[0].replace("simple", "classic")
        for group in groups
    }
    rolled_back(place, scratch / "applied", scratch)
    assert place.held(*groups) == bad
    assert replayed(place, scratch / "rolled-back-log") == before
    assert json.loads((scratch / "plan.json").read_text())["counts"]["blocked"] == 0
