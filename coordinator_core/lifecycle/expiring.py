"""One expiry sweep over an offsets partition whose committed offsets are columns.

The answer is that of :func:`~coordinator_core.lifecycle.expiry.plan_expiry`, which has an object for every committed
offset. Here groups are objects, and so are tombstones of groups; all else is columns of one length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.lifecycle.due import expiry_of
from coordinator_core.lifecycle.expiry import GroupSweep
from coordinator_core.lifecycle.plan import Kept, Reason, Tombstone
from coordinator_core.records.codec import encode_key
from coordinator_core.releases import Profile

OFFSET_COLUMNS = ("group_id", "topic", "partition", "commit_timestamp_ms", "expire_timestamp_ms", "record_offset")
"""Columns of committed offsets that a sweep looks at."""

REASONS = tuple(Reason)
BLOCK_BYTES = 1 << 24
"""Bytes that the tombstones of a block may have as text, about; one more may be in it."""

_KEPT = tuple(Kept)
_EXPIRES, _LEFT = -1, -2
_ROW_BYTES, _NAME_BYTES, _OTHER_BYTES = 256, 8, 1024
"""Text of a tombstone: JSON makes six characters of some, hexadecimal digits are two."""
_SORTED_ROWS = 1 << 17
"""Tombstones of offsets that are put in order at a time, and those of the last group among them."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tombstones:
    """Some tombstones of an offsets partition, in order.

    Those of committed offsets are arrays of one length: ``group`` and ``topic`` are places in ``group_ids`` and
    ``topics``, ``reason`` is one in :data:`REASONS`, ``base_ms`` counts where ``has_base``. ``others`` are those of
    groups. ``order`` has the place of each tombstone among the ones and then the others.
    """

    offsets_partition: int
    key_type: int
    group_ids: Sequence[str]
    topics: Sequence[str]
    group: Int64s
    topic: Int64s
    partition: Int64s
    reason: Int64s
    base_ms: Int64s
    has_base: npt.NDArray[np.bool_]
    expires_at_ms: Int64s
    record_offset: Int64s
    others: Sequence[Tombstone]
    order: Int64s

    def in_order(self, of_offsets: pa.Array, of_others: Sequence[bytes]) -> pa.Array:
        """Bytes of each tombstone, of arrays with those of either kind."""
        if not self.others:
            return of_offsets
        both = of_offsets, pa.array(of_others, pa.binary())
        size = len(of_offsets)
        # Neighbours stay neighbours, but where a tombstone of the other kind is between them.
        begins = np.flatnonzero((np.diff(self.order, prepend=-2) != 1) | (self.order == size))
        lengths = np.diff(begins, append=len(self.order))
        return pa.concat_arrays(
            both[first >= size].slice(first - size if first >= size else first, length)
            for first, length in zip(self.order[begins].tolist(), lengths.tolist(), strict=True)
        )

    def of_names(self, values: pa.Array) -> pa.Array:
        """For each offset tombstone the value of its group id and topic; ``values`` are in the order of
        :attr:`names`."""
        return values.take(pa.array(self._names[2]))

    @property
    def names(self) -> tuple[pa.Array, pa.Array]:
        """Group ids and topics that offset tombstones have together (text), each pair once."""
        groups, topics, _ = self._names
        return _texts(self.group_ids, groups), _texts(self.topics, topics)

    @cached_property
    def _names(self) -> tuple[Int64s, Int64s, Int64s]:
        together = self.group.astype(np.int64) * len(self.topics) + self.topic
        used, place = np.unique(together, return_inverse=True)
        return *np.divmod(used, max(1, len(self.topics))), place

    def key_names(self) -> pa.Array:
        """Bytes of offset keys up to the partition (binary), in the order of :attr:`names`."""
        version = encode_key(self.key_type, {"group": "", "topic": "", "partition": 0})[:2]
        parts = []
        for texts in self.names:
            values = texts.cast(pa.binary())
            parts += [_big_endian(pc.binary_length(values), ">i2"), values]
        return pc.binary_join_element_wise(pa.scalar(version), *parts, pa.scalar(b""))

    def key_partitions(self) -> pa.Array:
        """Bytes of the key of each offset tombstone from the partition on (binary)."""
        return _big_endian(self.partition, ">i4")

    def digested_keys(self) -> pa.Array:
        """:meth:`Tombstone.digested_key` of each (binary)."""
        names = self.key_names()
        size = _big_endian(pc.add(pc.binary_length(names), 4), ">i4")
        of_names = self.of_names(pc.binary_join_element_wise(size, names, pa.scalar(b"")))
        keys = pc.binary_join_element_wise(of_names, self.key_partitions(), pa.scalar(b""))
        return self.in_order(keys, [one.digested_key() for one in self.others])


def _texts(texts: Sequence[str], numbers: Int64s) -> pa.Array:
    return pa.array([texts[number] for number in numbers.tolist()], pa.string())


def _big_endian(numbers: Any, kind: str) -> pa.Array:
    """Bytes of each number (binary), as numpy's ``kind`` has them."""
    found = np.asarray(numbers).astype(kind)
    of_size = pa.binary(found.dtype.itemsize)
    return pa.FixedSizeBinaryArray.from_buffers(of_size, len(found), [None, pa.py_buffer(found)]).cast(pa.binary())


@dataclass(frozen=True)
class Swept:
    """Result of the sweep: of committed offsets that expire their ``rows`` in ``offsets``, by group, topic and
    partition, and columns parallel to ``rows``; ``others`` are tombstones of groups; ``kept`` counts what has none.

    ``failure`` says why such a sweep fails, and then there are no tombstones.
    """

    offsets_partition: int
    now_ms: int
    key_type: int
    offsets: OffsetColumns
    rows: Int64s
    expires_at_ms: Int64s
    reason: Int64s
    base_ms: Int64s
    has_base: npt.NDArray[np.bool_]
    others: Sequence[Tombstone]
    kept: Mapping[Kept, int]
    failure: str | None

    @cached_property
    def _due(self) -> npt.NDArray[np.bool_]:
        """Of the expiring offsets, and then of the others, whether they are due."""
        others = np.array([one.expires_at_ms for one in self.others], np.int64)
        found: npt.NDArray[np.bool_] = np.concatenate([self.expires_at_ms, others]) <= self.now_ms
        return found

    def due(self) -> Iterator[Tombstones]:
        """Tombstones that are due, in the order of writing."""
        return self._blocks(np.flatnonzero(self._due))

    def later(self) -> Iterator[Tombstones]:
        """Tombstones to come, one group after the other, each group's by time."""
        return self._blocks(np.flatnonzero(~self._due), by_time=True)

    def _blocks(self, places: Int64s, *, by_time: bool = False) -> Iterator[Tombstones]:
        """``places``: of expiring offsets, and behind them of the others; groups whole, some at a time."""
        size = len(self.rows)
        split = int(np.searchsorted(places, size))
        of_offsets, of_others = places[:split], places[split:]
        numbers = {group_id: number for number, group_id in enumerate(self.offsets.group_ids)}
        group_of_other = np.array([numbers[self.others[one - size].group_id] for one in of_others.tolist()], np.int64)
        # By group; of one group they are in order.
        by_group = np.argsort(group_of_other, kind="stable")
        of_others, group_of_other = of_others[by_group], group_of_other[by_group]
        begin = first_other = 0
        while begin < len(of_offsets) or first_other < len(of_others):
            group = self.offsets.group[self.rows[of_offsets[begin : begin + _SORTED_ROWS]]]
            last_group = group[-1] if len(group) == _SORTED_ROWS else len(numbers)
            end = begin + len(group)
            if len(group) == _SORTED_ROWS:
                end += int(np.searchsorted(self._group_of(of_offsets[end:]), last_group, side="right"))
            last_other = int(np.searchsorted(group_of_other, last_group, side="right"))
            yield from self._of_groups(
                of_offsets[begin:end],
                of_others[first_other:last_other],
                group_of_other[first_other:last_other],
                by_time=by_time,
            )
            begin, first_other = end, last_other

    def _of_groups(
        self, of_offsets: Int64s, of_others: Int64s, group_of_other: Int64s, *, by_time: bool
    ) -> Iterator[Tombstones]:
        group = self._group_of(of_offsets)
        at = np.searchsorted(group, group_of_other, side="right")
        order = np.insert(of_offsets, at, of_others)
        others = [self.others[one - len(self.rows)] for one in of_others.tolist()]
        if by_time:
            time = np.insert(self.expires_at_ms[of_offsets], at, [one.expires_at_ms for one in others])
            by = np.lexsort((time, np.insert(group, at, group_of_other)))
        text = np.insert(self.offsets.name_bytes(self.rows[of_offsets]) * _NAME_BYTES + _ROW_BYTES, at, _OTHER_BYTES)
        if by_time:
            order, text = order[by], text[by]
        cuts = np.flatnonzero(np.diff(np.cumsum(text) // BLOCK_BYTES)) + 1
        for block in np.split(order, cuts):
            yield self._block(block)

    def _group_of(self, of_offsets: Int64s) -> Int64s:
        found: Int64s = self.offsets.group[self.rows[of_offsets]]
        return found

    def _block(self, places: Int64s) -> Tombstones:
        is_other = places >= len(self.rows)
        found = places[~is_other]
        rows = self.rows[found]
        order = np.empty(len(places), np.int64)
        order[~is_other] = np.arange(len(found))
        order[is_other] = len(found) + np.arange(len(places) - len(found))
        return Tombstones(
            offsets_partition=self.offsets_partition,
            key_type=self.key_type,
            group_ids=self.offsets.group_ids,
            topics=self.offsets.topics,
            group=self.offsets.group[rows],
            topic=self.offsets.topic[rows],
            partition=self.offsets.partition[rows],
            reason=self.reason[found],
            base_ms=self.base_ms[found],
            has_base=self.has_base[found],
            expires_at_ms=self.expires_at_ms[found],
            record_offset=self.offsets.record_offset[rows],
            others=[self.others[one - len(self.rows)] for one in places[is_other].tolist()],
            order=order,
        )


class OffsetColumns:
    """Committed offsets of an offsets partition, by group id, topic and partition.

    Arrays of one length; ``group`` and ``topic`` are places in ``group_ids`` and ``topics``, which are sorted.
    """

    def __init__(self, blocks: Iterable[pa.Table], group_ids: Collection[str] = ()) -> None:
        """``blocks`` have :data:`OFFSET_COLUMNS`; ``group_ids`` are of groups that need not have offsets."""
        names: dict[str, dict[str, int]] = {"group_id": {one: n for n, one in enumerate(group_ids)}, "topic": {}}
        numbers = ("partition", "commit_timestamp_ms", "record_offset")
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*OFFSET_COLUMNS, "has_own")}
        for block in blocks:
            for name, known in names.items():
                column = block[name].combine_chunks().dictionary_encode()
                of_text = [known.setdefault(text, len(known)) for text in column.dictionary.to_pylist()]
                parts[name].append(np.array(of_text, np.int32)[column.indices.to_numpy()])
            for name in numbers:
                parts[name].append(block[name].to_numpy())
            own = block["expire_timestamp_ms"]
            parts["has_own"].append(pc.is_valid(own).to_numpy())
            parts["expire_timestamp_ms"].append(pc.fill_null(own, 0).to_numpy())
        found = {
            name: np.concatenate(parts.pop(name) or [np.zeros(0, np.int32)]) for name in (*OFFSET_COLUMNS, "has_own")
        }
        for name, known in names.items():
            texts = sorted(known)
            place = np.empty(len(known), np.int32)
            place[[known[text] for text in texts]] = np.arange(len(known))
            names[name] = dict.fromkeys(texts, 0)
            found[name] = place[found[name]]
        self.group_ids, self.topics = list(names["group_id"]), list(names["topic"])
        order = self._order(found["group_id"], found["topic"], found["partition"])
        self.group: Int64s = found.pop("group_id")[order]
        self.topic: Int64s = found.pop("topic")[order]
        self.partition: Int64s = found.pop("partition")[order]
        self.commit_ms: Int64s = found.pop("commit_timestamp_ms")[order]
        self.is_explicit: npt.NDArray[np.bool_] = found.pop("has_own")[order].astype(np.bool_)
        explicit = found.pop("expire_timestamp_ms")
        # Releases since 2.1 write none.
        self.explicit_ms: Int64s = (
            explicit[order] if self.is_explicit.any() else np.broadcast_to(np.int64(0), explicit.shape)
        )
        del explicit
        self.record_offset: Int64s = found.pop("record_offset")[order]

    def _order(self, group: Int64s, topic: Int64s, partition: Int64s) -> Int64s:
        groups_topics, partitions = len(self.group_ids) * len(self.topics), int(partition.max(initial=0)) + 1
        if groups_topics * partitions < 1 << 62 and partition.min(initial=0) >= 0:
            key = group.astype(np.int64)
            key *= len(self.topics)
            key += topic
            key *= partitions
            key += partition
            return np.argsort(key, kind="stable").astype(np.uint32 if len(key) < 1 << 32 else np.int64)
        return np.lexsort((partition, topic, group))

    def __len__(self) -> int:
        return len(self.group)

    def group_topic(self, rows: Any = slice(None)) -> Int64s:
        """One number for a group and a topic."""
        found: Int64s = self.group[rows].astype(np.int64) * len(self.topics) + self.topic[rows]
        return found

    def name_bytes(self, rows: Int64s) -> Int64s:
        """Bytes of group id and topic, as UTF-8."""
        of_group, of_topic = (
            np.array([len(text.encode()) for text in texts], np.int64) for texts in (self.group_ids, self.topics)
        )
        found: Int64s = of_group[self.group[rows]] + of_topic[self.topic[rows]]
        return found

    def rows_of(self, offset_keys: Iterable[OffsetKey]) -> npt.NDArray[np.bool_]:
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


def sweep_columns(
    state: PartitionState, blocks: Iterable[pa.Table], profile: Profile, *, now_ms: int, offsets_retention_ms: int
) -> Swept:
    """The sweep of ``profile``'s coordinator at ``now_ms`` over ``state``; ``blocks`` have its committed offsets."""
    rules = profile.expiry
    sweep = GroupSweep(state, rules, now_ms, offsets_retention_ms)
    offsets = OffsetColumns(blocks, state.groups)
    counts = np.bincount(offsets.group, minlength=len(offsets.group_ids))
    conditions = _Conditions(sweep, offsets, counts)
    kept = conditions.kept[offsets.group]
    rows = np.flatnonzero(kept == _EXPIRES)
    is_subscribed = conditions.is_subscribed(rows)
    kept[rows[is_subscribed]] = _KEPT.index(Kept.SUBSCRIBED_TOPIC)
    rows = rows[~is_subscribed]
    is_pending = offsets.rows_of(sweep.pending())[rows]
    kept[rows[is_pending]] = _KEPT.index(Kept.PENDING_COMMIT)
    rows = rows[~is_pending]
    group = offsets.group[rows]
    base = np.where(conditions.has_base[group], conditions.base_ms[group], offsets.commit_ms[rows])
    expiry = expiry_of(
        rules.clock,
        now_ms=now_ms,
        retention_ms=offsets_retention_ms,
        base_ms=base,
        explicit_ms=offsets.explicit_ms[rows],
        is_explicit=offsets.is_explicit[rows],
    )
    ever = np.broadcast_to(expiry.ever, rows.shape)
    kept[rows[~ever]] = _KEPT.index(Kept.NEVER)
    is_explicit = np.broadcast_to(expiry.is_explicit, rows.shape)[ever]
    rows, group, base, times = rows[ever], group[ever], base[ever], expiry.due_ms[ever]
    reasons = np.where(is_explicit, np.int8(REASONS.index(Reason.EXPIRE_TIMESTAMP)), conditions.reason[group])
    failed = _end_groups(sweep, offsets, counts, group, times, now_ms)
    failure = sweep.load_failure() or failed
    counted = Counter({_KEPT[n]: count for n, count in enumerate(np.bincount(kept[kept >= 0]).tolist()) if count})
    for of_group in sweep.kept.values():
        counted.update(of_group)
    others = [*sweep.due, *sweep.forecast]
    if failure is not None:
        counted[Kept.SWEEP_FAILS] += len(rows) + len(others)
        nothing = slice(0, 0)
        others, rows, times, reasons, base = [], rows[nothing], times[nothing], reasons[nothing], base[nothing]
        is_explicit = is_explicit[nothing]
    return Swept(
        offsets_partition=state.offsets_partition,
        now_ms=now_ms,
        key_type=rules.offset_key_type,
        offsets=offsets,
        rows=rows,
        expires_at_ms=times,
        reason=reasons,
        base_ms=base,
        has_base=~is_explicit,
        others=others,
        kept={reason: count for reason, count in counted.items() if count},
        failure=failure,
    )


class _Conditions:
    """Conditions of groups for their offsets, by place in ``group_ids``; ``kept`` is one of ``_KEPT``, or below 0."""

    def __init__(self, sweep: GroupSweep, offsets: OffsetColumns, counts: Int64s) -> None:
        size = len(offsets.group_ids)
        self.kept, self.reason = np.full(size, _EXPIRES, np.int8), np.zeros(size, np.int8)
        self.has_base, self.base_ms = np.zeros(size, np.bool_), np.zeros(size, np.int64)
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

    def is_subscribed(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """Mask of the offsets in ``rows`` whose topic a member of the group subscribes to."""
        found: npt.NDArray[np.bool_] = np.isin(self._offsets.group_topic(rows), self._subscribed)
        return found


def _end_groups(
    sweep: GroupSweep, offsets: OffsetColumns, counts: Int64s, group: Int64s, times: Int64s, now_ms: int
) -> str | None:
    """Take in the groups themselves; ``group`` and ``times`` are of the offsets that expire."""
    expiring = np.bincount(group, minlength=len(counts))
    last = np.full(len(counts), now_ms, np.int64)
    of_groups = np.flatnonzero(expiring)
    if len(of_groups):
        starts = np.cumsum(expiring) - expiring
        last[of_groups] = np.maximum.reduceat(times, starts[of_groups])
    failure = None
    for group_id, *numbers in zip(offsets.group_ids, counts.tolist(), expiring.tolist(), last.tolist(), strict=True):
        if sweep.is_left(group_id, numbers[0]):
            failed = sweep.leave(group_id, numbers[0])
        else:
            failed = sweep.end_group(group_id, *numbers)
        failure = failure or failed
    return failure
