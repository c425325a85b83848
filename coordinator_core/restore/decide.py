"""The decision on each offset key: what is written, and why, or why not.

Sources: ``OffsetMetadataManager.validateOffsetCommit``, ``ConsumerUtils.refreshCommittedOffsets`` (a leader epoch
above the topic's own keeps a consumer refreshing its metadata), ``GroupMetadataManager`` (an offset commit makes an
absent group a classic simple one), ``ClassicGroup.offsetExpirationCondition``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import GroupType, OffsetKey
from coordinator_core.groups.offsets import metadata_length
from coordinator_core.investigate.words import count, moment, some_of
from coordinator_core.merge.packed import LongText
from coordinator_core.restore.model import (
    NO_EPOCH,
    WRITES,
    Action,
    GroupPlan,
    Metadata,
    Position,
    Row,
    action_of,
    after_of,
    state_digest,
)
from coordinator_core.restore.source import Wanted
from coordinator_core.restore.target import LogRange, Target, TargetGroup, TargetTopic, in_scope
from coordinator_core.rules.topics import UNKNOWN

_SHARE_WARNING = (
    "of a share group only start offsets are set: the states and counts of deliveries behind them are lost, so records "
    "that were acknowledged there are delivered again, and counts begin anew"
)
_RESTORES = (Action.CREATE, Action.UPDATE)
_NAMES_SHOWN = 3
_STATE_TOPICS = ("-changelog", "-repartition")


@dataclass(frozen=True, slots=True)
class Choices:
    """Decisions of the operator. ``topics``: only these; ``delete_others``: offset keys that the source lacks go.

    ``other_topics``: the offsets were committed for topics of the same names that are others (made again, or of
    another cluster), and are meant for these. ``new_share_groups``: absent groups become share groups.
    """

    topics: Mapping[str, frozenset[int] | None]
    trim: bool = False
    drop_metadata: bool = False
    other_topics: bool = False
    delete_others: bool = False
    new_share_groups: bool = False


def is_elsewhere(wanted: Wanted, target: Target) -> bool:
    """Whether the offsets were committed in another cluster, where both are known."""
    return None not in (wanted.cluster_id, target.cluster_id) and wanted.cluster_id != target.cluster_id


def decide(wanted: Wanted, target: Target, choices: Choices, group_ids: Iterable[str] = ()) -> list[GroupPlan]:
    """A plan for each group that ``wanted`` names, in order of group ids, with all offsets that it holds.

    With ``delete_others`` also for those of ``group_ids`` that have nothing else than offsets to delete.
    """
    by_group: dict[str, dict[OffsetKey, Position]] = {}
    for group_id in group_ids if choices.delete_others else ():
        if any(in_scope(OffsetKey(group_id, *key), choices.topics) for key in target.group(group_id).offsets):
            by_group[group_id] = {}
    for key, place in wanted.positions.items():
        if in_scope(key, choices.topics):
            by_group.setdefault(key.group_id, {})[key] = place
    elsewhere = is_elsewhere(wanted, target)
    found = []
    for group_id, positions in sorted(by_group.items()):
        group = target.group(group_id)
        if group.state is None and choices.new_share_groups:
            group = replace(group, type=str(GroupType.SHARE))
        if group.type == GroupType.SHARE:
            # A start offset has neither leader epoch nor metadata.
            positions = {key: replace(place, leader_epoch=NO_EPOCH, metadata="") for key, place in positions.items()}
        rows = []
        for topic, partition in sorted({key[1:] for key in positions} | group.offsets.keys()):
            key = OffsetKey(group_id, topic, partition)
            if key in positions:
                rows.append(_wanted_row(key, positions[key], group, target, choices, elsewhere))
            else:
                rows.append(_other_row(key, group, choices))
        kind = wanted.types.get(group_id)
        warnings = [*wanted.warnings.get(group_id, ()), *_group_warnings(group, kind, target)]
        found.append(group_plan(group, target, rows, warnings))
    return found


def group_plan(
    group: TargetGroup,
    target: Target,
    rows: Iterable[Row],
    warnings: Iterable[str] = (),
    *,
    delete: bool = False,
) -> GroupPlan:
    """The plan of a group; ``delete``: the group goes with its offsets."""
    rows, warnings = tuple(rows), tuple(warnings)
    if group.type == GroupType.SHARE:
        rows, said = _whole_topics(rows)
        warnings += said
        if not delete and any(row.action in WRITES for row in rows):
            warnings += (_SHARE_WARNING,)
    elif _expires_as_empty(group, target) and any(row.action in _RESTORES for row in rows):
        since = "" if group.empty_since_ms is None else f" ({moment(group.empty_since_ms)})"
        warnings += (
            f"its offsets expire offsets.retention.minutes after it became empty{since}, not after the restore: begin "
            "its consumers before that",
        )
    if delete:
        action = Action.DELETE
    elif any(row.action is Action.BLOCKED for row in rows):
        action = Action.BLOCKED
    elif all(row.action is Action.KEEP for row in rows):
        action = Action.KEEP
    else:
        action = Action.CREATE if group.state is None else Action.UPDATE
    return GroupPlan(
        group.group_id,
        group.type,
        group.state,
        group.members,
        partition_for(group.group_id, target.offsets_partitions),
        action,
        rows,
        state_digest(after_of(rows)),
        warnings,
    )


def _expires_as_empty(group: TargetGroup, target: Target) -> bool:
    """Whether a restored offset is as old as the group's last member."""
    return target.has_group_clock and bool(group.protocol_type) and not group.has_members


def _whole_topics(rows: Iterable[Row]) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Start offsets of share groups are deleted by topic (DeleteShareGroupOffsets): of a topic that keeps one, all
    stay."""
    rows = tuple(rows)
    kept = {row.topic for row in rows if row.after is not None}
    why = "stays: start offsets are deleted for whole topics only, and others of this one stay"
    stay = [row.action is Action.DELETE and row.topic in kept for row in rows]
    names = [row.key.topic_partition for row, stays in zip(rows, stay, strict=True) if stays]
    if not names:
        return rows, ()
    return (
        tuple(
            replace(row, action=Action.KEEP, after=row.before, reason=why) if stays else row
            for row, stays in zip(rows, stay, strict=True)
        ),
        (f"{some_of(names, _NAMES_SHOWN)}: not deleted, as start offsets are deleted for whole topics only",),
    )


def changed_row(key: OffsetKey, before: Position | None, after: Position | None, log: LogRange, why: str) -> Row:
    """The row that takes an offset key from ``before`` to ``after``, with what that means for its reader."""
    read_again = skipped = left = None
    if after is not None and UNKNOWN not in (log.start, log.end):
        to = min(max(after.offset, log.start), log.end)
        left = log.end - to
        if before is not None:
            came = min(max(before.offset, log.start), log.end)
            read_again, skipped = max(came - to, 0), max(to - came, 0)
    return Row(*key, action_of(before, after), before, after, why, read_again, skipped, left)


def _wanted_row(
    key: OffsetKey, place: Position, group: TargetGroup, target: Target, choices: Choices, elsewhere: bool
) -> Row:
    before = group.offsets.get(key[1:])
    topic = None if target.topics is None else target.topics.get(key.topic)
    log = target.log(key.topic, key.partition)
    is_above = NO_EPOCH != log.leader_epoch < place.leader_epoch
    is_outside = log.nearest(place.offset) != place.offset
    if before is not None and before.value == place.value and not is_above and not (is_outside and choices.trim):
        why = f"it is so already{', outside of the log' if is_outside else ''}"
        return changed_row(key, before, before, log, why)
    reasons = list(_blocking(key, place, group, target, topic, choices, elsewhere))
    if reasons:
        return replace(changed_row(key, before, place, log, "; ".join(reasons)), action=Action.BLOCKED)
    after, said = _fitted(place, log)
    after, epoch_said = _with_epoch(after, place, topic, log, elsewhere)
    said += epoch_said
    if topic is not None:
        # An apply refuses the offset for a topic that was made again since.
        after = replace(after, topic_id=topic.topic_id)
    if _length(after.metadata) > target.metadata_limit:
        after = replace(after, metadata="")
        said += [f"its metadata is longer than {target.metadata_limit} characters and dropped"]
    row = changed_row(key, before, after, log, "; ".join(said) or _plain_reason(before, after))
    return replace(row, warnings=_row_warnings(key, group, row))


def _blocking(
    key: OffsetKey,
    place: Position,
    group: TargetGroup,
    target: Target,
    topic: TargetTopic | None,
    choices: Choices,
    elsewhere: bool,
) -> Iterator[str]:
    """Why the offset key cannot be written as it is wanted."""
    if key.partition < 0:
        yield f"partition {key.partition} is none"
        return
    if group.type == GroupType.SHARE and not target.has_start_offsets:
        yield "the brokers have no request that sets start offsets of share groups (Kafka 4.1 and later have)"
    if target.topics is not None:
        if topic is None:
            yield f"the target has no topic {key.topic}"
            return
        if key.partition not in topic.partitions:
            yield f"topic {key.topic} has {count(len(topic.partitions), 'partition')}"
            return
        if _is_other(place, topic) and not (choices.other_topics or elsewhere):
            yield (
                f"it was committed for another topic of this name (id {place.topic_id}, now {topic.topic_id}): made "
                "again, or of another cluster (--other-topics if it is meant)"
            )
    nearest = target.log(*key[1:]).nearest(place.offset)
    if nearest != place.offset and not choices.trim:
        yield f"offset {place.offset} is {_where(place.offset, nearest)} (--out-of-range trim takes that)"
    elif nearest < 0:
        yield f"offset {place.offset} is none"
    length = _length(place.metadata)
    if length > target.metadata_limit and not choices.drop_metadata:
        yield (
            f"its metadata has {length} characters, the brokers take {target.metadata_limit} (--metadata drop writes "
            "it without)"
        )


def _where(offset: int, nearest: int) -> str:
    return f"below the log start {nearest}" if offset < nearest else f"above the log end {nearest}"


def _length(metadata: Metadata) -> int:
    return metadata.length if isinstance(metadata, LongText) else metadata_length(metadata)


def _is_other(place: Position, topic: TargetTopic) -> bool:
    return None not in (place.topic_id, topic.topic_id) and place.topic_id != topic.topic_id


def _fitted(place: Position, log: LogRange) -> tuple[Position, list[str]]:
    """The position within the log; only called where trimming is allowed, or not needed."""
    nearest = log.nearest(place.offset)
    if nearest == place.offset:
        return place, []
    side = "start" if nearest > place.offset else "end"
    return replace(place, offset=nearest), [f"trimmed from {place.offset} to the log {side} {nearest}"]


def _with_epoch(
    after: Position, place: Position, topic: TargetTopic | None, log: LogRange, elsewhere: bool
) -> tuple[Position, list[str]]:
    """The leader epoch is kept where it is one of this topic, and not above the current one."""
    if after.leader_epoch == NO_EPOCH:
        return after, []
    epoch = f"leader epoch {place.leader_epoch} is dropped"
    if after.offset != place.offset:
        why = "it belongs to the offset before trimming"
    elif topic is None or place.topic_id is None or topic.topic_id is None:
        why = "it is not known whether it is of this topic"
    elif elsewhere or place.topic_id != topic.topic_id:
        why = "it is of another topic"
    elif place.leader_epoch < NO_EPOCH:
        why = "no broker has such an epoch"
    elif log.leader_epoch == NO_EPOCH:
        why = "the current leader epoch is not known"
    elif place.leader_epoch > log.leader_epoch:
        why = f"it is above the current one, {log.leader_epoch}"
    else:
        return after, []
    return replace(after, leader_epoch=NO_EPOCH), [f"{epoch}: {why}"]


def _plain_reason(before: Position | None, after: Position) -> str:
    if before is None:
        return "nothing is committed"
    if before.offset != after.offset:
        return "another offset is committed"
    return "the offset is so already, leader epoch or metadata are not"


def _row_warnings(key: OffsetKey, group: TargetGroup, row: Row) -> tuple[str, ...]:
    if row.action is Action.KEEP or key[1:] not in group.unstable:
        return ()
    producers = ", ".join(map(str, group.unstable[key[1:]]))
    who = f"of producer {producers} " if producers else ""
    return (f"a transaction {who}is open that commits this offset: it has to end first",)


def _other_row(key: OffsetKey, group: TargetGroup, choices: Choices) -> Row:
    held = group.offsets[key[1:]]
    if choices.delete_others and in_scope(key, choices.topics):
        row = changed_row(key, held, None, LogRange(), "the source has no committed offset for it")
        return replace(row, warnings=_row_warnings(key, group, row))
    return Row(*key, Action.KEEP, held, held, "not asked for")


def _group_warnings(group: TargetGroup, source_type: str | None, target: Target) -> Iterator[str]:
    if group.has_members:
        members = "members" if not group.members else count(group.members, "member")
        yield f"it has {members} ({group.state}): nothing is written before it is empty"
    if group.state is None and group.type == GroupType.SHARE:
        yield "the group is absent: it becomes a share group"
    elif group.state is None:
        yield "the group is absent: it becomes a classic group that only stores offsets, until members join it"
        # Kafka has streams groups since it has requests for start offsets, 4.1.
        if source_type == GroupType.STREAMS and target.has_start_offsets:
            yield "streams members of Kafka 4.1.0 to 4.2.0 cannot join such a group (KAFKA-20254)"
    stores = sorted(
        name for name in target.topics or () if name.startswith(f"{group.group_id}-") and name.endswith(_STATE_TOPICS)
    )
    if stores:
        yield (
            f"a Streams application with state ({some_of(stores, _NAMES_SHOWN)}): its stores stay as they are, at "
            "another moment than these offsets; kafka-streams-application-reset clears them"
        )
    elif GroupType.STREAMS in (source_type, group.type):
        yield "a Streams application: state stores, if it has any, stay at another moment than these offsets"
