"""Facts that groups tell about each other: other deletions, ages at deletion, topics whose offsets stayed elsewhere.

Engines that read offsets partitions apart write lessons for each of them; these are much smaller than the
histories, and follows their removals and offset keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import GroupType
from coordinator_core.history.model import Bare, ChangeKind, Deletions, GroupHistory, Place, Removal, stretches
from coordinator_core.history.removals import ONE_ACT_MS
from coordinator_core.merge.schema import MergedPartition

SHORTEST_RETENTION_MS = 60_000
"""``offsets.retention.minutes`` is at least 1."""
_ROWS = 1 << 16
_NAMES: Final = pa.list_(pa.string())
_DELETIONS: Final = pa.schema({"at": pa.int64(), "tombstones": pa.int64(), "groups": _NAMES, "topics": _NAMES})
_TOPICS: Final = pa.schema({"topic": pa.string(), "since_ms": pa.int64(), "gone_ms": pa.int64()})
_AGES: Final = pa.schema(
    {"age_ms": pa.uint64(), "group_id": pa.string(), "at_ms": pa.int64(), "had_members": pa.bool_()}
)

_SUBSCRIBED: Final = pa.schema({"topic": pa.string(), "at_ms": pa.int64(), "age_ms": pa.int64()})
_WAITING: Final = pa.schema({"offsets_partition": pa.int32(), "record_offset": pa.int64(), "since_ms": pa.int64()})
_Removed = TypeVar("_Removed", Removal, Bare)


class Lessons:
    """Facts that the groups of some offsets partitions tell about each other.

    ``deletions`` are of all groups; ``topics`` has by topic when an offset of it was there, from (epoch ms) and up to,
    ``None`` where it stands; ``ages`` are those (ms) at which offsets of a group went that could expire, with the
    group, the time (epoch ms), and whether it had members. ``subscribed`` has by topic the times (epoch ms) at which
    offsets of it went that members subscribed to, with the least age (ms) of the commits. ``waiting`` has by offsets
    partition what a sweep could have taken: of offsets in groups without members that stand at the end of the log, the
    record offset from which on they do, and the time (epoch ms) from which on they age; those that say no more than an
    earlier one are left out.
    ``elsewhere`` has, by topic and group, the newest commit (epoch ms) of offsets that stand in groups of whose history
    nothing else is known; of several offsets that of the one which was committed longest ago. ``is_partial``: there are
    such groups, so ages and topics are those of some groups only.
    """

    def __init__(self, *, is_partial: bool = False) -> None:
        self.is_partial = is_partial
        self.deletions = Deletions()
        self.topics: dict[str, list[tuple[int, int | None]]] = {}
        self.ages: list[tuple[int, str, int, bool]] = []
        self.subscribed: dict[str, dict[int, int]] = {}
        self.waiting: dict[int, list[tuple[int, int]]] = {}
        self.elsewhere: dict[str, dict[str, int]] = {}

    def learn(self, groups: Iterable[GroupHistory]) -> None:
        """Take in groups; their deletions are known. Of a group :func:`~coordinator_core.history.model.outline` will
        do."""
        for group in groups:
            for key, versions in group.versions.items():
                times = ((one[0].valid_from.timestamp_ms, one[-1].gone_ms) for one in stretches(versions))
                self.topics.setdefault(key.topic, []).extend(times)
            for act in acts_of(group.removals):
                if (age := sweep_age(act)) is not None:
                    self.ages.append((age, group.group_id, act[0].place.timestamp_ms, act[0].had_members))
            for removal in group.removals:
                if removal.subscribed and not removal.foreign and removal.value.expire_timestamp_ms is None:
                    at_ms = removal.place.timestamp_ms
                    self._learn_subscribed(removal.offset_key.topic, at_ms, at_ms - removal.value.commit_timestamp_ms)
            self.learn_waiting(group.offsets_partition, _waiting(group))

    def _learn_subscribed(self, topic: str, at_ms: int, age_ms: int) -> None:
        times = self.subscribed.setdefault(topic, {})
        times[at_ms] = min(age_ms, times.get(at_ms, age_ms))

    def learn_standing(self, since_ms: Mapping[str, int]) -> None:
        """Take in of groups that lost nothing, by topic: since when an offset of it stands, the earliest time."""
        for topic, time in since_ms.items():
            self.topics.setdefault(topic, []).append((time, None))

    def learn_waiting(self, offsets_partition: int, offsets: Iterable[tuple[int, int]]) -> None:
        """Take in offsets of a partition that a sweep could have taken, as ``waiting`` has them."""
        known = self.waiting.setdefault(offsets_partition, [])
        known[:] = _oldest([*known, *offsets])

    def learn_elsewhere(self, partition: MergedPartition, asked: Collection[str]) -> None:
        """Take in which topics groups other than ``asked`` have offsets of at the end of the log, as a replay tells."""
        known = pa.array(sorted(asked), pa.string())
        for block in partition.offsets.blocks():
            others = block.filter(pc.invert(pc.is_in(block["group_id"], known)))
            newest = others.group_by(["topic", "group_id"]).aggregate([("commit_timestamp_ms", "min")])
            for topic, group_id, committed_ms in zip(*(column.to_pylist() for column in newest.columns), strict=True):
                by_group = self.elsewhere.setdefault(topic, {})
                by_group[group_id] = min(committed_ms, by_group.get(group_id, committed_ms))

    def has_waited(self, place: Place, age_ms: int) -> bool:
        """Whether a sweep of the partition at ``place`` would have taken an offset so old, or older, that stood there
        before, and stands yet. Of groups of which only some are known it is not asked: these would decide."""
        return not self.is_partial and any(
            record_offset < place.record_offset and place.timestamp_ms - since_ms >= age_ms
            for record_offset, since_ms in self.waiting.get(place.offsets_partition, ())
        )

    def take(self, later: Lessons) -> None:
        """Add the lessons of offsets partitions behind those of this one."""
        self.deletions.take(later.deletions)
        for topic, times in later.topics.items():
            self.topics.setdefault(topic, []).extend(times)
        self.ages += later.ages
        for topic, ages in later.subscribed.items():
            for at_ms, age_ms in ages.items():
                self._learn_subscribed(topic, at_ms, age_ms)
        for offsets_partition, offsets in later.waiting.items():
            self.learn_waiting(offsets_partition, offsets)

    def write(self, file: Any) -> None:
        """Write to an open file; :meth:`read` reads it from where it begins."""
        instants = self.deletions.instants.items()
        write_rows(file, _DELETIONS, ((at, one.tombstones, [*one.groups], [*one.topics]) for at, one in instants))
        write_rows(file, _TOPICS, ((topic, *time) for topic, times in self.topics.items() for time in times))
        write_rows(file, _AGES, iter(self.ages))
        subscribed = self.subscribed.items()
        write_rows(file, _SUBSCRIBED, ((topic, *time) for topic, times in subscribed for time in times.items()))
        write_rows(file, _WAITING, ((number, *one) for number, offsets in self.waiting.items() for one in offsets))

    @classmethod
    def read(cls, file: Any) -> Lessons:
        lessons = cls()
        for at, tombstones, groups, topics in read_rows(file):
            lessons.deletions.note(at, tombstones, groups, topics)
        for topic, since_ms, gone_ms in read_rows(file):
            lessons.topics.setdefault(topic, []).append((since_ms, gone_ms))
        lessons.ages += read_rows(file)
        for subscribed in read_rows(file):
            lessons._learn_subscribed(*subscribed)
        for offsets_partition, *offset in read_rows(file):
            lessons.waiting.setdefault(offsets_partition, []).append((offset[0], offset[1]))
        return lessons


def write_rows(file: Any, schema: pa.Schema, rows: Iterator[tuple[Any, ...]]) -> None:
    """Write rows to an open file, an Arrow stream; :func:`read_rows` reads them from where it begins."""
    with pa.ipc.new_stream(file, schema) as stream:
        while batch := list(islice(rows, _ROWS)):
            columns = zip(*batch, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            stream.write_batch(pa.record_batch(arrays, schema=schema))


def read_rows(file: Any) -> Iterator[tuple[Any, ...]]:
    with pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _waiting(group: GroupHistory) -> Iterator[tuple[int, int]]:
    """Offsets that wait for a sweep, and age from their commit, or the end of the last member where that is later. An
    open transaction may have protected offsets."""
    last = waits_since(group)
    if last is None or group.producers:
        return
    for version in group.standing.values():
        if version.last.expire_timestamp_ms is None:
            yield (
                max(version.last_place.record_offset, last[0]),
                max(version.last.commit_timestamp_ms, last[1]),
            )


def waits_since(group: GroupHistory) -> tuple[int, int] | None:
    """Record offset and time (epoch ms) from which on a sweep looks at the group's offsets: those at which it became
    Empty, -1 where no record is about the group itself. ``None``: it does not, at the end of the log."""
    if not group.changes:
        return -1, -1
    last = group.changes[-1]
    is_swept = last.kind is ChangeKind.EMPTY and last.group_type is not GroupType.SHARE
    return (last.place.record_offset, last.place.timestamp_ms) if is_swept else None


def _oldest(offsets: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Record offsets and times, without those that are not older than one before."""
    oldest_ms: int | None = None
    for record_offset, since_ms in sorted(offsets):
        if oldest_ms is None or since_ms < oldest_ms:
            oldest_ms = since_ms
            yield record_offset, since_ms


def acts_of(removals: Sequence[_Removed]) -> list[list[_Removed]]:
    """Removals of one group that belong together."""
    acts: list[list[_Removed]] = []
    for removal in removals:
        if acts and abs(removal.place.timestamp_ms - acts[-1][-1].place.timestamp_ms) <= ONE_ACT_MS:
            acts[-1].append(removal)
        else:
            acts.append([removal])
    return acts


def sweep_age(act: Sequence[Removal]) -> int | None:
    """The age of the youngest offset that went, if all could have expired by age."""
    ages = [removal.age_ms for removal in act if removal.expired_ms_ago is None]
    known = [age for age in ages if age is not None and age >= SHORTEST_RETENTION_MS]
    return min(known) if known and len(known) == len(ages) else None
