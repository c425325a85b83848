"""Rebalances that come all day without being a storm: by a clock, or with the size of the group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from statistics import median

from coordinator_core.durations import DAY_MS, HOUR_MS, MINUTE_MS, elapsed, span
from coordinator_core.history.model import Change, ChangeKind, GroupHistory
from coordinator_core.history.signs import busiest, flapping_of, rounds_of, storm_of
from coordinator_core.investigate.fleets import new_instances_of
from coordinator_core.investigate.model import SHOWN, Event, Explanation, step
from coordinator_core.investigate.words import count, moment
from coordinator_core.rules.model import Severity

_IN_A_ROW = 8
_OFF = 0.2
"""Share of its step that a rhythm may be off."""
_SWINGS = 6
_LARGE = 3
_STREAMS = "stream"
"""The assignor of Kafka Streams."""


def explain_rhythms(group: GroupHistory) -> Iterator[Explanation]:
    """Rebalances of one group that come again and again, fewer than a storm has."""
    rounds = rounds_of(group)
    if len(rounds) < _IN_A_ROW or storm_of(group) is not None:
        return
    if by_clock := _by_clock(rounds):
        yield _regular(group, by_clock)
    elif not flapping_of(group) and not new_instances_of(group) and (swings := _swings(rounds)):
        yield _scaled(group, rounds, swings)


def _by_clock(rounds: Sequence[Change]) -> Sequence[Change]:
    """The longest run of generations in which the members stayed, one step apart; nothing if it is short."""
    best: Sequence[Change] = ()
    first = 0
    for at in range(1, len(rounds) + 1):
        if at == len(rounds) or rounds[at].joined or rounds[at].left or rounds[at].kind is not ChangeKind.GENERATION:
            run = rounds[first:at]
            best = run if len(run) > len(best) else best
            first = at
    steps = [elapsed(one.place.timestamp_ms, after.place.timestamp_ms) for one, after in itertools.pairwise(best)]
    if len(best) < _IN_A_ROW or (usual := median(steps)) <= 0:
        return ()
    regular = sum(abs(one - usual) <= _OFF * usual for one in steps)
    return best if regular >= (1 - _OFF) * len(steps) else ()


def _regular(group: GroupHistory, run: Sequence[Change]) -> Explanation:
    first, last = run[0].place, run[-1].place
    usual = median(elapsed(one.place.timestamp_ms, after.place.timestamp_ms) for one, after in itertools.pairwise(run))
    subscribed = [frozenset(topic for member in one.members for topic in member.topics or ()) for one in run]
    changed = {topic for one, after in itertools.pairwise(subscribed) for topic in one ^ after}
    moved = sum(_shares(one) != _shares(after) for one, after in itertools.pairwise(run))
    is_streams = run[-1].protocol == _STREAMS
    verdict = (
        f"{group.group_id} rebalanced every {span(usual)}, {len(run)} times in a row from {moment(first.timestamp_ms)} "
        f"to {moment(last.timestamp_ms)}, and nobody joined or left: a member asks for it by its clock"
    )
    if changed:
        verdict += f", as the topics that match its subscription change ({', '.join(sorted(changed)[:SHOWN])})."
        now = ["Narrow the pattern, so that topics which others make and delete do not match."]
    elif is_streams:
        verdict += (
            ". These are probing rebalances of Kafka Streams (KIP-441, probing.rebalance.interval.ms): warm-up "
            "replicas that never come within acceptable.recovery.lag, so that tasks never move to where they should be."
        )
        now = [
            "Look at the restore of the warm-up replicas (their lag in the log of the application, disk and network): "
            "raise acceptable.recovery.lag or max.warmup.replicas, or give them time with a longer "
            "probing.rebalance.interval.ms.",
            "Look for an instance that cannot keep its state (a volume that does not last).",
        ]
    else:
        verdict += (
            ": at a refresh of its metadata (metadata.max.age.ms, 5 min by default) it sees other topics, partitions "
            "or racks than those of the assignment."
        )
        now = [
            "Look at the leader's log of the group for the reason of the rebalance ('Request joining group due to'): a "
            "topic that it cannot always see (ACLs, a broker with stale metadata), a pattern, racks that change."
        ]
    if not moved:
        verdict += " Each time the assignment came out the same."
    return Explanation(
        "rebalances-by-the-clock",
        Severity.WARNING if len(run) > 2 * _IN_A_ROW else Severity.INFO,
        verdict,
        first.timestamp_ms,
        events=[step(one) for one in run[:SHOWN]],
        evidence=[step(run[1]), step(run[-1])],
        not_this=["No member crashed or was put out: all of them stayed.", "The coordinator asks for no rebalance."],
        now=now,
    )


def _shares(change: Change) -> frozenset[tuple[str, frozenset[tuple[str, int]]]]:
    return frozenset((member.member_id, member.partitions or frozenset()) for member in change.members)


def _swings(rounds: Sequence[Change]) -> Sequence[Change]:
    """Rebalances at which a group was large, or small, after it had been the other; nothing if these are few.

    Small is half of the members that it ever had within a day, or fewer; a deployment keeps more.
    """
    sizes = [len(one.members) for one in rounds]
    large = max(sizes)
    if large < _LARGE:
        return []
    turns: list[Change] = []
    was_large: bool | None = None
    for change, size in zip(rounds, sizes, strict=True):
        # A group that stops as a whole, as a job does between its runs, is not scaled.
        is_large = True if 4 * size >= 3 * large else False if 0 < 2 * size <= large else None
        if is_large is not None and is_large is not was_large:
            turns.append(change)
            was_large = is_large
        elif not size:
            return []
    best = busiest(turns, DAY_MS)
    took = elapsed(best[0].place.timestamp_ms, best[-1].place.timestamp_ms) if best else 0
    return best if len(best) >= _SWINGS and took >= HOUR_MS else []


def _scaled(group: GroupHistory, rounds: Sequence[Change], turns: Sequence[Change]) -> Explanation:
    first, last = turns[0].place, turns[-1].place
    within = [one for one in rounds if first <= one.place <= last]
    sizes = [len(one.members) for one in within]
    took = elapsed(first.timestamp_ms, last.timestamp_ms)
    return Explanation(
        "scaled-up-and-down",
        Severity.WARNING,
        f"{group.group_id} grew and shrank {len(turns) - 1} times from {moment(first.timestamp_ms)} to "
        f"{moment(last.timestamp_ms)}, between {min(sizes)} and {count(max(sizes), 'member')}: "
        f"{count(len(within), 'rebalance')}, one every {span(took / max(1, len(within) - 1))}, "
        f"{count(sum(len(one.joined) for one in within), 'join')}. An autoscaler that follows the lag does this: each "
        "change stops the group, its lag grows, and the scaler answers.",
        first.timestamp_ms,
        events=[step(one) for one in turns[:SHOWN]],
        evidence=[
            Event(one.place, f"generation {one.generation}: {count(len(one.members), 'member')}") for one in turns
        ],
        not_this=[
            "No single member comes and goes: the size of the group changes.",
            "It was no deployment: that keeps most members.",
        ],
        now=[
            "Let the scaler wait before it takes members away (behavior.scaleDown.stabilizationWindowSeconds of the "
            "HPA; KEDA: cooldownPeriod, lagThreshold), and keep a minimum that bears the usual load.",
            "Make each change cheaper: partition.assignment.strategy=cooperative-sticky, or group.protocol=consumer "
            "from Kafka 4.0 on; a commit in onPartitionsRevoked.",
            f"More members than partitions bring nothing; a change every {span(30 * MINUTE_MS)} is often enough.",
        ],
    )
