"""Random groups of every kind as record batches, their ages around a retention, for a broker to sweep."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator_core.log.types import ControlType
from coordinator_core.records.codec import encode_key, encode_value
from tests.blobs import encode_consumer_subscription
from tests.log.builders import build_batch, build_control_batch

TOPICS = ("orders", "payments", "clicks", "elsewhere")
LONG_MS = 1_000_000
FIRST_PRODUCER_ID = 1 << 40
"""Beyond the ids that a broker of the tests has given out."""

Item = tuple[bytes, bytes | None]


@dataclass
class Appended:
    """Batches behind the end of a log."""

    next_offset: int
    leader_epoch: int
    timestamp_ms: int
    batches: list[bytes] = field(default_factory=list)

    def records(self, items: Sequence[Item], producer_id: int = -1) -> None:
        self.batches.append(
            build_batch(
                self.next_offset,
                list(items),
                timestamp=self.timestamp_ms,
                producer_id=producer_id,
                transactional=producer_id >= 0,
                leader_epoch=self.leader_epoch,
            )
        )
        self.next_offset += len(items)

    def marker(self, kind: ControlType, producer_id: int) -> None:
        self.batches.append(
            build_control_batch(
                self.next_offset,
                kind,
                producer_id=producer_id,
                timestamp=self.timestamp_ms,
                leader_epoch=self.leader_epoch,
            )
        )
        self.next_offset += 1


class RandomGroups:
    """Writes random groups. With ``retention_ms`` about a third of their times is over at ``now_ms``, a third
    will be within ``soon_ms``, and the rest not for an hour."""

    def __init__(self, seed: int, *, now_ms: int, retention_ms: int, soon_ms: int) -> None:
        self._random = random.Random(seed)
        self._now_ms, self._retention_ms, self._soon_ms = now_ms, retention_ms, soon_ms
        self._producer_id = FIRST_PRODUCER_ID

    def write(self, log: Appended, group_id: str) -> None:
        """One group, with committed offsets or without, perhaps with a transaction beside them."""
        kind = self._random.choice(
            (
                self._simple,
                self._classic,
                self._classic,
                self._consumer,
                self._consumer,
                self._streams,
                self._share,
            )
        )
        kind(log, group_id)
        if kind == self._share:
            return
        for _ in range(self._random.randrange(5)):
            log.records([self._commit(group_id)])
        self._aftermath(log, group_id)

    def _aftermath(self, log: Appended, group_id: str) -> None:
        match self._random.randrange(8):
            case 0:
                commit = self._commit(group_id)
                log.records([commit])
                log.records([(commit[0], None)])
            case 1 | 2:
                self._transaction(log, group_id, None)
            case 3:
                self._transaction(log, group_id, ControlType.COMMIT)
            case 4:
                self._transaction(log, group_id, ControlType.ABORT)

    def _transaction(self, log: Appended, group_id: str, end: ControlType | None) -> None:
        self._producer_id += 1
        log.records([self._commit(group_id) for _ in range(self._random.randint(1, 3))], self._producer_id)
        if end is not None:
            log.marker(end, self._producer_id)

    def _expiry_ms(self) -> int:
        return self._now_ms + self._random.choice(
            (
                -self._random.randint(1, LONG_MS),
                self._random.randint(1, self._soon_ms),
                3_600_000 + self._random.randrange(1_000),
            )
        )

    def _since_ms(self) -> int:
        return self._expiry_ms() - self._retention_ms

    def _commit(self, group_id: str) -> Item:
        version = self._random.choice((1, 3, 4, 4))
        value: dict[str, Any] = {"offset": 1, "metadata": "", "commitTimestamp": self._since_ms()}
        if version == 1:
            value["expireTimestamp"] = self._random.choice((-1, self._expiry_ms()))
        else:
            value["leaderEpoch"] = 0
        key = {
            "group": group_id,
            "topic": self._random.choice(TOPICS),
            "partition": self._random.randrange(3),
        }
        return encode_key(1, key), encode_value(1, version, value)

    def _topics(self) -> list[str]:
        return self._random.sample(TOPICS, self._random.randint(1, 2))

    def _simple(self, log: Appended, group_id: str) -> None:
        """Offsets make it; a group that loses its record has offsets that nothing reaches."""
        if self._random.randrange(4) == 0:
            self._classic(log, group_id)
            log.records([self._commit(group_id)])
            log.records([(encode_key(2, {"group": group_id}), None)])

    def _classic(self, log: Appended, group_id: str) -> None:
        version = self._random.choice((1, 3, 3))
        live = self._random.random() < 0.5
        blobs = [
            encode_consumer_subscription(1, {"topics": self._topics(), "userData": None, "ownedPartitions": []})
            for _ in range(self._random.randint(1, 2) if live else 0)
        ]
        if blobs and self._random.randrange(5) == 0:
            blobs[0] = b"\0\0\0\0"
        types = ("consumer", "consumer", "connect", *(() if live else ("",)))
        value: dict[str, Any] = {
            "protocolType": self._random.choice(types),
            "generation": self._random.randrange(3),
            "protocol": "range" if live else None,
            "leader": "m0" if live else None,
            "members": [
                {
                    "memberId": f"m{number}",
                    "clientId": "c",
                    "clientHost": "/127.0.0.1",
                    "rebalanceTimeout": LONG_MS,
                    "sessionTimeout": LONG_MS,
                    "subscription": blob,
                    "assignment": b"",
                }
                | ({"groupInstanceId": None} if version == 3 else {})
                for number, blob in enumerate(blobs)
            ],
        }
        if version == 3:
            value["currentStateTimestamp"] = self._random.choice((-1, self._since_ms(), self._since_ms()))
        log.records([(encode_key(2, {"group": group_id}), encode_value(2, version, value))])

    def _consumer(self, log: Appended, group_id: str) -> None:
        key = {"groupId": group_id}
        items: list[Item] = []
        if self._random.random() < 0.6:
            member = {
                "instanceId": None,
                "rackId": None,
                "clientId": "c",
                "clientHost": "/127.0.0.1",
                "subscribedTopicNames": self._topics(),
                "subscribedTopicRegex": "",
                "rebalanceTimeoutMs": LONG_MS,
                "serverAssignor": None,
            }
            items.append((encode_key(5, key | {"memberId": "m"}), encode_value(5, 0, member)))
            if self._random.randrange(2):
                regex = {"topics": self._topics(), "version": 1, "timestamp": self._now_ms}
                items.append((encode_key(16, key | {"regularExpression": "x.*"}), encode_value(16, 0, regex)))
        items.append((encode_key(3, key), encode_value(3, 0, {"epoch": 3})))
        if items[:-1]:
            target = encode_value(7, 0, {"topicPartitions": []})
            items.append((encode_key(7, key | {"memberId": "m"}), target))
        items.append((encode_key(6, key), encode_value(6, 0, {"assignmentEpoch": 3})))
        if items[0][0] != encode_key(3, key):
            current: dict[str, Any] = {"memberEpoch": 3, "previousMemberEpoch": 2, "state": 0}
            current |= {"assignedPartitions": [], "partitionsPendingRevocation": []}
            items.append((encode_key(8, key | {"memberId": "m"}), encode_value(8, 0, current)))
        elif self._random.randrange(2):
            items.append((encode_key(16, key | {"regularExpression": "left"}), encode_value(
                16, 0, {"topics": self._topics(), "version": 1, "timestamp": self._now_ms})))  # fmt: skip
        log.records(items)

    def _streams(self, log: Appended, group_id: str) -> None:
        key = {"groupId": group_id}
        tasks = ("activeTasks", "standbyTasks", "warmupTasks")
        empty = {name + suffix: list[Any]() for suffix in ("", "PendingRevocation") for name in tasks}
        repartition = {
            "name": self._random.choice(TOPICS),
            "partitions": 1,
            "replicationFactor": 1,
            "topicConfigs": [],
        }
        subtopology = {
            "subtopologyId": "0",
            "sourceTopics": self._topics(),
            "sourceTopicRegex": [],
            "stateChangelogTopics": [],
            "repartitionSinkTopics": [],
            "repartitionSourceTopics": [repartition] * self._random.randrange(2),
            "copartitionGroups": [],
        }  # fmt: skip
        items: list[Item] = []
        live = self._random.random() < 0.5
        if live:
            member: dict[str, Any] = {
                "instanceId": None,
                "rackId": None,
                "clientId": "c",
                "clientHost": "/127.0.0.1",
                "rebalanceTimeoutMs": LONG_MS,
                "topologyEpoch": 0,
                "processId": "p",
                "userEndpoint": None,
                "clientTags": [],
            }
            items.append((encode_key(19, key | {"memberId": "m"}), encode_value(19, 0, member)))
        metadata = {"epoch": 3, "metadataHash": 0, "validatedTopologyEpoch": 0}
        items.append((encode_key(17, key), encode_value(17, 0, metadata)))
        if self._random.randrange(4):
            topology = {"epoch": 0, "subtopologies": [subtopology]}
            items.append((encode_key(23, key), encode_value(23, 0, topology)))
        items.append((encode_key(20, key), encode_value(20, 0, {"assignmentEpoch": 3})))
        if live:
            current = {"memberEpoch": 3, "previousMemberEpoch": 2, "state": 1} | empty
            items.append((encode_key(22, key | {"memberId": "m"}), encode_value(22, 0, current)))
        log.records(items)

    def _share(self, log: Appended, group_id: str) -> None:
        value = encode_value(11, 0, {"epoch": 2, "metadataHash": 0})
        log.records([(encode_key(11, {"groupId": group_id}), value)])
        if self._random.randrange(2):
            log.records([self._commit(group_id)])
