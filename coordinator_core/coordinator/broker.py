"""A simulated broker: what ``KafkaApis`` checks before a group coordinator sees a request, and after.

Every answer is that of an authorised client: authorisation is the cluster's, not the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from coordinator_core.coordinator import replies, requests
from coordinator_core.coordinator.api_versions import api_versions
from coordinator_core.coordinator.classic import NoGenerationError
from coordinator_core.coordinator.errors import ApiError, AppendError, Errors
from coordinator_core.coordinator.find_coordinator import FindCoordinator
from coordinator_core.coordinator.java.coordinator import JavaCoordinator
from coordinator_core.coordinator.log import OffsetsLog
from coordinator_core.coordinator.manager import LoadState
from coordinator_core.coordinator.maps import TopicId
from coordinator_core.coordinator.membership import Client, MemberIds
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.rules import modelled
from coordinator_core.coordinator.scala.coordinator import ScalaCoordinator
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.share_states import ShareStates
from coordinator_core.coordinator.timers import Clock
from coordinator_core.coordinator.transactions import Producer, Transactions
from coordinator_core.records.types import ZERO_UUID
from coordinator_core.releases import Loader, Profile

ALL_GROUP_OPERATIONS_MASK = {False: 328, True: 3400}

Topic = TypeVar("Topic", requests.CommitTopic, requests.DeleteTopic, requests.FetchTopic, replies.FetchedTopic)
Changed = TypeVar("Changed", requests.CommitTopic, requests.DeleteTopic)
Described = TypeVar(
    "Described",
    replies.DescribedGroup,
    replies.DescribedConsumerGroup,
    replies.DescribedShareGroup,
    replies.DescribedStreamsGroup,
)
INTERNAL_TOPIC_CREATION_MS = 100
"""Time that the controller takes in this model to create the internal topics of a streams application."""


class Cluster:
    """State that all brokers share: log, topics, transactions. The loss of one broker leaves it as it is (E2)."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        log: OffsetsLog,
        metadata: MetadataImage,
        new_producer_id: Callable[[], int],
        *,
        profile: Profile,
        new_topic_id: Callable[[str], str] = lambda name: ZERO_UUID,
    ) -> None:
        self.settings = settings
        self.profile = modelled(profile)
        self._new_topic_id = new_topic_id
        self.clock = clock
        self.log = log
        self.metadata = metadata
        self.java = profile.loader is Loader.JAVA
        self.brokers: list[Broker] = []
        self.share_states = ShareStates()
        self.transactions = Transactions(
            clock,
            self._write_marker,
            new_producer_id,
            settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            settings.transaction_max_timeout_ms,
            version_2=self.java,
        )

    def _write_marker(self, partition: int, producer_id: int, epoch: int, commit: bool) -> None:
        """Append a marker, and tell the coordinator of the partition; one that loads will read it."""
        try:
            self.log.append_marker(partition, producer_id, epoch, commit, self.clock.now_ms)
        except AppendError:
            # Nobody tries again: the transaction stays open in this partition.
            return
        for broker in self.brokers:
            if broker.coordinator.manager.partitions.get(partition) is LoadState.OWNED:
                broker.coordinator.complete_transaction(producer_id, partition, commit)

    def create_internal_topics(self, partitions: Mapping[str, int]) -> None:
        """Topics of a streams application, which the controller creates in the background."""

        def create() -> None:
            wanted = {name: count for name, count in partitions.items() if self.metadata.topic(name) is None}
            self.metadata = self.metadata.having(
                {name: (self._new_topic_id(name), count) for name, count in wanted.items()}
            )
            for broker in self.brokers:
                if isinstance(broker.coordinator, JavaCoordinator):
                    broker.coordinator.streams.topics_changed(set(wanted))

        self.clock.at(self.clock.now_ms + INTERNAL_TOPIC_CREATION_MS, create)

    def lose(self, broker: Broker) -> None:
        """The broker dies: its memory is gone, its timers never run, nobody is answered."""
        self.brokers.remove(broker)
        broker.coordinator.manager.timers.cancel_all()


class Broker:
    """One broker: a group coordinator, and the caches that go with it when it goes."""

    def __init__(self, cluster: Cluster, new_member_id: MemberIds, find_coordinator: FindCoordinator) -> None:
        self.cluster = cluster
        self.find_coordinator = find_coordinator
        settings, clock, log = cluster.settings, cluster.clock, cluster.log
        self.coordinator: ScalaCoordinator | JavaCoordinator
        if cluster.java:
            self.coordinator = JavaCoordinator(
                settings,
                clock,
                log,
                new_member_id,
                self._verify,
                lambda: cluster.metadata,
                cluster.share_states,
                cluster.profile,
            )
            self.coordinator.streams.create_topics = cluster.create_internal_topics
        else:
            self.coordinator = ScalaCoordinator(settings, clock, log, new_member_id, self._verify)
        self.transactions = cluster.transactions
        cluster.brokers.append(self)

    def handle(self, client: Client, request: requests.Request, respond: replies.Respond) -> None:
        """Answer a request, now or later; members alone wait for their answer."""
        if isinstance(request, requests.JoinGroup):
            answer = _Once(respond)
            try:
                self.coordinator.join_group(client, request, answer)
            except NoGenerationError:
                answer(replies.JoinGroupReply(Errors.UNKNOWN_SERVER_ERROR))
        elif not isinstance(request, requests.SyncGroup):
            try:
                reply = self._answer(client, request)
            except NoGenerationError:
                # Only a member that leaves ends what others wait for.
                reply = replies.LeaveGroupReply(Errors.UNKNOWN_SERVER_ERROR)
            if reply is not None:
                respond(reply)
        elif client.version >= 5 and None in (request.protocol_type, request.protocol_name):
            respond(replies.SyncGroupReply(Errors.INCONSISTENT_GROUP_PROTOCOL))
        else:
            self.coordinator.sync_group(client, request, respond)

    def _answer(self, client: Client, request: requests.Request) -> replies.Reply | None:
        """The answer to a request that does not wait; ``None``: there is none."""
        coordinator = self.coordinator
        match request:
            case requests.Heartbeat():
                return replies.ErrorReply(coordinator.heartbeat(request))
            case requests.LeaveGroup():
                return coordinator.leave_group(request)
            case requests.OffsetCommit():
                return self._offset_commit(client, request)
            case requests.TxnOffsetCommit():
                return self._txn_offset_commit(client, request)
            case requests.OffsetFetch():
                return self._offset_fetch(client, request)
            case requests.OffsetDelete():
                return self._offset_delete(request)
            case requests.DeleteGroups():
                return coordinator.delete_groups(request)
            case requests.DescribeGroups():
                described = [coordinator.describe_group(one, client.version) for one in request.groups]
                return self._with_operations(described, request.include_authorized_operations)
            case requests.ListGroups():
                return coordinator.list_groups(request)
            case requests.FindCoordinator():
                return self.find_coordinator.handle(request, client.version)
            case requests.ApiVersions():
                return api_versions(coordinator.rules)
            case requests.ConsumerGroupHeartbeat():
                return coordinator.consumer_group_heartbeat(client, request)
            case requests.ConsumerGroupDescribe():
                consumers = [coordinator.describe_consumer_group(one) for one in request.group_ids]
                return self._with_operations(consumers, request.include_authorized_operations)
            case requests.StreamsGroupHeartbeat() | requests.StreamsGroupDescribe():
                return self._streams(client, request)
            case requests.InitProducerId(transactional_id, timeout_ms, producer_id, producer_epoch):
                producer = Producer(producer_id, producer_epoch)
                return replies.ProducerReply(
                    *self.transactions.init_producer_id(transactional_id, timeout_ms, producer)
                )
            case requests.AddOffsetsToTxn(transactional_id, producer_id, producer_epoch, group_id):
                partition = coordinator.manager.partition_for(group_id)
                return replies.ErrorReply(
                    self.transactions.add_offsets(transactional_id, producer_id, producer_epoch, partition)
                )
            case requests.EndTxn(transactional_id, producer_id, producer_epoch, committed):
                return replies.ProducerReply(
                    *self.transactions.end(transactional_id, producer_id, producer_epoch, committed, client.version)
                )
            case requests.DeleteTopics():
                return self._delete_topics(request)
            case requests.JoinGroup() | requests.SyncGroup():
                raise AssertionError(f"{type(request).__name__} is answered later")
            case _:
                return self._answer_share(client, request)

    def _answer_share(self, client: Client, request: requests.ShareRequest) -> replies.Reply | None:
        """The answer to a request of share groups, which Scala coordinators do not have."""
        if isinstance(self.coordinator, ScalaCoordinator):
            return None
        check, shares, offsets = self.coordinator.check, self.coordinator.shares, self.coordinator.share_offsets
        match request:
            case requests.ShareGroupHeartbeat():
                return shares.heartbeat(client, request, check)
            case requests.ShareGroupDescribe():
                groups = [shares.describe(one, check) for one in request.group_ids]
                return self._with_operations(groups, request.include_authorized_operations)
            case requests.AlterShareGroupOffsets():
                return offsets.alter(request, check)
            case requests.DescribeShareGroupOffsets():
                described = tuple(offsets.describe(one, partial(check, empty_id=True)) for one in request.groups)
                return replies.GroupsReply(described)
            case requests.DeleteShareGroupOffsets():
                return offsets.delete(request, check)

    def _streams(
        self, client: Client, request: requests.StreamsGroupHeartbeat | requests.StreamsGroupDescribe
    ) -> replies.Reply:
        if isinstance(self.coordinator, ScalaCoordinator):
            raise ValueError(f"a broker with the Scala coordinator has no {type(request).__name__}")
        check, streams = self.coordinator.check, self.coordinator.streams
        if isinstance(request, requests.StreamsGroupHeartbeat):
            return streams.heartbeat(client, request, check)
        described = [
            streams.describe(one, check, topology_description=request.include_topology_description)
            for one in request.group_ids
        ]
        return self._with_operations(described, request.include_authorized_operations)

    def _with_operations(self, groups: Sequence[Described], wanted: bool) -> replies.GroupsReply[Described]:
        """The reply, with the authorized operations where the request wants them and the group is there."""
        mask = ALL_GROUP_OPERATIONS_MASK[self.cluster.java]
        return replies.GroupsReply(
            tuple(
                group._replace(authorized_operations=mask) if wanted and group.error_code is Errors.NONE else group
                for group in groups
            )
        )

    # Offsets

    def _offset_commit(self, client: Client, request: requests.OffsetCommit) -> replies.Reply:
        def commit(known: tuple[requests.CommitTopic, ...]) -> Sequence[Errors | None]:
            if client.version == 0:
                # Version 0 kept offsets in ZooKeeper, which a KRaft cluster does not have.
                return [Errors.UNSUPPORTED_VERSION for topic in known for _ in topic.partitions]
            return self.coordinator.offset_commit(client, replace(request, topics=known)) if known else ()

        return replies.OffsetCommitReply(self._results(request.topics, commit))

    def _txn_offset_commit(self, client: Client, request: requests.TxnOffsetCommit) -> replies.Reply:
        def commit(known: tuple[requests.CommitTopic, ...]) -> Sequence[Errors | None]:
            return self.coordinator.txn_offset_commit(client, replace(request, topics=known)) if known else ()

        return replies.OffsetCommitReply(self._results(request.topics, commit))

    def _offset_delete(self, request: requests.OffsetDelete) -> replies.Reply:
        try:
            topics = self._results(
                request.topics, lambda known: self.coordinator.offset_delete(replace(request, topics=known))
            )
        except ApiError as error:
            return replies.OffsetDeleteReply(error.error)
        return replies.OffsetDeleteReply(Errors.NONE, topics)

    def _results(
        self, topics: tuple[Changed, ...], change: Callable[[tuple[Changed, ...]], Sequence[Errors | None]]
    ) -> tuple[replies.TopicResult, ...]:
        """The error of each partition: topics are looked up first, what is unknown never reaches the coordinator.

        A known topic of which the request names no partition is left out.

        ``change`` takes the partitions that are known and gives their errors in that order, ``None`` for a
        partition that is not answered.
        """
        metadata = self.cluster.metadata
        named = [topic for topic in map(self._named, topics) if topic.partitions or metadata.topic(topic.name) is None]
        known = (
            topic._replace(partitions=tuple(one for one in topic.partitions if not self._unknown(topic, one)))
            for topic in named
        )
        errors = iter(change(tuple(topic for topic in known if topic.partitions)))
        return tuple(
            replies.TopicResult(
                topic.name,
                topic.topic_id,
                tuple(
                    replies.PartitionResult(one.partition_index, error)
                    for one in topic.partitions
                    if (error := self._unknown(topic, one) or next(errors)) is not None
                ),
            )
            for topic in named
        )

    def _named(self, topic: Topic) -> Topic:
        """The topic with name and id, whichever the request gave; without the other when it is unknown."""
        if topic.topic_id is None:
            found = self.cluster.metadata.topic(topic.name)
            return topic._replace(topic_id=found.topic_id) if found else topic
        found = self.cluster.metadata.by_id(topic.topic_id)
        return topic._replace(topic_id=TopicId(topic.topic_id), name=found.name if found else "")

    def _unknown(self, topic: Changed, partition: requests.CommitPartition | requests.DeletePartition) -> Errors:
        if topic.topic_id is not None and not topic.name:
            return Errors.UNKNOWN_TOPIC_ID
        known = self.cluster.metadata.has_partition(topic.name, partition.partition_index)
        return Errors.NONE if known else Errors.UNKNOWN_TOPIC_OR_PARTITION

    def _offset_fetch(self, client: Client, request: requests.OffsetFetch) -> replies.Reply | None:
        if client.version == 0 and not self.cluster.java:
            return replies.GroupsReply(
                tuple(_failed_fetch(group, Errors.UNSUPPORTED_VERSION) for group in request.groups)
            )
        if not request.groups and not self.cluster.java:
            return None
        return replies.GroupsReply(
            tuple(self._fetch_group(group, request.require_stable, client.version) for group in request.groups)
        )

    def _fetch_group(self, group: requests.FetchGroup, require_stable: bool, version: int) -> replies.FetchedGroup:
        if version < 10 or group.topics is None:
            found = self.coordinator.offset_fetch(group, require_stable)
            if version < 2 and found.error_code is not Errors.NONE:
                return _failed_fetch(group, found.error_code)
            named = [self._named(topic) for topic in found.topics]
            # A topic that was deleted has no id to be shown by.
            return found._replace(topics=tuple(one for one in named if version < 10 or one.topic_id is not None))
        topics = [self._named(topic) for topic in group.topics]
        known = group._replace(topics=tuple(topic for topic in topics if topic.name))
        found = self.coordinator.offset_fetch(known, require_stable)
        if found.error_code is not Errors.NONE:
            return found
        unknown = group._replace(topics=tuple(topic for topic in topics if not topic.name))
        order = [topic.topic_id for topic in topics]
        fetched = (*found.topics, *_failed_fetch(unknown, Errors.UNKNOWN_TOPIC_ID).topics)
        return found._replace(topics=tuple(sorted(fetched, key=lambda topic: order.index(topic.topic_id))))

    # Transactions and topics

    def _verify(self, request: requests.TxnOffsetCommit, version: int) -> Errors:
        """The partition must be in the transaction: one in which it is open is not asked for again.

        Source: ``UnifiedLog.maybeStartTransactionVerification``.
        """
        partition = self.coordinator.manager.partition_for(request.group_id)
        by_epoch = self.coordinator.rules.verifies_epochs
        producer = self.cluster.log.producers.get((partition, request.producer_id))
        if producer is not None:
            if producer.is_open and (producer.epoch == request.producer_epoch or not by_epoch):
                return Errors.NONE
            if by_epoch and producer.epoch > request.producer_epoch:
                return Errors.INVALID_PRODUCER_EPOCH
        return self.transactions.verify(
            request.transactional_id, request.producer_id, request.producer_epoch, partition, version
        )

    def _delete_topics(self, request: requests.DeleteTopics) -> replies.Reply:
        deleted, responses = [], []
        for name in request.topic_names:
            topic = self.cluster.metadata.topic(name)
            responses.append(replies.DeletedTopic(name, Errors.NONE if topic else Errors.UNKNOWN_TOPIC_OR_PARTITION))
            if topic is not None:
                deleted.append((name, str(topic.topic_id)))
                self.cluster.metadata = self.cluster.metadata.without(name)
        for broker in self.cluster.brokers:
            broker.coordinator.topics_deleted(deleted)
        return replies.DeleteTopicsReply(tuple(responses))


class _Once:
    """The function ``respond`` for the first answer; later ones are dropped."""

    def __init__(self, respond: replies.Respond) -> None:
        self._respond: replies.Respond | None = respond

    def __call__(self, reply: replies.Reply) -> None:
        respond, self._respond = self._respond, None
        if respond is not None:
            respond(reply)


def _failed_fetch(group: requests.FetchGroup, error: Errors) -> replies.FetchedGroup:
    """The error for each partition, none for the group."""
    return replies.FetchedGroup(
        group.group_id,
        Errors.NONE,
        tuple(
            replies.FetchedTopic(
                topic.name,
                topic.topic_id,
                tuple(replies.FetchedPartition.of(partition, None, error) for partition in topic.partition_indexes),
            )
            for topic in group.topics or ()
        ),
    )
