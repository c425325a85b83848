"""Expiry sweeps of a running 4.3.1 broker with one-minute retention, predicted from the log it loads.

The log is that of the scenario, made by real clients, with random groups of every kind appended: some are due
when the broker starts, some become due while it runs.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import PartitionState
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import ExpiryPlan, Kept, Reason, TombstoneKind
from coordinator_core.log.types import PartitionLog
from coordinator_core.releases import profile_for_release
from tests.lifecycle.random_groups import Appended, RandomGroups
from tests.lifecycle.sweeps import batches_of, log_end, logs, state_before, sweeps_of
from tests.live.broker import KAFKA_VERSION, Broker, Kafka, now_ms, wait_for
from tests.live.scenario import OFFSETS_PARTITIONS, Scenario
from tests.live.wire import OFFSETS_TOPIC

RETENTION_MS = 60_000
SOON_MS = 20_000
GROUPS = 400
SEED = 20260721
PROFILE = profile_for_release(KAFKA_VERSION)
SETTINGS = {
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "500",
    "group.streams.session.timeout.ms": "600000",
    "group.streams.max.session.timeout.ms": "600000",
    # The scenario's open transactions are to stay open, however long ago it was played.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}


@dataclass(frozen=True)
class Swept:
    """States as the broker loaded them, with the offset behind, and the log that it left at ``end_ms``."""

    loaded: dict[int, tuple[int, PartitionState]]
    left: dict[int, PartitionLog]
    end_ms: int


def plan(state: PartitionState, now_ms: int) -> ExpiryPlan:
    return plan_expiry(state, PROFILE, now_ms=now_ms, offsets_retention_ms=RETENTION_MS)


def append_groups(log_dir: Path, now_ms: int) -> None:
    """Random groups behind the end of their partitions, in the leader epoch that the partition is in."""
    groups = RandomGroups(SEED, now_ms=now_ms, retention_ms=RETENTION_MS, soon_ms=SOON_MS)
    known = logs([str(log_dir)])
    appended: dict[int, Appended] = {}
    for number in range(GROUPS):
        group_id = f"r-{number}"
        partition = partition_for(group_id, OFFSETS_PARTITIONS)
        if partition not in appended:
            log = known.get(partition)
            epochs = [batch.partition_leader_epoch for batch, _ in batches_of(log)] if log else []
            appended[partition] = Appended(log_end(log), max(epochs, default=0), now_ms)
        groups.write(appended[partition], group_id)
    for partition, tail in appended.items():
        segment = max((log_dir / f"{OFFSETS_TOPIC}-{partition}").glob("*.log"))
        with segment.open("ab") as file:
            file.write(b"".join(tail.batches))


def states(log_dir: Path) -> dict[int, tuple[int, PartitionState]]:
    return {
        partition: (log_end(log), state_before(batches_of(log), 1 << 62, PROFILE, partition))
        for partition, log in logs([str(log_dir)]).items()
    }


@pytest.fixture(scope="module")
def swept(kafka: Kafka, scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    broker = Broker(kafka, tmp_path_factory.mktemp("sweeps") / "broker", SETTINGS)
    shutil.copytree(scenario.case.paths[0], broker.log_dir)
    started_ms = now_ms()
    append_groups(broker.log_dir, started_ms)
    loaded = states(broker.log_dir)
    end_ms = max(
        item.expires_at_ms
        for _, state in loaded.values()
        for item in (*plan(state, started_ms).tombstones, *plan(state, started_ms).forecast)
        if item.expires_at_ms <= started_ms + RETENTION_MS + SOON_MS
    )
    try:
        broker.start()
        wait_for("the time of the last expiry", lambda: now_ms() > end_ms)
        wait_for(
            "the last sweep",
            lambda: not any(plan(s, end_ms).tombstones for _, s in states(broker.log_dir).values()),
        )
    finally:
        broker.kill()
    return Swept(loaded, logs([str(broker.log_dir)]), end_ms)


def test_the_planned_tombstones_are_those_that_the_broker_writes(swept: Swept) -> None:
    for partition, (end, state) in swept.loaded.items():
        written = [key for sweep in sweeps_of(batches_of(swept.left[partition]), end) for key in sweep.keys]
        planned = plan(state, swept.end_ms)
        assert planned.failure is None
        assert set(written) == {item.key for item in planned.tombstones}, partition
        assert len(written) == len(set(written))


def test_no_sweep_comes_before_its_time(swept: Swept) -> None:
    for partition, (end, _) in swept.loaded.items():
        batches = batches_of(swept.left[partition])
        for sweep in sweeps_of(batches, end):
            state = state_before(batches, sweep.base_offset, PROFILE, partition)
            assert sweep.keys <= {item.key for item in plan(state, sweep.last_ms).tombstones}


def test_the_log_has_everything_in_it(swept: Swept) -> None:
    """Without all kinds and reasons the comparison would agree about less than it says."""
    plans = [plan(state, swept.end_ms) for _, state in swept.loaded.values()]
    reasons = Counter(item.reason for one in plans for item in one.tombstones)
    kinds = Counter(item.kind for one in plans for item in one.tombstones)
    kept = {reason for one in plans for counts in one.kept.values() for reason in counts}
    assert set(reasons) == set(Reason) - {Reason.COMMIT_AGE}
    assert set(kinds) == set(TombstoneKind)
    assert kept == {
        Kept.SUBSCRIBED_TOPIC,
        Kept.ACTIVE_GROUP,
        Kept.PENDING_COMMIT,
        Kept.ORPHANED,
        Kept.SHARE_GROUP,
        Kept.GROUP_HAS_MEMBERS,
        Kept.GROUP_HAS_OFFSETS,
        Kept.OPEN_TRANSACTION,
    }
    assert any(one.forecast for one in plans)
