from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.fold.pin import Pin, pin_snapshot, read_pin, write_pin
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import Snapshot
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace, new_run_id
from coordinator_core.runs.publish import Manifest

from ..cases import CASES, Case, case
from .logs import copy_log, name, snapshot

CASE = "k431-compacted/B-cleaned-default"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return copy_log(CASE, tmp_path / "log")


@pytest.fixture
def pin(log: Path, tmp_path: Path) -> Pin:
    return write_pin(discover([str(log)]), str(tmp_path / "pin.json"))


def replay(source: Pin | Snapshot, output: Path) -> Manifest:
    return replay_to_run(source, RunPlace(str(output), "c", "w", new_run_id()), profile=None, now_ms=0)


@pytest.mark.parametrize("item", CASES, ids=name)
def test_a_pin_survives_its_file(item: Case, tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "pin.json")
    assert write_pin(snapshot(item), path) == read_pin(path)


def test_the_snapshot_manifest_tells_the_cut(pin: Pin, tmp_path: Path) -> None:
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
    [(shrink, "bytes now"), (overwrite, "fingerprint of its first"), (remove, "the file is gone")],
)
def test_a_segment_that_changed_since_the_pin_is_damage(
    position: int, change: Callable[[Path], None], detail: str, pin: Pin, tmp_path: Path
) -> None:
    segment = pin.snapshot.partitions[1].segments[position]
    change(Path(segment.path))
    with pytest.raises(DamagedInputError, match=detail) as caught:
        replay(pin, tmp_path / "out")
    assert caught.value.damage.path == segment.path
    assert caught.value.damage.kind == "changed_since_pin"
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_an_unpinned_snapshot_is_pinned_by_its_run(log: Path, pin: Pin, tmp_path: Path) -> None:
    manifest = replay(discover([str(log)]), tmp_path / "out")
    assert {entry["path"]: entry["fingerprint"] for entry in manifest["inputs"]} == pin.fingerprints


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pin_version": 2}', '{"pin_version": 2, "partitions": 3}'])
def test_not_a_pin(tmp_path: Path, text: str) -> None:
    (tmp_path / "pin.json").write_text(text)
    with pytest.raises(UsageError, match="is not a snapshot manifest"):
        read_pin(str(tmp_path / "pin.json"))


def test_pin_of_another_version(tmp_path: Path) -> None:
    (tmp_path / "pin.json").write_text('{"pin_version": 9}')
    with pytest.raises(UsageError, match="version 9, this is for 2"):
        read_pin(str(tmp_path / "pin.json"))


def test_missing_pin(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_pin(str(tmp_path / "pin.json"))


def test_pinning_twice_gives_the_same(log: Path, pin: Pin) -> None:
    assert pin_snapshot(discover([str(log)])) == pin
