"""``regroup expire``: the contract's JSON, text and CSV, runs and snapshots, what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from coordinator_core.lifecycle.plan import Kept, Reason
from coordinator_core.lifecycle.publish_expiry import TOMBSTONES
from tests.cases import case
from tests.cli.test_commands import output_of
from tests.cli.test_damaged_input import outcome, write_segment
from tests.log.builders import write_partition
from tests.replay.histories import History, encoded_key
from tests.rules.logs import commit, log_of

ROOT = Path(__file__).resolve().parent.parent.parent
CASE = case("k431-expired/A")
NOW_MS = 1795249951000
AT = [*CASE.command_line(), "--now-ms", str(NOW_MS), "--offsets-retention-ms", "60000"]
Capture = pytest.CaptureFixture[bytes]


def document_of(arguments: list[str], capture: Capture, *, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of(["expire", *arguments, "--format", "json"], capture, code=code))
    return found


def test_json_has_the_fields_of_the_contract(capfdbinary: Capture) -> None:
    document = document_of(AT, capfdbinary)
    assert (document["now_ms"], document["offsets_retention_ms"]) == (NOW_MS, 60_000)
    assert (document["partial"], document["failures"]) == (False, [])
    assert len(document["tombstones"]) == 58
    assert document["tombstones"][0] == {
        "kind": "offset",
        "group_id": "e-empty-848",
        "topic": "t-a",
        "partition": 0,
        "reason": "empty_group_commit",
        "base_timestamp_ms": 1795249888934,
        "expires_at_ms": 1795249948934,
        "offsets_partition": 0,
        "record_offset": 6,
        "key_hex": "0001000b652d656d7074792d3834380003742d6100000000",
    }
    assert all(row["expires_at_ms"] <= NOW_MS for row in document["tombstones"])
    times = [row["expires_at_ms"] for row in document["forecast"]]
    assert times == sorted(times)
    assert times[0] > NOW_MS
    assert document["kept"]["pending_commit"] == 1
    assert list(document["kept"]) == sorted(document["kept"])


def test_one_group_and_what_is_known_of_it_besides(capfdbinary: Capture) -> None:
    only = document_of([*AT, "--group", "e-rebalancing"], capfdbinary)
    assert [row["topic"] for row in only["tombstones"]] == ["t-a", "t-a", "t-b2"]
    assert only["kept"] == {"group_has_members": 1, "subscribed_topic": 1}
    told = document_of([*AT, "--group", "e-rebalancing", "--rebalancing-group", "e-rebalancing"], capfdbinary)
    assert told["tombstones"] == []
    assert told["kept"] == {"group_has_members": 1, "rebalancing_group": 4}


def test_a_run_expires_like_its_snapshot(tmp_path: Path, capfdbinary: Capture) -> None:
    replayed = output_of(
        ["replay", *AT[:-2], "--output", str(tmp_path), "--cluster", "c", "--format", "json"], capfdbinary
    )
    run_path = json.loads(replayed)["run"]
    retention = ["--offsets-retention-ms", "60000"]
    direct = document_of(AT, capfdbinary)
    assert document_of([run_path, *retention], capfdbinary) == direct
    late = document_of([run_path, *retention, "--now-ms", str(NOW_MS + 10_000)], capfdbinary)
    assert late["now_ms"] == NOW_MS + 10_000
    assert len(late["tombstones"]) > len(direct["tombstones"])


def test_retention_is_that_of_the_release_unless_given(capfdbinary: Capture) -> None:
    document = document_of(AT[:-2], capfdbinary)
    assert document["offsets_retention_ms"] == 7 * 24 * 3600 * 1000
    assert {row["reason"] for row in document["tombstones"]} == {"nothing_left"}


def test_csv_and_text_say_the_same(capfdbinary: Capture) -> None:
    document = document_of(AT, capfdbinary)
    rows = list(csv.DictReader(io.StringIO(output_of(["expire", *AT, "--format", "csv"], capfdbinary))))
    assert [row["key_hex"] for row in rows] == [
        row["key_hex"] for row in (*document["tombstones"], *document["forecast"])
    ]
    assert [row["status"] for row in rows].count("due") == 58
    assert rows[4]["topic"] == ""
    text = output_of(["expire", *AT], capfdbinary)
    assert text.startswith("Due at 2026-11-21T08:32:31Z, with a retention of 1 min: 58 tombstones\n")
    lines = text.splitlines()
    assert sum(" ago" in line for line in lines) + sum(line.endswith(" now") for line in lines) == 58
    assert sum(" in " in line for line in lines[60:]) == len(document["forecast"])
    assert "          1  pending_commit" in lines


def test_a_time_below_0_is_no_day(tmp_path: Path, capfdbinary: Capture) -> None:
    write_partition(tmp_path, {0: log_of(commit("g", time_ms=-1))})
    text = output_of(["expire", str(tmp_path), "--kafka-version", "4.3.1", "--now-ms", "1800000000000"], capfdbinary)
    (offset,) = [line.split() for line in text.splitlines() if " offset " in line]
    assert offset[6:8] == ["-1", "1970-01-07T23:59:59Z"]


def test_the_page_shows_what_is_printed(capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "expiry.md").read_text(encoding="utf-8")
    ((command, shown),) = re.findall(r"```\n\$ regroup (.+)\n((?:.*\n)*?)```", page)
    printed = output_of(command.split(), capfdbinary)
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()


def test_the_page_names_every_reason() -> None:
    page = (ROOT / "docs" / "expiry.md").read_text(encoding="utf-8")
    assert [reason for reason in (*Reason, *Kept) if f"`{reason}`" not in page] == []


def test_a_partition_that_does_not_load_is_a_finding(tmp_path: Path, capfdbinary: Capture) -> None:
    history = History().commit(5).records((encoded_key(), b"\0\x09"))
    path = write_segment(tmp_path, b"".join(history.batches))
    arguments = [str(path), "--kafka-version", "4.3.1", "--now-ms", "1800000000000"]
    document = document_of(arguments, capfdbinary, code=1)
    assert document["tombstones"] == []
    assert document["kept"] == {"sweep_fails": 2}
    assert "not loaded: record offset 1" in document["failures"][0]["detail"]


def test_the_plan_is_published_beside_its_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = outcome(["replay", *AT[:-2], "--output", str(tmp_path), "--cluster", "c", "--format", "json"], capfd)
    run = Path(json.loads(out)["run"])
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    arguments = ["expire", str(run), "--offsets-retention-ms", "60000", "--publish", "--format", "json"]
    code, out, error = outcome(arguments, capfd)
    assert code == 0
    document = json.loads(out)
    (directory,) = (run.parent / "_tombstones" / run.name).iterdir()
    assert f"tombstones: {directory}" in error
    summary = json.loads((directory / "expiry.json").read_text())
    assert (summary["due"], summary["forecast"]) == (58, len(document["forecast"]))
    assert summary["kept"] == document["kept"]
    table = pq.read_table(directory / "tombstones.parquet", partitioning=None)
    assert table.schema.equals(TOMBSTONES)
    rows = table.to_pylist()
    due = [row for row in rows if row["due"]]
    assert [row["key"].hex() for row in due] == [row["key_hex"] for row in document["tombstones"]]
    for row, told in zip(due, document["tombstones"], strict=True):
        assert {name: row[name] for name in told if name != "key_hex"} == {
            name: value for name, value in told.items() if name != "key_hex"
        }
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert outcome(arguments, capfd)[0] == 0
    assert outcome([*arguments, "--now-ms", str(NOW_MS + 1)], capfd)[0] == 0
    assert len(list((run.parent / "_tombstones" / run.name).iterdir())) == 2
    code, _, error = outcome(["expire", *AT, "--publish"], capfd)
    assert (code, "beside a run" in error) == (2, True)


def test_what_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    for option in (["--group", "no-such-group"], ["--rebalancing-group", "no-such-group"]):
        code, _, error = outcome(["expire", *AT, *option], capfd)
        assert (code, "'no-such-group' does not exist" in error) == (2, True)
    assert outcome(["expire", *AT, "--offsets-retention-ms", "0"], capfd)[0] == 2
    code, printed, error = outcome(["expire", *AT, "--rebalancing-group", "e-empty-848"], capfd)
    assert (code, printed) == (2, "")
    assert "'e-empty-848' is a consumer group, not a classic one" in error
