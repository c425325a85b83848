"""The compaction app: the bytes of the local engine, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from spark_apps import compact
from spark_apps.session import Session

from ..cases import case
from ..runs.logs import copy_log

RULES = ["--kafka-version", "4.3.1", "--now-ms", "1795260000000"]


@pytest.fixture
def shared(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app uses the session of all tests, and leaves it running."""

    class Shared:
        context = session.context

        def __init__(self, *_: object) -> None: ...
        def stop(self) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr("spark_apps.session.Session", Shared)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "compaction.json"
    }


@pytest.mark.usefixtures("shared")
def test_both_engines_write_the_same_bytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = str(case("k431-txn").paths[0])
    assert (
        regroup(["compact", snapshot, "--output", str(tmp_path / "local"), *RULES, "--format", "json"]) == 0
    )
    local = json.loads(capfd.readouterr().out)
    assert compact.run(["--snapshot", snapshot, "--output", str(tmp_path / "spark"), *RULES]) == 0
    spark = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert files(tmp_path / "spark") == files(tmp_path / "local")
    assert spark["engine"] == "spark"
    assert spark["partitions"] == local["partitions"]


@pytest.mark.usefixtures("shared")
def test_damage_ends_with_its_position_and_nothing_published(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = copy_log("k431-txn", tmp_path / "log")
    segment = next(path for path in sorted(log.glob("__consumer_offsets-*/*.log")) if path.stat().st_size)
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    code = compact.run(["--snapshot", str(log), "--output", str(tmp_path / "out"), *RULES])
    assert code == ExitCode.DAMAGED_INPUT
    assert "bad_crc" in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log"]


def test_earlier_output_and_wrong_arguments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    snapshot = str(case("k431-txn").paths[0])
    assert compact.run(["--snapshot", snapshot, "--output", str(tmp_path), *RULES]) == ExitCode.USAGE
    assert "exists already" in capfd.readouterr().err
    with pytest.raises(SystemExit) as caught:
        compact.run(["--snapshot", snapshot, "--output", "o", "--offsets-retention-ms", "5"])
    assert caught.value.code == ExitCode.USAGE
