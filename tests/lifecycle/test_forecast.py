"""The forecast of a partition in columns: all of :func:`plan_expiry` on objects."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.groups.hashing import partition_for
from coordinator_core.jsontext import fields_of
from coordinator_core.lifecycle import expiring
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.forecast import FORECAST, MOST_GROUPS, Forecast, GroupLoss, forecast
from coordinator_core.lifecycle.plan import Kept, Tombstone
from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.releases import Profile, profile_for_release
from coordinator_core.runs.local import merged_partitions
from tests.cases import Case, case, cross_section
from tests.fold.random_logs import encoded_key, offset_value
from tests.lifecycle.random_groups import Appended, RandomGroups
from tests.lifecycle.sweeps import expired_offset_keys
from tests.log.builders import build_batch, write_partition

CASES = ("k0102/before", "k241/before", "k392-classic", "k431-expired/A", "k431-mixed", "k431-txn")
NOW_MS = 1_800_000_000_000
HOUR_MS, DECADE_MS = 3_600_000, 10 * 365 * 86_400_000


class Rows:
    """Tombstones that are taken, as rows."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def __call__(self, table: pa.Table) -> None:
        assert table.schema == FORECAST
        for name in ("group_id", "topic"):
            [texts] = table[name].chunks
            assert set(texts.dictionary.to_pylist()) == set(texts.to_pylist()) - {None}
        self.found += table.to_pylist()


def row(item: Tombstone, now_ms: int) -> dict[str, Any]:
    names = ("offsets_partition", "group_id", "topic", "partition", "base_timestamp_ms", "expires_at_ms")
    due, kind, reason = item.expires_at_ms <= now_ms, str(item.kind), str(item.reason)
    return fields_of(item, *names, "record_offset", due=due, kind=kind, reason=reason)


def check(source: Snapshot, profile: Profile, *, now_ms: int, retention_ms: int) -> list[Forecast]:
    """What is found in columns and by objects is the same; the forecasts."""
    found = []
    for merged, _ in merged_partitions(source, profile, on_damage=OnDamage.RECOVER):
        state = merged.to_state()
        plan = plan_expiry(state, profile, now_ms=now_ms, offsets_retention_ms=retention_ms)
        rows = Rows()
        one = forecast(merged, profile, now_ms=now_ms, offsets_retention_ms=retention_ms, take=rows)
        kept: Counter[Kept] = Counter()
        for counts in plan.kept.values():
            kept.update(counts)
        of_groups = Counter(item.group_id for item in plan.tombstones)
        gone = plan.deleted_groups()
        assert one == Forecast(
            offsets_partition=plan.offsets_partition,
            committed_offsets=len(state.offsets),
            groups=len(state.groups),
            expired_offsets=len(expired_offset_keys(plan)),
            expired_groups=len(gone),
            tombstones=len(plan.tombstones),
            sha256=plan.digest(),
            later=len(plan.forecast),
            kept=kept,
            failure=plan.failure,
            reasons=Counter((item.reason, item.kind) for item in plan.tombstones),
            losing=len(of_groups),
            most=[GroupLoss(name, count, name in gone) for name, count in of_groups.most_common(MOST_GROUPS)],
        )
        assert [found for found in rows.found if found["due"]] == [row(item, now_ms) for item in plan.tombstones]
        later = [found for found in rows.found if not found["due"]]
        assert later == sorted(later, key=lambda found: found["group_id"])
        later.sort(key=lambda found: found["expires_at_ms"])
        assert later == [row(item, now_ms) for item in plan.forecast]
        found.append(one)
    return found


@pytest.mark.parametrize(
    "item", cross_section([case(name) for name in CASES], ("k0102/before", "k392-classic", "k431-txn"))
)
def test_logs_of_brokers(item: Case) -> None:
    profile = profile_for_release(item.release, item.coordinator)
    source = discover([str(path) for path in item.paths])
    for now_ms, retention_ms in ((NOW_MS, HOUR_MS), (NOW_MS, DECADE_MS), (0, HOUR_MS)):
        check(source, profile, now_ms=now_ms, retention_ms=retention_ms)


@pytest.mark.parametrize(
    "release, loads, rows, block_bytes",
    [
        pytest.param(release, loads, rows, block_bytes, marks=pytest.mark.full if number and release != "4.3.1" else ())
        for release, loads in (("2.4.1", False), ("3.9.2", True), ("4.0.1", True), ("4.3.1", True))
        for number, (rows, block_bytes) in enumerate(((1 << 17, 1 << 24), (3, 1 << 24), (1 << 17, 1)))
    ],
)
def test_random_groups(
    release: str, loads: bool, rows: int, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some groups of which nothing expires, some of which something does, and partitions whose sweep fails.

    However many tombstones are looked at together.
    """
    monkeypatch.setattr(expiring, "_ROWS", rows)
    monkeypatch.setattr(expiring, "BLOCK_BYTES", block_bytes)
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


@pytest.mark.parametrize("group, topic", [(b"\xff" * 20_000, b"t"), (b"g", b"\xff" * 20_000)])
def test_names_that_no_tombstone_can_have(group: bytes, topic: bytes, tmp_path: Path) -> None:
    """Brokers decode each of these bytes to one character of three, and cannot write the name again."""
    keys = [encoded_key(group, topic, 0), encoded_key(b"plain", b"t", 0)]
    write_partition(tmp_path, {0: build_batch(0, [(key, offset_value(3, 5, b"")) for key in keys])})
    source, profile = discover([str(tmp_path)]), profile_for_release("4.3.1")
    [due] = check(source, profile, now_ms=NOW_MS, retention_ms=1)
    assert due.failure is not None
    assert "more than 32767 bytes" in due.failure
    assert (due.tombstones, due.later) == (0, 0)
    [later] = check(source, profile, now_ms=NOW_MS, retention_ms=2 * NOW_MS)
    assert later.failure is None
    assert later.kept[Kept.SWEEP_FAILS] >= 1
    assert later.later >= 2
