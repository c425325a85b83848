"""Expiry sweeps of real brokers, predicted: the same keys, at the same sweep, and nothing left undone."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from coordinator_core.groups.model import PartitionState
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import ExpiryPlan, Kept, Reason, Tombstone
from coordinator_core.records.codec import decode_key
from coordinator_core.releases import Profile, profile_for_release
from tests.cases import Case, case
from tests.lifecycle.sweeps import batches_of, is_tombstones, log_end, logs, state_before, sweeps_of

RETENTION_MS = 60_000
REBALANCING = frozenset({"e-rebalancing"})
"""The group that is stuck in PreparingRebalance, which no record says."""


@dataclass(frozen=True)
class Swept:
    """Two snapshots of a broker with one-minute retention, and how often it swept between them."""

    before: str
    after: str
    interval_ms: int


SWEPT = [
    Swept("k0102/before", "k0102/after", 1_000),
    Swept("k241/before", "k241/after", 1_000),
    Swept("k431-expired/A", "k431-expired/B", 5_000),
    Swept("k431-expired/A", "k431-expired/C", 5_000),
]
ALL = pytest.mark.parametrize("swept", SWEPT, ids=lambda swept: swept.after)


def plan(state: PartitionState, profile: Profile, now_ms: int) -> ExpiryPlan:
    return plan_expiry(state, profile, now_ms=now_ms, offsets_retention_ms=RETENTION_MS, rebalancing=REBALANCING)


def keys(tombstones: tuple[Tombstone, ...]) -> set[bytes]:
    return {tombstone.key for tombstone in tombstones}


def captured_ms(item: Case) -> int:
    document = json.loads((item.directory / "case.json").read_text(encoding="utf-8"))
    return int(document.get("capturedAtMs") or document["captured_at_ms"])


@ALL
def test_each_sweep_is_predicted(swept: Swept) -> None:
    before, after = case(swept.before), case(swept.after)
    profile = profile_for_release(after.release)
    known = logs([str(before.paths[0])])
    seen = 0
    for partition, log in logs([str(after.paths[0])]).items():
        batches = batches_of(log)
        previous_ms = 0
        for sweep in sweeps_of(batches, log_end(known.get(partition))):
            state = state_before(batches, sweep.base_offset, profile, partition)
            # What becomes due between the start of the sweep and its records may be in it or not.
            assert keys(plan(state, profile, sweep.first_ms - 50).tombstones) <= sweep.keys
            due = plan(state, profile, sweep.last_ms)
            assert due.failure is None
            assert sweep.keys <= keys(due.tombstones)
            if previous_ms:
                late = {
                    item.key
                    for item in due.tombstones
                    if item.offset_key and item.expires_at_ms <= sweep.first_ms - swept.interval_ms - 500
                }
                assert not late & sweep.keys, "an earlier sweep would have written these"
            previous_ms = sweep.last_ms
            seen += len(sweep.keys)
    assert seen >= 40


@ALL
def test_nothing_due_is_left_at_the_end(swept: Swept) -> None:
    after = case(swept.after)
    profile = profile_for_release(after.release)
    last_sweep_ms = captured_ms(after) - swept.interval_ms - 500
    for partition, log in logs([str(after.paths[0])]).items():
        batches = batches_of(log)
        state = state_before(batches, 1 << 62, profile, partition)
        assert plan(state, profile, last_sweep_ms).tombstones == ()


@ALL
def test_the_forecast_of_the_first_snapshot_comes_true(swept: Swept) -> None:
    """All that the last sweep has deleted was due or forecast before the first, unless it came later."""
    before, after = case(swept.before), case(swept.after)
    profile = profile_for_release(after.release)
    later = logs([str(after.paths[0])])
    end_ms = captured_ms(after)
    for partition, log in logs([str(before.paths[0])]).items():
        batches, end = batches_of(later[partition]), log_end(log)
        state = state_before(batches_of(log), 1 << 62, profile, partition)
        expected = plan(state, profile, captured_ms(before))
        foreseen = keys(expected.tombstones)
        foreseen |= {item.key for item in expected.forecast if item.expires_at_ms <= end_ms - 6_000}
        written = {key for sweep in sweeps_of(batches, end) for key in sweep.keys}
        touched = {
            record.key
            for batch, records in batches
            if batch.base_offset >= end and not is_tombstones(batch, records)
            for record in records
        }
        assert foreseen - touched <= written
        # The broker's 5 s sweeps may just miss what expires within the last of them.
        late = {item.key for item in expected.forecast if end_ms - 6_000 < item.expires_at_ms <= end_ms}
        assert written <= foreseen | late | touched


def test_sweep_of_0_8_2() -> None:
    """Its messages carry no time; the sweep was the last thing before the snapshot."""
    before, after = case("k082/cleaned"), case("k082/after")
    profile = profile_for_release(after.release)
    known = logs([str(before.paths[0])])
    for partition, log in logs([str(after.paths[0])]).items():
        end = log_end(known[partition])
        batches = batches_of(log)
        swept = [item for item in batches if item[0].base_offset >= end and is_tombstones(*item)]
        rest = [item for item in batches if item not in swept]
        written = {record.key for _, records in swept for record in records}
        state = state_before(rest, 1 << 62, profile, partition)
        planned = plan(state, profile, captured_ms(after))
        assert keys(planned.tombstones) == written
        assert {decode_key(key).type for key in keys(planned.tombstones)} == {0}
        assert {item.reason for item in planned.tombstones} == {Reason.COMMIT_AGE}


def test_reasons_in_a_log_of_4_3_1() -> None:
    """One group of each kind, by the names the case gives them."""
    after = case("k431-expired/C")
    profile = profile_for_release(after.release)
    reasons: dict[str, set[str]] = {}
    kept: dict[str, set[Kept]] = {}
    for partition, log in logs([str(case("k431-expired/A").paths[0])]).items():
        state = state_before(batches_of(log), 1 << 62, profile, partition)
        planned = plan(state, profile, captured_ms(after))
        for item in (*planned.tombstones, *planned.forecast):
            reasons.setdefault(item.group_id, set()).add(f"{item.kind} {item.reason}")
        for group_id, counts in planned.kept.items():
            kept.setdefault(group_id, set()).update(counts)
    assert reasons["e-simple"] == {"offset simple_group", "group nothing_left"}
    assert reasons["e-empty-classic"] == {"offset empty_group", "group nothing_left"}
    assert reasons["e-empty-848"] == {
        "offset empty_group_commit",
        "target_assignment nothing_left",
        "partition_metadata nothing_left",
        "group nothing_left",
    }
    assert reasons["e-live-unsub"] == {"offset unsubscribed_topic", "offset expire_timestamp"}
    assert reasons["e-live848-unsub"] == {"offset unsubscribed_topic"}
    assert kept["e-live848-regex"] == {Kept.SUBSCRIBED_TOPIC, Kept.GROUP_HAS_MEMBERS}
    assert kept["e-rebalancing"] == {Kept.REBALANCING_GROUP, Kept.GROUP_HAS_MEMBERS}
    assert kept["e-txn-over"] == {Kept.PENDING_COMMIT, Kept.GROUP_HAS_OFFSETS}
    assert kept["e-txn-only"] == {Kept.OPEN_TRANSACTION}
    assert kept["e-share-empty"] == {Kept.SHARE_GROUP}
