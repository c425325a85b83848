"""Sizes in an offsets log: records by group, topic and client, and the size after compaction.

A record is *live* when the cleaner's rules would keep it, and all from the last stable offset on are; the rest is
dead. Sizes by group are those of records in their decompressed batches; sizes of partitions those of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from coordinator_core.groups.classic import consumer_assignment
from coordinator_core.groups.model import ClassicGroup, ConsumerGroup, Group, PartitionState, ShareGroup, StreamsGroup
from coordinator_core.kernels.arrays import Array
from coordinator_core.lifecycle.cleaning import DEFAULT_MIN_CLEANABLE_DIRTY_RATIO, Cleanable, cleanable
from coordinator_core.lifecycle.compact_plan import CompactionPlan, CompactionRules
from coordinator_core.lifecycle.compact_scan import KeyRows, scan_log
from coordinator_core.lifecycle.compact_write import write_survivors
from coordinator_core.lifecycle.record_sizes import key_sizes
from coordinator_core.log.types import PartitionLog
from coordinator_core.records.codec import RecordDecodeError, decode_key
from coordinator_core.releases import OFFSET_KEY_TYPES


@dataclass(slots=True)
class Total:
    """Records and bytes of something. Times are those of its first and last record, ``None`` without any.

    ``commits`` are records with a committed offset, tombstones not counted.
    """

    records: int = 0
    tombstones: int = 0
    commits: int = 0
    size_bytes: int = 0
    live_records: int = 0
    live_bytes: int = 0
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    is_timed: bool = True
    """Whether the first record of each key has a time: message format 0 has none."""

    @property
    def dead_records(self) -> int:
        return self.records - self.live_records

    @property
    def dead_bytes(self) -> int:
        return self.size_bytes - self.live_bytes

    @property
    def commits_per_second(self) -> float | None:
        """Mean rate from the first record to the last; ``None`` where that is no time, or not known."""
        if not self.is_timed or self.first_timestamp_ms is None or self.last_timestamp_ms is None:
            return None
        span_ms = self.last_timestamp_ms - self.first_timestamp_ms
        return None if span_ms <= 0 else (self.commits - 1) * 1000 / span_ms if self.commits > 1 else 0.0

    def add(self, row: Sequence[int], *, is_commit: bool) -> None:
        """Add a row of :class:`~coordinator_core.kernels.layout.RecordSizes`: the records of a key."""
        records, tombstones, size_bytes, live_records, live_bytes, first_ms, last_ms = row
        self.records += records
        self.tombstones += tombstones
        self.commits += records - tombstones if is_commit else 0
        self.size_bytes += size_bytes
        self.live_records += live_records
        self.live_bytes += live_bytes
        self.is_timed = self.is_timed and first_ms >= 0
        if first_ms >= 0:
            known = self.first_timestamp_ms
            self.first_timestamp_ms = first_ms if known is None else min(first_ms, known)
        if last_ms >= 0:
            self.last_timestamp_ms = max(last_ms, self.last_timestamp_ms or 0)


@dataclass(slots=True)
class Totals:
    """Records of one partition by (group), (group, topic), (group, client id) and record type.

    A client is the member that owns the topic's partition now, or that a member's own record is about;
    ``None`` stands for nobody. Keys that cannot be read have the group ``None``.
    """

    groups: dict[str | None, Total] = field(default_factory=dict)
    topics: dict[tuple[str, str], Total] = field(default_factory=dict)
    clients: dict[tuple[str, str | None], Total] = field(default_factory=dict)
    types: dict[int | None, Total] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of a log: bytes of its batches, number of batches, number of records with end markers."""

    size_bytes: int
    batches: int
    records: int


@dataclass(frozen=True)
class PartitionForensics:
    """One offsets partition.

    ``compacted`` is its size after compaction up to the last stable offset, ``cleaned`` the one after a pass of the
    broker's cleaner, which leaves the active segment alone.
    """

    offsets_partition: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    size: Size
    compacted: Size
    cleaned: Size
    cleaner: Cleanable
    totals: Totals


class _Nowhere:
    """A sink that only counts."""

    def write(self, data: memoryview, batches: Array) -> None:
        pass


def forensics(
    log: PartitionLog,
    state: PartitionState,
    *,
    rules: CompactionRules,
    topic_names: Mapping[str, str],
    min_cleanable_dirty_ratio: float = DEFAULT_MIN_CLEANABLE_DIRTY_RATIO,
    as_broker: bool = False,
) -> PartitionForensics:
    """Measure one partition; ``state`` is its replayed state, ``topic_names`` names topic ids.

    Raises :class:`DamagedInputError` as ``scan_log`` does, which ``as_broker`` is for.
    """
    scan = scan_log(log, as_broker=as_broker)
    plan = CompactionPlan.of(scan, rules)
    end_offset = plan.facts.last_stable_offset
    cleaner = cleanable(
        log,
        state.transactions,
        last_stable_offset=end_offset,
        log_end_offset=scan.log_end_offset,
        now_ms=rules.now_ms,
        min_cleanable_dirty_ratio=min_cleanable_dirty_ratio,
    )
    until = replace(rules, end_offset=cleaner.first_uncleanable_offset)
    return PartitionForensics(
        offsets_partition=log.offsets_partition,
        log_start_offset=scan.start_offset,
        log_end_offset=scan.log_end_offset,
        last_stable_offset=end_offset,
        size=Size(scan.bytes, scan.batches, scan.records),
        compacted=_size(plan),
        cleaned=_size(CompactionPlan.of(scan, until, plan.facts)),
        cleaner=cleaner,
        totals=_totals(key_sizes(scan, kept=plan.stays.offsets, end_offset=end_offset), state, topic_names),
    )


def _size(plan: CompactionPlan) -> Size:
    written = write_survivors(plan, _Nowhere())
    return Size(written.bytes, written.batches, written.records)


def _totals(keys: KeyRows, state: PartitionState, topic_names: Mapping[str, str]) -> Totals:
    totals = Totals()
    owners: dict[str, dict[tuple[str, int], str]] = {}
    for number, row in enumerate(keys.rows.tolist()):
        try:
            key = decode_key(keys.key(number))
        except RecordDecodeError:
            totals.types.setdefault(None, Total()).add(row, is_commit=False)
            totals.groups.setdefault(None, Total()).add(row, is_commit=False)
            continue
        is_commit = key.type in OFFSET_KEY_TYPES
        totals.types.setdefault(key.type, Total()).add(row, is_commit=is_commit)
        data = key.data or {}
        group_id = data.get("groupId", data.get("group"))
        totals.groups.setdefault(group_id, Total()).add(row, is_commit=is_commit)
        if group_id is None:
            continue
        group = state.groups.get(group_id)
        client: str | None = None
        if is_commit:
            topic = data["topic"]
            totals.topics.setdefault((group_id, topic), Total()).add(row, is_commit=True)
            if group_id not in owners:
                owners[group_id] = dict(_owners(group, topic_names))
            client = owners[group_id].get((topic, data["partition"]))
        elif "memberId" in data:
            client = _clients(group).get(data["memberId"])
        totals.clients.setdefault((group_id, client), Total()).add(row, is_commit=is_commit)
    return totals


def _clients(group: Group | None) -> dict[str, str]:
    """Client ids by member id, of groups whose members have records of their own."""
    if group is None or isinstance(group, ClassicGroup):
        return {}
    return {member_id: member.client_id for member_id, member in group.members.items()}


def _owners(group: Group | None, topic_names: Mapping[str, str]) -> Iterator[tuple[tuple[str, int], str]]:
    """Client ids of the owners of each partition of a topic, as far as the log names them."""
    match group:
        case ClassicGroup():
            for classic in group.members:
                for topic, partitions in consumer_assignment(classic) or ():
                    yield from (((topic, partition), classic.client_id) for partition in partitions)
        case ConsumerGroup() | ShareGroup():
            for member in group.members.values():
                for topic_id, numbers in member.assigned.items():
                    topic = topic_names.get(topic_id, topic_id)
                    yield from (((topic, partition), member.client_id) for partition in numbers)
        case StreamsGroup() | None:
            # Tasks name subtopologies; which partitions they read is not in the log.
            return
