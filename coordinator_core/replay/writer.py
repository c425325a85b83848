"""Broker software that wrote a log: Kafka, or one that keeps Kafka's records but not its rules.

Redpanda is told by where its groups are: no number of offsets partitions puts them there by Kafka's hash, and one does
by Redpanda's. Kafka's rules for coordinators, cleaner and loader say nothing of the cluster of such a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import gcd
from typing import Final

from coordinator_core.errors import UsageError
from coordinator_core.groups.hashing import number_of_partitions, placement_divisor
from coordinator_core.groups.redpanda import DEFAULT_GROUP_TOPIC_PARTITIONS, redpanda_partitions
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.records.codec import RecordDecodeError, decode_key

KAFKA: Final = "kafka"
REDPANDA: Final = "redpanda"
"""``written_by`` in the manifest of a run."""

_SAMPLED_RECORDS = 2000
"""Records looked at in each offsets partition, from the oldest one on."""

_SAMPLED_BYTES = 1 << 20
"""Bytes of a partition that are tried first: nearly always they hold that many records, or as many as it takes."""

_CERTAIN = 1_000_000
"""Fewer groups may be there by chance: one of this many such logs would have to be."""


def redpanda_num_partitions(snapshot: Snapshot) -> int | None:
    """Count of offsets partitions of the Redpanda cluster that wrote ``snapshot``; ``None`` for any other log.

    Nearly every log of Kafka shows after a few records that it is Kafka's: those behind are not read. Damage is passed
    over.
    """
    groups: dict[str, int] = {}
    counts = redpanda_partitions(_placed(snapshot, groups))
    if not counts:
        return None
    count = DEFAULT_GROUP_TOPIC_PARTITIONS if DEFAULT_GROUP_TOPIC_PARTITIONS in counts else counts[0]
    if count ** len(groups) < _CERTAIN or _fits_kafka(groups):
        return None
    return count


def refuse_other_rules(snapshot: Snapshot) -> None:
    """``UsageError`` for a log of a broker that does not keep Kafka's rules: for what answers by them."""
    count = redpanda_num_partitions(snapshot)
    if count is not None:
        raise UsageError(written_by_redpanda(", ".join(snapshot.sources), count))


def written_by_redpanda(path: str, num_partitions: int) -> str:
    """The sentence about such a log or run at ``path``, which has ``num_partitions`` offsets partitions."""
    return (
        f"{path}: Redpanda wrote this log, told by where its groups are in {num_partitions} offsets partitions: what "
        "Kafka's coordinator, cleaner or loader would do does not hold for it; dump, verify, stats, list, describe, "
        "explain, replay, diff and restore plan without --before-incident read it"
    )


def _fits_kafka(groups: dict[str, int]) -> bool:
    least = max(groups.values()) + 1
    by_partition: dict[int, list[str]] = {}
    for group_id, partition in groups.items():
        by_partition.setdefault(partition, []).append(group_id)
    divisors = (placement_divisor(members, partition) for partition, members in by_partition.items())
    return number_of_partitions(gcd(*divisors), least) is not None


def _placed(snapshot: Snapshot, seen: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Groups of the sampled records with their offsets partition; those that were given are in ``seen``."""
    for log in snapshot.partitions:
        for group_id in _sampled_ids(log):
            if seen.get(group_id) != log.offsets_partition:
                seen[group_id] = log.offsets_partition
                yield group_id, log.offsets_partition


def _sampled_ids(log: PartitionLog) -> Iterator[str]:
    """Group ids of the sampled records. Ids of the first bytes come twice where there are too few."""
    first = log.segments[:1]
    if any(segment.size > _SAMPLED_BYTES for segment in first):
        head = replace(log, segments=tuple(replace(segment, size=_SAMPLED_BYTES) for segment in first))
        left = _SAMPLED_RECORDS
        for group_id in islice(_group_ids(head), left):
            left -= 1
            yield group_id
        if not left:
            return
    yield from islice(_group_ids(log), _SAMPLED_RECORDS)


def _group_ids(log: PartitionLog) -> Iterator[str]:
    for _, batch, records in read_records(log, on_damage=OnDamage.SALVAGE, damage=[]):
        for record in () if batch.is_control else records:
            try:
                data = {} if record.key is None else decode_key(record.key).data or {}
            except RecordDecodeError:
                continue
            group_id = data.get("group", data.get("groupId"))
            if group_id is not None:
                yield group_id
