"""Tombstones of what has expired as the next segment of the log that is compacted, and the proof that they delete that
alone."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core import storage
from coordinator_core.fold.arrow import column
from coordinator_core.groups.model import ClassicGroup, Group
from coordinator_core.lifecycle.compact_proof import BLOCK_ROWS, ProofFailedError, the_first_of
from coordinator_core.lifecycle.expiring import sweep_columns
from coordinator_core.lifecycle.plan import TombstoneKind
from coordinator_core.log.reader import last_batch
from coordinator_core.log.types import PartitionLog, Record, SegmentFile
from coordinator_core.log.writer import BatchHeader, encode_batch, encode_message, encode_record
from coordinator_core.merge.schema import OFFSETS, MergedPartition, RowBlocks
from coordinator_core.releases import Profile

_RECORDS_A_BATCH = 1000
"""A sweep of the Java coordinator splits its records at ``max.message.bytes``; these stay well below."""


@dataclass(frozen=True)
class Removed:
    """A set of offset keys: how many, and the sum of their hashes, by which two sets are compared."""

    count: int = 0
    hashes: int = 0

    def __add__(self, other: Removed) -> Removed:
        return Removed(self.count + other.count, self.hashes + other.hashes)

    @classmethod
    def of(cls, group_ids: Iterable[str], topics: Iterable[str], partitions: Iterable[int]) -> Removed:
        hashes = [_hash(*offset_key) for offset_key in zip(group_ids, topics, partitions, strict=True)]
        return cls(len(hashes), sum(hashes))


def _hash(group_id: str, topic: str, partition: int) -> int:
    digest = hashlib.sha256(f"{len(group_id)} {group_id}{topic} {partition}".encode())
    return int.from_bytes(digest.digest()[:16], "big")


@dataclass(frozen=True)
class Expired:
    """Tombstones of one sweep: the ``segment`` that has them, ``None`` where there are none.

    They are so many ``batches`` and ``records``, and delete ``offsets`` and ``groups``; ``sha256`` is the digest of the
    plan (``ExpiryPlan.digest``), ``failure`` why the sweep fails, if it does.
    """

    offsets_partition: int
    segment: SegmentFile | None
    batches: int
    records: int
    offsets: Removed
    groups: frozenset[str]
    sha256: str
    failure: str | None = None

    def added_to(self, log: PartitionLog) -> PartitionLog:
        """``log`` with the segment behind its end."""
        if self.segment is None:
            return log
        # A segment without a batch would have the same name as this one.
        before = tuple(item for item in log.segments if item.base_offset != self.segment.base_offset)
        return replace(log, segments=(*before, self.segment))


def write_tombstones(
    log: PartitionLog, merged: MergedPartition, profile: Profile, *, now_ms: int, offsets_retention_ms: int, path: str
) -> Expired:
    """Sweep the state of ``log`` and write the tombstones that are due to a segment file at ``path``, a path or URI."""
    state = merged.without_offsets()
    swept = sweep_columns(merged, state, profile, now_ms=now_ms, offsets_retention_ms=offsets_retention_ms)
    digest = hashlib.sha256()
    offsets, groups = Removed(), set()
    with storage.output_file(path) as file:
        writer = _Tombstones.behind(log, now_ms, file)
        for places in swept.places():
            due = swept.tombstones(places[swept.is_due(places)])
            for key in due.digested_keys().to_pylist():
                digest.update(key)
                writer.write(key[4:])
            group_ids, topics = due.names_of_offsets
            offsets += Removed.of(group_ids.to_pylist(), topics.to_pylist(), due.partition.tolist())
            groups |= {one.group_id for one in due.others if one.kind is TombstoneKind.GROUP}
        writer.flush()
        size = file.tell()
    segment = SegmentFile(path, log.offsets_partition, writer.base_offset, size) if size else None
    return Expired(
        log.offsets_partition,
        segment,
        writer.batches,
        writer.next_offset - writer.base_offset,
        offsets,
        frozenset(groups),
        digest.hexdigest(),
        swept.failure,
    )


@dataclass
class _Tombstones:
    """Tombstones behind the end of a log, as its last batch was written: by its leader epoch, and in its message format
    if that is an old one. As the coordinator's own they have no producer."""

    base_offset: int
    magic: int
    leader_epoch: int
    now_ms: int
    file: IO[bytes]
    next_offset: int
    batches: int = 0
    keys: list[bytes] = field(default_factory=list)

    @classmethod
    def behind(cls, log: PartitionLog, now_ms: int, file: IO[bytes]) -> _Tombstones:
        base_offset = max(segment.base_offset for segment in log.segments)
        last = last_batch(log)
        if last is None:
            return cls(base_offset, 2, -1, now_ms, file, base_offset)
        base_offset = max(base_offset, last.next_offset)
        return cls(base_offset, last.magic, last.partition_leader_epoch, now_ms, file, base_offset)

    def write(self, key: bytes) -> None:
        self.keys.append(key)
        if len(self.keys) == _RECORDS_A_BATCH:
            self.flush()

    def flush(self) -> None:
        base = self.next_offset
        records = [Record(base + index, self.now_ms, key, None) for index, key in enumerate(self.keys)]
        self.next_offset += len(records)
        self.keys.clear()
        if self.magic < 2:
            self.batches += len(records)
            self.file.write(b"".join(encode_message(record, self.magic) for record in records))
        elif records:
            self.batches += 1
            section = b"".join(
                encode_record(record, base_offset=base, base_timestamp_ms=self.now_ms) for record in records
            )
            header = BatchHeader(
                base,
                records[-1].offset,
                base_timestamp_ms=self.now_ms,
                max_timestamp_ms=self.now_ms,
                partition_leader_epoch=self.leader_epoch,
            )
            self.file.write(encode_batch(header, section, len(records)))


@dataclass(frozen=True)
class OffsetsLeft:
    """Committed offsets before and after the tombstones: which were ``removed``, and the ``groups`` of those that stay.
    ``wrong``: offsets that are new or another."""

    removed: Removed
    groups: frozenset[str]
    wrong: tuple[str, ...]

    @classmethod
    def of(cls, before: RowBlocks, after: RowBlocks) -> OffsetsLeft:
        """Of rows of some offset keys."""
        removed, groups, wrong = Removed(), set[str](), list[str]()
        for old, new in _alike(before, after):
            groups.update(pc.unique(new["group_id"]).to_pylist())
            is_kept = np.isin(old["record_offset"].to_numpy(), new["record_offset"].to_numpy())
            if old.filter(column(is_kept)).equals(new):
                gone = old.filter(column(~is_kept))
            else:
                gone, changed = _by_key(old, new)
                wrong += changed
            removed += Removed.of(
                gone["group_id"].to_pylist(), gone["topic"].to_pylist(), gone["partition"].to_pylist()
            )
        return cls(removed, frozenset(groups), tuple(wrong))


def _alike(before: RowBlocks, after: RowBlocks) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Rows of both with the same record offsets, which are in order; some at a time."""
    left, right = (_Reading(rows.blocks(BLOCK_ROWS)) for rows in (before, after))
    while left.has_more() or right.has_more():
        ends = [side.last_offset for side in (left, right) if side.has_more()]
        bound = min(ends)
        yield left.up_to(bound), right.up_to(bound)


class _Reading:
    """Rows, taken by record offset."""

    def __init__(self, blocks: Iterator[pa.Table]) -> None:
        self._blocks = blocks
        self._held = OFFSETS.empty_table()

    def has_more(self) -> bool:
        while not self._held.num_rows:
            block = next(self._blocks, None)
            if block is None:
                return False
            self._held = block
        return True

    @property
    def last_offset(self) -> int:
        found: int = self._held["record_offset"][-1].as_py()
        return found

    def up_to(self, bound: int) -> pa.Table:
        """The next rows with record offsets up to ``bound``, of which others may be in the next block."""
        taken = [OFFSETS.empty_table()]
        while self.has_more():
            rows = int(np.searchsorted(self._held["record_offset"].to_numpy(), bound, "right"))
            if not rows:
                break
            taken.append(self._held.slice(0, rows))
            self._held = self._held.slice(rows)
        return pa.concat_tables(taken).combine_chunks()


def _by_key(old: pa.Table, new: pa.Table) -> tuple[pa.Table, list[str]]:
    """Rows of ``old`` whose keys ``new`` has not, and the keys of rows that are new or another."""

    def by_key(table: pa.Table) -> dict[tuple[str, str, int], dict[str, Any]]:
        return {(row["group_id"], row["topic"], row["partition"]): row for row in table.to_pylist()}

    left, right = by_key(old), by_key(new)
    gone = [row for key, row in left.items() if key not in right]
    changed = [f"offset of {key}" for key, row in right.items() if left.get(key) != row]
    return pa.Table.from_pylist(gone, schema=OFFSETS), changed


def groups_changed(
    before: Mapping[str, Group], after: Mapping[str, Group], deleted: Collection[str], with_offsets: Collection[str]
) -> list[str]:
    """Groups that are not as they would be if the ``deleted`` ones went alone; ``with_offsets`` keep an offset."""
    wrong = []
    for group_id, group in before.items():
        offsets_only = isinstance(group, ClassicGroup) and group.record_offset is None
        if group_id in deleted:
            expected = None
        elif offsets_only and group_id not in with_offsets:
            continue  # Whether it is still there depends on the loader, and means nothing.
        else:
            expected = group
        if after.get(group_id) != expected:
            wrong.append(f"group {group_id!r}")
    return wrong + [f"group {group_id!r}" for group_id in after.keys() - before.keys()]


def prove_expired(expired: Expired, left: Sequence[OffsetsLeft], wrong: Sequence[str]) -> None:
    """Check that the tombstones delete the offsets that they are for, ``left`` being what all offset keys say, and that
    nothing is ``wrong`` besides; raises :class:`ProofFailedError`."""
    removed = sum((part.removed for part in left), Removed())
    found = [*wrong, *(one for part in left for one in part.wrong)]
    if removed != expired.offsets:
        found.append(f"{removed.count} offsets are deleted, not the {expired.offsets.count} that expire")
    if found:
        raise ProofFailedError(
            f"offsets partition {expired.offsets_partition}: the tombstones change more than the plan: "
            f"{the_first_of(sorted(found))}"
        )
