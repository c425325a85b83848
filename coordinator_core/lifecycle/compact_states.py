"""States that brokers of every release load from a log, one for each way in which releases differ about it.

The log is folded once for all releases whose commits it means the same to, which without transactions are all
of them; the groups are replayed for each release.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import chain

from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.schema import SegmentFold
from coordinator_core.fold.segments import fold_segment
from coordinator_core.groups.model import Group, LoadFailure
from coordinator_core.lifecycle.compact_scan import ranges_to_scan
from coordinator_core.log.limits import standing_allowance
from coordinator_core.log.types import PartitionLog, SegmentFile
from coordinator_core.merge.partition import PartitionMerge
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.merge.shards import MergedShard, combine_shards
from coordinator_core.releases import (
    CLASSIC_KEY_TYPES,
    FACTS_BESIDE_LOADING,
    PROFILE_RELEASES,
    MergeOffsetRule,
    Profile,
    profile_for,
)

Alike = tuple[Profile, ...]
"""Profiles that differ in nothing that a log holds."""

_NEWEST_VERSION = 4
_ANY_TYPE = frozenset(range(-1, 32))
_AHEAD = 2
"""Folds that a worker may make before they are wanted."""


@dataclass(frozen=True)
class ReleaseGroups:
    """The groups under one profile, and where its loader stops; ``also`` are profiles that differ in nothing
    that the log holds."""

    profile: Profile
    also: tuple[Profile, ...]
    groups: dict[str, Group]
    load_failures: tuple[LoadFailure, ...]


@dataclass(frozen=True)
class CommitClass:
    """Profiles with the same result for the commits of a log, and that result.

    A profile that cannot read some value version of the log is not among ``releases``, unless it is the one
    that the log was compacted for.
    """

    merged: MergedPartition
    releases: tuple[ReleaseGroups, ...]

    @property
    def name(self) -> str:
        return self.releases[0].profile.name


def proof_profiles(profile: Profile, key_types: Collection[int] | None, *, with_producers: bool) -> list[Alike]:
    """``profile`` first, then one of every other family: together those that differ in nothing for a log of
    these record types (``None``: of any), ``with_producers`` or without."""
    present = _ANY_TYPE if key_types is None else frozenset(key_types)
    alike: dict[object, list[Profile]] = {}
    for chosen in (profile, *(profile_for(name) for name in PROFILE_RELEASES if name != profile.name)):
        # Values of previews or unknown versions, and share group records that 4.0 refuses, stop others behind their own
        # cleaner, too: that is no difference.
        each = replace(
            chosen,
            value_layout=profile.value_layout,
            reads_unknown_versions=profile.reads_unknown_versions,
            tolerates_missing_share_groups=True,
        )
        facts = asdict(each) | {"known_key_types": each.known_key_types & present}
        # Compaction changes neither what can be read at all nor where the log ends.
        unimportant = {
            *FACTS_BESIDE_LOADING,
            "newest_message_format",
            "reads_zstd",
            "ends_at_empty_read",
            "grows_load_buffer",
            # What a value must be like to be read stops a load behind each release's own cleaner, too.
            "subscription_reading",
        }
        if present <= each.known_key_types:
            unimportant.add("unknown_key_aborts")
        if 0 not in present:
            unimportant.add("max_legacy_offset_value_version")
        if present <= CLASSIC_KEY_TYPES:
            unimportant |= {
                "tolerates_missing_groups",
                "tolerates_owned_partitions",
                "consumer_replaces_simple",
                "streams_replaces_simple",
                "reads_validated_topology",
                "compares_target_epochs",
                "initial_epoch",
            }
        if not with_producers:
            unimportant |= {"ordering_offset_rule", "tombstone_drops_pending"}
        key = tuple(value for name, value in sorted(facts.items()) if name not in unimportant)
        alike.setdefault(key, []).append(each)
    return [tuple(members) for members in alike.values()]


def states_of(
    log: PartitionLog, profiles: Sequence[Alike], *, with_producers: bool, check_crc: bool = True, workers: int = 1
) -> list[CommitClass]:
    """States of ``log`` by the ``profiles`` (see :func:`proof_profiles`); the first matters most.

    ``with_producers`` says that batches of ``log`` have producer ids or are control batches; without, all
    profiles agree on commits. Raises :class:`DamagedInputError` for damage.
    """
    allowance = standing_allowance(log.size)
    found = []
    for rules, members in commit_classes(profiles, with_producers=with_producers).items():
        folds = _folds(log, rules, check_crc=check_crc, workers=workers)
        shards = merged_shards(folds, members, profiles[0][0], log.offsets_partition, allowance)
        if shards:
            found.append(commit_class({alike: combine_shards([shard]) for alike, shard in shards.items()}))
    return found


def commit_classes(profiles: Sequence[Alike], *, with_producers: bool) -> dict[FoldRules, list[Alike]]:
    """The ``profiles`` by the rules that their commits are folded by. The first of each reads all that others do."""
    main = profiles[0][0]
    classes: dict[FoldRules, list[Alike]] = {}
    for alike in profiles:
        rules = _commit_rules(alike[0], with_producers=with_producers)
        classes.setdefault(rules, []).append(alike)
    for members in classes.values():
        # The commits go to the first, which must not drop out before the others do.
        members.sort(key=lambda alike: (alike[0] is main, *_newest_versions(alike[0])), reverse=True)
    return classes


def merged_shards(
    folds: Iterable[SegmentFold], members: Sequence[Alike], main: Profile, offsets_partition: int, allowance: int
) -> dict[Alike, MergedShard]:
    """State after ``folds`` by each of the ``members`` of a class; only the first has commits.

    One that cannot read a commit is left out, unless it is ``main``. Folds of a shard must be merged by members that
    :func:`reads_commits` is true of: not all of them tell what the log holds.
    """
    merges = {alike: PartitionMerge(alike[0], offsets_partition, allowance) for alike in members}
    for fold in folds:
        for alike in [*merges]:
            if alike[0] != main and not reads_commits(alike[0], fold.counts.commits):
                del merges[alike]
        whole = fold
        for alike, merge in merges.items():
            merge.add(replace(fold, rules=FoldRules.of(alike[0])))
            if fold is whole:
                fold = _without_commits(whole)
        if not merges:
            break
    return {alike: merge.finish() for alike, merge in merges.items()}


def commit_class(states: Mapping[Alike, MergedPartition]) -> CommitClass:
    """The class whose members have these states."""
    releases = tuple(
        ReleaseGroups(alike[0], alike[1:], state.groups, tuple(state.load_failures)) for alike, state in states.items()
    )
    return CommitClass(next(iter(states.values())), releases)


def _commit_rules(profile: Profile, *, with_producers: bool) -> FoldRules:
    """Rules that fold the commits as ``profile`` does, if it can read them all."""
    without = FoldRules(True, True, MergeOffsetRule.RECORD, 0, 0, profile.reads_unknown_versions)
    rules = FoldRules.of(profile) if with_producers else without
    return replace(rules, max_legacy_offset_value_version=_NEWEST_VERSION, max_offset_value_version=_NEWEST_VERSION)


def _newest_versions(profile: Profile) -> tuple[int, int]:
    """Newest value versions that a release reads, under key types 1 and 0."""
    return profile.max_offset_value_version, profile.max_legacy_offset_value_version


def reads_commits(profile: Profile, versions: Iterable[tuple[int, int | None]]) -> bool:
    """Whether the release reads commits of these key types and value versions (``None``: of tombstones)."""
    newest = dict(zip((1, 0), _newest_versions(profile), strict=True))
    return all(version is None or version <= newest[key_type] for key_type, version in versions)


def _folds(log: PartitionLog, rules: FoldRules, *, check_crc: bool, workers: int) -> Iterator[SegmentFold]:
    start, ranges = log.log_start_offset or 0, ranges_to_scan(log)

    def folds(segment: SegmentFile, end: int | None) -> Iterator[SegmentFold]:
        return fold_segment(segment, rules=rules, start_offset=start, end_offset=end, check_crc=check_crc)

    if min(workers, len(ranges)) <= 1:
        for segment, end in ranges:
            yield from folds(segment, end)
        return

    def begun(segment: SegmentFile, end: int | None) -> Iterator[SegmentFold]:
        # There is seldom a second one: it is made when it is wanted.
        made = folds(segment, end)
        return chain([next(made)], made)

    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Iterator[SegmentFold]]] = deque()
        for segment, end in ranges:
            waiting.append(pool.submit(begun, segment, end))
            if len(waiting) > _AHEAD * workers:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _without_commits(fold: SegmentFold) -> SegmentFold:
    """The part of a fold that makes groups."""
    return replace(
        fold,
        offset_keys=fold.offset_keys.slice(0, 0),
        pending=fold.pending.slice(0, 0),
        producers=fold.producers.slice(0, 0),
        transactions=fold.transactions.slice(0, 0),
        group_stats=fold.group_stats.slice(0, 0),
    )
