"""Groups that now and then write all of their records again, in a new generation or epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from coordinator_core.records.wire import uuid_text
from tests.bench.filling import Effect
from tests.bench.group_batches import GroupBatch
from tests.bench.group_records import classic_group, consumer_group
from tests.bench.group_truth import GroupTruth, Kind
from tests.bench.workload import START_MS, TOPICS, Workload


class Rewrites:
    """Group batches of one offsets partition; groups of KIP-848 have one before anything else."""

    def __init__(
        self,
        workload: Workload,
        groups: Sequence[str],
        topics: Sequence[str],
        topic_ids: Sequence[bytes],
        random: np.random.Generator,
    ) -> None:
        self._workload = workload
        self._groups, self._topics, self._topic_ids = groups, topics, topic_ids
        self._random = random
        self._is_consumer_group = workload.are_consumer_groups(len(groups))
        self._last_epoch = np.zeros(len(groups), np.int64)
        self._first_is_large = workload.members_of_first_group > 0

    def first(self, now_ms: int) -> Iterator[GroupBatch]:
        if self._first_is_large:
            yield self._batch(0, self._workload.members_of_first_group)
        for group in np.flatnonzero(self._is_consumer_group).tolist():
            if group or not self._first_is_large:
                yield self._batch(group, 1 + group % self._workload.members)

    def following(self, now_ms: int, waiting: int) -> GroupBatch:
        first = 1 if self._first_is_large and len(self._groups) > 1 else 0
        group = int(self._random.integers(first, len(self._groups)))
        if self._is_consumer_group[group]:
            members = 1 + group % self._workload.members
        else:
            members = int(self._random.integers(0, self._workload.members + 1))
        return self._batch(group, members)

    def _batch(self, group: int, members: int) -> GroupBatch:
        self._last_epoch[group] += 1
        epoch = int(self._last_epoch[group])
        name, topic = self._groups[group], group % TOPICS
        if self._is_consumer_group[group]:
            raw = consumer_group(
                name,
                self._topics[topic],
                uuid_text(self._topic_ids[topic]),
                epoch=epoch,
                members=members,
                now_ms=START_MS,
            )
            truth = GroupTruth(Kind.CONSUMER, epoch, epoch, members)
        else:
            raw = classic_group(name, self._topics[topic], generation=epoch, members=members, now_ms=START_MS)
            truth = GroupTruth(Kind.CLASSIC, epoch, -1, members)
        return GroupBatch(raw, group, Effect.COMMITS, truth)
