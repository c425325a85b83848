"""Why a group that people look for is in no record of a log: most often its offsets partition was not copied."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import gcd
from typing import Any, NamedTuple

import pyarrow.compute as pc

from coordinator_core.cli.options import ReplayOptions, note
from coordinator_core.cli.source import ReplayedSource
from coordinator_core.durations import numbered
from coordinator_core.errors import UsageError
from coordinator_core.groups.hashing import (
    DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS,
    MOST_PARTITIONS,
    number_of_partitions,
    partition_for,
    placement_divisor,
)
from coordinator_core.history.model import OriginKind
from coordinator_core.history.origins import kind_of_group
from coordinator_core.history.read import read_history
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.releases import Loader, Profile, every_profile
from coordinator_core.replay.writer import KAFKA, redpanda_num_partitions
from coordinator_core.rules.beside import beside_log
from coordinator_core.rules.topics import Topics, read_topics
from coordinator_core.runs.finding import find_snapshot
from coordinator_core.runs.local import merged_partitions
from coordinator_core.runs.place import is_one_run
from coordinator_core.runs.read import open_run
from coordinator_core.topology import Topology, load_topology

_SHOWN = 8

Placed = Iterable[tuple[int, Collection[str]]]
"""Offsets partitions of a log, and the groups in each."""


class Count(NamedTuple):
    """Number of offsets partitions, and who says so; ``None`` where the groups lie as no number of Kafka has them, or
    are too few to tell it."""

    number: int
    told_by: str | None


def offsets_partitions(
    paths: Sequence[str],
    options: ReplayOptions,
    placed: Callable[[], Placed],
    *,
    topology: Topology | None = None,
    topics: Topics | None = None,
) -> Count:
    """How many partitions the offsets topic of a source has: as was given, as a run or a file beside a log says, or as
    the groups lie. ``topology`` and ``topics`` go before the files."""
    if options.offsets_topic_num_partitions is not None:
        return Count(options.offsets_topic_num_partitions, "as was given" if _is_kafkas(paths) else None)
    if is_one_run(paths):
        number = int(open_run(paths[0]).manifest["offsets_topic_num_partitions"])
        return Count(number, "as the run has them" if number <= MOST_PARTITIONS and _is_kafkas(paths) else None)
    beside = beside_log(paths)
    if topology is None and beside.topology is not None:
        topology = load_topology(beside.topology)
    infos = None if topology is None else topology.offsets_partitions
    if not infos:
        if topics is None and beside.topics is not None:
            topics = read_topics(beside.topics)
        infos = None if topics is None else topics.offsets_topic.partitions
    if infos:
        return Count(len(infos), "as the cluster told" if _is_kafkas(paths) else None)
    divisor = least = 0
    for number, group_ids in placed():
        least = max(least, number + 1)
        divisor = gcd(divisor, placement_divisor([*group_ids], number))
    found = number_of_partitions(divisor, max(least, 1))
    if found is None:
        return Count(max(least, DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS), None)
    if found > MOST_PARTITIONS:
        return Count(found, None)
    is_default = found == DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS
    return Count(found, "the default" if is_default else "as the groups in this log lie")


def _is_kafkas(paths: Sequence[str]) -> bool:
    """Whether groups of this source are where Kafka puts them."""
    if is_one_run(paths):
        return bool(open_run(paths[0]).manifest.get("written_by", KAFKA) == KAFKA)
    return redpanda_num_partitions(find_snapshot(paths)) is None


def elsewhere(group_id: str, held: Collection[int], count: Count) -> tuple[str, ...]:
    """Where the records of a group are, unless ``held``, the offsets partitions that are there, have that one."""
    home = partition_for(group_id, count.number)
    if home in held or count.told_by is None:
        return ()
    number = numbered(count.number, "offsets partition")
    return (f"of {number}, {count.told_by}, its records are in {home}, which is not in this log",)


def check_groups(
    source: ReplayedSource, group_ids: Iterable[str], paths: Sequence[str], options: ReplayOptions
) -> None:
    """Raises :class:`UsageError` for a group that has neither records nor committed offsets."""
    known = {group_id for state in source.states for group_id in state.groups}
    known |= {offset_key.group_id for state in source.states for offset_key in state.orphaned()}
    for group_id in group_ids:
        if group_id not in known:
            count = offsets_partitions(paths, options, source.placed)
            said = (f"Consumer group {group_id!r} does not exist in this log", *elsewhere(group_id, source.held, count))
            raise UsageError("; ".join(said))


def tell_split(
    source: ReplayedSource, rows: Iterable[Mapping[str, Any]], paths: Sequence[str], options: ReplayOptions
) -> None:
    """Name groups among ``rows`` that are in several offsets partitions: a broker answers with one of them."""
    homes: dict[str, list[int]] = {}
    for row in rows:
        homes.setdefault(row["group_id"], []).append(row["offsets_partition"])
    split = {group_id: held for group_id, held in homes.items() if len(held) > 1}
    if not split:
        return
    count = offsets_partitions(paths, options, source.placed)
    number = numbered(count.number, "offsets partition")
    for group_id, held in list(split.items())[:_SHOWN]:
        home = partition_for(group_id, count.number)
        told = (
            f"the broker answers with that of {home} (of {number}, {count.told_by})"
            if home in held and count.told_by is not None
            else "the broker answers with one of them; give --offsets-topic-num-partitions"
        )
        note(f"regroup: warning: group {group_id!r} is in offsets partitions {', '.join(map(str, held))}: {told}")
    if len(split) > _SHOWN:
        note(f"regroup: warning: so are {numbered(len(split) - _SHOWN, 'group')} more")


def elsewhere_of_log(
    group_id: str,
    paths: Sequence[str],
    snapshot: Snapshot,
    options: ReplayOptions,
    *,
    topology: Topology | None = None,
    topics: Topics | None = None,
) -> tuple[str, ...]:
    """:func:`elsewhere` of a log that was not replayed whole: of ``snapshot``, which is that of ``paths``."""
    count = offsets_partitions(
        paths, options, lambda: groups_by_partition(snapshot, options), topology=topology, topics=topics
    )
    return elsewhere(group_id, {log.offsets_partition for log in snapshot.partitions}, count)


def why_not_here(
    group_id: str,
    paths: Sequence[str],
    snapshot: Snapshot,
    profile: Profile,
    options: ReplayOptions,
    *,
    topology: Topology | None = None,
    topics: Topics | None = None,
) -> str:
    """What to tell of a group of which ``profile`` has found no record in ``snapshot``, which is that of ``paths``."""
    for log in snapshot.partitions:
        if _is_in(log, group_id, snapshot, options):
            return (
                f"{profile.label} knows no record of group {group_id!r}: those in offsets partition "
                f"{log.offsets_partition} are of types that it does not load; give the release that wrote them "
                f"(--kafka-version {_newest().release})"
            )
    absent = f"no record in this log concerns group {group_id!r}"
    if away := elsewhere_of_log(group_id, paths, snapshot, options, topology=topology, topics=topics):
        return "; ".join((absent, *away))
    reasons = "its id is written differently, it is in another cluster, or it went and the cleaner took all of it"
    kind = kind_of_group(group_id)
    if kind in (OriginKind.FLINK, OriginKind.SPARK):
        return (
            f"{absent}; {kind.value} keeps offsets in its checkpoints, and commits here only if it is told to; or "
            f"{reasons}"
        )
    return f"{absent}; clients that keep their offsets elsewhere neither join nor commit; or {reasons}"


def has_record(group_id: str, snapshot: Snapshot, options: ReplayOptions) -> bool:
    """Whether any record of the log is of this group. Reads it again."""
    return any(_is_in(log, group_id, snapshot, options) for log in snapshot.partitions)


def _is_in(log: PartitionLog, group_id: str, snapshot: Snapshot, options: ReplayOptions) -> bool:
    found = read_history(
        log,
        _newest(),
        groups=[group_id],
        deletions=None,
        topic_names=snapshot.topic_names,
        on_damage=options.on_damage,
        damage=[],
    )
    return group_id in found.groups


def _newest() -> Profile:
    """The rules that know most types of records."""
    return [one for one in every_profile() if one.loader is Loader.JAVA][-1]


def groups_by_partition(snapshot: Snapshot, options: ReplayOptions) -> Placed:
    """Offsets partitions of a log that was not replayed, and the ids in each: of groups, and of committed and pending
    offsets, which need no group."""
    for merged in merged_partitions(snapshot, _newest(), on_damage=options.on_damage, cache=options.fold_cache):
        partition = merged[0]
        group_ids = set(partition.groups)
        for block in chain(partition.offsets.blocks(), (partition.pending,)):
            group_ids.update(pc.unique(block["group_id"]).to_pylist())
        yield partition.offsets_partition, sorted(group_ids)
