"""Target of a plan: groups, committed offsets and the topics' logs, of a cluster or of a replayed state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from coordinator_core.coordinator.settings import BrokerSettings
from coordinator_core.errors import UsageError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import ClassicGroup, CommittedOffset, GroupState, OffsetKey, PartitionState
from coordinator_core.history.model import PartitionHistory
from coordinator_core.merge.packed import LongTexts
from coordinator_core.restore.model import NO_EPOCH, Position
from coordinator_core.rules.topics import UNKNOWN, Topics

METADATA_LIMIT = BrokerSettings().offset_metadata_max_bytes
"""Kafka's default of ``offset.metadata.max.bytes``."""

WITHOUT_MEMBERS = frozenset({None, str(GroupState.EMPTY), str(GroupState.DEAD)})
"""States in which a group takes commits of an admin client; ``None``: the group is absent."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """Log start and end (high watermark) of a topic's partition, and its leader epoch; -1 where it is not known."""

    start: int = UNKNOWN
    end: int = UNKNOWN
    leader_epoch: int = NO_EPOCH

    def nearest(self, offset: int) -> int:
        """The offset, within the start and the end that are known."""
        if UNKNOWN != self.start > offset:
            return self.start
        return self.end if UNKNOWN != self.end < offset else offset


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """A topic; its id is ``None`` before Kafka 2.8."""

    topic_id: str | None
    partitions: Mapping[int, LogRange]


@dataclass(slots=True)
class TargetGroup:
    """A group as it stands. ``state`` is ``None`` while it is absent.

    ``unstable`` has the producers of open transactions by (topic, partition); an empty tuple where only that there is
    one is known. ``protocol_type`` is that of a classic group that has or had members; ``empty_since_ms`` is when it
    became empty, where the log tells.
    """

    group_id: str
    type: str = "classic"
    state: str | None = None
    members: int | None = None
    offsets: dict[tuple[str, int], Position] = field(default_factory=dict)
    unstable: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    protocol_type: str | None = None
    empty_since_ms: int | None = None

    @property
    def has_members(self) -> bool:
        return self.state not in WITHOUT_MEMBERS


@dataclass(frozen=True, slots=True)
class Target:
    """``topics`` is ``None`` where nothing is known of the topics' logs.
    ``has_start_offsets``: whether there are requests for those of share groups. ``has_group_clock``: offsets of a group
    without members expire by the time at which it became empty (KIP-211, 2.1), not each by its commit."""

    name: str
    cluster_id: str | None
    groups: Mapping[str, TargetGroup]
    topics: Mapping[str, TargetTopic] | None
    offsets_partitions: int
    metadata_limit: int = METADATA_LIMIT
    has_start_offsets: bool = True
    has_group_clock: bool = True

    def log(self, topic: str, partition: int) -> LogRange:
        """The log of a topic's partition; nothing is known of one that is not there."""
        found = None if self.topics is None else self.topics.get(topic)
        return LogRange() if found is None else found.partitions.get(partition, LogRange())

    def group(self, group_id: str) -> TargetGroup:
        """The group as it stands, also an absent one."""
        return self.groups.get(group_id) or TargetGroup(group_id)


def position_of(
    offset: CommittedOffset, offsets_partition: int, topic_id: str | None, texts: LongTexts | None = None
) -> Position:
    """A replayed committed offset; ``topic_id`` is taken where the record has none, ``texts`` has the metadata that
    digests stand for in a state without whole metadata."""
    return Position(
        offset.committed_offset,
        NO_EPOCH if offset.leader_epoch is None else offset.leader_epoch,
        offset.metadata if texts is None else texts.text(offset.metadata),
        offset.topic_id or topic_id,
        offsets_partition,
        offset.record_offset,
    )


def groups_of(
    states: Sequence[PartitionState],
    topic_ids: Mapping[str, str],
    place: Callable[[str], int | None],
    texts: LongTexts | None = None,
) -> dict[str, TargetGroup]:
    """Groups of a replayed state, as their coordinators would answer. ``topic_ids`` by name; ``texts`` as for
    :func:`position_of`.

    ``place`` is the offsets partition of a group. Of a group that several partitions have (the offsets topic got more
    partitions, or records were misplaced), only the state there counts; the first, where none is there.
    """
    found: dict[str, TargetGroup] = {}
    for state in states:
        own: dict[str, TargetGroup] = {}
        for group_id, group in state.groups.items():
            if group_id not in found or place(group_id) == state.offsets_partition:
                members = len(group.members)
                one = TargetGroup(group_id, str(group.type), str(group.state or GroupState.EMPTY), members)
                if isinstance(group, ClassicGroup):
                    one.protocol_type = group.protocol_type
                    one.empty_since_ms = group.state_timestamp_ms if group.state is GroupState.EMPTY else None
                own[group_id] = one
        for key, offset in state.offsets.items():
            if key.group_id in own:
                held = position_of(offset, state.offsets_partition, topic_ids.get(key.topic), texts)
                own[key.group_id].offsets[key.topic, key.partition] = held
        for producer_id, commits in state.pending.items():
            for key in commits:
                if key.group_id in own:
                    unstable = own[key.group_id].unstable
                    unstable[key[1:]] = (*unstable.get(key[1:], ()), producer_id)
        found |= own
    return found


def place_of(offsets_partitions: int) -> Callable[[str], int]:
    """The offsets partition of a group, of so many."""
    return partial(partition_for, num_partitions=offsets_partitions)


def check_places(
    states: Sequence[PartitionState | PartitionHistory], offsets_partitions: int, group_ids: Collection[str]
) -> dict[str, list[int]]:
    """Groups that several offsets partitions have, with these partitions.

    Raises ``UsageError`` for one of ``group_ids`` (empty: of all) where that of its coordinator is not among them.
    """
    first: dict[str, int] = {}
    found: dict[str, list[int]] = {}
    for state in states:
        for group_id in state.groups:
            place = first.setdefault(group_id, state.offsets_partition)
            if place != state.offsets_partition:
                found.setdefault(group_id, [place]).append(state.offsets_partition)
    for group_id, places in found.items():
        home = partition_for(group_id, offsets_partitions)
        if home not in places and (not group_ids or group_id in group_ids):
            raise UsageError(
                f"offsets partitions {listed(places)} have group {group_id!r}, and {home}, that of its coordinator "
                f"where there are {offsets_partitions}, has not: if they are not so many, give their number "
                "(--offsets-topic-num-partitions), else choose other groups (--group)"
            )
    return found


def listed(partitions: Sequence[int]) -> str:
    """``3, 7 and 17``, of two or more."""
    return f"{', '.join(map(str, partitions[:-1]))} and {partitions[-1]}"


def topics_of(topics: Topics) -> dict[str, TargetTopic]:
    """Topics of a ``topics.json``, which has no leader epochs that could be relied on."""
    return {
        name: TargetTopic(
            topics.ids[at],
            {
                number: LogRange(int(topics.start[first + number]), int(topics.end[first + number]))
                for number in range(int(topics.count[at]))
            },
        )
        for at, (name, first) in enumerate(zip(topics.names.to_pylist(), topics.first.tolist(), strict=True))
    }


def with_records(
    groups: Mapping[str, TargetGroup],
    states: Sequence[PartitionState],
    offsets_partitions: int,
    texts: LongTexts | None = None,
) -> None:
    """Give the committed offsets of live groups the records that hold them, and their open transactions the producers,
    as far as a replay of the same log agrees, and empty groups their time. ``texts`` as for :func:`position_of`."""
    replayed = groups_of(states, {}, place_of(offsets_partitions), texts)
    for group_id, group in groups.items():
        known = replayed.get(group_id)
        if known is None:
            continue
        group.empty_since_ms = known.empty_since_ms
        for key, place in group.offsets.items():
            logged = known.offsets.get(key)
            if logged is not None and logged.value == place.value:
                group.offsets[key] = logged
        for key, producers in known.unstable.items():
            if key in group.unstable:
                group.unstable[key] = producers


def in_scope(key: OffsetKey, topics: Mapping[str, frozenset[int] | None]) -> bool:
    """Whether an offset key is of the chosen topics and partitions; no topics: of all."""
    if not topics:
        return True
    chosen = topics.get(key.topic, frozenset())
    return chosen is None or key.partition in chosen
