"""The Scala coordinator's request handlers (``GroupCoordinator`` behind ``GroupCoordinatorAdapter``)."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_core.coordinator import replies, requests
from coordinator_core.coordinator.describe import classic_description, listed
from coordinator_core.coordinator.errors import SCALA_COMMIT_ERRORS, ApiError, Errors
from coordinator_core.coordinator.log import OffsetsLog
from coordinator_core.coordinator.maps import TopicIdPartition, TopicPartition
from coordinator_core.coordinator.membership import Client, MemberIds
from coordinator_core.coordinator.records import metadata_fits, requested_commit
from coordinator_core.coordinator.rules import SCALA
from coordinator_core.coordinator.scala.group import ScalaGroup
from coordinator_core.coordinator.scala.offsets import Commits, ScalaGroupMetadataManager
from coordinator_core.coordinator.service import GroupCoordinator, VerifyTransaction, nobody_left
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock
from coordinator_core.coordinator.validation import validate_commit
from coordinator_core.groups.model import GroupState, OffsetKey


class ScalaCoordinator(GroupCoordinator[ScalaGroupMetadataManager]):
    """Groups of the classic protocol."""

    rules = SCALA

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        log: OffsetsLog,
        new_member_id: MemberIds,
        verify: VerifyTransaction = lambda _request, _version: Errors.NONE,
    ) -> None:
        super().__init__(ScalaGroupMetadataManager(settings, clock, log), new_member_id, verify)

    # Members

    def join_group(self, client: Client, request: requests.JoinGroup, respond: replies.Respond) -> None:
        member_id = request.member_id
        try:
            self.check(request.group_id)
            if not self.accepts_session_timeout(request):
                raise ApiError(Errors.INVALID_SESSION_TIMEOUT)
            group = self.manager.get_or_maybe_create_group(request.group_id, not member_id)
            if group is None:
                raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        except ApiError as error:
            respond(replies.JoinGroupReply(error.error, member_id=member_id))
            return
        self.membership.join(group, client, request, respond)

    def sync_group(self, client: Client, request: requests.SyncGroup, respond: replies.Respond) -> None:
        try:
            self.check(request.group_id)
            self.membership.sync(self._group(request.group_id), request, respond)
        except ApiError as error:
            # A client that learns of a rebalance joins again, and finds the coordinator loaded by then.
            loading = error.error is Errors.COORDINATOR_LOAD_IN_PROGRESS
            respond(replies.SyncGroupReply(Errors.REBALANCE_IN_PROGRESS if loading else error.error))

    def group_heartbeat(self, request: requests.Heartbeat) -> Errors:
        return self.membership.heartbeat(self._group(request.group_id), request)

    def _group(self, group_id: str, missing: Errors = Errors.UNKNOWN_MEMBER_ID) -> ScalaGroup:
        """The group; raises :class:`ApiError` with ``missing`` where there is none."""
        group = self.manager.get_group(group_id)
        if group is None:
            raise ApiError(missing)
        return group

    def _living(self, group_id: str) -> ScalaGroup:
        group = self._group(group_id, Errors.GROUP_ID_NOT_FOUND)
        if group.is_in(GroupState.DEAD):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND)
        return group

    def leave(self, request: requests.LeaveGroup) -> replies.LeaveGroupReply:
        group = self.manager.get_group(request.group_id)
        return nobody_left(request) if group is None else self.membership.leave(group, request.members)

    # Offsets

    def offset_commit(self, client: Client, request: requests.OffsetCommit) -> list[Errors | None]:
        """The error of each partition in the order of the request; ``None`` where one is named again."""
        commits = self._commits(request, request.expire_timestamp_ms(self.clock.now_ms))
        who = request.committer
        try:
            self.check(request.group_id, empty_id=True)
            group = self.manager.get_group(request.group_id)
            if group is None:
                if who.generation >= 0:
                    raise ApiError(Errors.ILLEGAL_GENERATION)
                group = self.manager.get_or_maybe_create_group(request.group_id, True)
                assert group is not None
            validate_commit(group, who)
            if group.is_in(GroupState.COMPLETING_REBALANCE):
                raise ApiError(Errors.REBALANCE_IN_PROGRESS)
        except ApiError as error:
            return _once(request.topics, dict.fromkeys(commits, error.error))
        if not group.is_in(GroupState.EMPTY):
            self.manager.rebalances.restart_session(group, group.members[who.member_id])
        return _once(request.topics, self.manager.store_offsets(group, commits))

    def txn_offset_commit(self, client: Client, request: requests.TxnOffsetCommit) -> list[Errors | None]:
        """Like :meth:`offset_commit`."""
        commits = self._commits(request, None)
        try:
            self.check(request.group_id)
            group = self.manager.get_or_maybe_create_group(request.group_id, True)
            assert group is not None
            verified = self._verify(request, client.version)
            if verified is not Errors.NONE:
                raise ApiError(SCALA_COMMIT_ERRORS.get(verified, verified))
            validate_commit(group, request.committer)
        except ApiError as error:
            return _once(request.topics, dict.fromkeys(commits, error.error))
        errors = self.manager.store_offsets(group, commits, request.producer_id, request.producer_epoch)
        return _once(request.topics, errors)

    def _commits(
        self, request: requests.OffsetCommit | requests.TxnOffsetCommit, expire_timestamp_ms: int | None
    ) -> Commits:
        """The last of two commits for one partition stands."""
        commits: Commits = {}
        for topic in request.topics:
            for partition in topic.partitions:
                offset_key = TopicIdPartition(topic.name, partition.partition_index)
                commits[offset_key] = None
                if metadata_fits(partition, self.settings):
                    commits[offset_key] = requested_commit(
                        OffsetKey(request.group_id, *offset_key),
                        partition,
                        now_ms=self.clock.now_ms,
                        expire_timestamp_ms=expire_timestamp_ms,
                        version=3,
                    )
        return commits

    def offset_fetch(self, group: requests.FetchGroup, require_stable: bool) -> replies.FetchedGroup:
        try:
            self.check(group.group_id, empty_id=True)
        except ApiError as error:
            return replies.FetchedGroup(group.group_id, error.error)
        offset_keys = None
        if group.topics is not None:
            offset_keys = dict.fromkeys(
                TopicPartition(topic.name, partition) for topic in group.topics for partition in topic.partition_indexes
            )
        topics: dict[str, list[replies.FetchedPartition]] = {}
        for offset_key, committed, error_code in self.manager.get_offsets(group.group_id, require_stable, offset_keys):
            fetched = replies.FetchedPartition.of(offset_key.partition, committed, error_code)
            topics.setdefault(offset_key.topic, []).append(fetched)
        return replies.FetchedGroup(
            group.group_id,
            Errors.NONE,
            tuple(replies.FetchedTopic(name, None, tuple(partitions)) for name, partitions in topics.items()),
        )

    def offset_delete(self, request: requests.OffsetDelete) -> list[Errors]:
        """The error of each partition; raises :class:`ApiError` for an error that refuses them all."""
        self.check(request.group_id)
        group = self._living(request.group_id)
        if not group.is_in(GroupState.EMPTY) and not group.uses_consumer_protocol:
            raise ApiError(Errors.NON_EMPTY_GROUP)
        live = not group.is_in(GroupState.EMPTY)
        errors: list[Errors] = []
        offset_keys: list[TopicPartition] = []
        for topic in request.topics:
            subscribed = live and group.is_subscribed_to(topic.name)
            for partition in topic.partitions:
                errors.append(Errors.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else Errors.NONE)
                if not subscribed:
                    offset_keys.append(TopicPartition(topic.name, partition.partition_index))
        if offset_keys:
            self.manager.cleanup([group], lambda one: one.remove_offsets(offset_keys))
        return errors

    # Groups

    def delete_groups(self, request: requests.DeleteGroups) -> replies.DeleteGroupsReply:
        errors: dict[str, Errors] = {}
        eligible: list[ScalaGroup] = []
        for group_id in dict.fromkeys(request.groups_names):
            try:
                self.check(group_id, empty_id=True)
                group = self._living(group_id)
                if not group.is_in(GroupState.EMPTY):
                    raise ApiError(Errors.NON_EMPTY_GROUP)
            except ApiError as error:
                errors[group_id] = error.error
                continue
            group.transition(GroupState.DEAD, self.clock.now_ms)
            eligible.append(group)
            errors[group_id] = Errors.NONE
        self.manager.cleanup(eligible, lambda group: group.remove_offsets(list(group.offsets)))
        return replies.DeleteGroupsReply(tuple(replies.DeletedGroup(*pair) for pair in errors.items()))

    def described(self, group_id: str, version: int) -> replies.DescribedGroup:
        group = self.manager.get_group(group_id)
        if group is None:
            return replies.DescribedGroup(Errors.NONE, None, group_id, GroupState.DEAD)
        return classic_description(group)

    def list_groups(self, request: requests.ListGroups) -> replies.ListGroupsReply:
        if not self.active:
            return replies.ListGroupsReply(Errors.COORDINATOR_NOT_AVAILABLE)
        error = Errors.COORDINATOR_LOAD_IN_PROGRESS if self.manager.is_loading else Errors.NONE
        return replies.ListGroupsReply(error, listed(self.manager.groups.values(), request))

    def consumer_group_heartbeat(
        self, client: Client, request: requests.ConsumerGroupHeartbeat
    ) -> replies.ConsumerGroupHeartbeatReply:
        return replies.ConsumerGroupHeartbeatReply(Errors.UNSUPPORTED_VERSION)

    def describe_consumer_group(self, group_id: str) -> replies.DescribedConsumerGroup:
        return replies.DescribedConsumerGroup(Errors.UNSUPPORTED_VERSION, None, group_id)

    # The rest of the cluster

    def topics_deleted(self, topics: Iterable[tuple[str, str]]) -> None:
        """``handleDeletedPartitions``: every group is cleaned, also of what the topic does not concern."""
        names = {name for name, _ in topics}
        self.manager.cleanup(self.manager.groups.values(), lambda group: group.remove_topics(names))

    def complete_transaction(self, producer_id: int, partition: int, commit: bool) -> None:
        self.manager.complete_transaction(producer_id, partition, commit)


def _once(topics: Iterable[requests.CommitTopic], errors: dict[TopicIdPartition, Errors]) -> list[Errors | None]:
    """One error for each partition, however often the request names it."""
    left = dict(errors)
    return [
        left.pop(TopicIdPartition(topic.name, partition.partition_index), None)
        for topic in topics
        for partition in topic.partitions
    ]
