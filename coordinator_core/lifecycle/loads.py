"""Releases that load a log, records at which the others stop, and states that differ from today's.

The log is replayed once for all releases that load alike. Facts are those of ``releases/``; where a loader stops, the
fact that is to blame is found by replaying with that fact alone changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from coordinator_core.errors import Damage
from coordinator_core.fold.cache import FoldCache
from coordinator_core.groups.model import ClassicGroup, Group, LoadFailure, PartitionState
from coordinator_core.lifecycle.half_cleaned import GroupHistory, first_refused, refusal
from coordinator_core.lifecycle.loaded import NOT_ANSWERED, Loaded, changed_offset_keys, loaded
from coordinator_core.lifecycle.unreadable import first_unreadable
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.releases import FACTS_BESIDE_LOADING, Profile, Release, SubscriptionReading
from coordinator_core.replay.interpret import max_value_version
from coordinator_core.runs.local import replay_each

_BUGS: Final[Mapping[str, tuple[object, str | None]]] = {
    "tolerates_owned_partitions": (True, "KAFKA-19862"),
    "tolerates_missing_groups": (True, "KAFKA-17306"),
    "tolerates_missing_share_groups": (True, "KAFKA-19453"),
    "streams_replaces_simple": (True, "KAFKA-20254"),
    "consumer_replaces_simple": (True, None),
    "unknown_key_aborts": (False, "KIP-915"),
    "subscription_reading": (SubscriptionReading.HARMLESS, "KAFKA-20570"),
}
"""Facts of a :class:`Profile` that stop loads: the value that does not, and where Kafka changed it (``None``: no issue
is known)."""

_TYPE_CONFLICT: Final = " group, not a "
"""Words of the message about a group of another type. Downgrades leave such tombstones (KAFKA-21117)."""

_EARLY_BATCHES: Final = 4096
"""Batches of an offsets partition that are looked through, record by record, for a stop."""

_PARTITION: Final = attrgetter("state.offsets_partition")

_NEVER_END: Final = frozenset({"KAFKA-7286", "KAFKA-9065"})
"""Issues whose loads go on for ever."""


class Outcome(StrEnum):
    """Outcomes for a partition, mildest first."""

    LOADS = "loads"
    DIFFERS = "differs"
    STOPS = "stops"


@dataclass(frozen=True, slots=True)
class Stop:
    """End of a load: the record at ``record_offset`` (``None``: the end of the log), and the reason.

    ``bug`` is Kafka's issue or proposal, if the reason has one. ``fixed_in`` is the first later release of those
    asked that does not stop there; ``None`` if none is known.
    """

    record_offset: int | None
    detail: str
    bug: str | None = None
    fixed_in: Release | None = None

    @property
    def never_ends(self) -> bool:
        """Whether the load does not fail but goes on for ever, and keeps the broker's only loader."""
        return self.bug in _NEVER_END

    def as_dict(self) -> dict[str, Any]:
        """The stop as JSON."""
        return asdict(self) | {"fixed_in": None if self.fixed_in is None else str(self.fixed_in)}


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """A group that comes out otherwise: ``absent``, ``new``, or with other values in ``fields``; ``offset_keys``
    counts its committed offsets that are absent, new, or have other values."""

    group_id: str
    change: str
    fields: tuple[str, ...]
    offset_keys: int


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """One offsets partition under one release. ``after_cleaning``: where the load would stop if the cleaner had been
    through some of the segments; only looked for in partitions that load as they are."""

    offsets_partition: int
    stop: Stop | None
    differences: tuple[GroupDifference, ...]
    after_cleaning: Stop | None = None

    @property
    def outcome(self) -> Outcome:
        """End of the load."""
        if self.stop is not None:
            return Outcome.STOPS
        return Outcome.DIFFERS if self.differences else Outcome.LOADS


@dataclass(frozen=True, slots=True)
class ReleaseLoad:
    """All offsets partitions under ``profiles``, which load alike."""

    profiles: tuple[Profile, ...]
    partitions: tuple[PartitionLoad, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst of the partitions; ``LOADS`` for none."""
        return max((one.outcome for one in self.partitions), key=list(Outcome).index, default=Outcome.LOADS)


def loads(
    snapshot: Snapshot,
    base: Profile,
    profiles: Iterable[Profile],
    *,
    on_damage: OnDamage,
    damage: list[Damage],
    cache: FoldCache | None = None,
    histories: Mapping[int, Sequence[GroupHistory]] | None = None,
) -> list[ReleaseLoad]:
    """Comparison of the state that each of ``profiles`` makes of ``snapshot`` with ``base``; in the order of
    ``profiles``.

    ``histories`` are the records of groups by offsets partition (``half_cleaned.group_histories``), for the logs that a
    cleaner may leave; ``None``: not asked. Appends to ``damage`` and raises as ``replay_snapshot`` does.
    """
    replay = partial(replay_each, make=loaded, on_damage=on_damage, cache=cache)
    today = replay(snapshot, base, damage=damage)
    has_loaded = not any(one.state.load_failures for one in today)
    alike: dict[tuple[object, ...], list[Profile]] = {}
    for profile in profiles:
        alike.setdefault(_facts(profile, base if has_loaded else None), []).append(profile)
    found = []
    for facts, members in alike.items():
        states = today
        if facts != _facts(base):
            ended = [*_stopped_early(snapshot, today, members[0], on_damage)]
            rest = {log.offsets_partition for log in snapshot.partitions} - {*map(_PARTITION, ended)}
            states = sorted([*ended, *replay(snapshot.only(rest), members[0], damage=[])], key=_PARTITION)
        partitions = [
            _compared(
                load_of(log, after.state.load_failures, members[0], (histories or {}).get(log.offsets_partition, ())),
                before,
                after,
            )
            for log, before, after in zip(snapshot.partitions, today, states, strict=True)
        ]
        found.append(ReleaseLoad(tuple(members), tuple(partitions)))
    return _with_fixes(found)


def _stopped_early(
    snapshot: Snapshot, today: Iterable[Loaded], profile: Profile, on_damage: OnDamage
) -> Iterator[Loaded]:
    """Offsets partitions at whose beginning a loader of ``profile`` stops, with nothing but the failure.

    Most releases before 2.1 do, in logs of later ones. A replay would interpret one by one all records that follow.
    """
    for log, one in zip(snapshot.partitions, today, strict=True):
        counts = one.state.record_counts
        if all(version is None or version <= max_value_version(key_type, profile) for key_type, version in counts):
            continue
        batches = read_records(log, on_damage=on_damage, damage=[])
        failure = refusal(((batch, records) for _, batch, records in islice(batches, _EARLY_BATCHES)), profile)
        if failure is not None:
            yield Loaded(PartitionState(log.offsets_partition, load_failures=[failure]))


def _facts(profile: Profile, loaded: Profile | None = None) -> tuple[object, ...]:
    """Facts of ``profile`` by which its load may differ.

    Where ``loaded`` reads all subscriptions of the log, a profile that takes more of them loads it alike.
    """
    strictness = list(SubscriptionReading).index
    if loaded is not None and strictness(profile.subscription_reading) < strictness(loaded.subscription_reading):
        profile = replace(profile, subscription_reading=loaded.subscription_reading)
    return tuple(getattr(profile, each.name) for each in fields(profile) if each.name not in FACTS_BESIDE_LOADING)


def load_of(
    log: PartitionLog, failures: Sequence[LoadFailure], profile: Profile, histories: Iterable[GroupHistory]
) -> PartitionLoad:
    """Load of one offsets partition by ``profile``, compared with nothing; ``failures`` are those of its replay.

    ``histories`` are gone through where the partition loads as it is.
    """
    stop = None
    unreadable = first_unreadable(log, profile)
    refused = failures[0] if failures else None
    if unreadable is not None:
        stop = Stop(unreadable.record_offset, unreadable.detail, unreadable.bug)
    elif refused is not None:

        def refusal_of_log(other: Profile) -> LoadFailure | None:
            read = read_records(log, on_damage=OnDamage.SALVAGE, damage=[])
            return refusal(((batch, records) for _, batch, records in read), other)

        stop = Stop(refused.record_offset, refused.detail, _bug(refused, profile, refusal_of_log))
    if stop is not None:
        return PartitionLoad(log.offsets_partition, stop, ())
    cleaned = None
    found = first_refused(histories, profile)
    if found is not None:
        left = [(each.batch, [each.record]) for each in found.left]
        bug = _bug(found.failure, profile, lambda other: refusal(left, other))
        cleaned = Stop(found.failure.record_offset, found.failure.detail, bug)
    return PartitionLoad(log.offsets_partition, None, (), cleaned)


def _compared(load: PartitionLoad, before: Loaded, after: Loaded) -> PartitionLoad:
    if load.stop is not None or after is before:
        return load
    return replace(load, differences=tuple(_differences(before, after)))


def _bug(failure: LoadFailure, profile: Profile, refusal_under: Callable[[Profile], LoadFailure | None]) -> str | None:
    """Kafka's issue behind the fact of ``profile`` without which the loader does not stop at this record."""
    for fact, (mended, bug) in _BUGS.items():
        if getattr(profile, fact) != mended:
            changed: dict[str, Any] = {fact: mended}
            other = refusal_under(replace(profile, **changed))
            if other is None or other.record_offset != failure.record_offset:
                return bug
    return "KAFKA-21117" if _TYPE_CONFLICT in failure.detail else None


def _with_fixes(found: Sequence[ReleaseLoad]) -> list[ReleaseLoad]:
    """``found`` with ``fixed_in`` of every stop."""

    def fixed(stop: Stop | None, number: int, last: Profile, after_cleaning: bool) -> Stop | None:
        if stop is None:
            return None
        later = (
            profile.release
            for load in found
            for profile in load.profiles
            if profile.loader is last.loader
            and profile.release > last.release
            and not _stops_at(load.partitions[number], stop, after_cleaning)
        )
        return replace(stop, fixed_in=min(later, default=None))

    return [
        replace(
            load,
            partitions=tuple(
                replace(
                    partition,
                    stop=fixed(partition.stop, number, load.profiles[-1], False),
                    after_cleaning=fixed(partition.after_cleaning, number, load.profiles[-1], True),
                )
                for number, partition in enumerate(load.partitions)
            ),
        )
        for load in found
    ]


def _stops_at(partition: PartitionLoad, stop: Stop, after_cleaning: bool) -> bool:
    if partition.stop is not None:
        return after_cleaning or partition.stop.record_offset == stop.record_offset
    return after_cleaning and partition.after_cleaning is not None


def _differences(before: Loaded, after: Loaded) -> Iterator[GroupDifference]:
    changed_keys = changed_offset_keys(before, after)
    groups = before.state.groups, after.state.groups
    for group_id in sorted({*groups[0], *groups[1], *changed_keys}):
        old, new = (each.get(group_id) for each in groups)
        if old == new and not changed_keys[group_id]:
            continue
        names = _changed_fields(old, new) if old is not None and new is not None else ()
        change = "changed"
        if (old is None) != (new is None):
            change = "new" if old is None else "absent"
        if change != "changed" or names or changed_keys[group_id]:
            yield GroupDifference(group_id, change, names, changed_keys[group_id])


def _changed_fields(old: Group, new: Group) -> tuple[str, ...]:
    """Fields of two states of a group that differ; ``type`` if they are groups of different types."""
    if old.type is not new.type:
        return ("type",)
    names = old._fields if isinstance(old, ClassicGroup) else [each.name for each in fields(old) if each.compare]
    return tuple(name for name in names if name not in NOT_ANSWERED and getattr(old, name) != getattr(new, name))
