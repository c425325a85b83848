"""The app ``history``: the table of the local command, its place beside the run, its errors and exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import Damage, ExitCode
from coordinator_core.fold.pin import write_pin
from coordinator_core.history.parts import Asked
from coordinator_core.history.table import HISTORY
from coordinator_core.log.discovery import discover
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from spark_apps import history
from spark_apps.session import Session

from ..cases import FEW_CASES, Case, case
from ..examples import one_in
from ..history.test_table import random_log
from ..runs.logs import copy_log, snapshot
from ..test_project import ROOT
from .history_kit import EACH_ALONE, MARK, asked_of, by_tasks, check, local, read_published, several

RULES = ["--kafka-version", "3.9.2", "--coordinator", "classic"]


@pytest.mark.parametrize("item", one_in(len(FEW_CASES), [case(name) for name in FEW_CASES]), ids=lambda item: item.name)
def test_spark_equals_local(session: Session, item: Case, tmp_path: Path) -> None:
    asked = asked_of(item, snapshot(item))
    check(by_tasks(session.context, snapshot(item), asked, tmp_path / "out"), local(snapshot(item), asked))


def test_partitions_that_tell_of_each_other(session: Session, tmp_path: Path) -> None:
    log = discover([str(several(tmp_path / "log"))])
    asked = Asked(profile_for_release("3.9.2", "classic"))
    check(by_tasks(session.context, log, asked, tmp_path / "out", EACH_ALONE), local(log, asked))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_a_random_log(session: Session, seed: int, tmp_path: Path) -> None:
    log = discover([str(random_log(Random(seed), tmp_path / "log"))])
    asked = Asked(profile_for_release("4.3.1"), special_records=50)
    check(by_tasks(session.context, log, asked, tmp_path / "out"), local(log, asked))


def rows_of(directory: Path) -> list[dict[str, object]]:
    return [row for table in read_published(directory) for row in table.to_pylist()]


@pytest.mark.usefixtures("shared")
def test_the_app_writes_what_the_command_writes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, file = str(several(tmp_path / "log")), str(tmp_path / "history.parquet")
    assert regroup(["history", log, "--output", file, "--digest", *RULES]) == ExitCode.CLEAN
    digest = capfd.readouterr().err.split()[-1]
    write_pin(discover([log]), str(tmp_path / "pin.json"))
    for source in (["--snapshot", log], ["--pin", str(tmp_path / "pin.json")]):
        output = tmp_path / source[0]
        assert history.APP.run([*source, "--output", str(output), "--run-id", "one", *RULES]) == ExitCode.CLEAN
        told = json.loads(capfd.readouterr().out.splitlines()[-1])
        assert (told["history"], told["hash"], told["complete"]) == (str(output / "one"), digest, True)
        assert rows_of(output / "one") == pq.read_table(file).to_pylist()
        # What lies there is what counts: any reader of the directory sees the same.
        assert pq.read_table(output / "one/history").num_rows == told["rows"]
        assert json.loads((output / "one" / "history.json").read_text())["hash"] == digest
    again = ["--snapshot", log, "--output", str(output), "--run-id", "one", *RULES]
    assert history.APP.run(again) == ExitCode.USAGE
    assert f"{output / 'one'} exists already" in capfd.readouterr().err
    assert len(rows_of(output / "one")) == told["rows"]


@pytest.mark.usefixtures("shared")
def test_of_a_run_as_far_as_it_has_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Beside the run, which is not touched; without what was written to the log since."""
    log, file = several(tmp_path / "log"), str(tmp_path / "history.parquet")
    place = RunPlace(str(tmp_path / "runs"), "c", "w", "r")
    replay_to_run(discover([str(log)]), place, profile=profile_for_release("3.9.2", "classic"), now_ms=0)
    before = {path: path.read_bytes() for path in Path(place.path).rglob("*") if path.is_file()}
    assert regroup(["history", place.path, "--output", file, "--group", "busy-1", "--group", "g-2-0"]) == ExitCode.CLEAN
    (segment,) = (log / "__consumer_offsets-0").glob("*.log")
    size = segment.stat().st_size
    with segment.open("ab") as grown:
        grown.write(b"more, and not whole")
    chosen = ["--run", place.path, "--group", "busy-1", "--group", "g-2-0", "--group", "no\x1b"]
    assert history.APP.run([*chosen, "--run-id", "one"]) == ExitCode.CLEAN
    directory = tmp_path / "runs/c/w/_history/r/one"
    assert rows_of(directory) == pq.read_table(file).to_pylist()
    out, err = capfd.readouterr()
    assert err.endswith("regroup-history: warning: no committed offset of group 'no\\x1b' is in this log\n")
    told = json.loads(out.splitlines()[-1])
    assert (told["run"], told["groups"]) == (place.path, ["busy-1", "g-2-0", "no\x1b"])
    assert {path: path.read_bytes() for path in Path(place.path).rglob("*") if path.is_file()} == before
    # Each asking has a place of its own.
    assert history.APP.run(["--run", place.path]) == ExitCode.CLEAN
    assert len(list(directory.parent.iterdir())) == 2
    os.truncate(segment, size - 1)
    assert history.APP.run(chosen) == ExitCode.USAGE
    assert f"has been rewritten since: {segment}" in capfd.readouterr().err


@pytest.mark.usefixtures("shared")
def test_damage_is_that_of_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    segments = sorted(discover([str(log)]).segments, key=lambda one: one.offsets_partition)
    for segment in (segments[2], segments[7]):
        with open(segment.path, "r+b") as file:
            file.seek(segment.size - 1)
            file.write(b"\xff")
    for options in ([], ["--partial"], ["--salvage"]):
        file = tmp_path / "history.parquet"
        code = regroup(["history", str(log), "--output", str(file), "--kafka-version", "4.3.1", *options])
        said = capfd.readouterr().err
        assert code == (ExitCode.CLEAN if options else ExitCode.DAMAGED_INPUT)
        words = ["--snapshot", str(log), "--output", str(tmp_path / "out"), "--kafka-version", "4.3.1", *options]
        assert history.APP.run(words) == code
        out, err = capfd.readouterr()
        if not options:
            assert err == said.replace("regroup:", "regroup-history:")
            assert (segments[2].path in err, "bad_crc" in err, out) == (True, True, "")
            assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]
            continue
        told = json.loads(out.splitlines()[-1])
        assert told["complete"] is False
        warnings = [f"regroup: warning: {Damage(**entry)}" for entry in told["damage"]]
        assert said.splitlines()[: len(warnings)] == warnings
        assert said.count("bad_crc") == 2
        assert rows_of(tmp_path / "out") == pq.read_table(file).to_pylist()
        # A run says how it was read.
        place = RunPlace(str(tmp_path / "runs"), "c", "w", options[0].strip("-"))
        words = ["--output", place.output, "--cluster", place.cluster, "--window", place.window]
        assert regroup(["replay", str(log), *words, "--run-id", place.run_id, *options]) == ExitCode.CLEAN
        shutil.rmtree(tmp_path / "out")
        assert history.APP.run(["--run", place.path, "--output", str(tmp_path / "out")]) == ExitCode.CLEAN
        assert rows_of(tmp_path / "out") == pq.read_table(file).to_pylist()
        capfd.readouterr()
        shutil.rmtree(tmp_path / "out")
        file.unlink()


@pytest.mark.usefixtures("shared")
def test_a_log_without_groups(tmp_path: Path) -> None:
    """One file without rows, by which readers of the directory know the columns."""
    (tmp_path / "log/__consumer_offsets-0").mkdir(parents=True)
    (tmp_path / "log/__consumer_offsets-0/00000000000000000000.log").write_bytes(b"")
    words = ["--snapshot", str(tmp_path / "log"), "--output", str(tmp_path / "out"), *RULES]
    assert history.APP.run(words) == ExitCode.CLEAN
    assert pa.concat_tables(read_published(tmp_path / "out")).num_rows == 0
    assert pq.read_table(tmp_path / "out/history").schema.names == HISTORY.names


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--snapshot", "x"], "--output goes with --snapshot and --pin"),
        (["--snapshot", "x", "--output", "o", "--coordinator", "new"], "--coordinator goes with --kafka-version"),
        (["--snapshot", "x", "--output", "o", "--offsets-retention-ms", "0"], "0 is no number from 1 to "),
        (["--snapshot", "x", "--output", "o", "--offsets-retention-ms", "abc"], "'abc' is no whole number"),
        (["--run", "x", "--pin", "y"], "not allowed with"),
    ],
)
def test_unusable_arguments(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        history.APP.run(arguments)
    assert caught.value.code == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--snapshot", "/does/not/exist", "--output", "{out}"], "/does/not/exist: no such file or directory"),
        (["--run", "/does/not/exist"], "/does/not/exist is not a published run"),
        (["--snapshot", "{log}", "--output", "{out}", "--run-id", "a/b"], "run id 'a/b'"),
        (["--snapshot", "{log}", "--output", "{log}/new"], "lies inside the snapshot"),
    ],
)
def test_impossible_requests_do_not_start_spark(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    filled = [argument.format(log=log, out=tmp_path / "out") for argument in arguments]
    assert history.APP.run(filled) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]


@pytest.mark.full
def test_a_task_whose_worker_dies_is_done_again(tmp_path: Path) -> None:
    """What its first attempt has put into the table is there no more."""
    log = several(tmp_path / "log")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
    words = ["--master", "local[2,3]", "--snapshot", str(log), "--output", str(tmp_path / "out"), *RULES]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.history_driver", *words],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT), MARK: str(tmp_path / "failed")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == ExitCode.CLEAN, done.stderr
    assert (tmp_path / "failed").exists()
    told = json.loads(done.stdout.splitlines()[-1])
    rows, digest, _ = local(discover([str(log)]), Asked(profile_for_release("3.9.2", "classic")))
    assert (told["rows"], told["hash"]) == (rows.num_rows, digest)
    listed = json.loads((tmp_path / "out/history.json").read_text())["files"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"history", "history.json"}
    assert {f"history/{path.name}" for path in (tmp_path / "out/history").iterdir()} == set(listed)
    assert pq.read_table(tmp_path / "out/history").num_rows == rows.num_rows


@pytest.mark.full
def test_the_command_with_the_engine_spark(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = str(case("k431-txn").paths[0])
    said = []
    for output, engine in (("local.parquet", ["--digest"]), ("spark", ["--engine", "spark", "--master", "local[1]"])):
        words = ["history", log, "--output", str(tmp_path / output), "--kafka-version", "4.3.1", *engine]
        assert regroup([*words, "--group", "x-committed", "--group", "nobody"]) == ExitCode.CLEAN
        told = [line for line in capfd.readouterr().err.splitlines() if "digest" in line or "'nobody'" in line]
        # A warning of the application has the application's name.
        said.append([line.partition(": ")[2] for line in told])
    assert said[0] == said[1]
    assert len(said[0]) == 2
    assert rows_of(tmp_path / "spark") == pq.read_table(tmp_path / "local.parquet").to_pylist()
