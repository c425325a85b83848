"""Parts of the history of an offsets partition. Times are epoch milliseconds, -1 where the log has none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from coordinator_core.durations import elapsed
from coordinator_core.groups.model import CommittedOffset, Group, GroupType, OffsetKey, PartitionState
from coordinator_core.lifecycle.expiry import Condition
from coordinator_core.merge.packed import PackedText
from coordinator_core.releases import Profile


class Place(NamedTuple):
    """Place of a record: the coordinates at which ``regroup dump`` and Kafka's dump tool print it.

    ``segment`` is the file, ``byte_position`` that of its batch, ``leader_epoch`` the batch's.
    """

    offsets_partition: int
    record_offset: int
    timestamp_ms: int
    segment: str
    byte_position: int
    leader_epoch: int


class Certainty(StrEnum):
    CERTAIN = "certain"
    """Only this writes such records."""
    LIKELY = "likely"
    """Something else could have, and nothing in the log speaks for it."""
    POSSIBLE = "possible"
    """The log does not tell; the first of several candidates."""


class EndKind(StrEnum):
    """Why a committed offset, or a group, is no more."""

    NEWER_VALUE = "newer value"
    EXPIRY = "expiry"
    DELETE_GROUPS = "DeleteGroups"
    OFFSET_DELETE = "OffsetDelete"
    TOPIC_DELETION = "topic deletion"
    MIGRATION = "migration"
    """The group changed its type; its offsets stay."""
    NO_RULE = "no rule of this release justifies it"


@dataclass(frozen=True, slots=True)
class End:
    """The end of a value or a group, at the record ``place``.

    ``why`` is what the cause is told from. ``retention_at_most_ms`` is set for expiry by retention: the brokers'
    retention was not longer. ``others`` are causes that would have left the same records.
    """

    kind: EndKind
    place: Place
    certainty: Certainty = Certainty.CERTAIN
    why: str = ""
    retention_at_most_ms: int | None = None
    others: tuple[EndKind, ...] = ()
    bug: str | None = None


class OriginKind(StrEnum):
    """Kinds of committers."""

    MEMBER = "member"
    STANDALONE = "standalone consumer"
    ADMIN = "admin client"
    MIRROR = "MirrorMaker"
    CONNECT = "Connect"
    STREAMS = "Streams"
    SPARK = "Spark"
    FLINK = "Flink"


@dataclass(frozen=True, slots=True)
class Member:
    """A member as its records show it. ``topics`` are subscribed; ``partitions`` assigned, (topic, partition);
    ``None`` where the log does not tell."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...] | None
    partitions: frozenset[tuple[str, int]] | None
    rebalance_timeout_ms: int | None = None
    """``max.poll.interval.ms`` of consumers; for classic groups only."""

    @property
    def is_idle(self) -> bool:
        """Whether it was given nothing, as far as the log tells."""
        return self.partitions is not None and not self.partitions


@dataclass(frozen=True, slots=True)
class Origin:
    """Committer. ``member`` was the group's only one, or owned the partition; ``producer_id`` is set for commits of a
    transaction, ``transactional_id`` too where the transaction log is known. ``why`` is what it is told from."""

    kind: OriginKind
    certainty: Certainty
    why: str
    member: Member | None = None
    producer_id: int | None = None
    transactional_id: str | None = None


@dataclass(slots=True)
class Version:
    """A value of an offset key, or consecutive ones of one writer: ``commits`` of them, from ``first`` on to ``last``,
    with no step larger than ``largest_step``. ``still`` is where the value of ``last`` was committed first.

    It is valid from ``place`` on, or from the end marker ``valid_from`` of its transaction; ``end`` is ``None`` while
    it stands. A commit of an aborted transaction is none. ``generation`` is the group's generation, or epoch, at
    the commit. ``metadata`` is that of ``last``, which has none itself, as values of histories do: of one log they may
    be gigabytes, so they are kept packed, or not at all (:func:`~coordinator_core.history.read.read_history`).
    """

    first: CommittedOffset
    last: CommittedOffset
    place: Place
    valid_from: Place
    last_place: Place
    generation: int | None
    had_members: bool
    member: Member | None
    missing: int
    """Record offsets that the cleaner has removed from the partition up to ``last``."""
    commits: int = 1
    largest_step: int = 0
    metadata: str | PackedText = ""
    second: int | None = None
    """Committed offset of the second commit, where there is one."""
    still: Place | None = None
    stood: int = 0
    """Commits of the value of ``last`` after ``still``."""
    told: int = 0
    """Hash of the metadata of ``last``."""
    retold: int = 0
    """Commits among ``stood`` whose metadata differ from those of the commit before."""
    origin: Origin | None = None
    end: End | None = None

    @property
    def usual_ms(self) -> float:
        """Time between two of its commits; -1 where the log does not tell."""
        took = elapsed(self.place.timestamp_ms, self.last_place.timestamp_ms)
        return took / (self.commits - 1) if took >= 0 and self.commits > 1 else -1.0

    @property
    def gone_ms(self) -> int | None:
        """Time at which the offset was removed; ``None`` if a newer value followed, or it stands."""
        return None if self.end is None or self.end.kind is EndKind.NEWER_VALUE else self.end.place.timestamp_ms


@dataclass(slots=True)
class Removal:
    """The tombstone of a committed offset, and what the judge needs to know of that moment.

    ``condition`` is what the group said of its offsets then; ``subscribed`` whether its members subscribed to the
    topic. ``survivor_age_ms`` is the age of the oldest offset of the group that stayed although it could expire,
    too; ``left`` counts the group's offsets that stayed. ``had_pending``: open transactions had commits of the group,
    which keep it. ``near_end``: the log ends within a minute, perhaps in the
    middle of what removed it.
    """

    offset_key: OffsetKey
    value: CommittedOffset
    place: Place
    condition: Condition
    generation: int | None
    had_members: bool
    subscribed: bool
    foreign: bool
    """The batch has a shape in which no coordinator writes."""
    age_ms: int | None = None
    expired_ms_ago: int | None = None
    survivor_age_ms: int | None = None
    left: int = 0
    had_pending: bool = False
    near_end: bool = False
    end: End | None = None


class Bare(NamedTuple):
    """A tombstone of which the log has nothing before: the cleaner has taken the value of ``offset_key``, or the
    records of the group itself (``None``)."""

    offset_key: OffsetKey | None
    place: Place


TOPICS_CHANGED = "topics or their partitions changed"
"""Cause of an epoch that no member brought."""


class ChangeKind(StrEnum):
    GENERATION = "generation"
    EPOCH = "epoch"
    EMPTY = "empty"
    DELETED = "deleted"
    REFUSED = "refused"
    """The coordinator of the release stops loading at this record."""


@dataclass(slots=True)
class Change:
    """A change of a group: a generation, an epoch of a KIP-848 group, or its end.

    ``replaced`` are pairs of member ids behind one group instance id, the old one first. ``cause`` says what
    brought an epoch, or why the load is refused.
    """

    kind: ChangeKind
    place: Place
    generation: int | None
    members: tuple[Member, ...] = ()
    joined: tuple[Member, ...] = ()
    left: tuple[Member, ...] = ()
    replaced: tuple[tuple[str, str], ...] = ()
    protocol_type: str | None = None
    cause: str = ""
    had_offsets: int = 0
    had_pending: bool = False
    """Commits of open transactions went with the group."""
    group_type: GroupType | None = None
    protocol: str | None = None
    """Assignor of a classic group of consumers."""
    end: End | None = None

    @property
    def owned(self) -> set[tuple[str, int]]:
        """Partitions assigned to any of the ``members``, as far as the log tells."""
        return {partition for member in self.members for partition in member.partitions or ()}


class Overtaken(NamedTuple):
    """A commit of a transaction that was committed, at ``marker``, without effect: ``held`` was written after it."""

    offset_key: OffsetKey
    version: Version
    marker: Place
    held: CommittedOffset


@dataclass(slots=True)
class Aborts:
    """Transactions with commits of a group that were aborted, one after the other: ``first`` is the first commit of
    them, ``last`` the newest end marker, which ended the commit of ``value`` for ``key``."""

    first: Place
    last: Place
    key: OffsetKey
    value: CommittedOffset
    transactions: int = 0


class ShareAct(NamedTuple):
    """Progress of a share group that an Admin client set, or deleted, in these topics."""

    place: Place
    topics: tuple[str, ...]
    deletes: bool


class ClockBack(NamedTuple):
    """A record of the groups in question that is stamped ``back_ms`` before an earlier record; ``earlier_ms`` is the
    newest time before."""

    place: Place
    back_ms: int
    earlier_ms: int


def farthest(one: ClockBack | None, other: ClockBack | None) -> ClockBack | None:
    """The larger step back of two; of equal ones the first."""
    found = [step for step in (one, other) if step is not None]
    return max(found, key=lambda step: (step.back_ms, -step.place.record_offset), default=None)


class Trespass(NamedTuple):
    """A commit of ``by`` for a partition that belongs to ``owner`` in this generation; ``by`` had it in ``before``.

    ``committed`` replaces the committed offset ``held``, ``None`` where there was none.
    """

    key: OffsetKey
    place: Place
    by: Member
    owner: Member
    generation: int
    before: int
    held: int | None
    committed: int


@dataclass(slots=True)
class GroupHistory:
    """Events of one group in one offsets partition, in log order."""

    group_id: str
    offsets_partition: int
    versions: dict[OffsetKey, list[Version]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    is_streams: bool = False
    """Some of the ``changes`` are of a streams group."""
    removals: list[Removal] = field(default_factory=list)
    bare: list[Bare] = field(default_factory=list)
    dropped: int = 0
    """Commits of aborted transactions."""
    aborts: Aborts | None = None
    """Aborts since the last commit that counts."""
    overtaken: list[Overtaken] = field(default_factory=list)
    trespasses: list[Trespass] = field(default_factory=list)
    share_acts: list[ShareAct] = field(default_factory=list)
    size_bytes: int = 0
    records: int = 0
    largest_batch_bytes: int = 0
    largest_batch: Place | None = None
    largest_record_bytes: int = 0
    """Key and value."""
    largest_record: Place | None = None
    longest_metadata: int = 0
    """Characters of a commit's metadata."""
    longest_place: Place | None = None
    cleaned_to: int = 0
    """The cleaner has removed records up to this record offset: before it the group may have been otherwise."""
    producers: dict[int, list[tuple[int, Place]]] = field(default_factory=dict)
    """Epochs of producers with commits of the group in transactions, by producer id, each with its first commit; none
    by the rules of a release that bumps them for each transaction."""
    assigned: Place | None = None
    """Newest record of what members of a KIP-848 group own."""
    members: tuple[Member, ...] = ()
    """Members at the end of the log, with what they own then; known where ``assigned`` is."""
    end: Group | None = None
    """The group as its coordinator holds it at the end of the log."""

    @property
    def standing(self) -> dict[OffsetKey, Version]:
        """Values that stand at the end of the log; made anew each time."""
        return {key: versions[-1] for key, versions in self.versions.items() if versions and versions[-1].end is None}

    def note(self, change: Change) -> None:
        """Add a change behind the others."""
        self.changes.append(change)
        self.is_streams |= change.group_type is GroupType.STREAMS

    def all_versions(self) -> Iterator[tuple[OffsetKey, Version]]:
        """All values with their keys, key by key."""
        for offset_key, versions in self.versions.items():
            for version in versions:
                yield offset_key, version


def stretches(versions: Sequence[Version]) -> Iterator[Sequence[Version]]:
    """The versions of an offset key, a sequence for each time in which an offset stood."""
    first = 0
    for at, version in enumerate(versions, 1):
        if version.gone_ms is not None or at == len(versions):
            yield versions[first:at]
            first = at


def outline(group: GroupHistory) -> GroupHistory:
    """The group without what was between: of each stretch the first and the last version, and the first of a member.

    Its memory follows the offset keys, removals and rebalances, not the commits.
    """
    versions = {}
    for key, all_of_key in group.versions.items():
        kept = {id(one) for stretch in stretches(all_of_key) for one in (stretch[0], stretch[-1])}
        kept |= {id(one) for one in islice((one for one in all_of_key if one.member is not None), 1)}
        versions[key] = [one for one in all_of_key if id(one) in kept]
    return replace(group, versions=versions, overtaken=[], trespasses=[], end=None)


class LeaderChange(NamedTuple):
    """The first batch under a new leader epoch; ``pause_ms`` since the newest one before it, 0 if unknown."""

    place: Place
    epoch_before: int
    pause_ms: int


class Hole(NamedTuple):
    """Record offsets that are not in the log any more: ``first`` up to before ``end``. ``records`` are missing."""

    first: int
    end: int


@dataclass(slots=True)
class Leftovers:
    """Remains of batches of which the cleaner has left no record of a group.

    ``emptied`` counts empty batches by producer id, -1 for those without. ``markers`` counts end markers right behind
    a hole, an empty batch or another such marker, of whose transaction nothing is left, by hour (epoch hours). All of
    them have ``size_bytes``; the first is at ``place``.
    """

    emptied: dict[int, int] = field(default_factory=dict)
    markers: dict[int, int] = field(default_factory=dict)
    size_bytes: int = 0
    place: Place | None = None


@dataclass(slots=True)
class PartitionHistory:
    """One offsets partition. ``holes`` are the longest ranges that the cleaner has removed, ``missing`` counts all
    record offsets that are gone; ``formats`` are the first batches by message format and codec; ``state`` is what is
    left at the end.
    """

    offsets_partition: int
    profile: Profile
    groups: dict[str, GroupHistory] = field(default_factory=dict)
    leaders: list[LeaderChange] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    missing: int = 0
    cleaned_to: int = 0
    first_offset: int = 0
    end_offset: int = 0
    first_ms: int = -1
    last_ms: int = -1
    batches: int = 0
    formats: dict[tuple[int, int], Place] = field(default_factory=dict)
    clock: ClockBack | None = None
    """The farthest step back; the first of equal ones."""
    leftovers: Leftovers = field(default_factory=Leftovers)
    state: PartitionState | None = None


@dataclass(slots=True)
class Instant:
    """Deletions anywhere at one time. Names are kept up to a few, in the order in which they came; the count is of
    all."""

    groups: dict[str, None] = field(default_factory=dict)
    topics: dict[str, None] = field(default_factory=dict)
    tombstones: int = 0


class Deletions:
    """Tombstones of all groups in all partitions: what else went at the same time."""

    NAMES = 16
    """Names of groups, and of topics, that an instant keeps."""
    STEP_MS = 50
    """Times are told apart down to so many milliseconds."""

    def __init__(self) -> None:
        self.instants: dict[int, Instant] = {}
        """By time in units of :data:`STEP_MS`."""

    def add(self, timestamp_ms: int, group_id: str, topic: str | None) -> None:
        self.note(timestamp_ms // self.STEP_MS, 1, (group_id,), () if topic is None else (topic,))

    def note(self, at: int, tombstones: int, groups: Iterable[str], topics: Iterable[str]) -> None:
        """Add deletions at a time, in units of :data:`STEP_MS`."""
        instant = self.instants.setdefault(at, Instant())
        instant.tombstones += tombstones
        for known, names in ((instant.groups, groups), (instant.topics, topics)):
            for name in names:
                if len(known) < self.NAMES:
                    known[name] = None

    def take(self, later: Deletions) -> None:
        """Add the notes of offsets partitions behind those of this one: the result is that of one reading."""
        for at, instant in later.instants.items():
            self.note(at, instant.tombstones, instant.groups, instant.topics)

    def around(self, timestamp_ms: int, within_ms: int = STEP_MS) -> Instant:
        """Deletions at a time, give or take ``within_ms`` and up to 50 milliseconds more."""
        found = Instant()
        at = timestamp_ms // self.STEP_MS
        reach = within_ms // self.STEP_MS
        for near in range(at - reach, at + reach + 1):
            instant = self.instants.get(near)
            if instant is not None:
                found.groups |= instant.groups
                found.topics |= instant.topics
                found.tombstones += instant.tombstones
        return found
