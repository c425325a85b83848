"""Records of brokers' expiry sweeps, told apart from the rest of a log; and what a planned sweep removes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.lifecycle.plan import ExpiryPlan
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from coordinator_core.log.types import Batch, PartitionLog, Record
from coordinator_core.releases import Profile
from coordinator_core.replay.sequential import SequentialReplayer

SAME_SWEEP_MS = 300
"""The Scala coordinator writes a batch for every group; those of one sweep lie closer together than this."""

Batches = list[tuple[Batch, Sequence[Record]]]


@dataclass
class Sweep:
    """Keys of the tombstones that one sweep wrote, between two times, to one partition."""

    base_offset: int
    next_offset: int
    first_ms: int
    last_ms: int
    keys: set[bytes]


def logs(paths: Sequence[str]) -> dict[int, PartitionLog]:
    return {log.offsets_partition: log for log in discover(paths).partitions}


def batches_of(log: PartitionLog) -> Batches:
    return [(batch, records) for _, batch, records in read_records(log, damage=[])]


def log_end(log: PartitionLog | None) -> int:
    """0 for a partition that was not there."""
    ends = [batch.next_offset for batch, _ in batches_of(log)] if log is not None else []
    return ends[-1] if ends else 0


def state_before(batches: Batches, offset: int, profile: Profile, offsets_partition: int) -> PartitionState:
    """State that the broker would load of the log below ``offset``."""
    replayer = SequentialReplayer(profile, offsets_partition)
    for batch, records in batches:
        if batch.base_offset < offset:
            replayer.replay_batch(batch, records)
    return replayer.finish()


def expired_offset_keys(plan: ExpiryPlan) -> set[OffsetKey]:
    """The offsets that the tombstones of a plan delete."""
    return {one.offset_key for one in plan.tombstones if one.offset_key is not None}


def is_tombstones(batch: Batch, records: Sequence[Record]) -> bool:
    return not batch.is_control and bool(records) and all(record.value is None for record in records)


def sweeps_of(batches: Batches, from_offset: int) -> list[Sweep]:
    """The sweeps from ``from_offset`` on. Nothing but sweeps may have written whole batches of tombstones."""
    found: list[Sweep] = []
    for batch, records in batches:
        if batch.base_offset < from_offset or not is_tombstones(batch, records):
            continue
        times = [record.timestamp_ms for record in records]
        keys = {record.key for record in records if record.key is not None}
        new = Sweep(batch.base_offset, batch.next_offset, min(times), max(times), keys)
        if found and new.first_ms - found[-1].last_ms < SAME_SWEEP_MS:
            found[-1].next_offset, found[-1].last_ms = new.next_offset, new.last_ms
            found[-1].keys |= new.keys
        else:
            found.append(new)
    return found
