"""The blobs that group members put into the log: subscriptions, assignments, worker states.

A blob is int16 version and a never-flexible body.  The ``decode_…`` functions return the body's fields
(:func:`blob_version` gives the version) and raise
:class:`~coordinator_core.records.wire.RecordDecodeError` for anything Kafka's clients would reject;
blobs of protocol types other than ``consumer`` and ``connect`` are opaque and never passed here.

Sources: ``ConsumerProtocol`` (KIP-429, KIP-792, KIP-881), ``ConnectProtocol`` and
``IncrementalCooperativeConnectProtocol`` (KIP-415, KIP-507).
"""

from __future__ import annotations

import struct
from typing import Any, Final

from coordinator_core.records.codec_closures import struct_decoder, struct_encoder
from coordinator_core.records.generated import ordinary_decoder
from coordinator_core.records.types import ArrayOf, Field, Primitive, Schema, Struct, schema
from coordinator_core.records.wire import Reader, RecordDecodeError

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
CONNECT_PROTOCOL_TYPE: Final = "connect"
CONNECTOR_TASK: Final = -1
"""Task number that stands for the connector itself."""

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

_CONNECTORS = ArrayOf(
    Struct(
        "ConnectorAssignment",
        (Field("connector", Primitive.STRING), Field("tasks", ArrayOf(Primitive.INT32))),
    )
)
_CONNECT_METADATA: Final = schema(
    "ConnectMetadata",
    Field("url", Primitive.STRING),
    Field("configOffset", Primitive.INT64),
    last_version=2,
)
_CONNECT_METADATA_OPTIONAL: Final = (
    Struct("allocation", (Field("allocation", Primitive.BYTES, nullable=True, default=None),)),
)
_CONNECT_ASSIGNMENT: Final = schema(
    "ConnectAssignment",
    Field("error", Primitive.INT16),
    Field("leader", Primitive.STRING),
    Field("leaderUrl", Primitive.STRING),
    Field("configOffset", Primitive.INT64),
    Field("assignment", _CONNECTORS, until=0),
    last_version=2,
)
_CONNECT_ASSIGNMENT_OPTIONAL: Final = (
    Struct("assignment", (Field("assignment", _CONNECTORS, nullable=True, default=None),)),
    Struct("revoked", (Field("revoked", _CONNECTORS, nullable=True, default=None),)),
    Struct("delay", (Field("delay", Primitive.INT32),)),
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


def encode_consumer_subscription(version: int, data: dict[str, Any]) -> bytes:
    """Bytes of a subscription; ``ValueError`` for an unknown version or values it cannot hold."""
    return _encode(CONSUMER_SUBSCRIPTION, version, data)


def encode_consumer_assignment(version: int, data: dict[str, Any]) -> bytes:
    """Bytes of an assignment; ``ValueError`` for an unknown version or values it cannot hold."""
    return _encode(CONSUMER_ASSIGNMENT, version, data)


def decode_connect_metadata(data: bytes) -> dict[str, Any]:
    """A Connect worker's state: url, configOffset, and from v1 on allocation (an assignment blob or None)."""
    return _decode_connect(_CONNECT_METADATA, _CONNECT_METADATA_OPTIONAL, data)


def decode_connect_assignment(data: bytes) -> dict[str, Any]:
    """A Connect worker's assignment: error, leader, leaderUrl, configOffset, assignment; from v1 on
    revoked and delay (milliseconds). Connectors are ``{"connector", "tasks"}``; see :data:`CONNECTOR_TASK`.
    """
    return _decode_connect(_CONNECT_ASSIGNMENT, _CONNECT_ASSIGNMENT_OPTIONAL, data)


def encode_connect_metadata(version: int, data: dict[str, Any]) -> bytes:
    """Bytes of a worker's state; ``ValueError`` as for subscriptions."""
    return _encode_connect(_CONNECT_METADATA, _CONNECT_METADATA_OPTIONAL, version, data)


def encode_connect_assignment(version: int, data: dict[str, Any]) -> bytes:
    """Bytes of a worker's assignment; ``ValueError`` as for subscriptions."""
    return _encode_connect(_CONNECT_ASSIGNMENT, _CONNECT_ASSIGNMENT_OPTIONAL, version, data)


def _read_version(reader: Reader, what: str) -> int:
    version = reader.int16()
    if version < 0:
        raise RecordDecodeError(0, f"unsupported {what} version {version}")
    return version


def _decode_known_prefix(schema_: Schema, data: bytes, what: str) -> dict[str, Any]:
    reader = Reader(data)
    version = min(_read_version(reader, what), schema_.last_version)
    ordinary = ordinary_decoder(schema_.struct, version, False)(data, _INT16.size)
    return struct_decoder(schema_.struct, version, False)(reader) if ordinary is None else ordinary[0]


def _decode_connect(schema_: Schema, optional: tuple[Struct, ...], data: bytes) -> dict[str, Any]:
    """Fields that came with v1 are optional: at the end of the bytes the rest take their defaults."""
    reader = Reader(data)
    version = min(_read_version(reader, "Connect protocol"), schema_.last_version)
    fields = struct_decoder(schema_.struct, version, False)(reader)
    for one_field in optional if version > 0 else ():
        if reader.remaining:
            fields |= struct_decoder(one_field, version, False)(reader)
        else:
            fields |= {field.name: field.default_value(version) for field in one_field.fields}
    return fields


def _encode_connect(schema_: Schema, optional: tuple[Struct, ...], version: int, data: dict[str, Any]) -> bytes:
    later = {field.name for one_field in optional for field in one_field.fields} if version > 0 else set()
    out = bytearray(_encode(schema_, version, {name: data[name] for name in data if name not in later}))
    for one_field in optional if version > 0 else ():
        part = {field.name: data[field.name] for field in one_field.fields if field.name in data}
        struct_encoder(one_field, version, False)(out, part)
    return bytes(out)


def _encode(schema_: Schema, version: int, data: dict[str, Any]) -> bytes:
    if version not in schema_.versions:
        raise ValueError(f"{schema_.struct.name} has no version {version}")
    out = bytearray(_INT16.pack(version))
    struct_encoder(schema_.struct, version, False)(out, data)
    return bytes(out)
