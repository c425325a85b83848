"""Replayed state to the tables of a run; :mod:`coordinator_core.runs.states` is the way back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.fold.arrow import column
from coordinator_core.groups.model import (
    Assignment,
    CarriedRecord,
    ConsumerGroup,
    Group,
    LoadFailure,
    ShareGroup,
    ShareMember,
    StreamsGroup,
    StreamsMember,
    TaskAssignment,
    TransactionOutcome,
)
from coordinator_core.jsontext import fields_of
from coordinator_core.merge.schema import BLOCK_ROWS, MergedPartition
from coordinator_core.records.codec import encode_value
from coordinator_core.runs import schemas
from coordinator_core.runs.group_columns import group_columns, seen

Row = dict[str, Any]
Tables = dict[str, pa.Table]


class ReplayedPartition(Protocol):
    """Interface that :class:`PartitionState` and :class:`MergedPartition` share."""

    @property
    def offsets_partition(self) -> int: ...
    @property
    def groups(self) -> dict[str, Group]: ...
    @property
    def load_failures(self) -> list[LoadFailure]: ...
    @property
    def carried(self) -> list[CarriedRecord]: ...
    @property
    def record_counts(self) -> dict[tuple[int, int | None], int]: ...


def merged_tables(merged: MergedPartition, *, now_ms: int) -> Tables:
    """The tables of one merged partition, all but ``offsets`` (:class:`OffsetTable`) and ``segments``."""
    tables = common_tables(merged)
    pending, transactions = merged.pending, merged.transactions
    age = pc.subtract(pa.scalar(now_ms, pa.int64()), pending["commit_timestamp_ms"])
    is_open = pc.equal(transactions["outcome"], TransactionOutcome.OPEN.value)
    transaction_age = pc.subtract(pa.scalar(now_ms, pa.int64()), transactions["timestamp_ms"])
    tables["pending_offsets"] = _of_partition(
        schemas.PENDING_OFFSETS, merged.offsets_partition, pending.append_column("age_ms", age)
    )
    tables["transactions"] = _of_partition(
        schemas.TRANSACTIONS,
        merged.offsets_partition,
        transactions.append_column("record_offset", transactions["first_record_offset"]).append_column(
            "age_ms", pc.if_else(is_open, transaction_age, None)
        ),
    )
    stats = _with_nulls(merged.group_stats)
    tables["group_stats"] = _of_partition(schemas.GROUP_STATS, merged.offsets_partition, stats)
    del tables["offsets"]
    return tables


class OffsetTable:
    """The rows of ``offsets`` of one merged partition (a ``merge.schema.RowBlocks``)."""

    def __init__(self, merged: MergedPartition) -> None:
        self._offsets_partition = merged.offsets_partition
        self._rows = merged.offsets

    @property
    def num_rows(self) -> int:
        return self._rows.num_rows

    def blocks(self, block_rows: int = BLOCK_ROWS) -> Iterator[pa.Table]:
        for block in self._rows.blocks(block_rows):
            yield _of_partition(schemas.OFFSETS, self._offsets_partition, block)


def _with_nulls(group_stats: pa.Table) -> pa.Table:
    """Message format 0 has no timestamps, which reads as -1."""
    for name in ("first_timestamp_ms", "last_timestamp_ms"):
        column = group_stats[name]
        index = group_stats.column_names.index(name)
        known = pc.if_else(pc.less(column, 0), None, column)
        group_stats = group_stats.set_column(index, pa.field(name, pa.int64()), known)
    return group_stats


def _of_partition(table: schemas.TableSchema, offsets_partition: int, rows: pa.Table) -> pa.Table:
    partition = column(np.full(rows.num_rows, offsets_partition, np.int32))
    columns = [
        partition if field.name == "offsets_partition" else rows[field.name].cast(field.type) for field in table.arrow
    ]
    return pa.Table.from_arrays(columns, schema=table.arrow)


def common_tables(partition: ReplayedPartition) -> Tables:
    """Every table, with the rows that groups, failures and counts of one partition fill; all others are empty."""
    tables = {name: schemas.empty_table(table) for name, table in schemas.TABLES.items()}
    for name, make_rows in _ROWS.items():
        place = {"offsets_partition": partition.offsets_partition}
        if rows := [row | place for row in make_rows(partition)]:
            tables[name] = pa.Table.from_pylist(rows, schema=schemas.TABLES[name].arrow)
    for made in reversed(group_columns(partition.offsets_partition, partition.groups.values())):
        for name, rows_of_many in made.items():
            tables[name] = pa.concat_tables([rows_of_many, tables[name]])
    return tables


def _fewer_groups(state: ReplayedPartition) -> list[ShareGroup | StreamsGroup]:
    """Groups whose rows are made one by one."""
    return [group for group in state.groups.values() if isinstance(group, ShareGroup | StreamsGroup)]


def _group_rows(state: ReplayedPartition) -> Iterator[Row]:
    names = ("record_offset", "group_id", "group_epoch", "assignment_epoch", "assignment_timestamp_ms", "metadata_hash")
    for group in _fewer_groups(state):
        described = {"type": group.type.value, "simple": False, "state": group.state.value}
        row = fields_of(group, *names, **described, member_count=len(group.members))
        if isinstance(group, StreamsGroup):
            row["validated_topology_epoch"] = group.validated_topology_epoch
            row["last_assignment_configs"] = _pairs(sorted(group.last_assignment_configs.items()))
        yield row


def _member_rows(state: ReplayedPartition) -> Iterator[Row]:
    for group in _fewer_groups(state):
        for member in group.members.values():
            row = _share_member_row(member) if isinstance(member, ShareMember) else _streams_member_row(member)
            yield _member_row(member) | row | {"group_id": group.group_id, "group_type": group.type.value}


def _member_row(member: ShareMember | StreamsMember) -> Row:
    names = ("member_id", "rack_id", "client_id", "client_host", "member_epoch", "previous_member_epoch")
    offsets = {name: seen(getattr(member, name)) for name in ("record_offset", "assignment_record_offset")}
    return fields_of(member, *names, **offsets, state=member.state.value)


def _share_member_row(member: ShareMember) -> Row:
    return {"subscribed_topics": member.subscribed_topics, "assignment": _assignment_value(member.assigned)}


def _streams_member_row(member: StreamsMember) -> Row:
    endpoint = member.user_endpoint
    return fields_of(
        member,
        *("instance_id", "rebalance_timeout_ms", "topology_epoch", "process_id"),
        tasks=_task_assignment_value(member.assigned),
        tasks_pending_revocation=_task_assignment_value(member.pending_revocation),
        user_endpoint=None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]},
        client_tags=_pairs(member.client_tags),
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> list[Row]:
    return [{"key": key, "value": value} for key, value in pairs]


def _assignment_value(assignment: Assignment) -> list[Row]:
    return [
        {"topic_id": topic_id, "topic": None, "partitions": assignment[topic_id]} for topic_id in sorted(assignment)
    ]


def _task_assignment_value(assignment: TaskAssignment) -> Row:
    return {
        kind: [{"subtopology_id": name, "partitions": tasks[name]} for name in sorted(tasks)]
        for kind, tasks in assignment.by_kind().items()
    }


def _target_rows(state: ReplayedPartition) -> Iterator[Row]:
    for group in _fewer_groups(state):
        common = {"group_id": group.group_id, "group_type": group.type.value}
        for member_id, target in group.target_assignment.items():
            row = common | {"record_offset": group.target_record_offsets[member_id], "member_id": member_id}
            if isinstance(target, TaskAssignment):
                yield row | {"tasks": _task_assignment_value(target)}
            else:
                yield row | {"assignment": _assignment_value(target)}


def _regex_rows(state: ReplayedPartition) -> list[Row]:
    names = ("record_offset", "topics", "version", "timestamp_ms")
    return [
        fields_of(resolved, *names, group_id=group.group_id, regex=regex)
        for group in state.groups.values()
        if isinstance(group, ConsumerGroup)
        for regex, resolved in group.regexes.items()
    ]


def _share_state_rows(state: ReplayedPartition) -> list[Row]:
    names = ("record_offset", "topic_id", "topic", "status", "partitions")
    return [
        fields_of(topic, *names, group_id=group.group_id, position=position)
        for group in state.groups.values()
        if isinstance(group, ShareGroup)
        for position, topic in enumerate(group.topics)
    ]


STREAMS_TOPOLOGY_KEY_TYPE = 23
_CAPITAL = re.compile("[A-Z]")


def _renamed(value: Any) -> Any:
    """``value`` with Kafka's field names in the spelling of columns, at every depth."""
    if isinstance(value, dict):
        return {
            _CAPITAL.sub(lambda found: f"_{found[0].lower()}", name): _renamed(item) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_renamed(item) for item in value]
    return value


def _topology_rows(state: ReplayedPartition) -> list[Row]:
    return [
        {
            "record_offset": group.topology_record_offset,
            "group_id": group.group_id,
            "epoch": group.topology["epoch"],
            "subtopologies": _renamed(group.topology["subtopologies"]),
            "value": encode_value(STREAMS_TOPOLOGY_KEY_TYPE, 0, group.topology),
        }
        for group in state.groups.values()
        if isinstance(group, StreamsGroup) and group.topology is not None
    ]


def _load_failure_rows(state: ReplayedPartition) -> list[Row]:
    return [failure._asdict() for failure in state.load_failures]


def _carried_rows(state: ReplayedPartition) -> list[Row]:
    return [fields_of(one, "record_offset", "key_type", "value_version", "detail") for one in state.carried]


def _count_rows(state: ReplayedPartition) -> list[Row]:
    return [
        {"key_type": key_type, "value_version": version, "records": records}
        for (key_type, version), records in state.record_counts.items()
    ]


_ROWS: dict[str, Callable[[ReplayedPartition], Iterable[Row]]] = {
    "groups": _group_rows,
    "members": _member_rows,
    "target_assignments": _target_rows,
    "regexes": _regex_rows,
    "share_state": _share_state_rows,
    "streams_topology": _topology_rows,
    "load_failures": _load_failure_rows,
    "carried_records": _carried_rows,
    "record_counts": _count_rows,
}
