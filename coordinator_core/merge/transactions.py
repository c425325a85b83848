"""Transactions of the folds of one offsets partition, put together where they go on over segments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core.fold.arrow import column
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.groups.model import TransactionOutcome
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.merge.numbering import NameNumbers
from coordinator_core.merge.schema import END_PLACE, STILL_OPEN, TRANSACTIONS

_OUTCOMES = tuple(TransactionOutcome)
_OUTCOME_NUMBERS = {outcome: number for number, outcome in enumerate(_OUTCOMES)}
_NO_MARKER = -1
_COLUMNS = TRANSACTIONS.append(END_PLACE)


@dataclass(slots=True)
class _OpenTransaction:
    """A transaction that is open at the end of a segment; offset keys and groups by number."""

    first_record_offset: int
    producer_epoch: int = -1
    last_record_offset: int = -1
    timestamp_ms: int = -1
    offset_keys: set[int] = field(default_factory=set)
    groups: set[int] = field(default_factory=set)

    def go_on(self, producer_epoch: int, last_record_offset: int, timestamp_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.last_record_offset = last_record_offset
        self.timestamp_ms = timestamp_ms


class _Part:
    """A fold, and its offset keys and groups by number."""

    def __init__(self, fold: SegmentFold, offset_key_of: Int64s, group_of: Int64s) -> None:
        self.fold = fold
        self._offset_key_of = offset_key_of
        self._group_of = group_of
        self._groups = fold.offset_keys["group"].to_numpy()
        owners = 2 * fold.pending["producer"].to_numpy().astype(np.int64) + fold.pending["open"].to_numpy()
        order = np.argsort(owners, kind="stable")
        self._rows = fold.pending["key"].to_numpy()[order]
        self._bounds = np.searchsorted(owners[order], np.arange(2 * fold.producers.num_rows + 1))

    def add_offset_keys(self, transaction: _OpenTransaction, producer: int, *, is_open: bool) -> None:
        """Add the offset keys of the open transaction of row ``producer``, or of the one that it closed first."""
        owner = 2 * producer + is_open
        rows = self._rows[self._bounds[owner] : self._bounds[owner + 1]]
        transaction.offset_keys.update(self._offset_key_of[rows].tolist())
        transaction.groups.update(self._group_of[self._groups[rows]].tolist())


class Transactions:
    """Transactions of a log, taken fold after fold."""

    def __init__(self) -> None:
        self._folds = 0
        self._open: dict[int, _OpenTransaction] = {}
        self._ended: list[tuple[int, _OpenTransaction, TransactionOutcome, int, int]] = []
        self._complete: list[dict[str, Int64s]] = []
        self._complete_groups: list[Int64s] = []

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`load` continues."""
        return {
            "folds": self._folds,
            "open": {producer_id: astuple(found) for producer_id, found in self._open.items()},
            "ended": [(producer_id, astuple(found), *end) for producer_id, found, *end in self._ended],
            "complete": self._complete,
            "complete_groups": self._complete_groups,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._folds = state["folds"]
        self._open = {producer_id: _OpenTransaction(*found) for producer_id, found in state["open"].items()}
        self._ended = [(producer_id, _OpenTransaction(*found), *end) for producer_id, found, *end in state["ended"]]
        self._complete = state["complete"]
        self._complete_groups = state["complete_groups"]

    def pass_over(self) -> None:
        """Take in a fold without transactions: the places of others are behind it."""
        self._folds += 1

    def apply(self, fold: SegmentFold, offset_key_of: Int64s, group_of: Int64s) -> None:
        """Take in ``fold``. ``offset_key_of``, ``group_of``: numbers of its offset keys and groups (int64)."""
        self.pass_over()
        if fold.producers.num_rows == 0:
            return
        part = _Part(fold, offset_key_of, group_of)
        complete = np.ones(fold.transactions.num_rows, np.bool_)
        if self._open:
            self._close(part, complete)
        self._keep_complete(fold, complete, group_of)
        self._keep_open(part)

    def _close(self, part: _Part, complete: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """End the open transactions whose producers have a marker in the fold."""
        fold = part.fold
        first = np.flatnonzero(fold.transactions["first"].to_numpy())
        fragment_of = dict(
            zip(fold.transactions["producer_id"].to_numpy()[first].tolist(), first.tolist(), strict=True)
        )
        rows = np.flatnonzero(fold.producers["first_marker"].to_numpy() >= 0)
        names = ("producer_id", "first_marker_commits", "first_marker_offset")
        taken = [rows, *(fold.producers[name].to_numpy()[rows] for name in names)]
        for row, producer_id, commits, marker_offset in zip(*(values.tolist() for values in taken), strict=True):
            transaction = self._open.pop(producer_id, None)
            if transaction is None:
                continue
            fragment = fragment_of.get(producer_id)
            if fragment is not None:
                complete[fragment] = False
                (rest,) = fold.transactions.slice(fragment, 1).to_pylist()
                transaction.go_on(rest["producer_epoch"], rest["last_record_offset"], rest["timestamp_ms"])
                part.add_offset_keys(transaction, row, is_open=False)
            outcome = TransactionOutcome.COMMITTED if commits else TransactionOutcome.ABORTED
            self._ended.append((producer_id, transaction, outcome, marker_offset, 2 * self._folds))

    def _keep_complete(
        self, fold: SegmentFold, complete: np.ndarray[tuple[int], np.dtype[np.bool_]], group_of: Int64s
    ) -> None:
        """Keep the transactions that lie in this segment alone."""
        table = fold.transactions.filter(column(complete))
        if table.num_rows == 0:
            return
        kept = {
            name: table[name].to_numpy().astype(np.int64)
            for name in TRANSACTIONS.names
            if name not in ("outcome", "groups")
        }
        committed = table["committed"].to_numpy()
        kept["outcome"] = np.where(
            committed, _OUTCOME_NUMBERS[TransactionOutcome.COMMITTED], _OUTCOME_NUMBERS[TransactionOutcome.ABORTED]
        )
        kept[END_PLACE.name] = 2 * self._folds + ~table["first"].to_numpy()
        groups = table["groups"].combine_chunks()
        kept["groups"] = np.diff(groups.offsets.to_numpy()).astype(np.int64)
        self._complete.append(kept)
        self._complete_groups.append(group_of[groups.flatten().to_numpy()])

    def _keep_open(self, part: _Part) -> None:
        fold = part.fold
        rows = np.flatnonzero(fold.producers["open"].to_numpy())
        for row, data in zip(rows.tolist(), fold.producers.take(column(rows)).to_pylist(), strict=True):
            transaction = self._open.get(data["producer_id"])
            if transaction is None:
                transaction = _OpenTransaction(data["first_record_offset"])
                self._open[data["producer_id"]] = transaction
            transaction.go_on(data["producer_epoch"], data["last_record_offset"], data["timestamp_ms"])
            part.add_offset_keys(transaction, row, is_open=True)

    def table(self, groups: NameNumbers) -> pa.Table:
        """All transactions, open ones included, in the order of :func:`transaction_order`.

        Columns are those of ``merge.schema.TRANSACTIONS``, and ``END_PLACE``.
        """
        unended = (TransactionOutcome.OPEN, _NO_MARKER, STILL_OPEN)
        stitched = [*self._ended, *((*item, *unended) for item in self._open.items())]
        if not stitched and not self._complete:
            return _COLUMNS.empty_table()
        rows = [
            (
                producer_id,
                transaction.producer_epoch,
                transaction.first_record_offset,
                transaction.last_record_offset,
                _OUTCOME_NUMBERS[outcome],
                marker_offset,
                len(transaction.groups),
                len(transaction.offset_keys),
                transaction.timestamp_ms,
                end_place,
            )
            for producer_id, transaction, outcome, marker_offset, end_place in stitched
        ]
        numbers = np.array(rows, np.int64).reshape(-1, len(_COLUMNS.names))
        merged = {
            name: np.concatenate([numbers[:, index], *(kept[name] for kept in self._complete)])
            for index, name in enumerate(_COLUMNS.names)
        }
        members = [np.fromiter(item[1].groups, np.int64, len(item[1].groups)) for item in stitched]
        all_groups = np.concatenate([*members, *self._complete_groups])
        order = transaction_order({**merged, "is_open": merged["end_marker_offset"] == _NO_MARKER})
        return _table(merged, order, _group_lists(all_groups, merged["groups"], order, groups))


def transaction_order(columns: Mapping[str, Int64s | npt.NDArray[np.bool_]]) -> Int64s:
    """Rows of transactions in the order of ``replay.sequential``: by first record, open ones last, then by end marker,
    producer, and place in the log.

    ``columns`` are those of a shard and ``is_open``. Markers of open transactions must be equal.
    """
    names = ("end_place", "producer_id", "end_marker_offset", "is_open", "first_record_offset")
    return np.lexsort([columns[name] for name in names])


def _group_lists(numbers: Int64s, sizes: Int64s, order: Int64s, groups: NameNumbers) -> pa.Array:
    """Lists of ``sizes`` from ``numbers`` of groups, put in ``order``, each sorted by name."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    owners = np.repeat(place, sizes)
    texts = groups.texts().take(column(numbers[np.lexsort((groups.ranks()[numbers], owners))]))
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes[order], out=starts[1:])
    return pa.ListArray.from_arrays(
        column(starts.astype(np.int32)), texts.cast(pa.string()), type=TRANSACTIONS.field("groups").type
    )


def _table(merged: dict[str, Int64s], order: Int64s, groups: pa.Array) -> pa.Table:
    ends = merged["end_marker_offset"][order]
    outcomes = pa.DictionaryArray.from_arrays(
        column(merged["outcome"][order].astype(np.int8)), [outcome.value for outcome in _OUTCOMES]
    )
    made = {"outcome": outcomes, "groups": groups, "end_marker_offset": column(ends, ends == _NO_MARKER)}
    arrays = [made[name] if name in made else column(merged[name][order]) for name in _COLUMNS.names]
    return pa.Table.from_arrays(
        [array.cast(field.type) for array, field in zip(arrays, _COLUMNS, strict=True)], schema=_COLUMNS
    )
