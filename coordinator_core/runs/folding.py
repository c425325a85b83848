"""The first half of a replay, cut into tasks that can run anywhere: segments to folds.

A task is one segment; under :attr:`OnDamage.RECOVER`, where what a broker keeps of a segment depends on those
before it, one partition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coordinator_core import storage
from coordinator_core.errors import Damage
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog, SegmentFile, Snapshot
from coordinator_core.replay.fold import FoldRules, SegmentFold
from coordinator_core.runs.pin import Pin, check_fingerprint, check_size, segment_fingerprint


@dataclass(frozen=True)
class FoldTask:
    """Segments that are folded together, all of one partition, and their pinned fingerprints (or none)."""

    log: PartitionLog
    segments: tuple[SegmentFile, ...]
    end_offset: int | None
    pinned: Mapping[str, str]
    on_damage: OnDamage


@dataclass(frozen=True)
class SegmentResult:
    """What a task says of one segment; ``fold`` is ``None`` where nothing of it belongs to the log."""

    segment: SegmentFile
    fingerprint: str
    fold: SegmentFold | None
    damage: list[Damage] = field(default_factory=list)


def fold_tasks(source: Snapshot | Pin, on_damage: OnDamage) -> list[FoldTask]:
    """The tasks of a replay, in the order of partitions and segments."""
    snapshot = source.snapshot if isinstance(source, Pin) else source
    pinned = source.fingerprints if isinstance(source, Pin) else {}
    tasks = []
    for log in snapshot.partitions:
        if on_damage is OnDamage.RECOVER:
            tasks.append(FoldTask(log, log.segments, None, pinned, on_damage))
        else:
            tasks += [
                FoldTask(log, (segment,), end_offset, pinned, on_damage)
                for segment, end_offset in log.segment_ranges()
            ]
    return tasks


def run_fold_task(task: FoldTask, rules: FoldRules) -> Iterator[SegmentResult]:
    """Fold the segments of a task, one result each.

    Raises :class:`DamagedInputError` for damage under ``FAIL``, and for a segment that changed since the pin.
    """
    # Loading the kernels takes time that reading a run need not.
    from coordinator_core.columnar.fold import fold_partition

    if task.on_damage is not OnDamage.RECOVER:
        for segment in task.segments:
            yield _folded(task, segment, rules)
        return
    fingerprints = {segment.path: _checked_fingerprint(task, segment) for segment in task.segments}
    damage: list[Damage] = []
    folds = {
        fold.path: fold
        for fold in fold_partition(task.log, rules=rules, on_damage=task.on_damage, damage=damage)
    }
    for segment in task.segments:
        yield SegmentResult(
            segment,
            fingerprints[segment.path],
            folds.get(segment.path),
            [found for found in damage if found.path == segment.path],
        )


def _checked_fingerprint(task: FoldTask, segment: SegmentFile) -> str:
    pinned = task.pinned.get(segment.path)
    if pinned is not None:
        check_size(segment)
    now = segment_fingerprint(segment)
    check_fingerprint(segment, now, pinned)
    return now


def _folded(task: FoldTask, segment: SegmentFile, rules: FoldRules) -> SegmentResult:
    """The result of one segment; without a fold when it lies wholly below the log start offset."""
    from coordinator_core.columnar.fingerprint import fingerprint
    from coordinator_core.columnar.fold import fold_segment

    pinned = task.pinned.get(segment.path)
    if pinned is not None:
        check_size(segment)
    data = storage.read(segment.path)[: segment.size]
    found = fingerprint(data)
    check_fingerprint(segment, found.digest, pinned)
    start_offset = task.log.log_start_offset or 0
    if task.end_offset is not None and task.end_offset <= start_offset:
        return SegmentResult(segment, found.digest, None)
    damage: list[Damage] = []
    fold = fold_segment(
        segment,
        rules=rules,
        on_damage=task.on_damage,
        damage=damage,
        start_offset=start_offset,
        end_offset=task.end_offset,
        check_crc=not found.intact,
        data=data,
    )
    return SegmentResult(segment, found.digest, fold, damage)
