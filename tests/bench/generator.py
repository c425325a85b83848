"""Offsets logs of realistic shape and any size, from a seed, with the truth known by construction.

One batch is one OffsetCommit request of one group, as the Java coordinator of 4.x writes it: value version
3 under key type 1, base sequence 0, no headers. Commits rotate over the slots of a group; a share of the
batches is transactional and ended by a COMMIT or ABORT marker some batches later; groups rewrite their
metadata now and then; some slots are tombstoned. Nothing depends on anything but the :class:`Workload`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from crc32c import crc32c
from numba import njit

from coordinator_core.groups.hashing import partition_for
from coordinator_core.log.types import OFFSETS_TOPIC, Codec
from coordinator_core.records.codec import encode_key, encode_value
from tests.log.builders import build_batch, build_control_batch, compress

START_MS = 1_760_000_000_000
METADATA = b""
HEADER_BYTES = 61
VALUE_BYTES = 2 + 8 + 4 + 2 + len(METADATA) + 8
COMMIT, ABORT = 1, 0

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Workload:
    """What to write. ``slots`` is the number of distinct committed offsets of one offsets partition."""

    name: str
    target_bytes: int
    groups: int = 5_000
    slots: int = 176_000
    records_per_batch: int = 25
    transactional: float = 0.0
    aborted: float = 0.1
    tombstones: float = 0.0
    metadata_every: int = 200
    codec: Codec = Codec.NONE
    segment_bytes: int = 100 * 1024 * 1024
    partitions: int = 1
    seed: int = 7


@dataclass(frozen=True)
class Truth:
    """What the log of one offsets partition says in the end: committed offset per slot, -1 where none."""

    groups: list[str]
    group_of_slot: Int64s
    partition_of_slot: Int64s
    committed: Int64s
    records: int
    batches: int
    bytes: int


@njit(cache=True)  # type: ignore[untyped-decorator]
def _put_varint(out: Bytes, at: int, value: int) -> int:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out[at] = (rest & 0x7F) | 0x80
        rest >>= 7
        at += 1
    out[at] = rest
    return at + 1


@njit(cache=True)  # type: ignore[untyped-decorator]
def _put_big_endian(out: Bytes, at: int, value: int, count: int) -> int:
    for index in range(count):
        out[at + index] = (value >> (8 * (count - 1 - index))) & 0xFF
    return at + count


@njit(cache=True)  # type: ignore[untyped-decorator]
def _varint_size(value: int) -> int:
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size


@njit(cache=True)  # type: ignore[untyped-decorator]
def _fill_batch(
    out: Bytes,
    at: int,
    keys: Bytes,
    key_starts: Int64s,
    slots: Int64s,
    values: Int64s,
    base_offset: int,
    timestamp: int,
    producer_id: int,
) -> int:
    """Write one batch of commits, CRC left zero; a value of -1 is a tombstone. Returns the end."""
    count = len(slots)
    start = at
    at = _put_big_endian(out, at, base_offset, 8)
    at += 4  # length, known at the end
    at = _put_big_endian(out, at, 0, 4)
    out[at] = 2
    at += 1
    at = _put_big_endian(out, at, 0, 4)
    at = _put_big_endian(out, at, 0x10 if producer_id >= 0 else 0, 2)
    at = _put_big_endian(out, at, count - 1, 4)
    at = _put_big_endian(out, at, timestamp, 8)
    at = _put_big_endian(out, at, timestamp, 8)
    at = _put_big_endian(out, at, producer_id, 8)
    at = _put_big_endian(out, at, 0 if producer_id >= 0 else -1, 2)
    at = _put_big_endian(out, at, 0, 4)
    at = _put_big_endian(out, at, count, 4)
    for index in range(count):
        key_start = key_starts[slots[index]]
        key_size = key_starts[slots[index] + 1] - key_start
        value_size = 24 if values[index] >= 0 else 0
        value_length = value_size if values[index] >= 0 else -1
        size = (
            1
            + 1
            + _varint_size(index)
            + _varint_size(key_size)
            + key_size
            + _varint_size(value_length)
            + value_size
            + 1
        )
        at = _put_varint(out, at, size)
        out[at] = 0
        out[at + 1] = 0
        at = _put_varint(out, at + 2, index)
        at = _put_varint(out, at, key_size)
        for position in range(key_size):
            out[at + position] = keys[key_start + position]
        at = _put_varint(out, at + key_size, value_length)
        if values[index] >= 0:
            at = _put_big_endian(out, at, 3, 2)
            at = _put_big_endian(out, at, values[index], 8)
            at = _put_big_endian(out, at, -1, 4)
            at = _put_big_endian(out, at, 0, 2)
            at = _put_big_endian(out, at, timestamp, 8)
        out[at] = 0
        at += 1
    _put_big_endian(out, start + 8, at - start - 12, 4)
    return at


class _Partition:
    """Writes the log of one offsets partition and keeps its truth."""

    def __init__(self, workload: Workload, partition: int) -> None:
        self.workload = workload
        self.random = np.random.default_rng([workload.seed, partition])
        self.groups = list(_group_names(workload, partition))
        self.group_of_slot = np.sort(self.random.integers(0, workload.groups, workload.slots)).astype(
            np.int64
        )
        first = np.searchsorted(self.group_of_slot, np.arange(workload.groups + 1))
        self.first_slot = first.astype(np.int64)
        self.partition_of_slot = np.arange(workload.slots, dtype=np.int64) - first[self.group_of_slot]
        encoded = [
            encode_key(
                1, {"group": self.groups[group], "topic": topic_name(group), "partition": partition_of}
            )
            for group, partition_of in zip(
                self.group_of_slot.tolist(), self.partition_of_slot.tolist(), strict=True
            )
        ]
        self.keys = np.frombuffer(b"".join(encoded), np.uint8)
        self.key_starts = np.concatenate(([0], np.cumsum([len(key) for key in encoded]))).astype(np.int64)
        self.committed = np.full(workload.slots, -1, np.int64)
        self.written_at = np.full(workload.slots, -1, np.int64)
        self.cursor = np.zeros(workload.groups, np.int64)
        self.active = np.flatnonzero(np.diff(self.first_slot))
        self.offset = self.records = self.batches = 0
        self.open: list[tuple[int, int, int, Int64s, Int64s, Int64s]] = []
        self.next_producer = 1000

    def batches_of(self) -> Iterator[bytes]:
        """Batches until the target size is reached; every transaction is ended at the close."""
        scratch = np.zeros(HEADER_BYTES + self.workload.records_per_batch * 200, np.uint8)
        written = 0
        while written < self.workload.target_bytes:
            for raw in self._step(scratch):
                written += len(raw)
                yield raw
        while self.open:
            yield self._end_transaction()

    def _step(self, scratch: Bytes) -> Iterator[bytes]:
        workload = self.workload
        if self.open and self.open[0][0] <= self.batches:
            yield self._end_transaction()
        group = int(self.active[self.random.integers(0, len(self.active))])
        if self.batches % workload.metadata_every == 0:
            yield self._metadata(group)
        slots = self._next_slots(group)
        values = self.random.integers(0, 1 << 40, len(slots)).astype(np.int64)
        transactional = self.random.random() < workload.transactional
        if workload.tombstones and not transactional:
            values[self.random.random(len(slots)) < workload.tombstones] = -1
        producer = self.next_producer if transactional else -1
        size = _fill_batch(
            scratch, 0, self.keys, self.key_starts, slots, values, self.offset, self._now(), producer
        )
        offsets = self.offset + np.arange(len(slots))
        if transactional:
            outcome = ABORT if self.random.random() < workload.aborted else COMMIT
            due = self.batches + int(self.random.integers(1, 20))
            self.open.append((due, producer, outcome, slots, values, offsets))
            self.open.sort(key=lambda transaction: transaction[0])
            self.next_producer += 1
        else:
            self.committed[slots], self.written_at[slots] = values, offsets
        self._advance(len(slots))
        yield self._finish(scratch[:size])

    def _next_slots(self, group: int) -> Int64s:
        """The group's next slots, in rotation, none twice."""
        first, last = self.first_slot[group], self.first_slot[group + 1]
        count = min(self.workload.records_per_batch, last - first)
        slots = first + (self.cursor[group] + np.arange(count)) % (last - first)
        self.cursor[group] = (self.cursor[group] + count) % (last - first)
        return slots.astype(np.int64)

    def _end_transaction(self) -> bytes:
        _, producer, outcome, slots, values, offsets = self.open.pop(0)
        if outcome == COMMIT:
            newer = offsets > self.written_at[slots]
            self.committed[slots[newer]] = values[newer]
            self.written_at[slots[newer]] = offsets[newer]
        marker = build_control_batch(self.offset, outcome, producer_id=producer, timestamp=self._now())
        self._advance(1)
        return marker

    def _metadata(self, group: int) -> bytes:
        member = f"consumer-{self.groups[group]}-1-00000000-0000-0000-0000-{group:012}"
        topic = topic_name(group).encode()
        subscription = struct.pack(">hih", 1, 1, len(topic)) + topic + struct.pack(">ii", -1, 0)
        value = {
            "protocolType": "consumer",
            "generation": self.batches + 1,
            "protocol": "range",
            "leader": member,
            "currentStateTimestamp": self._now(),
            "members": [
                {
                    "memberId": member,
                    "groupInstanceId": None,
                    "clientId": "consumer-1",
                    "clientHost": "/10.0.0.1",
                    "rebalanceTimeout": 300_000,
                    "sessionTimeout": 45_000,
                    "subscription": subscription,
                    "assignment": struct.pack(">hii", 1, 0, -1),
                }
            ],
        }
        raw = build_batch(
            self.offset,
            [(encode_key(2, {"group": self.groups[group]}), encode_value(2, 3, value))],
            base_sequence=0,
            timestamp=self._now(),
        )
        self._advance(1)
        return raw

    def _finish(self, batch: Bytes) -> bytes:
        """Compress when asked, and fill in the CRC."""
        raw = bytearray(batch.tobytes())
        if self.workload.codec is not Codec.NONE:
            raw[HEADER_BYTES:] = compress(self.workload.codec, bytes(raw[HEADER_BYTES:]))
            raw[22] |= self.workload.codec
            raw[8:12] = struct.pack(">i", len(raw) - 12)
        raw[17:21] = struct.pack(">I", crc32c(memoryview(raw)[21:]))
        return bytes(raw)

    def _now(self) -> int:
        return START_MS + self.batches

    def _advance(self, records: int) -> None:
        self.offset += records
        self.records += records
        self.batches += 1


def topic_name(group: int) -> str:
    """The topic that a group reads; several groups share one."""
    return f"prod.orders.events-{group % 300:03}"


def _group_names(workload: Workload, partition: int) -> Iterator[str]:
    """Names that a coordinator of ``workload.partitions`` partitions places in ``partition``."""
    found = number = 0
    while found < workload.groups:
        name = f"payments-service-consumer-{number:06}"
        number += 1
        if partition_for(name, workload.partitions) == partition:
            found += 1
            yield name


def generate(workload: Workload, directory: Path) -> list[Truth]:
    """Write the log directory of ``workload``; one truth an offsets partition."""
    truths = []
    for number in range(workload.partitions):
        place = directory / f"{OFFSETS_TOPIC}-{number}"
        place.mkdir(parents=True)
        partition = _Partition(workload, number)
        size = _write_segments(partition, place, workload.segment_bytes)
        truths.append(
            Truth(
                partition.groups,
                partition.group_of_slot,
                partition.partition_of_slot,
                partition.committed,
                partition.records,
                partition.batches,
                size,
            )
        )
    return truths


def _write_segments(partition: _Partition, place: Path, segment_bytes: int) -> int:
    """Roll to a new segment before the batch that would exceed ``segment_bytes``, as a broker does."""
    total = used = 0
    segment = None
    try:
        for raw in partition.batches_of():
            if segment is None or used + len(raw) > segment_bytes:
                if segment is not None:
                    segment.close()
                base_offset = int.from_bytes(raw[:8], "big")
                segment = (place / f"{base_offset:020}.log").open("wb", buffering=1 << 20)
                used = 0
            segment.write(raw)
            used += len(raw)
            total += len(raw)
    finally:
        if segment is not None:
            segment.close()
    return total
