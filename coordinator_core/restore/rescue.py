"""The ways out when a coordinator does not load a partition: another release, a log without the records that stop it,
other names.

A coordinator that stops while it loads answers for none of the groups of that partition, and will not until the record
is gone: ``CoordinatorLoaderImpl`` gives up, and nothing tries again before the leader changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coordinator_core.errors import Damage, ExitCode, RegroupError
from coordinator_core.fold.cache import FoldCache
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import LoadFailure, PartitionState
from coordinator_core.lifecycle.loads import Stop, loads
from coordinator_core.lifecycle.unreadable import LOAD_BUFFER_BYTES, has_empty_tail
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.segments import partition_directory_name, segment_name
from coordinator_core.log.types import Codec, PartitionLog, Snapshot
from coordinator_core.log.writer import empty_batch, rebuild_batch, recoded_batch
from coordinator_core.releases import Profile, Release, every_profile
from coordinator_core.runs.local import replay_snapshot

_ROUNDS = 16


class RepairError(RegroupError):
    """Without the records that stop it the log does not load either, or says something else."""

    exit_code = ExitCode.APPLY_FAILED


@dataclass(frozen=True, slots=True)
class Stuck:
    """An offsets partition that ``stop`` keeps from loading. ``refused``: all records that the loader would stop at.

    ``loaded_by`` are the profiles of the table of releases that load it. ``state`` is the state of the log by the rules
    of ``read_by``: the newest of these, which knows what all before it wrote; where none is later than the refusing
    release, of that one, read on behind the records. ``names`` has for each group the nearest new name that hashes to a
    partition that loads and that no group of the snapshot has; it is empty where none does. A load that never ends
    keeps all partitions of its broker from being loaded.
    """

    offsets_partition: int
    stop: Stop
    refused: tuple[LoadFailure, ...]
    loaded_by: tuple[Profile, ...]
    read_by: Profile
    state: PartitionState
    names: dict[str, str]


def stuck_partitions(
    snapshot: Snapshot,
    profile: Profile,
    offsets_partitions: int | None,
    group_ids: Callable[[], Iterable[str]],
    *,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
    cache: FoldCache | None = None,
    leaders: Mapping[int, int] | None = None,
) -> list[Stuck]:
    """The partitions that ``profile`` does not load, in order.

    There are no names where ``offsets_partitions`` is ``None``: their number is not known. ``group_ids`` tells all ids
    in the snapshot, which are no new names. ``leaders`` are brokers by offsets partition, as far as they are known.
    Raises as ``replay_snapshot`` does.
    """
    (mine,) = loads(snapshot, profile, [profile], on_damage=on_damage, damage=damage, cache=cache)
    numbers = {one.offsets_partition for one in mine.partitions if one.stop is not None}
    part = snapshot.only(numbers)
    if not numbers:
        return []
    # The other releases tell which load it, and where the stop is mended.
    asked = [profile, *(one for one in every_profile() if one != profile)]
    found = loads(part, profile, asked, on_damage=on_damage, damage=[], cache=cache)

    def replayed(rules: Profile, partitions: Collection[int]) -> list[PartitionState]:
        return replay_snapshot(part.only(partitions), rules, on_damage=on_damage, damage=[], cache=cache)

    stuck = [
        _stuck(profile, state, [(load.profiles, load.partitions[at].stop) for load in found])
        for at, state in enumerate(replayed(profile, numbers))
    ]
    by_reader: dict[Profile, list[int]] = {}
    for one in stuck:
        by_reader.setdefault(one.read_by, []).append(one.offsets_partition)
    states = {
        state.offsets_partition: state
        for reader, some in by_reader.items()
        if reader != profile
        for state in replayed(reader, some)
    }
    stuck = [replace(one, state=states.get(one.offsets_partition, one.state)) for one in stuck]
    leaders = leaders or {}
    held_up = {leaders.get(one.offsets_partition) for one in mine.partitions if one.stop and one.stop.never_ends}
    is_healthy = _healthy(offsets_partitions or 0, numbers, leaders, held_up)
    if is_healthy is None:
        return stuck
    taken = {*group_ids(), *(group_id for one in stuck for group_id in one.state.groups)}
    return [
        replace(one, names=new_names(one.state.groups, taken, is_healthy, offsets_partitions or 0)) for one in stuck
    ]


def _healthy(
    offsets_partitions: int, refused: Collection[int], leaders: Mapping[int, int], held_up: Collection[int | None]
) -> Callable[[int], bool] | None:
    """Tells the partitions that load; ``None`` where none does. A broker in ``held_up`` loads none.

    No set of them is made: there may be 2^31 - 1.
    """
    if held_up:
        known = leaders.items() if None not in held_up else ()
        loaded = {number for number, leader in known if number < offsets_partitions and leader not in held_up}
        loaded -= set(refused)
        return loaded.__contains__ if loaded else None
    if sum(number < offsets_partitions for number in refused) == offsets_partitions:
        return None
    return lambda number: number not in refused


def _stuck(profile: Profile, state: PartitionState, stops: Sequence[tuple[tuple[Profile, ...], Stop | None]]) -> Stuck:
    """The partition of a ``state`` by the rules of ``profile``, which the first of ``stops`` is by, too."""
    stop = stops[0][1]
    assert stop is not None
    loaded_by = sorted((one for profiles, other in stops if other is None for one in profiles), key=_age)
    read_by = max([profile, *loaded_by], key=_age)
    return Stuck(state.offsets_partition, stop, tuple(state.load_failures), tuple(loaded_by), read_by, state, {})


def _age(profile: Profile) -> tuple[Release, str]:
    return profile.release, profile.coordinator


def new_names(
    group_ids: Collection[str], taken: set[str], is_healthy: Callable[[int], bool], offsets_partitions: int
) -> dict[str, str]:
    """For each group ``GROUP-1``, ``GROUP-2`` … : the first that is not ``taken`` and hashes to a healthy partition.

    There must be one. The new names are then taken, too.
    """
    found: dict[str, str] = {}
    for group_id in sorted(group_ids):
        number = 1
        while (name := f"{group_id}-{number}") in taken or not is_healthy(partition_for(name, offsets_partitions)):
            number += 1
        taken.add(name)
        found[group_id] = name
    return found


def repair(
    log: PartitionLog, profile: Profile, directory: Path, *, on_damage: OnDamage = OnDamage.FAIL
) -> list[LoadFailure]:
    """Write the partition without the records that ``profile`` refuses; these records.

    An empty last segment and batches too large for it, at which its loads never end, are left out and compressed. The
    rest is as it was, as far as ``on_damage`` reads it: offsets, batches, markers. :class:`RepairError` when the
    remaining log does not load or has other committed offsets than the log read on behind the refused records;
    ``directory`` is then of no use.
    """
    (before,) = _replayed(log, profile, on_damage)
    dropped = list(before.load_failures)
    for _ in range(_ROUNDS):
        current = _written(log, {failure.record_offset for failure in dropped}, profile, directory, on_damage)
        (state,) = _replayed(current, profile)
        if not state.load_failures:
            break
        dropped += state.load_failures
    (again,) = loads(Snapshot((), (current,), (), (), {}), profile, [profile], on_damage=OnDamage.FAIL, damage=[])
    (load,) = again.partitions
    where = f"offsets partition {log.offsets_partition}"
    if load.stop is not None:
        raise RepairError(f"{where} does not load without the refused records either: {load.stop.detail}")
    if state.offsets != before.offsets or state.pending != before.pending:
        raise RepairError(f"{where}: without the refused records committed offsets are others")
    return sorted(dropped)


def _replayed(log: PartitionLog, profile: Profile, on_damage: OnDamage = OnDamage.FAIL) -> list[PartitionState]:
    of_log = Snapshot((), (log,), (), (), {})
    return replay_snapshot(of_log, profile, on_damage=on_damage, damage=[], whole_metadata=False)


def _written(
    log: PartitionLog, dropped: Collection[int], profile: Profile, directory: Path, on_damage: OnDamage
) -> PartitionLog:
    if not profile.ends_at_empty_read and has_empty_tail(log):
        log = replace(log, segments=tuple(segment for segment in log.segments if segment.size))
    place = directory / partition_directory_name(log.offsets_partition)
    place.mkdir(parents=True, exist_ok=True)
    data: dict[int, bytearray] = {segment.base_offset: bytearray() for segment in log.segments}
    for segment, batch, records in read_records(log, on_damage=on_damage):
        gone = {record.offset for record in records} & set(dropped)
        if not gone:
            is_large = batch.size > LOAD_BUFFER_BYTES and not profile.grows_load_buffer
            kept = recoded_batch(batch, Codec.GZIP) if is_large else bytes(batch.data)
        elif len(gone) == len(records):
            kept = empty_batch(batch)
        else:
            kept = rebuild_batch(batch, lambda offset, gone=gone: offset not in gone, path=segment.path)  # type: ignore[misc]
        data[segment.base_offset] += kept
    segments = []
    for segment in log.segments:
        path = place / segment_name(segment.base_offset)
        path.write_bytes(data[segment.base_offset])
        segments.append(replace(segment, path=str(path), size=len(data[segment.base_offset])))
    return replace(log, directory=str(place), segments=tuple(segments))
