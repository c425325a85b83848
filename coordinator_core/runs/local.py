"""The local engine: the replay on one machine, without Spark."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.groups.hashing import DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS
from coordinator_core.groups.model import PartitionState
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.replay.fold import FoldRules
from coordinator_core.replay.inference import infer_profile
from coordinator_core.replay.profiles import Profile
from coordinator_core.runs.folding import FoldTask, SegmentResult, fold_tasks, run_fold_task
from coordinator_core.runs.manifest import PartitionFacts, ReplayFacts
from coordinator_core.runs.merging import merge_partition, merge_results
from coordinator_core.runs.pin import Pin, check_size
from coordinator_core.runs.publish import Manifest, RunPlace, RunWriter, source_directories

T = TypeVar("T")


def replay_snapshot(
    source: Snapshot | Pin, profile: Profile, *, on_damage: OnDamage = OnDamage.FAIL, damage: list[Damage]
) -> list[PartitionState]:
    """State of every offsets partition of ``source``, sorted by partition.

    Under ``FAIL`` raises :class:`DamagedInputError` for the first damage in the order of partitions and
    segments; else appends what it found to ``damage``, in that order.
    """

    def merge(
        offsets_partition: int, results: Iterator[SegmentResult]
    ) -> tuple[PartitionState, PartitionFacts]:
        merged, _, facts = merge_results(offsets_partition, results, profile)
        return merged.to_state(), facts

    damage += check_source(source, on_damage)
    states = []
    for state, facts in _replayed(source, profile, on_damage, merge):
        states.append(state)
        damage += facts.damage
    return states


def replay_to_run(
    source: Snapshot | Pin,
    place: RunPlace,
    *,
    profile: Profile | None,
    now_ms: int,
    on_damage: OnDamage = OnDamage.FAIL,
    offsets_topic_num_partitions: int = DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS,
) -> Manifest:
    """Replay ``source`` and publish the run; returns its manifest.

    ``profile`` is inferred from the records when it is ``None``.  Raises ``UsageError`` for a place that
    cannot be used, :class:`DamagedInputError` for damage under ``FAIL`` and for a pinned segment that
    changed; neither leaves anything behind.
    """
    began = perf_counter()
    snapshot = source.snapshot if isinstance(source, Pin) else source
    check_source(source, on_damage)
    with RunWriter(place, sources=source_directories(snapshot)) as writer:
        rules = profile or infer_profile(snapshot.partitions)
        inferred = perf_counter()
        partitions = []
        for tables, facts in _replayed(
            source,
            rules,
            on_damage,
            lambda number, results: merge_partition(number, results, rules, now_ms=now_ms),
        ):
            writer.write_tables(tables)
            partitions.append(facts)
        replayed = perf_counter()
        replay_facts = ReplayFacts(
            snapshot=snapshot,
            partitions=partitions,
            profile=rules,
            profile_inferred=profile is None,
            now_ms=now_ms,
            engine="local",
            offsets_topic_num_partitions=offsets_topic_num_partitions,
        )
        steps = {"profile": inferred - began, "replay": replayed - inferred}
        return writer.commit(replay_facts.as_dict(), seconds=perf_counter() - began, steps=steps)


def check_source(source: Snapshot | Pin, on_damage: OnDamage) -> Sequence[Damage]:
    """What is wrong with the directories themselves; under ``FAIL`` the first of it is raised.

    Raises :class:`DamagedInputError` too when a pinned file has become shorter or is gone.
    """
    if isinstance(source, Pin):
        for segment in source.snapshot.segments:
            check_size(segment)
    snapshot = source.snapshot if isinstance(source, Pin) else source
    if snapshot.damage and on_damage is OnDamage.FAIL:
        raise DamagedInputError(snapshot.damage[0])
    return snapshot.damage


def _emptied(items: deque[T]) -> Iterator[T]:
    while items:
        yield items.popleft()


def _replayed(
    source: Snapshot | Pin,
    profile: Profile,
    on_damage: OnDamage,
    merge: Callable[[int, Iterator[SegmentResult]], T],
) -> Iterator[T]:
    """What ``merge`` makes of each partition, in order.

    Segments are folded and partitions merged side by side, and handed out in the order of the log, so that
    the first damage is the one that is raised.
    """
    rules = FoldRules.of(profile)
    tasks = fold_tasks(source, on_damage)

    def fold(task: FoldTask) -> list[SegmentResult]:
        return list(run_fold_task(task, rules))

    def merged(offsets_partition: int, folds: deque[Future[list[SegmentResult]]]) -> T:
        # What was merged must not be held any longer, so the futures go one by one.
        return merge(offsets_partition, (result for future in _emptied(folds) for result in future.result()))

    workers = os.cpu_count() or 1
    # Merging waits for folds, so it must not take a thread that folds.
    with ThreadPoolExecutor(workers) as folders, ThreadPoolExecutor(1) as mergers:
        by_partition: dict[int, deque[Future[list[SegmentResult]]]] = {}
        for task in tasks:
            by_partition.setdefault(task.log.offsets_partition, deque()).append(folders.submit(fold, task))
        pending = deque(mergers.submit(merged, number, folds) for number, folds in by_partition.items())
        try:
            for future in _emptied(pending):
                yield future.result()
        finally:
            folders.shutdown(wait=True, cancel_futures=True)
            mergers.shutdown(wait=True, cancel_futures=True)
