"""One thing that happened, explained: what it is, what led there, where it stands in the log, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from coordinator_core.durations import HOUR_MS
from coordinator_core.groups.model import GroupType, OffsetKey
from coordinator_core.history.judge import Judge
from coordinator_core.history.lessons import Lessons
from coordinator_core.history.model import Change, ChangeKind, Deletions, GroupHistory, Place, Version
from coordinator_core.history.signs import name_of
from coordinator_core.investigate.words import count, some_of, until
from coordinator_core.lifecycle.due import expiry_of
from coordinator_core.lifecycle.expiry import Condition, condition_of
from coordinator_core.lifecycle.plan import Kept
from coordinator_core.releases import Profile
from coordinator_core.rules.model import Severity
from coordinator_core.rules.topics import Topics
from coordinator_core.topology import Topology

IS_EMPTY = "group-is-empty"
OVERTAKEN = "commit-overtaken"
SHOWN = 8
"""Most records and names of one kind in an explanation."""
USUAL = 20
"""Commits in a row that make a rhythm, and times its step that are out of it."""
_MEMBERS_SHOWN = 3
_WHAT = {
    ChangeKind.GENERATION: "generation {number}",
    ChangeKind.EPOCH: "group epoch {number}",
    ChangeKind.EMPTY: "group becomes Empty, {number_of} {number}",
    ChangeKind.DELETED: "group is deleted, {number_of} {number}",
    ChangeKind.REFUSED: "record is refused",
}
AT_END = frozenset(
    {
        "batch-larger-than-load-buffer",
        "cleaner-stopped",
        "commits-end-with-coordinator",
        "commits-from-outside-stopped",
        "committed-below-log-start",
        "committed-beyond-log-end",
        "committed-for-missing-topic",
        "committed-one-too-many",
        "connector-offsets-stay",
        "group-behind",
        "group-id-reused",
        "group-in-two-partitions",
        "group-out-of-reach",
        IS_EMPTY,
        "group-silent",
        "group-stopped",
        "hanging-transaction",
        "lag-of-one",
        "load-at-risk",
        "load-never-ends",
        "load-refused",
        "member-silent",
        "member-stopped",
        "members-without-partitions",
        "mixed-message-formats",
        "mixed-subscriptions",
        "never-committed",
        "not-cleaned",
        "nothing-assigned",
        "offsets-partition-silent",
        "open-transaction",
        "partition-never-committed",
        "partition-stopped",
        "partitions-left-out",
        "partitions-not-released",
        "partitions-unassigned",
        "partitions-without-owner",
        "record-near-max-message-bytes",
        "record-not-done",
        "stands-still",
        "subscription-not-applied",
        "topic-recreated",
        "topic-unsubscribed",
    }
)
"""Codes of what holds at the end of the log, whenever it began."""


class Event(NamedTuple):
    """One step of the sequence; ``place`` is the record that shows it."""

    place: Place
    text: str


def step(change: Change) -> Event:
    """A change of a group by its record: members that came and went, and why an epoch was bumped."""
    is_classic = change.group_type in (GroupType.CLASSIC, None)
    number_of = "generation" if is_classic else "group epoch"
    text = _WHAT[change.kind].format(number_of=number_of, number=change.generation)
    if change.members:
        text += f", {count(len(change.members), 'member')}"
    for name, members in (("joined", change.joined), ("left", change.left)):
        if members:
            text += f"; {name}: {some_of([*map(name_of, members)], _MEMBERS_SHOWN)}"
    if change.kind is ChangeKind.EPOCH and change.cause:
        text += f"; cause: {change.cause}"
    return Event(change.place, text)


def newest_commit(key: OffsetKey, version: Version) -> Event:
    """The last commit of a value."""
    return Event(version.last_place, f"{key.topic_partition}: {version.last.committed_offset}")


def changes_around(group: GroupHistory, first: Place, last: Place) -> list[Change]:
    """The two changes of a group before some records, and the one behind them."""
    before = [one for one in group.changes if one.place.record_offset < first.record_offset]
    after = [one for one in group.changes if one.place.record_offset > last.record_offset]
    return before[-2:] + after[:1]


def first_place(group: GroupHistory) -> Place:
    """The first record of a group that has some."""
    places = [one.place for _, one in group.all_versions()] + [one.place for one in group.changes]
    return min(places, key=attrgetter("record_offset"))


def last_place(group: GroupHistory) -> Place:
    """The newest record of a group that has some."""
    places = [one.last_place for _, one in group.all_versions()] + [one.place for one in group.changes]
    return max(places, key=attrgetter("record_offset"))


def is_overdue(usual_ms: float, quiet_ms: int, least_ms: int = HOUR_MS) -> bool:
    """Whether nothing came for much longer than two commits are apart; not where either is unknown (below 0)."""
    return usual_ms >= 0 and quiet_ms >= max(least_ms, USUAL * usual_ms)


@dataclass(slots=True)
class Explanation:
    """``verdict`` is one sentence. ``evidence`` are records; ``events`` the sequence that led there. ``not_this`` says
    what was looked for and is not so; ``now`` what to do, with commands; ``capture`` what to save before it goes.

    ``restore`` are committed offsets to put back, in the columns of ``kafka-consumer-groups --from-file``; ``ends`` are
    the record offsets before which the group held each of them, empty where it is not known to have held them all;
    ``held_before`` is the one before which it held all of them, ``None`` where it is not known to have held them at one
    time. ``bug`` is a key of the catalogue of known bugs. ``at_ms`` is the time of the first event, ``until_ms`` that
    of the last one, where ``evidence`` may leave it out.
    """

    code: str
    severity: Severity
    verdict: str
    at_ms: int = -1
    group_id: str | None = None
    offsets_partition: int | None = None
    events: Sequence[Event] = ()
    evidence: Sequence[Event] = ()
    not_this: Sequence[str] = ()
    now: Sequence[str] = ()
    capture: Sequence[str] = ()
    restore: Mapping[OffsetKey, int] = field(default_factory=dict)
    bug: str | None = None
    until_ms: int = -1
    ends: Mapping[OffsetKey, int] = field(default_factory=dict)
    held_before: int | None = None

    @property
    def newest_ms(self) -> int:
        """Time of the newest event; -1 if it is not known."""
        return max(self.at_ms, self.until_ms, *(event.place.timestamp_ms for event in self.evidence), -1)

    def ended_before(self, time_ms: int) -> bool:
        """Whether it was over before a time (epoch ms); not known of what has no time."""
        return 0 <= self.newest_ms < time_ms and self.code not in AT_END


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of an explanation besides the history itself."""

    profile: Profile
    now_ms: int
    retention_ms: int | None
    """``offsets.retention.minutes``, where it is known."""
    topics: Topics | None = None
    topology: Topology | None = None
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    """By producer id, where the transaction log is known."""
    captured_retention_ms: int | None = None
    """``offsets.retention.minutes`` when the log was copied; it may have been another one before."""

    @property
    def captured_ms(self) -> int:
        """The log was copied no earlier, by its topics and topology (epoch ms); -1 if they do not tell."""
        captured = [known.captured_at_ms for known in (self.topics, self.topology) if known is not None]
        return max((at for at in captured if at is not None), default=-1)

    def bounds(self, key: OffsetKey) -> tuple[int, int] | None:
        """Start and end of the log of a partition, where topics tell them."""
        return None if self.topics is None else self.topics.bounds(key.topic, key.partition)

    @property
    def likely_retention_ms(self) -> int:
        return self.retention_ms or self.captured_retention_ms or self.profile.expiry.default_offsets_retention_ms

    def judge(self, deletions: Deletions, lessons: Lessons) -> Judge:
        """The judge of removals."""
        return Judge(
            self.profile,
            deletions,
            retention_ms=self.retention_ms,
            captured_retention_ms=self.captured_retention_ms,
            lessons=lessons,
        )

    def due_ms(self, base_ms: int, explicit_ms: int | None = None) -> int:
        """Time (epoch ms) at which an offset expires that ages from ``base_ms``, or has a timestamp of its own; -1
        where that is unknown."""
        if base_ms < 0 and explicit_ms is None:
            return -1
        return expiry_of(
            self.profile.expiry.clock,
            now_ms=0,
            retention_ms=self.likely_retention_ms,
            base_ms=base_ms,
            explicit_ms=explicit_ms or 0,
            is_explicit=explicit_ms is not None,
        ).due_ms

    def ages_from(self, group: GroupHistory) -> int | None:
        """Time (epoch ms) from which all offsets of a group age, whenever they were committed: of a classic one that
        its members have left (KIP-211)."""
        return self._condition(group).base_timestamp_ms

    def _condition(self, group: GroupHistory) -> Condition:
        return condition_of(group.end, self.profile.expiry)

    def stays_until_ms(self, group: GroupHistory, held: Mapping[OffsetKey, Version]) -> int | None:
        """Time (epoch ms) at which the first of these offsets of the group expires; ``None``: none does as long as it
        has the members of now."""
        condition = self._condition(group)
        if condition.kept not in (None, Kept.ORPHANED):
            return None
        base_ms = condition.base_timestamp_ms
        due = (
            self.due_ms(one.last.commit_timestamp_ms if base_ms is None else base_ms, one.last.expire_timestamp_ms)
            for key, one in held.items()
            if key.topic not in condition.subscribed
        )
        return min(due, default=None)

    def told_stay(self, group: GroupHistory, held: Mapping[OffsetKey, Version]) -> str:
        """How long offsets of the group stay: ``2 committed offsets stay until about 2026-05-12 02:41:07Z``."""
        until_ms = self.stays_until_ms(group, held)
        told = f"{count(len(held), 'committed offset')} {'stays' if len(held) == 1 else 'stay'} "
        return told + ("as long as the group has members" if until_ms is None else until(until_ms))
