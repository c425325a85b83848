"""The compaction app: the bytes of the local engine, and its exit codes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.fold.pin import Pin, segment_fingerprint, write_pin
from coordinator_core.lifecycle.approved import (
    check_compacted,
    expiry_row,
    plan_document,
    read_plan,
    write_plan,
)
from coordinator_core.lifecycle.compact import CompactionOptions
from coordinator_core.lifecycle.compact_plan import CompactionRules
from coordinator_core.lifecycle.compact_proof import ProofFailedError
from coordinator_core.lifecycle.compact_tasks import PartSizes
from coordinator_core.lifecycle.forecast import forecast
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import merged_partitions
from spark_apps import compact

from ..cases import case
from ..history.incidents import topics
from ..history.logs import Log
from ..runs.logs import copy_log

RULES = ["--kafka-version", "4.3.1", "--now-ms", "1795260000000"]


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "compaction.json"
    }


@pytest.fixture(params=["whole", pytest.param("in parts", marks=pytest.mark.full)])
def size_of_tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Partitions are compacted in a task each, or most of them in parts, side by side."""
    if request.param == "in parts":
        sizes = PartSizes(segments=1, newest=2_000, folds=4_000)
        monkeypatch.setattr(compact, "compact_all", partial(compact.compact_all, bytes_per_task=500, sizes=sizes))
    return str(request.param)


@pytest.mark.usefixtures("shared", "size_of_tasks")
def test_both_engines_write_the_same_bytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = str(case("k431-txn").paths[0])
    assert regroup(["compact", snapshot, "--output", str(tmp_path / "local"), *RULES, "--format", "json"]) == 0
    local = json.loads(capfd.readouterr().out)
    assert compact.APP.run(["--snapshot", snapshot, "--output", str(tmp_path / "spark"), *RULES]) == 0
    spark = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert files(tmp_path / "spark") == files(tmp_path / "local")
    assert spark["engine"] == "spark"
    assert spark["partitions"] == local["partitions"]


@pytest.mark.usefixtures("shared")
def test_the_retention_is_that_of_the_capture(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = Log().commit("g", {("orders", 0): 10})
    path = topics(log.write(tmp_path / "log"), (0, 10), offsets_retention_minutes=60)
    rules = ["--kafka-version", "4.3.1", "--now-ms", str(log.at + 2 * 3_600_000), "--expire"]
    assert compact.APP.run(["--snapshot", str(path), "--output", str(tmp_path / "out"), *rules]) == 0
    assert json.loads(capfd.readouterr().out.splitlines()[-1])["offsets_retention_ms"] == 3_600_000


@pytest.mark.usefixtures("shared", "size_of_tasks")
def test_damage_ends_with_its_position_and_nothing_published(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    segment = next(path for path in sorted(log.glob("__consumer_offsets-*/*.log")) if path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    code = compact.APP.run(["--snapshot", str(log), "--output", str(tmp_path / "out"), *RULES])
    assert code == ExitCode.DAMAGED_INPUT
    assert "bad_crc" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]


def test_earlier_output_and_wrong_arguments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = str(case("k431-txn").paths[0])
    assert compact.APP.run(["--snapshot", snapshot, "--output", str(tmp_path), *RULES]) == ExitCode.USAGE
    assert "exists already" in capfd.readouterr().err
    for wrong in (["--offsets-retention-ms", "5"], ["--delete-retention-ms", "-1"]):
        with pytest.raises(SystemExit) as caught:
            compact.APP.run(["--snapshot", snapshot, "--output", "o", *wrong])
        assert caught.value.code == ExitCode.USAGE


def test_the_snapshot_is_never_written_to(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    partition = next(log.glob("__consumer_offsets-*"))
    before = files(log)
    assert compact.APP.run(["--snapshot", str(log), "--output", str(partition / "out"), *RULES]) == ExitCode.USAGE
    assert "lies inside the snapshot" in capfd.readouterr().err
    assert files(log) == before


def test_a_run_id_stays_below_the_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--snapshot", str(case("k431-txn").paths[0]), "--output", str(tmp_path / "out"), *RULES]
    assert compact.APP.run([*arguments, "--run-id", "../elsewhere"]) == ExitCode.USAGE
    assert "run id '../elsewhere': use letters" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


MONTH_MS = 30 * 86_400_000


class Planned:
    """A copy of a log, and a plan that lets expire what has expired a month later."""

    def __init__(self, directory: Path) -> None:
        self.log = copy_log("k431-txn", directory / "log")
        self.output = directory / "out"
        self.pin = directory / "pin.json"
        self.path = directory / "plan.json"
        snapshot = discover([str(self.log)])
        fingerprints = {segment.path: segment_fingerprint(segment) for segment in snapshot.segments}
        write_pin(Pin(snapshot, fingerprints), str(self.pin))
        profile, now_ms = profile_for_release("4.3.1"), 1_795_260_000_000 + MONTH_MS
        self.rows = [
            expiry_row(forecast(merged, profile, now_ms=now_ms, offsets_retention_ms=MONTH_MS, take=lambda _: None))
            for merged, _ in merged_partitions(snapshot, profile)
        ]
        self.document = plan_document(
            str(self.pin),
            profile.label,
            self.rows,
            now_ms=now_ms,
            partial=False,
            options={"expire": True, "offsets_retention_ms": MONTH_MS},
        )
        self.digest = write_plan(str(self.path), self.document)

    def run(self, *more: str) -> int:
        plan = ["--plan", str(self.path), "--plan-digest", self.digest]
        return compact.APP.run([*plan, "--output", str(self.output), "--run-id", "one", *more])


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    return Planned(tmp_path)


@pytest.mark.usefixtures("shared")
def test_a_plan_is_carried_out_and_what_lies_there_is_checked(planned: Planned) -> None:
    assert planned.run() == 0
    directory = planned.output / "one"
    plan = read_plan(str(planned.path), planned.digest)
    report = check_compacted(str(directory), plan)
    expired = sum(row["offsets"] for row in planned.rows)
    assert (report["expired_offsets"], report["plan_sha256"]) == (expired, planned.digest)
    assert expired > 0
    segment = max(directory.glob("*/*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(ProofFailedError, match="is not what was proved"):
        check_compacted(str(directory), plan)


@pytest.mark.usefixtures("shared")
def test_an_input_that_is_not_the_one_of_the_plan_is_refused(
    planned: Planned, capfd: pytest.CaptureFixture[str]
) -> None:
    segment = max(planned.log.glob("__consumer_offsets-*/*.log"), key=lambda path: path.stat().st_size)
    data = segment.read_bytes()
    # What comes behind the pinned bytes does not matter.
    segment.write_bytes(data + data[:61])
    assert planned.run() == 0
    segment.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert planned.run("--run-id", "two") == ExitCode.DAMAGED_INPUT
    assert "changed_since_pin" in capfd.readouterr().err
    assert [path.name for path in planned.output.iterdir()] == ["one"]


@pytest.mark.usefixtures("shared")
def test_nothing_expires_that_the_plan_does_not_say(planned: Planned, capfd: pytest.CaptureFixture[str]) -> None:
    row = next(row for row in planned.rows if row["tombstones"])
    row["sha256"] = "0" * 64
    planned.digest = write_plan(str(planned.path), planned.document)
    assert planned.run() == ExitCode.APPLY_FAILED
    number = row["offsets_partition"]
    assert f"offsets partition {number}: other records expire than were planned" in capfd.readouterr().err
    assert not planned.output.exists()


def test_another_plan_than_the_approved_one_is_refused(planned: Planned, capfd: pytest.CaptureFixture[str]) -> None:
    planned.path.write_text(planned.path.read_text().replace('"partial": false', '"partial": true'))
    assert planned.run() == ExitCode.USAGE
    assert "is not the plan that was approved" in capfd.readouterr().err
    with pytest.raises(SystemExit) as caught:
        planned.run("--expire")
    assert caught.value.code == ExitCode.USAGE
    assert "--expire: the plan says that" in capfd.readouterr().err
    planned.digest = write_plan(str(planned.path), planned.document)
    planned.pin.write_text(planned.pin.read_text().replace("[", "[ ", 1))
    assert planned.run() == ExitCode.USAGE
    assert "another one" in capfd.readouterr().err


def test_an_attempt_that_comes_late_makes_nothing(tmp_path: Path) -> None:
    """The output is published under the name that the attempt knows, or is about to be."""
    log = discover([str(case("k431-txn").paths[0])]).partitions[0]
    options = CompactionOptions(profile_for_release("4.3.1"), CompactionRules(1_795_260_000_000))
    with pytest.raises(UsageError):
        compact.compact_one((log, ()), target=str(tmp_path), options=options)
    assert not list(tmp_path.iterdir())
