"""The JSON of ``regroup describe`` and ``regroup list`` (``docs/cli.md`` gives its shape).

Works on :class:`PartitionState` values, wherever they come from (a replay in memory, or a published run).
Lists are sorted, absent values are ``None``, times are epoch milliseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coordinator_core.groups.classic import (
    consumer_assignment,
    consumer_subscription,
)
from coordinator_core.groups.model import (
    Assignment,
    ClassicGroup,
    ClassicMember,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    Group,
    OffsetKey,
    PartitionState,
    ShareGroup,
    ShareMember,
    StreamsGroup,
    StreamsMember,
    TaskAssignment,
    Tasks,
)
from coordinator_core.jsontext import fields_of
from coordinator_core.lifecycle.subscriptions import subscribed_topics
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE
from coordinator_core.releases import Profile
from coordinator_core.rules.topics import UNKNOWN, Topics, lag_between

DEFAULT_CONSUMER_ASSIGNOR = "uniform"
"""First of the broker's default ``group.consumer.assignors``, used when no member names one."""
SHARE_ASSIGNOR = "simple"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Selection:
    """Groups and topics to show; ``None`` stands for all."""

    groups: Collection[str] | None = None
    topics: Collection[str] | None = None

    def has_group(self, group_id: str) -> bool:
        return self.groups is None or group_id in self.groups

    def has_topic(self, topic: str) -> bool:
        return self.topics is None or topic in self.topics

    def has(self, offset_key: OffsetKey) -> bool:
        return self.has_group(offset_key.group_id) and self.has_topic(offset_key.topic)


def topic_names(states: Iterable[PartitionState], known: Mapping[str, str]) -> dict[str, str]:
    """Topic id to name, from the snapshot's directories and from the records."""
    names: dict[str, str] = {}
    for state in states:
        for offset_key, offset in state.offsets.items():
            if offset.topic_id is not None:
                names[offset.topic_id] = offset_key.topic
        for group in state.groups.values():
            if isinstance(group, ShareGroup):
                names.update((topic.topic_id, topic.topic) for topic in group.topics)
            elif isinstance(group, ConsumerGroup):
                names.update(group.topic_names)
    names.update(known)
    return names


def describe(
    states: Sequence[PartitionState],
    *,
    profile: Profile,
    now_ms: int,
    partial: bool,
    known_topic_names: Mapping[str, str],
    selection: Selection,
    topics: Topics | None = None,
) -> Json:
    """The whole document of ``describe --format json``; with ``topics`` also log ends and lag.

    Of chosen topics, the groups that have an offset or own a partition of one, or share one.
    """
    names = topic_names(states, known_topic_names if topics is None else topics.names_by_id | {**known_topic_names})
    groups = []
    for state in states:
        offsets = _offsets_by_group(state, selection)
        groups += [
            _group(state, group, offsets.get(group_id, []), names, profile)
            for group_id, group in _chosen(state, selection, names, profile)
        ]
    if topics is not None:
        for group in groups:
            group["log_ends"] = list(_log_ends(group, topics, selection))
    orphaned = [
        {
            "group_id": offset_key.group_id,
            "offsets_partition": state.offsets_partition,
            **_offset(offset_key, offset, False),
        }
        for state in states
        for offset_key, offset in state.orphaned().items()
        if selection.has(offset_key)
    ]
    return {
        "profile": profile.label,
        "now_ms": now_ms,
        "partial": partial,
        "groups": sorted(groups, key=lambda group: (group["group_id"], group["offsets_partition"])),
        "orphaned_offsets": sorted(
            orphaned,
            key=lambda row: (row["group_id"], row["topic"], row["partition"], row["offsets_partition"]),
        ),
        "transactions": _transactions(states, selection),
        "load_failures": [
            {"offsets_partition": state.offsets_partition, **failure._asdict()}
            for state in states
            for failure in state.load_failures
        ],
        "carried_records": _carried(states),
    }


def _log_ends(group: Json, topics: Topics, selection: Selection) -> Iterator[Json]:
    """Log start and end of each partition that the group has committed or owns, and how far it is behind."""
    committed = {(row["topic"], row["partition"]): row["committed_offset"] for row in group["offsets"]}
    owned = {(topic, partition) for topic, partition in _owned(group["members"]) if selection.has_topic(topic)}
    for topic, partition in sorted(committed.keys() | owned):
        bounds = topics.bounds(topic, partition)
        start, end = (None if bounds is None or one == UNKNOWN else one for one in bounds or (None, None))
        offset = committed.get((topic, partition))
        known = offset is not None and end is not None
        lag = lag_between(*(np.array([one or 0]) for one in (offset, start, end)))[0] if known else None
        yield {
            "topic": topic,
            "partition": partition,
            "log_start_offset": start,
            "log_end_offset": end,
            "lag": None if lag is None else int(lag),
        }


def _owned(members: Iterable[Json]) -> Iterator[tuple[str, int]]:
    """Partitions that the members own, of topics whose name is known."""
    return (
        (entry["topic"], partition)
        for member in members
        if isinstance(member["assignment"], list)
        for entry in member["assignment"]
        for partition in entry["partitions"]
        if entry["topic"] is not None
    )


def listing(
    states: Sequence[PartitionState], *, profile: Profile, known_topic_names: Mapping[str, str], selection: Selection
) -> list[Json]:
    """One object a group of :func:`describe`: id, offsets partition, type, protocol type, state."""
    names = topic_names(states, known_topic_names)
    rows = [
        {
            "group_id": group_id,
            "offsets_partition": state.offsets_partition,
            "type": group.type.value,
            "protocol_type": protocol_type(group),
            "state": group.state.value if group.state else None,
        }
        for state in states
        for group_id, group in _chosen(state, selection, names, profile)
    ]
    return sorted(rows, key=lambda row: (row["group_id"], row["offsets_partition"]))


def _chosen(
    state: PartitionState, selection: Selection, names: Mapping[str, str], profile: Profile
) -> Iterable[tuple[str, Group]]:
    groups = [one for one in state.groups.items() if selection.has_group(one[0])]
    if selection.topics is None:
        return groups
    offsets = _offsets_by_group(state, selection)
    return (
        (group_id, group)
        for group_id, group in groups
        if group_id in offsets
        or any(selection.has_topic(topic) for topic, _ in _owned(_members(group, names, profile)))
        or (isinstance(group, ShareGroup) and any(selection.has_topic(topic.topic) for topic in group.topics))
        # A task is of a partition of each topic that its subtopology reads.
        or (isinstance(group, StreamsGroup) and any(map(selection.has_topic, subscribed_topics(group) or ())))
    )


def protocol_type(group: Group) -> str | None:
    """Protocol type as ListGroups answers it; ``None`` where that is the empty string."""
    match group:
        case ClassicGroup():
            return group.protocol_type
        case ConsumerGroup():
            return CONSUMER_PROTOCOL_TYPE
        case ShareGroup():
            return "share"
        case StreamsGroup():
            return "streams"


def protocol(group: Group) -> str | None:
    """Selected protocol of a classic group, assignor of a modern one (``preferredServerAssignor``)."""
    match group:
        case ClassicGroup():
            return group.protocol
        case ConsumerGroup():
            votes = Counter(member.server_assignor for member in group.members.values() if member.server_assignor)
            return votes.most_common(1)[0][0] if votes else DEFAULT_CONSUMER_ASSIGNOR
        case ShareGroup():
            return SHARE_ASSIGNOR
        case StreamsGroup():
            return None


def _group(
    state: PartitionState, group: Group, offsets: list[Json], names: Mapping[str, str], profile: Profile
) -> Json:
    classic = group if isinstance(group, ClassicGroup) else None
    modern = None if isinstance(group, ClassicGroup) else group
    described: Json = {
        "group_id": group.group_id,
        "offsets_partition": state.offsets_partition,
        "type": group.type.value,
        "simple": classic is not None and classic.is_simple,
        "state": group.state.value if group.state else None,
        "protocol_type": protocol_type(group),
        "protocol": protocol(group),
        "generation": classic.generation if classic else None,
        "group_epoch": modern.group_epoch if modern else None,
        "assignment_epoch": modern.assignment_epoch if modern else None,
        "leader": classic.leader if classic else None,
        "state_timestamp_ms": classic.state_timestamp_ms if classic else None,
        "record_offset": group.record_offset,
        "members": sorted(_members(group, names, profile), key=lambda member: member["member_id"]),
        "offsets": sorted(offsets, key=lambda row: (row["topic"], row["partition"])),
    }
    if isinstance(group, StreamsGroup):
        described["topology"] = group.topology
    if isinstance(group, ShareGroup):
        described["share_partitions"] = sorted(
            (
                fields_of(topic, "topic", "topic_id", "status")
                | {"partitions": None if topic.partitions is None else sorted(topic.partitions)}
                for topic in group.topics
            ),
            key=lambda topic: (topic["status"], topic["topic"]),
        )
    return described


def _members(group: Group, names: Mapping[str, str], profile: Profile) -> list[Json]:
    match group:
        case ClassicGroup():
            return [_classic_member(member, group.protocol_type) for member in group.members]
        case ConsumerGroup():
            return [
                _consumer_member(member, group.target_assignment.get(member.member_id, {}), names, profile)
                for member in group.members.values()
            ]
        case ShareGroup():
            return [
                _member(member)
                | {
                    "assignment": _assignment(member.assigned, names),
                    "target_assignment": _assignment(group.target_assignment.get(member.member_id, {}), names),
                }
                for member in group.members.values()
            ]
        case StreamsGroup():
            return [
                _streams_member(member, group.target_assignment.get(member.member_id, TaskAssignment()))
                for member in group.members.values()
            ]


_MEMBER_FIELDS = (
    *("member_id", "instance_id", "client_id", "client_host", "rack_id", "session_timeout_ms", "rebalance_timeout_ms"),
    *("subscribed_topics", "subscribed_regex", "member_epoch", "previous_member_epoch", "state"),
)


def _member(member: ClassicMember | ConsumerMember | ShareMember | StreamsMember) -> Json:
    """Fields in contract order; ``None`` for those that this kind of member does not have."""
    kept = {name: getattr(member, name, None) for name in _MEMBER_FIELDS}
    return {
        **kept,
        "subscribed_topics": sorted(kept["subscribed_topics"] or ()),
        "assignment": [],
        "target_assignment": [],
        "is_classic": False,
    }


def _classic_member(member: ClassicMember, group_protocol_type: str | None) -> Json:
    described = _member(member) | {"is_classic": True}
    if group_protocol_type != CONSUMER_PROTOCOL_TYPE:
        return described
    described["subscribed_topics"], described["rack_id"] = consumer_subscription(member)
    assignment = consumer_assignment(member)
    described["assignment"] = assignment and [
        {"topic": topic, "topic_id": None, "partitions": partitions} for topic, partitions in assignment
    ]
    return described


def _consumer_member(member: ConsumerMember, target: Assignment, names: Mapping[str, str], profile: Profile) -> Json:
    owned = dict(member.assigned)
    if profile.describes_pending_revocation:
        for topic_id, partitions in member.pending_revocation.items():
            owned[topic_id] = (*owned.get(topic_id, ()), *partitions)
    return _member(member) | {
        "session_timeout_ms": member.classic_session_timeout_ms,
        "assignment": _assignment(owned, names),
        "pending_revocation": _assignment(member.pending_revocation, names),
        "target_assignment": _assignment(target, names),
        "is_classic": member.classic_protocols is not None,
    }


def _streams_member(member: StreamsMember, target: TaskAssignment) -> Json:
    return _member(member) | {
        "assignment": _task_assignment(member.assigned),
        "target_assignment": _task_assignment(target),
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": (
            {"host": member.user_endpoint[0], "port": member.user_endpoint[1]} if member.user_endpoint else None
        ),
        "client_tags": [{"key": key, "value": value} for key, value in member.client_tags],
    }


def _assignment(assignment: Assignment, names: Mapping[str, str]) -> list[Json]:
    rows = [
        {"topic": names.get(topic_id), "topic_id": topic_id, "partitions": sorted(partitions)}
        for topic_id, partitions in assignment.items()
    ]
    return sorted(rows, key=lambda row: (row["topic"] or "", row["topic_id"]))


def _task_assignment(assignment: TaskAssignment) -> Json:
    return {kind: _tasks(tasks) for kind, tasks in assignment.by_kind().items()}


def _tasks(tasks: Tasks) -> list[Json]:
    return [
        {"subtopology_id": subtopology_id, "partitions": sorted(tasks[subtopology_id])}
        for subtopology_id in sorted(tasks)
    ]


def _offsets_by_group(state: PartitionState, selection: Selection) -> dict[str, list[Json]]:
    pending: dict[OffsetKey, CommittedOffset] = {}
    for offset_keys in state.pending.values():
        for offset_key, offset in offset_keys.items():
            if offset_key not in pending or offset.record_offset > pending[offset_key].record_offset:
                pending[offset_key] = offset
    rows: dict[str, list[Json]] = {}
    for offset_key, offset in state.offsets.items():
        if selection.has(offset_key):
            rows.setdefault(offset_key.group_id, []).append(_offset(offset_key, offset, offset_key in pending))
    for offset_key, offset in pending.items():
        if offset_key not in state.offsets and selection.has(offset_key):
            # It stands at the coordinates of the pending commit, without its values.
            row = _offset(offset_key, offset, True) | dict.fromkeys(_COMMIT_FIELDS)
            rows.setdefault(offset_key.group_id, []).append(row)
    return rows


_COMMIT_FIELDS = ("committed_offset", "leader_epoch", "metadata", "commit_timestamp_ms", "expire_timestamp_ms")


def _offset(offset_key: OffsetKey, offset: CommittedOffset, pending: bool) -> Json:
    return {
        "topic": offset_key.topic,
        "partition": offset_key.partition,
        **fields_of(offset, "topic_id", *_COMMIT_FIELDS, "record_offset", "value_version", "producer_id"),
        "pending": pending,
    }


_TRANSACTION_FIELDS = (
    *("producer_id", "producer_epoch", "first_record_offset", "last_record_offset", "outcome", "end_marker_offset"),
)


def _transactions(states: Iterable[PartitionState], selection: Selection) -> list[Json]:
    return [
        {
            "offsets_partition": state.offsets_partition,
            **fields_of(transaction, *_TRANSACTION_FIELDS),
            "groups": list(transaction.groups),
        }
        for state in states
        for transaction in state.transactions
        if selection.groups is None or any(selection.has_group(group) for group in transaction.groups)
    ]


def _carried(states: Iterable[PartitionState]) -> list[Json]:
    counts = Counter(
        (record.key_type, record.value_version, record.detail) for state in states for record in state.carried
    )
    return [
        {"key_type": key_type, "value_version": version, "detail": detail, "records": count}
        for (key_type, version, detail), count in sorted(
            counts.items(), key=lambda item: (str(item[0][0]), str(item[0][1]), item[0][2])
        )
    ]
