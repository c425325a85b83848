"""Contents of a StreamsGroupHeartbeat, and contents that are refused (``GroupCoordinatorService``, ``KafkaApis``)."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import streams_topology as topologies
from coordinator_core.coordinator.java.modern_group import invalid_request, refuse_blank
from coordinator_core.coordinator.java.streams_member import LiveStreamsMember, Task
from coordinator_core.coordinator.java.streams_topology import ConfiguredTopology
from coordinator_core.coordinator.record_data import StreamsTopology
from coordinator_core.coordinator.requests import OwnedTasks, StreamsGroupHeartbeat, TaskOffset
from coordinator_core.groups.model import LEAVE_GROUP_STATIC_MEMBER_EPOCH, TaskAssignment
from coordinator_core.releases.requests import StreamsRules
from coordinator_core.topology import is_topic_name

_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def owned_tasks(request: StreamsGroupHeartbeat) -> TaskAssignment | None:
    """Tasks that the member says it owns; ``None``: nothing new since its last word."""
    if request.active_tasks is None or request.standby_tasks is None or request.warmup_tasks is None:
        return None
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    return TaskAssignment(*({one.subtopology_id: one.partitions for one in kind} for kind in kinds))


def by_task(offsets: Iterable[TaskOffset]) -> dict[Task, int]:
    """Offsets by task; raises :class:`ApiError` for two of one task."""
    found: dict[Task, int] = {}
    for subtopology, partition, offset in offsets:
        if (subtopology, partition) in found:
            raise invalid_request(
                f"Task offsets contain a duplicate entry for {subtopology} and partition {partition}."
            )
        found[subtopology, partition] = offset
    return found


def owns_subset(request: StreamsGroupHeartbeat, member: LiveStreamsMember) -> bool:
    """Whether the request says which tasks the member owns, and none beside those that are assigned to it."""
    assigned = member.assigned
    return all(
        owned is not None
        and all(set(one.partitions) <= set(tasks.get(one.subtopology_id, ())) for one in owned)
        and all(one.subtopology_id in tasks for one in owned)
        for owned, tasks in (
            (request.active_tasks, assigned.active),
            (request.standby_tasks, assigned.standby),
            (request.warmup_tasks, assigned.warmup),
        )
    )


def validate_tasks(configured: ConfiguredTopology, owned: Iterable[OwnedTasks]) -> None:
    """``throwIfRequestContainsInvalidTasks``."""
    assert configured.subtopologies is not None
    for one in owned:
        subtopology = configured.subtopologies.get(one.subtopology_id)
        if subtopology is None:
            raise invalid_request(f"Subtopology {one.subtopology_id} does not exist in the topology.")
        if not all(0 <= partition < subtopology.tasks for partition in one.partitions):
            raise invalid_request(f"Task of subtopology {one.subtopology_id} is invalid.")


def validate_names(topology: StreamsTopology | None) -> None:
    """``ApiError`` for topics that ``KafkaApis`` refuses: names that cannot be, and those of Kafka's own topics."""
    if topology is None:
        return
    names = {
        name
        for one in topology.subtopologies
        for name in (
            *topologies.inputs(one),
            *one.repartition_sink_topics,
            *(topic.name for topic in one.state_changelog_topics),
        )
    }
    if not all(map(is_topic_name, names)):
        raise ApiError(Errors.STREAMS_INVALID_TOPOLOGY, "Topic names are not valid topic names.")
    if names & _INTERNAL_TOPICS:
        raise ApiError(Errors.STREAMS_INVALID_TOPOLOGY, "Use of Kafka internal topics is prohibited.")


def validate(request: StreamsGroupHeartbeat, rules: StreamsRules) -> None:
    """``throwIfStreamsGroupHeartbeatRequestIsUsingUnsupportedFeatures``, then ``…IsInvalid``, as ``ApiError``."""
    epoch, topology = request.member_epoch, request.topology
    owned = {"Active": request.active_tasks, "Standby": request.standby_tasks, "Warmup": request.warmup_tasks}
    if request.instance_id is not None and not rules.has_static_members:
        raise invalid_request("Static membership is not yet supported.")
    if not rules.takes_task_offsets and (request.task_offsets is not None or request.task_end_offsets is not None):
        raise invalid_request("TaskOffsets are not supported yet.")
    if not rules.takes_task_offsets and request.warmup_tasks:
        raise invalid_request("WarmupTasks are not supported yet.")
    if topology is not None and any(one.source_topic_regex for one in topology.subtopologies):
        raise invalid_request("Regular expressions for source topics are not supported yet.")
    refuse_blank(
        MemberId=request.member_id, GroupId=request.group_id, InstanceId=request.instance_id, RackId=request.rack_id
    )
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
        for name, tasks in owned.items():
            if tasks is None or tasks:
                raise invalid_request(f"{name}Tasks must be empty when (re-)joining.")
        if topology is None:
            raise invalid_request("Topology must be non-null when (re-)joining.")
        if any(topic.partitions for one in topology.subtopologies for topic in one.state_changelog_topics):
            raise ApiError(Errors.STREAMS_INVALID_TOPOLOGY, "Changelog topics must have an undefined partition count.")
    elif epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH and request.instance_id is None:
        raise invalid_request("InstanceId can't be null.")
    elif epoch < LEAVE_GROUP_STATIC_MEMBER_EPOCH:
        raise invalid_request(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    given = [tasks is not None for tasks in owned.values()]
    if any(given) and not all(given):
        raise invalid_request("If one task-type is non-null, all must be non-null.")
    if epoch != 0 and topology is not None:
        raise invalid_request("Topology can only be provided when (re-)joining.")
