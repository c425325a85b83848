"""Runs of segments folded by threads, which share the segments that are left."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from threading import Lock, Semaphore

from coordinator_core.fold.tasks import FoldTask, Range, SegmentResult, is_compressed

_LEAST_SPLIT, _LEAST_COMPRESSED_BYTES = 2, 1 << 25
"""Segments that are worth a fold of their own, which costs about as much as the bytes of one; bytes of one that is
compressed."""


class Run:
    """A task in the making. Segments are taken from its front, and by another thread from its end."""

    def __init__(self, task: FoldTask, ranges: Sequence[Range], rest: Run | None = None) -> None:
        self.task = task
        self.rest = rest
        """Tasks that were split off."""
        self.results: Future[Iterator[SegmentResult]] = Future()
        self._left = deque(ranges)
        self._current_bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._left)

    def __iter__(self) -> Iterator[Range]:
        while True:
            with self._lock:
                if not self._left:
                    return
                taken = self._left.popleft()
                self._current_bytes = taken[0].size
            yield taken

    def split(self) -> Run | None:
        """The second half, by bytes, of the segment at hand and those that nobody has taken; ``None`` where that is too
        little."""
        with self._lock:
            kept: deque[Range] = deque()
            ahead, behind = self._current_bytes, sum(segment.size for segment, _ in self._left)
            while self._left and ahead + self._left[0][0].size <= behind:
                kept.append(self._left.popleft())
                ahead += kept[-1][0].size
                behind -= kept[-1][0].size
            given, self._left = self._left, kept
            if len(given) < _LEAST_SPLIT and not (behind >= _LEAST_COMPRESSED_BYTES and is_compressed(given[0][0])):
                kept.extend(given)
                return None
            self.rest = Run(self.task, given, self.rest)
            return self.rest


class Folding:
    """Runs folded side by side, begun in their order; a bounded number ahead of the consumer of the results.

    A thread that finds none to begin takes a part of the work that another one has left. The value of ``kept`` for a
    task is its result, and takes no room: it is read when it is merged.
    """

    def __init__(
        self,
        tasks: Iterable[FoldTask],
        kept: Callable[[FoldTask], SegmentResult | FoldTask],
        fold: Callable[[FoldTask, Iterable[Range]], Iterator[SegmentResult]],
        workers: int,
    ):
        self._fold = fold
        self._room = Semaphore(2 * workers + 1)
        self._turn = Lock()
        self._over = False
        self._workers = workers
        self._unfinished: deque[Iterator[SegmentResult]] = deque()
        self._waiting: deque[Run] = deque()
        self._begun: list[Run] = []
        self._results: dict[int, deque[SegmentResult | Run]] = {}
        for task in tasks:
            found = kept(task)
            results = self._results.setdefault(task.log.offsets_partition, deque())
            if isinstance(found, SegmentResult):
                results.append(found)
            else:
                run = Run(found, found.ranges)
                self._waiting.append(run)
                results.append(run)
        self._threads = ThreadPoolExecutor(workers)
        if not self._waiting:
            return
        from coordinator_core.fold.segments import load_columns_behind

        try:
            load_columns_behind(self._start)
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        for _ in range(self._workers):
            self._threads.submit(self._work)
        # Each thread ends with its last fold, and its working tables with it: publication wants their memory.
        self._threads.shutdown(wait=False)

    def kept(self, offsets_partition: int) -> int:
        """Number of folds that ``kept`` gave before the first one that it lacked."""
        folds = 0
        for result in self._results[offsets_partition]:
            if isinstance(result, Run):
                break
            folds += result.fold is not None
        return folds

    def results(self, offsets_partition: int) -> Iterator[SegmentResult]:
        """Results of a partition's segments; each may be asked for once."""
        results = self._results[offsets_partition]
        while results:
            # Folds go one by one: those that were merged must not be held any longer.
            result = results.popleft()
            if isinstance(result, SegmentResult):
                yield result
            else:
                yield from result.results.result()
                if result.rest is not None:
                    results.appendleft(result.rest)
                self._room.release()

    def stop(self) -> None:
        """Stop: start no task, wait for running ones, cancel the futures of those not started."""
        self._over = True
        self._room.release()
        self._threads.shutdown(cancel_futures=True)
        for run in self._waiting:
            run.results.cancel()

    def _work(self) -> None:
        while self._fold_next():
            pass

    def _fold_next(self) -> bool:
        run = self._next()
        if run is None:
            return False
        try:
            results = self._fold(run.task, run)
            taken = []
            for result in islice(results, len(run.task.ranges)):
                taken.append(result)
                if not result.is_last:
                    break
            if taken and not taken[-1].is_last:
                # The rest is large: it is folded as it is merged.
                run.results.set_result(chain(taken, results))
            else:
                run.results.set_result(iter(taken))
                self._unfinished.append(results)
        except BaseException as error:
            run.results.set_exception(error)
        else:
            # Nobody waits for the rest: when no thread is free for the last folds, it comes after.
            if not 0 < len(self._waiting) < self._workers:
                self._finish()
        self._begun.remove(run)
        return True

    def _next(self) -> Run | None:
        # One after the other: a run that came in its turn later, but found room earlier, could take the last
        # room from the one that everybody waits for.
        with self._turn:
            self._room.acquire()
            run: Run | None = None
            if not self._over:
                run = self._waiting.popleft() if self._waiting else self._split()
            if run is None:
                self._room.release()
            else:
                self._begun.append(run)
            return run

    def _split(self) -> Run | None:
        longest = max(self._begun, key=len, default=None)
        return None if longest is None else longest.split()

    def _finish(self) -> None:
        with suppress(IndexError):
            while True:
                for _ in self._unfinished.popleft():
                    pass
