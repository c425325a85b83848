"""A seeded random walk over streams groups: members that do what they should, and others that do not."""

from __future__ import annotations

import random
from typing import Any

from coordinator_core.releases import Release
from tests.live.group_protocol import Json
from tests.live.streams_client import (
    NO_TASKS,
    Streams,
    subtopology,
    tasks,
    topic,
    topology,
)

GROUPS = ("g1", "g2", "g3")
MEMBERS = ("m-a", "m-b", "m-c", "m-d", "m-e", "m-f")
PROCESSES = ("p1", "p2", "p3", "p4")
INSTANCES = ("i1", "i2")
AWAY = -2
MISSING_INTERNAL_TOPICS = 3


def streams_walk(streams: Streams, seed: int) -> StreamsWalk:
    """The walk over what the broker's release has."""
    kind = StaticStreamsWalk if Release.parse(streams.broker.kafka.version) >= (4, 4) else StreamsWalk
    return kind(streams, seed)


class StreamsWalk:
    """Sends ``count`` requests; everything it chooses comes from ``seed``."""

    def __init__(self, streams: Streams, seed: int) -> None:
        self.streams = streams
        self.random = random.Random(seed)
        self.topologies = {group: self._topology(group) for group in GROUPS}
        self.steps: list[tuple[int, Any]] = [
            (14, self.enter),
            (50, self.beat),
            (6, self.leave),
            (7, self.commit),
            (4, self.fetch),
            (2, self.delete_offsets),
            (3, self.delete),
            (7, self.describe),
            (1, self.list),
        ]

    def run(self, count: int) -> None:
        weights, steps = zip(*self.steps, strict=True)
        while self.streams.recorder.requests < count:
            self.random.choices(steps, weights)[0]()

    def _topology(self, group: str) -> Json:
        name = self.streams.group(group)
        log = (topic(f"{name}-changelog"),)
        between = f"{name}-repartition"
        return self.random.choice(
            [
                topology(subtopology("0", "t1")),
                topology(subtopology("0", "t4"), subtopology("1", "t5"), subtopology("2", "t3")),
                topology(subtopology("0", "t4", changelogs=log)),
                topology(subtopology("0", "t1"), subtopology("1", "t4", changelogs=log)),
                topology(
                    subtopology("0", "t4", "t2", sinks=(between,)),
                    subtopology("1", repartition=(topic(between),), changelogs=log),
                ),
            ]
        )

    # Choices

    def _group(self) -> str:
        return self.random.choice(GROUPS)

    def _known(self) -> tuple[str, str]:
        """Group and id of a member, mostly of one that joined."""
        known = [key for key, state in self.streams.known.items() if state["memberEpoch"] > 0]
        if known and self.random.random() < 0.95:
            return self.random.choice(known)
        return self._group(), self.random.choice(MEMBERS)

    def _fields(self) -> Json:
        """Something that a member may say anew."""
        return self.random.choice(
            [
                {},
                {},
                {},
                {"rackId": self.random.choice("ab")},
                {"clientTags": [{"key": "zone", "value": self.random.choice("xy")}]},
                {"userEndpoint": {"host": "h", "port": self.random.randint(1, 3)}},
                {"endpointInformationEpoch": self.random.randint(0, 3)},
            ]
        )

    def _owned(self, group: str, member_id: str) -> Json:
        """What the member owns; sometimes nothing new, less or more than that."""
        choice = self.random.random()
        if choice < 0.12:
            return {}
        if choice < 0.16:
            return tasks({"0": [self.random.randint(0, 5)]})
        owned = self.streams.owned(member_id, group)
        if choice < 0.2:
            return NO_TASKS
        return owned

    # Steps

    def enter(self, **static: Any) -> None:
        group, member_id = self._group(), self.random.choice(MEMBERS)
        sent = self.topologies[group]
        if self.random.random() < 0.04:
            sent = sent | {"epoch": self.random.choice([0, 2])}
        fields = self._fields() | static
        answer = self.streams.enter(member_id, sent, group, **fields, processId=self.random.choice(PROCESSES))
        if any(one["statusCode"] == MISSING_INTERNAL_TOPICS for one in answer["status"] or ()):
            self.streams.await_topics(sent)

    def beat(self) -> None:
        group, member_id = self._known()
        fields = self._fields() | self._owned(group, member_id)
        if self.random.random() < 0.9:
            self.streams.beat(member_id, group, **fields)
        else:
            epoch = self.streams.epoch(member_id, group)
            epoch += self.random.choice([-1, -1, 1])
            if epoch > 0:
                self.streams.heartbeat(member_id, epoch, group, **fields)

    def leave(self) -> None:
        group, member_id = self._known()
        self.streams.leave(member_id, group, **self._leaving(group, member_id))
        self.streams.known.pop((group, member_id), None)

    def _leaving(self, _group: str, _member_id: str) -> Json:
        return {}

    def commit(self) -> None:
        group, member_id = self._known()
        epoch = self.streams.epoch(member_id, group)
        epoch += self.random.choice([0, 0, 0, -1, -2, 1])
        name = self.random.choice(["t1", "t4", "t5"])
        self.streams.commit(name, {self.random.randint(0, 2): self.random.randint(0, 99)}, member_id, epoch, group)

    def fetch(self) -> None:
        group, member_id = self._known()
        epoch = self.streams.epoch(member_id, group)
        if self.random.random() < 0.5:
            self.streams.fetch(None, group=group)
        else:
            self.streams.fetch(None, member_id, epoch + self.random.choice([0, 0, 1]), group)

    def delete_offsets(self) -> None:
        self.streams.delete_offsets(self.random.choice(["t1", "t2", "t4"]), 0, 1, group=self._group())

    def delete(self) -> None:
        self.streams.delete(self._group())

    def describe(self) -> None:
        self.streams.describe(*self.random.sample(GROUPS, self.random.randint(1, 2)))

    def list(self) -> None:
        self.streams.list()


class StaticStreamsWalk(StreamsWalk):
    """A walk with what 4.4 adds: static members that go and come back, and what members report of their tasks."""

    def __init__(self, streams: Streams, seed: int) -> None:
        super().__init__(streams, seed)
        self.steps += [(10, self.enter_static)]

    def enter_static(self) -> None:
        self.enter(instanceId=self.random.choice(INSTANCES))

    def _fields(self) -> Json:
        fields = super()._fields()
        if self.random.random() < 0.85:
            return fields
        kind = self.random.choice(["taskOffsets", "taskEndOffsets"])
        partitions = self.random.sample(range(4), self.random.randint(0, 3))
        name = self.random.choice("01")
        listed = [{"subtopologyId": name, "partition": one, "offset": self.random.randint(0, 9)} for one in partitions]
        return fields | {kind: listed}

    def _leaving(self, group: str, member_id: str) -> Json:
        """A static member mostly leaves for a while."""
        instance_id = self.streams.known.get((group, member_id), {}).get("instanceId")
        if instance_id is None:
            return {}
        return {"instanceId": instance_id, "epoch": AWAY if self.random.random() < 0.8 else -1}
