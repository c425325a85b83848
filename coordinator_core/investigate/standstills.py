"""Values that are committed again and again, and do not go on; nothing tells whether records wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coordinator_core.durations import is_or_are, span
from coordinator_core.history.model import GroupHistory
from coordinator_core.history.signs import AGAIN, Stand, name_of, stands_of
from coordinator_core.investigate.model import SHOWN, Case, Event, Explanation
from coordinator_core.investigate.words import count, described, moment, records, tool
from coordinator_core.rules.model import Severity


def explain_held_up(group: GroupHistory) -> Iterator[Explanation]:
    """Partitions whose metadata change while the offset stands: the client works on behind a record not done."""
    found = [one for one in stands_of(group) if one.version.retold >= AGAIN]
    if not found:
        return
    first = found[0]
    version, since = first.version, first.since
    value = version.last.committed_offset
    yield Explanation(
        "record-not-done",
        Severity.WARNING,
        f"{first.name} of {group.group_id} stays at {value} since {moment(since.timestamp_ms)} (record "
        f"{since.record_offset}), and was committed again {count(version.stood, 'time')}, {version.retold:,} times "
        "with other metadata: its client goes on with later records and notes them there, as Confluent's Parallel "
        f"Consumer does, and the record at offset {value} is not done for "
        f"{span(first.lasted_ms)}. {count(len(found), 'such partition')}.",
        since.timestamp_ms,
        evidence=_events(found),
        not_this=[
            "The partition is not quiet, and the client not stuck: what it has done changes.",
            "It is no rebalance.",
        ],
        now=[
            f"Look at what the client does with the record at offset {value} of {first.name}: a call without a "
            "timeout, a retry without an end.",
            f"See it: {records(first.key, value, 1)}",
            "Watch the metadata: they grow with what is done out of order, and offset.metadata.max.bytes (4,096) ends "
            "that; a restart then does it all again.",
        ],
    )


def explain_standstills(groups: Sequence[GroupHistory], case: Case) -> Iterator[Explanation]:
    """Groups that were asked for with partitions that stand while others go on, or all of them."""
    for group in groups if case.topics is None else ():
        found = [one for one in stands_of(group) if one.version.retold < AGAIN]
        if found:
            yield _standstill(group, found)


def _events(found: Sequence[Stand]) -> list[Event]:
    return [
        event
        for one in found[:SHOWN]
        for event in (
            Event(one.since, f"{one.name}: {one.version.last.committed_offset}, first"),
            Event(one.version.last_place, f"{one.name}: {one.version.last.committed_offset}, newest"),
        )
    ]


def _standstill(group: GroupHistory, found: Sequence[Stand]) -> Explanation:
    first = found[0]
    version, since = first.version, first.since
    owner = version.member
    stopped = {one.key for one in found}
    goes_on = [
        key
        for key, one in group.standing.items()
        if key not in stopped
        and owner is not None
        and one.member is not None
        and one.member.member_id == owner.member_id
    ]
    return Explanation(
        "stands-still",
        Severity.INFO,
        f"{count(len(found), 'partition')} of {group.group_id} {is_or_are(len(found))} committed again "
        f"and again, and not further: {first.name} at {version.last.committed_offset} since "
        f"{moment(since.timestamp_ms)} (record {since.record_offset}), {count(version.stood, 'time')} in "
        f"{span(first.lasted_ms)}"
        + (
            f", while {'' if owner is None else name_of(owner)} goes on with {count(len(goes_on), 'other partition')}"
            if goes_on
            else ""
        )
        + ". Either nothing new is written there, or it cannot be read on: a record that fails each time, a partition "
        "that is paused or has no leader, a hanging transaction of its topic: the log does not decide.",
        since.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        evidence=_events(found),
        not_this=["Its client is not dead: it commits.", "It is no rebalance."],
        now=[
            f"Compare with the end: {described(group, '--offsets')}: a LAG of 0 is a "
            "quiet topic; where it grows, records wait.",
            "Capture the topics, too (regroup capture): with their ends this command decides.",
            "If records wait: look at that client's log for one that fails again and again, and at the topic: "
            f"{tool('kafka-topics', '--describe', '--topic', first.key.topic)} (a leader of none), "
            "kafka-transactions.sh find-hanging.",
        ],
    )
