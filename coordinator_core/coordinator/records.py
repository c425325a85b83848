"""Records that coordinators append, as data for :mod:`coordinator_core.records`.

Source: ``GroupMetadataManager`` (Scala), ``GroupCoordinatorRecordHelpers`` (Java).
"""

from __future__ import annotations

from typing import Any

from coordinator_core.coordinator.log import Record
from coordinator_core.groups.model import ClassicGroup
from coordinator_core.records.types import ZERO_UUID

OFFSET_COMMIT = 1
GROUP_METADATA = 2
NO_TIMESTAMP = -1
GROUP_METADATA_VERSION = 3


def offset_commit(
    group_id: str,
    topic: str,
    partition: int,
    *,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp_ms: int,
    expire_timestamp_ms: int | None,
    version: int,
    topic_id: str = ZERO_UUID,
) -> Record:
    """``version`` is that of a commit without an expiry of its own; one with it is always version 1."""
    value: dict[str, Any] = {
        "offset": offset,
        "metadata": metadata,
        "commitTimestamp": commit_timestamp_ms,
    }
    if expire_timestamp_ms is not None:
        version = 1
        value["expireTimestamp"] = expire_timestamp_ms
    else:
        value["leaderEpoch"] = leader_epoch
    if version >= 4:
        value["topicId"] = topic_id
    return Record(OFFSET_COMMIT, _offset_key(group_id, topic, partition), version, value)


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return Record(OFFSET_COMMIT, _offset_key(group_id, topic, partition))


def _offset_key(group_id: str, topic: str, partition: int) -> dict[str, Any]:
    return {"group": group_id, "topic": topic, "partition": partition}


def group_metadata(group: ClassicGroup) -> Record:
    """The record of a group, which ``groups.classic`` reads back."""
    value = {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "currentStateTimestamp": (
            NO_TIMESTAMP if group.state_timestamp_ms is None else group.state_timestamp_ms
        ),
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout_ms,
                "sessionTimeout": member.session_timeout_ms,
                "subscription": member.subscription,
                "assignment": member.assignment,
            }
            for member in group.members
        ],
    }
    return Record(GROUP_METADATA, {"group": group.group_id}, GROUP_METADATA_VERSION, value)


def group_tombstone(group_id: str) -> Record:
    return Record(GROUP_METADATA, {"group": group_id})
