"""A streams group (KIP-1071) at request time: members, tasks, topology.

Sources: ``StreamsGroup``, ``StreamsGroupMember``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from coordinator_core.coordinator.java.modern_group import CommittingModernGroup
from coordinator_core.coordinator.java.modern_records import end_of_members, of_group
from coordinator_core.coordinator.java.offsets import Validate
from coordinator_core.coordinator.java.streams_member import (
    NO_OFFSETS,
    NO_TASKS,
    LiveStreamsMember,
    Task,
    TaskOffsets,
    since,
    tasks_of,
)
from coordinator_core.coordinator.java.streams_topology import ConfiguredTopology, source_subtopologies
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import TimelineHashMap
from coordinator_core.coordinator.protocol import from_json
from coordinator_core.coordinator.record_data import StreamsTopology
from coordinator_core.coordinator.replies import EndpointPartitions
from coordinator_core.groups.model import StreamsGroup, TaskAssignment, Tasks
from coordinator_core.groups.modern import StreamsRecords


@dataclass(slots=True)
class LiveStreamsGroup(StreamsGroup, CommittingModernGroup[LiveStreamsMember]):
    """The replayed group with the questions of request handlers.

    State that no record holds comes after ``members`` and ``target_assignment``: static members by instance id,
    processes by task, the configured topology, the deadline of its topics' metadata, the request for a shutdown,
    endpoints as members are told them, tasks as members report them, and the targets that members of an assignment
    epoch go to.
    """

    protocol_type: ClassVar[str] = "streams"

    members: dict[str, LiveStreamsMember] = field(default_factory=TimelineHashMap)  # type: ignore[assignment]
    target_assignment: dict[str, TaskAssignment] = field(default_factory=TimelineHashMap)
    static_members: dict[str, str] = field(default_factory=dict)
    active_processes: dict[Task, str] = field(default_factory=dict)
    standby_processes: dict[Task, set[str]] = field(default_factory=dict)
    warmup_processes: dict[Task, set[str]] = field(default_factory=dict)
    configured: ConfiguredTopology | None = None
    configured_offset: int = -1
    configured_before: ConfiguredTopology | None = None
    metadata_deadline_ms: int = 0
    metadata_deadline_epoch: int = 0
    shutdown_member_id: str | None = None
    endpoint_epoch: int = 0
    endpoints: dict[str, EndpointPartitions] = field(default_factory=dict)
    """Partitions told of members with an endpoint: made anew after each record of theirs."""
    task_offsets: dict[str, TaskOffsets] = field(default_factory=dict)
    kept_targets: tuple[int, dict[str, TaskAssignment]] = (-1, {})
    """An assignment epoch, and the targets by member that its first heartbeat saw (``refinedAssignment``)."""

    @property
    def streams_topology(self) -> StreamsTopology | None:
        return None if self.topology is None else from_json(StreamsTopology, self.topology)

    def replaced_by(self, member: LiveStreamsMember | None) -> str | None:
        """The id under which the group has this static member, if that is another one."""
        if member is None or member.instance_id is None:
            return None
        member_id = self.static_members.get(member.instance_id)
        return None if member_id == member.member_id else member_id

    def target(self, member_id: str) -> TaskAssignment:
        return self.target_assignment.get(member_id, NO_TASKS)

    def targets(self, updated: LiveStreamsMember | None) -> dict[str, TaskAssignment]:
        """The target assignment by member; that of a static member under the id that it has now."""
        old_id = self.replaced_by(updated)
        if updated is None or old_id is None:
            return dict(self.target_assignment)
        return _renamed(self.target_assignment, old_id, updated.member_id)

    def keep_targets(self, epoch: int, targets: dict[str, TaskAssignment], *, anew: bool) -> dict[str, TaskAssignment]:
        """The targets that were kept for this assignment epoch; these from now on when there are none, or ``anew``."""
        if anew or self.kept_targets[0] != epoch:
            self.kept_targets = epoch, targets
        return self.kept_targets[1]

    def rename_kept_target(self, old_id: str, member_id: str) -> None:
        epoch, targets = self.kept_targets
        self.kept_targets = epoch, _renamed(targets, old_id, member_id)

    def reported(self, member_id: str) -> TaskOffsets:
        return self.task_offsets.get(member_id, NO_OFFSETS)

    def configure(self, topology: ConfiguredTopology, end_offset: int) -> None:
        """The topology as handlers see it from now on; reads see it once a record follows in the offsets log."""
        self.configured_before = self.configured_as_of(end_offset)
        self.configured, self.configured_offset = topology, end_offset

    def configured_as_of(self, end_offset: int) -> ConfiguredTopology | None:
        return self.configured if end_offset > self.configured_offset else self.configured_before

    # Processes by task

    def add_processes(self, member: LiveStreamsMember) -> None:
        """Take note of the tasks that the member owns, or is still to give up."""
        for assignment in (member.assigned, member.pending_revocation):
            for task in tasks_of(assignment.active):
                self.active_processes[task] = member.process_id
            for processes, tasks in self._shared(assignment):
                for task in tasks_of(tasks):
                    processes.setdefault(task, set()).add(member.process_id)

    def forget(self, member: LiveStreamsMember) -> None:
        """Before a record changes the member: forget its processes and the last answer about its endpoint."""
        self.endpoints.pop(member.member_id, None)
        self.remove_processes(member)

    def remove_processes(self, member: LiveStreamsMember) -> None:
        """Forget them. Of two members of one process that have a standby task, one forgets for both, as in Kafka."""
        for assignment in (member.assigned, member.pending_revocation):
            for task in tasks_of(assignment.active):
                if self.active_processes.get(task) == member.process_id:
                    del self.active_processes[task]
            for processes, tasks in self._shared(assignment):
                for task in tasks_of(tasks):
                    processes.get(task, set()).discard(member.process_id)

    def _shared(self, assignment: TaskAssignment) -> Iterable[tuple[dict[Task, set[str]], Tasks]]:
        return (self.standby_processes, assignment.standby), (self.warmup_processes, assignment.warmup)

    # Group

    def is_subscribed_to(self, topic: str) -> bool:
        topology = self.streams_topology
        return not self.is_empty and topology is not None and topic in source_subtopologies(topology)

    def validate_past_epoch(self, member: LiveStreamsMember, epoch: int) -> Validate:
        topology = self.streams_topology
        if topology is None:
            raise self.stale(member)
        subtopologies = source_subtopologies(topology)
        owned = member.active_since()
        revoking = since(member.pending_revocation.active, member.revoking_epochs)

        def validate(topic: str, _topic_id: str, partition: int) -> None:
            subtopology = subtopologies.get(topic, "")
            found = owned.get(subtopology, {}).get(partition)
            if found is None:
                found = revoking.get(subtopology, {}).get(partition)
            if topic not in subtopologies or found is None or epoch < found:
                raise self.stale(member)

        return validate

    def tombstones(self) -> list[Record]:
        """The end of the group (``createGroupTombstoneRecords``)."""
        return [
            *end_of_members(StreamsRecords, self.group_id, self.members),
            of_group(StreamsRecords.metadata, self.group_id),
            of_group(StreamsRecords.topology, self.group_id),
        ]

    def timer_keys(self) -> list[tuple[str, ...]]:
        return [*CommittingModernGroup.timer_keys(self), initial_rebalance_key(self.group_id)]


def _renamed(targets: Mapping[str, TaskAssignment], old_id: str, member_id: str) -> dict[str, TaskAssignment]:
    found = dict(targets)
    if old_id in found:
        found[member_id] = found.pop(old_id)
    return found


def initial_rebalance_key(group_id: str) -> tuple[str, ...]:
    return ("initial-rebalance", group_id)


class LiveStreamsRecords(StreamsRecords):
    """Replays records into live groups: processes by task follow from members' records."""

    group_class: ClassVar[type[StreamsGroup]] = LiveStreamsGroup
    member_class = LiveStreamsMember

    def describe(self, group: LiveStreamsGroup, member: LiveStreamsMember, value: dict[str, Any]) -> None:  # type: ignore[override]
        group.forget(member)
        if member.instance_id is not None:
            group.static_members.pop(member.instance_id, None)
        super().describe(group, member, value)
        if member.instance_id is not None:
            group.static_members[member.instance_id] = member.member_id
        group.add_processes(member)

    def assign(  # type: ignore[override]
        self, group: LiveStreamsGroup, member: LiveStreamsMember, member_epoch: int, value: dict[str, Any] | None
    ) -> None:
        group.forget(member)
        super().assign(group, member, member_epoch, value)
        member.active_epochs = _epochs(value, "activeTasks", member_epoch)
        member.revoking_epochs = _epochs(value, "activeTasksPendingRevocation", member_epoch)
        group.add_processes(member)

    def remove(self, group: LiveStreamsGroup, member: LiveStreamsMember) -> None:
        group.forget(member)
        super().remove(group, member)
        group.task_offsets.pop(member.member_id, None)
        if member.instance_id is not None:
            group.static_members.pop(member.instance_id, None)
        if not group.members:
            group.shutdown_member_id = None


def _epochs(value: Mapping[str, Any] | None, name: str, member_epoch: int) -> Tasks:
    """Epochs of active tasks; the member epoch where a record of an older release has none."""
    return {
        entry["subtopologyId"]: tuple(entry.get("assignmentEpochs") or (member_epoch,) * len(entry["partitions"]))
        for entry in (value[name] if value else ())
    }
