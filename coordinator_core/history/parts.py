"""The table ``history`` of a log, made of two parts of each offsets partition.

First come groups with nothing but commits, which say all of themselves. Then come groups with other records: their
histories are read again, some groups at a time, and judged by what all partitions tell (:class:`Lessons`). So memory
follows offset keys, group records and removals, and the values of the largest group.

An engine with a process for each partition calls :func:`take`, :func:`learned_from` and :func:`first_part` for each,
and :func:`second_part` when all lessons are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.errors import Damage
from coordinator_core.history.judge import Judge
from coordinator_core.history.lessons import Lessons
from coordinator_core.history.model import GroupHistory, PartitionHistory, outline
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.read import batched, read_history
from coordinator_core.history.rows import history_rows
from coordinator_core.history.table import plain_tables, standing, tables_of, waiting
from coordinator_core.history.taking import Taken, take_history
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.merge.packed import PackedTexts
from coordinator_core.releases import Profile

_PORTION_ROWS = 1 << 17
_SPECIAL_RECORDS = 250_000
"""Some 400 MB as histories."""
THREADS = 2
"""Versions are put away while the next ones are taken, and a segment is read ahead."""

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Asked:
    """Parameters of a table.

    ``topic_names`` are by topic id; ``groups`` those whose rows are asked for, ``None``: all; ``retention_ms`` is
    ``offsets.retention.minutes`` where it is known, ``captured_retention_ms`` what it was when the log was copied;
    ``transactional_ids`` are by producer id. Some ``special_records`` records of groups with tombstones or transactions
    are in memory at a time.
    """

    profile: Profile
    topic_names: Mapping[str, str] = field(default_factory=dict)
    on_damage: OnDamage = OnDamage.FAIL
    groups: frozenset[str] | None = None
    retention_ms: int | None = None
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    portion_rows: int = _PORTION_ROWS
    special_records: int = _SPECIAL_RECORDS
    captured_retention_ms: int | None = None

    def judge(self, lessons: Lessons) -> Judge:
        """The judge of removals, by what all partitions tell."""
        return Judge(
            self.profile,
            lessons.deletions,
            retention_ms=self.retention_ms,
            captured_retention_ms=self.captured_retention_ms,
            lessons=lessons,
        )

    def wanted(self, special: Mapping[str, int]) -> dict[str, int]:
        """Of groups by id those that are asked for."""
        return {one: count for one, count in special.items() if self.groups is None or one in self.groups}


class Part(NamedTuple):
    """Rows of an offsets partition: of the first part of it (0), or of the second (1)."""

    offsets_partition: int
    number: int
    table: pa.Table


def history_parts(
    snapshot: Snapshot, asked: Asked, damage: list[Damage], read: list[PartitionHistory] | None = None
) -> Iterator[Part]:
    """The rows of the groups asked for, of the schema :data:`~coordinator_core.history.table.HISTORY`.

    They come by offsets partition and part of it; a group's rows are together, by offset key and record offset.
    ``read`` gets of each partition what was read of it: bounds, and the record offsets that are gone. Raises as
    ``read_records`` does.
    """
    lessons = Lessons()
    with ThreadPoolExecutor(THREADS) as thread:
        taken = [take(log, asked, lessons, thread, damage) for log in snapshot.partitions]
        if read is not None:
            read += [one.history for one in taken]
        judge = asked.judge(lessons)
        if any(asked.wanted(one.special) for one in taken):
            judge.find_sweeps([group for one in taken for group in learned_from(one, asked, lessons)])
        for one in taken:
            number = one.log.offsets_partition
            yield from (Part(number, 0, table) for table in first_part(one, asked, thread))
            yield from (Part(number, 1, table) for table in _judged(one.log, one.special, judge, asked))


def noting_rows(parts: Iterable[Part], absent: set[str]) -> Iterator[Part]:
    """The ``parts``; groups that have rows go from ``absent``."""
    for part in parts:
        if absent:
            absent.difference_update(pc.unique(part.table["group_id"]).to_pylist())
        yield part


def absent_warnings(groups: Iterable[str]) -> Iterator[str]:
    """Warnings of groups that were asked for, and that have no row."""
    return (f"no committed offset of group {group_id!r} is in this log" for group_id in sorted(groups))


def take(log: PartitionLog, asked: Asked, lessons: Lessons, thread: Executor, damage: list[Damage]) -> Taken:
    """Read an offsets partition; ``lessons`` gets the tombstones of all groups. Raises as ``read_records`` does."""
    names, on_damage = asked.topic_names, asked.on_damage
    return take_history(log, asked.profile, lessons.deletions, names, thread, on_damage=on_damage, damage=damage)


def learned_from(taken: Taken, asked: Asked, lessons: Lessons) -> Iterator[GroupHistory]:
    """Give ``lessons`` what the groups of a partition tell; yields the outline of each of the second part."""
    lessons.learn_standing(standing(taken))
    lessons.learn_waiting(taken.log.offsets_partition, waiting(taken))
    for group in _outlines(taken.log, taken.special, asked):
        lessons.learn([group])
        yield group


def first_part(taken: Taken, asked: Asked, thread: Executor) -> Iterator[pa.Table]:
    """The rows of the groups with nothing but commits, made in the ``thread``; frees the temporary files."""
    yield from ahead(plain_tables(taken, asked.portion_rows, asked.groups), thread)
    taken.spill.close()


def second_part(log: PartitionLog, special: Mapping[str, int], lessons: Lessons, asked: Asked) -> Iterator[pa.Table]:
    """The rows of the other groups, which are ``special``, with the number of their records; ``lessons`` are those of
    all partitions. Raises as ``read_records`` does."""
    judge = asked.judge(lessons)
    if asked.groups is None and sum(special.values()) <= asked.special_records:
        # The groups that tell the sweeps are the groups that are judged: all of them are in memory.
        groups = list(_read(log, asked, list(special), PackedTexts()))
        judge.find_sweeps(groups)
        yield from _rows_of(groups, judge, asked)
        return
    judge.find_sweeps(_outlines(log, special, asked))
    yield from _judged(log, special, judge, asked)


def _judged(log: PartitionLog, special: Mapping[str, int], judge: Judge, asked: Asked) -> Iterator[pa.Table]:
    for groups in batched(asked.wanted(special), asked.special_records):
        yield from _rows_of(list(_read(log, asked, groups, PackedTexts())), judge, asked)


def _rows_of(groups: Sequence[GroupHistory], judge: Judge, asked: Asked) -> Iterator[pa.Table]:
    judge.decide(groups)
    settle_origins(groups, asked.transactional_ids)
    return tables_of(row for group in groups for row in history_rows(group))


def _outlines(log: PartitionLog, special: Mapping[str, int], asked: Asked) -> Iterator[GroupHistory]:
    for groups in batched(special, asked.special_records):
        yield from map(outline, _read(log, asked, groups))


def _read(
    log: PartitionLog, asked: Asked, groups: Sequence[str], texts: PackedTexts | None = None
) -> Iterable[GroupHistory]:
    """Histories of groups whose tombstones are known, and the damage too."""
    found = read_history(
        log,
        asked.profile,
        groups=groups,
        deletions=None,
        topic_names=asked.topic_names,
        on_damage=asked.on_damage,
        damage=[],
        texts=texts,
    )
    return found.groups.values()


def ahead(items: Iterator[_Item], thread: Executor) -> Iterator[_Item]:
    """The items; the ``thread`` makes the next one while one is in use."""
    following = thread.submit(next, items, None)
    while (item := following.result()) is not None:
        following = thread.submit(next, items, None)
        yield item
