"""The journal of a drill survives a kill, and says where it is damaged."""

from __future__ import annotations

import errno
import json
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator_core.cli.app import run
from coordinator_core.cluster.client import Client
from coordinator_core.cluster.drill_restore import recover_cluster
from coordinator_core.cluster.errors import ClusterError
from coordinator_core.drill import journal
from coordinator_core.drill.canaries import canaries
from coordinator_core.drill.compare import compare
from coordinator_core.drill.events import COMPARED
from coordinator_core.drill.journal import (
    JOURNAL,
    JOURNAL_VERSION,
    Journal,
    JournalBusyError,
    JournalWriteError,
    of_kind,
    read_journal,
)
from coordinator_core.drill.load_lines import LoadLine, load_lines
from coordinator_core.drill.observed import observed
from coordinator_core.errors import DamagedInputError, ExitCode, UsageError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.reports.drill_report import drill_report
from tests import rights
from tests.drill.test_compare import FAULT, group, prediction
from tests.drill.test_compare import journal as journal_of
from tests.kills import events_of, in_child, killed_at
from tests.quota import refuse_writes


def begun(path: Path) -> Path:
    with Journal(path) as journal:
        journal.write("drill", at_ms=1, journal_version=1, text="ünï\ud800")
        journal.write("probe", at_ms=2, api="Heartbeat")
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    events = read_journal(begun(tmp_path / "j"))
    assert [event["event"] for event in events] == ["drill", "probe"]
    assert events[0]["text"] == "ünï\ud800"
    assert of_kind(events, "probe", api="Heartbeat") == events[1:]
    assert of_kind(events, "probe", api="OffsetFetch") == []


@pytest.mark.parametrize("left", [1, 10, 20])
def test_a_line_cut_off_by_a_kill_is_left_out_and_then_taken_away(tmp_path: Path, left: int) -> None:
    path = begun(tmp_path / "j")
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"at_ms": 3, "event": "verdict"}'[:left])
    assert len(read_journal(path)) == 2
    with Journal(path) as journal:
        journal.write("verdict", at_ms=4)
    assert path.read_bytes().startswith(whole)
    assert [event["at_ms"] for event in read_journal(path)] == [1, 2, 4]


def test_only_one_process_writes(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"), pytest.raises(JournalBusyError, match="a drill is writing to it") as raised:
        Journal(tmp_path / "j")
    # Trying again helps.
    assert raised.value.exit_code is ExitCode.INTERNAL
    with Journal(tmp_path / "j"):
        pass


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not an event"),
        (b'{"event": "x"}', "without its time"),
        (b"\xff", "JSON"),
    ],
)
def test_damage_is_named_by_its_byte(tmp_path: Path, line: bytes, detail: str) -> None:
    path = begun(tmp_path / "j")
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(DamagedInputError, match=rf"byte {size}: journal: .*{detail}"):
        read_journal(path)


WRONG: list[object] = [None, [], {}, [None], "x", "", -1, 1 << 63, 1e300, True]


def test_events_of_another_form_are_damage(tmp_path: Path) -> None:
    """Each field of each event absent, and of other types: read as what it is, or refused with its byte."""
    path, refused = tmp_path / "j", 0
    more = {"at_ms": FAULT + 5, "group_id": "g", "topic": "t", "partition": 0, "before": 7, "after": None}
    events = journal_of({"event": "backwards", **more}, {"event": "trouble", "at_ms": FAULT + 6, "text": "x"})
    for number, event in enumerate(events):
        for name in (key for key in event if key != "event"):
            for changed in (
                {key: event[key] for key in event if key != name},
                *({**event, name: one} for one in WRONG),
            ):
                path.write_text(
                    "".join(json.dumps(one) + "\n" for one in (*events[:number], changed, *events[number + 1 :]))
                )
                try:
                    read = read_journal(path, shapes=COMPARED)
                except (DamagedInputError, UsageError):
                    refused += 1
                    continue
                said, seen = prediction(), observed(read)
                drill_report(said, read, seen, compare(said, seen))
    assert refused > 500


@pytest.mark.parametrize("behind_ms", [{}, {"behind_ms": None}, {"behind_ms": float("nan")}, {"behind_ms": "5"}])
def test_an_offset_that_was_behind_says_for_how_long(
    tmp_path: Path, behind_ms: dict[str, object], capfd: pytest.CaptureFixture[str]
) -> None:
    offset = {"group_id": "g", "topic": "t", "partition": 0, "before": 7, "after": 5}
    lines = [
        json.dumps(one) + "\n" for one in journal_of({"event": "behind", "at_ms": FAULT + 5, **offset, **behind_ms})
    ]
    at = next(number for number, line in enumerate(lines) if '"behind"' in line)
    (tmp_path / "j").write_text("".join(lines))
    (tmp_path / "p").write_text(json.dumps(prediction(group()).to_json()))
    words = ["drill", "compare", str(tmp_path / "p"), str(tmp_path / "j"), "--output", str(tmp_path / "out")]
    assert run(words) == ExitCode.DAMAGED_INPUT
    place = sum(map(len, lines[:at]))
    assert f"byte {place}: journal: not an event behind: " in capfd.readouterr().err


def test_what_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with pytest.raises(UsageError, match="No such file"):
        read_journal(path)
    path.write_text("")
    with pytest.raises(DamagedInputError, match="begins with the event drill"):
        read_journal(path)
    # That of a restore has a verdict of its own.
    path.write_text('{"at_ms": 1, "event": "restore", "journal_version": 1}\n{"at_ms": 2, "event": "verdict"}\n')
    with pytest.raises(DamagedInputError, match="begins with the event drill"):
        read_journal(path, shapes=COMPARED)
    path.write_text('{"at_ms": 1, "event": "drill", "journal_version": 2}\n')
    with pytest.raises(UsageError, match="version 2"):
        read_journal(path)
    with pytest.raises(UsageError, match="Is a directory"):
        Journal(tmp_path)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_canaries_belong_to_their_partitions(count: int) -> None:
    found = canaries("d", range(count), count)
    assert [one.offsets_partition for one in found] == list(range(count))
    assert [partition_for(one.group_id, count) for one in found] == list(range(count))
    assert len({one.group_id for one in found}) == count


def test_loads_are_read_from_logs_of_any_release() -> None:
    new = (
        "[GroupCoordinator id=1] Finished loading of metadata from __consumer_offsets-7 with epoch 3 in 25ms "
        "where 2ms was spent in the scheduler. Loaded 1000 records which total to 52000 bytes."
    )
    classic = (
        "[GroupMetadataManager brokerId=2] Finished loading offsets and group metadata from "
        "__consumer_offsets-0 in 12 milliseconds for epoch 4, of which 3 milliseconds was spent in the "
        "scheduler."
    )
    assert list(load_lines([new, "something else", classic])) == [
        LoadLine(7, 3, 25, 2, 1000, 52000),
        LoadLine(0, 4, 12, 3, None, None),
    ]


@contextmanager
def room_for(path: Path, more: int) -> Iterator[None]:
    """A limit on the size of files stands for a full disk: a write ends short, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("more", [0, 1, 30])
def test_an_event_is_whole_or_not_there(tmp_path: Path, more: int) -> None:
    path = tmp_path / JOURNAL
    with Journal(path) as journal:
        journal.write("drill", journal_version=JOURNAL_VERSION)
        with room_for(path, more), pytest.raises(JournalWriteError, match="the event method cannot be written"):
            journal.write("method", stage="begins", text="x" * 100)
        journal.write("verdict", outcome="failed")
    assert [event["event"] for event in read_journal(path)] == ["drill", "verdict"]


@pytest.mark.parametrize("times", [12, pytest.param(50, marks=pytest.mark.full)])
def test_killed(times: int, tmp_path: Path) -> None:
    """At any event of the code: what was written before is there, and the next one goes on behind it."""
    path = tmp_path / JOURNAL

    def write() -> None:
        with Journal(path) as opened:
            opened.write("drill", journal_version=JOURNAL_VERSION)
            for number in range(9):
                opened.write("probe" if number % 2 else "group", number=number)

    writing = {journal.__file__}
    events = events_of(writing, write)
    for number in range(times):
        path.unlink()
        assert killed_at(1 + number * (events - 1) // (times - 1), writing, write)
        if path.exists() and b"\n" in path.read_bytes():
            found = read_journal(path)
            with Journal(path) as opened:
                opened.write("verdict")
            numbers = [event["number"] for event in found[1:]]
            assert numbers == list(range(len(numbers)))
            assert read_journal(path)[:-1] == found
        path.touch()
    assert len(found) == 10


@pytest.mark.parametrize(
    ("begin", "code", "reason"),
    [
        (partial(refuse_writes, errno.EDQUOT), ExitCode.APPLY_FAILED, "Disk quota exceeded"),
        (rights.give_up, ExitCode.USAGE, "cannot be written: Permission denied"),
    ],
)
def test_quota_and_read_only(tmp_path: Path, begin: Callable[[], None], code: ExitCode, reason: str) -> None:
    (tmp_path / "prediction.json").write_text(json.dumps(prediction(group()).to_json()))
    tmp_path.chmod(0o555)
    words = ["drill", "observe", "--bootstrap-server", "127.0.0.1:1", "--prediction", str(tmp_path / "prediction.json")]
    words += ["--output", str(tmp_path / "drill"), "--fault-command", "true", "--recover-command", "true"]

    def work() -> int:
        if code == ExitCode.USAGE:
            return run(words)
        try:
            with Journal(tmp_path / JOURNAL) as opened:
                opened.write("drill", journal_version=JOURNAL_VERSION)
        except JournalWriteError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        return 0

    found, said = in_child(begin, work)
    tmp_path.chmod(0o755)
    assert found == code, said
    assert said.endswith(f"{reason}\n")
    assert not (tmp_path / JOURNAL).exists() or not (tmp_path / JOURNAL).stat().st_size


def test_a_clock_that_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = begun(tmp_path / JOURNAL)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    with Journal(path) as opened:
        opened.write("verdict")
    assert [event["at_ms"] for event in read_journal(path)] == [1, 2, 0]


@pytest.mark.parametrize("more", [0, 40, 200])
def test_the_recover_command_is_run_when_the_journal_is_full(tmp_path: Path, more: int) -> None:
    path, ran = tmp_path / JOURNAL, tmp_path / "recovered"
    nobody = SimpleNamespace(topic=lambda name: SimpleNamespace(partitions=()))
    with Journal(path) as journal:
        journal.write("drill", journal_version=JOURNAL_VERSION)
        with room_for(path, more), pytest.raises(JournalWriteError, match="was run, and the cluster is as it was"):
            recover_cluster(
                lambda: cast(Client, nobody),
                journal.write,
                f"mkdir {ran}",
                in_sync_before={},
                command_seconds=30,
                limit_seconds=1,
                by="a test",
            )
        assert ran.exists()
        journal.write("verdict", outcome="failed")
    assert read_journal(path)[-1]["event"] == "verdict"


@pytest.mark.parametrize("command, recovered", [("mkdir {ran}", True), ("true", False)])
def test_the_recover_command_is_run_before_any_broker_is_asked(tmp_path: Path, command: str, recovered: bool) -> None:
    path, ran = tmp_path / JOURNAL, tmp_path / "recovered"

    def connect() -> Client:
        if not ran.exists():
            raise ClusterError("no bootstrap server can be used")
        return cast(Client, SimpleNamespace(topic=lambda name: SimpleNamespace(partitions=())))

    with Journal(path) as journal:
        journal.write("drill", journal_version=JOURNAL_VERSION)
        found = recover_cluster(
            connect,
            journal.write,
            command.format(ran=ran),
            in_sync_before={},
            command_seconds=30,
            limit_seconds=1,
            by="a test",
        )
    [restored] = [event for event in read_journal(path) if event["event"] == "restored"]
    reason = None if recovered else "no bootstrap server can be used"
    assert (found, restored["restored"], restored["reason"]) == (recovered, recovered, reason)
