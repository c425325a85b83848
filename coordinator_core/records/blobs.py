"""The blobs that members of ``consumer`` groups put into the log: subscriptions and assignments.

A blob is an int16 version and a never-flexible body. The ``decode_…`` functions return the fields of the body
(:func:`blob_version` gives the version); :class:`~coordinator_core.records.wire.RecordDecodeError` for anything that
Kafka's clients would reject. Blobs of other protocol types are opaque and never passed here.

Source: ``ConsumerProtocol`` (KIP-429, KIP-792, KIP-881).
"""

from __future__ import annotations

import struct
from typing import Any, Final

from coordinator_core.records.codec_closures import struct_decoder, struct_encoder
from coordinator_core.records.ordinary import ordinary_decoder
from coordinator_core.records.types import ArrayOf, Field, Primitive, Schema, Struct, schema
from coordinator_core.records.wire import Reader, RecordDecodeError, TooManyElementsError

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_INT16 = struct.Struct(">h")

_TOPIC_PARTITIONS = ArrayOf(
    Struct(
        "TopicPartition",
        (Field("topic", Primitive.STRING), Field("partitions", ArrayOf(Primitive.INT32))),
    )
)
CONSUMER_SUBSCRIPTION: Final = schema(
    "ConsumerProtocolSubscription",
    Field("topics", ArrayOf(Primitive.STRING)),
    Field("userData", Primitive.BYTES, nullable=True, default=None),
    Field("ownedPartitions", _TOPIC_PARTITIONS, since=1),
    Field("generationId", Primitive.INT32, since=2, default=-1),
    Field("rackId", Primitive.STRING, since=3, nullable=True, default=None),
    last_version=3,
)
CONSUMER_ASSIGNMENT: Final = schema(
    "ConsumerProtocolAssignment",
    Field("assignedPartitions", _TOPIC_PARTITIONS),
    Field("userData", Primitive.BYTES, nullable=True, default=None),
    last_version=3,
)


def blob_version(data: bytes) -> int:
    """The int16 a blob begins with; :class:`RecordDecodeError` for fewer than two bytes."""
    return Reader(data).int16()


def decode_consumer_subscription(data: bytes) -> dict[str, Any]:
    """Subscription v0 to v3: topics, userData, ownedPartitions, generationId, rackId as far as it has them.

    A version above 3 is read as 3 and bytes left over are ignored; a negative version is refused.
    """
    return _decode_known_prefix(CONSUMER_SUBSCRIPTION, data, "subscription")


def decode_consumer_assignment(data: bytes) -> dict[str, Any]:
    """Assignment v0 to v3: assignedPartitions, userData. Versions and leftovers as for subscriptions.

    The assignment of a member that the leader gave nothing can be zero bytes long, which is refused.
    """
    return _decode_known_prefix(CONSUMER_ASSIGNMENT, data, "assignment")


def encode_consumer_assignment(version: int, data: dict[str, Any]) -> bytes:
    """Bytes of an assignment; ``ValueError`` as for :func:`encode_blob`."""
    return encode_blob(CONSUMER_ASSIGNMENT, version, data)


def _decode_known_prefix(schema_: Schema, data: bytes, what: str) -> dict[str, Any]:
    reader = Reader(data)
    version = reader.int16()
    if version < 0:
        raise RecordDecodeError(0, f"unsupported {what} version {version}")
    version = min(version, schema_.last_version)
    ordinary = ordinary_decoder(schema_.struct, version, False)(data, _INT16.size)
    try:
        return struct_decoder(schema_.struct, version, False)(reader) if ordinary is None else ordinary[0]
    except TooManyElementsError as error:
        raise RecordDecodeError(reader.position, error.detail) from None


def encode_blob(schema_: Schema, version: int, data: dict[str, Any]) -> bytes:
    """Bytes of a blob; ``ValueError`` for an unknown version or values it cannot hold."""
    if version not in schema_.versions:
        raise ValueError(f"{schema_.struct.name} has no version {version}")
    out = bytearray(_INT16.pack(version))
    struct_encoder(schema_.struct, version, False)(out, data)
    return bytes(out)
