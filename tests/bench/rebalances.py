"""Groups that rebalance at the same time, and the batches that this makes, one a request, in log order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from random import Random

from tests.bench.filling import Effect
from tests.bench.group_batches import GroupBatch
from tests.bench.group_bytes import Layout, batch, joined_keys
from tests.bench.simulated import SimulatedGroup, Step
from tests.bench.simulated_classic import SimulatedClassicGroup
from tests.bench.simulated_consumer import SimulatedConsumerGroup

SIMPLE = 0.02
"""Share of groups that have committed before they have a member; half of them never get one."""


class Rebalances:
    """Requests of all groups of an offsets partition. ``share`` of its batches are made here.

    A group whose next request is due comes first; when none is, another group begins to rebalance. So as many
    rebalance at the same time as it takes to fill the share. Groups have a clock of their own: where they are
    too few for the share, it runs ahead of the log's.
    """

    def __init__(
        self,
        layouts: Sequence[Layout],
        is_consumer: Sequence[bool],
        *,
        most_members: int,
        share: float,
        random: Random,
    ) -> None:
        self._random = random
        self._share = share
        self.simple: list[int] = []
        """Groups that commit from the start."""
        self._groups: list[SimulatedGroup] = []
        self._idle: list[int] = []
        self._new: list[int] = []
        for group, layout in enumerate(layouts):
            is_simple = random.random() < SIMPLE
            make = SimulatedConsumerGroup if is_consumer[group] else SimulatedClassicGroup
            self._groups.append(make(layout, most_members, random, is_simple=is_simple))
            if not is_simple:
                self._new.append(group)
                continue
            self.simple.append(group)
            if random.random() < 0.5:
                self._idle.append(group)
        self._clock_ms = 0
        self._due: list[tuple[int, int]] = []
        """Heap of (time, group), of the groups that rebalance."""
        self._running: dict[int, Iterator[Step]] = {}

    def first(self, now_ms: int) -> Iterator[GroupBatch]:
        """The first request of every group that is not simple, a millisecond each."""
        for group in self._new:
            self._begin(group)
            self._clock_ms = now_ms
            made = self._step(group, now_ms)
            assert made is not None
            yield made
            now_ms += 1

    def following(self, now_ms: int, waiting: int) -> GroupBatch:
        """The next batch, before which ``waiting`` others are to be written; a batch takes a millisecond."""
        now_ms += int(waiting / self._share)
        self._clock_ms = max(self._clock_ms, now_ms)
        while True:
            if self._due and (self._due[0][0] <= self._clock_ms or not self._idle):
                due_ms, group = heapq.heappop(self._due)
                self._clock_ms = max(self._clock_ms, due_ms)
            else:
                place = self._random.randrange(len(self._idle))
                self._idle[place], self._idle[-1] = self._idle[-1], self._idle[place]
                group = self._idle.pop()
                self._begin(group)
            made = self._step(group, now_ms)
            if made is not None:
                return made

    def _begin(self, group: int) -> None:
        self._running[group] = self._groups[group].rebalance()

    def _step(self, group: int, now_ms: int) -> GroupBatch | None:
        """The group's next request; ``None`` when it writes nothing, or when the rebalance is over."""
        simulated = self._groups[group]
        simulated.now_ms = self._clock_ms
        step = next(self._running[group], None)
        if step is None:
            del self._running[group]
            self._idle.append(group)
            return None
        heapq.heappush(self._due, (step.next_ms, group))
        if not step.records:
            return None
        truth = simulated.truth
        if step.ends:
            return GroupBatch(joined_keys(step.records), group, Effect.ENDS, truth)
        effect = Effect.COMMITS if truth.members else Effect.IDLES
        return GroupBatch(batch(step.records, now_ms), group, effect, truth)
