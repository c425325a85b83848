"""Members of a streams group that join, come back and say something new.

Source: ``GroupMetadataManager`` (``getOrMaybeCreateStaticStreamsGroupMember``, ``replaceStreamsMember``).
"""

from __future__ import annotations

from dataclasses import replace

from coordinator_core.coordinator.java import streams_records as records
from coordinator_core.coordinator.java.modern_group import replacement, unreleased_instance_id, validate_epoch
from coordinator_core.coordinator.java.streams_group import LiveStreamsGroup
from coordinator_core.coordinator.java.streams_member import NO_TASKS, LiveStreamsMember, TaskOffsets
from coordinator_core.coordinator.java.streams_requests import by_task, owns_subset
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.membership import Client
from coordinator_core.coordinator.requests import StreamsGroupHeartbeat
from coordinator_core.groups.model import LEAVE_GROUP_STATIC_MEMBER_EPOCH
from coordinator_core.releases.requests import StreamsRules


def member_of_request(group: LiveStreamsGroup, request: StreamsGroupHeartbeat, out: list[Record]) -> LiveStreamsMember:
    """The member that a heartbeat is of, a new one where it joins; ``out`` gets the records that replace a static
    member.

    Raises :class:`ApiError` for a member that is unknown or fenced, and for an instance id that is taken.
    """
    member_id, instance_id = request.member_id, request.instance_id
    static = group.static_member(instance_id)
    if static is not None and static.member_id != member_id:
        # Kafka does so before it refuses the member, and a refusal does not undo it: the owner loses its tasks.
        group.rename_kept_target(static.member_id, member_id)
    if request.member_epoch == 0:
        if static is not None:
            if static.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
                raise unreleased_instance_id(static, member_id, instance_id)
            return replacement(records, group, static, member_id, out)
        new = LiveStreamsMember(member_id, rebalance_timeout_ms=-1, topology_epoch=-1, previous_member_epoch=0)
        return group.members.get(member_id) or new
    member = group.known_member(member_id, instance_id)
    validate_epoch("streams", member, request.member_epoch, owns_subset=owns_subset(request, member))
    return member


def needs_another_target(member: LiveStreamsMember, updated: LiveStreamsMember) -> bool:
    """Tell whether something changed of a static member that counts for the assignment."""
    return (member.topology_epoch, member.rack_id, member.client_tags, member.process_id) != (
        updated.topology_epoch,
        updated.rack_id,
        updated.client_tags,
        updated.process_id,
    )


def updated(
    member: LiveStreamsMember, client: Client, request: StreamsGroupHeartbeat, rules: StreamsRules
) -> LiveStreamsMember:
    """The member with the values of the request; null and -1 say nothing new."""
    timeout_ms, tags, endpoint = request.rebalance_timeout_ms, request.client_tags, request.user_endpoint
    keeps_endpoint = endpoint is None and not (rules.follows_endpoints and request.member_epoch == 0)
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        client_id=client.client_id,
        client_host=client.host,
        process_id=member.process_id if request.process_id is None else request.process_id,
        user_endpoint=member.user_endpoint if keeps_endpoint else endpoint and (endpoint.host, endpoint.port),
        client_tags=member.client_tags if tags is None else tuple(sorted((tag.key, tag.value) for tag in tags)),
    )


def take_offsets(group: LiveStreamsGroup, request: StreamsGroupHeartbeat) -> None:
    """Keep the member's report of its tasks, until it reports anew or is gone; no record holds it."""
    if request.task_offsets is None and request.task_end_offsets is None:
        return
    known = group.reported(request.member_id)
    group.task_offsets[request.member_id] = TaskOffsets(
        known.offsets if request.task_offsets is None else by_task(request.task_offsets),
        known.end_offsets if request.task_end_offsets is None else by_task(request.task_end_offsets),
    )


def away(member: LiveStreamsMember) -> LiveStreamsMember:
    """A static member that leaves for a while: it keeps its tasks."""
    return replace(
        member,
        member_epoch=LEAVE_GROUP_STATIC_MEMBER_EPOCH,
        pending_revocation=NO_TASKS,
        active_epochs={name: (0,) * len(found) for name, found in member.assigned.active.items()},
        revoking_epochs={},
    )
