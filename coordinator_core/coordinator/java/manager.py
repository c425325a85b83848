"""The Java coordinator's state: groups of all types and offsets, changed by the records it appends.

Source: ``GroupMetadataManager`` and ``GroupCoordinatorShard`` on ``CoordinatorRuntime``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from coordinator_core.coordinator.classic import LiveClassicGroup
from coordinator_core.coordinator.errors import JAVA_ERRORS, JAVA_GROUP_ERRORS, ApiError, AppendError, Errors
from coordinator_core.coordinator.java.consumer_group import LiveConsumerGroup
from coordinator_core.coordinator.java.group import Group, JavaClassicGroup
from coordinator_core.coordinator.java.offsets import OffsetMetadataManager
from coordinator_core.coordinator.java.share_group import LiveShareGroup
from coordinator_core.coordinator.java.streams_group import LiveStreamsRecords
from coordinator_core.coordinator.log import NO_PRODUCER_ID, LogRecord, OffsetsLog, Record
from coordinator_core.coordinator.manager import GroupMetadataManager
from coordinator_core.coordinator.maps import TimelineHashMap
from coordinator_core.coordinator.rebalance import Rebalances
from coordinator_core.coordinator.records import group_metadata, offset_key_of
from coordinator_core.coordinator.rules import ReleaseRules
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock
from coordinator_core.groups.loaders import JavaGroups, LoadedRecord, LoadError
from coordinator_core.groups.model import ClassicGroup, LoadFailure, ShareTopic
from coordinator_core.groups.modern import ConsumerRecords, ShareRecords
from coordinator_core.releases import OFFSET_KEY_TYPES, Profile


class LiveConsumerRecords(ConsumerRecords):
    group_class = LiveConsumerGroup


class LiveShareRecords(ShareRecords):
    group_class = LiveShareGroup


class JavaGroupMetadataManager(GroupMetadataManager[Group]):
    """Writes are appended and then replayed; a load replays alone.

    As in Kafka, classic groups are the exception: a rebalance changes them in memory, and what is then
    written is not replayed (``CoordinatorResult`` with ``replayRecords`` false). Only a load reads it.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock, log: OffsetsLog, profile: Profile) -> None:
        super().__init__(settings, clock, log)
        self.profile = profile
        self.rules = ReleaseRules.of(profile)
        self.groups = TimelineHashMap()
        kinds = (LiveConsumerRecords, LiveShareRecords, LiveStreamsRecords)
        self._replay = JavaGroups(profile, self.groups, self._live, kinds)
        self.offsets: dict[int, OffsetMetadataManager] = {}
        """Offsets and open transactions, by offsets partition."""
        self.rebalances = Rebalances(settings, self.rules, clock, self.timers, self)
        self.on_loaded: dict[type, Callable[[Any], None]] = {JavaClassicGroup: self.rebalances.loaded}
        """What the end of a load does to a group, by its class."""
        self._unwritten: dict[int, set[str]] = {}
        """Groups that no record was written for yet, by partition: reads do not see them."""
        self._loading = -1
        self.load_failures: list[LoadFailure] = []
        """Records at which Kafka gives a load up. The model reads on, as every replay does."""

    @property
    def share_topics(self) -> dict[str, tuple[ShareTopic, ...]]:
        """Share-partitions by group, as records say."""
        return self._replay.share_topics

    # Groups

    def new_group(self, group_id: str) -> JavaClassicGroup:
        return JavaClassicGroup(group_id, self.rules, self.clock.now_ms)

    def new_consumer_group(self, group_id: str, records: Iterable[Record] = ()) -> LiveConsumerGroup:
        """The consumer group that these records make of nothing; :class:`LoadError` where one is refused."""
        consumers = LiveConsumerRecords({}, self.profile)
        handlers = consumers.handlers()
        group: LiveConsumerGroup = consumers.group(group_id, create=True)
        for record in records:
            _, key_type, key, _, value = record.at(-1)
            handlers[key_type](-1, key, value)
        return group

    def has_group(self, group: LiveClassicGroup) -> bool:
        current: object = self.groups.get(group.group_id)
        return current is group

    def shard(self, partition: int) -> OffsetMetadataManager:
        return self.offsets.setdefault(partition, OffsetMetadataManager(self.settings, self.profile))

    def offsets_of(self, group_id: str) -> OffsetMetadataManager:
        return self.shard(self.partition_for(group_id))

    def num_offsets(self, group_id: str) -> int:
        return sum(1 for _ in self.offsets_of(group_id).offsets.of(group_id))

    def get_or_create_classic(self, group_id: str, create: bool) -> JavaClassicGroup:
        """Raises GROUP_ID_NOT_FOUND for a group of another type, and for none unless ``create``."""
        group = self.groups.get(group_id)
        if group is None and create:
            group = self.groups[group_id] = self.new_group(group_id)
            self._unwritten.setdefault(self.partition_for(group_id), set()).add(group_id)
        if group is None:
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Classic group {group_id} not found.")
        if not isinstance(group, JavaClassicGroup):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a classic group.")
        return group

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def written_group(self, group_id: str) -> Group:
        """The group as a read sees it: as of the last record that was written."""
        if group_id in self._unwritten.get(self.partition_for(group_id), ()):
            raise ApiError(Errors.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return self.group(group_id)

    def written_groups(self) -> Iterator[Group]:
        unwritten = set().union(*self._unwritten.values())
        return (group for group_id, group in self.groups.items() if group_id not in unwritten)

    def revert(self, group_id: str, written: Group | None) -> None:
        """The group is again the one that its last record made: the log refused the next record."""
        del self.groups[group_id]
        self._unwritten[self.partition_for(group_id)].discard(group_id)
        if written is not None:
            self.groups[group_id] = written

    # Writes

    def write(
        self,
        partition: int,
        records: Sequence[Record],
        *,
        replay: bool = True,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> None:
        """Append one batch and take it over; :class:`ApiError` when the log refuses it, nothing changed."""
        if not records:
            return
        try:
            base = self.log.append(
                partition, records, self.clock.now_ms, producer_id=producer_id, producer_epoch=producer_epoch
            )
        except AppendError as error:
            raise ApiError(JAVA_ERRORS.get(error.error, error.error)) from None
        self._unwritten.pop(partition, None)
        if replay:
            for offset, record in enumerate(records, base):
                self.replay(record.at(offset), producer_id, producer_epoch)

    def write_group(self, group_id: str, records: Sequence[Record]) -> None:
        """Append one batch about a group to its partition; raises as :meth:`write`."""
        self.write(self.partition_for(group_id), records)

    def store_group(
        self, group: LiveClassicGroup, assignment: dict[str, bytes], done: Callable[[Errors], None]
    ) -> None:
        """The group is in memory already: its record is not replayed."""
        partition = self.partition_for(group.group_id)
        try:
            self.log.append(partition, [group_metadata(group.recorded(assignment))], self.clock.now_ms)
        except AppendError as error:
            done(JAVA_GROUP_ERRORS.get(error.error, error.error))
            return
        self._unwritten.pop(partition, None)
        done(Errors.NONE)

    # The state machine

    def replay(self, record: LoadedRecord, producer_id: int, producer_epoch: int) -> None:
        if record.key_type not in OFFSET_KEY_TYPES:
            self._replay.apply(record)
            return
        offset_key = offset_key_of(record)
        if record.value is not None:
            self._replay.touch(offset_key.group_id)
        self.offsets_of(offset_key.group_id).replay(offset_key, record, producer_id, producer_epoch)

    def _live(self, loaded: ClassicGroup) -> JavaClassicGroup:
        return self.new_group(loaded.group_id).restored(loaded)

    # Sweeps

    def cleanup_expired_offsets(self, partition: int) -> int:
        """One sweep of a partition's groups in one batch; returns how many tombstones of offsets it wrote."""
        records: list[Record] = []
        count = 0
        for group_id, group in self.groups.items():
            if self.partition_for(group_id) != partition or isinstance(group, LiveShareGroup):
                continue
            all_expired, tombstones = self.shard(partition).expired_records(group_id, group, self.clock.now_ms)
            records += tombstones
            count += len(tombstones)
            if all_expired and group.is_empty:
                records += group.tombstones()
        self.write(partition, records)
        return count

    def start_sweeps(self, first_ms: int) -> None:
        """Sweep at ``first_ms`` and each ``offsets.retention.check.interval.ms`` after it."""
        for partition in self.partitions:
            self._schedule_sweep(partition, first_ms - self.clock.now_ms)

    def _schedule_sweep(self, partition: int, delay_ms: int) -> None:
        self.timers.schedule(("sweep", str(partition)), delay_ms, lambda: self._sweep(partition))

    def _sweep(self, partition: int) -> None:
        self._schedule_sweep(partition, self.settings.offsets_retention_check_interval_ms)
        try:
            self.cleanup_expired_offsets(partition)
        except ApiError:
            # Tried again with the next sweep.
            return

    # Load and unload

    def start_of_load(self, partition: int) -> None:
        self._loading = partition

    def apply(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.control is not None:
                self.shard(self._loading).end_transaction(record.producer_id, record.control == "COMMIT")
                continue
            try:
                self.replay(record.decoded(), record.producer_id, record.producer_epoch)
            except LoadError as error:
                self.load_failures.append(LoadFailure(record.offset, str(error)))

    def end_of_load(self, partition: int) -> None:
        for group_id, group in self.groups.items():
            if self.partition_for(group_id) == partition:
                self.on_loaded[type(group)](group)
        self._schedule_sweep(partition, self.settings.offsets_retention_check_interval_ms)

    def unload_group(self, group_id: str, group: Group) -> None:
        if isinstance(group, JavaClassicGroup):
            self.rebalances.unloaded(group)
        for key in group.timer_keys():
            self.timers.cancel(key)

    def end_of_unload(self, partition: int) -> None:
        self.timers.cancel(("sweep", str(partition)))
        self.offsets.pop(partition, None)
        self._unwritten.pop(partition, None)
