"""A journal in object storage: one writer at a time, and all that it acted on is read, whenever it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from coordinator_core import claims, storage
from coordinator_core.claims import Claim
from coordinator_core.cluster.drill_recover import recover
from coordinator_core.cluster.settings import ClientSettings
from coordinator_core.drill.events import Outcome
from coordinator_core.drill.journal import (
    JOURNAL,
    JournalBusyError,
    JournalTakenError,
    JournalWriteError,
    journal_bytes,
    read_journal,
)
from coordinator_core.drill.shared_journal import SharedJournal, open_journal
from coordinator_core.errors import DamagedInputError, UsageError
from tests.log.object_store import ObjectStore, object_store

NEVER = 3600.0


@pytest.fixture(scope="module")
def bucket() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def path(bucket: ObjectStore, tmp_path: Path) -> str:
    return bucket.uri(f"{tmp_path.name}/{JOURNAL}")


def paces(patch: pytest.MonkeyPatch, renew: float, quiet: float) -> None:
    patch.setattr(claims, "RENEW_SECONDS", renew)
    patch.setattr(claims, "QUIET_SECONDS", quiet)


def numbers(path: str) -> list[Any]:
    return [event.get("number") for event in read_journal(path)[1:]]


def begun(journal: Any) -> None:
    journal.write("drill", journal_version=1)


def test_what_was_written_is_read_and_is_the_local_file(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Probes that wait longer than this are put for themselves.
    paces(monkeypatch, NEVER, NEVER)
    for place in (path, str(tmp_path / JOURNAL)):
        with open_journal(place) as journal:
            journal.write("drill", at_ms=1, journal_version=1, text="ünï\ud800")
            journal.write("probe", at_ms=2, number=1)
            journal.write("probe", at_ms=3, number=2)
        with open_journal(place) as journal:
            journal.write("verdict", at_ms=4, number=3)
    assert journal_bytes(path) == (tmp_path / JOURNAL).read_bytes()
    assert numbers(path) == [1, 2, 3]
    # Probes wait for what may not wait.
    assert len([one for one in storage.list_directory(path) if not one.is_directory]) == 3


def test_events_of_many_threads(path: str) -> None:
    with open_journal(path) as journal, ThreadPoolExecutor(8) as threads:
        begun(journal)
        list(threads.map(lambda number: journal.write("begin", number=number), range(60)))
        assert sorted(numbers(path)) == list(range(60))


def test_probes_do_not_wait_for_ever(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paces(monkeypatch, 0.05, NEVER)
    with open_journal(path) as journal:
        begun(journal)
        journal.write("probe", number=1)
        while numbers(path) != [1]:
            pass


def test_only_one_process_writes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paces(monkeypatch, 0.05, NEVER)
    with open_journal(path), pytest.raises(JournalBusyError, match=r"another apply is writing to it: process \d+ on"):
        open_journal(path, "another apply")
    with open_journal(path):
        pass


def test_of_two_that_begin_at_once_one_writes(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[SharedJournal] = []
    say = Claim._say

    def second_comes_between(claim: Claim, renewals: int) -> None:
        monkeypatch.setattr(Claim, "_say", say)
        held.append(SharedJournal(path))
        claim._say(renewals)

    monkeypatch.setattr(Claim, "_say", second_comes_between)
    with pytest.raises(JournalBusyError, match="a drill begins to write to it"):
        SharedJournal(path)
    with held[0] as journal:
        begun(journal)
    with open_journal(path) as journal:
        journal.write("probe", number=1)
    assert numbers(path) == [1]


def test_who_was_taken_over_is_told_before_it_acts(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paces(monkeypatch, NEVER, 0.2)
    stopped = open_journal(path)
    begun(stopped)
    with open_journal(path) as journal:
        for number in range(3):
            with pytest.raises(JournalTakenError, match=r"the event method does not count: taken over: process"):
                stopped.write("method", number=number)
        journal.write("verdict", number=9)
    stopped.write("probe", number=4)
    with pytest.raises(JournalTakenError):
        stopped.__exit__()
    # What it wrote too late stands before what the other wrote.
    assert numbers(path)[-1] == 9


def test_a_claim_that_waited_too_long_is_given_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paces(monkeypatch, NEVER, 0.2)
    say = Claim._say

    def stops_behind_its_claim(claim: Claim, renewals: int) -> None:
        monkeypatch.setattr(Claim, "_say", say)
        claim._say(renewals)
        with open_journal(path) as other:
            begun(other)

    monkeypatch.setattr(Claim, "_say", stops_behind_its_claim)
    with pytest.raises(JournalBusyError):
        SharedJournal(path)
    assert numbers(path) == []


def test_a_store_that_refuses(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paces(monkeypatch, NEVER, 0.2)
    put = storage.write_atomic
    refuses = threading.Event()

    def refusing(place: str, data: Any) -> None:
        if refuses.is_set():
            raise UsageError(f"{place}: cannot be written: no such bucket")
        put(place, data)

    monkeypatch.setattr(storage, "write_atomic", refusing)
    with open_journal(path) as journal:
        begun(journal)
        refuses.set()
        with pytest.raises(JournalWriteError, match=r"the event method cannot be written: .*no such bucket"):
            journal.write("method", number=1)
        refuses.clear()
        journal.write("verdict", number=2)
    assert numbers(path) == [2]


def test_damage_and_no_journal(path: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_journal(path)
    with open_journal(path) as journal:
        begun(journal)
    storage.write_atomic(storage.join(path, "999999-x-000000001.jsonl"), b"[]\n")
    with pytest.raises(DamagedInputError, match=r"byte [1-9]\d*: journal: not an event"):
        read_journal(path)


def test_a_drill_killed_before_its_first_line_needs_no_recovery(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paces(monkeypatch, NEVER, 0.2)

    def never(_: str) -> ClientSettings:
        raise AssertionError("nothing is asked of a cluster")

    with pytest.raises(UsageError, match="there is no journal, so nobody knows"):
        recover(path, never)
    stopped = open_journal(path)
    assert recover(path, never) == (Outcome.KILLED, True)
    with pytest.raises(JournalTakenError):
        begun(stopped)


_WRITER = """
import itertools, os, signal, sys
from coordinator_core import claims, storage
from coordinator_core.drill import shared_journal
path, wanted, moment = sys.argv[1], int(sys.argv[2]), sys.argv[3]
claims.RENEW_SECONDS, claims.QUIET_SECONDS = 3600.0, 0.2
put, counted = storage.write_atomic, itertools.count(1)
def put_and_count(*arguments):
    here = next(counted) == wanted
    if here and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    put(*arguments)
    if here and moment == "after":
        os.kill(os.getpid(), signal.SIGKILL)
storage.write_atomic = put_and_count
with shared_journal.open_journal(path) as journal:
    journal.write("drill", journal_version=1)
    for number in range(3):
        journal.write("probe", number=-1)
        journal.write("group", number=number)
        print(number, flush=True)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("wanted", range(1, 7))
def test_killed(wanted: int, moment: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each put: what it went on from is there, and the next one goes on behind it."""
    paces(monkeypatch, NEVER, 0.2)
    command = [sys.executable, "-c", _WRITER, path, str(wanted), moment]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    went_on = [int(line) for line in ended.stdout.split()]
    with open_journal(path) as journal:
        if not journal_bytes(path):
            assert went_on == []
            begun(journal)
        found = [number for number in numbers(path) if number >= 0]
        journal.write("verdict", number=9)
    assert found in (went_on, list(range(len(went_on) + 1)))
    assert numbers(path)[-1] == 9
