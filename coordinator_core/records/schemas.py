"""Schemas of every record type of ``__consumer_offsets``, as data.

Key bodies are never flexible.  A record type has one current value layout; some types had other layouts
under the same version number in early releases, which :data:`RECORD_TYPES` lists by layout name.

Sources: ``group-coordinator/src/main/resources/common/message`` of Kafka 3.6 to 4.4 (KIP-848, KIP-932,
KIP-1071, KIP-1101, KIP-1251, KIP-1263), ``GroupMetadataManager`` of older releases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from coordinator_core.records.types import ArrayOf, Field, Primitive, Schema, Struct, schema
from coordinator_core.releases.facts import ValueLayout
from coordinator_core.releases.table import TABLE

_added = TABLE.first_with_field

INT8 = Primitive.INT8
INT16 = Primitive.INT16
UINT16 = Primitive.UINT16
INT32 = Primitive.INT32
INT64 = Primitive.INT64
UUID = Primitive.UUID
STRING = Primitive.STRING
BYTES = Primitive.BYTES

CURRENT_LAYOUT: Final = str(ValueLayout.CURRENT)
PREVIEW_3_7_LAYOUT: Final = str(ValueLayout.PREVIEW_3_7)
SHARE_3_9_LAYOUT: Final = "share-3.9"
SHARE_4_0_LAYOUT: Final = str(ValueLayout.SHARE_4_0)


@dataclass(frozen=True)
class RecordType:
    """One record type: its number, name, key and value schemas.

    ``other_layouts`` maps layout names to value schemas that early releases wrote under the same version
    numbers.
    """

    type: int
    name: str
    key: Schema
    value: Schema
    other_layouts: Mapping[str, Schema] = field(default_factory=dict)


def _flexible(name: str, *fields: Field) -> Schema:
    return schema(name, *fields, flexible_since=0)


def _key(name: str, *names: str) -> Schema:
    return schema(name, *(Field(field_name, STRING) for field_name in names))


def _array(element: Primitive | Struct) -> ArrayOf:
    return ArrayOf(element)


# Offsets and classic groups

_OFFSET_KEY_FIELDS = (Field("group", STRING), Field("topic", STRING), Field("partition", INT32))

OFFSET_COMMIT_VALUE = schema(
    "OffsetCommitValue",
    Field("offset", INT64),
    Field("leaderEpoch", INT32, since=3, default=-1),
    Field("metadata", STRING),
    Field("commitTimestamp", INT64),
    Field("expireTimestamp", INT64, since=1, until=1, default=-1),
    Field("topicId", UUID, since=4, tag=0, added_in=_added("OffsetCommitValue.topicId")),
    last_version=4,
    flexible_since=4,
)

GROUP_METADATA_VALUE = schema(
    "GroupMetadataValue",
    Field("protocolType", STRING),
    Field("generation", INT32),
    Field("protocol", STRING, nullable=True),
    Field("leader", STRING, nullable=True),
    Field("currentStateTimestamp", INT64, since=2, default=-1),
    Field(
        "members",
        _array(
            Struct(
                "MemberMetadata",
                (
                    Field("memberId", STRING),
                    Field("groupInstanceId", STRING, since=3, nullable=True, default=None),
                    Field("clientId", STRING),
                    Field("clientHost", STRING),
                    Field("rebalanceTimeout", INT32, since=1, default=-1),
                    Field("sessionTimeout", INT32),
                    Field("subscription", BYTES),
                    Field("assignment", BYTES),
                ),
            )
        ),
    ),
    last_version=4,
    flexible_since=4,
)

# Consumer groups (KIP-848)

_TOPIC_PARTITIONS = Struct("TopicPartitions", (Field("topicId", UUID), Field("partitions", _array(INT32))))
_OWNED_TOPIC_PARTITIONS = Struct(
    "TopicPartitions",
    (
        *_TOPIC_PARTITIONS.fields,
        Field(
            "assignmentEpochs",
            _array(INT32),
            nullable=True,
            tag=0,
            added_in=_added("ConsumerGroupCurrentMemberAssignmentValue.assignmentEpochs"),
        ),
    ),
)
_TOPIC_METADATA = Struct(
    "TopicMetadata",
    (
        Field("topicId", UUID),
        Field("topicName", STRING),
        Field("numPartitions", INT32),
        Field(
            "partitionMetadata",
            _array(Struct("PartitionMetadata", (Field("partition", INT32), Field("racks", _array(STRING))))),
        ),
    ),
)
_CLASSIC_MEMBER_METADATA = Struct(
    "ClassicMemberMetadata",
    (
        Field("sessionTimeoutMs", INT32),
        Field(
            "supportedProtocols",
            _array(Struct("ClassicProtocol", (Field("name", STRING), Field("metadata", BYTES)))),
        ),
    ),
)
_CONSUMER_MEMBER_FIELDS = (
    Field("instanceId", STRING, nullable=True),
    Field("rackId", STRING, nullable=True),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("subscribedTopicNames", _array(STRING)),
    Field("subscribedTopicRegex", STRING, nullable=True),
    Field("rebalanceTimeoutMs", INT32, default=-1),
    Field("serverAssignor", STRING, nullable=True),
)

CONSUMER_GROUP_METADATA_VALUE = _flexible(
    "ConsumerGroupMetadataValue",
    Field("epoch", INT32),
    Field("metadataHash", INT64, tag=0, added_in=_added("ConsumerGroupMetadataValue.metadataHash")),
)
CONSUMER_GROUP_PARTITION_METADATA_VALUE = _flexible(
    "ConsumerGroupPartitionMetadataValue", Field("topics", _array(_TOPIC_METADATA))
)
# Brokers write a null classicMemberMetadata explicitly: its default is a struct of defaults, not null.
CONSUMER_GROUP_MEMBER_METADATA_VALUE = _flexible(
    "ConsumerGroupMemberMetadataValue",
    *_CONSUMER_MEMBER_FIELDS,
    Field("classicMemberMetadata", _CLASSIC_MEMBER_METADATA, nullable=True, tag=0),
)


def _target_assignment_metadata(name: str) -> Schema:
    return _flexible(
        name,
        Field("assignmentEpoch", INT32),
        Field("assignmentTimestamp", INT64, tag=0, added_in=_added(f"{name}.assignmentTimestamp")),
    )


CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = _flexible(
    "ConsumerGroupTargetAssignmentMemberValue", Field("topicPartitions", _array(_TOPIC_PARTITIONS))
)
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = _flexible(
    "ConsumerGroupCurrentMemberAssignmentValue",
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("assignedPartitions", _array(_OWNED_TOPIC_PARTITIONS)),
    Field("partitionsPendingRevocation", _array(_OWNED_TOPIC_PARTITIONS)),
)
CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE = _flexible(
    "ConsumerGroupRegularExpressionValue",
    Field("topics", _array(STRING)),
    Field("version", INT64),
    Field("timestamp", INT64),
)

# Preview layouts of 3.6 and 3.7

_PREVIEW_PARTITION_METADATA_VALUE = _flexible(
    "ConsumerGroupPartitionMetadataValue", Field("epoch", INT32), Field("topics", _array(_TOPIC_METADATA))
)
_PREVIEW_MEMBER_METADATA_VALUE = _flexible(
    "ConsumerGroupMemberMetadataValue",
    *_CONSUMER_MEMBER_FIELDS,
    Field(
        "assignors",
        _array(
            Struct(
                "Assignor",
                (
                    Field("name", STRING),
                    Field("minimumVersion", INT16),
                    Field("maximumVersion", INT16),
                    Field("reason", INT8),
                    Field("version", INT16),
                    Field("metadata", BYTES),
                ),
            )
        ),
    ),
)
_PREVIEW_TARGET_ASSIGNMENT_MEMBER_VALUE = _flexible(
    "ConsumerGroupTargetAssignmentMemberValue",
    Field("error", INT8),
    Field("topicPartitions", _array(_TOPIC_PARTITIONS)),
    Field("metadataVersion", INT16),
    Field("metadataBytes", BYTES),
)
_PREVIEW_CURRENT_MEMBER_ASSIGNMENT_VALUE = _flexible(
    "ConsumerGroupCurrentMemberAssignmentValue",
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("targetMemberEpoch", INT32),
    Field("assignedPartitions", _array(_TOPIC_PARTITIONS)),
    Field("partitionsPendingRevocation", _array(_TOPIC_PARTITIONS)),
    Field("partitionsPendingAssignment", _array(_TOPIC_PARTITIONS)),
    Field("error", INT8),
    Field("metadataVersion", INT16),
    Field("metadataBytes", BYTES),
)

# Share groups (KIP-932)

_TOPIC_PARTITIONS_INFO = Struct(
    "TopicPartitionsInfo",
    (Field("topicId", UUID), Field("topicName", STRING), Field("partitions", _array(INT32))),
)
_TOPIC_INFO = Struct("TopicInfo", (Field("topicId", UUID), Field("topicName", STRING)))
_INITIALIZED_TOPICS = Field("initializedTopics", _array(_TOPIC_PARTITIONS_INFO))
_DELETING_TOPICS = Field("deletingTopics", _array(_TOPIC_INFO))

SHARE_GROUP_PARTITION_METADATA_VALUE = _flexible(
    "ShareGroupPartitionMetadataValue", Field("topics", _array(_TOPIC_METADATA))
)
_SHARE_3_9_PARTITION_METADATA_VALUE = _flexible(
    "ShareGroupPartitionMetadataValue", _INITIALIZED_TOPICS, _DELETING_TOPICS
)
SHARE_GROUP_MEMBER_METADATA_VALUE = _flexible(
    "ShareGroupMemberMetadataValue",
    Field("rackId", STRING, nullable=True),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("subscribedTopicNames", _array(STRING)),
)
SHARE_GROUP_METADATA_VALUE = _flexible(
    "ShareGroupMetadataValue",
    Field("epoch", INT32),
    Field("metadataHash", INT64, added_in=_added("ShareGroupMetadataValue.metadataHash")),
)
_SHARE_4_0_METADATA_VALUE = _flexible("ShareGroupMetadataValue", Field("epoch", INT32))
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = _flexible(
    "ShareGroupTargetAssignmentMemberValue", Field("topicPartitions", _array(_TOPIC_PARTITIONS))
)
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = _flexible(
    "ShareGroupCurrentMemberAssignmentValue",
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("assignedPartitions", _array(_TOPIC_PARTITIONS)),
)
SHARE_GROUP_STATE_PARTITION_METADATA_VALUE = _flexible(
    "ShareGroupStatePartitionMetadataValue",
    Field("initializingTopics", _array(_TOPIC_PARTITIONS_INFO)),
    _INITIALIZED_TOPICS,
    _DELETING_TOPICS,
)
_SHARE_4_0_STATE_PARTITION_METADATA_VALUE = _flexible(
    "ShareGroupStatePartitionMetadataValue", _INITIALIZED_TOPICS, _DELETING_TOPICS
)

# Streams groups (KIP-1071)

_KEY_VALUE = (Field("key", STRING), Field("value", STRING))
_TASK_IDS = (Field("subtopologyId", STRING), Field("partitions", _array(INT32)))
_TARGET_TASKS = _array(Struct("TaskIds", _TASK_IDS))
_OWNED_TASKS = _array(
    Struct(
        "TaskIds",
        (
            *_TASK_IDS,
            Field(
                "assignmentEpochs",
                _array(INT32),
                nullable=True,
                tag=0,
                added_in=_added("StreamsGroupCurrentMemberAssignmentValue.assignmentEpochs"),
            ),
        ),
    )
)
_TOPOLOGY_TOPICS = _array(
    Struct(
        "TopicInfo",
        (
            Field("name", STRING),
            Field("partitions", INT32),
            Field("replicationFactor", INT16),
            Field("topicConfigs", _array(Struct("TopicConfig", _KEY_VALUE))),
        ),
    )
)

STREAMS_GROUP_METADATA_VALUE = _flexible(
    "StreamsGroupMetadataValue",
    Field("epoch", INT32),
    Field("metadataHash", INT64),
    Field(
        "validatedTopologyEpoch",
        INT32,
        tag=0,
        default=-1,
        added_in=_added("StreamsGroupMetadataValue.validatedTopologyEpoch"),
    ),
    Field(
        "lastAssignmentConfigs",
        _array(Struct("LastAssignmentConfig", _KEY_VALUE)),
        nullable=True,
        tag=1,
        added_in=_added("StreamsGroupMetadataValue.lastAssignmentConfigs"),
    ),
    Field(
        "storedDescriptionTopologyEpoch",
        INT32,
        tag=2,
        default=-1,
        added_in=_added("StreamsGroupMetadataValue.storedDescriptionTopologyEpoch"),
    ),
    Field(
        "failedDescriptionTopologyEpoch",
        INT32,
        tag=3,
        default=-1,
        added_in=_added("StreamsGroupMetadataValue.failedDescriptionTopologyEpoch"),
    ),
)
STREAMS_GROUP_MEMBER_METADATA_VALUE = _flexible(
    "StreamsGroupMemberMetadataValue",
    Field("instanceId", STRING, nullable=True),
    Field("rackId", STRING, nullable=True),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("rebalanceTimeoutMs", INT32, default=-1),
    Field("topologyEpoch", INT32),
    Field("processId", STRING),
    Field(
        "userEndpoint",
        Struct("Endpoint", (Field("host", STRING), Field("port", UINT16))),
        nullable=True,
        default=None,
    ),
    Field("clientTags", _array(Struct("KeyValue", _KEY_VALUE))),
)
STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE = _flexible(
    "StreamsGroupTargetAssignmentMemberValue",
    Field("activeTasks", _TARGET_TASKS),
    Field("standbyTasks", _TARGET_TASKS),
    Field("warmupTasks", _TARGET_TASKS),
)
STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE = _flexible(
    "StreamsGroupCurrentMemberAssignmentValue",
    Field("memberEpoch", INT32),
    Field("previousMemberEpoch", INT32),
    Field("state", INT8),
    Field("activeTasks", _OWNED_TASKS),
    Field("standbyTasks", _OWNED_TASKS),
    Field("warmupTasks", _OWNED_TASKS),
    Field("activeTasksPendingRevocation", _OWNED_TASKS),
    Field("standbyTasksPendingRevocation", _OWNED_TASKS),
    Field("warmupTasksPendingRevocation", _OWNED_TASKS),
)
STREAMS_GROUP_TOPOLOGY_VALUE = _flexible(
    "StreamsGroupTopologyValue",
    Field("epoch", INT32),
    Field(
        "subtopologies",
        _array(
            Struct(
                "Subtopology",
                (
                    Field("subtopologyId", STRING),
                    Field("sourceTopics", _array(STRING)),
                    Field("sourceTopicRegex", _array(STRING)),
                    Field("stateChangelogTopics", _TOPOLOGY_TOPICS),
                    Field("repartitionSinkTopics", _array(STRING)),
                    Field("repartitionSourceTopics", _TOPOLOGY_TOPICS),
                    Field(
                        "copartitionGroups",
                        _array(
                            Struct(
                                "CopartitionGroup",
                                (
                                    Field("sourceTopics", _array(INT16)),
                                    Field("sourceTopicRegex", _array(INT16)),
                                    Field("repartitionSourceTopics", _array(INT16)),
                                ),
                            )
                        ),
                    ),
                ),
            )
        ),
    ),
)


def _group_type(
    number: int,
    name: str,
    value: Schema,
    *,
    second_key_field: str | None = None,
    other_layouts: Mapping[str, Schema] | None = None,
) -> RecordType:
    names = ("groupId",) if second_key_field is None else ("groupId", second_key_field)
    return RecordType(number, name, _key(f"{name}Key", *names), value, other_layouts or {})


_MEMBER = "memberId"

RECORD_TYPES: Final[Mapping[int, RecordType]] = {
    record_type.type: record_type
    for record_type in (
        # Up to 4.0 the broker reads values of type 0 with the schema of type 1, whose version 0 is the same.
        RecordType(
            0,
            "LegacyOffsetCommit",
            schema("LegacyOffsetCommitKey", *_OFFSET_KEY_FIELDS),
            OFFSET_COMMIT_VALUE,
        ),
        RecordType(1, "OffsetCommit", schema("OffsetCommitKey", *_OFFSET_KEY_FIELDS), OFFSET_COMMIT_VALUE),
        RecordType(2, "GroupMetadata", _key("GroupMetadataKey", "group"), GROUP_METADATA_VALUE),
        _group_type(3, "ConsumerGroupMetadata", CONSUMER_GROUP_METADATA_VALUE),
        _group_type(
            4,
            "ConsumerGroupPartitionMetadata",
            CONSUMER_GROUP_PARTITION_METADATA_VALUE,
            other_layouts={PREVIEW_3_7_LAYOUT: _PREVIEW_PARTITION_METADATA_VALUE},
        ),
        _group_type(
            5,
            "ConsumerGroupMemberMetadata",
            CONSUMER_GROUP_MEMBER_METADATA_VALUE,
            second_key_field=_MEMBER,
            other_layouts={PREVIEW_3_7_LAYOUT: _PREVIEW_MEMBER_METADATA_VALUE},
        ),
        _group_type(
            6,
            "ConsumerGroupTargetAssignmentMetadata",
            _target_assignment_metadata("ConsumerGroupTargetAssignmentMetadataValue"),
        ),
        _group_type(
            7,
            "ConsumerGroupTargetAssignmentMember",
            CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
            second_key_field=_MEMBER,
            other_layouts={PREVIEW_3_7_LAYOUT: _PREVIEW_TARGET_ASSIGNMENT_MEMBER_VALUE},
        ),
        _group_type(
            8,
            "ConsumerGroupCurrentMemberAssignment",
            CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
            second_key_field=_MEMBER,
            other_layouts={PREVIEW_3_7_LAYOUT: _PREVIEW_CURRENT_MEMBER_ASSIGNMENT_VALUE},
        ),
        _group_type(
            9,
            "ShareGroupPartitionMetadata",
            SHARE_GROUP_PARTITION_METADATA_VALUE,
            other_layouts={SHARE_3_9_LAYOUT: _SHARE_3_9_PARTITION_METADATA_VALUE},
        ),
        _group_type(
            10,
            "ShareGroupMemberMetadata",
            SHARE_GROUP_MEMBER_METADATA_VALUE,
            second_key_field=_MEMBER,
        ),
        _group_type(
            11,
            "ShareGroupMetadata",
            SHARE_GROUP_METADATA_VALUE,
            other_layouts={SHARE_4_0_LAYOUT: _SHARE_4_0_METADATA_VALUE},
        ),
        _group_type(
            12,
            "ShareGroupTargetAssignmentMetadata",
            _target_assignment_metadata("ShareGroupTargetAssignmentMetadataValue"),
        ),
        _group_type(
            13,
            "ShareGroupTargetAssignmentMember",
            SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
            second_key_field=_MEMBER,
        ),
        _group_type(
            14,
            "ShareGroupCurrentMemberAssignment",
            SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
            second_key_field=_MEMBER,
        ),
        _group_type(
            15,
            "ShareGroupStatePartitionMetadata",
            SHARE_GROUP_STATE_PARTITION_METADATA_VALUE,
            other_layouts={SHARE_4_0_LAYOUT: _SHARE_4_0_STATE_PARTITION_METADATA_VALUE},
        ),
        _group_type(
            16,
            "ConsumerGroupRegularExpression",
            CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
            second_key_field="regularExpression",
        ),
        _group_type(17, "StreamsGroupMetadata", STREAMS_GROUP_METADATA_VALUE),
        _group_type(
            19,
            "StreamsGroupMemberMetadata",
            STREAMS_GROUP_MEMBER_METADATA_VALUE,
            second_key_field=_MEMBER,
        ),
        _group_type(
            20,
            "StreamsGroupTargetAssignmentMetadata",
            _target_assignment_metadata("StreamsGroupTargetAssignmentMetadataValue"),
        ),
        _group_type(
            21,
            "StreamsGroupTargetAssignmentMember",
            STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
            second_key_field=_MEMBER,
        ),
        _group_type(
            22,
            "StreamsGroupCurrentMemberAssignment",
            STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
            second_key_field=_MEMBER,
        ),
        _group_type(23, "StreamsGroupTopology", STREAMS_GROUP_TOPOLOGY_VALUE),
    )
}
