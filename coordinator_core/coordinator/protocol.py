"""Which fields the versions of the APIs have, and bytes as the JSON of Kafka's message classes."""

from __future__ import annotations

import base64
from typing import Any

from coordinator_core.coordinator.errors import Errors

_SINCE: dict[str, dict[str, int]] = {
    "JoinGroup": {"protocolType": 7, "skipAssignment": 9, "members.groupInstanceId": 5},
    "SyncGroup": {"protocolType": 5, "protocolName": 5},
    "LeaveGroup": {"members": 3},
    "ListGroups": {"groups.groupState": 4, "groups.groupType": 5},
    "DescribeGroups": {
        "groups.authorizedOperations": 3,
        "groups.members.groupInstanceId": 4,
        "groups.errorMessage": 6,
    },
    "OffsetCommit": {"topics.topicId": 10},
    "OffsetFetch": {
        "errorCode": 2,
        "topics.topicId": 10,
        "topics.partitions.committedLeaderEpoch": 5,
        "groups.topics.topicId": 10,
    },
    "FindCoordinator": {"errorMessage": 1},
    "EndTxn": {"producerId": 5, "producerEpoch": 5},
    "ConsumerGroupDescribe": {"groups.members.memberType": 1},
}
"""Fields that a later version added to the first one, by their path."""

_UNTIL: dict[str, dict[str, int]] = {
    "OffsetCommit": {"topics.name": 9},
    "OffsetFetch": {"topics": 7, "errorCode": 7, "groups.topics.name": 9},
}
"""Last versions of fields that were dropped."""

_BYTES = frozenset({"metadata", "assignment", "memberMetadata", "memberAssignment"})
_APIS_WITH_BYTES = frozenset({"JoinGroup", "SyncGroup", "DescribeGroups"})


def reply_json(api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
    """``body`` with the fields of that version, bytes as base64, and ``error`` beside every code."""
    return _struct(api, version, "", body)


def _struct(api: str, version: int, path: str, fields: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        at = f"{path}{name}"
        if not _SINCE.get(api, {}).get(at, 0) <= version <= _UNTIL.get(api, {}).get(at, version):
            continue
        if isinstance(value, dict):
            value = _struct(api, version, f"{at}.", value)
        elif isinstance(value, list):
            value = [_struct(api, version, f"{at}.", one) if isinstance(one, dict) else one for one in value]
        elif isinstance(value, bytes):
            value = base64.b64encode(value).decode("ascii")
        elif isinstance(value, str):
            value = str(value)
        if value is None and (api, at) == ("JoinGroup", "protocolName") and version < 7:
            value = ""
        if name == "errorCode":
            found["errorCode"] = int(value)
            found["error"] = Errors(value).name
        else:
            found[name] = value
    return found


def request_data(api: str, body: Any) -> Any:
    """A request's JSON with its bytes decoded. ``ValueError`` for text that is not base64."""
    if api not in _APIS_WITH_BYTES:
        return body
    if isinstance(body, list):
        return [request_data(api, one) for one in body]
    if isinstance(body, dict):
        return {
            name: (
                base64.b64decode(value, validate=True)
                if name in _BYTES and isinstance(value, str)
                else request_data(api, value)
            )
            for name, value in body.items()
        }
    return body
