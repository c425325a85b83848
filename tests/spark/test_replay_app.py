"""The app as a process: what it prints, how it ends, what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator_core.errors import ExitCode
from coordinator_core.fold.pin import write_pin
from coordinator_core.log.discovery import discover
from coordinator_core.runs.read import resolve_latest
from spark_apps.replay import APP, parse_arguments
from tests.runs.state_tables import computed_state_hash

from ..cases import case
from ..runs.logs import copy_log, snapshot

ROOT = Path(__file__).resolve().parent.parent.parent


def app(*arguments: str, command: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the app in a process of its own."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
    # What spark-submit finds as python3 is what runs the app, as in an activated virtual environment.
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        [*(command or [sys.executable, "-m", "spark_apps.replay", "--master", "local[2]"]), *arguments],
        cwd=ROOT,
        env={**environment, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def test_a_run_under_spark_submit(tmp_path: Path) -> None:
    item = case("k431-txn")
    pin = tmp_path / "pin.json"
    write_pin(snapshot(item), str(pin))
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
    options = [
        "--pin",
        str(pin),
        "--output",
        str(tmp_path / "out"),
        "--cluster",
        "prod",
        "--now-ms",
        "1700000000000",
    ]
    done = app(
        *(*options, "--kafka-version", "4.3.1", "--run-id", "r1"),
        command=[*submit, str(ROOT / "spark_apps" / "replay.py")],
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    summary = json.loads(line)
    run = resolve_latest(str(tmp_path / "out"), "prod")
    assert summary["run"] == run.path == str(tmp_path / "out/prod/2023-11-14/r1")
    assert summary["state_hash"] == run.state_hash == computed_state_hash(run)
    assert summary["profile"] == "J3 (4.3.1, new coordinator)"
    assert summary["latest"]
    assert run.manifest["versions"]["pyspark"]


def test_damaged_input_ends_with_its_position(tmp_path: Path) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    segments = sorted(discover([str(log)]).segments, key=lambda segment: segment.offsets_partition)
    for segment in (segments[2], segments[7]):
        with open(segment.path, "r+b") as file:
            file.seek(segment.size - 1)
            file.write(b"\xff")
    done = app("--snapshot", str(log), "--output", str(tmp_path / "out"), "--cluster", "prod")
    assert done.returncode == ExitCode.DAMAGED_INPUT
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if "regroup-replay" in line]
    assert len(said) == 1
    assert said[0].startswith(f"regroup-replay: error: {segments[2].path}: byte ")
    assert "record offset" in said[0]
    assert "bad_crc" in said[0]
    assert "Traceback" not in done.stderr
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--snapshot", "x"],
        ["--snapshot", "x", "--pin", "y"],
        ["--coordinator", "new"],
        ["--profile", "J3", "--kafka-version", "4.3.1"],
        ["--profile", "nonsense"],
        ["--partial", "--salvage"],
        ["--now-ms", "soon"],
        ["--offsets-topic-num-partitions", "0"],
        ["--offsets-topic-num-partitions", "2147483648"],
    ],
    ids=" ".join,
)
def test_unusable_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    base = ["--snapshot", "x", "--output", "o", "--cluster", "c"] if arguments[:1] != ["--snapshot"] else []
    with pytest.raises(SystemExit) as caught:
        APP.run([*base, *arguments] if arguments else [])
    assert caught.value.code == ExitCode.USAGE
    assert "regroup-replay: error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--snapshot", "/does/not/exist"], "/does/not/exist: no such file or directory"),
        (["--pin", "/does/not/exist"], "/does/not/exist: no such file"),
        (["--snapshot", "{log}", "--cluster", "a/b"], "cluster 'a/b'"),
        (["--snapshot", "{log}", "--kafka-version", "9.9"], "no rules for Kafka 9.9"),
        (
            ["--snapshot", "{log}", "--kafka-version", "2.4.1", "--coordinator", "new"],
            "only the classic coordinator",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_impossible_requests_do_not_start_spark(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.format(log=case("k431-txn").paths[0]) for argument in arguments]
    outcome = tmp_path / "outcomes/1.json"
    code = APP.run(["--cluster", "c", "--output", str(tmp_path), "--outcome", str(outcome), *filled])
    assert code == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert said in printed
    left = json.loads(outcome.read_text())
    assert (left["exit_code"], left["error"]) == (code, printed.rstrip("\n"))


def test_arguments_that_are_not_taken_leave_an_outcome(tmp_path: Path) -> None:
    outcome = tmp_path / "1.json"
    with pytest.raises(SystemExit):
        APP.run(["--outcome", str(outcome), "--unknown"])
    assert json.loads(outcome.read_text())["exit_code"] == ExitCode.USAGE


def test_snapshots_may_be_named_one_by_one_or_together() -> None:
    base = ["--output", "o", "--cluster", "c"]
    together = parse_arguments([*base, "--snapshot", "a", "b"])
    apart = parse_arguments([*base, "--snapshot", "a", "--snapshot", "b"])
    assert together.snapshot == apart.snapshot == ["a", "b"]
