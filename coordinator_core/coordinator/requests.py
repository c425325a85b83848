"""Requests of group members, read from dicts with Kafka's field names.

A field that a version does not have is ``None``, or what Kafka takes in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

Request = dict[str, Any]
"""A request as it came; the handlers of offsets and of lists of groups read it as it is."""

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of the protocols that a member supports, the preferred one first."""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """``JoinGroupRequest``; version 0 has only the session timeout."""

    group_id: str
    member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols

    @classmethod
    def of(cls, request: Request) -> JoinGroup:
        session_timeout_ms: int = request["sessionTimeoutMs"]
        return cls(
            group_id=request["groupId"],
            member_id=request["memberId"],
            instance_id=request.get("groupInstanceId"),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=request.get("rebalanceTimeoutMs", session_timeout_ms),
            protocol_type=request["protocolType"],
            protocols=tuple((one["name"], one["metadata"]) for one in request["protocols"]),
        )

    @property
    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """``SyncGroupRequest``; ``assignments`` are those that a leader gives, by member id."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]

    @classmethod
    def of(cls, request: Request) -> SyncGroup:
        return cls(
            group_id=request["groupId"],
            generation=request["generationId"],
            member_id=request["memberId"],
            instance_id=request.get("groupInstanceId"),
            protocol_type=request.get("protocolType"),
            protocol_name=request.get("protocolName"),
            assignments={one["memberId"]: one["assignment"] for one in request["assignments"]},
        )


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """``HeartbeatRequest``."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None

    @classmethod
    def of(cls, request: Request) -> Heartbeat:
        return cls(
            group_id=request["groupId"],
            generation=request["generationId"],
            member_id=request["memberId"],
            instance_id=request.get("groupInstanceId"),
        )


class Committer(NamedTuple):
    """Who commits: the member of an OffsetCommit or TxnOffsetCommit, with its generation or member epoch.

    Nobody in particular has generation -1 and no id.
    """

    generation: int
    member_id: str
    instance_id: str | None
    transactional: bool

    @classmethod
    def of(cls, request: Request, *, transactional: bool) -> Committer:
        generation = request.get("generationId" if transactional else "generationIdOrMemberEpoch", -1)
        return cls(generation, request.get("memberId", ""), request.get("groupInstanceId"), transactional)

    @property
    def names_a_member(self) -> bool:
        return bool(self.member_id) or self.instance_id is not None


class MemberIdentity(NamedTuple):
    """A member that a LeaveGroup names, by member id, group instance id or both."""

    member_id: str
    instance_id: str | None

    @classmethod
    def all_of(cls, request: Request) -> list[MemberIdentity]:
        return [cls(one["memberId"], one.get("groupInstanceId")) for one in request["members"]]


class OwnedPartitions(NamedTuple):
    """Partitions of one topic that a member says it owns."""

    topic_id: str
    partitions: tuple[int, ...]


Owned = tuple[OwnedPartitions, ...] | None
"""What a member says it owns; ``None``: nothing new since its last word."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """``ConsumerGroupHeartbeatRequest``: ``None`` and a timeout of -1 say nothing new."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topics: tuple[str, ...] | None
    subscribed_regex: str | None
    server_assignor: str | None
    owned: Owned

    @classmethod
    def of(cls, request: Request) -> ConsumerGroupHeartbeat:
        names, owned = request["subscribedTopicNames"], request["topicPartitions"]
        return cls(
            group_id=request["groupId"],
            member_id=request["memberId"],
            member_epoch=request["memberEpoch"],
            instance_id=request["instanceId"],
            rack_id=request["rackId"],
            rebalance_timeout_ms=request["rebalanceTimeoutMs"],
            subscribed_topics=None if names is None else tuple(names),
            subscribed_regex=request.get("subscribedTopicRegex"),
            server_assignor=request["serverAssignor"],
            owned=None
            if owned is None
            else tuple(OwnedPartitions(one["topicId"], tuple(one["partitions"])) for one in owned),
        )
