"""The tables of a run, declared once: Arrow schemas, row keys, what counts as state.

Rows carry ``offsets_partition`` and ``record_offset``, the coordinates at which Kafka's dump tool prints the
record that the row comes from; ``record_offset`` is null where no single record made the row (a simple
group has no metadata record).  Times end in ``_ms`` (epoch milliseconds), sizes in ``_bytes``.  Topic ids and
other uuids are Kafka's 22-character text.  Null stands for what Kafka calls absent.

``tombstones``, ``findings`` and ``history`` are tables of later steps, which lie beside a run when those ran.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from coordinator_core.fold.arrow import list_of

SCHEMA_VERSION = 3
"""Goes up when a column changes its meaning or disappears; readers refuse a version they do not know."""

READ_VERSIONS = 2, SCHEMA_VERSION
"""Versions that readers take. Version 2 has no digests of files, and transactions of a salvaged log that begin at one
record offset are in any order."""


@dataclass(frozen=True)
class TableSchema:
    """One table.

    ``key`` names the columns that identify a row and give the canonical order.  ``is_state`` says that
    the table is part of the state hash; ``not_state`` names its columns that are not (they depend on the
    clock, or only serve a loader that reads on).
    """

    name: str
    summary: str
    arrow: pa.Schema
    key: tuple[str, ...]
    is_state: bool
    not_state: frozenset[str] = frozenset()


def _column(name: str, kind: pa.DataType, meaning: str, *, null: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=null, metadata={"comment": meaning})


def _struct(*fields: tuple[str, pa.DataType, bool]) -> pa.DataType:
    return pa.struct([pa.field(name, kind, nullable=null) for name, kind, null in fields])


def _coordinates(meaning: str, *, null: bool = False) -> list[pa.Field]:
    return [
        _column("offsets_partition", pa.int32(), "partition of __consumer_offsets"),
        _column("record_offset", pa.int64(), meaning, null=null),
    ]


def _table(
    name: str, summary: str, key: tuple[str, ...], *columns: pa.Field, is_state: bool, not_state: Collection[str] = ()
) -> TableSchema:
    return TableSchema(name, summary, pa.schema(columns), key, is_state, frozenset(not_state))


TEXT = pa.string()
INT = pa.int32()
LONG = pa.int64()

PARTITIONS = list_of(INT)
ASSIGNMENT = list_of(_struct(("topic_id", TEXT, True), ("topic", TEXT, True), ("partitions", PARTITIONS, False)))
"""Partitions by topic: KIP-848 and share members name topic ids, classic consumers topic names."""

TASKS = list_of(_struct(("subtopology_id", TEXT, False), ("partitions", PARTITIONS, False)))
TASK_ASSIGNMENT = _struct(
    ("active_tasks", TASKS, False), ("standby_tasks", TASKS, False), ("warmup_tasks", TASKS, False)
)
PAIRS = list_of(_struct(("key", TEXT, False), ("value", TEXT, False)))
PROTOCOLS = list_of(_struct(("name", TEXT, False), ("metadata", pa.binary(), False)))
ENDPOINT = _struct(("host", TEXT, False), ("port", INT, False))

_TOPIC_INFO = list_of(
    _struct(
        ("name", TEXT, False),
        ("partitions", INT, False),
        ("replication_factor", pa.int16(), False),
        ("topic_configs", PAIRS, False),
    )
)
_SHORTS = list_of(pa.int16())
SUBTOPOLOGIES = list_of(
    _struct(
        ("subtopology_id", TEXT, False),
        ("source_topics", list_of(TEXT), False),
        ("source_topic_regex", list_of(TEXT), False),
        ("state_changelog_topics", _TOPIC_INFO, False),
        ("repartition_sink_topics", list_of(TEXT), False),
        ("repartition_source_topics", _TOPIC_INFO, False),
        (
            "copartition_groups",
            list_of(
                _struct(
                    ("source_topics", _SHORTS, False),
                    ("source_topic_regex", _SHORTS, False),
                    ("repartition_source_topics", _SHORTS, False),
                )
            ),
            False,
        ),
    )
)

_OFFSET_COLUMNS = [
    *_coordinates("offset of the commit record"),
    _column("group_id", TEXT, "group"),
    _column("topic", TEXT, "topic"),
    _column("partition", INT, "partition of the topic"),
    _column("topic_id", TEXT, "topic id, where the record names one (4.1 and newer)", null=True),
    _column("committed_offset", LONG, "the position that the group committed"),
    _column("leader_epoch", INT, "leader epoch of the last consumed record", null=True),
    _column("metadata", TEXT, "the committer's own text"),
    _column("commit_timestamp_ms", LONG, "when the coordinator took the commit"),
    _column("expire_timestamp_ms", LONG, "explicit expiry (value version 1)", null=True),
    _column("value_version", pa.int16(), "version of the OffsetCommitValue"),
]

_PRODUCER_COLUMNS = [
    _column("producer_id", LONG, "producer, when the commit came in a transaction", null=True),
    _column("producer_epoch", pa.int16(), "its epoch", null=True),
    _column("ordering_offset", LONG, "the offset that the loader compares when a transaction commits"),
]

OFFSETS = _table(
    "offsets",
    "committed offsets",
    ("offsets_partition", "record_offset", "group_id", "topic", "partition"),
    *_OFFSET_COLUMNS,
    *_PRODUCER_COLUMNS,
    is_state=True,
    not_state={"ordering_offset"},
)

PENDING_OFFSETS = _table(
    "pending_offsets",
    "commits in open transactions",
    ("offsets_partition", "record_offset", "producer_id", "group_id", "topic", "partition"),
    *_OFFSET_COLUMNS,
    _column("producer_id", LONG, "producer of the open transaction"),
    _column("producer_epoch", pa.int16(), "its epoch"),
    _PRODUCER_COLUMNS[-1],
    _column("age_ms", LONG, "now_ms of the run minus the commit timestamp"),
    is_state=True,
    not_state={"ordering_offset", "age_ms"},
)

GROUPS = _table(
    "groups",
    "groups of every type",
    ("offsets_partition", "group_id"),
    *_coordinates("offset of the newest group metadata record", null=True),
    _column("group_id", TEXT, "group"),
    _column("type", TEXT, "classic, consumer, share or streams"),
    _column("simple", pa.bool_(), "offsets only: no protocol type and no member"),
    _column("state", TEXT, "Empty, Stable, … null where the release keeps none (0.8.2)", null=True),
    _column("protocol_type", TEXT, "classic: consumer, connect, …", null=True),
    _column("protocol", TEXT, "classic: the selected assignor or protocol", null=True),
    _column("generation", INT, "classic: generation", null=True),
    _column("leader", TEXT, "classic: member id of the leader", null=True),
    _column("state_timestamp_ms", LONG, "classic: when the group entered its state", null=True),
    _column("group_epoch", INT, "not classic: group epoch", null=True),
    _column("assignment_epoch", INT, "not classic: epoch of the target assignment", null=True),
    _column("assignment_timestamp_ms", LONG, "not classic: when it was computed (4.3 on; 0: unknown)", null=True),
    _column("metadata_hash", LONG, "not classic: hash of the subscribed topics' metadata", null=True),
    _column("has_partition_metadata_record", pa.bool_(), "consumer: a type-4 record is in the log", null=True),
    _column("validated_topology_epoch", INT, "streams: topology epoch found valid", null=True),
    _column("last_assignment_configs", PAIRS, "streams: configuration of the last assignment", null=True),
    _column("member_count", INT, "members"),
    is_state=True,
)

MEMBERS = _table(
    "members",
    "members of groups of every type",
    ("offsets_partition", "group_id", "position", "member_id"),
    *_coordinates("offset of the group (classic) or member record", null=True),
    _column("group_id", TEXT, "group"),
    _column("group_type", TEXT, "classic, consumer, share or streams"),
    _column("position", INT, "classic: place in the group's record", null=True),
    _column("member_id", TEXT, "member"),
    _column("instance_id", TEXT, "group instance id of a static member", null=True),
    _column("rack_id", TEXT, "rack", null=True),
    _column("client_id", TEXT, "client id"),
    _column("client_host", TEXT, "client host, usually with a leading slash"),
    _column("session_timeout_ms", INT, "session timeout, of classic protocol members", null=True),
    _column("rebalance_timeout_ms", INT, "rebalance timeout", null=True),
    _column("subscription", pa.binary(), "classic: the member's metadata for the selected protocol", null=True),
    _column("assignment_data", pa.binary(), "classic: the assignment as the leader wrote it", null=True),
    _column("subscribed_topics", list_of(TEXT), "subscribed topics, where they are known", null=True),
    _column("subscribed_regex", TEXT, "subscribed regex", null=True),
    _column("server_assignor", TEXT, "consumer: assignor asked for", null=True),
    _column("classic_protocols", PROTOCOLS, "consumer: set while it speaks the classic protocol", null=True),
    _column("member_epoch", INT, "not classic: member epoch", null=True),
    _column("previous_member_epoch", INT, "not classic: the epoch before", null=True),
    _column("state", TEXT, "not classic: stable, unrevoked_partitions, …", null=True),
    _column("assignment", ASSIGNMENT, "partitions the member owns, where they are known", null=True),
    _column("pending_revocation", ASSIGNMENT, "consumer: partitions it must give up", null=True),
    _column("tasks", TASK_ASSIGNMENT, "streams: tasks the member owns", null=True),
    _column("tasks_pending_revocation", TASK_ASSIGNMENT, "streams: tasks it must give up", null=True),
    _column("topology_epoch", INT, "streams: topology epoch of the member", null=True),
    _column("process_id", TEXT, "streams: process", null=True),
    _column("user_endpoint", ENDPOINT, "streams: endpoint for interactive queries", null=True),
    _column("client_tags", PAIRS, "streams: client tags", null=True),
    _column("assignment_record_offset", LONG, "not classic: offset of the current assignment record", null=True),
    is_state=True,
)

TARGET_ASSIGNMENTS = _table(
    "target_assignments",
    "what the assignor wants each member to own",
    ("offsets_partition", "group_id", "member_id"),
    *_coordinates("offset of the target assignment record"),
    _column("group_id", TEXT, "group"),
    _column("group_type", TEXT, "consumer, share or streams"),
    _column("member_id", TEXT, "member"),
    _column("assignment", ASSIGNMENT, "consumer and share: partitions", null=True),
    _column("tasks", TASK_ASSIGNMENT, "streams: tasks", null=True),
    is_state=True,
)

REGEXES = _table(
    "regexes",
    "resolved subscription regexes of consumer groups",
    ("offsets_partition", "group_id", "regex"),
    *_coordinates("offset of the regular expression record"),
    _column("group_id", TEXT, "group"),
    _column("regex", TEXT, "the expression"),
    _column("topics", list_of(TEXT), "topics it matches"),
    _column("version", LONG, "version of the metadata image it was resolved against"),
    _column("timestamp_ms", LONG, "when it was resolved"),
    is_state=True,
)

SHARE_STATE = _table(
    "share_state",
    "topics of share groups and the state of their share partitions",
    ("offsets_partition", "group_id", "position"),
    *_coordinates("offset of the state metadata record"),
    _column("group_id", TEXT, "group"),
    _column("position", INT, "place in the group's record"),
    _column("topic_id", TEXT, "topic id"),
    _column("topic", TEXT, "topic"),
    _column("status", TEXT, "initializing, initialized or deleting"),
    _column("partitions", PARTITIONS, "share partitions; null for a deleting topic", null=True),
    is_state=True,
)

STREAMS_TOPOLOGY = _table(
    "streams_topology",
    "topologies of streams groups",
    ("offsets_partition", "group_id"),
    *_coordinates("offset of the topology record"),
    _column("group_id", TEXT, "group"),
    _column("epoch", INT, "topology epoch"),
    _column("subtopologies", SUBTOPOLOGIES, "subtopologies as the record says", null=True),
    _column("value", pa.binary(), "the record's value, with fields that this version does not know"),
    is_state=True,
)

LOAD_FAILURES = _table(
    "load_failures",
    "records at which the coordinator of this profile stops loading the partition",
    ("offsets_partition", "record_offset", "detail"),
    *_coordinates("offset of the record"),
    _column("detail", TEXT, "why"),
    is_state=True,
)

TRANSACTIONS = _table(
    "transactions",
    "transactions seen in the log",
    ("offsets_partition", "record_offset", "producer_id"),
    *_coordinates("offset of the transaction's first data record"),
    _column("last_record_offset", LONG, "offset of its last data record"),
    _column("end_marker_offset", LONG, "offset of the end marker; null while open", null=True),
    _column("producer_id", LONG, "producer"),
    _column("producer_epoch", pa.int16(), "its epoch"),
    _column("outcome", TEXT, "open, committed or aborted"),
    _column("groups", list_of(TEXT), "groups it commits for"),
    _column("keys", LONG, "distinct group, topic and partition"),
    _column("timestamp_ms", LONG, "timestamp of its last data record"),
    _column("age_ms", LONG, "open: now_ms of the run minus that timestamp", null=True),
    is_state=False,
    not_state={"age_ms"},
)

CARRIED_RECORDS = _table(
    "carried_records",
    "records kept but not interpreted: unknown type or version, undecodable body",
    ("offsets_partition", "record_offset", "detail"),
    *_coordinates("offset of the record"),
    _column("key_type", INT, "record type, where it can be read", null=True),
    _column("value_version", INT, "value version, where it can be read", null=True),
    _column("detail", TEXT, "why it is not interpreted"),
    is_state=False,
)

RECORD_COUNTS = _table(
    "record_counts",
    "interpreted records by type and version; with carried records, and control records of segments, these are all",
    ("offsets_partition", "key_type", "value_version"),
    _column("offsets_partition", INT, "partition of __consumer_offsets"),
    _column("key_type", INT, "record type"),
    _column("value_version", INT, "value version; null: tombstones", null=True),
    _column("records", LONG, "how many"),
    is_state=False,
)

SEGMENTS = _table(
    "segments",
    "segment files, and the parts read of them",
    ("offsets_partition", "base_offset", "path"),
    *_coordinates("base offset of the first batch; null without batches", null=True),
    _column("path", TEXT, "absolute path, or URI"),
    _column("base_offset", LONG, "base offset of the segment"),
    _column("size_bytes", LONG, "pinned size"),
    _column(
        "fingerprint",
        TEXT,
        "of that many bytes: SHA-256 over the headers of intact batches, which hold their CRCs, and "
        "over all bytes that are not in one (`coordinator_core/fold/fingerprint.py`)",
    ),
    _column("next_offset", LONG, "offset behind the last batch; null without batches", null=True),
    _column("batches", LONG, "batches"),
    _column("records", LONG, "records, control records included"),
    _column("control_records", LONG, "control records"),
    _column("first_timestamp_ms", LONG, "smallest record timestamp; null if a record has none", null=True),
    _column("last_timestamp_ms", LONG, "largest timestamp (of records other than control records)", null=True),
    _column("codecs", list_of(TEXT), "compression codecs seen"),
    _column("formats", list_of(pa.int8()), "message formats (magic) seen"),
    _column("crc_errors", LONG, "batches whose CRC is wrong"),
    _column("damaged_places", LONG, "places that are damaged, wrong CRCs included"),
    is_state=False,
)

GROUP_STATS = _table(
    "group_stats",
    "sizes of groups in the log, by record type",
    ("offsets_partition", "group_id", "key_type"),
    _column("offsets_partition", INT, "partition of __consumer_offsets"),
    _column("group_id", TEXT, "group"),
    _column("key_type", INT, "record type"),
    _column("records", LONG, "records, tombstones included"),
    _column("tombstones", LONG, "tombstones"),
    _column("size_bytes", LONG, "bytes of these records in their decompressed batches"),
    _column("first_timestamp_ms", LONG, "timestamp of the first record, if it has one", null=True),
    _column("last_timestamp_ms", LONG, "timestamp of the last record, if it has one", null=True),
    is_state=False,
)

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        GROUPS,
        MEMBERS,
        TARGET_ASSIGNMENTS,
        REGEXES,
        SHARE_STATE,
        STREAMS_TOPOLOGY,
        OFFSETS,
        PENDING_OFFSETS,
        LOAD_FAILURES,
        TRANSACTIONS,
        CARRIED_RECORDS,
        RECORD_COUNTS,
        SEGMENTS,
        GROUP_STATS,
    )
}
"""Every table a replay publishes, by name."""

STATE_TABLES = tuple(table for table in TABLES.values() if table.is_state)


def empty_table(table: TableSchema) -> pa.Table:
    """``table`` without rows."""
    return table.arrow.empty_table()
