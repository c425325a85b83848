"""The prediction: a scenario's steps applied to a topology, and their effects on partitions and groups.

Pure: logs are replayed and rates measured before; the time is an argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from coordinator_core.coordinator.errors import Errors
from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.coordinator.share_states import SHARE_STATE_TOPIC
from coordinator_core.drill.answers import Failover, asked_alike
from coordinator_core.drill.changes import GroupChanges, changes, lost_ms
from coordinator_core.drill.copies import ClusterLogs
from coordinator_core.drill.loading import load_band
from coordinator_core.drill.model import (
    PREDICTION_VERSION,
    Band,
    Calibration,
    Cut,
    GroupPrediction,
    Objectives,
    PartitionPrediction,
    Phase,
    PhaseName,
    Prediction,
    ServedGroup,
    Step,
)
from coordinator_core.drill.scenario import Kind, Scenario
from coordinator_core.drill.served import served
from coordinator_core.drill.timing import ClientSettings, ClusterSettings, moved_after, outage
from coordinator_core.drill.verdict import judged, totals
from coordinator_core.durations import is_or_are, numbered
from coordinator_core.errors import UsageError
from coordinator_core.groups.model import ClassicGroup, Group, GroupState, PartitionState, ShareGroup
from coordinator_core.releases import Profile
from coordinator_core.topology import NO_LEADER, PartitionInfo, Topology

NOW = Band(0, 0)
NEVER = Band(0, None)
_SERVED = frozenset({Errors.NONE.name})
_AT_REST = frozenset({GroupState.STABLE, GroupState.EMPTY, GroupState.NOT_READY})
"""Also a streams group whose topics are not there: a failover does not bring them."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A cluster as a drill finds it."""

    topology: Topology
    logs: ClusterLogs
    profile: Profile
    calibration: Calibration
    cluster: str | None = None
    settings: ClusterSettings = field(default_factory=ClusterSettings)
    coordinator: BrokerSettings = field(default_factory=BrokerSettings)
    client: ClientSettings = field(default_factory=ClientSettings)


def predict(situation: Situation, scenario: Scenario, objectives: Objectives, *, predicted_at_ms: int) -> Prediction:
    """Effects of ``scenario``.

    Raises :class:`UsageError` for a scenario that names brokers or racks the topology does not have, and
    for a topology without assignment.
    """
    topology = situation.topology
    partitions = _offsets_partitions(topology)
    steps = _steps(scenario, topology)
    partition_rows: list[PartitionPrediction] = []
    group_rows: list[GroupPrediction] = []
    topologies = [topology, *(after for _, after in steps)]
    for (step, _), (before, after) in zip(steps, pairwise(topologies), strict=True):
        found = _Step(situation, scenario, step, before, after)
        partition_rows += found.partitions
        group_rows += found.groups()
    summed = totals(partition_rows, group_rows)
    verdict, reasons = judged(summed, partition_rows, group_rows, objectives)
    return Prediction(
        version=PREDICTION_VERSION,
        scenario=scenario,
        cluster=situation.cluster,
        predicted_at_ms=predicted_at_ms,
        cut=tuple(
            Cut(number, copy.log_start_offset, copy.log_end_offset)
            for number in range(len(partitions))
            if (copy := situation.logs.led_by(_known(partitions[number].leader), number)) is not None
        ),
        profile=situation.profile.label,
        calibration=situation.calibration,
        objectives=objectives,
        steps=tuple(step for step, _ in steps),
        partitions=tuple(partition_rows),
        groups=tuple(group_rows),
        totals=summed,
        verdict=verdict,
        reasons=reasons,
        cluster_id=topology.cluster_id,
    )


def _offsets_partitions(topology: Topology) -> tuple[PartitionInfo, ...]:
    partitions = topology.offsets_partitions or ()
    for info in partitions:
        if not info.replicas:
            raise UsageError(f"the topology lacks the replicas of offsets partition {info.partition}")
    return partitions


def _known(leader: int) -> int | None:
    return None if leader == NO_LEADER else leader


def _steps(scenario: Scenario, topology: Topology) -> list[tuple[Step, Topology]]:
    """The steps, each with the topology after it."""
    brokers = _brokers(scenario, topology)
    if not scenario.orderly:
        return [_loss(scenario, topology, brokers)]
    found: list[tuple[Step, Topology]] = []
    now = topology
    for number, broker_id in enumerate(brokers):
        what = f"broker {broker_id} shuts down"
        if number:
            what = f"broker {brokers[number - 1]} is back, {what}"
            now = now.restored(brokers[number - 1])
        now = now.without(broker_id)
        found.append((Step(number, what, (broker_id,)), now))
    what = f"broker {brokers[-1]} is back"
    now = now.restored(brokers[-1])
    if scenario.preferred_leaders:
        what += ", preferred leaders are elected"
        now = now.with_preferred_leaders()
    return [*found, (Step(len(brokers), what, ()), now)]


def _loss(scenario: Scenario, topology: Topology, brokers: tuple[int, ...]) -> tuple[Step, Topology]:
    ids = ", ".join(map(str, brokers))
    what = f"broker {ids} is lost" if len(brokers) == 1 else f"brokers {ids} are lost"
    if not topology.has_quorum_without(*brokers):
        return Step(0, f"{what}, no controller is left", brokers), topology.unled_without(*brokers)
    if scenario.unclean:
        what += ", replicas that are not in sync may lead"
    return Step(0, what, brokers), topology.without(*brokers, unclean=scenario.unclean)


def _brokers(scenario: Scenario, topology: Topology) -> tuple[int, ...]:
    if scenario.kind is Kind.LOSE_RACK:
        racks = topology.racks()
        if scenario.rack not in racks:
            known = ", ".join(sorted(racks)) or "none"
            raise UsageError(f"the topology has no rack {scenario.rack} (it has {known})")
        return tuple(sorted(racks[scenario.rack]))
    for broker_id in scenario.brokers:
        if broker_id not in topology.brokers:
            known = ", ".join(map(str, sorted(topology.brokers)))
            raise UsageError(f"the topology has no broker {broker_id} (it has {known})")
    found = scenario.brokers or tuple(one for one in sorted(topology.brokers) if topology.is_alive(one))
    if not found:
        raise UsageError("the topology has no broker that is alive")
    return found


class _Step:
    """One step: its partitions, and then its groups."""

    def __init__(self, situation: Situation, scenario: Scenario, step: Step, before: Topology, after: Topology) -> None:
        self._situation = situation
        self._step = step
        self._orderly, self._unclean = scenario.orderly, scenario.unclean
        active = before.active_controller_id
        lost = None if active is None else active in step.down
        self._moves = moved_after(situation.settings, orderly=scenario.orderly, controller_lost=lost)
        self._first = _offsets_partitions(situation.topology)
        olds, news = _offsets_partitions(before), _offsets_partitions(after)
        self._queues: defaultdict[int, list[int]] = defaultdict(list)
        for old, new in zip(olds, news, strict=True):
            copy = situation.logs.led_by(new.leader, new.partition)
            if new.leader not in (NO_LEADER, old.leader) and copy is not None:
                self._queues[new.leader].append(copy.records)
        self.partitions = [self._partition(old, new) for old, new in zip(olds, news, strict=True)]
        self._answers: dict[tuple[object, ...], dict[str, str]] = {}
        self._outages: dict[Band | None, Band] = {None: NOW}
        self._pending: dict[int, set[str]] = {}
        self._start_offsets_stay = _start_offsets_stay(before, after, unclean=scenario.unclean)

    def _partition(self, old: PartitionInfo, new: PartitionInfo) -> PartitionPrediction:
        # Else only a replica in sync, or an eligible one, leads: maybe one that is back since ``old``.
        unclean = self._unclean and new.leader not in (NO_LEADER, old.leader, *old.isr, *old.elr)
        row = PartitionPrediction(
            step=self._step.number,
            offsets_partition=old.partition,
            leader_before=_known(old.leader),
            leader_after=_known(new.leader),
            leader_epoch_before=old.leader_epoch,
            leader_epoch_after=new.leader_epoch,
            unclean=unclean,
            lost_records=0,
            lost_ms=0,
        )
        if new.leader == old.leader:
            return row
        first = self._situation.logs.led_by(_known(self._first[old.partition].leader), old.partition)
        if first is not None:
            row = replace(row, groups=len(first.state.groups), offsets=first.offsets)
        if new.leader == NO_LEADER:
            return replace(row, available_ms=NEVER)
        copy = self._situation.logs.led_by(new.leader, new.partition)
        load = None
        if copy is not None:
            load = load_band(self._situation.calibration, copy.records, self._queues[new.leader])
        # Without a copy nobody can say how long the load takes; it begins when the leader is elected.
        available = Band(self._moves.low, None) if load is None else self._moves + load
        if old.leader == NO_LEADER:
            available = Band(0, available.high)
        row = replace(
            row,
            records_to_load=None if copy is None else copy.records,
            bytes_to_load=None if copy is None else copy.bytes,
            load_ms=load,
            available_ms=available,
        )
        return self._with_loss(row) if unclean else row

    def _with_loss(self, row: PartitionPrediction) -> PartitionPrediction:
        logs, number = self._situation.logs, row.offsets_partition
        after = logs.own(row.leader_after, number)
        before = logs.led_by(row.leader_before, number)
        if after is None or before is None or after is before:
            return replace(row, lost_records=None, lost_ms=None)
        return replace(
            row,
            lost_records=max(0, before.log_end_offset - after.log_end_offset),
            lost_ms=lost_ms(before.state, after.state),
        )

    def groups(self) -> Iterator[GroupPrediction]:
        """Sorted by group id."""
        found: dict[str, GroupPrediction] = {}
        for row in self.partitions:
            before, after = self._states(row)
            if before is None or after is None:
                continue
            differs = changes(before, after) if before is not after else {}
            self._pending[row.offsets_partition] = {
                offset_key.group_id for commits in after.pending.values() for offset_key in commits
            }
            for group_id in sorted(before.groups.keys() | after.groups.keys()):
                found[group_id] = self._group(row, before, after, group_id, differs.get(group_id))
        return (found[group_id] for group_id in sorted(found))

    def _states(self, row: PartitionPrediction) -> tuple[PartitionState | None, PartitionState | None]:
        """States of the old coordinator and of the new one after its load; the same where nothing can be lost.

        In every step the old one has what the leader of the beginning has.
        """
        logs, number = self._situation.logs, row.offsets_partition
        before = logs.led_by(_known(self._first[number].leader), number)
        if before is None:
            return None, None
        after = logs.own(row.leader_after, number) if row.unclean else None
        return before.state, (after or before).state

    def _group(
        self,
        row: PartitionPrediction,
        before: PartitionState,
        after: PartitionState,
        group_id: str,
        change: GroupChanges | None,
    ) -> GroupPrediction:
        group = before.groups.get(group_id) or after.groups[group_id]
        change = change or GroupChanges()
        phases = tuple(self._phases(row, before, after, group))
        rebalances, reason = self._rebalances(row, before, after, group)
        return GroupPrediction(
            step=row.step,
            group_id=group_id,
            type=group.type,
            members=len(group.members),
            offsets_partition=row.offsets_partition,
            coordinator_before=row.leader_before,
            coordinator_after=row.leader_after,
            phases=phases,
            outage_ms=self._outage(row.available_ms),
            rebalances=rebalances,
            reason=reason,
            regressed=tuple(change.regressed),
            vanished=tuple(change.vanished),
            undone=tuple(change.undone),
            hanging_transactions=tuple(change.hanging),
            records_read_again=change.records_read_again,
            served=self._served(row, after, group_id),
            start_offsets_stay=self._start_offsets_stay if isinstance(group, ShareGroup) else None,
        )

    def _served(self, row: PartitionPrediction, after: PartitionState, group_id: str) -> ServedGroup | None:
        if row.leader_after is None or row.lost_records is None:
            return None
        return served(after.groups.get(group_id))

    def _outage(self, available: Band | None) -> Band:
        if available not in self._outages:
            assert available is not None
            self._outages[available] = outage(available, self._situation.client)
        return self._outages[available]

    def _phases(
        self, row: PartitionPrediction, before: PartitionState, after: PartitionState, group: Group
    ) -> Iterator[Phase]:
        if not row.moved:
            return
        names = list(PhaseName) if row.leader_after is not None else [PhaseName.NOT_AVAILABLE]
        begins = {
            PhaseName.NOT_AVAILABLE: NOW,
            PhaseName.LOADING: self._moves,
            PhaseName.SERVING: row.available_ms or NEVER,
        }
        failover: Failover | None = None
        for name in names:
            key = self._alike(row, before, after, group, name)
            if key not in self._answers:
                failover = failover or self._failover(before, after, group.group_id)
                self._answers[key] = failover.answers(name, orderly=self._orderly, led=row.leader_after is not None)
            answers = self._answers[key]
            if name is PhaseName.SERVING and row.lost_records is None:
                answers = {"FindCoordinator": answers["FindCoordinator"]}
            yield Phase(name, begins[name], answers)

    def _alike(
        self, row: PartitionPrediction, before: PartitionState, after: PartitionState, group: Group, phase: PhaseName
    ) -> tuple[object, ...]:
        """Key of the answers: groups that share it are asked for once."""
        key = (phase, row.leader_after is None, *asked_alike(group))
        if phase is not PhaseName.SERVING:
            return key
        if not _is_the_same(before, after, group.group_id):
            return (*key, group.group_id)
        pending = group.group_id in self._pending[after.offsets_partition]
        return (*key, group.state, pending, isinstance(group, ClassicGroup) and group.is_simple)

    def _failover(self, before: PartitionState, after: PartitionState, group_id: str) -> Failover:
        situation = self._situation
        count = len(situation.topology.offsets_partitions or ())
        return Failover(
            before,
            after,
            group_id,
            replace(situation.coordinator, offsets_topic_num_partitions=count),
            situation.profile,
        )

    def _rebalances(
        self, row: PartitionPrediction, before: PartitionState, after: PartitionState, group: Group
    ) -> tuple[bool | None, str]:
        if not row.moved:
            return False, "its coordinator stays"
        if row.leader_after is None:
            return False, "nobody coordinates it"
        if row.unclean and row.lost_records is None:
            return None, "the new leader is not in sync, and its copy is not given"
        known = before.groups.get(group.group_id)
        if known is None or not known.members:
            return False, "it has no members"
        if known.state not in _AT_REST:
            return True, f"it is {known.state} already"
        if isinstance(known, ShareGroup) and known.is_initializing:
            return None, "it rebalances once its new share-partitions have state at the share coordinator"
        if before is after:
            return False, "the new coordinator loads the same members, and their sessions begin anew"
        return self._answered(before, after, group)

    def _answered(self, before: PartitionState, after: PartitionState, group: Group) -> tuple[bool, str]:
        """Judged by the heartbeats of its members, and by members that the new coordinator alone has."""
        if _is_the_same(before, after, group.group_id):
            return False, "the new coordinator has loaded every member"
        failover = self._failover(before, after, group.group_id)
        failover.serve()
        refused = {error for error in failover.heartbeats().values() if error not in _SERVED}
        if refused:
            return True, f"heartbeats are answered {', '.join(sorted(refused))}"
        back = _member_ids(after.groups.get(group.group_id)) - _member_ids(group)
        if back:
            members = f"{numbered(len(back), 'member')} that had left {is_or_are(len(back))} back"
            return True, f"{members}, until the session is over"
        return False, "the new coordinator has loaded every member"


def _start_offsets_stay(before: Topology, after: Topology, *, unclean: bool) -> bool | None:
    """Whether share coordinators lose nothing: a leader that was in sync, or eligible, has all acknowledged records."""
    if not unclean:
        return True
    if SHARE_STATE_TOPIC not in before.topics:
        return None
    pairs = zip(before.topics[SHARE_STATE_TOPIC].partitions, after.topics[SHARE_STATE_TOPIC].partitions, strict=True)
    return True if all(new.leader in (old.leader, *old.isr, *old.elr) for old, new in pairs) else None


def _is_the_same(before: PartitionState, after: PartitionState, group_id: str) -> bool:
    """Whether the group itself is, whatever became of its offsets."""
    return before is after or before.groups.get(group_id) == after.groups.get(group_id)


def _member_ids(group: Group | None) -> set[str]:
    if group is None:
        return set()
    if isinstance(group, ClassicGroup):
        return {member.member_id for member in group.members}
    return set(group.members)
