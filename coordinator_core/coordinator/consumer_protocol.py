"""Subscriptions and assignments of the ``consumer`` protocol, as values of :mod:`coordinator_core.records.blobs`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coordinator_core.records.blobs import (
    decode_consumer_assignment,
    decode_consumer_subscription,
    encode_consumer_assignment,
)


class NamedPartitions(NamedTuple):
    """Partitions of a topic."""

    topic: str
    partitions: tuple[int, ...]


class Subscription(NamedTuple):
    """``ConsumerProtocolSubscription``; topics as they come."""

    topics: tuple[str, ...]
    owned_partitions: tuple[NamedPartitions, ...]
    rack_id: str | None

    @classmethod
    def of(cls, blob: bytes) -> Subscription:
        """Raises ``RecordDecodeError`` for other bytes."""
        data = decode_consumer_subscription(blob)
        owned = (NamedPartitions(one["topic"], tuple(one["partitions"])) for one in data.get("ownedPartitions", ()))
        return cls(tuple(data["topics"]), tuple(owned), data.get("rackId") or None)


class ConsumerAssignment(NamedTuple):
    """``ConsumerProtocolAssignment``."""

    assigned_partitions: tuple[NamedPartitions, ...]
    user_data: bytes | None = None

    @classmethod
    def of(cls, blob: bytes) -> ConsumerAssignment:
        """Raises ``RecordDecodeError`` for other bytes."""
        data = decode_consumer_assignment(blob)
        assigned = (NamedPartitions(one["topic"], tuple(one["partitions"])) for one in data["assignedPartitions"])
        return cls(tuple(assigned), data["userData"])


def assignment_blob(version: int, assigned: Iterable[NamedPartitions]) -> bytes:
    """The bytes of an assignment without user data."""
    entries = [{"topic": topic, "partitions": list(partitions)} for topic, partitions in assigned]
    return encode_consumer_assignment(version, {"assignedPartitions": entries, "userData": None})
