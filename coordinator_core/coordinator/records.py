"""Records that coordinators append, as data for :mod:`coordinator_core.records`, and back into members.

Source: ``GroupMetadataManager`` (Scala), ``GroupCoordinatorRecordHelpers`` (Java).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from coordinator_core.coordinator.classic import ClassicGroup, Member, State
from coordinator_core.coordinator.log import Record
from coordinator_core.groups import model
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


def group_metadata(group: ClassicGroup, assignment: dict[str, bytes]) -> Record:
    """The group as it is, with the members' part of ``assignment``."""
    protocol = group.protocol_name
    members = [
        (member, member.metadata(protocol or ""), assignment[member.member_id])
        for member in group.members.values()
    ]
    return group_metadata_of(group, protocol, members)


def group_metadata_of(
    group: ClassicGroup | model.ClassicGroup,
    protocol: str | None,
    members: Iterable[tuple[Member | model.ClassicMember, bytes, bytes]],
) -> Record:
    """The record of a group in the coordinator or in a replay; members with subscription and assignment."""
    value = {
        "protocolType": group.protocol_type or "",
        "generation": group.generation,
        "protocol": protocol,
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
                "subscription": subscription,
                "assignment": assignment,
            }
            for member, subscription, assignment in members
        ],
    }
    return Record(GROUP_METADATA, {"group": group.group_id}, GROUP_METADATA_VERSION, value)


def group_tombstone(group_id: str) -> Record:
    return Record(GROUP_METADATA, {"group": group_id})


def loaded_members(group: ClassicGroup, value: dict[str, Any]) -> None:
    """Make ``group`` what a GroupMetadata value says: Stable with members, else Empty."""
    protocol = value["protocol"]
    group.protocol_type = value["protocolType"] or None
    group.protocol_name = protocol
    group.generation = value["generation"]
    group.leader = value["leader"]
    for entry in value["members"]:
        rebalance_timeout_ms = entry.get("rebalanceTimeout", -1)
        group.add(
            Member(
                member_id=entry["memberId"],
                instance_id=entry.get("groupInstanceId"),
                client_id=entry["clientId"],
                client_host=entry["clientHost"],
                rebalance_timeout_ms=(
                    entry["sessionTimeout"] if rebalance_timeout_ms == -1 else rebalance_timeout_ms
                ),
                session_timeout_ms=entry["sessionTimeout"],
                protocol_type=value["protocolType"],
                protocols=((protocol, entry["subscription"]),),
                assignment=entry["assignment"],
            )
        )
    group.state = State.STABLE if group.members else State.EMPTY
    timestamp = value.get("currentStateTimestamp", NO_TIMESTAMP)
    group.state_timestamp_ms = None if timestamp == NO_TIMESTAMP else timestamp
    group.subscribed_topics = group.compute_subscribed_topics()
