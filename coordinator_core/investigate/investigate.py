"""The investigation: logs in, explanations out, worst first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from coordinator_core.errors import Damage
from coordinator_core.fold.passing import Portion
from coordinator_core.groups.model import PartitionState, TransactionOutcome
from coordinator_core.history.judge import Judge
from coordinator_core.history.lessons import Lessons
from coordinator_core.history.model import (
    Certainty,
    ChangeKind,
    ClockBack,
    Deletions,
    EndKind,
    GroupHistory,
    PartitionHistory,
    farthest,
    outline,
)
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.read import batched, read_deletions, read_history
from coordinator_core.investigate.anew import explain_anew
from coordinator_core.investigate.beginnings import explain_beginnings
from coordinator_core.investigate.cleaned import explain_cleaned
from coordinator_core.investigate.crowds import explain_crowds
from coordinator_core.investigate.fenced import explain_fenced
from coordinator_core.investigate.fleets import explain_fleets
from coordinator_core.investigate.held import find_points, leave_out_lost
from coordinator_core.investigate.leftovers import explain_leftovers
from coordinator_core.investigate.loads import explain_loads
from coordinator_core.investigate.losses import explain_losses
from coordinator_core.investigate.members import explain_members
from coordinator_core.investigate.model import IS_EMPTY, Case, Explanation
from coordinator_core.investigate.moves import explain_moves
from coordinator_core.investigate.outsiders import explain_cut_off, explain_outsiders, without_uncertain
from coordinator_core.investigate.ownership import explain_ownership, explain_reconciling, without_waiting
from coordinator_core.investigate.partitions import explain_families, explain_open_transactions, explain_partition
from coordinator_core.investigate.passed import explain_passed
from coordinator_core.investigate.placement import Placement
from coordinator_core.investigate.preallocated import explain_preallocated
from coordinator_core.investigate.rhythms import explain_rhythms
from coordinator_core.investigate.silences import explain_silences
from coordinator_core.investigate.standstills import explain_held_up, explain_standstills
from coordinator_core.investigate.subscriptions import explain_subscriptions
from coordinator_core.investigate.successors import explain_new_groups, explain_successors
from coordinator_core.investigate.tenures import explain_tenures
from coordinator_core.investigate.together import explain_back_together, explain_lost_together, explain_together
from coordinator_core.investigate.topics import explain_replicas, explain_topics
from coordinator_core.investigate.uses import explain_uses
from coordinator_core.investigate.visitors import explain_visitors
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import PartitionLog, Snapshot
from coordinator_core.merge.packed import PackedTexts
from coordinator_core.merge.schema import MergedPartition
from coordinator_core.process.workers import LARGE_BYTES, in_workers
from coordinator_core.rules.model import Severity
from coordinator_core.runs.local import merged_partitions, replay_snapshot

_PORTION_RECORDS = 125_000
"""Some 200 MB as histories, if each commit counts."""

_FEW_TIMES = 2
"""A history that has so many times the versions of its outline is kept, not read again."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Bound of ``offsets.retention.minutes`` by the log: not longer than the youngest offset that expired by age,
    which went at ``until_ms``; ``None`` where none did."""

    at_most_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Investigation:
    """Explanations, worst first and newest first among equals; ``histories`` of what was asked for; ``partial``: of
    what could be read of a damaged log. ``left_out`` counts explanations of more than a note that nobody asked for."""

    histories: Sequence[PartitionHistory]
    explanations: Sequence[Explanation]
    retention: Retention | None
    partial: bool = False
    left_out: int = 0

    def keep(self, is_asked_for: Callable[[Explanation], bool]) -> Investigation:
        """The investigation with some of the explanations."""
        kept = [one for one in self.explanations if is_asked_for(one)]
        gone = sum(one.severity > Severity.INFO for one in self.explanations if not is_asked_for(one))
        return replace(self, explanations=kept, left_out=self.left_out + gone)

    @property
    def groups(self) -> Iterator[GroupHistory]:
        return (group for history in self.histories for group in history.groups.values())


def investigate(
    snapshot: Snapshot,
    case: Case,
    *,
    groups: Collection[str] | None,
    since_ms: int | None,
    on_damage: OnDamage = OnDamage.FAIL,
    damage: list[Damage],
    large_bytes: int = LARGE_BYTES,
    portion_records: int = _PORTION_RECORDS,
    workers: int = 1,
) -> Investigation:
    """Explain ``groups`` (``None``: all, and the offsets topic) since ``since_ms``.

    All groups of a log of more than ``large_bytes`` are read in portions of about ``portion_records`` records, so that
    memory follows the offset keys, removals and rebalances and not the commits; so many ``workers``, which are
    processes, read side by side. The explanations are the same; of ``histories`` there are outlines
    (:func:`~coordinator_core.history.model.outline`). Raises as ``read_records`` and ``in_workers`` do.
    """
    replayed: dict[int, PartitionState | MergedPartition] = {}
    if groups is None and size_of(snapshot) > large_bytes:
        histories, case, explanations = _in_portions(snapshot, case, portion_records, workers, on_damage, damage)
    else:
        histories, case, explanations = _at_once(snapshot, case, groups, replayed, on_damage, damage)
    logs = snapshot.partitions
    explanations = without_waiting(explanations, histories)
    found = [group for history in histories for group in history.groups.values()]
    by_partition = {history.offsets_partition: history for history in histories}
    of_interest = by_partition.keys() if groups is None else {group.offsets_partition for group in found}
    for history, log in zip(histories, logs, strict=True):
        if log.offsets_partition in of_interest:
            if groups is not None:
                _complete_transactions(history, replace(snapshot, partitions=(log,)), case, on_damage)
                explanations += explain_open_transactions(history, case)
            explanations += explain_partition(history, log, case)
            explanations += explain_leftovers(history, log, case)
            explanations += explain_reconciling(history, case)
            explanations += explain_outsiders(history, case)
            explanations += explain_cut_off(history, case)
            explanations += explain_preallocated(history, log, case)
    explanations = without_uncertain(explanations, histories, logs)
    explanations += explain_silences(histories, of_interest, case)
    placement = Placement(histories, case)
    explanations = placement.without_stale(explanations)
    explanations += placement.explain()
    explanations += explain_families(histories)
    explanations += explain_successors(histories)
    if groups is None:
        explanations += explain_replicas(histories, case)
        explanations += explain_anew(histories)
        explanations += explain_together(histories)
        explanations += explain_lost_together(histories, case)
        explanations += explain_back_together(explanations, histories, case)
    else:
        explanations += explain_new_groups(histories)
        explanations += explain_standstills(found, case)
    shown = replace(snapshot, partitions=tuple(log for log in logs if log.offsets_partition in of_interest))
    if groups is None:
        replayed = {number: one.state for number, one in by_partition.items() if one.state is not None}
    states = (
        (replayed[log.offsets_partition] for log in shown.partitions)
        if replayed
        else (merged for merged, _ in merged_partitions(shown, case.profile, on_damage=on_damage))
    )
    explanations += explain_loads(shown, states, by_partition, case, on_damage, groups)
    # That a group is without members is usual: what happened comes before it.
    explanations.sort(key=lambda one: (-one.severity, one.code == IS_EMPTY, -one.at_ms, one.code, one.group_id or ""))
    investigation = Investigation(histories, explanations, _retention(found), bool(damage))
    return investigation if since_ms is None else investigation.keep(lambda one: not one.ended_before(since_ms))


def _complete_transactions(history: PartitionHistory, snapshot: Snapshot, case: Case, on_damage: OnDamage) -> None:
    """Have the open transactions of the groups be those of their partition: other groups may have begun them."""
    assert history.state is not None
    known = history.state.transactions
    producers = {one.producer_id for one in known if one.outcome is TransactionOutcome.OPEN}
    if not producers:
        return
    ((merged, _),) = merged_partitions(snapshot, case.profile, on_damage=on_damage)
    whole = [one for one in merged.open_transactions() if one.producer_id in producers]
    history.state.transactions = [one for one in known if one.outcome is not TransactionOutcome.OPEN] + whole


def size_of(snapshot: Snapshot) -> int:
    """Bytes of all segments."""
    return sum(log.size for log in snapshot.partitions)


_Read = tuple[list[PartitionHistory], Case, list[Explanation]]


def _at_once(
    snapshot: Snapshot,
    case: Case,
    groups: Collection[str] | None,
    replayed: dict[int, PartitionState | MergedPartition],
    on_damage: OnDamage,
    damage: list[Damage],
) -> _Read:
    """Histories, the case as of the newest record, and explanations of each group.

    ``replayed`` gets the partitions if all had to be replayed to tell which topics other groups have offsets of.
    """
    deletions = Deletions()
    # Metadata are shown of groups that were asked for.
    seen, texts = (deletions, None) if groups is None else (None, PackedTexts())
    read = partial(read_history, profile=case.profile, topic_names=snapshot.topic_names, on_damage=on_damage)
    histories = [read(log, groups=groups, deletions=seen, texts=texts, damage=damage) for log in snapshot.partitions]
    found = [group for history in histories for group in history.groups.values()]
    spans = () if groups is None else Judge.asks_about(found)
    for log in snapshot.partitions if spans else ():
        read_deletions(log, spans, deletions, on_damage=on_damage)
    lessons = Lessons(is_partial=groups is not None)
    judge = case.judge(deletions, lessons)
    judge.judge(found)
    if groups is not None and _names_topics(found):
        homes = {group.offsets_partition for group in found}
        for merged, _ in merged_partitions(snapshot, case.profile, on_damage=on_damage):
            lessons.learn_elsewhere(merged, groups)
            if merged.offsets_partition in homes:
                replayed[merged.offsets_partition] = merged
        judge.decide(found)
    case = _as_of_newest(case, histories)
    return histories, case, _explained(found, case)


def _names_topics(groups: Iterable[GroupHistory]) -> bool:
    """Whether the deletion of a topic is taken for a cause, or for one among others."""
    ends = (removal.end for group in groups for removal in group.removals)
    return any(end is not None and EndKind.TOPIC_DELETION in (end.kind, *end.others) for end in ends)


def _in_portions(
    snapshot: Snapshot, case: Case, portion_records: int, workers: int, on_damage: OnDamage, damage: list[Damage]
) -> _Read:
    """Like :func:`_at_once`, with outlines.

    Why an offset went is told from what went elsewhere: groups that lost something are explained when all are read.
    Those whose histories are large are read a second time for it.
    """
    deletions = Deletions()
    read = partial(read_history, profile=case.profile, topic_names=snapshot.topic_names, on_damage=on_damage)
    histories = [read(log, groups=(), deletions=deletions, damage=damage) for log in snapshot.partitions]
    case = _as_of_newest(case, histories)
    explanations: list[Explanation] = []
    states = replay_snapshot(snapshot, case.profile, on_damage=on_damage, damage=[], whole_metadata=False)
    for history, state in zip(histories, states, strict=True):
        history.state = state
    unexplained: list[GroupHistory] = []
    by_log = {history.offsets_partition: history for history in histories}

    def explain(asked: Sequence[tuple[PartitionLog, Portion | list[str]]], judge: Judge | None) -> None:
        shares = [_Share(log, groups, case, snapshot.topic_names, on_damage, judge) for log, groups in asked]
        for (log, _), done in zip(asked, in_workers(_explain, shares, workers), strict=True):
            history = by_log[log.offsets_partition]
            history.clock = farthest(history.clock, done.clock)
            history.groups |= {group.group_id: group for group in (*done.outlines, *done.unexplained)}
            unexplained.extend(done.unexplained)
            explanations.extend(done.explanations)

    portions: list[tuple[PartitionLog, Portion | list[str]]] = []
    for log, history in zip(snapshot.partitions, histories, strict=True):
        records = history.end_offset - history.first_offset - history.missing
        of = records // portion_records + 1
        portions += [(log, Portion(number, of)) for number in range(of)]
    explain(portions, None)
    judge = case.judge(deletions, Lessons())
    judge.learn(group for history in histories for group in history.groups.values())
    judge.decide(unexplained)
    explanations += _explained(unexplained, case)
    known = {id(group) for group in unexplained}
    again: list[tuple[PartitionLog, Portion | list[str]]] = []
    for log, history in zip(snapshot.partitions, histories, strict=True):
        ended = [group for group in history.groups.values() if _has_ends(group)]
        history.groups |= {group.group_id: outline(group) for group in ended if id(group) in known}
        records_of = {group.group_id: group.records for group in ended if id(group) not in known}
        again += [(log, group_ids) for group_ids in batched(records_of, portion_records)]
    explain(again, judge)
    return histories, case, explanations


class _Share(NamedTuple):
    """Groups of one offsets partition. Where ``judge`` is known, it says why offsets went; without it groups that lost
    some are not explained."""

    log: PartitionLog
    groups: Portion | list[str]
    case: Case
    topic_names: Mapping[str, str]
    on_damage: OnDamage
    judge: Judge | None


class _Done(NamedTuple):
    """``clock`` is that of the partition, as its groups show it; ``unexplained`` are whole."""

    clock: ClockBack | None
    outlines: list[GroupHistory]
    unexplained: list[GroupHistory]
    explanations: list[Explanation]


def _explain(share: _Share) -> _Done:
    history = read_history(
        share.log,
        share.case.profile,
        groups=share.groups,
        deletions=None,
        topic_names=share.topic_names,
        on_damage=share.on_damage,
        damage=[],
    )
    groups = history.groups.values()
    if share.judge is not None:
        share.judge.decide(groups)
    explained = [group for group in groups if share.judge is not None or not _has_ends(group)]
    explanations = _explained(explained, share.case)
    outlines = {group.group_id: outline(group) for group in groups}
    unexplained = []
    if share.judge is None:
        for group in groups:
            if _has_ends(group) and _count(group) <= _FEW_TIMES * _count(outlines[group.group_id]):
                unexplained.append(group)
                del outlines[group.group_id]
    return _Done(history.clock, [*outlines.values()], unexplained, explanations)


def _count(group: GroupHistory) -> int:
    return sum(map(len, group.versions.values()))


def _as_of_newest(case: Case, histories: Iterable[PartitionHistory]) -> Case:
    # A copy may be older than the clock: ages are those at the newest record that was written anywhere, or at the
    # capture, where it is known.
    newest_ms = max((history.last_ms for history in histories), default=-1)
    return replace(case, now_ms=min(case.now_ms, max(newest_ms, case.captured_ms)))


def _has_ends(group: GroupHistory) -> bool:
    return bool(group.removals) or any(change.kind is ChangeKind.DELETED for change in group.changes)


def _explained(groups: Collection[GroupHistory], case: Case) -> list[Explanation]:
    settle_origins(groups, case.transactional_ids)
    found = []
    for group in groups:
        for one in _of_group(group, case):
            one.group_id, one.offsets_partition = group.group_id, group.offsets_partition
            leave_out_lost(one, case)
            find_points(group, one)
            found.append(one)
    return found


def _of_group(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Explanations that need not name the group themselves."""
    yield from explain_losses(group, case)
    yield from explain_cleaned(group, case)
    yield from explain_moves(group, case)
    yield from explain_members(group, case)
    yield from explain_ownership(group, case)
    yield from explain_rhythms(group)
    yield from explain_tenures(group)
    yield from explain_crowds(group, case)
    yield from explain_subscriptions(group, case)
    yield from explain_held_up(group)
    yield from explain_beginnings(group)
    yield from explain_topics(group, case)
    yield from explain_uses(group, case)
    yield from explain_fleets(group)
    yield from explain_fenced(group, case)
    yield from explain_passed(group)
    yield from explain_visitors(group)


def _retention(groups: Sequence[GroupHistory]) -> Retention | None:
    """What the log proves; what may have been something else proves nothing."""
    ends = [
        removal.end
        for group in groups
        for removal in group.removals
        if removal.end is not None
        and removal.end.kind is EndKind.EXPIRY
        and removal.end.certainty is not Certainty.POSSIBLE
        and not removal.end.others
        and removal.end.retention_at_most_ms is not None
        and removal.end.bug is None
    ]
    if not ends:
        return None
    return Retention(min(end.retention_at_most_ms or 0 for end in ends), max(end.place.timestamp_ms for end in ends))


def worst(explanations: Sequence[Explanation]) -> Severity | None:
    """The highest severity among them."""
    return max((one.severity for one in explanations), default=None)
