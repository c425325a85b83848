"""Commands that write: killed anywhere, full or read-only disk, quota, two at once, a clock that goes back.

What was there before stays, what appears is whole, and the next run writes the same. :data:`ELSEWHERE` has the places
that write and are in no row here.
"""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, cached_property
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from coordinator_core.cli.app import main, run
from coordinator_core.errors import ExitCode
from tests import rights
from tests.cases import CORPUS
from tests.drill.test_compare import group, journal, prediction
from tests.ingest import dumps
from tests.kills import events_of, in_child, interrupted_at, killed_at
from tests.quota import refuse_writes
from tests.rules.logs import HEALTHY, Log, classic, commit, consumer_group, log_of, one
from tests.test_project import ROOT
from tests.writing import missing_tests, writers

NOW = ["--now-ms", "1800000000000"]
TOPOLOGY = str(CORPUS / "k431-cluster/expected/before/topics.json")
Content = dict[str, bytes]
DONE = {ExitCode.CLEAN, ExitCode.FINDINGS}


class Writer(NamedTuple):
    """``words`` with RUN (of the test's own), OUT, and what :class:`Bench` has for all of them."""

    words: tuple[str, ...]
    again: bool = True
    """Whether it may write where its output is already."""


WRITERS = {
    "replay": Writer(
        ("replay", "LOG", "--output", "OUT", "--cluster", "c", "--window", "w", "--run-id", "r", *NOW), again=False
    ),
    "compact": Writer(("compact", "LOGS", "--output", "OUT/log", *NOW), again=False),
    "import-records": Writer(
        ("import-records", "RECORDS", "--output", "OUT/log", "--isolation-level", "read_committed"), again=False
    ),
    "rescue": Writer(
        (
            *("rescue", "STUCK", "--repair", "OUT/repaired", "--names", "OUT/names.csv", "--kafka-version", "4.3.1"),
            *("--offsets-topic-num-partitions", "3", *NOW),
        ),
        again=False,
    ),
    "reconcile": Writer(("reconcile", "RUN", "--publish", "--fail-on", "never", "--no-log", "--sign-key", "KEY")),
    "expire": Writer(("expire", "RUN", "--publish", "--offsets-retention-ms", "1")),
    "report": Writer(
        (
            *("report", "RUN", "--output", "OUT", "--no-log", "--sign-key", "KEY"),
            *("--textfile", "OUT/metrics", "--openlineage", "OUT/lineage.jsonl"),
        )
    ),
    "audit export": Writer(
        ("audit", "export", "RUN", "--output", "OUT/evidence", "--sign-key", "KEY", *NOW), again=False
    ),
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
    "drill compare": Writer(("drill", "compare", "PREDICTION", "JOURNAL", "--output", "OUT")),
    "compact to others": Writer(
        (
            *("compact", "LOGS", "--output", "OUT/log", "--expire", "--offsets-retention-ms", "1"),
            *("--offsets-partitions", "5", "--renumber", "--kafka-version", "4.3.1", *NOW),
        ),
        again=False,
    ),
}
FEW = {"replay", "compact", "reconcile", "report"}
"""Writers that are tried in each way below the full tier: of a run, of a log, and of files that are there already."""
FEWEST = {"compact", "reconcile"}
"""Those that are killed and interrupted there."""

each_writer = pytest.mark.parametrize(
    "bench",
    [name if name in FEW else pytest.param(name, marks=pytest.mark.full) for name in WRITERS],
    indirect=True,
)


def _given(root: Path) -> dict[str, str]:
    """What writers are given, in files that none of them changes; ``RUN`` is copied for each."""
    run = one(*HEALTHY, commit("h"), classic("h"), commit("old", "u")).publish(root / "now").path
    other = one(*HEALTHY, commit("h", offset=7)).publish(root / "before").path
    several = {
        number: log_of(classic(f"g{number}"), commit(f"g{number}"), commit(f"old{number}", "u")) for number in (0, 1)
    }
    Log({**several}, num_partitions=2).publish(root / "several")
    one(commit("stuck"), classic("stuck"), consumer_group("stuck")[0]).publish(root / "stuck")
    rows = [dumps.row(at, *commit(f"g{at}")) for at in range(3)]
    (root / "prediction.json").write_text(json.dumps(prediction(group()).to_json()))
    (root / "journal.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in journal()))
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (root / "key.pem").write_bytes(key)
    return {
        "RUN": run,
        "LOG": str(root / "now/log"),
        "LOGS": str(root / "several/log"),
        "STUCK": str(root / "stuck/log"),
        "RECORDS": str(dumps.write(root / "records.parquet", rows)),
        "OTHER": other,
        "PREDICTION": str(root / "prediction.json"),
        "JOURNAL": str(root / "journal.jsonl"),
        "KEY": str(root / "key.pem"),
    }


class Bench:
    """One writer, and a place for each time that it writes."""

    def __init__(self, root: Path, name: str, given: dict[str, str]) -> None:
        self.root, self.writer, self.given = root, WRITERS[name], given
        self.entered: set[str] = set()
        with _noting(self.entered):
            self.reference = self.made(self.place("reference"))

    @cached_property
    def told_anew(self) -> set[str]:
        """Files that say when or how fast they were written."""
        second = self.made(self.place("second"))
        assert second.keys() == self.reference.keys()
        found = {path for path, data in second.items() if data != self.reference[path]}
        kinds = (".json", ".jsonl", ".html", ".md", ".prom", ".sig", "SHA256SUMS", "plan")
        assert all(path.endswith(kinds) for path in found)
        return found

    def place(self, name: str) -> Path:
        place = self.root / name
        place.mkdir(parents=True)
        shutil.copytree(self.given["RUN"], place / "RUN")
        return place

    def write(self, place: Path) -> int:
        return run(self.words(place))

    def words(self, place: Path) -> list[str]:
        places = self.given | {"RUN": str(place / "RUN")}
        return [places.get(word, word.replace("OUT", str(place / "OUT"), 1)) for word in self.writer.words]

    def made(self, place: Path) -> Content:
        """What it writes."""
        with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(io.StringIO()) as error:
            assert self.write(place) in DONE, error.getvalue()
        return self.content(place)

    def content(self, place: Path, *, hidden: bool = False) -> Content:
        """The files there, without those that readers pass over: names with a dot, tables of a run without manifest."""
        found = {path: path.relative_to(place) for path in sorted(place.rglob("*")) if path.is_file()}
        return {
            str(name): path.read_bytes()
            for path, name in found.items()
            if hidden or not (any(part.startswith((".", "_staging")) for part in name.parts) or _of_no_run(path))
        }

    def everything(self, place: Path) -> tuple[Content, list[Path]]:
        """The files there, hidden ones too, and the directories."""
        return self.content(place, hidden=True), sorted(path for path in place.rglob("*") if path.is_dir())

    def is_whole(self, content: Content) -> None:
        for path, data in content.items():
            if path not in self.told_anew:
                assert data == self.reference[path], path
            elif path.endswith(".json"):
                json.loads(data)
            elif path.endswith(".sig"):
                assert len(data) == 64
            else:
                assert data.endswith(b"\n") or data.rstrip().endswith(b"</html>"), path


@cache
def writing() -> set[str]:
    """Files of the product that write."""
    return {str(ROOT / place.partition(":")[0]) for place in writers()}


def _of_no_run(path: Path) -> bool:
    return path.match("part-*.parquet") and not (path.parent.parent / "manifest.json").exists()


@contextmanager
def _noting(entered: set[str]) -> Iterator[None]:
    """Note the functions of the product that are entered meanwhile, in all threads."""

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            entered.add(f"{code.co_filename.removeprefix(root)}:{code.co_qualname}")

    root = f"{ROOT}/"

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    shared = _given(tmp_path_factory.mktemp("given"))
    return cache(lambda name: Bench(tmp_path_factory.mktemp("writer"), name, shared))


@pytest.fixture
def bench(request: pytest.FixtureRequest, benches: Callable[[str], Bench]) -> Bench:
    found = benches(request.param)
    # Before a test changes the clock.
    assert found.told_anew is not None
    return found


@pytest.mark.parametrize(
    "bench, times",
    [
        *(pytest.param(name, 2, marks=pytest.mark.real) for name in WRITERS if name in FEWEST),
        *(pytest.param(name, 50, marks=pytest.mark.full) for name in WRITERS),
    ],
    indirect=["bench"],
)
def test_killed(bench: Bench, times: int) -> None:
    events = events_of(writing(), lambda: bench.write(bench.place(f"counted{times}")))
    assert events > 5
    kills = 0
    for number in range(times):
        event = 1 + number * events // times
        place = bench.place(f"{times}-{number}")
        before = bench.content(place)
        if bench.writer.again and number % 2:
            before = bench.made(place)
        kills += killed_at(event, writing(), lambda place=place: bench.write(place))  # type: ignore[misc]
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


@pytest.mark.parametrize(
    "bench, times",
    [
        *(pytest.param(name, 1, marks=pytest.mark.real) for name in WRITERS if name in FEWEST),
        *(pytest.param(name, 10, marks=pytest.mark.full) for name in WRITERS),
    ],
    indirect=["bench"],
)
def test_interrupted(bench: Bench, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By SIGINT and SIGTERM, anywhere in the command and where it writes: one line, and nothing that is half there."""
    everywhere = {str(path) for path in (ROOT / "coordinator_core").rglob("*.py")}
    signals = (signal.SIGINT, signal.SIGTERM)
    temporary = bench.root / f"temporary{times}"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    hit = left = 0
    for name, files in {"all": everywhere, "writes": writing()}.items():
        events = events_of(files, lambda: bench.write(bench.place(f"events-{name}{times}")), threads=False)  # noqa: B023
        for number, how in ((number, how) for number in range(times) for how in signals):
            event = 2 + (2 * number + signals.index(how)) * events // (2 * times)
            place = bench.place(f"{name}{times}-{number}-{how.name}")
            before = bench.content(place, hidden=True)
            errors = place.with_name(f"{place.name}.err")
            words = bench.words(place)
            code = interrupted_at(event, files, how, str(errors), lambda words=words: main(words))  # type: ignore[misc]
            said = errors.read_text()
            assert "Traceback" not in said, said
            assert list(temporary.iterdir()) == []
            after, directories = bench.everything(place)
            assert before.keys() <= after.keys()
            bench.is_whole(bench.content(place))
            more = after.keys() - before.keys() - bench.reference.keys() - {"OUT/c/.latest.json.lock"}
            kept = {above for path in after for above in (place / path).parents}
            left += bool(more or set(directories) - kept)
            if code not in DONE:
                assert (code, said.splitlines()[-1]) == (ExitCode.INTERNAL, "regroup: error: interrupted")
                hit += 1
    assert hit > times
    # Python has places, between a context manager and its block, where an interrupt passes the end of both.
    assert left <= max(1, hit // 10)


@each_writer
def test_nothing_is_written_into_what_is_read(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    place = bench.place("read")
    places = bench.given | {"RUN": str(place / "RUN")}
    read = {places[word] for word in bench.writer.words if word in places and Path(places[word]).is_dir()}
    outputs = [at for at, word in enumerate(bench.writer.words) if word.startswith("OUT")]
    for path in read:
        before = {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}
        for output in [str(min(before)), *([f"{path}/new"] if path == places["RUN"] else [])]:
            for at in outputs:
                words = bench.words(place)
                words[at] = output
                assert run(words) == ExitCode.USAGE
                assert f"the output {output} lies inside" in capsys.readouterr().err
        assert {file: file.read_bytes() for file in Path(path).rglob("*") if file.is_file()} == before


def test_no_file_that_is_read_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, topology = tmp_path / "log", tmp_path / "log/topology.json"
    one(*HEALTHY).publish(tmp_path)
    shutil.copy(TOPOLOGY, topology)
    (tmp_path / "drill.json").write_text("{}")
    (segment,) = log.rglob("*.log")
    (tmp_path / "link").symlink_to(topology)
    predict = ["drill", "predict", "--scenario", "rolling-restart"]
    for words, output in (
        ([*predict, str(log), "--topology", str(topology)], tmp_path / "link"),
        ([*predict, str(segment.parent)], topology),
        (["rescue", str(segment), "--kafka-version", "4.3.1", "--names"], segment),
        (["drill", "compare", str(tmp_path / "drill.json"), TOPOLOGY], tmp_path),
    ):
        option = [] if words[-1] == "--names" else ["--output"]
        assert run([*words, *option, str(output)]) == ExitCode.USAGE
        assert str(output) in capsys.readouterr().err
    assert topology.read_bytes() == Path(TOPOLOGY).read_bytes()


@pytest.mark.parametrize(
    "named",
    [
        pytest.param("LOG", marks=pytest.mark.full),
        "LOG/__consumer_offsets-0",
        pytest.param("LOG/__consumer_offsets-0/SEGMENT", marks=pytest.mark.full),
        "RUN",
    ],
)
def test_beside_a_log_is_room_and_in_its_partitions_is_none(
    named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the place of an output, whether it is there already or not."""
    run_path, log = one(*HEALTHY).publish(tmp_path).path, tmp_path / "log"
    shutil.copytree(log / "__consumer_offsets-0", log / "orders-0")
    (segment,) = (log / "__consumer_offsets-0").iterdir()
    before = {file: file.read_bytes() for file in log.rglob("*") if file.is_file()}
    path = run_path if named == "RUN" else named.replace("LOG", str(log)).replace("SEGMENT", segment.name)
    words = ["investigate", path, *([] if named == "RUN" else NOW), "--output"]
    refused = ["__consumer_offsets-0", "__consumer_offsets-0/pages", "__consumer_offsets-0/new.json"]
    if named in ("LOG", "RUN"):
        refused += ["__consumer_offsets-9", "orders-0/pages"]
    for output in refused:
        assert run([*words, str(log / output)]) == ExitCode.USAGE
        assert f"the output {log / output} lies inside" in capsys.readouterr().err
    for output in ("topics.json", "capture.json", "recovery-point-offset-checkpoint"):
        assert run([*words, str(log / output)]) == ExitCode.USAGE
        assert f"the output {log / output} is read by this command" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in log.rglob("*") if file.is_file()} == before
    for output in ("", "pages-2026", "topics.json.d"):
        for _ in range(2):
            assert run([*words, str(log / output)]) in DONE


def test_a_partition_directory_may_be_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one(*HEALTHY).publish(tmp_path)
    log, disk = tmp_path / "log", tmp_path / "disk"
    disk.mkdir()
    (log / "__consumer_offsets-0").rename(disk / "__consumer_offsets-0")
    link = log / "__consumer_offsets-0"
    link.symlink_to(disk / "__consumer_offsets-0")
    (segment,) = link.iterdir()
    before = segment.read_bytes()
    for path, output in (
        (log, segment),
        (log, disk / "__consumer_offsets-0/new.json"),
        (link, segment),
        (link, log / "topics.json"),
    ):
        plan = ["restore", "plan", str(path), "--all-groups", "--against", str(path), "--output", str(output)]
        assert run(plan) == ExitCode.USAGE
        assert f"the output {output}" in capsys.readouterr().err
    assert segment.read_bytes() == before


def test_an_output_beside_a_log_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one(*HEALTHY).publish(tmp_path)
    monkeypatch.chdir(tmp_path / "log")
    plan = ["restore", "plan", ".", "--all-groups", "--against", ".", "--output", "plan.json"]
    assert [run(plan), run(plan)] == [ExitCode.CLEAN, ExitCode.CLEAN]


@each_writer
@pytest.mark.parametrize("limit", [0, 100])
def test_full_disk(bench: Bench, limit: int, capsys: pytest.CaptureFixture[str]) -> None:
    place = bench.place(f"full{limit}")
    before = bench.everything(place)
    with room_of(limit):
        code = bench.write(place)
    error = capsys.readouterr().err.splitlines()
    assert code == ExitCode.APPLY_FAILED, error
    assert error[-1].startswith("regroup: error: ")
    assert error[-1].endswith("File too large")
    assert bench.everything(place) == before


@contextmanager
def room_of(limit: int) -> Iterator[None]:
    """A limit on the size of files stands for a full disk: a write ends short, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@each_writer
def test_quota(bench: Bench) -> None:
    place = bench.place("quota")
    before = bench.everything(place)
    code, error = in_child(lambda: refuse_writes(errno.EDQUOT), lambda: bench.write(place))
    assert code == ExitCode.APPLY_FAILED, error
    assert error.splitlines()[-1].startswith("regroup: error: ")
    assert error.endswith("cannot be written: Disk quota exceeded\n")
    assert bench.everything(place) == before


@each_writer
def test_read_only(bench: Bench) -> None:
    place = bench.place("kept")
    (place / "OUT").mkdir()
    before = bench.everything(place)
    directories = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for path in directories:
        path.chmod(0o555)
    code, error = in_child(rights.give_up, lambda: bench.write(place))
    assert (code, error.splitlines()[-1][:16]) == (ExitCode.USAGE, "regroup: error: ")
    assert error.endswith("cannot be written: Permission denied\n")
    assert bench.everything(place) == before
    for path in directories:
        path.chmod(0o755)


@each_writer
def test_two_at_once(bench: Bench) -> None:
    place = bench.place("shared")
    children = []
    errors = [bench.root / f"shared{number}.err" for number in range(2)]
    for error in errors:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO()), error.open("w")
                code = bench.write(place)
                sys.stderr.flush()
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    # Whoever is second may find the output there.
    assert set(codes) <= DONE | (set() if bench.writer.again else {ExitCode.USAGE})
    assert set(codes) & DONE
    for code, error in zip(codes, errors, strict=True):
        if code == ExitCode.USAGE:
            said = error.read_text()
            assert any(
                text in said for text in ("exists already", "has evidence already", "another process has written")
            )
    after = bench.content(place)
    bench.is_whole(after)
    assert after.keys() == bench.reference.keys()


@each_writer
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


CAPTURE = (
    "tests/cluster/test_one_broker.py::test_a_capture_killed_anywhere_passes_for_nothing_and_is_finished_by_the_next"
)
JOURNAL = "tests/drill/test_journal.py::test_killed"
SHARED_JOURNAL = "tests/drill/test_shared_journal.py::test_killed"
UPLOAD = "tests/cluster/test_upload.py::test_killed"
OF_ATTEMPT = "a file of one attempt; the next one has another"
TEMPORARY = "a temporary directory of the process"
ELSEWHERE = {
    "coordinator_core/claims.py:Claim._end": SHARED_JOURNAL,
    "coordinator_core/claims.py:Claim._say": SHARED_JOURNAL,
    "coordinator_core/process/streams.py:_Results.write": "the null device",
    "coordinator_core/cluster/files.py:PartitionFiles._roll": CAPTURE,
    "coordinator_core/cluster/files.py:PartitionFiles._scan": CAPTURE,
    "coordinator_core/cluster/files.py:PartitionFiles.cut": CAPTURE,
    "coordinator_core/cluster/restore_apply.py:apply_plan": (
        "tests/restore/test_live_kills.py::test_killed_at_30_points"
    ),
    "coordinator_core/cluster/snapshot.py:CaptureDirectory.begin": CAPTURE,
    "coordinator_core/cluster/snapshot.py:CaptureDirectory._upload": UPLOAD,
    "coordinator_core/cluster/snapshot.py:CaptureDirectory.write": CAPTURE,
    "coordinator_core/cluster/snapshot.py:CaptureDirectory.write_log_start_offsets": CAPTURE,
    "coordinator_core/cluster/tls.py:_load": TEMPORARY,
    "coordinator_core/coordinator/trace/read.py:add_given": "the trace itself, by write_atomic alone",
    "coordinator_core/drill/journal.py:Journal.__init__": JOURNAL,
    "coordinator_core/drill/journal.py:Journal._cut_torn_line": JOURNAL,
    "coordinator_core/drill/journal.py:Journal._append": JOURNAL,
    "coordinator_core/drill/shared_journal.py:SharedJournal._put": SHARED_JOURNAL,
    "coordinator_core/fold/cache.py:_write": "tests/runs/test_fold_cache.py::test_a_killed_run_leaves_whole_entries",
    "coordinator_core/lifecycle/forecast_publish.py:ForecastPart.write": OF_ATTEMPT,
    "coordinator_core/merge/shards.py:MergedShard.stored": OF_ATTEMPT,
    "coordinator_core/merge/shards.py:store_rows": OF_ATTEMPT,
    "coordinator_core/lifecycle/approved.py:_read_pinned": TEMPORARY,
    "coordinator_core/lifecycle/compact_newest.py:store_newest": OF_ATTEMPT,
    "coordinator_core/lifecycle/compact_newest.py:store_survivors": OF_ATTEMPT,
    "coordinator_core/lifecycle/compact_tasks.py:_fold": OF_ATTEMPT,
    "coordinator_core/lifecycle/compact_parts.py:_write": OF_ATTEMPT,
    "coordinator_core/merge/cuts.py:cut_folds": OF_ATTEMPT,
    "coordinator_core/reports/history_publish.py:write_part": OF_ATTEMPT,
    "coordinator_core/rules/figures_publish.py:publish_figures": "as publish_findings: figures.json last",
    "coordinator_core/storage.py:_write_remote": (
        "tests/log/test_conditional.py::test_where_a_file_is_seen_while_it_is_written_it_is_renamed"
    ),
    "coordinator_core/storage.py:download": TEMPORARY,
    "coordinator_core/storage.py:upload": UPLOAD,
    "dags/common/maintain.py:find": OF_ATTEMPT,
    "dags/common/restore.py:_read": OF_ATTEMPT,
    "expectations/data_docs.py:write_data_docs": "tests/expectations/test_data_docs.py::test_killed",
    "expectations/frames.py:StoredTable.spread": TEMPORARY,
    "expectations/gate.py:_gx_context": TEMPORARY,
    "spark_apps/classdata.py:ClassData.jvm_options": (
        "tests/spark/test_classdata.py::test_leftovers_of_killed_sessions_go"
    ),
    "spark_apps/compact.py:_new_log": (
        "tests/spark/test_compact_app.py::test_damage_ends_with_its_position_and_nothing_published"
    ),
    "spark_apps/exits.py:tell": "for the process that waits for it",
    "spark_apps/history_tasks.py:_write_special": OF_ATTEMPT,
    "spark_apps/history_tasks.py:take_partitions": OF_ATTEMPT,
    "spark_apps/tasks.py:_staged": OF_ATTEMPT,
}
"""Places that no row enters: the test that they have, or why they need none."""


def test_every_place_that_writes_is_known(benches: Callable[[str], Bench]) -> None:
    entered = set().union(*(benches(name).entered for name in WRITERS))
    assert writers() - entered == ELSEWHERE.keys()
    assert missing_tests(" ".join(ELSEWHERE.values())) == []
