"""Contents of a StreamsGroupHeartbeat, and contents that are refused (``GroupCoordinatorService``, ``KafkaApis``)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import streams_topology as topologies
from coordinator_core.coordinator.java.consumer_group import LEAVE_STATIC_EPOCH
from coordinator_core.coordinator.java.modern_group import fenced_epoch
from coordinator_core.coordinator.java.streams_member import LiveStreamsMember, Task
from coordinator_core.coordinator.java.streams_topology import ConfiguredTopology
from coordinator_core.coordinator.record_data import StreamsTopology
from coordinator_core.coordinator.requests import OwnedTasks, StreamsGroupHeartbeat, TaskOffset
from coordinator_core.groups.model import TaskAssignment
from coordinator_core.releases.requests import StreamsRules

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
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
            raise _invalid(f"Task offsets contain a duplicate entry for {subtopology} and partition {partition}.")
        found[subtopology, partition] = offset
    return found


def validate_epoch(member: LiveStreamsMember, request: StreamsGroupHeartbeat) -> None:
    """The previous epoch will do when the answer got lost, which the owned tasks show."""
    epoch = request.member_epoch
    if epoch == member.member_epoch:
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and _is_subset(request, member):
        return
    raise fenced_epoch("streams", epoch, member.member_epoch)


def _is_subset(request: StreamsGroupHeartbeat, member: LiveStreamsMember) -> bool:
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


def _invalid(text: str) -> ApiError:
    return ApiError(Errors.INVALID_REQUEST, text)


def validate_tasks(configured: ConfiguredTopology, owned: Iterable[OwnedTasks]) -> None:
    """``throwIfRequestContainsInvalidTasks``."""
    assert configured.subtopologies is not None
    for one in owned:
        subtopology = configured.subtopologies.get(one.subtopology_id)
        if subtopology is None:
            raise _invalid(f"Subtopology {one.subtopology_id} does not exist in the topology.")
        if not all(0 <= partition < subtopology.tasks for partition in one.partitions):
            raise _invalid(f"Task of subtopology {one.subtopology_id} is invalid.")


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
    if not all(_TOPIC_NAME.fullmatch(name) and name not in (".", "..") for name in names):
        raise ApiError(Errors.STREAMS_INVALID_TOPOLOGY, "Topic names are not valid topic names.")
    if names & _INTERNAL_TOPICS:
        raise ApiError(Errors.STREAMS_INVALID_TOPOLOGY, "Use of Kafka internal topics is prohibited.")


def validate(request: StreamsGroupHeartbeat, rules: StreamsRules) -> None:
    """``throwIfStreamsGroupHeartbeatRequestIsUsingUnsupportedFeatures``, then ``…IsInvalid``, as ``ApiError``."""
    epoch, topology = request.member_epoch, request.topology
    owned = {"Active": request.active_tasks, "Standby": request.standby_tasks, "Warmup": request.warmup_tasks}
    if request.instance_id is not None and not rules.has_static_members:
        raise _invalid("Static membership is not yet supported.")
    if not rules.takes_task_offsets and (request.task_offsets is not None or request.task_end_offsets is not None):
        raise _invalid("TaskOffsets are not supported yet.")
    if not rules.takes_task_offsets and request.warmup_tasks:
        raise _invalid("WarmupTasks are not supported yet.")
    if topology is not None and any(one.source_topic_regex for one in topology.subtopologies):
        raise _invalid("Regular expressions for source topics are not supported yet.")
    ids = {
        "MemberId": request.member_id,
        "GroupId": request.group_id,
        "InstanceId": request.instance_id,
        "RackId": request.rack_id,
    }
    for name, value in ids.items():
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        for name, tasks in owned.items():
            if tasks is None or tasks:
                raise _invalid(f"{name}Tasks must be empty when (re-)joining.")
        if topology is None:
            raise _invalid("Topology must be non-null when (re-)joining.")
        if any(topic.partitions for one in topology.subtopologies for topic in one.state_changelog_topics):
            raise ApiError(Errors.STREAMS_INVALID_TOPOLOGY, "Changelog topics must have an undefined partition count.")
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    given = [tasks is not None for tasks in owned.values()]
    if any(given) and not all(given):
        raise _invalid("If one task-type is non-null, all must be non-null.")
    if epoch != 0 and topology is not None:
        raise _invalid("Topology can only be provided when (re-)joining.")
