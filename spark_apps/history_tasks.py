"""Tasks of the app ``history``: each reads offsets partitions, or reads again what all of them have to be known for.

Rows and messages between partitions go through files, as in :mod:`spark_apps.tasks`; only files in the answer that
Spark took count. Input that cannot be read is an answer, not an exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from coordinator_core import storage
from coordinator_core.errors import Damage, DamagedInputError, UsageError
from coordinator_core.history.lessons import Lessons, read_rows, write_rows
from coordinator_core.history.parts import THREADS, Asked, first_part, learned_from, second_part, take
from coordinator_core.log.types import PartitionLog
from coordinator_core.reports.history_publish import PartFile, write_part
from coordinator_core.runs.inputs import check_bytes
from coordinator_core.runs.table_directory import message_path

_SPECIAL = pa.schema({"offsets_partition": pa.int32(), "group_id": pa.string(), "records": pa.int64()})


@dataclass(frozen=True)
class HistoryTask:
    """Arguments that all tasks of a table share."""

    asked: Asked
    directory: str


@dataclass(frozen=True)
class Work:
    """Partitions that follow each other, with the fingerprints of their segments as far as they are known, by path."""

    logs: tuple[PartitionLog, ...]
    fingerprints: Mapping[str, str]

    @classmethod
    def of(cls, logs: Sequence[PartitionLog], fingerprints: Mapping[str, str]) -> Self:
        paths = [segment.path for log in logs for segment in log.segments]
        return cls(tuple(logs), {path: fingerprints[path] for path in paths if path in fingerprints})


@dataclass
class Answer:
    """Answer of a task.

    ``parts`` are the files with its rows; ``lessons`` and ``special`` files with what its partitions tell, and with
    their groups that have to be read again. ``records`` counts, by offsets partition, the records of those of them that
    are asked for; partitions without such groups are not there. ``damage`` was read past, ``failures`` tell why a
    partition cannot be read.
    """

    parts: list[PartFile] = field(default_factory=list)
    lessons: str = ""
    special: str = ""
    records: dict[int, int] = field(default_factory=dict)
    damage: dict[int, list[Damage]] = field(default_factory=dict)
    failures: dict[int, DamagedInputError | UsageError] = field(default_factory=dict)


def take_partitions(work: Work, rules: HistoryTask) -> Answer:
    """Read partitions, and write the first part of their rows."""
    answer, lessons, special = Answer(), Lessons(), dict[int, dict[str, int]]()
    with ThreadPoolExecutor(THREADS) as thread:
        for log in work.logs:
            number, damage = log.offsets_partition, list[Damage]()
            try:
                check_bytes(log.segments, work.fingerprints)
                taken = take(log, rules.asked, lessons, thread, damage)
                for _ in learned_from(taken, rules.asked, lessons):
                    pass
                part = write_part(rules.directory, number, 0, first_part(taken, rules.asked, thread))
            except (DamagedInputError, UsageError) as error:
                answer.failures[number] = error
                break
            if part is not None:
                answer.parts.append(part)
            if taken.special:
                special[number] = dict(taken.special)
                wanted = rules.asked.wanted(taken.special)
                # A group that has only committed in transactions counts none.
                answer.records |= {number: sum(wanted.values())} if wanted else {}
            if damage:
                answer.damage[number] = damage
    if not answer.failures:
        answer.lessons = message_path(rules.directory, "lessons")
        with storage.output_file(answer.lessons) as file:
            lessons.write(file)
        answer.special = _write_special(special, message_path(rules.directory, "special"))
    return answer


@dataclass(frozen=True)
class Again:
    """A partition whose groups in the file ``special`` are read again; ``lessons`` are files, in the order of
    partitions."""

    log: PartitionLog
    special: str
    lessons: tuple[str, ...]


def judge_partition(work: Again, rules: HistoryTask) -> Answer:
    """Write the second part of the rows of a partition."""
    answer, lessons, number = Answer(), Lessons(), work.log.offsets_partition
    for path in work.lessons:
        lessons.take(Lessons.read(pa.BufferReader(_read(path))))
    special = _read_special(work.special, number)
    try:
        part = write_part(rules.directory, number, 1, second_part(work.log, special, lessons, rules.asked))
    except (DamagedInputError, UsageError) as error:
        answer.failures[number] = error
        return answer
    if part is not None:
        answer.parts.append(part)
    return answer


def _write_special(special: dict[int, dict[str, int]], path: str) -> str:
    rows = ((number, *item) for number, groups in special.items() for item in groups.items())
    with storage.output_file(path) as file:
        write_rows(file, _SPECIAL, rows)
    return path


def _read_special(path: str, offsets_partition: int) -> dict[str, int]:
    rows = read_rows(_read(path))
    return {group: records for number, group, records in rows if number == offsets_partition}


def _read(path: str) -> pa.Buffer:
    with storage.input_file(path) as file:
        return file.read_buffer()
