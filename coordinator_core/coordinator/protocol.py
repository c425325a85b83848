"""Requests, replies and record data as Kafka's message classes have them in JSON: names in camel case.

The one place that knows which fields the versions of an API have. Bytes of requests and replies are base64.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any, TypeVar, cast, get_args, get_type_hints

from coordinator_core.coordinator.replies import Reply
from coordinator_core.coordinator.requests import Request
from coordinator_core.jsontext import reader

Json = dict[str, Any]
T = TypeVar("T")

_NEVER = 1 << 15
_SINCE: dict[str, dict[str, int]] = {
    "JoinGroup": {"protocolType": 7, "skipAssignment": 9, "members.groupInstanceId": 5},
    "SyncGroup": {"protocolType": 5, "protocolName": 5},
    "ListGroups": {"groups.groupState": 4, "groups.groupType": 5},
    "DescribeGroups": {"groups.authorizedOperations": 3, "groups.members.groupInstanceId": 4, "groups.errorMessage": 6},
    "OffsetCommit": {"topics.topicId": 10},
    "TxnOffsetCommit": {"topics.topicId": 6},
    "OffsetFetch": {"groups.topics.topicId": 10, "groups.topics.partitions.committedLeaderEpoch": 5},
    "OffsetDelete": {"topics.topicId": _NEVER},
    "EndTxn": {"producerId": 5, "producerEpoch": 5},
    "ConsumerGroupDescribe": {"groups.members.memberType": 1},
    "StreamsGroupHeartbeat": {"topologyDescriptionRequired": 1},
    "StreamsGroupDescribe": {
        "groups.topologyDescription": 1,
        "groups.topologyDescriptionStatus": 1,
        "groups.assignorName": 1,
    },
    "DescribeShareGroupOffsets": {"groups.topics.partitions.lag": 1},
}
"""Fields that a later version added to the first one, by their path."""

_UNTIL: dict[str, dict[str, int]] = {
    "OffsetCommit": {"topics.name": 9},
    "TxnOffsetCommit": {"topics.name": 5},
    "OffsetFetch": {"groups.topics.name": 9},
    "StreamsGroupHeartbeat": {"acceptableRecoveryLagLegacy": 0},
}
"""Last versions of fields that were dropped."""


@cache
def camel(name: str) -> str:
    """The name of a field as Kafka's message classes spell it."""
    head, *parts = name.split("_")
    return head + "".join(part.capitalize() for part in parts)


# Requests

_REQUESTS: dict[str, Any] = {kind.__name__: kind for kind in get_args(Request)}


def read_request(api: str, version: int, body: Json) -> Request:
    """The request in a trace.

    ``ValueError`` names an API that the model does not have, a field that is missing or of another type, or text that
    is not base64.
    """
    if api not in _REQUESTS:
        raise ValueError(f"the model has no {api}")
    if api == "LeaveGroup" and version < 3:
        body = body | {"members": [{"memberId": body.get("memberId")}]}
    elif api == "OffsetFetch" and version < 8:
        body = body | {"groups": [body]}
    elif api == "FindCoordinator" and version < 4:
        body = body | {"coordinatorKeys": [body.get("key")]}
    elif api == "TxnOffsetCommit" and "generationIdOrMemberEpoch" in body:
        # The name since 4.4.
        body = body | {"generationId": body["generationIdOrMemberEpoch"]}
    elif api == "JoinGroup":
        body = {"rebalanceTimeoutMs": body.get("sessionTimeoutMs")} | body
    request: Request = reader(_REQUESTS[api], camel, exact=False)(body)
    return request


def from_json(kind: type[T], data: Json) -> T:
    """A value of the class ``kind``, as :func:`record_json` writes it."""
    return cast(T, reader(cast(Any, kind), camel, exact=False)(data))


_PLAIN = frozenset({str, int, bool, type(None)})


# Replies


def reply_json(api: str, version: int, reply: Reply) -> Json:
    """A reply with the fields of that version, and ``error`` beside every code."""
    found = _struct(api, version, "", reply)
    if api == "LeaveGroup" and version < 3:
        failed = found if found["errorCode"] or not found["members"] else found["members"][0]
        return {name: failed[name] for name in ("errorCode", "error")}
    if api == "OffsetFetch" and version < 8:
        group = found["groups"][0]
        return {name: group[name] for name in ("topics", "errorCode", "error") if version >= 2 or name == "topics"}
    if api == "FindCoordinator" and version < 4:
        one = found["coordinators"][0]
        names = ("errorCode", "error", *(("errorMessage",) if version >= 1 else ()), "nodeId", "host", "port")
        return {name: one[name] for name in names}
    if api == "StreamsGroupHeartbeat" and version < 1:
        # One field on the wire; 4.4 calls it legacy.
        is_legacy = found["acceptableRecoveryLagLegacy"] is not None
        del found["acceptableRecoveryLag" if is_legacy else "acceptableRecoveryLagLegacy"]
    if api == "JoinGroup" and version < 7:
        found["protocolName"] = found["protocolName"] or ""
    return found


def _struct(api: str, version: int, prefix: str, message: Any) -> Json:
    found: Json = {}
    for attribute, name in _shown(api, version, prefix, message.__class__):
        value = getattr(message, attribute)
        if name == "errorCode":
            found["errorCode"] = int(value)
            found["error"] = value.name
        else:
            found[name] = value if value.__class__ in _PLAIN else _plain(api, version, f"{prefix}{name}.", value)
    return found


@cache
def _shown(api: str, version: int, prefix: str, kind: Any) -> list[tuple[str, str]]:
    """Attribute and name of the fields that this version has."""
    since, until = _SINCE.get(api, {}), _UNTIL.get(api, {})
    named = [(attribute, camel(attribute), f"{prefix}{camel(attribute)}") for attribute in get_type_hints(kind)]
    return [(one, name) for one, name, at in named if since.get(at, 0) <= version <= until.get(at, version)]


def _plain(api: str, version: int, prefix: str, value: Any) -> Any:
    if value.__class__ in _PLAIN:
        return value
    if value.__class__ is tuple:
        return [_plain(api, version, prefix, one) for one in value]
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return _struct(api, version, prefix, value)


# Records


def record_json(data: Any) -> Any:
    """The key or value of a record as :mod:`coordinator_core.records` takes it: bytes stay bytes.

    A field that is ``None`` by default is left out while it is: its version does not have it.
    """
    if not isinstance(data, tuple):
        return data
    kind: Any = type(data)
    if kind is tuple:
        return [record_json(one) for one in data]
    found, defaults = zip(kind._fields, data, strict=True), kind._field_defaults
    return {camel(name): record_json(value) for name, value in found if value is not None or name not in defaults}
