"""An offsets topic that is younger than the topics whose offsets it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator_core.durations import HOUR_MS, are_close, elapsed, span
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Change, GroupHistory, PartitionHistory, Version
from coordinator_core.investigate.model import SHOWN, Event, Explanation
from coordinator_core.investigate.successors import birth_of
from coordinator_core.investigate.words import count, moment, reset_offsets, to_datetime
from coordinator_core.rules.model import Severity

_GROUPS = 3
_SHARE = 0.5
_FAR = 100_000
"""Offset that no consumer has reached by its first commit, if it began at 0."""


class _Born(NamedTuple):
    group: GroupHistory
    birth: Change
    key: OffsetKey
    first: Version


def explain_anew(histories: Sequence[PartitionHistory]) -> Iterator[Explanation]:
    """At least half of the groups, and no fewer than three, begin with the log, and not at the beginning of topics."""
    whole = [one for one in histories if one.batches and one.first_offset == 0 and one.first_ms >= 0]
    if not whole:
        return
    begin_ms = min(one.first_ms for one in whole)
    known = [group for history in histories for group in history.groups.values() if group.versions]
    born = [found for history in whole for group in history.groups.values() if (found := _born(group, begin_ms))]
    if len(born) < max(_GROUPS, _SHARE * len(known)):
        return
    born.sort(key=lambda one: (one.birth.place.timestamp_ms, one.group.group_id))
    first, last = born[0], born[-1]
    yield Explanation(
        "offsets-topic-anew",
        Severity.INFO,
        f"__consumer_offsets begins anew at {moment(begin_ms)} (record 0): {len(born)} of {count(len(known), 'group')} "
        f"are in generation 1 within {span(elapsed(begin_ms, last.birth.place.timestamp_ms))} of it, and begin far in "
        f"their topics, {first.group.group_id} in {first.key.topic_partition} at "
        f"{first.first.first.committed_offset}: the topics are older, and all began at auto.offset.reset. "
        "Either the offsets of before were lost with an earlier __consumer_offsets (volumes that did not last, a topic "
        "that was deleted), or these are the first consumers of this cluster.",
        begin_ms,
        offsets_partition=first.group.offsets_partition,
        evidence=[
            Event(
                one.birth.place, f"{one.group.group_id}: generation 1, first commit {one.first.first.committed_offset}"
            )
            for one in born[:SHOWN]
        ],
        not_this=[
            "No offset of theirs expired or was deleted before: the log has nothing of them before these generations.",
            f"It is no trouble of one group: {len(born)} begin at that time.",
        ],
        now=[
            "Look at the brokers' volumes (ephemeral storage, a log.dirs below /tmp, a claim that was made anew), and "
            "at the controller's log for the creation of __consumer_offsets at that time.",
            "Set groups back by time, their consumers stopped: "
            + reset_offsets("GROUP", "--all-topics", *to_datetime(begin_ms)),
            "Search for a copy: a snapshot of a volume, or another replica's directory, which regroup restore plan "
            "reads.",
        ],
    )


def _born(group: GroupHistory, begin_ms: int) -> _Born | None:
    birth = birth_of(group)
    if birth is None or not are_close(begin_ms, birth.place.timestamp_ms, HOUR_MS):
        return None
    for key, versions in sorted(group.versions.items()):
        first = versions[0]
        if first.place > birth.place and first.first.committed_offset >= _FAR:
            return _Born(group, birth, key, first)
    return None
