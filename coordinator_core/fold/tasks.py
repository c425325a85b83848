"""The first half of a replay, cut into tasks that can run anywhere: segments to folds.

A task is one segment; under :attr:`OnDamage.RECOVER`, where the part of a segment that a broker keeps depends on those
before it, one partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.fold.cache import CorruptEntryError, Digests, FoldCache
from coordinator_core.fold.pin import Pin, check_fingerprint, check_segment, segment_fingerprint, snapshot_of
from coordinator_core.fold.rules import FoldRules
from coordinator_core.log.layout import CODEC_BITS, HEADER_BYTES, BatchField
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage, SegmentWalk, ends_before_start
from coordinator_core.log.types import PartitionLog, SegmentFile, Snapshot
from coordinator_core.log.windows import SegmentWindows, Windows, file_changed

if TYPE_CHECKING:
    from coordinator_core.fold.fingerprint import RunningFingerprint
    from coordinator_core.fold.schema import SegmentFold
    from coordinator_core.fold.segments import Piece

Range = tuple[SegmentFile, int | None]
"""A segment, and the offset that it must not reach."""

_MOST_RUN_BYTES, _SHORT_RUN_BYTES = 1 << 30, 1 << 28
"""Bound of a run: every segment of one that turns out to hold damage is folded again."""
_MANY_GROUP_RECORDS = 0.02
_DEFAULT_LIMITS = Limits()


class CacheUse(StrEnum):
    """Use of the fold cache for a segment."""

    NONE = "none"
    """It was not asked: there is none, or the segment is small, damaged, or read as a broker recovers it."""
    HIT = "hits"
    MISS = "misses"
    CORRUPT = "corrupt"
    """Its entry was damaged, and was made anew."""


@dataclass(frozen=True)
class FoldTask:
    """Segments that are folded together, all of one partition, each with the offset that it must not reach.

    ``log`` is the partition without its segments, so that the size of a task follows its own segments. ``pinned`` are
    their pinned fingerprints by path, as far as they are known; ``None``: nothing is pinned. ``cache_use`` is the use
    of a fold cache so far; ``is_new`` says that the cache knows files of the partition, but not this one.
    """

    log: PartitionLog
    ranges: tuple[Range, ...]
    pinned: Mapping[str, str] | None
    on_damage: OnDamage
    cache_use: CacheUse = CacheUse.MISS
    is_new: bool = False

    @property
    def segments(self) -> tuple[SegmentFile, ...]:
        return tuple(segment for segment, _ in self.ranges)

    @property
    def start_offset(self) -> int:
        """The log start offset: batches wholly below it are not part of the log."""
        return self.log.log_start_offset or 0

    @property
    def size(self) -> int:
        """Size of the segments in bytes."""
        return sum(segment.size for segment, _ in self.ranges)

    def fingerprint_of(self, segment: SegmentFile) -> str | None:
        """The pinned fingerprint, if there is one."""
        return None if self.pinned is None else self.pinned.get(segment.path)


@dataclass(frozen=True)
class SegmentResult:
    """Result of a task for one segment; ``fold`` is ``None`` where nothing of the segment belongs to the log."""

    segment: SegmentFile
    fingerprint: str
    fold: SegmentFold | None
    """Fold of the part of the segment that its earlier results leave."""
    damage: list[Damage] = field(default_factory=list)
    cache_use: CacheUse = CacheUse.NONE
    cache_key: str | None = None
    """Name of the fold in the cache, when it can be kept there."""
    is_last: bool = True
    """Another one of the same segment follows, and tells fingerprint and damage, where this is not the last one."""


def fold_tasks(source: Snapshot | Pin, on_damage: OnDamage) -> list[FoldTask]:
    """The tasks of a replay, in the order of partitions and segments."""
    snapshot = snapshot_of(source)
    known = source.fingerprints if isinstance(source, Pin) else {}
    tasks = []
    for log in snapshot.partitions:
        ranges = tuple(log.segment_ranges())
        head = replace(log, segments=())
        for part in [ranges] if on_damage is OnDamage.RECOVER else [(one,) for one in ranges]:
            pinned = {segment.path: known[segment.path] for segment, _ in part if segment.path in known}
            tasks.append(FoldTask(head, part, pinned if isinstance(source, Pin) else None, on_damage))
    return tasks


def packed(sizes: Sequence[int], limit: int) -> list[range]:
    """Runs of neighbours, each of at most ``limit`` bytes in all or of one item."""
    runs: list[range] = []
    first, total = 0, 0
    for index, size in enumerate(sizes):
        if index > first and total + size > limit:
            runs.append(range(first, index))
            first, total = index, 0
        total += size
    if first < len(sizes):
        runs.append(range(first, len(sizes)))
    return runs


def in_runs(
    tasks: Iterable[FoldTask],
    most_bytes: Callable[[Sequence[SegmentFile]], int],
    cache: FoldCache | None = None,
) -> list[FoldTask]:
    """Neighbours of a partition put together, so that an offset key takes its place once for many segments.

    ``most_bytes`` says how large a run may be in a partition of these segments. Files that are fetched whole stay
    alone; so do those of which nothing belongs to the log, and those whose folds the ``cache`` keeps.
    """

    def is_alone(task: FoldTask) -> bool:
        is_kept = cache is not None and any(map(cache.admits, task.segments))
        return is_kept or not storage.is_local(task.segments[0].path)

    runs: list[list[FoldTask]] = []
    for _, of_partition in groupby(tasks, key=lambda task: task.log.offsets_partition):
        members = [(task, is_alone(task)) for task in of_partition]
        joined = [segment for task, alone in members if not alone for segment in task.segments]
        most = most_bytes(joined) if joined else 0
        left = -1
        for task, alone in members:
            if alone or task.size > left:
                runs.append([])
                left = most
            runs[-1].append(task)
            # A run begins behind segments of which nothing belongs to the log.
            alone = alone or any(_is_empty(task, end_offset) for _, end_offset in task.ranges)
            left = -1 if alone else left - task.size
    return [_joined(run) for run in runs]


def _joined(run: Sequence[FoldTask]) -> FoldTask:
    """Neighbours of a partition as one task."""
    first = run[0]
    if len(run) == 1:
        return first
    pinned = {path: found for task in run for path, found in (task.pinned or {}).items()}
    ranges = tuple(one for task in run for one in task.ranges)
    return replace(first, ranges=ranges, pinned=None if first.pinned is None else pinned)


def most_run_bytes(segments: Sequence[SegmentFile], rules: FoldRules) -> int:
    """Bytes that a run may have in a partition of these segments.

    Group records are kept whole, and runs are merged in their order: where many are in the middle of the log, runs
    are so short that most of them are merged while others are folded.
    """
    if sum(segment.size for segment in segments) > _SHORT_RUN_BYTES:
        from coordinator_core.fold.segments import group_record_share

        if group_record_share(segments[len(segments) // 2], rules) > _MANY_GROUP_RECORDS:
            return _SHORT_RUN_BYTES
    return _MOST_RUN_BYTES


def is_compressed(segment: SegmentFile) -> bool:
    """Whether the first batch (v2) of a local segment is: folding it takes several times as long as its size says."""
    try:
        head = storage.read(segment.path, HEADER_BYTES)
    except UsageError:
        # The fold reports the error.
        return False
    return len(head) == HEADER_BYTES and head[BatchField.ATTRIBUTES + 1] & CODEC_BITS != 0


def kept_result(task: FoldTask, rules: FoldRules, cache: FoldCache) -> SegmentResult | FoldTask:
    """The result of a task of one segment, if the ``cache`` knows its file and has its fold; else the task.

    The file is not read for it.
    """
    [(segment, end_offset)] = task.ranges
    sighting = cache.seen(segment)
    digests = None if sighting is None else cache.digests(sighting)
    if digests is None or digests.fingerprint != (task.fingerprint_of(segment) or digests.fingerprint):
        # A segment that changed since the pin is reported in its turn.
        return task
    if _may_end_early(task, segment, end_offset):
        return task
    if _is_empty(task, end_offset):
        return SegmentResult(segment, digests.fingerprint, None)
    try:
        return _kept(task, segment, end_offset, digests, rules, cache) or task
    except CorruptEntryError:
        return replace(task, cache_use=CacheUse.CORRUPT)


def run_fold_task(
    task: FoldTask,
    rules: FoldRules,
    cache: FoldCache | None = None,
    ranges: Iterable[Range] | None = None,
    limits: Limits = _DEFAULT_LIMITS,
) -> Iterator[SegmentResult]:
    """Fold the segments of a task, or take their folds from the ``cache``; one result each, or several where
    a segment exceeds ``limits``; such a segment is not in the cache.

    To be taken to its end, as the cache gets missing folds last. ``ranges`` are the first segments of the task, where
    not all are to be folded here. Raises :class:`DamagedInputError` for damage under ``FAIL``, and for a segment that
    changed since the pin.
    """
    # Before anything is read, so that the change is told and not what it did; and again of what was read.
    for segment, end_offset in task.ranges:
        _check_pinned(task, segment, end_offset)
    ends = dict(task.ranges)
    has_batches = False
    for result in _results(task, rules, cache, iter(task.ranges if ranges is None else ranges), limits):
        end_offset = ends[result.segment]
        _check_pinned(task, result.segment, end_offset)
        if _may_end_early(task, result.segment, end_offset) and result.fold is not None:
            has_batches = has_batches or result.fold.next_offset is not None
            if result.is_last and not has_batches:
                yield replace(result, damage=[*result.damage, *_missing(task, result.segment)])
                continue
        yield result


def _may_end_early(task: FoldTask, segment: SegmentFile, end_offset: int | None) -> bool:
    """Whether a segment is the last of the log and begins before the log start offset (for ``RECOVER``
    ``log.reader.read_partition`` looks at that)."""
    return end_offset is None and segment.base_offset < task.start_offset and task.on_damage is not OnDamage.RECOVER


def _missing(task: FoldTask, segment: SegmentFile) -> Iterator[Damage]:
    """The damage, if any, of a log whose last segment has no batch from the log start offset on."""
    walk = SegmentWalk(segment, _DEFAULT_LIMITS, OnDamage.RECOVER, [], None, check_crc=False)
    for _ in walk.batches():
        pass
    wrong = ends_before_start(replace(task.log, segments=(segment,)), walk.expected)
    if wrong is None:
        return
    if task.on_damage is OnDamage.FAIL:
        raise DamagedInputError(wrong)
    yield wrong


def _check_pinned(task: FoldTask, segment: SegmentFile, end_offset: int | None) -> None:
    if task.pinned is not None:
        check_segment(segment, task.fingerprint_of(segment), is_active=end_offset is None)


def _results(
    task: FoldTask, rules: FoldRules, cache: FoldCache | None, ranges: Iterator[Range], limits: Limits
) -> Iterator[SegmentResult]:
    if task.on_damage is OnDamage.RECOVER:
        yield from _recovered(task, rules, limits)
        return
    if cache is not None and any(map(cache.admits, task.segments)):
        for segment, end_offset in ranges:
            if segment.size > limits.fold_bytes:
                yield from _folded(task, segment, end_offset, rules, limits=limits)
            else:
                yield from _cached(task, segment, end_offset, rules, cache)
        return
    read: list[Piece] = []
    if all(segment.size <= limits.fold_bytes for segment in task.segments):
        while (together := _folded_together(task, ranges, rules, read, limits)) is not None:
            yield from together
            read.clear()
    for piece in read:
        yield from _folded(task, piece.segment, piece.end_offset, rules, piece.running, limits)
    for segment, end_offset in ranges:
        yield from _folded(task, segment, end_offset, rules, limits=limits)


def _folded_together(
    task: FoldTask, ranges: Iterator[Range], rules: FoldRules, read: list[Piece], limits: Limits
) -> list[SegmentResult] | None:
    """The results of a run of ``ranges``; ``None`` when there is none, or when its segments, of which some were
    ``read``, must be looked at one by one."""
    # Loading the kernels takes time that reading a run need not.
    from coordinator_core.fold.fingerprint import RunningFingerprint
    from coordinator_core.fold.segments import Piece, fold_run

    def pieces() -> Iterator[Piece]:
        for segment, end_offset in ranges:
            windows = SegmentWindows(segment)
            read.append(Piece(segment, windows, end_offset, RunningFingerprint(windows)))
            yield read[-1]

    if _is_empty(task, task.ranges[0][1]):
        return None
    folds = fold_run(pieces(), rules=rules, limits=limits, start_offset=task.start_offset)
    if folds is None:
        return None
    results = []
    for piece, fold in zip(read, folds, strict=True):
        assert piece.running is not None
        digest = piece.running.finish().digest
        _check_same(piece.segment, piece.windows, digest, task.fingerprint_of(piece.segment))
        results.append(SegmentResult(piece.segment, digest, fold))
    return results


def _recovered(task: FoldTask, rules: FoldRules, limits: Limits) -> Iterator[SegmentResult]:
    """The results of a partition, each as soon as the next segment has begun."""
    # Loading the kernels takes time that reading a run need not.
    from coordinator_core.fold.fingerprint import fingerprint
    from coordinator_core.fold.segments import fold_partition

    damage: list[Damage] = []
    left = deque(task.segments)
    opened = deque(SegmentWindows(segment) for segment in task.segments)
    for windows in opened:
        windows.release()

    def result(fold: SegmentFold | None) -> SegmentResult:
        segment, windows = left.popleft(), opened.popleft()
        digest = fingerprint(windows).digest
        _check_same(segment, windows, digest, task.fingerprint_of(segment))
        return SegmentResult(segment, digest, fold, [found for found in damage if found.path == segment.path])

    last: SegmentFold | None = None
    log = replace(task.log, segments=task.segments)
    for fold in fold_partition(log, rules=rules, limits=limits, on_damage=task.on_damage, damage=damage):
        while left[0].path != fold.path:
            yield result(last)
            last = None
        if last is not None:
            yield SegmentResult(left[0], "", last, is_last=False)
        last = fold
    while left:
        yield result(last)
        last = None


def _is_empty(task: FoldTask, end_offset: int | None) -> bool:
    """Whether nothing of a segment belongs to the log."""
    return end_offset is not None and end_offset <= task.start_offset


def _cached(
    task: FoldTask, segment: SegmentFile, end_offset: int | None, rules: FoldRules, cache: FoldCache
) -> Iterator[SegmentResult]:
    """The result of a segment whose fold the ``cache`` has, or gets once the result is taken."""
    from coordinator_core.fold.fingerprint import RunningFingerprint

    # Noted before it is read, so that a write meanwhile shows.
    sighting = cache.seen(segment)
    digests = None if sighting is None else cache.digests(sighting)
    running = RunningFingerprint(SegmentWindows(segment), with_content=True) if digests is None else None
    if running is not None and running.windows.size != segment.size:
        yield from _folded(task, segment, end_offset, rules, running)
        return
    use = task.cache_use
    # A segment that nobody has folded is read once: its fingerprint is taken in the pass that folds.
    if running is None or not task.is_new:
        if running is not None:
            digests = _digests(running)
        assert digests is not None
        check_fingerprint(segment, digests.fingerprint, task.fingerprint_of(segment))
        if _is_empty(task, end_offset):
            yield SegmentResult(segment, digests.fingerprint, None)
            cache.note(sighting, digests)
            return
        try:
            kept = _kept(task, segment, end_offset, digests, rules, cache)
        except CorruptEntryError:
            kept, use = None, CacheUse.CORRUPT
        if kept is not None:
            yield kept
            cache.note(sighting, digests)
            return
    running = running or RunningFingerprint(SegmentWindows(segment), with_content=True)
    is_whole = True
    for result in _folded(task, segment, end_offset, rules, running):
        is_whole = is_whole and result.is_last
        if not is_whole:
            yield result
    if not is_whole:
        return
    found = _digests(running)
    key = cache.key(segment, found.content, rules, task.start_offset)
    if key is None or result.fold is None or result.damage or found != (digests or found):
        yield result
        return
    yield replace(result, cache_use=use, cache_key=key)
    cache.put(key, result.fold)
    cache.note(sighting, found)


def _digests(running: RunningFingerprint) -> Digests:
    """Digests of a fingerprint that has taken the content along."""
    found = running.finish()
    assert found.content is not None
    return Digests(found.digest, found.content)


def _kept(
    task: FoldTask,
    segment: SegmentFile,
    end_offset: int | None,
    digests: Digests,
    rules: FoldRules,
    cache: FoldCache,
) -> SegmentResult | None:
    """The result of a segment with these digests, if its fold is kept."""
    key = cache.key(segment, digests.content, rules, task.start_offset)
    fold = None if key is None else cache.get(key, segment, end_offset)
    if fold is None:
        return None
    return SegmentResult(segment, digests.fingerprint, fold, cache_use=CacheUse.HIT, cache_key=key)


def _folded(
    task: FoldTask,
    segment: SegmentFile,
    end_offset: int | None,
    rules: FoldRules,
    running: RunningFingerprint | None = None,
    limits: Limits = _DEFAULT_LIMITS,
) -> Iterator[SegmentResult]:
    """The results of a segment, whose fingerprint ``running`` takes: one, unless it has, or unpacks to, very much."""
    from coordinator_core.fold.fingerprint import RunningFingerprint
    from coordinator_core.fold.segments import fold_segment

    running = running or RunningFingerprint(SegmentWindows(segment))
    pinned = task.fingerprint_of(segment)
    is_empty = _is_empty(task, end_offset)
    if pinned is not None or is_empty:
        # Said before any damage that the change may have done.
        check_fingerprint(segment, running.finish().digest, pinned)
    damage: list[Damage] = []
    fold = None
    if not is_empty:
        for part in fold_segment(
            segment,
            rules=rules,
            limits=limits,
            on_damage=task.on_damage,
            damage=damage,
            start_offset=task.start_offset,
            end_offset=end_offset,
            running=running,
        ):
            if fold is not None:
                yield SegmentResult(segment, "", fold, is_last=False)
            fold = part
    digest = running.finish().digest
    _check_same(segment, running.windows, digest, pinned)
    yield SegmentResult(segment, digest, fold, damage)


def _check_same(segment: SegmentFile, windows: Windows, digest: str, pinned: str | None) -> None:
    """:class:`DamagedInputError` when the file differs from the pinned one, or changed while it was read.

    A segment that a broker writes to grows; its first bytes stay.
    """
    windows.release()
    check_fingerprint(segment, digest, pinned)
    if windows.has_changed():
        found = storage.stat(segment.path)
        size = 0 if found is None else found.size
        if found is None or size < windows.size or segment_fingerprint(segment) != digest:
            raise file_changed(segment.path, min(size, windows.size), "it was written to while it was read")
