"""Histories of groups: what coordinators write, and the same in orders that none of them writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from coordinator_core.records.codec import encode_key, encode_value

Item = tuple[bytes | None, bytes | None]

TOPIC_IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")
PARTITIONS = 6
KINDS = ("consumer", "share", "streams")
METADATA = {"consumer": 3, "share": 11, "streams": 17}
MEMBER = {"consumer": 5, "share": 10, "streams": 19}
TARGET_METADATA = {"consumer": 6, "share": 12, "streams": 20}
TARGET = {"consumer": 7, "share": 13, "streams": 21}
CURRENT = {"consumer": 8, "share": 14, "streams": 22}
REGEX = 16
EXTRA = {"consumer": 4, "share": 15, "streams": 23}

Partitions = list[tuple[int, int]]
"""Topic and partition, by number."""


def classic_value(members: Sequence[tuple[str, str | None]], generation: int = 1, version: int = 3) -> bytes:
    """GroupMetadataValue of members with these ids and group instance ids."""
    instances = version >= 3
    return encode_value(
        2,
        version,
        {
            "protocolType": "consumer" if members or generation > 1 else "",
            "generation": generation,
            "protocol": "range" if members else None,
            "leader": members[0][0] if members else None,
            "currentStateTimestamp": 1_000,
            "members": [
                {
                    "memberId": member_id,
                    **({"groupInstanceId": instance} if instances else {}),
                    "clientId": "c",
                    "clientHost": "/h",
                    "rebalanceTimeout": 1,
                    "sessionTimeout": 1,
                    "subscription": b"s",
                    "assignment": b"",
                }
                for member_id, instance in members
            ],
        },
    )


def _topic_partitions(owned: Partitions, **more: object) -> list[dict[str, Any]]:
    return [
        {"topicId": TOPIC_IDS[topic], "partitions": [at for of, at in owned if of == topic], **more}
        for topic in sorted({topic for topic, _ in owned})
    ]


def _tasks(owned: Partitions) -> list[dict[str, Any]]:
    return [
        {"subtopologyId": str(topic), "partitions": [at for of, at in owned if of == topic]}
        for topic in sorted({topic for topic, _ in owned})
    ]


@dataclass
class Writer:
    """One group as its coordinator keeps it, and the records that this has made (``written``)."""

    group_id: str
    written: list[Item] = field(default_factory=list)
    kind: str | None = None
    classic_record: bool = False
    simple: bool = False
    epoch: int = 1
    members: dict[str, Partitions] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    regexes: set[str] = field(default_factory=set)
    has_extra: bool = False
    joined: int = 0

    def put(self, key_type: int, value: dict[str, Any] | None, **names: str) -> None:
        key = {"group": self.group_id} if key_type == 2 else {"groupId": self.group_id, **names}
        self.written.append((encode_key(key_type, key), None if value is None else encode_value(key_type, 0, value)))

    # Records

    def metadata(self) -> None:
        assert self.kind is not None
        value = {"epoch": self.epoch, "metadataHash": self.epoch * 31}
        if self.kind == "streams":
            value["validatedTopologyEpoch"] = self.epoch % 2
        self.put(METADATA[self.kind], value)

    def describe(self, member: str, instance: str | None = None) -> None:
        assert self.kind is not None
        value: dict[str, Any] = {
            "instanceId": instance,
            "rackId": None,
            "clientId": "c",
            "clientHost": "/h",
            "subscribedTopicNames": ["t"],
            "subscribedTopicRegex": None,
            "rebalanceTimeoutMs": 5,
            "serverAssignor": "uniform",
            "classicMemberMetadata": None,
        }
        if self.kind == "share":
            value = {name: value[name] for name in ("rackId", "clientId", "clientHost", "subscribedTopicNames")}
        elif self.kind == "streams":
            kept = ("instanceId", "rackId", "clientId", "clientHost", "rebalanceTimeoutMs")
            value = {name: value[name] for name in kept} | {
                "topologyEpoch": 1,
                "processId": "p",
                "userEndpoint": {"host": "h", "port": 9} if self.epoch % 2 else None,
                "clientTags": [{"key": "k", "value": "v"}],
            }
        elif self.joined % 3 == 0:
            value["classicMemberMetadata"] = {
                "sessionTimeoutMs": 9,
                "supportedProtocols": [{"name": "range", "metadata": b"m"}],
            }
        self.put(MEMBER[self.kind], value, memberId=member)

    def target(self, member: str) -> None:
        assert self.kind is not None
        owned = self.members[member]
        value: dict[str, Any] = {"topicPartitions": _topic_partitions(owned)}
        if self.kind == "streams":
            value = {"activeTasks": _tasks(owned), "standbyTasks": [], "warmupTasks": []}
        self.put(TARGET[self.kind], value, memberId=member)

    def target_metadata(self) -> None:
        assert self.kind is not None
        self.put(TARGET_METADATA[self.kind], {"assignmentEpoch": self.epoch, "assignmentTimestamp": 7})

    def current(self, member: str, owned: Partitions, revoking: Partitions | None = None, state: int = 0) -> None:
        assert self.kind is not None
        value: dict[str, Any] = {
            "memberEpoch": self.epochs[member],
            "previousMemberEpoch": self.epochs[member] - 1,
            "state": state,
        }
        if self.kind == "streams":
            value |= {
                "activeTasks": _tasks(owned),
                "standbyTasks": [],
                "warmupTasks": [],
                "activeTasksPendingRevocation": _tasks(revoking or []),
                "standbyTasksPendingRevocation": [],
                "warmupTasksPendingRevocation": [],
            }
        elif self.kind == "share":
            value["assignedPartitions"] = _topic_partitions(owned)
        else:
            more = {"assignmentEpochs": [1] if self.epoch % 2 else None}
            value["assignedPartitions"] = _topic_partitions(owned, **more)
            value["partitionsPendingRevocation"] = _topic_partitions(revoking or [], **more)
        self.put(CURRENT[self.kind], value, memberId=member)

    # What happens to the group

    def begin(self, kind: str) -> None:
        """A group of that kind, in the place of what is there."""
        self.delete()
        if self.classic_record or (self.simple and kind == "share"):
            self.put(2, None)
        self.kind, self.epoch = kind, 1
        self.classic_record = self.simple = False

    def share_out(self, turn: int) -> dict[str, Partitions]:
        """All partitions among the members, otherwise each ``turn``."""
        names = list(self.members)
        shares: dict[str, Partitions] = {name: [] for name in names}
        if names:
            for number, partition in enumerate((t, p) for t in range(2) for p in range(PARTITIONS // 2)):
                shares[names[(number + turn) % len(names)]].append(partition)
        return shares

    def rebalance(self, turn: int, *, careful: bool = True) -> None:
        """A new target, to which members come one by one; ``careful``: what moves is let go first."""
        if self.kind is None:
            self.begin("consumer")
        old = {member: list(owned) for member, owned in self.members.items()}
        self.epoch += 1
        self.metadata()
        self.members = self.share_out(turn)
        for member in self.members:
            self.target(member)
        self.target_metadata()
        for member, owned in old.items() if careful else ():
            kept = [partition for partition in owned if partition in self.members[member]]
            if kept != owned and member in self.epochs:
                revoking = [partition for partition in owned if partition not in kept]
                self.current(member, kept, revoking, state=1)
                self.current(member, kept)
        for member, owned in self.members.items():
            self.epochs[member] = self.epoch
            self.current(member, owned)

    def join(self, turn: int) -> None:
        if self.kind is None:
            self.begin(KINDS[turn % len(KINDS)])
        member = f"m{self.joined % 5}"
        self.joined += 1
        self.members.setdefault(member, [])
        self.describe(member, instance=f"i{turn}" if turn % 2 else None)
        self.rebalance(turn)

    def leave(self, turn: int, *, moves: bool = True) -> None:
        if self.kind is None or not self.members:
            return
        member = list(self.members)[turn % len(self.members)]
        for key_type in (CURRENT, TARGET, MEMBER):
            self.put(key_type[self.kind], None, memberId=member)
        del self.members[member]
        self.epochs.pop(member, None)
        if moves:
            self.rebalance(turn)

    def replace(self, turn: int) -> None:
        """A static member comes back under another id, with what the one before it owned."""
        if self.kind != "consumer" or not self.members:
            return
        member = list(self.members)[turn % len(self.members)]
        owned = self.members[member]
        self.epochs[member] = -2
        self.current(member, owned)
        self.leave(turn, moves=False)
        new = f"r{self.joined}"
        self.joined += 1
        self.members[new], self.epochs[new] = owned, self.epoch
        self.describe(new, "i")
        self.target(new)
        self.current(new, owned)

    def regex(self, turn: int) -> None:
        if self.kind != "consumer":
            return
        regex = f"x.{turn % 2}"
        if regex in self.regexes:
            self.regexes.remove(regex)
            self.put(REGEX, None, regularExpression=regex)
        else:
            self.regexes.add(regex)
            value = {"topics": ["t"], "version": turn, "timestamp": 5}
            self.put(REGEX, value, regularExpression=regex)

    def extra(self, turn: int) -> None:
        """Partition metadata, topics of a share group, topology."""
        if self.kind is None:
            return
        if self.has_extra and turn % 2:
            self.has_extra = False
            self.put(EXTRA[self.kind], None)
            return
        self.has_extra = True
        topic = {"topicId": TOPIC_IDS[0], "topicName": "t"}
        values: dict[str, dict[str, Any]] = {
            "consumer": {
                "topics": [{**topic, "numPartitions": 2, "partitionMetadata": [{"partition": 0, "racks": ["r"]}]}]
            },
            "share": {
                "initializingTopics": [],
                "initializedTopics": [{**topic, "partitions": [turn]}],
                "deletingTopics": [topic] if turn % 3 else [],
            },
            "streams": {"epoch": turn, "subtopologies": []},
        }
        self.put(EXTRA[self.kind], values[self.kind])

    def delete(self, _: int = 0) -> None:
        if self.kind is None:
            return
        for key_type in (CURRENT, TARGET):
            for member in self.members:
                self.put(key_type[self.kind], None, memberId=member)
        self.put(TARGET_METADATA[self.kind], None)
        for member in self.members:
            self.put(MEMBER[self.kind], None, memberId=member)
        for regex in sorted(self.regexes):
            self.put(REGEX, None, regularExpression=regex)
        last = [METADATA[self.kind]]
        if self.has_extra:
            last.insert(self.kind == "streams", EXTRA[self.kind])
        for key_type in last:
            self.put(key_type, None)
        self.kind, self.has_extra = None, False
        self.members, self.epochs, self.regexes = {}, {}, set()

    def classic(self, turn: int) -> None:
        """A generation of a classic group, or the downgrade to one."""
        self.delete()
        members = [(f"c{number}", f"i{number}" if turn % 2 else None) for number in range(turn % 3)]
        version = (3, 2, 3, 4)[turn % 4]
        self.classic_record = True
        self.written.append((encode_key(2, {"group": self.group_id}), classic_value(members, turn, version)))

    def upgrade(self, turn: int) -> None:
        """The online upgrade of a classic group."""
        if self.kind is not None:
            return
        self.put(2, None)
        self.classic_record = False
        self.begin("consumer")
        self.epoch = turn
        self.members = {"c0": [], "c1": []}
        for member in self.members:
            self.describe(member)
        self.rebalance(turn)

    def tombstone(self, _: int) -> None:
        if self.kind is None:
            self.put(2, None)
            self.classic_record = self.simple = False

    def commit(self, turn: int) -> None:
        self.simple = self.simple or (self.kind is None and not self.classic_record)
        key = encode_key(1, {"group": self.group_id, "topic": "t", "partition": turn % 2})
        value = {"offset": turn, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 5}
        self.written.append((key, encode_value(1, 3, value)))


USUAL: dict[str, Callable[[Writer, int], None]] = {
    "join": Writer.join,
    "rebalance": Writer.rebalance,
    "leave": Writer.leave,
    "replace": Writer.replace,
    "regex": Writer.regex,
    "extra": Writer.extra,
    "delete": Writer.delete,
    "classic": Writer.classic,
    "upgrade": Writer.upgrade,
    "tombstone": Writer.tombstone,
    "commit": Writer.commit,
}
CARELESS: dict[str, Callable[[Writer, int], None]] = {
    "rebalance at once": lambda writer, turn: writer.rebalance(turn, careful=False),
    "leave as it is": lambda writer, turn: writer.leave(turn, moves=False),
    "consumer": lambda writer, turn: writer.begin("consumer"),
}
STEPS = USUAL | CARELESS

Step = tuple[str, int, int]
"""Events: kind, group, turn."""


def items(steps: Sequence[Step], groups: Sequence[str]) -> list[Item]:
    """The records of ``steps``, in order."""
    writers = [Writer(group_id) for group_id in groups]
    found: list[Item] = []
    for name, group, turn in steps:
        writer = writers[group % len(writers)]
        STEPS[name](writer, turn)
        found += writer.written
        writer.written.clear()
    return found


Change = tuple[str, int, int]
"""Changes of the records: kind, record, the other record."""


def changed(found: list[Item], changes: Sequence[Change]) -> list[Item]:
    """The records as no coordinator writes them."""
    found = list(found)
    for name, number, other in changes:
        if not found:
            break
        at = number % len(found)
        key, value = found[at]
        donor = found[other % len(found)]
        match name:
            case "drop":
                del found[at]
            case "repeat":
                found.insert(other % (len(found) + 1), found[at])
            case "move":
                found.insert(other % len(found), found.pop(at))
            case "tombstone":
                found.insert(other % (len(found) + 1), (key, None))
            case "value":
                if value is not None and donor[1] is not None and key and donor[0] and key[:2] == donor[0][:2]:
                    found[at] = key, donor[1]
            case "byte":
                if value:
                    found[at] = key, _flipped(value, other, number)
            case "cut":
                if value:
                    found[at] = key, value[: other % len(value)]
            case "longer":
                found[at] = key, None if value is None else value + b"\0"
            case "longer key":
                found[at] = None if key is None else key + b"\0", value
            case "key byte":
                if key:
                    found[at] = _flipped(key, other, number), value
            case "epoch":
                has_epoch = key is not None and int.from_bytes(key[:2], "big") in CURRENT.values()
                if value is not None and has_epoch and len(value) > 6:
                    found[at] = key, value[:2] + (other % 5 - 2).to_bytes(4, "big", signed=True) + value[6:]
            case "twins":
                if key and key[:2] == b"\0\2":
                    found[at] = key, classic_value([("a", "i"), ("b", "i")])
    return found


def _flipped(data: bytes, place: int, bit: int) -> bytes:
    place %= len(data)
    return data[:place] + bytes([data[place] ^ (1 << bit % 8)]) + data[place + 1 :]


CHANGES = (
    "drop",
    "repeat",
    "move",
    "tombstone",
    "value",
    "byte",
    "cut",
    "longer",
    "longer key",
    "key byte",
    "epoch",
    "twins",
)

GROUPS = ("g", "h")
_numbers = st.integers(0, 40)
_steps = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 1), _numbers), max_size=14)
usual_items = st.lists(
    st.tuples(st.sampled_from(sorted(USUAL)), st.integers(0, 1), _numbers), min_size=1, max_size=14
).map(lambda steps: items(steps, GROUPS))
"""Records as coordinators write them."""
hostile_items = st.builds(
    changed,
    _steps.map(lambda steps: items(steps, GROUPS)),
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 400), st.integers(0, 400)), max_size=5),
)
"""The same, with changes."""

_owning = st.sampled_from(("join", "join", "rebalance", "rebalance at once", "replace", "leave", "consumer"))
owning_items = st.builds(
    changed,
    st.lists(st.tuples(_owning, st.just(0), _numbers), max_size=10).map(
        lambda steps: items([("consumer", 0, 0), *steps], GROUPS[:1])
    ),
    st.lists(
        st.tuples(
            st.sampled_from(("drop", "repeat", "move", "value", "epoch")),
            st.integers(0, 400),
            st.integers(0, 400),
        ),
        max_size=8,
    ),
)
"""Consumer groups whose members take partitions that are still owned, as in a log that was compacted."""
