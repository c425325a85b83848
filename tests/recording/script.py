"""Everything that clients of a release can do to its coordinator, as far as the release knows it."""

from __future__ import annotations

import base64
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from coordinator_core.records.blobs import (
    decode_consumer_assignment,
    encode_consumer_assignment,
)
from tests.blobs import encode_consumer_subscription
from tests.live.broker import START_SECONDS, wait_for
from tests.live.group_protocol import Json
from tests.recording.session import RefusedError, Session

TOPICS = {"orders": 4, "payments": 2, "gone": 2, "clicks": 2}
MEMBER_TOPICS = {"orders": 4, "payments": 2}
"""What members of classic groups subscribe to, and how many partitions those have."""
LONG_MS = 1_800_000
GROUP_ID_NOT_FOUND, MEMBER_ID_REQUIRED = 69, 79
NO_RETENTION = -1
Commit = tuple[str, int, int, str]
"""Topic, partition, offset, metadata."""


class Script:
    """Plays :meth:`everything` and notes it in ``steps``. Members stay connected until :meth:`close`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.steps: list[str] = []
        self.open_transactions_of: set[str] = set()
        self.topic_ids: dict[str, str] = {}
        self._sessions: list[Session] = []

    def close(self) -> None:
        for one in self._sessions:
            one.close()

    def everything(self) -> None:
        self.create_topics()
        self.simple_commits()
        self.commits_of_every_version()
        self.classic_groups()
        if self.session.has("ConsumerGroupHeartbeat"):
            self.consumer_groups()
        if self.session.has("ShareGroupHeartbeat"):
            self.share_groups()
        if self.session.has("StreamsGroupHeartbeat"):
            self.streams_groups()
        if self.session.has("TxnOffsetCommit"):
            self.transactions()
        self.deletions()
        self.classic_rebalance_under_way()

    def _client(self, client_id: str) -> Session:
        self._sessions.append(self.session.another(client_id))
        return self._sessions[-1]

    def _step(self, text: str) -> None:
        self.steps.append(text)

    # Topics

    def create_topics(self) -> None:
        topics = [
            {"name": name, "numPartitions": partitions, "replicationFactor": 1} for name, partitions in TOPICS.items()
        ]
        if self.session.has("CreateTopics"):
            self.session.ask("CreateTopics", {"topics": topics, "timeoutMs": 30_000})
            self._step(f"create topics {TOPICS}")
        else:
            self._step(f"topics {[*TOPICS]} come to be with four partitions each, as clients ask for them")
        self._wait_for_topics()
        self.find_coordinator("g-simple", 0)

    def find_coordinator(self, key: str, key_type: int) -> None:
        """The first question for a coordinator creates the topic of its records."""
        version = min(self.session.versions["FindCoordinator"], 2)
        self.session.ask("FindCoordinator", {"key": key, **({"keyType": key_type} if version else {})}, version)

    def _wait_for_topics(self) -> None:
        names = [{"name": name, "topicId": "A" * 22} for name in TOPICS]
        deadline = time.monotonic() + START_SECONDS
        while True:
            found = self.session.connection.ask(
                "Metadata",
                min(self.session.versions["Metadata"], 12),
                {
                    "topics": names,
                    "allowAutoTopicCreation": True,
                    "includeClusterAuthorizedOperations": False,
                    "includeTopicAuthorizedOperations": False,
                },
            )
            partitions = [one for topic in found["topics"] for one in topic["partitions"]]
            if partitions and all(one["errorCode"] == 0 for one in (*found["topics"], *partitions)):
                break
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        self.topic_ids = {topic["name"]: topic.get("topicId", "") for topic in found["topics"]}

    # Commits without members

    def commit(
        self,
        group: str,
        *commits: Commit,
        version: int | None = None,
        retention_ms: int = NO_RETENTION,
        leader_epoch: int = -1,
        member_id: str = "",
        generation: int = -1,
        session: Session | None = None,
    ) -> None:
        client = session or self.session
        chosen = min(client.versions["OffsetCommit"], 9) if version is None else version
        topics: dict[str, list[Json]] = {}
        for topic, partition, offset, metadata in commits:
            row: Json = {"partitionIndex": partition, "committedOffset": offset, "committedMetadata": metadata}
            if chosen >= 6:
                row["committedLeaderEpoch"] = leader_epoch
            topics.setdefault(topic, []).append(row)
        body: Json = {
            "groupId": group,
            "topics": [
                {"topicId" if chosen >= 10 else "name": self._topic(name, chosen >= 10), "partitions": rows}
                for name, rows in topics.items()
            ],
        }
        if chosen >= 1:
            body |= {"memberId": member_id, "generationIdOrMemberEpoch": generation}
        if 2 <= chosen <= 4:
            body["retentionTimeMs"] = retention_ms
        client.ask("OffsetCommit", body, chosen)

    def _topic(self, name: str, by_id: bool) -> str:
        return self.topic_ids[name] if by_id else name

    def simple_commits(self) -> None:
        self.commit("g-simple", ("orders", 0, 1, ""), ("orders", 1, 2, "plain"), ("orders", 2, 0, "ünï 組 \t 😀"))
        self.commit("g-simple", ("orders", 1, 5, "overwritten"), ("payments", 1, 2**63 - 1, "x" * 300), leader_epoch=0)
        self.commit("группа ünï 組", ("clicks", 1, 3, ""))
        self._step("commits without members, for g-simple and a group id of other letters")

    def commits_of_every_version(self) -> None:
        newest = self.session.versions["OffsetCommit"]
        for version in range(2, newest + 1):
            group = f"g-commit-v{version}"
            try:
                self.commit(group, ("orders", 0, 100 + version, "default"), version=version)
            except (OSError, AssertionError):
                self.session = self.session.another(self.session.client_id)
                continue
            if version <= 4:
                self.commit(group, ("orders", 1, 7, "an hour"), version=version, retention_ms=3_600_000)
                self.commit(group, ("orders", 2, 8, "a second"), version=version, retention_ms=1000)
            elif version >= 6:
                self.commit(group, ("orders", 1, 9, "epoch 4"), version=version, leader_epoch=4)
        self._step(f"OffsetCommit of each version from 2 to {newest} that the broker takes: g-commit-v*")

    # Classic groups

    def classic_groups(self) -> None:
        first, second = self._member("g-classic", "classic-a"), self._member("g-classic", "classic-b")
        first.join()
        first.join(second)
        for member in (first, second):
            member.commit(*[(topic, p, 10 + p, member.client_id) for topic, p in member.assigned])
        first.commit(("clicks", 0, 3, "not subscribed"))
        self._step("g-classic: two members on orders and payments, joined one after the other; all commit")
        worker = self._member("g-connect", "worker-1", protocol_type="connect")
        worker.join()
        self._step("g-connect: protocol type connect, opaque blobs")
        zero = self._member("g-zero-assignment", "zero-1", empty_assignment=True)
        zero.join()
        self._step("g-zero-assignment: the leader assigns no bytes")
        left = self._member("g-left", "left-1")
        left.join()
        left.commit(("orders", 0, 30, "from a member"), ("orders", 1, 31, "from a member"))
        left.leave()
        self.commit("g-left", ("orders", 0, 2, "reset"))
        self._step("g-left: the member commits and leaves; then an offset is reset")
        silent = self._member("g-left-silent", "silent-1")
        silent.join()
        silent.leave()
        self._step("g-left-silent: a member that never commits")
        dead = self._member("g-dead", "dead-1", session_ms=5000)
        dead.join()
        dead.commit(("payments", 0, 4, "before its session ended"))
        wait_for("the end of its session", lambda: self.state_of("g-dead") in ("Empty", "Dead"))
        self._step("g-dead: the session of its member ends")
        if self.session.has("JoinGroup", 5):
            static, other = (self._member("g-static", f"static-{n}", instance_id=f"instance-{n}") for n in (1, 2))
            static.join()
            static.join(other)
            static.commit(("orders", 0, 40, "static"))
            again = self._member("g-static", "static-1b", instance_id="instance-1")
            again.join_alone()
            self._step("g-static: two static members, one comes back under its instance id")

    def classic_rebalance_under_way(self) -> None:
        first, second = self._member("g-rebalancing", "stays-away"), self._member("g-rebalancing", "waits")
        first.join()
        second.send_join()
        time.sleep(0.5)
        self._step("g-rebalancing: a second member waits, the first does not come")

    def state_of(self, group: str) -> str:
        """State of a classic group."""
        found = self.session.ask("DescribeGroups", {"groups": [group]}, expect=(0, GROUP_ID_NOT_FOUND))
        return str(found["groups"][0]["groupState"])

    def _member(self, group: str, client_id: str, **options: Any) -> ClassicMember:
        return ClassicMember(self, self._client(client_id), group, **options)

    # Groups whose coordinator assigns

    def consumer_groups(self) -> None:
        newest = self.session.versions["ConsumerGroupHeartbeat"]
        a = ConsumerMember(self, "g-consumer", "consumer-a", ["orders", "payments"], instanceId="instance-a")
        b = ConsumerMember(self, "g-consumer", "consumer-b", ["orders"], rackId="rack-b")
        settle(a, b)
        a.commit(("orders", 0, 11, "by epoch"), ("payments", 0, 12, ""))
        b.commit(("clicks", 0, 13, "not subscribed"))
        self._step("g-consumer: two KIP-848 members, one static, one with a rack")
        settle(ConsumerMember(self, "g-consumer-range", "range-a", ["clicks"], serverAssignor="range"))
        self._step("g-consumer-range: server assignor range")
        if newest >= 1:
            regex = ConsumerMember(self, "g-consumer-regex", "regex-a", [], subscribedTopicRegex="cl.*|pay.*")
            settle(regex)
            self._step("g-consumer-regex: a regular expression")
        stays = ConsumerMember(self, "g-consumer-shrunk", "stays", ["orders"])
        goes = ConsumerMember(self, "g-consumer-shrunk", "goes", ["orders"])
        settle(stays, goes)
        goes.leave()
        settle(stays)
        self._step("g-consumer-shrunk: one of two members leaves, the other takes over")
        gone = ConsumerMember(self, "g-consumer-empty", "gone-1", ["orders"])
        settle(gone)
        gone.commit(("orders", 0, 21, "before it left"))
        gone.leave()
        self.commit("g-consumer-empty", ("orders", 0, 5, "reset"))
        self._step("g-consumer-empty: its member left; an offset is reset")
        away = ConsumerMember(self, "g-consumer-static-away", "away-1", ["orders"], instanceId="instance-away")
        settle(away)
        away.heartbeat(-2)
        self._step("g-consumer-static-away: a static member leaves for a while (epoch -2)")
        moving = ConsumerMember(self, "g-consumer-moving", "has-all", ["orders"])
        settle(moving)
        ConsumerMember(self, "g-consumer-moving", "waits", ["orders"]).heartbeat(0)
        moving.heartbeat()
        self._step("g-consumer-moving: a member has not given up yet what another is to have")
        if self.session.release >= (3, 8):
            # 3.7 makes no group one of another protocol.
            self._migrations()

    def _migrations(self) -> None:
        self.commit("g-consumer-was-simple", ("payments", 0, 6, "without members"))
        settle(ConsumerMember(self, "g-consumer-was-simple", "joins", ["payments"]))
        self._step("g-consumer-was-simple: committed offsets first, then a member")
        classic = self._member("g-upgraded", "classic-member")
        classic.join()
        classic.commit(("orders", 0, 50, "classic"))
        joined = ConsumerMember(self, "g-upgraded", "new-member", ["orders", "payments"])
        joined.heartbeat(0)
        classic.rejoin(joined)
        settle(joined)
        self._step("g-upgraded: a KIP-848 member joins a classic one")
        old = self._member("g-downgraded", "classic-again")
        only = ConsumerMember(self, "g-downgraded", "only-new", ["orders"])
        settle(only)
        only.commit(("orders", 2, 51, "by epoch"))
        downgrade(old, only)
        self._step("g-downgraded: a classic member joins a KIP-848 one, which leaves")

    def share_groups(self) -> None:
        a = ShareMember(self, "g-share", "share-a", ["clicks"])
        b = ShareMember(self, "g-share", "share-b", ["clicks", "payments"], rackId="rack-s")
        settle(a, b)
        gone = ShareMember(self, "g-share-empty", "share-gone", ["clicks"])
        settle(gone)
        gone.leave()
        doomed = ShareMember(self, "g-share-deleted", "share-doomed", ["clicks"])
        settle(doomed)
        doomed.leave()
        self._step("g-share: two members; g-share-empty: its member left; g-share-deleted")
        if self.session.has("AlterShareGroupOffsets"):
            topics = [{"topicName": "clicks", "partitions": [{"partitionIndex": 0, "startOffset": 0}]}]
            self.session.ask("AlterShareGroupOffsets", {"groupId": "g-share-empty", "topics": topics})
            self._step("AlterShareGroupOffsets of g-share-empty")
        self._delete_groups("g-share-deleted")

    def streams_groups(self) -> None:
        a = StreamsMember(self, "g-streams", "streams-a")
        b = StreamsMember(self, "g-streams", "streams-b")
        settle(a, b)
        a.commit(("orders", 0, 61, "streams"))
        self._step("g-streams: two members, a topology with a changelog topic")
        if self.session.has("StreamsGroupTopologyDescriptionUpdate"):
            a.describe_topology()
            self._step("StreamsGroupTopologyDescriptionUpdate of g-streams (KIP-1331)")
        gone = StreamsMember(self, "g-streams-empty", "streams-gone")
        settle(gone)
        gone.commit(("orders", 1, 62, "before it left"))
        gone.leave()
        doomed = StreamsMember(self, "g-streams-deleted", "streams-doomed")
        settle(doomed)
        doomed.leave()
        self._delete_groups("g-streams-deleted")
        self._step("g-streams-empty: its member left; g-streams-deleted")

    # Transactions

    def transactions(self) -> None:
        self.commit("g-txn", ("orders", 3, 70, "plain, below an open transaction"))
        for old_client in (True, False):
            suffix = "old" if old_client else "new"
            one, two, opened = (
                Producer(self, f"tx-{name}-{suffix}", old_client=old_client) for name in ("one", "two", "open")
            )
            group = f"g-txn-{suffix}"
            one.commit(group, ("orders", 0, 21, "first"), ("orders", 1, 22, ""))
            one.end(True)
            one.commit(group, ("orders", 0, 99, "aborted"))
            one.end(False)
            one.commit(f"{group}-aborted-only", ("orders", 0, 98, "aborted"))
            one.end(False)
            one.commit(group, ("orders", 2, 31, "below a plain commit"))
            two.commit(group, ("orders", 1, 32, "of the other producer"))
            self.commit(group, ("orders", 2, 33, "plain, within"))
            two.end(True)
            one.commit(group, ("orders", 1, 34, "ends last"))
            one.end(True)
            opened.commit("g-txn", ("orders", 3, 77, "open"), ("payments", 0, 78, "open"))
            opened.commit(f"{group}-open-only", ("payments", 0, 7, "open"))
            self.open_transactions_of |= {"g-txn", f"{group}-open-only"}
            self._step(f"transactions of producers of {suffix} clients: committed, aborted, interleaved, left open")
        if self.session.has("DeleteGroups"):
            doomed = Producer(self, "tx-doomed", old_client=True)
            doomed.commit("g-txn-deleted", ("orders", 0, 80, "its group is deleted"))
            self._delete_groups("g-txn-deleted", expect=(0, 68, 69))
            doomed.end(True)
            self._step("g-txn-deleted: deleted while its transaction is open, which then commits")

    # Deletions

    def _delete_groups(self, *groups: str, expect: tuple[int, ...] = (0,)) -> None:
        self.session.ask("DeleteGroups", {"groupsNames": list(groups)}, expect=expect)

    def deletions(self) -> None:
        if self.session.has("DeleteGroups"):
            for group in ("g-deleted", "g-deleted-reborn"):
                self.commit(group, ("orders", 0, 4, "gone"), ("orders", 1, 4, "gone"))
            member = self._member("g-deleted", "deleted-1")
            member.join()
            member.leave()
            self._delete_groups("g-deleted", "g-deleted-reborn")
            self.commit("g-deleted-reborn", ("orders", 0, 9, "after"))
            self._step("g-deleted and g-deleted-reborn deleted, the latter commits again")
        if self.session.has("OffsetDelete"):
            self.commit("g-offsets-deleted", ("orders", 0, 4, ""), ("orders", 1, 5, ""), ("clicks", 0, 6, "kept"))
            topics = [{"name": "orders", "partitions": [{"partitionIndex": 0}, {"partitionIndex": 1}]}]
            self.session.ask("OffsetDelete", {"groupId": "g-offsets-deleted", "topics": topics})
            self._step("OffsetDelete of two of three offsets of g-offsets-deleted")
        if self.session.has("DeleteTopics"):
            self.commit("g-topic-deleted", ("gone", 0, 1, "goes"), ("orders", 0, 1, "stays"))
            self.commit("g-topic-deleted-only", ("gone", 0, 1, "goes"))
            version = min(self.session.versions["DeleteTopics"], 5)
            self.session.ask("DeleteTopics", {"topicNames": ["gone"], "timeoutMs": 30_000}, version)
            time.sleep(1.5)
            self._step("topic gone deleted")


class ClassicMember:
    """A member that speaks JoinGroup and SyncGroup. The first of its group leads it and assigns round robin."""

    def __init__(
        self,
        script: Script,
        session: Session,
        group: str,
        *,
        protocol_type: str = "consumer",
        session_ms: int = LONG_MS,
        instance_id: str | None = None,
        empty_assignment: bool = False,
        topics: Mapping[str, int] = MEMBER_TOPICS,
    ) -> None:
        self.script, self.session, self.group = script, session, group
        self.topics = topics
        self.client_id = session.client_id
        self.member_id = ""
        self.generation = -1
        self.assigned: list[tuple[str, int]] = []
        self._protocol_type, self._session_ms = protocol_type, session_ms
        self._instance_id, self._empty_assignment = instance_id, empty_assignment
        self._joined: Json = {}

    @property
    def _owned(self) -> list[Json]:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.assigned:
            topics.setdefault(topic, []).append(partition)
        return [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]

    @property
    def _user_data(self) -> bytes | None:
        """None, as clients of the time write it: the dump tools of old releases die at a null."""
        return None if self.session.release >= (2, 4) else b""

    def _metadata(self) -> bytes:
        if self._protocol_type != "consumer":
            return b"\x00\x07opaque"
        # KIP-792: what a member owned, and in which generation.
        version = 3 if self.session.has("JoinGroup", 9) else 1 if self.session.has("JoinGroup", 4) else 0
        fields: Json = {"topics": [*self.topics], "userData": self._user_data}
        if version >= 1:
            fields["ownedPartitions"] = self._owned
        if version >= 3:
            fields |= {"generationId": self.generation, "rackId": None}
        return encode_consumer_subscription(version, fields)

    def send_join(self) -> None:
        body: Json = {
            "groupId": self.group,
            "sessionTimeoutMs": self._session_ms,
            "rebalanceTimeoutMs": LONG_MS,
            "memberId": self.member_id,
            "protocolType": self._protocol_type,
            "protocols": [
                {"name": name, "metadata": base64.b64encode(self._metadata()).decode()}
                for name in ("range", "roundrobin")
            ],
        }
        if self._instance_id is not None:
            body["groupInstanceId"] = self._instance_id
        version = self.session.versions["JoinGroup"]
        if version < 1:
            del body["rebalanceTimeoutMs"]
        self.session.send("JoinGroup", body)
        if version >= 4 and self._instance_id is None and not self.member_id:
            required = self.session.answer()
            if required["errorCode"] != MEMBER_ID_REQUIRED:
                return self._retry_join(required)
            self.member_id = required["memberId"]
            self.session.send("JoinGroup", {**body, "memberId": self.member_id})
        return None

    def _retry_join(self, answered: Json) -> None:
        if answered["errorCode"] not in (14, 15, 16):
            raise RefusedError(f"JoinGroup of {self.client_id}: {answered}")
        time.sleep(0.3)
        self.send_join()

    def answered(self) -> bool:
        """Whether the join is through."""
        found = self.session.connection.poll(0.1)
        if found is not None:
            self._take(found)
        return found is not None

    def _take(self, joined: Json) -> None:
        if joined["errorCode"]:
            raise RefusedError(f"JoinGroup of {self.client_id}: {joined}")
        self._joined = joined
        self.member_id, self.generation = joined["memberId"], joined["generationId"]

    def join(self, *others: ClassicMember) -> None:
        """All of them join and sync: one generation."""
        members = (self, *others)
        while True:
            # The newcomers first: a leader that joins again would begin a generation of its own.
            for member in reversed(members):
                member.send_join()
                if member is not self:
                    self._until_rebalance()
            answers = [member.session.answer() for member in members]
            if not {answer["errorCode"] for answer in answers} & {14, 15, 16}:
                break
            time.sleep(0.3)
        for member, joined in zip(members, answers, strict=True):
            member._take(joined)
        leader = next(member for member in members if member.member_id == member._joined["leader"])
        for member in (leader, *(one for one in members if one is not leader)):
            member.sync()

    def _until_rebalance(self) -> None:
        """Wait until the coordinator has taken the join of a newcomer to a Stable group; of others, for a while."""
        with suppress(TimeoutError):
            wait_for("a rebalance", lambda: self.script.state_of(self.group) == "PreparingRebalance", 5)

    def join_alone(self) -> None:
        """A static member that takes its place again; the coordinator answers its old assignment."""
        self.send_join()
        self._take(self.session.answer())
        self.sync(assign=False)

    def rejoin(self, *others: HeartbeatingMember) -> None:
        """Joins until the coordinator has nothing more to ask of it, while the others heartbeat."""
        for _ in range(100):
            for other in others:
                other.heartbeat()
            self.send_join()
            self._take(self.session.answer())
            self.sync()
            body = {"groupId": self.group, "generationId": self.generation, "memberId": self.member_id}
            time.sleep(0.5)
            if not self.session.ask("Heartbeat", body, expect=(0, 22, 27))["errorCode"]:
                return
        raise RefusedError(f"{self.client_id} finds no rest")

    def sync(self, assign: bool = True) -> None:
        assignments = []
        if assign and self.member_id == self._joined["leader"]:
            ids = sorted(member["memberId"] for member in self._joined["members"])
            for member_id, own in self.shares(ids).items():
                assignments.append({"memberId": member_id, "assignment": self._assignment(own)})
        body: Json = {
            "groupId": self.group,
            "generationId": self.generation,
            "memberId": self.member_id,
            "assignments": assignments,
        }
        if self.session.has("SyncGroup", 5):
            body |= {"protocolType": self._protocol_type, "protocolName": "range"}
        if self._instance_id is not None:
            body["groupInstanceId"] = self._instance_id
        synced = self.session.ask("SyncGroup", body, expect=(0, 27))
        if self._protocol_type == "consumer" and synced["assignment"]:
            given = decode_consumer_assignment(base64.b64decode(synced["assignment"]))
            self.assigned = [(row["topic"], p) for row in given["assignedPartitions"] for p in row["partitions"]]

    def shares(self, member_ids: Sequence[str]) -> dict[str, list[tuple[str, int]]]:
        """Partitions that this leader gives to each member: round robin."""
        partitions = [(topic, number) for topic, count in self.topics.items() for number in range(count)]
        return {member_id: partitions[at :: len(member_ids)] for at, member_id in enumerate(member_ids)}

    def _assignment(self, own: list[tuple[str, int]]) -> str:
        if self._empty_assignment:
            return ""
        if self._protocol_type != "consumer":
            return base64.b64encode(b"\x00\x09tasks").decode()
        topics: dict[str, list[int]] = {}
        for topic, partition in own:
            topics.setdefault(topic, []).append(partition)
        rows = [{"topic": topic, "partitions": found} for topic, found in topics.items()]
        return base64.b64encode(
            encode_consumer_assignment(0, {"assignedPartitions": rows, "userData": self._user_data})
        ).decode()

    def commit(self, *commits: Commit) -> None:
        if commits:
            self.script.commit(
                self.group, *commits, member_id=self.member_id, generation=self.generation, session=self.session
            )

    def leave(self) -> None:
        if self.session.has("LeaveGroup", 3):
            body: Json = {"groupId": self.group, "members": [{"memberId": self.member_id}]}
        else:
            body = {"groupId": self.group, "memberId": self.member_id}
        self.session.ask("LeaveGroup", body)


class HeartbeatingMember(ABC):
    """A member of a group whose coordinator assigns: it heartbeats, and acknowledges what it is given."""

    api = ""

    def __init__(self, script: Script, group: str, client_id: str) -> None:
        self.script, self.group = script, group
        self.session = script._client(client_id)
        number = len(script._sessions)
        self.member_id = base64.urlsafe_b64encode(
            client_id.encode().ljust(15, b"-")[:15] + bytes([number % 256])
        ).decode()[:22]
        self.epoch = 0

    def heartbeat(self, epoch: int | None = None) -> bool:
        """Whether nothing changed."""
        body = self.body(self.epoch if epoch is None else epoch)
        found = self.session.ask(self.api, {"groupId": self.group, "memberId": self.member_id, **body})
        before = self.epoch
        self.epoch = found["memberEpoch"]
        self.member_id = found.get("memberId") or self.member_id
        return not self.take(found) and self.epoch == before

    def leave(self) -> None:
        self.heartbeat(-1)

    @abstractmethod
    def body(self, epoch: int) -> Json:
        """Fields of a heartbeat in this epoch."""

    @abstractmethod
    def take(self, answer: Json) -> bool:
        """Takes the assignment of an answer; whether it is another than before."""

    def commit(self, *commits: Commit) -> None:
        self.script.commit(self.group, *commits, member_id=self.member_id, generation=self.epoch, session=self.session)


def settle(*members: HeartbeatingMember) -> None:
    """Heartbeats until three rounds, a while apart, change nothing."""
    quiet = 0
    deadline = time.monotonic() + START_SECONDS
    while quiet < 3:
        assert time.monotonic() < deadline, "the group does not settle"
        unchanged = [member.heartbeat() for member in members]
        quiet = quiet + 1 if all(unchanged) else 0
        # From 4.3 on a coordinator assigns once a second at most.
        time.sleep(0.4)


class ConsumerMember(HeartbeatingMember):
    api = "ConsumerGroupHeartbeat"

    def __init__(self, script: Script, group: str, client_id: str, topics: list[str], **fields: str) -> None:
        super().__init__(script, group, client_id)
        self._fields: Json = {**fields, "subscribedTopicNames": topics}
        self._owned: list[Json] = []
        if not self.session.has(self.api, 1):
            self.member_id = ""

    def body(self, epoch: int) -> Json:
        joins = {"rebalanceTimeoutMs": LONG_MS, **self._fields} if epoch == 0 else {}
        instance = {"instanceId": self._fields["instanceId"]} if "instanceId" in self._fields else {}
        return {"memberEpoch": epoch, "topicPartitions": self._owned if epoch >= 0 else None, **joins, **instance}

    def take(self, answer: Json) -> bool:
        assignment = answer["assignment"]
        if assignment is None or assignment["topicPartitions"] == self._owned:
            return False
        self._owned = assignment["topicPartitions"]
        return True


def downgrade(old: ClassicMember, only: ConsumerMember) -> None:
    """A classic member joins the only KIP-848 member of a group, which leaves once the other one is answered."""
    old.send_join()

    def answered() -> bool:
        only.heartbeat()
        return old.answered()

    wait_for("its join", answered)
    old.sync()
    only.leave()
    old.rejoin()


class ShareMember(HeartbeatingMember):
    api = "ShareGroupHeartbeat"

    def __init__(self, script: Script, group: str, client_id: str, topics: list[str], **fields: str) -> None:
        super().__init__(script, group, client_id)
        self._fields: Json = {**fields, "subscribedTopicNames": topics}

    def body(self, epoch: int) -> Json:
        return {"memberEpoch": epoch, **(self._fields if epoch == 0 else {})}

    def take(self, answer: Json) -> bool:
        return False


class StreamsMember(HeartbeatingMember):
    api = "StreamsGroupHeartbeat"

    def __init__(self, script: Script, group: str, client_id: str) -> None:
        super().__init__(script, group, client_id)
        self._tasks: Json = {"activeTasks": [], "standbyTasks": [], "warmupTasks": []}

    def body(self, epoch: int) -> Json:
        if epoch < 0:
            return {"memberEpoch": epoch}
        if epoch:
            return {"memberEpoch": epoch, **self._tasks}
        changelog = {"name": f"{self.group}-store-changelog", "replicationFactor": 1}
        changelog["topicConfigs"] = [{"key": "cleanup.policy", "value": "compact"}]  # type: ignore[assignment]
        topology = {
            "epoch": 1,
            "subtopologies": [
                {"subtopologyId": "0", "sourceTopics": ["orders"], "stateChangelogTopics": [changelog]},
            ],
        }
        return {
            "memberEpoch": 0,
            "rebalanceTimeoutMs": LONG_MS,
            "processId": self.session.client_id,
            "clientTags": [{"key": "zone", "value": "z1"}],
            "userEndpoint": {"host": "localhost", "port": 4711},
            "topology": topology,
            **self._tasks,
        }

    def take(self, answer: Json) -> bool:
        given = {name: answer[name] for name in self._tasks if answer[name] is not None}
        changed = any(self._tasks[name] != value for name, value in given.items())
        self._tasks |= given
        return changed

    def describe_topology(self) -> None:
        node = {
            "name": "KSTREAM-SOURCE",
            "nodeType": 1,
            "sourceTopics": ["orders"],
            "stores": [],
            "successors": [],
        }
        body = {
            "groupId": self.group,
            "memberId": self.member_id,
            "topologyEpoch": 1,
            "topologyDescription": {"subtopologies": [{"subtopologyId": "0", "nodes": [node]}], "globalStores": []},
        }
        self.session.ask("StreamsGroupTopologyDescriptionUpdate", body)
        time.sleep(1)


class Producer:
    """A transactional producer; of an old client it speaks the versions before KIP-890."""

    def __init__(self, script: Script, transactional_id: str, *, old_client: bool) -> None:
        self.script, self.session, self._id = script, script.session, transactional_id
        newest = self.session.versions
        self._versions = {
            "TxnOffsetCommit": min(newest["TxnOffsetCommit"], 4) if old_client else newest["TxnOffsetCommit"],
            "EndTxn": min(newest["EndTxn"], 4) if old_client else newest["EndTxn"],
        }
        script.find_coordinator(transactional_id, 1)
        version = min(newest["InitProducerId"], 4 if old_client else 5)
        body: Json = {"transactionalId": transactional_id, "transactionTimeoutMs": 900_000}
        found = self.session.ask("InitProducerId", body, version)
        self._producer = {"producerId": found["producerId"], "producerEpoch": found["producerEpoch"]}

    def commit(self, group: str, *commits: Commit) -> None:
        transaction = {"transactionalId": self._id, **self._producer}
        if self._versions["TxnOffsetCommit"] < 5:
            version = min(self.session.versions["AddOffsetsToTxn"], 3)
            self.session.ask("AddOffsetsToTxn", {**transaction, "groupId": group}, version)
        version = self._versions["TxnOffsetCommit"]
        by_id = version >= 6
        topics: dict[str, list[Json]] = {}
        for topic, partition, offset, metadata in commits:
            row = {"partitionIndex": partition, "committedOffset": offset, "committedMetadata": metadata}
            topics.setdefault(topic, []).append(row)
        rows = [
            {"topicId" if by_id else "name": self.script._topic(topic, by_id), "partitions": found}
            for topic, found in topics.items()
        ]
        self.session.ask("TxnOffsetCommit", {**transaction, "groupId": group, "topics": rows}, version)

    def end(self, committed: bool) -> None:
        version = self._versions["EndTxn"]
        body = {"transactionalId": self._id, **self._producer, "committed": committed}
        found = self.session.ask("EndTxn", body, version)
        if version >= 5:
            self._producer = {name: found[name] for name in self._producer}
        time.sleep(0.3)
