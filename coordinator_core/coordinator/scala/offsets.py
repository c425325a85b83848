"""Offsets in the Scala coordinator: stored, fetched, removed (``GroupMetadataManager``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from coordinator_core.coordinator.classic import LiveClassicGroup, State
from coordinator_core.coordinator.errors import (
    SCALA_COMMIT_ERRORS,
    SCALA_GROUP_ERRORS,
    AppendError,
    Errors,
    translated,
)
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
    offset_commit,
    offset_tombstone,
)
from coordinator_core.coordinator.rules import SCALA
from coordinator_core.coordinator.scala.group import CommittedAt, OffsetAndMetadata, ScalaGroup
from coordinator_core.coordinator.settings import Settings
from coordinator_core.coordinator.timers import Clock
from coordinator_core.groups.loaders import ScalaGroups
from coordinator_core.groups.model import ClassicGroup
from coordinator_core.replay.profiles import OFFSET_KEY_TYPES, profile_for_release

PROFILE = profile_for_release("3.9.2")
"""What this coordinator makes of records."""

Commits = dict[TopicIdPartition, OffsetAndMetadata]
CommitErrors = dict[TopicIdPartition, Errors]
Fetched = tuple[TopicPartition, OffsetAndMetadata | None, Errors]


class ScalaGroupMetadataManager(GroupMetadataManager[ScalaGroup]):
    """Groups with their offsets, and the log they are kept in."""

    def __init__(self, settings: Settings, clock: Clock, log: OffsetsLog) -> None:
        super().__init__(settings, clock, log)
        self.groups = JavaHashMap()
        self.rebalances = Rebalances(settings, SCALA, clock, self.timers, self)
        self.open_groups: dict[int, set[str]] = {}
        """Groups with pending commits, by producer id (``openGroupsForProducer``)."""
        self._loading = self._load_of()
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
        return self.log.append(
            partition, records, self.clock.now_ms, producer_id=producer_id, producer_epoch=epoch
        )

    def store_group(
        self, group: LiveClassicGroup, assignment: dict[str, bytes], done: Callable[[Errors], None]
    ) -> None:
        if self.state_of(group.group_id) is None:
            done(Errors.NOT_COORDINATOR)
            return
        try:
            self._append(group.group_id, [group_metadata(group.recorded(assignment))])
        except AppendError as error:
            done(translated(error.error, SCALA_GROUP_ERRORS))
        else:
            done(Errors.NONE)

    def store_offsets(
        self, group: ScalaGroup, commits: Commits, producer_id: int = NO_PRODUCER_ID, epoch: int = -1
    ) -> CommitErrors:
        """Append what is small enough, then fill the cache; a failed append takes the pending entries back.

        Records are appended in the order of the map that the request was put into.
        """
        requested: Commits = ScalaHashMap(commits)
        order = scala_map_order(requested)
        fitting = {slot: commits[slot] for slot in order if self._fits(commits[slot].metadata)}
        if len(commits) > 4:
            fitting = {slot: commits[slot] for slot in scala_trie_order(fitting)}
        if not fitting:
            return dict.fromkeys(commits, Errors.OFFSET_METADATA_TOO_LARGE)
        if self.state_of(group.group_id) is None:
            return dict.fromkeys(commits, Errors.NOT_COORDINATOR)
        in_transaction = producer_id != NO_PRODUCER_ID
        if in_transaction:
            self.open_groups.setdefault(producer_id, set()).add(group.group_id)
            group.prepare_txn_commit(producer_id, fitting)
        else:
            group.prepare_commit(fitting)
        records = [
            offset_commit(
                group.group_id,
                slot.topic,
                slot.partition,
                offset=commit.offset,
                leader_epoch=commit.leader_epoch,
                metadata=commit.metadata,
                commit_timestamp_ms=commit.commit_timestamp_ms,
                expire_timestamp_ms=commit.expire_timestamp_ms,
                version=3,
            )
            for slot, commit in fitting.items()
        ]
        result = Errors.NONE
        try:
            base = self._append(group.group_id, records, producer_id, epoch)
        except AppendError as error:
            result = translated(error.error, SCALA_COMMIT_ERRORS)
            if in_transaction:
                group.txn_commit_failed(producer_id, fitting)
                if producer_id not in group.transactional:
                    self._forget_open(producer_id, group.group_id)
            else:
                group.commit_failed(fitting)
        else:
            if in_transaction:
                group.txn_commit_appended(producer_id, fitting, base)
            else:
                group.commit_appended(fitting, base)
        return {slot: result if slot in fitting else Errors.OFFSET_METADATA_TOO_LARGE for slot in commits}

    def _fits(self, metadata: str) -> bool:
        return (
            len(metadata.encode("utf-16-be", "surrogatepass")) // 2 <= self.settings.offset_metadata_max_bytes
        )

    # Reads (A6)

    def get_offsets(
        self, group_id: str, require_stable: bool, slots: Iterable[TopicPartition] | None
    ) -> list[Fetched]:
        """Per slot its committed offset (``None``: there is none), or UNSTABLE_OFFSET_COMMIT."""
        group = self.groups.get(group_id)
        if group is None or group.is_in(State.DEAD):
            return [(slot, None, Errors.NONE) for slot in slots or ()]
        found: list[Fetched] = []
        for slot in group.offsets if slots is None else slots:
            committed = group.offsets.get(slot)
            if require_stable and group.is_unstable(slot):
                found.append((slot, None, Errors.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append((slot, committed.value if committed else None, Errors.NONE))
        return found

    # Removal (A7)

    def cleanup(
        self, groups: Iterable[ScalaGroup], select: Callable[[ScalaGroup], list[TopicPartition]]
    ) -> int:
        """Remove the offsets that ``select`` takes out, and every Empty group that has none left.

        Returns how many offsets were removed. The memory is clean even where the append fails.
        """
        count = 0
        for group in list(groups):
            removed = select(group)
            if group.is_in(State.EMPTY) and not group.has_offsets():
                group.transition(State.DEAD, self.clock.now_ms)
            if self.state_of(group.group_id) is None:
                continue
            tombstones = [offset_tombstone(group.group_id, *slot) for slot in removed]
            dead = group.is_in(State.DEAD) and self.groups.pop(group.group_id, None) is not None
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
        return self.cleanup(
            self.groups.values(), lambda group: group.remove_expired_offsets(now_ms, retention_ms)
        )

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
            if (
                self.partition_for(group_id) == partition
                and group is not None
                and not group.is_in(State.DEAD)
            ):
                group.complete_transaction(producer_id, commit)
                self._forget_open(producer_id, group_id)

    def _forget_open(self, producer_id: int, group_id: str) -> None:
        groups = self.open_groups.get(producer_id, set())
        groups.discard(group_id)
        if not groups:
            self.open_groups.pop(producer_id, None)

    # Load and unload (A3, A4)

    def start_of_load(self, partition: int) -> None:
        self._loading = self._load_of()

    def _load_of(self) -> _Load:
        return _Load(self._live)

    def _live(self, loaded: ClassicGroup) -> ScalaGroup:
        group = self.new_group(loaded.group_id)
        if loaded.record_offset is not None:
            group.restore(loaded)
        return group

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
        """Nothing is kept per partition."""


class _Load:
    """State of ``doLoadGroupsAndOffsets`` between two buffers."""

    def __init__(self, live: Callable[[ClassicGroup], ScalaGroup]) -> None:
        self.groups: dict[str, ScalaGroup] = ScalaHashMap()
        self._replay = ScalaGroups(PROFILE, self.groups, live)
        self.offsets: dict[tuple[str, str, int], CommittedAt] = {}
        self.pending: dict[int, dict[tuple[str, str, int], CommittedAt]] = {}

    def apply(self, records: Sequence[LogRecord]) -> None:
        for record in records:
            if record.control is not None:
                self._end(record.producer_id, record.control == "COMMIT")
                continue
            decoded = record.decoded()
            if decoded.type == GROUP_METADATA:
                self._replay.apply(record.offset, decoded.type, decoded.key, decoded.version, decoded.value)
            elif decoded.type in OFFSET_KEY_TYPES:
                self._offset(record, decoded)

    def _end(self, producer_id: int, commit: bool) -> None:
        for slot, committed in self.pending.pop(producer_id, {}).items():
            current = self.offsets.get(slot)
            if commit and (current is None or current.batch_offset < committed.batch_offset):
                self.offsets[slot] = committed

    def _offset(self, record: LogRecord, decoded: Record) -> None:
        slot = (decoded.key["group"], decoded.key["topic"], decoded.key["partition"])
        offsets = self.pending.setdefault(record.producer_id, {}) if record.transactional else self.offsets
        if decoded.value is None:
            offsets.pop(slot, None)
            return
        expires = decoded.value.get("expireTimestamp", -1)
        offsets[slot] = CommittedAt(
            record.batch_offset,
            OffsetAndMetadata(
                offset=decoded.value["offset"],
                leader_epoch=decoded.value.get("leaderEpoch", -1),
                metadata=decoded.value["metadata"],
                commit_timestamp_ms=decoded.value["commitTimestamp"],
                expire_timestamp_ms=None if expires == -1 else expires,
            ),
        )

    def finish(self) -> list[ScalaGroup]:
        """All groups: those with metadata first, then one for every id that has offsets only."""
        pending_ids = [slot[0] for slots in self.pending.values() for slot in slots]
        self._replay.finish(dict.fromkeys([*(slot[0] for slot in self.offsets), *pending_ids]))
        for (group_id, topic, partition), committed in self.offsets.items():
            self.groups[group_id].offsets[TopicPartition(topic, partition)] = committed
        for producer_id, slots in self.pending.items():
            for (group_id, topic, partition), committed in slots.items():
                transactional = self.groups[group_id].transactional.setdefault(producer_id, ScalaHashMap())
                transactional[TopicPartition(topic, partition)] = committed
        return list(self.groups.values())
