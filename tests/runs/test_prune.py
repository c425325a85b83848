"""Old output goes, and nothing that anything refers to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from coordinator_core.fold.pin import write_pin
from coordinator_core.log.discovery import discover
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.publish import MANIFEST, promote
from coordinator_core.runs.read import open_run

from ..cases import case

DAYS = 10
DAY_MS = 86_400_000
NOW_MS = 1_795_000_000_000


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Runs of ten days, the last ten days of the clock, with pins; each compared with the one before."""
    log = discover([str(case("k082/after").paths[0])])
    for day in range(DAYS):
        where = RunPlace(str(tmp_path), "c", f"day-{day}", "r")
        manifest = replay_to_run(log, where, profile=None, now_ms=day)
        promote(where, manifest)
        pin = tmp_path / f"c/_pins/day-{day}/a.json"
        write_pin(log, str(pin))
        if day:
            against = str(tmp_path / f"c/day-{day - 1}/r")
            command = ["reconcile", where.path, "--against", against, "--publish", "--format", "json"]
            assert regroup(command) in (ExitCode.CLEAN, ExitCode.FINDINGS)
        (tmp_path / f"c/day-{day}/_reports/r").mkdir(parents=True)
        at = (NOW_MS - (DAYS - day) * DAY_MS) / 1000
        for path in (Path(where.path) / MANIFEST, pin):
            os.utime(path, (at, at))
    return tmp_path


def runs(place: Path) -> list[int]:
    return sorted(int(path.parent.parent.name[4:]) for path in place.glob(f"c/day-*/r/{MANIFEST}"))


def pins(place: Path) -> list[int]:
    return sorted(int(path.parent.name[4:]) for path in place.glob("c/_pins/*/*.json"))


def pruned(place: Path, *options: str, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    command = ["prune", str(place), "--cluster", "c", "--now-ms", str(NOW_MS), "--format", "json", *options]
    assert regroup(command) == ExitCode.CLEAN
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_without_apply_nothing_goes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(place.rglob("*"))
    told = pruned(place, "--keep", "3", capsys=capsys)
    assert told["applied"] is False
    # The runs 0 to 5, and not 6: the findings about 7 compare with it.
    assert len(told["removals"]) == 6 + 7  # type: ignore[arg-type]
    assert sorted(place.rglob("*")) == before


def test_the_newest_stay_and_what_they_are_compared_with(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pruned(place, "--keep", "3", "--apply", capsys=capsys)
    assert runs(place) == [6, 7, 8, 9]
    assert pins(place) == [7, 8, 9]
    for day in range(DAYS):
        beside = [path for name in ("_findings", "_reports", "r") for path in place.glob(f"c/day-{day}/{name}/*")]
        assert bool(beside) == (day >= 6)
    assert open_run(str(place / "c/day-6/r")).table("offsets").num_rows > 0
    assert pruned(place, "--keep", "3", capsys=capsys)["removals"] == []


def test_what_is_younger_stays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pruned(place, "--keep-days", "4.5", "--kind", "pins", "--apply", capsys=capsys)
    assert pins(place) == [6, 7, 8, 9]
    assert runs(place) == list(range(DAYS))


def test_both_must_let_it_go(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pruned(place, "--keep", "8", "--keep-days", "2", "--kind", "pins", "--apply", capsys=capsys)
    assert pins(place) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_the_latest_run_stays_however_old_it_is(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "c/latest.json").write_text(json.dumps({"path": "day-2/r"}))
    pruned(place, "--keep", "1", "--kind", "runs", "--apply", capsys=capsys)
    # With the runs that the findings about 2 and 9 compare them with.
    assert runs(place) == [1, 2, 8, 9]


def test_what_was_made_within_a_day_stays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in place.glob("c/_pins/*/*.json"):
        os.utime(path, (NOW_MS / 1000 - 80_000, NOW_MS / 1000 - 80_000))
    assert pruned(place, "--keep", "1", "--kind", "pins", capsys=capsys)["removals"] == []


def test_a_run_that_is_being_written_is_none_to_prune(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "c/day-0/r" / MANIFEST).unlink()
    pruned(place, "--keep", "1", "--apply", capsys=capsys)
    assert list((place / "c/day-0/r").glob("*/*.parquet"))


@pytest.mark.parametrize(
    "options, said",
    [
        ([], "say what stays"),
        (["--keep", "0"], "0 is not in the range"),
        (["--keep", "1", "--cluster", "a/b"], "cluster 'a/b'"),
        (["--keep", "1", "--cluster", "other"], "no such directory"),
    ],
)
def test_impossible_requests(options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert regroup(["prune", str(tmp_path), "--cluster", "c", *options]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
