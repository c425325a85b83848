"""Facts of a replay for ``manifest.json``, besides the tables themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any

from coordinator_core.errors import Damage, RegroupError
from coordinator_core.fold.pin import cut
from coordinator_core.fold.tasks import CacheUse
from coordinator_core.groups.hashing import DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS, number_of_partitions
from coordinator_core.log.beside import file_beside
from coordinator_core.log.discovery import TOPOLOGY_FILE
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import Profile
from coordinator_core.replay.writer import KAFKA, REDPANDA, redpanda_num_partitions
from coordinator_core.runs.place import absolute
from coordinator_core.runs.publish import Manifest
from coordinator_core.topology import load_topology


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """Facts of one offsets partition.

    ``fingerprints`` and ``next_offsets`` (the offset behind the last record) are by segment path, of the
    bytes that were read; ``damage`` is the damage in them.  ``cache_uses`` counts segments by their use of the fold
    cache.
    """

    fingerprints: Mapping[str, str]
    next_offsets: Mapping[str, int]
    damage: Sequence[Damage]
    load_failures: int
    carried_records: int
    cache_uses: Mapping[CacheUse, int]
    topic_names: Mapping[str, str] = field(default_factory=dict)
    """Names of topics by id, from records of consumer groups."""
    placement: int = 0
    """:func:`placement_divisor` of the groups that the partition holds."""


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """Facts of one replay.

    A run whose snapshot or partitions had damage is not complete.
    """

    snapshot: Snapshot
    partitions: Sequence[PartitionFacts]
    profile: Profile
    profile_inferred: bool
    now_ms: int
    on_damage: OnDamage
    engine: str
    offsets_topic_num_partitions: int | None
    """``None``: to be told by the topology beside the log, or from where the groups are."""

    @property
    def damage(self) -> list[Damage]:
        """Everything that was wrong with the input, in its order."""
        return [*self.snapshot.damage, *(found for part in self.partitions for found in part.damage)]

    def as_dict(self) -> dict[str, Any]:
        """Fields of the manifest."""
        fingerprints: dict[str, str] = {}
        next_offsets: dict[str, int] = {}
        names: dict[str, str] = {}
        for partition in self.partitions:
            names |= partition.topic_names
            fingerprints |= partition.fingerprints
            next_offsets |= partition.next_offsets
        names |= self.snapshot.topic_names
        uses = sum((Counter(partition.cache_uses) for partition in self.partitions), Counter[CacheUse]())
        cleaned = {log.offsets_partition: log.cleaned_offset for log in self.snapshot.partitions}
        count, writer = self._placed()
        cuts = {log.offsets_partition: cut(log, next_offsets) for log in self.snapshot.partitions}
        return {
            "now_ms": self.now_ms,
            "profile": self.profile.label,
            "profile_name": self.profile.name,
            "release": str(self.profile.release),
            "coordinator": self.profile.coordinator,
            "profile_inferred": self.profile_inferred,
            "complete": not self.damage,
            "on_damage": self.on_damage.value,
            "engine": self.engine,
            "fold_cache": {use.value: uses[use] for use in (CacheUse.HIT, CacheUse.MISS, CacheUse.CORRUPT)},
            "offsets_topic_num_partitions": count,
            "written_by": writer,
            "sources": [absolute(path) for path in self.snapshot.sources],
            "inputs": [
                {
                    "path": absolute(segment.path),
                    "offsets_partition": segment.offsets_partition,
                    "fingerprint": fingerprints[segment.path],
                    "bytes": segment.size,
                    "base_offset": segment.base_offset,
                }
                for segment in self.snapshot.segments
            ],
            "cut": {
                str(partition): {
                    "log_start_offset": start,
                    "log_end_offset": end,
                    "cleaned_offset": cleaned[partition],
                }
                for partition, (start, end) in sorted(cuts.items())
            },
            "topic_names": dict(sorted(names.items())),
            "damage": [damage.as_dict() | {"path": absolute(damage.path)} for damage in self.damage],
            "load_failures": sum(partition.load_failures for partition in self.partitions),
            "carried_records": sum(partition.carried_records for partition in self.partitions),
        }

    def _placed(self) -> tuple[int, str]:
        """Count of offsets partitions, and by whose rules groups are in them."""
        if self.offsets_topic_num_partitions is not None:
            return self.offsets_topic_num_partitions, KAFKA
        least = max((log.offsets_partition for log in self.snapshot.partitions), default=-1) + 1
        found = number_of_partitions(gcd(*(part.placement for part in self.partitions)), max(least, 1))
        if found is None and (others := redpanda_num_partitions(self.snapshot)) is not None:
            return others, REDPANDA
        told = self._told()
        # Some groups are in wrong partitions for every number: the rules say so, of the cluster's, or of the default.
        return max(least, told or found or DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS), KAFKA

    def _told(self) -> int | None:
        """Number of offsets partitions in the ``topology.json`` beside the log; ``None`` where none can be read."""
        path = file_beside(self.snapshot.sources, TOPOLOGY_FILE)
        try:
            partitions = None if path is None else load_topology(path).offsets_partitions
        except RegroupError:
            return None
        return len(partitions) if partitions else None


_SUMMARY = "cluster", "window", "run_id", "now_ms", "profile", "complete", "state_hash", "findings", "seconds"


def summary(manifest: Manifest, *, path: str, latest: bool) -> dict[str, Any]:
    """The few fields of a manifest that a command or app prints when it has published a run.

    ``latest``: ``latest.json`` names this run now.
    """
    return {
        "run": path,
        **{name: manifest[name] for name in _SUMMARY},
        "latest": latest,
        "segments": len(manifest["inputs"]),
        "offsets_partitions": len(manifest["cut"]),
        "input_bytes": sum(entry["bytes"] for entry in manifest["inputs"]),
        "rows": {name: table["rows"] for name, table in manifest["tables"].items()},
        "damage": len(manifest["damage"]),
        **{name: manifest[name] for name in ("load_failures", "carried_records", "steps", "fold_cache")},
    }
