"""Groups that rebalance at the same time: what they have in common is the cause."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator_core.durations import HOUR_MS, MINUTE_MS, span
from coordinator_core.history.lessons import SHORTEST_RETENTION_MS
from coordinator_core.history.model import (
    Certainty,
    Change,
    End,
    EndKind,
    GroupHistory,
    LeaderChange,
    PartitionHistory,
    Removal,
)
from coordinator_core.history.signs import rounds_of
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.losses import likeliest_end
from coordinator_core.investigate.model import SHOWN, Case, Event, Explanation
from coordinator_core.investigate.words import count, moment
from coordinator_core.rules.model import Severity

_AT_ONCE_MS = 120_000
"""Time in which groups notice the same thing: a session timeout of consumers, 45 s, and the rebalance after it."""
_BEGIN_AGAIN_MS = 600_000
"""Time in which members find a coordinator that moved, join, and commit."""
_GROUPS = 3
_SHARE = 0.5
_SWEEPS_MS = 1_800_000
"""Ages that one sweep finds too old differ by less: ``offsets.retention.check.interval.ms`` is 10 minutes."""
_REQUESTS = frozenset({EndKind.DELETE_GROUPS, EndKind.OFFSET_DELETE})
_EITHER = {
    EndKind.TOPIC_DELETION: EndKind.DELETE_GROUPS,
    EndKind.DELETE_GROUPS: EndKind.TOPIC_DELETION,
}
"""Causes that leave the same tombstones."""
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
            if change.left and change.place.timestamp_ms >= 0
        ),
        key=lambda one: (one.at_ms, one.group.offsets_partition, one.change.place.record_offset),
    )
    born = sorted(min(one.place.timestamp_ms for one in all_of) for _, all_of in of_groups if all_of)
    leaders = _leaders(histories)
    begin = end = 0
    while begin < len(rounds):
        while end < len(rounds) and rounds[end].at_ms - rounds[begin].at_ms <= _AT_ONCE_MS:
            end += 1
        alive = bisect_right(born, rounds[end - 1].at_ms)
        if end - begin < max(_GROUPS, _SHARE * alive):
            begin += 1
            continue
        some = rounds[begin:end]
        groups = {(one.group.offsets_partition, one.group.group_id) for one in some}
        if len(groups) >= max(_GROUPS, _SHARE * alive):
            yield _together(some, len(groups), alive, leaders)
        begin = end


def explain_back_together(
    explanations: Sequence[Explanation], histories: Sequence[PartitionHistory], case: Case
) -> Iterator[Explanation]:
    """Times at which at least half of the groups, and no fewer than three, went back by commits of their own."""
    backs = sorted(
        (one for one in explanations if one.code == "moved-back" and one.group_id is not None and one.at_ms >= 0),
        key=lambda one: (one.at_ms, one.offsets_partition or 0, one.group_id or ""),
    )
    known = sum(1 for history in histories for group in history.groups.values() if group.versions)
    leaders = _leaders(histories)
    times = [one.at_ms for one in backs]
    at = 0
    while at < len(backs):
        some = backs[at : bisect_right(times, times[at] + _BEGIN_AGAIN_MS)]
        if len({one.group_id for one in some}) >= max(_GROUPS, _SHARE * known):
            yield _back_together(some, known, leaders, case)
            at += len(some)
        else:
            at += 1


def _back_together(some: Sequence[Explanation], known: int, leaders: Sequence[LeaderChange], case: Case) -> Explanation:
    first, last = some[0], some[-1]
    homes = {one.offsets_partition for one in some}
    moved = [
        one
        for one in leaders
        if one.place.offsets_partition in homes
        and first.at_ms - _BEGIN_AGAIN_MS <= one.place.timestamp_ms <= last.at_ms
    ]
    if homes != {one.place.offsets_partition for one in moved}:
        moved = []  # Of the others the coordinator had all offsets.
    verdict = (
        f"{len({one.group_id for one in some})} of {count(known, 'group')} went back within "
        f"{span(last.at_ms - first.at_ms)}, from {moment(first.at_ms)} on, by commits of their own: "
        f"{', '.join(dict.fromkeys(one.group_id or '' for one in some[:SHOWN]))}."
    )
    bug = None
    if moved:
        at = moved[-1].place
        verdict += (
            f" The coordinator of offsets partition {at.offsets_partition} had moved at {moment(at.timestamp_ms)} "
            f"(leader epoch {moved[-1].epoch_before} to {at.leader_epoch}, record {at.record_offset}): it had not the "
            "offsets that are in this log, and members began from older ones, or at auto.offset.reset."
        )
        bug = BUGS["KAFKA-5600"] if BUGS["KAFKA-5600"].fits(case.profile.release) else None
        if bug is not None:
            verdict += f" {bug.found_in(case.profile.release)}"
        now = [
            "Look at that broker's log of that time for 'Loading group metadata' and 'Finished loading offsets': a "
            "load that failed, ended early or overlapped an unload of the same partition (KAFKA-7447); restart it, or "
            "move the leader, so that it loads once more.",
        ]
    else:
        verdict += (
            " No move of the coordinators explains all: the topics may have lost records, or all clients were deployed."
        )
        now = [
            "Look for what they share: a topic whose records were lost or made again (their log ends), a deployment, a "
            "library of the application that seeks.",
        ]
    return Explanation(
        "groups-went-back-together",
        Severity.WARNING if bug is None else Severity.CRITICAL,
        verdict,
        first.at_ms,
        offsets_partition=first.offsets_partition,
        events=[Event(one.place, f"leader epoch {one.place.leader_epoch}") for one in moved[:SHOWN]],
        evidence=[one.evidence[0] for one in some[:SHOWN] if one.evidence],
        not_this=[
            "It is no trouble of one group or one client: look at what they have in common first.",
            "No tombstone is to blame: these offsets were neither expired nor deleted.",
        ],
        now=[
            *now,
            *([] if bug is None else [bug.advice]),
            "What each of them held, and how to put it back: regroup investigate SNAPSHOT --group GROUP --format csv",
        ],
        bug=None if bug is None else bug.id,
        restore={key: value for one in some for key, value in one.restore.items()},
    )


def _leaders(histories: Sequence[PartitionHistory]) -> list[LeaderChange]:
    """Moves of coordinators whose time is known."""
    return [one for history in histories for one in history.leaders if one.place.timestamp_ms >= 0]


class _Loss(NamedTuple):
    at_ms: int
    group: GroupHistory
    removal: Removal
    end: End


def explain_lost_together(histories: Sequence[PartitionHistory], case: Case) -> Iterator[Explanation]:
    """Times at which at least half of the groups, and no fewer than three, lost committed offsets."""
    groups = [group for history in histories for group in history.groups.values() if group.versions or group.removals]
    losses = sorted(
        (
            _Loss(one.place.timestamp_ms, group, one, likeliest_end([one], case))
            for group in groups
            for one in group.removals
            if one.end is not None and one.place.timestamp_ms >= 0
        ),
        key=lambda one: (one.at_ms, one.group.offsets_partition, one.removal.place.record_offset),
    )
    leaders = _leaders(histories)
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
    kinds = Counter(one.end.kind for one in some)
    kind = kinds.most_common(1)[0][0]
    stood = [
        one
        for one in leaders
        if one.pause_ms >= HOUR_MS and first.at_ms - HOUR_MS <= one.place.timestamp_ms <= last.at_ms
    ]
    ends = [(one.removal.age_ms, one.end) for one in some]
    ages = [
        age
        for age, end in ends
        if age is not None and end.certainty is Certainty.POSSIBLE and age >= SHORTEST_RETENTION_MS
    ]
    homes = {one.group.offsets_partition for one in some}
    started = [
        one
        for one in leaders
        if one.place.offsets_partition in homes and 0 <= first.at_ms - one.place.timestamp_ms <= HOUR_MS
    ]
    # One that takes the youngest would have taken the oldest before, unless the retention is new.
    is_no_sweep = (
        kind in _REQUESTS | {EndKind.EXPIRY}
        and 2 * len(ages) > len(some)
        and max(ages) - min(ages) > _SWEEPS_MS
        and not stood
        and not started
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
    other = None if is_no_sweep else _EITHER.get(kind)
    if other is not None and any(other in end.others for _, end in ends):
        verdict += f" Or {_WAYS[other]}: the log does not decide."
        now.append(_REMEDIES[other])
    may_be_age = [
        one.removal.age_ms
        for one in some
        if one.removal.age_ms is not None
        and EndKind.EXPIRY in (one.end.kind, *one.end.others)
        and one.end.certainty is Certainty.POSSIBLE
    ]
    if len(may_be_age) == len(some) and not is_no_sweep:
        verdict += (
            f" {'That' if kind is EndKind.EXPIRY else 'Or they expired; that'} takes an offsets.retention.minutes of "
            f"{min(may_be_age) // MINUTE_MS:,} or less: the log does not decide."
        )
        now = [
            "Look at offsets.retention.minutes of all brokers: kafka-configs.sh --bootstrap-server HOST:9092 "
            "--describe --all --entity-type brokers --entity-name ID; with --offsets-retention-ms this command "
            "decides.",
            *now,
        ]
        if started:
            at = started[-1].place
            verdict += (
                f" Offsets partition {at.offsets_partition} had got another coordinator "
                f"{span(first.at_ms - at.timestamp_ms)} before (leader epoch {started[-1].epoch_before} to "
                f"{at.leader_epoch}): a broker reads that setting when it starts, and its first sweep takes all "
                "that is older."
            )
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
        events=[Event(one.place, f"leader epoch {one.place.leader_epoch}") for one in stood[:SHOWN]],
        evidence=[
            Event(one.removal.place, f"{one.group.group_id}: tombstone of {one.removal.offset_key.topic}")
            for one in {one.group.group_id: one for one in reversed(some)}.values()
        ][-SHOWN:],
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
    if len(_behind(some, moved)) < _SHARE * groups:
        moved = []  # The coordinators of before wrote of most, or their members had found the new ones.
    verdict = (
        f"{groups} of {count(alive, 'group')} lost members and rebalanced within "
        f"{span(last.at_ms - first.at_ms)}, from {moment(first.at_ms)} on: "
    )
    left = {
        (member.client_host, one.group.offsets_partition, one.group.group_id)
        for one in some
        for member in one.change.left
    }
    hosts = Counter(host for host, *_ in sorted(left))
    host, lost = hosts.most_common(1)[0] if hosts else ("", 0)
    if moved:
        at = moved[0]
        places = count(len({one.place.offsets_partition for one in moved}), "offsets partition")
        verdict += (
            f"the coordinator of {places} moved (partition {at.place.offsets_partition}, leader epoch "
            f"{at.epoch_before} to {at.place.leader_epoch}{_after(at)})."
        )
        now = (
            "Look at the brokers that led these partitions until then: a restart, a session that expired, a full disk."
        )
    elif hosts and _is_only_host(host, some):
        verdict += (
            f"the coordinators did not move, and all their members are on {host}: one machine, or a proxy before many."
        )
        now = "Look for a deployment, and at what these clients share: their machine, a proxy, a network path."
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
        events=[Event(one.place, f"leader epoch {one.place.leader_epoch}") for one in moved[:SHOWN]],
        evidence=[
            Event(one.change.place, f"{one.group.group_id}: generation {one.change.generation}") for one in some[:SHOWN]
        ],
        not_this=["It is no trouble of one group: look at what they have in common first."],
        now=[now],
    )


def _after(change: LeaderChange) -> str:
    return f", after {span(change.pause_ms)} without a record" if change.pause_ms else ""


def _is_only_host(host: str, rounds: Sequence[_Round]) -> bool:
    """Whether no member of these groups was ever on another one, so that it tells nothing."""
    groups = {id(one.group): one.group for one in rounds}.values()
    members = (member for group in groups for change in group.changes for member in (*change.members, *change.left))
    return all(member.client_host == host for member in members)


def _behind(rounds: Sequence[_Round], moved: Sequence[LeaderChange]) -> set[tuple[int, str]]:
    """Groups that lost members soon after their coordinator had moved, none of whom had found the new one."""
    times = sorted(one.place.timestamp_ms for one in moved)
    moves: dict[int, list[tuple[int, int]]] = {}
    for one in moved:
        # It moved at some time in the pause: where others did, too.
        moved_ms = times[bisect_left(times, one.place.timestamp_ms - one.pause_ms)]
        moves.setdefault(one.place.offsets_partition, []).append((one.place.record_offset, moved_ms))
    found: dict[tuple[int, str, int], dict[str, int]] = {}
    behind = set()
    for at_ms, group, change in rounds:
        at = change.place.record_offset
        last = max((one for one in moves.get(group.offsets_partition, ()) if one[0] <= at), default=None)
        if last is None or at_ms - last[1] > _AT_ONCE_MS:
            continue
        key = group.offsets_partition, group.group_id, last[0]
        if key not in found:
            found[key] = _at_new_coordinator(group, last[0])
        if all(found[key].get(member.member_id, at) >= at for member in change.left):
            behind.add(key[:2])
    return behind


def _at_new_coordinator(group: GroupHistory, since: int) -> dict[str, int]:
    """Members by id that joined or committed from record offset ``since`` on, with a record that shows it."""
    found = {
        member.member_id: change.place.record_offset
        for change in reversed(group.changes)
        if change.place.record_offset >= since
        for member in change.joined
    }
    for _, version in group.all_versions():
        shown = version.place if version.place.record_offset >= since else version.last_place
        if version.member is not None and shown.record_offset >= since:
            known = found.get(version.member.member_id, shown.record_offset)
            found[version.member.member_id] = min(known, shown.record_offset)
    return found
