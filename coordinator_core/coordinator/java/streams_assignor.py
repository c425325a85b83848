"""The sticky task assignor of streams groups (``StickyTaskAssignor``, ``ProcessState``).

Tasks stay where they were as far as loads allow. Between equal processes and members the order of Kafka's maps and of
its binary heaps decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from coordinator_core.coordinator.java.streams_member import Task, tasks_of
from coordinator_core.coordinator.java.streams_topology import ConfiguredSubtopology
from coordinator_core.coordinator.maps import JavaHashMap
from coordinator_core.groups.model import TaskAssignment, Tasks

V = TypeVar("V")


class MemberSpec(NamedTuple):
    """Knowledge of the assignor about a member: its process, its tasks, and how far their state is by its own word."""

    process_id: str
    assignment: TaskAssignment
    offsets: Mapping[Task, int] = {}


class JavaPriorityQueue(Generic[V]):
    """``java.util.PriorityQueue``: between equal keys its heap decides."""

    def __init__(self, key: Callable[[V], float], items: Iterable[V] = ()) -> None:
        self._key = key
        self._heap: list[V] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: V) -> None:
        heap, at = self._heap, len(self._heap)
        heap.append(item)
        while at > 0:
            parent = (at - 1) // 2
            if self._key(item) >= self._key(heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = item

    def poll(self) -> V:
        heap = self._heap
        first, last = heap[0], heap.pop()
        if not heap:
            return first
        at, size = 0, len(heap)
        while at < size // 2:
            child = 2 * at + 1
            if child + 1 < size and self._key(heap[child]) > self._key(heap[child + 1]):
                child += 1
            if self._key(last) <= self._key(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        return first


@dataclass(slots=True)
class _Process:
    """A process with its members and their numbers of tasks."""

    counts: JavaHashMap[str, int] = field(default_factory=JavaHashMap)
    tasks: set[Task] = field(default_factory=set)
    active: dict[str, set[Task]] = field(default_factory=dict)
    standby: dict[str, set[Task]] = field(default_factory=dict)
    _by_load: JavaPriorityQueue[list[str]] | None = None

    @property
    def load(self) -> float:
        return sum(self.counts.values()) / len(self.counts)

    def give(self, member_id: str, task: Task, *, active: bool) -> int:
        """The member's number of tasks with this one."""
        self._by_load = None
        return self._give(member_id, task, active)

    def _give(self, member_id: str, task: Task, active: bool) -> int:
        self.tasks.add(task)
        (self.active if active else self.standby).setdefault(member_id, set()).add(task)
        self.counts[member_id] += 1
        return self.counts[member_id]

    def give_least_loaded(self, task: Task, *, active: bool) -> int:
        if len(self.counts) == 1:
            return self._give(next(iter(self.counts)), task, active)
        if self._by_load is None:
            self._by_load = JavaPriorityQueue(lambda entry: self.counts[entry[0]], ([one] for one in self.counts))
        entry = self._by_load.poll()
        count = self._give(entry[0], task, active)
        self._by_load.add(entry)
        return count


def _per_member(tasks: int, members: int) -> int:
    return -(-tasks // members) if members else 0


@dataclass(slots=True)
class _Quota:
    """Most tasks that a member may have; members that have as many no longer count."""

    tasks: int
    members: int
    each: int = 0

    def __post_init__(self) -> None:
        self.each = _per_member(self.tasks, self.members)

    def used(self, count: int) -> None:
        if count == self.each:
            self.members -= 1
            self.tasks -= count
            self.each = _per_member(self.tasks, self.members)


class _Assignment:
    def __init__(
        self,
        members: Mapping[str, MemberSpec],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        replicas: int,
        revised: bool,
    ) -> None:
        self._replicas = replicas
        self._revised = revised
        self.processes: JavaHashMap[str, _Process] = JavaHashMap.with_capacity(len(members))
        self._active_before: dict[Task, tuple[str, str]] = {}
        self._standby_before: dict[Task, list[tuple[str, str]]] = {}
        self._active_tasks = [(name, one) for name, sub in subtopologies.items() for one in range(sub.tasks)]
        self._stateful_tasks = [task for task in self._active_tasks if subtopologies[task[0]].is_stateful]
        count = len(self._active_tasks)
        self._active_quota = _Quota(count, len(members))
        self._quota = _Quota(count + len(self._stateful_tasks) * replicas, len(members))
        for member_id, spec in members.items():
            owner = (spec.process_id, member_id)
            if revised:
                process = self.processes.compute_if_absent(spec.process_id, _Process)
            else:
                process = self.processes.setdefault(spec.process_id, _Process())
            process.counts[member_id] = 0
            for task in tasks_of(spec.assignment.active):
                self._active_before[task] = owner
            for task in tasks_of(spec.assignment.standby):
                self._standby_before.setdefault(task, []).append(owner)
        self._rank_by_offsets(members)

    def _rank_by_offsets(self, members: Mapping[str, MemberSpec]) -> None:
        """Add members that report state of a task, behind those that had it as standby; the farther the sooner."""
        for task in dict.fromkeys(task for spec in members.values() for task in spec.offsets):
            standby = self._standby_before.get(task, [])
            others = [
                (spec.process_id, member_id)
                for member_id, spec in members.items()
                if task in spec.offsets and (spec.process_id, member_id) not in standby
            ]

            def ahead(owner: tuple[str, str], task: Task = task) -> int:
                return -members[owner[1]].offsets.get(task, 0)

            self._standby_before[task] = [*sorted(standby, key=ahead), *sorted(others, key=ahead)]

    def _by_load(self) -> JavaPriorityQueue[_Process]:
        return JavaPriorityQueue(lambda process: process.load, self.processes.values())

    def _used(self, count: int, *, active: bool) -> None:
        if active:
            self._active_quota.used(count)
        self._quota.used(count)

    def assign_active(self) -> None:
        """First to who had the task active, then to who had it as standby, then to the least loaded."""
        rest = []
        for task in sorted(self._active_tasks, key=lambda task: (task[1], task[0])):
            owner = self._active_before.get(task)
            if not self._give_within(self._active_quota, owner, task, active=True):
                rest.append(task)
        left = []
        for task in rest:
            owner = self._least_loaded(self._standby_before.get(task, ()), None)
            if not self._give_within(self._active_quota, owner, task, active=True):
                left.append(task)
        by_load = self._by_load()
        for task in sorted(left):
            process = by_load.poll()
            self._used(process.give_least_loaded(task, active=True), active=True)
            by_load.add(process)

    def _give_within(self, quota: _Quota, owner: tuple[str, str] | None, task: Task, *, active: bool) -> bool:
        if owner is None:
            return False
        process_id, member_id = owner
        process = self.processes[process_id]
        if process.counts[member_id] >= quota.each:
            return False
        self._used(process.give(member_id, task, active=active), active=active)
        return True

    def _least_loaded(self, owners: Iterable[tuple[str, str]], task: Task | None) -> tuple[str, str] | None:
        """Owner that is the last one whose process and own load are both less than those before. Owners whose process
        has ``task`` are passed over; in 4.3 it is none of them when the first one's process has it."""
        candidates = list(owners)
        if self._revised:
            candidates = [one for one in candidates if task is None or task not in self.processes[one[0]].tasks]
        if not candidates:
            return None
        found = candidates[0]
        for one in candidates[1:]:
            process, best = self.processes[one[0]], self.processes[found[0]]
            lighter = process.load < best.load and process.counts[one[1]] < best.counts[found[1]]
            if lighter and (task is None or task not in process.tasks):
                found = one
        return None if task in self.processes[candidates[0][0]].tasks else found

    def assign_standby(self) -> None:
        """To who had the task, active or standby; the rest to the least loaded processes that do not have it."""
        rest: list[tuple[Task, int]] = []
        for task in sorted(self._stateful_tasks, key=lambda task: (task[1], task[0]), reverse=True):
            for number in range(self._replicas):
                owner = self._active_before.get(task)
                if owner is not None and task in self.processes[owner[0]].tasks:
                    owner = None
                if self._give_within(self._quota, owner, task, active=False):
                    continue
                owner = self._least_loaded(self._standby_before.get(task, ()), task)
                if not self._give_within(self._quota, owner, task, active=False):
                    rest.append((task, self._replicas - number))
                    break
        by_load = self._by_load()
        for task, remaining in sorted(rest, reverse=True):
            for _ in range(remaining):
                if not self._give_to_another(by_load, task):
                    break

    def _give_to_another(self, by_load: JavaPriorityQueue[_Process], task: Task) -> bool:
        if not by_load:
            return False
        process = by_load.poll()
        given = False
        if task not in process.tasks:
            self._used(process.give_least_loaded(task, active=False), active=False)
            given = True
        elif by_load:
            given = self._give_to_another(by_load, task)
        by_load.add(process)
        return given


def assign_sticky(
    members: Mapping[str, MemberSpec],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    replicas: int,
    *,
    revised: bool,
) -> dict[str, TaskAssignment]:
    """Tasks of each member. ``members`` iterate as Kafka's map, ``subtopologies`` by id; ``replicas``: standby tasks
    of each task with state; ``revised``: ``StreamsRules.has_revised_assignor``."""
    assignment = _Assignment(members, subtopologies, replicas, revised)
    assignment.assign_active()
    if replicas > 0:
        assignment.assign_standby()
    found = dict.fromkeys(members, TaskAssignment())
    for process in assignment.processes.values():
        for member_id in process.counts:
            active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
            found[member_id] = TaskAssignment(_grouped(active), _grouped(standby))
    return found


def _grouped(tasks: Iterable[Task]) -> Tasks:
    found: dict[str, list[int]] = {}
    for name, partition in sorted(tasks):
        found.setdefault(name, []).append(partition)
    return {name: tuple(partitions) for name, partitions in found.items()}
