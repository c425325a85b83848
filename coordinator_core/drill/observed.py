"""Observations of a journal in the terms of a prediction: leaders, coordinators, rebalances, offsets, outages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from coordinator_core.drill.canaries import PREFIX
from coordinator_core.drill.journal import Event, of_kind
from coordinator_core.drill.model import Band, OffsetChange, ServedGroup
from coordinator_core.jsontext import from_json

FAULT = "fault"
"""Phase of the events from the fault until the recovery begins."""

_SERVED = "NONE"
_LOADING = "COORDINATOR_LOAD_IN_PROGRESS"
_TIMELINE_APIS = ("FindCoordinator", "OffsetFetch")
"""A commit may wait, or fail, for a replica that is lost although its coordinator serves."""


class Service(StrEnum):
    """Service that a canary got; the names are those of the predicted phases."""

    SERVED = "serving"
    LOADING = "loading"
    NOT_AVAILABLE = "not_available"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time from ``begins_ms`` to ``ends_ms`` (epoch) in which every answer to a canary was of one kind."""

    service: Service
    begins_ms: int
    ends_ms: int


@dataclass(frozen=True, slots=True)
class ObservedPartition:
    """``leader_after`` is ``None`` without a leader. ``load_ms`` are the loads of the new leader.

    ``outage_ms`` holds the longest time in which the canary was not served: at least between the answers that
    say so, at most between those before and after. ``lost_records`` counts offsets that the pinned log had
    and the new leader's has not, ``canary_commits`` how many commits of our own, answered or not, may be among
    them.
    ``slowest_commit_ms`` is how long a commit of the canary took after the fault, at most, well or not.
    """

    offsets_partition: int
    leader_before: int | None
    leader_after: int | None
    load_ms: tuple[int, ...]
    outage_ms: Band
    lost_records: int | None
    canary_commits: int
    slowest_commit_ms: float | None
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class ObservedGroup:
    """``coordinator_after`` is ``None`` when no coordinator lists the group.

    ``served`` is a share or streams group after the fault, ``start_offsets`` those of a share group that went back or
    vanished; both ``None`` where brokers did not tell.
    """

    group_id: str
    coordinator_before: int | None
    coordinator_after: int | None
    generations: tuple[int, ...]
    regressed: tuple[OffsetChange, ...]
    vanished: tuple[OffsetChange, ...]
    served: ServedGroup | None = None
    start_offsets: tuple[OffsetChange, ...] | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """A drill as its journal has it. ``fault_at_ms`` is ``None`` when nothing was done to the cluster.

    ``complete``: the observation after the fault was not cut short. ``restored``: replicas are in sync again; ``None``
    without recovery. ``recovered_by`` names the command that recovered.
    """

    outcome: str | None
    reason: str | None
    complete: bool
    restored: bool | None
    recovered_by: str | None
    begins_ms: int
    ends_ms: int
    fault_at_ms: int | None
    rollback_at_ms: int | None
    restored_at_ms: int | None
    partitions: tuple[ObservedPartition, ...]
    groups: tuple[ObservedGroup, ...]


def observed(events: Sequence[Event]) -> Observed:
    """Observations from the events of a journal, also of one that ends early."""
    fault = of_kind(events, "method", stage="begins")
    rollback = of_kind(events, "rollback", stage="begins")
    restored = of_kind(events, "restored")
    verdict = of_kind(events, "verdict")
    fault_at = fault[0]["at_ms"] if fault else None
    rollback_at = rollback[0]["at_ms"] if rollback else None
    ends = max(event["at_ms"] for event in events)
    return Observed(
        outcome=verdict[-1]["outcome"] if verdict else None,
        reason=verdict[-1]["reason"] if verdict else None,
        complete=bool(of_kind(events, "settled", phase=FAULT) and of_kind(events, "group", phase=FAULT)),
        restored=restored[-1]["restored"] if restored else None,
        recovered_by=rollback[-1]["by"] if rollback else None,
        begins_ms=events[0]["at_ms"],
        ends_ms=ends,
        fault_at_ms=fault_at,
        rollback_at_ms=rollback_at,
        restored_at_ms=restored[-1]["at_ms"] if restored and restored[-1]["restored"] else None,
        partitions=tuple(_partitions(events, fault_at, rollback_at or ends)),
        groups=tuple(_groups(events, rollback_at or ends)),
    )


def _partitions(events: Sequence[Event], fault_at: int | None, until: int) -> list[ObservedPartition]:
    before = {event["offsets_partition"]: event for event in of_kind(events, "partition", phase="before")}
    after = {event["offsets_partition"]: event for event in of_kind(events, "partition", phase=FAULT)}
    logs = {event["offsets_partition"]: event for event in of_kind(events, "log", phase=FAULT)}
    probes: dict[int, list[Event]] = {}
    for event in of_kind(events, "probe"):
        probes.setdefault(event["offsets_partition"], []).append(event)
    loads = of_kind(events, "load", phase=FAULT)
    found = []
    for number in sorted(before):
        leader = after[number]["leader"] if number in after else None
        mine = sorted(probes.get(number, ()), key=lambda event: event["at_ms"])
        log = logs.get(number)
        found.append(
            ObservedPartition(
                offsets_partition=number,
                leader_before=before[number]["leader"],
                leader_after=leader,
                load_ms=tuple(
                    event["load_ms"]
                    for event in loads
                    if event["offsets_partition"] == number and event["broker"] == leader
                ),
                outage_ms=_outage(mine, fault_at, until),
                lost_records=None if log is None else log["pinned_end_offset"] - log["shared_end_offset"],
                canary_commits=sum(
                    event["api"] == "OffsetCommit" for event in mine if fault_at is None or event["at_ms"] <= fault_at
                ),
                slowest_commit_ms=max(
                    (
                        event["latency_ms"]
                        for event in mine
                        if event["api"] == "OffsetCommit"
                        and fault_at is not None
                        # Requests under way when the fault came count, too.
                        and fault_at - event["latency_ms"] <= event["at_ms"] <= until
                    ),
                    default=None,
                ),
                stretches=_stretches(mine),
            )
        )
    return found


def _service(event: Event) -> Service | None:
    if event["api"] not in _TIMELINE_APIS:
        return None
    if event["answer"] == _SERVED:
        # A lookup that names a coordinator is no service yet.
        return None if event["api"] == "FindCoordinator" else Service.SERVED
    return Service.LOADING if event["answer"] == _LOADING else Service.NOT_AVAILABLE


def _stretches(probes: Sequence[Event]) -> tuple[Stretch, ...]:
    found: list[Stretch] = []
    for event in probes:
        service = _service(event)
        if service is None:
            continue
        at = event["at_ms"]
        if found and found[-1].service is service:
            found[-1] = Stretch(service, found[-1].begins_ms, at)
        else:
            begins = found[-1].ends_ms if found else at
            found.append(Stretch(service, begins, at))
    return tuple(found)


def _outage(probes: Sequence[Event], fault_at: int | None, until: int) -> Band:
    """The longest time without service between the fault and ``until``."""
    if fault_at is None:
        return Band(0, 0)
    worst = Band(0, 0)
    last_served, first_failed, last_failed = fault_at, None, None
    for event in probes:
        service, at = _service(event), event["at_ms"]
        if service not in (None, Service.SERVED) and at < fault_at < at + event["latency_ms"]:
            # It was under way when the fault came, and got no answer for it.
            at = fault_at
        if service is None or at < fault_at or at > until:
            continue
        if service is not Service.SERVED:
            first_failed = at if first_failed is None else first_failed
            last_failed = at
            continue
        if first_failed is not None and last_failed is not None and at - last_served > (worst.high or 0):
            worst = Band(last_failed - first_failed, at - last_served)
        last_served, first_failed, last_failed = at, None, None
    return worst if first_failed is None else Band(until - first_failed, None)


def _groups(events: Sequence[Event], until: int) -> list[ObservedGroup]:
    before = {event["group_id"]: event for event in of_kind(events, "group", phase="before")}
    after = {event["group_id"]: event for event in of_kind(events, "group", phase=FAULT)}
    changes: dict[str, list[OffsetChange]] = {}
    for event in of_kind(events, "backwards"):
        if event["at_ms"] <= until and not event["group_id"].startswith(PREFIX):
            change = OffsetChange(event["topic"], event["partition"], event["before"], event["after"])
            changes.setdefault(event["group_id"], []).append(change)
    generations: dict[str, list[int]] = {}
    for event in of_kind(events, "generation", phase=FAULT):
        reached = generations.setdefault(event["group_id"], [])
        if event["generation"] is not None and event["generation"] not in reached[-1:]:
            reached.append(event["generation"])
    found = []
    for group_id in sorted(before):
        mine = sorted(changes.get(group_id, ()), key=lambda one: (one.topic, one.partition))
        found.append(
            ObservedGroup(
                group_id=group_id,
                coordinator_before=before[group_id]["coordinator"],
                coordinator_after=after[group_id]["coordinator"] if group_id in after else None,
                generations=tuple(generations.get(group_id, ())),
                regressed=tuple(one for one in mine if one.after is not None),
                vanished=tuple(one for one in mine if one.after is None),
                served=_served(after.get(group_id, {})),
                start_offsets=_start_offsets(before[group_id], after.get(group_id, {})),
            )
        )
    return found


def _served(after: Event) -> ServedGroup | None:
    told = after.get("served")
    return None if told is None else from_json(ServedGroup, told)


def _start_offsets(before: Event, after: Event) -> tuple[OffsetChange, ...] | None:
    """Start offsets of a share group that are lower, or gone."""
    old, new = before.get("start_offsets"), after.get("start_offsets")
    if old is None or new is None:
        return None
    now = {(topic, partition): offset for topic, partition, offset in new}
    changes = (OffsetChange(topic, number, was, now.get((topic, number))) for topic, number, was in old)
    return tuple(one for one in changes if one.after is None or one.after < (one.before or 0))
