"""The Java coordinator's request handlers (``GroupCoordinatorService`` and ``GroupCoordinatorShard``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordinator_core.coordinator.classic import State
from coordinator_core.coordinator.describe import classic_description, listed
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.classic_members import ClassicMembers
from coordinator_core.coordinator.java.consumer import ConsumerGroups
from coordinator_core.coordinator.java.consumer_group import LiveConsumerGroup
from coordinator_core.coordinator.java.group import Group, JavaClassicGroup
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager
from coordinator_core.coordinator.log import OffsetsLog, Record
from coordinator_core.coordinator.manager import LoadState
from coordinator_core.coordinator.maps import JavaHashMap
from coordinator_core.coordinator.membership import Client, MemberIds, Membership
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.records import group_metadata
from coordinator_core.coordinator.replies import (
    Reply,
    Respond,
    described_group,
    join_reply,
    leave_member_reply,
    leave_reply,
    sync_reply,
    topic_results,
)
from coordinator_core.coordinator.requests import (
    Committer,
    ConsumerGroupHeartbeat,
    Heartbeat,
    JoinGroup,
    MemberIdentity,
    Request,
    SyncGroup,
)
from coordinator_core.coordinator.rules import JAVA
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock

VerifyTransaction = Callable[[Request, int], Errors]


class JavaCoordinator:
    """Answers the group APIs of one broker. ``active`` is whether it was started."""

    rules = JAVA

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        log: OffsetsLog,
        new_member_id: MemberIds,
        verify: VerifyTransaction,
        metadata: Callable[[], MetadataImage],
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.manager = JavaGroupMetadataManager(settings, clock, log)
        self.membership = Membership(self.manager.rebalances, new_member_id)
        self.consumers = ConsumerGroups(self.manager, metadata, new_member_id)
        self.classic_members = ClassicMembers(self.consumers)
        self.active = True
        self._verify = verify

    def _check(self, group_id: str | None, *, empty_id: bool = False) -> None:
        """Started, group id, load state: the first checks of every request."""
        if not self.active:
            raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
        if group_id is None or (not group_id and not empty_id):
            raise ApiError(Errors.INVALID_GROUP_ID)
        self._check_state(group_id)

    def _check_state(self, group_id: str) -> None:
        state = self.manager.state_of(group_id)
        if state is LoadState.LOADING:
            raise ApiError(Errors.COORDINATOR_LOAD_IN_PROGRESS)
        if state is None:
            raise ApiError(Errors.NOT_COORDINATOR)

    def _write(self, group_id: str, records: list[Record]) -> None:
        self.manager.write(self.manager.partition_for(group_id), records)

    # Members

    def join_group(self, client: Client, body: Request, respond: Respond) -> None:
        request = JoinGroup.of(body)
        group_id = request.group_id
        settings, timeout_ms = self.settings, request.session_timeout_ms
        error = Errors.NONE
        if not self.active:
            error = Errors.COORDINATOR_NOT_AVAILABLE
        elif not group_id:
            error = Errors.INVALID_GROUP_ID
        elif not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
            error = Errors.INVALID_SESSION_TIMEOUT
        if error is not Errors.NONE:
            respond(join_reply(error, request.member_id))
            return
        try:
            self._check_state(group_id)
            group = self.manager.get_group(group_id)
            if isinstance(group, LiveConsumerGroup) and not group.is_empty:
                self.classic_members.join(group, client, request, respond)
                return
            if group is not None and not isinstance(group, LiveConsumerGroup | JavaClassicGroup):
                respond(join_reply(Errors.INCONSISTENT_GROUP_PROTOCOL))
                return
        except ApiError as failed:
            respond(join_reply(failed.error))
            return
        self._join_classic(client, request, respond)

    def _join_classic(self, client: Client, request: JoinGroup, respond: Respond) -> None:
        """``classicGroupJoinToClassicGroup``: the first join of a group is written, whatever its answer."""
        group_id = request.group_id
        records: list[Record] = []
        group = self.manager.get_group(group_id)
        if isinstance(group, LiveConsumerGroup):
            records = group.tombstones()
            for key in group.timer_keys():
                self.manager.timers.cancel(key)
            del self.manager.groups[group_id]
        is_new = group_id not in self.manager.groups
        try:
            classic = self.manager.get_or_create_classic(group_id, not request.member_id)
        except ApiError:
            respond(join_reply(Errors.UNKNOWN_MEMBER_ID, request.member_id))
            return
        answers = _Once(respond)
        self.membership.join(classic, client, request, answers)
        if is_new:
            try:
                empty = JavaClassicGroup(group_id, self.clock.now_ms)
                empty.state_timestamp_ms = classic.state_timestamp_ms
                self.manager.write(
                    self.manager.partition_for(group_id),
                    [*records, group_metadata(empty.recorded({}))],
                    replay=False,
                )
            except ApiError as error:
                self.manager.groups.pop(group_id, None)
                answers(join_reply(error.error))

    def sync_group(self, client: Client, body: Request, respond: Respond) -> None:
        request = SyncGroup.of(body)
        try:
            self._check(request.group_id)
            group = self.manager.get_group(request.group_id)
            if group is None or group.is_empty:
                raise ApiError(Errors.UNKNOWN_MEMBER_ID)
            if isinstance(group, JavaClassicGroup):
                self.membership.sync(group, request, respond)
            elif isinstance(group, LiveConsumerGroup):
                self.classic_members.sync(group, request, respond)
            else:
                raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        except ApiError as error:
            respond(sync_reply(error.error))

    def heartbeat(self, client: Client, body: Request, respond: Respond) -> None:
        request = Heartbeat.of(body)
        try:
            self._check(request.group_id)
            group = self.manager.get_group(request.group_id)
            if isinstance(group, JavaClassicGroup):
                error_code = self.membership.heartbeat(group, request)
            elif isinstance(group, LiveConsumerGroup):
                error_code = self.classic_members.heartbeat(group, request)
            else:
                error_code = Errors.UNKNOWN_MEMBER_ID
        except ApiError as error:
            loading = error.error is Errors.COORDINATOR_LOAD_IN_PROGRESS
            error_code = Errors.NONE if loading else error.error
        respond({"errorCode": error_code})

    def leave_group(self, client: Client, request: Request, respond: Respond) -> None:
        identities = MemberIdentity.all_of(request)
        try:
            self._check(request["groupId"])
            group = self.manager.get_group(request["groupId"])
            if isinstance(group, JavaClassicGroup):
                respond(self.membership.leave(group, identities))
            elif isinstance(group, LiveConsumerGroup):
                respond(self.classic_members.leave(group, identities))
            else:
                unknown = [leave_member_reply(one, Errors.UNKNOWN_MEMBER_ID) for one in identities]
                respond(leave_reply(Errors.NONE, unknown))
        except ApiError as error:
            respond(leave_reply(error.error))

    def consumer_group_heartbeat(self, client: Client, request: Request, respond: Respond) -> None:
        self.consumers.heartbeat(client, ConsumerGroupHeartbeat.of(request), respond, self._check)

    # Offsets

    def offset_commit(self, client: Client, request: Request, respond: Respond) -> None:
        who = Committer.of(request, transactional=False)
        try:
            self._check(request["groupId"], empty_id=True)
            group = self._committing_group(request["groupId"], who)
            if group is None:
                since_9 = client.version >= 9
                raise ApiError(Errors.GROUP_ID_NOT_FOUND if since_9 else Errors.ILLEGAL_GENERATION)
            validate = group.validate_offset_commit(who, client.version)
            if isinstance(group, JavaClassicGroup) and group.is_in(State.STABLE, State.PREPARING_REBALANCE):
                self.manager.rebalances.restart_session(group, group.members[who.member_id])
            reply, records = self.manager.offsets_of(request["groupId"]).commit_records(
                request, self.clock.now_ms, validate
            )
            self._write(request["groupId"], records)
        except ApiError as error:
            reply = _failed_commit(request, error.error)
        respond(reply)

    def txn_offset_commit(self, client: Client, request: Request, respond: Respond) -> None:
        who = Committer.of(request, transactional=True)
        try:
            self._check(request["groupId"])
            verified = self._verify(request, client.version)
            if verified is not Errors.NONE:
                raise ApiError(verified)
            group = self._committing_group(request["groupId"], who)
            if group is None:
                raise ApiError(Errors.ILLEGAL_GENERATION)
            validate = group.validate_offset_commit(who, client.version)
            reply, records = self.manager.offsets_of(request["groupId"]).txn_commit_records(
                request, self.clock.now_ms, validate
            )
            self.manager.write(
                self.manager.partition_for(request["groupId"]),
                records,
                producer_id=request["producerId"],
                producer_epoch=request["producerEpoch"],
            )
        except ApiError as error:
            stale = error.error is Errors.STALE_MEMBER_EPOCH
            reply = _failed_commit(request, Errors.ILLEGAL_GENERATION if stale else error.error)
        respond(reply)

    def _committing_group(self, group_id: str, who: Committer) -> Group | None:
        """The group of a commit; a commit without a generation makes a simple one."""
        group = self.manager.get_group(group_id)
        if group is None and who.generation < 0:
            group = self.manager.get_or_create_classic(group_id, True)
        return group

    def offset_fetch(self, request: Request, require_stable: bool, respond: Respond, version: int) -> None:
        """One group of an OffsetFetch; answers ``{"groupId", "errorCode", "topics"}``."""
        reply: Reply = {"groupId": request["groupId"], "errorCode": Errors.NONE, "topics": []}
        try:
            self._check(request["groupId"], empty_id=True)
            exists = True
            try:
                group = self.manager.written_group(request["groupId"])
                group.validate_offset_fetch(request.get("memberId"), request.get("memberEpoch", -1))
            except ApiError as error:
                if error.error is not Errors.GROUP_ID_NOT_FOUND:
                    raise
                exists = False
            reply["topics"] = self.manager.offsets_of(request["groupId"]).fetch(
                request, require_stable, group_exists=exists
            )
        except ApiError as error:
            reply["errorCode"] = error.error
        respond(reply)

    def offset_delete(self, client: Client, request: Request, respond: Respond) -> None:
        try:
            self._check(request["groupId"])
            group = self.manager.group(request["groupId"])
            group.validate_offset_delete()
            topics, records = self.manager.offsets_of(request["groupId"]).delete_records(request, group)
            self._write(request["groupId"], records)
        except ApiError as error:
            respond({"errorCode": error.error, "topics": []})
        else:
            respond({"errorCode": Errors.NONE, "topics": topics})

    # Groups

    def delete_groups(self, client: Client, request: Request, respond: Respond) -> None:
        """Groups of one partition go in one batch."""
        results = {}
        by_partition: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(request["groupsNames"]):
            try:
                self._check(group_id, empty_id=True)
            except ApiError as error:
                results[group_id] = error.error
            else:
                by_partition.setdefault(self.manager.partition_for(group_id), []).append(group_id)
        for partition, group_ids in by_partition.items():
            # They go through a HashSet on the way, whose order is that of the records.
            results |= self._delete(partition, list(JavaHashMap((one, None) for one in group_ids)))
        respond(
            {
                "results": [
                    {"groupId": group_id, "errorCode": results[group_id]}
                    for group_id in dict.fromkeys(request["groupsNames"])
                ]
            }
        )

    def _delete(self, partition: int, group_ids: list[str]) -> dict[str, Errors]:
        results: dict[str, Errors] = {}
        records: list[Record] = []
        for group_id in group_ids:
            try:
                group = self.manager.group(group_id)
                group.validate_delete()
            except ApiError as error:
                results[group_id] = error.error
                continue
            records += self.manager.offsets_of(group_id).delete_all_records(group_id) + group.tombstones()
            for key in group.timer_keys():
                self.manager.timers.cancel(key)
            results[group_id] = Errors.NONE
        try:
            self.manager.write(partition, records)
        except ApiError as error:
            return dict.fromkeys(group_ids, error.error)
        return results

    def describe_groups(self, client: Client, request: Request, respond: Respond) -> None:
        respond({"groups": [self._describe(group_id, client.version) for group_id in request["groups"]]})

    def _describe(self, group_id: str, version: int) -> Reply:
        try:
            self._check(group_id, empty_id=True)
        except ApiError as error:
            return described_group(group_id, error.error)
        try:
            group = self.manager.written_group(group_id)
            if not isinstance(group, JavaClassicGroup):
                raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        except ApiError as error:
            since = self.rules.missing_group_is_an_error_since
            if since is None or version < since:
                return described_group(group_id, groupState=State.DEAD)
            return described_group(group_id, error.error, errorMessage=error.message, groupState=State.DEAD)
        return classic_description(group)

    def list_groups(self, client: Client, request: Request, respond: Respond) -> None:
        """Partitions that this broker does not own say nothing; one that is loading fails the request."""
        error = Errors.NONE
        if not self.active:
            error = Errors.COORDINATOR_NOT_AVAILABLE
        elif self.manager.is_loading:
            error = Errors.COORDINATOR_LOAD_IN_PROGRESS
        groups = [] if error is not Errors.NONE else listed(self.manager.written_groups(), request)
        respond({"errorCode": error, "groups": groups})

    def consumer_group_describe(self, client: Client, request: Request, respond: Respond) -> None:
        groups = [self.consumers.describe(group_id, self._check) for group_id in request["groupIds"]]
        respond({"groups": groups})

    # The rest of the cluster

    def topics_deleted(self, topics: Iterable[tuple[str, str]]) -> None:
        """One batch of tombstones per partition (``onTopicsDeleted``)."""
        deleted = list(topics)
        for partition, offsets in self.manager.offsets.items():
            self.manager.write(partition, offsets.topics_deleted_records(deleted))
        self.consumers.topics_deleted({name for name, _ in deleted})

    def complete_transaction(self, producer_id: int, partition: int, commit: bool) -> None:
        self.manager.shard(partition).end_transaction(producer_id, commit)


class _Once:
    """Only the first answer counts, as with a ``CompletableFuture``."""

    def __init__(self, respond: Respond) -> None:
        self._respond: Respond | None = respond

    def __call__(self, reply: Reply) -> None:
        respond, self._respond = self._respond, None
        if respond is not None:
            respond(reply)


def _failed_commit(request: Request, error: Errors) -> Reply:
    return {"topics": topic_results(request["topics"], lambda _topic, _partition: error)}
