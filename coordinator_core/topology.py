"""Brokers, who holds and leads which partition (``topology.json``), and how Kafka elects leaders."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.jsontext import fields_of, parse_json, to_json
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.untrusted import INT32_END

TOPOLOGY_VERSION = 1
NO_LEADER = -1
NO_EPOCH = -1
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether Kafka lets a topic have this name (``org.apache.kafka.common.internals.Topic.validate``).

    Such a name is one component of a path, and never ``.`` or ``..``.
    """
    return _TOPIC_NAME.fullmatch(name) is not None and name not in (".", "..")


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker: host and port by listener name. A fenced one is registered and not alive.

    ``log_dirs`` are its log directories where they are known. ``rack`` is ``None`` where none is configured.
    """

    broker_id: int
    listeners: Mapping[str, tuple[str, int]]
    rack: str | None = None
    alive: bool = True
    log_dirs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as the controller has it. ``replicas`` are in the order of the assignment.

    ``leader`` is -1 while there is none, ``leader_epoch`` -1 where it is not known. ``elr`` are the
    eligible leader replicas (KIP-966), which may lead while nobody is in sync.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic. ``topic_id`` is the 22-character text, ``None`` before Kafka 2.8."""

    name: str
    topic_id: str | None
    partitions: tuple[PartitionInfo, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """A cluster at one moment. Of topics there may be only some; partitions are 0 to n-1, in order.

    ``controller_id`` is that of answers to clients, with KRaft any broker; ``active_controller_id`` the one that
    decides, ``None`` where it is not known.
    """

    brokers: Mapping[int, BrokerInfo]
    topics: Mapping[str, TopicInfo]
    cluster_id: str | None = None
    captured_at_ms: int | None = None
    controller_id: int | None = None
    active_controller_id: int | None = None
    voters: tuple[int, ...] = ()

    @classmethod
    def of_offsets(cls, brokers: Mapping[int, BrokerInfo], partitions: Sequence[PartitionInfo]) -> Topology:
        """Brokers and the offsets topic alone."""
        return cls(brokers, {OFFSETS_TOPIC: TopicInfo(OFFSETS_TOPIC, None, tuple(partitions))})

    @property
    def offsets_partitions(self) -> tuple[PartitionInfo, ...] | None:
        """The partitions of the offsets topic; ``None``: it was never created."""
        topic = self.topics.get(OFFSETS_TOPIC)
        return None if topic is None else topic.partitions

    @property
    def offsets_leaders(self) -> dict[int, int]:
        """Leaders of the offsets partitions that have one."""
        return {one.partition: one.leader for one in self.offsets_partitions or () if one.leader != NO_LEADER}

    def is_alive(self, broker_id: int) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.alive

    def racks(self) -> dict[str, tuple[int, ...]]:
        """Broker ids by rack, of brokers that have one."""
        found: dict[str, tuple[int, ...]] = {}
        for broker in self.brokers.values():
            if broker.rack is not None:
                found[broker.rack] = (*found.get(broker.rack, ()), broker.broker_id)
        return found

    def without(self, *broker_ids: int, unclean: bool = False) -> Topology:
        """Once brokers are lost, or shut down: see :func:`elected`."""
        lost = self._with_alive(broker_ids, alive=False)
        return lost._each(lambda info: elected(info, lost.is_alive, unclean=unclean))

    def has_quorum_without(self, *broker_ids: int) -> bool:
        """Whether a majority of the controllers is left; true where the voters are not known."""
        left = [one for one in self.voters if one not in broker_ids]
        return not self.voters or 2 * len(left) > len(self.voters)

    def unled_without(self, *broker_ids: int) -> Topology:
        """Once brokers are lost and no controller is left that could elect others."""

        def unled(info: PartitionInfo) -> PartitionInfo:
            return replace(info, leader=NO_LEADER) if info.leader in broker_ids else info

        return self._with_alive(broker_ids, alive=False)._each(unled)

    def restored(self, *broker_ids: int) -> Topology:
        """Once brokers are back and in sync. Leaders stay; a partition without one gets one."""
        back = self._with_alive(broker_ids, alive=True)

        def rejoined(info: PartitionInfo) -> PartitionInfo:
            info = elected(info, back.is_alive)
            added = tuple(one for one in broker_ids if one in info.replicas and one not in info.isr)
            # Without a leader there is nobody to be in sync with.
            return info if info.leader == NO_LEADER else replace(info, isr=info.isr + added)

        return back._each(rejoined)

    def with_preferred_leaders(self) -> Topology:
        """Once the first replica of every partition leads where it may (``PartitionChangeBuilder``)."""

        def preferred(info: PartitionInfo) -> PartitionInfo:
            first = info.replicas[0]
            if first == info.leader or first not in info.isr or not self.is_alive(first):
                return info
            return replace(info, leader=first, leader_epoch=_next_epoch(info))

        return self._each(preferred)

    def _with_alive(self, broker_ids: Sequence[int], *, alive: bool) -> Topology:
        changed = {one: replace(self.brokers[one], alive=alive) for one in broker_ids}
        return replace(self, brokers={**self.brokers, **changed})

    def _each(self, change: Callable[[PartitionInfo], PartitionInfo]) -> Topology:
        return replace(
            self,
            topics={
                name: replace(topic, partitions=tuple(change(info) for info in topic.partitions))
                for name, topic in self.topics.items()
            },
        )

    def document(self) -> dict[str, Any]:
        """``topology.json``."""
        return {
            "topology_version": TOPOLOGY_VERSION,
            **fields_of(self, "cluster_id", "captured_at_ms", "controller_id", "active_controller_id"),
            "voters": list(self.voters),
            "brokers": [_broker_document(self.brokers[one]) for one in sorted(self.brokers)],
            "topics": {
                topic.name: {
                    "topic_id": topic.topic_id,
                    "partitionInfo": [_partition_document(info) for info in topic.partitions],
                }
                for topic in self.topics.values()
            },
        }


def elected(info: PartitionInfo, is_alive: Callable[[int], bool], *, unclean: bool = False) -> PartitionInfo:
    """The partition once the controller has looked at it: a leader that is alive and in sync stays.

    Else the first replica of the assignment that is alive and in sync leads in a new epoch, or an eligible
    one (KIP-966) while nobody is in sync; with ``unclean`` the first that is alive. The last replica in
    sync is not taken out. Source: ``PartitionChangeBuilder.electAnyLeader``; the same with ZooKeeper
    (``PartitionLeaderElectionAlgorithms.offlinePartitionLeaderElection``). Brokers lost together are fenced
    one after the other; a partition may pass through another that is lost, so its epoch may be larger than
    this one.
    """
    in_sync = tuple(one for one in info.isr if is_alive(one))
    if info.leader in in_sync:
        return replace(info, isr=in_sync)
    eligible = in_sync or tuple(one for one in info.elr if is_alive(one))
    candidates = [one for one in info.replicas if one in eligible]
    if candidates:
        isr = in_sync or (candidates[0],)
    elif unclean:
        candidates = [one for one in info.replicas if is_alive(one)]
        isr = tuple(candidates[:1])
    if candidates:
        return replace(info, leader=candidates[0], isr=isr, leader_epoch=_next_epoch(info))
    if info.leader == NO_LEADER:
        return info
    return replace(info, leader=NO_LEADER, leader_epoch=_next_epoch(info))


def _next_epoch(info: PartitionInfo) -> int:
    return NO_EPOCH if info.leader_epoch == NO_EPOCH else info.leader_epoch + 1


def load_topology(path: str) -> Topology:
    """The topology that :meth:`Topology.document` wrote to the file ``path``.

    Brokers, replicas and epochs may be missing, as in descriptions made by other tools; leaders may not.
    Raises :class:`UsageError` for another form, or when partitions are not 0 to n-1.
    """
    try:
        # Beside a log it may be a pipe or a device.
        document = parse_json(bytes(storage.read(path)))
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
    try:
        topics = {
            topic: _topic(topic, described)
            for topic, described in document["topics"].items()
            if "partitionInfo" in described
        }
        offsets = topics[OFFSETS_TOPIC]
        brokers = {one["broker_id"]: _broker(one) for one in document.get("brokers") or _mentioned(offsets.partitions)}
        topology = Topology(
            brokers,
            topics,
            document.get("cluster_id"),
            document.get("captured_at_ms"),
            document.get("controller_id"),
            document.get("active_controller_id"),
            _ids(document.get("voters")),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UsageError(
            f'{path}: expected {{"topics": {{"{OFFSETS_TOPIC}": {{"partitionInfo": '
            '[{"partition": 0, "leader": 1}, …]}}}'
        ) from None
    for topic in topics.values():
        if [info.partition for info in topic.partitions] != list(range(len(topic.partitions) or 1)):
            raise UsageError(f"{path}: the partitions of {topic.name} are not 0 to n-1")
    return topology


def _topic(name: str, described: Any) -> TopicInfo:
    infos = (partition_info(one) for one in described["partitionInfo"])
    return TopicInfo(name, described.get("topic_id"), tuple(sorted(infos, key=lambda info: info.partition)))


def partition_info(one: Any) -> PartitionInfo:
    """A partition in the form of ``topology.json`` and ``topics.json``; ``KeyError`` and the like for another."""
    leader, epoch = one["leader"], one.get("leader_epoch")
    return PartitionInfo(
        partition=_int32(one["partition"]),
        leader=NO_LEADER if leader is None else max(NO_LEADER, _int32(leader)),
        leader_epoch=NO_EPOCH if epoch is None else _int32(epoch),
        replicas=_ids(one.get("replicas")),
        isr=_ids(one.get("isr")),
        offline_replicas=_ids(one.get("offline_replicas")),
        elr=_ids(one.get("elr")),
    )


def _ids(values: Any) -> tuple[int, ...]:
    return tuple(map(_int32, values or ()))


def _int32(value: Any) -> int:
    """A number of Kafka's, which is an int32; ``ValueError`` for anything else."""
    if type(value) is not int or not -INT32_END <= value < INT32_END:
        raise ValueError(value)
    return value


def _broker(one: Any) -> BrokerInfo:
    listeners = {
        str(listener["security_protocol"]): (str(listener["host"]), _int32(listener["port"]))
        for listener in one.get("listeners", ())
    }
    rack = one.get("rack")
    if not (rack is None or isinstance(rack, str)):
        raise TypeError(one)
    return BrokerInfo(
        _int32(one["broker_id"]), listeners, rack, bool(one.get("alive", True)), tuple(one.get("log_dirs", ()))
    )


def _mentioned(partitions: Sequence[PartitionInfo]) -> list[dict[str, int]]:
    ids = {one for info in partitions for one in (info.leader, *info.replicas)} - {NO_LEADER}
    return [{"broker_id": one} for one in sorted(ids)]


def _broker_document(broker: BrokerInfo) -> dict[str, Any]:
    return {
        **fields_of(broker, "broker_id", "rack", "alive"),
        "listeners": [
            {"host": host, "port": port, "security_protocol": name} for name, (host, port) in broker.listeners.items()
        ],
        "log_dirs": list(broker.log_dirs),
    }


def _partition_document(info: PartitionInfo) -> dict[str, Any]:
    found: dict[str, Any] = to_json(info)
    return found | {"leader": None if info.leader == NO_LEADER else info.leader}
