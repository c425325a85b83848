"""Rules about retention: offsets that should be gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.groups.model import Group, GroupState, GroupType
from coordinator_core.lifecycle.due import expiry_of
from coordinator_core.lifecycle.expiry import condition_of, plan_expiry
from coordinator_core.lifecycle.plan import Reason
from coordinator_core.releases import Clock, ExpiryRules
from coordinator_core.rules.columns import OFFSET_KEY, Bools, Int64s, coded, combined_pair, is_in
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.model import Limits, Rule, Severity

_OF_GROUPS = ("groups", "members", "target_assignments", "regexes", "streams_topology")
_REASONS = tuple(Reason)


def _expired(facts: Facts, limits: Limits) -> pa.Table:
    """The offsets among the due tombstones of :func:`plan_expiry`, in columns: when brokers keep offsets for longer
    than is assumed here, they are most of all offsets."""
    retention, then = int(limits["offsets_retention_ms"]), max(facts.now_ms - int(limits["expiry_grace_ms"]), 0)
    rules = facts.profile.expiry
    offsets = facts.offsets
    rows = _of_groups_with_old_ones(facts, rules.clock, retention, then)
    group = facts.group_row("offsets")[rows]
    of_groups = np.unique(group[group >= 0])
    groups = _groups(facts, of_groups)
    conditions = _conditions(facts, of_groups, groups, rules)

    base = offsets.numbers("commit_timestamp_ms")[rows]
    base = np.where(conditions.has_base[group], conditions.base_ms[group], base)
    expiry = expiry_of(
        rules.clock,
        now_ms=then,
        retention_ms=retention,
        base_ms=base,
        explicit_ms=offsets.numbers("expire_timestamp_ms")[rows],
        is_explicit=~offsets.is_null("expire_timestamp_ms")[rows],
    )
    due = expiry.is_due & ~conditions.keeps[group]
    due &= ~is_in(facts.group_topic(group, facts.offset_topic[rows]), conditions.subscribed)
    if due.any():
        due &= ~is_in(offsets.numbers("offsets_partition")[rows], _partitions_that_fail(facts, retention, then))
    if rules.pending_protects_offset_key:
        due &= ~_is_pending(facts)[rows]

    reason = np.where(expiry.is_explicit, _REASONS.index(Reason.EXPIRE_TIMESTAMP), conditions.reason[group])
    reasons = pa.array([one.value for one in _REASONS], pa.string()).take(pa.array(reason[due]))
    return offsets.rows(rows[due], *OFFSET_KEY, reason=reasons, expired_ms=facts.now_ms - expiry.due_ms[due])


def _of_groups_with_old_ones(facts: Facts, clock: Clock, retention: int, then: int) -> Int64s:
    """Committed offsets of the groups of which one is older than the retention, or that are Empty for so long; where
    sweeps run, few."""
    offsets, groups = facts.offsets, facts.groups
    has_explicit = ~offsets.is_null("expire_timestamp_ms")
    old = np.zeros(len(offsets), np.bool_)
    # The age of a commit counts even beside an expire timestamp: its group may hold others as old.
    for is_explicit in (has_explicit & False, *([has_explicit] if has_explicit.any() else [])):
        old |= expiry_of(
            clock,
            now_ms=then,
            retention_ms=retention,
            base_ms=offsets.numbers("commit_timestamp_ms"),
            explicit_ms=offsets.numbers("expire_timestamp_ms"),
            is_explicit=is_explicit,
        ).is_due
    if clock is Clock.GROUP:
        since = groups.numbers("state_timestamp_ms")
        is_empty = groups.equals("state", GroupState.EMPTY) & ~groups.is_null("state_timestamp_ms")
        is_due = expiry_of(
            clock,
            now_ms=then,
            retention_ms=retention,
            base_ms=since,
            explicit_ms=since,
            is_explicit=np.zeros(len(since), np.bool_),
        ).is_due
        old |= facts.of_groups(is_empty & is_due, facts.group_row("offsets"))
    if not old.any():
        return np.zeros(0, np.int64)
    codes = offsets.array("group_id").indices.to_numpy()
    wanted = np.zeros(int(codes.max()) + 1, np.bool_)
    wanted[codes[old]] = True
    return np.flatnonzero(wanted[codes])


def _groups(facts: Facts, rows: Int64s) -> list[Group]:
    """The groups in these rows of ``groups``."""
    if not len(rows):
        return []
    found = facts.groups.rows(rows, "group_id")
    ids = found["group_id"].to_pylist()
    states = {state.offsets_partition: state for state in facts.run.states(tables=_OF_GROUPS, group_ids=ids)}
    partitions = found["offsets_partition"].to_pylist()
    return [states[number].groups[group_id] for number, group_id in zip(partitions, ids, strict=True)]


@dataclass(frozen=True)
class _Conditions:
    """Expiry conditions of groups, by row of ``groups``; the last entry is for offsets without a group.

    ``base_ms`` counts where ``has_base`` is true. ``subscribed`` are pairs of a group and a topic.
    """

    keeps: Bools
    reason: Int64s
    has_base: Bools
    base_ms: Int64s
    subscribed: Int64s


def _conditions(facts: Facts, rows: Int64s, groups: Sequence[Group], rules: ExpiryRules) -> _Conditions:
    size = len(facts.groups) + 1
    keeps, has_base = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    reason, base_ms = np.zeros(size, np.int64), np.zeros(size, np.int64)
    subscriber: list[int] = []
    topics: list[str] = []
    numbers = {one: number for number, one in enumerate(_REASONS)}
    for row, group in zip([-1, *rows.tolist()], [None, *groups], strict=True):
        condition = condition_of(group, rules)
        keeps[row] = condition.kept is not None
        reason[row] = numbers[condition.reason]
        if condition.base_timestamp_ms is not None:
            has_base[row], base_ms[row] = True, condition.base_timestamp_ms
        subscriber += [row] * len(condition.subscribed)
        topics += condition.subscribed
    # A topic that no committed offset is of has no number, and does not matter.
    topic = pc.index_in(pa.array(topics, pa.string()), value_set=facts.topic_texts)
    known = pc.is_valid(topic).to_numpy(zero_copy_only=False)
    pairs = facts.group_topic(np.array(subscriber, np.int64)[known], topic.drop_null().to_numpy().astype(np.int64))
    return _Conditions(keeps, reason, has_base, base_ms, pairs)


def _partitions_that_fail(facts: Facts, retention: int, then: int) -> Int64s:
    """Offsets partitions whose sweep fails, so that nothing in them is due: they do not load, or have a group that
    no sweep can delete."""
    groups = facts.groups
    is_empty = groups.equals("state", GroupState.EMPTY)
    has_targets = is_empty & facts.group_rows_with(facts.group_row("target_assignments"))
    has_offsets = facts.group_rows_with(facts.group_row("offsets")) & groups.equals("type", GroupType.SHARE)
    obstacles = groups.array("group_id").filter(pa.array(has_targets | has_offsets)).to_pylist()
    states = facts.run.states(group_ids=obstacles, whole_metadata=False) if obstacles else []
    failing = [
        state.offsets_partition
        for state in states
        if plan_expiry(state, facts.profile, now_ms=then, offsets_retention_ms=retention).failure is not None
    ]
    return np.concatenate([facts.table("load_failures").numbers("offsets_partition"), np.array(failing, np.int64)])


def _is_pending(facts: Facts) -> Bools:
    """Committed offsets for whose group, topic and partition an open transaction has a commit."""
    offsets, pending = facts.offsets, facts.table("pending_offsets")
    if not len(pending):
        return np.zeros(len(offsets), np.bool_)
    keys = [coded(offsets.array(name), pending.array(name))[0] for name in ("group_id", "topic")]
    here, there = combined_pair(
        *(
            (table.numbers("offsets_partition"), *(key[place] for key in keys), table.numbers("partition"))
            for place, table in enumerate((offsets, pending))
        )
    )
    found: Bools = is_in(here, there)
    return found


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
    reads=("offsets", "groups", "members", "target_assignments"),
    # A group that cannot be deleted ends the sweep of its partition.
    of_partition=True,
    thresholds=("offsets_retention_ms", "expiry_grace_ms"),
    find=_expired,
)
