"""The local engine: the replay on one machine, without Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from coordinator_core.errors import Damage, DamagedInputError
from coordinator_core.groups.hashing import DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS
from coordinator_core.groups.model import PartitionState
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.replay.inference import infer_profile
from coordinator_core.replay.profiles import Profile
from coordinator_core.replay.sequential import replay_partition
from coordinator_core.runs.manifest import ReplayFacts
from coordinator_core.runs.pin import Pin, checked_fingerprint, pin_snapshot
from coordinator_core.runs.publish import Manifest, RunPlace, RunWriter
from coordinator_core.runs.tables import state_tables


def replay_snapshot(
    snapshot: Snapshot, profile: Profile, *, on_damage: OnDamage = OnDamage.FAIL, damage: list[Damage]
) -> list[PartitionState]:
    """State of every offsets partition of ``snapshot``, sorted by partition.

    Under ``FAIL`` raises :class:`DamagedInputError` for the first damage in the order of partitions and
    segments; else appends what it found to ``damage``, in that order.
    """
    fail_or_note(snapshot.damage, on_damage, damage)

    def replay(log: PartitionLog) -> tuple[PartitionState, list[Damage]]:
        found: list[Damage] = []
        return replay_partition(log, profile, on_damage=on_damage, damage=found), found

    states = []
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for state, found in threads.map(replay, snapshot.partitions):
            states.append(state)
            damage += found
    return states


def fail_or_note(known: tuple[Damage, ...], on_damage: OnDamage, damage: list[Damage]) -> None:
    """Raise the first damage of a snapshot's structure, or note all of it."""
    if known and on_damage is OnDamage.FAIL:
        raise DamagedInputError(known[0])
    damage += known


def replay_to_run(
    source: Snapshot | Pin,
    place: RunPlace,
    *,
    profile: Profile | None,
    now_ms: int,
    on_damage: OnDamage = OnDamage.FAIL,
    offsets_topic_num_partitions: int = DEFAULT_OFFSETS_TOPIC_NUM_PARTITIONS,
) -> Manifest:
    """Replay ``source`` and publish the run; returns its manifest.

    ``profile`` is inferred from the records when it is ``None``.  Raises ``UsageError`` for a place that
    cannot be used, :class:`DamagedInputError` for damage under ``FAIL`` and for a pinned segment that
    changed; neither leaves anything behind.
    """
    began = perf_counter()
    steps: dict[str, float] = {}
    snapshot = source.snapshot if isinstance(source, Pin) else source
    damage: list[Damage] = []
    sources = [*snapshot.sources, *(log.directory for log in snapshot.partitions)]
    with RunWriter(place, sources=sources) as writer:
        pin = verified_pin(source)
        steps["pin"] = perf_counter() - began
        rules = profile or infer_profile(snapshot.partitions)
        states = replay_snapshot(snapshot, rules, on_damage=on_damage, damage=damage)
        steps["replay"] = perf_counter() - began - sum(steps.values())
        for state in states:
            writer.write_tables(state_tables([state], now_ms=now_ms))
        facts = ReplayFacts(
            snapshot=snapshot,
            fingerprints=pin.fingerprints,
            next_offsets=pin.next_offsets,
            profile=rules,
            profile_inferred=profile is None,
            now_ms=now_ms,
            engine="local",
            offsets_topic_num_partitions=offsets_topic_num_partitions,
            damage=damage,
            load_failures=sum(len(state.load_failures) for state in states),
            carried_records=sum(len(state.carried) for state in states),
        )
        steps["publish"] = perf_counter() - began - sum(steps.values())
        return writer.commit(facts.as_dict(), seconds=perf_counter() - began, steps=steps)


def verified_pin(source: Snapshot | Pin) -> Pin:
    """``source`` as a pin; one that was pinned before is checked against the files as they are now."""
    if not isinstance(source, Pin):
        return pin_snapshot(source)
    fingerprints: Mapping[str, str] = source.fingerprints
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        list(
            threads.map(
                lambda segment: checked_fingerprint(segment, fingerprints[segment.path]),
                source.snapshot.segments,
            )
        )
    return source
