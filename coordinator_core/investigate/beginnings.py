"""Partitions that a topic got later: where the group began to read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Change, GroupHistory, Version
from coordinator_core.history.read import BORING_STEPS, SMALL_STEP
from coordinator_core.history.signs import rounds_of
from coordinator_core.investigate.model import Event, Explanation
from coordinator_core.investigate.steps import step
from coordinator_core.investigate.words import count, from_file, moment, were
from coordinator_core.rules.model import Severity

_SHOWN = 8


class _Begun(NamedTuple):
    key: OffsetKey
    first: Version
    round: Change
    """The first rebalance in which somebody owned the partition."""


def explain_beginnings(group: GroupHistory) -> Iterator[Explanation]:
    """Partitions with higher numbers than the group had before, whose first commit is far above 0."""
    begun = sorted(_begun(group))
    if not begun:
        return
    key, first, change = begun[0]
    partitions = count(len(begun), "partition")
    unread = sum(one.first.first.committed_offset for one in begun)
    yield Explanation(
        "partition-begun-late",
        Severity.INFO,
        f"{key.topic} got more partitions: {were(len(begun), 'new one')} first owned in generation "
        f"{change.generation} of {group.group_id} at {moment(change.place.timestamp_ms)}; the first commit of "
        f"{key.topic}-{key.partition} is {first.first.committed_offset} (record {first.place.record_offset}). "
        f"auto.offset.reset=latest, the default, begins at the end, and skips what was written before the members "
        f"found the new {partitions}: up to {unread:,} records that this group has never committed.",
        first.place.timestamp_ms,
        group.group_id,
        group.offsets_partition,
        events=[step(change)],
        evidence=[
            Event(one.first.place, f"first commit of {one.key.topic}-{one.key.partition}") for one in begun[:_SHOWN]
        ],
        not_this=[
            "No committed offset was lost: there was none of these partitions.",
            "With auto.offset.reset=earliest nothing was skipped: then they were read up to there before the first "
            "commit.",
        ],
        now=[
            "See what is left of them, and from which time: kafka-get-offsets.sh --bootstrap-server HOST:9092 "
            f"--topic {key.topic} --time earliest",
            f"To read them, stop the consumers and set these partitions to 0: {from_file(group.group_id)}",
            "Before partitions are added: auto.offset.reset=earliest, or by_duration:PT1H from Kafka 4.0 on "
            "(KAFKA-12478, KIP-1106); a smaller metadata.max.age.ms finds them sooner.",
        ],
        restore={one.key: 0 for one in begun},
    )


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
        now = {one for member in change.members for one in member.partitions or ()}
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
