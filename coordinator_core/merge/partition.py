"""Folds of the segments of one offsets partition, in log order, to its state.

The folds are taken in one by one, and each can be forgotten afterwards: what is kept is a number for every
offset key and, of the values, those that still stand and some that do not any longer. So memory follows the live
offset keys, not the segments. The result equals that of the sequential replay (``replay.sequential``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.kernels.arrays import Int64s
from coordinator_core.log.limits import elements_allowance, too_large
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.log.types import SegmentFile
from coordinator_core.merge.group_replay import GroupReplay
from coordinator_core.merge.group_stats import GroupStats
from coordinator_core.merge.numbering import NameNumbers, OffsetKeyNumbers
from coordinator_core.merge.offset_rows import GatheredRows
from coordinator_core.merge.open_commits import OpenCommits
from coordinator_core.merge.schema import OFFSETS, MergedPartition
from coordinator_core.merge.shards import MergedShard, combine_shards
from coordinator_core.merge.transactions import Transactions
from coordinator_core.merge.values import NOWHERE, ValueStore
from coordinator_core.records.wire import TooManyElementsError
from coordinator_core.releases import Profile

__all__ = ["PartitionMerge", "merge_columns", "merge_shard"]

_SPARE_ROWS = 1 << 20
"""Values that no longer stand are dropped when they are so many more than those of all offset keys."""
_SPARE_BYTES = 1 << 28
"""The same for their bytes, and those that stood when they were last looked at."""
_LARGE_BYTES = 1 << 24
"""Names and group records of so many bytes are counted without those that newer ones replaced."""


def merge_columns(
    folds: Iterable[SegmentFold], profile: Profile, offsets_partition: int, allowance: int | None = None
) -> MergedPartition:
    """State after the segments whose ``folds`` are given in log order; ``allowance`` as for :class:`PartitionMerge`.

    The folds must have been made by the rules of ``profile`` (else ``ValueError``).
    """
    return combine_shards([merge_shard(folds, profile, offsets_partition, allowance)])


def merge_shard(
    folds: Iterable[SegmentFold], profile: Profile, offsets_partition: int, allowance: int | None = None
) -> MergedShard:
    """State of one shard, after folds as :func:`merge.shards.shard_folds` gives them, in log order."""
    merge = PartitionMerge(profile, offsets_partition, allowance)
    for fold in folds:
        merge.add(fold)
        if fold.stopped:
            break
    return merge.finish()


class PartitionMerge:
    """The state of one offsets partition in the making, or of a shard of it.

    ``allowance``: the most bytes of names and values that may stand (``log.limits.standing_allowance``), ``None`` for
    any number.
    """

    def __init__(self, profile: Profile, offsets_partition: int, allowance: int | None = None) -> None:
        self._allowance = allowance
        self._profile = profile
        self._rules = FoldRules.of(profile)
        self._offsets_partition = offsets_partition
        self._groups = NameNumbers()
        self._topics = NameNumbers()
        self._offset_keys = OffsetKeyNumbers()
        self._values = ValueStore()
        self._spare_bytes = _SPARE_BYTES
        self._committed = np.empty(0, np.int64)
        self._open = OpenCommits(profile, self._values)
        self._transactions = Transactions()
        self._stats = GroupStats()
        self._replay = GroupReplay(profile)

    def add(self, fold: SegmentFold) -> None:
        """Take in the next fold. ``ValueError`` when it was made by other rules than those of the profile,
        :class:`DamagedInputError` when more stands behind it than is allowed."""
        if fold.rules != self._rules:
            raise ValueError(f"{fold.path}: folded by other rules than those of the profile")
        self._replay.count(fold.counts)
        if not fold.has_rows:
            # Most folds, where segments are folded together.
            self._transactions.pass_over()
            return
        group_of, topic_of = self._groups.add(fold.groups), self._topics.add(fold.topics)
        offset_key_of = self._offset_keys.add(fold.offset_keys, group_of, topic_of)
        self._committed = _grown(self._committed, len(self._offset_keys), NOWHERE)
        self._open.apply(fold, offset_key_of, self._committed)
        self._transactions.apply(fold, offset_key_of, group_of)
        self._stats.add(fold, group_of)
        try:
            self._replay.apply(fold, group_of, self._groups)
        except TooManyElementsError as error:
            position = _position(fold, error.record_offset or 0)
            raise DamagedInputError(
                Damage(fold.path, position, error.record_offset, "too_large", error.detail)
            ) from None
        if self._values.rows > _SPARE_ROWS + 2 * len(self._offset_keys) or self._values.bytes > self._spare_bytes:
            self._compact()
        if self._allowance is not None and self._bytes > self._allowance:
            self._compact()
            self._replay.newest.compact()
            if self._bytes > self._allowance:
                raise DamagedInputError(_too_much(fold, "names and values that stand unpack", self._allowance))
        if self._allowance is not None and self._replay.has_more_elements(elements_allowance(self._allowance)):
            raise DamagedInputError(_too_much(fold, "objects of group records come", self._allowance))

    @property
    def _bytes(self) -> int:
        return self._values.bytes + self._record_bytes

    @property
    def _record_bytes(self) -> int:
        return self._groups.bytes + self._topics.bytes + self._replay.newest.bytes

    def state(self) -> dict[str, Any]:
        """Plain values from which :meth:`load` of another object, of the same profile and partition, continues."""
        self._compact()
        return {name: part.state() for name, part in self._parts.items()} | {"committed": self._committed}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state`; no fold may have been added."""
        for name, part in self._parts.items():
            part.load(state[name])
        self._committed = state["committed"]

    @property
    def _parts(self) -> dict[str, Any]:
        return {
            "groups": self._groups,
            "topics": self._topics,
            "offset_keys": self._offset_keys,
            "values": self._values,
            "open": self._open,
            "transactions": self._transactions,
            "stats": self._stats,
            "replay": self._replay,
        }

    def finish(self) -> MergedShard:
        """The state after the folds so far. No fold may be added afterwards."""
        offset_keys = np.flatnonzero(self._committed[: len(self._offset_keys)] != NOWHERE)
        offsets = self._offset_rows(offset_keys, self._committed[offset_keys])
        pending = self._offset_rows(*self._open.items())
        if self._record_bytes > _LARGE_BYTES:
            self._replay.newest.compact()
        record_bytes = self._record_bytes
        self._replay.end(self._groups)
        return MergedShard(
            offsets_partition=self._offsets_partition,
            offsets=offsets,
            pending=pa.concat_tables([OFFSETS.empty_table(), *pending.blocks()]),
            transactions=self._transactions.table(self._groups),
            group_stats=self._stats.table(self._groups),
            groups_with_offsets=self._groups_with(offsets, pending),
            replay=self._replay,
            record_bytes=record_bytes,
        )

    def _compact(self) -> None:
        offset_keys = np.flatnonzero(self._committed != NOWHERE)
        _, pending = self._open.items()
        places = self._values.compact(np.concatenate([self._committed[offset_keys], pending]))
        self._committed[offset_keys] = places[: len(offset_keys)]
        self._open.move(places[len(offset_keys) :])
        self._spare_bytes = _SPARE_BYTES + 2 * self._values.bytes

    def _groups_with(self, *rows: GatheredRows) -> list[str]:
        has_offsets = np.zeros(len(self._groups), np.bool_)
        for part in rows:
            has_offsets[self._offset_keys.groups(part.offset_keys)] = True
        return self._groups.of(np.flatnonzero(has_offsets))

    def _offset_rows(self, offset_keys: Int64s, places: Int64s) -> GatheredRows:
        return GatheredRows(
            offset_keys, places, self._values, self._offset_keys, self._groups, self._topics, self._profile
        )


def _too_much(fold: SegmentFold, what: str, allowance: int) -> Damage:
    """The damage of a log of which more than ``allowance`` stands, at the first batch of the fold that came last."""
    position = _position(fold, fold.first_offset or 0)
    return too_large(fold.path, what, allowance, position, fold.first_offset)


def _position(fold: SegmentFold, record_offset: int) -> int:
    """The byte at which the batch with a record offset of the fold begins."""
    entry = storage.stat(fold.path)
    size = 0 if entry is None else entry.size
    segment = SegmentFile(fold.path, fold.offsets_partition, fold.base_offset, size)
    batches = read_segment(segment, on_damage=OnDamage.SALVAGE, damage=[])
    return next((batch.position for batch in batches if batch.last_offset >= record_offset), 0)


def _grown(array: npt.NDArray[Any], size: int, empty: object) -> npt.NDArray[Any]:
    if size <= len(array):
        return array
    bigger = np.full(max(size, 2 * len(array)), empty, array.dtype)
    bigger[: len(array)] = array
    return bigger
