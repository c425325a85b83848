"""Commands that write, killed anywhere, on a full and on a read-only disk, two at once, and when the clock goes back.

What was there before stays, what appears is whole, and the next run writes the same. The fold cache has these tests in
``tests/runs/test_fold_cache.py``, captures in ``tests/cluster/test_one_broker.py``, journals in
``tests/drill/test_journal.py`` and ``tests/restore/test_live_kills.py``.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from coordinator_core import files, storage
from coordinator_core.cli.app import run
from coordinator_core.cluster import restore_apply
from coordinator_core.errors import ExitCode
from coordinator_core.lifecycle import compact, compact_publish, compact_write, publish_expiry
from coordinator_core.reports import investigation_files, report_files
from coordinator_core.restore import model
from coordinator_core.rules import publish as publish_findings
from coordinator_core.runs import proof, publish, signature
from tests import rights
from tests.cases import CORPUS
from tests.kills import events_of, killed_at
from tests.rules.logs import HEALTHY, classic, commit, one

NOW = ["--now-ms", "1800000000000"]
TOPOLOGY = str(CORPUS / "k431-cluster/expected/before/topics.json")
WRITING = {
    each.__file__
    for each in (
        *(files, storage, publish, proof, signature, publish_findings, publish_expiry, report_files),
        *(investigation_files, model, compact, compact_publish, compact_write, restore_apply),
    )
}
Content = dict[str, bytes]


class Writer(NamedTuple):
    """``words`` with LOG, RUN (of the test's own), OTHER, and OUT."""

    words: tuple[str, ...]
    again: bool = True
    """Whether it may write where its output is already."""


WRITERS = {
    "replay": Writer(
        ("replay", "LOG", "--output", "OUT", "--cluster", "c", "--window", "w", "--run-id", "r", *NOW), again=False
    ),
    "compact": Writer(("compact", "LOG", "--output", "OUT/log", *NOW), again=False),
    "reconcile": Writer(("reconcile", "RUN", "--publish", "--fail-on", "never", "--no-log")),
    "expire": Writer(("expire", "RUN", "--publish", "--offsets-retention-ms", "1")),
    "report": Writer(("report", "RUN", "--output", "OUT", "--no-log")),
    "investigate": Writer(("investigate", "RUN", "--output", "OUT")),
    "history": Writer(("history", "RUN", "--output", "OUT/history.parquet")),
    "restore plan": Writer(("restore", "plan", "RUN", "--all-groups", "--against", "OTHER", "--output", "OUT/plan")),
    "drill predict": Writer(
        (
            "drill",
            "predict",
            "RUN",
            "--topology",
            TOPOLOGY,
            "--scenario",
            "rolling-restart",
            "--output",
            "OUT/file.json",
        )
    ),
}


class Bench:
    """One writer, and a place for each time that it writes."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.writer = root, WRITERS[name]
        self.run = one(*HEALTHY, commit("h"), classic("h"), commit("old", "u")).publish(root / "now").path
        self.other = one(*HEALTHY, commit("h", offset=7)).publish(root / "before").path
        self.reference = self.made(self.place("reference"))
        second = self.made(self.place("second"))
        assert second.keys() == self.reference.keys()
        self.told_anew = {path for path, data in second.items() if data != self.reference[path]}
        """Files that say when or how fast they were written."""
        assert all(path.endswith((".json", ".html", ".md", ".prom", "plan")) for path in self.told_anew)

    def place(self, name: str) -> Path:
        place = self.root / name
        place.mkdir(parents=True)
        shutil.copytree(self.run, place / "RUN")
        return place

    def write(self, place: Path) -> int:
        places = {"LOG": str(self.root / "now/log"), "OTHER": self.other, "RUN": str(place / "RUN")}
        words = [places.get(word, word.replace("OUT", str(place / "OUT"), 1)) for word in self.writer.words]
        return run(words)

    def made(self, place: Path) -> Content:
        """What it writes."""
        with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(io.StringIO()) as error:
            assert self.write(place) in (ExitCode.CLEAN, ExitCode.FINDINGS), error.getvalue()
        return self.content(place)

    def content(self, place: Path, *, hidden: bool = False) -> Content:
        """The files there, without those that readers pass over: names with a dot, tables of a run without manifest."""
        found = {path: path.relative_to(place) for path in sorted(place.rglob("*")) if path.is_file()}
        return {
            str(name): path.read_bytes()
            for path, name in found.items()
            if hidden or not (any(part.startswith((".", "_staging")) for part in name.parts) or _of_no_run(path))
        }

    def is_whole(self, content: Content) -> None:
        for path, data in content.items():
            if path not in self.told_anew:
                assert data == self.reference[path], path
            elif path.endswith(".json"):
                json.loads(data)
            else:
                assert data.endswith(b"\n") or data.rstrip().endswith(b"</html>"), path


def _of_no_run(path: Path) -> bool:
    return path.match("part-*.parquet") and not (path.parent.parent / "manifest.json").exists()


@pytest.fixture(scope="module", params=WRITERS)
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("writer"), request.param)


@pytest.mark.parametrize("times", [pytest.param(2, marks=pytest.mark.real), pytest.param(50, marks=pytest.mark.full)])
def test_killed(bench: Bench, times: int) -> None:
    events = events_of(WRITING, lambda: bench.write(bench.place(f"counted{times}")))
    assert events > 5
    kills = 0
    for number in range(times):
        event = 1 + number * events // times
        place = bench.place(f"{times}-{number}")
        before = bench.content(place)
        if bench.writer.again and number % 2:
            before = bench.made(place)
        kills += killed_at(event, WRITING, lambda place=place: bench.write(place))  # type: ignore[misc]
        after = bench.content(place)
        assert before.keys() <= after.keys()
        bench.is_whole(after)
        if not bench.writer.again:
            place = bench.place(f"{times}-{number}-next")
        after = bench.made(place)
        bench.is_whole(after)
        assert after.keys() == bench.reference.keys()
    # A write over what is there already, or of modules that are loaded, may end some events earlier.
    assert kills > 0.8 * times


@pytest.mark.parametrize("limit", [0, 100])
def test_full_disk(bench: Bench, limit: int, capsys: pytest.CaptureFixture[str]) -> None:
    place = bench.place(f"full{limit}")
    before = bench.content(place, hidden=True)
    with room_of(limit):
        code = bench.write(place)
    error = capsys.readouterr().err.splitlines()
    assert code == ExitCode.APPLY_FAILED, error
    assert error[-1].startswith("regroup: error: ")
    assert error[-1].endswith("File too large")
    assert bench.content(place, hidden=True) == before


@contextmanager
def room_of(limit: int) -> Iterator[None]:
    """A limit on the size of files stands for a full disk: a write ends short, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_read_only(bench: Bench) -> None:
    place = bench.place("kept")
    (place / "OUT").mkdir()
    before = bench.content(place, hidden=True)
    directories = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for path in directories:
        path.chmod(0o555)
    code, error = _in_child(lambda: bench.write(place))
    assert (code, error.splitlines()[-1][:16]) == (ExitCode.USAGE, "regroup: error: ")
    assert error.endswith("cannot be written: Permission denied\n")
    assert bench.content(place, hidden=True) == before
    for path in directories:
        path.chmod(0o755)


def _in_child(work: Callable[[], int]) -> tuple[int, str]:
    """Exit code and standard error of work that has none of the rights of root."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            rights.give_up()
            sys.stderr = os.fdopen(writing, "w")
            sys.stdout = io.TextIOWrapper(io.BytesIO())
            code = work()
            sys.stderr.flush()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as file:
        error = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), error


def test_two_at_once(bench: Bench) -> None:
    place = bench.place("shared")
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            code = 99
            try:
                sys.stdout = sys.stderr = io.TextIOWrapper(io.BytesIO())
                code = bench.write(place)
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    # Whoever is second may find the output there.
    allowed = {ExitCode.CLEAN, ExitCode.FINDINGS} | (set() if bench.writer.again else {ExitCode.USAGE})
    assert set(codes) <= allowed
    assert set(codes) & {ExitCode.CLEAN, ExitCode.FINDINGS}
    after = bench.content(place)
    bench.is_whole(after)
    assert after.keys() == bench.reference.keys()


def test_a_clock_that_goes_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    place = bench.place("back")
    if bench.writer.again:
        bench.made(place)
    year_ns, now_ns = 365 * 86_400 * 10**9, time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() - year_ns)
    monkeypatch.setattr(time, "time", lambda: (now_ns() - year_ns) / 1e9)
    after = bench.made(place)
    bench.is_whole(after)
    assert after.keys() == bench.reference.keys()
