"""Brokers and partitions as a client of one listener sees them (``MetadataCache``)."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator_core.coordinator.errors import Errors
from coordinator_core.topology import NO_LEADER, Topology

DEFAULT_LISTENER = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as a client of one listener reaches it."""

    node_id: int
    host: str
    port: int


NO_NODE = Node(-1, "", -1)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition as a client of a listener sees it."""

    error: Errors
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


def alive_node(topology: Topology, broker_id: int, listener: str) -> Node | None:
    """The broker when it is alive and has the listener (``getAliveBrokerNode``)."""
    broker = topology.brokers.get(broker_id)
    if broker is None or not broker.alive or listener not in broker.listeners:
        return None
    return Node(broker_id, *broker.listeners[listener])


def partition_metadata(topology: Topology, partition: int, listener: str = DEFAULT_LISTENER) -> PartitionMetadata:
    """``KRaftMetadataCache.getPartitionMetadata`` of the offsets topic. Its error is of the first failed check."""
    assert topology.offsets_partitions is not None
    info = topology.offsets_partitions[partition]

    def reachable(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(one for one in ids if alive_node(topology, one, listener) is not None)

    replicas, isr = reachable(info.replicas), reachable(info.isr)
    leader = info.leader
    if alive_node(topology, leader, listener) is None:
        gone = not topology.is_alive(leader)
        error = Errors.LEADER_NOT_AVAILABLE if gone else Errors.LISTENER_NOT_FOUND
        leader = NO_LEADER
    elif len(replicas) < len(info.replicas) or len(isr) < len(info.isr):
        error = Errors.REPLICA_NOT_AVAILABLE
    else:
        error = Errors.NONE
    offline = tuple(one for one in info.replicas if one not in replicas)
    return PartitionMetadata(error, leader, info.leader_epoch, replicas, isr, offline)
