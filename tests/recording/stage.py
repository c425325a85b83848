"""Incidents on a real broker: each is played by one group, and by another one as it would have been sound.

What the script did is noted with the record offsets between which the broker wrote it, as the broker says them.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard
from kafka import KafkaProducer

from coordinator_core.groups.hashing import partition_for
from tests.live.broker import now_ms, wait_for
from tests.live.group_protocol import Json
from tests.live.wire import OFFSETS_TOPIC
from tests.recording.brokers import OFFSETS_PARTITIONS, RecordedBroker
from tests.recording.script import ClassicMember, Commit, Script
from tests.recording.session import RefusedError, Session

ORDERS = {"orders": 4}
BOTH = {"orders": 4, "payments": 2}
NOT_LEADER = 6
GROUP_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


class Play:
    """One group's part, sound unless ``broken``. Acts say what was done to the group, in order."""

    def __init__(self, stage: Stage, group: str, *, broken: bool) -> None:
        self.stage, self.group, self.broken = stage, group, broken
        self.acts: list[Json] = []

    @contextmanager
    def act(self, what: str, *, fault: bool = False) -> Iterator[None]:
        """Something that is done to the group; a ``fault`` is what the incident comes from."""
        began, first = now_ms(), self.stage.log_end(self.group)
        yield
        self.acts.append(
            {
                "what": what,
                "fault": fault,
                "from_ms": began,
                "to_ms": now_ms(),
                "offsets_partition": partition_for(self.group, self.stage.offsets_partitions),
                "first": first,
                "end": self.stage.log_end(self.group),
            }
        )

    def fault(self, what: str) -> Any:
        return self.act(what, fault=True)

    def member(self, name: str, topics: Mapping[str, int] = ORDERS, **options: Any) -> Member:
        client = self.stage._client(name)
        return Member(self.stage, client, self.group, topics=topics, **options)

    def joins(self, name: str, topics: Mapping[str, int] = ORDERS, **options: Any) -> Member:
        """A member alone in its group."""
        member = self.member(name, topics, **options)
        with self.act(f"{name} joins"):
            wait_for(f"{name} to join", member.has_joined)
        return member

    def reads(self, member: Member, values: Sequence[int]) -> None:
        """The member commits these values in turn, of all that it owns."""
        with self.act(f"{member.client_id} commits {values[0]} to {values[-1]}"):
            for value in values:
                member.goes_to(value)

    def leaves(self, member: Member) -> None:
        with self.act(f"{member.client_id} leaves"):
            member.leave()

    def commits(self, *commits: Commit, leader_epoch: int = -1) -> None:
        """A commit of a client that is no member."""
        self.stage.commit(self.group, *commits, leader_epoch=leader_epoch)

    def tool(self, *words: str) -> None:
        """``kafka-consumer-groups.sh``, on this group."""
        self.stage.tool(GROUP_TOOL, "--group", self.group, *words)

    def has_offset(self, topic: str, partition: int) -> bool:
        return self.stage.committed(self.group, topic, partition) >= 0


class Member(ClassicMember):
    """A member whose group is led with the shares that its leader is told. ``given`` is by client or instance id."""

    given: Mapping[str, Sequence[tuple[str, int]]] = {}

    def shares(self, member_ids: Sequence[str]) -> dict[str, list[tuple[str, int]]]:
        if not self.given:
            return super().shares(member_ids)
        # Coordinators begin generated member ids with the client id, or the instance id of a static member.
        return {
            member_id: [one for name, own in self.given.items() if member_id.startswith(f"{name}-") for one in own]
            for member_id in member_ids
        }

    def goes_to(self, value: int) -> None:
        self.commit(*((topic, partition, value, "") for topic, partition in self.assigned))

    def has_joined(self) -> bool:
        """Whether it joined, alone; not where the sweep took the group between the two requests that a join is."""
        try:
            self.join()
        except RefusedError:
            self.comes_again()
            return False
        return True

    def comes_again(self) -> None:
        """The process was restarted: its next join is that of a new member."""
        self.member_id, self.generation = "", -1


@dataclass(frozen=True)
class Incident:
    """``code``, ``cause`` of the lost offsets, ``records`` (kinds) and ``says`` (parts of the verdict) are what an
    investigation must find. ``like`` is the incident of ``tests/history`` that is of this kind."""

    play: Callable[[Play], None]
    id: str
    code: str
    group: str
    like: str | None = None
    cause: str | None = None
    records: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    bug: str | None = None


@dataclass
class Programme:
    """Incidents of one broker, in the order in which they are declared."""

    incidents: list[Incident] = field(default_factory=list)

    def add(self, id: str, code: str, **expected: Any) -> Callable[[Callable[[Play], None]], Callable[[Play], None]]:
        def declare(play: Callable[[Play], None]) -> Callable[[Play], None]:
            self.incidents.append(Incident(play, id, code, **({"group": id} | expected)))
            return play

        return declare


class Stage(Script):
    """A broker with topics, and what is done to its groups."""

    def __init__(self, broker: RecordedBroker, offsets_partitions: int = OFFSETS_PARTITIONS) -> None:
        super().__init__(Session(broker.port, broker.recorded.release))
        self.broker, self.offsets_partitions = broker, offsets_partitions

    def again(self) -> None:
        """Connect to a broker that was started again."""
        self.session = Session(self.broker.port, self.broker.recorded.release)

    def tool(self, main_class: str, *words: str) -> str:
        return self.broker.kafka.tool(main_class, "--bootstrap-server", self.broker.bootstrap, *words)

    def produce(self, topic: str, partitions: int, records: int) -> None:
        """So many records for each partition."""
        with closing(KafkaProducer(bootstrap_servers=self.broker.bootstrap, linger_ms=50)) as producer:
            for number in range(partitions * records):
                producer.send(topic, b"x", partition=number % partitions)
            producer.flush()

    def log_end(self, group: str) -> int:
        """End offset of the group's offsets partition."""
        partition = {
            "partitionIndex": partition_for(group, self.offsets_partitions),
            "currentLeaderEpoch": -1,
            "timestamp": -1,
        }
        version = min(self.session.versions["ListOffsets"], 5)
        if version < 4:
            del partition["currentLeaderEpoch"]
        body: Json = {"replicaId": -1, "topics": [{"name": OFFSETS_TOPIC, "partitions": [partition]}]}

        def end() -> int | None:
            found = self.session.ask("ListOffsets", body, version, expect=(0, NOT_LEADER))["topics"][0]["partitions"][0]
            return None if found["errorCode"] else int(found["offset"])

        return wait_for(f"the end of {group}'s offsets partition", end)

    def committed(self, group: str, topic: str, partition: int) -> int:
        """Committed offset, -1 for none."""
        version = min(self.session.versions["OffsetFetch"], 5)
        body = {"groupId": group, "topics": [{"name": topic, "partitionIndexes": [partition]}]}
        found = self.session.ask("OffsetFetch", body, version)
        return int(found["topics"][0]["partitions"][0]["committedOffset"])

    def until_gone(self, *offsets: tuple[str, str, int]) -> None:
        """Wait until the coordinator has none of these offsets: group, topic and partition."""
        wait_for("offsets to go", lambda: all(self.committed(*one) < 0 for one in offsets), 300)


def pack(directory: Path, target: Path) -> None:
    """A directory as one compressed file, the same for the same contents; what is empty is left out."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and path.stat().st_size:
                entry = tarfile.TarInfo(str(path.relative_to(directory)))
                entry.size = path.stat().st_size
                with path.open("rb") as file:
                    archive.addfile(entry, file)
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(packed.getvalue()))
