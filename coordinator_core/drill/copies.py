"""Replicas of offsets partitions, replayed: the state that a broker would load from its copy.

No answer of a drill has metadata, so digests stand for those that are long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator_core.errors import Damage, UsageError
from coordinator_core.fold.cache import FoldCache
from coordinator_core.groups.model import PartitionState, TransactionOutcome
from coordinator_core.log.reader import OnDamage, last_batch
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.releases import Profile
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES
from coordinator_core.topology import Topology


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of an offsets partition, from ``log_start_offset`` up to ``log_end_offset``.

    ``stored_offsets`` counts the committed offsets where ``state`` was read without them.
    """

    state: PartitionState
    log_start_offset: int
    log_end_offset: int
    bytes: int
    stored_offsets: int | None = None

    @property
    def offsets(self) -> int:
        """Committed offsets."""
        return len(self.state.offsets) if self.stored_offsets is None else self.stored_offsets

    @property
    def records(self) -> int:
        """Records a load reads: the state's, and a marker for each transaction that was ended."""
        ended = sum(one.outcome is not TransactionOutcome.OPEN for one in self.state.transactions)
        return sum(self.state.record_counts.values()) + ended


Copies = Mapping[int, Copy]
"""Copies by offsets partition."""


@dataclass(frozen=True, slots=True)
class ClusterLogs:
    """Copies of a cluster's logs: one copy of each partition, and the copies of some brokers."""

    copies: Copies
    by_broker: Mapping[int, Copies]

    def led_by(self, broker_id: int | None, partition: int) -> Copy | None:
        """The broker's own copy where it is given, else the one copy of the partition."""
        own = self.own(broker_id, partition)
        return self.copies.get(partition, own) if own is None or not own.bytes else own

    def own(self, broker_id: int | None, partition: int) -> Copy | None:
        """Copy in the broker's own log directory; ``None`` without the directory, or where it lacks the partition."""
        return None if broker_id is None else self.by_broker.get(broker_id, {}).get(partition)


def cluster_logs(copies: Copies, by_broker: Mapping[int, Copies], topology: Topology) -> ClusterLogs:
    """``copies``, completed by the leader's copy, or by any replica's, of partitions that they lack.

    A partition that no copy has is unknown: brokers and captures keep a directory of a log without a record, too.
    Raises :class:`UsageError` for a broker that the topology does not have, and for partitions beyond its own.
    """
    for broker_id in by_broker:
        if broker_id not in topology.brokers:
            raise UsageError(f"the topology has no broker {broker_id}")
    partitions = topology.offsets_partitions or ()
    for found in (copies, *by_broker.values()):
        beyond = [one for one in found if one >= len(partitions)]
        if beyond:
            raise UsageError(f"the log has offsets partition {beyond[0]}, the topology only {len(partitions)} of them")
    filled = dict(copies)
    for info in partitions:
        for broker_id in (info.leader, *info.replicas):
            copy = by_broker.get(broker_id, {}).get(info.partition)
            if copy is not None:
                filled.setdefault(info.partition, copy)
    return ClusterLogs(filled, by_broker)


def copies_of_snapshot(
    snapshot: Snapshot, profile: Profile, *, on_damage: OnDamage, damage: list[Damage], cache: FoldCache | None = None
) -> dict[int, Copy]:
    """The copies in a snapshot of one broker; damage as :func:`replay_snapshot` treats it."""
    states = replay_snapshot(snapshot, profile, on_damage=on_damage, damage=damage, cache=cache, whole_metadata=False)
    logs = {log.offsets_partition: log for log in snapshot.partitions}
    found = {}
    for state in states:
        log = logs[state.offsets_partition]
        found[state.offsets_partition] = Copy(state, log.start_offset, _log_end_offset(log), log.size)
    return found


def copies_of_run(run: Run, *, offsets: bool = True) -> dict[int, Copy]:
    """The copies that a published run replayed, with their committed offsets or without."""
    sizes = run.log_bytes
    found = {}
    tables = [name for name in TABLES if offsets or name != "offsets"]
    stored: Counter[int] = Counter()
    for _, rows in run.blocks("offsets", TABLES["offsets"].arrow):
        stored.update(rows["offsets_partition"].to_pylist())
    # Tables have no row of a partition without a record.
    states = {state.offsets_partition: state for state in run.states(tables=tables, whole_metadata=False)}
    for number, cut in ((int(name), cut) for name, cut in run.manifest["cut"].items()):
        found[number] = Copy(
            states.get(number) or PartitionState(number),
            cut["log_start_offset"],
            cut["log_end_offset"],
            sizes.get(number, 0),
            stored.get(number, 0),
        )
    return found


def _log_end_offset(log: PartitionLog) -> int:
    last = last_batch(log)
    return max(log.log_start_offset or 0, log.segments[-1].base_offset) if last is None else last.next_offset
