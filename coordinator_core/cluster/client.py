"""One cluster, and questions to its brokers: kafka-python's connections with our errors and patience."""

from __future__ import annotations

import base64
import logging
import re
import struct
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from kafka import errors as kafka_errors
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin.cluster import DescribeQuorumRequest
from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from coordinator_core.cluster.connections import MOST_PAUSE_SECONDS, Connections
from coordinator_core.cluster.errors import ClusterError, LoginError, MissingAclError
from coordinator_core.cluster.settings import CLIENT_ID, ClientSettings
from coordinator_core.coordinator.errors import Errors
from coordinator_core.errors import RegroupError, UsageError
from coordinator_core.topology import BrokerInfo, PartitionInfo, TopicInfo

T = TypeVar("T")
K = TypeVar("K", int, str, tuple[str, int])
TopicPartition = tuple[str, int]

EARLIEST, LATEST = -2, -1
OLDEST_RECORD = 0
"""A time: the first record that is not older, which is the oldest one that has a timestamp."""
TOPIC_CONFIG, BROKER_CONFIG = 2, 4
"""Types of ``ConfigResource``."""
RETRIABLE: frozenset[int] = frozenset(
    {
        *(Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.LEADER_NOT_AVAILABLE, Errors.NOT_LEADER_OR_FOLLOWER),
        *(Errors.REQUEST_TIMED_OUT, Errors.REPLICA_NOT_AVAILABLE, Errors.NETWORK_EXCEPTION),
        *(Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE, Errors.NOT_COORDINATOR),
        *(Errors.KAFKA_STORAGE_ERROR, Errors.FENCED_LEADER_EPOCH, Errors.UNKNOWN_LEADER_EPOCH),
        Errors.OFFSET_NOT_AVAILABLE,
    }
)
"""Error codes that pass: leader or coordinator unknown, moving or loading, storage going away, timeouts."""

BACKOFF_SECONDS = (0.05, 1.0)
_NOT_NULL_OF = frozenset(
    one.API_KEY for one in (FetchRequest, ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest)
)
_NEVER_NULL = ("brokers", "host", "topics", "responses", "name", "topic", "partitions", "replica_nodes", "isr_nodes")
"""Fields of their answers."""
_MAX_FRAME_BYTES = 1 << 30
_NO_NODE = "No node_id provided"
_PARTITIONS_PER_REQUEST = 5000
_LIST_OFFSETS_VERSION = 8
_FETCH_VERSION = 12
"""From version 13 on topics are named by id, and a missing permission shows as an unknown id."""
_HINTS = (
    (re.compile(r"CERTIFICATE_VERIFY_FAILED[^:]*: ([^(]*)"), "the broker's certificate is refused: {}"),
    (re.compile(r"WRONG_VERSION_NUMBER|PACKET_LENGTH|RECORD_LAYER"), "the listener does not speak TLS"),
    (re.compile(r"CERTIFICATE_REQUIRED|BAD_CERTIFICATE|UNKNOWN_CA"), "the broker refuses our certificate"),
)


class Position(NamedTuple):
    """An answer of ListOffsets: -1 where the broker knows no such record, time (ms) or leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Client:
    """Connections to the brokers of one cluster; close it when done. Safe in several threads.

    ``ClusterError`` when no broker can be reached in time, ``LoginError`` when the cluster refuses us.
    """

    def __init__(self, settings: ClientSettings) -> None:
        # Log lines of kafka-python repeat the errors raised here; at its debug level it logs credentials.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self.settings = settings
        self.patience_seconds = settings.api_timeout_seconds
        self._net = NetworkSelector(client_id=settings.client.get("client_id", CLIENT_ID))
        self._manager = Connections(
            self._net,
            bootstrap_servers=list(settings.bootstrap_servers),
            receive_message_max_bytes=_MAX_FRAME_BYTES,
            reconnect_backoff_max_ms=1000,
            **settings.client,
        )
        self._net.start()
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._manager.run(self._manager.close)
        self._net.stop()
        self._net.close()

    def _connect(self) -> None:
        """Reach one bootstrap server and learn the brokers from it; says why when that fails."""
        deadline = time.monotonic() + self.patience_seconds
        cluster = self._manager.cluster
        reasons: dict[str, str] = {}
        while True:
            for server in cluster.bootstrap_brokers():
                name = f"{server.host}:{server.port}"
                try:
                    self._manager.run(self._first_contact, server.node_id)
                    self._manager.bootstrap(max(1.0, deadline - time.monotonic()) * 1000)
                    return
                except RegroupError:
                    raise
                except kafka_errors.NodeNotReadyError as error:
                    # Not tried again yet: why it failed before stands.
                    reasons.setdefault(name, _reason(error))
                except Exception as error:
                    self._raise_if_final(error, name)
                    reasons[name] = _reason(error) + _hint(error)
            if time.monotonic() > deadline:
                tried = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
                raise ClusterError(f"no bootstrap server can be used: {tried}")
            time.sleep(BACKOFF_SECONDS[1])

    async def _first_contact(self, node_id: Any) -> None:
        await self._manager.get_connection(node_id, pop_on_close=True, refresh_metadata_on_err=False)

    def _raise_if_final(self, error: BaseException, where: str) -> None:
        if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
            mechanism = self.settings.client.get("sasl_mechanism")
            raise LoginError(f"{where}: this listener does not offer sasl.mechanism {mechanism}") from None
        if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
            mechanism = self.settings.client.get("sasl_mechanism")
            raise LoginError(f"{where}: the broker refuses the credentials ({mechanism})") from None
        if isinstance(error, kafka_errors.IncompatibleBrokerVersion):
            raise UsageError(f"{where}: the broker is too old: {_plain(error)}") from None
        for pattern, hint in _HINTS:
            match = pattern.search(str(error))
            if match:
                raise LoginError(f"{where}: {hint.format(match[1].strip() if match.groups() else '')}") from None

    @property
    def cluster_id(self) -> str | None:
        return self._manager.cluster.cluster_id  # type: ignore[no-any-return]

    def max_version(self, request: Any) -> int:
        """The newest version of a request that this library and the cluster both know."""
        return int(self._manager.broker_version_data.api_version(request))

    def knows(self, request: Any) -> bool:
        """Whether the cluster has this kind of request."""
        return request.API_KEY in self._manager.broker_version_data.api_versions

    def ask(self, make: Callable[[], Any], node_id: int | None = None, *, patience: float | None = None) -> Any:
        """The answer to the request that ``make`` makes, from ``node_id`` or any broker.

        Connection failures are retried with backoff for ``patience`` seconds; error codes within the answer
        are the caller's. ``ClusterError`` when time is over, ``UsageError`` for a value that no request can hold.
        """
        deadline = time.monotonic() + (self.patience_seconds if patience is None else patience)
        backoff = BACKOFF_SECONDS[0]
        while True:
            try:
                # Another one than is sent: to encode settles the version, which is that of each broker's connection.
                self._check_encodes(make())
                answer = self._manager.run(self._manager.send_in_turn, make(), node_id)
                if (wait_ms := getattr(answer, "throttle_time_ms", 0)) > MOST_PAUSE_SECONDS * 1000:
                    who = "a broker" if node_id is None else f"broker {node_id}"
                    raise ClusterError(
                        f"{who} throttles for {wait_ms} ms: a quota is far below what this client asks for"
                    )
                if type(answer).API_KEY in _NOT_NULL_OF and (null := _null_in(answer)):
                    raise ClusterError(f"{type(answer).__name__}: {null} is null, which Kafka's never is")
                return answer
            except kafka_errors.KafkaError as error:
                where = "the cluster" if node_id is None else f"broker {node_id}"
                self._raise_if_final(error, where)
                if isinstance(error, kafka_errors.UnknownBrokerIdError):
                    # It has come, or come back, after the library looked for brokers, as it does every five minutes.
                    # Who has no patience asks again later.
                    with suppress(kafka_errors.KafkaError):
                        self._manager.run(self._manager.cluster.refresh_metadata)
                if time.monotonic() > deadline:
                    raise ClusterError(f"{where} gives no answer: {_reason(error)}") from None
            time.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_SECONDS[1])

    def _check_encodes(self, request: Any) -> None:
        """The library encodes on its own thread, where an error ends no wait for the answer."""
        try:
            request.encode(version=self.max_version(request))
        except (ValueError, struct.error, OverflowError) as error:
            raise UsageError(f"{type(request).__name__} cannot hold a value: {error}") from None

    def until_settled(
        self,
        attempt: Callable[[], T | None],
        what: str,
        why: Callable[[], str] | None = None,
        *,
        patience: float | None = None,
    ) -> T:
        """The first result of ``attempt`` that is not ``None``.

        ``ClusterError`` when ``patience``, in seconds, is over; ``why`` is the error of the last attempt.
        """
        patience = self.patience_seconds if patience is None else patience
        deadline = time.monotonic() + patience
        backoff = BACKOFF_SECONDS[0]
        while True:
            result = attempt()
            if result is not None:
                return result
            if time.monotonic() > deadline:
                met = f": {why()}" if why else ""
                raise ClusterError(f"{what}: not within {patience:g} s{met}")
            time.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_SECONDS[1])

    def brokers(self) -> tuple[list[BrokerInfo], int]:
        """The brokers that are alive, and the id of the controller (-1 where there is none)."""
        answer = self.ask(lambda: MetadataRequest(topics=[]))
        listener = self.settings.security_protocol
        nodes = [BrokerInfo(node.node_id, {listener: (node.host, node.port)}, node.rack) for node in answer.brokers]
        return nodes, answer.controller_id

    def quorum(self) -> tuple[int | None, tuple[int, ...]]:
        """Id of the active controller, and of all voters (KIP-595).

        ``None`` and nobody with ZooKeeper, and without the permission to describe the cluster.
        """
        if not self.knows(DescribeQuorumRequest):
            return None, ()
        topic = DescribeQuorumRequest.TopicData
        asked = topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])
        answer = self.ask(lambda: DescribeQuorumRequest(topics=[asked]))
        if answer.error_code:
            return None, ()
        found = _only([partition for each in answer.topics for partition in each.partitions], "the controllers")
        voters = tuple(sorted(voter.replica_id for voter in found.current_voters))
        return (None if found.error_code or found.leader_id < 0 else found.leader_id), voters

    def topic(self, name: str) -> TopicInfo:
        """A topic as the cluster's metadata has it now, partitions in order, some perhaps without leader.

        ``ClusterError`` when the answer is about something else: the settings asked for are the ones written down.
        """

        def attempt() -> TopicInfo | None:
            answer = self.ask(lambda: _metadata([name]))
            if [found.name for found in answer.topics] != [name]:
                named = ", ".join(repr(found.name) for found in answer.topics) or "no topic"
                raise ClusterError(f"a broker was asked for the metadata of {name} and answers with {named}")
            (found,) = answer.topics
            _check_described(found)
            if found.error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION:
                raise UsageError(f"the cluster has no topic {name}")
            if found.error_code and not found.partitions:
                if found.error_code not in RETRIABLE:
                    raise ClusterError(f"metadata of {name}: {error_name(found.error_code)}")
                return None
            return _topic(found)

        return self.until_settled(attempt, f"metadata of {name}")

    def topics(self, names: Collection[str] | None = None) -> list[TopicInfo]:
        """Topics of these names, or every one that the principal may describe; one that is not there has no
        partitions. ``MissingAclError`` for a name that it may not describe."""
        answer = self.ask(lambda: _metadata(names))
        for found in answer.topics:
            _check_described(found)
        return sorted((_topic(found) for found in answer.topics), key=lambda topic: topic.name)

    def offsets(self, leaders: Mapping[TopicPartition, int], timestamp: int) -> dict[TopicPartition, int]:
        """Offsets of :meth:`positions`."""
        return {one: found.offset for one, found in self.positions(leaders, timestamp).items()}

    def positions(self, leaders: Mapping[TopicPartition, int], timestamp: int) -> dict[TopicPartition, Position]:
        """Position of each partition at ``EARLIEST``, ``LATEST`` (the high watermark) or a time, asked of its leader.

        Partitions that the asked broker does not lead (any more), or does not know yet, are missing.
        """
        found: dict[TopicPartition, Position] = {}

        def one(leader: int, partitions: list[TopicPartition]) -> None:
            for first in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
                part = partitions[first : first + _PARTITIONS_PER_REQUEST]
                for topic in self.ask(lambda part=part: _list_offsets(part, timestamp), leader).topics:  # type: ignore[misc]
                    for answer in topic.partitions:
                        if usable(answer.error_code, topic.name, answer.partition_index, "Describe"):
                            epoch = -1 if answer.leader_epoch is None else answer.leader_epoch
                            position = Position(answer.offset, answer.timestamp, epoch)
                            found[topic.name, answer.partition_index] = position

        by_broker(leaders, one)
        return found

    def configs(
        self, kind: int, name: str, keys: Sequence[str], broker: int | None = None, *, patience: float | None = None
    ) -> dict[str, str]:
        """Values of those ``keys`` of a topic or broker (``kind``) that it knows and tells.

        ``broker``: whom to ask; a broker's own settings it alone knows. ``patience`` as in :meth:`ask`.
        ``MissingAclError`` without DescribeConfigs.
        """
        resource = DescribeConfigsRequest.DescribeConfigsResource
        wanted = resource(resource_type=kind, resource_name=name, configuration_keys=list(keys))
        answer = self.ask(lambda: DescribeConfigsRequest(resources=[wanted]), broker, patience=patience)
        found = _only(answer.results, f"the configuration of {name}")
        if found.error_code in (Errors.TOPIC_AUTHORIZATION_FAILED, Errors.CLUSTER_AUTHORIZATION_FAILED):
            of, whose = (f"Topic:{name}", name) if kind == TOPIC_CONFIG else ("Cluster", "the brokers")
            raise MissingAclError("DescribeConfigs", of, f"the configuration of {whose}")
        if found.error_code:
            raise ClusterError(f"configuration of {name}: {error_name(found.error_code)}")
        told = {one.name: one.value for one in found.configs if one.value is not None}
        return {key: told[key] for key in keys if key in told}

    def epoch_end_offset(self, name: str, partition: int, leader: int, epoch: int) -> tuple[int, int] | None:
        """The leader's largest epoch not above ``epoch``, and where it ends (-1, -1: it knows none).

        ``None`` while this broker does not lead the partition (KIP-101, KIP-320).
        """
        topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        wanted = topic.OffsetForLeaderPartition(partition=partition, current_leader_epoch=-1, leader_epoch=epoch)

        def make() -> Any:
            return OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic(topic=name, partitions=[wanted])])

        answers = [found for topic in self.ask(make, leader).topics for found in topic.partitions]
        answer = _only(answers, f"the epoch of {name}-{partition}")
        if not usable(answer.error_code, name, partition, "Describe"):
            return None
        return answer.leader_epoch, answer.end_offset


def _only(answers: Sequence[Any], what: str) -> Any:
    """The answer to one question; ``ClusterError`` for none, and for several."""
    if len(answers) != 1:
        raise ClusterError(f"a broker was asked once about {what} and answers {len(answers)} times")
    return answers[0]


def _null_in(answer: Any) -> str | None:
    """Name of a field of the answer that is null and of which no broker says so, at any depth."""
    for name in _NEVER_NULL:
        found = getattr(answer, name, "")
        if found is None:
            return name
        for one in () if isinstance(found, str) else found:
            if not isinstance(one, int) and (null := _null_in(one)):
                return null
    return None


def by_broker(
    brokers: Mapping[K, int], one: Callable[[int, list[K]], None], stop: Callable[[], None] = lambda: None
) -> None:
    """Call ``one(broker, keys)`` for all brokers at the same time. ``brokers`` maps keys to brokers.

    Keys without a broker (-1) are left out. ``stop`` is called before an error, or an interrupt of this thread, waits
    for the other calls.
    """
    groups: dict[int, list[K]] = {}
    for key, broker in sorted(brokers.items()):
        if broker >= 0:
            groups.setdefault(broker, []).append(key)
    if groups:
        with ThreadPoolExecutor(len(groups)) as threads:
            try:
                for _ in threads.map(one, groups, groups.values()):
                    pass
            except BaseException:
                stop()
                raise


def check_answered(broker: int, what: str, asked: Collection[object], answered: Collection[object]) -> None:
    """``ClusterError`` for an answer that leaves out what was asked, or is about something else."""
    if left_out := [one for one in asked if one not in answered]:
        raise ClusterError(f"broker {broker} leaves {left_out[0]!r} out of its answer about {what}")
    if others := [one for one in answered if one not in asked]:
        raise ClusterError(f"broker {broker} answers about {what} with {others[0]!r}, which was not asked for")


def _list_offsets(partitions: Sequence[TopicPartition], timestamp: int) -> Any:
    kind = ListOffsetsRequest.ListOffsetsTopic
    topics: dict[str, list[Any]] = {}
    for name, partition in partitions:
        wanted = kind.ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=-1)
        topics.setdefault(name, []).append(wanted)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[kind(name=name, partitions=wanted) for name, wanted in topics.items()],
        max_version=_LIST_OFFSETS_VERSION,
    )


def fetch_request(
    topic: str, partitions: Iterable[tuple[int, int, int, int]], *, max_bytes: int, max_wait_ms: int
) -> Any:
    """A fetch without session, of uncommitted data too.

    ``partitions`` has partition, leader epoch, offset and most bytes of each.
    """
    kind = FetchRequest.FetchTopic
    wanted = [
        kind.FetchPartition(
            partition=partition, current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=most
        )
        for partition, leader_epoch, offset, most in partitions
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=max_bytes,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[kind(topic=topic, partitions=wanted)],
        forgotten_topics_data=[],
        rack_id="",
        max_version=_FETCH_VERSION,
    )


def _metadata(names: Collection[str] | None) -> Any:
    wanted = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False, min_version=4 if wanted else 1)


def _check_described(found: Any) -> None:
    if found.error_code == Errors.TOPIC_AUTHORIZATION_FAILED:
        raise MissingAclError("Describe", f"Topic:{found.name}", "asking for the partitions of the topic")


def _topic(found: Any) -> TopicInfo:
    partitions = [partition.partition_index for partition in found.partitions]
    if len(set(partitions)) < len(partitions) or min(partitions, default=0) < 0:
        raise ClusterError(f"a broker names partitions of {found.name!r} that no topic has: {sorted(partitions)}")
    return TopicInfo(
        found.name,
        topic_id_text(found.topic_id),
        tuple(
            PartitionInfo(
                partition.partition_index,
                partition.leader_id,
                -1 if partition.leader_epoch is None else partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(sorted(partition.isr_nodes)),
                tuple(partition.offline_replicas or ()),
            )
            for partition in sorted(found.partitions, key=lambda partition: partition.partition_index)
        ),
    )


def topic_id_text(value: uuid.UUID | None) -> str | None:
    """Kafka's 22-character text of a topic id; ``None`` for none."""
    if value is None or not value.int:
        return None
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def usable(code: int, topic: str, partition: int, operation: str) -> bool:
    """Whether an answer for a partition counts; ``False`` when it may with another broker or later.

    Raises ``MissingAclError`` for a lack of rights, ``ClusterError`` for any other error that stays.
    """
    if code == 0:
        return True
    if code == Errors.TOPIC_AUTHORIZATION_FAILED:
        raise MissingAclError(operation, f"Topic:{topic}", f"reading {topic}")
    if code in RETRIABLE:
        return False
    raise ClusterError(f"{topic}-{partition}: {error_name(code)}")


def error_text(code: int) -> str:
    """Kafka's name of an error code."""
    try:
        return Errors(code).name
    except ValueError:
        found = kafka_errors.for_code(code)
        return str(getattr(found, "message", None) or found.__name__)


def error_name(code: int) -> str:
    """An error code with its name, for messages."""
    return f"error {code} ({error_text(code)})"


def _hint(error: BaseException) -> str:
    """Hint for a listener that closes the connection: a restart, or the wrong security.protocol."""
    text = str(error)
    if "UNEXPECTED_EOF" in text:
        return " (does this listener speak TLS?)"
    return " (is security.protocol right for this listener?)" if "disconnected" in text else ""


def _reason(error: BaseException) -> str:
    found = _plain(error) or type(error).__name__
    # All brokers that the library knows have failed a moment ago, or have throttled us.
    return "no broker takes requests now, or all throttle this client" if found == _NO_NODE else found


def _plain(error: BaseException) -> str:
    """Message of a kafka-python error, without the name of its class and addresses of objects."""
    text = str(error).splitlines()[0] if str(error) else ""
    return re.sub(r"<[^>]*>", "", re.sub(r"^(\[Error \d+\] )?\w*Error: ", "", text)).strip()
