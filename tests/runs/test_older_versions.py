"""Runs that earlier versions of Regroup published: they are read, and say what a run of today says of the same log.

``data/version-N.tar.gz`` was written by the last commit of that schema version, in the root of its checkout:
``python -m coordinator_core replay tests/corpus/k431-mixed/log --kafka-version 4.3.1 --now-ms 1790000000000
--output DIR --cluster c --window w --run-id r``.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from coordinator_core.runs.read import open_run
from coordinator_core.runs.schemas import READ_VERSIONS, SCHEMA_VERSION, TABLES
from tests.cases import case

NOW_MS = 1_790_000_000_000
DATA = Path(__file__).with_name("data")
OLDER = [version for version in READ_VERSIONS if version != SCHEMA_VERSION]


@pytest.fixture(scope="module", params=OLDER)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The run of an earlier version, and one of the same log by this one."""
    tmp_path = tmp_path_factory.mktemp("runs")
    older, now = (str(tmp_path / output / "c" / "w" / "r") for output in ("older", "now"))
    with tarfile.open(DATA / f"version-{request.param}.tar.gz") as archive:
        archive.extractall(Path(older).parent, filter="data")
    assert open_run(older).manifest["schema_version"] == request.param
    words = ["replay", *case("k431-mixed").command_line(), "--now-ms", str(NOW_MS)]
    words += ["--output", str(tmp_path / "now"), "--cluster", "c", "--window", "w", "--run-id", "r"]
    assert regroup(words) == ExitCode.CLEAN
    return older, now


def test_tables_and_hashes(runs: tuple[str, str]) -> None:
    older, now = map(open_run, runs)
    assert older.state_hash == now.state_hash
    assert older.states() == now.states()
    for name in TABLES:
        if name != "segments":  # They have paths of files.
            assert older.table(name).equals(now.table(name)), name
            assert older.table_hash(name) == now.table_hash(name), name


@pytest.mark.parametrize(
    "words",
    [
        ["describe", "--format", "json"],
        ["list", "--format", "json"],
        ["reconcile", "--no-log", "--format", "json"],
        ["report", "--no-log", "--format", "markdown"],
    ],
    ids=" ".join,
)
def test_commands(runs: tuple[str, str], words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    said = []
    for path in runs:
        capfd.readouterr()
        code = regroup([words[0], path, *words[1:]])
        said.append((code, capfd.readouterr().out.replace(path, "RUN")))
    assert said[0] == said[1]


def test_a_run_is_compared_with_an_older_one(runs: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    older, now = runs
    assert regroup(["diff", older, now]) == ExitCode.CLEAN
    found = []
    for words in (["--against", older], ["--against", now]):
        capfd.readouterr()
        regroup(["reconcile", now, *words, "--no-log", "--format", "json"])
        found.append(json.loads(capfd.readouterr().out))
    assert found[0]["previous"]["path"] == older
    for what in ("evaluated", "findings"):
        assert found[0][what] == found[1][what]


def test_what_has_no_digests_proves_nothing(runs: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert regroup(["verify", runs[0]]) == ExitCode.USAGE
    assert "its manifest has no digests" in capfd.readouterr().err


def test_a_table_that_is_gone_is_told(runs: tuple[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = shutil.copytree(runs[0], tmp_path / "run", ignore=lambda _, names: {"offsets"} & {*names})
    assert regroup(["describe", str(run)]) == ExitCode.DAMAGED_INPUT
    assert "offsets" in capfd.readouterr().err
