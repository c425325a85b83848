"""Offsets logs of realistic shape and any size, from a seed, with the truth known by construction.

One batch is one OffsetCommit request of one group, as a coordinator writes it: base sequence 0, no headers.
Commits rotate over the slots of a group; a share of the batches is transactional and ended by a COMMIT or
ABORT marker some batches later; groups rewrite their group record now and then; some slots are tombstoned.
Nothing depends on anything but the :class:`Workload`.

    truths = generate(Workload("base", 100_000_000), directory)
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import zstandard
from crc32c import crc32c

from coordinator_core.groups.hashing import java_string_hash
from coordinator_core.log.types import OFFSETS_TOPIC, Codec
from coordinator_core.records.wire import uuid_text
from tests.bench.filling import (
    HEADER_BYTES,
    RECORD_ROOM,
    At,
    Bytes,
    Groups,
    Int64s,
    Log,
    Names,
    Setting,
    Slots,
    Transactions,
    fill,
    share,
)
from tests.bench.group_records import classic_group, consumer_group
from tests.log.builders import compress, segment_name

START_MS = 1_760_000_000_000
TOPICS = 300
TOPIC_STEP = 17
"""Topics of a group are this far apart; it and TOPICS have no common divisor, so that none comes twice."""

PREFIX = "payments-service-consumer-"
VARIED_PREFIXES = (
    PREFIX,
    "c-",
    "connect-sink-warehouse.eu-central.orders.enriched.v2-" * 2,
    "größe/测试 👥-",
    "streams-app-7f3a-",
)
DIGITS = 8
CHUNK_BYTES = 8 << 20
CHUNK_BATCHES = 1 << 16
GIVEN_AT_ONCE = 256
COMPRESSED_AT_ONCE = 256
NAMES_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Workload:
    """What to write. Bytes, groups and slots are those of one offsets partition."""

    name: str
    target_bytes: int
    """Size before compression; the last transactions end beyond it."""
    groups: int = 5_000
    slots: int = 176_000
    """Distinct committed offsets that are committed in turn."""
    records_per_batch: int = 25
    transactional: float = 0.0
    """Share of batches that belong to a transaction."""
    aborted: float = 0.1
    """Share of transactions that abort."""
    tombstones: float = 0.0
    """Share of commits outside transactions that delete their slot instead."""
    metadata_every: int = 200
    """A group record is written after so many batches; 1 is the most churn."""
    codec: Codec = Codec.NONE
    segment_bytes: int = 100 * 1024 * 1024
    partitions: int = 1
    seed: int = 7
    smallest_batch: int | None = None
    """When set, batches have from this to ``records_per_batch`` records, small ones more often."""
    shuffled: bool = False
    """The partitions of a commit come in any order."""
    group_skew: float = 0.0
    """Zipf exponent: the n-th group has ``n ** -group_skew`` of the slots and commits of the first."""
    partition_skew: float = 0.0
    """Zipf exponent of the bytes, slots and groups of the offsets partitions; the first is full size."""
    in_turn: bool = False
    """Groups commit one after the other, all their slots, so that no slot is written twice before every one
    was written: a log of fewer commits than slots holds nothing dead."""
    consumer_groups: float = 0.0
    """Share of groups that are of KIP-848; their group records are written before anything else."""
    members: int = 1
    """Most members of a group."""
    members_of_first_group: int = 0
    """When set, the first group has so many members."""
    value_versions: tuple[int, ...] = (3,)
    """Versions of OffsetCommitValue, one a batch, equally often."""
    legacy_slots: float = 0.0
    """Share of slots that are written under key type 0 as often as under type 1."""
    topics_per_group: int = 1
    commit_metadata: int = 0
    """Most bytes of the committer's own text."""
    varied_names: bool = False
    """Names of groups short and long, also with characters of more than one byte."""
    producers: int = 1_000
    """Producer ids of transactions, used again and again."""
    transaction_batches: int = 20
    """A transaction is ended at most so many batches after its commits."""

    def __post_init__(self) -> None:
        if self.producers <= self.transaction_batches + 1:
            raise ValueError("a producer would begin a transaction in another one of its own")

    def of_partition(self, number: int) -> Workload:
        """The part of one offsets partition."""
        weight = (number + 1) ** -self.partition_skew
        sizes = {
            name: max(1, round(getattr(self, name) * weight)) for name in ("target_bytes", "groups", "slots")
        }
        return Workload(**{**self.__dict__, **sizes})


@dataclass(frozen=True)
class Truth:
    """What the log of one offsets partition says in the end.

    Per slot: group and topic (indexes of ``groups`` and ``topics``), partition, and committed offset, -1
    where there is none. Per group: members and generation or epoch of its newest group record, -1 where it
    has none. ``bytes`` is the size of the segments.
    """

    groups: list[str]
    topics: list[str]
    group_of_slot: npt.NDArray[np.int32]
    topic_of_slot: npt.NDArray[np.int32]
    partition_of_slot: npt.NDArray[np.int32]
    committed: Int64s
    members: Int64s
    epochs: Int64s
    records: int
    batches: int
    bytes: int
    offsets_partition: int = 0

    @property
    def live_slots(self) -> int:
        return int((self.committed >= 0).sum())


def generate(workload: Workload, directory: Path) -> list[Truth]:
    """Write the log directory of ``workload``; one truth an offsets partition."""
    truths = []
    for number in range(workload.partitions):
        place = directory / f"{OFFSETS_TOPIC}-{number}"
        place.mkdir(parents=True)
        with _Segments(place, workload.segment_bytes) as segments:
            partition = _Partition(workload.of_partition(number), number)
            truths.append(partition.write(segments, number))
    return truths


class _Segments:
    """Rolls to a new segment before the batch that would exceed ``segment_bytes``, as a broker does."""

    def __init__(self, place: Path, segment_bytes: int) -> None:
        self.bytes = 0
        self._place = place
        self._segment_bytes = segment_bytes
        self._used = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> _Segments:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, data: memoryview, starts: Int64s) -> None:
        """Batches end to end; ``starts`` are their starts and the end of the last."""
        first = 0
        while first + 1 < len(starts):
            room = self._segment_bytes - self._used if self._file is not None else 0
            last = int(np.searchsorted(starts, starts[first] + room, "right")) - 1
            if last <= first:
                self.__exit__()
                base_offset = int.from_bytes(data[starts[first] : starts[first] + 8], "big")
                self._file = (self._place / segment_name(base_offset)).open("wb")
                # A batch larger than a segment has one of its own.
                room, self._used = self._segment_bytes, 0
                last = max(first + 1, int(np.searchsorted(starts, starts[first] + room, "right")) - 1)
            assert self._file is not None
            chunk = data[starts[first] : starts[last]]
            self._file.write(chunk)
            self._used += len(chunk)
            self.bytes += len(chunk)
            first = last


class _Partition:
    """The log of one offsets partition in the making, and its truth."""

    def __init__(self, workload: Workload, number: int) -> None:
        self.workload = workload
        self.random = np.random.default_rng([workload.seed, number])
        self.groups = list(itertools.islice(_group_names(workload, number), workload.groups))
        self.topics = [f"prod.orders.events-{topic:03}" for topic in range(TOPICS)]
        self.topic_ids = [uuid.uuid5(uuid.NAMESPACE_DNS, topic).bytes for topic in self.topics]
        self.log = self._new_log()

    def _new_log(self) -> Log:
        workload = self.workload
        weights = np.arange(1, workload.groups + 1, dtype=np.float64) ** -workload.group_skew
        sizes = self.random.multinomial(workload.slots, weights / weights.sum())
        first_slot = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        group = np.repeat(np.arange(workload.groups, dtype=np.int32), sizes)
        index = np.arange(workload.slots) - first_slot[group]
        active = np.flatnonzero(sizes)
        chances = sizes[active] if workload.group_skew else np.ones(len(active))
        largest = workload.records_per_batch
        groups, topics = ([name.encode() for name in names] for names in (self.groups, self.topics))
        settings = {
            Setting.START_MS: START_MS,
            Setting.SMALLEST_BATCH: workload.smallest_batch or largest,
            Setting.LARGEST_BATCH: largest,
            Setting.TRANSACTIONAL: share(workload.transactional),
            Setting.ABORTED: share(workload.aborted),
            Setting.TOMBSTONES: share(workload.tombstones),
            Setting.GROUPS_EVERY: workload.metadata_every,
            Setting.SHUFFLED: workload.shuffled,
            Setting.IN_TURN: workload.in_turn,
            Setting.PRODUCERS: workload.producers,
            Setting.TRANSACTION_BATCHES: workload.transaction_batches,
            Setting.METADATA_BYTES: workload.commit_metadata,
            Setting.RECORD_ROOM: RECORD_ROOM
            + max(map(len, groups))
            + max(map(len, topics))
            + workload.commit_metadata,
            Setting.TARGET_BYTES: workload.target_bytes,
        }
        at = np.zeros(At.SIZE, np.int64)
        at[At.RANDOM] = self.random.integers(1 << 62)
        open_ones = workload.transaction_batches + 2
        return Log(
            np.array([settings[Setting(number)] for number in range(Setting.SIZE)], np.int64),
            np.array(workload.value_versions, np.int64),
            at,
            Names(*_joined(groups), *_joined(topics), _joined(self.topic_ids)[0]),
            Slots(
                group,
                ((group + TOPIC_STEP * (index % workload.topics_per_group)) % TOPICS).astype(np.int32),
                (index // workload.topics_per_group).astype(np.int32),
                (self.random.random(workload.slots) < workload.legacy_slots).astype(np.uint8),
                np.full(workload.slots, -1, np.int64),
                np.full(workload.slots, -1, np.int64),
            ),
            Groups(
                first_slot,
                active,
                np.cumsum(chances[:-1]) / chances.sum(),
                np.zeros(workload.groups, np.int64),
            ),
            Transactions(
                *(np.zeros(open_ones, np.int64) for _ in range(5)),
                *(np.zeros((open_ones, largest), np.int64) for _ in range(2)),
            ),
        )

    def write(self, segments: _Segments, offsets_partition: int) -> Truth:
        """Batches until the target size is reached; every transaction is ended at the close."""
        log = self.log
        group_batches = _GroupBatches(self.workload, self.groups, self.topics, self.topic_ids, self.random)
        log.at[At.DUE] = group_batches.first
        room = HEADER_BYTES + int(log.settings[Setting.LARGEST_BATCH] * log.settings[Setting.RECORD_ROOM])
        out = np.empty(CHUNK_BYTES, np.uint8)
        starts = np.empty(CHUNK_BATCHES + 1, np.int64)
        controls = np.empty(CHUNK_BATCHES, np.uint8)
        complete = False
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while not complete:
                given = group_batches.give(int(log.at[At.GIVEN]))
                log.at[At.GIVEN] = 0
                # Any batch must fit, or there would be no end.
                if len(out) < room + max(map(len, given)):
                    out = np.empty(room + max(map(len, given)), np.uint8)
                count, complete = fill(out, starts, controls, *_joined(given), log)
                segments.append(*_sealed(out, starts[: count + 1], controls, self.workload.codec, pool))
        group_batches.give(int(log.at[At.GIVEN]))
        return Truth(
            self.groups,
            self.topics,
            log.slots.group,
            log.slots.topic,
            log.slots.partition,
            log.slots.committed,
            group_batches.members,
            group_batches.epochs,
            int(log.at[At.OFFSET]),
            int(log.at[At.BATCHES]),
            segments.bytes,
            offsets_partition,
        )


@dataclass(frozen=True)
class _GroupBatch:
    raw: bytes
    group: int
    members: int
    epoch: int


class _GroupBatches:
    """Group records in the order in which they are written, and what is true once they are."""

    def __init__(
        self,
        workload: Workload,
        groups: list[str],
        topics: list[str],
        topic_ids: list[bytes],
        random: np.random.Generator,
    ) -> None:
        self._workload = workload
        self._groups, self._topics, self._topic_ids = groups, topics, topic_ids
        self._random = random
        # Spread evenly; not the first group, unless all are.
        kinds = np.floor(np.arange(len(groups) + 1) * workload.consumer_groups)
        self._is_consumer_group = np.diff(kinds) > 0
        self._last_epoch = np.zeros(len(groups), np.int64)
        self.members = np.full(len(groups), -1, np.int64)
        self.epochs = np.full(len(groups), -1, np.int64)
        self._first_is_large = workload.members_of_first_group > 0
        self.waiting: list[_GroupBatch] = []
        if self._first_is_large:
            self.waiting.append(self._batch(0, workload.members_of_first_group))
        for group in np.flatnonzero(self._is_consumer_group).tolist():
            if group or not self._first_is_large:
                self.waiting.append(self._batch(group, 1 + group % workload.members))
        self.first = len(self.waiting)
        """How many come before anything else."""
        self._fill_up()

    def give(self, written: int) -> list[bytes]:
        """The next batches, after the first ``written`` of those given before have been written."""
        for batch in self.waiting[:written]:
            self.members[batch.group], self.epochs[batch.group] = batch.members, batch.epoch
        del self.waiting[:written]
        self._fill_up()
        return [batch.raw for batch in self.waiting[:GIVEN_AT_ONCE]]

    def _fill_up(self) -> None:
        first = 1 if self._first_is_large and len(self._groups) > 1 else 0
        while len(self.waiting) < GIVEN_AT_ONCE:
            group = int(self._random.integers(first, len(self._groups)))
            if self._is_consumer_group[group]:
                members = 1 + group % self._workload.members
            else:
                members = int(self._random.integers(0, self._workload.members + 1))
            self.waiting.append(self._batch(group, members))

    def _batch(self, group: int, members: int) -> _GroupBatch:
        self._last_epoch[group] += 1
        epoch = int(self._last_epoch[group])
        name, topic = self._groups[group], group % TOPICS
        if self._is_consumer_group[group]:
            raw = consumer_group(
                name,
                self._topics[topic],
                uuid_text(self._topic_ids[topic]),
                epoch=epoch,
                members=members,
                now_ms=START_MS,
            )
        else:
            raw = classic_group(name, self._topics[topic], generation=epoch, members=members, now_ms=START_MS)
        return _GroupBatch(raw, group, members, epoch)


def _joined(parts: Sequence[bytes]) -> tuple[Bytes, Int64s]:
    """Bytes end to end, and their starts and the end of the last."""
    starts = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
    return np.frombuffer(b"".join(parts), np.uint8), starts


# CRC and compression


def _sealed(
    out: Bytes, starts: Int64s, controls: Bytes, codec: Codec, pool: ThreadPoolExecutor
) -> tuple[memoryview, Int64s]:
    """The batches compressed when asked, except markers, each with its CRC, and their starts."""
    data = memoryview(out)[: starts[-1]]
    bounds = starts.tolist()
    if codec is not Codec.NONE:
        markers = controls.tolist()

        def compressed(first: int) -> list[bytes]:
            last = min(first + COMPRESSED_AT_ONCE, len(bounds) - 1)
            return [
                bytes(data[start:end]) if is_control else _compressed(data[start:end], codec)
                for start, end, is_control in zip(
                    bounds[first:last], bounds[first + 1 : last + 1], markers[first:last], strict=True
                )
            ]

        parts = pool.map(compressed, range(0, len(bounds) - 1, COMPRESSED_AT_ONCE))
        batches = list(itertools.chain.from_iterable(parts))
        data = memoryview(bytearray().join(batches))
        starts = _joined(batches)[1]
        bounds = starts.tolist()
    put = struct.Struct(">I").pack_into
    for start, end in itertools.pairwise(bounds):
        put(data, start + 17, crc32c(data[start + 21 : end]))
    return data, starts


def _compressed(batch: memoryview, codec: Codec) -> bytes:
    section = bytes(batch[HEADER_BYTES:])
    section = _ZSTD.compressor.compress(section) if codec is Codec.ZSTD else compress(codec, section)
    header = bytearray(batch[:HEADER_BYTES])
    header[8:12] = struct.pack(">i", HEADER_BYTES - 12 + len(section))
    header[22] |= codec
    return bytes(header) + section


class _Zstd(threading.local):
    """Making a compressor costs more than compressing a batch."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(write_content_size=False)


_ZSTD = _Zstd()


# Names


def _group_names(workload: Workload, partition: int) -> Iterator[str]:
    """Names that a coordinator of ``workload.partitions`` partitions places in ``partition``."""
    prefixes = VARIED_PREFIXES if workload.varied_names else VARIED_PREFIXES[:1]
    for first in itertools.count(0, NAMES_AT_ONCE):
        numbers = np.arange(first, first + NAMES_AT_ONCE, dtype=np.uint32)
        # String.hashCode, for all numbers at once.
        hashes = np.array([java_string_hash(prefix) & 0xFFFFFFFF for prefix in prefixes], np.uint32)
        hashes = hashes[numbers % len(prefixes)]
        for digit in reversed(range(DIGITS)):
            hashes = hashes * np.uint32(31) + ord("0") + numbers // np.uint32(10**digit) % np.uint32(10)
        places = np.abs(hashes.view(np.int32).astype(np.int64)) % workload.partitions
        for number in numbers[places == partition].tolist():
            yield f"{prefixes[number % len(prefixes)]}{number:0{DIGITS}}"
