"""Requests of clients to a coordinator of any release, at random: names, order, restarts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from tests.live.group_protocol import Json
from tests.recording.brokers import RecordedBroker
from tests.recording.script import (
    TOPICS,
    ClassicMember,
    Commit,
    ConsumerMember,
    HeartbeatingMember,
    Producer,
    Script,
    ShareMember,
    StreamsMember,
    downgrade,
)
from tests.recording.session import RefusedError, Session

_WORDS = (
    "a",
    "Zz",
    "ünï",
    "組",
    "😀",
    " ",
    "\t",
    "\n",
    '"',
    "'",
    "\\",
    "/",
    ",",
    ":",
    "%2F",
    "\x00",
    "\x7f",
    "null",
    "-1",
    "{}",
    "\ue000",
)
_REFUSED = (RefusedError, AssertionError, OSError)


class RandomScript(Script):
    """Plays ``actions`` of them with the seed of ``random``. ``restart`` kills or stops the broker, and starts it."""

    def __init__(
        self, broker: RecordedBroker, session: Session, seed: int, restart: Callable[[random.Random], None]
    ) -> None:
        super().__init__(session)
        self._broker, self._random, self._restart = broker, random.Random(seed), restart
        self._number = 0
        self._classic: dict[str, list[ClassicMember]] = {}
        self._modern: dict[str, list[HeartbeatingMember]] = {}
        self._producers: list[tuple[Producer, set[str]]] = []
        self.groups = [self._name() for _ in range(14)] + ["x" * 200]
        self.refused: list[str] = []

    def _name(self) -> str:
        return "".join(self._random.choice(_WORDS) for _ in range(self._random.randint(1, 6)))

    def _new_client(self) -> Session:
        self._number += 1
        return self._client(f"{self._number}{self._name()}")

    def play(self, actions: int, restarts: int) -> None:
        self.create_topics()
        known: list[tuple[int, Callable[[], None]]] = [
            (8, self._commits),
            (3, self._member_commits),
            (4, self._joins_classic),
            (2, self._leaves_classic),
            (2, self._generation),
            (1, self._dies),
        ]
        has = self.session.has
        if has("JoinGroup", 5):
            known.append((2, self._joins_static))
        if has("ConsumerGroupHeartbeat"):
            known += [(5, self._joins_consumer), (3, self._heartbeats), (2, self._leaves_modern)]
            if self.session.release >= (3, 8):
                known += [(1, self._upgraded), (1, self._downgraded)]
        if has("ShareGroupHeartbeat"):
            known.append((2, self._joins_share))
        if has("AlterShareGroupOffsets"):
            known.append((1, self._alters_share))
        if has("StreamsGroupHeartbeat"):
            known.append((3, self._joins_streams))
        if has("TxnOffsetCommit"):
            known += [(4, self._commits_in_transaction), (3, self._ends_transaction)]
        if has("DeleteGroups"):
            known.append((2, self._deletes_group))
        if has("OffsetDelete"):
            known.append((2, self._deletes_offsets))
        if has("DeleteTopics") and has("CreateTopics"):
            known.append((1, self._deletes_topic))
        moments = {self._random.randrange(actions) for _ in range(restarts)}
        for number in range(actions):
            (action,) = self._random.choices([each for _, each in known], [weight for weight, _ in known])
            try:
                action()
                self._step(action.__name__)
            except IndexError:
                continue  # Nothing is there to choose from.
            except _REFUSED as error:
                self.refused.append(f"{action.__name__}: {str(error)[:300]}")
            if number in moments:
                self._begin_anew()
        time.sleep(3)  # Sessions of a second are over.

    def _begin_anew(self) -> None:
        self._step("restart")
        self._restart(self._random)
        self.session = Session(self._broker.port, self.session.release)
        self._wait_for_topics()
        for group in [*self._classic.values(), *self._modern.values()]:
            for member in group:
                member.session = self._client(member.session.client_id)
        for producer, _ in self._producers:
            producer.session = self.session

    # Commits

    def _random_commits(self) -> list[Commit]:
        found = []
        for _ in range(self._random.choice((1, 1, 2, 5))):
            topic = self._random.choice([*TOPICS])
            metadata = self._random.choice(("", "", "m", self._name(), "x" * self._random.randrange(4000)))
            offset = self._random.choice(
                (0, 1, self._random.randrange(10**6), self._random.randrange(2**63), 2**63 - 1)
            )
            found.append((topic, self._random.randrange(TOPICS[topic]), offset, metadata))
        return list({one[:2]: one for one in found}.values())

    def _commits(self) -> None:
        newest = min(self.session.versions["OffsetCommit"], 9)
        version = self._random.choice(list(range(2, newest + 1)))
        retention = self._random.choice((-1, -1, 3_600_000, 1000, 0)) if version <= 4 else -1
        epoch = self._random.choice((-1, 0, 7)) if version >= 6 else -1
        group = self._random.choice(self.groups)
        try:
            self.commit(group, *self._random_commits(), version=version, retention_ms=retention, leader_epoch=epoch)
        except (OSError, AssertionError):
            # A version that the broker does not take ends the connection.
            self.session = self.session.another(self.session.client_id)
            raise

    def _member_commits(self) -> None:
        members = [
            *self._classic.values(),
            *(one for one in self._modern.values() if not isinstance(one[0], ShareMember)),
        ]
        self._random.choice(self._random.choice(members or [[]])).commit(*self._random_commits())

    # Classic groups

    def _free_group(self, *kinds: type[HeartbeatingMember]) -> str:
        """One without members of other kinds."""
        taken = {name for name, members in self._modern.items() if not isinstance(members[0], kinds or (type(None),))}
        if kinds:
            taken |= set(self._classic)
        return self._random.choice([name for name in self.groups if name not in taken])

    def _joins_classic(self, **options: object) -> None:
        group = self._free_group()
        members = self._classic.get(group, [])
        kind = members[0]._protocol_type if members else self._random.choice(("consumer", "consumer", "connect", "sr"))
        empty = kind == "consumer" and self._random.random() < 0.2
        member = ClassicMember(self, self._new_client(), group, protocol_type=kind, empty_assignment=empty, **options)  # type: ignore[arg-type]
        self._join(group, [*members, member])

    def _join(self, group: str, members: Sequence[ClassicMember]) -> None:
        try:
            members[0].join(*members[1:])
            self._classic[group] = [*members]
        except _REFUSED:
            self._forget(group)
            raise

    def _forget(self, group: str) -> None:
        """Its members may wait for answers: they are never heard of again, and the group id is left alone."""
        self._classic.pop(group, None)
        self._modern.pop(group, None)
        self.groups.remove(group)
        self.groups.append(f"{group}{self._number}")

    def _joins_static(self) -> None:
        self._joins_classic(instance_id=self._random.choice(("i1", "i2", "ünï")) + str(self._number))

    def _generation(self) -> None:
        group = self._random.choice(sorted(self._classic))
        if all(one._instance_id is None for one in self._classic[group]):
            self._join(group, self._classic[group])

    def _leaves_classic(self) -> None:
        group = self._random.choice(sorted(self._classic))
        members = self._classic[group]
        member = members.pop(self._random.randrange(len(members)))
        member.leave()
        if members:
            self._join(group, members)
        else:
            del self._classic[group]

    def _dies(self) -> None:
        group = self._random.choice(
            [name for name in self.groups if name not in self._classic and name not in self._modern]
        )
        dead = ClassicMember(self, self._new_client(), group, session_ms=1000)
        dead.join()
        dead.commit(*self._random_commits())
        time.sleep(2)

    # Groups whose coordinator assigns

    def _joins(self, kind: type[HeartbeatingMember], make: Callable[[str, str], HeartbeatingMember]) -> None:
        group = self._free_group(kind)
        self._number += 1
        member = make(group, f"{self._number}{self._name()}")
        member.heartbeat(0)
        self._modern.setdefault(group, []).append(member)
        self._heartbeat(group)

    def _heartbeat(self, group: str) -> None:
        for _ in range(self._random.randrange(4)):
            for member in self._modern[group]:
                if self._random.random() < 0.8:
                    member.heartbeat()
            time.sleep(self._random.choice((0, 0.2, 1.1)))

    def _heartbeats(self) -> None:
        group = self._random.choice(sorted(self._modern))
        try:
            self._heartbeat(group)
        except _REFUSED:
            self._forget(group)
            raise

    def _joins_consumer(self) -> None:
        fields: dict[str, str] = {}
        if self._random.random() < 0.3:
            fields["instanceId"] = f"i{self._number}"
        if self._random.random() < 0.3:
            fields["rackId"] = self._name()
        fields["serverAssignor"] = self._random.choice(("range", "uniform"))
        topics = self._random.sample([*TOPICS], self._random.randint(1, len(TOPICS)))
        if self.session.has("ConsumerGroupHeartbeat", 1) and self._random.random() < 0.3:
            fields["subscribedTopicRegex"] = self._random.choice(("cl.*|pay.*", "nothing", ".*"))
            topics = self._random.choice(([], topics))
        self._joins(ConsumerMember, lambda group, client: ConsumerMember(self, group, client, topics, **fields))

    def _joins_share(self) -> None:
        topics = self._random.sample([*TOPICS], self._random.randint(1, len(TOPICS)))
        self._joins(ShareMember, lambda group, client: ShareMember(self, group, client, topics))

    def _alters_share(self) -> None:
        group = self._random.choice(self.groups)
        topics = [
            {"topicName": "clicks", "partitions": [{"partitionIndex": 0, "startOffset": self._random.randrange(9)}]}
        ]
        self.session.ask("AlterShareGroupOffsets", {"groupId": group, "topics": topics})

    def _joins_streams(self) -> None:
        self._joins(StreamsMember, lambda group, client: StreamsMember(self, group, client))

    def _leaves_modern(self) -> None:
        group = self._random.choice(sorted(self._modern))
        members = self._modern[group]
        member = members[self._random.randrange(len(members))]
        away = getattr(member, "_fields", {}).get("instanceId") is not None and self._random.random() < 0.5
        member.heartbeat(-2 if away else -1)
        members.remove(member)
        if not members:
            del self._modern[group]

    def _upgraded(self) -> None:
        candidates = [g for g, m in sorted(self._classic.items()) if m[0]._protocol_type == "consumer" and len(m) == 1]
        group = self._random.choice(candidates)
        (classic,) = self._classic.pop(group)
        self._number += 1
        joined = ConsumerMember(self, group, f"{self._number}new", ["orders", "payments"])
        try:
            joined.heartbeat(0)
            classic.rejoin(joined)
            if self._random.random() < 0.5:
                classic.leave()
            self._modern[group] = [joined]
            self._heartbeat(group)
        except _REFUSED:
            self._forget(group)
            raise

    def _downgraded(self) -> None:
        groups = [g for g, m in sorted(self._modern.items()) if isinstance(m[0], ConsumerMember) and len(m) == 1]
        group = self._random.choice(groups)
        (only,) = self._modern.pop(group)
        old = ClassicMember(self, self._new_client(), group)
        try:
            downgrade(old, only)
            self._classic[group] = [old]
        except _REFUSED:
            self._forget(group)
            raise

    # Transactions

    def _commits_in_transaction(self) -> None:
        if len(self._producers) < 4:
            self._number += 1
            old = self._random.random() < 0.5
            self._producers.append((Producer(self, f"tx{self._number}{self._name()}", old_client=old), set()))
        producer, groups = self._random.choice(self._producers)
        group = self._random.choice(self.groups)
        groups.add(group)
        producer.commit(group, *self._random_commits())

    def _ends_transaction(self) -> None:
        begun = [one for one in self._producers if one[1]]
        producer, groups = self._random.choice(begun)
        producer.end(self._random.random() < 0.6)
        groups.clear()

    @property
    def groups_in_transactions(self) -> set[str]:
        return {group for _, groups in self._producers for group in groups}

    # Deletions

    def _deletes_group(self) -> None:
        names = self._random.sample(self.groups, self._random.choice((1, 3)))
        self._delete_groups(*names, expect=(0, 68, 69))

    def _deletes_offsets(self) -> None:
        topic = self._random.choice([*TOPICS])
        partitions = [{"partitionIndex": number} for number in range(TOPICS[topic])]
        body: Json = {
            "groupId": self._random.choice(self.groups),
            "topics": [{"name": topic, "partitions": partitions}],
        }
        self.session.ask("OffsetDelete", body, expect=(0, 86))

    def _deletes_topic(self) -> None:
        topic = self._random.choice(("gone", "clicks"))
        version = min(self.session.versions["DeleteTopics"], 5)
        self.session.ask("DeleteTopics", {"topicNames": [topic], "timeoutMs": 30_000}, version)
        time.sleep(1.5)
        again = [{"name": topic, "numPartitions": TOPICS[topic], "replicationFactor": 1}]
        self.session.ask("CreateTopics", {"topics": again, "timeoutMs": 30_000})
        self._wait_for_topics()
