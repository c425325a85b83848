"""Offsets logs of realistic shape and any size, from a seed, with the truth known by construction.

One batch is one OffsetCommit request of one group, as a coordinator writes it: base sequence 0, no headers.
Commits rotate over the offset keys of a group; a share of the batches is transactional and ended by a COMMIT or
ABORT marker some batches later; groups rewrite their group record now and then, or rebalance; some offset keys are
tombstoned. Nothing depends on anything but the :class:`Workload`.

    truths = generate(Workload("base", 100_000_000), directory)
"""

from __future__ import annotations

import itertools
import os
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import zstandard
from crc32c import crc32c

from coordinator_core.groups.hashing import java_string_hash
from coordinator_core.log.types import OFFSETS_TOPIC, Codec
from tests.bench.filling import (
    ENDING_RECORDS,
    HEADER_BYTES,
    RECORD_ROOM,
    At,
    Bytes,
    Groups,
    Int64s,
    Log,
    Names,
    OffsetKeys,
    Setting,
    Transactions,
    fill,
    share,
)
from tests.bench.group_batches import GroupBatches, Source, joined
from tests.bench.group_bytes import Layout
from tests.bench.group_truth import GroupTruth, Kind
from tests.bench.rebalances import Rebalances
from tests.bench.rewrites import Rewrites
from tests.bench.workload import START_MS, TOPIC_STEP, TOPICS, Workload, topic_id, topic_name
from tests.log.builders import compress, segment_name

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
COMPRESSED_AT_ONCE = 256
NAMES_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Truth:
    """State at the end of the log of one offsets partition.

    Per offset key: group and topic (indexes of ``groups`` and ``topics``), partition, and committed offset, -1
    where there is none; offset keys of a group lie together, from ``first_offset_key`` on. Per group: its kind, and
    members, generation or epoch, and epoch of the target assignment that its group records leave it with, -1
    where there are none. ``details`` has, by group, what is known member by member. ``bytes`` is the size of
    the segments.
    """

    groups: list[str]
    topics: list[str]
    group_of_offset_key: npt.NDArray[np.int32]
    topic_of_offset_key: npt.NDArray[np.int32]
    partition_of_offset_key: npt.NDArray[np.int32]
    committed: Int64s
    first_offset_key: Int64s
    kinds: Int64s
    members: Int64s
    epochs: Int64s
    assignment_epochs: Int64s
    details: dict[int, GroupTruth]
    records: int
    batches: int
    bytes: int
    offsets_partition: int = 0

    @property
    def live_offset_keys(self) -> int:
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
        self.topics = [topic_name(number) for number in range(TOPICS)]
        self.topic_ids = [topic_id(topic).bytes for topic in self.topics]
        self.log = self._new_log()

    def _new_log(self) -> Log:
        workload = self.workload
        weights = np.arange(1, workload.groups + 1, dtype=np.float64) ** -workload.group_skew
        sizes = self.random.multinomial(workload.offset_keys, weights / weights.sum())
        first_offset_key = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        group = np.repeat(np.arange(workload.groups, dtype=np.int32), sizes)
        index = np.arange(workload.offset_keys) - first_offset_key[group]
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
            Setting.RECORD_ROOM: RECORD_ROOM + max(map(len, groups)) + max(map(len, topics)) + workload.commit_metadata,
            Setting.TARGET_BYTES: workload.target_bytes,
            Setting.GROUP_BATCHES: share(workload.group_batches),
            Setting.TOMBSTONE_BATCHES: share(workload.tombstone_batches),
            Setting.METADATA: share(workload.commits_with_metadata),
            Setting.STEPS: workload.steps,
        }
        at = np.zeros(At.SIZE, np.int64)
        at[At.RANDOM] = self.random.integers(1 << 62)
        at[At.OFFSET] = workload.first_offset
        open_ones = workload.transaction_batches + 2
        return Log(
            np.array([settings[Setting(number)] for number in range(Setting.SIZE)], np.int64),
            np.array(workload.value_versions, np.int64),
            at,
            Names(*joined(groups), *joined(topics), joined(self.topic_ids)[0]),
            OffsetKeys(
                group,
                ((group + TOPIC_STEP * (index % workload.topics_per_group)) % TOPICS).astype(np.int32),
                (index // workload.topics_per_group).astype(np.int32),
                (self.random.random(workload.offset_keys) < workload.legacy_offset_keys).astype(np.uint8),
                np.full(workload.offset_keys, -1, np.int64),
                np.full(workload.offset_keys, -1, np.int64),
            ),
            Groups(
                first_offset_key,
                active,
                np.cumsum(chances[:-1]) / chances.sum(),
                np.zeros(workload.groups, np.int64),
                np.ones(workload.groups, np.uint8),
                np.zeros(workload.groups, np.uint8),
            ),
            Transactions(
                *(np.zeros(open_ones, np.int64) for _ in range(5)),
                *(np.zeros((open_ones, largest), np.int64) for _ in range(2)),
            ),
        )

    def write(self, segments: _Segments, offsets_partition: int) -> Truth:
        """Batches until the target size is reached; every transaction is ended at the close."""
        log = self.log
        group_batches = GroupBatches(self._source(), len(self.groups), START_MS)
        log.at[At.DUE] = group_batches.first
        records = int(log.settings[Setting.LARGEST_BATCH])
        if self.workload.group_batches:
            records = max(records, int(np.diff(log.groups.first_offset_key).max()) + ENDING_RECORDS)
        room = HEADER_BYTES + records * int(log.settings[Setting.RECORD_ROOM])
        out = np.empty(CHUNK_BYTES, np.uint8)
        starts = np.empty(CHUNK_BATCHES + 1, np.int64)
        controls = np.empty(CHUNK_BATCHES, np.uint8)
        complete = False
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            while not complete:
                given = group_batches.give(int(log.at[At.GIVEN]), START_MS + int(log.at[At.BATCHES]))
                log.at[At.GIVEN] = 0
                # Any batch must fit, or there would be no end.
                if len(out) < room + np.diff(given.starts).max():
                    out = np.empty(room + np.diff(given.starts).max(), np.uint8)
                count, complete = fill(out, starts, controls, given, log)
                segments.append(*_sealed(out, starts[: count + 1], controls, self.workload.codec, pool))
        group_batches.give(int(log.at[At.GIVEN]), START_MS + int(log.at[At.BATCHES]))
        truths = group_batches.truths
        kinds = np.array([truth.kind for truth in truths], np.int64)
        return Truth(
            self.groups,
            self.topics,
            log.offset_keys.group,
            log.offset_keys.topic,
            log.offset_keys.partition,
            log.offset_keys.committed,
            log.groups.first_offset_key,
            np.where((kinds == Kind.ABSENT) & (log.groups.touched != 0), Kind.SIMPLE, kinds),
            np.array([truth.member_count for truth in truths], np.int64),
            np.array([truth.epoch for truth in truths], np.int64),
            np.array([truth.assignment_epoch for truth in truths], np.int64),
            {group: truth for group, truth in enumerate(truths) if truth.members is not None},
            int(log.at[At.OFFSET]) - self.workload.first_offset,
            int(log.at[At.BATCHES]),
            segments.bytes,
            offsets_partition,
        )

    def _source(self) -> Source:
        workload = self.workload
        if not workload.group_batches:
            return Rewrites(workload, self.groups, self.topics, self.topic_ids, self.random)
        rebalances = Rebalances(
            [self._layout(group) for group in range(len(self.groups))],
            workload.are_consumer_groups(len(self.groups)).tolist(),
            most_members=workload.members,
            share=workload.group_batches,
            random=Random(int(self.random.integers(1 << 62))),
        )
        self.log.groups.commits[:] = 0
        self.log.groups.commits[rebalances.simple] = 1
        return rebalances

    def _layout(self, group: int) -> Layout:
        """Members share the partitions that the group commits."""
        offset_keys, first = self.log.offset_keys, int(self.log.groups.first_offset_key[group])
        places = int(self.log.groups.first_offset_key[group + 1]) - first
        count = min(places, self.workload.topics_per_group) or 1
        # A group without an offset key subscribes all the same.
        topics = offset_keys.topic[first : first + count].tolist() or [group % TOPICS]
        return Layout(
            self.groups[group],
            [self.topics[topic] for topic in topics],
            [self.topic_ids[topic] for topic in topics],
            places,
        )


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
        starts = joined(batches)[1]
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
