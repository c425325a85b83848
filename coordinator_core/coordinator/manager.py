"""The group metadata manager of one broker: which partitions it owns or loads, and the groups it serves.

Source: ``GroupMetadataManager`` (Scala); the Java coordinator's runtime keeps the same states per partition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from coordinator_core.coordinator.log import LogRecord, OffsetsLog
from coordinator_core.coordinator.rebalance import Rebalances
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock, Timers
from coordinator_core.groups.hashing import partition_for

G = TypeVar("G")


class LoadState(StrEnum):
    """State of an offsets partition on a broker. Absent means that the broker does not lead it."""

    LOADING = "loading"
    OWNED = "owned"


@dataclass(frozen=True, slots=True)
class Loaded:
    """Size of a load: records, bytes of keys and values, count of buffers."""

    offsets_partition: int
    records: int
    bytes: int
    buffers: int


@dataclass(frozen=True, slots=True)
class Unloaded:
    """Counts of an unload ("Finished unloading … Removed N cached offsets and M groups")."""

    offsets_partition: int
    groups: int
    offsets: int


class GroupMetadataManager(ABC, Generic[G]):
    """Groups by id, partitions by state. ``G`` is the coordinator's class of groups."""

    rebalances: Rebalances

    def __init__(self, settings: BrokerSettings, clock: Clock, log: OffsetsLog) -> None:
        self.settings = settings
        self.clock = clock
        self.timers = Timers(clock)
        self.log = log
        self.groups: dict[str, G] = {}
        self.partitions: dict[int, LoadState] = {}
        self._epochs: dict[int, int] = {}

    # Groups (A2)

    def get_group(self, group_id: str) -> G | None:
        return self.groups.get(group_id)

    def get_or_maybe_create_group(self, group_id: str, create: bool) -> G | None:
        """The group, made Empty when it is absent and ``create`` says so."""
        group = self.groups.get(group_id)
        if group is None and create:
            group = self.add_group(group_id, self.new_group(group_id))
        return group

    def add_group(self, group_id: str, group: G) -> G:
        """Keep the first of two groups of one id, and return it."""
        return self.groups.setdefault(group_id, group)

    @abstractmethod
    def new_group(self, group_id: str) -> G:
        """An Empty group."""

    # Partitions (A1)

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self.settings.offsets_topic_num_partitions)

    def state_of(self, group_id: str) -> LoadState | None:
        return self.partitions.get(self.partition_for(group_id))

    @property
    def is_loading(self) -> bool:
        return LoadState.LOADING in self.partitions.values()

    def _accepts_epoch(self, partition: int, epoch: int | None) -> bool:
        """A call with an older leader epoch than was seen is stale (``maybeUpdateCoordinatorEpoch``)."""
        current = self._epochs.get(partition)
        if epoch is None:
            return True
        if current is not None and epoch < current:
            return False
        self._epochs[partition] = epoch
        return True

    # Load and unload (A3, A4)

    def begin_load(self, partition: int, epoch: int) -> bool:
        """This broker became the leader in ``epoch``; false when the call is stale or changes nothing."""
        if not self._accepts_epoch(partition, epoch) or partition in self.partitions:
            return False
        self.partitions[partition] = LoadState.LOADING
        return True

    def finish_load(self, partition: int) -> Loaded | None:
        """Read the partition and serve it; ``None`` when it is no longer (or not yet) being loaded."""
        if self.partitions.get(partition) is not LoadState.LOADING:
            return None
        records = size = buffers = 0
        self.start_of_load(partition)
        for buffer in self.log.read(partition, self.settings.offsets_load_buffer_size):
            buffers += 1
            records += len(buffer)
            size += sum(record.size for record in buffer)
            self.apply(buffer)
        self.partitions[partition] = LoadState.OWNED
        self.end_of_load(partition)
        return Loaded(partition, records, size, buffers)

    def load(self, partition: int, epoch: int) -> Loaded | None:
        """Both at once, for a broker whose load takes no time."""
        return self.finish_load(partition) if self.begin_load(partition, epoch) else None

    def unload(self, partition: int, epoch: int | None) -> Unloaded | None:
        """This broker leads the partition no longer (``removeGroupsForPartition``); ``None`` when stale."""
        if not self._accepts_epoch(partition, epoch):
            return None
        self.partitions.pop(partition, None)
        removed = [group_id for group_id in self.groups if self.partition_for(group_id) == partition]
        offsets = sum(self.num_offsets(group_id) for group_id in removed)
        for group_id in removed:
            self.unload_group(group_id, self.groups[group_id])
            del self.groups[group_id]
        self.end_of_unload(partition)
        return Unloaded(partition, len(removed), offsets)

    @abstractmethod
    def start_of_load(self, partition: int) -> None:
        """A load begins."""

    @abstractmethod
    def apply(self, records: Sequence[LogRecord]) -> None:
        """Take over one buffer of the log, whole batches in order."""

    @abstractmethod
    def end_of_load(self, partition: int) -> None:
        """All of the partition was applied: sessions begin."""

    @abstractmethod
    def unload_group(self, group_id: str, group: G) -> None:
        """The group goes Dead; who waits is told NOT_COORDINATOR; nothing is written."""

    @abstractmethod
    def end_of_unload(self, partition: int) -> None:
        """All groups of the partition are gone."""

    @abstractmethod
    def num_offsets(self, group_id: str) -> int:
        """Committed offsets of the group."""
