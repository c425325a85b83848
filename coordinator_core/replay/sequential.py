"""The reference replay: one record after the other, as the loader of a coordinator does it.

It is written to be compared with the facts, line by line; the partitioned replay (``fold``,
``merge.partition``) must give the same :class:`PartitionState` for every log and every cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator_core.groups.loaders import GroupLoader, JavaGroups, LoadError, ScalaGroups
from coordinator_core.groups.model import (
    CommittedOffset,
    Group,
    LoadFailure,
    OffsetKey,
    PartitionState,
    Transaction,
    TransactionOutcome,
)
from coordinator_core.groups.offsets import Offsets
from coordinator_core.log.batch import control_type
from coordinator_core.log.types import NO_PRODUCER_ID, Batch, ControlType, Record
from coordinator_core.releases import Loader, MergeOffsetRule, Profile
from coordinator_core.replay.interpret import (
    GroupRecord,
    Interpreted,
    OffsetRecord,
    UninterpretedRecord,
    committed_offset,
    interpret,
    offset_rules,
    unreadable_marker,
)


def group_loader(profile: Profile) -> GroupLoader:
    """The group side of the profile's coordinator."""
    return JavaGroups(profile) if profile.loader is Loader.JAVA else ScalaGroups(profile)


def is_pending(batch: Batch, profile: Profile) -> bool:
    """Whether the batch's commits wait for an end marker: Scala asks the bit, Java the producer id."""
    if profile.loader is Loader.JAVA:
        return batch.producer_id != NO_PRODUCER_ID
    return batch.is_transactional


def ordering_offset(batch: Batch, records: Sequence[Record], record: Record, profile: Profile) -> int:
    """The offset of ``record`` that decides age when a transaction commits."""
    rule = profile.ordering_offset_rule
    if rule is MergeOffsetRule.BATCH_HEADER and batch.magic >= 2:
        return batch.base_offset
    if rule in (MergeOffsetRule.BATCH_HEADER, MergeOffsetRule.BATCH_FIRST_RECORD):
        return records[0].offset
    return record.offset


@dataclass(slots=True)
class _OpenTransaction:
    producer_epoch: int
    first_record_offset: int
    last_record_offset: int
    timestamp_ms: int
    offset_keys: set[OffsetKey] = field(default_factory=set)

    def ended(self, producer_id: int, outcome: TransactionOutcome, end_marker_offset: int | None) -> Transaction:
        return Transaction(
            producer_id=producer_id,
            producer_epoch=self.producer_epoch,
            first_record_offset=self.first_record_offset,
            last_record_offset=self.last_record_offset,
            outcome=outcome,
            end_marker_offset=end_marker_offset,
            groups=tuple(sorted({offset_key.group_id for offset_key in self.offset_keys})),
            keys=len(self.offset_keys),
            timestamp_ms=self.timestamp_ms,
        )


class SequentialReplayer:
    """Replays the batches of one offsets partition under one profile.

    ``kept_metadata`` makes of the metadata of a commit the text to keep, for callers that do not want all of it.
    """

    def __init__(
        self, profile: Profile, offsets_partition: int, *, kept_metadata: Callable[[str], Any] | None = None
    ) -> None:
        self._profile = profile
        self._kept_metadata = kept_metadata
        self._state = PartitionState(offsets_partition)
        self._groups = group_loader(profile)
        self._offsets: Offsets[OffsetKey] = Offsets(offset_rules(profile), self._state.offsets, self._state.pending)
        self._open: dict[int, _OpenTransaction] = {}

    def replay_batch(self, batch: Batch, records: Sequence[Record]) -> None:
        """Apply one batch; batches must come in log order."""
        for record in self.loaded_records(batch, records):
            self.replay_record(batch, records, record)

    def loaded_records(self, batch: Batch, records: Sequence[Record]) -> Sequence[Record]:
        """The records of a batch that the loader looks at: Scala takes only the first end marker.

        A control batch without records was cleaned and means nothing (KAFKA-7467).
        """
        return records[:1] if batch.is_control and self._profile.loader is Loader.SCALA else records

    def replay_record(self, batch: Batch, records: Sequence[Record], record: Record) -> None:
        """Apply one of the ``records`` of ``batch``."""
        if batch.is_control:
            self._replay_marker(batch.producer_id, record)
            return
        self.replay_data(batch, records, record, interpret(record.offset, record.key, record.value, self._profile))

    def replay_data(self, batch: Batch, records: Sequence[Record], record: Record, interpreted: Interpreted) -> None:
        """Apply a ``record`` of a data batch, which the caller has interpreted already."""
        match interpreted:
            case OffsetRecord():
                key_type, version, offset_key, value = interpreted
                if value is None:
                    self._count(key_type, version)
                    self._offsets.remove(offset_key, self._pending_producer(batch, record, offset_key))
                else:
                    self.replay_commit(batch, records, record, offset_key, key_type, version or 0, value)
            case GroupRecord():
                self._count(interpreted.key_type, interpreted.version)
                self._replay_group(record.offset, interpreted)
            case UninterpretedRecord():
                self._carry(interpreted)

    def replay_commit(
        self,
        batch: Batch,
        records: Sequence[Record],
        record: Record,
        offset_key: OffsetKey,
        key_type: int,
        version: int,
        value: dict[str, Any],
    ) -> CommittedOffset:
        """Apply a ``record`` of a data batch that commits an offset; returns what is committed, or pending."""
        self._count(key_type, version)
        producer_id = self._pending_producer(batch, record, offset_key)
        self._groups.touch(offset_key.group_id)
        kept = self._kept_metadata
        offset = committed_offset(
            value if kept is None else value | {"metadata": kept(value["metadata"])},
            version,
            self._profile,
            record_offset=record.offset,
            ordering_offset=ordering_offset(batch, records, record, self._profile),
            producer_id=producer_id,
            producer_epoch=None if producer_id is None else batch.producer_epoch,
        )
        self._offsets.commit(offset_key, offset)
        return offset

    def committed(self, offset_key: OffsetKey) -> CommittedOffset | None:
        """Committed offset of the key at this point of the log; ``None`` without one."""
        return self._state.offsets.get(offset_key)

    def pending(self, offset_key: OffsetKey) -> dict[int, CommittedOffset]:
        """Commits of the offset key in transactions open at this point, by producer id."""
        return {
            producer_id: offset_keys[offset_key]
            for producer_id, offset_keys in self._state.pending.items()
            if offset_key in offset_keys
        }

    def pending_offset_keys(self, producer_id: int) -> list[OffsetKey]:
        """Offset keys that the open transaction of ``producer_id`` holds."""
        return list(self._state.pending.get(producer_id, ()))

    def group(self, group_id: str) -> Group | None:
        """The group at this point of the log; ``None`` where only commits tell of it, or nothing."""
        return self._groups.get(group_id)

    def offset_keys(self) -> Mapping[OffsetKey, CommittedOffset]:
        """All committed offsets at this point of the log."""
        return self._state.offsets

    def touch(self, group_id: str) -> None:
        """A commit for the group was applied elsewhere."""
        self._groups.touch(group_id)

    def load_failures(self) -> Sequence[LoadFailure]:
        """Records so far at which the real loader would have stopped."""
        return self._state.load_failures

    def finish(self) -> PartitionState:
        """The state after the last batch."""
        state = self._state
        for producer_id in [one for one, offset_keys in state.pending.items() if not offset_keys]:
            del state.pending[producer_id]
        state.groups = self._groups.finish(_group_ids(state.offsets, *state.pending.values()))
        for producer_id, transaction in self._open.items():
            state.transactions.append(transaction.ended(producer_id, TransactionOutcome.OPEN, None))
        state.transactions.sort(key=_place)
        # Log order, but where record offsets repeat (``OnDamage.RECOVER``): no order that only one reader can know.
        state.load_failures.sort(key=lambda found: (found.record_offset, repr(found)))
        state.carried.sort(key=lambda found: (found.record_offset, repr(found)))
        return state

    def _count(self, key_type: int, version: int | None) -> None:
        counts = self._state.record_counts
        counts[key_type, version] = counts.get((key_type, version), 0) + 1

    def _carry(self, record: UninterpretedRecord) -> None:
        self._state.carried.append(record.carried)
        if record.failure:
            self._fail(record.carried.record_offset, record.carried.detail)

    def _fail(self, record_offset: int, detail: str) -> None:
        self._state.load_failures.append(LoadFailure(record_offset, detail))

    def _replay_group(self, record_offset: int, record: GroupRecord) -> None:
        try:
            self._groups.apply(record.at(record_offset))
        except LoadError as error:
            self._fail(record_offset, str(error))

    def _pending_producer(self, batch: Batch, record: Record, offset_key: OffsetKey) -> int | None:
        """Producer id of the transaction of a commit or tombstone, which is noted; ``None`` outside transactions."""
        if not is_pending(batch, self._profile):
            return None
        self._note_transaction(batch, record, offset_key)
        return batch.producer_id

    def _note_transaction(self, batch: Batch, record: Record, offset_key: OffsetKey) -> None:
        transaction = self._open.get(batch.producer_id)
        if transaction is None:
            transaction = self._open[batch.producer_id] = _OpenTransaction(
                batch.producer_epoch, record.offset, record.offset, record.timestamp_ms
            )
        transaction.producer_epoch = batch.producer_epoch
        transaction.last_record_offset = record.offset
        transaction.timestamp_ms = record.timestamp_ms
        transaction.offset_keys.add(offset_key)

    def _replay_marker(self, producer_id: int, record: Record) -> None:
        try:
            kind = control_type(record)
        except ValueError:
            self._carry(unreadable_marker(record.offset, record.key))
            return
        commit = kind is ControlType.COMMIT
        if commit or kind is ControlType.ABORT or self._profile.loader is Loader.SCALA:
            self._end_transaction(producer_id, record.offset, commit=commit)

    def _end_transaction(self, producer_id: int, marker_offset: int, *, commit: bool) -> None:
        self._offsets.end_transaction(producer_id, commit=commit)
        transaction = self._open.pop(producer_id, None)
        if transaction is not None:
            outcome = TransactionOutcome.COMMITTED if commit else TransactionOutcome.ABORTED
            self._state.transactions.append(transaction.ended(producer_id, outcome, marker_offset))


def _place(transaction: Transaction) -> tuple[int, bool, int, int]:
    """Transactions are in the order of their first records. Salvaged logs can have several at one offset: of these,
    open ones come last."""
    marker = transaction.end_marker_offset
    return transaction.first_record_offset, marker is None, marker or 0, transaction.producer_id


def _group_ids(*offset_key_maps: Iterable[OffsetKey]) -> list[str]:
    return sorted({offset_key.group_id for offset_keys in offset_key_maps for offset_key in offset_keys})
