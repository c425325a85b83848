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
from coordinator_core.lifecycle.plan import Kept, Reason, Tombstone, TombstoneKind
from coordinator_core.records.codec import encode_key
from coordinator_core.releases import Profile

OFFSET_COLUMNS = ("group_id", "topic", "partition", "commit_timestamp_ms", "expire_timestamp_ms", "record_offset")
"""Columns of committed offsets that a sweep looks at."""

REASONS, KINDS = tuple(Reason), tuple(TombstoneKind)
BLOCK_BYTES = 1 << 24
"""Bytes of keys that the tombstones of a block may have, about; one more may be in it."""

_KEPT = tuple(Kept)
_EXPIRES, _LEFT = -1, -2
_ROW_BYTES = 64
"""Bytes of a tombstone besides its names, about."""
_ROWS = 1 << 17
"""Tombstones of offsets that are looked at together, and those of the last group among them."""

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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
    group: Int64s
    topic: Int64s
    partition: Int64s
    reason: Int64s
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
    has_base: Bools
    others: Sequence[Tombstone]
    kept: Mapping[Kept, int]
    failure: str | None

    def places(self) -> Iterator[Int64s]:
        """Places of all tombstones, some at a time: group by group, of each its offsets, then its own.

        A place is one in ``rows``, or behind them in ``others``.
        """
        size = len(self.rows)
        group_of_other = self._group_of_other
        # By group; of one group they are in order.
        of_others = np.argsort(group_of_other, kind="stable")
        begin = first_other = 0
        while begin < size or first_other < len(of_others):
            end = min(begin + _ROWS, size)
            last_group = len(self.offsets.group_ids)
            if end < size:
                last_group = self._group[end - 1]
                end += int(np.searchsorted(self._group[end:], last_group, side="right"))
            groups = group_of_other[of_others[first_other:]]
            last_other = first_other + int(np.searchsorted(groups, last_group, side="right"))
            others = of_others[first_other:last_other]
            at = np.searchsorted(self._group[begin:end], group_of_other[others], side="right")
            order = np.insert(np.arange(begin, end), at, others + size)
            text = np.insert(self.offsets.name_bytes(self.rows[begin:end]), at, 0) + _ROW_BYTES
            yield from np.split(order, np.flatnonzero(np.diff(np.cumsum(text) // BLOCK_BYTES)) + 1)
            begin, first_other = end, last_other

    def is_due(self, places: Int64s) -> Bools:
        """Whether a sweep writes the tombstones now, or later."""
        others = np.array([one.expires_at_ms for one in self.others], np.int64)
        is_other = places >= len(self.rows)
        times = np.empty(len(places), np.int64)
        times[~is_other] = self.expires_at_ms[places[~is_other]]
        times[is_other] = others[places[is_other] - len(self.rows)]
        found: Bools = times <= self.now_ms
        return found

    def tombstones(self, places: Int64s) -> Tombstones:
        """The tombstones at ``places``."""
        is_other = places >= len(self.rows)
        found, others = places[~is_other], places[is_other] - len(self.rows)
        rows = self.rows[found]
        order = np.empty(len(places), np.int64)
        order[~is_other] = np.arange(len(found))
        order[is_other] = len(found) + np.arange(len(others))
        return Tombstones(
            offsets_partition=self.offsets_partition,
            key_type=self.key_type,
            group_ids=self.offsets.texts[0],
            topics=self.offsets.texts[1],
            group=self._group[found],
            topic=self.offsets.topic[rows],
            partition=self.offsets.partition[rows],
            reason=self.reason[found],
            base_ms=self.base_ms[found],
            has_base=self.has_base[found],
            expires_at_ms=self.expires_at_ms[found],
            record_offset=self.offsets.record_offset[rows],
            others=[self.others[one] for one in others.tolist()],
            group_of_other=self._group_of_other[others],
            order=order,
        )

    @cached_property
    def _group(self) -> Int64s:
        found: Int64s = self.offsets.group[self.rows]
        return found

    @cached_property
    def _group_of_other(self) -> Int64s:
        numbers = {group_id: number for number, group_id in enumerate(self.offsets.group_ids)}
        return np.array([numbers[one.group_id] for one in self.others], np.int64)


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
        self.is_explicit: Bools = found.pop("has_own")[order].astype(np.bool_)
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

    def is_subscribed(self, rows: Int64s) -> Bools:
        """Mask of the offsets in ``rows`` whose topic a member of the group subscribes to."""
        found: Bools = np.isin(self._offsets.group_topic(rows), self._subscribed)
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
