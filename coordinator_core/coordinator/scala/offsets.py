"""Offsets in the Scala coordinator: stored, fetched, removed (``GroupMetadataManager``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from coordinator_core.coordinator.classic import LiveClassicGroup
from coordinator_core.coordinator.errors import SCALA_COMMIT_ERRORS, SCALA_GROUP_ERRORS, AppendError, Errors
from coordinator_core.coordinator.log import NO_PRODUCER_ID, LogRecord, OffsetsLog, Record
from coordinator_core.coordinator.manager import GroupMetadataManager
from coordinator_core.coordinator.maps import (
    JavaHashMap,
    ScalaHashMap,
    TopicIdPartition,
    TopicPartition,
    scala_map_order,
    scala_trie_order,
)
from coordinator_core.coordinator.rebalance import Rebalances
from coordinator_core.coordinator.records import (
    GROUP_METADATA,
    group_metadata,
    group_tombstone,
    offset_key_of,
    offset_tombstone,
)
from coordinator_core.coordinator.rules import SCALA, SCALA_PROFILE
from coordinator_core.coordinator.scala.group import ScalaGroup
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.timers import Clock
from coordinator_core.groups.loaders import LoadedRecord, ScalaGroups
from coordinator_core.groups.model import ClassicGroup, CommittedOffset, GroupState, OffsetKey
from coordinator_core.groups.offsets import Offsets
from coordinator_core.releases import OFFSET_KEY_TYPES
from coordinator_core.replay.interpret import committed_offset, offset_rules

Commits = dict[TopicIdPartition, Record | None]
"""The record of each partition that a request commits; ``None`` where its metadata is too long."""
CommitErrors = dict[TopicIdPartition, Errors]
Fetched = tuple[TopicPartition, CommittedOffset | None, Errors]


class ScalaGroupMetadataManager(GroupMetadataManager[ScalaGroup]):
    """Groups with their offsets, and the log they are kept in."""

    def __init__(self, settings: BrokerSettings, clock: Clock, log: OffsetsLog) -> None:
        super().__init__(settings, clock, log)
        self.groups = JavaHashMap()
        self.rebalances = Rebalances(settings, SCALA, clock, self.timers, self)
        self.open_groups: dict[int, set[str]] = {}
        """Groups with pending commits, by producer id (``openGroupsForProducer``)."""
        self._loading = _Load(self._live)
        self._sweep(first=True)

    def new_group(self, group_id: str) -> ScalaGroup:
        return ScalaGroup(group_id, self.clock.now_ms)

    def has_group(self, group: LiveClassicGroup) -> bool:
        return self.groups.get(group.group_id) is group

    def num_offsets(self, group_id: str) -> int:
        return len(self.groups[group_id].offsets)

    # Writes (A5)

    def _append(
        self, group_id: str, records: Sequence[Record], producer_id: int = NO_PRODUCER_ID, epoch: int = -1
    ) -> int:
        partition = self.partition_for(group_id)
        return self.log.append(partition, records, self.clock.now_ms, producer_id=producer_id, producer_epoch=epoch)

    def store_group(
        self, group: LiveClassicGroup, assignment: dict[str, bytes], done: Callable[[Errors], None]
    ) -> None:
        if self.state_of(group.group_id) is None:
            done(Errors.NOT_COORDINATOR)
            return
        try:
            self._append(group.group_id, [group_metadata(group.recorded(assignment))])
        except AppendError as error:
            done(SCALA_GROUP_ERRORS.get(error.error, error.error))
        else:
            done(Errors.NONE)

    def store_offsets(
        self, group: ScalaGroup, commits: Commits, producer_id: int = NO_PRODUCER_ID, epoch: int = -1
    ) -> CommitErrors:
        """Append the commits whose metadata fits, then fill the cache. A failed append takes pending commits back.

        Records are appended in the order of the map that the request was put into.
        """
        requested: Commits = ScalaHashMap(commits)
        fitting = {offset_key: record for offset_key in scala_map_order(requested) if (record := commits[offset_key])}
        if len(commits) > 4:
            fitting = {offset_key: fitting[offset_key] for offset_key in scala_trie_order(fitting)}
        if not fitting:
            return dict.fromkeys(commits, Errors.OFFSET_METADATA_TOO_LARGE)
        if self.state_of(group.group_id) is None:
            return dict.fromkeys(commits, Errors.NOT_COORDINATOR)
        in_transaction = producer_id != NO_PRODUCER_ID
        result = Errors.NONE
        try:
            base = self._append(group.group_id, list(fitting.values()), producer_id, epoch)
        except AppendError as error:
            result = SCALA_COMMIT_ERRORS.get(error.error, error.error)
            if in_transaction:
                group.txn_commit_failed(producer_id, [offset_key.topic_partition for offset_key in fitting])
                if producer_id not in group.transactional:
                    self._forget_open(producer_id, group.group_id)
        else:
            transaction = (producer_id, epoch) if in_transaction else None
            for record_offset, (offset_key, record) in enumerate(fitting.items(), base):
                group.commit(offset_key.topic_partition, _committed(record.at(record_offset), base, transaction))
            if in_transaction:
                self.open_groups.setdefault(producer_id, set()).add(group.group_id)
        return {
            offset_key: result if offset_key in fitting else Errors.OFFSET_METADATA_TOO_LARGE for offset_key in commits
        }

    # Reads (A6)

    def get_offsets(
        self, group_id: str, require_stable: bool, offset_keys: Iterable[TopicPartition] | None
    ) -> list[Fetched]:
        """Per offset key its committed offset (``None``: there is none), or UNSTABLE_OFFSET_COMMIT."""
        group = self.groups.get(group_id)
        if group is None or group.is_in(GroupState.DEAD):
            return [(offset_key, None, Errors.NONE) for offset_key in offset_keys or ()]
        found: list[Fetched] = []
        for offset_key in group.offsets if offset_keys is None else offset_keys:
            committed = group.offsets.get(offset_key)
            if require_stable and group.is_unstable(offset_key):
                found.append((offset_key, None, Errors.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append((offset_key, committed, Errors.NONE))
        return found

    # Removal (A7)

    def cleanup(self, groups: Iterable[ScalaGroup], select: Callable[[ScalaGroup], list[TopicPartition]]) -> int:
        """Remove the offsets that ``select`` takes out, and every Empty group that has none left.

        Returns how many offsets were removed. The memory is clean even where the append fails.
        """
        count = 0
        for group in list(groups):
            removed = select(group)
            if group.is_in(GroupState.EMPTY) and not group.has_offsets():
                group.transition(GroupState.DEAD, self.clock.now_ms)
            if self.state_of(group.group_id) is None:
                continue
            tombstones = [offset_tombstone(OffsetKey(group.group_id, *offset_key)) for offset_key in removed]
            dead = group.is_in(GroupState.DEAD) and self.groups.pop(group.group_id, None) is not None
            if dead and group.generation > 0:
                tombstones.append(group_tombstone(group.group_id))
            if not tombstones:
                continue
            try:
                self._append(group.group_id, tombstones)
            except AppendError:
                continue
            count += len(removed)
        return count

    def cleanup_expired_offsets(self) -> int:
        """One sweep ("Removed N expired offsets in N milliseconds"); returns N."""
        now_ms, retention_ms = self.clock.now_ms, self.settings.offsets_retention_ms
        return self.cleanup(self.groups.values(), lambda group: group.remove_expired_offsets(now_ms, retention_ms))

    def start_sweeps(self, first_ms: int) -> None:
        """Sweep at ``first_ms`` and each ``offsets.retention.check.interval.ms`` after it."""
        self.timers.schedule(("sweep",), first_ms - self.clock.now_ms, self._sweep)

    def _sweep(self, *, first: bool = False) -> None:
        if not first:
            self.cleanup_expired_offsets()
        self.timers.schedule(("sweep",), self.settings.offsets_retention_check_interval_ms, self._sweep)

    # Transactions

    def complete_transaction(self, producer_id: int, partition: int, commit: bool) -> None:
        """The marker of a transaction was appended to ``partition`` (``handleTxnCompletion``)."""
        for group_id in sorted(self.open_groups.get(producer_id, ())):
            group = self.groups.get(group_id)
            if self.partition_for(group_id) == partition and group is not None and not group.is_in(GroupState.DEAD):
                group.complete_transaction(producer_id, commit)
                self._forget_open(producer_id, group_id)

    def _forget_open(self, producer_id: int, group_id: str) -> None:
        groups = self.open_groups.get(producer_id, set())
        groups.discard(group_id)
        if not groups:
            self.open_groups.pop(producer_id, None)

    # Load and unload (A3, A4)

    def start_of_load(self, partition: int) -> None:
        self._loading = _Load(self._live)

    def _live(self, loaded: ClassicGroup) -> ScalaGroup:
        return self.new_group(loaded.group_id).restored(loaded)

    def apply(self, records: Sequence[LogRecord]) -> None:
        self._loading.apply(records)

    def end_of_load(self, partition: int) -> None:
        for group in self._loading.finish():
            for producer_id in group.transactional:
                self.open_groups.setdefault(producer_id, set()).add(group.group_id)
            # A group that is cached already wins over the loaded one.
            self.add_group(group.group_id, group)
            self.rebalances.loaded(group)

    def unload_group(self, group_id: str, group: ScalaGroup) -> None:
        self.rebalances.unloaded(group)
        for producer_id in list(self.open_groups):
            self._forget_open(producer_id, group_id)

    def end_of_unload(self, partition: int) -> None:
        """Do nothing: no state is kept per partition."""


class _Load:
    """State of ``doLoadGroupsAndOffsets`` between two buffers."""

    def __init__(self, live: Callable[[ClassicGroup], ScalaGroup]) -> None:
        self.groups: dict[str, ScalaGroup] = ScalaHashMap()
        self._replay = ScalaGroups(SCALA_PROFILE, self.groups, live)
        self._offsets: Offsets[OffsetKey] = Offsets(offset_rules(SCALA_PROFILE), {}, {})

    def apply(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.control is not None:
                self._offsets.end_transaction(record.producer_id, commit=record.control == "COMMIT")
                continue
            decoded = record.decoded()
            if decoded.key_type == GROUP_METADATA:
                self._replay.apply(decoded)
            elif decoded.key_type in OFFSET_KEY_TYPES:
                self._offset(record, decoded)

    def _offset(self, record: LogRecord, decoded: LoadedRecord) -> None:
        offset_key = offset_key_of(decoded)
        transaction = (record.producer_id, record.producer_epoch) if record.transactional else None
        if decoded.value is None:
            self._offsets.remove(offset_key, transaction and transaction[0])
        else:
            offset = _committed(decoded, record.batch_offset, transaction)
            self._offsets.commit(offset_key, offset)

    def finish(self) -> list[ScalaGroup]:
        """All groups: those with metadata first, then one for every id that has offsets only."""
        committed = self._offsets.committed
        pending = [pair for offset_keys in self._offsets.pending.values() for pair in offset_keys.items()]
        self._replay.finish(
            dict.fromkeys(
                [offset_key.group_id for offset_key in committed] + [offset_key.group_id for offset_key, _ in pending]
            )
        )
        for offset_key, offset in committed.items():
            self.groups[offset_key.group_id].offsets[TopicPartition(offset_key.topic, offset_key.partition)] = offset
        for offset_key, offset in pending:
            self.groups[offset_key.group_id].commit(TopicPartition(offset_key.topic, offset_key.partition), offset)
        return list(self.groups.values())


def _committed(record: LoadedRecord, batch_offset: int, transaction: tuple[int, int] | None) -> CommittedOffset:
    """The offset in a record; ``transaction`` is the producer id and epoch of its transaction."""
    assert record.value is not None
    producer_id, producer_epoch = transaction or (None, None)
    return committed_offset(
        record.value,
        record.version,
        SCALA_PROFILE,
        record_offset=record.record_offset,
        ordering_offset=batch_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
