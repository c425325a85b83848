"""Description of a streams group by StreamsGroupDescribe (``StreamsGroup.asDescribedGroup``)."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.java import streams_records as records
from coordinator_core.coordinator.java import streams_topology as topologies
from coordinator_core.coordinator.java.streams_group import LiveStreamsGroup
from coordinator_core.coordinator.java.streams_member import LiveStreamsMember, Task
from coordinator_core.coordinator.record_data import Endpoint
from coordinator_core.coordinator.replies import DescribedStreamsGroup, DescribedStreamsMember, DescribedTasks, Tasks
from coordinator_core.coordinator.requests import TaskOffset
from coordinator_core.groups.model import TaskAssignment
from coordinator_core.groups.model import Tasks as AssignedTasks

ASSIGNOR = "sticky"
NO_TOPOLOGY_DESCRIPTION = 1
"""Status of a describe that asked for a topology description: none is stored."""


def described(group: LiveStreamsGroup, end_offset: int, *, topology_description: bool) -> DescribedStreamsGroup:
    """The group as of the end of its offsets partition."""
    topology = group.streams_topology
    configured = group.configured_as_of(end_offset)
    return DescribedStreamsGroup(
        Errors.NONE,
        None,
        group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        topology=None if topology is None else topologies.described(topology, configured),
        members=tuple(_described(group, member) for member in group.members.values()),
        topology_description_status=NO_TOPOLOGY_DESCRIPTION if topology_description else 0,
        assignor_name=ASSIGNOR,
    )


def _described(group: LiveStreamsGroup, member: LiveStreamsMember) -> DescribedStreamsMember:
    reported = group.reported(member.member_id)
    return DescribedStreamsMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if member.user_endpoint is None else Endpoint(*member.user_endpoint),
        client_tags=records.key_values(dict(member.client_tags)),
        task_offsets=_listed_offsets(reported.offsets),
        task_end_offsets=_listed_offsets(reported.end_offsets),
        assignment=_described_tasks(member.assigned),
        target_assignment=_described_tasks(group.target(member.member_id)),
    )


def _described_tasks(tasks: TaskAssignment) -> DescribedTasks:
    return DescribedTasks(listed(tasks.active), listed(tasks.standby), listed(tasks.warmup))


def listed(tasks: AssignedTasks) -> tuple[Tasks, ...]:
    """By subtopology id; a broker's heartbeat lists them in the order of its hash maps."""
    return tuple(Tasks(name, tuple(sorted(partitions))) for name, partitions in sorted(tasks.items()))


def _listed_offsets(offsets: Mapping[Task, int]) -> tuple[TaskOffset, ...]:
    return tuple(TaskOffset(*task, offset) for task, offset in sorted(offsets.items()))
