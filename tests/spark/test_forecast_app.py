"""The forecast app: what the sweep of objects finds, in a table, and its exit codes."""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coordinator_core.errors import ExitCode
from coordinator_core.fold.pin import read_pin, segment_fingerprint, write_pin
from coordinator_core.fold.tasks import fold_tasks
from coordinator_core.jsontext import fields_of
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.forecast import FORECAST, MOST_GROUPS
from coordinator_core.lifecycle.forecast_publish import ForecastFile
from coordinator_core.lifecycle.plan import ExpiryPlan
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_segment
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.runs.proof import check_file
from coordinator_core.runs.table_directory import staging_path
from spark_apps import forecast, tasks
from spark_apps.forecast_tasks import ForecastTask
from spark_apps.packing import Work
from spark_apps.tasks import WholePartition

from ..cases import case
from ..history.incidents import topics
from ..history.logs import Log
from ..runs.logs import copy_log

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NOW_MS = 1_797_843_040_828
"""Some committed offsets of the log have expired then, some expire in the next seconds."""
PROFILE = profile_for_release("4.3.1")
RULES = ["--kafka-version", "4.3.1", "--now-ms", str(NOW_MS), "--offsets-retention-ms", str(30 * DAY_MS)]

Rows = list[dict[str, Any]]


def plans(log: Path) -> list[ExpiryPlan]:
    states = replay_snapshot(discover([str(log)]), PROFILE, damage=[])
    return [plan_expiry(state, PROFILE, now_ms=NOW_MS, offsets_retention_ms=30 * DAY_MS) for state in states]


def rows_of(planned: list[ExpiryPlan]) -> Rows:
    """Rows of the table, those that are due first."""
    return [
        fields_of(
            item,
            *("offsets_partition", "group_id", "topic", "partition", "base_timestamp_ms", "expires_at_ms"),
            "record_offset",
            due=due,
            kind=str(item.kind),
            reason=str(item.reason),
        )
        for due in (True, False)
        for plan in planned
        for item in (plan.tombstones if due else plan.forecast)
    ]


def in_that_order(rows: Rows) -> Rows:
    due = [row for row in rows if row["due"]]
    later = [row for row in rows if not row["due"]]
    return due + sorted(later, key=lambda row: (row["offsets_partition"], row["expires_at_ms"]))


def table(directory: Path, files: list[str]) -> Rows:
    found: Rows = []
    for name in files:
        part = pq.read_table(directory / name)
        assert part.schema.names == FORECAST.names
        found += part.to_pylist()
    return in_that_order(found)


@pytest.mark.usefixtures("shared")
def test_the_forecast_is_that_of_objects(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = case("k431-txn").paths[0]
    output = tmp_path / "out"
    assert forecast.APP.run(["--snapshot", str(log), "--output", str(output), "--run-id", "one", *RULES]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    directory = output / "one"
    assert told == json.loads((directory / "forecast.json").read_text())
    planned = plans(log)
    rows = table(directory, told["files"])
    assert rows == rows_of(planned)
    assert told["due"] == sum(row["due"] for row in rows) > 0
    assert told["later"] == sum(not row["due"] for row in rows) > 0
    assert [row["sha256"] for row in told["expiry"]] == [plan.digest() for plan in planned]
    states = replay_snapshot(discover([str(log)]), PROFILE, damage=[])
    assert told["committed_offsets"] == sum(len(state.offsets) for state in states)
    assert told["groups"] == sum(len(state.groups) for state in states)
    batches = [batch for segment in discover([str(log)]).segments for batch in read_segment(segment)]
    assert told["records"] == sum(batch.record_count or 0 for batch in batches)
    losing = Counter(row["group_id"] for row in rows if row["due"])
    assert [(loss["group_id"], loss["tombstones"]) for loss in told["most"]] == losing.most_common(MOST_GROUPS)
    assert told["groups_losing"] == len(losing) > MOST_GROUPS
    # What was read can be pinned by it, and nothing else lies there.
    pin = read_pin(told["pin"])
    assert pin.fingerprints == {segment.path: segment_fingerprint(segment) for segment in pin.snapshot.segments}
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert there == {"forecast.json", "pin.json", *told["files"]}
    for name, proof in zip(told["files"], told["proofs"], strict=True):
        check_file(str(directory / name), proof)


def test_a_giant_partition_in_shards(tmp_path: Path) -> None:
    """Its committed offsets come in any order then; the table is the same."""
    log = case("k431-txn").paths[0]
    rules = ForecastTask(PROFILE, str(tmp_path), NOW_MS, 30 * DAY_MS)
    Path(staging_path(str(tmp_path))).mkdir()
    found: list[ForecastFile] = []
    source = discover([str(log)])
    for number, of_partition in groupby(fold_tasks(source, OnDamage.FAIL), key=lambda task: task.log.offsets_partition):
        folds = [staged for task in of_partition for staged in tasks.fold(Work((task,), whole=False), rules).folds]
        part = tasks.cut((folds, 3), rules)
        shards = [tasks.merge_one_shard((number, [of_shard]), rules) for of_shard in part.shards]
        written = tasks.merge(WholePartition(folds, [part], shards), rules).written
        found += [] if written is None else [written]
    assert table(tmp_path, [file.name for file in found]) == rows_of(plans(log))


@pytest.mark.usefixtures("shared")
def test_the_retention_is_that_of_the_capture(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log().commit("g", {("orders", 0): 10})
    path = topics(log.write(tmp_path / "log"), (0, 10), offsets_retention_minutes=60)
    rules = ["--kafka-version", "4.3.1", "--now-ms", str(log.at + 2 * HOUR_MS)]
    assert forecast.APP.run(["--snapshot", str(path), "--output", str(tmp_path / "out"), *rules]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (told["offsets_retention_ms"], told["due"]) == (HOUR_MS, 2)


@pytest.mark.usefixtures("shared")
def test_where_nothing_expires_the_table_has_no_rows(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log/__consumer_offsets-0").mkdir(parents=True)
    (tmp_path / "log/__consumer_offsets-0" / f"{0:020d}.log").touch()
    assert forecast.APP.run(["--snapshot", str(tmp_path / "log"), "--output", str(tmp_path / "out"), *RULES]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert table(tmp_path / "out", told["files"]) == []
    assert (told["due"], told["later"], told["committed_offsets"]) == (0, 0, 0)


@pytest.mark.usefixtures("shared")
def test_damage_ends_with_its_position_and_nothing_published(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    segment = next(path for path in sorted(log.glob("__consumer_offsets-*/*.log")) if path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    write_pin(discover([str(log)]), str(tmp_path / "pin.json"))
    output = tmp_path / "new/out"
    code = forecast.APP.run(["--pin", str(tmp_path / "pin.json"), "--output", str(output), *RULES])
    assert code == ExitCode.DAMAGED_INPUT
    assert "bad_crc" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "pin.json"]
    # As a starting broker would cut it, there is one.
    assert forecast.APP.run(["--snapshot", str(log), "--partial", "--output", str(output), *RULES]) == 0
    capfd.readouterr()
    assert forecast.APP.run(["--snapshot", str(log), "--partial", "--output", str(output), *RULES]) == ExitCode.USAGE
    assert "exists already" in capfd.readouterr().err
    inside = str(log / "out")
    assert forecast.APP.run(["--snapshot", str(log), "--partial", "--output", inside, *RULES]) == ExitCode.USAGE


@pytest.mark.usefixtures("shared")
def test_a_segment_that_has_changed_since_its_pin_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    assert forecast.APP.run(["--snapshot", str(log), "--output", str(tmp_path / "first"), *RULES]) == 0
    segment = max(log.glob("__consumer_offsets-*/*.log"), key=lambda path: path.stat().st_size)
    segment.write_bytes(segment.read_bytes()[:-1])
    pin = str(tmp_path / "first/pin.json")
    assert forecast.APP.run(["--pin", pin, "--output", str(tmp_path / "out"), *RULES]) == ExitCode.DAMAGED_INPUT
    assert "changed_since_pin" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
