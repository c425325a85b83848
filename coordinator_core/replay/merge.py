"""Folds of the segments of one offsets partition, in order, to its state.

Most slots were never in a transaction that is open at the end of a segment: for them the last fold that has
an event wins, and its row is all there is to know. The others (*contested* slots) go through the folds one by
one, by the rules in :class:`_Contest`. The result equals that of the sequential replay
(``replay.sequential``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.loaders import LoadError
from coordinator_core.groups.model import (
    CarriedRecord,
    CommittedOffset,
    Group,
    LoadFailure,
    PartitionState,
    Slot,
    Transaction,
    TransactionOutcome,
)
from coordinator_core.replay import fold as columns
from coordinator_core.replay.fold import FoldRules, SegmentFold
from coordinator_core.replay.interpret import GroupRecord, UninterpretedRecord, interpret, unreadable_marker
from coordinator_core.replay.profiles import MergeOffsetRule, Profile
from coordinator_core.replay.sequential import group_loader

__all__ = ["MergedPartition", "merge_columns", "merge_folds"]

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

OFFSETS = pa.schema(
    [
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("record_offset", pa.int64(), nullable=False),
        pa.field("merge_offset", pa.int64(), nullable=False),
        pa.field("value_version", pa.int16(), nullable=False),
        pa.field("committed_offset", pa.int64(), nullable=False),
        pa.field("leader_epoch", pa.int32()),
        pa.field("metadata", pa.string(), nullable=False),
        pa.field("commit_timestamp_ms", pa.int64(), nullable=False),
        pa.field("expire_timestamp_ms", pa.int64()),
        pa.field("topic_id", pa.string()),
        pa.field("producer_id", pa.int64()),
        pa.field("producer_epoch", pa.int16()),
    ]
)
"""Columns of :attr:`MergedPartition.offsets` and ``pending``: slot and fields of ``CommittedOffset``."""

TRANSACTIONS = pa.schema(
    [
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int16(), nullable=False),
        pa.field("first_record_offset", pa.int64(), nullable=False),
        pa.field("last_record_offset", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("end_marker_offset", pa.int64()),
        pa.field("groups", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False),
        pa.field("keys", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
    ]
)
"""Columns of :attr:`MergedPartition.transactions`: the fields of ``Transaction``."""

GROUP_STATS = pa.schema(
    [
        pa.field("group_id", pa.string(), nullable=False),
        pa.field("key_type", pa.int16(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("tombstones", pa.int64(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("first_timestamp_ms", pa.int64(), nullable=False),
        pa.field("last_timestamp_ms", pa.int64(), nullable=False),
    ]
)
"""Columns of :attr:`MergedPartition.group_stats`: the weight of each group's records in the log."""


@dataclass
class MergedPartition:
    """State of one offsets partition; what may be large is columnar.

    ``offsets`` are the committed offsets, ``pending`` those of open transactions, ``transactions`` is in the
    order of first record offsets. The rest is as in :class:`PartitionState`.
    """

    offsets_partition: int
    offsets: pa.Table
    pending: pa.Table
    transactions: pa.Table
    group_stats: pa.Table
    groups: dict[str, Group] = field(default_factory=dict)
    load_failures: list[LoadFailure] = field(default_factory=list)
    carried: list[CarriedRecord] = field(default_factory=list)
    record_counts: dict[tuple[int, int | None], int] = field(default_factory=dict)

    def to_state(self) -> PartitionState:
        """The same as Python objects, one for every offset."""
        pending: dict[int, dict[Slot, CommittedOffset]] = {}
        for slot, offset in _committed_offsets(self.pending):
            assert offset.producer_id is not None
            pending.setdefault(offset.producer_id, {})[slot] = offset
        return PartitionState(
            offsets_partition=self.offsets_partition,
            groups=self.groups,
            offsets=dict(_committed_offsets(self.offsets)),
            pending=pending,
            transactions=[_transaction(row) for row in self.transactions.to_pylist()],
            load_failures=self.load_failures,
            carried=self.carried,
            record_counts=self.record_counts,
        )


def merge_folds(folds: Iterable[SegmentFold], profile: Profile, offsets_partition: int) -> PartitionState:
    """State after the segments whose ``folds`` are given in log order.

    The folds must have been made by the rules of ``profile`` (else ``ValueError``).
    """
    return merge_columns(folds, profile, offsets_partition).to_state()


def merge_columns(folds: Iterable[SegmentFold], profile: Profile, offsets_partition: int) -> MergedPartition:
    """Like :func:`merge_folds`, without making an object of every offset."""
    used = list(_loaded(folds, FoldRules.of(profile)))
    names = _Names(used)
    winners = _winners(used, names, profile)
    replayed = _replay_groups(used, names, profile)
    offsets = _offset_table(used, names, winners.committed, profile)
    pending = _offset_table(used, names, winners.pending, profile)
    with_offsets = pa.chunked_array([*offsets["group_id"].chunks, *pending["group_id"].chunks], pa.string())
    return MergedPartition(
        offsets_partition=offsets_partition,
        offsets=offsets,
        pending=pending,
        transactions=winners.transactions,
        group_stats=_group_stats(used, names),
        groups=replayed.loader.finish(sorted(with_offsets.unique().to_pylist())),
        load_failures=replayed.load_failures,
        carried=replayed.carried,
        record_counts=replayed.record_counts,
    )


def _loaded(folds: Iterable[SegmentFold], rules: FoldRules) -> Iterator[SegmentFold]:
    for fold in folds:
        if fold.rules != rules:
            raise ValueError(f"{fold.path}: folded by other rules than those of the profile")
        yield fold
        if fold.stopped:
            return


def _numbers(column: pa.ChunkedArray | pa.Array) -> Any:
    return column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)


class _Names:
    """Groups, topics and slots of all folds, numbered across them.

    ``group_of[f]`` maps the group numbers of fold ``f`` to those of :attr:`groups`, ``slot_of[f]`` its slot
    rows to slot numbers; ``slots`` is how many there are.
    """

    def __init__(self, folds: Sequence[SegmentFold]) -> None:
        self.groups, self.group_of = _unified([fold.groups for fold in folds])
        self.topics, topic_of = _unified([fold.topics for fold in folds])
        topics = max(len(self.topics), 1)
        pairs = [
            self.group_of[f][_numbers(fold.slots["group"])] * topics
            + topic_of[f][_numbers(fold.slots["topic"])]
            for f, fold in enumerate(folds)
        ]
        if len(self.groups) * topics > 1 << 31:
            pairs, _ = _factorized(pairs)
        keys = [
            (pair << 32) | (_numbers(fold.slots["partition"]).astype(np.int64) & 0xFFFFFFFF)
            for pair, fold in zip(pairs, folds, strict=True)
        ]
        self.slot_of, self.slots = _factorized(keys)


def _unified(arrays: Sequence[pa.Array]) -> tuple[pa.Array, list[_Numbers]]:
    """The distinct strings, and for each array the positions of its strings among them."""
    encoded = pa.chunked_array(arrays, pa.large_string()).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    return encoded.dictionary, _cut(_numbers(encoded.indices).astype(np.int64), arrays)


def _factorized(parts: Sequence[_Numbers]) -> tuple[list[_Numbers], int]:
    """The numbers replaced by dense ones, and how many those are."""
    encoded = pa.array(np.concatenate([*parts, np.empty(0, np.int64)])).dictionary_encode()
    return _cut(_numbers(encoded.indices).astype(np.int64), parts), len(encoded.dictionary)


def _cut(whole: _Numbers, parts: Sequence[Any]) -> list[_Numbers]:
    return np.split(whole, np.cumsum([len(part) for part in parts])[:-1]) if parts else []


@dataclass(frozen=True, slots=True)
class _Row:
    """A value in a fold: a row of its ``slots``, or of its ``pending``."""

    fold: int
    pending: bool
    row: int
    slot: int
    merge_offset: int


@dataclass(slots=True)
class _Chosen:
    """Values chosen, as row numbers by fold and table."""

    slots: list[_Numbers]
    pending: list[list[int]]


@dataclass(slots=True)
class _Winners:
    committed: _Chosen
    pending: _Chosen
    transactions: pa.Table


def _winners(folds: Sequence[SegmentFold], names: _Names, profile: Profile) -> _Winners:
    last_fold = np.full(names.slots, -1, np.int64)
    last_row = np.zeros(names.slots, np.int64)
    contested = np.zeros(names.slots, np.bool_)
    for f, fold in enumerate(folds):
        slots = names.slot_of[f]
        rows = np.flatnonzero(_numbers(fold.slots["kind"]) != columns.NOT_VALUE)
        last_fold[slots[rows]] = f
        last_row[slots[rows]] = rows
        is_open = _numbers(fold.pending["open"]) & (_numbers(fold.pending["kind"]) == columns.PENDING_VALUE)
        contested[slots[_numbers(fold.pending["slot"])[is_open]]] = True

    contest = _Contest(folds, names, contested, profile)
    for f in range(len(folds)):
        contest.apply(f)
    committed = _chosen(contest.committed.values(), len(folds))
    last_fold[contested] = -1
    slots_by_fold = np.argsort(last_fold, kind="stable")
    bounds = np.searchsorted(last_fold[slots_by_fold], np.arange(len(folds) + 1))
    for f, fold in enumerate(folds):
        rows = last_row[slots_by_fold[bounds[f] : bounds[f + 1]]]
        rows = rows[_numbers(fold.slots["kind"])[rows] == columns.VALUE]
        committed.slots[f] = np.concatenate([rows, committed.slots[f]])
    pending = (row for slots in contest.pending.values() for row in slots.values())
    return _Winners(committed, _chosen(pending, len(folds)), contest.transactions.table())


def _chosen(rows: Iterable[_Row], folds: int) -> _Chosen:
    slots: list[list[int]] = [[] for _ in range(folds)]
    pending: list[list[int]] = [[] for _ in range(folds)]
    for row in rows:
        (pending if row.pending else slots)[row.fold].append(row.row)
    return _Chosen([np.array(numbers, np.int64) for numbers in slots], pending)


class _Contest:
    """Fold after fold: contested slots, and the transactions that are open between segments.

    ``committed`` holds the value of each contested slot that has one, ``pending`` the open transactions'.
    """

    def __init__(
        self, folds: Sequence[SegmentFold], names: _Names, contested: _Mask, profile: Profile
    ) -> None:
        self.committed: dict[int, _Row] = {}
        self.pending: dict[int, dict[int, _Row]] = {}
        self.transactions = _Stitching(folds, names)
        self._folds = folds
        self._names = names
        self._contested = contested
        self._always = profile.merge_offset_rule is MergeOffsetRule.NONE
        self._drops = profile.tombstone_drops_pending

    def apply(self, f: int) -> None:
        """Splice fold ``f`` behind the state so far."""
        fold, slot_of = self._folds[f], self._names.slot_of[f]
        events = self._events(fold, slot_of)
        markers = _first_markers(fold)
        if self._drops:
            self._drop_pending(events, markers)
        pending = self._pending_rows(fold, slot_of)
        for producer_id, slot, kind, is_open, _ in pending:
            # What this segment holds for the slot stands in place of what earlier ones left pending.
            closes = producer_id in markers
            if kind != columns.NOTED and closes != is_open and producer_id in self.pending:
                self.pending[producer_id].pop(slot, None)
        overridden = self._end_transactions(events, markers)
        for slot, (row, kind, _, _, merge_offset) in events.items():
            if kind == columns.NOT_VALUE or slot in overridden:
                continue
            if kind == columns.VALUE:
                self.committed[slot] = _Row(f, False, row, slot, merge_offset)
            else:
                self.committed.pop(slot, None)
        merge_offsets = _numbers(fold.pending["merge_offset"])
        for producer_id, slot, kind, is_open, row in pending:
            if is_open and kind == columns.PENDING_VALUE:
                value = _Row(f, True, row, slot, int(merge_offsets[row]))
                self.pending.setdefault(producer_id, {})[slot] = value
        self.transactions.apply(f)

    def _events(self, fold: SegmentFold, slot_of: _Numbers) -> dict[int, tuple[int, int, int, int, int]]:
        """By contested slot: row, kind, sequence, last tombstone, merge offset."""
        rows = np.flatnonzero(self._contested[slot_of])
        taken = [rows, *(_numbers(fold.slots[name])[rows] for name in _EVENT_COLUMNS)]
        return dict(
            zip(slot_of[rows].tolist(), zip(*(column.tolist() for column in taken), strict=True), strict=True)
        )

    def _pending_rows(self, fold: SegmentFold, slot_of: _Numbers) -> list[tuple[int, int, int, bool, int]]:
        """Producer id, slot, kind, open and row of what concerns contested slots."""
        slots = slot_of[_numbers(fold.pending["slot"])]
        rows = np.flatnonzero(self._contested[slots])
        producer_ids = _numbers(fold.producers["producer_id"])[_numbers(fold.pending["producer"])[rows]]
        kinds, is_open = _numbers(fold.pending["kind"])[rows], _numbers(fold.pending["open"])[rows]
        taken = (producer_ids, slots[rows], kinds, is_open, rows)
        return list(zip(*(column.tolist() for column in taken), strict=True))

    def _drop_pending(
        self, events: dict[int, tuple[int, int, int, int, int]], markers: dict[int, tuple[int, bool]]
    ) -> None:
        """A tombstone takes the slot out of all transactions that are open when it comes (Java)."""
        for slot, (_, _, _, last_tombstone, _) in events.items():
            if last_tombstone < 0:
                continue
            for producer_id, slots in self.pending.items():
                marker = markers.get(producer_id)
                if marker is None or last_tombstone < marker[0]:
                    slots.pop(slot, None)

    def _end_transactions(
        self, events: dict[int, tuple[int, int, int, int, int]], markers: dict[int, tuple[int, bool]]
    ) -> set[int]:
        """Apply the first end markers to what earlier segments left pending.

        Returns the slots that hold such a value although the segment has an event of its own for them.
        """
        overridden: set[int] = set()
        for producer_id, (marker, commits) in sorted(markers.items(), key=lambda item: item[1][0]):
            pending = self.pending.pop(producer_id, {})
            for slot, value in pending.items() if commits else ():
                _, kind, sequence, _, _ = events.get(slot, _NO_EVENT)
                if kind == columns.NOT_VALUE or slot in overridden:
                    # Nothing in this segment decides, or only what an earlier marker already overrode.
                    existing = self.committed.get(slot)
                    if self._newer(value, existing):
                        self.committed[slot] = value
                elif sequence < marker and (self._always or kind == columns.TOMBSTONE):
                    # The slot was empty when the marker came, or the marker does not ask.
                    self.committed[slot] = value
                    overridden.add(slot)
        return overridden

    def _newer(self, value: _Row, existing: _Row | None) -> bool:
        return existing is None or self._always or existing.merge_offset < value.merge_offset


_EVENT_COLUMNS = ("kind", "sequence", "last_tombstone", "merge_offset")
_NO_EVENT = (-1, columns.NOT_VALUE, -1, -1, -1)


def _first_markers(fold: SegmentFold) -> dict[int, tuple[int, bool]]:
    """By producer id: sequence of the first end marker, and whether it commits."""
    sequences = _numbers(fold.producers["first_marker"])
    rows = np.flatnonzero(sequences >= 0)
    producer_ids = _numbers(fold.producers["producer_id"])[rows].tolist()
    commits = _numbers(fold.producers["first_marker_commits"])[rows].tolist()
    return dict(zip(producer_ids, zip(sequences[rows].tolist(), commits, strict=True), strict=True))


@dataclass(slots=True)
class _OpenTransaction:
    """A transaction that is open at the end of a segment; slots and groups by number."""

    producer_epoch: int
    first_record_offset: int
    last_record_offset: int
    timestamp_ms: int
    slots: set[int]
    groups: set[int]


class _SlotsByProducer:
    """The slots in each producer's transactions, of those rows of ``pending`` that are kept."""

    def __init__(self, fold: SegmentFold) -> None:
        owners = 2 * _numbers(fold.pending["producer"]).astype(np.int64) + _numbers(fold.pending["open"])
        order = np.argsort(owners, kind="stable")
        self._slots = _numbers(fold.pending["slot"])[order]
        self._bounds = np.searchsorted(owners[order], np.arange(2 * fold.producers.num_rows + 1))

    def rows(self, producer: int, *, is_open: bool) -> Any:
        """Slot rows in the open transaction of ``producer`` (a row too), or in the one first closed."""
        owner = 2 * producer + is_open
        return self._slots[self._bounds[owner] : self._bounds[owner + 1]]


class _Stitching:
    """Transactions, put together where they go on over segments."""

    def __init__(self, folds: Sequence[SegmentFold], names: _Names) -> None:
        self._folds = folds
        self._names = names
        # Alphabetical rank of each group, so that lists of groups can be sorted as numbers.
        order = _numbers(pc.sort_indices(names.groups)).astype(np.int64)
        self._rank = np.empty(len(order), np.int64)
        self._rank[order] = np.arange(len(order))
        self._sorted_groups = names.groups.take(pa.array(order))
        self._open: dict[int, _OpenTransaction] = {}
        self._tables: list[pa.Table] = []
        self._stitched: list[dict[str, Any]] = []

    def apply(self, f: int) -> None:
        """Go on with the transactions of fold ``f``."""
        fold = self._folds[f]
        complete = np.ones(fold.transactions.num_rows, np.bool_)
        slots_of = _SlotsByProducer(fold)
        if self._open:
            self._close(f, complete, slots_of)
        self._append_complete(f, complete)
        self._keep_open(f, slots_of)

    def table(self) -> pa.Table:
        """All transactions, those still open included, in the order of their first records."""
        for producer_id, transaction in self._open.items():
            self._append(producer_id, transaction, TransactionOutcome.OPEN, None)
        stitched = pa.Table.from_pylist(self._stitched, schema=TRANSACTIONS)
        table = pa.concat_tables([stitched, *self._tables])
        offsets = _numbers(table["first_record_offset"])
        return table.take(pa.array(np.argsort(offsets, kind="stable")))

    def _close(self, f: int, complete: _Mask, slots_of: _SlotsByProducer) -> None:
        """End the open transactions whose producers have a marker in fold ``f``."""
        fold = self._folds[f]
        first = np.flatnonzero(_numbers(fold.transactions["first"]))
        fragment_of = dict(
            zip(_numbers(fold.transactions["producer_id"])[first].tolist(), first.tolist(), strict=True)
        )
        producers = fold.producers.to_pydict()
        for row, producer_id in enumerate(producers["producer_id"]):
            if producer_id not in self._open or producers["first_marker"][row] < 0:
                continue
            transaction = self._open.pop(producer_id)
            fragment = fragment_of.get(producer_id)
            if fragment is not None:
                complete[fragment] = False
                rest = fold.transactions.slice(fragment, 1).to_pylist()[0]
                transaction.producer_epoch = rest["producer_epoch"]
                transaction.last_record_offset = rest["last_record_offset"]
                transaction.timestamp_ms = rest["timestamp_ms"]
                self._add_slots(f, slots_of.rows(row, is_open=False), transaction)
            commits = producers["first_marker_commits"][row]
            outcome = TransactionOutcome.COMMITTED if commits else TransactionOutcome.ABORTED
            self._append(producer_id, transaction, outcome, producers["first_marker_offset"][row])

    def _keep_open(self, f: int, slots_of: _SlotsByProducer) -> None:
        fold = self._folds[f]
        rows = np.flatnonzero(_numbers(fold.producers["open"]))
        for row, data in zip(rows.tolist(), fold.producers.take(pa.array(rows)).to_pylist(), strict=True):
            transaction = self._open.get(data["producer_id"])
            if transaction is None:
                transaction = _OpenTransaction(0, data["first_record_offset"], 0, 0, set(), set())
                self._open[data["producer_id"]] = transaction
            transaction.producer_epoch = data["producer_epoch"]
            transaction.last_record_offset = data["last_record_offset"]
            transaction.timestamp_ms = data["timestamp_ms"]
            self._add_slots(f, slots_of.rows(row, is_open=True), transaction)

    def _add_slots(self, f: int, slots: _Numbers, transaction: _OpenTransaction) -> None:
        transaction.slots.update(self._names.slot_of[f][slots].tolist())
        groups = np.unique(_numbers(self._folds[f].slots["group"])[slots])
        transaction.groups.update(self._names.group_of[f][groups].tolist())

    def _append(
        self,
        producer_id: int,
        transaction: _OpenTransaction,
        outcome: TransactionOutcome,
        end_marker_offset: int | None,
    ) -> None:
        ranks = sorted(self._rank[list(transaction.groups)].tolist())
        row = {
            "producer_id": producer_id,
            "producer_epoch": transaction.producer_epoch,
            "first_record_offset": transaction.first_record_offset,
            "last_record_offset": transaction.last_record_offset,
            "outcome": outcome.value,
            "end_marker_offset": end_marker_offset,
            "groups": self._sorted_groups.take(pa.array(ranks, pa.int64())).to_pylist(),
            "keys": len(transaction.slots),
            "timestamp_ms": transaction.timestamp_ms,
        }
        self._stitched.append(row)

    def _append_complete(self, f: int, complete: _Mask) -> None:
        """The transactions of fold ``f`` that nothing of an earlier segment belongs to."""
        table = self._folds[f].transactions.filter(pa.array(complete)).combine_chunks()
        if table.num_rows == 0:
            return
        lists = table["groups"].combine_chunks()
        starts = _numbers(lists.offsets).astype(np.int64)
        starts = starts - starts[0]
        ranks = self._rank[self._names.group_of[f][_numbers(lists.flatten())]]
        owner = np.repeat(np.arange(len(lists)), np.diff(starts))
        texts = self._sorted_groups.take(pa.array(ranks[np.lexsort((ranks, owner))])).cast(pa.string())
        outcomes = np.where(
            _numbers(table["committed"]), TransactionOutcome.COMMITTED.value, TransactionOutcome.ABORTED.value
        )
        made = {
            "outcome": pa.array(outcomes.tolist(), pa.string()),
            "groups": pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), texts),
        }
        self._tables.append(
            pa.Table.from_arrays(
                [made[name] if name in made else table[name].combine_chunks() for name in TRANSACTIONS.names],
                names=TRANSACTIONS.names,
            ).cast(TRANSACTIONS)
        )


@dataclass(slots=True)
class _Replayed:
    """What the records that are not commits made."""

    loader: Any
    load_failures: list[LoadFailure] = field(default_factory=list)
    carried: list[CarriedRecord] = field(default_factory=list)
    record_counts: dict[tuple[int, int | None], int] = field(default_factory=dict)


def _replay_groups(folds: Sequence[SegmentFold], names: _Names, profile: Profile) -> _Replayed:
    """Feed the carried records, and the commits that may create groups between them, to the group model."""
    replayed = _Replayed(group_loader(profile))
    with_records = np.zeros(len(names.groups), np.bool_)
    for f, fold in enumerate(folds):
        groups = fold.others["group"].drop_null()
        with_records[names.group_of[f][_numbers(groups)]] = True
        for key, records in fold.counts.commits.items():
            replayed.record_counts[key] = replayed.record_counts.get(key, 0) + records

    # Groups without any record of their own: nothing can come between, one touch is as good as many.
    only_touched = np.zeros(len(names.groups), np.bool_)
    for f, fold in enumerate(folds):
        touched = names.group_of[f][_numbers(fold.touches["group"])]
        only_touched[touched[~with_records[touched]]] = True
        rows = np.flatnonzero(with_records[touched])
        touched_ids = names.groups.take(pa.array(touched[rows])).to_pylist()
        sequences = _numbers(fold.touches["sequence"])[rows].tolist()
        _replay_others(fold, list(zip(sequences, touched_ids, strict=True)), profile, replayed)
    for group_id in names.groups.filter(pa.array(only_touched)).to_pylist():
        replayed.loader.touch(group_id)
    return replayed


def _replay_others(
    fold: SegmentFold, touches: Sequence[tuple[int, str]], profile: Profile, replayed: _Replayed
) -> None:
    loader = replayed.loader
    others = [
        fold.others[name].to_pylist() for name in ("sequence", "record_offset", "key", "value", "control")
    ]
    touch = 0
    for sequence, record_offset, key, value, is_control in zip(*others, strict=True):
        while touch < len(touches) and touches[touch][0] < sequence:
            loader.touch(touches[touch][1])
            touch += 1
        if is_control:
            interpreted: object = unreadable_marker(record_offset, key)
        else:
            interpreted = interpret(record_offset, key, value, profile)
        match interpreted:
            case GroupRecord():
                counted = (interpreted.key_type, interpreted.version)
                replayed.record_counts[counted] = replayed.record_counts.get(counted, 0) + 1
                try:
                    loader.apply(
                        record_offset,
                        interpreted.key_type,
                        interpreted.key,
                        interpreted.version or 0,
                        interpreted.value,
                    )
                except LoadError as error:
                    replayed.load_failures.append(LoadFailure(record_offset, str(error)))
            case UninterpretedRecord(carried, failure):
                replayed.carried.append(carried)
                if failure:
                    replayed.load_failures.append(LoadFailure(carried.record_offset, carried.detail))
            case _:
                raise AssertionError(f"a commit at record offset {record_offset} was not folded")
    for _, group_id in touches[touch:]:
        loader.touch(group_id)


def _offset_table(folds: Sequence[SegmentFold], names: _Names, chosen: _Chosen, profile: Profile) -> pa.Table:
    """The chosen values as :data:`OFFSETS`."""
    tables = [OFFSETS.empty_table()]
    for f, fold in enumerate(folds):
        rows = chosen.slots[f]
        if len(rows):
            tables.append(_offset_rows(fold, fold.slots.take(pa.array(rows)), rows, profile))
        if chosen.pending[f]:
            table = fold.pending.take(pa.array(chosen.pending[f]))
            tables.append(_offset_rows(fold, table, _numbers(table["slot"]), profile))
    return pa.concat_tables(tables)


def _offset_rows(fold: SegmentFold, table: pa.Table, slots: _Numbers, profile: Profile) -> pa.Table:
    leader_epoch = table["leader_epoch"]
    expiry = table["expire_timestamp_ms"]
    if not profile.minus_one_expires:
        expiry = pc.if_else(pc.equal(expiry, -1), None, expiry)
    picked = pa.array(slots)
    made = {
        "group_id": fold.groups.take(fold.slots["group"].take(picked).combine_chunks()),
        "topic": fold.topics.take(fold.slots["topic"].take(picked).combine_chunks()),
        "partition": fold.slots["partition"].take(picked),
        "leader_epoch": pc.if_else(pc.less(leader_epoch, 0), None, leader_epoch),
        "expire_timestamp_ms": expiry,
    }
    arrays = [
        (made[name] if name in made else table[name]).cast(OFFSETS.field(name).type) for name in OFFSETS.names
    ]
    return pa.Table.from_arrays(arrays, schema=OFFSETS)


def _committed_offsets(table: pa.Table) -> Iterator[tuple[Slot, CommittedOffset]]:
    lists = {name: table[name].to_pylist() for name in OFFSETS.names}
    slots = zip(lists.pop("group_id"), lists.pop("topic"), lists.pop("partition"), strict=True)
    for slot, *values in zip(slots, *lists.values(), strict=True):
        yield Slot(*slot), CommittedOffset(**dict(zip(lists, values, strict=True)))


def _transaction(row: dict[str, Any]) -> Transaction:
    return Transaction(
        **row | {"outcome": TransactionOutcome(row["outcome"]), "groups": tuple(row["groups"])}
    )


def _group_stats(folds: Sequence[SegmentFold], names: _Names) -> pa.Table:
    tables = [
        fold.group_stats.set_column(
            0, "group", pa.array(names.group_of[f][_numbers(fold.group_stats["group"])])
        )
        for f, fold in enumerate(folds)
    ]
    if not tables:
        return GROUP_STATS.empty_table()
    # Ordered aggregation (first, last) needs one thread.
    merged = (
        pa.concat_tables(tables)
        .group_by(["group", "key_type"], use_threads=False)
        .aggregate(
            [
                ("records", "sum"),
                ("tombstones", "sum"),
                ("size_bytes", "sum"),
                ("first_timestamp_ms", "first"),
                ("last_timestamp_ms", "last"),
            ]
        )
    )
    made = {"group_id": names.groups.take(merged["group"].combine_chunks()), "key_type": merged["key_type"]}
    for name, how in (
        ("records", "sum"),
        ("tombstones", "sum"),
        ("size_bytes", "sum"),
        ("first_timestamp_ms", "first"),
        ("last_timestamp_ms", "last"),
    ):
        made[name] = merged[f"{name}_{how}"]
    return pa.Table.from_arrays(
        [made[name].cast(GROUP_STATS.field(name).type) for name in GROUP_STATS.names], schema=GROUP_STATS
    )
