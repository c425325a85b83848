"""Short logs for tests of replay rules, written as a list of batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.log.batch import batch_records, parse_batch
from coordinator_core.log.types import Batch, ControlType, Record
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.releases import Profile
from coordinator_core.replay.sequential import SequentialReplayer
from tests.log.builders import build_batch, build_control_batch, build_empty_batch

GROUP, TOPIC = "g", "t"
OFFSET_KEY = OffsetKey(GROUP, TOPIC, 0)


def encoded_key(offset_key: OffsetKey = OFFSET_KEY, key_type: int = 1) -> bytes:
    return encode_key(
        key_type, {"group": offset_key.group_id, "topic": offset_key.topic, "partition": offset_key.partition}
    )


def offset_value(offset: int, *, version: int = 3, **fields: Any) -> bytes:
    values = {"offset": offset, "metadata": "", "commitTimestamp": 1_700_000_000_000}
    if version >= 3:
        values["leaderEpoch"] = -1
    return encode_value(1, version, values | fields)


def group_value(*members: str, generation: int = 1, **fields: Any) -> bytes:
    """GroupMetadata v3 of a ``consumer`` group."""
    return encode_value(
        2,
        3,
        {
            "protocolType": "consumer",
            "generation": generation,
            "protocol": "range" if members else None,
            "leader": members[0] if members else None,
            "currentStateTimestamp": 1_700_000_000_000,
            "members": [
                {
                    "memberId": member,
                    "groupInstanceId": None,
                    "clientId": "c",
                    "clientHost": "/127.0.0.1",
                    "rebalanceTimeout": 300_000,
                    "sessionTimeout": 45_000,
                    "subscription": b"",
                    "assignment": b"",
                }
                for member in members
            ],
        }
        | fields,
    )


@dataclass
class History:
    """A log under construction; every method appends one batch and returns the history."""

    next_offset: int = 0
    batches: list[bytes] = field(default_factory=list)

    def records(
        self,
        *records: tuple[bytes | None, bytes | None],
        producer_id: int = -1,
        transactional: bool | None = None,
    ) -> History:
        self.batches.append(
            build_batch(
                self.next_offset,
                list(records),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                transactional=producer_id >= 0 if transactional is None else transactional,
            )
        )
        self.next_offset += len(records)
        return self

    def commit(
        self, offset: int, offset_key: OffsetKey = OFFSET_KEY, *, producer_id: int = -1, **fields: Any
    ) -> History:
        return self.records((encoded_key(offset_key), offset_value(offset, **fields)), producer_id=producer_id)

    def tombstone(self, offset_key: OffsetKey = OFFSET_KEY, *, producer_id: int = -1) -> History:
        return self.records((encoded_key(offset_key), None), producer_id=producer_id)

    def marker(self, kind: ControlType | int, producer_id: int) -> History:
        self.batches.append(build_control_batch(self.next_offset, kind, producer_id=producer_id))
        self.next_offset += 1
        return self

    def empty_control(self, producer_id: int) -> History:
        self.batches.append(
            build_empty_batch(self.next_offset, producer_id=producer_id, transactional=True, control=True)
        )
        self.next_offset += 1
        return self

    def group(self, *members: str, group_id: str = GROUP, **fields: Any) -> History:
        return self.records((encode_key(2, {"group": group_id}), group_value(*members, **fields)))

    def group_tombstone(self, group_id: str = GROUP) -> History:
        return self.records((encode_key(2, {"group": group_id}), None))

    def modern(self, key_type: int, key: dict[str, Any], value: dict[str, Any] | None) -> History:
        encoded = None if value is None else encode_value(key_type, 0, value)
        return self.records((encode_key(key_type, key), encoded))

    def replay(self, profile: Profile) -> PartitionState:
        return replay_batches(self.batches, profile)


def replay_batches(batches: Sequence[bytes], profile: Profile) -> PartitionState:
    """The sequential replay of raw batches."""
    replayer = SequentialReplayer(profile, 0)
    for batch, records in parsed(batches):
        replayer.replay_batch(batch, records)
    return replayer.finish()


def parsed(batches: Sequence[bytes]) -> Iterator[tuple[Batch, Sequence[Record]]]:
    """Raw batches with their records."""
    position = 0
    for raw in batches:
        batch = parse_batch(memoryview(raw), position)
        position += len(raw)
        yield batch, batch_records(batch, path="test")
