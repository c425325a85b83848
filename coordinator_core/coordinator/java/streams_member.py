"""A member of a streams group (``StreamsGroupMember``) and its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator_core.groups.model import MemberState, StreamsMember, TaskAssignment, Tasks

Task = tuple[str, int]
"""Subtopology id and partition."""
Since = dict[str, dict[int, int]]
"""Subtopology id to partitions, each with the epoch in which it was assigned."""
NO_TASKS = TaskAssignment()


class TaskOffsets(NamedTuple):
    """Report of a member on its tasks: how far their state is, and where it ends."""

    offsets: dict[Task, int]
    end_offsets: dict[Task, int]


NO_OFFSETS = TaskOffsets({}, {})


def tasks_of(assignment: Tasks) -> Iterator[Task]:
    return ((subtopology, partition) for subtopology, found in assignment.items() for partition in found)


@dataclass(slots=True)
class LiveStreamsMember(StreamsMember):
    """The replayed member with the epochs in which its active tasks were assigned, in the order of their partitions."""

    active_epochs: Tasks = field(default_factory=dict)
    revoking_epochs: Tasks = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def active_since(self) -> Since:
        return since(self.assigned.active, self.active_epochs)


def since(tasks: Tasks, epochs: Tasks) -> Since:
    return {
        subtopology: dict(zip(partitions, epochs[subtopology], strict=True))
        for subtopology, partitions in tasks.items()
    }
