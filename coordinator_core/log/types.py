"""Types that the log package returns: records, batches, segment files, partition logs, snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property

from coordinator_core import storage
from coordinator_core.errors import Damage
from coordinator_core.log.layout import (
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LAST_OFFSET,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
)
from coordinator_core.log.layout import NO_PRODUCER_ID as NO_PRODUCER_ID

OFFSETS_TOPIC = "__consumer_offsets"


class Codec(IntEnum):
    """Compression codec, the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class ControlType(IntEnum):
    """Type of a control record (``org.apache.kafka.common.record.ControlRecordType``)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Record:
    """One record. ``timestamp_ms`` is -1 in message format 0; ``sequence`` is -1 when the batch has none.

    ``crc`` and ``crc_valid`` are those of the message itself in formats 0 and 1, else ``None``.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    sequence: int = -1
    crc: int | None = None
    crc_valid: bool | None = None


@dataclass(frozen=True)
class Batch:
    """One top-level log entry: a v2 record batch, or a message (plain or wrapper) of format 0 or 1.

    For formats 0 and 1 ``base_offset`` is the first inner offset when that is known without
    decompressing (a plain message), else equal to ``last_offset``; ``record_count`` is 1 for a plain
    message and ``None`` for a wrapper.  ``data`` is the whole entry, from the int64 offset on.
    """

    position: int
    data: memoryview
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    crc: int
    crc_valid: bool
    partition_leader_epoch: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int | None

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def codec_id(self) -> int:
        """The three codec bits; 5 to 7 are illegal and have no :class:`Codec`."""
        return self.attributes & CODEC_BITS

    @property
    def timestamp_type(self) -> str:
        """``CreateTime``, ``LogAppendTime`` or (format 0) ``NoTimestampType``."""
        if self.magic == 0:
            return "NoTimestampType"
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME_BIT else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return self.magic >= 2 and bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Delete horizon (KIP-534), in epoch milliseconds, when the cleaner set one."""
        if self.magic >= 2 and self.attributes & DELETE_HORIZON_BIT:
            return self.base_timestamp_ms
        return None

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return -1
        last = self.base_sequence + (self.last_offset - self.base_offset)
        return last if last <= 0x7FFFFFFF else last - 0x80000000

    @property
    def next_offset(self) -> int:
        """The offset behind the batch, an int64 as well."""
        return min(self.last_offset, LAST_OFFSET) + 1


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A ``.log`` file as it was found. ``path`` is a local path or a URI; ``size`` in bytes.

    ``modified_ns`` is when it was last written, as its file system says (``None``: it does not).
    """

    path: str
    offsets_partition: int
    base_offset: int
    size: int
    modified_ns: int | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The name of the file, wherever it lies."""
        return storage.split(self.path)[1]


@dataclass(frozen=True)
class PartitionLog:
    """The segments of one offsets partition, sorted by base offset, from one replica.

    ``log_start_offset`` comes from the log dir's checkpoint when there is one (``None`` otherwise; see
    :attr:`start_offset`).
    ``clean_shutdown``: the broker left its marker, which decides what a broker that
    starts on this directory would do about damage.  ``recovery_point`` is the checkpointed offset up to
    which the broker knows the log to be flushed: without the marker it verifies only segments that reach
    beyond it (``None``: all). ``cleaned_offset`` is the checkpointed offset up to which its log cleaner has cleaned
    (``None``: the broker does not say).
    """

    offsets_partition: int
    directory: str
    segments: tuple[SegmentFile, ...]
    log_start_offset: int | None
    clean_shutdown: bool
    broker_id: int | None = None
    recovery_point: int | None = None
    cleaned_offset: int | None = None

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def start_offset(self) -> int:
        """Where the log begins: at the later one of the checkpointed and the first base offset (``LogLoader``).

        A checkpoint of 0 is that of a capture, which names its first segment by the first batch that the cleaner has
        left. A broker keeps only offsets behind the first base offset.
        """
        if self.log_start_offset == 0:
            return 0
        return max(self.log_start_offset or 0, *(segment.base_offset for segment in self.segments[:1]), 0)

    def segment_ranges(self) -> Iterator[tuple[SegmentFile, int | None]]:
        """Each segment with the base offset of the next, which its offsets must not reach."""
        for index, segment in enumerate(self.segments):
            following = self.segments[index + 1 : index + 2]
            yield segment, following[0].base_offset if following else None

    def since(self, offset: int) -> PartitionLog:
        """The log from the segment on that ``offset`` is in."""
        kept = tuple(one for one, following in self.segment_ranges() if following is None or following > offset)
        return replace(self, segments=kept)


@dataclass(frozen=True)
class Snapshot:
    """Everything found under the paths the operator named.

    ``ignored`` lists files that a broker would not read, with the reason; ``damage`` what is wrong
    with the directory structure itself (missing segments, overlaps, names that lie);
    ``topic_names`` maps topic ids (22-character text) to names, as far as the directories contain them;
    ``cluster_id`` is that of the log dirs, ``None`` where none of them says it.
    """

    sources: tuple[str, ...]
    partitions: tuple[PartitionLog, ...]
    ignored: tuple[tuple[str, str], ...]
    damage: tuple[Damage, ...]
    topic_names: dict[str, str]
    cluster_id: str | None = None

    @cached_property
    def segments(self) -> tuple[SegmentFile, ...]:
        return tuple(segment for log in self.partitions for segment in log.segments)

    def only(self, partitions: Collection[int]) -> Snapshot:
        """The snapshot with these offsets partitions alone."""
        return replace(self, partitions=tuple(log for log in self.partitions if log.offsets_partition in partitions))
