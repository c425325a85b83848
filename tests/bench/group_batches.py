"""Group batches that wait to be written, and what is true once they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from tests.bench.filling import Bytes, Effect, Given, Int64s
from tests.bench.group_truth import ABSENT, GroupTruth

GIVEN_AT_ONCE = 256


class GroupBatch(NamedTuple):
    """A batch, or the keys of an ending (:class:`Given`), and the group once it is written."""

    raw: bytes
    group: int
    effect: Effect
    after: GroupTruth


class Source(Protocol):
    """Source of group batches. Every batch of the log, of whatever kind, takes a millisecond."""

    def first(self, now_ms: int) -> Iterable[GroupBatch]:
        """Batches that come before anything else."""

    def following(self, now_ms: int, waiting: int) -> GroupBatch:
        """The next one, before which ``waiting`` other group batches are to be written."""


class GroupBatches:
    """The batches of ``source`` in the order in which they are written."""

    def __init__(self, source: Source, groups: int, now_ms: int) -> None:
        self._source = source
        self._waiting = list(source.first(now_ms))
        self.first = len(self._waiting)
        """Count of batches that come before anything else."""
        self.truths = [ABSENT] * groups
        """By group, after the batches that have been written."""

    def give(self, written: int, now_ms: int) -> Given:
        """The next batches, after the first ``written`` of those given before have been written."""
        for batch in self._waiting[:written]:
            self.truths[batch.group] = batch.after
        del self._waiting[:written]
        while len(self._waiting) < GIVEN_AT_ONCE:
            self._waiting.append(self._source.following(now_ms, len(self._waiting)))
        batches = self._waiting[:GIVEN_AT_ONCE]
        return Given(
            *joined([batch.raw for batch in batches]),
            np.array([batch.group for batch in batches], np.int64),
            np.array([batch.effect for batch in batches], np.int64),
        )


def joined(parts: Sequence[bytes]) -> tuple[Bytes, Int64s]:
    """Bytes end to end, and their starts and the end of the last."""
    starts = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(np.int64)
    return np.frombuffer(b"".join(parts), np.uint8), starts
