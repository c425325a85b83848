"""Plan of the records and batches of a partition that stay, as the broker's log cleaner decides it.

Pure functions over the result of ``compact_scan``. Sources: ``Cleaner``, ``CleanedTransactionMetadata``,
``ProducerStateManager``, ``LogCleanerManager.cleanableOffsets``. Differences from one pass of the cleaner are the
differences between its first pass and its last (``docs/compaction.md``): an end marker gets its delete horizon as soon
as nothing of its transaction is left, and only the last batch of the log is kept for its offset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from coordinator_core.durations import DAY_MS
from coordinator_core.kernels.arrays import Array, Int64s, dtype
from coordinator_core.kernels.layout import NO_CONTROL_TYPE, Action
from coordinator_core.lifecycle.compact_scan import LogScan, NewestRecords, newest_records
from coordinator_core.log.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from coordinator_core.log.types import NO_PRODUCER_ID, ControlType
from coordinator_core.releases import CONSUMER_KEY_TYPES, SHARE_KEY_TYPES, STREAMS_KEY_TYPES

_ENDS = (ControlType.ABORT, ControlType.COMMIT)


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """Options of a compaction that decide beside the log. Times in milliseconds.

    ``delete_retention_ms`` is the topic's ``delete.retention.ms``; ``producer_id_expiration_ms``
    the broker's ``producer.id.expiration.ms``. Nothing at or behind ``end_offset`` is touched, nor behind the
    last stable offset; ``None`` for that alone.
    """

    now_ms: int
    delete_retention_ms: int = DAY_MS
    producer_id_expiration_ms: int = DAY_MS
    end_offset: int | None = None

    @property
    def horizon_ms(self) -> int:
        """Delete horizon of records that become deletable now (KIP-534): a pass of the cleaner sets it, and none at the
        same time sees that it is over."""
        return self.now_ms + max(1, self.delete_retention_ms)


@dataclass(frozen=True)
class TransactionFacts:
    """Facts from the batches of producers.

    ``last_stable_offset`` is the first offset of the oldest open transaction, else the log end offset;
    ``aborted`` the base offsets of data batches of aborted transactions, ascending; ``last_of_producer``
    the base offsets of the batches that hold the state of producers that have not expired.
    """

    last_stable_offset: int
    open_producers: tuple[int, ...]
    aborted: Int64s
    last_of_producer: frozenset[int]

    def end_of_compaction(self, rules: CompactionRules) -> int:
        """The offset at which and behind which nothing is touched."""
        stable, asked = self.last_stable_offset, rules.end_offset
        return stable if asked is None else min(stable, asked)


@dataclass(slots=True)
class _Producer:
    """State of a producer after its last batch (``ProducerStateEntry``)."""

    epoch: int
    last_data: int | None
    last_marker: int | None
    timestamp_ms: int


def transaction_facts(scan: LogScan, rules: CompactionRules) -> TransactionFacts:
    """Follow the producers through the log."""
    open_batches: dict[int, list[int]] = {}
    producers: dict[int, _Producer] = {}
    aborted: list[int] = []
    columns = ["base_offset", "attributes", "producer_id", "producer_epoch", "max_timestamp", "control_type"]
    for base, attributes, producer_id, epoch, timestamp_ms, control in scan.in_log[columns].tolist():
        if producer_id == NO_PRODUCER_ID:
            continue
        is_control = bool(attributes & CONTROL_BIT)
        if is_control and control not in _ENDS:
            continue
        known = producers.get(producer_id)
        if known is None or known.epoch != epoch:
            known = producers[producer_id] = _Producer(epoch, None, None, timestamp_ms)
        known.timestamp_ms = timestamp_ms
        if is_control:
            known.last_marker = base
            batches = open_batches.pop(producer_id, [])
            if control == ControlType.ABORT:
                aborted += batches
        else:
            known.last_data = base
            if attributes & TRANSACTIONAL_BIT:
                open_batches.setdefault(producer_id, []).append(base)
    last = set()
    for producer_id, state in producers.items():
        if producer_id in open_batches or rules.now_ms - state.timestamp_ms < rules.producer_id_expiration_ms:
            place = state.last_marker if state.last_data is None else state.last_data
            last.add(-1 if place is None else place)
    stable = min((batches[0] for batches in open_batches.values()), default=scan.log_end_offset)
    return TransactionFacts(stable, tuple(sorted(open_batches)), np.array(sorted(aborted), np.int64), frozenset(last))


@dataclass(frozen=True)
class Survivors:
    """Record offsets that stay, ascending, and which of them are newest records that are tombstones (1) or not (0)."""

    offsets: Int64s
    tombstones: npt.NDArray[np.uint8]

    def are_in(self, batches: Array) -> npt.NDArray[np.bool_]:
        """Whether any of the records is in each of these batches, rows of the index."""
        first, last = batches["base_offset"], batches["last_offset"]
        return np.searchsorted(self.offsets, last, "right") > np.searchsorted(self.offsets, first)


Extra = frozenset[int]
"""Record offsets of records that stay although the cleaner's rules let them go, because an answer depends on them."""


def survivors(newest: NewestRecords, rules: CompactionRules, extra: Extra) -> Survivors:
    """The newest record of every key, but tombstones whose horizon has passed; records without a key;
    extras."""
    rows = newest.rows
    is_tombstone = rows["is_tombstone"] != 0
    horizon = rows["delete_horizon"]
    is_known = rows["offset"] >= 0
    is_due = is_known & is_tombstone & (horizon >= 0) & (horizon <= rules.now_ms)
    is_due &= ~_kept_by_siblings(newest, is_due)
    stays = is_known & ~is_due
    dead = is_tombstone & is_known
    offsets = [rows["offset"][stays], newest.unkeyed, np.array(sorted(extra), np.int64)]
    merged = np.sort(np.concatenate(offsets))
    # Not numpy's unique, which puts integers into a hash table.
    merged = merged[np.append(True, merged[1:] != merged[:-1])[: len(merged)]]
    return Survivors(merged, np.isin(merged, rows["offset"][dead]).astype(np.uint8))


_FAMILIES = {
    key_type: name
    for name, key_types in (
        ("consumer", CONSUMER_KEY_TYPES),
        ("share", SHARE_KEY_TYPES),
        ("streams", STREAMS_KEY_TYPES),
    )
    for key_type in key_types
}


def _kept_by_siblings(newest: NewestRecords, is_due: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Tombstones that are due but stay, because of the family that they belong to (KAFKA-21102).

    The records of a KIP-848, share or streams group, or of a member of it, have the same bytes behind the key
    type. Their tombstones go together: once all of them are due, and every value among them is newer.
    """
    kept = np.zeros(len(is_due), np.bool_)
    types = newest.key_types()
    in_family = np.isin(types, list(_FAMILIES))
    if not (is_due & in_family).any():
        return kept
    families: dict[tuple[str, bytes], list[int]] = {}
    for row in np.flatnonzero(in_family).tolist():
        families.setdefault((_FAMILIES[int(types[row])], newest.key(row)[2:]), []).append(row)
    offsets, tombstones = newest.rows["offset"], newest.rows["is_tombstone"]
    for members in families.values():
        due = [row for row in members if is_due[row]]
        if not due:
            continue
        last = max(int(offsets[row]) for row in due)
        others = [row for row in members if not is_due[row] and offsets[row] >= 0]
        if any(tombstones[row] or offsets[row] < last for row in others):
            kept[due] = True
    return kept


def cleanable(scan: LogScan, end_offset: int) -> Array:
    """Rows of the index from the log start offset on, before ``end_offset``."""
    rows = scan.in_log
    return rows[rows["base_offset"] < end_offset]


def batch_actions(
    scan: LogScan, facts: TransactionFacts, is_left: npt.NDArray[np.bool_], rules: CompactionRules, end_offset: int
) -> Array:
    """Rows of :class:`~coordinator_core.kernels.layout.BatchAction`, by base offset, for the batches before
    ``end_offset`` that need one. ``is_left``: whether a record stays, of each of the :func:`cleanable` batches."""
    actions: dict[int, Action] = {}
    keeps_empty = set(facts.last_of_producer)
    if scan.last_base_offset >= 0:
        keeps_empty.add(scan.last_base_offset)
    observed: set[int] = set()
    columns = ["base_offset", "attributes", "producer_id", "control_type", "delete_horizon"]
    items = zip(cleanable(scan, end_offset)[columns].tolist(), is_left.tolist(), strict=True)
    for (base, attributes, producer_id, control, horizon), left in items:
        if not attributes & CONTROL_BIT:
            # Also outside any transaction: the Java coordinator holds what has a producer id until a marker ends it.
            if producer_id != NO_PRODUCER_ID and (left or base in keeps_empty):
                observed.add(producer_id)
            continue
        if control == NO_CONTROL_TYPE:
            actions[base] = Action.KEEP_EMPTY if base == scan.last_base_offset else Action.DROP
        elif control not in _ENDS:
            actions[base] = Action.COPY
        elif producer_id in observed:
            observed.discard(producer_id)
            actions[base] = Action.COPY
        elif horizon < 0:
            actions[base] = Action.SET_HORIZON
        elif horizon > rules.now_ms or base in facts.last_of_producer:
            # Of an empty control batch a recovering broker learns nothing: the epoch is kept with its marker.
            actions[base] = Action.COPY
        else:
            actions[base] = Action.KEEP_EMPTY if base == scan.last_base_offset else Action.DROP
    for base in keeps_empty:
        actions.setdefault(base, Action.KEEP_EMPTY)
    table = sorted((base, int(action)) for base, action in actions.items() if base < end_offset)
    return np.array(table, dtype("BatchAction"))


@dataclass(frozen=True)
class CompactionPlan:
    """Records that compaction leaves of a scanned log before ``end_offset``; everything behind it stays as it is.

    ``stays`` are the records, ``actions`` rows of :class:`~coordinator_core.kernels.layout.BatchAction`; ``key_types``
    the record types of all keys, as :meth:`NewestRecords.key_types` has them.
    """

    scan: LogScan
    rules: CompactionRules
    facts: TransactionFacts
    end_offset: int
    key_types: frozenset[int]
    stays: Survivors
    actions: Array

    @classmethod
    def of(
        cls, scan: LogScan, rules: CompactionRules, facts: TransactionFacts | None = None, *, workers: int = 1
    ) -> CompactionPlan:
        """Read the log a second time, for its newest records. ``facts``: those of the scan, where they are known.

        Raises :class:`DamagedInputError` for records that cannot be read.
        """
        facts = facts or transaction_facts(scan, rules)
        end_offset = facts.end_of_compaction(rules)
        newest = newest_records(scan, aborted=facts.aborted, end_offset=end_offset, workers=workers)
        stays = survivors(newest, rules, frozenset())
        is_left = stays.are_in(cleanable(scan, end_offset))
        actions = batch_actions(scan, facts, is_left, rules, end_offset)
        return cls(scan, rules, facts, end_offset, frozenset(newest.key_types().tolist()), stays, actions)

    def newest(self, *, workers: int = 1) -> NewestRecords:
        """The newest records: the log is read for them again, since they are most of what a large partition takes."""
        return newest_records(self.scan, aborted=self.facts.aborted, end_offset=self.end_offset, workers=workers)

    def keeping(self, extra: Extra, newest: NewestRecords | None = None) -> CompactionPlan:
        """The same with these records besides. ``newest``: those of :meth:`newest`, where they are at hand."""
        if not extra:
            return self
        stays = survivors(newest or self.newest(), self.rules, extra)
        is_left = stays.are_in(cleanable(self.scan, self.end_offset))
        actions = batch_actions(self.scan, self.facts, is_left, self.rules, self.end_offset)
        return replace(self, stays=stays, actions=actions)


def leader_epochs(scan: LogScan) -> list[tuple[int, int]]:
    """(epoch, first offset) of every leader epoch, as recovery reads them from batches
    (``LeaderEpochFileCache``)."""
    epochs: list[tuple[int, int]] = []
    for epoch, base in scan.index[["leader_epoch", "base_offset"]].tolist():
        if epoch >= 0 and (not epochs or epoch > epochs[-1][0]):
            epochs.append((epoch, base))
    return epochs
