"""One expiry sweep over an offsets partition whose committed offsets are columns.

The answer is that of :func:`~coordinator_core.lifecycle.expiry.plan_expiry`, which has an object for every committed
offset. Here groups are objects, and so are tombstones of groups; all else is columns of one length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.lifecycle.due import Bools, Expiry, expiry_of
from coordinator_core.lifecycle.expiry import GroupSweep
from coordinator_core.lifecycle.plan import Kept, Reason, Tombstone, TombstoneKind
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.records.codec import encode_key
from coordinator_core.records.wire import MAX_STRING_BYTES
from coordinator_core.releases import Profile

OFFSET_COLUMNS = ("group_id", "topic", "partition", "commit_timestamp_ms", "expire_timestamp_ms", "record_offset")
"""Columns of committed offsets that a sweep looks at."""

REASONS, KINDS = tuple(Reason), tuple(TombstoneKind)
BLOCK_BYTES = 1 << 24
"""Bytes of keys that the tombstones of a block may have, about; one more may be in it."""

_KEPT = tuple(Kept)
_EXPIRES, _LEFT = -1, -2
_EXPLICIT = np.int8(REASONS.index(Reason.EXPIRE_TIMESTAMP))
_ROW_BYTES = 64
"""Bytes of a tombstone besides its names, about."""
_ROWS = 1 << 17
"""Tombstones of offsets that are looked at together, and those of the last group among them."""
_ROWS_AT_ONCE = 1 << 20
"""Committed offsets whose expiry is computed together."""

Int32s = npt.NDArray[np.int32]
Int8s = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Tombstones:
    """Some tombstones of an offsets partition.

    Those of committed offsets are arrays of one length: ``group`` and ``topic`` are places in ``group_ids`` and
    ``topics``, ``reason`` is one in :data:`REASONS`, ``base_ms`` counts where ``has_base``. ``others`` are those of
    groups, ``group_of_other`` their places in ``group_ids``. ``order`` has the place of each tombstone among the ones
    and then the others.
    """

    offsets_partition: int
    key_type: int
    group_ids: pa.Array
    topics: pa.Array
    group: Int32s
    topic: Int32s
    partition: Int32s
    reason: Int8s
    base_ms: Int64s
    has_base: Bools
    expires_at_ms: Int64s
    record_offset: Int64s
    others: Sequence[Tombstone]
    group_of_other: Int64s
    order: Int64s

    def __len__(self) -> int:
        return len(self.order)

    def in_order(self, of_offsets: npt.NDArray[Any], of_others: Sequence[Any]) -> npt.NDArray[Any]:
        """Values of all tombstones, of those of either kind."""
        if not self.others:
            return of_offsets
        return np.concatenate([of_offsets, np.array(of_others, of_offsets.dtype)])[self.order]

    @property
    def names_of_offsets(self) -> tuple[pa.Array, pa.Array]:
        """Group id and topic of each committed offset."""
        group, topic = self.group_ids.take(pa.array(self.group)), self.topics.take(pa.array(self.topic))
        return group, topic

    def digested_keys(self) -> pa.Array:
        """:meth:`Tombstone.digested_key` of each (binary)."""
        together = self.group.astype(np.int64) * len(self.topics) + self.topic
        used, place = np.unique(together, return_inverse=True)
        names = self._key_names(*np.divmod(used, max(1, len(self.topics))))
        size = _big_endian(pc.add(pc.binary_length(names), 4), ">i4")
        of_names = pc.binary_join_element_wise(size, names, pa.scalar(b"")).take(pa.array(place))
        keys = pc.binary_join_element_wise(of_names, _big_endian(self.partition, ">i4"), pa.scalar(b""))
        if not self.others:
            return keys
        others = pa.array([one.digested_key() for one in self.others], pa.binary())
        return pa.concat_arrays([keys, others]).take(pa.array(self.order))

    def _key_names(self, group: Int64s, topic: Int64s) -> pa.Array:
        """Bytes of offset keys up to the partition (binary)."""
        version = encode_key(self.key_type, {"group": "", "topic": "", "partition": 0})[:2]
        parts = []
        for texts, numbers in ((self.group_ids, group), (self.topics, topic)):
            values = texts.take(pa.array(numbers)).cast(pa.binary())
            parts += [_big_endian(pc.binary_length(values), ">i2"), values]
        return pc.binary_join_element_wise(pa.scalar(version), *parts, pa.scalar(b""))


def _big_endian(numbers: Any, kind: str) -> pa.Array:
    """Bytes of each number (binary), as numpy's ``kind`` has them."""
    found = np.asarray(numbers).astype(kind)
    of_size = pa.binary(found.dtype.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(of_size, len(found), [None, pa.py_buffer(found)]).cast(pa.binary())


@dataclass(frozen=True)
class Swept:
    """Result of the sweep: of committed offsets that expire their ``rows`` in ``offsets``, by group, topic and
    partition, and columns parallel to ``rows``: when they do, and whether by their own expire timestamp, else by the
    ``conditions`` of their group. ``others`` are tombstones of groups; ``kept`` counts what has none.

    ``failure`` says why such a sweep fails, and then there are no tombstones.
    """

    offsets_partition: int
    now_ms: int
    key_type: int
    offsets: OffsetColumns
    rows: Int64s
    expires_at_ms: Int64s
    is_explicit: Bools
    conditions: _Conditions
    others: Sequence[Tombstone]
    kept: Mapping[Kept, int]
    failure: str | None

    def places(self) -> Iterator[Int64s]:
        """Places of all tombstones, some at a time: group by group, of each its offsets, then its own.

        A place is one in ``rows``, or behind them in ``others``.
        """
        size = len(self.rows)
        # By group; of one group they are in order.
        of_others = np.argsort(self._group_of_other, kind="stable")
        group_of_other = self._group_of_other[of_others]
        begin = first_other = 0
        while begin < size or first_other < len(of_others):
            end = min(begin + _ROWS, size)
            last_group = len(self.offsets.group_ids)
            if end < size:
                last_group = self._group[end - 1]
                end += int(np.searchsorted(self._group[end:], last_group, side="right"))
            last_other = int(np.searchsorted(group_of_other, last_group, side="right"))
            others = slice(first_other, last_other)
            at = np.searchsorted(self._group[begin:end], group_of_other[others], side="right")
            order = np.insert(np.arange(begin, end), at, of_others[others] + size)
            text = np.insert(self.offsets.name_bytes(self.rows[begin:end]), at, 0) + _ROW_BYTES
            yield from np.split(order, np.flatnonzero(np.diff(np.cumsum(text) // BLOCK_BYTES)) + 1)
            begin, first_other = end, last_other

    def is_due(self, places: Int64s) -> Bools:
        """Whether a sweep writes the tombstones now, or later."""
        is_other = places >= len(self.rows)
        times = np.empty(len(places), np.int64)
        times[~is_other] = self.expires_at_ms[places[~is_other]]
        times[is_other] = self._times_of_others[places[is_other] - len(self.rows)]
        found: Bools = times <= self.now_ms
        return found

    def tombstones(self, places: Int64s) -> Tombstones:
        """The tombstones at ``places``."""
        is_other = places >= len(self.rows)
        found, others = places[~is_other], places[is_other] - len(self.rows)
        rows, group, is_explicit = self.rows[found], self._group[found], self.is_explicit[found]
        order = np.empty(len(places), np.int64)
        order[~is_other] = np.arange(len(found))
        order[is_other] = len(found) + np.arange(len(others))
        return Tombstones(
            offsets_partition=self.offsets_partition,
            key_type=self.key_type,
            group_ids=self.offsets.texts[0],
            topics=self.offsets.texts[1],
            group=group,
            topic=self.offsets.topic[rows],
            partition=self.offsets.partition[rows],
            reason=np.where(is_explicit, _EXPLICIT, self.conditions.reason[group]),
            base_ms=self.conditions.base_of(rows, group),
            has_base=~is_explicit,
            expires_at_ms=self.expires_at_ms[found],
            record_offset=self.offsets.record_offset[rows],
            others=[self.others[one] for one in others.tolist()],
            group_of_other=self._group_of_other[others],
            order=order,
        )

    @cached_property
    def _group(self) -> Int32s:
        found: Int32s = self.offsets.group[self.rows]
        return found

    @cached_property
    def _times_of_others(self) -> Int64s:
        return np.array([one.expires_at_ms for one in self.others], np.int64)

    @cached_property
    def _group_of_other(self) -> Int64s:
        numbers = {group_id: number for number, group_id in enumerate(self.offsets.group_ids)}
        return np.array([numbers[one.group_id] for one in self.others], np.int64)


class OffsetColumns:
    """Committed offsets of an offsets partition, by group id, topic and partition.

    Arrays of one length; ``group`` and ``topic`` are places in ``group_ids`` and ``topics``, which are sorted.
    """

    def __init__(self, blocks: Iterable[pa.Table], rows: int, group_ids: Collection[str] = ()) -> None:
        """``blocks`` come from ``OffsetRows.in_any_order`` with :data:`OFFSET_COLUMNS`, and have so many ``rows``.

        ``group_ids`` need not have offsets.
        """
        names = {"group_id": _Names(group_ids), "topic": _Names()}
        group, topic, partition = (np.empty(rows, np.int32) for _ in range(3))
        commit_ms, record_offset = (np.empty(rows, np.int64) for _ in range(2))
        # Releases since 2.1 write none: memory that is not written to is not taken.
        explicit_ms, is_explicit = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
        begin = 0
        for block in blocks:
            here = slice(begin, begin := begin + block.num_rows)
            group[here] = names["group_id"].numbers(block["group_id"].combine_chunks())
            topic[here] = names["topic"].numbers(block["topic"].combine_chunks())
            partition[here] = block["partition"].to_numpy()
            commit_ms[here] = block["commit_timestamp_ms"].to_numpy()
            record_offset[here] = block["record_offset"].to_numpy()
            own = block["expire_timestamp_ms"]
            if own.null_count < len(own):
                is_explicit[here] = pc.is_valid(own).to_numpy()
                explicit_ms[here] = pc.fill_null(own, 0).to_numpy()
        self.group_ids, place = names["group_id"].in_order()
        group[:] = place[group]
        self.topics, place = names["topic"].in_order()
        topic[:] = place[topic]
        order = self._order(group, topic, partition)
        columns: list[npt.NDArray[Any]] = [group, topic, partition, commit_ms, record_offset]
        if is_explicit.any():
            columns += [is_explicit, explicit_ms]
        for column in columns:
            # In place: another copy of all columns would be most of what a sweep takes.
            column[:] = column[order]
        self.group, self.topic, self.partition = group, topic, partition
        self.commit_ms, self.record_offset = commit_ms, record_offset
        self.is_explicit, self.explicit_ms = is_explicit, explicit_ms

    def _order(self, group: Int32s, topic: Int32s, partition: Int32s) -> Int64s:
        groups_topics, partitions = len(self.group_ids) * len(self.topics), int(partition.max(initial=0)) + 1
        if groups_topics * partitions < 1 << 62 and partition.min(initial=0) >= 0:
            key = group.astype(np.int64)
            key *= len(self.topics)
            key += topic
            key *= partitions
            key += partition
            return np.argsort(key, kind="stable")
        return np.lexsort((partition, topic, group))

    def __len__(self) -> int:
        return len(self.group)

    def group_topic(self, rows: Any = slice(None)) -> Int64s:
        """One number for a group and a topic."""
        found: Int64s = self.group[rows].astype(np.int64) * len(self.topics) + self.topic[rows]
        return found

    def name_bytes(self, rows: Any) -> Int64s:
        """Bytes of group id and topic, as UTF-8."""
        of_group, of_topic = (pc.binary_length(texts).to_numpy() for texts in self.texts)
        found: Int64s = of_group[self.group[rows]] + of_topic[self.topic[rows]]
        return found

    def have_long_names(self, rows: Int64s) -> Bools:
        """Whether no record can have the key of an offset, as :attr:`Tombstone.is_writable` says."""
        of_group, of_topic = (
            pc.greater(pc.binary_length(texts), MAX_STRING_BYTES).to_numpy(False) for texts in self.texts
        )
        found: Bools = of_group[self.group[rows]] | of_topic[self.topic[rows]]
        return found

    @cached_property
    def texts(self) -> tuple[pa.Array, pa.Array]:
        """``group_ids`` and ``topics``."""
        return pa.array(self.group_ids, pa.string()), pa.array(self.topics, pa.string())

    def rows_of(self, offset_keys: Iterable[OffsetKey]) -> Bools:
        """Mask of the offsets with these keys."""
        groups, topics = ({text: n for n, text in enumerate(texts)} for texts in (self.group_ids, self.topics))
        found = np.zeros(len(self), np.bool_)
        pairs: dict[int, set[int]] = {}
        for one in offset_keys:
            if one.group_id in groups and one.topic in topics:
                pair = groups[one.group_id] * len(self.topics) + topics[one.topic]
                pairs.setdefault(pair, set()).add(one.partition)
        if not pairs:
            return found
        every = self.group_topic()
        for pair, partitions in pairs.items():
            begin, end = np.searchsorted(every, [pair, pair + 1])
            found[begin:end] = np.isin(self.partition[begin:end], list(partitions))
        return found


class _Names:
    """Texts numbered in the order in which they come."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._numbers = {text: number for number, text in enumerate(texts)}
        self._dictionary = pa.array([], pa.string())
        self._of_dictionary = np.empty(0, np.int32)

    def numbers(self, column: pa.DictionaryArray) -> Int32s:
        """Numbers of the texts of a column; most columns have the dictionary of the one before."""
        if not column.dictionary.equals(self._dictionary):
            self._dictionary = column.dictionary
            known = self._numbers
            found = [known.setdefault(text, len(known)) for text in self._dictionary.to_pylist()]
            self._of_dictionary = np.array(found, np.int32)
        numbers: Int32s = self._of_dictionary[column.indices.to_numpy()]
        return numbers

    def in_order(self) -> tuple[list[str], Int32s]:
        """All texts, sorted; by number the place of each."""
        texts = sorted(self._numbers)
        place = np.empty(len(texts), np.int32)
        place[[self._numbers[text] for text in texts]] = np.arange(len(texts))
        return texts, place


def sweep_columns(
    merged: MergedPartition, state: PartitionState, profile: Profile, *, now_ms: int, offsets_retention_ms: int
) -> Swept:
    """The sweep of ``profile``'s coordinator at ``now_ms`` over ``merged``; ``state`` is all of it but its offsets."""
    rules = profile.expiry
    sweep = GroupSweep(state, rules, now_ms, offsets_retention_ms)
    offsets = OffsetColumns(merged.offsets.in_any_order(OFFSET_COLUMNS), merged.offsets.num_rows, state.groups)
    counts = np.bincount(offsets.group, minlength=len(offsets.group_ids))
    conditions = _Conditions(sweep, offsets, counts)
    is_pending = offsets.rows_of(sweep.pending())

    def expiry_at(rows: Int64s, base_ms: Int64s) -> Expiry[Int64s, Bools]:
        return expiry_of(
            rules.clock,
            now_ms=now_ms,
            retention_ms=offsets_retention_ms,
            base_ms=base_ms,
            explicit_ms=offsets.explicit_ms[rows],
            is_explicit=offsets.is_explicit[rows],
        )

    expiring = _Expiring.joined(
        conditions.expiring(slice(begin, begin + _ROWS_AT_ONCE), is_pending, expiry_at)
        for begin in range(0, len(offsets), _ROWS_AT_ONCE)
    )
    failed = _end_groups(sweep, offsets, counts, expiring, now_ms)
    is_long = offsets.have_long_names(expiring.rows)
    if is_long.any():
        rows, times, is_explicit = expiring
        for row, time in zip(rows[is_long].tolist(), times[is_long].tolist(), strict=True):
            sweep.refuse(offsets.group_ids[offsets.group[row]], is_due=time <= now_ms)
        expiring = _Expiring(rows[~is_long], times[~is_long], is_explicit[~is_long])
    failure = sweep.load_failure() or failed or sweep.unwritable
    counted = Counter(conditions.counted)
    for of_group in sweep.kept.values():
        counted.update(of_group)
    others = [*sweep.due, *sweep.forecast]
    if failure is not None:
        counted[Kept.SWEEP_FAILS] += len(expiring.rows) + len(others)
        others, expiring = [], _Expiring.joined([])
    return Swept(
        offsets_partition=state.offsets_partition,
        now_ms=now_ms,
        key_type=rules.offset_key_type,
        offsets=offsets,
        rows=expiring.rows,
        expires_at_ms=expiring.expires_at_ms,
        is_explicit=expiring.is_explicit,
        conditions=conditions,
        others=others,
        kept={reason: count for reason, count in counted.items() if count},
        failure=failure,
    )


class _Expiring(NamedTuple):
    """Of offsets that expire: columns of :class:`Swept`."""

    rows: Int64s
    expires_at_ms: Int64s
    is_explicit: Bools

    @classmethod
    def joined(cls, parts: Iterable[_Expiring]) -> _Expiring:
        """All ``parts``, whose rows go on."""
        columns: list[list[npt.NDArray[Any]]] = [[np.empty(0, kind)] for kind in (np.int64, np.int64, np.bool_)]
        for part in parts:
            for column, values in zip(columns, part, strict=True):
                column.append(values)
        # Parts of one column at a time are there twice.
        return cls(*(np.concatenate(columns.pop(0)) for _ in cls._fields))


class _Conditions:
    """Conditions of groups for their offsets, by place in ``group_ids``; ``kept`` is one of ``_KEPT``, or below 0.

    ``counted`` are the offsets that are kept, of those that were looked at.
    """

    def __init__(self, sweep: GroupSweep, offsets: OffsetColumns, counts: Int64s) -> None:
        size = len(offsets.group_ids)
        self.kept, self.reason = np.full(size, _EXPIRES, np.int8), np.zeros(size, np.int8)
        self.has_base, self.base_ms = np.zeros(size, np.bool_), np.zeros(size, np.int64)
        self.counted: Counter[Kept] = Counter()
        self._offsets = offsets
        topics = {topic: number for number, topic in enumerate(offsets.topics)}
        pairs: list[int] = []
        for number in np.flatnonzero(counts).tolist():
            group_id = offsets.group_ids[number]
            if sweep.is_left(group_id, counts[number]):
                self.kept[number] = _LEFT
                continue
            condition = sweep.condition(group_id)
            if condition.kept is not None:
                self.kept[number] = _KEPT.index(condition.kept)
            self.reason[number] = REASONS.index(condition.reason)
            if condition.base_timestamp_ms is not None:
                self.has_base[number], self.base_ms[number] = True, condition.base_timestamp_ms
            pairs += [number * len(topics) + topics[topic] for topic in condition.subscribed if topic in topics]
        self._subscribed = np.array(pairs, np.int64)

    def expiring(
        self, part: slice, is_pending: Bools, expiry_at: Callable[[Int64s, Int64s], Expiry[Int64s, Bools]]
    ) -> _Expiring:
        """Offsets that expire, of a ``part`` of all; ``expiry_at`` is their expiry, from the time since which they
        age."""
        offsets = self._offsets
        kept = self.kept[offsets.group[part]]
        places = np.flatnonzero(kept == _EXPIRES)
        rows = places + part.start
        is_subscribed = np.isin(offsets.group_topic(rows), self._subscribed)
        kept[places[is_subscribed]] = _KEPT.index(Kept.SUBSCRIBED_TOPIC)
        kept[places[~is_subscribed & is_pending[rows]]] = _KEPT.index(Kept.PENDING_COMMIT)
        rows = rows[kept[places] == _EXPIRES]
        group = offsets.group[rows]
        expiry = expiry_at(rows, self.base_of(rows, group))
        ever = np.broadcast_to(expiry.ever, rows.shape)
        kept[rows[~ever] - part.start] = _KEPT.index(Kept.NEVER)
        is_explicit = np.broadcast_to(expiry.is_explicit, rows.shape)
        for number, count in enumerate(np.bincount(kept[kept >= 0]).tolist()):
            self.counted[_KEPT[number]] += count
        return _Expiring(rows[ever], expiry.due_ms[ever], is_explicit[ever])

    def base_of(self, rows: Int64s, group: Int32s) -> Int64s:
        """Times from which the offsets in ``rows``, of these groups, age."""
        return np.where(self.has_base[group], self.base_ms[group], self._offsets.commit_ms[rows])


def _end_groups(sweep: GroupSweep, offsets: OffsetColumns, counts: Int64s, found: _Expiring, now_ms: int) -> str | None:
    """Take in the groups themselves; ``found`` are the offsets that expire."""
    expiring = np.bincount(offsets.group[found.rows], minlength=len(counts))
    last = np.full(len(counts), now_ms, np.int64)
    of_groups = np.flatnonzero(expiring)
    if len(of_groups):
        starts = np.cumsum(expiring) - expiring
        last[of_groups] = np.maximum.reduceat(found.expires_at_ms, starts[of_groups])
    failure = None
    for group_id, *numbers in zip(offsets.group_ids, counts.tolist(), expiring.tolist(), last.tolist(), strict=True):
        if sweep.is_left(group_id, numbers[0]):
            failed = sweep.leave(group_id, numbers[0])
        else:
            failed = sweep.end_group(group_id, *numbers)
        failure = failure or failed
    return failure
