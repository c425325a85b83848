"""The table ``history`` of everything, made column by column, has the rows of the histories of each group."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from coordinator_core.cli.app import run
from coordinator_core.errors import DamagedInputError, ExitCode
from coordinator_core.history.judge import Judge
from coordinator_core.history.model import Deletions, Place
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.parts import Asked, history_parts
from coordinator_core.history.read import read_history
from coordinator_core.history.rows import history_rows, place_of
from coordinator_core.history.table import HISTORY
from coordinator_core.history.taking import take_history
from coordinator_core.kernels import gather_requests
from coordinator_core.kernels.arrays import new_rows
from coordinator_core.kernels.mode import UNCOMPILED
from coordinator_core.log import reader, windows
from coordinator_core.log.discovery import CLEAN_SHUTDOWN_FILE, discover
from coordinator_core.log.limits import STANDING_VARIABLE
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, ControlType, SegmentFile, Snapshot
from coordinator_core.merge.packed import PackedTexts
from coordinator_core.records.codec import encode_key
from coordinator_core.releases import Profile, profile_for_release
from tests.cases import CASES, FEW_CASES, Case, cross_section
from tests.fold import random_logs
from tests.history.further import FURTHER
from tests.history.incidents import INCIDENTS, Incident
from tests.history.logs import DAY, HOUR, T0, Client, Log, modern_member
from tests.log.builders import build_batch, write_partition

Row = dict[str, Any]


def one_by_one(snapshot: Snapshot, profile: Profile, on_damage: OnDamage = OnDamage.SALVAGE) -> list[Row]:
    """The rows by the reference: a history of each group, record after record."""
    deletions = Deletions()
    groups = [
        group
        for log in snapshot.partitions
        for group in read_history(
            log,
            profile,
            groups=None,
            deletions=deletions,
            topic_names=snapshot.topic_names,
            on_damage=on_damage,
            damage=[],
            texts=PackedTexts(),
        ).groups.values()
    ]
    Judge(profile, deletions).judge(groups)
    settle_origins(groups)
    return [row for group in groups for row in history_rows(group)]


def tabled(snapshot: Snapshot, profile: Profile, on_damage: OnDamage = OnDamage.SALVAGE, **how: Any) -> list[Row]:
    asked = Asked(profile, snapshot.topic_names, on_damage, **how)
    tables = [part.table for part in history_parts(snapshot, asked, [])]
    assert all(table.schema.equals(HISTORY) for table in tables)
    for table in tables:
        table.validate(full=True)
    return [row for table in tables for row in table.to_pylist()]


def check(snapshot: Snapshot, profile: Profile) -> list[Row]:
    """Compare, whole and in small portions. A group's rows are in one order in both, groups are not."""
    expected = sorted(one_by_one(snapshot, profile), key=_place)
    for how in ({}, {"portion_rows": 3, "special_records": 5}):
        rows = tabled(snapshot, profile, **how)
        assert [row for group in _by_group(rows) for row in group] == rows
        assert sorted(rows, key=_place) == expected
    return expected


def _place(row: Row) -> tuple[Any, ...]:
    return row["offsets_partition"], row["group_id"], row["topic"], row["partition"], row["record_offset"]


def _by_group(rows: list[Row]) -> list[list[Row]]:
    groups: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["offsets_partition"], row["group_id"]), []).append(row)
    return [sorted(group, key=_place) for group in groups.values()]


@pytest.mark.parametrize("case", cross_section(CASES, FEW_CASES))
def test_logs_of_brokers(case: Case) -> None:
    check(discover([str(path) for path in case.paths]), profile_for_release(case.release, case.coordinator))


@pytest.mark.parametrize("incident", [*INCIDENTS, *FURTHER][::5], ids=lambda one: one.id)
def test_incidents(incident: Incident, tmp_path: Path) -> None:
    snapshot = discover([str(incident.build(tmp_path / "log", True))])
    check(snapshot, profile_for_release(incident.release, "new" if "new" in incident.arguments else None))


def test_large_metadata_are_read_a_block_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    for value in range(40):
        # Each goes back, so that it is a row of its own.
        keys = {("orders", number): 1000 - value for number in range(3)}
        # Every other value of a key has its own metadata.
        log.wait(1000).commit("g", keys, metadata=f"{value // 2}" * 2000)
        log.wait(1000).commit("h" if value % 9 else "i", keys, metadata="" if value % 3 else "é" * 3000)
    log.tombstones("i", ("orders", 0))
    snapshot, profile = discover([str(log.write(tmp_path / "log"))]), profile_for_release("3.9.2", None)
    expected = sorted(one_by_one(snapshot, profile), key=_place)
    monkeypatch.setattr("coordinator_core.merge.packed.BLOCK_BYTES", 20_000)
    monkeypatch.setattr("coordinator_core.history.table.BLOCK_BYTES", 20_000)
    monkeypatch.setattr("coordinator_core.history.spill._WHOLE_BYTES", 0)
    monkeypatch.setattr("coordinator_core.history.taking._MOST_METADATA_BYTES", 10_000)
    tables = [part.table for part in history_parts(snapshot, Asked(profile), [])]
    assert len(tables) > 10
    assert all(sum(len(text.as_py().encode()) for text in table["metadata"]) < 60_000 for table in tables)
    assert sorted((row for table in tables for row in table.to_pylist()), key=_place) == expected
    monkeypatch.setenv(STANDING_VARIABLE, "1000")
    with pytest.raises(DamagedInputError, match="too_large"):
        list(history_parts(snapshot, Asked(profile), []))


def random_log(random: Random, directory: Path) -> Path:
    """Groups that only commit, groups that rebalance too, and a few that lose offsets or commit in transactions."""
    log = Log(T0 + random.randrange(DAY))
    clients = [
        Client(f"m-{one}", instance_id=f"i-{one}" if one == 1 else None, host=f"/10.0.0.{one}") for one in (1, 2)
    ]
    ends: dict[tuple[str, int], int] = {}
    for number in range(600):
        log.commit_version = random.choice((1, 2, 3, 3, 3, 4))
        log.wait(random.choice((0, 1, 20, 5000, 5000)))
        if random.random() < 0.02:
            log.codec = random.choice(tuple(Codec))
        if random.random() < 0.01:
            log.skip(3)
        if random.random() < 0.005:
            log.epoch += 1
        if random.random() < 0.01:
            log.roll()
        group = random.choice(("connect-one", "two", "three", "four", "a-StreamThread-1", "lost", "exactly-once"))
        what = random.random()
        if what < 0.05 and group not in ("two", "lost"):
            partitions = [[("orders", one) for one in range(4) if one % 2 == half] for half in (0, 1)]
            members = [replace(one, partitions=tuple(own)) for one, own in zip(clients, partitions, strict=True)]
            log.generation(group, number // 100, *members[: random.randrange(3)])
        elif what < 0.07 and group != "two":
            log.records((encode_key(2, {"group": group}), None))
        elif what < 0.3 and group == "lost":
            log.tombstones(group, ("orders", random.randrange(4)))
        else:
            producer_id = 9 if group == "exactly-once" and what < 0.5 else -1
            offsets = {("orders", one): random.randrange(1 << random.choice((8, 40))) for one in range(4)}
            for key in random.sample(list(offsets), 2):
                offsets[key] = ends[group, key[1]] = ends.get((group, key[1]), 0) + random.randrange(50)
            metadata = random.choice(("", "", "m", "größer"))
            epoch = random.choice((-1, 5, 5))
            log.commit(group, offsets, leader_epoch=epoch, metadata=metadata, producer_id=producer_id)
            if producer_id > 0:
                log.marker(random.choice((ControlType.COMMIT, ControlType.ABORT)), producer_id)
    return log.write(directory)


@pytest.mark.parametrize(("release", "coordinator"), [("3.9.2", "classic"), ("4.3.1", None)])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)])
def test_random_logs(
    seed: int, release: str, coordinator: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "_WINDOW", 20_000)
    monkeypatch.setattr(reader, "_NEAR", 2000)
    snapshot = discover([str(random_log(Random(seed), tmp_path))])
    rows = check(snapshot, profile_for_release(release, coordinator))
    (log,) = snapshot.partitions
    with ThreadPoolExecutor(1) as thread:
        profile = profile_for_release(release, coordinator)
        taken = take_history(log, profile, Deletions(), {}, thread, damage=[])
    # Else the comparison would be of one reader with itself.
    assert set(taken.special) == {"lost", "exactly-once"}
    assert len({row["origin_evidence"] for row in rows}) > 5


@pytest.mark.parametrize(
    ("release", "key", "stays_open"),
    [
        ("4.3.1", struct.pack(">hh", 0, 6), True),
        ("4.3.1", struct.pack(">hh", -1, 1), True),
        ("3.9.2", struct.pack(">hh", -1, 1), True),
        ("3.9.2", b"", True),
        # The Scala loader takes every other type for an abort.
        ("3.9.2", struct.pack(">hh", 0, 6), False),
    ],
)
def test_a_control_record_that_ends_no_transaction(release: str, key: bytes, stays_open: bool, tmp_path: Path) -> None:
    log = Log().commit("plain", {("orders", 0): 3}).commit("lost", {("orders", 0): 5, ("orders", 1): 6}, producer_id=7)
    log.control(key, 7).wait(1000).commit("plain", {("orders", 0): 2}).marker(ControlType.COMMIT, 7)
    log.wait(1000).commit("plain", {("orders", 0): 1})
    if stays_open:
        log.tombstones("lost", ("orders", 0))
    snapshot, profile = discover([str(log.write(tmp_path))]), profile_for_release(release)
    rows = check(snapshot, profile)
    assert [row["committed_offset"] for row in rows if row["group_id"] == "plain"] == [3, 2, 1]
    # Both are valid from the COMMIT marker on, at 5, and the tombstone is at 7.
    lost = [(row["committed_offset"], row["valid_from"], row["valid_to"]) for row in rows if row["group_id"] == "lost"]
    assert lost == ([(5, 5, 7), (6, 5, None)] if stays_open else [])


def test_a_leader_epoch_below_minus_one_counts_as_none(tmp_path: Path) -> None:
    log = Log()
    for epoch in (-1, -2, -2, 3, -2):
        log.wait(5000).commit("g", {("t", 0): 5 + epoch}, leader_epoch=epoch)
    rows = check(discover([str(log.write(tmp_path))]), profile_for_release("4.3.1"))
    assert {row["leader_epoch"] for row in rows} == {None, 3}


def test_a_group_id_of_malformed_bytes_that_is_too_long_for_a_key(tmp_path: Path) -> None:
    """Each of its bytes is one character of three bytes once it is decoded."""
    key = random_logs.encoded_key(b"\xff" * 32767, b"t", 0)
    pairs = [(key, random_logs.offset_value(3, offset, b"")) for offset in (5, 6)]
    write_partition(tmp_path, {0: build_batch(0, pairs)})
    rows = check(discover([str(tmp_path)]), profile_for_release("4.3.1"))
    assert [row["committed_offset"] for row in rows] == [5, 6]


def rows_of(log: Log, directory: Path, release: str, group: str) -> list[Row]:
    """The rows of a group, which are the same in the table of everything, in small portions, and alone."""
    snapshot, profile = discover([str(log.write(directory))]), profile_for_release(release)
    rows = [row for row in check(snapshot, profile) if row["group_id"] == group]
    assert sorted(tabled(snapshot, profile, groups=frozenset([group])), key=_place) == rows
    return rows


def test_commits_without_a_time_are_of_one_request_where_they_follow_each_other(tmp_path: Path) -> None:
    """Records of message format 0 have none: that of all of them is -1."""
    log = Log(group_version=1, commit_version=1, magic=0)
    log.commit("g", {("orders", 0): 9}).commit("g", {("orders", 0): 5})
    log.commit("g", {("orders", 0): 3, ("orders", 1): 3}).commit("h", {("orders", 0): 1}).commit("g", {("pay", 0): 1})
    rows = check(discover([str(log.write(tmp_path))]), profile_for_release("0.9.0.1"))
    told = {row["record_offset"]: row["origin_evidence"].split("; ")[1] for row in rows}
    one, two = (f"{number} at once, without leader epochs, and not again" for number in ("1 partition", "2 partitions"))
    assert told == {0: one, 1: one, 2: two, 3: two, 4: one, 5: one}


def test_removals_of_other_groups_make_no_difference(tmp_path: Path) -> None:
    """A group loses two offsets one after the other, 40 ms apart; another one loses one between them."""
    log, keys = Log(), {("t", 0): 1, ("u", 0): 1}
    log.commit("a", keys).commit("b", keys).wait(HOUR).tombstones("a", ("t", 0))
    log.wait(20).tombstones("b", ("t", 0)).wait(20).tombstones("a", ("u", 0))
    log.wait(5000).commit("c", keys)
    first, _ = rows_of(log, tmp_path, "3.9.2", "a")
    assert first["cause_evidence"] == "offsets that went: 1; that stayed in the group: 1"


@pytest.mark.parametrize("is_open", [False, True])
def test_what_stays_is_what_was_there_when_an_offset_went(is_open: bool, tmp_path: Path) -> None:
    """An offset that a sweep would have taken, too, stays, and is committed anew 40 ms later: no sweep has been
    there, unless a transaction was open. Another group loses an offset in between."""
    log = Log().commit("a", {("t", 0): 1, ("u", 0): 1}).wait(1000).commit("b", {("t", 0): 1}).wait(8 * DAY)
    if is_open:
        log.commit("a", {("u", 0): 2}, producer_id=7).wait(1000)
    log.tombstones("a", ("t", 0)).wait(20).tombstones("b", ("t", 0)).wait(20)
    if is_open:
        log.marker(ControlType.COMMIT, 7)
    else:
        log.commit("a", {("u", 0): 2})
    log.wait(5000).commit("c", {("x", 0): 1})
    causes = [row["cause"] for row in rows_of(log, tmp_path, "4.3.1", "a") if row["topic"] == "t"]
    assert causes == ["expiry" if is_open else "topic deletion"]


@pytest.mark.parametrize(("named_by", "owners"), [("a", [None, None]), ("b", ["A", "B"])])
@pytest.mark.parametrize("only_commits", [False, True])
def test_a_group_tells_the_names_of_its_own_topics(
    only_commits: bool, named_by: str, owners: list[str | None], tmp_path: Path
) -> None:
    """The group b has two members, whose assignments have topic ids; a record of type 4 names the topic."""
    topic = "AAAAAAAAAAAAAAAAAAAAAQ"
    names = {"topics": [{"topicId": topic, "topicName": "orders", "numPartitions": 2, "partitionMetadata": []}]}
    log = Log().modern((3, {"groupId": named_by}, {"epoch": 1}), (4, {"groupId": named_by}, names))
    log.modern(*(modern_member("b", one) for one in "AB"), (3, {"groupId": "b"}, {"epoch": 2}))
    log.modern(*(modern_assignment("b", one, topic, at) for at, one in enumerate("AB")))
    for number in (0, 1):
        log.wait(1000).commit("b", {("orders", number): 5})
    if not only_commits:
        log.wait(1000).tombstones("b", ("other", 0))
    rows = rows_of(log, tmp_path, "4.0.0", "b")
    assert [row["member_id"] for row in rows] == owners


def modern_assignment(
    group: str, member: str, topic_id: str, partition: int
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    value = {
        "memberEpoch": 2,
        "previousMemberEpoch": 1,
        "state": 0,
        "assignedPartitions": [{"topicId": topic_id, "partitions": [partition]}],
        "partitionsPendingRevocation": [],
    }
    return 8, {"groupId": group, "memberId": member}, value


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        # The first segment reaches into the range of the second, or the second begins in that of the first.
        ([0, 1, 2, 12, 13], [14, 15]),
        ([0, 1, 2], [6, 7, 8, 10, 11]),
        # What was read already is passed over.
        ([0, 1, 12], [10, 11, 12, 13, 14]),
    ],
)
def test_segments_that_overlap(first: list[int], second: list[int], magic: int, tmp_path: Path) -> None:
    """A broker reads them after a clean shutdown, and a row has the segment with the record."""
    log = Log(magic=magic, commit_version=1)
    for base, offsets in ((0, first), (10, second)):
        if base:
            log.roll().base = base
        for offset in offsets:
            log.next_offset = offset
            log.wait(1000).commit(f"group-{offset}" if offset % 2 else "both", {("orders", 0): 100 - offset})
    log.write(tmp_path)
    (tmp_path / CLEAN_SHUTDOWN_FILE).touch()
    snapshot, profile = discover([str(tmp_path)]), profile_for_release("3.9.2")
    expected = sorted(one_by_one(snapshot, profile, OnDamage.RECOVER), key=_place)
    assert sorted(tabled(snapshot, profile, OnDamage.RECOVER), key=_place) == expected
    read = {(row["record_offset"], row["segment"]) for row in expected}
    behind = [offset for offset in second if offset > first[-1]]
    assert read == {(offset, f"{base:020d}.log") for base, offsets in ((0, first), (10, behind)) for offset in offsets}


@pytest.fixture
def malformed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log with names that are no UTF-8, some of them late."""
    real = Log._key
    monkeypatch.setattr(Log, "_key", lambda _, *key: real(*key).replace(b"?", b"\xff"))
    log = Log()
    for number in range(300):
        group, topic = ("plain", "orders") if number % 7 else ("first?", "t?")
        log.commit("second?" if number == 100 else group, {(topic, 0): 1000 * number**2})
    return log.write(tmp_path / "log")


def test_malformed_names(malformed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with the first malformed name comes again: from there on names are looked at before they are numbered."""
    monkeypatch.setattr(windows, "_WINDOW", 2000)
    monkeypatch.setattr(reader, "_NEAR", 500)
    rows = check(discover([str(malformed)]), profile_for_release("4.3.1", None))
    assert {(row["group_id"], row["topic"]) for row in rows} >= {("plain", "orders"), ("first\ufffd", "t\ufffd")}


def test_uncompiled_kernels_make_the_same_file(malformed: Path, tmp_path: Path) -> None:
    files = [tmp_path / "compiled.parquet", tmp_path / "uncompiled.parquet"]
    for file, changes in zip(files, ({}, {UNCOMPILED: "1", "PYTHONWARNINGS": "ignore"}), strict=True):
        words = [sys.executable, "-m", "coordinator_core", "history", str(malformed), "--output", str(file)]
        subprocess.run([*words, "--kafka-version", "4.3.1"], check=True, env={**os.environ, **changes})
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_group_as_investigate_shows_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The file has the rows of ``regroup investigate --group``."""
    path, file = str(random_log(Random(1), tmp_path / "log")), str(tmp_path / "out" / "history.parquet")
    assert run(["history", path, "--output", file, "--kafka-version", "4.3.1"]) == ExitCode.CLEAN
    assert "no committed offset of" not in capfd.readouterr().err
    absent = str(tmp_path / "absent.parquet")
    assert run(["history", path, "--output", absent, "--kafka-version", "4.3.1", "--group", "no\x1b"]) == ExitCode.CLEAN
    assert "warning: no committed offset of group 'no\\x1b' is in this log" in capfd.readouterr().err
    rows = pq.read_table(file, filters=[("group_id", "=", "lost")]).to_pylist()
    words = ["investigate", path, "--group", "lost", "--kafka-version", "4.3.1", "--format", "json"]
    assert run(words) in (ExitCode.CLEAN, ExitCode.FINDINGS)
    assert sorted(rows, key=_place) == sorted(json.loads(capfd.readouterr().out)["history"], key=_place)


@pytest.mark.parametrize("times", [(5, 6, 7), (-1, 0, (1 << 63) - 1)])
def test_requests_are_of_one_group_and_time(times: tuple[int, ...]) -> None:
    random = Random(1)
    rows = sorted(
        (random.randrange(4), at, random.choice(times), *random.choices(range(-1, 9), k=3)) for at in range(200)
    )
    chosen = np.array(sorted(random.sample(range(200), 100)), np.int64)
    groups, offsets, time, commits, epochs, versions = (
        np.array(column, np.int64) for column in zip(*rows, strict=True)
    )
    narrow = epochs.astype(np.int32), versions.astype(np.int32)
    found, numbers = np.asarray(new_rows("GatheredRequest", 100)), np.empty(100, np.int64)
    count = gather_requests(chosen, groups[chosen], time, offsets, commits, *narrow, found, numbers)
    expected: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for row in chosen.tolist():
        group, offset, at, *others = rows[row]
        expected.setdefault((group, at), []).append((offset, *others))
    assert found[:count].tolist() == [
        (
            *place,
            min(one[0] for one in members),
            len(members),
            max(one[1] for one in members),
            max(one[2] for one in members),
            min(one[3] for one in members),
        )
        for place, members in expected.items()
    ]
    places = list(expected)
    assert [places[number] for number in numbers.tolist()] == [(rows[row][0], rows[row][2]) for row in chosen.tolist()]


def test_the_name_of_a_segment_has_no_options_of_its_store() -> None:
    path = "s3://bucket/__consumer_offsets-0/00000000000000000007.log?endpoint_override=h:1/x&scheme=http"
    assert place_of(Place(0, 7, 0, path, 0, 0))["segment"] == "00000000000000000007.log"
    assert SegmentFile(path, 0, 7, 0).name == "00000000000000000007.log"
