"""Parts of a log that the broker's cleaner could clean: its own view of the corpus, and what blocks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.groups.model import Transaction, TransactionOutcome
from coordinator_core.lifecycle.cleaning import BlockerKind, Cleanable, cleanable
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import PartitionLog, SegmentFile
from tests.cases import case

NOW_MS = 10_000


def log_of(directory: Path, *sizes: int, start: int | None = None) -> PartitionLog:
    """Segments of these sizes, a hundred offsets each."""
    segments = tuple(SegmentFile(f"{number}.log", 3, 100 * number, size) for number, size in enumerate(sizes))
    return PartitionLog(3, str(directory / "__consumer_offsets-3"), segments, start, clean_shutdown=False)


def seen(log: PartitionLog, *transactions: Transaction, end: int = 250, **options: float) -> Cleanable:
    opened = [item.first_record_offset for item in transactions if item.outcome is TransactionOutcome.OPEN]
    return cleanable(
        log,
        transactions,
        last_stable_offset=min(opened, default=end),
        log_end_offset=end,
        now_ms=NOW_MS,
        **options,
    )


def checkpoint(directory: Path, text: str) -> None:
    (directory / "cleaner-offset-checkpoint").write_text(text, encoding="utf-8")


def transaction(first: int, outcome: TransactionOutcome = TransactionOutcome.OPEN) -> Transaction:
    return Transaction(7, 2, first, first + 5, outcome, None, ("g", "h"), 2, 4_000)


def kinds(found: Cleanable) -> list[BlockerKind]:
    return [blocker.kind for blocker in found.blockers]


def test_a_log_that_was_never_cleaned(tmp_path: Path) -> None:
    found = seen(log_of(tmp_path, 1_000, 2_000, 30))
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 200)
    assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (0, 3_000, 1.0)
    assert [(item.kind, item.held_bytes) for item in found.blockers] == [(BlockerKind.ACTIVE_SEGMENT, 30)]


@pytest.mark.parametrize("ratio, blocked", [(0.5, True), (2 / 3, True), (0.66, False), (0.1, False)])
def test_the_dirty_ratio_must_be_exceeded(tmp_path: Path, ratio: float, blocked: bool) -> None:
    checkpoint(tmp_path, "0\n1\n__consumer_offsets 3 100\n")
    dirty = 2_000 if ratio > 0.5 else 1_000
    found = seen(log_of(tmp_path, 1_000, dirty, 30), min_cleanable_dirty_ratio=ratio)
    assert (found.clean_bytes, found.cleanable_bytes) == (1_000, dirty)
    assert (BlockerKind.DIRTY_RATIO in kinds(found)) is (blocked if ratio >= 0.5 else False)


def test_an_open_transaction_holds_back_its_segment_and_those_behind(tmp_path: Path) -> None:
    ended = transaction(10, TransactionOutcome.COMMITTED)
    found = seen(log_of(tmp_path, 1_000, 2_000, 30), ended, transaction(220), transaction(150))
    assert found.first_uncleanable_offset == 100
    assert found.cleanable_bytes == 1_000
    assert [(item.kind, item.first_record_offset, item.held_bytes) for item in found.blockers] == [
        (BlockerKind.OPEN_TRANSACTION, 150, 2_030),
        (BlockerKind.OPEN_TRANSACTION, 220, 30),
        (BlockerKind.ACTIVE_SEGMENT, None, 30),
    ]
    assert (found.blockers[0].producer_id, found.blockers[0].age_ms) == (7, 6_000)
    assert found.blockers[0].detail == "producer 7 epoch 2 since record offset 150: 'g', 'h'"


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("0\n1\n__consumer_offsets 3 251\n", "says 251, while the log reaches from 50 to 250"),
        ("0\n1\n__consumer_offsets 3 49\n", "says 49, while the log reaches from 50 to 250"),
        ("1\n", "cannot be read: "),
    ],
)
def test_a_checkpoint_that_cannot_be_used(tmp_path: Path, text: str, complaint: str) -> None:
    checkpoint(tmp_path, text)
    found = seen(log_of(tmp_path, 1_000, 2_000, 30, start=50))
    assert found.first_dirty_offset == 50
    assert found.blockers[0].kind is BlockerKind.CHECKPOINT
    assert found.blockers[0].detail.startswith(complaint)


def test_nothing_is_left_to_clean(tmp_path: Path) -> None:
    assert seen(log_of(tmp_path), end=0).blockers == ()
    checkpoint(tmp_path, "0\n1\n__consumer_offsets 3 200\n")
    found = seen(log_of(tmp_path, 1_000, 2_000, 30))
    assert (found.clean_bytes, found.cleanable_bytes, found.dirty_ratio) == (3_000, 0, 0.0)
    assert kinds(found) == [BlockerKind.ACTIVE_SEGMENT]


@pytest.mark.parametrize(
    "name, partition, expected",
    [
        ("A-uncleaned", 0, (0, 13245, 0, 1068131)),
        ("A-uncleaned", 1, (0, 6619, 0, 532831)),
        ("B-cleaned-default", 0, (13245, 13245, 30558, 0)),
        ("B-cleaned-default", 1, (6619, 6619, 28800, 0)),
    ],
)
def test_the_cleaner_stopped_where_this_says(name: str, partition: int, expected: tuple[int, int, int, int]) -> None:
    """The cleaner cleaned A exactly up to the first uncleanable offset: that is its checkpoint in B."""
    snapshot = discover([str(case(f"k431-compacted/{name}").paths[0])])
    stable = {0: 14445, 1: 7539}[partition]
    log = next(item for item in snapshot.partitions if item.offsets_partition == partition)
    found = cleanable(log, (), last_stable_offset=stable, log_end_offset=14445, now_ms=NOW_MS)
    assert (
        found.first_dirty_offset,
        found.first_uncleanable_offset,
        found.clean_bytes,
        found.cleanable_bytes,
    ) == expected
