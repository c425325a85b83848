"""Groups that rebalance at the same time: what they have in common is the cause."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator_core.history.model import Change, GroupHistory, LeaderChange, PartitionHistory
from coordinator_core.history.signs import rounds_of
from coordinator_core.investigate.model import Event, Explanation
from coordinator_core.investigate.words import count, moment, span
from coordinator_core.rules.model import Severity

_AT_ONCE_MS = 120_000
"""Time in which groups notice the same thing: a session timeout of consumers, 45 s, and the rebalance after it."""
_GROUPS = 3
_SHARE = 0.5
_SHOWN = 8


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
