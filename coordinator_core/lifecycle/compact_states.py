"""What brokers of every release make of a log, as far as that can differ from release to release.

The log is folded once for all releases whose commits it means the same to, which without transactions are all
of them; the groups are replayed for each release.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from coordinator_core.columnar.fold import fold_segment
from coordinator_core.columnar.merge import PartitionMerge
from coordinator_core.columnar.shards import combine_shards
from coordinator_core.groups.model import Group, LoadFailure
from coordinator_core.log.types import PartitionLog, SegmentFile
from coordinator_core.replay.fold import FoldRules, SegmentFold
from coordinator_core.replay.merged import MergedPartition
from coordinator_core.replay.profiles import (
    PROFILE_RELEASES,
    MergeOffsetRule,
    Profile,
    profile_for,
)

_NEWEST_VERSION = 4
_AHEAD = 2
"""Folds that a worker may make before they are wanted."""


@dataclass(frozen=True)
class ReleaseGroups:
    """The groups under one profile, and where its loader stops."""

    profile: Profile
    groups: dict[str, Group]
    load_failures: tuple[LoadFailure, ...]


@dataclass(frozen=True)
class CommitClass:
    """Profiles under which the commits of a log come to the same, and what they come to.

    A profile that cannot read some value version of the log is not among ``releases``, unless it is the one
    that the log was compacted for.
    """

    merged: MergedPartition
    releases: tuple[ReleaseGroups, ...]

    @property
    def name(self) -> str:
        return self.releases[0].profile.name


def proof_profiles(profile: Profile) -> list[Profile]:
    """``profile`` first, then one of every other family."""
    return [profile, *(profile_for(name) for name in PROFILE_RELEASES if name != profile.name)]


def states_of(
    log: PartitionLog,
    profiles: Sequence[Profile],
    *,
    with_producers: bool,
    check_crc: bool = True,
    workers: int = 1,
) -> list[CommitClass]:
    """What ``log`` comes to under the ``profiles``, the first of which is the one that matters most.

    ``with_producers`` says that batches of ``log`` have producer ids or are control batches; without, all
    profiles agree on commits. Raises :class:`DamagedInputError` for damage.
    """
    classes: dict[FoldRules, list[Profile]] = {}
    for profile in profiles:
        classes.setdefault(_commit_rules(profile, with_producers=with_producers), []).append(profile)
    found = []
    for rules, members in classes.items():
        merges = [PartitionMerge(profile, log.offsets_partition) for profile in members]
        for fold in _folds(log, rules, check_crc=check_crc, workers=workers):
            bare = _without_commits(fold)
            for place, (profile, merge) in enumerate(zip(members, merges, strict=True)):
                merge.add(replace(bare if place else fold, rules=FoldRules.of(profile)))
        states = [combine_shards([merge.finish()]) for merge in merges]
        releases = [
            ReleaseGroups(profile, state.groups, tuple(state.load_failures))
            for profile, state in zip(members, states, strict=True)
            if profile is profiles[0] or _reads_commits(profile, states[0])
        ]
        if releases:
            found.append(CommitClass(states[0], tuple(releases)))
    return found


def _commit_rules(profile: Profile, *, with_producers: bool) -> FoldRules:
    """Rules that fold the commits as ``profile`` does, if it can read them all."""
    without = FoldRules(True, True, MergeOffsetRule.RECORD, 0, 0)
    rules = FoldRules.of(profile) if with_producers else without
    return replace(
        rules,
        max_legacy_offset_value_version=_NEWEST_VERSION,
        max_offset_value_version=_NEWEST_VERSION,
    )


def _reads_commits(profile: Profile, state: MergedPartition) -> bool:
    newest = {0: profile.max_legacy_offset_value_version, 1: profile.max_offset_value_version}
    return all(
        version is None or version <= newest[key_type]
        for key_type, version in state.record_counts
        if key_type in newest
    )


def _folds(log: PartitionLog, rules: FoldRules, *, check_crc: bool, workers: int) -> Iterator[SegmentFold]:
    start = log.log_start_offset or 0
    ranges = [(segment, end) for segment, end in log.segment_ranges() if end is None or end > start]

    def fold(segment: SegmentFile, end: int | None) -> SegmentFold:
        return fold_segment(segment, rules=rules, start_offset=start, end_offset=end, check_crc=check_crc)

    if min(workers, len(ranges)) <= 1:
        for segment, end in ranges:
            yield fold(segment, end)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[SegmentFold]] = deque()
        for segment, end in ranges:
            waiting.append(pool.submit(fold, segment, end))
            if len(waiting) > _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _without_commits(fold: SegmentFold) -> SegmentFold:
    """What of a fold makes groups."""
    return replace(
        fold,
        slots=fold.slots.slice(0, 0),
        pending=fold.pending.slice(0, 0),
        producers=fold.producers.slice(0, 0),
        transactions=fold.transactions.slice(0, 0),
        group_stats=fold.group_stats.slice(0, 0),
    )
