"""Logs of real brokers, given to a consumer, written as Parquet, imported: what a replay can tell and cannot."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from coordinator_core.errors import Damage
from coordinator_core.imports.publish import IsolationLevel, import_records, is_of_records
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage, read_records
from coordinator_core.records.codec import decode_key
from coordinator_core.replay.profiles import profile_for_release
from coordinator_core.runs.local import replay_snapshot
from coordinator_core.runs.state_hash import all_digests, state_hash
from coordinator_core.runs.tables import state_tables
from tests.cases import CASES, TORN, Case, case
from tests.imports.dumps import Row, consumed, row, write

WHOLE = [item for item in CASES if item not in TORN and len(item.paths) == 1]
Slot = tuple[str, str, int]
Commits = dict[Slot, tuple[int, int]]
"""Committed offset and record offset."""


def imported(item: Case, directory: Path, level: IsolationLevel) -> tuple[Path, list[Row]]:
    rows = consumed(item.paths[0], level)
    write(directory / "records.parquet", rows)
    import_records([str(directory / "records.parquet")], str(directory / "log"), level)
    return directory / "log", rows


def commits(log_dir: Path, item: Case, on_damage: OnDamage = OnDamage.FAIL) -> Commits:
    states = replay_snapshot(
        discover([str(log_dir)]),
        profile_for_release(item.release, item.coordinator),
        on_damage=on_damage,
        damage=[],
    )
    return {
        (group_id, topic, partition): (commit.committed_offset, commit.record_offset)
        for state in states
        for (group_id, topic, partition), commit in state.offsets.items()
    }


@cache
def truth(item: Case) -> Commits:
    return commits(item.paths[0], item)


def slots(rows: list[Row]) -> set[Slot]:
    """Slots of records of committed offsets."""
    keys = [decode_key(each["key"]) for each in rows if each["key"][:2] in (b"\0\0", b"\0\1")]
    return {(key.data["group"], key.data["topic"], key.data["partition"]) for key in keys}


@pytest.mark.parametrize("level", IsolationLevel)
@pytest.mark.parametrize("item", WHOLE, ids=lambda item: item.name)
def test_records_are_kept(item: Case, level: IsolationLevel, tmp_path: Path) -> None:
    log_dir, rows = imported(item, tmp_path, level)
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
