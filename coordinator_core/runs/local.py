"""The local engine: the replay on one machine, without Spark."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Lock, Semaphore
from time import perf_counter
from typing import TypeVar

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.groups.hashing import DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS
from coordinator_core.groups.model import PartitionState
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.replay.fold import FoldRules
from coordinator_core.replay.profiles import Profile
from coordinator_core.runs.fold_cache import FoldCache
from coordinator_core.runs.folding import (
    FoldTask,
    SegmentResult,
    fold_tasks,
    in_runs,
    run_fold_task,
)
from coordinator_core.runs.manifest import PartitionFacts, ReplayFacts
from coordinator_core.runs.merging import merge_partition, merge_results
from coordinator_core.runs.pin import Pin, check_size
from coordinator_core.runs.publish import Manifest, RunPlace, RunWriter, source_directories

T = TypeVar("T")


def replay_snapshot(
    source: Snapshot | Pin,
    profile: Profile,
    *,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
    cache: FoldCache | None = None,
) -> list[PartitionState]:
    """State of every offsets partition of ``source``, sorted by partition.

    Under ``FAIL`` raises :class:`DamagedInputError` for the first damage in the order of partitions and
    segments; else appends what it found to ``damage``, in that order.
    """

    def merge(
        offsets_partition: int, results: Iterator[SegmentResult]
    ) -> tuple[PartitionState, PartitionFacts]:
        merged, _, facts = merge_results(offsets_partition, results, profile, cache=cache)
        return merged.to_state(), facts

    damage += check_source(source, on_damage)
    cache = None if on_damage is OnDamage.RECOVER else cache
    states = []
    for state, facts in _Replay(source, profile, on_damage, cache).merged(merge):
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
    cache: FoldCache | None = None,
) -> Manifest:
    """Replay ``source`` and publish the run; returns its manifest.

    ``profile`` is inferred from the records when it is ``None``.  Raises ``UsageError`` for a place that
    cannot be used, :class:`DamagedInputError` for damage under ``FAIL`` and for a pinned segment that
    changed; neither leaves anything behind.
    """
    # Loading the kernels takes time that reading a run need not.
    from coordinator_core.columnar.inference import infer_profile

    began = perf_counter()
    cache = None if on_damage is OnDamage.RECOVER else cache
    snapshot = source.snapshot if isinstance(source, Pin) else source
    check_source(source, on_damage)
    with RunWriter(place, sources=source_directories(snapshot)) as writer:
        rules = profile or infer_profile(snapshot.partitions)
        inferred = perf_counter()
        partitions = []
        for tables, facts in _Replay(source, rules, on_damage, cache).merged(
            lambda number, results: merge_partition(number, results, rules, now_ms=now_ms, cache=cache)
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


class _Folding:
    """Tasks folded side by side, in their order; some ahead of who takes the results, but not all."""

    def __init__(
        self, tasks: Iterable[FoldTask], fold: Callable[[FoldTask], Iterator[SegmentResult]], workers: int
    ):
        self._fold = fold
        self._room = Semaphore(2 * workers + 1)
        self._turn = Lock()
        self._over = False
        self._waiting: deque[tuple[FoldTask, Future[list[SegmentResult]]]] = deque()
        self._results: dict[int, deque[Future[list[SegmentResult]]]] = {}
        for task in tasks:
            future: Future[list[SegmentResult]] = Future()
            self._waiting.append((task, future))
            self._results.setdefault(task.log.offsets_partition, deque()).append(future)
        self._threads = ThreadPoolExecutor(workers)
        for _ in range(len(self._waiting)):
            self._threads.submit(self._fold_next)
        # Each thread ends with its last fold, and its working tables with it: publication wants their memory.
        self._threads.shutdown(wait=False)

    def results(self, offsets_partition: int) -> Iterator[SegmentResult]:
        """What was found in a partition; each result may be asked for once."""
        futures = self._results[offsets_partition]
        while futures:
            # What was merged must not be held any longer, so the futures go one by one.
            yield from futures.popleft().result()
            self._room.release()

    def stop(self) -> None:
        """Begin nothing any more, and wait for what has begun; who waits for a result is told."""
        self._over = True
        self._room.release()
        self._threads.shutdown(cancel_futures=True)
        for _, future in self._waiting:
            future.cancel()

    def _fold_next(self) -> None:
        # One after the other: a task that came in its turn later, but found room earlier, could take the last
        # room from the one that everybody waits for.
        with self._turn:
            self._room.acquire()
            if self._over:
                self._room.release()
                return
            task, future = self._waiting.popleft()
        try:
            results = self._fold(task)
            future.set_result(list(islice(results, len(task.ranges))))
        except BaseException as error:
            future.set_exception(error)
        else:
            # What is left to do nobody waits for.
            for _ in results:
                pass


class _Replay:
    """Segments folded side by side, and partitions merged as their folds come in."""

    def __init__(
        self, source: Snapshot | Pin, profile: Profile, on_damage: OnDamage, cache: FoldCache | None
    ):
        self._rules = FoldRules.of(profile)
        self._cache = cache
        self._workers = os.cpu_count() or 1
        self._is_streamed = on_damage is OnDamage.RECOVER
        self._tasks = fold_tasks(source, on_damage)
        if cache is None and not self._is_streamed:
            self._tasks = in_runs(self._tasks, self._workers)

    def merged(self, merge: Callable[[int, Iterator[SegmentResult]], T]) -> Iterator[T]:
        """What ``merge`` makes of each partition, in the order of the log.

        So the first damage is the one that is raised.
        """
        workers = self._workers
        partitions = deque(dict.fromkeys(task.log.offsets_partition for task in self._tasks))
        folding = _Folding([] if self._is_streamed else self._tasks, self._fold, workers)
        # A merge waits for folds, so it must not take a thread that folds.
        with ThreadPoolExecutor(workers) as mergers:
            try:
                merging: deque[Future[T]] = deque()
                while partitions or merging:
                    while partitions and len(merging) <= workers:
                        number = partitions.popleft()
                        results = self._stream(number) if self._is_streamed else folding.results(number)
                        merging.append(mergers.submit(merge, number, results))
                    yield merging.popleft().result()
            finally:
                folding.stop()
                mergers.shutdown(cancel_futures=True)

    def _fold(self, task: FoldTask) -> Iterator[SegmentResult]:
        return run_fold_task(task, self._rules, self._cache)

    def _stream(self, offsets_partition: int) -> Iterator[SegmentResult]:
        """The results of a partition that is one task: they are made as they are asked for."""
        for task in self._tasks:
            if task.log.offsets_partition == offsets_partition:
                yield from run_fold_task(task, self._rules)
