"""The Java coordinator's request handlers (``GroupCoordinatorService`` and ``GroupCoordinatorShard``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordinator_core.coordinator import replies, requests
from coordinator_core.coordinator.describe import classic_description, listed
from coordinator_core.coordinator.errors import ApiError, Errors
from coordinator_core.coordinator.java.classic_members import ClassicMembers
from coordinator_core.coordinator.java.consumer import ConsumerGroups
from coordinator_core.coordinator.java.consumer_group import LiveConsumerGroup
from coordinator_core.coordinator.java.group import Group, JavaClassicGroup
from coordinator_core.coordinator.java.manager import JavaGroupMetadataManager
from coordinator_core.coordinator.java.share import ShareGroups
from coordinator_core.coordinator.java.share_group import LiveShareGroup
from coordinator_core.coordinator.java.share_offsets import ShareOffsets
from coordinator_core.coordinator.java.streams import StreamsGroups
from coordinator_core.coordinator.java.streams_group import LiveStreamsGroup
from coordinator_core.coordinator.log import OffsetsLog, Record
from coordinator_core.coordinator.maps import java_set_order
from coordinator_core.coordinator.membership import Client, MemberIds
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.records import group_metadata
from coordinator_core.coordinator.service import GroupCoordinator, VerifyTransaction, nobody_left
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.share_states import ShareStates
from coordinator_core.coordinator.timers import Clock
from coordinator_core.groups.model import GroupState
from coordinator_core.releases import Profile


class JavaCoordinator(GroupCoordinator[JavaGroupMetadataManager]):
    """Groups of the classic, the consumer, the share and the streams protocol."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        log: OffsetsLog,
        new_member_id: MemberIds,
        verify: VerifyTransaction,
        metadata: Callable[[], MetadataImage],
        share_states: ShareStates,
        profile: Profile,
    ) -> None:
        manager = JavaGroupMetadataManager(settings, clock, log, profile)
        self.rules = rules = manager.rules
        super().__init__(manager, new_member_id, verify)
        self.consumers = ConsumerGroups(self.manager, metadata, new_member_id, rules)
        self.classic_members = ClassicMembers(self.consumers)
        self.share_offsets = ShareOffsets(self.manager, metadata, share_states, rules)
        metadata_hash = self.consumers.assignments.metadata_hash
        self.shares = ShareGroups(self.manager, metadata, metadata_hash, self.share_offsets, rules)
        self.streams = StreamsGroups(self.manager, metadata, metadata_hash, rules)

    def check(self, group_id: str, *, empty_id: bool = False) -> None:
        """Whether it was started comes first here."""
        if not self.active:
            raise ApiError(Errors.COORDINATOR_NOT_AVAILABLE)
        super().check(group_id, empty_id=empty_id)

    # Members

    def join_group(self, client: Client, request: requests.JoinGroup, respond: replies.Respond) -> None:
        for fine, error in (
            (self.active, Errors.COORDINATOR_NOT_AVAILABLE),
            (bool(request.group_id), Errors.INVALID_GROUP_ID),
            (self.accepts_session_timeout(request), Errors.INVALID_SESSION_TIMEOUT),
        ):
            if not fine:
                respond(replies.JoinGroupReply(error, member_id=request.member_id))
                return
        try:
            self.check(request.group_id)
            group = self.manager.get_group(request.group_id)
            if isinstance(group, LiveConsumerGroup) and not group.is_empty:
                self.classic_members.join(group, client, request, respond)
                return
            if isinstance(group, LiveShareGroup) or (isinstance(group, LiveStreamsGroup) and not group.is_empty):
                raise ApiError(Errors.INCONSISTENT_GROUP_PROTOCOL)
        except ApiError as failed:
            respond(replies.JoinGroupReply(failed.error))
            return
        self._join_classic(client, request, respond)

    def _join_classic(self, client: Client, request: requests.JoinGroup, respond: replies.Respond) -> None:
        """``classicGroupJoinToClassicGroup``: the first join of a group is written, whatever its answer.

        Of several answers the first counts, as with a ``CompletableFuture``: ``respond`` drops the others.
        """
        group_id = request.group_id
        records: list[Record] = []
        group = self.manager.get_group(group_id)
        if isinstance(group, LiveConsumerGroup | LiveStreamsGroup):
            records = group.tombstones()
            for key in group.timer_keys():
                self.manager.timers.cancel(key)
            del self.manager.groups[group_id]
        is_new = group_id not in self.manager.groups
        try:
            classic = self.manager.get_or_create_classic(group_id, not request.member_id)
        except ApiError:
            respond(replies.JoinGroupReply(Errors.UNKNOWN_MEMBER_ID, member_id=request.member_id))
            return
        self.membership.join(classic, client, request, respond)
        if is_new:
            try:
                empty = self.manager.new_group(group_id)
                empty.state_timestamp_ms = classic.state_timestamp_ms
                self.manager.write(
                    self.manager.partition_for(group_id), [*records, group_metadata(empty.recorded({}))], replay=False
                )
            except ApiError as error:
                self.manager.revert(group_id, group)
                respond(replies.JoinGroupReply(error.error))

    def sync_group(self, client: Client, request: requests.SyncGroup, respond: replies.Respond) -> None:
        try:
            self.check(request.group_id)
            group = self.manager.get_group(request.group_id)
            if isinstance(group, JavaClassicGroup) and not group.is_empty:
                self.membership.sync(group, request, respond)
            elif isinstance(group, LiveConsumerGroup) and not group.is_empty:
                self.classic_members.sync(group, request, respond)
            else:
                raise ApiError(Errors.UNKNOWN_MEMBER_ID)
        except ApiError as error:
            respond(replies.SyncGroupReply(error.error))

    def group_heartbeat(self, request: requests.Heartbeat) -> Errors:
        group = self.manager.get_group(request.group_id)
        if isinstance(group, JavaClassicGroup):
            return self.membership.heartbeat(group, request)
        if isinstance(group, LiveConsumerGroup):
            return self.classic_members.heartbeat(group, request)
        raise ApiError(Errors.UNKNOWN_MEMBER_ID)

    def leave(self, request: requests.LeaveGroup) -> replies.LeaveGroupReply:
        group = self.manager.get_group(request.group_id)
        if isinstance(group, JavaClassicGroup):
            return self.membership.leave(group, request.members)
        if isinstance(group, LiveConsumerGroup):
            return self.classic_members.leave(group, request.members)
        return nobody_left(request)

    def consumer_group_heartbeat(
        self, client: Client, request: requests.ConsumerGroupHeartbeat
    ) -> replies.ConsumerGroupHeartbeatReply:
        return self.consumers.heartbeat(client, request, self.check)

    # Offsets

    def offset_commit(self, client: Client, request: requests.OffsetCommit) -> list[Errors]:
        """The error of each partition in the order of the request."""
        who, now_ms = request.committer, self.clock.now_ms
        try:
            self.check(request.group_id, empty_id=True)
            group = self._committing_group(request.group_id, who)
            if group is None:
                since_9 = client.version >= 9
                raise ApiError(Errors.GROUP_ID_NOT_FOUND if since_9 else Errors.ILLEGAL_GENERATION)
            validate = group.validate_offset_commit(who, client.version)
            if isinstance(group, JavaClassicGroup) and group.is_in(GroupState.STABLE, GroupState.PREPARING_REBALANCE):
                self.manager.rebalances.restart_session(group, group.members[who.member_id])
            offsets = self.manager.offsets_of(request.group_id)
            errors, records = offsets.commit_records(
                request, validate, now_ms=now_ms, expire_timestamp_ms=request.expire_timestamp_ms(now_ms)
            )
            self.manager.write_group(request.group_id, records)
        except ApiError as error:
            return _failed_commit(request, error.error)
        return errors

    def txn_offset_commit(self, client: Client, request: requests.TxnOffsetCommit) -> list[Errors]:
        """Like :meth:`offset_commit`."""
        since_6 = client.version >= 6
        try:
            self.check(request.group_id)
            verified = self._verify(request, client.version)
            if verified is not Errors.NONE:
                raise ApiError(verified)
            group = self._committing_group(request.group_id, request.committer)
            if group is None:
                raise ApiError(Errors.GROUP_ID_NOT_FOUND if since_6 else Errors.ILLEGAL_GENERATION)
            validate = group.validate_offset_commit(request.committer, client.version)
            offsets = self.manager.offsets_of(request.group_id)
            keeps_topic_id = self.rules.transactions_keep_topic_ids
            errors, records = offsets.commit_records(
                request, validate, now_ms=self.clock.now_ms, keeps_topic_id=keeps_topic_id
            )
            self.manager.write(
                self.manager.partition_for(request.group_id),
                records,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
            )
        except ApiError as error:
            stale = error.error is Errors.STALE_MEMBER_EPOCH and not since_6
            return _failed_commit(request, Errors.ILLEGAL_GENERATION if stale else error.error)
        return errors

    def _committing_group(self, group_id: str, who: requests.Committer) -> Group | None:
        """The group of a commit; a commit without a generation makes a simple one."""
        group = self.manager.get_group(group_id)
        if group is None and who.generation < 0:
            group = self.manager.get_or_create_classic(group_id, True)
        return group

    def offset_fetch(self, group: requests.FetchGroup, require_stable: bool) -> replies.FetchedGroup:
        try:
            self.check(group.group_id, empty_id=True)
            exists = True
            try:
                self.manager.written_group(group.group_id).validate_offset_fetch(group.member_id, group.member_epoch)
            except ApiError as error:
                if error.error is not Errors.GROUP_ID_NOT_FOUND:
                    raise
                exists = False
        except ApiError as error:
            return replies.FetchedGroup(group.group_id, error.error)
        topics = self.manager.offsets_of(group.group_id).fetch(group, require_stable, group_exists=exists)
        return replies.FetchedGroup(group.group_id, Errors.NONE, topics)

    def offset_delete(self, request: requests.OffsetDelete) -> list[Errors]:
        """The error of each partition; raises :class:`ApiError` for an error that refuses them all."""
        self.check(request.group_id)
        group = self.manager.group(request.group_id)
        group.validate_offset_delete()
        errors, records = self.manager.offsets_of(request.group_id).delete_records(request, group)
        self.manager.write_group(request.group_id, records)
        return errors

    # Groups

    def delete_groups(self, request: requests.DeleteGroups) -> replies.DeleteGroupsReply:
        """Groups of one partition go in one batch."""
        results: dict[str, Errors] = {}
        by_partition: dict[int, list[str]] = {}
        group_ids = list(dict.fromkeys(request.groups_names))
        for group_id in group_ids:
            try:
                self.check(group_id, empty_id=True)
            except ApiError as error:
                results[group_id] = error.error
            else:
                by_partition.setdefault(self.manager.partition_for(group_id), []).append(group_id)
        for partition, together in by_partition.items():
            groups = map(self.manager.get_group, together)
            empty = [one.group_id for one in groups if isinstance(one, LiveShareGroup) and one.is_empty]
            self.share_offsets.delete_all(empty)
            # They go through a HashSet on the way, whose order is that of the records.
            results |= self._delete(partition, java_set_order(together))
        return replies.DeleteGroupsReply(
            tuple(replies.DeletedGroup(group_id, results[group_id]) for group_id in group_ids)
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

    def described(self, group_id: str, version: int) -> replies.DescribedGroup:
        try:
            group = self.manager.written_group(group_id)
            if not isinstance(group, JavaClassicGroup):
                raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
            return classic_description(group)
        except ApiError as error:
            since = self.rules.missing_group_is_an_error_since
            if since is None or version < since:
                return replies.DescribedGroup(Errors.NONE, None, group_id, GroupState.DEAD)
            return replies.DescribedGroup(error.error, error.message, group_id, GroupState.DEAD)

    def list_groups(self, request: requests.ListGroups) -> replies.ListGroupsReply:
        """Partitions that this broker does not own say nothing; one that is loading fails the request."""
        if not self.active:
            return replies.ListGroupsReply(Errors.COORDINATOR_NOT_AVAILABLE)
        if self.manager.is_loading:
            return replies.ListGroupsReply(Errors.COORDINATOR_LOAD_IN_PROGRESS)
        return replies.ListGroupsReply(Errors.NONE, listed(self.manager.written_groups(), request))

    def describe_consumer_group(self, group_id: str) -> replies.DescribedConsumerGroup:
        return self.consumers.describe(group_id, self.check)

    # The rest of the cluster

    def topics_deleted(self, topics: Iterable[tuple[str, str]]) -> None:
        """One batch of tombstones per partition (``onTopicsDeleted``)."""
        deleted = list(topics)
        for partition, offsets in self.manager.offsets.items():
            self.manager.write(partition, offsets.topics_deleted_records(deleted))
        names = {name for name, _ in deleted}
        self.consumers.topics_changed(names)
        self.shares.topics_deleted(names)
        self.streams.topics_changed(names)

    def complete_transaction(self, producer_id: int, partition: int, commit: bool) -> None:
        self.manager.shard(partition).end_transaction(producer_id, commit)


def _failed_commit(request: requests.OffsetCommit | requests.TxnOffsetCommit, error: Errors) -> list[Errors]:
    return [error for topic in request.topics for _ in topic.partitions]
