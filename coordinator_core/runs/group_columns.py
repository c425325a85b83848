"""Classic and consumer groups, which may be very many, to rows of the tables of a run: column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from coordinator_core.columnar.arrow import column
from coordinator_core.groups.classic import (
    CONSUMER_PROTOCOL_TYPE,
    consumer_assignment,
    consumer_subscription,
)
from coordinator_core.groups.model import (
    Assignment,
    ClassicGroup,
    ClassicMember,
    ConsumerGroup,
    Group,
    GroupType,
)
from coordinator_core.runs import schemas

T = TypeVar("T")


def group_columns(offsets_partition: int, groups: Iterable[Group]) -> list[dict[str, pa.Table]]:
    """Rows of ``groups``, ``members`` and ``target_assignments`` of the classic and the consumer groups."""
    groups = list(groups)
    common = {"offsets_partition": offsets_partition}
    return [
        _classic_tables(common, [group for group in groups if isinstance(group, ClassicGroup)]),
        _consumer_tables(common, [group for group in groups if isinstance(group, ConsumerGroup)]),
    ]


def seen(record_offset: int) -> int | None:
    """A member's record offset; the model has -1 where no such record was seen."""
    return None if record_offset < 0 else record_offset


def _classic_tables(common: Mapping[str, Any], groups: Sequence[ClassicGroup]) -> dict[str, pa.Table]:
    members = [(group, member) for group in groups for member in group.members]
    consumers = [
        member if group.protocol_type == CONSUMER_PROTOCOL_TYPE else None for group, member in members
    ]
    # Members of a group subscribe alike, so few blobs are worth decoding.
    subscription = _once_per_blob(lambda member: member.subscription, consumer_subscription)
    assignment = _once_per_blob(lambda member: member.assignment, _consumer_assignment_value)
    subscriptions = [(None, None) if member is None else subscription(member) for member in consumers]
    return {
        "groups": _columns(
            schemas.GROUPS,
            len(groups),
            {
                **common,
                "record_offset": [group.record_offset for group in groups],
                "group_id": [group.group_id for group in groups],
                "type": GroupType.CLASSIC.value,
                "simple": [group.is_simple for group in groups],
                "state": [group.state for group in groups],
                "member_count": [len(group.members) for group in groups],
                "protocol_type": [group.protocol_type for group in groups],
                "protocol": [group.protocol for group in groups],
                "generation": [group.generation for group in groups],
                "leader": [group.leader for group in groups],
                "state_timestamp_ms": [group.state_timestamp_ms for group in groups],
            },
        ),
        "members": _columns(
            schemas.MEMBERS,
            len(members),
            {
                **common,
                "record_offset": [group.record_offset for group, _ in members],
                "group_id": [group.group_id for group, _ in members],
                "group_type": GroupType.CLASSIC.value,
                "position": [position for group in groups for position in range(len(group.members))],
                "member_id": [member.member_id for _, member in members],
                "instance_id": [member.instance_id for _, member in members],
                "client_id": [member.client_id for _, member in members],
                "client_host": [member.client_host for _, member in members],
                "session_timeout_ms": [member.session_timeout_ms for _, member in members],
                "rebalance_timeout_ms": [member.rebalance_timeout_ms for _, member in members],
                "subscription": [member.subscription for _, member in members],
                "assignment_data": [member.assignment for _, member in members],
                "subscribed_topics": [topics for topics, _ in subscriptions],
                "rack_id": [rack_id for _, rack_id in subscriptions],
                "assignment": [None if member is None else assignment(member) for member in consumers],
            },
        ),
    }


def _once_per_blob(
    blob: Callable[[ClassicMember], bytes], decode: Callable[[ClassicMember], T]
) -> Callable[[ClassicMember], T]:
    known: dict[bytes, T] = {}

    def decoded(member: ClassicMember) -> T:
        data = blob(member)
        if data not in known:
            known[data] = decode(member)
        return known[data]

    return decoded


def _consumer_assignment_value(member: ClassicMember) -> list[dict[str, Any]] | None:
    assignment = consumer_assignment(member)
    if assignment is None:
        return None
    return [{"topic_id": None, "topic": topic, "partitions": partitions} for topic, partitions in assignment]


def _consumer_tables(common: Mapping[str, Any], groups: Sequence[ConsumerGroup]) -> dict[str, pa.Table]:
    members = [(group, member) for group in groups for member in group.members.values()]
    targets = [
        (group, member_id, target)
        for group in groups
        for member_id, target in group.target_assignment.items()
    ]
    return {
        "groups": _columns(
            schemas.GROUPS,
            len(groups),
            {
                **common,
                "record_offset": [group.record_offset for group in groups],
                "group_id": [group.group_id for group in groups],
                "type": GroupType.CONSUMER.value,
                "simple": False,
                "state": [group.state.value for group in groups],
                "member_count": [len(group.members) for group in groups],
                "group_epoch": [group.group_epoch for group in groups],
                "assignment_epoch": [group.assignment_epoch for group in groups],
                "assignment_timestamp_ms": [group.assignment_timestamp_ms for group in groups],
                "metadata_hash": [group.metadata_hash for group in groups],
                "has_partition_metadata_record": [group.has_partition_metadata_record for group in groups],
            },
        ),
        "members": _columns(
            schemas.MEMBERS,
            len(members),
            {
                **common,
                "record_offset": [seen(member.record_offset) for _, member in members],
                "assignment_record_offset": [seen(member.assignment_record_offset) for _, member in members],
                "group_id": [group.group_id for group, _ in members],
                "group_type": GroupType.CONSUMER.value,
                "member_id": [member.member_id for _, member in members],
                "instance_id": [member.instance_id for _, member in members],
                "rack_id": [member.rack_id for _, member in members],
                "client_id": [member.client_id for _, member in members],
                "client_host": [member.client_host for _, member in members],
                "session_timeout_ms": [member.classic_session_timeout_ms for _, member in members],
                "rebalance_timeout_ms": [member.rebalance_timeout_ms for _, member in members],
                "subscribed_topics": [member.subscribed_topics for _, member in members],
                "subscribed_regex": [member.subscribed_regex for _, member in members],
                "server_assignor": [member.server_assignor for _, member in members],
                "classic_protocols": [_protocols(member.classic_protocols) for _, member in members],
                "member_epoch": [member.member_epoch for _, member in members],
                "previous_member_epoch": [member.previous_member_epoch for _, member in members],
                "state": [member.state.value for _, member in members],
                "assignment": _assignments([member.assigned for _, member in members]),
                "pending_revocation": _assignments([member.pending_revocation for _, member in members]),
            },
        ),
        "target_assignments": _columns(
            schemas.TARGET_ASSIGNMENTS,
            len(targets),
            {
                **common,
                "record_offset": [group.target_record_offsets[member_id] for group, member_id, _ in targets],
                "group_id": [group.group_id for group, _, _ in targets],
                "group_type": GroupType.CONSUMER.value,
                "member_id": [member_id for _, member_id, _ in targets],
                "assignment": _assignments([target for _, _, target in targets]),
            },
        ),
    }


def _protocols(protocols: Sequence[tuple[str, bytes]] | None) -> list[dict[str, Any]] | None:
    if protocols is None:
        return None
    return [{"name": name, "metadata": metadata} for name, metadata in protocols]


def _assignments(assignments: Sequence[Assignment]) -> pa.Array:
    """A column of assignments, topics in the order of their ids."""
    topic_ids: list[str] = []
    partitions: list[int] = []
    topic_ends, ends = [0], [0]
    for assignment in assignments:
        for topic_id in sorted(assignment):
            topic_ids.append(topic_id)
            partitions += assignment[topic_id]
            ends.append(len(partitions))
        topic_ends.append(len(topic_ids))
    entry = schemas.ASSIGNMENT.value_type
    columns = [
        pa.array(topic_ids, schemas.TEXT),
        pa.nulls(len(topic_ids), schemas.TEXT),
        _lists(schemas.PARTITIONS, ends, pa.array(partitions, schemas.INT)),
    ]
    return _lists(schemas.ASSIGNMENT, topic_ends, pa.StructArray.from_arrays(columns, fields=[*entry]))


def _lists(type_: pa.DataType, ends: list[int], values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(column(np.array(ends, np.int32)), values, type=type_)


def _columns(table: schemas.TableSchema, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """A table of so many rows: arrays, lists, and values that are the same in all rows; others are null."""
    arrays = []
    for field in table.arrow:
        values = columns.get(field.name)
        if not isinstance(values, pa.Array):
            values = pa.array(values if isinstance(values, list) else [values] * rows, field.type)
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=table.arrow)
