"""Classic and consumer groups, which may be very many, to rows of the tables of a run: column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from coordinator_core.fold.arrow import column
from coordinator_core.groups.classic import (
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
from coordinator_core.records.blobs import CONSUMER_PROTOCOL_TYPE
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
    owners = [group for group in groups for _ in group.members]
    members = [member for group in groups for member in group.members]
    consumers = [
        member if group.protocol_type == CONSUMER_PROTOCOL_TYPE else None
        for group, member in zip(owners, members, strict=True)
    ]
    # Members of a group subscribe alike, so few blobs are worth decoding.
    subscription = _once_per_blob(lambda member: member.subscription, consumer_subscription)
    assignment = _once_per_blob(lambda member: member.assignment, _consumer_assignment_value)
    subscriptions = [(None, None) if member is None else subscription(member) for member in consumers]
    return {
        "groups": _table(
            schemas.GROUPS,
            len(groups),
            **common,
            **_attributes(groups, "record_offset", "group_id", "state", "state_timestamp_ms"),
            **_attributes(groups, "protocol_type", "protocol", "generation", "leader"),
            type=GroupType.CLASSIC.value,
            simple=[group.is_simple for group in groups],
            member_count=[len(group.members) for group in groups],
        ),
        "members": _table(
            schemas.MEMBERS,
            len(members),
            **common,
            **_attributes(owners, "record_offset", "group_id"),
            **_attributes(members, "member_id", "instance_id", "client_id", "client_host"),
            **_attributes(members, "session_timeout_ms", "rebalance_timeout_ms", "subscription"),
            group_type=GroupType.CLASSIC.value,
            position=[position for group in groups for position in range(len(group.members))],
            assignment_data=[member.assignment for member in members],
            subscribed_topics=[topics for topics, _ in subscriptions],
            rack_id=[rack_id for _, rack_id in subscriptions],
            assignment=[None if member is None else assignment(member) for member in consumers],
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
    members = [member for group in groups for member in group.members.values()]
    targets = [(group, member_id, target) for group in groups for member_id, target in group.target_assignment.items()]
    return {
        "groups": _table(
            schemas.GROUPS,
            len(groups),
            **common,
            **_attributes(groups, "record_offset", "group_id", "state", "has_partition_metadata_record"),
            **_attributes(groups, "group_epoch", "metadata_hash"),
            **_attributes(groups, "assignment_epoch", "assignment_timestamp_ms"),
            type=GroupType.CONSUMER.value,
            simple=False,
            member_count=[len(group.members) for group in groups],
        ),
        "members": _table(
            schemas.MEMBERS,
            len(members),
            **common,
            **_attributes(members, "member_id", "instance_id", "rack_id", "client_id", "client_host"),
            **_attributes(members, "rebalance_timeout_ms", "subscribed_topics", "subscribed_regex"),
            **_attributes(members, "server_assignor", "member_epoch", "previous_member_epoch", "state"),
            record_offset=[seen(member.record_offset) for member in members],
            assignment_record_offset=[seen(member.assignment_record_offset) for member in members],
            group_id=[group.group_id for group in groups for _ in group.members],
            group_type=GroupType.CONSUMER.value,
            session_timeout_ms=[member.classic_session_timeout_ms for member in members],
            classic_protocols=[_protocols(member.classic_protocols) for member in members],
            assignment=_assignments([member.assigned for member in members]),
            pending_revocation=_assignments([member.pending_revocation for member in members]),
        ),
        "target_assignments": _table(
            schemas.TARGET_ASSIGNMENTS,
            len(targets),
            **common,
            record_offset=[group.target_record_offsets[member_id] for group, member_id, _ in targets],
            group_id=[group.group_id for group, _, _ in targets],
            group_type=GroupType.CONSUMER.value,
            member_id=[member_id for _, member_id, _ in targets],
            assignment=_assignments([target for _, _, target in targets]),
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


def _attributes(objects: Sequence[Any], *names: str) -> dict[str, list[Any]]:
    """Columns that are named as the attributes in them."""
    return {name: [*map(attrgetter(name), objects)] for name in names}


def _table(table: schemas.TableSchema, rows: int, **columns: Any) -> pa.Table:
    """A table of so many rows: arrays, lists, and values that are the same in all rows; others are null."""
    arrays = []
    for field in table.arrow:
        values = columns.get(field.name)
        if not isinstance(values, pa.Array):
            values = pa.array(values if isinstance(values, list) else [values] * rows, field.type)
        arrays.append(values)
    return pa.Table.from_arrays(arrays, schema=table.arrow)
