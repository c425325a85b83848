"""Expiry of a large offsets partition in several places at once (``compact_expire``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from coordinator_core.file_ranges import FileRange
from coordinator_core.fold.segments import forget_folds
from coordinator_core.lifecycle.compact import CompactionOptions
from coordinator_core.lifecycle.compact_expire import (
    Expired,
    OffsetsLeft,
    groups_changed,
    prove_expired,
    write_tombstones,
)
from coordinator_core.lifecycle.compact_states import commit_classes, merged_shards
from coordinator_core.lifecycle.compact_tasks import Tasks, merged_in_files
from coordinator_core.lifecycle.expiring import OFFSET_COLUMNS
from coordinator_core.log.limits import standing_allowance
from coordinator_core.log.types import PartitionLog
from coordinator_core.merge.cuts import folds_in
from coordinator_core.merge.schema import MergedPartition, NoRows
from coordinator_core.merge.shards import MergedShard, StoredShard, combine_shards
from coordinator_core.releases import Profile
from coordinator_core.runs.table_directory import message_path


def expire_in_parts(log: PartitionLog, options: CompactionOptions, tasks: Tasks) -> Expired:
    """What expires; it was proved that its tombstones delete that and nothing else."""
    profile = options.profile
    ((rules, _),) = commit_classes([(profile,)], with_producers=True).items()
    folds = tasks.folds(log, rules, check_crc=True)
    places = tasks.cut(folds, tasks.shards_for(folds))
    of_input = _Input(log.offsets_partition, profile, standing_allowance(log.size), tasks.directory)
    sweep = partial(_sweep, log=log, options=options, of_input=of_input)
    (expired,) = tasks.run(sweep, [tasks.run(partial(_merge_columns, of_input=of_input), places)])
    options.check_approved(expired)
    if expired.segment is None:
        return expired
    tombstones = replace(log, segments=(expired.segment,))
    more = tasks.cut(tasks.folds(tombstones, rules, check_crc=True), len(places))
    compare = partial(_compare_expired, of_input=of_input)
    left = tasks.run(compare, [(old, [*old, *new]) for old, new in zip(places, more, strict=True)])
    (wrong,) = tasks.run(partial(_compare_groups, expired=expired, of_input=of_input), [left])
    prove_expired(expired, [part.offsets for part in left], wrong)
    return expired


@dataclass(frozen=True)
class _Input:
    """The log that expires, as tasks merge it; they write to ``directory``."""

    offsets_partition: int
    profile: Profile
    allowance: int
    directory: str

    def merged(self, places: Iterable[FileRange]) -> MergedShard:
        """A shard, whose folds stand in these places."""
        alike = (self.profile,)
        shards = merged_shards(folds_in(places), [alike], self.profile, self.offsets_partition, self.allowance)
        return shards[alike]

    def merged_in_files(self, places: Sequence[FileRange]) -> MergedShard:
        """The same as :meth:`merged`, with its committed offsets in a file."""
        alike = (self.profile,)
        partition, allowance = self.offsets_partition, self.allowance
        return merged_in_files(places, [alike], self.profile, partition, allowance, self.directory)[alike]

    def without_offsets(self, shard: MergedShard) -> StoredShard:
        return replace(shard, offsets=NoRows()).stored(message_path(self.directory, "rest"))

    def combined(self, shards: Iterable[StoredShard]) -> MergedPartition:
        return combine_shards([shard.read(self.profile) for shard in shards])


@dataclass(frozen=True)
class _Left:
    """Offsets of a shard that stay, and the rest of its state before and after."""

    offsets: OffsetsLeft
    before: StoredShard
    after: StoredShard
    pending_is_same: bool


def _merge_columns(places: Sequence[FileRange], of_input: _Input) -> StoredShard:
    forget_folds()
    return of_input.merged(places).stored(message_path(of_input.directory, "merged"), OFFSET_COLUMNS)


def _sweep(shards: Sequence[StoredShard], log: PartitionLog, options: CompactionOptions, of_input: _Input) -> Expired:
    assert options.offsets_retention_ms is not None
    return write_tombstones(
        log,
        of_input.combined(shards),
        options.profile,
        now_ms=options.rules.now_ms,
        offsets_retention_ms=options.offsets_retention_ms,
        path=message_path(of_input.directory, "tombstones"),
    )


def _compare_expired(places: tuple[Sequence[FileRange], Sequence[FileRange]], of_input: _Input) -> _Left:
    before, after = map(of_input.merged_in_files, places)
    return _Left(
        OffsetsLeft.of(before.offsets, after.offsets),
        of_input.without_offsets(before),
        of_input.without_offsets(after),
        before.pending == after.pending,
    )


def _compare_groups(left: Sequence[_Left], expired: Expired, of_input: _Input) -> list[str]:
    """Groups and pending offsets that the tombstones change although they are not of the plan."""
    before = of_input.combined(part.before for part in left)
    after = of_input.combined(part.after for part in left)
    with_offsets = frozenset().union(*(part.offsets.groups for part in left))
    wrong = groups_changed(before.groups, after.groups, expired.groups, with_offsets)
    return wrong if all(part.pending_is_same for part in left) else [*wrong, "offsets of open transactions"]
