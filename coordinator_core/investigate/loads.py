"""Whether the release that runs here loads the partitions, and if not, which later one does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from coordinator_core.groups.model import PartitionState
from coordinator_core.history.model import ChangeKind, PartitionHistory, Place
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import Case, Event, Explanation
from coordinator_core.lifecycle.half_cleaned import NEWEST_CLASSIC, GroupHistory, group_histories
from coordinator_core.lifecycle.loads import Stop, load_of, loads
from coordinator_core.log.reader import OnDamage, read_partition
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.releases import Loader, every_profile
from coordinator_core.rules.model import Severity

_MOST_RECORDS = 50_000
"""Records of types newer than classic groups: what a cleaner may leave of so many is looked at in some seconds."""

_UNKNOWN_VERSION = "KAFKA-18672"
_SEE = "See what other releases make of this log: regroup loads SNAPSHOT"


def explain_loads(
    snapshot: Snapshot,
    replayed: Iterable[PartitionState | MergedPartition],
    histories: Mapping[int, PartitionHistory],
    case: Case,
    on_damage: OnDamage,
    groups: Collection[str] | None,
) -> Iterator[Explanation]:
    """For each offsets partition that the release stops loading, or would stop loading while a cleaner runs.

    ``replayed`` are the partitions. Remains that a cleaner may leave of other groups are looked at unless
    their records of newer types are too many.
    """
    profile = case.profile
    records: dict[int, Sequence[GroupHistory]] = {}
    own = []
    for log, state in zip(snapshot.partitions, replayed, strict=True):
        number = log.offsets_partition
        newer = sum(count for (key_type, _), count in state.record_counts.items() if key_type > NEWEST_CLASSIC)
        if profile.loader is Loader.JAVA and newer and not state.load_failures:
            chosen = groups if newer > _MOST_RECORDS else None
            records[number] = group_histories(log, on_damage=on_damage, damage=[], groups=chosen)
        own.append(load_of(log, state.load_failures, profile, records.get(number, ())))
    if all(one.stop is None and one.after_cleaning is None for one in own):
        return
    later = [one for one in every_profile() if one.loader is profile.loader and one.release > profile.release]
    if later:
        profiles = [profile, *later]
        with_fixes, *_ = loads(snapshot, profile, profiles, on_damage=on_damage, damage=[], histories=records)
        own = list(with_fixes.partitions)
    logs = {log.offsets_partition: log for log in snapshot.partitions}
    for one in own:
        history, log = histories[one.offsets_partition], logs[one.offsets_partition]
        if one.stop is not None:
            stop = one.stop
            if stop.bug is None and "value version" in stop.detail and BUGS[_UNKNOWN_VERSION].fits(profile.release):
                stop = replace(stop, bug=_UNKNOWN_VERSION)
            yield _refused(history, log, stop, case)
        elif one.after_cleaning is not None:
            yield _at_risk(history, log, one.after_cleaning, case)


def _place(history: PartitionHistory, log: PartitionLog, stop: Stop) -> tuple[Place, str | None]:
    """The record at which the load stops, and its group where that was decoded."""
    for group in history.groups.values():
        for change in group.changes:
            if change.place.record_offset == stop.record_offset:
                return change.place, group.group_id
    offset = history.end_offset if stop.record_offset is None else stop.record_offset
    batches = (batch for _, batch in read_partition(log.since(offset), on_damage=OnDamage.SALVAGE, damage=[]))
    times = (batch.max_timestamp_ms for batch in batches if batch.base_offset <= offset < batch.next_offset)
    return Place(history.offsets_partition, offset, next(times, history.last_ms), "", 0, -1), None


def _cure(stop: Stop) -> list[str]:
    cures = [] if stop.fixed_in is None else [f"Run {stop.fixed_in} or later: it does not stop there."]
    if stop.bug is not None and stop.bug in BUGS:
        cures.append(BUGS[stop.bug].advice)
    return [*cures, _SEE]


def _known(stop: Stop) -> str:
    fixed = f", fixed in {stop.fixed_in}" if stop.fixed_in is not None else ""
    return "" if stop.bug is None else f" This is {stop.bug}{fixed}."


def _refused(history: PartitionHistory, log: PartitionLog, stop: Stop, case: Case) -> Explanation:
    place, group_id = _place(history, log, stop)
    number, release = history.offsets_partition, case.profile.release
    code, not_this = "load-refused", "The bytes are not damaged: Kafka's rules of this release refuse them."
    verdict = f"Kafka {release} stops loading offsets partition {number} at record {place.record_offset}"
    verdict += f", of {group_id}: {stop.detail}." if group_id is not None else f": {stop.detail}."
    verdict += " All groups of the partition are affected."
    if stop.record_offset is None:
        code, not_this = "load-never-ends", "Restarting the broker does not help: the next load reads the same files."
        verdict = (
            f"Kafka {release} never ends loading offsets partition {number}, and all partitions queued behind it wait: "
            f"after record {place.record_offset - 1} {stop.detail}."
        )
    return Explanation(
        code,
        Severity.CRITICAL,
        verdict + _known(stop),
        place.timestamp_ms,
        group_id,
        number,
        evidence=[Event(place, stop.detail)],
        not_this=[not_this],
        now=_cure(stop),
        capture=["Copy the partition's directory from its leader before a cleaner or a restart changes it."],
        bug=stop.bug if stop.bug in BUGS else None,
    )


def _at_risk(history: PartitionHistory, log: PartitionLog, stop: Stop, case: Case) -> Explanation:
    place, group_id = _place(history, log, stop)
    changes = [] if group_id is None else history.groups[group_id].changes
    return Explanation(
        "load-at-risk",
        Severity.WARNING,
        f"The load of offsets partition {history.offsets_partition} stops on {case.profile.release} if the cleaner "
        "runs at "
        f"the same time: at record {place.record_offset}, {stop.detail}. At rest the log is sound." + _known(stop),
        place.timestamp_ms,
        group_id,
        history.offsets_partition,
        events=[
            Event(one.place, f"{one.kind.value} {one.generation}")
            for one in changes[-4:]
            if one.kind is not ChangeKind.DELETED
        ],
        evidence=[Event(place, stop.detail)],
        not_this=["No record is damaged or out of order: the loader reads before and after a cleaning."],
        now=[*_cure(stop), "If a shard has failed, move the leader of the partition once more, when no cleaner runs."],
        bug=stop.bug if stop.bug in BUGS else None,
    )
