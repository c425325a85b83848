"""A simulated cluster for tests: requests in few words, answers as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator_core.coordinator.broker import Broker, Cluster
from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.find_coordinator import FindCoordinator
from coordinator_core.coordinator.log import OffsetsLog, Record
from coordinator_core.coordinator.membership import Client
from coordinator_core.coordinator.metadata import MetadataImage
from coordinator_core.coordinator.protocol import read_request, reply_json
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock
from coordinator_core.groups.loaders import LoadedRecord
from coordinator_core.releases import profile_for_release
from coordinator_core.topology import BrokerInfo, PartitionInfo, Topology

Json = dict[str, Any]
TOPICS = {"t1": ("AAAAAAAAAAAAAAAAAAAAAQ", 3), "t2": ("AAAAAAAAAAAAAAAAAAAAAg", 2)}
START_MS = 1_800_000_000_000
SETTINGS = BrokerSettings(
    offsets_topic_num_partitions=5,
    offset_metadata_max_bytes=64,
    group_min_session_timeout_ms=1_000,
    group_initial_rebalance_delay_ms=0,
    group_consumer_assignment_interval_ms=0,
    offsets_retention_minutes=1,
)
SUBSCRIPTION = "AAAAAAABAAJ0Mf////8="
"""Version 0, topic t1."""


class Simulation:
    """A cluster of ``count`` brokers; the first one leads every offsets partition."""

    def __init__(self, *, java: bool, count: int = 1, settings: BrokerSettings = SETTINGS, release: str = "") -> None:
        self.refused: Errors | None = None
        self.appends: list[tuple[int, Sequence[Record]]] = []
        self.clock = Clock(START_MS)
        self.java = java
        ids = tuple(range(1, count + 1))
        self.topology = Topology.of_offsets(
            {one: BrokerInfo(one, {"PLAINTEXT": (f"b{one}", 9092)}) for one in ids},
            [PartitionInfo(one, 1, 0, ids, ids) for one in range(settings.offsets_topic_num_partitions)],
        )
        self._ids = 0
        self.cluster = Cluster(
            settings,
            self.clock,
            OffsetsLog(refuse=self._refuse),
            MetadataImage(TOPICS),
            self._next,
            profile=profile_for_release(release or ("4.3.1" if java else "3.9.2")),
        )
        lookup = FindCoordinator(lambda: self.topology, share_coordinator=java)
        self.brokers = [Broker(self.cluster, self._member_id, lookup) for _ in range(count)]
        for partition in range(settings.offsets_topic_num_partitions):
            self.brokers[0].coordinator.manager.load(partition, 0)

    def _next(self) -> int:
        self._ids += 1
        return self._ids

    def _member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._next()}"

    def _refuse(self, partition: int, records: Sequence[Record]) -> Errors | None:
        if self.refused is None:
            self.appends.append((partition, records))
        return self.refused

    @property
    def manager(self) -> Any:
        return self.brokers[0].coordinator.manager

    def advance(self, ms: int) -> None:
        self.clock.advance(self.clock.now_ms + ms)

    def send(self, api: str, version: int, body: Json, *, client: str = "c1", broker: int = 0) -> list[Json]:
        """The list that the answer will be put into: empty while the request waits."""
        answers: list[Json] = []
        request = read_request(api, version, body)
        self.brokers[broker].handle(
            Client(client, "/127.0.0.1", version),
            request,
            lambda reply: answers.append(reply_json(api, version, reply)),
        )
        return answers

    def ask(self, api: str, version: int, body: Json, *, client: str = "c1", broker: int = 0) -> Json:
        (answer,) = self.send(api, version, body, client=client, broker=broker)
        return answer

    # Requests

    def join(
        self,
        group: str = "g",
        member: str = "",
        *,
        client: str = "c1",
        version: int = 3,
        instance: str | None = None,
        names: Sequence[str] = ("range",),
        subscription: str = SUBSCRIPTION,
        session_ms: int = 10_000,
        rebalance_ms: int = 5_000,
        broker: int = 0,
    ) -> list[Json]:
        body = {
            "groupId": group,
            "sessionTimeoutMs": session_ms,
            "rebalanceTimeoutMs": rebalance_ms,
            "memberId": member,
            "groupInstanceId": instance,
            "protocolType": "consumer",
            "protocols": [{"name": name, "metadata": subscription} for name in names],
        }
        return self.send("JoinGroup", version, body, client=client, broker=broker)

    def sync(
        self,
        member: str,
        generation: int,
        assignments: dict[str, str] | None = None,
        *,
        group: str = "g",
        version: int = 3,
        broker: int = 0,
        **fields: Any,
    ) -> list[Json]:
        given = [{"memberId": name, "assignment": blob} for name, blob in (assignments or {}).items()]
        body = {
            "groupId": group,
            "generationId": generation,
            "memberId": member,
            "groupInstanceId": None,
            "protocolType": "consumer",
            "protocolName": "range",
            "assignments": given,
        }
        return self.send("SyncGroup", version, body | fields, broker=broker)

    def heartbeat(self, member: str, generation: int, *, group: str = "g", broker: int = 0) -> str:
        body = {"groupId": group, "generationId": generation, "memberId": member, "groupInstanceId": None}
        return str(self.ask("Heartbeat", 3, body, broker=broker)["error"])

    def commit(
        self,
        group: str = "g",
        *,
        member: str = "",
        generation: int = -1,
        offsets: dict[int, int] | None = None,
        metadata: str = "",
        topic: str = "t1",
        broker: int = 0,
    ) -> list[str]:
        """Error names, one for each partition of ``topic``."""
        partitions = [
            {
                "partitionIndex": partition,
                "committedOffset": offset,
                "committedLeaderEpoch": -1,
                "committedMetadata": metadata,
            }
            for partition, offset in (offsets or {0: 1}).items()
        ]
        body = {
            "groupId": group,
            "generationIdOrMemberEpoch": generation,
            "memberId": member,
            "groupInstanceId": None,
            "topics": [{"name": topic, "partitions": partitions}],
        }
        (answer,) = self.ask("OffsetCommit", 8, body, broker=broker)["topics"]
        return [partition["error"] for partition in answer["partitions"]]

    def fetch(
        self, group: str = "g", partitions: Sequence[int] = (0,), *, stable: bool = False, broker: int = 0
    ) -> list[tuple[int, str]]:
        """Offset and error of each partition of t1."""
        body = {
            "groupId": group,
            "topics": [{"name": "t1", "partitionIndexes": list(partitions)}],
            "requireStable": stable,
        }
        answer = self.ask("OffsetFetch", 7, body, broker=broker)
        if answer["errorCode"]:
            return [(-1, answer["error"])]
        return [(one["committedOffset"], one["error"]) for one in answer["topics"][0]["partitions"]]

    def begin_transaction(self, group: str = "g", offset: int = 9) -> Json:
        """A pending commit of t1-0; returns what EndTxn needs."""
        init = {"transactionalId": "tx", "transactionTimeoutMs": 60_000}
        made = self.ask("InitProducerId", 4, init)
        who = {"transactionalId": "tx", "producerId": made["producerId"]}
        who["producerEpoch"] = made["producerEpoch"]
        self.ask("AddOffsetsToTxn", 3, who | {"groupId": group})
        partition = {
            "partitionIndex": 0,
            "committedOffset": offset,
            "committedLeaderEpoch": -1,
            "committedMetadata": "",
        }
        body = {
            "groupId": group,
            "generationId": -1,
            "memberId": "",
            "groupInstanceId": None,
            "topics": [{"name": "t1", "partitions": [partition]}],
        }
        self.ask("TxnOffsetCommit", 3, who | body)
        return who

    def state(self, group: str = "g", *, broker: int = 0) -> str:
        body = {"groups": [group], "includeAuthorizedOperations": False}
        (described,) = self.ask("DescribeGroups", 5, body, broker=broker)["groups"]
        return str(described["groupState"]) if not described["errorCode"] else str(described["error"])

    def stable_group(self, *clients: str, group: str = "g") -> tuple[list[str], int]:
        """Members that joined and synced, the leader first, and their generation."""
        waiting = [self.join(group, client=client) for client in clients or ("c1",)]
        self.advance(1)
        if not all(waiting):
            # The first one was alone for a moment, and joins again.
            first = waiting[0].pop()["memberId"]
            waiting[0] = self.join(group, first)
            self.advance(1)
        replies = [answers[0] for answers in waiting]
        leader = next(one for one in replies if one["leader"] == one["memberId"])
        members = [one["memberId"] for one in leader["members"]]
        members.sort(key=lambda one: one != leader["memberId"])
        generation = leader["generationId"]
        self.sync(members[0], generation, dict.fromkeys(members, SUBSCRIPTION), group=group)
        for member in members[1:]:
            self.sync(member, generation, group=group)
        return members, generation

    # The log

    def records(self, group: str = "g") -> list[LoadedRecord]:
        """All that was appended for a group, markers aside."""
        log = self.cluster.log.partitions.get(self.manager.partition_for(group), [])
        decoded = [record.decoded() for record in log if record.control is None]
        return [one for one in decoded if group in (one.key.get("group"), one.key.get("groupId"))]
