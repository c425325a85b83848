"""Groups that rebalance at the same time: what they have in common is the cause."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator_core.durations import HOUR_MS
from coordinator_core.history.lessons import SHORTEST_RETENTION_MS
from coordinator_core.history.model import (
    Certainty,
    Change,
    EndKind,
    GroupHistory,
    LeaderChange,
    PartitionHistory,
    Removal,
)
from coordinator_core.history.signs import rounds_of
from coordinator_core.investigate.model import Event, Explanation
from coordinator_core.investigate.words import count, moment, span
from coordinator_core.rules.model import Severity

_AT_ONCE_MS = 120_000
"""Time in which groups notice the same thing: a session timeout of consumers, 45 s, and the rebalance after it."""
_GROUPS = 3
_SHARE = 0.5
_SHOWN = 8
_SWEEPS_MS = 1_800_000
"""Ages that one sweep finds too old differ by less: ``offsets.retention.check.interval.ms`` is 10 minutes."""
_REQUESTS = frozenset({EndKind.DELETE_GROUPS, EndKind.OFFSET_DELETE})
_WAYS = {
    EndKind.EXPIRY: "they expired",
    EndKind.DELETE_GROUPS: "somebody deleted the groups (DeleteGroups)",
    EndKind.OFFSET_DELETE: "somebody deleted the offsets (OffsetDelete)",
    EndKind.TOPIC_DELETION: "a topic that they read was deleted",
    EndKind.NO_RULE: "no rule of this release justifies it",
}
_REMEDIES = {
    EndKind.EXPIRY: "Raise offsets.retention.minutes above the longest time that consumers are stopped.",
    EndKind.DELETE_GROUPS: "Ask who ran kafka-consumer-groups.sh --delete, or a clean-up job, at that time.",
    EndKind.OFFSET_DELETE: "Ask who ran kafka-consumer-groups.sh --delete-offsets at that time.",
    EndKind.TOPIC_DELETION: "Ask who deleted the topic, if that was not meant.",
    EndKind.NO_RULE: "Find out who may write to __consumer_offsets: only brokers should (ACLs of the topic).",
}


class _Round(NamedTuple):
    at_ms: int
    group: GroupHistory
    change: Change


def explain_together(histories: Sequence[PartitionHistory]) -> Iterator[Explanation]:
    """Times at which at least half of the groups, and no fewer than three, lost members."""
    of_groups = [(group, rounds_of(group)) for history in histories for group in history.groups.values()]
    rounds = sorted(
        (
            _Round(change.place.timestamp_ms, group, change)
            for group, all_of in of_groups
            for change in all_of
            if change.left
        ),
        key=lambda one: (one.at_ms, one.group.offsets_partition, one.change.place.record_offset),
    )
    born = sorted(all_of[0].place.timestamp_ms for _, all_of in of_groups if all_of)
    leaders = [one for history in histories for one in history.leaders]
    begin = end = 0
    while begin < len(rounds):
        while end < len(rounds) and rounds[end].at_ms - rounds[begin].at_ms <= _AT_ONCE_MS:
            end += 1
        alive = bisect_left(born, rounds[end - 1].at_ms)
        if end - begin < max(_GROUPS, _SHARE * alive):
            begin += 1
            continue
        some = rounds[begin:end]
        groups = {(one.group.offsets_partition, one.group.group_id) for one in some}
        if len(groups) >= max(_GROUPS, _SHARE * alive):
            yield _together(some, len(groups), alive, leaders)
        begin = end


class _Loss(NamedTuple):
    at_ms: int
    group: GroupHistory
    removal: Removal


def explain_lost_together(histories: Sequence[PartitionHistory]) -> Iterator[Explanation]:
    """Times at which at least half of the groups, and no fewer than three, lost committed offsets."""
    groups = [group for history in histories for group in history.groups.values() if group.versions or group.removals]
    losses = sorted(
        (
            _Loss(one.place.timestamp_ms, group, one)
            for group in groups
            for one in group.removals
            if one.place.timestamp_ms >= 0
        ),
        key=lambda one: (one.at_ms, one.group.offsets_partition, one.removal.place.record_offset),
    )
    leaders = [one for history in histories for one in history.leaders]
    times = [one.at_ms for one in losses]
    at = 0
    while at < len(losses):
        some = losses[at : bisect_right(times, times[at] + _AT_ONCE_MS)]
        lost = {(one.group.offsets_partition, one.group.group_id) for one in some}
        if len(lost) >= max(_GROUPS, _SHARE * len(groups)):
            yield _lost_together(some, len(lost), len(groups), leaders)
        at += len(some)


def _lost_together(some: Sequence[_Loss], groups: int, known: int, leaders: Sequence[LeaderChange]) -> Explanation:
    first, last = some[0], some[-1]
    kinds = Counter(one.removal.end.kind for one in some if one.removal.end is not None)
    kind = kinds.most_common(1)[0][0]
    stood = [
        one
        for one in leaders
        if one.pause_ms >= HOUR_MS and first.at_ms - HOUR_MS <= one.place.timestamp_ms <= last.at_ms
    ]
    ends = [(one.removal.age_ms, one.removal.end) for one in some]
    ages = [
        age
        for age, end in ends
        if age is not None and end is not None and end.certainty is Certainty.POSSIBLE and age >= SHORTEST_RETENTION_MS
    ]
    # One that takes the youngest would have taken the oldest before.
    is_no_sweep = (
        kind in _REQUESTS | {EndKind.EXPIRY}
        and 2 * len(ages) > len(some)
        and max(ages) - min(ages) > _SWEEPS_MS
        and not stood
    )
    if is_no_sweep:
        kind = kind if kind in _REQUESTS else EndKind.DELETE_GROUPS
    verdict = (
        f"{groups} of {count(known, 'group')} lost {count(len(some), 'committed offset')} within "
        f"{span(last.at_ms - first.at_ms)}, from {moment(first.at_ms)} on: {_WAYS[kind]}"
    )
    if len(kinds) > 1 and not is_no_sweep:
        verdict += f" ({', '.join(f'{name.value} {number:,}' for name, number in kinds.most_common())})"
    verdict += "."
    if is_no_sweep:
        verdict += (
            f" No sweep took them: they were {span(min(ages))} to {span(max(ages))} old, and a retention that ends the "
            "youngest would have ended the oldest before."
        )
    now = [_REMEDIES[kind]]
    if stood and kind is EndKind.EXPIRY:
        down = max(stood, key=lambda one: one.pause_ms)
        verdict += (
            f" Nothing had been written to offsets partition {down.place.offsets_partition} for {span(down.pause_ms)} "
            f"before (leader epoch {down.epoch_before} to {down.place.leader_epoch}): the cluster was down, longer "
            "than the retention, and the first sweep after its start found everything too old."
        )
        now = [
            "Raise offsets.retention.minutes before brokers are started after a long stop, and start consumers at "
            "once: members protect the offsets of what they subscribe to from release 2.1 on.",
            *now,
        ]
    return Explanation(
        "groups-lost-offsets-together",
        Severity.WARNING if kind is EndKind.NO_RULE or (stood and kind is EndKind.EXPIRY) else Severity.INFO,
        verdict,
        first.at_ms,
        offsets_partition=first.group.offsets_partition,
        events=[Event(one.place, f"leader epoch {one.place.leader_epoch}") for one in stood[:_SHOWN]],
        evidence=[
            Event(one.removal.place, f"{one.group.group_id}: tombstone of {one.removal.offset_key.topic}")
            for one in {one.group.group_id: one for one in reversed(some)}.values()
        ][-_SHOWN:],
        not_this=["It is no trouble of one group: the same took the offsets of all of them."],
        now=[*now, "What each of them lost, and how to put it back: regroup investigate SNAPSHOT --group GROUP"],
    )


def _together(some: Sequence[_Round], groups: int, alive: int, leaders: Sequence[LeaderChange]) -> Explanation:
    first, last = some[0], some[-1]
    homes = {one.group.offsets_partition for one in some}
    moved = [
        one
        for one in leaders
        if one.place.offsets_partition in homes
        and first.at_ms - one.pause_ms - _AT_ONCE_MS <= one.place.timestamp_ms <= last.at_ms
    ]
    verdict = (
        f"{groups} of {count(alive, 'group')} lost members and rebalanced within "
        f"{span(last.at_ms - first.at_ms)}, from {moment(first.at_ms)} on: "
    )
    hosts = Counter(host for one in some for host in {member.client_host for member in one.change.left})
    host, lost = hosts.most_common(1)[0] if hosts else ("", 0)
    if moved:
        at = moved[0]
        places = count(len({one.place.offsets_partition for one in moved}), "offsets partition")
        verdict += (
            f"the coordinator of {places} moved (partition {at.place.offsets_partition}, leader epoch "
            f"{at.epoch_before} to {at.place.leader_epoch}, after {span(at.pause_ms)} without a write)."
        )
        now = (
            "Look at the brokers that led these partitions until then: a restart, a session that expired, a full disk."
        )
    elif lost >= _SHARE * groups:
        verdict += (
            f"members on {host} left {lost} of them. That host, or the network to it, went away or was deployed to."
        )
        now = f"Look at {host} at that time: restarts, its network, a pause of the machine."
    else:
        verdict += "the coordinators did not move, and the members that left are on different hosts."
        now = (
            "Look for what they share: a deployment, a network path, a broker that their fetches and heartbeats go to."
        )
    return Explanation(
        "groups-rebalanced-together",
        Severity.INFO,
        verdict,
        first.at_ms,
        offsets_partition=first.group.offsets_partition,
        events=[Event(one.place, f"leader epoch {one.place.leader_epoch}") for one in moved[:_SHOWN]],
        evidence=[
            Event(one.change.place, f"{one.group.group_id}: generation {one.change.generation}")
            for one in some[:_SHOWN]
        ],
        not_this=["It is no trouble of one group: look at what they have in common first."],
        now=[now],
    )
