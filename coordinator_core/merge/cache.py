"""States of partitions in the middle of their merge, kept beside the folds.

A log grows at its end: the run before it has merged most of the folds of a run. The state is kept that all folds but
the last gave (the last segment is the one that grows), unless one is kept that lacks few of them, and one every
:data:`_EVERY` folds. Its name is a digest of the names of these folds, in order, so it stands for exactly them.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable

import pyarrow as pa

from coordinator_core.fold.cache import CorruptEntryError, FoldCache, source_digest
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.fold.tasks import CacheUse, SegmentResult
from coordinator_core.merge.partition import PartitionMerge
from coordinator_core.merge.plain import read_plain, write_plain
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.merge.shards import combine_shards
from coordinator_core.releases import Profile

_EVERY = 64
_LEAST_FOLDS = 8
"""A state is not written and read faster than so many folds are merged."""
_MOST_OFFSET_KEYS = 1 << 20
_MOST_BYTES = 1 << 28
"""Writing a state takes a copy of it."""


class _State(PartitionMerge):
    """The merge of ``folds`` folds, of which ``unsaved`` are in no state that is kept."""

    folds = unsaved = 0

    def take(self, fold: SegmentFold) -> None:
        self.add(fold)
        self.folds += 1
        self.unsaved += 1

    @property
    def is_worth_keeping(self) -> bool:
        is_small = len(self._offset_keys) <= _MOST_OFFSET_KEYS and self._bytes <= _MOST_BYTES
        return self.unsaved >= _LEAST_FOLDS and is_small

    def write(self, sink: pa.NativeFile) -> None:
        self.unsaved = 0
        write_plain({"folds": self.folds, "merge": self.state()}, sink)

    def read(self, data: pa.Buffer) -> None:
        """Continue from the bytes that :meth:`write` wrote."""
        state = read_plain(data)
        self.load(state["merge"])
        self.folds = state["folds"]


def merge_with_cache(
    results: Iterable[SegmentResult],
    profile: Profile,
    offsets_partition: int,
    cache: FoldCache,
    kept: int,
    allowance: int | None = None,
) -> MergedPartition:
    """Like ``merge.partition.merge_columns`` of the folds, without folds that a kept state makes unnecessary.

    All results have a fold. The first ``kept`` of them are there already: before the wait for the others the
    state is read that stands for most of these.
    """
    return _CachedMerge(profile, offsets_partition, cache, allowance).merged(results, kept)


class _CachedMerge:
    def __init__(self, profile: Profile, offsets_partition: int, cache: FoldCache, allowance: int | None) -> None:
        self._allowance = allowance
        self._profile = profile
        self._offsets_partition = offsets_partition
        self._cache = cache
        self._state: _State | None = None
        self._found: pa.Buffer | None = None
        self._covered: list[tuple[SegmentFold, str | None]] = []
        self._waiting: deque[tuple[SegmentFold, str | None]] = deque()
        self._unsaved: str | None = None

    def merged(self, results: Iterable[SegmentResult], kept: int) -> MergedPartition:
        name: str | None = state_name(self._profile, self._offsets_partition)
        for number, result in enumerate(results, 1):
            assert result.fold is not None
            name = None if name is None or result.cache_key is None else _digest(name, result.cache_key)
            self._waiting.append((result.fold, name))
            is_cached = result.cache_use is CacheUse.HIT
            if number < kept:
                continue
            if number == kept:
                for folds in range(kept, 0, -1):
                    if self._look_for(folds):
                        break
            elif self._state is None and is_cached and len(self._waiting) <= 2 * _EVERY:
                self._look_for(len(self._waiting))
                continue
            self._take_all_but(1)
        self._take_all_but(1)
        self._save()
        return combine_shards([self._take_all_but(0).finish()])

    def _look_for(self, folds: int) -> bool:
        """Let the state that is kept of so many folds that wait, if there is one, stand for them."""
        name = self._waiting[folds - 1][1]
        try:
            found = None if name is None else self._cache.read(name)
        except CorruptEntryError:
            found = None
        if found is None:
            return False
        self._found = found
        for _ in range(folds):
            self._covered.append(self._waiting.popleft())
        return True

    def _take_all_but(self, rest: int) -> _State:
        if self._state is None:
            self._state = _State(self._profile, self._offsets_partition, self._allowance)
            if self._found is not None:
                try:
                    self._state.read(self._found)
                except ValueError:
                    # No state of a merge: the folds that it was to stand for are merged.
                    self._state = _State(self._profile, self._offsets_partition, self._allowance)
                    self._waiting.extendleft(reversed(self._covered))
                self._covered.clear()
            self._found = None
        while len(self._waiting) > rest:
            fold, self._unsaved = self._waiting.popleft()
            self._state.take(fold)
            if self._state.folds % _EVERY == 0:
                self._save()
        return self._state

    def _save(self) -> None:
        if self._unsaved is not None and self._state is not None and self._state.is_worth_keeping:
            self._cache.write(self._unsaved, self._state.write)
        self._unsaved = None


def state_name(profile: Profile, offsets_partition: int) -> str:
    """Digest of everything besides its folds on which the states of a partition depend: the same in every process."""
    # Not the profile's ``repr``: the order of a set of names in it changes from process to process.
    return _digest(source_digest(), profile.label, str(offsets_partition))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
