"""Where the partitions of the offsets topic are: brokers, leaders, replicas (``MetadataCache``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from coordinator_core.coordinator.errors import Errors

NO_LEADER = -1
DEFAULT_LISTENER = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as a client of one listener reaches it."""

    node_id: int
    host: str
    port: int


NO_NODE = Node(-1, "", -1)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A registered broker: host and port by listener name. A fenced one is registered and not alive."""

    node_id: int
    listeners: Mapping[str, tuple[str, int]]
    rack: str | None = None
    alive: bool = True


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as the controller has it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition as a client of a listener is told of it."""

    error: Errors
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Brokers, and the partitions of the offsets topic (``None``: it was never created)."""

    brokers: Mapping[int, BrokerInfo]
    partitions: tuple[PartitionInfo, ...] | None = field(default=None)

    def node(self, node_id: int, listener: str = DEFAULT_LISTENER) -> Node | None:
        """The broker when it is alive and has the listener (``getAliveBrokerNode``)."""
        broker = self.brokers.get(node_id)
        if broker is None or not broker.alive or listener not in broker.listeners:
            return None
        return Node(node_id, *broker.listeners[listener])

    def partition_metadata(self, partition: int, listener: str = DEFAULT_LISTENER) -> PartitionMetadata:
        """``KRaftMetadataCache.getPartitionMetadata``, which names the first thing that is wrong."""
        assert self.partitions is not None
        info = self.partitions[partition]

        def reachable(ids: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(one for one in ids if self.node(one, listener) is not None)

        replicas, isr = reachable(info.replicas), reachable(info.isr)
        leader = info.leader
        if self.node(leader, listener) is None:
            broker = self.brokers.get(leader)
            gone = broker is None or not broker.alive
            error = Errors.LEADER_NOT_AVAILABLE if gone else Errors.LISTENER_NOT_FOUND
            leader = NO_LEADER
        elif len(replicas) < len(info.replicas) or len(isr) < len(info.isr):
            error = Errors.REPLICA_NOT_AVAILABLE
        else:
            error = Errors.NONE
        offline = tuple(one for one in info.replicas if self.node(one, listener) is None)
        return PartitionMetadata(error, leader, info.leader_epoch, replicas, isr, offline)

    def without(self, *node_ids: int, unclean: bool = False) -> Topology:
        """The topology once brokers are lost: the first in-sync replica that is left leads, in a new epoch.

        With ``unclean`` a replica that is not in sync may lead when no other is left.
        """
        brokers = {
            one: replace(info, alive=info.alive and one not in node_ids) for one, info in self.brokers.items()
        }
        if self.partitions is None:
            return Topology(brokers)
        return Topology(brokers, tuple(_elected(info, brokers, unclean) for info in self.partitions))


def _elected(info: PartitionInfo, brokers: Mapping[int, BrokerInfo], unclean: bool) -> PartitionInfo:
    def alive(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(one for one in ids if one in brokers and brokers[one].alive)

    if alive((info.leader,)):
        return replace(info, isr=alive(info.isr))
    in_sync = alive(info.isr)
    candidates = [one for one in info.replicas if one in in_sync]
    if not candidates and unclean:
        candidates = list(alive(info.replicas))
    if not candidates:
        return replace(info, leader=NO_LEADER, leader_epoch=info.leader_epoch + 1)
    isr = in_sync or (candidates[0],)
    return replace(info, leader=candidates[0], isr=isr, leader_epoch=info.leader_epoch + 1)
