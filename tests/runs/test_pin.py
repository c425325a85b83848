from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_core import storage
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.fold.cache import FoldCache
from coordinator_core.fold.pin import Pin, read_pin, segment_fingerprint, write_pin
from coordinator_core.fold.rules import FoldRules
from coordinator_core.fold.tasks import fold_tasks, run_fold_task
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace, new_run_id
from coordinator_core.runs.publish import Manifest
from coordinator_core.runs.read import open_run

from ..cases import CASES, Case, case
from .logs import copy_log, name, snapshot

CASE = "k431-compacted/B-cleaned-default"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return copy_log(CASE, tmp_path / "log")


@pytest.fixture
def pin(log: Path, tmp_path: Path) -> Pin:
    return write_pin(discover([str(log)]), str(tmp_path / "pin.json"))


@pytest.fixture
def complete(pin: Pin, tmp_path: Path) -> Pin:
    """The pin with what a run of it has found."""
    replay(pin, tmp_path / "before")
    (path,) = tmp_path.glob("before/c/w/*")
    segments = open_run(str(path)).table("segments").to_pylist()
    return Pin(
        pin.snapshot,
        {row["path"]: row["fingerprint"] for row in segments},
        {row["path"]: row["next_offset"] for row in segments if row["next_offset"] is not None},
    )


def replay(source: Pin | Snapshot, output: Path, cache: FoldCache | None = None) -> Manifest:
    place = RunPlace(str(output), "c", "w", new_run_id())
    return replay_to_run(source, place, profile=None, now_ms=0, cache=cache)


@pytest.mark.parametrize("item", CASES, ids=name)
def test_a_pin_survives_its_file(item: Case, tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "pin.json")
    written = write_pin(snapshot(item), path)
    read = read_pin(path)
    assert written == read
    times = [[segment.modified_ns for segment in pin.snapshot.segments] for pin in (written, read)]
    assert times[0] == times[1]
    assert None not in times[0]


def test_nothing_is_read_for_a_pin(log: Path, tmp_path: Path) -> None:
    """A terabyte is pinned in the time of its listing."""
    huge = log / "__consumer_offsets-0" / "00000000000999999999.log"
    huge.touch()
    os.truncate(huge, 1 << 40)
    began = time.process_time()
    pin = write_pin(discover([str(log)]), str(tmp_path / "pin.json"))
    assert time.process_time() - began < 5
    assert max(segment.size for segment in pin.snapshot.segments) == 1 << 40


def test_a_complete_snapshot_manifest_tells_the_cut(complete: Pin, tmp_path: Path) -> None:
    assert write_pin(complete, str(tmp_path / "pin.json")) == read_pin(str(tmp_path / "pin.json")) == complete
    document = json.loads((tmp_path / "pin.json").read_text())
    broker = json.loads((case(CASE).expected / "topics.json").read_text())["topics"]["__consumer_offsets"]
    assert [
        (entry["offsets_partition"], entry["log_start_offset"], entry["log_end_offset"])
        for entry in document["partitions"]
    ] == [(entry["partition"], entry["startOffset"], entry["endOffset"]) for entry in broker["partitionInfo"]]


def test_growth_after_the_pin_is_not_read(pin: Pin, tmp_path: Path) -> None:
    before = replay(pin, tmp_path / "out")
    active = Path(pin.snapshot.partitions[0].segments[-1].path)
    with active.open("ab") as file:
        file.write(b"torn batch that came later")
    after = replay(read_pin(str(tmp_path / "pin.json")), tmp_path / "out")
    assert after["state_hash"] == before["state_hash"]
    assert after["inputs"] == before["inputs"]
    assert after["cut"] == before["cut"]


@pytest.mark.parametrize("with_cache", [False, True])
def test_a_segment_that_is_not_the_last_does_not_grow(pin: Pin, tmp_path: Path, with_cache: bool) -> None:
    segment = pin.snapshot.partitions[1].segments[0]
    cache = FoldCache(str(tmp_path / "cache"), min_segment_bytes=0) if with_cache else None
    replay(pin, tmp_path / "out", cache)
    with open(segment.path, "ab") as file:
        file.write(b"more")
    with pytest.raises(DamagedInputError, match=f"{segment.size} bytes were pinned; the file has") as caught:
        replay(pin, tmp_path / "out", cache)
    assert caught.value.damage.path == segment.path


def test_a_segment_that_is_written_to_while_it_is_folded(pin: Pin) -> None:
    """The same bytes in their number, and others in part: what was read is of neither state."""
    segment = pin.snapshot.partitions[1].segments[0]
    (task,) = [task for task in fold_tasks(pin, OnDamage.SALVAGE) if segment in task.segments]
    results = run_fold_task(task, FoldRules.of(profile_for_release("4.3.1")))
    # The first check has passed when the result is asked for, the second not.
    with pytest.MonkeyPatch.context() as patch:
        read_into = storage.LocalFile.read_into

        def meanwhile(file: storage.LocalFile, out: memoryview, position: int) -> int:
            os.utime(segment.path)
            return read_into(file, out, position)

        patch.setattr(storage.LocalFile, "read_into", meanwhile)
        with pytest.raises(DamagedInputError, match="written to after it was pinned"):
            next(results)


def shrink(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def overwrite(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("position", [0, -1], ids=["first", "active"])
@pytest.mark.parametrize(
    "change, detail",
    [(shrink, "bytes now"), (overwrite, "written to|fingerprint of its first"), (remove, "the file is gone")],
)
@pytest.mark.parametrize("which", ["pin", "complete"])
def test_a_segment_that_changed_since_the_pin_is_damage(
    which: str,
    position: int,
    change: Callable[[Path], None],
    detail: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    source: Pin = request.getfixturevalue(which)
    segment = source.snapshot.partitions[1].segments[position]
    change(Path(segment.path))
    with pytest.raises(DamagedInputError, match=detail) as caught:
        replay(source, tmp_path / "out")
    assert caught.value.damage.path == segment.path
    assert caught.value.damage.kind == "changed_since_pin"
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_of_a_complete_pin_the_bytes_count_and_not_the_time(complete: Pin, tmp_path: Path) -> None:
    for segment in complete.snapshot.segments:
        os.utime(segment.path)
    replay(complete, tmp_path / "out")


def test_a_run_tells_the_fingerprints(log: Path, tmp_path: Path) -> None:
    manifest = replay(discover([str(log)]), tmp_path / "out")
    found = {segment.path: segment_fingerprint(segment) for segment in discover([str(log)]).segments}
    assert {entry["path"]: entry["fingerprint"] for entry in manifest["inputs"]} == found


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pin_version": 3}', '{"pin_version": 3, "partitions": 3}'])
def test_not_a_pin(tmp_path: Path, text: str) -> None:
    (tmp_path / "pin.json").write_text(text)
    with pytest.raises(UsageError, match="is not a snapshot manifest"):
        read_pin(str(tmp_path / "pin.json"))


def test_pin_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "pin.json").write_text('{"pin_version": 9}')
    with pytest.raises(UsageError, match="version 9, this is for 3"):
        read_pin(str(tmp_path / "pin.json"))


def test_missing_pin(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_pin(str(tmp_path / "pin.json"))
