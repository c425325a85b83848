"""Old output goes, and nothing that anything refers to."""

from __future__ import annotations

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coordinator_core import storage
from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import ExitCode
from coordinator_core.fold.pin import write_pin
from coordinator_core.log.discovery import discover
from coordinator_core.runs import prune
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import MANIFEST, RunPlace
from coordinator_core.runs.publish import promote
from coordinator_core.runs.read import open_run
from coordinator_core.runs.registered import note_registration
from coordinator_core.runs.table_directory import message_path
from coordinator_core.runs.verify import verify_run
from tests import rights
from tests.kills import events_of, in_child, killed_at
from tests.log.object_store import object_store

from ..cases import case

DAYS = 10
DAY_MS = 86_400_000
NOW_MS = 1_795_000_000_000
REQUEST = re.compile(r"[A-Z]+ \S+ HTTP/1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of ten days, the last ten days of the clock, with pins; each compared with the one before."""
    tmp_path = tmp_path_factory.mktemp("made")
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
        for name in ("_reports", "_tombstones"):
            (tmp_path / f"c/day-{day}/{name}/r").mkdir(parents=True)
        at = (NOW_MS - (DAYS - day) * DAY_MS) / 1000
        for path in (*Path(where.path).rglob("*"), pin):
            os.utime(path, (at, at))
    return tmp_path


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of the test's own."""
    return shutil.copytree(made, tmp_path / "place")


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
        beside = [path for name in ("_findings", "_tombstones", "r") for path in place.glob(f"c/day-{day}/{name}/*")]
        assert bool(beside) == (day >= 6)
    assert open_run(str(place / "c/day-6/r")).table("offsets").num_rows > 0
    assert sorted(path.name for path in (place / "c").glob("day-*")) == [f"day-{day}" for day in range(6, DAYS)]
    assert sorted(path.name for path in (place / "c/_pins").iterdir()) == [f"day-{day}" for day in range(7, DAYS)]
    assert pruned(place, "--keep", "3", capsys=capsys)["removals"] == []


@pytest.mark.parametrize("link", ["newest", "day-9/newest"])
def test_nothing_goes_through_a_link(link: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "c" / link).symlink_to(place / "c/day-9" / ("r" if "/" in link else ""))
    (place / "c/_pins/newest").symlink_to("day-9")
    pruned(place, "--keep", "1", "--apply", "--now-ms", str(NOW_MS + DAY_MS), capsys=capsys)
    # The findings about 9 compare with 8.
    assert runs(place) == [8, 9]
    assert (place / "c" / link).is_symlink()
    assert (place / "c/_pins/day-9/a.json").exists()


def test_nothing_goes_while_the_latest_run_is_not_known(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "c/latest.json").write_text("")
    command = ["prune", str(place), "--cluster", "c", "--keep", "1", "--apply"]
    assert regroup(command) == ExitCode.USAGE
    assert "latest.json cannot be read" in capsys.readouterr().err
    assert runs(place) == list(range(DAYS))


def test_what_the_latest_run_is_compared_with_stays_also_when_that_is_gone(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(place / "c/day-9/r")
    for name in ("_reports", "_tombstones"):
        (place / f"c/day-9/{name}/r").rmdir()
    pruned(place, "--keep-days", "1", "--apply", capsys=capsys)
    assert runs(place) == [8]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"previous": 5}', '{"previous": {"window": "day-8"}}'])
def test_nothing_goes_while_the_run_compared_with_is_not_known(
    text: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = place.glob("c/day-9/_findings/r/*/reconciliation.json")
    path.write_text(text)
    before = sorted(place.rglob("*"))
    assert regroup(["prune", str(place), "--cluster", "c", "--now-ms", str(NOW_MS), "--keep", "1"]) == ExitCode.USAGE
    assert f"{path} cannot be read" in capsys.readouterr().err
    assert sorted(place.rglob("*")) == before


def test_a_file_among_the_windows_of_pins_is_none(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "c/_pins/.DS_Store").write_text("x")
    pruned(place, "--keep", "3", "--kind", "pins", "--apply", capsys=capsys)
    assert pins(place) == [7, 8, 9]


def test_what_is_younger_stays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pruned(place, "--keep-days", "4.5", "--kind", "pins", "--apply", capsys=capsys)
    assert pins(place) == [6, 7, 8, 9]
    assert runs(place) == list(range(DAYS))


def test_both_must_let_it_go(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pruned(place, "--keep", "8", "--keep-days", "2", "--kind", "pins", "--apply", capsys=capsys)
    assert pins(place) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_what_a_killed_writer_left_is_no_pin_to_keep(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = [place / f"c/_pins/day-{day}/.a.json.k1ll3d" for day in (8, 9)]
    for path, hours in zip(left, (30, 1), strict=True):
        path.write_bytes(b"{")
        os.utime(path, (NOW_MS / 1000 - hours * 3600,) * 2)
    pruned(place, "--keep", "3", "--kind", "pins", "--apply", capsys=capsys)
    assert pins(place) == [7, 8, 9]
    assert [path.exists() for path in left] == [False, True]


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
    table = next((place / "c/day-0/r").glob("*/*.parquet"))
    os.utime(table, (NOW_MS / 1000 - 80_000, NOW_MS / 1000 - 80_000))
    pruned(place, "--keep", "1", "--apply", capsys=capsys)
    assert table.exists()
    os.utime(table, (NOW_MS / 1000 - 90_000, NOW_MS / 1000 - 90_000))
    pruned(place, "--keep", "1", "--apply", capsys=capsys)
    assert not table.exists()


def test_what_was_left_beside_runs_goes_by_age(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a deletion under another name, in a version before too; about runs that are gone; of runs without a file."""
    window = place / "c/day-9"
    left = ["_0123456789abcdef/offsets", "_r-0123456789abcdef", "_findings/gone/x", "_reports/gone", "_catalogs/gone"]
    files = [window / directory / ".a.json.x1y2z3" for directory in left]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    (window / "empty/offsets").mkdir(parents=True)
    note_registration(str(window / "registered"), "lake", "regroup")
    before = sorted(path for path in window.rglob("*") if path not in files)
    for days, going in ((0.9, 0), (1.1, 6)):
        at = NOW_MS / 1000 - days * 86_400
        for path in (*files, window / "empty", *(window / "_catalogs").rglob("*")):
            os.utime(path, (at, at))
        found = pruned(place, "--keep", "9", "--kind", "runs", "--apply", capsys=capsys)["removals"]
        assert len(found) == going  # type: ignore[arg-type]
    gone = {window / name for name in ("_catalogs/gone", "_findings/gone", "_findings/gone/x", "_reports/gone")}
    gone |= {window / name for name in ("empty", "empty/offsets", *left[:2], "_0123456789abcdef")}
    assert sorted(window.rglob("*")) == [path for path in before if path not in gone]


def test_messages_of_killed_tasks_go_with_their_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = Path(message_path(str(place / "c/day-9/killed"), "fold"))
    message.parent.mkdir(parents=True)
    message.touch()
    os.utime(message, (NOW_MS / 1000 - 90_000, NOW_MS / 1000 - 90_000))
    pruned(place, "--keep", "9", "--kind", "runs", "--apply", capsys=capsys)
    assert not message.parent.parent.exists()


def test_what_is_no_run_stays(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A backup bucket that takes the runs, too; logs and captures below the output; a wrong output."""
    names = [
        "day-0/broker-1/__consumer_offsets-0/0.log",
        "compacted/day-0/x-0/0.log",
        "photos/2019/groups/a.jpg",
        "a/b/c",
        "logs/offsets/offsets.log",
        "mixed/r/offsets/.a.json.x1y2z3/b",
    ]
    files = [place / "c" / name for name in names]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (NOW_MS / 1000 - 90 * 86_400, NOW_MS / 1000 - 90 * 86_400))
    pruned(place, "--keep", "1", "--apply", capsys=capsys)
    assert [file for file in files if not file.exists()] == []
    assert len(runs(place)) < 9


def test_what_is_no_run_is_not_searched(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A link in a window may lead anywhere, also back; searched to the end, this takes for ever."""
    expected = pruned(place, "--keep", "1", capsys=capsys)
    for window in place.glob("c/day-*"):
        for name in ("one", "another"):
            (window / name).symlink_to(place)
    assert pruned(place, "--keep", "1", capsys=capsys) == expected


@pytest.mark.real
def test_each_window_of_a_bucket_is_listed_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "c/day-2/r" / MANIFEST).unlink()
    for day in range(DAYS):
        (place / f"c/day-{day}/_reports/r/report.json").touch()
        (place / f"c/day-{day}/_tombstones/r/expiry.json").touch()
    note_registration(str(place / "c/day-5/r"), "lake", "regroup")
    (place / "c/latest.json").write_text('{"path": "day-9/r"}')
    for path in place.rglob("*"):
        os.utime(path, (NOW_MS / 1000 - 3 * DAY_MS / 1000,) * 2)
    options = ("--keep-days", "2", "--format", "json")

    def going(found: object, output: str) -> list[list[str]]:
        assert isinstance(found, list)
        return sorted([one["path"].removeprefix(output), *sorted(one["with"])] for one in found)

    expected = going(pruned(place, *options, capsys=capsys)["removals"], str(place))
    assert [paths[0] for paths in expected if "_pins" not in paths[0]] == [f"/c/day-{n}/r" for n in (0, 1, 2, 3, 6, 7)]
    with object_store(age_days=3) as store:
        output = store.copy(place, "runs")
        before = len(REQUEST.findall((store.directory / "log").read_text()))
        assert regroup(["prune", output, "--cluster", "c", *options]) == ExitCode.CLEAN
        requests = len(REQUEST.findall((store.directory / "log").read_text())) - before
    found = going(json.loads(capsys.readouterr().out)["removals"], output)
    assert [[path.replace(output, str(place)) for path in paths] for paths in found] == expected
    assert requests < 3 * DAYS


@pytest.mark.parametrize("times", [pytest.param(2, marks=pytest.mark.real), pytest.param(50, marks=pytest.mark.full)])
def test_killed(place: Path, times: int, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left are whole runs, and what the next one removes."""

    def copied(name: str) -> Path:
        return shutil.copytree(place, place.with_name(name))

    def command(there: Path) -> list[str]:
        return ["prune", str(there), "--cluster", "c", "--now-ms", str(NOW_MS), "--keep", "3", "--apply"]

    def files(there: Path) -> list[Path]:
        return sorted(path.relative_to(there) for path in there.rglob("*") if path.is_file())

    writing = {prune.__file__, storage.__file__, shutil.__file__}
    expected, counted = copied("expected"), copied("counted")
    events = events_of(writing, lambda: regroup(command(counted)))
    pruned(expected, "--keep", "3", "--apply", capsys=capsys)
    for number in range(times):
        there = copied(f"{number}")
        # The first half looks for what is old.
        event = events // 2 + number * events // (2 * times)
        assert killed_at(event, writing, lambda there=there: regroup(command(there)))  # type: ignore[misc]
        for day in runs(there):
            assert not verify_run(open_run(str(there / f"c/day-{day}/r"))).damage
        pruned(there, "--keep", "3", "--apply", capsys=capsys)
        assert files(there) == files(expected)


def test_two_at_once(place: Path) -> None:
    removals = prune.prunable(str(place), "c", dict.fromkeys(prune.KINDS, prune.Keep(3)), NOW_MS)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(prune.prune, removals) for _ in range(4)]:
            done.result()
    assert runs(place) == [6, 7, 8, 9]


def test_what_cannot_be_deleted(place: Path) -> None:
    def files() -> list[Path]:
        return sorted(place.rglob("*"))

    before = files()
    (place / "c/_pins/day-0").chmod(0o555)
    command = ["prune", str(place), "--cluster", "c", "--now-ms", str(NOW_MS), "--keep", "3", "--apply"]
    code, said = in_child(rights.give_up, lambda: regroup(command))
    assert code == ExitCode.USAGE
    assert said.endswith("c/_pins/day-0/a.json: cannot be written: Permission denied\n")
    assert files() == before


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
