"""How long members stayed: as long as max.poll.interval.ms lets them, or long after their last commit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from coordinator_core.durations import HOUR_MS, MINUTE_MS, elapsed, span, was_or_were
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Change, GroupHistory, Member, Version
from coordinator_core.history.signs import name_of, pace_of, rounds_of
from coordinator_core.investigate.model import SHOWN, USUAL, Event, Explanation, is_overdue, newest_commit, step
from coordinator_core.investigate.words import count, described, moment, when
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE
from coordinator_core.rules.model import Severity

_TIMES = 4
"""Tenures of one length that are no accident."""
_OVER = 1.2
"""Tenures that end by the limit are longer than it by less than this."""
_LATE_MS = 10 * MINUTE_MS
_FASTER = 1.5
"""Times the pace of before at which a backlog is read."""


def poll_limit_of(group: GroupHistory, name: str) -> int | None:
    """``max.poll.interval.ms`` of a client whose members mostly leave when it has passed; ``None``: they do not."""
    came: dict[str, tuple[int, int]] = {}
    tenures: list[tuple[int, int]] = []
    for change in rounds_of(group):
        at = change.place.timestamp_ms
        known = (came.pop(one.member_id, (at, 0)) for one in change.left)
        tenures += [(elapsed(since, at), limit) for since, limit in known if limit]
        for one in change.joined if change.protocol_type == CONSUMER_PROTOCOL_TYPE else ():
            if one.rebalance_timeout_ms and name_of(one) == name:
                came[one.member_id] = at, one.rebalance_timeout_ms
    ended = [limit for took, limit in tenures if limit <= took <= _OVER * limit]
    return ended[-1] if len(ended) >= max(_TIMES, len(tenures) / 2) else None


def told_by_poll_limit(group: GroupHistory, name: str) -> str:
    """The sentence that says so; nothing where it is not so."""
    limit = poll_limit_of(group, name)
    if limit is None:
        return ""
    return (
        f" Its members leave {span(limit)} after they joined, which is their max.poll.interval.ms: so does one whose "
        "batch takes longer, and its commit is refused."
    )


POLL_LIMIT_REMEDY = (
    "Lower max.poll.records, or raise max.poll.interval.ms above the longest batch; look at what one batch waits for."
)


class _Waited(NamedTuple):
    key: OffsetKey
    last: Version
    member: Member
    after: Version


def explain_tenures(group: GroupHistory) -> Iterator[Explanation]:
    """Members that left long after their last commit, where what they owned had piled up meanwhile."""
    for before, after in itertools.pairwise(rounds_of(group)):
        owners = {owned: one for one in after.left for owned in one.partitions or ()}
        found = [
            waited
            for key in sorted(OffsetKey(group.group_id, *owned) for owned in owners)
            if (waited := _waited(key, group.versions.get(key, ()), owners[key[1:]], before, after)) is not None
        ]
        if found:
            yield _left_late(group, found, before, after)


def _waited(
    key: OffsetKey, versions: Sequence[Version], member: Member, before: Change, after: Change
) -> _Waited | None:
    at = next((at for at, one in enumerate(versions) if one.place > after.place), None)
    if not at:
        return None
    last, following = versions[at - 1], versions[at]
    if last.commits < USUAL or last.end is None or last.last_place > after.place or last.stood:
        return None
    times = (last.last_place.timestamp_ms, before.place.timestamp_ms)
    quiet = min(elapsed(time, after.place.timestamp_ms) for time in times)
    first_step = following.first.committed_offset - last.last.committed_offset
    piled_up = pace_of(following) >= _FASTER * pace_of(last) or first_step > USUAL * last.largest_step
    is_late = is_overdue(last.usual_ms, quiet, _LATE_MS) and first_step >= 0 and pace_of(last) > 0
    return _Waited(key, last, member, following) if is_late and piled_up else None


def _left_late(group: GroupHistory, found: Sequence[_Waited], before: Change, after: Change) -> Explanation:
    newest = max(found, key=lambda one: one.last.last_place)
    at, left = newest.last.last_place, after.place
    members = list({one.member.member_id: one.member for one in found}.values())
    stayed = {one.member_id for one in after.members} & {one.member_id for one in before.members}
    static = next((one for one in members if one.instance_id is not None), None)
    quiet = elapsed(at.timestamp_ms, left.timestamp_ms)
    names = " and ".join(dict.fromkeys(map(name_of, members[:SHOWN])))
    faster = median(pace_of(one.after) / pace_of(one.last) for one in found)
    return Explanation(
        "left-long-after-last-commit",
        Severity.WARNING if quiet >= HOUR_MS else Severity.INFO,
        f"{names} committed for {group.group_id} until {moment(at.timestamp_ms)} (record {at.record_offset}) and "
        f"{was_or_were(len(members))} a member for {span(quiet)} more, until {moment(left.timestamp_ms)}: "
        f"{count(len(found), 'partition')} stood still, {newest.key.topic_partition} at "
        f"{newest.last.last.committed_offset}, and had records waiting: whoever read on from there was "
        f"{faster:.1f} times as fast as before. What was processed in that time, if anything, is processed "
        "again.",
        at.timestamp_ms,
        events=[step(before), step(after)],
        evidence=[step(after)]
        + [
            event
            for one in found[:SHOWN]
            for event in (
                newest_commit(one.key, one.last),
                Event(one.after.place, f"{one.key.topic_partition}: {one.after.first.committed_offset}"),
            )
        ],
        not_this=[
            "No offset was lost or reset: it went on from the last commit.",
            *when(stayed, "The rest of the group was sound: others stayed."),
        ],
        now=[
            "Look at that process at the time of its last commit: it had died or hung, or read on and could not commit "
            "(a sink that fails, an offset that it never handed over).",
            "A static member that is gone keeps its partitions until session.timeout.ms has passed: after a scale-down "
            f"remove it: removeMembersFromConsumerGroup with instance id {static.instance_id}."
            if static is not None
            else "Lower session.timeout.ms or max.poll.interval.ms: they say how long a dead member may stay.",
            f"Watch lag, not members: {described(group)}",
        ],
    )
