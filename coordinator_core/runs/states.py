"""The tables of a run back to replayed state: the inverse of ``coordinator_core.runs.tables``.

Two things that only a loader asks for do not come back: the partition epochs of consumer groups, and the
order of dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from coordinator_core.runs.tables import STREAMS_TOPOLOGY_KEY_TYPE

Row = dict[str, Any]

_CLASSIC_MEMBER = (
    *("member_id", "instance_id", "client_id", "client_host"),
    *("session_timeout_ms", "rebalance_timeout_ms", "subscription"),
)
_CLASSIC_GROUP = ("protocol_type", "generation", "protocol", "leader", "state_timestamp_ms", "record_offset")
_MODERN_GROUP = ("group_epoch", "metadata_hash", "assignment_epoch", "assignment_timestamp_ms", "record_offset")
_MODERN_MEMBER = ("member_id", "rack_id", "client_id", "client_host", "member_epoch", "previous_member_epoch")
_TRANSACTION = ("producer_id", "producer_epoch", "last_record_offset", "end_marker_offset", "keys", "timestamp_ms")


def partition_states(tables: Mapping[str, pa.Table]) -> list[PartitionState]:
    """The states that ``tables`` hold, by offsets partition; a missing table counts as empty."""
    states: dict[int, PartitionState] = {}
    classic_members = _classic_members(tables.get("members"))

    def state_of(row: Row) -> PartitionState:
        partition: int = row["offsets_partition"]
        return states.setdefault(partition, PartitionState(partition))

    for row in _rows(tables.get("groups")):
        members = classic_members.get((row["offsets_partition"], row["group_id"]), {})
        state_of(row).groups[row["group_id"]] = _group(row, members)
    for name, add_row in _ADD_ROW.items():
        for row in _rows(tables.get(name)):
            add_row(state_of(row), row)
    return [states[partition] for partition in sorted(states)]


def _fields(row: Row, names: Iterable[str]) -> Row:
    return {name: row[name] for name in names}


def _rows(table: pa.Table | None) -> list[Row]:
    rows: list[Row] = [] if table is None else table.to_pylist()
    return rows


def _classic_members(table: pa.Table | None) -> dict[tuple[int, str], dict[int, ClassicMember]]:
    """Members by (offsets partition, group), then by their position in the group's record."""
    members: dict[tuple[int, str], dict[int, ClassicMember]] = {}
    for row in _rows(table):
        if row["group_type"] == GroupType.CLASSIC:
            group = members.setdefault((row["offsets_partition"], row["group_id"]), {})
            group[row["position"]] = ClassicMember(assignment=row["assignment_data"], **_fields(row, _CLASSIC_MEMBER))
    return members


def _group(row: Row, classic_members: Mapping[int, ClassicMember]) -> Group:
    group_id = row["group_id"]
    kind = GroupType(row["type"])
    if kind is GroupType.CLASSIC:
        return ClassicGroup(
            group_id,
            state=None if row["state"] is None else GroupState(row["state"]),
            members=tuple(classic_members[position] for position in sorted(classic_members)),
            **_fields(row, _CLASSIC_GROUP),
        )
    common = _fields(row, _MODERN_GROUP)
    if kind is GroupType.CONSUMER:
        has_record = row["has_partition_metadata_record"]
        return ConsumerGroup(group_id, has_partition_metadata_record=has_record, **common)
    if kind is GroupType.SHARE:
        return ShareGroup(group_id, **common)
    return StreamsGroup(
        group_id,
        validated_topology_epoch=row["validated_topology_epoch"],
        last_assignment_configs=dict(_pairs(row["last_assignment_configs"])),
        **common,
    )


def _add_member(state: PartitionState, row: Row) -> None:
    group = state.groups[row["group_id"]]
    match group:
        case ConsumerGroup():
            group.members[row["member_id"]] = _consumer_member(row)
        case ShareGroup():
            group.members[row["member_id"]] = ShareMember(
                subscribed_topics=tuple(row["subscribed_topics"]),
                assigned=_assignment(row["assignment"]),
                **_modern_member(row),
            )
        case StreamsGroup():
            group.members[row["member_id"]] = _streams_member(row)


def _modern_member(row: Row) -> Row:
    member = _fields(row, _MODERN_MEMBER) | {"state": MemberState(row["state"])}
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
        **_fields(row, ("instance_id", "subscribed_regex", "rebalance_timeout_ms", "server_assignor")),
        **_modern_member(row),
    )


def _streams_member(row: Row) -> StreamsMember:
    endpoint = row["user_endpoint"]
    return StreamsMember(
        user_endpoint=None if endpoint is None else (endpoint["host"], endpoint["port"]),
        client_tags=_pairs(row["client_tags"]),
        assigned=_task_assignment(row["tasks"]),
        pending_revocation=_task_assignment(row["tasks_pending_revocation"]),
        **_fields(row, ("instance_id", "rebalance_timeout_ms", "topology_epoch", "process_id")),
        **_modern_member(row),
    )


def _pairs(entries: list[Row]) -> tuple[tuple[str, str], ...]:
    return tuple((entry["key"], entry["value"]) for entry in entries)


def _assignment(entries: list[Row]) -> Assignment:
    return {entry["topic_id"]: tuple(entry["partitions"]) for entry in entries}


def _task_assignment(value: Row) -> TaskAssignment:
    active, standby, warmup = (
        {entry["subtopology_id"]: tuple(entry["partitions"]) for entry in value[name]}
        for name in ("active_tasks", "standby_tasks", "warmup_tasks")
    )
    return TaskAssignment(active, standby, warmup)


def _add_target(state: PartitionState, row: Row) -> None:
    group = state.groups[row["group_id"]]
    if isinstance(group, StreamsGroup):
        group.target_assignment[row["member_id"]] = _task_assignment(row["tasks"])
        group.target_record_offsets[row["member_id"]] = row["record_offset"]
    elif isinstance(group, ConsumerGroup | ShareGroup):
        group.target_assignment[row["member_id"]] = _assignment(row["assignment"])
        group.target_record_offsets[row["member_id"]] = row["record_offset"]


def _add_regex(state: PartitionState, row: Row) -> None:
    group = state.groups[row["group_id"]]
    if isinstance(group, ConsumerGroup):
        group.regexes[row["regex"]] = ResolvedRegex(
            tuple(row["topics"]), row["version"], row["timestamp_ms"], row["record_offset"]
        )


def _add_share_topic(state: PartitionState, row: Row) -> None:
    group = state.groups[row["group_id"]]
    if isinstance(group, ShareGroup):
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
    group = state.groups[row["group_id"]]
    if isinstance(group, StreamsGroup):
        group.topology = decode_value(STREAMS_TOPOLOGY_KEY_TYPE, row["value"]).data
        group.topology_record_offset = row["record_offset"]


def _committed_offset(row: Row) -> CommittedOffset:
    return CommittedOffset(*map(row.__getitem__, CommittedOffset._fields))


def _add_offset(state: PartitionState, row: Row) -> None:
    offset_key = OffsetKey(row["group_id"], row["topic"], row["partition"])
    state.offsets[offset_key] = _committed_offset(row)


def _add_pending(state: PartitionState, row: Row) -> None:
    offset_key = OffsetKey(row["group_id"], row["topic"], row["partition"])
    state.pending.setdefault(row["producer_id"], {})[offset_key] = _committed_offset(row)


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
    state.record_counts[row["key_type"], row["value_version"]] = row["records"]


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
