"""Finding a coordinator: the server's answer (``KafkaApis.getCoordinator``) and the client's loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.replies import FindCoordinatorReply, FoundCoordinator
from coordinator_core.coordinator.requests import FindCoordinator as Request
from coordinator_core.coordinator.topology import DEFAULT_LISTENER, NO_NODE, Node, alive_node, partition_metadata
from coordinator_core.groups.hashing import partition_for
from coordinator_core.topology import Topology

TEXT = {
    Errors.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client "
    "library or the message was sent to an incompatible broker. See the broker logs for more details."
}
"""Messages of the errors for which a broker sends one."""


class CoordinatorType(IntEnum):
    """``CoordinatorType`` of FindCoordinator: the kind of key that is looked up."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


KNOWN_TYPES = frozenset(int(kind) for kind in CoordinatorType)


@dataclass
class FindCoordinator:
    """The lookup service of a broker. An internal topic that is missing is created by the first question.

    ``share_coordinator`` is whether the release has one, else it is never available.
    """

    topology: Callable[[], Topology]
    _: KW_ONLY
    share_coordinator: bool
    topic_ids: Callable[[str], bool] = lambda _text: True
    create: Callable[[CoordinatorType], None] = lambda _type: None
    listener: str = DEFAULT_LISTENER
    missing_topics: set[CoordinatorType] = field(default_factory=set)

    def handle(self, request: Request, version: int) -> FindCoordinatorReply:
        """Answer a FindCoordinator."""
        return FindCoordinatorReply(
            tuple(self._one(request.key_type, key, version) for key in request.coordinator_keys)
        )

    def _one(self, key_type: int, key: str, version: int) -> FoundCoordinator:
        error, node = self.find(key_type, key, version)
        text = "" if key_type in KNOWN_TYPES else TEXT.get(error, "")
        if version < 4:
            text = TEXT.get(error, error.name)
        return FoundCoordinator(key, node.node_id, node.host, node.port, error, text)

    def find(self, key_type: int, key: str, version: int = 6) -> tuple[Errors, Node]:
        """The coordinator of ``key``, or what stands in the way, in the order of Kafka's checks."""
        if key_type not in KNOWN_TYPES:
            return Errors.INVALID_REQUEST, NO_NODE
        kind = CoordinatorType(key_type)
        if kind is CoordinatorType.SHARE:
            if version < 6:
                return Errors.INVALID_REQUEST, NO_NODE
            if not self.share_coordinator:
                return Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE
            if not self._is_share_key(key):
                return Errors.INVALID_REQUEST, NO_NODE
        topology = self.topology()
        partitions = topology.offsets_partitions
        if kind in self.missing_topics or partitions is None:
            self.create(kind)
            return Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE
        metadata = partition_metadata(topology, partition_for(key, len(partitions)), self.listener)
        node = alive_node(topology, metadata.leader, self.listener)
        return (Errors.COORDINATOR_NOT_AVAILABLE, NO_NODE) if node is None else (Errors.NONE, node)

    def _is_share_key(self, key: str) -> bool:
        """``groupId:topicId:partition``, read from the right (``SharePartitionKey``)."""
        parts = key.rsplit(":", 2)
        if len(parts) < 3:
            return False
        group_id, topic_id, partition = parts
        return bool(group_id) and partition.isdecimal() and self.topic_ids(topic_id)


REQUEST_MS = 1
"""Time that a request of the model takes."""
RETRIABLE = frozenset({Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE})
"""Answers that make a client look the coordinator up again."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """End of a client's search: the coordinator (``None``: out of time), when, after how many requests."""

    node: Node | None
    at_ms: int
    requests: int


def look_up(
    ask: Callable[[int, int], tuple[Errors, Node]],
    in_flight: Sequence[tuple[int, int]],
    start_ms: int,
    timeout_ms: int,
    *,
    retry_backoff_ms: int = 100,
) -> Lookup:
    """``AbstractCoordinator.ensureCoordinatorReady``: ask the least loaded node until it knows or time is up.

    ``ask`` takes a node id and a time and answers as :meth:`FindCoordinator.find`; ``in_flight`` gives for
    each node known to the client how many requests are under way to it.
    """
    least_loaded = min(in_flight, key=lambda node: (node[1], node[0]))[0]
    now_ms, requests = start_ms, 0
    while True:
        requests += 1
        error, node = ask(least_loaded, now_ms)
        now_ms += REQUEST_MS
        if error is Errors.NONE:
            return Lookup(node, now_ms, requests)
        if now_ms + retry_backoff_ms - start_ms >= timeout_ms or error not in RETRIABLE:
            return Lookup(None, now_ms, requests)
        now_ms += retry_backoff_ms
