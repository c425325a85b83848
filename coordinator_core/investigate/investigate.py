"""The investigation: logs in, explanations out, worst first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from coordinator_core.errors import Damage
from coordinator_core.history.judge import Judge
from coordinator_core.history.model import Deletions, EndKind, GroupHistory, PartitionHistory
from coordinator_core.history.origins import settle_origins
from coordinator_core.history.read import read_history
from coordinator_core.investigate.loads import explain_loads
from coordinator_core.investigate.losses import explain_losses
from coordinator_core.investigate.members import explain_members
from coordinator_core.investigate.model import Case, Explanation
from coordinator_core.investigate.moves import explain_moves
from coordinator_core.investigate.partitions import explain_cluster, explain_partition
from coordinator_core.investigate.topics import explain_replicas, explain_topics
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import Snapshot
from coordinator_core.rules.model import Severity


@dataclass(frozen=True, slots=True)
class Retention:
    """What the log says of ``offsets.retention.minutes``: not longer than the youngest offset that expired by age,
    which went at ``until_ms``; ``None`` where none did."""

    at_most_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Investigation:
    """Explanations, worst first and newest first among equals; ``histories`` of what was asked for."""

    histories: Sequence[PartitionHistory]
    explanations: Sequence[Explanation]
    retention: Retention | None

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
) -> Investigation:
    """What happened to ``groups`` (``None``: to all, and to the offsets topic) since ``since_ms``.

    Raises as ``read_records`` does.
    """
    logs, deletions = snapshot.partitions, Deletions()
    histories = [
        read_history(
            log,
            case.profile,
            groups=groups,
            deletions=deletions,
            topic_names=snapshot.topic_names,
            on_damage=on_damage,
            damage=damage,
        )
        for log in logs
    ]
    found = [group for history in histories for group in history.groups.values()]
    Judge(case.profile, deletions, retention_ms=case.retention_ms).judge(found)
    settle_origins(found, case.transactional_ids)
    # A copy may be older than the clock: ages are those at the newest record that was written anywhere.
    case = replace(case, now_ms=min(case.now_ms, max((history.last_ms for history in histories), default=-1)))
    explanations = [one for group in found for one in _of_group(group, case)]
    of_interest = {group.offsets_partition for group in found}
    for history, log in zip(histories, logs, strict=True):
        if groups is None or log.offsets_partition in of_interest:
            explanations += explain_partition(history, log, case)
    explanations += explain_cluster(histories, case)
    if groups is None:
        explanations += explain_replicas(histories, case)
    shown = tuple(log for log in logs if groups is None or log.offsets_partition in of_interest)
    by_partition = {history.offsets_partition: history for history in histories}
    explanations += explain_loads(replace(snapshot, partitions=shown), by_partition, case, on_damage, [])
    if since_ms is not None:
        explanations = [one for one in explanations if one.at_ms < 0 or one.at_ms >= since_ms]
    explanations.sort(key=lambda one: (-one.severity, -one.at_ms, one.code, one.group_id or ""))
    return Investigation(histories, explanations, _retention(found))


def _of_group(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    yield from explain_losses(group, case)
    yield from explain_moves(group, case)
    yield from explain_members(group, case)
    yield from explain_topics(group, case)


def _retention(groups: Sequence[GroupHistory]) -> Retention | None:
    ends = [
        removal.end
        for group in groups
        for removal in group.removals
        if removal.end is not None
        and removal.end.kind is EndKind.EXPIRY
        and removal.end.retention_at_most_ms is not None
        and removal.end.bug is None
    ]
    if not ends:
        return None
    return Retention(min(end.retention_at_most_ms or 0 for end in ends), max(end.place.timestamp_ms for end in ends))


def worst(explanations: Sequence[Explanation]) -> Severity | None:
    """The highest severity among them."""
    return max((one.severity for one in explanations), default=None)
