"""What tasks are sent and what they read, counted; no Spark is started."""

from __future__ import annotations

import errno
import os
import pickle
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.errors import WriteError
from coordinator_core.file_ranges import FileRange
from coordinator_core.fold.fingerprint import RunningFingerprint
from coordinator_core.fold.pin import read_pin, write_pin
from coordinator_core.fold.tasks import fold_tasks
from coordinator_core.log.discovery import discover
from coordinator_core.log.limits import Limits
from coordinator_core.log.reader import OnDamage
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.manifest import PartitionFacts
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.state_hash import TableDigests, state_hash
from spark_apps import tasks
from spark_apps.packing import Work, share_out
from spark_apps.replay_tasks import ReplayTask, Written
from spark_apps.tasks import Answer, WholePartition, attempted, taken
from tests.scale.many_segments import task_bytes, works, write_segments

from ..cases import case
from ..runs.logs import cut_into_batches

PROFILE = profile_for_release("4.3.1")
FEW, MANY, PARTITIONS = 500, 2_500, 10
DIGITS = 16
"""Bytes by which numbers and names may differ."""
opened: list[str] | None = None
"""Files that were opened, while somebody counts. An audit hook stays for good."""


def note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if opened is not None and event == "open":
        opened.append(str(arguments[0]))


sys.addaudithook(note_opened)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Work]]:
    """Tasks of pinned logs, by the number of their segments."""
    global opened
    found = {}
    opened = []
    for segments in (FEW, MANY):
        directory = tmp_path_factory.mktemp(f"of-{segments}")
        write_segments(directory / "log", segments, PARTITIONS)
        opened.clear()
        write_pin(discover([str(directory / "log")]), str(directory / "pin.json"))
        found[segments] = works(read_pin(str(directory / "pin.json")))
        assert any(path.endswith("pin.json") for path in opened)
        assert not [path for path in opened if path.endswith(".log")]
    opened = None
    return found


def test_a_task_is_as_large_however_many_segments_there_are(planned: dict[int, list[Work]]) -> None:
    few, many = (task_bytes(planned[segments]) for segments in (FEW, MANY))
    assert (len(few), len(many)) == (FEW, MANY)
    assert max(many) - max(few) < DIGITS
    assert max(many) < 1_000


def test_an_answer_is_as_large_however_many_segments_there_are(planned: dict[int, list[Work]], tmp_path: Path) -> None:
    """As large as sixteen segments have it, of which each has its part."""
    (tmp_path / "_staging").mkdir()
    rules = ReplayTask(PROFILE, str(tmp_path), 0)
    few, many = (
        [len(pickle.dumps(tasks.fold(work, rules))) for work in planned[segments][:16]] for segments in (FEW, MANY)
    )
    assert max(many) - max(few) < DIGITS
    assert max(many) < 2_000


def digests_in(answer: Answer[PartitionFacts, Written]) -> TableDigests:
    assert answer.written is not None
    return dict(answer.written[1])


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kinds of the files of which ranges are read."""
    found: list[str] = []
    read_range = FileRange.read

    def counted(place: FileRange) -> pa.Buffer:
        found.append(Path(place.path).name.partition("-")[0])
        return read_range(place)

    monkeypatch.setattr(FileRange, "read", counted)
    return found


@pytest.mark.parametrize("most_bytes", [tasks.MAX_READ_BYTES, 1])
def test_what_merges_reads_a_range_of_each_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str], most_bytes: int
) -> None:
    """As long as that is no more than ``most_bytes``; else a range of each fold."""
    monkeypatch.setattr(tasks, "MAX_READ_BYTES", most_bytes)
    write_segments(tmp_path / "log", 60, 1)
    log = discover([str(tmp_path / "log")])
    place = RunPlace(str(tmp_path / "out"), "c", "w", "r")
    Path(place.path, "_staging").mkdir(parents=True)
    rules = ReplayTask(PROFILE, place.path, 0)
    planned = share_out(fold_tasks(log, OnDamage.FAIL), 10 * log.segments[0].size)
    folds = [staged for work in sorted(planned, key=lambda one: one.place) for staged in tasks.fold(work, rules).folds]
    assert len(planned) == 6
    # Segments of a task are folded together: the fold of the last one has the rows.
    heads = [staged.size for number, staged in enumerate(folds) if number % 10 < 9]
    assert 4 * max(heads) < min(staged.size for staged in folds[9::10])
    merged = tasks.merge(WholePartition(folds), rules)
    assert read == ["fold"] * (60 if most_bytes == 1 else 6)
    whole = replay_to_run(log, RunPlace(str(tmp_path / "out"), "c", "w", "local"), profile=PROFILE, now_ms=0)
    assert state_hash(digests_in(merged)) == whole["state_hash"]


def test_what_merges_a_giant_reads_a_range_of_each_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    """And no file of a fold; the state is that of the local engine. Segments are folded in parts, a batch each."""
    monkeypatch.setattr(tasks, "LIMITS", Limits(fold_bytes=1))
    monkeypatch.setattr(RunningFingerprint.advance, "__defaults__", (1,))
    log = cut_into_batches(case("k431-txn"), tmp_path / "log", most_segments=4)
    log = replace(log, partitions=tuple(sorted(log.partitions, key=lambda one: len(one.segments))[-2:]))
    place = RunPlace(str(tmp_path / "out"), "c", "w", "r")
    Path(place.path, "_staging").mkdir(parents=True)
    rules = ReplayTask(PROFILE, place.path, 0)
    digests: TableDigests = {}
    for _, of_partition in groupby(fold_tasks(log, OnDamage.FAIL), key=lambda task: task.log.offsets_partition):
        folds = [staged for task in of_partition for staged in tasks.fold(Work((task,), whole=False), rules).folds]
        cuts = [tasks.cut((folds[first : first + 3], 4), rules) for first in range(0, len(folds), 3)]
        assert read == ["fold"] * len(
            {(number // 3, staged.place and staged.place.path) for number, staged in enumerate(folds)}
        )
        assert len(folds) > len({staged.result.segment for staged in folds}) > 1
        read.clear()
        of_shards = zip(*(cut.shards for cut in cuts), strict=True)
        shards = [tasks.merge_one_shard((folds[0].offsets_partition, of_shard), rules) for of_shard in of_shards]
        assert read == ["shards"] * 4 * len(cuts)
        read.clear()
        digests |= digests_in(tasks.merge(WholePartition(folds, cuts, shards), rules))
        assert read == ["shards"] * len(cuts)
        read.clear()
    assert digests
    whole = replay_to_run(log, RunPlace(str(tmp_path / "out"), "c", "w", "local"), profile=PROFILE, now_ms=0)
    assert state_hash(digests) == whole["state_hash"]


@pytest.mark.parametrize("most_bytes, merges", [pytest.param(0, False, marks=pytest.mark.full), (1 << 30, True)])
def test_a_task_merges_a_partition_whose_folds_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int, merges: bool
) -> None:
    """And leaves those of another one in files, for tasks that merge; the rows are the same."""
    monkeypatch.setattr(tasks, "MAX_HELD_BYTES", most_bytes)
    log = cut_into_batches(case("k431-txn"), tmp_path / "log", most_segments=4)
    place = RunPlace(str(tmp_path / "out"), "c", "w", "r")
    Path(place.path, "_staging").mkdir(parents=True)
    rules = ReplayTask(PROFILE, place.path, 0)
    answer = tasks.fold(Work(tuple(fold_tasks(log, OnDamage.FAIL)), whole=True), rules)
    numbers = {one.offsets_partition for one in log.partitions}
    assert (set(answer.facts) == numbers, not answer.folds) == (merges, merges)
    digests = digests_in(answer)
    for number, folds in groupby(answer.folds, key=lambda staged: staged.offsets_partition):
        merged = tasks.merge(WholePartition(list(folds)), rules)
        assert set(merged.facts) == {number}
        digests |= digests_in(merged)
    whole = replay_to_run(log, RunPlace(str(tmp_path / "out"), "c", "w", "local"), profile=PROFILE, now_ms=0)
    assert state_hash(digests) == whole["state_hash"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_no_output_is_an_answer(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an exception it would be an internal error of Spark, and tried again."""
    monkeypatch.setattr(tasks, "_prepare", lambda: None)
    said = "Error writing bytes to file"

    def write(number: int) -> None:
        raise OSError(number, said)

    with pytest.raises(WriteError, match=f"^output: cannot be written: {os.strerror(number)}$"):
        taken(attempted(write, number))
    for other in (errno.EIO, errno.ENOMEM, errno.ECONNRESET):
        with pytest.raises(OSError, match=said):
            attempted(write, other)
