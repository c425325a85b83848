"""Static members that a new coordinator knows by an older member id, and fences."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from coordinator_core.durations import MINUTE_MS, are_close, elapsed, span
from coordinator_core.history.model import Change, ChangeKind, GroupHistory, Member, Place, Version
from coordinator_core.history.signs import name_of, rounds_of
from coordinator_core.investigate.bugs import BUGS
from coordinator_core.investigate.model import USUAL, Case, Event, Explanation, step
from coordinator_core.investigate.words import count, moment
from coordinator_core.rules.model import Severity

_LONGEST_MS = 30 * MINUTE_MS
"""Default of ``group.max.session.timeout.ms``."""


def explain_fenced(group: GroupHistory, case: Case) -> Iterator[Explanation]:
    """Static members whose commits ended under the old coordinator, and whom the new one gave up."""
    if not BUGS["KAFKA-10284"].fits(case.profile.release):
        return
    for before, after in itertools.pairwise(rounds_of(group)):
        gone = [one for one in after.left if one.instance_id is not None]
        is_classic = after.kind in (ChangeKind.GENERATION, ChangeKind.EMPTY)
        if not gone or not is_classic or before.place.leader_epoch >= after.place.leader_epoch:
            continue
        stopped = [_last_commit(group, one, before, after) for one in gone]
        newest = [one for one in stopped if one is not None]
        if len(newest) == len(gone):
            yield _fenced(group, gone, max(newest), before, after)


def _last_commit(group: GroupHistory, member: Member, before: Change, after: Change) -> Place | None:
    """The last commit of a member that committed regularly, if it is of the old coordinator and the member was given
    up within the longest session timeout."""
    mine: list[Version] = [
        version
        for key, versions in group.versions.items()
        if key[1:] in (member.partitions or ())
        for version in versions
        if before.place < version.place < after.place
    ]
    if not mine or max(one.commits for one in mine) < USUAL:
        return None
    last = max(mine, key=lambda one: one.last_place)
    is_soon = are_close(last.last_place.timestamp_ms, after.place.timestamp_ms, _LONGEST_MS)
    is_old = last.last_place.leader_epoch < after.place.leader_epoch
    return last.last_place if is_old and is_soon else None


def _fenced(group: GroupHistory, gone: Sequence[Member], last: Place, before: Change, after: Change) -> Explanation:
    bug = BUGS["KAFKA-10284"]
    names = " and ".join(map(name_of, gone[:3]))
    quiet = elapsed(last.timestamp_ms, after.place.timestamp_ms)
    return Explanation(
        "static-members-fenced",
        Severity.WARNING,
        f"{names} of {group.group_id} committed until {moment(last.timestamp_ms)} (record {last.record_offset}), when "
        f"the coordinator moved (leader epoch {last.leader_epoch} to {after.place.leader_epoch}), and not once since; "
        f"{span(quiet)} later the group gave up {count(len(gone), 'static member')} (record "
        f"{after.place.record_offset}). So does a member that had been restarted since generation {before.generation}: "
        "its new member id is in no record, and the new coordinator fences it under its own instance id. This is "
        f"{bug.id}.",
        after.place.timestamp_ms,
        events=[step(before), Event(last, "last commit"), step(after)],
        evidence=[Event(last, "last commit of these members, with the old coordinator"), step(after)],
        not_this=[
            "Two processes need not share an instance id, although that is what the error says.",
            "No committed offset was lost: who takes over goes on from the last commit.",
        ],
        now=[
            "Look for FencedInstanceIdException in the logs of these members: it is fatal, so restart them.",
            bug.advice,
        ],
        bug=bug.id,
    )
