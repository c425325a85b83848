"""Replayed state to the tables of a run; :mod:`coordinator_core.runs.states` is the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    Tasks,
    TransactionOutcome,
)
from coordinator_core.merge.schema import BLOCK_ROWS, MergedPartition, RowBlocks
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
    """The tables of one merged partition, all but ``offsets`` (:func:`offset_rows`) and ``segments``."""
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
    tables["group_stats"] = _of_partition(
        schemas.GROUP_STATS, merged.offsets_partition, _with_nulls(merged.group_stats)
    )
    del tables["offsets"]
    return tables


def offset_rows(merged: MergedPartition) -> RowBlocks:
    """The rows of ``offsets`` of one merged partition."""
    return _Offsets(merged)


class _Offsets:
    """Rows of ``offsets`` (a ``RowBlocks``)."""

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
        if rows := make_rows(partition):
            tables[name] = pa.Table.from_pylist(rows, schema=schemas.TABLES[name].arrow)
    for made in reversed(group_columns(partition.offsets_partition, partition.groups.values())):
        for name, rows_of_many in made.items():
            tables[name] = pa.concat_tables([rows_of_many, tables[name]])
    return tables


def _group_rows(state: ReplayedPartition) -> list[Row]:
    return [_group_row(state.offsets_partition, group) for group in _fewer_groups(state)]


def _fewer_groups(state: ReplayedPartition) -> list[ShareGroup | StreamsGroup]:
    """Groups whose rows are made one by one."""
    return [group for group in state.groups.values() if isinstance(group, ShareGroup | StreamsGroup)]


def _group_row(offsets_partition: int, group: ShareGroup | StreamsGroup) -> Row:
    row: Row = {
        "offsets_partition": offsets_partition,
        "record_offset": group.record_offset,
        "group_id": group.group_id,
        "type": group.type.value,
        "simple": False,
        "state": group.state.value,
        "member_count": len(group.members),
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "assignment_timestamp_ms": group.assignment_timestamp_ms,
        "metadata_hash": group.metadata_hash,
    }
    if isinstance(group, StreamsGroup):
        row["validated_topology_epoch"] = group.validated_topology_epoch
        row["last_assignment_configs"] = [
            {"key": key, "value": value} for key, value in sorted(group.last_assignment_configs.items())
        ]
    return row


def _member_rows(state: ReplayedPartition) -> list[Row]:
    rows = []
    for group in _fewer_groups(state):
        common = {
            "offsets_partition": state.offsets_partition,
            "group_id": group.group_id,
            "group_type": group.type.value,
        }
        match group:
            case ShareGroup():
                rows += [common | _share_member_row(member) for member in group.members.values()]
            case StreamsGroup():
                rows += [common | _streams_member_row(member) for member in group.members.values()]
    return rows


def _member_row(member: ShareMember | StreamsMember) -> Row:
    return {
        "record_offset": seen(member.record_offset),
        "assignment_record_offset": seen(member.assignment_record_offset),
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_epoch": member.member_epoch,
        "previous_member_epoch": member.previous_member_epoch,
        "state": member.state.value,
    }


def _share_member_row(member: ShareMember) -> Row:
    return _member_row(member) | {
        "subscribed_topics": member.subscribed_topics,
        "assignment": _assignment_value(member.assigned),
    }


def _streams_member_row(member: StreamsMember) -> Row:
    endpoint = member.user_endpoint
    return _member_row(member) | {
        "instance_id": member.instance_id,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "tasks": _task_assignment_value(member.assigned),
        "tasks_pending_revocation": _task_assignment_value(member.pending_revocation),
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]},
        "client_tags": [{"key": key, "value": value} for key, value in member.client_tags],
    }


def _assignment_value(assignment: Assignment) -> list[Row]:
    return [
        {"topic_id": topic_id, "topic": None, "partitions": assignment[topic_id]} for topic_id in sorted(assignment)
    ]


def _tasks_value(tasks: Tasks) -> list[Row]:
    return [{"subtopology_id": name, "partitions": tasks[name]} for name in sorted(tasks)]


def _task_assignment_value(assignment: TaskAssignment) -> Row:
    return {
        "active_tasks": _tasks_value(assignment.active),
        "standby_tasks": _tasks_value(assignment.standby),
        "warmup_tasks": _tasks_value(assignment.warmup),
    }


def _target_rows(state: ReplayedPartition) -> list[Row]:
    rows: list[Row] = []
    for group in _fewer_groups(state):
        for member_id, target in group.target_assignment.items():
            rows.append(
                {
                    "offsets_partition": state.offsets_partition,
                    "record_offset": group.target_record_offsets[member_id],
                    "group_id": group.group_id,
                    "group_type": group.type.value,
                    "member_id": member_id,
                    **(
                        {"tasks": _task_assignment_value(target)}
                        if isinstance(target, TaskAssignment)
                        else {"assignment": _assignment_value(target)}
                    ),
                }
            )
    return rows


def _regex_rows(state: ReplayedPartition) -> list[Row]:
    return [
        {
            "offsets_partition": state.offsets_partition,
            "record_offset": resolved.record_offset,
            "group_id": group.group_id,
            "regex": regex,
            "topics": resolved.topics,
            "version": resolved.version,
            "timestamp_ms": resolved.timestamp_ms,
        }
        for group in state.groups.values()
        if isinstance(group, ConsumerGroup)
        for regex, resolved in group.regexes.items()
    ]


def _share_state_rows(state: ReplayedPartition) -> list[Row]:
    return [
        {
            "offsets_partition": state.offsets_partition,
            "record_offset": topic.record_offset,
            "group_id": group.group_id,
            "position": position,
            "topic_id": topic.topic_id,
            "topic": topic.topic,
            "status": topic.status,
            "partitions": topic.partitions,
        }
        for group in state.groups.values()
        if isinstance(group, ShareGroup)
        for position, topic in enumerate(group.topics)
    ]


STREAMS_TOPOLOGY_KEY_TYPE = 23

_SUBTOPOLOGY_COLUMNS = {
    "subtopologyId": "subtopology_id",
    "sourceTopics": "source_topics",
    "sourceTopicRegex": "source_topic_regex",
    "stateChangelogTopics": "state_changelog_topics",
    "repartitionSinkTopics": "repartition_sink_topics",
    "repartitionSourceTopics": "repartition_source_topics",
    "copartitionGroups": "copartition_groups",
    "replicationFactor": "replication_factor",
    "topicConfigs": "topic_configs",
}


def _renamed(value: Any) -> Any:
    """``value`` with Kafka's field names in the spelling of columns, at every depth."""
    if isinstance(value, dict):
        return {_SUBTOPOLOGY_COLUMNS.get(key, key): _renamed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_renamed(item) for item in value]
    return value


def _topology_rows(state: ReplayedPartition) -> list[Row]:
    return [
        {
            "offsets_partition": state.offsets_partition,
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
    return [
        {
            "offsets_partition": state.offsets_partition,
            "record_offset": failure.record_offset,
            "detail": failure.detail,
        }
        for failure in state.load_failures
    ]


def _carried_rows(state: ReplayedPartition) -> list[Row]:
    return [
        {
            "offsets_partition": state.offsets_partition,
            "record_offset": record.record_offset,
            "key_type": record.key_type,
            "value_version": record.value_version,
            "detail": record.detail,
        }
        for record in state.carried
    ]


def _count_rows(state: ReplayedPartition) -> list[Row]:
    return [
        {
            "offsets_partition": state.offsets_partition,
            "key_type": key_type,
            "value_version": version,
            "records": records,
        }
        for (key_type, version), records in state.record_counts.items()
    ]


_ROWS: dict[str, Callable[[ReplayedPartition], list[Row]]] = {
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
