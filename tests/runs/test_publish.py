from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core import storage
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.files import recency
from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.runs import publish as publish_module
from coordinator_core.runs import state_hash as state_hash_module
from coordinator_core.runs.place import (
    RunPlace,
    check_output_outside,
    check_sources,
    default_window,
    is_run,
    new_run_id,
)
from coordinator_core.runs.publish import Manifest, RunWriter, StagedTables, promote
from coordinator_core.runs.read import RunError, open_run, resolve_latest
from coordinator_core.runs.schemas import TABLES
from tests.runs.state_tables import computed_state_hash, state_tables, tables_of

from .states import offset, rich_states

FACTS = {
    "now_ms": 5,
    "profile": "J3",
    "profile_inferred": False,
    "complete": True,
    "topic_names": {},
    "offsets_topic_num_partitions": 50,
    "sources": [],
    "inputs": [],
    "cut": {},
    "damage": [],
}


def place(output: Path, run_id: str = "r1", window: str = "w") -> RunPlace:
    return RunPlace(str(output), "prod", window, run_id)


def publish(where: RunPlace, *, now_ms: int = 5) -> Manifest:
    with RunWriter(where, sources=[]) as writer:
        for state in rich_states():
            writer.write_tables(state_tables([state], now_ms=now_ms))
        return writer.commit({**FACTS, "now_ms": now_ms}, seconds=1.0, steps={"replay": 0.5})


def test_a_published_run_reads_back(tmp_path: Path) -> None:
    manifest = publish(place(tmp_path))
    run = open_run(place(tmp_path).path)
    assert run.manifest == manifest
    assert run.states() == rich_states()
    assert computed_state_hash(run) == run.state_hash
    assert manifest["findings"] == {"critical": None, "warning": None, "info": None}


def test_files_are_whole_once_their_last_rows_are_written(tmp_path: Path) -> None:
    expected = publish(place(tmp_path, "before"))
    *first, last = rich_states()
    where = place(tmp_path)
    with RunWriter(where, sources=[]) as writer:
        for state in first:
            writer.write_tables(state_tables([state], now_ms=5))
        tables = state_tables([last], now_ms=5)
        offsets = tables.pop("offsets")
        writer.write_tables(tables, is_last=True)
        rows = {name: pq.read_metadata(f"{where.path}/{name}/part-00000.parquet").num_rows for name in tables}
        assert rows == {name: expected["tables"][name]["rows"] for name in tables}
        writer.write_tables({"offsets": offsets}, is_last=True)
        manifest = writer.commit(FACTS, seconds=1.0, steps={"replay": 0.5})
    assert manifest == expected | {"run_id": "r1"}


def test_a_run_may_be_at_a_uri(tmp_path: Path) -> None:
    where = RunPlace(f"file://{tmp_path}/runs", "prod", "w", "r1")
    manifest = publish(where)
    assert promote(where, manifest)
    run = resolve_latest(where.output, "prod")
    assert run.path == f"file://{tmp_path}/runs/prod/w/r1"
    assert run.states() == rich_states()
    assert open_run(f"{tmp_path}/runs/prod/w/r1").manifest == manifest


def test_layout_is_cluster_window_run_table(tmp_path: Path) -> None:
    publish(place(tmp_path))
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {
        "prod/w/r1/manifest.json",
        *(f"prod/w/r1/{name}/part-00000.parquet" for name in TABLES),
    }


def test_parquet_files_hold_the_declared_columns(tmp_path: Path) -> None:
    publish(place(tmp_path))
    for name, table in TABLES.items():
        stored = pq.read_table(tmp_path / "prod/w/r1" / name, partitioning=None)
        assert stored.schema.equals(table.arrow, check_metadata=False)
        assert stored.schema.field(0).metadata[b"comment"] == table.arrow.field(0).metadata[b"comment"]


def test_manifest_counts_rows(tmp_path: Path) -> None:
    manifest = publish(place(tmp_path))
    expected = {name: table.num_rows for name, table in state_tables(rich_states(), now_ms=5).items()}
    assert {name: table["rows"] for name, table in manifest["tables"].items()} == expected


def test_staged_files_give_the_same_run(tmp_path: Path) -> None:
    direct = publish(place(tmp_path))
    staged_place = place(tmp_path, "r2")
    with RunWriter(staged_place, sources=[]) as writer:
        storage.make_directory(writer.staging_path)
        StagedTables(staged_place.path, 0).write_tables(state_tables(rich_states(), now_ms=5))  # died
        for state in rich_states():
            for is_taken in (False, True):  # an executor may die after its task has ended
                task = StagedTables(staged_place.path, state.offsets_partition)
                task.write_tables(state_tables([state], now_ms=5))
                written = task.close()
                if is_taken:
                    writer.adopt(*written)
        staged = writer.commit(FACTS, seconds=0, steps={})
    assert staged["state_hash"] == direct["state_hash"]
    hashes = [{name: table["hash"] for name, table in run["tables"].items()} for run in (direct, staged)]
    assert hashes[0] == hashes[1]
    assert open_run(staged_place.path).states() == rich_states()
    listed = {file for table in staged["tables"].values() for file in table["files"]}
    found = {str(path.relative_to(staged_place.path)) for path in Path(staged_place.path).rglob("*.parquet")}
    assert found == listed


def test_attempts_that_still_run_add_nothing_to_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark kills the other attempts of a task that has ended, some seconds later. They write on while the driver
    removes their files, and behind it."""
    where = place(tmp_path)
    tables = state_tables(rich_states(), now_ms=5)
    removed: list[str] = []

    def write_on(path: str) -> None:
        if not removed:
            with pytest.raises(DamagedInputError, match="the file is gone"):
                begun.close()
            with pytest.raises(UsageError, match="cannot be written"):
                StagedTables(where.path, 0).write_tables(tables)
        removed.append(path)
        delete(path)

    delete = storage.delete
    with RunWriter(where, sources=[]) as writer:
        storage.make_directory(writer.staging_path)
        begun, taken = StagedTables(where.path, 0), StagedTables(where.path, 0)
        for attempt in (begun, taken):
            attempt.write_tables(tables)
        writer.adopt(*taken.close())
        monkeypatch.setattr(storage, "delete", write_on)
        manifest = writer.commit(FACTS, seconds=0, steps={})
    assert removed
    listed = {name for table in manifest["tables"].values() for name in table["files"]}
    found = {str(path.relative_to(where.path)) for path in Path(where.path).rglob("*") if path.is_file()}
    assert found == {*listed, "manifest.json"}


def test_an_error_before_the_manifest_leaves_nothing(tmp_path: Path) -> None:
    where = place(tmp_path)

    def fail() -> None:
        with RunWriter(where, sources=[]) as writer:
            writer.write_tables(state_tables(rich_states(), now_ms=0))
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert not Path(where.path).exists()


KILLED = """
import sys, time
sys.path.insert(0, {root!r})
from tests.runs.test_publish import *
with RunWriter(RunPlace({output!r}, "prod", "w", "killed"), sources=[]) as writer:
    writer.write_tables(state_tables(rich_states(), now_ms=9))
    writer._close_parts()
    print("written", flush=True)
    time.sleep(600)
"""


def test_a_kill_between_tables_and_manifest_shows_nothing(tmp_path: Path) -> None:
    manifest = publish(place(tmp_path, "before"))
    promote(place(tmp_path, "before"), manifest)
    root = str(Path(__file__).resolve().parent.parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED.format(root=root, output=str(tmp_path))],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    left = place(tmp_path, "killed")
    assert list(Path(left.path).rglob("*.parquet"))
    assert not is_run(left.path)
    with pytest.raises(RunError, match=r"not a published run: it has no manifest\.json"):
        open_run(left.path)
    assert resolve_latest(str(tmp_path), "prod").path == place(tmp_path, "before").path
    with pytest.raises(UsageError, match="exists already"):
        RunWriter(left, sources=[])


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    publish(place(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="a run is never overwritten, choose another run id"):
        publish(place(tmp_path))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_of_concurrent_publishers_of_one_run_id_one_succeeds(tmp_path: Path) -> None:
    def attempt(_: int) -> bool:
        try:
            publish(place(tmp_path))
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(attempt, range(8))) == [False] * 7 + [True]
    assert open_run(place(tmp_path).path).states() == rich_states()


def test_latest_is_whole_while_runs_are_promoted(tmp_path: Path) -> None:
    runs = [(place(tmp_path, f"r{n}"), publish(place(tmp_path, f"r{n}"), now_ms=n)) for n in range(4)]
    promote(*runs[0])
    seen = []
    with ThreadPoolExecutor(4) as threads:
        done = [threads.submit(promote, *run) for run in runs * 8]
        while not all(future.done() for future in done):
            seen.append(resolve_latest(str(tmp_path), "prod").now_ms)
            time.sleep(0.001)
    assert seen == sorted(seen)
    assert resolve_latest(str(tmp_path), "prod").now_ms == 3
    assert sorted(path.name for path in (tmp_path / "prod").iterdir()) == [
        ".latest.json.lock",
        "latest.json",
        "w",
    ]


def test_a_backfill_does_not_hide_the_newest_run(tmp_path: Path) -> None:
    new, old = place(tmp_path, "new"), place(tmp_path, "old")
    assert promote(new, publish(new, now_ms=10))
    assert not promote(old, publish(old, now_ms=9))
    assert resolve_latest(str(tmp_path), "prod").path == new.path
    again = place(tmp_path, "newer")
    assert promote(again, publish(again, now_ms=10))
    latest = json.loads((tmp_path / "prod/latest.json").read_text())
    assert latest["path"] == "w/newer"


def test_ids_of_attempts_go_up() -> None:
    ids = ["a", "try-9", "try-10", "try-10b", "20261126T235959Z-ffffff", "20261127T061000123456Z-0a1b2c3d-9"]
    ids += ["20261127T061000123456Z-0a1b2c3d-10", "20261127T061001Z-000000", "20261127T235959Z-000000"]
    given = [{"now_ms": 1, "complete": True, "run_id": one} for one in ids]
    assert sorted(given[4:] + given[:4], key=recency) == given


def test_of_attempts_for_one_time_the_complete_one_and_the_last_one_is_latest(tmp_path: Path) -> None:
    published = {name: publish(place(tmp_path, name), now_ms=10) for name in ("1", "2", "3")}
    partial = {**published["3"], "complete": False}
    assert promote(place(tmp_path, "2"), published["2"])
    # Whichever gate ends last.
    assert not promote(place(tmp_path, "1"), published["1"])
    assert not promote(place(tmp_path, "3"), partial)
    assert resolve_latest(str(tmp_path), "prod").path == place(tmp_path, "2").path
    for unreadable in ("", "[]", '{"now_ms": null}', "no JSON"):
        (tmp_path / "prod/latest.json").write_text(unreadable)
        assert promote(place(tmp_path, "3"), partial)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\\b", "-x", "_x", ".x", "a b", "ä", "a\n", "x" * 256])
@pytest.mark.parametrize("what", ["cluster", "window", "run_id"])
def test_names_must_be_plain_path_components(tmp_path: Path, what: str, name: str) -> None:
    names = {"cluster": "c", "window": "w", "run_id": "r"} | {what: name}
    with pytest.raises(UsageError, match=what.replace("_", " ")):
        RunPlace(str(tmp_path), **names)


def test_output_inside_the_snapshot_is_refused(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (tmp_path / "link").symlink_to(snapshot)
    for output in (snapshot, snapshot / "runs", tmp_path / "link" / "x", tmp_path / "y" / ".." / "snapshot"):
        with pytest.raises(UsageError, match="lies inside the snapshot"):
            check_output_outside(str(output), [str(snapshot)])
    check_output_outside(str(tmp_path / "snapshot-runs"), [str(snapshot)])
    with pytest.raises(UsageError, match="lies inside the snapshot"):
        check_output_outside("s3://bucket/log/runs", ["s3://bucket/log/"])
    check_output_outside("s3://bucket/logs", ["s3://bucket/log"])
    for inside in ("s3://bucket//log/runs", "S3://bucket/log//runs/", "s3://bucket/log", "s3://bucket/log/"):
        with pytest.raises(UsageError, match="lies inside the snapshot"):
            check_output_outside(inside, ["s3://bucket/log"])
    with pytest.raises(UsageError, match="lies inside the snapshot"):
        check_output_outside("s3://bucket/log/runs?region=x", ["s3://bucket/log/?region=x"])
    check_output_outside("s3://bucket/log/runs?endpoint_override=b", ["s3://bucket/log?endpoint_override=a"])


def test_a_snapshot_among_the_runs_of_its_cluster_is_refused(tmp_path: Path) -> None:
    output = str(tmp_path / "runs")
    for inside in ("c", "c/w", "c/snapshots/broker-1", "c/w/r/log", "c/_pins/w", "c/../c/w"):
        with pytest.raises(UsageError, match="lies among the runs of cluster 'c'"):
            check_sources(output, "c", [str(tmp_path / "elsewhere"), f"{output}/{inside}"])
    # What Regroup itself keeps beside the windows, and what is of another cluster.
    for beside in ("c/_captures/k", "c/_compacted/w/r", "c/_restores/capture", "c2/w", "d/w", "snapshot"):
        check_sources(output, "c", [f"{output}/{beside}"])
    with pytest.raises(UsageError, match="lies inside the snapshot"):
        check_sources(output, "c", [output])
    with pytest.raises(UsageError, match="lies among the runs"):
        check_sources("s3://bucket/runs", "c", ["S3://bucket//runs/c/w/"])
    with pytest.raises(UsageError, match="lies among the runs"):
        RunWriter(place(tmp_path), sources=[str(Path(place(tmp_path).path).parent)])
    assert not Path(place(tmp_path).cluster_path).exists()


def test_windows_default_to_the_day() -> None:
    assert default_window(1_700_000_000_000) == "2023-11-14"
    with pytest.raises(UsageError, match="--window"):
        default_window(10**18)


def test_no_window_is_named_like_the_file_beside_the_windows(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"latest\.json"):
        RunPlace(str(tmp_path), "c", "latest.json", "r")


def test_run_ids_differ() -> None:
    assert len({new_run_id() for _ in range(100)}) == 100


def test_empty_tables_have_their_columns(tmp_path: Path) -> None:
    where = place(tmp_path)
    with RunWriter(where, sources=[]) as writer:
        writer.commit(FACTS, seconds=0, steps={})
    tables = tables_of(open_run(where.path))
    assert {name: table.schema for name, table in tables.items()} == {
        name: table.arrow for name, table in TABLES.items()
    }
    assert all(isinstance(table, pa.Table) and table.num_rows == 0 for table in tables.values())


class Blocks:
    """Rows of a table, block by block (``RowBlocks``)."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    @property
    def num_rows(self) -> int:
        return int(self.rows.num_rows)

    def blocks(self, block_rows: int = 1) -> Iterator[pa.Table]:
        for start in range(0, self.rows.num_rows, block_rows):
            yield self.rows.slice(start, block_rows)


@pytest.mark.parametrize("block_rows", [1, 3, 100])
def test_rows_may_come_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_rows: int) -> None:
    monkeypatch.setattr(publish_module, "ROW_GROUP_ROWS", block_rows)
    monkeypatch.setattr(state_hash_module, "BLOCK_ROWS", 3)
    state = PartitionState(3, offsets={OffsetKey("g", "t", number): offset(number) for number in range(7)})
    rows = state_tables([state], now_ms=0)["offsets"]
    published = []
    for run_id, written in (("whole", rows), ("blocks", Blocks(rows))):
        with RunWriter(place(tmp_path, run_id), sources=[]) as writer:
            writer.write_tables({"offsets": written})
            published.append(writer.commit(FACTS, seconds=1.0, steps={})["state_hash"])
        run = open_run(place(tmp_path, run_id).path)
        assert run.table("offsets") == rows
        assert computed_state_hash(run) == run.state_hash
    assert published[0] == published[1]


def test_files_hold_deltas_dictionaries_and_statistics_of_keys(tmp_path: Path) -> None:
    manifest = publish(place(tmp_path))
    (name,) = manifest["tables"]["offsets"]["files"]
    group = pq.ParquetFile(Path(place(tmp_path).path) / name).metadata.row_group(0)
    columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    assert "DELTA_BINARY_PACKED" in columns["committed_offset"].encodings
    assert columns["group_id"].has_dictionary_page
    assert columns["record_offset"].is_stats_set
    assert not columns["metadata"].is_stats_set
