"""Why a group that people look for is in no record of a log."""

from __future__ import annotations

from math import gcd

import pyarrow.compute as pc

from coordinator_core.groups.hashing import (
    DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS,
    number_of_partitions,
    partition_for,
    placement_divisor,
)
from coordinator_core.history.model import OriginKind
from coordinator_core.history.origins import kind_of_group
from coordinator_core.history.read import read_history
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import OFFSETS_TOPIC, Snapshot
from coordinator_core.releases import Loader, Profile, every_profile
from coordinator_core.rules.topics import Topics
from coordinator_core.runs.local import merged_partitions
from coordinator_core.topology import Topology


def why_not_here(
    group_id: str,
    snapshot: Snapshot,
    *,
    profile: Profile,
    num_partitions: int | None,
    topology: Topology | None,
    topics: Topics | None,
    on_damage: OnDamage,
) -> str:
    """What to tell of a group of which ``profile`` has found no record; ``num_partitions`` where it was given."""
    newest = [one for one in every_profile() if one.loader is Loader.JAVA][-1]
    for log in snapshot.partitions:
        found = read_history(
            log,
            newest,
            groups=[group_id],
            deletions=None,
            topic_names=snapshot.topic_names,
            on_damage=on_damage,
            damage=[],
        )
        if group_id in found.groups:
            return (
                f"{profile.label} knows no record of group {group_id!r}: those in offsets partition "
                f"{log.offsets_partition} are of types that it does not load; give the release that wrote them "
                f"(--kafka-version {newest.release})"
            )
    count, told_by = _partitions_of(snapshot, newest, num_partitions, topology, topics, on_damage)
    home = partition_for(group_id, count)
    absent = f"no record in this log concerns group {group_id!r}"
    if home not in {log.offsets_partition for log in snapshot.partitions}:
        return (
            f"{absent}; of {count} offsets partitions, {told_by}, its records are in {home}, which is not in this log"
        )
    reasons = "its id is written differently, it is in another cluster, or it went and the cleaner took all of it"
    kind = kind_of_group(group_id)
    if kind in (OriginKind.FLINK, OriginKind.SPARK):
        return (
            f"{absent}; {kind.value} keeps offsets in its checkpoints, and commits here only if it is told to; or "
            f"{reasons}"
        )
    return f"{absent}; clients that keep their offsets elsewhere neither join nor commit; or {reasons}"


def _partitions_of(
    snapshot: Snapshot,
    newest: Profile,
    asked: int | None,
    topology: Topology | None,
    topics: Topics | None,
    on_damage: OnDamage,
) -> tuple[int, str]:
    """Number of offsets partitions, and who says so."""
    if asked is not None:
        return asked, "as was given"
    described = None if topology is None else topology.topics.get(OFFSETS_TOPIC)
    infos = () if described is None else described.partitions
    if not infos and topics is not None:
        infos = topics.offsets_topic.partitions
    if infos:
        return len(infos), "as the cluster told"
    divisor = least = 0
    for merged in merged_partitions(snapshot, newest, on_damage=on_damage):
        partition = merged[0]
        group_ids = set(partition.groups)
        for block in partition.offsets.blocks():
            group_ids.update(pc.unique(block["group_id"]).to_pylist())
        if group_ids:
            least = max(least, partition.offsets_partition + 1)
            divisor = gcd(divisor, placement_divisor(sorted(group_ids), partition.offsets_partition))
    found = number_of_partitions(divisor, max(least, 1))
    if found is None or found == DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS:
        return DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS, "the default"
    return found, "as the groups in this log lie"
