"""Facts that groups tell about each other: other deletions, ages at deletion, topics whose offsets stayed elsewhere.

Engines that read offsets partitions apart write lessons for each of them; these are much smaller than the
histories, and follows their removals and offset keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from coordinator_core.history.model import Deletions, GroupHistory, Removal, stretches
from coordinator_core.history.removals import ONE_ACT_MS

SHORTEST_RETENTION_MS = 60_000
"""``offsets.retention.minutes`` is at least 1."""
_ROWS = 1 << 16
_NAMES: Final = pa.list_(pa.string())
_DELETIONS: Final = pa.schema({"at": pa.int64(), "tombstones": pa.int64(), "groups": _NAMES, "topics": _NAMES})
_TOPICS: Final = pa.schema({"topic": pa.string(), "since_ms": pa.int64(), "gone_ms": pa.int64()})
_AGES: Final = pa.schema(
    {"age_ms": pa.uint64(), "group_id": pa.string(), "at_ms": pa.int64(), "had_members": pa.bool_()}
)


class Lessons:
    """Facts that the groups of some offsets partitions tell about each other.

    ``deletions`` are of all groups; ``topics`` has by topic when an offset of it was there, from (epoch ms) and up to,
    ``None`` where it stands; ``ages`` are those (ms) at which offsets of a group went that could expire, with the
    group, the time (epoch ms), and whether it had members.
    ``elsewhere`` has, by topic and group, the newest commit (epoch ms) of offsets that stand in groups of whose history
    nothing else is known; of several offsets that of the one which was committed longest ago. ``is_partial``: there are
    such groups, so ages and topics are those of some groups only.
    """

    def __init__(self, *, is_partial: bool = False) -> None:
        self.is_partial = is_partial
        self.deletions = Deletions()
        self.topics: dict[str, list[tuple[int, int | None]]] = {}
        self.ages: list[tuple[int, str, int, bool]] = []
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

    def learn_standing(self, since_ms: Mapping[str, int]) -> None:
        """Take in of groups that lost nothing, by topic: since when an offset of it stands, the earliest time."""
        for topic, time in since_ms.items():
            self.topics.setdefault(topic, []).append((time, None))

    def take(self, later: Lessons) -> None:
        """Add the lessons of offsets partitions behind those of this one."""
        self.deletions.take(later.deletions)
        for topic, times in later.topics.items():
            self.topics.setdefault(topic, []).extend(times)
        self.ages += later.ages

    def write(self, file: Any) -> None:
        """Write to an open file; :meth:`read` reads it from where it begins."""
        instants = self.deletions.instants.items()
        _write(file, _DELETIONS, ((at, one.tombstones, [*one.groups], [*one.topics]) for at, one in instants))
        _write(file, _TOPICS, ((topic, *time) for topic, times in self.topics.items() for time in times))
        _write(file, _AGES, iter(self.ages))

    @classmethod
    def read(cls, file: Any) -> Lessons:
        lessons = cls()
        for at, tombstones, groups, topics in _read(file):
            lessons.deletions.note(at, tombstones, groups, topics)
        for topic, since_ms, gone_ms in _read(file):
            lessons.topics.setdefault(topic, []).append((since_ms, gone_ms))
        lessons.ages += _read(file)
        return lessons


def _write(file: Any, schema: pa.Schema, rows: Iterator[tuple[Any, ...]]) -> None:
    with pa.ipc.new_stream(file, schema) as stream:
        while batch := list(islice(rows, _ROWS)):
            columns = zip(*batch, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            stream.write_batch(pa.record_batch(arrays, schema=schema))


def _read(file: Any) -> Iterator[tuple[Any, ...]]:
    with pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def acts_of(removals: Sequence[Removal]) -> list[list[Removal]]:
    """Removals of one group that belong together."""
    acts: list[list[Removal]] = []
    for removal in removals:
        if acts and removal.place.timestamp_ms - acts[-1][-1].place.timestamp_ms <= ONE_ACT_MS:
            acts[-1].append(removal)
        else:
            acts.append([removal])
    return acts


def sweep_age(act: Sequence[Removal]) -> int | None:
    """The age of the youngest offset that went, if all could have expired by age."""
    ages = [removal.age_ms for removal in act if removal.expired_ms_ago is None]
    known = [age for age in ages if age is not None and age >= SHORTEST_RETENTION_MS]
    return min(known) if known and len(known) == len(ages) else None
