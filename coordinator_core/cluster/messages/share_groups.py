"""Requests about the start offsets of share groups (KIP-932): APIs 90 to 92, from Kafka 4.1 on."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Groups, each with topics and partitions, or with none for all that it has."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Start offset of each share-partition; -1 where it has none."""


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Start offsets of a group without members; one that is absent is made."""


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Errors by partition."""


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Topics whose start offsets a group without members loses, all of them."""


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Errors by topic."""
