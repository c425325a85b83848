"""The Scala coordinator's request handlers (``GroupCoordinator`` behind ``GroupCoordinatorAdapter``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator_core.coordinator.classic import State
from coordinator_core.coordinator.describe import classic_description, listed
from coordinator_core.coordinator.errors import SCALA_COMMIT_ERRORS, ApiError, Errors, translated
from coordinator_core.coordinator.log import OffsetsLog
from coordinator_core.coordinator.manager import LoadState
from coordinator_core.coordinator.maps import TopicIdPartition, TopicPartition
from coordinator_core.coordinator.membership import Client, MemberIds, Membership
from coordinator_core.coordinator.records import metadata_fits, requested_commit
from coordinator_core.coordinator.replies import (
    Reply,
    Respond,
    described_consumer_group,
    described_group,
    fetched_offset,
    join_reply,
    leave_member_reply,
    leave_reply,
    sync_reply,
    topic_of,
    topic_results,
)
from coordinator_core.coordinator.requests import (
    Committer,
    Heartbeat,
    JoinGroup,
    MemberIdentity,
    Request,
    SyncGroup,
)
from coordinator_core.coordinator.rules import SCALA
from coordinator_core.coordinator.scala.group import ScalaGroup
from coordinator_core.coordinator.scala.offsets import Commits, ScalaGroupMetadataManager
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock
from coordinator_core.coordinator.validation import validate_commit
from coordinator_core.groups.model import OffsetKey

EMPTY_ID_ALLOWED = frozenset({"OffsetCommit", "OffsetFetch", "DescribeGroups", "DeleteGroups"})
DEFAULT_RETENTION = -1

VerifyTransaction = Callable[[Request, int], Errors]
"""Says whether the transaction of a TxnOffsetCommit has the group's partition; takes its version."""


class ScalaCoordinator:
    """Answers the group APIs of one broker. ``active`` is whether it was started."""

    rules = SCALA

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        log: OffsetsLog,
        new_member_id: MemberIds,
        verify: VerifyTransaction = lambda _request, _version: Errors.NONE,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.manager = ScalaGroupMetadataManager(settings, clock, log)
        self.membership = Membership(self.manager.rebalances, new_member_id)
        self.active = True
        self._verify = verify

    def validate_group_status(self, group_id: str | None, api: str) -> None:
        """The first checks of every request, in Kafka's order; raises :class:`ApiError`."""
        if group_id is None or (not group_id and api not in EMPTY_ID_ALLOWED):
            raise ApiError(Errors.INVALID_GROUP_ID)
        if not self.active:
            raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
        state = self.manager.state_of(group_id)
        if state is LoadState.LOADING:
            raise ApiError(Errors.COORDINATOR_LOAD_IN_PROGRESS)
        if state is None:
            raise ApiError(Errors.NOT_COORDINATOR)

    # Members

    def join_group(self, client: Client, body: Request, respond: Respond) -> None:
        request = JoinGroup.of(body)
        member_id = request.member_id
        try:
            self.validate_group_status(request.group_id, "JoinGroup")
            timeout_ms = request.session_timeout_ms
            settings = self.settings
            if not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
                raise ApiError(Errors.INVALID_SESSION_TIMEOUT)
            group = self.manager.get_or_maybe_create_group(request.group_id, not member_id)
            if group is None:
                raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        except ApiError as error:
            respond(join_reply(error.error, member_id))
            return
        self.membership.join(group, client, request, respond)

    def sync_group(self, client: Client, body: Request, respond: Respond) -> None:
        request = SyncGroup.of(body)
        try:
            self.validate_group_status(request.group_id, "SyncGroup")
        except ApiError as error:
            # A client that learns of a rebalance joins again, and finds the coordinator loaded by then.
            loading = error.error is Errors.COORDINATOR_LOAD_IN_PROGRESS
            respond(sync_reply(Errors.REBALANCE_IN_PROGRESS if loading else error.error))
            return
        group = self.manager.get_group(request.group_id)
        if group is None:
            respond(sync_reply(Errors.UNKNOWN_MEMBER_ID))
        else:
            self.membership.sync(group, request, respond)

    def heartbeat(self, client: Client, body: Request, respond: Respond) -> None:
        request = Heartbeat.of(body)
        try:
            self.validate_group_status(request.group_id, "Heartbeat")
        except ApiError as error:
            loading = error.error is Errors.COORDINATOR_LOAD_IN_PROGRESS
            respond({"errorCode": Errors.NONE if loading else error.error})
            return
        group = self.manager.get_group(request.group_id)
        error_code = Errors.UNKNOWN_MEMBER_ID if group is None else self.membership.heartbeat(group, request)
        respond({"errorCode": error_code})

    def leave_group(self, client: Client, request: Request, respond: Respond) -> None:
        identities = MemberIdentity.all_of(request)
        try:
            self.validate_group_status(request["groupId"], "LeaveGroup")
        except ApiError as error:
            respond(leave_reply(error.error))
            return
        group = self.manager.get_group(request["groupId"])
        if group is None:
            unknown = [leave_member_reply(one, Errors.UNKNOWN_MEMBER_ID) for one in identities]
            respond(leave_reply(Errors.NONE, unknown))
        else:
            respond(self.membership.leave(group, identities))

    # Offsets

    def offset_commit(self, client: Client, request: Request, respond: Respond) -> None:
        retention_ms = request.get("retentionTimeMs", DEFAULT_RETENTION)
        expires = None if retention_ms == DEFAULT_RETENTION else self.clock.now_ms + retention_ms
        commits = self._commits(request, expires)
        who = Committer.of(request, transactional=False)
        try:
            self.validate_group_status(request["groupId"], "OffsetCommit")
            group = self.manager.get_group(request["groupId"])
            if group is None:
                if who.generation >= 0:
                    raise ApiError(Errors.ILLEGAL_GENERATION)
                group = self.manager.get_or_maybe_create_group(request["groupId"], True)
                assert group is not None
            validate_commit(group, who)
            if group.is_in(State.COMPLETING_REBALANCE):
                raise ApiError(Errors.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            respond(_failed_commit(request, error.error))
            return
        if not group.is_in(State.EMPTY):
            self.manager.rebalances.restart_session(group, group.members[who.member_id])
        errors = self.manager.store_offsets(group, commits)
        respond(_commit_reply(request, errors.__getitem__))

    def txn_offset_commit(self, client: Client, request: Request, respond: Respond) -> None:
        try:
            self.validate_group_status(request["groupId"], "TxnOffsetCommit")
            group = self.manager.get_or_maybe_create_group(request["groupId"], True)
            assert group is not None
            verified = self._verify(request, client.version)
            if verified is not Errors.NONE:
                raise ApiError(translated(verified, SCALA_COMMIT_ERRORS))
            validate_commit(group, Committer.of(request, transactional=True))
        except ApiError as error:
            respond(_failed_commit(request, error.error))
            return
        errors = self.manager.store_offsets(
            group, self._commits(request, None), request["producerId"], request["producerEpoch"]
        )
        respond(_commit_reply(request, errors.__getitem__))

    def _commits(self, request: Request, expire_timestamp_ms: int | None) -> Commits:
        """The last of two commits for one partition stands."""
        commits: Commits = {}
        for topic in request["topics"]:
            for partition in topic["partitions"]:
                offset_key = TopicIdPartition(topic["name"], partition["partitionIndex"])
                commits[offset_key] = None
                if metadata_fits(partition, self.settings):
                    commits[offset_key] = requested_commit(
                        OffsetKey(request["groupId"], *offset_key),
                        partition,
                        now_ms=self.clock.now_ms,
                        expire_timestamp_ms=expire_timestamp_ms,
                        version=3,
                    )
        return commits

    def offset_fetch(self, request: Request, require_stable: bool, respond: Respond, version: int) -> None:
        """One group of an OffsetFetch; answers ``{"groupId", "errorCode", "topics"}``."""
        reply: Reply = {"groupId": request["groupId"], "errorCode": Errors.NONE, "topics": []}
        try:
            self.validate_group_status(request["groupId"], "OffsetFetch")
        except ApiError as error:
            respond(reply | {"errorCode": error.error})
            return
        topics = request["topics"]
        offset_keys = None if topics is None else list(_fetch_offset_keys(topics))
        topics_by_name: dict[str, list[Reply]] = {}
        for offset_key, committed, code in self.manager.get_offsets(request["groupId"], require_stable, offset_keys):
            topics_by_name.setdefault(offset_key.topic, []).append(
                fetched_offset(offset_key.partition, committed, code)
            )
        reply["topics"] = [{"name": name, "partitions": partitions} for name, partitions in topics_by_name.items()]
        respond(reply)

    def offset_delete(self, client: Client, request: Request, respond: Respond) -> None:
        reply: Reply = {"errorCode": Errors.NONE, "topics": []}
        try:
            self.validate_group_status(request["groupId"], "OffsetDelete")
            group = self.manager.get_group(request["groupId"])
            if group is None or group.is_in(State.DEAD):
                raise ApiError(Errors.GROUP_ID_NOT_FOUND)
            if not group.is_in(State.EMPTY) and not group.uses_consumer_protocol:
                raise ApiError(Errors.NON_EMPTY_GROUP)
        except ApiError as error:
            respond(reply | {"errorCode": error.error})
            return
        live = not group.is_in(State.EMPTY)

        def error_of(topic: Reply, _partition: Reply) -> Errors:
            subscribed = live and group.is_subscribed_to(topic["name"])
            return Errors.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else Errors.NONE

        offset_keys = [
            TopicPartition(topic["name"], partition["partitionIndex"])
            for topic in request["topics"]
            for partition in topic["partitions"]
            if error_of(topic, partition) is Errors.NONE
        ]
        if offset_keys:
            self.manager.cleanup([group], lambda one: one.remove_offsets(offset_keys))
        respond(reply | {"topics": topic_results(request["topics"], error_of)})

    # Groups

    def delete_groups(self, client: Client, request: Request, respond: Respond) -> None:
        errors: dict[str, Errors] = {}
        eligible: list[ScalaGroup] = []
        for group_id in dict.fromkeys(request["groupsNames"]):
            try:
                self.validate_group_status(group_id, "DeleteGroups")
                group = self.manager.get_group(group_id)
                if group is None or group.is_in(State.DEAD):
                    raise ApiError(Errors.GROUP_ID_NOT_FOUND)
                if not group.is_in(State.EMPTY):
                    raise ApiError(Errors.NON_EMPTY_GROUP)
            except ApiError as error:
                errors[group_id] = error.error
                continue
            group.transition(State.DEAD, self.clock.now_ms)
            eligible.append(group)
            errors[group_id] = Errors.NONE
        self.manager.cleanup(eligible, ScalaGroup.remove_all_offsets)
        respond({"results": [{"groupId": one, "errorCode": code} for one, code in errors.items()]})

    def describe_groups(self, client: Client, request: Request, respond: Respond) -> None:
        respond({"groups": [self._describe(group_id) for group_id in request["groups"]]})

    def _describe(self, group_id: str) -> Reply:
        try:
            self.validate_group_status(group_id, "DescribeGroups")
        except ApiError as error:
            return described_group(group_id, error.error)
        group = self.manager.get_group(group_id)
        if group is None:
            return described_group(group_id, groupState=State.DEAD)
        return classic_description(group)

    def list_groups(self, client: Client, request: Request, respond: Respond) -> None:
        if not self.active:
            respond({"errorCode": Errors.COORDINATOR_NOT_AVAILABLE, "groups": []})
            return
        loading = self.manager.is_loading
        respond(
            {
                "errorCode": Errors.COORDINATOR_LOAD_IN_PROGRESS if loading else Errors.NONE,
                "groups": listed(self.manager.groups.values(), request),
            }
        )

    def consumer_group_heartbeat(self, client: Client, request: Request, respond: Respond) -> None:
        respond(
            {
                "errorCode": Errors.UNSUPPORTED_VERSION,
                "errorMessage": None,
                "memberId": None,
                "memberEpoch": 0,
                "heartbeatIntervalMs": 0,
                "assignment": None,
            }
        )

    def consumer_group_describe(self, client: Client, request: Request, respond: Respond) -> None:
        respond(
            {
                "groups": [
                    described_consumer_group(group_id, Errors.UNSUPPORTED_VERSION) for group_id in request["groupIds"]
                ]
            }
        )

    # The rest of the cluster

    def topics_deleted(self, topics: Iterable[tuple[str, str]]) -> None:
        """``handleDeletedPartitions``: every group is cleaned, also of what the topic does not concern."""
        names = {name for name, _ in topics}
        self.manager.cleanup(self.manager.groups.values(), lambda group: group.remove_topics(names))

    def complete_transaction(self, producer_id: int, partition: int, commit: bool) -> None:
        self.manager.complete_transaction(producer_id, partition, commit)


def _commit_reply(request: Request, error_of: Callable[[TopicIdPartition], Errors]) -> Reply:
    """One result per partition, however often the request names it."""
    topics: dict[str, dict[int, Errors]] = {}
    for topic in request["topics"]:
        errors = topics.setdefault(topic["name"], {})
        for partition in topic["partitions"]:
            index = partition["partitionIndex"]
            errors[index] = error_of(TopicIdPartition(topic["name"], index))
    return {
        "topics": [
            {
                "name": name,
                "partitions": [{"partitionIndex": index, "errorCode": code} for index, code in errors.items()],
            }
            for name, errors in topics.items()
        ]
    }


def _failed_commit(request: Request, error: Errors) -> Reply:
    return _commit_reply(request, lambda _offset_key: error)


def _fetch_offset_keys(topics: list[dict[str, Any]]) -> Iterable[TopicPartition]:
    offset_keys = (
        TopicPartition(topic_of(topic)["name"], partition)
        for topic in topics
        for partition in topic["partitionIndexes"]
    )
    return dict.fromkeys(offset_keys)
