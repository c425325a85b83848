"""Plays the requests of a trace through a simulated broker at the times they were sent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator_core.coordinator.broker import Broker, Cluster
from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.find_coordinator import CoordinatorType, FindCoordinator
from coordinator_core.coordinator.log import OffsetsLog
from coordinator_core.coordinator.membership import Client
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.protocol import reply_json
from coordinator_core.coordinator.replies import Reply as Answer
from coordinator_core.coordinator.requests import LeaveGroup, Request
from coordinator_core.coordinator.timers import Clock
from coordinator_core.coordinator.topology import DEFAULT_LISTENER
from coordinator_core.coordinator.trace.given import Given, Load
from coordinator_core.coordinator.trace.normal import groups_of, normal_record, normal_reply
from coordinator_core.coordinator.trace.read import Line, Trace
from coordinator_core.coordinator.trace.variables import Variables
from coordinator_core.groups.hashing import partition_for
from coordinator_core.topology import BrokerInfo, PartitionInfo, Topology

Json = dict[str, Any]

NODE_ID = 1
ADDRESS = ("127.0.0.1", 49092)
"""Node id and address of the broker on which the traces were recorded."""
TOPIC_CREATION_MS = 1_000
CLIENT_HOST = "/127.0.0.1"
MOST_TIMERS, TIMERS_PER_LINE = 100_000, 100
"""Sweeps, sessions and the like that may fall due. Sweeps of a week need 50000, by the settings of Kafka."""

_MODERN = ("Consumer", "Share", "Streams")
"""Types of group that have an API of their own, as the names of APIs begin or go on."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the model: ``t`` in milliseconds since the first request."""

    t: int
    request: int
    body: Json
    bind: Json


@dataclass(slots=True)
class Played:
    """Replies of the model in order of time, and the records it appended: lines in the trace's own format."""

    log: OffsetsLog
    replies: list[Reply] = field(default_factory=list)
    records: list[Json] = field(default_factory=list)

    def lines(self) -> Iterator[Json]:
        for reply in self.replies:
            line: Json = {"t": reply.t, "reply": reply.request, "body": reply.body}
            yield line | ({"bind": reply.bind} if reply.bind else {})
        yield from self.records


def play(trace: Trace, given: Given | None = None) -> Played:
    """Play the whole trace, with ``given`` or the facts that the trace itself gives.

    Raises :class:`DamagedInputError` for a request that the model cannot read, or cannot play: more than
    ``MOST_TIMERS`` timers, and ``TIMERS_PER_LINE`` for each line; values that no record holds.
    """
    return _Player(trace, given or trace.given or Given()).run()


class _Player:
    def __init__(self, trace: Trace, given: Given) -> None:
        self._trace = trace
        self._given = given
        self._loads = iter(given.loads)
        self._variables = Variables(trace, given)
        settings = trace.settings
        recorded = trace.profile.requests
        self._serves_modern_groups = not trace.is_java or (recorded is not None and recorded.modern_groups)
        self._requests = {line.number: trace.request(line, self._variables.value) for line in trace.of_kind("send")}
        topics = {
            name: (self._variables.topic_id(topic["id"]), topic["partitions"])
            for name, topic in trace.head["topics"].items()
        }
        self._cluster = Cluster(
            settings=settings,
            clock=Clock(trace.start_ms, MOST_TIMERS + TIMERS_PER_LINE * len(trace.lines)),
            log=OffsetsLog(),
            metadata=MetadataImage(topics),
            new_producer_id=self._variables.new_producer_id,
            profile=trace.profile,
            new_topic_id=self._variables.new_topic_id,
        )
        self._closed: set[int] = set()
        self._seen: set[str] = set()
        self._played = Played(self._cluster.log)
        self._broker = self._new_broker()
        for partition in range(settings.offsets_topic_num_partitions):
            self._broker.coordinator.manager.load(partition, 0)
        self._epoch = 0
        if given.sweep_t is not None:
            first_t = given.sweep_t % settings.offsets_retention_check_interval_ms
            self._broker.coordinator.manager.start_sweeps(self._at(first_t))
        if given.transaction_cleanup_t is not None:
            self._broker.transactions.cleanup_phase_ms = self._at(given.transaction_cleanup_t)
        for deletion_t in given.topic_deletions:
            self._cluster.clock.at(self._at(deletion_t), lambda: self._broker.coordinator.topics_deleted([]))

    # The broker

    def _new_broker(self) -> Broker:
        count = self._cluster.settings.offsets_topic_num_partitions
        topology = Topology.of_offsets(
            {NODE_ID: BrokerInfo(NODE_ID, {DEFAULT_LISTENER: ADDRESS})},
            [PartitionInfo(one, NODE_ID, 0, (NODE_ID,), (NODE_ID,)) for one in range(count)],
        )
        ids = {topic.topic_id for topic in self._cluster.metadata}

        def create(kind: CoordinatorType) -> None:
            """Internal topics are created in the background."""
            self._cluster.clock.at(
                self._cluster.clock.now_ms + TOPIC_CREATION_MS, lambda: lookup.missing_topics.discard(kind)
            )

        lookup = FindCoordinator(
            lambda: topology,
            share_coordinator=self._trace.is_java,
            topic_ids=lambda text: len(text) == 22 or text in ids,
            create=create,
        )
        lookup.missing_topics.add(CoordinatorType.SHARE)
        return Broker(self._cluster, self._variables.new_member_id, lookup)

    def _restart(self, load: Load) -> None:
        """Replace the broker by one without memory, which loads at the times given."""
        self._epoch += 1
        epoch = self._epoch
        self._cluster.lose(self._broker)
        self._cluster.transactions.restarted(self._at(self._first_cleanup_t(load)))
        self._broker = self._new_broker()
        manager = self._broker.coordinator.manager
        partitions = range(self._cluster.settings.offsets_topic_num_partitions)

        def begin() -> None:
            for partition in partitions:
                manager.begin_load(partition, epoch)

        def finish() -> None:
            for partition in partitions:
                manager.finish_load(partition)

        self._cluster.clock.at(self._at(load.begin_t), begin)
        self._cluster.clock.at(self._at(load.end_t), finish)

    def _first_cleanup_t(self, load: Load) -> float:
        """When a broker first looks for timed-out transactions: it started some time before it takes requests.

        Where none is known to have timed out while it ran, the last moment at which that may be.
        """
        interval_ms = self._trace.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        known_t = self._given.transaction_cleanup_t
        later = (other.begin_t for other in self._given.loads if other.begin_t > load.begin_t)
        if known_t is None or not load.begin_t <= known_t < min(later, default=math.inf):
            return load.begin_t + interval_ms
        return load.begin_t + (known_t - load.begin_t) % interval_ms

    # Lines

    def _at(self, t: float) -> int:
        return self._trace.start_ms + math.floor(t)

    def run(self) -> Played:
        end_t, number = self._given.end_t or 0.0, 1
        try:
            for line in self._trace.of_kind("send", "wait", "closed", "killed"):
                end_t, number = max(end_t, line.end_t), line.number
                self._play(line)
            self._advance(end_t)
        except ValueError as error:
            raise self._trace.damage(number, str(error)) from None
        self._played.records = list(self._record_lines())
        return self._played

    def _play(self, line: Line) -> None:
        if line.kind == "wait":
            return
        self._advance(line.t)
        if line.kind == "send":
            self._send(line)
        elif line.kind == "closed":
            self._closed.update(line.fields["lost"])
        else:
            load = next(self._loads, None)
            if load is None:
                raise ValueError("a restart without its load in the field given")
            self._restart(load)

    def _advance(self, t: float) -> None:
        self._cluster.clock.advance(max(self._at(t), self._cluster.clock.now_ms))

    def _send(self, line: Line) -> None:
        number, api, version = line.fields["send"], line.fields["api"], line.fields["version"]
        client = Client(line.fields["client"], CLIENT_HOST, version)
        self._variables.request = number
        try:
            self._check_release(api)
            request = self._as_sent(number, self._requests[line.number])
            self._broker.handle(client, request, lambda reply: self._reply(number, api, version, reply, request))
        except ValueError as error:
            raise ValueError(f"{api} v{version}: {error}") from None

    def _check_release(self, api: str) -> None:
        """A recording of groups of another type would be answered wrongly by the rules of another release."""
        kind = next((kind for kind in _MODERN if f"{kind}Group" in api), None)
        if kind is not None and not self._serves_modern_groups:
            raise ValueError(f"{kind.lower()} groups are modelled as of 4.3 and 4.4, not of {self._trace.kafka}")

    def _as_sent(self, number: int, request: Request) -> Request:
        """The request with its members in the order in which they were sent, where that is given."""
        order = self._given.leave_orders.get(number)
        if order is None or not isinstance(request, LeaveGroup):
            return request
        members = request.members
        if len(order) != len(members):
            raise ValueError(f"the field given orders {len(order)} members of {len(members)}")
        return replace(request, members=tuple(members[position] for position in order))

    def _reply(self, number: int, api: str, version: int, answer: Answer, request: Request) -> None:
        if number in self._closed:
            return
        plain = reply_json(api, version, answer)
        if api == "ListGroups" and plain["errorCode"] == Errors.NONE:
            prefix = f"{self._trace.name}."
            plain["groups"] = [group for group in plain["groups"] if group["groupId"].startswith(prefix)]
        normal = normal_reply(api, plain, self._variables, request)
        bind: Json = {}
        self._bind(normal, "", bind)
        self._played.replies.append(Reply(self._cluster.clock.now_ms - self._trace.start_ms, number, normal, bind))

    def _bind(self, item: Any, path: str, bind: Json) -> None:
        """Add the variables that appear here for the first time, with their paths."""
        if isinstance(item, dict):
            for name, value in item.items():
                self._bind(value, f"{path}.{name}" if path else name, bind)
        elif isinstance(item, list):
            for index, value in enumerate(item):
                self._bind(value, f"{path}[{index}]", bind)
        elif isinstance(item, str) and item[:2] in ("$m", "$p") and item not in self._seen:
            self._seen.add(item)
            bind[item] = path

    # Records

    def _record_lines(self) -> Iterator[Json]:
        """Records of the trace's groups by offsets partition."""
        for partition, groups in sorted(self._groups().items()):
            records = [
                normal_record(record, self._trace.start_ms, self._variables)
                for record in self._cluster.log.partitions.get(partition, [])
            ]
            yield {
                "partition": partition,
                "groups": groups,
                "records": [record for record in records if "control" in record or _group(record) in groups],
            }

    def _groups(self) -> dict[int, list[str]]:
        """Groups of the trace by offsets partition: those that its recorder lists, then others that requests name."""
        listed = {line.fields["partition"]: line.fields["groups"] for line in self._trace.of_kind("records")}
        found = {partition: list(groups) for partition, groups in listed.items()}
        count = self._cluster.settings.offsets_topic_num_partitions
        for request in self._requests.values():
            for group_id in groups_of(request):
                groups = found.setdefault(partition_for(group_id, count), [])
                if group_id and (name := self._variables.named(group_id)) not in groups:
                    # All recordings on a broker share the empty id.
                    groups.append(name)
        return found


def _group(record: Json) -> str:
    data = record["key"]["data"]
    group: str = data.get("group", data.get("groupId", ""))
    return group
