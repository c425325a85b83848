"""The fixed form that traces have: order of lists, times relative to the start, opaque values.

Lists in the random order of a broker's hash maps are sorted; values that nobody can predict have a name. See
``tests/traces/README.md``.
"""

from __future__ import annotations

import base64
from typing import Any

from coordinator_core.coordinator.log import LogRecord
from coordinator_core.coordinator.requests import (
    ConsumerGroupDescribe,
    DeleteGroups,
    DescribeGroups,
    DescribeShareGroupOffsets,
    OffsetFetch,
    Request,
    ShareGroupDescribe,
    StreamsGroupDescribe,
)
from coordinator_core.coordinator.trace.variables import Variables, natural_key
from coordinator_core.records.codec import decode_key, decode_value
from coordinator_core.records.schemas import RECORD_TYPES
from coordinator_core.records.types import Struct

Json = dict[str, Any]

_TIMES = frozenset({"commitTimestamp", "expireTimestamp", "currentStateTimestamp", "assignmentTimestamp", "timestamp"})
_REGEX_TYPE = 16


def groups_of(request: Request) -> list[str]:
    """Ids of the groups that a request names."""
    match request:
        case DescribeGroups(groups) | DeleteGroups(groups):
            return list(groups)
        case ConsumerGroupDescribe(groups) | ShareGroupDescribe(groups) | StreamsGroupDescribe(groups):
            return list(groups)
        case OffsetFetch(asked) | DescribeShareGroupOffsets(asked):
            return [group.group_id for group in asked]
    group_id = getattr(request, "group_id", None)
    return [] if group_id is None else [group_id]


def normal_reply(api: str, body: Json, variables: Variables, request: Request) -> Json:
    """An answer with variables for ids and its lists in their fixed order."""
    named: Json = variables.named(body)
    if api == "JoinGroup":
        named["members"] = _by_member(named["members"])
    elif api in ("DescribeGroups", "ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe"):
        named["groups"] = _in_order(named["groups"], "groupId", variables.named(groups_of(request)))
        for group in named["groups"]:
            group["members"] = _by_member(group["members"])
    elif api == "ListGroups":
        named["groups"] = sorted(named["groups"], key=lambda group: group["groupId"])
    elif isinstance(request, OffsetFetch):
        for group, wanted in zip(named.get("groups", [named]), request.groups, strict=False):
            if wanted.topics is None:
                _sort_topics(group)
        if "groups" in named:
            named["groups"] = _in_order(named["groups"], "groupId", variables.named(groups_of(request)))
    elif api == "DescribeShareGroupOffsets":
        for group in named["groups"]:
            _order_share_topics(group["topics"])
    elif api in ("AlterShareGroupOffsets", "DeleteShareGroupOffsets"):
        _order_share_topics(named["responses"])
    elif api == "StreamsGroupHeartbeat":
        for kind in ("activeTasks", "standbyTasks", "warmupTasks"):
            named[kind] = named[kind] and sorted(named[kind], key=lambda one: str(one["subtopologyId"]))
        for endpoint in named["partitionsByUserEndpoint"] or ():
            # Of a map whose order changes with each start of a broker.
            for kind in ("activePartitions", "standbyPartitions"):
                endpoint[kind] = sorted(endpoint[kind], key=lambda one: (one["topic"], one["partitions"]))
    _sort_assignments(named)
    return named


def _order_share_topics(topics: list[Json]) -> None:
    """Topics by name: the broker has them in the order of a map of topic ids."""
    topics.sort(key=lambda topic: str(topic["topicName"]))
    for topic in topics:
        topic.get("partitions", []).sort(key=lambda one: one["partitionIndex"])


def _by_member(members: list[Json]) -> list[Json]:
    return sorted(members, key=lambda member: natural_key(member["memberId"]))


def _in_order(items: list[Json], key: str, order: list[str]) -> list[Json]:
    return sorted(items, key=lambda item: order.index(item[key]) if item[key] in order else len(order))


def _sort_topics(group: Json) -> None:
    group["topics"] = sorted(group["topics"], key=lambda topic: topic.get("name", topic.get("topicId")))
    for topic in group["topics"]:
        topic["partitions"] = sorted(topic["partitions"], key=lambda one: one["partitionIndex"])


def _sort_assignments(item: Any) -> None:
    """Assignments of consumer groups by topic variable."""
    if isinstance(item, dict):
        for value in item.values():
            _sort_assignments(value)
    elif isinstance(item, list):
        for value in item:
            _sort_assignments(value)
        if item and all(isinstance(one, dict) and "topicId" in one and "errorCode" not in one for one in item):
            item.sort(key=lambda one: natural_key(str(one["topicId"])))


def normal_record(record: LogRecord, start_ms: int, variables: Variables) -> Json:
    """A record of the log as a trace shows it."""
    found: Json = {"t": record.timestamp_ms - start_ms}
    if record.transactional:
        found |= {
            "producerId": variables.named(record.producer_id, "producerId"),
            "producerEpoch": record.producer_epoch,
            "transactional": True,
        }
    if record.control is not None:
        return found | {"control": record.control}
    key = decode_key(record.key)
    assert key.data is not None
    found["key"] = {"type": key.type, "data": variables.named(key.data)}
    found["value"] = None
    if record.value is not None:
        value = decode_value(key.type, record.value)
        assert value.data is not None
        struct = RECORD_TYPES[key.type].value.struct
        data = variables.named(_plain(struct, value.version, value.data))
        found["value"] = {"version": value.version, "data": _normal_value(key.type, data, start_ms)}
    return found


def _plain(struct: Struct, version: int, data: Json) -> Json:
    """Bytes as base64, tagged fields only where they differ from their default."""
    found: Json = {}
    for field in struct.fields_in_version(version):
        value = data[field.name]
        if field.tag is not None and value == field.default_value(version):
            continue
        inner = field.type if isinstance(field.type, Struct) else getattr(field.type, "element", None)
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode("ascii")
        elif isinstance(value, list) and isinstance(inner, Struct):
            value = [_plain(inner, version, one) for one in value]
        elif isinstance(value, dict) and isinstance(inner, Struct):
            value = _plain(inner, version, value)
        found[field.name] = value
    return found


def _normal_value(key_type: int, data: Json, start_ms: int) -> Json:
    for name in _TIMES & set(data):
        if data[name] != -1:
            data[name] = {"t": data[name] - start_ms}
    if data.get("metadataHash"):
        data["metadataHash"] = "$hash"
    if key_type == _REGEX_TYPE:
        data["version"] = "$image"
    if "members" in data:
        data["members"] = _by_member(data["members"])
    _sort_assignments(data)
    return data
