"""Groups of a drill's own, one for each offsets partition, to be asked all along."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from coordinator_core.groups.hashing import partition_for

PREFIX = "regroup-canary-"


@dataclass(frozen=True, slots=True)
class Canary:
    """``group_id`` belongs to ``offsets_partition``."""

    offsets_partition: int
    group_id: str


def canaries(drill_id: str, offsets_partitions: Iterable[int], num_partitions: int) -> list[Canary]:
    """A canary for each of the partitions, of ``num_partitions`` in all."""
    return [
        next(
            Canary(partition, group_id)
            for number in count()
            if partition_for(group_id := f"{PREFIX}{drill_id}-{partition}-{number}", num_partitions) == partition
        )
        for partition in sorted(offsets_partitions)
    ]
