"""The ``uniform`` assignor for members with different subscriptions.

Source: ``UniformHeterogeneousAssignmentBuilder``.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from coordinator_core.coordinator.maps import JavaHashMap, TopicId

if TYPE_CHECKING:
    from coordinator_core.coordinator.java.assignors import Assignment, GroupSpec

_MAX_ITERATIONS = 16


def assign_heterogeneous(group: GroupSpec) -> Assignment:
    """Keep what members have, give the rest to the least loaded, then even out topic by topic."""
    builder = _Builder(group)
    if not builder.subscribers:
        return {}
    builder.keep()
    builder.assign_rest()
    builder.balance()
    return builder.result()


class _Builder:
    def __init__(self, group: GroupSpec) -> None:
        self.group = group
        self.member_ids = list(group.members)
        self.sizes = [0] * len(self.member_ids)
        self.subscribers: dict[TopicId, list[int]] = JavaHashMap()
        for index, spec in enumerate(group.members.values()):
            for topic_id in spec.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(index)
        self.owners = {topic_id: [-1] * group.partitions[topic_id] for topic_id in self.subscribers}

    def _by_load(self, topic_ids: list[TopicId]) -> list[TopicId]:
        """Topics with many partitions per subscriber first, then those with few subscribers, then by id."""

        def load(topic_id: TopicId) -> tuple[float, int, tuple[int, int]]:
            count = len(self.subscribers[topic_id])
            return -self.group.partitions[topic_id] / count, count, _uuid_order(topic_id)

        return sorted(topic_ids, key=load)

    def keep(self) -> None:
        for index, spec in enumerate(self.group.members.values()):
            for topic_id, partitions in spec.assignment.items():
                if topic_id in spec.topic_ids:
                    for partition in partitions:
                        self.sizes[index] += 1
                        self.owners[topic_id][partition] = index

    def _give(self, topic_id: TopicId, partition: int, index: int) -> None:
        owner = self.owners[topic_id][partition]
        if owner != -1:
            self.sizes[owner] -= 1
        self.owners[topic_id][partition] = index
        self.sizes[index] += 1

    def assign_rest(self) -> None:
        rest = {
            topic_id: [partition for partition, owner in enumerate(owners) if owner == -1]
            for topic_id, owners in self.owners.items()
        }
        for topic_id in self._by_load([topic_id for topic_id, partitions in rest.items() if partitions]):
            balancer = _Balancer(self.sizes, self.subscribers[topic_id])
            for partition in rest[topic_id]:
                self._give(topic_id, partition, balancer.next_least_loaded())

    def balance(self) -> None:
        topic_ids = self._by_load([one for one, members in self.subscribers.items() if len(members) >= 2])
        last = -1
        for _ in range(_MAX_ITERATIONS):
            for position, topic_id in enumerate(topic_ids):
                if position == last:
                    return
                if self._balance_topic(topic_id) or last == -1:
                    last = position

    def _balance_topic(self, topic_id: TopicId) -> int:
        balancer = _Balancer(self.sizes, self.subscribers[topic_id])
        if balancer.imbalance <= 1:
            return 0
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            owned.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced():
            most = balancer.next_most_loaded()
            while most != -1 and not owned.get(most):
                balancer.exclude_most_loaded()
                most = balancer.next_most_loaded()
            if most == -1:
                break
            partition = owned[most].pop()
            least = balancer.next_least_loaded()
            if balancer.is_balanced():
                break
            self._give(topic_id, partition, least)
            moved += 1
        return moved

    def result(self) -> Assignment:
        found: dict[str, dict[TopicId, set[int]]] = {member_id: {} for member_id in self.member_ids}
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                if owner != -1:
                    found[self.member_ids[owner]].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
            for member_id, topics in found.items()
        }


class _Balancer:
    """Walks subscribers from both ends of their order by load (``MemberAssignmentBalancer``)."""

    def __init__(self, sizes: list[int], members: list[int]) -> None:
        self._sizes = sizes
        self._sorted = sorted(members, key=lambda index: (sizes[index], index))
        self.imbalance = sizes[self._sorted[-1]] - sizes[self._sorted[0]]
        self._least_end = 0
        self._least_count = sizes[self._sorted[0]] - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_count = sizes[self._sorted[-1]] + 1
        self._next_most = len(self._sorted) - 1

    def _size(self, position: int) -> int:
        return self._sizes[self._sorted[position]]

    def next_least_loaded(self) -> int:
        if self._next_least >= self._least_end:
            self._least_count += 1
            while self._least_end < len(self._sorted) and self._size(self._least_end) == self._least_count:
                self._least_end += 1
            self._next_least = 0
        index = self._sorted[self._next_least]
        self._next_least += 1
        return index

    def next_most_loaded(self) -> int:
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_count = self._size(self._most_start - 1)
            else:
                self._most_count -= 1
            while self._most_start > 0 and self._size(self._most_start - 1) == self._most_count:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return -1
        index = self._sorted[self._next_most]
        self._next_most -= 1
        return index

    def exclude_most_loaded(self) -> None:
        position = self._next_most + 1
        last = self._most_end - 1
        self._sorted[position], self._sorted[last] = self._sorted[last], self._sorted[position]
        self._most_end -= 1

    def is_balanced(self) -> bool:
        return self._most_count - self._least_count <= 1


def _uuid_order(topic_id: TopicId) -> tuple[int, int]:
    """``Uuid.compareTo``: two signed halves."""
    raw = base64.urlsafe_b64decode(topic_id + "==")
    return int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True)
