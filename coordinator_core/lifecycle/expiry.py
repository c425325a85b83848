"""One expiry sweep, as the coordinator of a profile does it over an offsets partition that it has loaded.

:func:`plan_expiry` is pure: state, rules, time and retention in, an :class:`ExpiryPlan` out. A loader has made the
state of the log, so every classic group with members is Stable; a rebalance is not in the log and comes as
``rebalancing``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set
from dataclasses import dataclass, field

from coordinator_core.durations import numbered
from coordinator_core.groups.model import (
    ClassicGroup,
    CommittedOffset,
    ConsumerGroup,
    Group,
    GroupState,
    OffsetKey,
    PartitionState,
    ShareGroup,
    StreamsGroup,
    TransactionOutcome,
)
from coordinator_core.lifecycle.due import expiry_of_commit
from coordinator_core.lifecycle.plan import ExpiryPlan, Kept, Reason, Tombstone, TombstoneKind
from coordinator_core.lifecycle.subscriptions import subscribed_topics
from coordinator_core.records.wire import MAX_STRING_BYTES
from coordinator_core.releases import Clock, ExpiryRules, PendingHold, Profile, ShareSweep


def plan_expiry(
    state: PartitionState,
    profile: Profile,
    *,
    now_ms: int,
    offsets_retention_ms: int,
    rebalancing: Collection[str] = (),
) -> ExpiryPlan:
    """Plan of the sweep of ``profile``'s coordinator at ``now_ms``, with a forecast of later ones.

    ``offsets_retention_ms`` is ``offsets.retention.minutes`` in milliseconds. ``rebalancing`` are ids of
    classic groups that are known to be preparing or completing a rebalance.
    """
    sweep = GroupSweep(state, profile.expiry, now_ms, offsets_retention_ms, frozenset(rebalancing))
    failure = sweep.run()
    if failure is not None:
        for tombstone in (*sweep.due, *sweep.forecast):
            sweep.keep(tombstone.group_id, Kept.SWEEP_FAILS)
        sweep.due.clear()
        sweep.forecast.clear()
    return ExpiryPlan(
        offsets_partition=state.offsets_partition,
        now_ms=now_ms,
        offsets_retention_ms=offsets_retention_ms,
        tombstones=tuple(sweep.due),
        forecast=tuple(sorted(sweep.forecast, key=lambda item: item.expires_at_ms)),
        kept=sweep.kept,
        failure=failure,
    )


@dataclass(frozen=True, slots=True)
class Condition:
    """Expiry condition of a group for all its offsets (``offsetExpirationCondition``).

    ``kept`` set: none expires. Else they do, for ``reason``, from ``base_timestamp_ms`` or, where that is
    ``None``, from their commit; not those of the topics in ``subscribed``.
    """

    kept: Kept | None = None
    reason: Reason = Reason.COMMIT_AGE
    base_timestamp_ms: int | None = None
    subscribed: frozenset[str] = frozenset()


def condition_of(group: Group | None, rules: ExpiryRules, *, is_rebalancing: bool = False) -> Condition:
    """Expiry condition of ``group`` for its offsets; ``None``: they have no group."""
    if group is None and rules.needs_group:
        return Condition(kept=Kept.ORPHANED)
    if isinstance(group, ShareGroup):
        return Condition(kept=Kept.SHARE_GROUP)
    if rules.clock is not Clock.GROUP or group is None:
        return Condition()
    if not isinstance(group, ClassicGroup):
        empty = group.state is GroupState.EMPTY
        return Condition(
            reason=Reason.EMPTY_GROUP_COMMIT if empty else Reason.UNSUBSCRIBED_TOPIC,
            subscribed=subscribed_topics(group) or frozenset(),
        )
    if group.protocol_type is None and not is_rebalancing:
        return Condition(reason=Reason.SIMPLE_GROUP)
    if group.state is GroupState.EMPTY and not is_rebalancing:
        if group.state_timestamp_ms is None:
            return Condition(reason=Reason.EMPTY_GROUP_COMMIT)
        return Condition(reason=Reason.EMPTY_GROUP, base_timestamp_ms=group.state_timestamp_ms)
    if is_rebalancing and (rules.rebalance_protects or not rules.expires_unsubscribed):
        return Condition(kept=Kept.REBALANCING_GROUP)
    subscribed = subscribed_topics(group)
    if not rules.expires_unsubscribed or subscribed is None:
        return Condition(kept=Kept.ACTIVE_GROUP)
    return Condition(reason=Reason.UNSUBSCRIBED_TOPIC, subscribed=subscribed)


@dataclass(frozen=True, slots=True)
class _Due:
    """Time and rule of an offset's expiry, and the time from which it counts."""

    reason: Reason
    base_timestamp_ms: int | None
    expires_at_ms: int


@dataclass
class GroupSweep:
    """The sweep of one offsets partition, group by group.

    ``due``, ``forecast`` and ``kept`` are its results so far.
    """

    _state: PartitionState
    _rules: ExpiryRules
    _now_ms: int
    _retention_ms: int
    _rebalancing: frozenset[str] = frozenset()
    due: list[Tombstone] = field(default_factory=list)
    forecast: list[Tombstone] = field(default_factory=list)
    kept: dict[str, Counter[Kept]] = field(default_factory=dict)
    unwritable: str | None = None
    """Why a due tombstone cannot be written."""

    def __post_init__(self) -> None:
        state = self._state
        self._pending = {offset_key for commits in state.pending.values() for offset_key in commits}
        self._groups_with_pending = {offset_key.group_id for offset_key in self._pending}
        self._groups_in_transactions = {
            group_id
            for transaction in state.transactions
            if transaction.outcome is TransactionOutcome.OPEN
            for group_id in transaction.groups
        }

    def run(self) -> str | None:
        """Fill ``due``, ``forecast`` and ``kept``; returns why such a sweep fails, if it does."""
        offsets: dict[str, list[tuple[OffsetKey, CommittedOffset]]] = {}
        for offset_key, offset in sorted(self._state.offsets.items(), key=lambda item: item[0]):
            offsets.setdefault(offset_key.group_id, []).append((offset_key, offset))
        group_ids = sorted(self._state.groups.keys() | offsets.keys())
        failures = [self.load_failure(), *(self.sweep_group(one, offsets.get(one, [])) for one in group_ids)]
        return next((failure for failure in (*failures, self.unwritable) if failure is not None), None)

    def keep(self, group_id: str, kept: Kept, count: int = 1) -> None:
        self.kept.setdefault(group_id, Counter())[kept] += count

    def load_failure(self) -> str | None:
        """Why such a coordinator does not load the partition, and so sweeps nothing."""
        if not self._state.load_failures:
            return None
        first = self._state.load_failures[0]
        return f"the partition is not loaded: record offset {first.record_offset}: {first.detail}"

    def condition(self, group_id: str) -> Condition:
        """Expiry condition of a group for its committed offsets."""
        group = self._state.groups.get(group_id)
        return condition_of(group, self._rules, is_rebalancing=group_id in self._rebalancing)

    def pending(self) -> Set[OffsetKey]:
        """Offset keys whose committed offsets stay for a commit of an open transaction."""
        return self._pending if self._rules.pending_protects_offset_key else frozenset()

    def sweep_group(self, group_id: str, offsets: list[tuple[OffsetKey, CommittedOffset]]) -> str | None:
        """Take in a group with all its committed offsets, by topic and partition; why the sweep fails there, if so."""
        if self.is_left(group_id, len(offsets)):
            return self.leave(group_id, len(offsets))
        condition = self.condition(group_id)
        times: list[int] = []
        for offset_key, offset in offsets:
            verdict = self._verdict(condition, offset_key, offset)
            if isinstance(verdict, Kept):
                self.keep(group_id, verdict)
            else:
                times.append(verdict.expires_at_ms)
                self._add([self._offset_tombstone(offset_key, offset, verdict)])
        return self.end_group(group_id, len(offsets), len(times), max(times, default=self._now_ms))

    def is_left(self, group_id: str, offsets: int) -> bool:
        """Whether the sweep looks at no offset of a group with so many of them, nor at the group."""
        if not isinstance(self._state.groups.get(group_id), ShareGroup):
            return False
        share_sweep = self._rules.share_sweep
        return share_sweep is not ShareSweep.DELETES or offsets > 0

    def leave(self, group_id: str, offsets: int) -> str | None:
        """Count a group that :meth:`is_left`; why the sweep fails there, if so."""
        if self._rules.share_sweep is not ShareSweep.LEAVES and offsets:
            self.keep(group_id, Kept.SWEEP_FAILS, 1 + offsets)
            return f"share group {group_id!r} has committed offsets, for which there is no expiry rule"
        self.keep(group_id, Kept.SHARE_GROUP, 1 + offsets)
        return None

    def end_group(self, group_id: str, offsets: int, expiring: int, last: int) -> str | None:
        """Take in the group itself, of whose committed offsets so many expire, the last of them at ``last``; why the
        sweep fails there, if so. ``last`` is ``now_ms`` where none does."""
        group = self._state.groups.get(group_id)
        if group is None or (isinstance(group, ClassicGroup) and group.state is None):
            return None
        kept = self._group_kept(group, keeps_offset=expiring < offsets)
        if kept is not None:
            self.keep(group_id, kept)
            return None
        if offsets and self._waits_a_sweep(group_id):
            last = max(last, self._now_ms) + 1
        # The whole sweep fails, but only from the moment at which it would delete this group.
        left = 0 if isinstance(group, ClassicGroup) else len(group.target_assignment)
        if left and last <= self._now_ms:
            self.keep(group_id, Kept.SWEEP_FAILS)
            return f"Empty group {group_id!r} still has {numbered(left, 'target assignment')}, it cannot be deleted"
        self._add(self._group_tombstones(group, last))
        return None

    def _verdict(self, condition: Condition, offset_key: OffsetKey, offset: CommittedOffset) -> _Due | Kept:
        if condition.kept is not None:
            return condition.kept
        if offset_key.topic in condition.subscribed:
            return Kept.SUBSCRIBED_TOPIC
        if offset_key in self.pending():
            return Kept.PENDING_COMMIT
        base_ms = condition.base_timestamp_ms
        found = expiry_of_commit(
            offset, self._rules.clock, now_ms=self._now_ms, retention_ms=self._retention_ms, base_ms=base_ms
        )
        if not found.ever:
            return Kept.NEVER
        if found.is_explicit:
            return _Due(Reason.EXPIRE_TIMESTAMP, None, found.due_ms)
        return _Due(condition.reason, offset.commit_timestamp_ms if base_ms is None else base_ms, found.due_ms)

    def _group_kept(self, group: Group, *, keeps_offset: bool) -> Kept | None:
        rules = self._rules
        if group.state is not GroupState.EMPTY or group.group_id in self._rebalancing:
            return Kept.GROUP_HAS_MEMBERS
        if not rules.deletes_groups:
            return Kept.NEVER_DELETED
        if keeps_offset:
            return Kept.GROUP_HAS_OFFSETS
        if rules.pending_hold is PendingHold.OFFSET_KEY and group.group_id in self._groups_with_pending:
            return Kept.OPEN_TRANSACTION
        if rules.generation_zero_is_silent and isinstance(group, ClassicGroup) and group.generation <= 0:
            return Kept.GENERATION_ZERO
        return None

    def _waits_a_sweep(self, group_id: str) -> bool:
        """An open transaction lets the group outlive the sweep of its last offset, and no other."""
        beside_offsets = self._rules.pending_hold is PendingHold.TRANSACTION_BESIDE_OFFSETS
        return beside_offsets and group_id in self._groups_in_transactions

    def _add(self, tombstones: Iterable[Tombstone]) -> None:
        for tombstone in tombstones:
            is_due = tombstone.expires_at_ms <= self._now_ms
            if tombstone.is_writable:
                (self.due if is_due else self.forecast).append(tombstone)
            else:
                self.refuse(tombstone.group_id, is_due=is_due)

    def refuse(self, group_id: str, *, is_due: bool) -> None:
        """Count a tombstone that cannot be written, which ends the sweep in which it is due."""
        self.keep(group_id, Kept.SWEEP_FAILS)
        if is_due:
            self.unwritable = f"group {group_id[:40]!r}: its id or a topic has more than {MAX_STRING_BYTES} bytes"

    def _offset_tombstone(self, offset_key: OffsetKey, offset: CommittedOffset, due: _Due) -> Tombstone:
        return Tombstone(
            kind=TombstoneKind.OFFSET,
            group_id=offset_key.group_id,
            topic=offset_key.topic,
            partition=offset_key.partition,
            key_type=self._rules.offset_key_type,
            offsets_partition=self._state.offsets_partition,
            reason=due.reason,
            base_timestamp_ms=due.base_timestamp_ms,
            expires_at_ms=due.expires_at_ms,
            record_offset=offset.record_offset,
        )

    def _group_tombstones(self, group: Group, expires_at_ms: int) -> list[Tombstone]:
        """``createGroupTombstoneRecords`` of an Empty group: it has no members."""
        return [
            Tombstone(
                kind=kind,
                group_id=group.group_id,
                topic=None,
                partition=None,
                key_type=key_type,
                offsets_partition=self._state.offsets_partition,
                reason=Reason.NOTHING_LEFT,
                base_timestamp_ms=None,
                expires_at_ms=expires_at_ms,
                record_offset=record_offset,
                regular_expression=regex,
            )
            for kind, key_type, record_offset, regex in _group_records(group)
        ]


def _group_records(group: Group) -> Iterator[tuple[TombstoneKind, int, int | None, str | None]]:
    """Records of an Empty group in the order in which they are tombstoned: kind, key type, record offset, and
    regular expression."""
    match group:
        case ClassicGroup():
            yield TombstoneKind.GROUP, 2, group.record_offset, None
        case ConsumerGroup():
            yield TombstoneKind.TARGET_ASSIGNMENT, 6, None, None
            for regex, resolved in sorted(group.regexes.items()):
                yield TombstoneKind.REGULAR_EXPRESSION, 16, resolved.record_offset, regex
            yield TombstoneKind.PARTITION_METADATA, 4, None, None
            yield TombstoneKind.GROUP, 3, group.record_offset, None
        case ShareGroup():
            # Only 4.0 deletes share groups; it has type 9 where later releases have 15.
            yield TombstoneKind.TARGET_ASSIGNMENT, 12, None, None
            yield TombstoneKind.PARTITION_METADATA, 9, None, None
            yield TombstoneKind.GROUP, 11, group.record_offset, None
        case StreamsGroup():
            yield TombstoneKind.TARGET_ASSIGNMENT, 20, None, None
            yield TombstoneKind.GROUP, 17, group.record_offset, None
            yield TombstoneKind.TOPOLOGY, 23, group.topology_record_offset, None
