"""The forecast of a partition in columns: all of :func:`plan_expiry` on objects, and lines of JSON."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.groups.hashing import partition_for
from coordinator_core.lifecycle.expiring import Tombstones
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.forecast import Forecast, forecast
from coordinator_core.lifecycle.plan import Kept
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.reports.expiry import tombstone_lines, tombstone_row
from coordinator_core.runs.local import merged_partitions
from tests.cases import Case, case
from tests.lifecycle.random_groups import Appended, RandomGroups

CASES = ("k0102/before", "k241/before", "k392-classic", "k431-expired/A", "k431-mixed", "k431-txn")
NOW_MS = 1_800_000_000_000
HOUR_MS, DECADE_MS = 3_600_000, 10 * 365 * 86_400_000


class Lines:
    """Tombstones that are taken, as objects."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def __call__(self, block: Tombstones) -> None:
        text = tombstone_lines(block).to_pybytes()
        self.found += map(json.loads, text.splitlines())
        assert text == b"".join(json.dumps(row).encode() + b"\n" for row in self.found[-len(block.order) :])


def check(source: Snapshot, profile: Profile, *, now_ms: int, retention_ms: int) -> list[Forecast]:
    """What is found in columns and by objects is the same; the forecasts."""
    found = []
    for merged, _ in merged_partitions(source, profile, on_damage=OnDamage.RECOVER):
        plan = plan_expiry(merged.to_state(), profile, now_ms=now_ms, offsets_retention_ms=retention_ms)
        due, later = Lines(), Lines()
        one = forecast(merged, profile, now_ms=now_ms, offsets_retention_ms=retention_ms, due=due, later=later)
        kept: Counter[Kept] = Counter()
        for counts in plan.kept.values():
            kept.update(counts)
        assert one == Forecast(
            offsets_partition=plan.offsets_partition,
            offsets=len(plan.expired_offset_keys()),
            groups=len(plan.deleted_groups()),
            tombstones=len(plan.tombstones),
            sha256=plan.digest(),
            later=len(plan.forecast),
            kept=kept,
            failure=plan.failure,
        )
        assert due.found == [tombstone_row(item) for item in plan.tombstones]
        assert sorted(later.found, key=lambda row: row["expires_at_ms"]) == [*map(tombstone_row, plan.forecast)]
        found.append(one)
    return found


@pytest.mark.parametrize("item", [case(name) for name in CASES], ids=lambda item: item.name)
def test_logs_of_brokers(item: Case) -> None:
    profile = profile_for_release(item.release, item.coordinator)
    source = discover([str(path) for path in item.paths])
    for now_ms, retention_ms in ((NOW_MS, HOUR_MS), (NOW_MS, DECADE_MS), (0, HOUR_MS)):
        check(source, profile, now_ms=now_ms, retention_ms=retention_ms)


@pytest.mark.parametrize("release, loads", [("2.4.1", False), ("3.9.2", True), ("4.0.1", True), ("4.3.1", True)])
def test_random_groups(release: str, loads: bool, tmp_path: Path) -> None:
    """Some groups of which nothing expires, some of which something does, and partitions whose sweep fails."""
    partitions = [Appended(0, 0, NOW_MS - HOUR_MS) for _ in range(8)]
    groups = RandomGroups(7, now_ms=NOW_MS, retention_ms=HOUR_MS, soon_ms=60_000)
    for number in range(120):
        group_id = f"group-{number}"
        groups.write(partitions[partition_for(group_id, len(partitions))], group_id)
    for number, log in enumerate(partitions):
        directory = tmp_path / f"__consumer_offsets-{number}"
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(b"".join(log.batches))
    found = check(discover([str(tmp_path)]), profile_for_release(release), now_ms=NOW_MS, retention_ms=HOUR_MS)
    assert (sum(one.tombstones for one in found) > 0) is loads
    assert (sum(one.later for one in found) > 0) is loads
    assert sum(one.kept.get(Kept.SUBSCRIBED_TOPIC, 0) for one in found) > 0
