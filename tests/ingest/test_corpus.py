"""Logs of real brokers as a consumer reads them, imported from Parquet: what a replay can tell and cannot."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.errors import Damage
from coordinator_core.ingest.publish import IsolationLevel, import_records
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.records.codec import decode_key
from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.runs.state_hash import all_digests, state_hash
from tests.cases import CASES, FEW_CASES, TORN, Case, case, cross_section
from tests.ingest.dumps import Row, consumed, row, write
from tests.runs.state_tables import state_tables

WHOLE = [item for item in CASES if item not in TORN and len(item.paths) == 1]
OffsetKey = tuple[str, str, int]
Commits = dict[OffsetKey, tuple[int, int]]
"""Committed offset and record offset."""


def imported(item: Case, directory: Path, level: IsolationLevel) -> tuple[Path, list[Row], dict[str, Any]]:
    rows = consumed(item.paths[0], level)
    write(directory / "records.parquet", rows)
    document = import_records([str(directory / "records.parquet")], str(directory / "log"), level)
    return directory / "log", rows, document


def commits(log_dir: Path, item: Case, on_damage: OnDamage = OnDamage.FAIL) -> Commits:
    states = replay_snapshot(
        discover([str(log_dir)]),
        profile_for_release(item.release, item.coordinator),
        on_damage=on_damage,
        damage=[],
    )
    return {
        (offset_key.group_id, offset_key.topic, offset_key.partition): (
            commit.committed_offset,
            commit.record_offset,
        )
        for state in states
        for offset_key, commit in state.offsets.items()
    }


@cache
def truth(item: Case) -> Commits:
    return commits(item.paths[0], item)


def offset_keys(rows: list[Row]) -> set[OffsetKey]:
    """Offset keys of records of committed offsets."""
    keys = [decode_key(each["key"]) for each in rows if each["key"][:2] in (b"\0\0", b"\0\1")]
    fields = [key.data for key in keys if key.data is not None]
    return {(each["group"], each["topic"], each["partition"]) for each in fields}


@pytest.mark.parametrize("level", IsolationLevel)
@pytest.mark.parametrize("item", cross_section(WHOLE))
def test_records_are_kept(item: Case, level: IsolationLevel, tmp_path: Path) -> None:
    log_dir, rows, _ = imported(item, tmp_path, level)
    kept = [
        row(
            record.offset,
            record.key,
            record.value,
            partition=log.offsets_partition,
            timestamp=record.timestamp_ms,
            timestampType={"CreateTime": 0, "LogAppendTime": 1}[batch.timestamp_type],
            headers=[{"key": name, "value": value} for name, value in record.headers] or None,
        )
        for log in discover([str(log_dir)]).partitions
        for _, batch, records in read_records(log)
        for record in records
    ]
    assert kept == [{**each, "timestampType": max(0, each["timestampType"])} for each in rows]


@pytest.mark.parametrize("item", cross_section(WHOLE, FEW_CASES))
def test_read_committed_has_the_commits_of_the_log(item: Case, tmp_path: Path) -> None:
    """But for offset keys with records behind the last stable offset, which a consumer has not seen yet, and those
    of which the import says that a tombstone leaves them undecided."""
    log_dir, rows, document = imported(item, tmp_path, IsolationLevel.READ_COMMITTED)
    ends = {each["partition"]: each["offset"] for each in rows}
    unseen = offset_keys(
        [
            each
            for each in consumed(item.paths[0], IsolationLevel.READ_UNCOMMITTED)
            if each["offset"] > ends.get(each["partition"], -1)
        ]
    )
    replayed, true = commits(log_dir, item, OnDamage.RECOVER), truth(item)
    wrong = {
        offset_key for offset_key in {*replayed, *true} - unseen if replayed.get(offset_key) != true.get(offset_key)
    }
    # Deleted after a transaction's commit and before its marker: the classic coordinator brings them back. 3.7's new
    # one brings back what a plain commit has replaced meanwhile.
    brought_back = {
        "k372-new/before": {"g-txn-new", "g-txn-old"},
        "k392-classic": {"x-del-pending", "x-deloff-pending", "x-topicgone"},
    }
    assert {group_id for group_id, _, _ in wrong} == brought_back.get(item.name, set())
    assert len(wrong) <= sum(each["tombstones"] for each in document["partitions"])
    assert len(unseen) < len(replayed)


def test_read_uncommitted_counts_what_was_aborted_or_is_open(tmp_path: Path) -> None:
    item = case("k431-txn")
    log_dir, _, _ = imported(item, tmp_path, IsolationLevel.READ_UNCOMMITTED)
    replayed, true = commits(log_dir, item, OnDamage.RECOVER), truth(item)
    wrong = {offset_key for offset_key, commit in replayed.items() if true.get(offset_key) != commit}
    assert wrong
    snapshot = discover([str(log_dir)])
    assert {damage.kind for damage in snapshot.damage} == {"transactions_unknown"}
    assert len(snapshot.damage) == len(snapshot.partitions)


@pytest.mark.parametrize("level", IsolationLevel)
def test_without_transactions_and_holes_the_state_is_that_of_the_log(level: IsolationLevel, tmp_path: Path) -> None:
    item = case("k431-mixed")
    log_dir, _, _ = imported(item, tmp_path, level)

    def hash_of(directory: Path, damage: list[Damage]) -> str:
        profile = profile_for_release(item.release)
        states = replay_snapshot(discover([str(directory)]), profile, on_damage=OnDamage.RECOVER, damage=damage)
        return state_hash(all_digests(state_tables(states, now_ms=0)))

    damage: list[Damage] = []
    assert hash_of(log_dir, damage) == hash_of(item.paths[0], [])
    assert damage, "it is marked all the same: the records alone do not tell that nothing is missing"
