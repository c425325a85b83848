"""Partitions that a topic got later: where the group began to read them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Change, ChangeKind, GroupHistory, Place, Version
from coordinator_core.history.signs import rounds_of
from coordinator_core.history.versions import BORING_STEPS, SMALL_STEP
from coordinator_core.investigate.model import SHOWN, Event, Explanation, step
from coordinator_core.investigate.words import count, from_file, moment, tool, were
from coordinator_core.rules.model import Severity

_STARTS = 2


class _Begun(NamedTuple):
    key: OffsetKey
    first: Version
    round: Change
    """The first rebalance in which somebody owned the partition."""


def explain_beginnings(group: GroupHistory) -> Iterator[Explanation]:
    """Partitions whose first commit is far above 0: ones with higher numbers than the group had before, and ones that
    members had owned for a while without a commit."""
    if waited := sorted(_begun_after_start(group)):
        yield _at_second_start(group, waited)
    begun = sorted(_begun(group))
    if not begun:
        return
    key, first, change = begun[0]
    partitions = count(len(begun), "partition")
    unread = sum(one.first.first.committed_offset for one in begun)
    yield _begun_late(
        group,
        begun,
        f"{key.topic} got more partitions: {were(len(begun), 'new one')} first owned in generation "
        f"{change.generation} of {group.group_id} at {moment(change.place.timestamp_ms)}; the first commit of "
        f"{key.topic_partition} is {first.first.committed_offset} (record {first.place.record_offset}). "
        f"auto.offset.reset=latest, the default, begins at the end, and skips what was written before the members "
        f"found the new {partitions}: up to {count(unread, 'record')} that this group has never committed.",
        "then they were read up to there before the first commit.",
        [
            "See what is left of them, and from which time: "
            + tool("kafka-get-offsets", "--topic", key.topic, "--time", "earliest"),
            f"To read them, stop the consumers and set these partitions to 0: {from_file(group.group_id)}",
            "Before partitions are added: auto.offset.reset=earliest, or by_duration:PT1H from Kafka 4.0 on "
            "(KAFKA-12478, KIP-1106); a smaller metadata.max.age.ms finds them sooner.",
        ],
    )


def _at_second_start(group: GroupHistory, begun: Sequence[_Begun]) -> Explanation:
    key, first, change = begun[0]
    return _begun_late(
        group,
        begun,
        f"{were(len(begun), 'partition')} owned in {group.group_id} since generation {change.generation} at "
        f"{moment(change.place.timestamp_ms)} and not committed before generation {first.generation}: "
        f"{key.topic_partition} begins at {first.first.committed_offset} (record {first.place.record_offset}). "
        "Who has no committed offset begins at auto.offset.reset at each start: with latest, what was written while "
        "nobody ran is skipped, although the group is not new.",
        "its first commit was only late.",
        [
            "Set auto.offset.reset=earliest, or let the client commit its position at its first start, also of "
            "partitions in which it has read nothing yet (Sarama, kafka-go and KafkaJS commit after a record only).",
            f"To read what is left, stop the consumers and set these partitions to 0: {from_file(group.group_id)}",
        ],
    )


def _begun_late(
    group: GroupHistory, begun: Sequence[_Begun], verdict: str, with_earliest: str, now: list[str]
) -> Explanation:
    """``with_earliest`` says what it was with ``auto.offset.reset=earliest``."""
    _, first, change = begun[0]
    return Explanation(
        "partition-begun-late",
        Severity.INFO,
        verdict,
        first.place.timestamp_ms,
        events=[step(change)],
        evidence=[Event(one.first.place, f"first commit of {one.key.topic_partition}") for one in begun[:SHOWN]],
        not_this=[
            "No committed offset was lost: there was none of these partitions.",
            f"With auto.offset.reset=earliest nothing was skipped: {with_earliest}",
        ],
        now=now,
        restore={one.key: 0 for one in begun},
    )


def _begun_after_start(group: GroupHistory) -> Iterator[_Begun]:
    """Partitions owned at an earlier start of the group, in which others were committed, and first committed later."""
    rounds = [one for one in rounds_of(group) if one.place.record_offset >= group.cleaned_to]
    if any(member.partitions is None for change in rounds for member in change.members):
        return
    had: dict[tuple[str, int], list[Change]] = {}
    for change in rounds:
        for owned in change.owned:
            had.setdefault(owned, []).append(change)
    empties = [one.place for one in rounds if one.kind is ChangeKind.EMPTY]

    @cache
    def usual(topic: str, since: Place, empty: Place) -> int | None:
        """The largest step of what was committed of the topic between two records; ``None``: nothing was."""
        steps = (
            one.largest_step
            for other, versions in group.versions.items()
            for one in versions
            if other.topic == topic and since < one.place < empty
        )
        return max(steps, default=None)

    for key, versions in group.versions.items():
        first = versions[0]
        before = [one for one in had.get((key.topic, key.partition), ()) if one.place < first.place]
        if len(before) < _STARTS or first.first.committed_offset <= SMALL_STEP:
            continue
        at = bisect_right(empties, before[0].place)
        if at == len(empties) or not empties[at] < first.place:
            continue
        largest = usual(key.topic, before[0].place, empties[at])
        if largest is not None and first.first.committed_offset > BORING_STEPS * largest:
            yield _Begun(key, first, before[0])


def _begun(group: GroupHistory) -> Iterator[_Begun]:
    """Such partitions; none where the cleaner may have removed the first commit, or assignments are unknown."""
    rounds = rounds_of(group)
    if any(member.partitions is None for change in rounds for member in change.members):
        return
    by_topic: dict[str, list[tuple[OffsetKey, list[Version]]]] = {}
    for key, versions in group.versions.items():
        by_topic.setdefault(key.topic, []).append((key, versions))
    owned: set[tuple[str, int]] = set()
    for change in rounds:
        now = change.owned
        for topic, keys in by_topic.items():
            before = [partition for name, partition in owned if name == topic]
            if not before:
                continue
            usual = max(
                (one.largest_step for key, versions in keys if key.partition in before for one in versions), default=0
            )
            for key, versions in keys:
                first = versions[0]
                if (
                    key.partition > max(before)
                    and (topic, key.partition) in now
                    and first.place > change.place
                    and first.place.record_offset >= group.cleaned_to
                    and first.first.committed_offset > max(SMALL_STEP, BORING_STEPS * usual)
                ):
                    yield _Begun(key, first, change)
        owned |= now
