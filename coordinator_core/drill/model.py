"""A prediction as values: what each step of a scenario does to partitions and groups, and the verdict.

Times are milliseconds from the moment a broker is lost (or begins to shut down). Everything is sorted: steps
as they happen, partitions by number, groups by id.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from coordinator_core.drill.scenario import Scenario
from coordinator_core.durations import numbered
from coordinator_core.errors import UsageError
from coordinator_core.groups.model import GroupState, GroupType
from coordinator_core.jsontext import from_json, to_json
from coordinator_core.log.types import OFFSETS_TOPIC

PREDICTION_VERSION = 1
DISCONNECTED = "DISCONNECTED"
"""No answer: the broker is gone, does not answer in time, or is not known any more."""


@dataclass(frozen=True, slots=True)
class Band:
    """Between ``low`` and ``high``, both included. ``high`` is ``None``: no end within the scenario."""

    low: int
    high: int | None

    def __contains__(self, value: float) -> bool:
        return self.low <= value and (self.high is None or value <= self.high)

    def __add__(self, other: Band) -> Band:
        high = None if self.high is None or other.high is None else self.high + other.high
        return Band(self.low + other.low, high)


class PhaseName(StrEnum):
    """Phases of a coordinator that moves: nobody answers, the new one loads, the new one serves."""

    NOT_AVAILABLE = "not_available"
    LOADING = "loading"
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class Phase:
    """Answers that members get from ``begins_ms`` until the next phase begins.

    ``answers`` maps an API (``FindCoordinator``, the heartbeat of the group's protocol, ``OffsetCommit``,
    ``OffsetFetch``, ``JoinGroup``, ``SyncGroup``; of share and streams groups also their describe, of share groups
    ``DescribeShareGroupOffsets`` instead of commits) to the error name that a member of the group is answered,
    or :data:`DISCONNECTED`.
    """

    name: PhaseName
    begins_ms: Band
    answers: dict[str, str]


@dataclass(frozen=True, slots=True)
class PartitionPrediction:
    """One offsets partition in one step.

    ``leader_after`` is ``None`` while nobody may lead. ``records_to_load`` and ``bytes_to_load`` are of the
    new leader's copy where that is given, else of the copy replayed, ``None`` where neither is. ``load_ms``
    is the time that the broker reports for the load itself, ``available_ms`` when it serves; both ``None``
    where nothing moves. ``lost_records`` counts the records that the copy of ``leader_before`` has and that
    of ``leader_after`` lacks, ``lost_ms`` is how much younger the newest of them is than the newest left;
    ``None`` where the copies of both are not given and the election alone does not say that nothing is lost.
    ``groups`` and ``offsets`` count those that the old coordinator gives up, or loses: groups and committed offsets.
    """

    step: int
    offsets_partition: int
    leader_before: int | None
    leader_after: int | None
    leader_epoch_before: int
    leader_epoch_after: int
    unclean: bool
    records_to_load: int | None = None
    bytes_to_load: int | None = None
    load_ms: Band | None = None
    available_ms: Band | None = None
    lost_records: int | None = None
    lost_ms: int | None = None
    groups: int | None = None
    offsets: int | None = None

    @property
    def moved(self) -> bool:
        """A coordinator loads the partition anew, or nobody does."""
        return self.leader_before != self.leader_after


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """A committed offset that the new coordinator has otherwise, or (``None``) not at all."""

    topic: str
    partition: int
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is ended in the old leader's copy and open for ever in the new leader's."""

    offsets_partition: int
    producer_id: int
    producer_epoch: int


Assigned = dict[str, tuple[int, ...]]
"""Partitions in ascending order: by topic id in a share group, by subtopology id in a streams group."""


@dataclass(frozen=True, slots=True)
class ServedMember:
    """``assigned`` are share-partitions, or active tasks; only streams groups have the other tasks."""

    member_id: str
    epoch: int
    assigned: Assigned
    standby: Assigned = field(default_factory=dict)
    warmup: Assigned = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServedGroup:
    """A share or streams group as its coordinator describes it; members by id.

    ``topology_epoch`` is ``None`` for share groups, and for streams groups without topology.
    """

    state: GroupState
    group_epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    members: tuple[ServedMember, ...]


@dataclass(frozen=True, slots=True)
class GroupPrediction:
    """One group in one step. A group whose partition does not move has no phases and an outage of 0.

    ``outage_ms`` is from the loss until a client's first request is served again. ``rebalances`` is ``None``
    where that is not known; ``reason`` says why in each case. ``regressed`` are
    offsets that go back, ``vanished`` those that are gone, ``undone`` those that go forward or come back,
    because the lost commit was a reset or a deletion. ``records_read_again`` is the sum over ``regressed``. ``served``
    is a share or streams group as the coordinator has it once it serves, before members join anew; ``None`` for other
    types, and where that is not known. ``start_offsets_stay``: whether no start offset of a share group goes back or
    vanishes; ``None`` where that is not known. They are not in the offsets log, so their values are not here.
    """

    step: int
    group_id: str
    type: GroupType
    members: int
    offsets_partition: int
    coordinator_before: int | None
    coordinator_after: int | None
    phases: tuple[Phase, ...]
    outage_ms: Band
    rebalances: bool | None
    reason: str
    regressed: tuple[OffsetChange, ...] = ()
    vanished: tuple[OffsetChange, ...] = ()
    undone: tuple[OffsetChange, ...] = ()
    hanging_transactions: tuple[HangingTransaction, ...] = ()
    records_read_again: int = 0
    served: ServedGroup | None = None
    start_offsets_stay: bool | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: brokers ``down`` from then on, all others up."""

    number: int
    what: str
    down: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Source of load times: ``method`` is ``server-log``, ``samples``, ``machine``.

    A load takes ``base_ms`` and ``us_per_record`` microseconds a record, less or more by the factors of the
    band, and up to ``high_extra_ms`` more.
    """

    method: str
    samples: int
    base_ms: float
    us_per_record: float
    low_factor: float
    high_factor: float
    high_extra_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Cut:
    """Part of an offsets partition that was replayed: from ``log_start_offset`` up to ``log_end_offset``."""

    offsets_partition: int
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Objectives:
    """A group is to be served again within ``rto_ms``; commits of at most ``rpo_ms`` may be lost."""

    rto_ms: int | None = None
    rpo_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums and extremes over all steps; a group counts once however often it moves.

    ``worst_outage_ms`` is the longest single outage of a group. ``lost_ms`` is the largest of a partition,
    ``None`` where one is not known.
    """

    partitions: int
    partitions_moved: int
    partitions_without_leader: int
    groups: int
    groups_moved: int
    groups_without_coordinator: int
    groups_rebalancing: int
    offsets_regressed: int
    offsets_vanished: int
    hanging_transactions: int
    records_read_again: int
    worst_outage_ms: Band
    lost_ms: int | None


class Verdict(StrEnum):
    """``UNKNOWN``: an objective can be neither promised nor ruled out."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction of a scenario, made by :func:`~coordinator_core.drill.predict.predict`.

    ``cluster`` is a name for people, ``cluster_id`` that of the topology where it is known.
    """

    version: int
    scenario: Scenario
    cluster: str | None
    predicted_at_ms: int
    cut: tuple[Cut, ...]
    profile: str
    calibration: Calibration
    objectives: Objectives
    steps: tuple[Step, ...]
    partitions: tuple[PartitionPrediction, ...]
    groups: tuple[GroupPrediction, ...]
    totals: Totals
    verdict: Verdict
    reasons: tuple[str, ...]
    cluster_id: str | None = None

    def check_cluster(self, cluster_id: str | None, what: str) -> None:
        """Raises :class:`UsageError` where ``what`` is of another cluster than the prediction, as far as both tell."""
        if None not in (self.cluster_id, cluster_id) and self.cluster_id != cluster_id:
            raise UsageError(f"{what} is of cluster {cluster_id}, the prediction of {self.cluster_id}")

    def check_partitions(self, found: Collection[int]) -> None:
        """Raises :class:`UsageError` where the offsets topic has other partitions than the prediction."""
        predicted = self.first_leaders().keys()
        if predicted != set(found):
            said = numbered(len(found), "offsets partition")
            raise UsageError(f"the cluster has {said}, the prediction {len(predicted)}: predict again")

    def check_led(self) -> None:
        """Raises :class:`UsageError` where the prediction begins with an offsets partition that nobody leads."""
        unled = sorted(number for number, leader in self.first_leaders().items() if leader is None)
        if unled:
            more = f" and {len(unled) - 1} more" if len(unled) > 1 else ""
            raise UsageError(
                f"the prediction begins without a leader of {OFFSETS_TOPIC}-{unled[0]}{more}, and no drill does: "
                "capture the topology once all partitions have one, and predict again"
            )

    def brokers(self) -> tuple[int, ...]:
        """The brokers of the scenario, in the order in which they are lost or restarted."""
        return tuple(dict.fromkeys(broker_id for step in self.steps for broker_id in step.down))

    def first_leaders(self) -> dict[int, int | None]:
        """Leader of each offsets partition before the first step."""
        return {each.offsets_partition: each.leader_before for each in reversed(self._by_step())}

    def last_leaders(self) -> dict[int, int | None]:
        """Leader of each offsets partition after the last step."""
        return {each.offsets_partition: each.leader_after for each in self._by_step()}

    def _by_step(self) -> list[PartitionPrediction]:
        return sorted(self.partitions, key=lambda one: one.step)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = to_json(self)
        return document

    @classmethod
    def from_json(cls, value: Any) -> Prediction:
        """Raises :class:`UsageError` naming the first field that :meth:`to_json` would not write."""
        try:
            found = from_json(cls, value)
        except ValueError as error:
            raise UsageError(f"prediction: {error}") from None
        if found.version != PREDICTION_VERSION:
            raise UsageError(f"prediction: version {found.version} is not {PREDICTION_VERSION}")
        return found
