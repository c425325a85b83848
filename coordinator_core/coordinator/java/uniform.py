"""The ``uniform`` assignor, for members with the same and with different subscriptions.

Sources: ``UniformAssignor``, ``UniformHomogeneousAssignmentBuilder``,
``UniformHeterogeneousAssignmentBuilder``. In which order a member's topics are visited, and so which of them
it gives up, depends on the hash maps that Kafka copies and changes: they are copied and changed alike here.
"""

from __future__ import annotations

import base64

from coordinator_core.coordinator.java.group_spec import Assignment, GroupSpec
from coordinator_core.coordinator.maps import JavaHashMap, Partitions, TopicId, hash_set_order, java_set_order

_MAX_ITERATIONS = 16

Target = JavaHashMap[TopicId, set[int]]
"""Partitions of topics that a member will have, while that is being decided."""


def assign_uniform(group: GroupSpec) -> Assignment:
    return _assign_homogeneous(group) if group.homogeneous else _assign_heterogeneous(group)


def _assign_homogeneous(group: GroupSpec) -> Assignment:
    """Equally many partitions for all; a member with too many gives up the last ones, in the order of the map."""
    first = next(iter(group.members.values()))
    topic_ids = java_set_order(first.topic_ids)
    if not topic_ids:
        return {}
    unassigned = [
        (topic_id, partition)
        for topic_id in topic_ids
        for partition in range(group.partitions[topic_id])
        if not group.is_assigned(topic_id, partition)
    ]
    total = sum(group.partitions[topic_id] for topic_id in topic_ids)
    minimum, extra = divmod(total, len(group.members))
    assignment: dict[str, Target] = {}
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, spec) in enumerate(group.members.items()):
        quota, has_extra = minimum + (extra > 0), extra > 0
        kept = assignment[member_id] = _copied(spec.assignment)
        for topic_id, partitions in spec.assignment.items():
            if topic_id not in topic_ids:
                del kept[topic_id]
                continue
            ordered = hash_set_order(partitions)
            given_up = ordered[quota:]
            unassigned += [(topic_id, partition) for partition in given_up]
            kept[topic_id].difference_update(given_up)
            quota -= len(kept[topic_id])
            if not kept[topic_id]:
                del kept[topic_id]
        if quota > 0 and has_extra and len(group.members) - index > extra:
            quota, has_extra = quota - 1, False
        if quota > 0:
            unfilled.append((member_id, quota))
        if has_extra:
            extra -= 1
    free = iter(unassigned)
    for member_id, quota in unfilled:
        for _, (topic_id, partition) in zip(range(quota), free, strict=False):
            assignment[member_id].compute_if_absent(topic_id, set).add(partition)
    return _frozen(assignment)


def _assign_heterogeneous(group: GroupSpec) -> Assignment:
    """Keep the partitions of members, give the rest to the least loaded, then even out topic by topic."""
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
        self.targets = [_copied(spec.assignment) for spec in group.members.values()]
        self.sizes = [0] * len(self.targets)
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
                if topic_id not in spec.topic_ids:
                    del self.targets[index][topic_id]
                    continue
                self.sizes[index] += len(partitions)
                for partition in partitions:
                    self.owners[topic_id][partition] = index

    def _give(self, topic_id: TopicId, partition: int, index: int) -> None:
        owner = self.owners[topic_id][partition]
        if owner != -1:
            self.sizes[owner] -= 1
            left = self.targets[owner][topic_id]
            left.discard(partition)
            if not left:
                del self.targets[owner][topic_id]
        self.owners[topic_id][partition] = index
        self.sizes[index] += 1
        self.targets[index].compute_if_absent(topic_id, set).add(partition)

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
        return _frozen(dict(zip(self.group.members, self.targets, strict=True)))


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


def _copied(assignment: Partitions) -> Target:
    """``AssignorHelpers.deepCopyAssignment``."""
    copy: Target = JavaHashMap.with_capacity(len(assignment))
    copy.update({topic_id: set(partitions) for topic_id, partitions in assignment.items()})
    return copy


def _frozen(targets: dict[str, Target]) -> Assignment:
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in target.items()}
        for member_id, target in targets.items()
    }
