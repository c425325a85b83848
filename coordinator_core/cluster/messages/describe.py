"""ShareGroupDescribe (KIP-932, from Kafka 4.1 on) and StreamsGroupDescribe (KIP-1071)."""

from __future__ import annotations

from kafka.protocol.api_message import ApiMessage


class ShareGroupDescribeRequest(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Groups of one coordinator."""


class ShareGroupDescribeResponse(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Epochs, members and their share-partitions."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Groups of one coordinator."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=__package__):  # type: ignore[misc, call-arg]
    """Epochs, topology, members and their tasks."""
