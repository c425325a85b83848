"""The part of a partition that a broker's log cleaner could clean now, and the reason why no more.

Sources: ``LogCleanerManager.cleanableOffsets`` and ``calculateCleanableBytes``, ``LogToClean``. Like the
cleaner this counts whole segments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from coordinator_core import storage
from coordinator_core.groups.model import Transaction, TransactionOutcome
from coordinator_core.log.beside import parent_of
from coordinator_core.log.discovery import parse_checkpoint
from coordinator_core.log.types import PartitionLog, SegmentFile

CLEANER_CHECKPOINT_FILE = "cleaner-offset-checkpoint"
DEFAULT_MIN_CLEANABLE_DIRTY_RATIO = 0.5


class BlockerKind(StrEnum):
    """Why the cleaner leaves something in a log."""

    OPEN_TRANSACTION = "open_transaction"
    """An open transaction: nothing from its first record on is cleaned."""

    ACTIVE_SEGMENT = "active_segment"
    """The segment that is written to, which is never cleaned."""

    DIRTY_RATIO = "dirty_ratio"
    """The cleanable share of the bytes does not exceed ``min.cleanable.dirty.ratio``."""

    CHECKPOINT = "checkpoint"
    """The cleaner's checkpoint cannot be read or lies outside the log: it begins again at the log start."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """``held_bytes``: size of the segments that are held back. The other fields describe an open transaction."""

    kind: BlockerKind
    detail: str
    held_bytes: int
    producer_id: int | None = None
    first_record_offset: int | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Cleanable:
    """The cleaner's view. ``first_dirty_offset`` is the log start where it has left no valid checkpoint."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    blockers: tuple[Blocker, ...]

    @property
    def dirty_ratio(self) -> float:
        return _ratio(self.clean_bytes, self.cleanable_bytes)


def cleanable(
    log: PartitionLog,
    transactions: Sequence[Transaction],
    *,
    last_stable_offset: int,
    log_end_offset: int,
    now_ms: int,
    min_cleanable_dirty_ratio: float = DEFAULT_MIN_CLEANABLE_DIRTY_RATIO,
) -> Cleanable:
    """This log as the cleaner of the broker that leads it would see it.

    ``transactions`` are those seen in the log. The cleaner's checkpoint is read from the log directory.
    """
    segments = log.segments
    log_start_offset = log.log_start_offset or (segments[0].base_offset if segments else 0)
    checkpoint, complaint = _checkpoint(log)
    if checkpoint is not None and not log_start_offset <= checkpoint <= log_end_offset:
        complaint = f"says {checkpoint}, while the log reaches from {log_start_offset} to {log_end_offset}"
    first_dirty = log_start_offset if checkpoint is None or complaint else checkpoint
    first_uncleanable = _segment_of(segments, last_stable_offset)
    clean_bytes = sum(segment.size for segment in segments if segment.base_offset < first_dirty)
    cleanable_bytes = _bytes_between(segments, min(first_dirty, first_uncleanable), first_uncleanable)
    blockers = [] if complaint is None else [Blocker(BlockerKind.CHECKPOINT, complaint, 0)]
    blockers += [
        _of_transaction(transaction, segments, now_ms)
        for transaction in sorted(transactions, key=lambda item: item.first_record_offset)
        if transaction.outcome is TransactionOutcome.OPEN
    ]
    if segments:
        active = segments[-1]
        blockers.append(Blocker(BlockerKind.ACTIVE_SEGMENT, f"segment {active.base_offset} is active", active.size))
    ratio = _ratio(clean_bytes, cleanable_bytes)
    if 0 < ratio <= min_cleanable_dirty_ratio:
        detail = f"{ratio:.3f} does not exceed {min_cleanable_dirty_ratio:g}"
        blockers.append(Blocker(BlockerKind.DIRTY_RATIO, detail, cleanable_bytes))
    return Cleanable(first_dirty, first_uncleanable, clean_bytes, cleanable_bytes, tuple(blockers))


def _checkpoint(log: PartitionLog) -> tuple[int | None, str | None]:
    """The partition's entry, if there is one, and errors of the file."""
    path = storage.join(parent_of(log.directory), CLEANER_CHECKPOINT_FILE)
    if not storage.exists(path):
        return None, None
    try:
        entries = parse_checkpoint(bytes(storage.read(path)).decode("utf-8", "replace"))
    except ValueError as error:
        return None, f"cannot be read: {error}"
    return entries.get(log.offsets_partition), None


def _of_transaction(transaction: Transaction, segments: Sequence[SegmentFile], now_ms: int) -> Blocker:
    first = transaction.first_record_offset
    groups = ", ".join(repr(group_id) for group_id in transaction.groups)
    producer = f"producer {transaction.producer_id} epoch {transaction.producer_epoch}"
    return Blocker(
        BlockerKind.OPEN_TRANSACTION,
        f"{producer} since record offset {first}: {groups}",
        sum(segment.size for segment in segments if segment.base_offset >= _segment_of(segments, first)),
        transaction.producer_id,
        first,
        now_ms - transaction.timestamp_ms,
    )


def _segment_of(segments: Sequence[SegmentFile], offset: int) -> int:
    """Base offset of the segment that holds ``offset``; of the last one for the log end."""
    return max((segment.base_offset for segment in segments if segment.base_offset <= offset), default=offset)


def _bytes_between(segments: Sequence[SegmentFile], start: int, stop: int) -> int:
    """Bytes of the segments from the one that holds ``start`` to before ``stop`` (``LogSegments.values``)."""
    first = _segment_of(segments, start)
    return sum(segment.size for segment in segments if first <= segment.base_offset < stop)


def _ratio(clean_bytes: int, cleanable_bytes: int) -> float:
    total = clean_bytes + cleanable_bytes
    return cleanable_bytes / total if total else 0.0
