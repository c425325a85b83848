"""Generations with far more members than clients: the same process joined again and again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from coordinator_core.durations import elapsed, span
from coordinator_core.history.model import ChangeKind, GroupHistory
from coordinator_core.history.signs import name_of, rounds_of
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import Case, Explanation, step
from coordinator_core.investigate.words import moment, when
from coordinator_core.rules.model import Severity

_MEMBERS = 50
_TIMES = 10
"""Times as many members as in the generation before."""
_SHARE = 0.8
"""Share of the members that came that one client, or one host, has."""


def explain_crowds(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """A generation that has got at least ten times as many members at once, most of them of one process."""
    for before, after in itertools.pairwise(rounds_of(group)):
        came = len(after.joined)
        was = len(before.members)
        is_crowd = after.kind is ChangeKind.GENERATION and was and came >= max(_MEMBERS, _TIMES * was)
        name, most = Counter(map(name_of, after.joined)).most_common(1)[0] if is_crowd else ("", 0)
        if most < _SHARE * came or most < _MEMBERS:
            continue
        later = next((one for one in rounds_of(group) if one.place > after.place), None)
        joined = {one.member_id for one in after.joined}
        gone = {one.member_id for one in later.left} & joined if later is not None else set()
        idle = sum(one.is_idle for one in after.joined)
        if 2 * max(len(gone), idle) < came:
            continue  # They are there to stay, and have work: somebody started so many.
        bug = BUGS["KAFKA-7610"]
        known = bug.fits(case.profile.release)
        took = elapsed(before.place.timestamp_ms, after.place.timestamp_ms)
        verdict = (
            f"{group.group_id} got {came:,} new members in one rebalance, generation {after.generation} at "
            f"{moment(after.place.timestamp_ms)}, {most:,} of them {name}: one process that joined again and again "
            f"while that rebalance took {span(took)}{' at most' if took >= 0 else ''}, each time under a new member "
            "id, as its requests timed out."
        )
        if later is not None:
            verdict += (
                f" {len(gone):,} of them went in generation {later.generation}, "
                f"{span(elapsed(after.place.timestamp_ms, later.place.timestamp_ms))} later."
            )
        if known:
            verdict += f" This is {bug.id} of Kafka {case.profile.release}."
        yield Explanation(
            "group-crowded",
            Severity.WARNING,
            verdict,
            after.place.timestamp_ms,
            events=[step(one) for one in (before, after, later) if one is not None],
            evidence=[step(after)],
            not_this=[
                "Nobody started so many consumers: they have one client id and one host, unless many share both (a "
                "default client.id behind a proxy or NAT).",
            ],
            now=[
                *when(known, bug.advice),
                "Look for what made that rebalance long: a member that did not rejoin within its max.poll.interval.ms.",
                "Limit the damage: group.max.size of the brokers (from 2.2 on); one record has all members, and one "
                "that is larger than max.message.bytes of the offsets topic cannot be written.",
            ],
            bug=bug.id if known else None,
        )
        return
