"""Questions to a broker over the Kafka protocol, one blocking connection, and its answers as plain values.

Encoding is kafka-python's, but for ConsumerGroupDescribe and ShareGroupDescribe, which it does not have.
Answers of :meth:`Connection.answers` have the shape of ``expected/reloaded.json`` in the corpus.
"""

from __future__ import annotations

import base64
import socket
import struct
import uuid
from collections.abc import Iterable
from typing import Any

from kafka.protocol.admin import (
    DescribeGroupsRequest,
    DescribeProducersRequest,
    ListGroupsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
NONE = 0
UNSTABLE_OFFSET_COMMIT = 88

CONSUMER_GROUP_DESCRIBE = 69
SHARE_GROUP_DESCRIBE = 77

Json = dict[str, Any]


class BrokerError(Exception):
    """A broker answered with an error code that the test did not ask for."""


def _check(code: int, what: str) -> None:
    if code != NONE:
        raise BrokerError(f"{what}: error {code}")


def uuid_text(raw: bytes) -> str:
    """Kafka's 22-character text of a topic id."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class _Reader:
    """Reads the flexible ("compact") encodings of the protocol."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        if len(taken) != size:
            raise BrokerError("the answer ends early")
        self.position += size
        return taken

    def integer(self, layout: str) -> int:
        value: int = struct.unpack(f">{layout}", self.take(struct.calcsize(layout)))[0]
        return value

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str | None:
        length = self.uvarint()
        return None if length == 0 else self.take(length - 1).decode()

    def length(self) -> int:
        return self.uvarint() - 1

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())

    def partitions(self) -> Json:
        """A member's assignment: topic id, topic name and partitions, for each topic."""
        topics = []
        for _ in range(self.length()):
            topic = {"topicId": uuid_text(self.take(16)), "topicName": self.text()}
            topic["partitions"] = [self.integer("i") for _ in range(self.length())]
            self.tags()
            topics.append(topic)
        self.tags()
        return {"topicPartitions": topics}


def _compact(text: str) -> bytes:
    data = text.encode()
    return _uvarint(len(data) + 1) + data


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Connection:
    """One connection to a broker. ``OSError`` when it cannot be reached or goes away."""

    def __init__(self, host: str, port: int, timeout_seconds: float = 30) -> None:
        self._socket = socket.create_connection((host, port), timeout_seconds)
        self._correlation_id = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _exchange(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            data += part
        return bytes(data)

    def send(self, request: Any) -> Any:
        """The answer to a request of kafka-python, whose class says the version."""
        self._correlation_id += 1
        request.with_header(correlation_id=self._correlation_id, client_id="regroup-test")
        answer_type = request.header.get_response_class()
        return answer_type.decode(self._exchange(request.encode(framed=True, header=True)), header=True)

    def _send_raw(self, api_key: int, version: int, body: bytes) -> _Reader:
        """The answer to a flexible request, after its header."""
        self._correlation_id += 1
        client_id = b"regroup-test"
        header = struct.pack(">hhih", api_key, version, self._correlation_id, len(client_id)) + client_id + b"\0"
        frame = header + body
        reader = _Reader(self._exchange(struct.pack(">i", len(frame)) + frame))
        if reader.integer("i") != self._correlation_id:
            raise BrokerError("the answer belongs to another request")
        reader.tags()
        return reader

    def brokers(self) -> list[int]:
        return [broker.node_id for broker in self.send(MetadataRequest[9](topics=[])).brokers]

    def leader_epochs(self, topic: str) -> dict[int, int] | None:
        """Leader epoch of each partition; ``None`` while a partition has no leader. Empty: no such topic."""
        wanted = MetadataRequest.MetadataRequestTopic(name=topic)
        answer = self.send(MetadataRequest[9](topics=[wanted], allow_auto_topic_creation=False))
        partitions = [partition for entry in answer.topics for partition in entry.partitions]
        if any(partition.leader_id < 0 or partition.error_code for partition in partitions):
            return None
        return {partition.partition_index: partition.leader_epoch for partition in partitions}

    def find_coordinator(self, group_id: str) -> int:
        """Node id of the group's coordinator; negative while there is none."""
        answer = self.send(FindCoordinatorRequest[4](key_type=0, coordinator_keys=[group_id]))
        return int(answer.coordinators[0].node_id)

    def topics(self) -> list[tuple[str, str, int]]:
        """Name, id and number of partitions of every topic."""
        answer = self.send(MetadataRequest[12](topics=None))
        return [(topic.name, _topic_id(topic.topic_id), len(topic.partitions)) for topic in answer.topics]

    def list_groups(self) -> list[Json]:
        answer = self.send(ListGroupsRequest[5](states_filter=[], types_filter=[]))
        _check(answer.error_code, "ListGroups")
        return [
            {
                "groupId": group.group_id,
                "protocolType": group.protocol_type,
                "groupState": group.group_state,
                "groupType": group.group_type,
            }
            for group in answer.groups
        ]

    def describe_classic(self, group_id: str) -> Json:
        group = self.send(DescribeGroupsRequest[6](groups=[group_id])).groups[0]
        return {
            "errorCode": group.error_code,
            "groupState": group.group_state,
            "protocolType": group.protocol_type,
            "protocolData": group.protocol_data,
            "members": [
                {
                    "memberId": member.member_id,
                    "groupInstanceId": member.group_instance_id,
                    "clientId": member.client_id,
                    "clientHost": member.client_host,
                    "memberMetadata": base64.b64encode(member.member_metadata).decode(),
                    "memberAssignment": base64.b64encode(member.member_assignment).decode(),
                }
                for member in group.members
            ],
        }

    def describe_consumer(self, group_id: str) -> Json:
        """ConsumerGroupDescribe version 1 (KIP-848)."""
        body = _uvarint(2) + _compact(group_id) + b"\0" + b"\0"
        reader = self._send_raw(CONSUMER_GROUP_DESCRIBE, 1, body)
        group = self._group_head(reader)
        for _ in range(reader.length()):
            member: Json = {"memberId": reader.text(), "instanceId": reader.text(), "rackId": reader.text()}
            member["memberEpoch"] = reader.integer("i")
            member["clientId"], member["clientHost"] = reader.text(), reader.text()
            member["subscribedTopicNames"] = [reader.text() for _ in range(reader.length())]
            member["subscribedTopicRegex"] = reader.text()
            member["assignment"], member["targetAssignment"] = reader.partitions(), reader.partitions()
            member["memberType"] = reader.integer("b")
            reader.tags()
            group["members"].append(member)
        return group

    def describe_share(self, group_id: str) -> Json:
        """ShareGroupDescribe version 1 (KIP-932)."""
        body = _uvarint(2) + _compact(group_id) + b"\0" + b"\0"
        reader = self._send_raw(SHARE_GROUP_DESCRIBE, 1, body)
        group = self._group_head(reader)
        for _ in range(reader.length()):
            member: Json = {"memberId": reader.text(), "rackId": reader.text()}
            member["memberEpoch"] = reader.integer("i")
            member["clientId"], member["clientHost"] = reader.text(), reader.text()
            member["subscribedTopicNames"] = [reader.text() for _ in range(reader.length())]
            member["assignment"] = reader.partitions()
            reader.tags()
            group["members"].append(member)
        return group

    @staticmethod
    def _group_head(reader: _Reader) -> Json:
        """The fields before the members: throttle time, one group, its error, state, epochs and assignor."""
        reader.integer("i")
        if reader.length() != 1:
            raise BrokerError("asked for one group")
        return {
            "errorCode": reader.integer("h"),
            "errorMessage": reader.text(),
            "groupId": reader.text(),
            "groupState": reader.text(),
            "groupEpoch": reader.integer("i"),
            "assignmentEpoch": reader.integer("i"),
            "assignorName": reader.text(),
            "members": [],
        }

    def offsets(self, group_id: str, topics: Iterable[tuple[str, int]] | None, *, require_stable: bool) -> list[Json]:
        """OffsetFetch: for all committed offset keys, or for every partition of ``topics`` (name, partitions)."""
        group_type = OffsetFetchRequest.OffsetFetchRequestGroup
        topic_type = group_type.OffsetFetchRequestTopics
        wanted = None if topics is None else [topic_type(name=n, partition_indexes=list(range(c))) for n, c in topics]
        request = OffsetFetchRequest[9](
            groups=[group_type(group_id=group_id, topics=wanted)], require_stable=require_stable
        )
        group = self.send(request).groups[0]
        _check(group.error_code, f"OffsetFetch of {group_id!r}")
        return [
            {
                "topic": topic.name,
                "partition": partition.partition_index,
                "offset": partition.committed_offset,
                "leaderEpoch": partition.committed_leader_epoch,
                "metadata": partition.metadata,
                "errorCode": partition.error_code,
            }
            for topic in group.topics
            for partition in topic.partitions
        ]

    def transactions(self) -> list[Json]:
        answer = self.send(ListTransactionsRequest[0](state_filters=[], producer_id_filters=[]))
        _check(answer.error_code, "ListTransactions")
        return [
            {
                "transactionalId": transaction.transactional_id,
                "producerId": transaction.producer_id,
                "transactionState": transaction.transaction_state,
            }
            for transaction in answer.transaction_states
        ]

    def open_transactions(self, topic: str, partitions: int) -> list[Json]:
        """Transactions that are open in the partitions of ``topic``, by the log's own producer state."""
        wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(range(partitions)))
        answer = self.send(DescribeProducersRequest[0](topics=[wanted]))
        found = []
        for partition in answer.topics[0].partitions:
            _check(partition.error_code, f"DescribeProducers of {topic}-{partition.partition_index}")
            found += [
                {
                    "partition": partition.partition_index,
                    "producerId": producer.producer_id,
                    "producerEpoch": producer.producer_epoch,
                    "firstOffset": producer.current_txn_start_offset,
                }
                for producer in partition.active_producers
                if producer.current_txn_start_offset >= 0
            ]
        return sorted(found, key=lambda row: (row["partition"], row["producerId"]))

    def answers(self) -> Json:
        """All that the broker says of its groups, shaped like ``expected/reloaded.json``."""
        counts = {name: partitions for name, _, partitions in self.topics()}
        topics = [(name, count) for name, count in counts.items() if not name.startswith("__")]
        listed = sorted(self.list_groups(), key=lambda group: str(group["groupId"]))
        return {
            "listGroups": listed,
            "groups": {row["groupId"]: self._group(row["groupId"], row["groupType"].lower(), topics) for row in listed},
            "listTransactions": self.transactions(),
            "openTransactions": self.open_transactions(OFFSETS_TOPIC, counts[OFFSETS_TOPIC]),
        }

    def _group(self, group_id: str, group_type: str, topics: list[tuple[str, int]]) -> Json:
        ask = {"consumer": self.describe_consumer, "share": self.describe_share}.get(group_type, self.describe_classic)
        described = ask(group_id)
        _check(described["errorCode"], f"describing {group_id!r}")
        # Asked for by name: a fetch of everything leaves out an offset key that has nothing but an open transaction.
        named = self.offsets(group_id, topics, require_stable=True)
        return {
            "type": group_type,
            "describe": described,
            "offsetFetch": {"offsets": self.offsets(group_id, None, require_stable=False)},
            "unstablePartitions": [
                {"topic": offset["topic"], "partition": offset["partition"]}
                for offset in named
                if offset["errorCode"] == UNSTABLE_OFFSET_COMMIT
            ],
        }


def _topic_id(value: Any) -> str:
    return uuid_text(value.bytes if isinstance(value, uuid.UUID) else value)
