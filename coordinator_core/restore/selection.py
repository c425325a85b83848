"""Selection as in ``kafka-consumer-groups --reset-offsets``: groups, topics, and where offsets go."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coordinator_core.durations import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from coordinator_core.errors import UsageError
from coordinator_core.groups.model import OffsetKey
from coordinator_core.investigate.words import count, moment
from coordinator_core.restore.model import Position
from coordinator_core.restore.source import Wanted
from coordinator_core.restore.target import Target, in_scope
from coordinator_core.rules.topics import UNKNOWN
from coordinator_core.untrusted import INT32_END, INT64_END, whole_number

Topics = Mapping[str, frozenset[int] | None]
"""Chosen partitions by topic; ``None`` for all of a topic."""

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
_UNITS_MS = (DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS)


class Move(StrEnum):
    """Scenarios of Kafka's tool (``ConsumerGroupCommandOptions``)."""

    TO_OFFSET = "to-offset"
    TO_DATETIME = "to-datetime"
    BY_DURATION = "by-duration"
    SHIFT_BY = "shift-by"
    TO_CURRENT = "to-current"
    TO_EARLIEST = "to-earliest"
    TO_LATEST = "to-latest"


@dataclass(frozen=True, slots=True)
class Scenario:
    """``number`` is the offset, the step, or the time in epoch milliseconds."""

    move: Move
    number: int = 0

    def __str__(self) -> str:
        """The option with the number or the moment that was understood, as plans name their source."""
        if self.needs_time:
            return f"--{self.move} {moment(self.number)} (epoch ms {self.number})"
        return f"--{self.move} {self.number}" if self.move in (Move.TO_OFFSET, Move.SHIFT_BY) else f"--{self.move}"

    @property
    def needs_time(self) -> bool:
        """Whether the topics' leaders have to be asked for the offset of a time."""
        return self.move in (Move.TO_DATETIME, Move.BY_DURATION)

    @property
    def rests_on_committed(self) -> bool:
        """Whether the offsets that are committed count, and not only their keys."""
        return self.move in (Move.SHIFT_BY, Move.TO_CURRENT)


def parse_topics(texts: Sequence[str]) -> dict[str, frozenset[int] | None]:
    """Partitions by topic (``None``: all) of texts like ``orders:0,1`` (Kafka's ``--topic``); else ``UsageError``."""
    found: dict[str, frozenset[int] | None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        parts = [whole_number(part, INT32_END) for part in numbers.split(",") if colon]
        if not topic or None in parts:
            raise UsageError(f"--topic {text}: expected TOPIC or TOPIC:0,1,2")
        chosen = frozenset(part for part in parts if part is not None) if colon else None
        choose(found, topic, chosen)
    return found


def choose(chosen: dict[str, frozenset[int] | None], topic: str, partitions: frozenset[int] | None) -> None:
    """Choose partitions of a topic, ``None`` for all, beside those that are chosen already."""
    before = chosen.get(topic, frozenset())
    chosen[topic] = None if before is None or partitions is None else before | partitions


def parse_duration_ms(text: str) -> int:
    """``PnDTnHnMnS`` (``java.time.Duration.parse``) in milliseconds; ``UsageError`` for other text."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise UsageError(f"--by-duration {text}: expected PnDTnHnMnS, such as PT1H")
    found = sum(float(part or 0) * unit for part, unit in zip(match.groups(), _UNITS_MS, strict=True))
    if found >= INT64_END:
        raise UsageError(f"--by-duration {text}: longer than time is in milliseconds")
    return int(found)


def keys_of(groups: Sequence[str] | None, topics: Topics, target: Target) -> dict[OffsetKey, Position | None]:
    """Offset keys that a scenario moves where no source names them: what the groups (``None``: all) have committed, and
    all chosen partitions of chosen topics; with the committed offset.

    Raises ``UsageError`` for a named group without committed offsets where no topic is named, and for a topic that
    neither the target nor a group has.
    """
    found: dict[OffsetKey, Position | None] = {}
    for group_id in sorted(target.groups) if groups is None else groups:
        held = target.group(group_id).offsets
        if not held and not topics and groups is not None:
            said = "has committed nothing, or nothing of a topic that may be described"
            raise UsageError(f"group {group_id!r} {said}: name the topics (--topic)")
        for key, place in held.items():
            if in_scope(OffsetKey(group_id, *key), topics):
                found[OffsetKey(group_id, *key)] = place
        for topic, partitions in topics.items():
            existing = () if target.topics is None or topic not in target.topics else target.topics[topic].partitions
            for partition in existing if partitions is None else partitions:
                found.setdefault(OffsetKey(group_id, topic, partition), None)
    for topic in topics.keys() - {key.topic for key in found}:
        raise UsageError(f"{target.name} has no --topic {topic}, and no group has committed offsets of it")
    return found


def check_topics(topics: Topics, wanted: Wanted, target: Target) -> None:
    """Raises ``UsageError`` for a topic of which nothing is wanted and nothing is known in the target."""
    known = {key.topic for key in wanted.positions} | {*(target.topics or ())}
    known |= {topic for group in target.groups.values() for topic, _ in group.offsets}
    for topic in sorted(topics.keys() - known):
        raise UsageError(f"neither the source nor {target.name} has topic {topic}")


def moved(
    base: Mapping[OffsetKey, Position] | Mapping[OffsetKey, Position | None],
    scenario: Scenario,
    target: Target,
    at_time: Mapping[tuple[str, int], int],
) -> Wanted:
    """Offsets to which a scenario puts each offset key of ``base``. ``at_time`` are the offsets of the first
    records at or after its time; -1 where there is none.

    An offset that changes has neither the leader epoch nor the metadata of the one before: both tell of that. Raises
    ``UsageError`` for an offset key that the scenario cannot move.
    """
    positions = {}
    warnings: defaultdict[str, list[str]] = defaultdict(list)
    for key, held in base.items():
        log = target.log(key.topic, key.partition)
        match scenario.move:
            case Move.TO_OFFSET:
                offset = scenario.number
            case Move.SHIFT_BY:
                if held is None:
                    raise UsageError(
                        f"{key.in_words} has no committed offset to shift; leave it out, or name an offset"
                    )
                offset = held.offset + scenario.number
                if not -INT64_END <= offset < INT64_END:
                    raise UsageError(f"{key.in_words}: {held.offset} and {scenario.number} are no offset")
            case Move.TO_CURRENT:
                offset = _known(log.end, key, target) if held is None else held.offset
            case Move.TO_EARLIEST:
                offset = _known(log.start, key, target)
            case Move.TO_LATEST:
                offset = _known(log.end, key, target)
            case Move.TO_DATETIME | Move.BY_DURATION:
                offset = at_time.get(key[1:], UNKNOWN)
                if offset == UNKNOWN:
                    offset = _known(log.end, key, target)
                    said = f"{key.topic_partition} has no record at or after that time: its end is taken"
                    warnings[key.group_id].append(said)
        topic = None if target.topics is None else target.topics.get(key.topic)
        if held is not None and held.offset == offset:
            positions[key] = held
        else:
            positions[key] = Position(offset, topic_id=None if topic is None else topic.topic_id)
    return Wanted(positions, warnings={group_id: tuple(said) for group_id, said in warnings.items()})


def _known(offset: int, key: OffsetKey, target: Target) -> int:
    """A start or end of the topic's partition. Raises ``UsageError`` where it is not known, and says why."""
    if offset != UNKNOWN:
        return offset
    why = "the start and end of the topic's partition are not known"
    if target.topics is not None:
        topic = target.topics.get(key.topic)
        if topic is None:
            why = f"the target has no topic {key.topic}"
        elif key.partition not in topic.partitions:
            why = f"topic {key.topic} has {count(len(topic.partitions), 'partition')}"
    raise UsageError(f"{key.in_words}: {why}")
