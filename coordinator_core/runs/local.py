"""The local engine: the replay on one machine, without Spark."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.cache import FoldCache
from coordinator_core.fold.pin import Pin, check_pin, snapshot_of
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.tasks import (
    FoldTask,
    Range,
    SegmentResult,
    fold_tasks,
    in_runs,
    kept_result,
    most_run_bytes,
    run_fold_task,
)
from coordinator_core.log.limits import standing_allowance, too_large
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.releases import Profile
from coordinator_core.runs.folding import Folding
from coordinator_core.runs.place import RunPlace, check_count, source_directories

if TYPE_CHECKING:
    import pyarrow as pa

    from coordinator_core.groups.model import PartitionState
    from coordinator_core.merge.packed import LongTexts
    from coordinator_core.merge.schema import MergedPartition, RowBlocks
    from coordinator_core.runs.manifest import PartitionFacts
    from coordinator_core.runs.publish import Manifest
    from coordinator_core.runs.tables import Tables

    _Merged = tuple[RowBlocks, Future[tuple[Tables, PartitionFacts]], pa.Table]

T = TypeVar("T")


def replay_snapshot(
    source: Snapshot | Pin,
    profile: Profile,
    *,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
    cache: FoldCache | None = None,
    whole_metadata: bool = True,
    long_texts: LongTexts | None = None,
) -> list[PartitionState]:
    """State of every offsets partition of ``source``, sorted by partition.

    ``whole_metadata`` and ``long_texts`` are those of :meth:`MergedPartition.to_state`.

    Under ``FAIL`` raises :class:`DamagedInputError` for the first damage in the order of partitions and
    segments; else appends all damage to ``damage``, in that order. Raises it too where names, group records and
    metadata of all partitions together are more than may stand of a log of this size.
    """

    def made(merged: MergedPartition) -> tuple[PartitionState, int]:
        known = 0 if long_texts is None else long_texts.bytes
        state = merged.to_state(whole_metadata=whole_metadata, long_texts=long_texts)
        texts = 0 if long_texts is None else long_texts.bytes - known
        return state, texts + sum(len(offset.metadata) for offset in state.offsets.values())

    return replay_each(source, profile, made, on_damage=on_damage, damage=damage, cache=cache)


def replay_each(
    source: Snapshot | Pin,
    profile: Profile,
    make: Callable[[MergedPartition], tuple[T, int]],
    *,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
    cache: FoldCache | None = None,
) -> list[T]:
    """What ``make`` makes of every offsets partition of ``source``, sorted by partition; it also tells the bytes of
    metadata that it keeps.

    Raises, and appends to ``damage``, as :func:`replay_snapshot` does.
    """
    damage += check_source(source, on_damage)
    logs = {log.offsets_partition: log for log in snapshot_of(source).partitions}
    allowance, held = standing_allowance(sum(log.size for log in logs.values())), 0
    found = []
    for merged, facts in merged_partitions(source, profile, on_damage=on_damage, cache=cache):
        one, metadata_bytes = make(merged)
        held += merged.record_bytes + metadata_bytes
        if held > allowance:
            raise _too_much_together(logs[merged.offsets_partition], allowance)
        found.append(one)
        damage += facts.damage
    return found


def _too_much_together(log: PartitionLog, allowance: int) -> DamagedInputError:
    what = f"what stands of the offsets partitions up to {log.offsets_partition} unpacks"
    return DamagedInputError(too_large(log.segments[0].path, what, allowance))


def merged_partitions(
    source: Snapshot | Pin, profile: Profile, *, on_damage: OnDamage = OnDamage.FAIL, cache: FoldCache | None = None
) -> Iterator[tuple[MergedPartition, PartitionFacts]]:
    """Merged state and facts of every offsets partition of ``source``, sorted by partition, a few in memory at a time.

    Raises as :func:`replay_snapshot` does; damage of the directories is :func:`check_source`'s matter.
    """
    with _Replay(source, profile, on_damage, cache) as replay:
        # Modules that merge are loaded while the first segments are folded.
        from coordinator_core.runs.merging import merge_results

        def merge(number: int, results: Iterator[SegmentResult], kept: int) -> tuple[MergedPartition, PartitionFacts]:
            merged, _, facts = merge_results(number, results, profile, **replay.given(number), kept=kept)
            return merged, facts

        yield from replay.merged(merge)


def replay_to_run(
    source: Snapshot | Pin,
    place: RunPlace,
    *,
    profile: Profile | None,
    now_ms: int,
    on_damage: OnDamage = OnDamage.FAIL,
    offsets_topic_num_partitions: int | None = None,
    cache: FoldCache | None = None,
) -> Manifest:
    """Replay ``source`` and publish the run; returns its manifest.

    ``profile`` is inferred from the records when it is ``None``.  Raises ``UsageError`` for a place that
    cannot be used, :class:`DamagedInputError` for damage under ``FAIL`` and for a pinned segment that
    changed; neither leaves anything behind.
    """
    began = perf_counter()
    snapshot = snapshot_of(source)
    check_count(snapshot, offsets_topic_num_partitions)
    check_source(source, on_damage)
    rules = profile or _inferred(snapshot)
    inferred = perf_counter()
    with _Replay(source, rules, on_damage, cache) as replay:
        # Modules that merge and publish are loaded while the first segments are folded.
        from coordinator_core.runs.manifest import ReplayFacts
        from coordinator_core.runs.merging import group_tables, merge_results
        from coordinator_core.runs.publish import RunWriter
        from coordinator_core.runs.schemas import SEGMENTS
        from coordinator_core.runs.tables import OffsetTable

        # Rows of groups need the interpreter lock, encoding of offsets does not: the teller makes and writes the ones
        # while the others are written.
        with RunWriter(place, sources=source_directories(snapshot)) as writer, ThreadPoolExecutor(1) as teller:

            def merge(number: int, results: Iterator[SegmentResult], kept: int) -> _Merged:
                merged, segments, facts = merge_results(number, results, rules, **replay.given(number), kept=kept)
                return OffsetTable(merged), teller.submit(group_tables, merged, facts, now_ms=now_ms), segments

            def write_groups(
                told: Future[tuple[Tables, PartitionFacts]], segments: pa.Table, is_last: bool
            ) -> PartitionFacts:
                # Told already: the teller takes one after the other.
                tables, facts = told.result()
                writer.write_tables({**tables, SEGMENTS.name: segments}, is_last=is_last)
                return facts

            partitions: list[PartitionFacts] = []
            written: deque[Future[PartitionFacts]] = deque()
            for number, (offsets, told, segments) in enumerate(replay.merged(merge), 1):
                is_last = number == replay.partitions
                if written:
                    partitions.append(written.popleft().result())
                written.append(teller.submit(write_groups, told, segments, is_last))
                writer.write_tables({"offsets": offsets}, is_last=is_last)
            partitions += [facts.result() for facts in written]
            replayed = perf_counter()
            replay_facts = ReplayFacts(
                snapshot=snapshot,
                partitions=partitions,
                profile=rules,
                profile_inferred=profile is None,
                now_ms=now_ms,
                on_damage=on_damage,
                engine="local",
                offsets_topic_num_partitions=offsets_topic_num_partitions,
            )
            steps = {"profile": inferred - began, "replay": replayed - inferred}
            return writer.commit(replay_facts.as_dict(), seconds=perf_counter() - began, steps=steps)


def _inferred(snapshot: Snapshot) -> Profile:
    # Modules that look at records take time to load, which a run with a given profile saves.
    from coordinator_core.fold.inference import infer_profile

    return infer_profile(snapshot.partitions)


def check_source(source: Snapshot | Pin, on_damage: OnDamage) -> Sequence[Damage]:
    """Damage of the directories themselves; under ``FAIL`` the first is raised.

    Raises :class:`DamagedInputError` too when a pinned file has become shorter or is gone.
    """
    if isinstance(source, Pin):
        check_pin(source)
    snapshot = snapshot_of(source)
    if snapshot.damage and on_damage is OnDamage.FAIL:
        raise DamagedInputError(snapshot.damage[0])
    return snapshot.damage


class _Replay:
    """Segments folded side by side, from the beginning on, and partitions merged as their folds come in.

    A context manager: with its end, all of that ends. ``cache`` is the one that is used, if any.
    """

    def __init__(self, source: Snapshot | Pin, profile: Profile, on_damage: OnDamage, cache: FoldCache | None):
        self._is_streamed = on_damage is OnDamage.RECOVER
        self.cache = None if self._is_streamed else cache
        self._rules = FoldRules.of(profile)
        self._sizes = {log.offsets_partition: log.size for log in snapshot_of(source).partitions}
        self._known: set[int] = set()
        self._workers = os.cpu_count() or 1
        self._tasks = fold_tasks(source, on_damage)
        if not self._is_streamed:
            self._tasks = in_runs(self._tasks, partial(most_run_bytes, rules=self._rules), self.cache)
        self._partitions = list(dict.fromkeys(task.log.offsets_partition for task in self._tasks))
        tasks = [] if self._is_streamed else self._tasks
        self._folding = Folding(tasks, self._kept, self._fold, self._workers)
        # A merge waits for folds, so it must not take a thread that folds.
        self._mergers = ThreadPoolExecutor(self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folding.stop()
        self._mergers.shutdown(cancel_futures=True)

    @property
    def partitions(self) -> int:
        """Number of offsets partitions with segments."""
        return len(self._partitions)

    def given(self, offsets_partition: int) -> dict[str, Any]:
        """Further arguments of :func:`merge_results`."""
        return {"cache": self.cache, "allowance": standing_allowance(self._sizes[offsets_partition])}

    def merged(self, merge: Callable[[int, Iterator[SegmentResult], int], T]) -> Iterator[T]:
        """Results of ``merge`` for each partition, in the order of the log.

        So the first damage is the one that is raised. ``merge`` is given the partition's number, the results,
        and how many of the first folds need not be waited for.
        """
        partitions = deque(self._partitions)
        merging: deque[Future[T]] = deque()
        while partitions or merging:
            while partitions and len(merging) <= self._workers:
                number = partitions.popleft()
                if self._is_streamed:
                    kept, results = 0, self._stream(number)
                else:
                    kept, results = self._folding.kept(number), self._folding.results(number)
                merging.append(self._mergers.submit(merge, number, results, kept))
            yield merging.popleft().result()

    def _kept(self, task: FoldTask) -> SegmentResult | FoldTask:
        if self.cache is None or len(task.ranges) > 1:
            return task
        found = kept_result(task, self._rules, self.cache)
        if isinstance(found, SegmentResult):
            self._known.add(task.log.offsets_partition)
            return found
        return replace(found, is_new=task.log.offsets_partition in self._known)

    def _fold(self, task: FoldTask, ranges: Iterable[Range]) -> Iterator[SegmentResult]:
        return run_fold_task(task, self._rules, self.cache, ranges)

    def _stream(self, offsets_partition: int) -> Iterator[SegmentResult]:
        """The results of a partition that is one task: they are made as they are asked for."""
        for task in self._tasks:
            if task.log.offsets_partition == offsets_partition:
                yield from run_fold_task(task, self._rules)
