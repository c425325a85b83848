"""Sources of wanted offsets: a replayed state, the log up to a point, an incident, a CSV; and their new names."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from coordinator_core.durations import is_or_are
from coordinator_core.errors import Damage, UsageError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import CommittedOffset, GroupType, OffsetKey, PartitionState
from coordinator_core.history.model import PartitionHistory
from coordinator_core.investigate.losses import REMOVED
from coordinator_core.investigate.model import Explanation
from coordinator_core.investigate.words import count
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.log.types import PartitionLog, Record
from coordinator_core.merge.packed import LongText, LongTexts, PackedTexts
from coordinator_core.releases import Profile
from coordinator_core.replay.sequential import SequentialReplayer
from coordinator_core.restore.model import Position
from coordinator_core.restore.target import check_places, groups_of, listed, place_of, position_of
from coordinator_core.untrusted import INT32_END, whole_number

T = TypeVar("T")

Steps = Iterator[tuple[SequentialReplayer, Record | None]]


@dataclass(frozen=True)
class Wanted:
    """``positions`` by offset key, ``types`` of groups where they are known; ``cluster_id`` of where they were
    committed. ``warnings`` by group; ``steps`` by offsets partition: what clock steps there mean for the point."""

    positions: Mapping[OffsetKey, Position]
    types: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str | None = None
    warnings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    steps: Mapping[int, str] = field(default_factory=dict)


def wanted_of(
    states: Sequence[PartitionState],
    topic_ids: Mapping[str, str],
    cluster_id: str | None,
    offsets_partitions: int,
    group_ids: Collection[str] = (),
    texts: LongTexts | None = None,
) -> Wanted:
    """Everything that a replayed state of so many offsets partitions has committed. ``topic_ids`` by name; ``texts``
    as for :func:`restore.target.position_of`.

    Raises ``UsageError`` for one of ``group_ids`` (empty: of all) of which several partitions have a state, and none
    of them is that of its coordinator.
    """
    places = check_places(states, offsets_partitions, group_ids)
    groups = groups_of(states, topic_ids, place_of(offsets_partitions), texts)
    return Wanted(
        {
            OffsetKey(group_id, *key): place
            for group_id, group in groups.items()
            for key, place in sorted(group.offsets.items())
        },
        {group_id: group.type for group_id, group in groups.items()},
        cluster_id,
        {
            group_id: said
            for group_id, group in groups.items()
            if (said := (*_in_others(places.get(group_id), group_id, offsets_partitions), *_open(group.unstable)))
        },
    )


def _in_others(partitions: Sequence[int] | None, group_id: str, offsets_partitions: int) -> tuple[str, ...]:
    if partitions is None:
        return ()
    home = partition_for(group_id, offsets_partitions)
    return (
        f"offsets partitions {listed(partitions)} have it: what {home} has is taken, which is that of its coordinator "
        f"where there are {offsets_partitions}",
    )


def _open(unstable: Mapping[tuple[str, int], tuple[int, ...]]) -> tuple[str, ...]:
    if not unstable:
        return ()
    producers = sorted({producer for each in unstable.values() for producer in each})
    named = ", ".join(map(str, producers))
    return (f"a transaction of producer {named} was open at the source: its commits are not taken",)


def states_at(
    logs: Iterable[PartitionLog],
    profile: Profile,
    *,
    time_ms: int | None = None,
    before: Mapping[int, int] | None = None,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
) -> tuple[list[PartitionState], dict[int, str]]:
    """State before the first record that is newer than ``time_ms``, or before the record offsets of ``before``
    (by offsets partition; only these partitions then). Long metadata are ``LongText``.

    Each partition has the clock of its leaders, and times can step back: the first newer record ends it. What to say
    where others behind it are not newer, or where the last ones before it have no time, is told by offsets partition.
    Raises ``UsageError`` for a record offset that the log does not reach.
    """
    found = []
    steps = {}
    for log in logs:
        end = None if before is None else before.get(log.offsets_partition)
        if before is not None and end is None:
            continue
        last, timeless = -1, 0
        for replayer, record in _steps(log, profile, on_damage, damage):
            if record is None:
                if end is not None and end > last + 1:
                    at = f"offsets partition {log.offsets_partition}"
                    raise UsageError(f"{at} ends with record offset {last}: nothing is at {end}")
            elif record.offset < end if end is not None else record.timestamp_ms <= (time_ms or 0):
                last = record.offset
                timeless = timeless + 1 if record.timestamp_ms < 0 else 0
                continue
            found.append(replayer.finish())
            if timeless and time_ms is not None:
                steps[log.offsets_partition] = (
                    f"offsets partition {log.offsets_partition}: the last {count(timeless, 'record')} up to record "
                    f"{last} {'have' if timeless > 1 else 'has'} no time (message format 0), and may be newer than "
                    "that: all are taken (--before-record takes another point)"
                )
            elif record is not None and time_ms is not None and (older := _older_behind(log, record.offset, time_ms)):
                steps[log.offsets_partition] = (
                    f"offsets partition {log.offsets_partition}: the clock of its leaders stepped back: it is taken "
                    f"before record {record.offset}, the first newer one, and {count(older, 'record')} behind that "
                    f"{is_or_are(older)} of that time or before (--before-record takes another point)"
                )
            break
    missing = set(before or ()) - {state.offsets_partition for state in found}
    if missing:
        raise UsageError(f"the snapshot has no offsets partition {min(missing)}")
    return found, steps


def _older_behind(log: PartitionLog, offset: int, time_ms: int) -> int:
    """How many records behind a record offset are not newer than a time. Damage there is left out: the state ends
    before it."""
    rest = [segment for segment, following in log.segment_ranges() if following is None or following > offset]
    batches = read_records(replace(log, segments=tuple(rest)), on_damage=OnDamage.SALVAGE)
    behind = (record for _, _, records in batches for record in records if record.offset > offset)
    return sum(0 <= record.timestamp_ms <= time_ms for record in behind)


def _steps(log: PartitionLog, profile: Profile, on_damage: OnDamage, damage: list[Damage]) -> Steps:
    """The replay before each record that a loader looks at, and at the end (``None``)."""
    texts = PackedTexts()
    packed = partial(LongText.of, texts=texts)
    replayer = SequentialReplayer(profile, log.offsets_partition, kept_metadata=packed)
    for _, batch, records in read_records(log, on_damage=on_damage, damage=damage):
        for record in replayer.loaded_records(batch, records):
            yield replayer, record
            replayer.replay_record(batch, records, record)
    yield replayer, None


@dataclass(frozen=True, slots=True)
class Incident:
    """Act of an explanation that took offsets of one group: keys, and the record offset before which the group had
    them (``Explanation.held_before``, or one of ``Explanation.ends``)."""

    group_id: str
    offsets_partition: int
    record_offset: int
    keys: frozenset[OffsetKey]


def at_home(
    explanations: Sequence[Explanation], histories: Sequence[PartitionHistory], offsets_partitions: int
) -> tuple[list[Explanation], dict[str, tuple[str, ...]]]:
    """Explanations that have something to put back, of a group that several offsets partitions have only those of its
    coordinator's, of so many partitions; with the warning of each such group.

    Raises ``UsageError`` as :func:`wanted_of` does.
    """
    found = [one for one in explanations if one.group_id is not None and one.ends]
    groups = {one.group_id for one in found if one.group_id is not None}
    places = check_places(histories, offsets_partitions, groups) if groups else {}
    homes = {one: partition_for(one, offsets_partitions) for one in groups & places.keys()}
    kept = [one for one in found if homes.get(one.group_id or "", one.offsets_partition) == one.offsets_partition]
    return kept, {one: _in_others(places[one], one, offsets_partitions) for one in homes}


def incidents_of(explanations: Sequence[Explanation]) -> list[Incident]:
    """Of each group the worst kind that has something to put back which the group held, and what milder acts removed
    since; explanations come worst first. A group may have several acts of one kind, such as offsets that expired one
    after the other."""
    of_groups: dict[str, list[Explanation]] = {}
    for one in explanations:
        if one.group_id is not None and one.ends:
            of_groups.setdefault(one.group_id, []).append(one)
    found = []
    for some in of_groups.values():
        worst = [one for one in some if one.code == some[0].code]
        since = min(end for one in worst for end in one.ends.values())
        taken = {key for one in worst for key in one.ends}
        found += [act for one in worst for act in _acts(one, one.ends.keys())]
        for one in some:
            if one.code in REMOVED - {some[0].code} and min(one.ends.values()) > since:
                found += _acts(one, one.ends.keys() - taken)
    return found


def _acts(one: Explanation, keys: Collection[OffsetKey]) -> list[Incident]:
    """The act of an explanation; where its keys were not held at one time, one for each end."""
    at: dict[int, list[OffsetKey]] = {}
    for key in keys:
        at.setdefault(one.ends[key] if one.held_before is None else one.held_before, []).append(key)
    assert one.group_id is not None
    assert one.offsets_partition is not None
    return [Incident(one.group_id, one.offsets_partition, point, frozenset(some)) for point, some in at.items()]


def wanted_before(
    logs: Iterable[PartitionLog],
    profile: Profile,
    incidents: Sequence[Incident],
    cluster_id: str | None,
    warnings: Mapping[str, tuple[str, ...]],
    *,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
) -> Wanted:
    """Values of the keys of each incident before its record, of several incidents the newest, with epoch and metadata;
    topic ids are those of the records. ``warnings`` by group."""
    positions: dict[OffsetKey, Position] = {}
    types: dict[str, str] = {}
    for log in logs:
        stops = sorted(
            (one for one in incidents if one.offsets_partition == log.offsets_partition),
            key=lambda one: one.record_offset,
        )
        for replayer, record in _steps(log, profile, on_damage, damage) if stops else ():
            while stops and (record is None or record.offset >= stops[0].record_offset):
                incident = stops.pop(0)
                held: Mapping[OffsetKey, CommittedOffset] = replayer.offset_keys()
                for key in sorted(incident.keys & held.keys()):
                    positions[key] = position_of(held[key], log.offsets_partition, None)
                group = replayer.group(incident.group_id)
                types[incident.group_id] = "classic" if group is None else str(group.type)
            if not stops:
                break
    return Wanted(positions, types, cluster_id, warnings)


def csv_rows(path: str, text: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of a CSV that are not empty, each with its place for errors. Line ends in quotes are part of a name.

    Raises ``UsageError`` with the line that is no CSV.
    """
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in rows:
            if row:
                yield f"{path}: line {rows.line_num}", row
    except csv.Error as error:
        raise UsageError(f"{path}: line {rows.line_num}: {error}") from None


def read_csv(path: str, text: str, groups: Collection[str]) -> Wanted:
    """Wanted offsets of Kafka's ``--from-file``: ``group,topic,partition,offset``, or without the group where there is
    one in ``groups``. ``UsageError`` with the line."""
    positions: dict[OffsetKey, Position] = {}
    for where, row in csv_rows(path, text):
        if len(row) == 3 and len(groups) == 1:
            row = [*groups, *row]
        if len(row) != 4:
            expected = "topic,partition,offset with one --group, or group,topic,partition,offset"
            raise UsageError(f"{where}: expected {expected}; found {len(row)} fields")
        group_id, topic, partition, offset = row
        number, committed = whole_number(partition, INT32_END), whole_number(offset)
        if number is None or committed is None:
            raise UsageError(f"{where}: partition and offset are numbers; found {partition[:40]!r} and {offset[:40]!r}")
        key = OffsetKey(group_id, topic, number)
        if key in positions:
            raise UsageError(f"{where}: {group_id!r} has {topic}-{partition} twice")
        positions[key] = Position(committed)
    if not positions:
        raise UsageError(f"{path}: names no offset")
    return Wanted(positions)


def renamed(wanted: Wanted, groups: Mapping[str, str], topics: Mapping[str, str]) -> Wanted:
    """The wanted offsets under other names of groups and topics. An offset for another topic has no topic id.

    ``UsageError`` for a name that nothing has, and where two offsets come to one offset key.
    """
    for what, names, known in (
        ("group", groups, {key.group_id for key in wanted.positions}),
        ("topic", topics, {key.topic for key in wanted.positions}),
    ):
        for name in names.keys() - known:
            raise UsageError(f"--map-{what} {name}={names[name]}: no chosen offset of the source is of this {what}")
    chosen = {key.group_id for key in wanted.positions}
    found: dict[OffsetKey, Position] = {}
    for key, place in wanted.positions.items():
        topic = topics.get(key.topic, key.topic)
        new = OffsetKey(groups.get(key.group_id, key.group_id), topic, key.partition)
        if new in found:
            raise UsageError(f"two offsets of the source come to {new.in_words}")
        found[new] = place if topic == key.topic else replace(place, topic_id=None)
    taken = {key.group_id for key in found}

    def told(by_group: Mapping[str, T]) -> Iterator[tuple[str, T]]:
        """What is told of groups, by their new names; a group that is not chosen may have the new name of another."""
        for group_id, value in by_group.items():
            if group_id in chosen or group_id not in taken:
                yield groups.get(group_id, group_id), value

    warnings: dict[str, tuple[str, ...]] = {}
    for group_id, said in told(wanted.warnings):
        warnings[group_id] = (*warnings.get(group_id, ()), *said)
    # Of several groups that come to one, the type of a Streams application counts: it has a warning.
    types = dict(sorted(told(wanted.types), key=lambda one: one[1] == GroupType.STREAMS))
    return replace(wanted, positions=found, types=types, warnings=warnings)
