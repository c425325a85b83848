"""A simulated broker: what ``KafkaApis`` checks before a group coordinator sees a request, and after.

Every answer is that of an authorised client: authorisation is the cluster's, not the coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator_core.coordinator.api_versions import api_versions
from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.find_coordinator import FindCoordinator
from coordinator_core.coordinator.java.coordinator import JavaCoordinator
from coordinator_core.coordinator.log import OffsetsLog
from coordinator_core.coordinator.manager import LoadState
from coordinator_core.coordinator.maps import TopicId
from coordinator_core.coordinator.membership import Client, MemberIds
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.replies import (
    Reply,
    Respond,
    fetched_offset,
    sync_reply,
    topic_of,
    topic_results,
)
from coordinator_core.coordinator.requests import Request
from coordinator_core.coordinator.scala.coordinator import ScalaCoordinator
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock
from coordinator_core.coordinator.transactions import Transactions

ALL_GROUP_OPERATIONS_MASK = {False: 328, True: 3400}
NO_OPERATIONS = -0x80000000

Handler = Callable[[Client, Request, Respond], None]


class Cluster:
    """What all brokers share, and the loss of one of them leaves as it is (E2): log, topics, transactions."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        log: OffsetsLog,
        metadata: MetadataImage,
        new_producer_id: Callable[[], int],
        *,
        java: bool,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.log = log
        self.metadata = metadata
        self.java = java
        self.brokers: list[Broker] = []
        self.transactions = Transactions(
            clock,
            self._write_marker,
            new_producer_id,
            settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            version_2=java,
        )

    def _write_marker(self, partition: int, producer_id: int, epoch: int, commit: bool) -> None:
        """Append a marker, and tell the coordinator of the partition; one that loads will read it."""
        self.log.append_marker(partition, producer_id, epoch, commit, self.clock.now_ms)
        for broker in self.brokers:
            if broker.coordinator.manager.partitions.get(partition) is LoadState.OWNED:
                broker.coordinator.complete_transaction(producer_id, partition, commit)

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
                settings, clock, log, new_member_id, self._verify, lambda: cluster.metadata
            )
        else:
            self.coordinator = ScalaCoordinator(settings, clock, log, new_member_id, self._verify)
        self.transactions = cluster.transactions
        cluster.brokers.append(self)
        coordinator = self.coordinator
        self._handlers: dict[str, Handler] = {
            "JoinGroup": coordinator.join_group,
            "SyncGroup": self._sync_group,
            "Heartbeat": coordinator.heartbeat,
            "LeaveGroup": self._leave_group,
            "OffsetCommit": self._offset_commit,
            "TxnOffsetCommit": self._txn_offset_commit,
            "OffsetFetch": self._offset_fetch,
            "OffsetDelete": self._offset_delete,
            "DeleteGroups": coordinator.delete_groups,
            "DescribeGroups": self._describe_groups,
            "ListGroups": coordinator.list_groups,
            "FindCoordinator": self._find_coordinator,
            "ApiVersions": self._api_versions,
            "ConsumerGroupHeartbeat": coordinator.consumer_group_heartbeat,
            "ConsumerGroupDescribe": self._consumer_group_describe,
            "InitProducerId": self._init_producer_id,
            "AddOffsetsToTxn": self._add_offsets_to_txn,
            "EndTxn": self._end_txn,
            "DeleteTopics": self._delete_topics,
        }

    def handle(self, api: str, client: Client, request: Request, respond: Respond) -> None:
        """Answer a request, now or later. ``KeyError`` for an API that the model does not have."""
        self._handlers[api](client, request, respond)

    @property
    def apis(self) -> frozenset[str]:
        return frozenset(self._handlers)

    # Groups

    def _sync_group(self, client: Client, request: Request, respond: Respond) -> None:
        """From version 5 on protocol type and name are mandatory."""
        if client.version >= 5 and None in (request["protocolType"], request["protocolName"]):
            respond(sync_reply(Errors.INCONSISTENT_GROUP_PROTOCOL))
        else:
            self.coordinator.sync_group(client, request, respond)

    def _leave_group(self, client: Client, request: Request, respond: Respond) -> None:
        """Before version 3 a request is of one member, and its error is the request's."""
        if client.version >= 3:
            self.coordinator.leave_group(client, request, respond)
            return
        single = {"memberId": request["memberId"], "groupInstanceId": None}

        def respond_single(reply: Reply) -> None:
            error = reply["errorCode"]
            if error is Errors.NONE and reply["members"]:
                error = reply["members"][0]["errorCode"]
            respond({"errorCode": error})

        self.coordinator.leave_group(client, request | {"members": [single]}, respond_single)

    def _describe_groups(self, client: Client, request: Request, respond: Respond) -> None:
        self._described(self.coordinator.describe_groups, client, request, respond)

    def _consumer_group_describe(self, client: Client, request: Request, respond: Respond) -> None:
        self._described(self.coordinator.consumer_group_describe, client, request, respond)

    def _described(self, handler: Handler, client: Client, request: Request, respond: Respond) -> None:
        """With ``authorizedOperations`` where the request wants it and the group is there."""

        def with_operations(reply: Reply) -> None:
            wanted = request.get("includeAuthorizedOperations", False)
            for group in reply["groups"]:
                found = wanted and group["errorCode"] is Errors.NONE
                mask = ALL_GROUP_OPERATIONS_MASK[self.cluster.java]
                group["authorizedOperations"] = mask if found else NO_OPERATIONS
            respond(reply)

        handler(client, request, with_operations)

    def _api_versions(self, client: Client, request: Request, respond: Respond) -> None:
        respond(api_versions(self.coordinator.rules))

    def _find_coordinator(self, client: Client, request: Request, respond: Respond) -> None:
        respond(self.find_coordinator.handle(request, client.version))

    # Offsets

    def _offset_commit(self, client: Client, request: Request, respond: Respond) -> None:
        if client.version == 0:
            # Version 0 kept offsets in ZooKeeper, which a KRaft cluster does not have.
            topics = topic_results(
                request["topics"], lambda topic, one: self._unknown(topic, one) or Errors.UNSUPPORTED_VERSION
            )
            respond({"topics": topics})
            return
        self._commit(self.coordinator.offset_commit, client, request, respond)

    def _txn_offset_commit(self, client: Client, request: Request, respond: Respond) -> None:
        self._commit(self.coordinator.txn_offset_commit, client, request, respond)

    def _commit(self, handler: Handler, client: Client, request: Request, respond: Respond) -> None:
        """Topics are looked up first: what is unknown never reaches the coordinator."""
        known = []
        for topic in request["topics"]:
            named = self._named(topic)
            partitions = [one for one in topic["partitions"] if not self._unknown(named, one)]
            if partitions:
                known.append(named | {"partitions": partitions})
        unknown = topic_results(request["topics"], lambda topic, one: self._unknown(self._named(topic), one))
        if not known:
            respond({"topics": unknown})
            return

        def merged(reply: Reply) -> None:
            respond({"topics": _in_request_order(request["topics"], self._named, reply["topics"], unknown)})

        handler(client, request | {"topics": known}, merged)

    def _named(self, topic: Reply) -> Reply:
        """The topic with name and id, whichever the request gave; without a name when it is unknown."""
        if "name" in topic:
            found = self.cluster.metadata.topic(topic["name"])
            return topic | {"topicId": found.topic_id} if found else topic
        found = self.cluster.metadata.by_id(topic["topicId"])
        return topic | {"topicId": TopicId(topic["topicId"])} | ({"name": found.name} if found else {})

    def _unknown(self, topic: Reply, partition: Reply) -> Errors:
        if "name" not in topic:
            return Errors.UNKNOWN_TOPIC_ID
        known = self.cluster.metadata.has_partition(topic["name"], partition["partitionIndex"])
        return Errors.NONE if known else Errors.UNKNOWN_TOPIC_OR_PARTITION

    def _offset_delete(self, client: Client, request: Request, respond: Respond) -> None:
        known = [
            topic | {"partitions": [one for one in topic["partitions"] if not self._unknown(topic, one)]}
            for topic in request["topics"]
        ]
        unknown = topic_results(request["topics"], self._unknown)

        def merged(reply: Reply) -> None:
            if reply["errorCode"] is Errors.NONE:
                reply["topics"] = _in_request_order(request["topics"], lambda topic: topic, reply["topics"], unknown)
            respond(reply)

        handled = [topic for topic in known if topic["partitions"]]
        self.coordinator.offset_delete(client, request | {"topics": handled}, merged)

    def _offset_fetch(self, client: Client, request: Request, respond: Respond) -> None:
        if client.version == 0 and not self.cluster.java:
            respond({"topics": _failed_fetch(request["topics"], Errors.UNSUPPORTED_VERSION)})
            return
        stable = request.get("requireStable", False)
        if client.version < 8:

            def single(reply: Reply) -> None:
                if client.version < 2 and reply["errorCode"] is not Errors.NONE:
                    reply["topics"] = _failed_fetch(request["topics"], reply["errorCode"])
                respond({"topics": reply["topics"], "errorCode": reply["errorCode"]})

            self._fetch_group(request, stable, single, client.version)
            return
        if not request["groups"] and not self.cluster.java:
            return
        groups: list[Reply] = []
        for group in request["groups"]:
            self._fetch_group(group, stable, groups.append, client.version)
        respond({"groups": groups})

    def _fetch_group(self, group: Request, stable: bool, respond: Respond, version: int) -> None:
        topics = group["topics"]
        if version < 10 or topics is None:

            def with_ids(reply: Reply) -> None:
                named = (self._named(topic) for topic in reply["topics"])
                respond(reply | {"topics": [t for t in named if version < 10 or "topicId" in t]})

            self.coordinator.offset_fetch(group, stable, with_ids, version)
            return
        named = [self._named(topic) for topic in topics]
        known = [topic for topic in named if "name" in topic]
        unknown = [topic for topic in named if "name" not in topic]

        def with_unknown(reply: Reply) -> None:
            if reply["errorCode"] is Errors.NONE:
                reply["topics"] = [self._named(topic) for topic in reply["topics"]]
                reply["topics"] += _failed_fetch(unknown, Errors.UNKNOWN_TOPIC_ID)
                order = [topic["topicId"] for topic in topics]
                reply["topics"].sort(key=lambda topic: order.index(topic["topicId"]))
            respond(reply)

        self.coordinator.offset_fetch(group | {"topics": known}, stable, with_unknown, version)

    # Transactions and topics

    def _verify(self, request: Request, version: int) -> Errors:
        return self.transactions.verify(
            request["transactionalId"],
            request["producerId"],
            request["producerEpoch"],
            self.coordinator.manager.partition_for(request["groupId"]),
            version,
        )

    def _init_producer_id(self, client: Client, request: Request, respond: Respond) -> None:
        error, producer_id, epoch = self.transactions.init_producer_id(
            request["transactionalId"], request["transactionTimeoutMs"]
        )
        respond({"errorCode": error, "producerId": producer_id, "producerEpoch": epoch})

    def _add_offsets_to_txn(self, client: Client, request: Request, respond: Respond) -> None:
        error = self.transactions.add_offsets(
            request["transactionalId"],
            request["producerId"],
            request["producerEpoch"],
            self.coordinator.manager.partition_for(request["groupId"]),
        )
        respond({"errorCode": error})

    def _end_txn(self, client: Client, request: Request, respond: Respond) -> None:
        error, producer_id, epoch = self.transactions.end(
            request["transactionalId"],
            request["producerId"],
            request["producerEpoch"],
            request["committed"],
            client.version,
        )
        respond({"errorCode": error, "producerId": producer_id, "producerEpoch": epoch})

    def _delete_topics(self, client: Client, request: Request, respond: Respond) -> None:
        deleted, responses = [], []
        for name in request["topicNames"]:
            topic = self.cluster.metadata.topic(name)
            error = Errors.NONE if topic else Errors.UNKNOWN_TOPIC_OR_PARTITION
            responses.append({"name": name, "errorCode": error, "errorMessage": None})
            if topic is not None:
                deleted.append((name, str(topic.topic_id)))
                self.cluster.metadata = self.cluster.metadata.without(name)
        respond({"responses": responses})
        for broker in self.cluster.brokers:
            broker.coordinator.topics_deleted(deleted)


def _in_request_order(
    topics: list[Reply], named: Callable[[Reply], Reply], known: list[Reply], unknown: list[Reply]
) -> list[Reply]:
    """Results in the order of the request, whatever order the coordinator gave them in."""
    results: dict[Any, dict[int, list[Reply]]] = {}
    for topic in known:
        for partition in topic["partitions"]:
            offset_keys = results.setdefault(topic["name"], {})
            offset_keys.setdefault(partition["partitionIndex"], []).append(partition)
    merged = []
    for topic, failed in zip(topics, unknown, strict=True):
        answered = results.get(named(topic).get("name"), {})
        partitions = []
        for partition in failed["partitions"]:
            if partition["errorCode"] is not Errors.NONE:
                partitions.append(partition)
            elif answered.get(partition["partitionIndex"]):
                partitions.append(answered[partition["partitionIndex"]].pop(0))
        merged.append(topic_of(topic) | {"partitions": partitions})
    return merged


def _failed_fetch(topics: list[Reply], error: Errors) -> list[Reply]:
    return [
        topic_of(topic)
        | {"partitions": [fetched_offset(partition, None, error) for partition in topic["partitionIndexes"]]}
        for topic in topics
    ]
