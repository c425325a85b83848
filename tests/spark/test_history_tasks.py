"""Tasks of the app ``history`` and its driver, without Spark: what goes between them is pickled as Spark does."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.history.lessons import Lessons
from coordinator_core.history.parts import Asked, learned_from, take
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import profile_for_release
from coordinator_core.reports.history_publish import HistoryWriter
from coordinator_core.runs.inputs import pin_of_run
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import open_run
from coordinator_core.runs.table_directory import staging_path
from spark_apps.history import write_in_tasks
from spark_apps.history_tasks import HistoryTask
from tests.cases import CASES, FEW_CASES, Case, cross_section
from tests.history.test_table import random_log

from .history_kit import EACH_ALONE, GROUPS, PARTITIONS, asked_of, by_tasks, check, local, read_published, several

HERE = SimpleNamespace(defaultParallelism=2)
"""For a Spark context."""
PROFILE = profile_for_release("3.9.2", "classic")


@pytest.fixture(autouse=True)
def _tasks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_tasks(_: Any, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        sent = pickle.loads(pickle.dumps(function))
        return [pickle.loads(pickle.dumps(sent(item))) for item in pickle.loads(pickle.dumps(items))]

    monkeypatch.setattr("spark_apps.engine.in_tasks", in_tasks)


@pytest.mark.parametrize("item", cross_section(CASES, FEW_CASES))
def test_logs_of_brokers(item: Case, tmp_path: Path) -> None:
    snapshot = discover([str(path) for path in item.paths])
    asked = asked_of(item, snapshot)
    check(by_tasks(HERE, snapshot, asked, tmp_path / "alone", EACH_ALONE), local(snapshot, asked))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)])
def test_random_logs(seed: int, tmp_path: Path) -> None:
    snapshot = discover([str(random_log(Random(seed), tmp_path / "log"))])
    asked = Asked(PROFILE, transactional_ids={9: "tx"}, retention_ms=60_000)
    expected = local(snapshot, asked)
    check(by_tasks(HERE, snapshot, asked, tmp_path / "out"), expected)
    assert "tx" in expected[0]["transactional_id"].to_pylist()
    # Portions are no part of the digest.
    small = Asked(PROFILE, transactional_ids={9: "tx"}, retention_ms=60_000, portion_rows=3, special_records=5)
    check(local(snapshot, small), by_tasks(HERE, snapshot, small, tmp_path / "small"))
    assert local(snapshot, small)[0].num_rows == expected[0].num_rows


@pytest.mark.parametrize(
    "bytes_per_task", [EACH_ALONE, *(pytest.param(size, marks=pytest.mark.full) for size in (50_000, None))]
)
@pytest.mark.parametrize("special_records", [5, 250_000])
def test_partitions_that_tell_of_each_other(bytes_per_task: int | None, special_records: int, tmp_path: Path) -> None:
    snapshot = discover([str(several(tmp_path / "log"))])
    asked = Asked(PROFILE, special_records=special_records)
    expected = local(snapshot, asked)
    check(by_tasks(HERE, snapshot, asked, tmp_path / "out", bytes_per_task), expected)
    causes = {row["cause"] for row in expected[0].to_pylist()}
    assert {"expiry", "topic deletion", "OffsetDelete"} <= causes
    # Partition by partition the answer is another one: what is compared above depends on all of them.
    alone = [local(Snapshot(("x",), (log,), (), (), {}), asked)[0] for log in snapshot.partitions]
    assert pa.concat_tables(alone).to_pylist() != expected[0].to_pylist()


def test_chosen_groups_have_the_rows_of_the_whole_table(tmp_path: Path) -> None:
    snapshot = discover([str(several(tmp_path / "log"))])
    groups = frozenset({"g-0-0", f"g-3-{GROUPS - 1}", "busy-2", "nobody"})
    whole = local(snapshot, Asked(PROFILE))[0].to_pylist()
    chosen = Asked(PROFILE, groups=groups)
    found = by_tasks(HERE, snapshot, chosen, tmp_path / "out", EACH_ALONE)
    check(found, local(snapshot, chosen))
    assert found[0].to_pylist() == [row for row in whole if row["group_id"] in groups]
    assert {row["group_id"] for row in found[0].to_pylist()} == groups - {"nobody"}
    none = by_tasks(HERE, snapshot, Asked(PROFILE, groups=frozenset({"nobody"})), tmp_path / "none")
    assert none[0].num_rows == 0
    assert len(list((tmp_path / "none/history").iterdir())) == 1


def test_what_partitions_tell_each_other_is_read_as_it_was_written(tmp_path: Path) -> None:
    """In the order in which it was found: of the names of one time only the first are kept."""
    snapshot = discover([str(several(tmp_path / "log"))])
    asked = Asked(PROFILE)
    task = HistoryTask(asked, str(tmp_path / "out"))
    whole, read = Lessons(), Lessons()
    with HistoryWriter(str(tmp_path / "out"), sources=()) as writer:
        write_in_tasks(HERE, snapshot, task, EACH_ALONE)  # type: ignore[arg-type]
        for path in sorted(Path(staging_path(writer.directory)).glob("lessons-*"), key=_first_group):
            read.take(Lessons.read(pa.BufferReader(path.read_bytes())))
    with ThreadPoolExecutor(2) as thread:
        for log in snapshot.partitions:
            list(learned_from(take(log, asked, whole, thread, []), asked, whole))
    assert read.deletions.instants == whole.deletions.instants
    assert [list(one.groups) for one in read.deletions.instants.values()] == [
        list(one.groups) for one in whole.deletions.instants.values()
    ]
    assert read.topics == whole.topics
    assert read.ages == whole.ages
    assert read.waiting == whole.waiting
    assert any(read.waiting.values())
    assert len(read.ages) > PARTITIONS


def _first_group(path: Path) -> str:
    return next(iter(next(iter(Lessons.read(pa.BufferReader(path.read_bytes())).deletions.instants.values())).groups))


def test_the_first_damage_is_raised_and_nothing_is_left(tmp_path: Path) -> None:
    log = several(tmp_path / "log")
    segments = sorted(log.glob("*/*.log"))
    for path in (segments[1], segments[3]):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    snapshot = discover([str(log)])
    with pytest.raises(DamagedInputError) as expected:
        local(snapshot, Asked(PROFILE))
    with pytest.raises(DamagedInputError) as found:
        by_tasks(HERE, snapshot, Asked(PROFILE), tmp_path / "new" / "out", EACH_ALONE)
    assert str(found.value) == str(expected.value)
    assert str(segments[1]) in str(found.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]
    salvaged = Asked(PROFILE, on_damage=OnDamage.SALVAGE)
    check(by_tasks(HERE, snapshot, salvaged, tmp_path / "out", EACH_ALONE), local(snapshot, salvaged))


def test_a_segment_with_other_bytes_than_the_run_has_read_is_refused(tmp_path: Path) -> None:
    log = several(tmp_path / "log")
    run = open_run(published(log, tmp_path / "runs"))
    pin = pin_of_run(run)
    check(by_tasks(HERE, pin, Asked(PROFILE), tmp_path / "out", EACH_ALONE), local(pin.snapshot, Asked(PROFILE)))
    path = sorted(log.glob("*/*.log"))[2]
    path.write_bytes(path.read_bytes().replace(b"orders", b"ORDERS"))
    with pytest.raises(UsageError, match=f"has been rewritten since: {path}: other bytes"):
        by_tasks(HERE, pin_of_run(run), Asked(PROFILE), tmp_path / "new", EACH_ALONE)
    assert not (tmp_path / "new").exists()


def published(log: Path, output: Path) -> str:
    place = RunPlace(str(output), "c", "w", "r")
    replay_to_run(discover([str(log)]), place, profile=PROFILE, now_ms=0)
    return place.path


def test_a_file_that_was_changed_is_told(tmp_path: Path) -> None:
    snapshot = discover([str(several(tmp_path / "log"))])
    by_tasks(HERE, snapshot, Asked(PROFILE), tmp_path / "out")
    path = min((tmp_path / "out/history").glob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"2")
    with pytest.raises(DamagedInputError, match="changed_since_published"):
        list(read_published(tmp_path / "out"))
