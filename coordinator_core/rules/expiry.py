"""Rules about retention: offsets that should be gone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import TombstoneKind
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.model import Limits, Rule, Severity


def _expired(facts: Facts, limits: Limits) -> pa.Table:
    retention, grace = int(limits["offsets_retention_ms"]), int(limits["expiry_grace_ms"])
    then = facts.now_ms - grace
    offsets = facts.offsets
    explicit = offsets.numbers("expire_timestamp_ms")
    old = offsets.numbers("commit_timestamp_ms") + retention <= then
    old |= (explicit >= 0) & (explicit <= then)
    # Few groups have any such offset, and only of those a sweep has something to say.
    groups = offsets.rows(old, "group_id")["group_id"].unique().to_pylist()
    found = [
        (tombstone, "" if plan.failure is None else plan.failure)
        for state in (facts.run.states(group_ids=groups) if groups else [])
        for plan in [plan_expiry(state, facts.profile, now_ms=then, offsets_retention_ms=retention)]
        for tombstone in plan.tombstones
        if tombstone.kind is TombstoneKind.OFFSET
    ]
    tombstones = [tombstone for tombstone, _ in found]
    return pa.table(
        {
            "offsets_partition": pa.array([one.offsets_partition for one in tombstones], pa.int32()),
            "record_offset": pa.array([one.record_offset for one in tombstones], pa.int64()),
            "group_id": pa.array([one.group_id for one in tombstones], pa.string()),
            "topic": pa.array([one.topic for one in tombstones], pa.string()),
            "partition": pa.array([one.partition for one in tombstones], pa.int32()),
            "reason": pa.array([one.reason.value for one in tombstones], pa.string()),
            "expired_ms": pa.array(
                facts.now_ms - np.array([one.expires_at_ms for one in tombstones], np.int64)
            ),
        }
    )


EXPIRED = Rule(
    "R60",
    "expired-but-present",
    Severity.WARNING,
    summary="A committed offset should have expired, and is still there.",
    why="No sweep runs: the partition's coordinator did not load it, one group makes the whole sweep fail, "
    "or the brokers' retention is longer than the one assumed here.",
    evidence="Since when it is due, and by which rule of the coordinator.",
    remedy="Set offsets_retention_ms to the brokers' retention. If it is right, look for errors of the group "
    "coordinator in the log of the partition's leader; see also: regroup expire.",
    message="{topic}-{partition} has been due for {expired_ms} ms ({reason})",
    reads=("offsets", "groups", "members"),
    thresholds=("offsets_retention_ms", "expiry_grace_ms"),
    find=_expired,
)

RULES = (EXPIRED,)
