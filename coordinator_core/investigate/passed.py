"""A record that failed at every start, and was passed by the commit with which a consumer closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from coordinator_core.durations import are_close, elapsed, span
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Change, GroupHistory, Member, Place, Version
from coordinator_core.history.signs import name_of, rounds_of
from coordinator_core.investigate.model import USUAL, Event, Explanation, is_overdue, step
from coordinator_core.investigate.words import count, moment, records, reset_offsets
from coordinator_core.rules.model import Severity

_STARTS = 3
"""Owners that left while the offset stood: one or two may be a deployment."""
_CLOSING_MS = 10_000
"""A consumer commits and leaves in one go; the rebalance that its leaving makes is written within so many
milliseconds."""
_POLL = 500
"""Default of ``max.poll.records``: what one poll may have handed out."""


class _Passed(NamedTuple):
    key: OffsetKey
    stood: Place
    """Where the value was committed first."""
    value: int
    after: Version
    left: Sequence[Change]
    """Rebalances in which owners left while it stood."""
    closing: Change
    member: Member


def explain_passed(group: GroupHistory) -> Iterator[Explanation]:
    """Records that were passed so: the first such partition, with the number of them."""
    rounds = rounds_of(group)
    found = [one for key, versions in sorted(group.versions.items()) for one in _passed(key, versions, rounds)]
    if found:
        yield _explained(group, found)


def _passed(key: OffsetKey, versions: Sequence[Version], rounds: Sequence[Change]) -> Iterator[_Passed]:
    for at, after in enumerate(versions[1:], 1):
        value = versions[at - 1].last.committed_offset
        if after.commits != 1 or after.member is None or not 0 < after.first.committed_offset - value <= _POLL:
            continue
        if at + 1 < len(versions) and versions[at + 1].first.committed_offset < after.first.committed_offset:
            continue
        first = at - 1
        while first and versions[first - 1].last.committed_offset == value:
            first -= 1
        began = versions[first]
        stood = began.still or began.last_place
        usual = elapsed(began.place.timestamp_ms, stood.timestamp_ms) / began.commits
        waited = elapsed(stood.timestamp_ms, after.place.timestamp_ms)
        if began.commits < USUAL or not is_overdue(usual, waited, 1):
            continue  # It is a quiet partition: who came and went had nothing to read.
        closing = next((one for one in rounds if one.place > after.place), None)
        if closing is None or not are_close(after.place.timestamp_ms, closing.place.timestamp_ms, _CLOSING_MS):
            continue
        owner = after.member.member_id
        left = [
            one
            for one in rounds
            if stood < one.place < after.place and any(key[1:] in (member.partitions or ()) for member in one.left)
        ]
        if len(left) >= _STARTS and any(member.member_id == owner for member in closing.left):
            yield _Passed(key, stood, value, after, left, closing, after.member)


def _explained(group: GroupHistory, found: Sequence[_Passed]) -> Explanation:
    one = found[0]
    name = one.key.topic_partition
    place = one.after.place
    stood_ms = elapsed(one.stood.timestamp_ms, place.timestamp_ms)
    committed = one.after.first.committed_offset
    topic = f"{one.key.topic}:{one.key.partition}"
    return Explanation(
        "record-passed-at-close",
        Severity.INFO,
        f"{name} of {group.group_id} stood at {one.value} for {span(stood_ms)} from "
        f"{moment(one.stood.timestamp_ms)} on, while its owners left {len(one.left)} times; then {name_of(one.member)} "
        f"committed {committed} (record {place.record_offset}) and left in the same moment (generation "
        f"{one.closing.generation}). A consumer that fails at a record and closes commits by that what it was given "
        f"(enable.auto.commit): {count(committed - one.value, 'record')} from {one.value} on may never have been "
        "processed, unless nothing was there to read until then."
        + (f" {len(found)} such partitions." if len(found) > 1 else ""),
        place.timestamp_ms,
        events=[*map(step, one.left[:3]), Event(place, f"{name}: {committed}"), step(one.closing)],
        evidence=[Event(one.stood, f"{name}: {one.value}"), Event(place, f"{name}: {committed}"), step(one.closing)],
        not_this=[
            "The record was not mended: who had got past it would have stayed.",
            "Nobody set the offset from outside: a member did.",
        ],
        now=[
            f"Read the record itself: {records(one.key, one.value, committed - one.value)}",
            "To process it, stop the consumers and set the partition back: "
            + reset_offsets(group.group_id, "--topic", topic, "--to-offset", one.value),
            "Set enable.auto.commit=false and commit after the work is done; or end the process without close() when a "
            "record fails.",
        ],
        restore={one.key: one.value for one in found},
    )
