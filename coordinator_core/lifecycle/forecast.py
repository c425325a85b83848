"""The plan of an expiry sweep group by group, of an offsets partition that is columns.

:func:`plan_expiry` has an object for every committed offset. Most groups of a large cluster lose none: their members
subscribe to what they commit, or nothing of them expires. Of those no object is made here, and of the others only those
of one group at a time. The numbers and tombstones are those of :func:`plan_expiry`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import CommittedOffset, OffsetKey
from coordinator_core.lifecycle.expiry import GroupSweep
from coordinator_core.lifecycle.plan import Kept, Tombstone, TombstoneKind
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.releases import Profile

_BLOCK_ROWS = 1 << 17
_NUMBERS = ("partition", "commit_timestamp_ms", "expire_timestamp_ms", "record_offset", "has_own")


@dataclass(frozen=True)
class Forecast:
    """Numbers of an :class:`~coordinator_core.lifecycle.plan.ExpiryPlan`.

    ``offsets``, ``groups`` and ``tombstones`` are due, ``later`` will be; ``sha256`` is its digest, ``kept`` counts by
    reason.
    """

    offsets_partition: int
    offsets: int
    groups: int
    tombstones: int
    sha256: str
    later: int
    kept: Mapping[Kept, int]
    failure: str | None


Take = Callable[[list[Tombstone], list[Tombstone]], None]


def forecast(
    merged: MergedPartition, profile: Profile, *, now_ms: int, offsets_retention_ms: int, take: Take
) -> Forecast:
    """Forecast of an offsets partition.

    ``take`` is given the tombstones of one group after the other, those that are due and those to come, each group's by
    the time at which they expire. Where the sweep fails, there are none: it must forget what it was given.
    """
    state = replace(merged, offsets=_NoRows()).to_state(whole_metadata=False)
    sweep = GroupSweep(state, profile.expiry, now_ms, offsets_retention_ms)
    offsets = _ByGroup(merged)
    digest = hashlib.sha256()
    counts: Counter[str] = Counter()
    failure = sweep.load_failure()
    for group_id in sorted(state.groups.keys() | offsets.places.keys()):
        rows = offsets.rows(group_id)
        if len(rows) and sweep.keeps_all(group_id, offsets.topics(rows), len(rows)):
            continue
        failed = sweep.sweep_group(group_id, list(offsets.objects(group_id, rows)))
        failure = failure or failed
        due, later = sweep.taken()
        for tombstone in due:
            counts[tombstone.kind] += 1
            digest.update(tombstone.digested_key())
        counts["due"] += len(due)
        counts["later"] += len(later)
        take(due, sorted(later, key=lambda one: one.expires_at_ms))
    kept: Counter[Kept] = Counter()
    for of_group in sweep.kept.values():
        kept.update(of_group)
    if failure is not None:
        kept[Kept.SWEEP_FAILS] += counts["due"] + counts["later"]
        counts.clear()
        digest = hashlib.sha256()
    return Forecast(
        offsets_partition=merged.offsets_partition,
        offsets=counts[TombstoneKind.OFFSET],
        groups=counts[TombstoneKind.GROUP],
        tombstones=counts["due"],
        sha256=digest.hexdigest(),
        later=counts["later"],
        kept={reason: count for reason, count in kept.items() if count},
        failure=failure,
    )


class _NoRows:
    num_rows = 0

    def blocks(self, block_rows: int = 0) -> Iterator[pa.Table]:
        return iter(())


class _ByGroup:
    """Committed offsets as columns, of which the rows of a group lie together, by topic and partition."""

    def __init__(self, merged: MergedPartition) -> None:
        names: dict[str, dict[str, int]] = {"group_id": {}, "topic": {}}
        parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*names, *_NUMBERS)}
        own_name = "expire_timestamp_ms"
        for block in merged.offsets.blocks(_BLOCK_ROWS):
            for name, known in names.items():
                column = block[name].combine_chunks().dictionary_encode()
                numbers = [known.setdefault(text, len(known)) for text in column.dictionary.to_pylist()]
                parts[name].append(np.array(numbers, np.int32)[column.indices.to_numpy()])
            own = block[own_name]
            block = block.append_column("has_own", pc.is_valid(own))
            block = block.set_column(block.schema.get_field_index(own_name), own_name, pc.fill_null(own, 0))
            for name in _NUMBERS:
                parts[name].append(block[name].to_numpy())
        self._columns = {name: np.concatenate(found or [np.zeros(0, np.int64)]) for name, found in parts.items()}
        self._topics = list(names["topic"])
        rank = np.argsort(np.argsort(np.array(self._topics, object))) if self._topics else np.zeros(0, np.int64)
        groups, topics = self._columns["group_id"], self._columns["topic"]
        self._order = np.lexsort((self._columns["partition"], rank[topics], groups))
        counts = np.bincount(groups, minlength=len(names["group_id"]))
        ends = np.cumsum(counts)
        places = map(slice, (ends - counts).tolist(), ends.tolist())
        self.places = dict(zip(names["group_id"], places, strict=True))

    def rows(self, group_id: str) -> npt.NDArray[np.int64]:
        return self._order[self.places.get(group_id, slice(0, 0))]

    def topics(self, rows: npt.NDArray[np.int64]) -> set[str]:
        return {self._topics[number] for number in np.unique(self._columns["topic"][rows]).tolist()}

    def objects(self, group_id: str, rows: npt.NDArray[np.int64]) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """With what decides about expiry, and no more."""
        lists = [self._columns[name][rows].tolist() for name in ("topic", *_NUMBERS)]
        for topic, partition, commit_ms, expire_ms, record_offset, has_own in zip(*lists, strict=True):
            yield (
                OffsetKey(group_id, self._topics[topic], partition),
                CommittedOffset(
                    committed_offset=0,
                    leader_epoch=None,
                    metadata="",
                    commit_timestamp_ms=commit_ms,
                    expire_timestamp_ms=expire_ms if has_own else None,
                    topic_id=None,
                    record_offset=record_offset,
                    value_version=0,
                    producer_id=None,
                    producer_epoch=None,
                    ordering_offset=record_offset,
                ),
            )
