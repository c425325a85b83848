"""The tables of a run back to replayed state: the inverse of ``coordinator_core.runs.tables``.

Two things that only a loader asks for do not come back: the partition epochs of consumer groups, and the
order of dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from coordinator_core.groups.model import (
    Assignment,
    CarriedRecord,
    ClassicGroup,
    ClassicMember,
    CommittedOffset,
    ConsumerGroup,
    ConsumerMember,
    Group,
    GroupState,
    GroupType,
    LoadFailure,
    MemberState,
    OffsetKey,
    PartitionState,
    ResolvedRegex,
    ShareGroup,
    ShareMember,
    ShareTopic,
    StreamsGroup,
    StreamsMember,
    TaskAssignment,
    Transaction,
    TransactionOutcome,
)
from coordinator_core.records.codec import decode_value
from coordinator_core.records.wire import RecordDecodeError
from coordinator_core.runs.rows import ImpossibleRowError
from coordinator_core.runs.tables import STREAMS_TOPOLOGY_KEY_TYPE

Row = dict[str, Any]

_ROWS = 1 << 12
"""Rows of which there are Python objects at once, besides their states."""

# Columns that may be null in other rows of the table are given in these.
_CLASSIC_GIVEN = (
    *("member_id", "client_id", "client_host"),
    *("session_timeout_ms", "rebalance_timeout_ms", "subscription"),
)
_CLASSIC_GROUP = ("protocol_type", "protocol", "leader", "state_timestamp_ms", "record_offset")
_MODERN_GIVEN = ("group_epoch", "metadata_hash", "assignment_epoch", "assignment_timestamp_ms")
_MODERN_MEMBER_GIVEN = ("member_id", "client_id", "client_host", "member_epoch", "previous_member_epoch")
_TRANSACTION = ("producer_id", "producer_epoch", "last_record_offset", "end_marker_offset", "keys", "timestamp_ms")


def partition_states(tables: Mapping[str, Iterable[pa.Table]]) -> list[PartitionState]:
    """The states that ``tables`` hold, by offsets partition; a missing table counts as empty.

    A table comes in parts, which are asked for once; those of ``members`` twice.

    :class:`ImpossibleRowError` for a row that comes twice, that is of a group that is not there or of another type, or
    that lacks values of its group's type.
    """
    states: dict[int, PartitionState] = {}
    classic_members = _classic_members(tables)

    def state_of(row: Row) -> PartitionState:
        partition: int = row["offsets_partition"]
        return states.setdefault(partition, PartitionState(partition))

    def add_group(row: Row) -> None:
        members = classic_members.get((row["offsets_partition"], row["group_id"]), {})
        _put(state_of(row).groups, row["group_id"], _group(row, members))

    def add(add_row: Callable[[PartitionState, Row], None], row: Row) -> None:
        add_row(state_of(row), row)

    _each(tables, "groups", add_group)
    for name, add_row in _ADD_ROW.items():
        _each(tables, name, partial(add, add_row))
    return [states[partition] for partition in sorted(states)]


def _each(tables: Mapping[str, Iterable[pa.Table]], name: str, take: Callable[[Row], None]) -> None:
    taken, row = 0, Row()
    try:
        for rows in tables.get(name, ()):
            for batch in rows.to_batches(_ROWS):
                for row in batch.to_pylist():
                    take(row)
                    taken += 1
    except (LookupError, ValueError, TypeError, AttributeError, RecordDecodeError) as error:
        place = ", ".join(f"{key} {row[key]!r}" for key in ("offsets_partition", "group_id") if key in row)
        raise ImpossibleRowError(name, taken, f"{place}: {error}") from error


def _fields(row: Row, names: Iterable[str]) -> Row:
    return {name: row[name] for name in names}


def _given(row: Row, names: Iterable[str]) -> Row:
    """Fields that rows of this type have."""
    found = _fields(row, names)
    for name, value in found.items():
        if value is None:
            raise ValueError(f"{name} has no value")
    return found


def _put(known: dict[Any, Any], key: Any, value: Any) -> None:
    if key in known:
        raise ValueError(f"{key!r} is there already")
    known[key] = value


def _group_of(state: PartitionState, row: Row, *types: GroupType) -> Any:
    """The group of a row, which is of the type that the row says or that only such groups have."""
    group_id = row["group_id"]
    group = state.groups.get(group_id)
    if group is None:
        raise ValueError(f"group {group_id!r} is not in offsets partition {state.offsets_partition}")
    if group.type not in (types or (row["group_type"],)):
        raise ValueError(f"group {group_id!r} is of type {group.type}")
    return group


def _classic_members(tables: Mapping[str, Iterable[pa.Table]]) -> dict[tuple[int, str], dict[int, ClassicMember]]:
    """Members by (offsets partition, group), then by their position in the group's record."""
    members: dict[tuple[int, str], dict[int, ClassicMember]] = {}

    def add(row: Row) -> None:
        if row["group_type"] == GroupType.CLASSIC:
            given = _given(row, (*_CLASSIC_GIVEN, "position", "assignment_data"))
            position, assignment = given.pop("position"), given.pop("assignment_data")
            member = ClassicMember(instance_id=row["instance_id"], assignment=assignment, **given)
            _put(members.setdefault((row["offsets_partition"], row["group_id"]), {}), position, member)

    _each(tables, "members", add)
    return members


def _group(row: Row, classic_members: Mapping[int, ClassicMember]) -> Group:
    group_id = row["group_id"]
    kind = GroupType(row["type"])
    if kind is GroupType.CLASSIC:
        return ClassicGroup(
            group_id,
            state=None if row["state"] is None else GroupState(row["state"]),
            members=tuple(classic_members[position] for position in sorted(classic_members)),
            **_given(row, ["generation"]),
            **_fields(row, _CLASSIC_GROUP),
        )
    common = {"record_offset": row["record_offset"], **_given(row, _MODERN_GIVEN)}
    if kind is GroupType.CONSUMER:
        has_record = row["has_partition_metadata_record"]
        return ConsumerGroup(group_id, has_partition_metadata_record=has_record, **common)
    if kind is GroupType.SHARE:
        return ShareGroup(group_id, **common)
    return StreamsGroup(
        group_id,
        last_assignment_configs=dict(_pairs(row["last_assignment_configs"])),
        **_given(row, ["validated_topology_epoch"]),
        **common,
    )


def _add_member(state: PartitionState, row: Row) -> None:
    group = _group_of(state, row)
    if group.type is not GroupType.CLASSIC:
        _put(group.members, row["member_id"], _MEMBER[group.type](row))


def _share_member(row: Row) -> ShareMember:
    return ShareMember(
        subscribed_topics=tuple(row["subscribed_topics"]),
        assigned=_assignment(row["assignment"]),
        **_modern_member(row),
    )


def _modern_member(row: Row) -> Row:
    member = _given(row, _MODERN_MEMBER_GIVEN) | {"rack_id": row["rack_id"], "state": MemberState(row["state"])}
    for name in ("record_offset", "assignment_record_offset"):
        member[name] = -1 if row[name] is None else row[name]
    return member


def _consumer_member(row: Row) -> ConsumerMember:
    protocols = row["classic_protocols"]
    return ConsumerMember(
        subscribed_topics=tuple(row["subscribed_topics"]),
        classic_session_timeout_ms=row["session_timeout_ms"],
        classic_protocols=None
        if protocols is None
        else tuple((protocol["name"], protocol["metadata"]) for protocol in protocols),
        assigned=_assignment(row["assignment"]),
        pending_revocation=_assignment(row["pending_revocation"]),
        **_given(row, ["rebalance_timeout_ms"]),
        **_fields(row, ("instance_id", "subscribed_regex", "server_assignor")),
        **_modern_member(row),
    )


def _streams_member(row: Row) -> StreamsMember:
    endpoint = row["user_endpoint"]
    return StreamsMember(
        user_endpoint=None if endpoint is None else (endpoint["host"], endpoint["port"]),
        client_tags=_pairs(row["client_tags"]),
        assigned=_task_assignment(row["tasks"]),
        pending_revocation=_task_assignment(row["tasks_pending_revocation"]),
        instance_id=row["instance_id"],
        **_given(row, ("rebalance_timeout_ms", "topology_epoch", "process_id")),
        **_modern_member(row),
    )


_MEMBER: dict[GroupType, Callable[[Row], Any]] = {
    GroupType.CONSUMER: _consumer_member,
    GroupType.SHARE: _share_member,
    GroupType.STREAMS: _streams_member,
}


def _pairs(entries: list[Row]) -> tuple[tuple[str, str], ...]:
    return tuple((entry["key"], entry["value"]) for entry in entries)


def _assignment(entries: list[Row]) -> Assignment:
    return {_given(entry, ["topic_id"])["topic_id"]: tuple(entry["partitions"]) for entry in entries}


def _task_assignment(value: Row) -> TaskAssignment:
    active, standby, warmup = (
        {entry["subtopology_id"]: tuple(entry["partitions"]) for entry in value[name]}
        for name in ("active_tasks", "standby_tasks", "warmup_tasks")
    )
    return TaskAssignment(active, standby, warmup)


def _add_target(state: PartitionState, row: Row) -> None:
    group = _group_of(state, row)
    target = _task_assignment(row["tasks"]) if group.type is GroupType.STREAMS else _assignment(row["assignment"])
    _put(group.target_assignment, row["member_id"], target)
    group.target_record_offsets[row["member_id"]] = row["record_offset"]


def _add_regex(state: PartitionState, row: Row) -> None:
    resolved = ResolvedRegex(tuple(row["topics"]), row["version"], row["timestamp_ms"], row["record_offset"])
    _put(_group_of(state, row, GroupType.CONSUMER).regexes, row["regex"], resolved)


def _add_share_topic(state: PartitionState, row: Row) -> None:
    group = _group_of(state, row, GroupType.SHARE)
    partitions = row["partitions"]
    topic = ShareTopic(
        row["topic_id"],
        row["topic"],
        row["status"],
        None if partitions is None else tuple(partitions),
        row["record_offset"],
    )
    group.topics = (*group.topics, topic)


def _add_topology(state: PartitionState, row: Row) -> None:
    group = _group_of(state, row, GroupType.STREAMS)
    if group.topology is not None:
        raise ValueError(f"group {group.group_id!r} has a topology already")
    group.topology = decode_value(STREAMS_TOPOLOGY_KEY_TYPE, row["value"]).data
    group.topology_record_offset = row["record_offset"]


def _committed_offset(row: Row) -> CommittedOffset:
    return CommittedOffset(*map(row.__getitem__, CommittedOffset._fields))


def _add_offset(state: PartitionState, row: Row) -> None:
    offset_key = OffsetKey(row["group_id"], row["topic"], row["partition"])
    _put(state.offsets, offset_key, _committed_offset(row))


def _add_pending(state: PartitionState, row: Row) -> None:
    offset_key = OffsetKey(row["group_id"], row["topic"], row["partition"])
    _put(state.pending.setdefault(row["producer_id"], {}), offset_key, _committed_offset(row))


def _add_load_failure(state: PartitionState, row: Row) -> None:
    state.load_failures.append(LoadFailure(row["record_offset"], row["detail"]))


def _add_transaction(state: PartitionState, row: Row) -> None:
    state.transactions.append(
        Transaction(
            first_record_offset=row["record_offset"],
            outcome=TransactionOutcome(row["outcome"]),
            groups=tuple(row["groups"]),
            **_fields(row, _TRANSACTION),
        )
    )


def _add_carried(state: PartitionState, row: Row) -> None:
    state.carried.append(CarriedRecord(row["record_offset"], row["key_type"], row["value_version"], row["detail"]))


def _add_count(state: PartitionState, row: Row) -> None:
    _put(state.record_counts, (row["key_type"], row["value_version"]), row["records"])


_ADD_ROW: dict[str, Callable[[PartitionState, Row], None]] = {
    "members": _add_member,
    "target_assignments": _add_target,
    "regexes": _add_regex,
    "share_state": _add_share_topic,
    "streams_topology": _add_topology,
    "offsets": _add_offset,
    "pending_offsets": _add_pending,
    "load_failures": _add_load_failure,
    "transactions": _add_transaction,
    "carried_records": _add_carried,
    "record_counts": _add_count,
}
