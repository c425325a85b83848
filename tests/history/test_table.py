"""The table ``history`` of everything, made column by column, has the rows of the histories of each group."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coordinator_core.history.judge import Judge
from coordinator_core.history.model import Deletions
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.read import read_history
from coordinator_core.history.rows import history_rows
from coordinator_core.history.table import HISTORY, history_tables
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Codec, ControlType, Snapshot
from coordinator_core.releases import Profile, profile_for_release
from tests.cases import CASES, Case
from tests.history.further import FURTHER
from tests.history.incidents import INCIDENTS, Incident

Row = dict[str, Any]


def one_by_one(snapshot: Snapshot, profile: Profile) -> list[Row]:
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
            on_damage=OnDamage.SALVAGE,
            damage=[],
        ).groups.values()
    ]
    Judge(profile, deletions).judge(groups)
    settle_origins(groups)
    return [row for group in groups for row in history_rows(group)]


def tabled(snapshot: Snapshot, profile: Profile, **how: int) -> list[Row]:
    tables = list(history_tables(snapshot, profile, on_damage=OnDamage.SALVAGE, damage=[], **how))
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logs_of_brokers(case: Case) -> None:
    check(discover([str(path) for path in case.paths]), profile_for_release(case.release, case.coordinator))


@pytest.mark.parametrize("incident", [*INCIDENTS, *FURTHER], ids=lambda one: one.id)
def test_incidents(incident: Incident, tmp_path: Path) -> None:
    snapshot = discover([str(incident.build(tmp_path / "log", True))])
    check(snapshot, profile_for_release(incident.release, "new" if "new" in incident.arguments else None))
