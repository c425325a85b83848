"""The table ``history`` by tasks, and by the local engine; logs of several partitions that tell of each other."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from coordinator_core.errors import Damage
from coordinator_core.fold.pin import Pin
from coordinator_core.history.digest import HistoryDigest
from coordinator_core.history.parts import Asked, history_parts
from coordinator_core.history.table import HISTORY
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import profile_for_release
from coordinator_core.reports.history_publish import DOCUMENT, HistoryWriter
from coordinator_core.runs.proof import open_parquet
from spark_apps.history import write_in_tasks
from spark_apps.history_tasks import Answer, HistoryTask, take_partitions
from tests.cases import Case
from tests.history.logs import DAY, HOUR, Client, Log

EACH_ALONE = 1
"""Bytes a task that give each offsets partition a task of its own."""


def asked_of(item: Case, snapshot: Snapshot, **more: Any) -> Asked:
    profile = profile_for_release(item.release, item.coordinator)
    return Asked(profile, snapshot.topic_names, OnDamage.SALVAGE, **more)


def local(snapshot: Snapshot, asked: Asked) -> tuple[pa.Table, str, list[Damage]]:
    """Rows, their digest, and the damage that was read past."""
    digest, tables, damage = HistoryDigest(), [HISTORY.empty_table()], list[Damage]()
    for part in history_parts(snapshot, asked, damage):
        digest.update(part)
        tables.append(part.table)
    return pa.concat_tables(tables), digest.hexdigest(), damage


def by_tasks(
    context: Any, source: Snapshot | Pin, asked: Asked, directory: Path, bytes_per_task: int | None = None
) -> tuple[pa.Table, str, list[Damage]]:
    """Like :func:`local`, read back from what was published."""
    with HistoryWriter(str(directory), sources=()) as writer:
        parts, damage = write_in_tasks(context, source, HistoryTask(asked, str(directory)), bytes_per_task)
        document = writer.commit(parts, {})
    assert {path.name for path in directory.iterdir()} == {"history", "history.json"}
    assert {f"history/{path.name}" for path in (directory / "history").iterdir()} == set(document["files"])
    tables = [HISTORY.empty_table(), *read_published(directory)]
    rows = pa.concat_tables(tables)
    assert rows.num_rows == document["rows"]
    return rows, document["hash"], damage


def read_published(directory: Path) -> Iterator[pa.Table]:
    """Rows of a published table, a file at a time; ``DamagedInputError`` for one that differs from its proof."""
    document = json.loads((directory / DOCUMENT).read_bytes())
    for name, proof in zip(document["files"], document["proofs"], strict=True):
        with open_parquet(str(directory / name), proof) as parquet:
            yield parquet.read().cast(HISTORY)


def check(one: tuple[pa.Table, str, list[Damage]], other: tuple[pa.Table, str, list[Damage]]) -> None:
    """The same rows in the same order, by which names the dictionaries may be."""
    assert one[0].to_pylist() == other[0].to_pylist()
    assert one[1:] == other[1:]


PARTITIONS = 4
GROUPS = 9
"""In a partition: all of them are more than the names that are kept of one time."""


def several(directory: Path) -> Path:
    """Partitions whose groups lose offsets at the same times: why, only all of them together tell."""
    for partition in range(PARTITIONS):
        log = Log()
        names = [f"g-{partition}-{number}" for number in range(GROUPS)]
        member = Client(f"m-{partition}", ("orders",), (("orders", 0),))
        log.generation(f"busy-{partition}", 1, member)
        for step in range(20):
            log.wait(5000)
            for name in names:
                log.commit(
                    name,
                    {("orders", 0): step * 10, ("gone", 0): step, ("left", 0): step, (f"own-{partition}", 1): step},
                )
            log.commit(f"busy-{partition}", {("orders", 0): step})
        # A topic is deleted.
        log.wait(HOUR)
        for name in names:
            log.tombstones(name, ("gone", 0))
        # A request of each group for another topic, in one partition not of all.
        log.wait(HOUR)
        for name in names[partition == 3 :]:
            log.tombstones(name, ("left", 0))
        # A sweep at an age that only its sameness everywhere tells, from the default and from a request.
        log.wait(3 * DAY)
        for name in names[1 + partition :]:
            log.commit(name, {("orders", 0): 1000, (f"own-{partition}", 1): 1000})
        for name in names[: 1 + partition]:
            log.tombstones(name, ("orders", 0), (f"own-{partition}", 1))
        log.wait(5000)
        log.commit(f"busy-{partition}", {("orders", 0): 1000})
        log.write(directory, partition)
    return directory


MARK = "REGROUP_TEST_FAILED_ONCE"


def take_partitions_and_die_once(work: Any, rules: HistoryTask) -> Answer:
    """The task, whose worker dies after everything is written: of the first attempt anywhere."""
    answer = take_partitions(work, rules)
    try:
        os.close(os.open(os.environ[MARK], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return answer
    os._exit(1)
