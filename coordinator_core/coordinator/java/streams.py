"""StreamsGroupHeartbeat and StreamsGroupDescribe (KIP-1071), and what timers do to streams groups.

Source: ``GroupMetadataManager`` (``streamsGroupHeartbeat``, ``streamsGroupLeave``, ``streamsGroupFenceMember``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java import streams_members as members
from coordinator_core.coordinator.java import streams_records as records
from coordinator_core.coordinator.java import streams_requests as requests
from coordinator_core.coordinator.java import streams_topology as topologies
from coordinator_core.coordinator.java.group import JavaClassicGroup
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager
from coordinator_core.coordinator.java.modern_group import invalid_request
from coordinator_core.coordinator.java.modern_groups import Check, ModernGroups
from coordinator_core.coordinator.java.streams_assignor import MemberSpec, assign_sticky
from coordinator_core.coordinator.java.streams_describe import described, listed
from coordinator_core.coordinator.java.streams_group import LiveStreamsGroup, LiveStreamsRecords, initial_rebalance_key
from coordinator_core.coordinator.java.streams_member import NO_TASKS, LiveStreamsMember
from coordinator_core.coordinator.java.streams_reconciliation import reconcile
from coordinator_core.coordinator.java.streams_topology import ConfiguredTopology
from coordinator_core.coordinator.log import Record
from coordinator_core.coordinator.maps import JavaHashMap
from coordinator_core.coordinator.membership import Client
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.record_data import Endpoint, StreamsTopology
from coordinator_core.coordinator.records import group_tombstone
from coordinator_core.coordinator.replies import (
    DescribedStreamsGroup,
    EndpointPartitions,
    Status,
    StreamsGroupHeartbeatReply,
    TopicPartitionNumbers,
)
from coordinator_core.coordinator.requests import StreamsGroupHeartbeat
from coordinator_core.groups.model import (
    LEAVE_GROUP_MEMBER_EPOCH,
    LEAVE_GROUP_STATIC_MEMBER_EPOCH,
    GroupState,
    MemberState,
    TaskAssignment,
    Tasks,
)
from coordinator_core.releases.requests import RequestRules

METADATA_REFRESH_MS = (1 << 31) - 1


class StreamsGroups(ModernGroups[LiveStreamsGroup]):
    """The streams groups of one coordinator."""

    def __init__(
        self,
        manager: JavaGroupMetadataManager,
        metadata: Callable[[], MetadataImage],
        metadata_hash: Callable[[Iterable[str]], int],
        rules: RequestRules,
    ) -> None:
        super().__init__(manager, metadata, LiveStreamsGroup, "streams")
        self._rules = rules.streams
        self._readmits_known_members = rules.readmits_known_members
        self._emptied_group_is_assigned = rules.emptied_group_is_assigned
        self._plain_reply = StreamsGroupHeartbeatReply(Errors.NONE)
        if self._rules.takes_task_offsets:
            self._plain_reply = replace(self._plain_reply, acceptable_recovery_lag=-1, acceptable_recovery_lag_legacy=0)
        self.metadata_hash = metadata_hash
        self.create_topics: Callable[[Mapping[str, int]], None] = lambda _topics: None
        """Has internal topics created, with their numbers of partitions; who owns the cluster sets it."""

    @property
    def session_timeout_ms(self) -> int:
        return self.settings.group_streams_session_timeout_ms

    def topics_of(self, group: LiveStreamsGroup) -> set[str]:
        topology = group.streams_topology
        return set() if topology is None else set(topologies.required_topics(topology))

    # Heartbeat

    def heartbeat(self, client: Client, request: StreamsGroupHeartbeat, check: Check) -> StreamsGroupHeartbeatReply:
        try:
            requests.validate_names(request.topology)
            requests.validate(request, self._rules)
            check(request.group_id)
            if request.member_epoch in (LEAVE_GROUP_MEMBER_EPOCH, LEAVE_GROUP_STATIC_MEMBER_EPOCH):
                return self._leave(request)
            return self._heartbeat(client, request)
        except ApiError as error:
            return replace(self._plain_reply, error_code=error.error, error_message=error.message)

    def _heartbeat(self, client: Client, request: StreamsGroupHeartbeat) -> StreamsGroupHeartbeatReply:
        out: list[Record] = []
        joins = request.member_epoch == 0
        group = self._group(request.group_id, joins, out)
        if joins:
            self._throw_if_full(group, request)
        member = members.member_of_request(group, request, out)
        updated = members.updated(member, client, request, self._rules)
        status: list[Status] = []
        bump = False
        if updated != member:
            out.append(records.member(group.group_id, updated))
            bump = request.instance_id is None or members.needs_another_target(member, updated)
        topology = _topology(group, request.topology, out)
        if group.topology is not None and updated.topology_epoch < topology.epoch:
            text = (
                f"The member's topology epoch {updated.topology_epoch} is behind the group's topology epoch "
                f"{topology.epoch}."
            )
            status.append(Status(topologies.STALE_TOPOLOGY, text))
        configured, metadata_hash, changed = self._configure(group, topology)
        validated = topology.epoch if configured.is_ready else -1
        if configured.subtopologies is not None and configured.is_ready:
            for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
                requests.validate_tasks(configured, tasks or ())
        members.take_offsets(group, request)
        configs = {"num.standby.replicas": str(self.settings.group_streams_num_standby_replicas)}
        bump = bump or changed or validated != group.validated_topology_epoch
        bump = bump or configs != group.last_assignment_configs
        keeps = self._rules.keeps_targets_of_an_epoch
        is_settled = keeps and not bump and group.state is GroupState.STABLE
        refines = is_settled and group.target(updated.member_id) != updated.assigned
        group_epoch = group.group_epoch
        if bump or refines:
            group_epoch += 1
            out.append(records.epoch(group.group_id, group_epoch, metadata_hash, validated, configs))
            group.metadata_deadline_ms = self.now_ms + METADATA_REFRESH_MS
            group.metadata_deadline_epoch = group_epoch
        self._delay_first_rebalance(group)
        target_epoch, targets = self._update_target(
            group, group_epoch, updated, configured, out, status, refines=refines
        )
        if keeps and self.settings.group_streams_num_warmup_replicas > 0:
            targets = group.keep_targets(target_epoch, targets, anew=is_settled)
        target = targets.get(updated.member_id, NO_TASKS)
        in_place = self._rules.changes_roles_in_place
        reconciled = reconcile(group, updated, target_epoch, target, requests.owned_tasks(request), in_place=in_place)
        self._keep_current(group.group_id, updated, reconciled, out)
        self._count_endpoints(group, member, reconciled, joins=joins)
        changed = joins or reconciled.assigned != member.assigned
        reply = self._reply(group, reconciled, request, configured, status, changed=changed)
        self.manager.write_group(group.group_id, out)
        if configured.missing:
            self.create_topics(configured.missing)
        return reply

    def _throw_if_full(self, group: LiveStreamsGroup, request: StreamsGroupHeartbeat) -> None:
        is_known = request.member_id in group.members or request.instance_id in group.static_members
        if self._readmits_known_members and is_known:
            return
        if len(group.members) >= self.settings.group_streams_max_size:
            raise ApiError(Errors.GROUP_MAX_SIZE_REACHED, "The streams group has reached its maximum capacity.")

    def _keep_current(
        self, group_id: str, member: LiveStreamsMember, reconciled: LiveStreamsMember, out: list[Record]
    ) -> None:
        """The member's record when it changed, and its time to revoke tasks."""
        if reconciled != member:
            out.append(records.current(group_id, reconciled))
            if reconciled.state is MemberState.UNREVOKED_TASKS:
                self.schedule_rebalance_timeout(group_id, reconciled)
            else:
                self.manager.timers.cancel(("rebalance", group_id, member.member_id))
        self.restart_session(group_id, member.member_id)

    def _reply(
        self,
        group: LiveStreamsGroup,
        member: LiveStreamsMember,
        request: StreamsGroupHeartbeat,
        configured: ConfiguredTopology,
        status: list[Status],
        *,
        changed: bool,
    ) -> StreamsGroupHeartbeatReply:
        if request.shutdown_application and group.shutdown_member_id is None:
            group.shutdown_member_id = member.member_id
        if configured.problem is not None:
            status.append(configured.problem)
        if group.shutdown_member_id is not None:
            text = (
                f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a shutdown "
                "for the entire application."
            )
            status.append(Status(topologies.SHUTDOWN_APPLICATION, text))
        endpoints = None
        if group.endpoint_epoch != request.endpoint_information_epoch:
            endpoints = self._endpoints(group, member, configured)
        reply = self._plain_reply
        if self._rules.takes_task_offsets:
            reply = replace(
                reply,
                acceptable_recovery_lag=self.settings.group_streams_acceptable_recovery_lag,
                task_offset_interval_ms=self.settings.group_streams_task_offset_interval_ms,
            )
        return replace(
            reply,
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self.settings.group_streams_heartbeat_interval_ms,
            status=tuple(status),
            active_tasks=listed(member.assigned.active) if changed else None,
            standby_tasks=listed(member.assigned.standby) if changed else None,
            warmup_tasks=listed(member.assigned.warmup) if changed else None,
            # A group that this heartbeat makes is not there yet.
            endpoint_information_epoch=0 if self.manager.get_group(group.group_id) is None else group.endpoint_epoch,
            partitions_by_user_endpoint=endpoints,
        )

    def _group(self, group_id: str, create: bool, out: list[Record]) -> LiveStreamsGroup:
        """``getOrCreateStreamsGroup``: an Empty classic group is replaced.

        A new group is one that nobody keeps: what the records of this heartbeat make of it is another object, to
        which nothing goes over that no record holds.
        """
        group = self.manager.get_group(group_id)
        if create and isinstance(group, JavaClassicGroup) and group.is_in(GroupState.EMPTY):
            out.append(group_tombstone(group_id))
            group = None
        if group is None and create:
            new: LiveStreamsGroup = LiveStreamsRecords({}, self.manager.profile).new_group(group_id)
            return new
        if group is None:
            raise self.not_found(group_id)
        return self.own(group_id, group)

    def _configure(self, group: LiveStreamsGroup, topology: StreamsTopology) -> tuple[ConfiguredTopology, int, bool]:
        """The topology with the cluster's topics, the hash of these, and whether it is another one."""
        if group.topology is not None and group.configured is not None and not group.metadata_expired(self.now_ms):
            return group.configured, group.metadata_hash, False
        metadata_hash = self.metadata_hash(topologies.required_topics(topology))
        changed = metadata_hash != group.metadata_hash
        if changed or group.topology is None or group.configured is None:
            configured = topologies.configure(topology, self.metadata())
            group.configure(configured, self._end_offset(group.group_id))
            return configured, metadata_hash, changed
        return group.configured, metadata_hash, changed

    def _end_offset(self, group_id: str) -> int:
        """End of the group's offsets partition."""
        return len(self.manager.log.partitions.get(self.manager.partition_for(group_id), ()))

    # Target assignment

    def _delay_first_rebalance(self, group: LiveStreamsGroup) -> None:
        """Members that come within ``group.streams.initial.rebalance.delay.ms`` get their tasks together."""
        delay_ms = self.settings.group_streams_initial_rebalance_delay_ms
        if group.is_empty and delay_ms > 0:
            group_id = group.group_id
            key = initial_rebalance_key(group_id)
            self.manager.timers.schedule_if_absent(key, delay_ms, lambda: self._first_rebalance(group_id))

    def _first_rebalance(self, group_id: str) -> None:
        group = self.manager.get_group(group_id)
        if not isinstance(group, LiveStreamsGroup) or group.is_empty or group.configured is None:
            return
        out: list[Record] = []
        interval_ms = self.settings.group_streams_assignment_interval_ms
        if group.group_epoch > group.assignment_epoch and group.may_assign(interval_ms, self.now_ms):
            self._assign(group, group.group_epoch, None, group.configured, out)
        try:
            self.manager.write_group(group_id, out)
        except ApiError:
            # The next heartbeat computes it.
            return

    def _update_target(
        self,
        group: LiveStreamsGroup,
        group_epoch: int,
        member: LiveStreamsMember,
        configured: ConfiguredTopology,
        out: list[Record],
        status: list[Status],
        *,
        refines: bool,
    ) -> tuple[int, dict[str, TaskAssignment]]:
        """Epoch of the target assignment, and the assignment by member, computed anew where that is due.

        ``refines``: the assignment stays and gets another epoch, so that a member comes to have what it says.
        """
        if self.manager.timers.is_scheduled(initial_rebalance_key(group.group_id)):
            text = "Assignment delayed due to the configured initial rebalance delay."
            status.append(Status(topologies.ASSIGNMENT_DELAYED, text))
            return group.assignment_epoch, {}
        if group.assignment_epoch >= group_epoch:
            return group.assignment_epoch, group.targets(member)
        if refines:
            out.append(records.target_metadata(group.group_id, group_epoch, group.assignment_timestamp_ms))
            return group_epoch, group.targets(member)
        if not group.may_assign(self.settings.group_streams_assignment_interval_ms, self.now_ms):
            text = "Assignment delayed due to the configured assignment interval."
            status.append(Status(topologies.ASSIGNMENT_DELAYED, text))
            return group.assignment_epoch, group.targets(member)
        return group_epoch, self._assign(group, group_epoch, member, configured, out)

    def _assign(
        self,
        group: LiveStreamsGroup,
        group_epoch: int,
        updated: LiveStreamsMember | None,
        configured: ConfiguredTopology,
        out: list[Record],
    ) -> dict[str, TaskAssignment]:
        """``TargetAssignmentBuilder``: targets by member; without tasks while the topology is not ready."""
        before, replaced_id = group.targets(updated), group.replaced_by(updated)
        specs: JavaHashMap[str, MemberSpec] = JavaHashMap()
        for one in (*group.members.values(), *([] if updated is None else [updated])):
            if one.member_id != replaced_id:
                target = before.get(one.member_id, NO_TASKS)
                has = one.assigned if self._rules.assigns_from_current else target
                specs[one.member_id] = MemberSpec(one.process_id, has, group.reported(one.member_id).offsets)
        targets = dict.fromkeys(specs, NO_TASKS)
        if configured.is_ready and configured.subtopologies is not None:
            replicas = int(group.last_assignment_configs.get("num.standby.replicas", 0))
            if updated is not None:
                replicas = self.settings.group_streams_num_standby_replicas
            revised = self._rules.has_revised_assignor
            targets = assign_sticky(specs, configured.subtopologies, replicas, revised=revised)
        for member_id in specs:
            if targets[member_id] != before.get(member_id):
                out.append(records.target(group.group_id, member_id, targets[member_id]))
        out.append(records.target_metadata(group.group_id, group_epoch, self.now_ms))
        return targets

    # Endpoints

    def _count_endpoints(
        self, group: LiveStreamsGroup, member: LiveStreamsMember, reconciled: LiveStreamsMember, *, joins: bool
    ) -> None:
        """Members are told of endpoints again once one of them, or what is behind it, is another."""
        has_endpoint = reconciled.user_endpoint is not None
        tasks_changed = reconciled.assigned != member.assigned
        moved = reconciled.user_endpoint != member.user_endpoint
        counts = (joins or tasks_changed) and has_endpoint
        if self._rules.follows_endpoints:
            counts = moved or (tasks_changed and has_endpoint)
        if joins or tasks_changed or (moved and self._rules.follows_endpoints):
            group.endpoints.pop(reconciled.member_id, None)
        group.endpoint_epoch += counts

    def _endpoints(
        self, group: LiveStreamsGroup, member: LiveStreamsMember, configured: ConfiguredTopology
    ) -> tuple[EndpointPartitions, ...]:
        """Partitions of members with an endpoint, the asking member last; a list once told stays until it changes."""
        found = []
        left_out = (member.member_id, group.replaced_by(member))
        others = (one for one in group.members.values() if one.member_id not in left_out)
        for one in (*others, member):
            if one.user_endpoint is None:
                continue
            if one.member_id not in group.endpoints:
                group.endpoints[one.member_id] = self._endpoint(one, one.user_endpoint, configured)
            found.append(group.endpoints[one.member_id])
        return tuple(found)

    def _endpoint(
        self, member: LiveStreamsMember, endpoint: tuple[str, int], configured: ConfiguredTopology
    ) -> EndpointPartitions:
        if configured.subtopologies is None:
            # Kafka breaks off here.
            raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
        return EndpointPartitions(
            Endpoint(*endpoint),
            self._topic_partitions(member.assigned.active, configured),
            self._topic_partitions(member.assigned.standby, configured),
        )

    def _topic_partitions(self, tasks: Tasks, configured: ConfiguredTopology) -> tuple[TopicPartitionNumbers, ...]:
        """Partitions of the topics that the tasks read: as many of them as the topic has, in 4.4 those that it has."""
        assert configured.subtopologies is not None
        found = []
        for name in tasks:
            one = configured.subtopologies[name]
            topics = JavaHashMap((topic, None) for topic in sorted(one.source_topics))
            topics.update(dict.fromkeys(topic.name for topic in one.repartition_source_topics))
            for topic in topics:
                known = self.metadata().topic(topic)
                if known is None:
                    raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
                partitions = tasks[name][: known.partitions]
                if self._rules.follows_endpoints:
                    partitions = tuple(one for one in tasks[name] if one < known.partitions)
                if partitions or not self._rules.follows_endpoints:
                    found.append(TopicPartitionNumbers(topic, partitions))
        return tuple(found)

    # Leaving and fencing

    def _leave(self, request: StreamsGroupHeartbeat) -> StreamsGroupHeartbeatReply:
        group = self.group(request.group_id)
        if request.shutdown_application and group.shutdown_member_id is None:
            group.shutdown_member_id = request.member_id
        reply = replace(self._plain_reply, member_id=request.member_id, member_epoch=request.member_epoch)
        member = group.known_member(request.member_id, request.instance_id)
        if request.member_epoch != LEAVE_GROUP_STATIC_MEMBER_EPOCH:
            self.remove(group, member.member_id)
            return reply
        self.manager.write_group(group.group_id, [records.current(group.group_id, members.away(member))])
        return reply

    def remove(self, group: LiveStreamsGroup, member_id: str) -> None:
        group_id = group.group_id
        out = records.removal(group_id, group.member(member_id).member_id)
        out.append(
            records.epoch(
                group_id,
                group.group_epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.last_assignment_configs,
            )
        )
        if self._emptied_group_is_assigned and len(group.members) == 1:
            out.append(records.target_metadata(group_id, group.group_epoch + 1, 0))
        self.manager.write_group(group_id, out)
        self.cancel_timers(group_id, member_id)

    # Describe

    def describe(self, group_id: str, check: Check, *, topology_description: bool) -> DescribedStreamsGroup:
        """One group of a StreamsGroupDescribe; of descriptions of topologies (KIP-1331) none is stored."""

        def show(group: LiveStreamsGroup) -> DescribedStreamsGroup:
            return described(group, self._end_offset(group_id), topology_description=topology_description)

        return self.describe_by(group_id, check, show, DescribedStreamsGroup)


def _topology(group: LiveStreamsGroup, sent: StreamsTopology | None, out: list[Record]) -> StreamsTopology:
    """``maybeUpdateTopology``: the first one stays; a later one is refused, an earlier one passed over."""
    current = group.streams_topology
    if sent is not None:
        topologies.by_id(sent)
        if current is None:
            out.append(records.topology(group.group_id, sent))
            return sent
        if current.epoch <= sent.epoch and not topologies.same_topology(current, sent):
            raise invalid_request("Topology updates are not supported yet.")
    if current is None:
        raise ApiError(Errors.UNKNOWN_SERVER_ERROR)
    return current
