"""Consumers with assign() that use the id of a group with members: their commits are refused while it has some."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator_core.durations import are_close, elapsed, span
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Change, ChangeKind, GroupHistory, OriginKind, Version
from coordinator_core.history.signs import name_of, rounds_of
from coordinator_core.investigate.model import USUAL, Event, Explanation, is_overdue, step
from coordinator_core.investigate.words import count, moment
from coordinator_core.rules.model import Severity


class _Refused(NamedTuple):
    key: OffsetKey
    before: Version
    after: Version
    came: Change
    went: Change


def explain_visitors(group: GroupHistory) -> Iterator[Explanation]:
    """Regular commits from outside that stop as members come, and go on as soon as they have gone."""
    rounds = rounds_of(group)
    found = [one for key, versions in sorted(group.versions.items()) for one in _refused(key, versions, rounds)]
    if found:
        yield _explained(group, found)


def _refused(key: OffsetKey, versions: Sequence[Version], rounds: Sequence[Change]) -> Iterator[_Refused]:
    outside = [one for one in versions if _is_outside(one)]
    for before, after in itertools.pairwise(outside):
        between = [one for one in rounds if before.last_place < one.place < after.place]
        came = next((one for one in between if one.members), None)
        if came is None or between[-1].kind is not ChangeKind.EMPTY or before.commits < USUAL:
            continue
        usual = before.usual_ms
        stopped_ms, again_ms = before.last_place.timestamp_ms, after.place.timestamp_ms
        is_prompt = are_close(stopped_ms, came.place.timestamp_ms, 2 * usual) and are_close(
            between[-1].place.timestamp_ms, again_ms, 2 * usual
        )
        # It read on meanwhile, so it is there again with the next commit that it owes; one that had been stopped begins
        # where the members had come to.
        within = [one for one in versions if before.place < one.place < after.place]
        ahead = after.first.committed_offset - max(one.last.committed_offset for one in (before, *within))
        went_on = ahead > max(before.largest_step, after.largest_step)
        if is_prompt and went_on and is_overdue(usual, elapsed(stopped_ms, again_ms), 1):
            yield _Refused(key, before, after, came, between[-1])


def _is_outside(version: Version) -> bool:
    """Whether a consumer without membership committed it."""
    kind = None if version.origin is None else version.origin.kind
    return not version.had_members and kind not in (None, OriginKind.ADMIN, OriginKind.MEMBER, OriginKind.MIRROR)


def _explained(group: GroupHistory, found: Sequence[_Refused]) -> Explanation:
    one = found[0]
    name = one.key.topic_partition
    stopped, again = one.before.last_place, one.after.place
    keys = len({refused.key for refused in found})
    return Explanation(
        "commits-refused-beside-members",
        Severity.WARNING,
        f"A consumer with assign() uses the id of {group.group_id}, which has members at times: its commits of "
        f"{count(keys, 'partition')} end at {moment(stopped.timestamp_ms)} (record {stopped.record_offset}), as "
        f"{name_of(one.came.members[0])} joins (generation {one.came.generation}), and go on at "
        f"{moment(again.timestamp_ms)} (record {again.record_offset}) when nobody is left, {name} from "
        f"{one.before.last.committed_offset} to {one.after.first.committed_offset}. For "
        f"{span(elapsed(stopped.timestamp_ms, again.timestamp_ms))} each of its commits was refused "
        "(UNKNOWN_MEMBER_ID), while it read on; what the members read meanwhile, both have read.",
        stopped.timestamp_ms,
        events=[
            Event(stopped, f"{name}: {one.before.last.committed_offset}, from outside"),
            step(one.came),
            step(one.went),
            Event(again, f"{name}: {one.after.first.committed_offset}, from outside"),
        ],
        evidence=[
            Event(stopped, f"{name}: {one.before.last.committed_offset}, the last commit from outside"),
            step(one.came),
            Event(again, f"{name}: {one.after.first.committed_offset}, the next one"),
        ],
        not_this=[
            "It was no reset by an admin client: who commits there has read up to there.",
            "The coordinator did not lose the commits: it takes none from outside while a group has members.",
        ],
        now=[
            "Give the consumer with assign() a group.id of its own, or let it subscribe(), too.",
            "Look at its log for failed commits (UNKNOWN_MEMBER_ID, 'Broker: Unknown member', CommitFailedException) "
            "at that time: a restart would have begun again at its last commit.",
        ],
    )
