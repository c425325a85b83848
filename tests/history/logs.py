"""Histories of corpus cases, and of logs written for a test."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import crc32c

from coordinator_core.history.judge import Judge
from coordinator_core.history.model import Deletions, GroupHistory, PartitionHistory
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.read import read_history
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import Codec, ControlType
from coordinator_core.records.blobs import encode_consumer_assignment
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.releases import profile_for_release
from tests.blobs import encode_consumer_subscription
from tests.cases import Case
from tests.log.builders import build_batch, build_control_batch, build_message

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
T0 = 1_780_000_000_000


def group_histories(
    paths: Collection[Path],
    release: str,
    coordinator: str | None = None,
    groups: Collection[str] | None = None,
    retention_ms: int | None = None,
    captured_retention_ms: int | None = None,
) -> dict[str, GroupHistory]:
    """Judged histories of a log by group id."""
    snapshot = discover([str(path) for path in paths])
    profile = profile_for_release(release, coordinator)
    deletions = Deletions()
    names = snapshot.topic_names
    read: list[PartitionHistory] = [
        read_history(log, profile, groups=groups, deletions=deletions, topic_names=names, damage=[])
        for log in snapshot.partitions
    ]
    found = [group for partition in read for group in partition.groups.values()]
    Judge(profile, deletions, retention_ms=retention_ms, captured_retention_ms=captured_retention_ms).judge(found)
    settle_origins(found)
    return {group.group_id: group for group in found}


def case_histories(case: Case, groups: Collection[str] | None = None) -> dict[str, GroupHistory]:
    return group_histories(case.paths, case.release, case.coordinator, groups)


@dataclass(frozen=True)
class Client:
    """A member as it stands in GroupMetadata records."""

    member_id: str
    topics: tuple[str, ...] = ("orders",)
    partitions: tuple[tuple[str, int], ...] | None = None
    instance_id: str | None = None
    client_id: str = "consumer-1"
    host: str = "/10.0.0.1"
    rebalance_timeout_ms: int = 300_000
    subscription: bytes | None = None
    """Bytes in place of those that ``topics`` give."""

    def value(self, version: int) -> dict[str, Any]:
        assigned: dict[str, list[int]] = {}
        for topic, partition in self.partitions or ():
            assigned.setdefault(topic, []).append(partition)
        assignment = {
            "assignedPartitions": [{"topic": topic, "partitions": numbers} for topic, numbers in assigned.items()],
            "userData": None,
        }
        subscription = self.subscription
        if subscription is None:
            subscription = encode_consumer_subscription(0, {"topics": list(self.topics), "userData": None})
        instance = {"groupInstanceId": self.instance_id} if version >= 3 else {}
        return instance | {
            "memberId": self.member_id,
            "clientId": self.client_id,
            "clientHost": self.host,
            "rebalanceTimeout": self.rebalance_timeout_ms,
            "sessionTimeout": 45_000,
            "subscription": subscription,
            "assignment": b"" if self.partitions is None else encode_consumer_assignment(0, assignment),
        }


@dataclass
class Log:
    """An offsets partition under construction, one batch a method, as the Scala coordinator writes it.

    ``at`` is the time of the next batch, ``epoch`` the leader epoch, ``magic`` the message format, ``codec`` that of
    the next batches; ``topic_id`` is that of the topics of the next commits, which have it from value version 4 on.
    """

    at: int = T0
    group_version: int = 3
    commit_version: int = 3
    magic: int = 2
    epoch: int = 0
    codec: Codec = Codec.NONE
    topic_id: str | None = None
    protocol: str = "range"
    next_offset: int = 0
    data: bytearray = field(default_factory=bytearray)
    segments: dict[int, bytes] = field(default_factory=dict)
    base: int = 0

    def wait(self, milliseconds: int) -> Log:
        self.at += milliseconds
        return self

    def skip(self, records: int) -> Log:
        """A range that the cleaner has removed."""
        self.next_offset += records
        return self

    def roll(self) -> Log:
        """Begin a new segment."""
        self.segments[self.base] = bytes(self.data)
        self.base, self.data = self.next_offset, bytearray()
        return self

    def records(
        self,
        *records: tuple[bytes, bytes | None],
        sequence: int = -1,
        producer_id: int = -1,
        producer_epoch: int = 0,
    ) -> Log:
        if self.magic < 2:
            for number, (key, value) in enumerate(records):
                self.data += build_message(self.next_offset + number, key, value, magic=self.magic, timestamp=self.at)
            self.next_offset += len(records)
            return self
        self.data += build_batch(
            self.next_offset,
            list(records),
            timestamp=self.at,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
            base_sequence=sequence,
            leader_epoch=self.epoch,
            codec=self.codec,
        )
        self.next_offset += len(records)
        return self

    def commit(
        self,
        group: str,
        offsets: dict[tuple[str, int], int],
        *,
        leader_epoch: int = 0,
        committed_ms: int | None = None,
        metadata: str = "",
        producer_id: int = -1,
        producer_epoch: int = 0,
    ) -> Log:
        """One OffsetCommit request."""
        when = self.at if committed_ms is None else committed_ms
        value: dict[str, Any] = {"metadata": metadata, "commitTimestamp": when}
        version = self.commit_version if self.topic_id is None else 4
        if version == 1:
            # These brokers wrote the default retention into each value.
            value["expireTimestamp"] = when + DAY
        elif version >= 3:
            value["leaderEpoch"] = leader_epoch
        if self.topic_id is not None:
            value["topicId"] = self.topic_id
        values = {offset: encode_value(1, version, value | {"offset": offset}) for offset in set(offsets.values())}
        return self.records(
            *((self._key(group, *key), values[offset]) for key, offset in offsets.items()),
            sequence=0,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )

    def tombstones(self, group: str, *keys: tuple[str, int], with_group: bool = False) -> Log:
        records: list[tuple[bytes, bytes | None]] = [(self._key(group, *key), None) for key in keys]
        if with_group:
            records.append((encode_key(2, {"group": group}), None))
        return self.records(*records)

    def generation(
        self, group: str, number: int, *members: Client, since: int | None = None, protocol_type: str = "consumer"
    ) -> Log:
        """GroupMetadata: a generation, or without members the group as it becomes Empty."""
        version = self.group_version
        value: dict[str, Any] = {
            "protocolType": protocol_type,
            "generation": number,
            "protocol": self.protocol if members else None,
            "leader": members[0].member_id if members else None,
            "members": [member.value(version) for member in members],
        }
        if version >= 2:
            value["currentStateTimestamp"] = self.at if since is None else since
        return self.records((encode_key(2, {"group": group}), encode_value(2, version, value)))

    def modern(self, *records: tuple[int, dict[str, Any], dict[str, Any] | None]) -> Log:
        """Records of KIP-848 and later groups, in one batch of the Java coordinator."""
        return self.records(
            *(
                (encode_key(kind, key), None if value is None else encode_value(kind, 0, value))
                for kind, key, value in records
            ),
            sequence=0,
        )

    def marker(self, kind: ControlType, producer_id: int, *, producer_epoch: int = 0) -> Log:
        self.data += build_control_batch(
            self.next_offset,
            kind,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self.at,
            leader_epoch=self.epoch,
        )
        self.next_offset += 1
        return self

    def control(self, key: bytes, producer_id: int) -> Log:
        """A control record with the bytes of ``key``."""
        self.data += build_batch(
            self.next_offset,
            [(key, b"")],
            timestamp=self.at,
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
            leader_epoch=self.epoch,
        )
        self.next_offset += 1
        return self

    def write(self, directory: Path, partition: int = 0) -> Path:
        """The log directory."""
        place = directory / f"__consumer_offsets-{partition}"
        place.mkdir(parents=True)
        for base, data in {**self.segments, self.base: bytes(self.data)}.items():
            (place / f"{base:020d}.log").write_bytes(data)
        return directory

    @staticmethod
    @cache
    def _key(group: str, topic: str, partition: int) -> bytes:
        return encode_key(1, {"group": group, "topic": topic, "partition": partition})


def modern_member(group: str, member: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The record of a member of a KIP-848 group: its type, key and value."""
    value = {
        "instanceId": None,
        "rackId": None,
        "clientId": member,
        "clientHost": "/10.0.0.1",
        "subscribedTopicNames": ["orders"],
        "subscribedTopicRegex": None,
        "rebalanceTimeoutMs": 300_000,
        "serverAssignor": None,
    }
    return 5, {"groupId": group, "memberId": member}, value


def restamp(directory: Path, time_of: Callable[[int], int]) -> Path:
    """Give the batches and messages of a log other times: ``time_of`` has the old one (epoch ms, -1: none)."""
    for file in sorted(directory.rglob("*.log")):
        data, at = bytearray(file.read_bytes()), 0
        while at + 26 < len(data):
            end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if data[at + 16] >= 2:
                base, most = struct.unpack_from(">qq", data, at + 27)
                time = time_of(most)
                struct.pack_into(">qq", data, at + 27, max(time - (most - base), -1), time)
                struct.pack_into(">I", data, at + 17, crc32c.crc32c(data[at + 21 : end]))
            elif data[at + 16] == 1:
                struct.pack_into(">q", data, at + 18, time_of(*struct.unpack_from(">q", data, at + 18)))
                struct.pack_into(">I", data, at + 12, zlib.crc32(data[at + 16 : end]))
            at = end
        file.write_bytes(data)
    return directory
